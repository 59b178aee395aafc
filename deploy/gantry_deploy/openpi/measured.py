"""Measured state of a robot in a message: keys, shapes and units, and the robot state that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_deploy.contract.policy_contract import INSTRUCTION_TERM, PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import PolicyError
from gantry_deploy.observations.builder import ObservationBuilder, needed_signals
from gantry_deploy.policy.runner import signals_of
from gantry_hardware.backends.state import RobotState
from gantry_hardware.files.text import plain_text

FloatArray = NDArray[np.float64]

PREFIX = "observation/"
"""Beginning of the keys of what a policy sees."""
JOINT_POSITION, JOINT_TARGET, COMMAND, MAP = "joint_position", "joint_target", "command", "elevation_map"
_FIELDS = {
    JOINT_POSITION: ("joint_pos_rad", "rad"),
    "joint_velocity": ("joint_vel_rad_s", "rad/s"),
    "orientation": ("quat_base_to_world_wxyz", "unit quaternion, w first, base to world"),
    "angular_velocity": ("ang_vel_base_in_base_rad_s", "rad/s, base frame"),
    "linear_velocity": ("lin_vel_base_in_base_m_s", "m/s, base frame"),
    "object_pose": ("object_pose_in_base", "m and unit quaternion, w first, base frame"),
}
"""Key, field of the robot's state, and unit."""

_QUATERNIONS = ("orientation", "object_pose")
UNIT_TOLERANCE = 0.01
"""Largest difference of a quaternion's length from 1 that is rounding of another program."""


@dataclass(frozen=True)
class MeasuredKey:
    """A measured signal that a message may hold."""

    shape: tuple[int, ...]
    """Shape of it."""
    unit: str
    """Unit and frame."""
    required: bool
    """Whether the policy cannot do without it."""


class MeasuredState:
    """Reader of measured states for a contract.

    Args:
        contract: Of the policy.
    """

    def __init__(self, contract: PolicyContract) -> None:
        self._contract = contract
        kind, n = embodiment_of(contract), len(contract.joint_names)
        self._rest = kind.rest_state(contract)
        self.unavailable = _unavailable(contract, self._rest)
        """Reason for which the policy cannot be asked by measured states; empty if it can."""
        needed = needed_signals(contract)
        steps, moves = contract.planned_steps() is None, kind.base_moves
        chunked_target = not steps and _depends(contract, self._rest, "joint_target_rad")
        grips = bool(kind.gripper_joint(contract))
        place, speed = ("rad, a gripper in m", "rad/s, a gripper in m/s") if grips else ("rad", "rad/s")
        needs_speed = moves or _depends(contract, self._rest, "joint_vel_rad_s")
        keys = {
            JOINT_POSITION: MeasuredKey((n,), place, True),
            "joint_velocity": MeasuredKey((n,), speed, needs_speed),
            JOINT_TARGET: MeasuredKey((n,), f"{place}, as sent in the last step", chunked_target),
        }
        if moves:
            keys |= {name: self._key(name, size, True) for name, size in (("orientation", 4), ("angular_velocity", 3))}
        for name, size in (("linear_velocity", 3), ("object_pose", 7)):
            if _FIELDS[name][0] in needed:
                keys[name] = self._key(name, size, True)
        if contract.command.names:
            keys[COMMAND] = MeasuredKey((len(contract.command.names),), ", ".join(contract.command.names), True)
        if (window := contract.map_window) is not None:
            keys[MAP] = MeasuredKey((window.rows, window.cols, len(window.channels)), "m", True)
        self._extra = [name for name in needed if not hasattr(self._rest, name) and name != INSTRUCTION_TERM]
        keys |= {f"extra/{name}": MeasuredKey((needed[name],), "as its name says", True) for name in self._extra}
        self.keys: Mapping[str, MeasuredKey] = keys
        """Signals by the rest of their key, behind ``observation/``."""

    def _key(self, name: str, size: int, required: bool) -> MeasuredKey:
        return MeasuredKey((size,), _FIELDS[name][1], required)

    def read(self, message: Mapping[Any, Any]) -> dict[str, FloatArray]:
        """The signals in a message, each of its shape in :attr:`keys`, in its unit there.

        Raises:
            PolicyError: If the policy cannot be asked so, or a signal is missing, of another shape, or not finite.
        """
        if self.unavailable:
            raise PolicyError(self.unavailable)
        found = {}
        for name, key in self.keys.items():
            if PREFIX + name in message:
                found[name] = numbers(PREFIX + name, message[PREFIX + name], key.shape)
            elif key.required:
                raise PolicyError(f"'{PREFIX}{name}' is missing: {key.shape} numbers, {key.unit}.")
            if name in _QUATERNIONS and name in found:
                norm = float(np.linalg.norm(found[name][-4:]))
                if abs(norm - 1.0) > UNIT_TOLERANCE:
                    raise PolicyError(f"'{PREFIX}{name}' has a quaternion of length {norm:.3g}, expected 1.")
        return found

    def state(self, found: Mapping[str, FloatArray], stamp_s: float) -> RobotState:
        """A robot's state of signals (k,) each, in the units of :attr:`keys`; what is not there is as at rest."""
        values: dict[str, Any] = {field: found[name] for name, (field, _) in _FIELDS.items() if name in found}
        extra = {name: found[f"extra/{name}"] for name in self._extra}
        return replace(self._rest, stamp_s=stamp_s, **values, extra=extra)


