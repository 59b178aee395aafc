"""A training run on disk: what was asked for, by which code, and where its parts lie."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from gantry_deploy.bundle.bundle import MAPPER
from gantry_deploy.bundle.locate import RUN_CONFIG
from gantry_hardware.errors import GantryError
from gantry_hardware.structured import from_plain
from gantry_hardware.text import plain_text
from gantry_hardware.whole_files import write_whole
from gantry_sim.tasks.registry import Preset, Task, find_task, task_names
from gantry_sim.training.machine_record import machine_record
from gantry_sim.training.run_files import (  # noqa: F401 - re-exported for users of runs
    BUNDLE_FOLDER,
    EVALUATION_FILE,
    EVALUATION_SEED,
    TRAINING_KEY,
    git_commit,
    hold_run,
    require_seed,
    require_seeds,
    trained_commit,
    write_json,
)
from gantry_sim.training.run_validation import LENGTH_FIELDS, TEACHER_FOLDER, RunError, read_run_file, require_fresh

CONFIG_FILE = RUN_CONFIG


@dataclass(frozen=True)
class RunCfg:
    """One training run."""

    task: Task
    """Task that is learned."""
    preset_name: str
    """Preset that the configuration started from."""
    preset: Preset
    """The configuration, changes included."""
    device: str
    """``cpu`` or a CUDA device."""
    seed: int
    """Of everything random."""
    learn_threads: int = field(default_factory=torch.get_num_threads)
    """Threads of the learner; with another number, sums are rounded otherwise and the run comes out differently."""
    teacher: Path | None = None
    """Run folder of the teacher, if there is one."""
    script: str = ""
    """Name of one of the task's scripts that teaches instead, if any."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data of the whole configuration."""
        return {
            "task": self.task.name,
            "preset": self.preset_name,
            "device": self.device,
            "seed": self.seed,
            "learn_threads": self.learn_threads,
            "env": asdict(self.preset.env),
            "learner": asdict(self.preset.learner),
            "teacher": None if self.teacher is None else str(self.teacher),
            "script": self.script,
        }


def check_run(cfg: RunCfg) -> None:
    """Refuse what cannot work before anything is written or built.

    Raises:
        RunError: If the seed is the one that evaluation holds out, the device does not exist, the task is for another
            robot, there are too few samples to learn from, or a teacher is missing or out of place.
        GantryError: If something is missing that the environments need.
    """
    require_seed(cfg.seed)
    if re.fullmatch(r"cpu|cuda(:\d+)?", cfg.device) is None:
        raise RunError(f"Unknown device '{cfg.device}'. Expected cpu, or a CUDA device such as cuda:0.")
    if cfg.device != "cpu":
        found = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        if (cfg.device if ":" in cfg.device else f"{cfg.device}:0") not in found:
            available = ", ".join(["cpu", *found])
            raise RunError(
                f"Device '{cfg.device}' was asked for, but torch sees no such device. Available: {available}."
            )
    robot = cfg.task.contract(cfg.preset.env).robot
    if robot != cfg.task.robot and not (cfg.task.other_robots and cfg.task.name_for(robot) not in task_names()):
        raise RunError(f"Task '{cfg.task.name}' is for robot '{cfg.task.robot}', env.robot is '{robot}'.")
    _check_teacher(cfg)
    envs, learner = cfg.preset.env.num_envs, cfg.preset.learner
    if envs < 1:
        raise RunError(f"env.num_envs is {envs}, expected at least 1.")
    minibatches = learner.minibatches_of(envs * learner.steps_per_env)
    if envs * learner.steps_per_env < 2 * minibatches:
        raise RunError(
            f"{envs} environments x {learner.steps_per_env} steps are too few samples for {minibatches} minibatches."
        )
    cfg.task.require(cfg.preset.env)


def _check_teacher(cfg: RunCfg) -> None:
    taught = cfg.task.teacher(cfg.preset.env) is not None
    if cfg.script and cfg.teacher is not None:
        raise RunError(f"Both '{cfg.script}' and the run '{cfg.teacher}' are named to teach, expected one of them.")
    if cfg.script:
        cfg.task.script(cfg.script)
    if cfg.task.needs_teacher and cfg.teacher is None:
        raise RunError(f"Task '{cfg.task.name}' learns from a teacher; name its run folder with --teacher RUN.")
    if cfg.teacher is not None and not taught:
        raise RunError(
            f"Task '{cfg.task.name}' defines no teacher observations, configured like this; leave out --teacher."
        )


