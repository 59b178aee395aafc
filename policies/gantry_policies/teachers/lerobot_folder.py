"""Folder of a LeRobot policy, judged without LeRobot: what it sees and does, and whether its statistics are there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from gantry_deploy.openpi.description import MAX_SIZE, CameraNeed, PolicyDescription
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.bounds import whole
from gantry_hardware.files.json_file import parse_json_object
from gantry_hardware.files.text import names_text, path_text, plain_text
from gantry_policies.teachers.teacher import TeacherError

CONFIG, WEIGHTS = "config.json", "model.safetensors"
PIPELINES = {"policy_preprocessor.json": "normalizer_processor", "policy_postprocessor.json": "unnormalizer_processor"}
"""Files of the steps before and after the network, and the step in each that holds statistics."""
HORIZONS = {"act": "chunk_size", "diffusion": "n_action_steps", "pi0": "chunk_size", "smolvla": "chunk_size"}
"""Types of policies, and the field of their configuration with the number of planned actions."""
FOLLOW_TEXT = ("pi0", "smolvla")
"""Types that follow an instruction."""
NEEDED = {
    "MEAN_STD": ("mean", "std"),
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
}
"""Statistics by the way of normalising."""
STATE, ACTION, IMAGE = "observation.state", "action", "observation.images."
MAX_JSON_BYTES = 2**22
"""Largest of the JSON files."""
MIGRATE = "python -m lerobot.processor.migrate_policy_normalization --pretrained-path FOLDER"


@dataclass(frozen=True)
class LerobotFolder:
    """A policy's folder that was found complete."""

    path: Path
    """The folder."""
    kind: str
    """Type of the policy, a key of :data:`HORIZONS`."""
    cameras: Mapping[str, str]
    """Camera to LeRobot's name of its pictures."""
    devices: Mapping[str, bool]
    """File of :data:`PIPELINES` to whether it has a step that moves data to a device."""
    description: PolicyDescription
    """Inputs and outputs; the space of actions, their names and their rate are not told by LeRobot."""


