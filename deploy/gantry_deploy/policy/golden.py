"""Content of a bundle's ``golden.npz``: one row per recorded step of the training environment, whole episodes in order.

Every policy's file has joint states, ``command``, ``last_action``, ``time_s``, ``observation``, ``action`` (before the
clip) and ``joint_target_rad``; one with a base that moves its attitude and turning rate. Where consecutive rows belong
together, ``episode_start`` says where an episode begins, and an arm, whose targets continue, must have it. The rest
depends on what the policy sees: ``lin_vel_base_in_base_m_s``, ``elevation_map``, ``object_pose_in_base``, and
``image/<camera>`` as uint8 (M, 3, height, width). A residual policy's file has ``base_action``, what the queue of its
base gave in each step. Where targets have velocities, as a car's speed is one, there is ``joint_target_vel_rad_s``, and
where they are efforts ``joint_target_effort_nm``. A car's file has ``pos_base_in_world_m``, whole episodes, and
``around/<field>``, each field of its surroundings. A raster's columns are not in ``observation`` but, before their
scale, as uint8 in ``raster``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.decoder import MAX_DIFFERENCE
from gantry_deploy.bundle.bundle import GOLDEN, Bundle
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import PolicyError
from gantry_deploy.observations.builder import Signals, needed_signals
from gantry_deploy.observations.labels import labels_of
from gantry_deploy.observations.surroundings import Surroundings
from gantry_deploy.policy.onnx_policy import BASE_ACTION, IMAGE_PREFIX, Images
from gantry_deploy.policy.runner import signals_of
from gantry_hardware.backends.state import RobotState

MAX_EPISODE_DIFFERENCE = 1e-4
"""The same where a network answers observations that were computed anew: it multiplies their rounding by its gain."""
MAX_PICTURE_DIFFERENCE = 1e-4
"""The same of networks that see pictures, see :func:`network_tolerance`."""
VELOCITY_ARRAY, MAP_ARRAY, OBJECT_ARRAY = "lin_vel_base_in_base_m_s", "elevation_map", "object_pose_in_base"
"""Recorded signals that only some policies see."""
PLACE_ARRAY, AROUND_PREFIX = "pos_base_in_world_m", "around/"
"""Arrays of robots that need to know where they are, and what is around them."""
EXTRA_PREFIX = "extra/"
"""Arrays of signals that robots of other packages report beside the usual ones."""
TARGET_ARRAY, TARGET_VELOCITY_ARRAY = "joint_target_rad", "joint_target_vel_rad_s"
"""Recorded joint targets, and their velocities where the action gives some."""
TARGET_EFFORT_ARRAY = "joint_target_effort_nm"
"""Recorded efforts of joints, where the action gives some."""
RASTER_TERM, RASTER_ARRAY = "bev", "raster"
"""The observation term that is kept as bytes, and under which name."""

Arrays = Mapping[str, NDArray[Any]]
_STATE_FIELDS = {item.name for item in fields(RobotState)}


class DifferenceError(PolicyError):
    """Recorded and computed numbers differ; ``difference`` is by how much."""

    def __init__(self, text: str, difference: float) -> None:
        super().__init__(text)
        self.difference = difference


def pack_golden(contract: PolicyContract, golden: Arrays) -> dict[str, NDArray[Any]]:
    """Recorded arrays as a bundle keeps them: rasters as bytes, since as floats a thousand fill a quarter gigabyte.

    Args:
        contract: Of the policy.
        golden: With whole observations (M, size).

    Raises:
        PolicyError: If a raster's numbers are no whole ones from 0 to 255 before their scale.
    """
    place = _raster_place(contract)
    if place is None:
        return dict(golden)
    part, scale = place
    observation = golden["observation"]
    raster = np.rint(observation[:, part] / scale)
    if not np.array_equal(raster.astype(np.uint8).astype(np.float32) * scale, observation[:, part]):
        raise PolicyError(f"The recorded '{RASTER_TERM}' holds something else than whole numbers from 0 to 255.")
    rest = np.delete(observation, part, axis=1)
    return {**golden, "observation": rest, RASTER_ARRAY: raster.astype(np.uint8)}


def _unpacked(contract: PolicyContract, golden: Arrays) -> Arrays:
    """The same with whole observations."""
    place = _raster_place(contract)
    if place is None or RASTER_ARRAY not in golden:
        return golden
    part, scale = place
    raster, rest = golden[RASTER_ARRAY], golden.get("observation", np.zeros((0, 0)))
    width = contract.observation_size - (part.stop - part.start)
    if raster.dtype != np.uint8 or raster.shape != (len(rest), part.stop - part.start) or rest.shape[1:] != (width,):
        raise PolicyError(
            f"{GOLDEN}: '{RASTER_ARRAY}' is {raster.dtype} of shape {raster.shape} beside observations of shape "
            f"{rest.shape}, expected uint8 and {part.stop - part.start} columns beside {width}."
        )
    picture = raster.astype(np.float32) * scale
    whole = np.concatenate((rest[:, : part.start], picture, rest[:, part.start :]), axis=1)
    return {name: values for name, values in golden.items() if name != RASTER_ARRAY} | {"observation": whole}


def _raster_place(contract: PolicyContract) -> tuple[slice, np.float32] | None:
    """Columns of a raster in the observation, and its scale."""
    start = 0
    for term in contract.observations:
        if term.name == RASTER_TERM:
            return slice(start, start + term.size), np.float32(term.scale)
        start += term.size * term.history
    return None


def golden_arrays(bundle: Bundle) -> Arrays:
    """A bundle's golden arrays, after their shapes have been checked; M rows.

    Raises:
        PolicyError: If an array is missing, has another shape or is not finite.
    """
    contract = bundle.contract
    golden = _unpacked(contract, bundle.golden)
    widths = _widths(contract)
    missing = [name for name in widths if name not in golden]
    if missing:
        raise PolicyError(f"{GOLDEN} lacks {', '.join(missing)}; it holds: {', '.join(sorted(golden)) or '(nothing)'}.")
    rows = len(np.atleast_1d(golden["time_s"]))
    if rows == 0:
        raise PolicyError(f"{GOLDEN} holds no recorded step.")
    if "episode_start" in golden:
        widths["episode_start"] = ()
    for name in golden:
        if name.startswith(AROUND_PREFIX):
            widths[name] = _around_width(contract, name, golden[name])
    for name, width in widths.items():
        if golden[name].shape != (rows, *width):
            raise PolicyError(f"{GOLDEN}: '{name}' has shape {golden[name].shape}, expected {(rows, *width)}.")
        if golden[name].dtype.kind not in "fiub" or not np.isfinite(golden[name]).all():
            raise PolicyError(f"{GOLDEN}: '{name}' holds something else than finite numbers.")
        if name.startswith(IMAGE_PREFIX) and golden[name].dtype != np.uint8:
            raise PolicyError(f"{GOLDEN}: '{name}' is {golden[name].dtype}, expected uint8.")
    if "episode_start" in golden and not golden["episode_start"][0]:
        raise PolicyError(f"{GOLDEN}: 'episode_start' is false in the first row, so its past is unknown.")
    return golden


def _widths(contract: PolicyContract) -> dict[str, tuple[int, ...]]:
    """Shape of one row of everything that must be there."""
    joints, actions, size = len(contract.joint_names), contract.action_size, contract.observation_size
    widths: dict[str, tuple[int, ...]] = {
        "joint_pos_rad": (joints,),
        "joint_vel_rad_s": (joints,),
        "command": (len(contract.command.names),),
        "last_action": (actions,),
        "time_s": (),
        "observation": (size,),
        "action": (actions,),
        TARGET_ARRAY: (joints,),
    }
    embodiment = embodiment_of(contract)
    if embodiment.base_moves:
        widths |= {"quat_base_to_world_wxyz": (4,), "ang_vel_base_in_base_rad_s": (3,)}
    widths |= {IMAGE_PREFIX + item.name: (3, item.height, item.width) for item in contract.cameras}
    if has_whole_episodes(contract):
        widths["episode_start"] = ()
    if embodiment.needs_odometry:
        widths |= {PLACE_ARRAY: (3,), VELOCITY_ARRAY: (3,)}
    if embodiment.action_kind(contract.action.kind).gives_velocity:
        widths[TARGET_VELOCITY_ARRAY] = (joints,)
    if embodiment.action_kind(contract.action.kind).gives_effort:
        widths[TARGET_EFFORT_ARRAY] = (joints,)
    for name, size in needed_signals(contract).items():
        widths[name if name in _STATE_FIELDS else EXTRA_PREFIX + name] = (size,)
    if contract.is_residual:
        widths[BASE_ACTION] = (actions,)
    if contract.map_window is not None:
        window = contract.map_window
        widths[MAP_ARRAY] = (window.rows, window.cols, len(window.channels))
    return widths


def has_whole_episodes(contract: PolicyContract) -> bool:
    """Whether recordings hold whole episodes, to be repeated through the runner: of what continues between steps."""
    return embodiment_of(contract).repeats_episodes or contract.chunk is not None


def _around_width(contract: PolicyContract, name: str, values: NDArray[Any]) -> tuple[int, ...]:
    """Shape of one row of a car's surroundings: as many points, objects or beams as were recorded."""
    expected = getattr(embodiment_of(contract).rest_surroundings(contract), name[len(AROUND_PREFIX) :], None)
    if expected is None:
        raise PolicyError(f"{GOLDEN}: '{name}' is nothing that this policy could have seen.")
    free = expected.ndim if name == AROUND_PREFIX + "road_cells" else 2
    if expected.ndim != values.ndim or expected.shape[free:] != values.shape[free:]:
        shape = ("rows", *["any number"] * (free - 1), *expected.shape[free:])[: expected.ndim]
        raise PolicyError(f"{GOLDEN}: '{name}' has shape {values.shape}, expected {shape}.")
    return values.shape[1:]


