"""Demonstrations of a scripted expert, or a policy's own rollouts, as a LeRobot dataset, from many environments."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.dataset.checks.agreement import Expected, first_difference, require_agreement
from gantry_deploy.dataset.features import (
    ACTION,
    DONE,
    ENVIRONMENT_STATE,
    IMAGES,
    IS_DEMO,
    REWARD,
    SUCCESS,
    TRUNCATED,
    Feature,
    vector,
)
from gantry_deploy.dataset.notes import CARD, NOTES, make_card, make_notes, read_notes
from gantry_deploy.dataset.physical import (
    action_numbers,
    demo_features,
    observation_numbers,
    physical_action,
    physical_features,
)
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.dataset.recorder import StepRecorder
from gantry_deploy.dataset.storage.layout import INFO, json_bytes
from gantry_deploy.dataset.writer import DatasetWriter
from gantry_deploy.errors import DatasetError
from gantry_policies.common.batched_env import IMAGE_PREFIX, BatchedEnv, EnvStep, Observation
from gantry_policies.common.batched_env import STATE as STATE_KEY
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.tasks.registry import MakePolicy, Task
from gantry_sim.training.run_files import EVALUATION_SEED
from gantry_sim.training.run_validation import RunError


@dataclass(frozen=True)
class CollectCfg:
    """Settings of a recording."""

    task: Task
    """The task."""
    env: Any
    """Its configuration."""
    episodes: int
    """Episodes that the dataset has at the end, those that it had before included."""
    suboptimality: float = 0.0
    """Of the expert: 0 for as good as it can, 1 for many mistakes."""
    seed: int = 1
    """Of the episodes and of the expert's mistakes."""
    only_successes: bool = False
    """Leave out episodes without success."""
    make_policy: MakePolicy | None = None
    """From environments to the policy that acts in them in the expert's place; None for the expert."""


@dataclass
class Collected:
    """Progress of a recording."""

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
    contract = cfg.task.contract(cfg.env)
    features, fps = demo_features(contract), whole_rate(contract.rate_hz)
    if labels := _labels(cfg, contract):
        features[ENVIRONMENT_STATE] = vector([f"{name}.{axis}" for name in labels for axis in "xyz"], unit="m")
    require_same_recording(cfg, folder, contract)
    with torch_threads(1):
        beside = _beside(cfg, contract, features, fps)
        with DatasetWriter(folder, fps, features, cfg.task.robot, resume=True, beside=beside) as writer:
            done = Collected(writer.num_episodes, writer.num_frames, writer.num_episodes)
            if done.episodes >= cfg.episodes:
                return done
            count = min(cfg.env.num_envs, cfg.episodes - done.episodes)
            seed = int(np.random.SeedSequence((cfg.seed, done.episodes)).generate_state(1)[0])
            env = cfg.task.make_env(replace(cfg.env, num_envs=count), "cpu", seed)
            try:
                _record(cfg, env, writer, done, seed, contract, on_progress)
            finally:
                env.close()
            return done


def whole_rate(rate_hz: float) -> int:
    """A control rate as frames per second.

    Raises:
        DatasetError: If it is no whole number, which is all that LeRobot can store.
    """
    if rate_hz != round(rate_hz):
        raise DatasetError(f"env.rate_hz is {rate_hz:g}; a dataset holds a whole number of frames per second.")
    return round(rate_hz)


def require_same_recording(cfg: CollectCfg, folder: Path, contract: PolicyContract) -> None:
    """Refuse to continue a dataset of another task, or of one that is configured in another way.

    Raises:
        DatasetError: With both sides.
    """
    if not (folder / INFO).is_file():
        return
    dataset = Dataset(folder)
    notes = read_notes(folder)
    if notes is None:
        raise DatasetError(f"'{folder}' holds a dataset that Gantry did not collect ({NOTES} is missing in it).")
    wanted = make_notes(cfg.task.name, _env_notes(cfg), contract)
    for name in ("task", "env"):
        if found := first_difference(notes[name], wanted[name], name):
            raise DatasetError(f"'{folder}' was recorded with another configuration: {found}. Name another folder.")
    require_agreement(dataset, Expected.of(cfg.task.name, contract))


