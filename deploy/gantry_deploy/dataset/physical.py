"""Physical values of demonstrations and the numbers of a policy: names, units, and the only conversion between them.

A dataset holds what was measured and asked for, in SI units; a policy takes ``scale * clip(value - offset)`` and gives
``(value - offset) / scale``. Scales, offsets and clips are the contract's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.arm_spec import BODY_TARGET
from gantry_deploy.contract.policy_contract import ObservationTerm, PolicyContract
from gantry_deploy.dataset.features import (
    ACTION,
    ENVIRONMENT_STATE,
    IMAGES,
    IS_DEMO,
    JOINT_POSITION_TARGET,
    STATE,
    Feature,
    camera,
    rl_features,
    scalar,
    vector,
)
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import DatasetError
from gantry_deploy.observations.labels import labels_of

VELOCITY, JOINT_LEAD, EE_POSE = "observation.velocity", "observation.joint_lead", "observation.ee_pose"
"""Joint velocities; how far joint targets are ahead of the joints; the end effector in the arm's base frame."""
GRIPPER = "gripper"
"""LeRobot's name for the joint of a gripper."""
BODY_STEP, JOINT_STEP = "step/body/pose", "step/joint/position"
"""Kinds of an action that is a step of the end effector's target, or of the joints' targets; a gripper's number is a
place all the same."""
RANGE_TOLERANCE = 1e-5
"""An action may leave its range by this share of it, which is what single precision leaves."""

_XYZ = ("x", "y", "z")
_ROTATION = tuple(f"{axis}_axis.{part}" for axis in ("x", "y") for part in _XYZ)
_BODY_TERMS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "ee_pos": (EE_POSE, "ee", _XYZ),
    "ee_from_start": (EE_POSE, "ee_from_start", _XYZ),
    "ee_rotation": (EE_POSE, "ee", _ROTATION),
    "object_pos": (ENVIRONMENT_STATE, "object", _XYZ),
    "object_rotation": (ENVIRONMENT_STATE, "object", _ROTATION),
    "object_from_ee": (ENVIRONMENT_STATE, "object_from_ee", _XYZ),
    "object_goal": (ENVIRONMENT_STATE, "goal", _XYZ),
    "goal_from_object": (ENVIRONMENT_STATE, "goal_from_object", _XYZ),
}
"""By observation term: its feature, and prefix and parts of its names."""
_JOINT_TERMS = {
    "joint_pos": (STATE, "pos", ""),
    "joint_from_start": (STATE, "from_start", ""),
    "joint_vel": (VELOCITY, "vel", "/s"),
    "joint_lead": (JOINT_LEAD, "lead", ""),
}
"""By observation term: its feature, and what stands after the joint's name and after its unit."""


