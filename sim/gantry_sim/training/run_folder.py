"""A training run on disk: what was asked for, by which code, and its own copies of what it learns from."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from gantry_deploy.bundle.bundle import MAPPER
from gantry_deploy.bundle.locate import RUN_CONFIG
from gantry_deploy.contract.differences import NOT_OF_A_TASK, contract_differences
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import as_plain
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.text import plain_text
from gantry_hardware.files.whole_files import write_whole
from gantry_hardware.training.launcher import launched
from gantry_sim.tasks.registry import Preset, find_task, task_names
from gantry_sim.training.algorithms.registry import Algorithm, find_algorithm
from gantry_sim.training.machine_record import machine_record
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_files import (  # noqa: F401 - re-exported for users of runs
    BASE_FOLDER,
    BUNDLE_FOLDER,
    CONTRACT_FILE,
    DEMOS_FILE,
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
from gantry_sim.training.run_validation import (
    SCRIPTED,
    TEACHER_FOLDER,
    RunError,
    is_planner,
    read_run_file,
    require_fresh,
)

CONFIG_FILE = RUN_CONFIG


def algorithm_of(run: RunCfg) -> Algorithm:
    """The algorithm of a run.

    Raises:
        UnknownNameError: If none of that name is installed.
    """
    return find_algorithm(run.preset.algorithm)


def check_run(run: RunCfg) -> None:
    """Refuse what cannot work before anything is written or built.

    Raises:
        RunError: If the seed is the one that evaluation holds out, the device does not exist, the task is for another
            robot, or demonstrations, a base or a teacher are missing or out of place.
        GantryError: If something is missing that the environments need, or the algorithm cannot learn the task.
    """
    require_seed(run.seed)
    require_device(run.device)
    if run.task.has_contract:
        robot = run.contract().robot
        if robot != run.task.robot and not (run.task.other_robots and run.task.name_for(robot) not in task_names()):
            raise RunError(f"Task '{run.task.name}' is for robot '{run.task.robot}', env.robot is '{robot}'.")
    if run.preset.env.num_envs < 1:
        raise RunError(f"env.num_envs is {run.preset.env.num_envs}, expected at least 1.")
    algorithm = algorithm_of(run)
    if launched().count > 1 and not algorithm.processes:
        raise RunError(
            f"Algorithm '{algorithm.name}' learns in one process, and WORLD_SIZE is {launched().count}; start it "
            "without torchrun."
        )
    _check_sources(run, algorithm)
    algorithm.check(run)
    run.task.require(run.preset.env)


def _check_sources(run: RunCfg, algorithm: Algorithm) -> None:
    """Refuse demonstrations, a base or a teacher that are missing or out of place."""
    name = run.preset_name
    if algorithm.demos == "needs" and not run.demos:
        also = ", or a base that was cloned from some with --base RUN" if algorithm.base else ""
        raise RunError(f"Preset '{name}' learns from demonstrations; name a dataset with --demos FOLDER{also}.")
    if not algorithm.demos and run.demos:
        raise RunError(f"Preset '{name}' learns from no demonstrations; leave out --demos.")
    if algorithm.base == "needs" and not run.base:
        raise RunError(f"Preset '{name}' builds upon a policy; name the run folder of a cloned one with --base RUN.")
    if not algorithm.base and run.base:
        raise RunError(f"Preset '{name}' builds upon no policy; leave out --base.")
    if not algorithm.teacher and run.teacher_name:
        raise RunError(f"Algorithm '{algorithm.name}' learns from no teacher; leave out --teacher.")


def require_device(device: str) -> None:
    """Refuse a device that does not exist.

    Raises:
        RunError: With those that do.
    """
    if re.fullmatch(r"cpu|cuda(:\d+)?", device) is None:
        raise RunError(f"Unknown device '{device}'. Expected cpu, or a CUDA device such as cuda:0.")
    if device != "cpu":
        found = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        if (device if ":" in device else f"{device}:0") not in found:
            available = ", ".join(["cpu", *found])
            raise RunError(f"Device '{device}' was asked for, but torch sees no such device. Available: {available}.")


def create_run(run: RunCfg, folder: Path | None) -> Path:
    """Make a run folder and write down what is about to happen.

    Args:
        run: The run, checked by :func:`check_run`.
        folder: Where; None for ``runs/<task>-<preset>-s<seed>-<time>``.

    Raises:
        RunError: If the folder already holds a run or anything else, or cannot be written.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    plain_name = re.sub(r"[^A-Za-z0-9._-]+", "-", run.task.name)
    folder = folder or Path("runs") / f"{plain_name}-{run.preset_name}-s{run.seed}-{stamp}"
    record = run.as_dict() | {
        "git_commit": git_commit(),
        "created_utc": _now_utc(),
        "machine": machine_record(),
        "packages": _versions("gantry-rl", "torch", "mujoco", "mjlab", "rsl-rl-lib", "gymnasium"),
        "sessions": [_session(0)],
    }
    require_fresh(folder)  # Before the lock, which is a file in a foreign folder otherwise.
    with hold_run(folder):
        require_fresh(folder)  # Another process may have been faster.
        _keep_mapper(run, folder)
        if run.task.has_contract:
            write_json(folder / CONTRACT_FILE, as_plain(asdict(run.contract())))
        write_json(folder / CONFIG_FILE, record)
    return folder


