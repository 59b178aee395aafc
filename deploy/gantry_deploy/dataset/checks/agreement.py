"""Demonstrations compared with what a task expects, in all that gives their numbers a meaning.

One comparison for every learner, for runs that are continued and for datasets that are continued.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.dataset.features import IMAGES, Feature
from gantry_deploy.dataset.notes import PHYSICAL, read_notes, recorded_contract, values_of
from gantry_deploy.dataset.physical import Numbers, action_numbers, observation_numbers
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.errors import DatasetError
from gantry_hardware.files.json_file import as_plain

_LOG = logging.getLogger("gantry.dataset")
_COMPARED = ("robot", "rate_hz", "joint_names", "action", "command", "body")
"""Parts of a recorded contract that give physical values their meaning; scales of observations do not."""
_OF_POLICIES = (*_COMPARED, "default_pos_rad", "observations", "cameras")
"""The same of a policy's own numbers."""
MOST_DIFFERENCES, MOST_TEXT = 3, 100
"""Differences in one message, a line each, and characters of what a dataset says in each."""


@dataclass(frozen=True)
class Expected:
    """Requirements of a task on demonstrations to learn from."""

    task: str
    """Registry name of the task."""
    robot: str
    """Robot name; empty if the task has none."""
    rate_hz: float
    """Control rate; 0 if the task has none."""
    observation: tuple[Numbers, ...]
    """The state that policies observe, in their order."""
    action: Numbers
    """Numbers that policies give."""
    cameras: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Height and width by camera."""
    contract: PolicyContract | None = None
    """Of the policies, compared with the one that Gantry notes beside a dataset."""

    @classmethod
    def of(cls, task: str, contract: PolicyContract) -> Expected:
        """Requirements of a task with a contract."""
        return cls(
            task,
            contract.robot,
            contract.rate_hz,
            observation_numbers(contract),
            action_numbers(contract),
            {item.name: (item.height, item.width) for item in contract.cameras},
            contract,
        )

    def described(self) -> dict[str, Any]:
        """The same as plain data, as a run keeps it with its copy of demonstrations."""
        return {
            "task": self.task,
            "robot": self.robot,
            "rate_hz": float(self.rate_hz),
            "observation": [
                [part.feature, list(part.names), list(part.units), *_numbers(part)] for part in self.observation
            ],
            "action": [self.action.feature, list(self.action.names), list(self.action.units), *_numbers(self.action)],
            "cameras": {name: list(size) for name, size in self.cameras.items()},
        }


@dataclass(frozen=True)
class Agreement:
    """Parts of a dataset that agree with what a task expects."""

    observation: tuple[tuple[str, NDArray[np.int64]], ...]
    """For each part of the observation: its feature, and the columns in the task's order."""
    action: tuple[str, NDArray[np.int64]]
    """The same of the action."""
    not_compared: tuple[str, ...]
    """Facts that the dataset does not state."""


def require_agreement(dataset: Dataset, expected: Expected) -> Agreement:
    """Refuse demonstrations of something else than the task; what the dataset does not say is logged.

    Raises:
        DatasetError: With both sides of everything that differs.
    """
    differences: list[str] = []
    silent: list[str] = []
    _compare_notes(dataset, expected, differences, silent)
    if expected.robot:
        if not dataset.robot_type:
            silent.append(f"the robot (the task is of '{expected.robot}')")
        elif dataset.robot_type != expected.robot:
            differences.append(f"robot is {_short(dataset.robot_type)} there, {expected.robot!r} here")
    if expected.rate_hz and float(dataset.fps) != float(expected.rate_hz):
        differences.append(f"rate is {dataset.fps} Hz there, {expected.rate_hz:g} Hz here")
    starts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for part in expected.observation:
        sizes[part.feature] = sizes.get(part.feature, 0) + part.size
    observation = []
    for part in expected.observation:
        start = starts.get(part.feature, 0)
        starts[part.feature] = start + part.size
        found = _locate(dataset, part, start, sizes[part.feature], differences, silent)
        observation.append(found or (part.feature, np.zeros(0, np.int64)))
    action = _locate(dataset, expected.action, 0, expected.action.size, differences, silent, exact=True)
    _compare_cameras(dataset, expected, differences)
    if differences or action is None:
        raise DatasetError(
            f"The demonstrations in '{dataset.folder}' do not fit the task '{expected.task}':{_listed(differences)}"
        )
    if silent:
        _LOG.warning(
            "'%s' does not say, so this was not compared: %s.", dataset.folder, "; ".join(dict.fromkeys(silent))
        )
    return Agreement(tuple(observation), action, tuple(dict.fromkeys(silent)))


def _listed(differences: Sequence[str]) -> str:
    """The first differences, a line each; a single one stays on the line before."""
    more = len(differences) - MOST_DIFFERENCES
    end = f"; and {more} more." if more > 0 else "."
    between = " " if len(differences) == 1 else "\n  "
    return "".join(f"{between}{text}" for text in differences[:MOST_DIFFERENCES]) + end


