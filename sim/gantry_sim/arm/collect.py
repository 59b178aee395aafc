"""Demonstrations of a scripted expert as a LeRobot dataset, from many environments at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract import PolicyContract
from gantry_deploy.dataset.features import (
    ACTION,
    DONE,
    IMAGES,
    IS_DEMO,
    REWARD,
    STATE,
    SUCCESS,
    TRUNCATED,
    Feature,
    camera,
    rl_features,
    scalar,
    vector,
)
from gantry_deploy.dataset.recorder import StepRecorder
from gantry_deploy.dataset.writer import DatasetWriter
from gantry_deploy.errors import DatasetError
from gantry_deploy.golden import action_labels, observation_labels
from gantry_hardware.json_file import as_plain
from gantry_policies.offpolicy.env import IMAGE_PREFIX, EnvStep, Observation, StepEnv
from gantry_policies.offpolicy.env import STATE as STATE_KEY
from gantry_sim.arm.acting import ExpertActor
from gantry_sim.run_files import EVALUATION_SEED, write_json
from gantry_sim.run_place import RunError, read_run_file
from gantry_sim.tasks.manipulation.registry import ArmTask
from gantry_sim.torch_threads import torch_threads

NOTES = "gantry.json"
"""Beside a dataset's own folders: the task and the environments that it was recorded in."""
AXES = ("x", "y", "z")
TURNS = ("rx", "ry", "rz")


@dataclass(frozen=True)
class CollectCfg:
    """What is recorded."""

    task: ArmTask
    """The task."""
    env: Any
    """Its configuration."""
    episodes: int
    """Episodes that the dataset has at the end, those that it had before included."""
    badness: float = 0.0
    """Of the expert, 0 to 1."""
    seed: int = 1
    """Of the episodes and of the expert's mistakes."""
    only_successes: bool = False
    """Leave out episodes without success."""


@dataclass
class Collected:
    """How far a recording is."""

    episodes: int = 0
    """In the dataset, those before included."""
    frames: int = 0
    """Likewise."""
    before: int = 0
    """Episodes that were in the dataset before."""
    tried: int = 0
    """Episodes that ended now, those left out included."""
    succeeded: int = 0
    """Of them, with success."""
    env_steps: int = 0
    """Steps of all environments."""
    wall_s: float = 0.0
    """Time that it took."""

    @property
    def steps_per_s(self) -> float:
        """Steps of all environments per second."""
        return self.env_steps / self.wall_s if self.wall_s else 0.0


def collect(cfg: CollectCfg, folder: Path, on_progress: Callable[[Collected], None] = lambda _: None) -> Collected:
    """Record until the dataset has as many episodes as asked for; begun ones are left out.

    Every environment gives its own share of the episodes: taking whichever end first would favour quick ones, which
    are those that succeed.

    Args:
        cfg: What to record.
        folder: Of the dataset; one that exists is continued with other episodes.
        on_progress: Called after every step.

    Raises:
        RunError: If the seed is held out for evaluation.
        DatasetError: If the folder holds something else, or a dataset of something else.
    """
    if cfg.seed == EVALUATION_SEED:
        raise RunError(f"Seed {EVALUATION_SEED} is held out for evaluation; take another.")
    require_same_notes(cfg, folder)
    with torch_threads(1):
        contract = cfg.task.contract(cfg.env)
        features, rate = demo_features(contract), round(contract.rate_hz)
        with DatasetWriter(folder, rate, features, cfg.task.robot, resume=True) as writer:
            write_json(folder / NOTES, _notes(cfg))
            done = Collected(writer.num_episodes, writer.num_frames, writer.num_episodes)
            if done.episodes >= cfg.episodes:
                return done
            count = min(cfg.env.num_envs, cfg.episodes - done.episodes)
            seed = int(np.random.SeedSequence((cfg.seed, done.episodes)).generate_state(1)[0])
            env = cfg.task.make_env(replace(cfg.env, num_envs=count), seed)
            try:
                _record(cfg, env, writer, done, seed, on_progress)
            finally:
                env.close()
            return done