def observation_labels(contract: PolicyContract) -> list[str]:
    """A name for each number of the observation, for example ``joint_pos[FL_hip_joint]`` or ``gait_clock[1], 2 steps
    ago``."""
    return [
        f"{term.name}[{label.strip('[]')}]" + (f", {age} steps ago" if age else "")
        for term in contract.observations
        for age in reversed(range(term.history))
        for label in labels_of(contract, term)
    ]


def action_labels(contract: PolicyContract) -> list[str]:
    """A name for each number of the action."""
    return list(embodiment_of(contract).action_kind(contract.action.kind).labels(contract))


def recorded_state(golden: Arrays, row: int) -> RobotState:
    """State of a recorded row as a robot would have reported it: joints (n,), rad and rad/s, vectors in the base
    frame.
    """

    def numbers(name: str) -> NDArray[np.float64]:
        return golden[name][row].astype(np.float64)

    joints = numbers("joint_pos_rad")
    floats = "quat_base_to_world_wxyz" in golden
    return RobotState(
        stamp_s=float(golden["time_s"][row]),
        joint_pos_rad=joints,
        joint_vel_rad_s=numbers("joint_vel_rad_s"),
        joint_effort_nm=np.zeros_like(joints),
        quat_base_to_world_wxyz=(numbers("quat_base_to_world_wxyz") if floats else np.array([1.0, 0.0, 0.0, 0.0])),
        ang_vel_base_in_base_rad_s=numbers("ang_vel_base_in_base_rad_s") if floats else np.zeros(3),
        lin_acc_base_in_base_m_s2=np.zeros(3),
        pos_base_in_world_m=numbers(PLACE_ARRAY) if PLACE_ARRAY in golden else None,
        lin_vel_base_in_base_m_s=numbers(VELOCITY_ARRAY) if VELOCITY_ARRAY in golden else None,
        object_pose_in_base=numbers(OBJECT_ARRAY) if OBJECT_ARRAY in golden else None,
        extra={
            name.removeprefix(EXTRA_PREFIX): np.atleast_1d(numbers(name))
            for name in golden
            if name.startswith(EXTRA_PREFIX)
        },
    )


