"""The walker by rules as a teacher: what it would do, in units of the policy's action, beside what a policy sees."""

from __future__ import annotations

from dataclasses import replace

import torch
from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_policies.on_policy.config import GuideCfg
from gantry_policies.on_policy.teacher_protocol import TEACHER_GROUP
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.cfg import GoalCfg
from gantry_sim.tasks.goal.contract import goal_contract
from gantry_sim.tasks.goal.env import goal_env_cfg
from gantry_sim.tasks.goal.rules.cfg import WalkRules
from gantry_sim.tasks.goal.rules.walker import RuleWalker, steps_of
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.tasks.registry import Preset

START_LEVELS = 3
"""Robots start on this many of the lowest levels: with the walker beside them they need no school."""
RULE_GUIDE = GuideCfg(
    action_weight=0.3,
    embedding_weight=0.0,
    imitation_iterations=100,
    final_imitation_factor=0.02,
    action_loss="mean",
    fade_iterations=40,
    teacher_drives=1.0,
    remembered_rollouts=100,
)
"""Guidance of a policy by the walker: imitation alone for 1.2 million steps of the CPU preset, in which it drives less
and less, of all that it has said so far; afterwards its word counts less and less.
"""


def imitating(preset: Preset, guide: GuideCfg) -> Preset:
    """A preset for a policy that imitates and does nothing else: all kinds of terrain alike, from the easier levels on,
    many small steps of the optimiser, and an end where the imitation ends."""
    env, learner = preset.env, preset.learner
    ground = replace(env.ground, school=(), even=True, start_levels=min(START_LEVELS, env.ground.levels))
    total_steps = guide.imitation_iterations * env.num_envs * learner.steps_per_env
    learner = replace(learner, total_steps=total_steps, epochs=3, minibatches=32, guide=guide)
    return Preset(replace(env, ground=ground), learner)


def taught_by_rules(preset: Preset) -> Preset:
    """A preset of the task for a policy that the walker teaches."""
    return imitating(preset, RULE_GUIDE)


class RuleActions:
    """Observation term: the walker's actions. It is asked once per state, however often the term is."""

    def __init__(self, cfg: ObservationTermCfg, env: GantryEnv) -> None:
        self._walker = RuleWalker(env, cfg.params["rules"])
        self._version = -1
        action = GoalState.of(env).contract.action
        self._scale, self._clip = torch.tensor(action.scale, device=env.device), action.clip
        self._actions = torch.zeros(env.num_envs, len(action.scale), device=env.device)

    def __call__(self, env: GantryEnv, rules: WalkRules) -> Tensor:
        """Actions (N, 12), within the contract's bounds, by the map and the attitude that the actor is shown."""
        del rules  # the walker has them
        if self._version != env.state_version:
            self._version = env.state_version
            self._actions = (self._walker() / self._scale).clamp(-self._clip, self._clip)
        return self._actions


def rule_guided_env(cfg: GoalCfg, device: str, seed: int) -> GantryEnv:
    """The task's environment with the walker's actions as one more group of observations, which no policy is fed.

    Raises:
        GantryError: If the robot has other legs, the policy another clock, or the group another meaning for the task.
    """
    whole = goal_env_cfg(cfg, seed=seed)
    if TEACHER_GROUP in whole.observations:
        raise GantryError(f"env.observer is '{cfg.observer}', which learns from a run; rules teach a 'teacher'.")
    steps_of(goal_contract(cfg))
    told = ObservationTermCfg(RuleActions, {"rules": WalkRules()})
    # The last group: what the actor is shown, noise included, is what the gait answers to.
    whole.observations[TEACHER_GROUP] = ObservationGroupCfg(terms={"all": told})
    return GantryEnv(whole, device)
