"""The report of a demo of an arm: what it learned from nothing, then every recorded episode, down to the provenance."""

from __future__ import annotations

import time

import numpy as np

from gantry_deploy.cli.command import counted
from gantry_deploy.evaluation.metrics import Score as Interval
from gantry_deploy.report import Report, figures
from gantry_sim.demo.arm import figures as arm_figures
from gantry_sim.demo.arm.measured import MeasuredArm, RecordedEpisode
from gantry_sim.demo.arm.outcome import ArmOutcome, Learned, timing_of
from gantry_sim.demo.machine import machine_rows, processor
from gantry_sim.demo.walk import UNPACED
from gantry_sim.tasks.manipulation.registry import find_arm_task
from gantry_sim.training.run_files import git_commit

UNKNOWN = "-"
"""Entry where nothing was measured."""
MAGNIFIED_WORDS = "green, three times as long: what the correction adds"


def build_arm_page(outcome: ArmOutcome) -> Report:
    """Everything that a stranger wants to know about the run, from top to bottom."""
    robot, summary = outcome.bundle.contract.robot.upper(), find_arm_task(outcome.task).summary
    learned = "learned to " if outcome.learned is not None else "knows how to "
    report = Report(
        f"A {robot} {learned}{summary}, and does it {outcome.where}",
        f"{outcome.task}, {time.strftime('%Y-%m-%d %H:%M')}, {processor()}",
    )
    report.tiles(_tiles(outcome)).text(_summary(outcome))
    _video(report, outcome)
    missed = outcome.missed
    report.section("Scores").scores(
        outcome.all_scores(),
        caption="Missed: " + "; ".join(missed) + "." if missed else "Nothing that was asked for was missed.",
    )
    if outcome.learned is not None:
        _learning(report, outcome, outcome.learned)
    _episodes(report, outcome)
    report.section("The bundle").table(
        [(stage.name, "passed" if stage.passed else "FAILED", stage.text) for stage in outcome.stages],
        header=("Stage", "Verdict", "Found"),
        caption="What `gantry check` compares before it runs episodes of its own.",
    )
    _origin(report, outcome)
    return report


def _tiles(outcome: ArmOutcome) -> dict[str, str]:
    tiles = {"verdict": "passed" if outcome.passed else f"{len(outcome.missed)} missed"}
    learned = outcome.learned
    if learned is not None and learned.base is not None:
        tiles["success of the clone"] = _percent(learned.base["success_once"]["mean"])
    if outcome.scores is not None:
        word = "with the correction" if learned is not None else "success, held out"
        tiles[word] = _percent(outcome.scores["success_once"]["mean"])
    done = 0 if outcome.measured is None else outcome.measured.done
    tiles[outcome.where] = f"{done} of {outcome.asked}"
    tiles["all of it"] = f"{sum(outcome.stage_s.values()) / 60.0:.1f} min"
    return tiles


def _summary(outcome: ArmOutcome) -> str:
    provenance, learned = outcome.bundle.contract.provenance, outcome.learned
    if learned is None:
        text = "This policy was trained earlier; the page says by which code. Nothing was trained for this page."
    else:
        recipe = learned.recipe
        text = (
            f"A scripted expert that errs on purpose (suboptimality {recipe.suboptimality:g} of 1; "
            f"{_percent(learned.expert_success)} of its tries succeeded) gave "
            f"{counted(recipe.demos, 'successful demonstration')}, {learned.demo_frames} steps. A small network cloned "
            "them as chunks of actions. On top of that clone, which was frozen, a correction was learned by trying, "
            "from a reward of 1 for success and nothing else: residual off-policy learning (ResFiT, arXiv 2509.19301) "
            f"in {provenance.env_steps} environment steps and {provenance.train_wall_s:.0f} s, in which the clone "
            "plans and the correction moves every single step of the plan."
        )
    where = (
        "a simulated arm and the policy as two ROS 2 nodes, each a process of its own, and a third that plays the "
        "operator"
        if outcome.walk.over_ros
        else "the simulated arm and the policy in one process, without ROS 2"
    )
    text += (
        f" The policy was exported as an ONNX bundle, verified, and run as on a robot: {where}. For each episode the "
        "object was laid anew; whether the task was done, the simulator says, whose physics here are finer than those "
        "of training. The film and the curves of the episodes come from their recording."
    )
    if outcome.note:
        text += f"\n\nNot over ROS 2: {outcome.note}."
    if outcome.walk.earlier:
        text += (
            "\n\nThis machine was too busy to keep the robot's clock at first, so the episodes were begun again. "
            "Earlier attempts ended with: "
            f"{'; '.join(reason.rstrip('.') for reason in outcome.walk.earlier)}."
        )
        text += "" if outcome.walk.paced else UNPACED
    if outcome.walk.trouble:
        text += f"\n\nThe episodes were not completed: {outcome.walk.trouble.rstrip('.')}."
    return text