def recorded_signals(contract: PolicyContract, golden: Arrays, row: int) -> Signals:
    """Signals from which the policy's observation of a recorded row was made, arrays of one row; the last targets, (1,
    n) rad, are those of the row before.
    """
    window = golden[MAP_ARRAY][row] if MAP_ARRAY in golden else None
    command, last_action = (golden[name][row : row + 1].astype(np.float32) for name in ("command", "last_action"))
    around = recorded_surroundings(contract, golden, row)
    signals = signals_of(
        recorded_state(golden, row), command, last_action, float(golden["time_s"][row]), window, around
    )
    if "episode_start" in golden:
        signals.joint_target_rad = _last_targets(golden, row)
        start = row - int(np.argmax(golden["episode_start"][row::-1]))
        signals.start_joint_pos_rad = golden["joint_pos_rad"][start : start + 1].astype(np.float32)
    return signals


def recorded_surroundings(contract: PolicyContract, golden: Arrays, row: int) -> Surroundings | None:
    """Surroundings in a recorded row; None for robots that see none."""
    if embodiment_of(contract).rest_surroundings(contract) is None:
        return None
    seen = {
        name.removeprefix(AROUND_PREFIX): values[row : row + 1]
        for name, values in golden.items()
        if name.startswith(AROUND_PREFIX)
    }
    return Surroundings(**seen)


