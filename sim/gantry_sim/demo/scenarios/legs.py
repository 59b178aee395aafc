"""The demo of a policy that walks by velocities: train, score, put it through the gate, walk a profile."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.cli.command import counted
from gantry_deploy.contract.policy_contract import BODY_VELOCITY
from gantry_deploy.errors import ContractError
from gantry_deploy.report import Report, Score, encode_mp4, figures
from gantry_hardware.errors import GantryError
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.demo import page, stages
from gantry_sim.demo.measured import Measured, MeasuredWalk, measure_walk
from gantry_sim.demo.profile import DEMO_PROFILE, Profile, as_text, command_at, describe, fitted, total_s
from gantry_sim.demo.rollout import Plan, Rollout, Say, session
from gantry_sim.demo.scenario import (
    GATE,
    VIDEO,
    DemoConfig,
    Display,
    Outcome,
    Policy,
    Recorded,
    Scenario,
    Section,
    Step,
)
from gantry_sim.viewing.replay import Poses, film, frame_times

FPS = 20.0
"""Of the film; a frame takes a core without a graphics card some 40 ms."""
MAX_WALK_ERROR_M_S = 0.2
"""Largest mean planar velocity error of the recorded walk."""
LEAST_JUDGED_S = 12.0
"""A shorter walk is mostly changes of command, which no policy follows at once; its velocity error has no verdict."""
CONTACT_WINDOW_S = 4.0
"""Part of the foot contacts that is drawn, so that single steps can be told apart."""
CURVES = {
    "lin_vel_error_m_s": "velocity error [m/s]",
    "yaw_rate_error_rad_s": "yaw-rate error [rad/s]",
    "reward_per_s": "reward per second",
}
"""Columns of the learning curve that are drawn, and their labels."""


@dataclass(frozen=True)
class Legs(Scenario):
    """A walk by commanded velocities."""

    run: stages.RunCfg | None = None
    """Run to train; None where a finished policy is shown."""
    seconds: float = 20.0
    """Length of the recorded walk."""
    gate_episodes: int = 20
    """Episodes of the gate."""
    dynamics: str = ""
    """File of dynamics that the simulated robot has; empty for those of its model."""

    def require(self, bundle: Bundle) -> None:
        """Refuse a policy that does not follow velocities."""
        kind = bundle.contract.command.kind
        if kind != BODY_VELOCITY:
            raise ContractError(f"{bundle.path} follows '{kind}', and there is no demo of that; it can be played.")

    def learn(self, config: DemoConfig, policy: Policy, display: Display) -> Sequence[Step]:
        """Train, score and export; or score."""
        number = counted(config.episodes, "held-out episode")
        if self.run is None:
            evaluate = partial(_evaluate, config, policy, display)
            return [Step("evaluation", f"Score it on {number}", evaluate)] if config.episodes else []
        run, folder = self.run, config.output

        def export() -> None:
            if config.episodes:
                policy.evaluation = stages.evaluate_trained(folder, config.episodes, display.share("evaluate"))
                policy.evaluation_note = ""
            policy.path = stages.export_trained(folder, policy.path)

        title = f"Train {run.task.name} ({run.preset_name} preset, seed {run.seed})"
        scored = f"Score it on {number}, and export" if config.episodes else "Export it, unscored as asked"
        return [
            Step("training", title, partial(stages.train_run, run, folder, display)),
            Step("evaluation", scored, export),
        ]

    def rollouts(self, where: str) -> Mapping[str, str]:
        """The walk."""
        nodes = ": robot, policy and operator as processes" if "ROS" in where else ""
        return {"walk": f"Walk {where}{nodes}, {self.seconds:g} s"}

    def profile(self, bundle: Bundle) -> Profile:
        """Commands of the recorded walk."""
        return fitted(DEMO_PROFILE, self.seconds, bundle.contract.command)

    def plan(self, name: str, bundle: Bundle, folder: Path, say: Say) -> Plan:
        """The profile, by the launch description ``sim_walk`` or in this process."""
        profile = self.profile(bundle)
        dynamics = str(Path(self.dynamics).resolve()) if self.dynamics else ""  # Nodes may run in another folder.
        options = {"options": json.dumps({"dynamics": dynamics})} if dynamics else {}
        return Plan(
            bundle=bundle.path,
            folder=folder,
            launch="sim_walk",
            arguments={"drive": "true", "profile": as_text(profile), **options},
            done="Profile done.",
            seconds=total_s(profile),
            make_robot=lambda spec, paced: MujocoRobot(spec, realtime=paced, visuals=False, dynamics=dynamics),
            operate=lambda controller, _, say: session(controller, partial(command_at, profile), total_s(profile), say),
        )

    def measure(self, name: str, plan: Plan, rollout: Rollout, bundle: Bundle) -> Sequence[Measured]:
        """The walk."""
        return [measure_walk(rollout.recording)]

    def films(self, recorded: Recorded, bundle: Bundle, share: Callable[[float], None]) -> Iterator[tuple[str, bytes]]:
        """The walk with arrows for what was asked and what was done."""
        found = recorded.walk
        poses = Poses(**{name: getattr(found, name) for name in Poses.__dataclass_fields__})
        total = len(frame_times(poses, FPS))

        def frames() -> Iterator[Any]:
            for index, frame in enumerate(film(found.spec, poses, FPS), start=1):
                yield frame
                share(index / total)

        yield VIDEO, encode_mp4(frames(), FPS)

    def held_out(self, outcome: Outcome) -> Sequence[Score]:
        """Time of the training, scores of the evaluation by model, and of the gate."""
        result = outcome.gate.result
        gate = [] if result is None else _triple(
            GATE.removesuffix(": "),
            {name: getattr(value, "__dict__", value) for name, value in vars(result.scores).items()},
            _limits(outcome.bundle),
            "in plain MuJoCo, through the runtime that robots use",
        )  # fmt: skip
        return [*_training_time(outcome), *_evaluation(outcome), *gate]

    def judge(self, recorded: Recorded, bundle: Bundle) -> Sequence[Score]:
        """Errors of the walk, falls and faults, and whether all of it was driven."""
        found, walk, profile = recorded.walk, recorded.rollout, self.profile(bundle)
        if found is None:
            return [Score(f"{walk.where}: velocity error", math.nan, MAX_WALK_ERROR_M_S, "m/s", note=walk.trouble)]
        length_s = float(found.time_s[-1])
        note = f"mean over {length_s:.0f} s, the changes of command included"
        note += "" if self.judges_velocity else f"; no verdict below {LEAST_JUDGED_S:g} s"
        limit = MAX_WALK_ERROR_M_S if self.judges_velocity else None
        # Of a walk that was not completed, never all, however short the rest was.
        driven = 1.0 if walk.completed else min(0.99, length_s / total_s(profile))
        return [
            Score(f"{walk.where}: velocity error", found.lin_vel_error_m_s, limit, "m/s", note=note),
            Score(f"{walk.where}: yaw-rate error", found.yaw_rate_error_rad_s, unit="rad/s"),
            Score(f"{walk.where}: falls and faults", float(found.fell or bool(found.fault)), 0.0, note=found.fault),
            Score(f"{walk.where}: share of the profile driven", driven, 1.0, "%", above=True, note=walk.trouble),
        ]

    @property
    def judges_velocity(self) -> bool:
        """Whether the walk is long enough for a verdict on its velocity error."""
        return self.seconds >= LEAST_JUDGED_S - 1e-6

    def headline(self, outcome: Outcome) -> tuple[str, Mapping[str, str], str]:
        """Title, tiles and summary."""
        robot, provenance = outcome.bundle.contract.robot.capitalize(), outcome.bundle.contract.provenance
        over_ros = outcome.recorded[0].rollout.over_ros
        start = f"A {robot} learned to walk, and walks" if outcome.trained else f"A {robot} walks"
        names = {
            "training time": "of training",
            "held out: velocity error": "velocity error",
            "held out: falls": "falls",
            f"{outcome.where}: velocity error": f"error {outcome.where}",
        }
        found = {word: outcome.score(name) for name, word in names.items()}
        tiles = {word: score.text(score.value) for word, score in found.items() if score is not None}
        source = page.EARLIER_POLICY if not outcome.trained else (
            f"This policy was trained on this machine in {provenance.train_wall_s:.0f} s, from "
            f"{provenance.env_steps / 1e6:.2f} million control steps with noisy sensors, random friction and random "
            "mass."
        )  # fmt: skip
        text = (
            f"{source} It was scored on episodes that training never saw, exported as an ONNX bundle, verified and "
            f"walked in a second simulator by the gate, and then run as on a robot: "
            f"{page.processes(outcome, 'robot')}. The film, the curves and "
            "the histograms below come from the recording of that walk."
        )
        return f"{start} {'over ROS 2' if over_ros else 'in MuJoCo'}", tiles, text

    def sections(self, outcome: Outcome) -> Sequence[Section]:
        """Film, scores, learning, the walk, the gate, the origin."""
        found = outcome.recorded[0].walk
        distance = "" if found is None else f", {found.distance_m:.1f} m long"
        caption = (
            f"The recorded walk in real time{distance}. Orange arrow: the velocity that is asked for; blue arrow: the "
            f"robot's own. Asked for: {describe(self.profile(outcome.bundle))}."
        )
        return [page.film(caption), page.scores, _learning, _recorded_walk, page.gate, page.origin]

    def rollout_result(self, recorded: Recorded) -> dict[str, Any]:
        """Length of the walk."""
        found = recorded.walk
        return {"distance_m": None if found is None else found.distance_m}


def _evaluate(config: DemoConfig, policy: Policy, display: Display) -> None:
    """Score a finished policy, if its task is known here."""
    try:
        share = display.share("evaluate")
        policy.evaluation = stages.evaluate_bundle(policy.path, config.output, config.episodes, share)
        policy.evaluation_note = ""
    except GantryError as error:
        policy.evaluation_note = str(error)
        display.say(f"  not scored: {error}")


def _limits(bundle: Bundle) -> tuple[float | None, ...]:
    asked = bundle.contract.acceptance
    return asked.max_lin_vel_error_m_s, asked.max_yaw_rate_error_rad_s, asked.max_fall_rate


def _training_time(outcome: Outcome) -> list[Score]:
    provenance = outcome.bundle.contract.provenance
    steps = f"{provenance.env_steps / 1e6:.2f} million control steps"
    if outcome.trained:
        return [Score("training time", provenance.train_wall_s, unit="s", note=steps)]
    if not provenance.train_wall_s:
        return []
    note = f"{steps}, on the machine where it was trained; not part of this run"
    return [Score("training time, when it was trained", provenance.train_wall_s, unit="s", note=note)]


def _evaluation(outcome: Outcome) -> list[Score]:
    evaluation = outcome.policy.evaluation
    if evaluation is None:
        return []
    model = evaluation["training_model"]
    scores = _triple("held out", model, _limits(outcome.bundle), "in the training environment")
    standing = model.get("standing")
    if standing is not None:
        note = f"{counted(standing['episodes'], 'more episode')} with a command of zero"
        scores.append(Score("held out, standing: drift", standing["drift_m_s"]["mean"], unit="m/s", note=note))
        scores.append(Score("held out, standing: falls", standing["fall_rate"]["mean"], unit="%"))
    if "full_model" in evaluation:
        note = "with every collision shape and finer physics, for comparison"
        scores += _triple("held out, full model", evaluation["full_model"], (None, None, None), note)
    return scores


def _triple(prefix: str, found: Mapping[str, Any], limits: Sequence[float | None], note: str) -> list[Score]:
    rows = []
    for index, (name, word, unit) in enumerate(_TRIPLE):
        value = found[name]
        row = Score(f"{prefix}: {word}", value["mean"], limits[index], unit)
        low, high = row.text(value["low"]).removesuffix(unit).strip(), row.text(value["high"])
        interval = f"95 % interval {low} to {high}"
        small = f"{counted(found['episodes'], 'episode')} {note}; {interval}" if index == 0 else interval
        rows.append(Score(row.name, row.value, row.limit, unit, note=small))
    return rows


_TRIPLE = (
    ("lin_vel_error_m_s", "velocity error", "m/s"),
    ("yaw_rate_error_rad_s", "yaw-rate error", "rad/s"),
    ("fall_rate", "falls", "%"),
)


def _learning(report: Report, outcome: Outcome) -> None:
    rows = stages.metrics_of(outcome.config.output, "train")
    series = {label: [row[name] for row in rows] for name, label in CURVES.items() if rows and name in rows[0]}
    if len(rows) < 2 or not series:
        return
    asked = _limits(outcome.bundle)
    limits = {label: limit for label, limit in zip(list(CURVES.values())[:2], asked, strict=False) if limit is not None}
    report.section("Learning").figure(
        figures.learning_curve(
            [row["wall_s"] for row in rows], series, progress_label="training time [s]", limits=limits
        ),
        "Means over all training environments, with the random actions that exploring needs, so that the errors end "
        "above those of the finished policy. Dashed: what is asked of the finished policy.",
    )


def _recorded_walk(report: Report, outcome: Outcome) -> None:
    item = outcome.recorded[0]
    found = item.walk
    report.section("The recorded walk")
    if found is None:
        page.nothing_recorded(report, item)
        return
    report.figure(
        figures.velocity_tracking(found.time_s, found.command, found.velocity),
        f"What was asked on `/cmd_vel` and what the robot did, in its own frame. Mean planar error "
        f"{found.lin_vel_error_m_s:.3f} m/s, mean yaw-rate error {found.yaw_rate_error_rad_s:.3f} rad/s. Robot and "
        "sensors are simulated without noise here, so that what is drawn is the truth; the gate below adds noise.",
    )
    if found.contact is not None:
        middle_s = 0.5 * (found.time_s[-1] + CONTACT_WINDOW_S)
        window = {"window_s": CONTACT_WINDOW_S, "end_s": middle_s}
        report.figure(
            figures.foot_contacts(found.time_s, found.contact, found.spec.feet, **window),
            f"Feet on the ground, {CONTACT_WINDOW_S:g} s from the middle of the walk.",
        )
    page.joints(report, found, f"Joint positions between their limits. {_margin(found)}")
    rate_hz = found.contract.rate_hz
    report.figure(
        figures.timing_histograms(found.period_s, found.infer_s, rate_hz=rate_hz),
        f"Time between two turns of the {rate_hz:g} Hz loop (dashed: as asked, orange: 99 % are below) and time "
        f"inside the network, {item.rollout.where}; logarithmic upwards.",
    )
    report.table(page.common_rows(item))


def _margin(found: MeasuredWalk) -> str:
    """Joint that came closest to a limit, and its distance."""
    lower, upper = found.spec.array("lower_rad"), found.spec.array("upper_rad")
    gap = np.minimum(found.joint_pos_rad - lower, upper - found.joint_pos_rad).min(axis=0)
    joint = int(np.argmin(gap))
    return f"Closest to a limit: `{found.spec.joint_names[joint]}`, {gap[joint]:.2f} rad away from it."
