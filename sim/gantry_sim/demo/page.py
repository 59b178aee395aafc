"""The report of a demo: a headline, and the sections of its scenario down to the provenance."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from gantry_deploy.cli.command import counted
from gantry_deploy.report import Report, figures
from gantry_sim.demo.machine import machine_rows, processor
from gantry_sim.demo.measured import Measured
from gantry_sim.demo.scenario import VIDEO, Outcome, Recorded, Section
from gantry_sim.demo.stages import git_commit

UNKNOWN = "-"
"""Entry where nothing was measured."""
EARLIER_POLICY = "This policy was trained earlier; the page says by which code. Nothing was trained for this page."
UNPACED = "It did not wait for the clock, so the times between its turns are not those of a robot."
_FILES = {
    "demos": "the demonstrations, a LeRobot dataset; `gantry data info` shows it",
    "base": "training of the clone; `gantry eval` scores it",
    "residual": "training of the correction; `gantry train --resume` goes on from it",
    "bundle": "the policy: networks, contract, recorded numbers, scores; `gantry inspect` shows it",
    "bundle.zip": "the policy: networks, contract, recorded numbers, scores; `gantry inspect` shows it",
    "checkpoints": "state of the training; `gantry train --resume` goes on from it",
    "config.json": "configuration of the training",
    "metrics.jsonl": "learning curve",
    "evaluation.json": "scores of the held-out episodes",
    "tensorboard": "log of the training for TensorBoard",
    "walk.mcap": "recording, every tick and every map; Foxglove and `ros2 bag` read it",
    "walk.mp4": "the film alone",
    "attention.mp4": "the film of map and attention alone",
    "trials.json": "what the operator saw of each episode",
    "nodes.log": "what the nodes said",
    "nodes.yaml": "parameters that the nodes were given beside their defaults",
    "loop.json": "times and counts of the control loop",
    "mapping.json": "times and counts of the mapping",
    "robot.json": "simulated against real time",
    "demo.json": "the numbers of this page",
}


def build_page(outcome: Outcome) -> Report:
    """Everything that a stranger wants to know about the demo, from top to bottom."""
    title, tiles, text = outcome.scenario.headline(outcome)
    task = outcome.task or "a policy of unknown origin"
    report = Report(title, f"{task}, {time.strftime('%Y-%m-%d %H:%M')}, {processor()}")
    verdict = "passed" if outcome.passed else f"{len(outcome.missed)} missed"
    total = f"{sum(outcome.stage_s.values()) / 60.0:.1f} min"
    report.tiles({"verdict": verdict, **tiles, "all of it": total}).text("\n\n".join([text, *_remarks(outcome)]))
    for section in outcome.scenario.sections(outcome):
        section(report, outcome)
    return report


def _remarks(outcome: Outcome) -> list[str]:
    """Paragraphs about whatever did not go by the plan."""
    texts = []
    for item in outcome.recorded:
        rollout, name = item.rollout, f"{item.name}: " if len(outcome.recorded) > 1 else ""
        if item.note:
            text = f"{name}Not over ROS 2: {item.note}. The same was done in one process instead."
            texts.append(text + f" {UNPACED}" * (not rollout.paced))
        if rollout.earlier:
            reasons = "; ".join(reason.rstrip(".") for reason in rollout.earlier)
            again = f"{name}This machine was too busy to keep the robot's clock at first, so it was begun again."
            texts.append(f"{again} Earlier attempts ended with: {reasons}.")
            texts[-1] += f" {UNPACED}" * (not rollout.paced and not item.note)
        if rollout.trouble:
            texts.append(f"{name}It was not completed: {rollout.trouble.rstrip('.')}.")
    if outcome.policy.evaluation is None and outcome.policy.evaluation_note:
        texts.append(f"It was not scored on held-out episodes: {outcome.policy.evaluation_note.rstrip('.')}.")
    return texts


def film(caption: str) -> Section:
    """The film of the first rollout, or the reason for which there is none."""

    def add(report: Report, outcome: Outcome) -> None:
        item = outcome.recorded[0]
        if VIDEO in item.films:
            report.video(item.films[VIDEO], caption)
        else:
            report.text(f"There is no video: {item.film_note}")

    return add


def scores(report: Report, outcome: Outcome) -> None:
    """All scores with their thresholds."""
    missed = outcome.missed
    caption = "Missed: " + "; ".join(missed) + "." if missed else "Nothing that was asked for was missed."
    report.section("Scores").scores(outcome.scores(), caption=caption)


def table(report: Report, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], caption: str = "") -> None:
    """Numbers of rollouts or episodes, a row each.

    Args:
        report: Where to add them.
        columns: Title to key.
        rows: Numbers by key.
        caption: Of the table.
    """
    cells = [[_cell(row[key]) for key in columns.values()] for row in rows]
    report.table(cells, header=tuple(columns), caption=caption)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(f"{number:.2f}" for number in value)
    return UNKNOWN if value is None or value == "" else value


def processes(outcome: Outcome, what: str) -> str:
    """Processes of policy and simulated robot, in words."""
    if outcome.recorded[0].rollout.over_ros:
        return f"a simulated {what}, the policy and an operator as ROS 2 nodes, each a process of its own"
    return f"the simulated {what} and the policy in one process, without ROS 2"


def nothing_recorded(report: Report, item: Recorded) -> None:
    """Say that a rollout left nothing to show."""
    report.text(f"Nothing was recorded: {item.rollout.trouble or 'the policy never ran'}.")


def joints(report: Report, found: Measured, caption: str) -> None:
    """Positions and targets of the joints between their limits."""
    spec = found.spec
    limits = spec.array("lower_rad"), spec.array("upper_rad")
    names, target = spec.joint_names, found.target_rad
    report.figure(
        figures.joint_positions(found.time_s, found.joint_pos_rad, *limits, names, target_rad=target), caption
    )


def durations(report: Report, item: Recorded, titles: Mapping[str, tuple[str, str]], caption: str) -> None:
    """Histograms of times of a rollout.

    Args:
        report: Where to add them.
        item: The rollout.
        titles: Of :meth:`Recorded.times_s`, what is shown: title, and what is counted.
        caption: Of the figure.
    """
    times = item.times_s()
    shown = {title: (times.get(name, ()), counted_as) for name, (title, counted_as) in titles.items()}
    report.figure(figures.duration_histograms(shown), f"{caption}; orange: 99 % are below, logarithmic upwards.")


def common_rows(item: Recorded) -> list[tuple[str, str]]:
    """Rows about loop, clock and networks of a rollout."""
    rows = []
    if item.statistics.get("loop") is not None:
        rows.append(("missed deadlines", str((item.statistics["loop"] or {}).get("missed_deadlines", UNKNOWN))))
    if item.real_time is not None:
        rows.append(("simulated seconds per second", f"{item.real_time:.2f}"))
    if item.rerun is not None:
        text = f"differ by {item.rerun:.2g} at most" if item.rerun else "are equal to the last bit"
        rows.append(("recorded actions and those of the networks run again", text))
    return rows


def gate(report: Report, outcome: Outcome) -> None:
    """Checks of the bundle, and the episodes of the sim-to-sim gate where there are some."""
    found = outcome.gate
    report.section("The bundle" if found.config is None else "The sim-to-sim gate")
    text = "`gantry check` refuses a bundle whose bytes, contract or numbers are not what they were in training"
    if found.config is None:
        report.text(f"{text}; it was put through these comparisons, and `gantry check` adds episodes of its own.")
    else:
        cfg = found.config
        report.text(
            f"{text}, then walks it in plain MuJoCo through the robot's own loop: "
            f"{counted(cfg.episodes, 'episode')} of {cfg.seconds:g} s with sensor noise, friction from "
            f"{cfg.friction[0]:g} to {cfg.friction[1]:g} and a payload drawn for each."
        )
    rows = [(stage.name, "passed" if stage.passed else "FAILED", stage.text) for stage in found.stages]
    report.table(rows, header=("Stage", "Verdict", "Found"))
    episodes = () if found.result is None else enumerate(found.result.episodes, start=1)
    if failed := [
        (f"episode {index}", f"{item.seconds:.1f} s", item.reason) for index, item in episodes if item.failed
    ]:
        report.table(failed, header=("Ended early", "after", "because"))


def origin(report: Report, outcome: Outcome) -> None:
    """Provenance of policy and page, and the files beside the page."""
    contract = outcome.bundle.contract
    provenance = contract.provenance
    sizes = f"{len(outcome.bundle.model_bytes) / 1024:.0f} KiB"
    if outcome.bundle.base_bytes is not None:
        sizes += f", base {len(outcome.bundle.base_bytes) / 1024:.0f} KiB"
    rows = [
        ("task, preset, seed", f"{provenance.task or 'unknown'}, {provenance.preset or 'unknown'}, {provenance.seed}"),
        ("trained", f"{provenance.env_steps / 1e6:.2f} million control steps"),
        ("trained by commit", f"`{provenance.git_commit or 'unknown'}`"),
        ("exported", provenance.created_utc or "unknown"),
        ("this page by commit", f"`{git_commit() or 'unknown'}`"),
        ("networks", f"{contract.observation_size} observations to {contract.action_size} numbers of an action at "
                     f"{contract.rate_hz:g} Hz, {sizes}"),
        *machine_rows(),
        ("time taken", ", ".join(f"{name} {seconds:.0f} s" for name, seconds in outcome.stage_s.items())),
    ]  # fmt: skip
    if domains := dict.fromkeys(item.rollout.domain for item in outcome.recorded if item.rollout.over_ros):
        rows.append(("DDS", f"domain {', '.join(domains)}, this machine only"))
    report.section("Where it comes from").table(rows)
    folder = outcome.config.output
    places = {"": folder} | {f"{item.folder.name}/": item.folder for item in outcome.recorded if item.folder != folder}
    files = [
        (f"`{place}{name}{'/' if (path / name).is_dir() else ''}`", text)
        for place, path in places.items()
        for name, text in _FILES.items()
        if (path / name).exists()
    ]
    report.section("What lies beside this page").table(files, header=("In the folder", "Holds"))
