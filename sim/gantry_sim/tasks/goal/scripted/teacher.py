"""Teaching by the scripted policy: the presets of its students, and the environment that offers its actions."""

from __future__ import annotations

from dataclasses import replace

from gantry_hardware.errors import GantryError
from gantry_policies.on_policy.guidance import ImitationCfg
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.cfg import GoalCfg
from gantry_sim.tasks.goal.contract import goal_contract
from gantry_sim.tasks.goal.env import goal_env_cfg
from gantry_sim.tasks.goal.scripted.policy import ScriptedPolicy, steps_of
from gantry_sim.tasks.registry import Preset

START_LEVELS = 3
"""Robots start on this many of the lowest levels: with the scripted policy beside them they need no school."""
SCRIPT_GUIDE = ImitationCfg(
    action_weight=0.3,
    embedding_weight=0.0,
    imitation_iterations=100,
    final_imitation_factor=0.02,
    action_loss="mean",
    fade_iterations=40,
    teacher_action_fraction=1.0,
    aggregate_rollouts=100,
)
"""Guidance by the scripted policy: imitation alone for 1.2 million steps of the CPU preset, in which it drives less
and less, of all that it has said so far; afterwards its word counts less and less.
"""


def imitating(preset: Preset, guide: ImitationCfg) -> Preset:
    """A preset for a policy that imitates and does nothing else: all kinds of terrain alike, from the easier levels on,
    many small steps of the optimiser, and an end where the imitation ends."""
    env, learner = preset.env, preset.learner
    ground = replace(env.ground, school=(), even=True, start_levels=min(START_LEVELS, env.ground.levels))
    total_steps = guide.imitation_iterations * env.num_envs * learner.steps_per_env
    learner = replace(learner, total_steps=total_steps, epochs=3, minibatches=32, guide=guide)
    return Preset(replace(env, ground=ground), learner)


def taught_by_script(preset: Preset) -> Preset:
    """A preset of the task for a student of the scripted policy."""
    return imitating(preset, SCRIPT_GUIDE)


def scripted_env(cfg: GoalCfg, device: str, seed: int) -> GantryEnv:
    """The task's environment, which offers the scripted policy's actions as ``expert_action()``.

    Raises:
        GantryError: If the robot has other legs, the policy another clock, or the task a teacher of its own.
    """
    if cfg.observer == "student":
        raise GantryError(f"env.observer is '{cfg.observer}', which learns from a run; a script teaches a 'teacher'.")
    steps_of(goal_contract(cfg))
    whole = goal_env_cfg(cfg, seed=seed)
    whole.make_expert = ScriptedPolicy
    return GantryEnv(whole, device)
