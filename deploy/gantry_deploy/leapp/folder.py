"""A LEAPP bundle as files: read, verified by its hashes, and refused where it would run code or leave its folder.

The format is that of LEAPP's configuration version 1.3 (package ``leapp`` 0.7.2, Apache-2.0): ``<name>.yaml`` describes
the tensors of one or more networks and what flows between them, each network is a file beside it, and
``*_initial_values.safetensors`` holds what flows back in the first step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.bundle.files import MANIFEST, MAX_BYTES
from gantry_deploy.errors import LeappError
from gantry_hardware.files.bounds import is_number
from gantry_hardware.files.json_file import JsonError, parse_json
from gantry_hardware.files.text import names_text, path_text, plain_text
from gantry_hardware.files.yaml_file import read_yaml

TOP_KEYS = ("models", "pipeline", "system information")
"""Keys of the description, all of which must be there."""
BACKEND = "onnx"
"""The only backend that is no program: ``jit`` and ``pt2`` are torch's."""
MODEL_SUFFIX, VALUES_SUFFIX = ".onnx", ".safetensors"
"""Endings of the files beside the description."""
MAX_ELEMENTS = 1_000_000
"""Most numbers of a tensor."""
INSTALL = "pip install 'gantry-rl[leapp]'"
"""Command that brings what initial values are read with."""


@dataclass(frozen=True)
class Tensor:
    """An input or output of the network, as the description has it."""

    name: str
    """Name in the ONNX file."""
    dtype: str
    """Type as torch calls it, such as ``float32``."""
    shape: tuple[int, ...]
    """Shape with the batch dimension, which is 1."""
    kind: str
    """Semantic kind; empty for none."""
    elements: tuple[str, ...]
    """Names along the last axis; empty for none."""
    connection: str
    """Place of the signal in Isaac Lab, such as ``state:robot:joint_pos``; empty for none."""


@dataclass(frozen=True)
class LeappFolder:
    """A verified LEAPP bundle of one network."""

    path: Path
    """The folder."""
    name: str
    """Name of the network, usually that of the task."""
    rate_hz: float
    """Frequency of the steps."""
    inputs: tuple[Tensor, ...]
    """In the order of the file."""
    outputs: tuple[Tensor, ...]
    """In the order of the file."""
    feedback: Mapping[str, str]
    """Input to the output that it takes in the next step."""
    initial: Mapping[str, np.ndarray]
    """Input to what it takes in the first step; zeros where it is absent."""
    model_bytes: bytes
    """The ONNX file."""
    files: Mapping[str, str]
    """Name of each file that was read to its SHA-256."""
    system: Mapping[str, Any]
    """Versions of what wrote it."""


def description_of(path: Path) -> Path | None:
    """The description in a folder that may be a LEAPP bundle; None for anything else.

    A folder with a bundle's manifest is none. Of several descriptions the one with the folder's name counts.
    """
    if not path.is_dir() or (path / MANIFEST).exists():
        return None
    found = sorted(path.glob("*.yaml"))
    own = [item for item in found if item.stem == path.resolve().name]
    return own[0] if own else found[0] if len(found) == 1 else None


def read_leapp(path: str | Path) -> LeappFolder:
    """Read and verify a LEAPP bundle.

    Raises:
        LeappError: If it is none, a file is missing, changed, outside of the folder or code, or several networks work
            together.
        YamlFileError: If the description is no plain YAML.
    """
    folder = Path(path)
    description = description_of(folder)
    if description is None:
        raise LeappError(f"{path_text(folder)} is no LEAPP bundle: expected a folder with one .yaml file.")
    return _Reader(folder, description).read()


