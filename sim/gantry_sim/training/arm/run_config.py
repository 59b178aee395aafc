"""A training of a manipulation task on disk: what was asked for, and its own copies of all that it learns from."""

from __future__ import annotations

import contextlib
import functools
import re
import time
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from gantry_deploy.bundle.locate import RUN_CONFIG
from gantry_deploy.contract.differences import NOT_OF_A_TASK, contract_differences
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_hardware.errors import GantryError
from gantry_hardware.json_file import as_plain
from gantry_hardware.structured import from_plain
from gantry_policies.imitation.config import BcCfg
from gantry_policies.off_policy.config import TrainCfg
from gantry_policies.off_policy.env import IMAGE_PREFIX, STATE
from gantry_sim.gym.names import is_gym_task
from gantry_sim.gym.task import find_any_task
from gantry_sim.tasks.manipulation.registry import ArmTask
from gantry_sim.tasks.names import is_arm_task
from gantry_sim.training.arm.algorithms import ArmPreset, BcPreset, Method, RlPreset, find_method, preset_of
from gantry_sim.training.machine_record import machine_record
from gantry_sim.training.run_files import git_commit, hold_run, require_seed, write_json
from gantry_sim.training.run_validation import ARM_FILES, RunError, read_run_file, require_fresh, trained_task

BASE_FOLDER, DEMOS_FILE, CONTRACT_FILE = ARM_FILES
"""In a run folder: its own copies of the policy that it builds upon and of its demonstrations, so that it goes on
whatever becomes of theirs, and the contract of its policy."""


@dataclass(frozen=True)
class Spaces:
    """Sizes of what a policy sees and does."""

    obs_shapes: dict[str, tuple[int, ...]]
    """Shape of one observation, by key."""
    action_size: int
    """Numbers of an action."""
    rate_hz: float = field(default=0.0, compare=False)
    """Control rate; 0 if it is not known here."""


def _spaces_of(contract: PolicyContract) -> Spaces:
    cameras = contract.cameras
    images = {IMAGE_PREFIX + item.name: (3, item.height, item.width) for item in cameras}
    return Spaces({STATE: (contract.observation_size,), **images}, contract.action_size)


@dataclass(frozen=True)
class ArmRun:
    """One training of a manipulation task."""

    task: ArmTask
    """Task that is learned."""
    preset_name: str
    """Preset that the configuration started from."""
    preset: ArmPreset
    """The configuration, changes included."""
    seed: int
    """Of everything random."""
    device: str = "cpu"
    """Of the networks; the environments are on the CPU."""
    learn_threads: int = 1
    """Threads of the learner; with another number, sums are rounded otherwise and the run comes out differently."""
    minutes: float = 0.0
    """Time to learn, without evaluations; 0 for as long as it takes."""
    demos: str = ""
    """Source of the demonstrations."""
    base: str = ""
    """Source of the base policy."""

    @property
    def method(self) -> Method:
        """Method of the preset."""
        return find_method(self.task, self.preset_name)

    def as_dict(self) -> dict[str, Any]:
        """Plain data of the whole configuration."""
        return {
            "task": self.task.name,
            "preset": self.preset_name,
            "device": self.device,
            "seed": self.seed,
            "learn_threads": self.learn_threads,
            "minutes": self.minutes,
            "demos": self.demos,
            "base": self.base,
            **{name: asdict(part) for name, part in vars(self.preset).items()},
        }

    @property
    def has_contract(self) -> bool:
        """Whether the task says what observations and actions mean on a robot."""
        return not is_gym_task(self.task.name)

    def contract(self) -> PolicyContract:
        """Of the policy.

        Raises:
            GantryError: If the task has none.
        """
        return self.task.contract(self.preset.env)

    @functools.cached_property
    def spaces(self) -> Spaces:
        """Spaces of the policy's observations and actions."""
        if self.has_contract:
            return _spaces_of(self.contract())
        env = self.task.make_env(replace(self.preset.env, num_envs=1), self.seed)
        try:
            return Spaces(dict(env.obs_shapes), env.action_size, round(1.0 / env.dt_s, 6))
        finally:
            env.close()


def is_arm_run(folder: Path) -> bool:
    """Whether a folder holds a training of a manipulation task."""
    return is_arm_task(trained_task(folder))


