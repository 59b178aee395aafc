"""Checkpoints that survive a kill at any moment, carry their SHA-256, and never hold code."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gantry_hardware.files.checked_files import DamagedFileError, read_checked, write_checked
from gantry_hardware.files.whole_files import remove_stale
from gantry_hardware.training.trainer import CheckpointError as CheckpointError

_NAME = re.compile(r"model_(\d+)\.pt")


class UnusableCheckpointError(CheckpointError):
    """There is nothing to go on from: no checkpoint can be read, or what can be read is of something else."""


def save_checkpoint(folder: Path, iteration: int, state: dict[str, Any], keep: int = 3) -> Path:
    """Write ``model_<iteration>.pt`` so that it is either whole or absent, and remove all but the newest ``keep``.

    Raises:
        CheckpointError: If it cannot be written (a full disk); older checkpoints are untouched.
    """
    path = folder / f"model_{iteration}.pt"
    write_state(path, state, "checkpoint", "Older checkpoints are kept.")
    remove_stale(folder)
    for old in list_checkpoints(folder)[:-keep]:
        if old != path:  # newer ones may lie there that could not be read
            old.unlink(missing_ok=True)
    return path


def write_state(path: Path, state: Mapping[str, Any], what: str, comfort: str = "") -> None:
    """Write tensors and plain values with their SHA-256, whole or not at all.

    Args:
        path: The file.
        state: What it is to hold.
        what: What it is, for the message.
        comfort: A sentence of the message on what is left.

    Raises:
        CheckpointError: If it cannot be written.
    """
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)  # to memory first: what torch says of a full disk does not name the disk
    try:
        write_checked(path, lambda file: file.write(buffer.getbuffer()))
    except OSError as error:
        text = f"Cannot write {what} {path}: {error.strerror or error}. {comfort}"
        raise CheckpointError(text.strip()) from error


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
    except DamagedFileError as error:
        raise UnusableCheckpointError(f"Cannot read checkpoint {path}: {error}.") from error


def tell_stderr(text: str) -> None:
    """Say something on standard error."""
    print(text, file=sys.stderr, flush=True)


def load_newest(
    folder: Path,
    *,
    companion: Callable[[Path, dict[str, Any]], None] | None = None,
    tell: Callable[[str], None] = tell_stderr,
) -> tuple[Path, dict[str, Any]]:
    """The newest checkpoint of a folder that is intact with all that belongs to it.

    Args:
        folder: Of the checkpoints.
        companion: Raises a :class:`DamagedFileError` if what belongs to a checkpoint is not there as it was written.
        tell: Called with a sentence if newer ones had to be left out.

    Raises:
        UnusableCheckpointError: If there is none.
    """
    problems: list[str] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            state = _read(path)
            if companion is not None:
                companion(path, state)
        except (DamagedFileError, FileNotFoundError) as error:
            reason = "it is gone" if isinstance(error, FileNotFoundError) else error
            problems.append(f"{path.name} ({reason})")
        else:
            if problems:
                tell(f"Left out in {folder}: {', '.join(problems)}. Using the older {path.name}, which is intact.")
            return path, state
    if not problems:
        raise UnusableCheckpointError(f"No usable checkpoint in {folder}. There are no model_*.pt files.")
    raise UnusableCheckpointError(f"No usable checkpoint in {folder}: {', '.join(problems)}.")


def set_aside_newer(path: Path) -> None:
    """Rename the checkpoints that are newer than the one that a training goes on from, and so were left out.

    They stay on the disk as ``model_<iteration>.pt.damaged``, and are taken for the newest no more.
    """
    found = list_checkpoints(path.parent)
    for newer in found[found.index(path) + 1 :]:
        with contextlib.suppress(OSError):
            os.replace(newer, newer.with_name(f"{newer.name}.damaged"))


def weights_difference(own: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]) -> str:
    """Difference between the weights of two networks, in names and shapes.

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


def load_weights(networks: Mapping[str, nn.Module], found: Mapping[str, Mapping[str, Any]]) -> None:
    """Give networks the weights that were found for them, by the networks' names.

    Raises:
        KeyError: If there are none for one of them.
        ValueError: If they are of another network.
    """
    for name, network in networks.items():
        difference = weights_difference(network.state_dict(), found[name])
        if difference:
            raise ValueError(f"it is of another task or another network: of the {name}'s weights, {difference}")
        network.load_state_dict(found[name])


def _size(weights: torch.Tensor | None) -> str:
    return "missing" if weights is None else " x ".join(map(str, weights.shape)) or "a number"


def _read(path: Path) -> dict[str, Any]:
    data = read_checked(path)
    try:
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # torch raises many kinds for what is no checkpoint
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DamagedFileError(reason.strip().removesuffix(".")) from error
    if not isinstance(state, dict):
        raise DamagedFileError(f"it holds a {type(state).__name__}, expected a dictionary")
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


def all_finite(state: Any) -> bool:
    """Whether every floating-point number of nested tensors is finite: weights, statistics, an optimiser's moments."""
    if isinstance(state, torch.Tensor):
        return not state.is_floating_point() or bool(torch.isfinite(state).all())
    if isinstance(state, dict):
        return all(all_finite(value) for value in state.values())
    if isinstance(state, (list, tuple)):
        return all(all_finite(value) for value in state)
    return True