class _Reader:
    """Reads one folder.

    Args:
        folder: The folder.
        description: Its YAML file.
    """

    def __init__(self, folder: Path, description: Path) -> None:
        self._folder, self._description = folder, description
        self._where = path_text(description)
        self._hashes: dict[str, str] = {}

    def read(self) -> LeappFolder:
        """See :func:`read_leapp`."""
        told = self._mapping(read_yaml(self._description), "the description")
        self._file(self._description.name)
        if missing := [key for key in TOP_KEYS if key not in told]:
            raise LeappError(f"{self._where} is no description of a LEAPP bundle: it lacks {names_text(missing)}.")
        models, pipeline = self._mapping(told["models"], "models"), self._mapping(told["pipeline"], "pipeline")
        if len(models) != 1 or pipeline.get("data_flow"):
            raise LeappError(
                f"{self._where} joins {len(models)} networks ({names_text([str(name) for name in models])}), expected "
                "a single one."
            )
        (name, model), *_ = models.items()
        name, model = str(name), self._mapping(model, f"models.{name}")
        inputs, outputs = (self._tensors(model, key, name) for key in ("inputs", "outputs"))
        return LeappFolder(
            path=self._folder,
            name=name,
            rate_hz=self._rate_hz(pipeline),
            inputs=inputs,
            outputs=outputs,
            feedback=self._feedback(pipeline, name, inputs, outputs),
            model_bytes=self._model(self._mapping(model.get("parameters"), f"models.{name}.parameters")),
            initial=self._initial(pipeline, name),
            files=self._hashes,
            system=self._mapping(told["system information"], "system information"),
        )

    def _mapping(self, value: Any, name: str) -> dict[Any, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise LeappError(f"{self._where}: {name} is {plain_text(value)}, expected a mapping.")
        return value

    def _list(self, value: Any, name: str) -> list[Any]:
        if not isinstance(value, list):
            raise LeappError(f"{self._where}: {name} is {plain_text(value)}, expected a list.")
        return value

    def _rate_hz(self, pipeline: Mapping[str, Any]) -> float:
        rate: Any = self._mapping(pipeline.get("configs"), "pipeline.configs").get("frequency")
        if not is_number(rate) or not rate > 0.0:
            raise LeappError(
                f"{self._where}: pipeline.configs.frequency is {plain_text(rate)}, expected the rate in Hz."
            )
        return float(rate)

    def _tensors(self, model: Mapping[str, Any], key: str, node: str) -> tuple[Tensor, ...]:
        found = self._list(model.get(key), f"models.{node}.{key}")
        return tuple(self._tensor(item, f"models.{node}.{key}[{i}]") for i, item in enumerate(found))

    def _tensor(self, value: Any, where: str) -> Tensor:
        entry = self._mapping(value, where)
        texts = {key: entry.get(key) or "" for key in ("name", "dtype", "kind", "isaaclab_connection")}
        for key, text in texts.items():
            if not isinstance(text, str) or (key == "name" and not text):
                raise LeappError(f"{self._where}: {where}.{key} is {plain_text(text)}, expected a text.")
        axes = entry.get("element_names") or []
        last = axes[-1] if isinstance(axes, list) and axes else []
        elements = tuple(str(item) for item in last) if isinstance(last, list) else ()
        shape = self._shape(entry.get("shape"), where)
        return Tensor(texts["name"], texts["dtype"], shape, texts["kind"], elements, texts["isaaclab_connection"])

    def _shape(self, value: Any, where: str) -> tuple[int, ...]:
        if isinstance(value, str):
            try:
                value = parse_json(value, f"{where}.shape")
            except JsonError:
                value = None
        shape = value if isinstance(value, list) else [0]
        if (
            not all(type(item) is int and item >= 1 for item in shape)
            or int(np.prod(shape, dtype=float)) > MAX_ELEMENTS
        ):
            raise LeappError(
                f"{self._where}: {where}.shape is {plain_text(value)}, expected whole numbers from 1, {MAX_ELEMENTS} "
                "numbers in all."
            )
        return tuple(shape)

    def _feedback(
        self, pipeline: Mapping[str, Any], node: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
    ) -> dict[str, str]:
        feedback: dict[str, str] = {}
        there = {"input": {item.name for item in inputs}, "output": {item.name for item in outputs}}
        for source, targets in self._mapping(pipeline.get("feedback_flow"), "pipeline.feedback_flow").items():
            for target in self._list(targets, f"pipeline.feedback_flow.{source}"):
                for text, kind in ((source, "output"), (target, "input")):
                    owner, _, name = str(text).partition("/")
                    if owner != node or name not in there[kind]:
                        raise LeappError(
                            f"{self._where}: pipeline.feedback_flow names the {kind} {plain_text(text)}, expected one "
                            f"of {names_text(sorted(f'{node}/{item}' for item in there[kind]))}."
                        )
                feedback[str(target).partition("/")[2]] = str(source).partition("/")[2]
        return feedback

    def _model(self, parameters: Mapping[str, Any]) -> bytes:
        backend, name, wanted = (parameters.get(key) for key in ("backend", "model_path", "sha256sum"))
        if backend != BACKEND:
            raise LeappError(
                f"{self._where}: the network's backend is {plain_text(backend)}, expected '{BACKEND}': the others are "
                "programs, and a policy must not run code."
            )
        if parameters.get("warp_segments"):
            raise LeappError(f"{self._where}: the network has warp_segments, kernels of Warp, which are code.")
        data = self._named(name, MODEL_SUFFIX, "model_path")
        found = hashlib.sha256(data).hexdigest()
        if wanted != found:
            raise LeappError(
                f"{self._where}: '{name}' was changed after the bundle was written (SHA-256 is {found}, written was "
                f"{plain_text(wanted, 64)})."
            )
        return data

    def _initial(self, pipeline: Mapping[str, Any], node: str) -> dict[str, np.ndarray]:
        name = pipeline.get("initial_values")
        if not name:
            return {}
        data = self._named(name, VALUES_SUFFIX, "initial_values")
        try:
            from safetensors import SafetensorError
            from safetensors.numpy import load
        except ImportError as error:
            raise LeappError(f"Initial values need the package 'safetensors' ({error}): {INSTALL}.") from error
        try:
            found = load(data)
        except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise LeappError(f"{path_text(self._folder)}: '{name}' is not readable: {error}.") from error
        return {key.removeprefix(f"{node}/"): value for key, value in found.items()}

    def _named(self, name: Any, suffix: str, key: str) -> bytes:
        """A file that the description names, which must lie in the folder and have that ending."""
        inside = isinstance(name, str) and bool(name) and "\0" not in name
        path = (self._folder / str(name)).resolve() if inside else self._folder
        if not inside or not path.is_relative_to(self._folder.resolve()) or Path(str(name)).is_absolute():
            raise LeappError(f"{self._where}: {key} is {plain_text(name)}, expected a file in the bundle's folder.")
        if path.suffix != suffix:
            raise LeappError(
                f"{self._where}: {key} is '{name}', expected a file that ends in {suffix}; others may hold code."
            )
        return self._file(str(name))

    def _file(self, name: str) -> bytes:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise LeappError(f"{path_text(self._folder)}: '{name}' cannot be read: {error.strerror}.") from error
        if len(data) > MAX_BYTES:
            raise LeappError(f"{path_text(path)} has more than {MAX_BYTES} bytes, the most that a bundle has.")
        self._hashes[name] = hashlib.sha256(data).hexdigest()
        return data
