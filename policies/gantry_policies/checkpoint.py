"""Checkpoints that survive a kill at any moment: written beside, synced, renamed; never a pickle of foreign code."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gantry_hardware.errors import GantryError

_NAME = re.compile(r"model_(\d+)\.pt")


class CheckpointError(GantryError):
    """A checkpoint is missing, cannot be read or cannot be written."""


class UnusableCheckpointError(CheckpointError):
    """There is nothing to go on from: no checkpoint can be read, or what can be read is of something else."""


def save_checkpoint(folder: Path, iteration: int, state: dict[str, Any], keep: int = 3) -> Path:
    """Write ``model_<iteration>.pt`` so that it is either whole or absent, and remove all but the newest ``keep``.

    Raises:
        CheckpointError: If it cannot be written (a full disk); older checkpoints are untouched.
    """
    path = folder / f"model_{iteration}.pt"
    part = path.with_suffix(".part")
    buffer = io.BytesIO()
    torch.save(state, buffer)  # to memory first: what torch says of a full disk tells nobody that the disk is full
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        reason = error.strerror or error
        raise CheckpointError(f"Cannot write checkpoint {path}: {reason}. Older checkpoints are kept.") from error
    for old in (*list_checkpoints(folder)[:-keep], *folder.glob("model_*.part")):  # a kill while writing leaves a part
        old.unlink(missing_ok=True)
    return path


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints of a folder, oldest first."""
    found = [(int(match[1]), path) for path in folder.glob("model_*.pt") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read one checkpoint, tensors and plain values only.

    Raises:
        UnusableCheckpointError: If it is missing, damaged, or holds anything else.
    """
    try:
        return _read(path)
    except FileNotFoundError as error:
        raise UnusableCheckpointError(f"There is no checkpoint {path}.") from error
    except _UnreadableError as error:
        raise UnusableCheckpointError(f"Cannot read checkpoint {path}: {error}.") from error


def load_newest(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The newest readable checkpoint of a folder.

    Raises:
        UnusableCheckpointError: If there is none.
    """
    problems = []
    for path in reversed(list_checkpoints(folder)):
        try:
            return path, _read(path)
        except (_UnreadableError, FileNotFoundError) as error:
            problems.append(f"{path.name} ({error})")
    if not problems:
        raise UnusableCheckpointError(f"No usable checkpoint in {folder}. There are no model_*.pt files.")
    raise UnusableCheckpointError(f"No usable checkpoint in {folder}: {', '.join(problems)}.")


def weights_difference(own: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]) -> str:
    """What tells the weights of two networks apart, in names and shapes.

    Args:
        own: Of the network that is there, by name.
        found: Of a checkpoint.

    Returns:
        The first difference, for people, and how many more there are; empty if there is none.
    """
    texts = [
        f"'{name}' is {_size(found.get(name))} there and {_size(own.get(name))} here"
        for name in (*own, *(name for name in found if name not in own))
        if _size(own.get(name)) != _size(found.get(name))
    ]
    more = f", and {len(texts) - 1} more" if len(texts) > 1 else ""
    return f"{texts[0]}{more}" if texts else ""


def _size(weights: torch.Tensor | None) -> str:
    return "missing" if weights is None else " x ".join(map(str, weights.shape)) or "a number"


class _UnreadableError(Exception):
    """The text says why a file is no checkpoint, without a full stop."""


def _read(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:  # what torch says of a missing end is a number of the system's
            whole = zipfile.is_zipfile(file)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _UnreadableError(error.strerror or str(error)) from error
    if not whole:
        raise _UnreadableError(f"cut short, or no checkpoint: {size} bytes without the end that one has")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for damaged files
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise _UnreadableError(reason.strip().removesuffix(".")) from error
    if not isinstance(state, dict):
        raise _UnreadableError(f"it holds a {type(state).__name__}, expected a dictionary")
    return state


def random_state() -> dict[str, Any]:
    """The state of every random generator that training draws from, as tensors and plain values."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, internal, gauss_next = random.getstate()
    state = {
        "torch": torch.get_rng_state(),
        "numpy_keys": torch.from_numpy(np.asarray(keys, dtype=np.int64)),
        "numpy": [str(name), int(position), int(has_gauss), float(gauss)],
        "python": torch.tensor(internal, dtype=torch.int64),
        "python_gauss": [version, gauss_next],
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Put the generators back."""
    torch.set_rng_state(state["torch"])
    name, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((name, state["numpy_keys"].numpy().astype(np.uint32), position, has_gauss, gauss))
    version, gauss_next = state["python_gauss"]
    random.setstate((version, tuple(state["python"].tolist()), gauss_next))
    if "cuda" in state and torch.cuda.is_available():
        # A run may go on where there are fewer devices than it was begun with.
        for device, generator in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
            torch.cuda.set_rng_state(generator, device)
