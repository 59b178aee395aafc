"""The walker by rules as a teacher: what it would do, in units of the policy's action, beside what a policy sees."""

from __future__ import annotations

from dataclasses import replace

from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_policies.config import GuideCfg
from gantry_policies.teachers import TEACHER_GROUP
from gantry_sim.env import GantryEnv
from gantry_sim.tasks.goal.cfg import GoalCfg
from gantry_sim.tasks.goal.env import goal_env_cfg
from gantry_sim.tasks.goal.robots import STEP_HZ
from gantry_sim.tasks.goal.rules.cfg import WalkRules
from gantry_sim.tasks.goal.rules.walker import ROBOT, RuleWalker
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.tasks.locomotion.terms import ContractAction
from gantry_sim.tasks.registry import Preset

START_LEVELS = 3
"""Robots start on this many of the lowest levels: with the walker beside them they need no school."""
RULE_GUIDE = GuideCfg(
    action_weight=0.3,
    embedding_weight=0.0,
    imitation_iterations=330,
    action_loss="mean",
    fade_iterations=40,
    teacher_drives=1.0,
)
"""How the walker guides a policy: imitation alone for 4.1 million steps of the CPU preset, in which it drives less and
less, and afterwards its word counts less and less."""


def taught_by_rules(preset: Preset) -> Preset:
    """A preset of the task for a policy that the walker teaches: the gait is the walker's clock, and what it does has
    to be copied closely, in many small steps of learning."""
    env, learner = preset.env, preset.learner
    ground = replace(env.ground, school=(), start_levels=min(START_LEVELS, env.ground.levels))
    env = replace(env, ground=ground, reward_weights=env.reward_weights | {"move_to_goal": 0.0, "approach": 5.0})
    learner = replace(
        learner,
        gamma=0.997,
        init_std=0.15,
        entropy=0.0,
        learning_rate=2.5e-4,
        minibatches=16,
        mirror="critic",  # a policy that copies is not symmetric, and its mirrored samples are not its own
        guide=RULE_GUIDE,
    )
    return Preset(env if env.carrot is None else replace(env, gait="clock"), learner)


class RuleActions:
    """Observation term: the walker's actions. It is asked once per state, however often the term is."""

    def __init__(self, cfg: ObservationTermCfg, env: GantryEnv) -> None:
        self._walker = RuleWalker(env, cfg.params["rules"])
        self._version = -1
        self._targets = env.action_manager.get_term(GoalState.of(env).names.action).raw_action

    def __call__(self, env: GantryEnv, rules: WalkRules) -> Tensor:
        """Actions (N, 12), within the contract's bounds, by the map and the attitude that the actor is shown."""
        del rules  # the walker has them
        if self._version != env.state_version:
            self._version = env.state_version
            self._targets = self._walker()
        action = env.action_manager.get_term(GoalState.of(env).names.action)
        assert isinstance(action, ContractAction)
        return action.action_for(self._targets)


def rule_guided_env(cfg: GoalCfg, device: str, seed: int) -> GantryEnv:
    """The task's environment with the walker's actions as one more group of observations, which no policy is fed.

    Raises:
        GantryError: If the robot has other legs, the policy another clock, or the group another meaning for the task.
    """
    if cfg.robot != ROBOT:
        raise GantryError(f"The rules walk on the legs of '{ROBOT}', env.robot is '{cfg.robot}'.")
    whole = goal_env_cfg(cfg, seed=seed)
    if TEACHER_GROUP in whole.observations:
        raise GantryError(f"env.observer is '{cfg.observer}', which learns from a run; rules teach a 'teacher'.")
    if cfg.carrot is None or cfg.gait != "clock":
        has = "has none" if cfg.carrot is None else f"goes with the gait '{cfg.gait}'"
        raise GantryError(
            f"The rules step by a clock of {STEP_HZ:g} Hz, and the policy's {has}: it could not tell where in a step "
            "they are; expected 'clock', as in the cpu preset that the rules teach with."
        )
    told = ObservationTermCfg(RuleActions, {"rules": WalkRules()})
    # The last group: what the actor is shown, noise included, is what the gait answers to.
    whole.observations[TEACHER_GROUP] = ObservationGroupCfg(terms={"all": told})
    return GantryEnv(whole, device)
