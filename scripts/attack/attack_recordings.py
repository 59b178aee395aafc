"""Mutated recordings: bits, bytes, cuts, zeros, blocks that are swapped, repeated or left out.

What is read of a mutant must be what was recorded: each topic's rows are the first rows of the intact recording, and
all of them where the recording is called complete.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cases import WrongError

from gantry_deploy.cli.main import main as gantry
from gantry_deploy.recording.reader import Recording, read_recording

COMPLETE_KINDS = 9


class Attack:
    """Mutations of a recorded walk of six seconds on the mock robot."""

    def __init__(self, folder: Path, seed: int) -> None:
        path = folder / "walk.mcap"
        with contextlib.redirect_stdout(io.StringIO()):
            command = ["run", "pretrained:go2-walk", "--backend", "mock", "--duration", "6", "--record", str(path)]
            code = gantry([*command, "--command", "0.5,0,0.2"])
        if code != 0:
            raise RuntimeError(f"the recording of the intact run ended with exit code {code}")
        self.data = path.read_bytes()
        self.intact = read_recording(path)
        if not self.intact.complete or len(self.intact["/gantry/status"]["time_s"]) < 300:
            raise RuntimeError("the intact recording is not complete")

    def case(self, number: int, rng: np.random.Generator, folder: Path) -> tuple[str, Callable[[], str]]:
        """One mutant, and what reads it."""
        data, what = mutate(self.data, rng)
        path = folder / "mutant.mcap"
        path.write_bytes(data)
        return what, lambda: attempt(self.intact, path)


def mutate(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """A mutant of ``data``."""
    size = len(data)
    at = int(rng.integers(size))
    # Half of the places lie in the first and last kilobytes, where one byte says much.
    if rng.random() < 0.3:
        at = int(rng.integers(2048)) if rng.random() < 0.5 else size - 1 - int(rng.integers(4096))
    length = int(rng.integers(1, 70_000))
    kind = int(rng.integers(COMPLETE_KINDS))
    if kind <= 2:
        bit = int(rng.integers(8))
        return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :], f"bit {bit} of byte {at}"
    if kind == 3:
        return data[:at], f"cut at {at}"
    if kind == 4:
        return data[:at] + bytes(length), f"cut at {at}, then {length} zeros"
    if kind == 5:
        end = min(size, at + length)
        return data[:at] + bytes(end - at) + data[end:], f"zeros from {at} to {end}"
    if kind == 6:
        end = min(size, at + length)
        return data[:at] + rng.bytes(end - at) + data[end:], f"noise from {at} to {end}"
    if kind == 7:
        return data[:at] + data[min(size, at + length) :], f"{length} bytes left out at {at}"
    return data[:at] + data[at : at + length] + data[at:], f"{length} bytes repeated at {at}"


def attempt(intact: Recording, path: Path) -> str:
    """Read a mutant and compare it with what was recorded."""
    found = read_recording(path)
    if found.robot != intact.robot or found.joint_names != intact.joint_names or found.contract != intact.contract:
        raise WrongError("robot, joints or contract read otherwise than recorded")
    if extra := set(found.topics) - set(intact.topics):
        raise WrongError(f"topics that were not recorded: {sorted(extra)}")
    rows = 0
    for topic, columns in found.topics.items():
        for name, values in columns.items():
            wanted = intact[topic][name]
            if len(values) > len(wanted) or not same(values, wanted[: len(values)]):
                raise WrongError(f"{topic} {name} reads otherwise than recorded, complete={found.complete}")
            rows += len(values)
            if found.complete and len(values) != len(wanted):
                raise WrongError(
                    f"{topic} has {len(values)} of {len(wanted)} rows, and the recording is called complete"
                )
    if found.complete and set(found.topics) != set(intact.topics):
        raise WrongError("topics are missing, and the recording is called complete")
    return f"{rows} values, complete={found.complete}"


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether arrays are equal, NaN included."""
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
