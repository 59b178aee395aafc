"""Sections of an arm's report: how it was learned, and every recorded episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gantry_deploy.cli.command import counted
from gantry_deploy.contract.arm_spec import BODY_TARGET
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.evaluation.metrics import Score as Interval
from gantry_deploy.policy.golden import action_labels
from gantry_deploy.report import Report, figures
from gantry_sim.demo import page
from gantry_sim.demo.measured import MeasuredEpisode
from gantry_sim.demo.scenario import Outcome
from gantry_sim.demo.scenarios import arm_figures

COLUMNS = {
    "Told": "instruction",
    "Done": "done",
    "Otherwise": "reason",
    "After [s]": "done_after_s",
    "Object ahead, left, up [m]": "object_start_in_base_m",
    "Base action": "mean_base_action",
    "Correction": "mean_correction",
    "Its largest": "max_correction",
}
"""Titles of the table of episodes, and the numbers in it."""


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100.0 * share:.3g} %"


def labels(contract: PolicyContract) -> list[str]:
    """Names of what the numbers of an action move."""
    if contract.action.kind == BODY_TARGET and contract.action_size == 4:
        return ["forward", "left", "up", "gripper"]
    return action_labels(contract)


def summary(outcome: Outcome) -> str:
    """Origin of the policy, and the processes that it was run in."""
    provenance, learned = outcome.bundle.contract.provenance, outcome.policy.learned
    text = page.EARLIER_POLICY
    if learned is not None:
        recipe = learned.recipe
        text = (
            f"A scripted expert that errs on purpose (suboptimality {recipe.suboptimality:g} of 1; "
            f"{percent(learned.expert_success)} of its tries succeeded) gave "
            f"{counted(recipe.demos, 'successful demonstration')}, {learned.demo_frames} steps. A small network cloned "
            "them as chunks of actions. On top of that clone, which was frozen, a correction was learned by trying, "
            "from a reward of 1 for success and nothing else: residual off-policy learning (ResFiT, arXiv 2509.19301) "
            f"in {provenance.env_steps} environment steps and {provenance.train_wall_s:.0f} s, in which the clone "
            "plans and the correction moves every single step of the plan."
        )
    return (
        f"{text} The policy was exported as an ONNX bundle, verified, and run "
        f"as on a robot: {page.processes(outcome, 'arm')}. For each episode "
        "the object was laid anew; whether the task was done, the simulator says, whose physics here are finer than "
        "those of training. The film and the curves of the episodes come from their recording."
    )


def learning(report: Report, outcome: Outcome) -> None:
    """Success and size of the correction on the way."""
    learned = outcome.policy.learned
    if learned is None:
        return
    report.section("Learning")
    if len(learned.looks) > 1:
        base = None if learned.base is None else Interval(**learned.base["success_once"])
        progress = {
            "environment steps of the correction": [look["env_steps"] for look in learned.looks],
            "time to learn the correction [s], without these looks": [look["wall_s"] for look in learned.looks],
        }
        success = [Interval(**look["success_once"]) for look in learned.looks]
        least = outcome.bundle.contract.acceptance.min_success_rate
        report.figure(
            arm_figures.success_curves(progress, success, base, least),
            f"Success on the way, each point {counted(learned.recipe.look_episodes, 'episode')} without exploring, "
            "with 95 % intervals (Wilson); the first point is the clone alone, whose correction is exactly zero. "
            "Orange: the clone on the held-out episodes of the scores. The steps begin with a warm-up in which the "
            "clone acts with noise and nothing is learned yet but what its actions are worth.",
        )
    rows = learned.corrections
    if len(rows) > 1:
        sizes = {"mean |correction|, in units of the scaled action": [row["own_action"] for row in rows]}
        steps = [row["env_steps"] for row in rows]
        report.figure(
            figures.learning_curve(steps, sizes, progress_label="environment steps"),
            "The correction grows from zero as it learns what it is good for.",
        )


def recorded_episodes(report: Report, outcome: Outcome) -> None:
    """A row for each episode, actions of base and correction, joints, times."""
    item = outcome.recorded[0]
    report.section("The recorded episodes")
    if not item.episodes:
        page.nothing_recorded(report, item)
        return
    episodes: Sequence[MeasuredEpisode] = item.episodes
    rows = [numbers_of(episode) for episode in episodes]
    shown = {title: key for title, key in COLUMNS.items() if any(row[key] not in (None, "") for row in rows)}
    page.table(report, shown, rows)
    # The longest episode that was done, or the longest of all if none was.
    done = [episode for episode in episodes if episode.trial.done] or episodes
    shown = max(done, key=lambda episode: len(episode.time_s))
    number = next(number for number, episode in enumerate(episodes, start=1) if episode is shown)
    _actions(report, episodes, shown, number)
    page.joints(
        report, shown, f"Joint positions between their limits in episode {number}; the last one is the gripper, in m."
    )
    page.durations(
        report,
        item,
        {"period": ("time between two turns", "turns"), "network": ("networks and decoding", "turns")},
        f"Times of the {shown.contract.rate_hz:g} Hz loop {item.rollout.where}, where a turn takes longer when the "
        "base plans a new chunk",
    )
    rows = []
    for name, word in (("network", "networks and decoding"), ("period", "time between two turns")):
        times = item.timing()[name]
        numbers = ", ".join(f"{key[:-2]} {1e3 * times[key]:.2f} ms" for key in ("p50_s", "p99_s", "max_s"))
        rows.append((f"{word}, {times['count']:.0f} turns", numbers))
    report.table([*rows, *page.common_rows(item)], header=("Times", "Measured"))


def _actions(report: Report, episodes: Sequence[MeasuredEpisode], shown: MeasuredEpisode, number: int) -> None:
    parts = [(item, item.base_action, item.correction) for item in episodes]
    with_base = [(item, base, added) for item, base, added in parts if base is not None and added is not None]
    if not with_base or shown.base_action is None:
        return
    report.figure(
        arm_figures.action_sizes(
            [item.time_s for item, _, _ in with_base],
            [base for _, base, _ in with_base],
            [added for _, _, added in with_base],
            [item.done_after_s for item, _, _ in with_base],
        ),
        "What the base wanted and what was added to it in every step, as the policy's node recorded both: means of the "
        "absolute numbers of an action, of which 1 is the largest. Below, the correction on a scale of its own.",
    )
    names = labels(shown.contract)
    report.figure(
        arm_figures.action_parts(shown.time_s, shown.base_action, shown.action, names, shown.done_after_s),
        f"Each number of the action in episode {number}, the longest that was done: green between what the base wanted "
        "and what was done is the correction.",
    )


def numbers_of(episode: MeasuredEpisode) -> dict[str, Any]:
    """One episode in numbers; what was not measured is None."""
    base, added = episode.base_action, episode.correction
    told, goals = bool(episode.instruction), episode.fixtures_in_base_m
    return {
        "done": episode.trial.done,
        "done_after_s": episode.done_after_s,
        "reason": episode.trial.reason,
        "instruction": episode.instruction or None,
        "object_start_in_base_m": None if told else episode.shown_things_in_base[0, 0, :3].tolist(),
        "goal_in_base_m": None if told or not len(goals) else goals[0].tolist(),
        "ticks": len(episode.time_s),
        "mean_base_action": None if base is None else float(np.abs(base).mean()),
        "mean_correction": None if added is None else float(np.abs(added).mean()),
        "max_correction": None if added is None else float(np.abs(added).max()),
    }