def first_difference(there: Any, here: Any, name: str = "") -> str:
    """The first place in which two plain values differ, with both sides; empty if they are equal."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in dict.fromkeys([*here, *there]):
            inner = f"{name}.{key}" if name else str(key)
            if key not in there or key not in here:
                return f"{inner} is {'missing there' if key not in there else 'missing here'}"
            if found := first_difference(there[key], here[key], inner):
                return found
        return ""
    if isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        pairs = enumerate(zip(there, here, strict=True))
        return next(filter(None, (first_difference(a, b, f"{name}[{i}]") for i, (a, b) in pairs)), "")
    if isinstance(there, (int, float)) and isinstance(here, (int, float)) and float(there) == float(here):
        return ""
    return "" if there == here else f"{name} is {_short(there)} there, {_short(here)} here"


def _compare_notes(dataset: Dataset, expected: Expected, differences: list[str], silent: list[str]) -> None:
    notes = read_notes(dataset.folder)
    if notes is None:
        silent.append("the task, the action's range and step sizes (there is no gantry.json)")
        return
    if (values := values_of(notes)) != PHYSICAL:
        differences.append(f"values are those of a session ({_short(values)}) there, physical ones here")
    if notes["task"] != expected.task:
        differences.append(f"task is {_short(notes['task'])} there, {expected.task!r} here")
    if expected.contract is None:
        return
    there, here = (_meaning(item, _COMPARED) for item in (recorded_contract(notes, dataset.folder), expected.contract))
    for name in _COMPARED:
        if found := first_difference(there[name], here[name], name):
            differences.append(found)


def policy_numbers(contract: PolicyContract) -> dict[str, Any]:
    """Parts of a contract that give a policy's own numbers their meaning, as plain data to compare."""
    return _meaning(contract, _OF_POLICIES)


def _meaning(contract: PolicyContract, names: Sequence[str]) -> dict[str, Any]:
    """Parts of a contract as plain data; cameras of physical datasets are compared by the pictures themselves."""
    data = as_plain(asdict(contract))
    return {name: data[name] for name in names}


def _locate(
    dataset: Dataset,
    part: Numbers,
    start: int,
    size: int,
    differences: list[str],
    silent: list[str],
    *,
    exact: bool = False,
) -> tuple[str, NDArray[np.int64]] | None:
    """Feature and columns of some numbers, by their names or, where there are none, by their places.

    Args:
        dataset: Where they are.
        part: Which they are.
        start: Their place in the feature if it has no names.
        size: Numbers that the task expects in the feature.
        differences: Takes what is wrong.
        silent: Takes what is not said.
        exact: Whether the feature must hold nothing else.
    """
    own = dataset.features.get(part.feature)
    vectors = {name: item for name, item in dataset.features.items() if item.is_number and len(item.shape) == 1}
    if own is not None and part.feature not in vectors:
        differences.append(f"'{part.feature}' is {own.dtype} of shape {own.shape} there, {size} numbers here")
        return None
    if own is not None and (not own.names or not part.names):
        if own.shape != (size,):
            differences.append(f"'{part.feature}' has {own.shape[0]} numbers there, {size} here")
            return None
        silent.append(f"names and order of '{part.feature}'")
        columns = np.arange(start, start + part.size)
        _compare_units(own, part, columns, differences, silent)
        return part.feature, columns
    # Other programs keep everything in one feature; names tell it apart.
    places = [(part.feature, own)] if own is not None else []
    places += [] if exact else [(name, item) for name, item in vectors.items() if name != part.feature]
    for name, item in places:
        names = item.names or ()
        if set(part.names) <= set(names) and part.names:
            if len(set(names)) != len(names):
                differences.append(f"'{name}' names a number twice there")
                return None
            if exact and len(names) != part.size:
                break
            columns = np.array([names.index(label) for label in part.names], np.int64)
            _compare_units(item, part, columns, differences, silent)
            return name, columns
    if own is None:
        there = ", ".join(f"'{name}'" for name in vectors) or "none"
        differences.append(f"'{part.feature}' is missing there (number features: {_short(there, quote=False)})")
    else:
        differences.append(_named_difference(part, own.names or ()))
    return None


def _named_difference(part: Numbers, names: Sequence[str]) -> str:
    absent = [name for name in part.names if name not in names]
    listed = _short(", ".join(names), quote=False)
    if absent:
        return f"'{part.feature}' lacks {_short(', '.join(absent), quote=False)}; it has {listed}"
    return f"'{part.feature}' has {listed} there, {', '.join(part.names)} here"


def _compare_units(
    item: Feature, part: Numbers, columns: NDArray[np.int64], differences: list[str], silent: list[str]
) -> None:
    if not part.units:
        return
    there = [item.unit_of_each[column] for column in columns]
    wrong = [(name, a, b) for name, a, b in zip(part.names, there, part.units, strict=True) if a and b and a != b]
    if wrong:
        name, a, b = wrong[0]
        differences.append(f"'{name}' of '{part.feature}' is in {_short(a)} there, in '{b}' here")
    elif any(b and not a for a, b in zip(there, part.units, strict=True)):
        silent.append(f"units of '{part.feature}'")


def _compare_cameras(dataset: Dataset, expected: Expected, differences: list[str]) -> None:
    for name, size in expected.cameras.items():
        item = dataset.features.get(IMAGES + name)
        if item is None or not item.is_image:
            known = ", ".join(key.removeprefix(IMAGES) for key in dataset.camera_keys) or "none"
            differences.append(f"camera '{name}' is missing there (cameras: {_short(known, quote=False)})")
        elif item.image_size != size:
            there = "{} x {}".format(*item.image_size)
            differences.append(f"camera '{name}' has {there} pixels there, {size[0]} x {size[1]} here")


def _numbers(part: Numbers) -> list[Any]:
    return [list(part.scale), list(part.offset), part.clip]


def _short(value: Any, *, quote: bool = True) -> str:
    """Text of a dataset, without control characters and no longer than a line."""
    text = repr(value) if quote or not isinstance(value, str) else "".join(c if c.isprintable() else "?" for c in value)
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 4] + " ..."
