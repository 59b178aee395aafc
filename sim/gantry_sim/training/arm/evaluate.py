"""Scores of a policy in a manipulation task, on episodes that no training saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from gantry_deploy.contract.policy_contract import Acceptance
from gantry_deploy.evaluation.metrics import Score, Verdict
from gantry_policies.common.evaluation import evaluate
from gantry_sim.gym.names import is_gym_task
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.training.arm.acting import Meter
from gantry_sim.training.arm.policies import ArmSource
from gantry_sim.training.run_files import EVALUATION_SEED

ENVS = 25
"""Most environments side by side."""


def score_source(
    source: ArmSource,
    episodes: int,
    *,
    seed: int = EVALUATION_SEED,
    hold: bool = False,
    on_progress: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """Run whole episodes of a policy.

    Args:
        source: The policy and its task.
        episodes: How many; their beginnings depend on the seed alone, so that policies can be compared.
        seed: Of the episodes.
        hold: Go on after a success, to see whether it lasts; otherwise an episode ends as it did in training.
        on_progress: Called with the share that is done.

    Returns:
        ``success_once`` and ``success_at_end`` as shares with 95 % intervals, means of steps and time to the first
        success, of the return, and of the sizes of actions and corrections.
    """
    most = source.env_cfg.num_envs if is_gym_task(source.task.name) else ENVS
    cfg = replace(source.env_cfg, num_envs=min(most, episodes))
    if hold:
        cfg = replace(cfg, end_on_success=False)
    with torch_threads(1):
        env = source.task.make_env(cfg, seed)
        try:
            meter = Meter(source.actor(env), lambda count: on_progress(min(1.0, count / episodes)))
            found = evaluate(env, meter, episodes)
        finally:
            env.close()
    on_progress(1.0)
    return {
        "episodes": found.episodes,
        "seed": seed,
        "hold": hold,
        "success_once": asdict(found.success_once),
        "success_at_end": asdict(found.success_at_end),
        "steps_to_success": found.steps_to_success,
        "time_to_success_s": found.time_to_success_s,
        "mean_steps": found.mean_steps,
        "mean_return": found.mean_return,
        **meter.magnitudes(),
    }


def score_lines(scores: dict[str, Any]) -> list[str]:
    """Scores for people."""
    lines = []
    for name, text in (("success_once", "success"), ("success_at_end", "success at the end")):
        item = scores[name]
        lines.append(f"  {text:<22} {100 * item['mean']:5.1f} %  [{100 * item['low']:.1f}, {100 * item['high']:.1f}]")
    if scores["steps_to_success"] is not None:
        lines.append(
            f"  {'steps to success':<22} {scores['steps_to_success']:5.1f}    ({scores['time_to_success_s']:.2f} s)"
        )
    lines.append(f"  {'return':<22} {scores['mean_return']:5.2f}")
    for name, text in (
        ("mean_action", "|action|"),
        ("mean_base_action", "|base action|"),
        ("mean_residual", "|residual|"),
    ):
        if name in scores:
            lines.append(f"  {text:<22} {scores[name]:5.3f}    of 1")
    return lines


def verdicts(scores: dict[str, Any], acceptance: Acceptance) -> list[Verdict]:
    """The share of successes against what the task asks for; empty where it asks for nothing."""
    if acceptance.min_success_rate is None:
        return []
    score = Score(**scores["success_at_end" if scores["hold"] else "success_once"])
    return [Verdict("success rate", score, acceptance.min_success_rate, "", at_least=True)]
