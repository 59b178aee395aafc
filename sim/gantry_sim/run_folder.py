"""A training run on disk: what was asked for, by which code, and where its parts lie."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from gantry_deploy.structured import from_plain
from gantry_hardware.errors import GantryError
from gantry_sim.tasks.registry import Preset, Task, find_task

CONFIG_FILE = "config.json"
EVALUATION_FILE = "evaluation.json"
BUNDLE_FOLDER = "bundle"


class RunError(GantryError):
    """A run folder is missing, damaged, or not what was expected."""


@dataclass(frozen=True)
class RunCfg:
    """One training run."""

    task: Task
    """What is learned."""
    preset_name: str
    """Preset that the configuration started from."""
    preset: Preset
    """The configuration, changes included."""
    device: str
    """``cpu`` or a CUDA device."""
    seed: int
    """Of everything random."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data of the whole configuration."""
        return {
            "task": self.task.name,
            "preset": self.preset_name,
            "device": self.device,
            "seed": self.seed,
            "env": asdict(self.preset.env),
            "learner": asdict(self.preset.learner),
        }


def create_run(cfg: RunCfg, folder: Path | None) -> Path:
    """Make a run folder and write down what is about to happen.

    Args:
        cfg: The run.
        folder: Where; None for ``runs/<task>-<preset>-s<seed>-<time>``.

    Raises:
        RunError: If the folder already holds a run, or cannot be written.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = folder or Path("runs") / f"{cfg.task.name}-{cfg.preset_name}-s{cfg.seed}-{stamp}"
    if (folder / CONFIG_FILE).exists():
        raise RunError(f"'{folder}' already holds a run. Continue it with --resume {folder}, or name another folder.")
    packages = ("gantry-rl", "torch", "mujoco", "mjlab", "rsl-rl-lib")
    record = cfg.as_dict() | {
        "git_commit": git_commit(),
        "created_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "python": platform.python_version(),
            "system": platform.platform(),
            "cpus": torch.get_num_threads(),
        },
        "packages": {name: version(name) for name in packages},
    }
    write_json(folder / CONFIG_FILE, record)
    return folder


def read_run(folder: Path) -> RunCfg:
    """The configuration of an existing run.

    Raises:
        RunError: If the folder holds none, or it does not fit this version.
    """
    path = folder / CONFIG_FILE
    try:
        data = json.loads(path.read_text())
        task = find_task(data["task"])
        shape = task.preset(data["preset"])
        env = from_plain(type(shape.env), data["env"], f"{path}: env", RunError)
        learner = from_plain(type(shape.learner), data["learner"], f"{path}: learner", RunError)
        return RunCfg(task, data["preset"], Preset(env, learner), data["device"], data["seed"])
    except FileNotFoundError as error:
        raise RunError(f"'{folder}' is no run folder: there is no {CONFIG_FILE} in it.") from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise RunError(f"'{path}' is damaged: {type(error).__name__} {error}.") from error


def write_json(path: Path, data: Any) -> None:
    """Write JSON whole or not at all.

    Raises:
        RunError: If it cannot be written.
    """
    part = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(data, indent=1))
        part.replace(path)
    except OSError as error:
        raise RunError(f"Cannot write '{path}': {error}.") from error


def git_commit() -> str:
    """Commit of this source tree, ``-dirty`` appended if it was changed; empty outside a repository."""
    here = Path(__file__).resolve().parent

    def git(*args: str) -> str:
        try:
            done = subprocess.run(["git", "-C", str(here), *args], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "HEAD")
    dirty = git("status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if commit and dirty else commit