def _keep_mapper(run: RunCfg, folder: Path) -> None:
    """Copy the mapping network that the task uses: the package's own may be another one when the run goes on."""
    model = run.task.mapper(run.preset.env)
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
        if "algorithm" not in data:
            raise RunError(
                f"'{folder}' is a run of a version before 0.2.0: its {CONFIG_FILE} names no algorithm. Train it "
                "again; its bundle can be converted with scripts/convert_bundle.py."
            )
        task = find_task(data["task"])
        algorithm = find_algorithm(data["algorithm"])
        env = from_plain(type(task.usual_env()), data["env"], f"{path}: env", RunError)
        learner = from_plain(algorithm.cfg_type, _current(path, data["learner"]), f"{path}: learner", RunError)
        threads = data["learn_threads"]
        if not isinstance(threads, int) or threads < 1:
            raise RunError(f"{path}: learn_threads is {plain_text(threads)}, expected a whole number of at least 1.")
        if (folder / MAPPER).is_file():
            env = task.use_mapper(env, folder / MAPPER)
        scripted = data["teacher"] == SCRIPTED
        planner = data["teacher"] if data["teacher"] and is_planner(data["teacher"]) else ""
        teacher = folder / TEACHER_FOLDER if data["teacher"] and not scripted and not planner else None
        preset = Preset(env, learner, algorithm.name)
        run = RunCfg(task, data["preset"], preset, data["device"], data["seed"], threads, teacher, scripted, planner)
        return replace(run, minutes=data["minutes"], demos=data["demos"], base=data["base"])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunError(f"'{folder}' is no run folder: there is no {CONFIG_FILE} in it.") from error
    except OSError as error:
        raise RunError(f"Cannot read '{path}': {error.strerror}.") from error
    except GantryError:
        raise
    except (ValueError, KeyError, TypeError) as error:  # no text, no JSON, or not this JSON
        raise RunError(f"'{path}' is damaged: {type(error).__name__} {error}.") from error


def _current(path: Path, learner: Any) -> Any:
    """Settings of a learner without those that no version has any more.

    Raises:
        RunError: If they were of consequence.
    """
    if not isinstance(learner, dict) or "pictures" not in learner:
        return learner
    if learner.get("network") == "pictures":
        raise RunError(f"{path}: the network of kind 'pictures' sees by key points now. Train the run again.")
    return {name: value for name, value in learner.items() if name != "pictures"}


def lengthen_run(run: RunCfg, folder: Path, preset: Preset) -> RunCfg:
    """Let an existing run last longer than it was planned to; its record says so.

    Args:
        run: As :func:`read_run` found it.
        folder: Its folder; no other process may train in it.
        preset: The same configuration with larger values of what the algorithm says may grow; what is scheduled over
            them is stretched.

    Returns:
        The longer run.

    Raises:
        RunError: If it would last shorter, something else differs, or the folder cannot be written.
    """
    names = algorithm_of(run).may_grow
    old, new = ({name: attrgetter(name)(some.learner) for name in names} for some in (run.preset, preset))
    for name, value in new.items():
        if value < old[name]:
            raise RunError(
                f"learner.{name} is {old[name]} in '{folder}'; a run can be made longer, not shorter ({value})."
            )
    was = {f"learner.{name}": value for name, value in old.items() if value != new[name]}
    if not was:
        return run
    longer = replace(run, preset=preset)
    with hold_run(folder):
        path = folder / CONFIG_FILE
        record = read_run_file(path)
        record["lengthened"] = [*record.get("lengthened", []), {"at_utc": _now_utc(), "was": was}]
        write_json(path, record | {"learner": longer.as_dict()["learner"]})
    return longer


def add_session(folder: Path, done: int) -> None:
    """Write down that a run is continued, by which code and when.

    Args:
        folder: Of the run.
        done: Units of training that it has done.

    Raises:
        RunError: If that cannot be written.
    """
    path = folder / CONFIG_FILE
    try:
        record = read_run_file(path)
    except FileNotFoundError:  # a trainer may be used without a run folder's record
        return
    record["sessions"] = [*record.get("sessions", []), _session(done)]
    write_json(path, record)


def require_same_task(found: PolicyContract, expected: PolicyContract, source: object) -> None:
    """Refuse a policy that sees or does something else than a task has for it.

    Args:
        found: The policy's contract.
        expected: The task's.
        source: Where the policy comes from, for the message.

    Raises:
        RunError: With the first difference.
    """
    for item in contract_differences(found, expected, ignoring=NOT_OF_A_TASK):
        name = item.name.partition(".")[0].partition("[")[0]
        raise RunError(f"'{source}' was trained with another {name} than this task has: {item.text()}.")


def _session(done: int) -> dict[str, Any]:
    made = {"git_commit": git_commit(), "started_utc": _now_utc(), "machine": machine_record()}
    return {"done": done, **made}


def _versions(*names: str) -> dict[str, str]:
    """Versions of those packages that are installed."""
    found = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _now_utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
