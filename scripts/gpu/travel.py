"""A training's run in parts that are small enough to travel between machines.

python scripts/gpu/travel.py FOLDER

makes FOLDER/run of the parts in FOLDER/parts, which ``teacher.py`` leaves there, unless the run has got as far already.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import torch

from gantry_policies.common.checkpoint import (
    UnusableCheckpointError,
    list_checkpoints,
    load_newest,
    save_checkpoint,
    set_aside_newer,
)

PART_MIB = 15.0
"""Size of a part at most, unless another one is given."""
LIST = "travel.json"
"""File that names the parts in their order, the hash of all, and the iteration that the training had reached."""
CHECKPOINTS = "checkpoints"
"""Folder in a run."""
STATE = "state.pt"
"""Name in the parts of the checkpoint."""


def pack(run: Path, folder: Path, part_mib: float = PART_MIB) -> tuple[Path, float]:
    """Write a run as parts: all of its files, and of its checkpoints the newest one that is intact, with the critic in
    half precision and without the optimiser's moments, which a training gathers again within some updates.

    Args:
        run: Folder of an on-policy training.
        folder: Of the parts; those that lie there are replaced.
        part_mib: Size of a part at most, MiB.

    Returns:
        The checkpoint that was taken, and the size of all parts, MiB.

    Raises:
        UnusableCheckpointError: If no checkpoint is intact.
    """
    newest, state = load_newest(run / CHECKPOINTS)
    small = state | {
        "critic_state_dict": {name: _halved(value) for name, value in state["critic_state_dict"].items()},
        "optimizer_state_dict": state["optimizer_state_dict"] | {"state": {}},
    }
    buffer, archive = io.BytesIO(), io.BytesIO()
    torch.save(small, buffer)
    with tarfile.open(fileobj=archive, mode="w") as tar:
        _add(tar, STATE, buffer.getvalue())
        for path in sorted(run.rglob("*")):
            place = path.relative_to(run)
            if path.is_file() and place.parts[0] != CHECKPOINTS:
                _add(tar, f"run/{place.as_posix()}", path.read_bytes())
    content = archive.getvalue()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("travel.*"):
        old.unlink()
    size = int(part_mib * 2**20)
    parts = []
    for number, begin in enumerate(range(0, len(content), size)):
        parts.append(f"travel.{number:03d}")
        (folder / parts[-1]).write_bytes(content[begin : begin + size])
    listed = {"iteration": state["iteration"], "parts": parts, "sha256": hashlib.sha256(content).hexdigest()}
    (folder / LIST).write_text(json.dumps(listed) + "\n")
    return newest, len(content) / 2**20


def keep_only(checkpoint: Path) -> None:
    """Delete the checkpoints that are older than one of them, and set aside those that are newer, which are damaged."""
    set_aside_newer(checkpoint)
    for path in list_checkpoints(checkpoint.parent):
        if path != checkpoint:
            path.unlink()


def reached(run: Path) -> int | None:
    """Iteration of the newest checkpoint of a run that is intact; None if there is none."""
    try:
        newest, _ = load_newest(run / CHECKPOINTS)
    except UnusableCheckpointError:
        return None
    return int(newest.stem.rpartition("_")[2])


def unpack(folder: Path, run: Path) -> int | None:
    """Make a run of its parts; one that is there and has an intact checkpoint as far as theirs stays as it is.

    Args:
        folder: Of the parts; without any, nothing is done.
        run: Folder of the run.

    Returns:
        The iteration to go on from; None if nothing was done.

    Raises:
        ValueError: If the parts are not those that were written.
    """
    if not (folder / LIST).is_file():
        return None
    listed = json.loads((folder / LIST).read_text())
    iteration = int(listed["iteration"])
    before = reached(run)
    if before is not None and before >= iteration:
        return None
    missing = [name for name in listed["parts"] if not (folder / Path(name).name).is_file()]
    if missing:
        raise ValueError(f"There is no {', '.join(missing)} in '{folder}', which {LIST} lists.")
    content = b"".join((folder / Path(name).name).read_bytes() for name in listed["parts"])
    if hashlib.sha256(content).hexdigest() != listed["sha256"]:
        raise ValueError(f"The parts in '{folder}' are not those that were written: their hash differs from {LIST}.")
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        held = tar.extractfile(STATE)
        assert held is not None
        state: dict[str, Any] = torch.load(io.BytesIO(held.read()), map_location="cpu", weights_only=True)
        files = [member for member in tar.getmembers() if member.name.startswith("run/")]
        for member in files:
            member.name = member.name.removeprefix("run/")
        tar.extractall(run, files, filter="data")
    state["critic_state_dict"] = {
        key: value.float() if value.dtype == torch.float16 else value
        for key, value in state["critic_state_dict"].items()
    }
    (run / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    save_checkpoint(run / CHECKPOINTS, iteration, state)
    return iteration


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file to an archive."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def _halved(value: torch.Tensor) -> torch.Tensor:
    """Half precision of what is in single precision, unless its numbers are too large for it."""
    if value.dtype != torch.float32:
        return value
    half = value.half()
    return half if bool(half.isfinite().all()) else value


def main() -> int:
    """Make a run of its parts; 2 if there are none, or they cannot be used."""
    parser = argparse.ArgumentParser(description="A run of its parts.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of the run and its parts")
    args = parser.parse_args()
    parts, run = args.folder / "parts", args.folder / "run"
    if not (parts / LIST).is_file():
        print(f"There are no parts of a run in '{parts}': {LIST} is missing.", file=sys.stderr)
        return 2
    try:
        iteration = unpack(parts, run)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if iteration is None:
        print(f"{run} stays as it is, at iteration {reached(run)}: the parts in {parts} are not newer.")
    else:
        print(f"{run} was made of the parts in {parts}: its training has reached iteration {iteration}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