def read_folder(path: str | Path) -> LerobotFolder:
    """Judge the folder of a policy.

    Raises:
        TeacherError: If a file is missing or makes no sense, or statistics of the normaliser are missing.
        UnknownNameError: If the policy is of a type that is not supported.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise TeacherError(f"There is no folder {path_text(folder)}; a LeRobot policy is a folder with {CONFIG} in it.")
    there = sorted(os.listdir(folder))
    for name in (CONFIG, WEIGHTS):
        if name not in there:
            raise TeacherError(f"{path_text(folder)} lacks {name}; it holds: {names_text(there) or '(nothing)'}.")
    config = _json(folder / CONFIG)
    if (kind := config.get("type")) not in HORIZONS:
        raise UnknownNameError("type of LeRobot policy", str(kind), HORIZONS)
    features = {**_features(folder, config, "input_features"), **_features(folder, config, "output_features")}
    if ACTION not in features:
        raise TeacherError(f"{path_text(folder / CONFIG)} has no output '{ACTION}'; it has: {names_text(features)}.")
    modes = config.get("normalization_mapping")
    if not isinstance(modes, dict):
        raise TeacherError(f"normalization_mapping of {path_text(folder / CONFIG)} is {plain_text(modes)}.")
    devices = {}
    for name, step in PIPELINES.items():
        inputs = {
            key: kind for key, (kind, _) in features.items() if (key == ACTION) == (step == "unnormalizer_processor")
        }
        devices[name] = _check_pipeline(folder, name, step, inputs, modes)
    horizon = whole(
        f"{HORIZONS[kind]} of {path_text(folder / CONFIG)}", config.get(HORIZONS[kind]), 1, MAX_SIZE, TeacherError
    )
    others = [key for key, (feature, _) in features.items() if feature != "VISUAL" and key not in (STATE, ACTION)]
    if others:
        raise TeacherError(f"{path_text(folder)} sees {names_text(others)}; a question holds pictures and {STATE}.")
    shapes = {key: shape for key, (_, shape) in features.items()}
    pictures = [key for key, (feature, _) in features.items() if feature == "VISUAL"]
    cameras = {key.removeprefix(IMAGE).removeprefix("observation."): key for key in pictures}
    description = PolicyDescription(
        cameras=tuple(CameraNeed(name, *shapes[key][1:]) for name, key in cameras.items()),
        state_size=shapes[STATE][0] if STATE in features else 0,
        instruction=kind in FOLLOW_TEXT,
        action_size=shapes[ACTION][0],
        horizon=horizon,
        has_statistics=True,
    )
    return LerobotFolder(folder, kind, cameras, devices, description)


def _features(folder: Path, config: Mapping[str, Any], name: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of each input or output."""
    where = f"{name} of {path_text(folder / CONFIG)}"
    given = config.get(name)
    if not isinstance(given, dict) or not given:
        raise TeacherError(f"{where} is {plain_text(given)}, expected an object that is not empty.")
    found = {}
    for key, value in given.items():
        kind, shape = (value.get("type"), value.get("shape")) if isinstance(value, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(shape, list) or not all(type(n) is int and n > 0 for n in shape):
            raise TeacherError(f"{where}: {plain_text(key)} is {plain_text(value)}, expected a type and a shape.")
        dimensions = 3 if kind == "VISUAL" else 1
        if len(shape) != dimensions or (kind == "VISUAL" and shape[0] != 3):
            raise TeacherError(f"{where}: {plain_text(key)} has shape {shape}, expected (3, H, W) or (n,) by its type.")
        found[key] = (kind, tuple(shape))
    return found


def _check_pipeline(folder: Path, name: str, step: str, inputs: Mapping[str, str], modes: Mapping[str, Any]) -> bool:
    """Refuse a file of steps without the statistics that they need; whether it has a step that names a device."""
    wanted = {key: NEEDED[mode] for key, kind in inputs.items() if (mode := modes.get(kind)) in NEEDED}
    path = folder / name
    if not path.is_file():
        if _weights_hold_statistics(folder):
            raise TeacherError(
                f"{path_text(folder)} holds the statistics of its normaliser in {WEIGHTS}, as LeRobot did before 0.4; "
                f"newer versions would leave them out in silence. Convert it: {MIGRATE}."
            )
        raise TeacherError(
            f"{path_text(folder)} lacks {name}, and with it the statistics of its normaliser: without them the "
            "policy's inputs and actions are in no known unit. Save the policy together with its processors."
        )
    steps = _json(path).get("steps")
    if not isinstance(steps, list) or not all(isinstance(item, dict) for item in steps):
        raise TeacherError(f"{path_text(path)} has no list of steps.")
    for item in steps:
        if not isinstance(item.get("registry_name"), str):
            raise TeacherError(
                f"{path_text(path)} names a step by a class to import ({plain_text(item.get('class'))}); only "
                "registered steps of LeRobot are run."
            )
    if wanted:
        found = [item for item in steps if item["registry_name"] == step]
        if not found:
            raise TeacherError(f"{path_text(path)} has no step '{step}', which {names_text(wanted)} need.")
        _check_statistics(path, found[0].get("state_file"), wanted)
    return any(item["registry_name"] == "device_processor" for item in steps)


def _check_statistics(path: Path, state_file: Any, wanted: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse statistics that are missing or not finite."""
    if (
        not isinstance(state_file, str)
        or Path(state_file).name != state_file
        or not (path.parent / state_file).is_file()
    ):
        raise TeacherError(
            f"{path_text(path)} comes without the statistics of its normaliser (state_file {plain_text(state_file)}); "
            f"{names_text(wanted)} would not be normalised, in silence. Save the policy with its dataset's statistics."
        )
    try:
        with safe_open(path.parent / state_file, "numpy") as file:
            names = set(file.keys())
            for key, parts in wanted.items():
                for part in parts:
                    if (name := f"{key}.{part}") not in names:
                        raise TeacherError(
                            f"The statistics of the normaliser in {plain_text(state_file)} lack '{name}'; there are: "
                            f"{names_text(sorted(names)) or '(none)'}."
                        )
                    if not np.isfinite(file.get_tensor(name)).all():
                        raise TeacherError(
                            f"The statistics of the normaliser in {plain_text(state_file)} are not finite: '{name}'."
                        )
    except (SafetensorError, OSError) as error:
        raise TeacherError(f"{path_text(path.parent / state_file)} cannot be read: {error}.") from error


def _weights_hold_statistics(folder: Path) -> bool:
    try:
        with safe_open(folder / WEIGHTS, "numpy") as file:
            return any("normalize_" in name and ".buffer_" in name for name in file.keys())  # noqa: SIM118  no mapping
    except (SafetensorError, OSError) as error:
        raise TeacherError(f"{path_text(folder / WEIGHTS)} cannot be read: {error}.") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise TeacherError(f"{path_text(path)} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_JSON_BYTES:
        raise TeacherError(f"{path_text(path)} has more than {MAX_JSON_BYTES} bytes.")
    return parse_json_object(data, path_text(path), error=TeacherError)