@dataclass(frozen=True)
class Numbers:
    """Some numbers that a policy takes or gives, and the feature of a dataset that holds their physical values."""

    feature: str
    """Name of the feature."""
    names: tuple[str, ...]
    """Names of the numbers; empty if the task has none."""
    units: tuple[str, ...]
    """SI unit of each; empty if the task says none."""
    scale: tuple[float, ...]
    """Of an observation: policy's number per physical unit. Of an action: physical units per policy's number."""
    offset: tuple[float, ...]
    """Physical value at which the policy's number is 0."""
    clip: float | None = None
    """Largest distance from the offset that an observation shows; largest number of an action."""

    @property
    def size(self) -> int:
        """Number of numbers."""
        return len(self.scale)

    @property
    def range(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lowest and highest values of an action in physical units, (size,) each."""
        reach = np.abs(np.array(self.scale)) * (np.inf if self.clip is None else self.clip)
        return np.array(self.offset) - reach, np.array(self.offset) + reach


def observation_numbers(contract: PolicyContract) -> tuple[Numbers, ...]:
    """The state that a policy observes, in the order in which it takes it.

    Raises:
        DatasetError: If it sees its own past, which frames of a dataset do not hold.
    """
    for term in contract.observations:
        if term.history != 1:
            raise DatasetError(
                f"Observation '{term.name}' has a history of {term.history} steps; demonstrations hold only the newest."
            )
    return tuple(_numbers_of(contract, term) for term in contract.observations)


def action_numbers(contract: PolicyContract) -> Numbers:
    """The action of a policy of an arm."""
    names = joint_labels(contract, "pos")
    units = joint_units(contract)
    grips = bool(_gripper(contract))
    if contract.action.kind == BODY_TARGET:
        count = contract.action_size - grips
        turns = tuple(f"delta_r{axis}" for axis in _XYZ)
        names = (*(f"delta_{axis}" for axis in _XYZ), *turns)[:count] + ((f"{GRIPPER}.pos",) if grips else ())
        units = ("m",) * 3 + ("rad",) * (count - 3) + (("m",) if grips else ())
    elif embodiment_of(contract).is_relative(contract):
        names = tuple(name if name == f"{GRIPPER}.pos" else name.removesuffix(".pos") + ".delta" for name in names)
    scale = tuple(float(value) for value in contract.action.scale)
    offset = tuple(float(value) for value in contract.action.offset_rad)
    return Numbers(ACTION, names, units, scale, offset, contract.action.clip)


def action_kind(contract: PolicyContract) -> str:
    """Kind of the physical action, for a dataset's ``info.json``."""
    if contract.action.kind == BODY_TARGET:
        return BODY_STEP
    return JOINT_STEP if embodiment_of(contract).is_relative(contract) else JOINT_POSITION_TARGET


def demo_features(contract: PolicyContract) -> dict[str, Feature]:
    """Features of a frame of a demonstration, for policies with this contract."""
    parts: dict[str, list[Numbers]] = {}
    for numbers in observation_numbers(contract):
        parts.setdefault(numbers.feature, []).append(numbers)
    action = action_numbers(contract)
    return {
        **{
            name: vector(
                [label for part in inside for label in part.names],
                unit=[unit for part in inside for unit in part.units],
            )
            for name, inside in parts.items()
        },
        ACTION: vector(action.names, dtype="float64", kind=action_kind(contract), unit=action.units),
        **{IMAGES + item.name: camera(item.height, item.width) for item in contract.cameras},
        **rl_features(),
        IS_DEMO: scalar("bool"),
    }


def physical_features(parts: Sequence[Numbers], observed: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Observations of a policy, (M, size), scaled, as columns of a dataset in physical units, (M, n) by feature.

    :func:`policy_observation` gives the same numbers again to the bit, if they were made of single precision.
    """
    found: dict[str, list[NDArray[np.float32]]] = {}
    start = 0
    for part in parts:
        found.setdefault(part.feature, []).append(_physical(part, observed[:, start : start + part.size]))
        start += part.size
    return {name: np.concatenate(columns, axis=1) for name, columns in found.items()}


def policy_observation(part: Numbers, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Values in physical units, (M, n), as the policy observes them: ``scale * clip(value - offset)`` in single
    precision.
    """
    shifted = values.astype(np.float32) - np.array(part.offset, np.float32)
    if part.clip is not None:
        shifted = np.clip(shifted, np.float32(-part.clip), np.float32(part.clip))
    return shifted * np.array(part.scale, np.float32)


def physical_action(part: Numbers, action: NDArray[np.float32]) -> NDArray[np.float64]:
    """A policy's action, (M, n), in physical units; what lies beyond its range is cut off, as a robot does.

    In double precision, so that :func:`policy_action` gives the same numbers again.
    """
    bound = np.inf if part.clip is None else part.clip
    limited = np.clip(action.astype(np.float64), -bound, bound)
    return np.array(part.offset) + np.array(part.scale) * limited


def policy_action(part: Numbers, values: NDArray[Any]) -> NDArray[np.float32]:
    """An action in physical units, (M, n), as the policy would give it.

    Values are not compared with the range, which :func:`out_of_range` does, and rounding beyond it is cut off.
    """
    bound = np.inf if part.clip is None else part.clip
    found = (values.astype(np.float64) - np.array(part.offset)) / np.array(part.scale)
    return np.clip(found, -bound, bound).astype(np.float32)


def out_of_range(part: Numbers, values: NDArray[Any]) -> tuple[int, int] | None:
    """Row and column of the first physical action, (M, n), that the policy could not give; None if there is none."""
    lower, upper = part.range
    slack = RANGE_TOLERANCE * np.maximum(upper - lower, np.abs(np.array(part.offset))) if part.clip is not None else 0.0
    inside = (values >= lower - slack) & (values <= upper + slack)  # False for NaN.
    wrong = np.argwhere(~inside)
    return None if not len(wrong) else (int(wrong[0, 0]), int(wrong[0, 1]))


def joint_labels(contract: PolicyContract, ending: str) -> tuple[str, ...]:
    """Names of the joints as LeRobot writes them: ``joint1.pos``, and ``gripper.pos`` for a gripper's joint."""
    gripper = _gripper(contract)
    return tuple(f"{GRIPPER if name == gripper else name}.{ending}" for name in contract.joint_names)


def joint_units(contract: PolicyContract, ending: str = "") -> tuple[str, ...]:
    """Units of the joints: m for a gripper, rad for all others."""
    gripper = _gripper(contract)
    return tuple(("m" if name == gripper else "rad") + ending for name in contract.joint_names)


def _gripper(contract: PolicyContract) -> str:
    return embodiment_of(contract).gripper_joint(contract)


def _numbers_of(contract: PolicyContract, term: ObservationTerm) -> Numbers:
    offset = (0.0,) * term.size
    places = [contract.joint_names.index(joint) for joint in term.joints or contract.joint_names]
    if term.name in _JOINT_TERMS:
        feature, ending, per = _JOINT_TERMS[term.name]
        labels, every = joint_labels(contract, ending), joint_units(contract, per)
        names, units = tuple(labels[place] for place in places), tuple(every[place] for place in places)
        if term.name == "joint_pos":
            offset = tuple(float(contract.default_pos_rad[place]) for place in places)
    elif term.name in _BODY_TERMS:
        feature, prefix, labels = _BODY_TERMS[term.name]
        names = tuple(f"{prefix}.{label}" for label in labels)
        units = ("m" if labels == _XYZ else "",) * len(labels)
    else:
        shown = labels_of(contract, term) if term.joints else range(term.size)
        feature, names = f"observation.{term.name}", tuple(f"{term.name}[{label}]" for label in shown)
        units = ("" if "," in term.unit else term.unit,) * term.size
    return Numbers(feature, names, units, (float(term.scale),) * term.size, offset, term.clip)


def _physical(part: Numbers, observed: NDArray[np.float32]) -> NDArray[np.float32]:
    """Physical values that the policy observes so: of the nearest few numbers one that gives them back exactly."""
    scale, offset = np.array(part.scale, np.float64), np.array(part.offset, np.float64)
    best = (observed.astype(np.float64) / scale + offset).astype(np.float32)
    exact = policy_observation(part, best) == observed
    up = down = best
    for _ in range(3):
        up, down = np.nextafter(up, np.float32(np.inf)), np.nextafter(down, np.float32(-np.inf))
        for near in (up, down):
            fits = ~exact & (policy_observation(part, near) == observed)
            best, exact = np.where(fits, near, best), exact | fits
    return best