def check_arm_run(run: ArmRun) -> None:
    """Refuse what cannot work before anything is written or built.

    Raises:
        RunError: If the seed is held out or out of range, the device does not exist, demonstrations or a base are
            missing or out of place, or there are no environments.
    """
    require_seed(run.seed)
    require_device(run.device)
    if run.preset.env.num_envs < 1:
        raise RunError(f"env.num_envs is {run.preset.env.num_envs}, expected at least 1.")
    if run.minutes and isinstance(run.preset, BcPreset):
        raise RunError("Cloning ends after a number of updates, with the learning rate at zero; leave out --minutes.")
    method, name = run.method, run.preset_name
    if method.demos and not run.demos:
        also = ", or a base that was cloned from some with --base RUN" if method.base else ""
        raise RunError(f"Preset '{name}' learns from demonstrations; name a dataset with --demos FOLDER{also}.")
    if not method.demos and run.demos:
        raise RunError(f"Preset '{name}' learns from no demonstrations; leave out --demos.")
    if method.base == "needs" and not run.base:
        raise RunError(f"Preset '{name}' builds upon a policy; name the run folder of a cloned one with --base RUN.")
    if not method.base and run.base:
        raise RunError(f"Preset '{name}' builds upon no policy; leave out --base.")


def require_device(device: str) -> None:
    """Refuse a device that does not exist.

    Raises:
        RunError: With those that do.
    """
    if re.fullmatch(r"cpu|cuda(:\d+)?", device) is None:
        raise RunError(f"Unknown device '{device}'. Expected cpu, or a CUDA device such as cuda:0.")
    found = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if device != "cpu" and (device if ":" in device else f"{device}:0") not in found:
        available = ", ".join(["cpu", *found])
        raise RunError(f"Device '{device}' was asked for, but torch sees no such device. Available: {available}.")


def create_arm_run(run: ArmRun, folder: Path | None) -> Path:
    """Make a run folder and write down what is about to happen.

    Args:
        run: The run.
        folder: Where; None for ``runs/<task>-<preset>-s<seed>-<time>``.

    Raises:
        RunError: If the folder already holds a run or anything else, or cannot be written.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = folder or Path("runs") / f"{_plain(run.task.name)}-{run.preset_name}-s{run.seed}-{stamp}"
    record = run.as_dict() | {
        "git_commit": git_commit(),
        "created_utc": _now_utc(),
        "machine": machine_record(),
        "packages": _versions("gantry-rl", "torch", "mujoco", "mjlab", "gymnasium"),
        "sessions": [session_of(0)],
    }
    require_fresh(folder)  # Before the lock, which is a file in a foreign folder otherwise.
    with hold_run(folder):
        require_fresh(folder)  # Another process may have been faster.
        if run.has_contract:
            write_json(folder / CONTRACT_FILE, as_plain(asdict(run.contract())))
        write_json(folder / RUN_CONFIG, record)
    return folder


def read_arm_run(folder: Path) -> ArmRun:
    """The configuration of an existing run.

    Raises:
        RunError: If the folder holds none, or it does not fit this version.
    """
    path = folder / RUN_CONFIG
    try:
        data = read_run_file(path)
        task = find_any_task(data["task"])
        shape = preset_of(task, data["preset"])
        env = from_plain(type(shape.env), data["env"], f"{path}: env", RunError)
        return ArmRun(
            task,
            data["preset"],
            _learner_of(shape, env, data, path),
            *(data[name] for name in ("seed", "device", "learn_threads", "minutes", "demos", "base")),
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunError(f"'{folder}' is no run folder: there is no {RUN_CONFIG} in it.") from error
    except OSError as error:
        raise RunError(f"Cannot read '{path}': {error.strerror}.") from error
    except GantryError:
        raise
    except (ValueError, KeyError, TypeError) as error:  # no text, no JSON, or not this JSON
        raise RunError(f"'{path}' is damaged: {type(error).__name__} {error}.") from error


def _learner_of(shape: ArmPreset, env: Any, data: dict[str, Any], path: Path) -> ArmPreset:
    if isinstance(shape, BcPreset):
        return BcPreset(env, from_plain(BcCfg, data["bc"], f"{path}: bc", RunError))
    return RlPreset(env, from_plain(TrainCfg, data["train"], f"{path}: train", RunError))


def add_arm_session(folder: Path, progress: int) -> None:
    """Write down that a run is continued, by which code and when.

    Args:
        folder: Of the run.
        progress: Steps or updates that it has done.

    Raises:
        RunError: If that cannot be written.
    """
    record = read_run_file(folder / RUN_CONFIG)
    record["sessions"] = [*record.get("sessions", []), session_of(progress)]
    write_json(folder / RUN_CONFIG, record)


def session_of(progress: int) -> dict[str, Any]:
    """Notes for the record when a training begins or goes on after some steps or updates, the machine included."""
    made = {"git_commit": git_commit(), "started_utc": _now_utc(), "machine": machine_record()}
    return {"progress": progress, **made}


def _plain(name: str) -> str:
    """A task's name as part of a folder's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


def _versions(*names: str) -> dict[str, str]:
    """Versions of those packages that are installed."""
    found = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


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


def with_seed(preset: ArmPreset, seed: int) -> ArmPreset:
    """The same preset, its learner seeded."""
    if isinstance(preset, BcPreset):
        return replace(preset, bc=replace(preset.bc, seed=seed))
    return replace(preset, train=replace(preset.train, seed=seed))


def _now_utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