def create_run(cfg: RunCfg, folder: Path | None) -> Path:
    """Make a run folder and write down what is about to happen.

    Args:
        cfg: The run.
        folder: Where; None for ``runs/<task>-<preset>-s<seed>-<time>``.

    Raises:
        RunError: If the folder already holds a run or anything else, or cannot be written.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = folder or Path("runs") / f"{cfg.task.name}-{cfg.preset_name}-s{cfg.seed}-{stamp}"
    packages = ("gantry-rl", "torch", "mujoco", "mjlab", "rsl-rl-lib")
    record = cfg.as_dict() | {
        "git_commit": git_commit(),
        "created_utc": _now_utc(),
        "machine": machine_record(),
        "packages": {name: version(name) for name in packages},
        "sessions": [_session(0)],
    }
    require_fresh(folder)  # Before the lock, which is a file in a foreign folder otherwise.
    with hold_run(folder):
        require_fresh(folder)  # Another process may have been faster.
        _keep_mapper(cfg, folder)
        write_json(folder / CONFIG_FILE, record)
    return folder


def _keep_mapper(cfg: RunCfg, folder: Path) -> None:
    """Copy the mapping network that the task uses: the package's own may be another one when the run goes on."""
    model = cfg.task.mapper(cfg.preset.env)
    try:
        if model is not None:
            write_whole(folder / MAPPER, model)
        else:
            (folder / MAPPER).unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"Cannot write '{folder / MAPPER}': {error.strerror}.") from error


def read_run(folder: Path) -> RunCfg:
    """The configuration of an existing run.

    Raises:
        RunError: If the folder holds none, or it does not fit this version.
    """
    path = folder / CONFIG_FILE
    try:
        data = read_run_file(path)
        task = find_task(data["task"])
        shape = task.preset(data["preset"])
        env = from_plain(type(shape.env), data["env"], f"{path}: env", RunError)
        learner = from_plain(type(shape.learner), data["learner"], f"{path}: learner", RunError)
        threads = data.get("learn_threads", torch.get_num_threads())
        if not isinstance(threads, int) or threads < 1:
            raise RunError(f"{path}: learn_threads is {plain_text(threads)}, expected a whole number of at least 1.")
        if (folder / MAPPER).is_file():
            env = task.use_mapper(env, folder / MAPPER)
        teacher = folder / TEACHER_FOLDER if data.get("teacher") else None
        made = Preset(env, learner), data["device"], data["seed"], threads, teacher, data.get("script", "")
        return RunCfg(task, data["preset"], *made)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunError(f"'{folder}' is no run folder: there is no {CONFIG_FILE} in it.") from error
    except OSError as error:
        raise RunError(f"Cannot read '{path}': {error.strerror}.") from error
    except GantryError:
        raise
    except (ValueError, KeyError, TypeError) as error:  # no text, no JSON, or not this JSON
        raise RunError(f"'{path}' is damaged: {type(error).__name__} {error}.") from error


def lengthen_run(cfg: RunCfg, folder: Path, preset: Preset) -> RunCfg:
    """Let an existing run last longer than it was planned to; its record says so.

    Args:
        cfg: As :func:`read_run` found it.
        folder: Its folder; no other process may train in it.
        preset: The same configuration with larger :data:`LENGTH_FIELDS`; what is scheduled over them is stretched.

    Returns:
        The longer run.

    Raises:
        RunError: If it would last shorter, or the folder cannot be written.
    """
    old, new = ({name: attrgetter(name)(some) for name in LENGTH_FIELDS} for some in (cfg.preset, preset))
    for name, value in new.items():
        if value < old[name]:
            raise RunError(f"{name} is {old[name]} in '{folder}'; a run can be made longer, not shorter ({value}).")
    was = {name: value for name, value in old.items() if value != new[name]}
    if not was:
        return cfg
    longer = replace(cfg, preset=preset)
    with hold_run(folder):
        path = folder / CONFIG_FILE
        record = read_run_file(path)
        record["lengthened"] = [*record.get("lengthened", []), {"at_utc": _now_utc(), "was": was}]
        write_json(path, record | {"learner": longer.as_dict()["learner"]})
    return longer


def add_session(folder: Path, iteration: int) -> None:
    """Write down that a run is continued from an iteration, by which code and when.

    Raises:
        RunError: If that cannot be written.
    """
    path = folder / CONFIG_FILE
    try:
        record = read_run_file(path)
    except FileNotFoundError:  # a runner may be used without a run folder's record
        return
    record["sessions"] = [*record.get("sessions", []), _session(iteration)]
    write_json(path, record)


def _session(iteration: int) -> dict[str, Any]:
    return {"iteration": iteration, "git_commit": git_commit(), "started_utc": _now_utc()}


def _now_utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
