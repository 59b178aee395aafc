"""Mutated datasets: bits, cuts, zeros and exchanged values in every file of a LeRobot v3 dataset.

Where ``check_dataset`` finds nothing, every value must read as it was written; whatever it finds, reading ends in the
values that were written or in one message.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cases import WrongError

from gantry_deploy.cli.main import main as gantry

DEPTH = 100_000


class Attack:
    """Mutations of a small dataset with every kind of feature. It is written in a process of its own."""

    def __init__(self, folder: Path, seed: int) -> None:
        import subprocess
        import sys

        self.source = folder / "dataset"
        script = (
            "import sys\n"
            "from gantry_deploy.dataset.testing import FEATURES, write_episodes\n"
            "from gantry_deploy.dataset.writer import DatasetWriter\n"
            "with DatasetWriter(sys.argv[1], fps=20, features=FEATURES, robot_type='yam') as writer:\n"
            "    write_episodes(writer)\n"
        )
        subprocess.run([sys.executable, "-c", script, str(self.source)], check=True)

    def case(self, number: int, rng: np.random.Generator, folder: Path) -> tuple[str, Callable[[], str]]:
        """One mutant, and what checks and reads it."""
        target = folder / "dataset"
        shutil.copytree(self.source, target)
        files = [path for path in sorted(target.rglob("*")) if path.is_file()]
        tables = [path for path in files if path.suffix == ".parquet"]
        texts = [path for path in files if path.suffix == ".json"]
        draw = rng.random()
        if draw < 0.25:
            what = change_text(texts[int(rng.integers(len(texts)))], rng)
        else:
            pool = tables if draw < 0.75 else files
            what = change_bytes(pool[int(rng.integers(len(pool)))], rng)
        return what.replace(str(target), ""), lambda: attempt(self.source, target)


def change_bytes(path: Path, rng: np.random.Generator) -> str:
    """Change bits or bytes, cut, or remove a file."""
    data = path.read_bytes()
    kind = int(rng.integers(8))
    at = int(rng.integers(max(1, len(data))))
    if kind <= 3 and data:
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :])
        return f"{path}: one bit of byte {at}"
    if kind == 4:
        path.write_bytes(data[:at])
        return f"{path}: cut at {at}"
    if kind == 5:
        path.write_bytes(data[:at] + bytes(len(data) - at))
        return f"{path}: zeros from {at}"
    if kind == 6:
        path.unlink()
        return f"{path}: removed"
    path.write_bytes(data[:at] + rng.bytes(16) + data[at + 16 :])
    return f"{path}: noise at {at}"


def change_text(path: Path, rng: np.random.Generator) -> str:
    """Change a value of a JSON file, or make a text of it that readers stumble over."""
    values: tuple[Any, ...] = (0, -1, 1e308, 2**63, None, "", "x", "\x1b[2J", [], {}, float("nan"), "../../x", True)
    kind = int(rng.integers(6))
    text = path.read_text()
    if kind == 0:
        path.write_text("[" * DEPTH)
        return f"{path}: {DEPTH} brackets"
    if kind == 1:
        body = text.rstrip().rstrip("}")
        key = next(iter(json.loads(text)))
        path.write_text(f"{body}, {json.dumps(key)}: 1}}")
        return f"{path}: key {key} twice"
    try:
        document = json.loads(text)
    except ValueError:
        return change_bytes(path, rng)
    node, parent, key, trace = document, None, None, []
    while isinstance(node, dict | list) and node and (parent is None or rng.random() < 0.9):
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        parent, key = node, keys[int(rng.integers(len(keys)))]
        trace.append(str(key))
        node = parent[key]
    if parent is None:
        return change_bytes(path, rng)
    value = values[int(rng.integers(len(values)))]
    parent[key] = value
    path.write_text(json.dumps(document))
    return f"{path}: {'.'.join(trace)} = {value!a}"


def attempt(source: Path, target: Path) -> str:
    """Check a mutant, and read it to its end."""
    from gantry_deploy.dataset.checks.check import check_dataset
    from gantry_deploy.errors import DatasetError

    findings = check_dataset(target, decode=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        for command in (["data", "check", "--decode", str(target)], ["data", "info", str(target)]):
            code = gantry(command)
            if "Traceback" in printed.getvalue():
                raise RuntimeError(f"{command[1]}: {printed.getvalue()[-300:]}")
            if command[1] == "check" and (code == 0) != (not findings):
                raise WrongError(f"{len(findings)} findings, and exit code {code}")
    if any(ord(letter) < 32 and letter != "\n" for letter in printed.getvalue()):
        lines = [line for line in printed.getvalue().split("\n") if any(ord(letter) < 32 for letter in line)]
        raise RuntimeError(f"control characters are printed: {lines[0][:500]!r}")
    try:
        difference = compare(source, target)
    except DatasetError as error:
        if not findings:
            raise WrongError(f"nothing was found, and reading fails: {error}") from error
        raise
    if difference and not findings:
        raise WrongError(f"nothing was found, and {difference}")
    return f"{len(findings)} findings, {difference or 'all values as written'}"


def compare(source: Path, target: Path) -> str:
    """The first difference between two datasets as a reader sees them; empty if there is none."""
    from gantry_deploy.dataset.reader import Dataset

    a, b = Dataset(source), Dataset(target)
    names = ("fps", "robot_type", "features", "tasks", "num_episodes")
    for name in names:
        if getattr(a, name) != getattr(b, name):
            return f"{name} is {getattr(b, name)!r:.200}"
    for episode in range(a.num_episodes):
        if a.episodes[episode].tasks != b.episodes[episode].tasks:
            return f"tasks of episode {episode} differ"
        for left, right in zip(a.iter_frames(episode), b.iter_frames(episode), strict=True):
            for key, value in left.items():
                if not np.array_equal(np.asarray(value), np.asarray(right[key])):
                    return f"{key} of episode {episode} differs"
    return ""
