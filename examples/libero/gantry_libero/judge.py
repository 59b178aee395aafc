"""Episodes of a policy from LIBERO's given initial states, task by task, with intervals; they may be recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_deploy.dataset.features import (
    ACTION,
    DONE,
    IMAGES,
    REWARD,
    STATE,
    SUCCESS,
    TRUNCATED,
    Feature,
    camera,
    rl_features,
    vector,
)
from gantry_deploy.dataset.recorder import StepRecorder
from gantry_deploy.dataset.writer import DatasetWriter
from gantry_deploy.evaluation.metrics import Score, rate_interval
from gantry_libero.env import STATE_SIZE
from gantry_libero.simulation import DT_S
from gantry_libero.suites import libero_task
from gantry_policies.common.batched_env import IMAGE_PREFIX, BatchedEnv, EnvStep, Observation
from gantry_policies.common.batched_env import STATE as STATE_KEY
from gantry_policies.common.evaluation import ActingPolicy, evaluate
from gantry_policies.off_policy.bases import ChunkedBase
from gantry_policies.teachers.teacher import ActionTeacher, TeacherQuestion
from gantry_sim.gym.cfg import GymCfg
from gantry_sim.gym.env import GymStepEnv

MakePolicy = Callable[[BatchedEnv, str], ActingPolicy]
"""(environments, instruction) -> the policy that acts in them."""


@dataclass(frozen=True)
class TaskScore:
    """Result of one task."""

    task: int
    """Place in the suite."""
    instruction: str
    """Words of the task."""
    episodes: int
    """Number of episodes, one from each initial state."""
    successes: int
    """Number of them that reached the goal."""
    success_rate: Score
    """Their share with Wilson's 95 % interval."""
    steps_to_success: float | None
    """Mean steps of those; None if there is none."""
    steps: int
    """Steps of all episodes."""
    wall_s: float
    """Time of all episodes, with building the scene."""


def judge_task(
    cfg: GymCfg, task: int, states: Sequence[int], make_policy: MakePolicy, seed: int, record: Path | None = None
) -> TaskScore:
    """Run one episode from each initial state of a task.

    Args:
        cfg: Environments of the suite.
        task: Place in the suite.
        states: Initial states by number.
        make_policy: The policy.
        seed: Of what initial states leave open, and of policies that draw.
        record: Data set that takes the episodes of successful ones; None to record nothing.

    Raises:
        GantryError: If the task cannot be simulated, or the policy does not fit.
    """
    kwargs = {**cfg.env_kwargs, "tasks": (task,), "states": tuple(states), "in_turn": True}
    began = time.perf_counter()
    env: BatchedEnv = GymStepEnv(replace(cfg, num_envs=1, processes=0, env_kwargs=kwargs), seed)
    text = libero_task(kwargs["suite"], task).instruction
    policy = make_policy(env, text)
    try:
        if record is None:
            found = evaluate(env, policy, len(states))
        else:
            with DatasetWriter(record, round(1.0 / DT_S), features(env), "panda", resume=True) as writer:
                found = evaluate(Recorded(env, StepRecorder(writer, 1, text, only_successes=True)), policy, len(states))
    finally:
        env.close()
    won = round(found.success_once.mean * found.episodes)
    steps = round(found.mean_steps * found.episodes)
    wall_s = time.perf_counter() - began
    return TaskScore(
        task, text, found.episodes, won, found.success_once, found.steps_to_success, steps, round(wall_s, 1)
    )


def summary(scores: Sequence[TaskScore]) -> dict[str, Any]:
    """Success over all tasks: every episode counts alike, with Wilson's 95 % interval."""
    episodes, won = sum(score.episodes for score in scores), sum(score.successes for score in scores)
    steps, wall_s = sum(score.steps for score in scores), sum(score.wall_s for score in scores)
    return {
        "episodes": episodes,
        "successes": won,
        "success_rate": asdict(rate_interval(won, episodes)),
        "steps_per_s": round(steps / wall_s, 2) if wall_s else None,
    }


