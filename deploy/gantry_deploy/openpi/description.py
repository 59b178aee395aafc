"""Descriptions of policies: inputs, actions and rate, told over a wire and compared before anything is trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import MalformedMessageError
from gantry_hardware.files.bounds import Range, finite, is_number, whole
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.text import names_text, plain_text

METADATA_KEY = "gantry"
"""Key of a description in the metadata of a server."""
STATE_OF_CONTRACT = "observation of the contract, scaled"
"""Unit of a state that is the observation vector of a contract: its terms, clipped, scaled and stacked."""
MAX_SIZE = 65536
"""Largest size of a state, an action, a picture's edge, or a plan."""
RATES_HZ = Range(0.01, 10_000.0)
"""Rates of a policy."""
_CLOSE = 1e-6
"""Relative difference up to which two scales or rates are the same."""


@dataclass(frozen=True)
class CameraNeed:
    """A colour picture that a policy sees: uint8, rows from above, red, green and blue."""

    name: str
    """Name of the camera."""
    height: int
    """Rows."""
    width: int
    """Columns."""


@dataclass(frozen=True)
class PolicyDescription:
    """Inputs and outputs of a policy, as a server or teacher tells them; None and empty texts are what was not told."""

    cameras: tuple[CameraNeed, ...] | None = None
    """Pictures that it sees; an empty tuple is a policy without cameras."""
    state_size: int | None = None
    """Numbers of its state vector; 0 for none."""
    state_unit: str = ""
    """Meaning of these numbers, for example :data:`STATE_OF_CONTRACT`, or ``rad``."""
    instruction: bool | None = None
    """Whether it follows a text."""
    action_size: int | None = None
    """Numbers of an action."""
    action_names: tuple[str, ...] = ()
    """Names of these numbers, in order."""
    action_space: str = ""
    """Kind and frame of an action, for example ``target/body/pose, step, base``."""
    action_scale: tuple[float, ...] = ()
    """Per number of an action, the physical amount of one unit; the same action means another motion with another."""
    action_offset: tuple[float, ...] = ()
    """Per number of an action, the physical amount at zero."""
    horizon: int | None = None
    """Actions in an answer; 1 for a policy that is asked in every step."""
    rate_hz: float | None = None
    """Rate at which its actions are meant to follow one another."""
    max_rows: int | None = None
    """Questions that one call may hold, with the key ``gantry/rows``; None for one question in each call."""
    has_statistics: bool | None = None
    """Whether the statistics of its normaliser were loaded, or lie in its graph; without, actions mean nothing."""

    def __post_init__(self) -> None:
        for name in ("state_size", "action_size", "horizon", "max_rows"):
            if (value := getattr(self, name)) is not None:
                whole(
                    f"{name} of a policy's description",
                    value,
                    int(name != "state_size"),
                    MAX_SIZE,
                    MalformedMessageError,
                )
        for camera in self.cameras or ():
            for name in ("height", "width"):
                whole(
                    f"{name} of camera {plain_text(camera.name)}",
                    getattr(camera, name),
                    1,
                    MAX_SIZE,
                    MalformedMessageError,
                )
        if self.rate_hz is not None:
            finite("rate_hz of a policy's description", self.rate_hz, *RATES_HZ, MalformedMessageError)
        for name in ("action_names", "action_scale", "action_offset"):
            if (given := getattr(self, name)) and self.action_size is not None and len(given) != self.action_size:
                raise MalformedMessageError(
                    f"{name} of a policy's description has {len(given)} entries, action_size is {self.action_size}."
                )

    def to_metadata(self) -> dict[str, Any]:
        """Metadata that tell this description, beside whatever else a server tells."""
        told = {name: value for name, value in asdict(self).items() if value is not None and value != ""}
        return {METADATA_KEY: _lists(told)}

    @classmethod
    def from_metadata(cls, metadata: Mapping[Any, Any]) -> PolicyDescription:
        """The description in a server's metadata; one that tells nothing where there is none.

        Keys that this version does not know are left aside.

        Raises:
            MalformedMessageError: If a field is of the wrong type or out of range.
        """
        told = metadata.get(METADATA_KEY)
        if told is None:
            return cls()
        if not isinstance(told, Mapping):
            raise MalformedMessageError(f"The server's description is {plain_text(told)}, expected a map.")
        known = {item.name for item in fields(cls)}
        found = {name: value for name, value in told.items() if name in known}
        return from_plain(cls, found, "The server's description", MalformedMessageError)


