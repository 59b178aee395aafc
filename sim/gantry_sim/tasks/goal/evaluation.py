"""Scores of goal policies by kind and group of terrain, on training and held-out ground, and the suite ``ame2``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from gantry_deploy.evaluation.metrics import GOAL_HEADING_RAD, GOAL_POS_M, goal_reached, goal_scores
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.cfg import GoalCfg
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.tasks.locomotion.evaluation import fresh_env, record_signals
from gantry_sim.tasks.registry import MakePolicy, Task, acting
from gantry_sim.terrains.catalogue import GROUPS, TESTS

RECORDED_ENVS, RECORDED_STEPS, RECORDED_BEFORE = 6, 200, 50
"""Size of a recording: environments, control steps of each, and steps that come before."""


def evaluate_goal(
    task: Task,
    env_cfg: GoalCfg,
    make_policy: MakePolicy,
    *,
    episodes: int,
    device: str,
    seed: int,
    full_model: bool,
    on_progress: Callable[[float], None],
) -> dict[str, Any]:
    """One episode each, spread evenly over kinds and levels of the training terrain, then as many over T1 to T4.

    Args:
        task: The task.
        env_cfg: Its configuration in training.
        make_policy: From environments to the policy that acts in them, deterministic.
        episodes: Number of episodes of either part.
        device: Where to simulate.
        seed: Of the episodes; the held-out terrains are always the same.
        full_model: Simulate every collision shape instead of the training model.
        on_progress: Called with the share that is done.

    Returns:
        Success and early ends with Wilson's intervals; by ``group``, ``kind`` and ``level``; the same under
        ``held_out``.
    """
    cfg = task.evaluation(env_cfg, num_envs=episodes, full_model=full_model)
    tests = task.evaluation(env_cfg, num_envs=episodes, full_model=full_model, held_out=TESTS)
    scores = walk_to_goals(task, cfg, make_policy, device, seed, lambda done: on_progress(0.5 * done))
    held_out = walk_to_goals(task, tests, make_policy, device, seed, lambda done: on_progress(0.5 + 0.5 * done))
    return scores | {"held_out": held_out}


def walk_to_goals(
    task: Task,
    cfg: GoalCfg,
    make_policy: MakePolicy,
    device: str,
    seed: int,
    on_progress: Callable[[float], None] = lambda done: None,
    levels: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """One episode per environment on the terrain of ``cfg``, kinds and levels evenly.

    Args:
        task: The task.
        cfg: What to walk on; its curriculum is off.
        make_policy: From environments to the policy that acts in them, deterministic.
        device: Where to simulate.
        seed: Of the episodes.
        on_progress: Called with the share that is done.
        levels: First and last level, both walked; None for all.
    """
    env, vec_env = fresh_env(task, cfg, device, seed)
    spread_evenly(env, levels)
    obs: Any = vec_env.reset()[0]
    ended = torch.zeros(cfg.num_envs, dtype=torch.bool, device=device)
    steps = int(env.max_episode_length) - 1  # the last step would reset every episode
    causes: dict[str, int] = {}
    act = acting(make_policy, env)
    with torch.inference_mode():
        for step in range(steps):
            obs = vec_env.step(act(obs))[0]
            for name in env.termination_manager.active_terms:
                new = env.termination_manager.get_term(name) & ~ended & env.reset_terminated
                causes[name] = causes.get(name, 0) + int(new.sum())
            ended |= env.reset_terminated
            on_progress((step + 1) / steps)
        reached = goal_reached(GoalState.of(env).command) & ~ended
    terrain, sites = env.scene.terrain, GoalState.of(env).sites
    assert terrain is not None
    column = terrain.terrain_types.cpu().numpy()
    level = terrain.terrain_levels.cpu().numpy()
    env.close()
    good, early = reached.cpu().numpy(), ended.cpu().numpy()
    kind, group = np.array(sites.kinds)[column], np.array(sites.groups)[column]
    result: dict[str, Any] = dict(asdict(goal_scores(good, early)))
    for name, labels in (("group", group), ("kind", kind), ("level", level)):
        result[name] = {
            str(label): asdict(goal_scores(good[labels == label], early[labels == label]))
            for label in np.unique(labels)
        }
    return result | {"early_ends": causes, "seconds_per_episode": float(np.round(steps * env.step_dt, 3))}


def spread_evenly(env: GantryEnv, levels: tuple[int, int] | None = None) -> None:
    """Put environments on all kinds of terrain alike, on their columns in turn, and on the levels in turn."""
    terrain, sites = env.scene.terrain, GoalState.of(env).sites
    assert terrain is not None
    assert terrain.terrain_origins is not None
    assert terrain.env_origins is not None
    kinds = list(dict.fromkeys(sites.kinds))
    columns = [[i for i, name in enumerate(sites.kinds) if name == kind] for kind in kinds]
    low, high = levels or (0, sites.spawn.shape[0] - 1)
    count = high - low + 1
    number = np.arange(env.num_envs)
    turn, kind = number // len(kinds), number % len(kinds)
    level = low + turn % count
    column = [columns[k][(t // count) % len(columns[k])] for k, t in zip(kind, turn, strict=True)]
    terrain.terrain_levels[:] = torch.as_tensor(level, device=env.device)
    terrain.terrain_types[:] = torch.as_tensor(column, device=env.device)
    terrain.env_origins[:] = terrain.terrain_origins[terrain.terrain_levels, terrain.terrain_types]


def record_goal(task: Task, env_cfg: GoalCfg, make_policy: MakePolicy, *, seed: int) -> dict[str, np.ndarray]:
    """Signals, observations and joint targets of the training environment under the policy, episodes ending among
    them; see :func:`gantry_sim.tasks.locomotion.evaluation.record_velocity`."""
    cfg = replace(env_cfg, num_envs=RECORDED_ENVS, curriculum=False)
    return record_signals(task, cfg, make_policy, seed=seed, steps=RECORDED_STEPS, before=RECORDED_BEFORE)


def ame2_suite(
    task: Task,
    env_cfg: GoalCfg,
    make_policy: MakePolicy,
    *,
    episodes: int,
    device: str,
    seed: int,
    on_progress: Callable[[float], None],
) -> dict[str, Any]:
    """Three parts with the same number of episodes each: the easier half of the training terrain's levels, all of its
    levels (tiles drawn anew from ``seed``), and the held-out terrains T1 to T4, which are always the same.

    Args:
        task: A goal task.
        env_cfg: Its configuration in training.
        make_policy: From environments to the policy that acts in them, deterministic.
        episodes: Episodes of each part.
        device: Where to simulate.
        seed: Of episodes and tiles.
        on_progress: Called with the share that is done.

    Returns:
        ``definition`` of success, and under ``easier_half``, ``all_levels`` and ``held_out`` the scores of
        :func:`~gantry_sim.tasks.goal.evaluation.walk_to_goals`.
    """
    ground = task.evaluation(env_cfg, num_envs=episodes)
    tests = task.evaluation(env_cfg, num_envs=episodes, held_out=TESTS)
    half = (0, max(0, ground.ground.levels // 2 - 1))
    parts = (("easier_half", ground, half), ("all_levels", ground, None), ("held_out", tests, None))
    result: dict[str, Any] = {
        "definition": {
            "position_error_below_m": GOAL_POS_M,
            "heading_error_below_rad": GOAL_HEADING_RAD,
            "at": "the end of the episode",
            "early_end": "no success",
        }
    }
    for number, (name, cfg, levels) in enumerate(parts):

        def report(done: float, number: int = number) -> None:
            on_progress((number + done) / len(parts))

        result[name] = walk_to_goals(task, cfg, make_policy, device, seed, report, levels)
    return result


def suite_table(result: dict[str, Any]) -> list[str]:
    """The suite's outcome as lines of text: success with 95 % interval and trials, by group and by test terrain."""
    lines = [f"{'':<12}{'easier half of levels':>30}{'all levels':>30}"]
    for group in (*GROUPS, "all"):
        cells = [_cell(_part(result[part], group)) for part in ("easier_half", "all_levels")]
        lines.append(f"{group:<12}" + "".join(f"{cell:>30}" for cell in cells))
    lines.append(f"{'':<12}{'held out':>30}")
    for test in (*TESTS, "all"):
        scores = result["held_out"] if test == "all" else result["held_out"]["kind"].get(test)
        lines.append(f"{test:<12}{_cell(scores):>30}")
    return lines


def _part(scores: dict[str, Any], group: str) -> dict[str, Any] | None:
    return scores if group == "all" else scores["group"].get(group)


def _cell(scores: dict[str, Any] | None) -> str:
    if scores is None:
        return "-"
    rate = scores["success_rate"]
    interval = f"[{100 * rate['low']:.0f}, {100 * rate['high']:.0f}]"
    return f"{100 * rate['mean']:.0f} % {interval} of {scores['episodes']}"