def numbers(name: str, value: Any, shape: tuple[int, ...]) -> FloatArray:
    """Finite numbers of any unit that a message holds, of a shape such as (n,).

    Raises:
        PolicyError: If they are none, or of another shape.
    """
    if isinstance(value, (list, tuple)) and all(type(item) in (int, float) for item in value):
        value = np.array(value, np.float64)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
        kind = value.dtype if isinstance(value, np.ndarray) else plain_text(value)
        raise PolicyError(f"'{name}' is {kind}, expected an array of {shape} numbers.")
    if value.shape != shape:
        raise PolicyError(f"'{name}' has shape {value.shape}, expected {shape}.")
    if not np.isfinite(value).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])
        raise PolicyError(f"'{name}' is not finite: {value[place]} at {place}.")
    return value.astype(np.float64)


def _unavailable(contract: PolicyContract, rest: RobotState) -> str:
    instead = f"Send '{PREFIX}state', the contract's whole observation."
    if embodiment_of(contract).rest_surroundings(contract) is not None:
        return f"The policy sees surroundings, which this protocol has no keys for. {instead}"
    if (planned := contract.planned_steps()) is None:
        return ""
    past = [term.name for term in contract.observations if term.history > 1]
    past += [name for name in ("last_action", "time_s") if _depends(contract, rest, name)]
    if not past:
        return ""
    return f"The policy plans {planned} steps and sees what happened in each ({', '.join(past)}). {instead}"


def _depends(contract: PolicyContract, rest: RobotState, signal: str) -> bool:
    """Whether a contract's observation depends on a signal: one that is no number leaves a trace in it."""
    window = contract.map_window
    flat = None if window is None else np.zeros((window.rows, window.cols, len(window.channels)))
    command = np.ones((1, len(contract.command.names)), np.float32)
    action = np.zeros((1, contract.action_size), np.float32)
    signals = signals_of(rest, command, action, 0.0, flat, embodiment_of(contract).rest_surroundings(contract))
    signals.joint_target_rad = signals.start_joint_pos_rad = signals.joint_pos_rad
    signals.extra = {**signals.extra, INSTRUCTION_TERM: np.zeros((1, MAX_WORDS), np.float32)}
    setattr(signals, signal, np.full_like(getattr(signals, signal), np.nan))
    with np.errstate(invalid="ignore"):
        return not np.isfinite(ObservationBuilder(contract, np.zeros((1, 1), np.float32))(signals)).all()