def _video(report: Report, outcome: ArmOutcome) -> None:
    if outcome.video is None:
        report.text(f"There is no video: {outcome.video_note}")
        return
    arrows = f" Orange arrow: where the base wants the hand to go; {MAGNIFIED_WORDS}."
    shows = outcome.measured is not None and outcome.measured.episodes[0].base_action is not None
    report.video(outcome.video, "The recorded episodes in real time, ways to the start left out." + arrows * shows)


def _learning(report: Report, outcome: ArmOutcome, learned: Learned) -> None:
    report.section("Learning")
    if len(learned.looks) > 1:
        base = None if learned.base is None else Interval(**learned.base["success_once"])
        progress = {
            "environment steps of the correction": [look["env_steps"] for look in learned.looks],
            "time to learn the correction [s], without these looks": [look["wall_s"] for look in learned.looks],
        }
        success = [Interval(**look["success_once"]) for look in learned.looks]
        report.figure(
            arm_figures.success_curves(progress, success, base, outcome.least),
            f"Success on the way, each point {counted(learned.recipe.look_episodes, 'episode')} without exploring, "
            "with 95 % intervals (Wilson); the first point is the clone alone, whose correction is exactly zero. "
            "Orange: the clone on the held-out episodes of the scores. The steps begin with a warm-up in which the "
            "clone acts with noise and nothing is learned yet but what its actions are worth.",
        )
    rows = learned.corrections
    if len(rows) > 1:
        report.figure(
            arm_figures.correction_size([row["env_steps"] for row in rows], [row["own_action"] for row in rows]),
            "The correction grows from zero as it learns what it is good for.",
        )


def _episodes(report: Report, outcome: ArmOutcome) -> None:
    report.section("The recorded episodes")
    found = outcome.measured
    if found is None:
        report.text(f"Nothing was recorded: {outcome.walk.trouble or 'the policy never ran'}.")
        return
    report.table([_row(number, item) for number, item in enumerate(found.episodes, start=1)], header=_HEADER)
    _actions(report, found)
    spec = found.spec
    shown = _longest(found)
    report.figure(
        figures.joint_positions(
            shown.time_s,
            shown.joint_pos_rad,
            spec.array("lower_rad"),
            spec.array("upper_rad"),
            spec.joint_names,
            target_rad=shown.target_rad,
        ),
        f"Joint positions between their limits in episode {_number(found, shown)}; the last one is the gripper, in m.",
    )
    rate_hz = found.contract.rate_hz
    report.figure(
        figures.duration_histograms(
            {
                "time between two turns": (found.all("period_s"), "turns"),
                "networks and decoding": (found.all("infer_s"), "turns"),
            }
        ),
        f"Times of the {rate_hz:g} Hz loop {'in the policy node' if outcome.walk.over_ros else 'in one process'}; "
        "orange: 99 % are below, logarithmic upwards. Where the base plans a new chunk, a turn takes longer.",
    )
    report.table(_time_rows(outcome, found), header=("Times", "Measured"))


def _actions(report: Report, found: MeasuredArm) -> None:
    with_base = [item for item in found.episodes if item.base_action is not None and item.correction is not None]
    if not with_base:
        return
    report.figure(
        arm_figures.action_sizes(
            [item.time_s for item in with_base],
            [item.base_action for item in with_base if item.base_action is not None],
            [item.correction for item in with_base if item.correction is not None],
            [item.done_after_s for item in with_base],
        ),
        "What the base wanted and what was added to it in every step, as the policy's node recorded both: means of the "
        "absolute numbers of an action, of which 1 is the largest. Below, the correction on a scale of its own.",
    )
    shown = _longest(found)
    assert shown.base_action is not None
    report.figure(
        arm_figures.action_parts(shown.time_s, shown.base_action, shown.action, found.labels, shown.done_after_s),
        f"Each number of the action in episode {_number(found, shown)}, the longest that was done: green between what "
        "the base wanted and what was done is the correction.",
    )


_HEADER = ("Episode", "Done", "After", "Object [cm]", "Base action", "Correction", "Its largest")