def require_same_notes(cfg: CollectCfg, folder: Path) -> None:
    """Refuse to continue a dataset of another task, or of one that is configured in another way.

    Raises:
        DatasetError: With both sides.
    """
    try:
        found = read_run_file(folder / NOTES)
    except (OSError, ValueError):
        return  # Not ours; whether its features fit is for the writer to say.
    wanted = as_plain(_notes(cfg))
    for name, value in wanted.items():
        if name == "env" and isinstance(found.get(name), dict):
            for field, inner in value.items():
                if found[name].get(field) != inner:
                    raise DatasetError(
                        f"'{folder}' was recorded with env.{field} {found[name].get(field)}, not {inner}; name another "
                        "folder."
                    )
        elif found.get(name) != value:
            raise DatasetError(f"'{folder}' holds {name} '{found.get(name)}', not '{value}'; name another folder.")


def demo_features(contract: PolicyContract) -> dict[str, Feature]:
    """What a frame of a demonstration holds, by the contract of the policies that learn from it."""
    cameras = () if contract.arm is None else contract.arm.cameras
    return {
        STATE: vector(observation_labels(contract)),
        ACTION: vector(_action_names(contract), kind=contract.action.kind),
        **{IMAGES + item.name: camera(item.height, item.width) for item in cameras},
        **rl_features(),
        IS_DEMO: scalar("bool"),
    }


def _action_names(contract: PolicyContract) -> list[str]:
    """Names of an action's numbers: those of the joints, or of the end effector's axes, turns and gripper."""
    count = contract.action_size
    if count == len(contract.joint_names) or contract.arm is None:
        return action_labels(contract)
    return [*(*AXES, *TURNS)[: count - 1], "gripper"] if contract.arm.gripper_joint else [*(*AXES, *TURNS)[:count]]


def _notes(cfg: CollectCfg) -> dict[str, Any]:
    env = asdict(cfg.env)
    env.pop("num_envs", None)
    return {"task": cfg.task.name, "env": env}


def _record(
    cfg: CollectCfg,
    env: StepEnv,
    writer: DatasetWriter,
    done: Collected,
    seed: int,
    on_progress: Callable[[Collected], None],
) -> None:
    count, missing = env.num_envs, cfg.episodes - writer.num_episodes
    shares = np.array([missing // count + (row < missing % count) for row in range(count)])
    recorder = StepRecorder(writer, count, cfg.task.summary, only_successes=cfg.only_successes)
    expert = ExpertActor(cfg.task.expert(env, cfg.badness, seed), count)
    began = time.perf_counter()
    obs = env.reset()
    expert.reset()
    lucky = np.zeros(count, dtype=bool)
    while shares.any():
        action = expert.act(obs)
        step = env.step(action)
        ended, counts = (step.terminated | step.truncated).cpu().numpy(), shares > 0
        lucky |= step.success.cpu().numpy()
        recorder.record_steps(_frames(obs, action.cpu().numpy(), step, ended), ended, counts)
        kept = ended & counts & (lucky | (not cfg.only_successes))
        shares[kept] -= 1
        done.tried += int((ended & counts).sum())
        done.succeeded += int((ended & counts & lucky).sum())
        done.episodes, done.frames = writer.num_episodes, writer.num_frames
        done.env_steps += count
        done.wall_s = time.perf_counter() - began
        on_progress(done)
        lucky[ended] = False
        if ended.any():
            expert.reset((step.terminated | step.truncated).nonzero().squeeze(1))
        obs = step.obs


def _frames(
    obs: Observation, action: NDArray[np.float32], step: EnvStep, ended: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """One step of all environments, by feature."""
    images = {
        IMAGES + key.removeprefix(IMAGE_PREFIX): value.permute(0, 2, 3, 1).cpu().numpy()
        for key, value in obs.items()
        if key.startswith(IMAGE_PREFIX)
    }
    return {
        STATE: obs[STATE_KEY].cpu().numpy(),
        ACTION: action,
        **images,
        REWARD: step.reward.cpu().numpy(),
        DONE: ended,
        TRUNCATED: step.truncated.cpu().numpy(),
        SUCCESS: step.success.cpu().numpy(),
        IS_DEMO: np.ones(len(ended), dtype=bool),
    }
