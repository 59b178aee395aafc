"""Checkpoints in parts that are small enough to travel between machines."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import torch

PART_MIB = 15.0
"""Size of a part at most."""
LIST = "travel.json"
"""File that names the checkpoint, its parts in order, and the hash of all."""


def pack(checkpoint: Path, folder: Path) -> float:
    """Write a checkpoint as parts: the critic in half precision, without the optimiser's moments, which a training
    gathers again within some updates.

    Args:
        checkpoint: ``model_N.pt`` of an on-policy training.
        folder: Of the parts; those that lie there are removed.

    Returns:
        Size of all parts, MiB.
    """
    state: dict[str, Any] = torch.load(checkpoint, map_location="cpu", weights_only=True)
    state["critic_state_dict"] = {name: _halved(value) for name, value in state["critic_state_dict"].items()}
    state["optimizer_state_dict"] = state["optimizer_state_dict"] | {"state": {}}
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("travel.[0-9]*"):
        old.unlink()
    size = int(PART_MIB * 2**20)
    parts = []
    for number, begin in enumerate(range(0, len(content), size)):
        parts.append(f"travel.{number:03d}")
        (folder / parts[-1]).write_bytes(content[begin : begin + size])
    listed = {"checkpoint": checkpoint.name, "parts": parts, "sha256": hashlib.sha256(content).hexdigest()}
    (folder / LIST).write_text(json.dumps(listed) + "\n")
    return len(content) / 2**20


def unpack(folder: Path, checkpoints: Path) -> Path:
    """Make the checkpoint of the parts again.

    Args:
        folder: Of the parts.
        checkpoints: Folder that it is written to.

    Raises:
        ValueError: If the parts are not those that were written, or the name is not one of a checkpoint.
    """
    listed = json.loads((folder / LIST).read_text())
    content = b"".join((folder / Path(name).name).read_bytes() for name in listed["parts"])
    if hashlib.sha256(content).hexdigest() != listed["sha256"]:
        raise ValueError(f"The parts in '{folder}' are not those that were written: their hash differs from {LIST}.")
    name = str(listed["checkpoint"])
    if not (name.startswith("model_") and name.endswith(".pt") and Path(name).name == name):
        raise ValueError(f"'{name}' in {LIST} names no checkpoint, expected model_N.pt.")
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    state["critic_state_dict"] = {
        key: value.float() if value.dtype == torch.float16 else value
        for key, value in state["critic_state_dict"].items()
    }
    checkpoints.mkdir(parents=True, exist_ok=True)
    torch.save(state, checkpoints / name)
    return checkpoints / name


def _halved(value: torch.Tensor) -> torch.Tensor:
    return value.half() if value.dtype == torch.float32 else value