def _row(number: int, episode: RecordedEpisode) -> tuple[str, ...]:
    x, y = episode.shown_object_pose_in_base[0, :2]
    base, added = episode.base_action, episode.correction
    after = episode.done_after_s
    return (
        str(number),
        "yes" if episode.trial.done else f"NO: {episode.trial.reason}",
        UNKNOWN if after is None else f"{after:.1f} s",
        f"{100 * x:.0f} ahead, {100 * abs(y):.0f} {'left' if y >= 0 else 'right'}",
        UNKNOWN if base is None else f"{np.abs(base).mean():.2f}",
        UNKNOWN if added is None else f"{np.abs(added).mean():.3f}",
        UNKNOWN if added is None else f"{np.abs(added).max():.2f}",
    )


def _time_rows(outcome: ArmOutcome, found: MeasuredArm) -> list[tuple[str, str]]:
    rows = []
    for name, word in (("network", "networks and decoding"), ("period", "time between two turns")):
        times = timing_of(found)[name]
        numbers = ", ".join(f"{key[:-2]} {1e3 * times[key]:.2f} ms" for key in ("p50_s", "p99_s", "max_s"))
        rows.append((f"{word}, {times['count']:.0f} turns", numbers))
    if outcome.loop is not None:
        rows.append(("missed deadlines", str(outcome.loop["missed_deadlines"])))
    if outcome.robot is not None and outcome.robot.get("wall_s"):
        rows.append(("simulated seconds per second", f"{outcome.robot['simulated_s'] / outcome.robot['wall_s']:.2f}"))
    if outcome.rerun is not None:
        text = f"differ by {outcome.rerun:.2g} at most" if outcome.rerun else "are equal to the last bit"
        rows.append(("recorded actions and those of the networks run again", text))
    return rows


def _origin(report: Report, outcome: ArmOutcome) -> None:
    contract = outcome.bundle.contract
    provenance = contract.provenance
    sizes = [f"policy {len(outcome.bundle.model_bytes) / 1024:.0f} KiB"]
    if outcome.bundle.base_bytes is not None:
        sizes.insert(0, f"base {len(outcome.bundle.base_bytes) / 1024:.0f} KiB")
    rows = [
        ("task, preset, seed", f"{provenance.task or 'unknown'}, {provenance.preset or 'unknown'}, {provenance.seed}"),
        ("trained by commit", f"`{provenance.git_commit or 'unknown'}`"),
        ("exported", provenance.created_utc or "unknown"),
        ("this page by commit", f"`{git_commit() or 'unknown'}`"),
        ("networks", f"{contract.observation_size} observations to {contract.action_size} numbers of an action at "
                     f"{contract.rate_hz:g} Hz; {', '.join(sizes)}"),
        *machine_rows(),
        ("time taken", ", ".join(f"{name} {seconds:.0f} s" for name, seconds in outcome.stage_s.items())),
    ]  # fmt: skip
    if outcome.walk.over_ros:
        rows.append(("DDS", f"domain {outcome.walk.domain}, this machine only"))
    report.section("Where it comes from").table(rows)
    files = [(f"`{name}`", text) for name, text in _FILES.items() if (outcome.folder / name.rstrip("/")).exists()]
    report.section("What lies beside this page").table(files, header=("In the folder", "Holds"))


_FILES = {
    "demos/": "the demonstrations, a LeRobot dataset; `gantry data info` shows it",
    "base/": "training of the clone; `gantry eval` scores it",
    "residual/": "training of the correction; `gantry train --resume` goes on from it",
    "bundle/": "the policy: base, correction, contract, recorded episodes, scores; `gantry inspect` shows it",
    "walk.mcap": "recording of the episodes, every tick; Foxglove and `ros2 bag` read it",
    "walk.mp4": "the film alone",
    "trials.json": "what the operator saw of each episode",
    "nodes.log": "what the nodes said",
    "nodes.yaml": "parameters that the nodes were given beside their defaults",
    "loop.json": "statistics of the control loop",
    "robot.json": "simulated against real time",
    "demo.json": "the numbers of this page",
}


def _longest(found: MeasuredArm) -> RecordedEpisode:
    """The longest episode that was done, or the longest of all if none was."""
    done = [item for item in found.episodes if item.trial.done] or list(found.episodes)
    return max(done, key=lambda item: len(item.time_s))


def _number(found: MeasuredArm, episode: RecordedEpisode) -> int:
    return next(number for number, item in enumerate(found.episodes, start=1) if item is episode)


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g} %"