def _env_notes(cfg: CollectCfg) -> dict[str, Any]:
    env = asdict(cfg.env)
    env.pop("num_envs", None)
    return env


def _beside(cfg: CollectCfg, contract: PolicyContract, features: Mapping[str, Feature], fps: int) -> dict[str, bytes]:
    """Notes and card of a new dataset."""
    notes = make_notes(cfg.task.name, _env_notes(cfg), contract)
    card = make_card(cfg.task.summary, cfg.task.robot, fps, features, cfg.task.name)
    return {NOTES: json_bytes(notes), CARD: card.encode()}


def _record(
    cfg: CollectCfg,
    env: BatchedEnv,
    writer: DatasetWriter,
    done: Collected,
    seed: int,
    contract: PolicyContract,
    on_progress: Callable[[Collected], None],
) -> None:
    count, missing = env.num_envs, cfg.episodes - writer.num_episodes
    shares = np.array([missing // count + (row < missing % count) for row in range(count)])
    recorder = StepRecorder(writer, count, cfg.task.summary, only_successes=cfg.only_successes)
    if cfg.make_policy is None:
        policy = cfg.task.require_scripted().make_policy(env, cfg.suboptimality, seed)
    else:
        policy = cfg.make_policy(env)
    began = time.perf_counter()
    frames = _Frames(contract, is_demo=cfg.make_policy is None, labels=bool(_labels(cfg, contract)))
    obs = env.reset()
    policy.reset()
    lucky = np.zeros(count, dtype=bool)
    while shares.any():
        recorder.set_tasks(_texts(env, cfg.task.summary))
        action, known = policy.act(obs), frames.labels(env)
        step = env.step(action)
        ended, counts = (step.terminated | step.truncated).cpu().numpy(), shares > 0
        lucky |= step.success.cpu().numpy()
        recorder.record_steps(frames(obs, action.cpu().numpy(), step, ended) | known, ended, counts)
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
            policy.reset((step.terminated | step.truncated).nonzero().squeeze(1))
        obs = step.obs


def _labels(cfg: CollectCfg, contract: PolicyContract) -> tuple[str, ...]:
    """Names of the places that are recorded as labels; none for a policy that sees them as numbers."""
    return () if ENVIRONMENT_STATE in demo_features(contract) else cfg.task.labels(cfg.env)


def _texts(env: BatchedEnv, otherwise: str) -> list[str]:
    """Instructions of the N running episodes; another text where nothing is told in words."""
    told = getattr(env, "texts", None)
    return [text or otherwise for text in (told() if told is not None else [""] * env.num_envs)]


class _Frames:
    """Turns steps of all environments into frames of physical values.

    Args:
        contract: Of the task's policies.
        is_demo: Whether they are demonstrated.
        labels: Whether places that the environments tell are recorded.
    """

    def __init__(self, contract: PolicyContract, is_demo: bool, labels: bool) -> None:
        self._is_demo, self._labels = is_demo, labels
        self._observation, self._action = observation_numbers(contract), action_numbers(contract)

    def labels(self, env: Any) -> dict[str, NDArray[Any]]:
        """Feature of the places that the environments tell now, (N, 3 k) in m; empty where none are recorded."""
        return {ENVIRONMENT_STATE: env.labels().cpu().numpy()} if self._labels else {}

    def __call__(
        self, obs: Observation, action: NDArray[np.float32], step: EnvStep, ended: NDArray[np.bool_]
    ) -> dict[str, NDArray[Any]]:
        """One step of all environments, by feature."""
        images = {
            IMAGES + key.removeprefix(IMAGE_PREFIX): value.permute(0, 2, 3, 1).cpu().numpy()
            for key, value in obs.items()
            if key.startswith(IMAGE_PREFIX)
        }
        return {
            **physical_features(self._observation, obs[STATE_KEY].cpu().numpy()),
            ACTION: physical_action(self._action, action),
            **images,
            REWARD: step.reward.cpu().numpy(),
            DONE: ended,
            TRUNCATED: step.truncated.cpu().numpy(),
            SUCCESS: step.success.cpu().numpy(),
            IS_DEMO: np.full(len(ended), self._is_demo),
        }
