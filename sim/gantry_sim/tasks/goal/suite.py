"""``gantry eval --suite ame2``: success by terrain group, on levels like those of training and on held-out terrains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gantry_deploy.evaluation.metrics import GOAL_HEADING_RAD, GOAL_POS_M
from gantry_sim.tasks.goal.cfg import GoalCfg
from gantry_sim.tasks.goal.evaluation import walk_to_goals
from gantry_sim.tasks.registry import Policy, Task
from gantry_sim.terrains.catalogue import GROUPS, TESTS


def ame2_suite(
    task: Task,
    env_cfg: GoalCfg,
    policy: Policy,
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
        policy: Observations (N, obs) to actions (N, n), deterministic.
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

        result[name] = walk_to_goals(task, cfg, policy, device, seed, report, levels)
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
