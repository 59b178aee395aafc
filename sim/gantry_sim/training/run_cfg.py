"""Configuration of a training run, whatever the task and the algorithm."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_policies.common.batched_env import IMAGE_PREFIX, STATE
from gantry_sim.tasks.registry import Preset, Task
from gantry_sim.training.run_validation import SCRIPTED


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
    images = {IMAGE_PREFIX + item.name: (3, item.height, item.width) for item in contract.cameras}
    return Spaces({STATE: (contract.observation_size,), **images}, contract.action_size, contract.rate_hz)


@dataclass(frozen=True)
class RunCfg:
    """One training run."""

    task: Task
    """Task that is learned."""
    preset_name: str
    """Preset that the configuration started from."""
    preset: Preset
    """The configuration, changes included: environment, algorithm and its settings."""
    device: str = "cpu"
    """``cpu`` or a CUDA device."""
    seed: int = 1
    """Of everything random."""
    learn_threads: int = field(default_factory=torch.get_num_threads)
    """Threads of the learner; with another number, sums are rounded otherwise and the run comes out differently."""
    teacher: Path | None = None
    """Run folder of the teacher, if there is one."""
    scripted_teacher: bool = False
    """Whether the task's scripted policy teaches instead."""
    planner: str = ""
    """Teacher that plans from pictures, numbers and words, as :func:`gantry_policies.teachers.registry.make_teacher`
    takes it; empty for none."""
    minutes: float = 0.0
    """Longest training time, evaluations not counted; 0 for as long as it takes."""
    demos: str = ""
    """Source of the demonstrations."""
    base: str = ""
    """Source of the cloned policy that it builds upon."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data of the whole configuration."""
        return {
            "task": self.task.name,
            "algorithm": self.preset.algorithm,
            "preset": self.preset_name,
            "device": self.device,
            "seed": self.seed,
            "learn_threads": self.learn_threads,
            "minutes": self.minutes,
            "env": asdict(self.preset.env),
            "learner": asdict(self.preset.learner),
            "teacher": self.teacher_name or None,
            "demos": self.demos,
            "base": self.base,
        }

    @property
    def teacher_name(self) -> str:
        """Teacher as ``--teacher`` names it; empty for none."""
        return SCRIPTED if self.scripted_teacher else self.planner or str(self.teacher or "")

    def contract(self) -> PolicyContract:
        """Contract of the policy.

        Raises:
            GantryError: If the task has none.
        """
        return self.task.contract(self.preset.env)

    @functools.cached_property
    def spaces(self) -> Spaces:
        """Sizes of the policy's observations and actions; an environment is made to learn them where the task has no
        contract.
        """
        if self.task.has_contract:
            return _spaces_of(self.contract())
        env = self.task.make_env(replace(self.preset.env, num_envs=1), "cpu", self.seed)
        try:
            return Spaces(dict(env.obs_shapes), env.action_size, round(1.0 / env.dt_s, 6))
        finally:
            env.close()
