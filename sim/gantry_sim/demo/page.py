"""The report of a demo: one page from the headline down to the provenance."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.cli.command import counted
from gantry_deploy.report import Report, figures
from gantry_sim.demo.machine import machine_rows, processor
from gantry_sim.demo.measured import MeasuredWalk
from gantry_sim.demo.outcome import Outcome
from gantry_sim.demo.profile import describe
from gantry_sim.demo.walk import UNPACED
from gantry_sim.training.run_config import git_commit

CONTACT_WINDOW_S = 4.0
"""Part of the foot contacts that is drawn, so that single steps can be told apart."""


def build_page(outcome: Outcome) -> Report:
    """Everything that a stranger wants to know about the run, from top to bottom."""
    robot = outcome.bundle.contract.robot.capitalize()
    provenance = outcome.bundle.contract.provenance
    task = provenance.task or "a policy of unknown origin"
    report = Report(_title(outcome, robot), f"{task}, {time.strftime('%Y-%m-%d %H:%M')}, {processor()}")
    report.tiles(_tiles(outcome)).text(_summary(outcome))
    _video(report, outcome)
    missed = [score.name for score in outcome.scores() if score.passed is False]
    report.section("Scores").scores(
        outcome.scores(),
        caption="Missed: " + "; ".join(missed) + "." if missed else "Nothing that was asked for was missed.",
    )
    _learning(report, outcome)
    _walk(report, outcome)
    _gate(report, outcome)
    _origin(report, outcome)
    return report


def _title(outcome: Outcome, robot: str) -> str:
    start = f"A {robot} learned to walk, and walks" if outcome.trained else f"A {robot} walks"
    return f"{start} {'over ROS 2' if outcome.walk.over_ros else 'in MuJoCo'}"


def _tiles(outcome: Outcome) -> dict[str, str]:
    missed = sum(score.passed is False for score in outcome.scores())
    tiles = {"verdict": "passed" if outcome.passed else f"{max(1, missed)} missed"}
    where = "over ROS 2" if outcome.walk.over_ros else "in one process"
    wanted = {
        "training time": "of training",
        "held out: velocity error": "velocity error",
        "held out: falls": "falls",
        f"{where}: velocity error": f"error {where}",
    }
    for name, word in wanted.items():
        score = outcome.score(name)
        if score is not None:
            tiles[word] = score.text(score.value)
    return tiles


def _summary(outcome: Outcome) -> str:
    provenance = outcome.bundle.contract.provenance
    if outcome.trained:
        origin = (
            f"This policy was trained on this machine in {provenance.train_wall_s:.0f} s, from "
            f"{provenance.env_steps / 1e6:.2f} million control steps with noisy sensors, random friction and random "
            "mass."
        )
    else:
        origin = "This policy was trained earlier; the page says by which code. Nothing was trained for this page."
    where = (
        "a simulated robot and the policy as two ROS 2 nodes, each a process of its own, driven by a third that plays "
        "the operator"
        if outcome.walk.over_ros
        else "the simulated robot and the policy in one process, without ROS 2"
    )
    text = (
        f"{origin} It was scored on episodes that training never saw, exported as an ONNX bundle, verified and walked "
        f"in a second simulator by the gate, and then run as on a robot: {where}. The film, the curves and the "
        "histograms below come from the recording of that walk."
    )
    if outcome.walk_note:
        text += f"\n\nNot over ROS 2: {outcome.walk_note}. The same profile was walked in one process instead."
    if outcome.walk.earlier:
        text += (
            "\n\nThis machine was too busy to keep the loop's time at first, so the walk was begun again. Earlier "
            f"attempts ended with: {'; '.join(reason.rstrip('.') for reason in outcome.walk.earlier)}."
        )
        text += "" if outcome.walk.paced else UNPACED
    if outcome.evaluation is None:
        text += f"\n\nIt was not scored on held-out episodes: {outcome.evaluation_note.rstrip('.')}."
    if outcome.walk.trouble:
        text += f"\n\nThe walk was not completed: {outcome.walk.trouble.rstrip('.')}."
    return text


def _video(report: Report, outcome: Outcome) -> None:
    if outcome.video is None:
        report.text(f"There is no video: {outcome.video_note}")
        return
    distance = "" if outcome.measured is None else f", {outcome.measured.distance_m:.1f} m long"
    report.video(
        outcome.video,
        f"The recorded walk in real time{distance}. Orange arrow: the velocity that is asked for; blue arrow: the "
        f"robot's own. Asked for: {describe(outcome.profile)}.",
    )


def _learning(report: Report, outcome: Outcome) -> None:
    if outcome.curve_file is None:
        return
    columns = _read_columns(outcome.curve_file)
    rate_hz = outcome.bundle.contract.rate_hz
    labels = {
        "lin_vel_error_m_s": ("velocity error [m/s]", 1.0),
        "yaw_rate_error_rad_s": ("yaw-rate error [rad/s]", 1.0),
        "reward": ("reward per second", rate_hz),
    }
    series = {label: columns[name] * scale for name, (label, scale) in labels.items() if name in columns}
    if "wall_s" not in columns or not series or len(columns["wall_s"]) < 2:
        return
    acceptance = outcome.bundle.contract.acceptance
    limits = {
        "velocity error [m/s]": acceptance.max_lin_vel_error_m_s,
        "yaw-rate error [rad/s]": acceptance.max_yaw_rate_error_rad_s,
    }
    report.section("Learning").figure(
        figures.learning_curve(columns["wall_s"], series, progress_label="training time [s]", limits=limits),
        "Means over all training environments, with the random actions that exploring needs, so that the errors end "
        "above those of the finished policy. Dashed: what is asked of the finished policy.",
    )


def _walk(report: Report, outcome: Outcome) -> None:
    found = outcome.measured
    report.section("The recorded walk")
    if found is None:
        report.text(f"Nothing was recorded: {outcome.walk.trouble or 'the policy never ran'}.")
        return
    report.figure(
        figures.velocity_tracking(found.time_s, found.command, found.velocity),
        f"What was asked on `/cmd_vel` and what the robot did, in its own frame. Mean planar error "
        f"{found.lin_vel_error_m_s:.3f} m/s, mean yaw-rate error {found.yaw_rate_error_rad_s:.3f} rad/s. Robot and "
        "sensors are simulated without noise here, so that what is drawn is the truth; the gate below adds noise.",
    )
    if found.contact is not None:
        report.figure(
            figures.foot_contacts(
                found.time_s,
                found.contact,
                found.spec.feet,
                window_s=CONTACT_WINDOW_S,
                end_s=0.5 * (found.time_s[-1] + CONTACT_WINDOW_S),
            ),
            f"Feet on the ground, {CONTACT_WINDOW_S:g} s from the middle of the walk.",
        )
    spec = found.spec
    report.figure(
        figures.joint_positions(
            found.time_s,
            found.joint_pos_rad,
            spec.array("lower_rad"),
            spec.array("upper_rad"),
            spec.joint_names,
            target_rad=found.target_rad,
        ),
        f"Joint positions between their limits. {_margin(found)}",
    )
    report.figure(
        figures.timing_histograms(found.period_s, found.infer_s, rate_hz=found.rate_hz),
        f"Time between two turns of the {found.rate_hz:g} Hz loop (dashed: as asked, orange: 99 % are below) and time "
        f"inside the network, {'in the policy node' if outcome.walk.over_ros else 'in one process, without ROS 2'}; "
        "logarithmic upwards.",
    )


def _gate(report: Report, outcome: Outcome) -> None:
    gate = outcome.gate
    report.section("The sim-to-sim gate")
    report.text(
        f"`gantry check` refuses a bundle whose bytes, contract or numbers are not what they were in training, then "
        f"walks it in plain MuJoCo through the robot's own loop: {counted(gate.config.episodes, 'episode')} of "
        f"{gate.config.seconds:g} s with sensor noise, friction from {gate.config.friction[0]:g} to "
        f"{gate.config.friction[1]:g} and a payload drawn for each."
    )
    report.table(
        [(stage.name, "passed" if stage.passed else "FAILED", stage.text) for stage in gate.stages],
        header=("Stage", "Verdict", "Found"),
    )
    failed = [(index, episode) for index, episode in enumerate(gate.result.episodes, start=1) if episode.failed]
    if failed:
        report.table(
            [(f"episode {index}", f"{episode.seconds:.1f} s", episode.reason) for index, episode in failed],
            header=("Ended early", "after", "because"),
        )


def _origin(report: Report, outcome: Outcome) -> None:
    contract = outcome.bundle.contract
    provenance = contract.provenance
    rows = [
        ("task, preset, seed", f"{provenance.task or 'unknown'}, {provenance.preset or 'unknown'}, {provenance.seed}"),
        ("trained by commit", f"`{provenance.git_commit or 'unknown'}`"),
        ("exported", provenance.created_utc or "unknown"),
        ("this page by commit", f"`{git_commit() or 'unknown'}`"),
        ("network", f"{contract.observation_size} observations to {contract.action_size} joints at "
                    f"{contract.rate_hz:g} Hz, {len(outcome.bundle.model_bytes) / 1024:.0f} KiB"),
        *machine_rows(),
        ("time taken", ", ".join(f"{name} {seconds:.0f} s" for name, seconds in outcome.stage_s.items())),
    ]  # fmt: skip
    if outcome.walk.over_ros:
        rows.append(("DDS", f"domain {outcome.walk.domain}, this machine only"))
    report.section("Where it comes from").table(rows)
    files = [(f"`{path.name}{'/' if path.is_dir() else ''}`", _FILES[path.name]) for path in _listed(outcome.folder)]
    report.section("What lies beside this page").table(files, header=("In the folder", "Holds"))


_FILES = {
    "bundle": "the policy: network, contract, recorded numbers, scores; `gantry inspect` shows it",
    "bundle.zip": "the policy: network, contract, recorded numbers, scores; `gantry inspect` shows it",
    "checkpoints": "state of the training; `gantry train --resume` goes on from it",
    "config.json": "configuration of the training",
    "curve.csv": "learning curve",
    "evaluation.json": "scores of the held-out episodes",
    "tensorboard": "log of the training for TensorBoard",
    "walk.mcap": "recording of the walk, every tick; Foxglove and `ros2 bag` read it",
    "walk.mp4": "the film alone",
    "nodes.log": "what the nodes said",
    "loop.json": "statistics of the control loop",
    "demo.json": "the numbers of this page",
}


def _listed(folder: Path) -> list[Path]:
    return [folder / name for name in _FILES if (folder / name).exists()]


def _margin(found: MeasuredWalk) -> str:
    """Joint that came closest to a limit, and its distance."""
    lower, upper = found.spec.array("lower_rad"), found.spec.array("upper_rad")
    gap = np.minimum(found.joint_pos_rad - lower, upper - found.joint_pos_rad).min(axis=0)
    joint = int(np.argmin(gap))
    return f"Closest to a limit: `{found.spec.joint_names[joint]}`, {gap[joint]:.2f} rad away from it."


def _read_columns(path: Path) -> dict[str, NDArray[np.float64]]:
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return {name: np.array([float(row[name]) for row in rows]) for name in (rows[0] if rows else ())}