def _last_targets(golden: Arrays, row: int) -> NDArray[np.float32]:
    """Joint targets (1, n) before a recorded step: where the joints were, at the start of an episode."""
    begins = bool(golden["episode_start"][row])
    name, source = ("joint_pos_rad", row) if begins else (TARGET_ARRAY, row - 1)
    return golden[name][source : source + 1].astype(np.float32)


def recorded_images(golden: Arrays, row: int) -> Images | None:
    """The pictures, uint8 (3, height, width), that the policy saw in a recorded row, by camera; None without
    cameras.
    """
    images = {
        name.removeprefix(IMAGE_PREFIX): values[row] for name, values in golden.items() if name.startswith(IMAGE_PREFIX)
    }
    return images or None


def network_tolerance(contract: PolicyContract) -> float:
    """Largest difference between a network's answers here and recorded ones, dimensionless.

    Networks that see pictures sum some thousand numbers in float32 for each of theirs, and in another order in every
    library.
    """
    return MAX_PICTURE_DIFFERENCE if contract.cameras else MAX_DIFFERENCE


def compare(
    what: str, found: NDArray[Any], expected: NDArray[Any], labels: list[str], allowed: float = MAX_DIFFERENCE
) -> float:
    """Largest absolute difference of two tables (M, k) of one unit, in that unit.

    Raises:
        DifferenceError: If it is too large, naming the worst entry.
    """
    if not found.size:
        return 0.0
    error = np.abs(found.astype(np.float64) - expected)
    row, column = np.unravel_index(int(np.argmax(error)), error.shape)
    worst = float(error[row, column])
    # "not <=", so that NaN does not pass.
    if not worst <= allowed:
        raise DifferenceError(
            f"Recorded and computed {what} differ by {worst:.3g}, allowed are {allowed:g}; worst in row {row}, "
            f"{labels[column]}: recorded {expected[row, column]:.7g}, computed {found[row, column]:.7g}.",
            worst,
        )
    return worst