class RandomActions:
    """Uniform actions, the baseline that knows nothing.

    Args:
        num_envs: N.
        action_size: n.
        seed: Of the actions.
    """

    def __init__(self, num_envs: int, action_size: int, seed: int) -> None:
        self._shape, self._chance = (num_envs, action_size), torch.Generator().manual_seed(seed)

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Nothing to forget."""

    def act(self, obs: Observation) -> Tensor:
        """``(N, n)`` in [-1, 1]."""
        del obs
        return 2.0 * torch.rand(self._shape, generator=self._chance) - 1.0


def asked(teacher: ActionTeacher, text: str, num_envs: int, execute: int) -> ChunkedBase:
    """A teacher that acts: it is shown pictures, the eight numbers of the robot, and the instruction in words.

    Args:
        teacher: Plans actions in LIBERO's own range, [-1, 1].
        text: The instruction.
        num_envs: N.
        execute: Steps of a plan that are made before it is asked again.
    """

    def chunk(obs: Observation) -> Tensor:
        state = obs[STATE_KEY][:, -STATE_SIZE - MAX_WORDS : -MAX_WORDS]
        images = {
            key.removeprefix(IMAGE_PREFIX): np.ascontiguousarray(value.permute(0, 2, 3, 1).cpu().numpy())
            for key, value in obs.items()
            if key.startswith(IMAGE_PREFIX)
        }
        question = TeacherQuestion(images, state.cpu().numpy().astype(np.float32), [text] * len(state))
        return torch.from_numpy(np.array(teacher.plan(question), np.float32)).clamp(-1.0, 1.0)

    return ChunkedBase(chunk, num_envs, execute)


class Recorded:
    """Environments with a recorder beside them; the places of ``aim`` are not recorded.

    Implements :class:`gantry_policies.common.batched_env.BatchedEnv`.

    Args:
        env: The environments.
        recorder: Takes every step.
    """

    def __init__(self, env: BatchedEnv, recorder: StepRecorder) -> None:
        self._env, self._recorder = env, recorder
        self._obs: Observation = {}
        self.num_envs, self.device, self.action_size = env.num_envs, env.device, env.action_size
        self.max_episode_steps, self.dt_s, self.obs_shapes = env.max_episode_steps, env.dt_s, env.obs_shapes
        self.keep_final_obs = env.keep_final_obs

    def reset(self) -> Observation:
        """Begin new episodes everywhere; returns their first observations."""
        self._recorder.discard()
        self._obs = self._env.reset()
        return self._obs

    def step(self, action: Tensor) -> EnvStep:
        """Apply actions, (N, action_size) in [-1, 1], and record what was seen, done and earned."""
        step = self._env.step(action)
        ended = (step.terminated | step.truncated).numpy()
        frames = {
            STATE: self._obs[STATE_KEY][:, -STATE_SIZE - MAX_WORDS :].numpy(),
            ACTION: action.numpy(),
            REWARD: step.reward.numpy(),
            DONE: ended,
            TRUNCATED: step.truncated.numpy(),
            SUCCESS: step.success.numpy(),
        }
        for key, value in self._obs.items():
            if key.startswith(IMAGE_PREFIX):
                frames[IMAGES + key.removeprefix(IMAGE_PREFIX)] = value.permute(0, 2, 3, 1).numpy()
        self._recorder.record_steps(frames, ended)
        self._obs = step.obs
        return step

    def close(self) -> None:
        """Release what the environments hold."""
        self._env.close()


def features(env: BatchedEnv) -> dict[str, Feature]:
    """Features of a data set of environments: the state that policies see, in m and rad, with word tokens at its end,
    actions in LIBERO's range, pictures without loss, and what was earned.
    """
    found = {STATE: vector(STATE_SIZE + MAX_WORDS), ACTION: vector(env.action_size)}
    for key, shape in env.obs_shapes.items():
        if key.startswith(IMAGE_PREFIX):
            found[IMAGES + key.removeprefix(IMAGE_PREFIX)] = camera(*shape[1:], video=False)
    return {**found, **rl_features()}