def description_of(contract: PolicyContract) -> PolicyDescription:
    """Description of a bundle's policy that is given its contract's observation vector."""
    kind = embodiment_of(contract).action_kind(contract.action.kind)
    steps = contract.planned_steps()
    return PolicyDescription(
        cameras=tuple(CameraNeed(item.name, item.height, item.width) for item in contract.cameras),
        state_size=contract.observation_size,
        state_unit=STATE_OF_CONTRACT,
        instruction=contract.instruction is not None,
        action_size=contract.action_size,
        action_names=kind.labels(contract),
        action_space=action_space(contract),
        action_scale=contract.action.scale,
        action_offset=contract.action.offset_rad,
        horizon=1 if steps is None else steps,
        rate_hz=contract.rate_hz,
        has_statistics=True,
    )


def action_space(contract: PolicyContract) -> str:
    """Kind of a contract's actions, whether they are steps or places, and the limit of each number."""
    way = "step" if embodiment_of(contract).is_relative(contract) else "place"
    return (
        f"{contract.action.kind}, {contract.embodiment}, {way}, -{contract.action.clip:g} to {contract.action.clip:g}"
    )


def mismatches(description: PolicyDescription, student: PolicyDescription) -> list[str]:
    """Reasons against using a policy for a student, one sentence each; empty if what both tell fits.

    Args:
        description: Of the policy that is to be asked.
        student: Of the policy, or the robot, that asks: the cameras and the state that it has, and the actions that it
            would take.
    """
    return [*_inputs(description, student), *_actions(description, student)]


def unchecked(description: PolicyDescription, student: PolicyDescription) -> list[str]:
    """Fields that could not be compared, one sentence each: the policy, or the student, does not tell them."""
    found = []
    for name in _COMPARED:
        sides = [side for side, told in (("policy", description), ("student", student)) if _untold(told, name)]
        if sides and not (name == "has_statistics" and sides == ["student"]):
            found.append(f"{name} is unchecked: the {' and the '.join(sides)} does not tell it.")
    return found


_COMPARED = (
    "cameras",
    "state_size",
    "state_unit",
    "instruction",
    "action_size",
    "action_names",
    "action_space",
    "action_scale",
    "action_offset",
    "rate_hz",
    "has_statistics",
)


def _untold(told: PolicyDescription, name: str) -> bool:
    value = getattr(told, name)
    return value is None or (name not in ("cameras",) and value in ("", ()))


def _inputs(policy: PolicyDescription, student: PolicyDescription) -> list[str]:
    found = []
    if policy.cameras is not None and student.cameras is not None:
        there = {camera.name: camera for camera in student.cameras}
        for camera in policy.cameras:
            if (has := there.get(camera.name)) is None:
                has_names = names_text(there) or "(none)"
                found.append(f"The policy sees camera {plain_text(camera.name)}, the student has: {has_names}.")
            elif (has.height, has.width) != (camera.height, camera.width):
                found.append(
                    f"Camera {plain_text(camera.name)}: the policy sees {camera.height} x {camera.width} pixels, the "
                    f"student has {has.height} x {has.width}."
                )
    # A policy without a state vector does with any.
    if policy.state_size != 0:
        found += _different(policy, student, "state_size", "numbers of state")
        found += _different(policy, student, "state_unit", "as the meaning of its state")
    if policy.instruction and student.instruction is False:
        found.append("The policy follows an instruction, and the student gives none.")
    return found


def _actions(policy: PolicyDescription, student: PolicyDescription) -> list[str]:
    found = _different(policy, student, "action_size", "numbers of an action")
    if not found:
        found += _different(policy, student, "action_names", "as names of an action's numbers")
    found += _different(policy, student, "action_space", "as its space of actions")
    found += _different(policy, student, "action_scale", "as units of its actions")
    found += _different(policy, student, "action_offset", "as zeros of its actions")
    found += _different(policy, student, "rate_hz", "Hz as its rate")
    if policy.has_statistics is False:
        found.append("The policy has no statistics of its normaliser, so that its actions are in no known unit.")
    return found


def _different(policy: PolicyDescription, student: PolicyDescription, name: str, words: str) -> list[str]:
    if _untold(policy, name) or _untold(student, name):
        return []
    mine, theirs = getattr(policy, name), getattr(student, name)
    if mine == theirs or _close(mine, theirs):
        return []
    return [f"The policy has {_shown(mine)} {words}, the student {_shown(theirs)} ({name})."]


def _close(mine: Any, theirs: Any) -> bool:
    """Whether two numbers, or two tuples of numbers, are the same but for rounding."""
    if isinstance(mine, tuple):
        return len(mine) == len(theirs) and all(_close(a, b) for a, b in zip(mine, theirs, strict=True))
    return is_number(mine) and math.isclose(mine, theirs, rel_tol=_CLOSE)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return names_text(f"{item:g}" if isinstance(item, float) else item for item in value)
    return f"{value:g}" if isinstance(value, float) else plain_text(value)


def _lists(value: Any) -> Any:
    """Tuples as the lists that msgpack has, in maps and lists too."""
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, (list, tuple)) else value
