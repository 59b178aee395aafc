"""``gantry.json``: what Gantry notes beside a dataset that it records, and the dataset card for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.dataset.features import Feature
from gantry_deploy.dataset.physical import Numbers, action_numbers, observation_numbers
from gantry_deploy.dataset.storage.layout import read_json
from gantry_deploy.errors import DatasetError
from gantry_hardware.files.json_file import as_plain
from gantry_hardware.files.text import plain_text

NOTES, CARD = "gantry.json", "README.md"
NOTES_VERSION = 2
"""Datasets of version 1, which had none written down, held the policy's own numbers instead of physical values."""
PHYSICAL, POLICY, COMMAND = "physical", "policy", "command"
"""Kinds of values: physical ones in SI units; a policy's own numbers, of a session; the same with the command that a
person corrected in place of the action."""


def make_notes(task: str, env: Mapping[str, Any], contract: PolicyContract) -> dict[str, Any]:
    """Notes to store: task, environments, contract, and how the physical values become the policy's numbers."""
    return {
        "version": NOTES_VERSION,
        "task": task,
        "env": as_plain(dict(env)),
        "contract": as_plain(asdict(contract)),
        "observation": {
            "formula": "scale * clip(value - offset)",
            "numbers": [_described(part) for part in observation_numbers(contract)],
        },
        "action": {"formula": "(value - offset) / scale", "numbers": [_described(action_numbers(contract))]},
    }


def make_session_notes(task: str, contract: PolicyContract, values: str) -> dict[str, Any]:
    """Notes beside the dataset of a session; ``values`` is :data:`POLICY` or :data:`COMMAND`."""
    return {"version": NOTES_VERSION, "task": task, "env": {}, "contract": as_plain(asdict(contract)), "values": values}


def values_of(notes: Mapping[str, Any] | None) -> str:
    """Kind of the values of a dataset; physical where nothing says it."""
    return PHYSICAL if notes is None else str(notes.get("values", PHYSICAL))


def read_notes(folder: Path) -> dict[str, Any] | None:
    """The notes of a dataset; None if Gantry did not record it.

    Raises:
        DatasetError: If they are damaged or of another version.
    """
    path = folder / NOTES
    if not path.exists():
        return None
    notes = read_json(path)
    version = notes.get("version")
    if version != NOTES_VERSION:
        said = "an older version of Gantry, which stored the policy's numbers instead of physical values"
        raise DatasetError(
            f"'{folder}' was recorded by {said}; collect it anew."
            if version is None
            else f"{path}: version is {plain_text(version)}, expected {NOTES_VERSION}; it is another Gantry's."
        )
    for name, kind in (("task", str), ("env", dict), ("contract", dict)):
        if not isinstance(notes.get(name), kind):
            raise DatasetError(f"{path}: {name} is a {type(notes.get(name)).__name__}, expected a {kind.__name__}.")
    return notes


def recorded_contract(notes: Mapping[str, Any], folder: Path) -> PolicyContract:
    """The contract of the policies that the demonstrations are for.

    Raises:
        DatasetError: If it is no contract.
    """
    from gantry_hardware.errors import GantryError

    try:
        return PolicyContract.from_json(json.dumps(notes["contract"]))
    except GantryError as error:
        raise DatasetError(f"{folder / NOTES}: {error}") from error


def make_card(title: str, robot: str, fps: int, features: Mapping[str, Feature], task: str) -> str:
    """A dataset card in Markdown, with the front matter that the Hugging Face hub reads."""
    rows = [
        f"| `{name}` | {item.dtype} | {'x'.join(map(str, item.shape))} | {_names(item)} |"
        for name, item in features.items()
    ]
    cameras = [name.rpartition(".")[2] for name, item in features.items() if item.is_image]
    return "\n".join(
        [
            *("---", "license: unknown", "task_categories:", "- robotics", "tags:", "- LeRobot", "- gantry"),
            *("configs:", "- config_name: default", "  data_files: data/*/*.parquet", "---", ""),
            *(
                f"# {title}",
                "",
                f"Synthetic episodes of the task '{task}', which a script demonstrated in simulation.",
                "",
            ),
            *(f"* Robot: `{robot}`", f"* Frames per second: {fps}", "* Format: LeRobot v3.0", "* License: unknown", ""),
            *("| feature | type | shape | names (unit) |", "|---|---|---|---|", *rows, ""),
            "Values are physical, in SI units. `gantry.json` holds the task, its configuration, the policy's contract, "
            "and how the values become a policy's numbers.",
            *("", "## Sensors", "", f"Simulated joint encoders. Cameras: {', '.join(cameras) or 'none'}.", ""),
            *(
                "## Limitations",
                "",
                "No frame is of a real robot. A script's motions are more alike than a person's.",
                "",
            ),
        ]
    )


def _names(feature: Feature) -> str:
    if feature.names is None or feature.is_image:
        return ""
    units: Sequence[str] = feature.unit_of_each
    return ", ".join(name + (f" ({unit})" if unit else "") for name, unit in zip(feature.names, units, strict=True))


def _described(part: Numbers) -> dict[str, Any]:
    return {
        "feature": part.feature,
        "names": list(part.names),
        "units": list(part.units),
        "scale": list(part.scale),
        "offset": list(part.offset),
        "clip": part.clip,
    }
