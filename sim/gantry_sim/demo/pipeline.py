"""The demo from beginning to end: learn, score, export, check, roll out, film, report."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from gantry_deploy.bundle.bundle import copy_bundle, load_bundle, update_card
from gantry_deploy.bundle.locate import bundle_in
from gantry_deploy.cli.command import counted, jsonable
from gantry_deploy.contract.trained_range import beyond_training
from gantry_deploy.evaluation.gate import Stage, check_static, judge_rollout, make_card, make_report
from gantry_deploy.evaluation.rollout import run_episodes
from gantry_deploy.evaluation.scenario import RolloutConfig
from gantry_hardware.errors import GantryError
from gantry_hardware.files.whole_files import write_whole
from gantry_hardware.model.dynamics import load_dynamics
from gantry_hardware.robots import robot_spec
from gantry_sim.demo import nodes
from gantry_sim.demo.measured import Measured, rerun_difference
from gantry_sim.demo.page import build_page
from gantry_sim.demo.rollout import Plan, Rollout, in_process, kept_from_time, read_statistics
from gantry_sim.demo.scenario import (
    REPORT,
    RESULT,
    STATISTICS,
    DemoConfig,
    Display,
    Gate,
    Outcome,
    Policy,
    Recorded,
    Scenario,
    Step,
)
from gantry_sim.demo.stages import BUNDLE_FOLDER, METRICS_FILE, write_json


class Demo:
    """One demo.

    Args:
        scenario: Kind of it.
        config: Settings.
        display: Where news goes.
    """

    def __init__(self, scenario: Scenario, config: DemoConfig, display: Display) -> None:
        self._scenario, self._config, self._display = scenario, config, display
        self._policy = Policy(config.output / BUNDLE_FOLDER)
        self._recorded: list[Recorded] = []
        self._note = nodes.ros_trouble() if config.ros else "it was asked to do without"
        self._stage_s: dict[str, float] = {}

    def run(self) -> Outcome:
        """Do it all and write the report.

        Raises:
            GantryError: If something is refused; a missed threshold is not.
            TrainingStopped: If a training was stopped; it is saved.
        """
        config, scenario = self._config, self._scenario
        if config.bundle is not None:
            self._policy.path = adopt(config.bundle, config.output, scenario)
        where = "in this process" if self._note else "over ROS 2"
        number = scenario.gate_episodes
        check = f"Check the bundle, then {counted(number, 'episode')} in plain MuJoCo" if number else "Check the bundle"
        films = "Film it, and write the report" if config.video else "Write the report"
        steps = [
            *scenario.learn(config, self._policy, self._display),
            Step("check", check, self._check),
            *(Step(name, text, partial(self._record, name)) for name, text in scenario.rollouts(where).items()),
            Step("film", films, self._film),
        ]
        for count, step in enumerate(steps, start=1):
            begin = time.monotonic()
            self._display.say(f"[{count}/{len(steps)}] {step.title}")
            step.run()
            self._stage_s[step.name] = time.monotonic() - begin
        recorded = tuple(self._recorded)
        outcome = Outcome(scenario, config, self._policy, self._bundle, self._gate, recorded, self._stage_s)
        write_outcome(outcome)
        return outcome

    def _check(self) -> None:
        stages: list[Stage] = []
        bundle, runner = check_static(lambda: load_bundle(self._policy.path), stages.append)
        config = result = None
        if self._scenario.dynamics:
            spec = robot_spec(bundle.contract.robot)
            machine = load_dynamics(self._scenario.dynamics, spec)
            for line in beyond_training(machine, bundle.contract, spec):
                self._display.say(f"  warning: {line}")
        if self._scenario.gate_episodes:
            total = self._scenario.gate_episodes
            options = {"dynamics": self._scenario.dynamics} if self._scenario.dynamics else {}
            config = RolloutConfig(episodes=total, seed=self._config.seed, options=options)
            share = self._display.share("check")
            result = run_episodes(runner, config, lambda index, _: share((index + 1) / total))
            stages += judge_rollout(bundle.contract, result)
            if not bundle.is_signed and bundle.path.is_dir():
                card = make_card(bundle.card, make_report(bundle, stages, config, result))
                update_card(bundle.path, jsonable(card))
        for stage in stages:
            self._display.say(f"  {'pass' if stage.passed else 'FAIL'}  {stage.name}: {stage.text}")
        self._bundle, self._gate = bundle, Gate(tuple(stages), config, result)

    def _record(self, name: str) -> None:
        """Roll out, and once more without the clock where a busy machine has spoiled it."""
        say, bundle = self._display.say, self._bundle
        plan = self._scenario.plan(name, bundle, self._config.output, say)
        plan.folder.mkdir(parents=True, exist_ok=True)
        if self._note:
            say(f"  without ROS 2: {self._note}")
        rollout = in_process(plan, say, realtime=self._config.realtime) if self._note else nodes.over_ros(plan, say)
        found = self._read(name, plan, rollout)
        if (reason := self._missed(found)) and kept_from_time(rollout):
            note = f"this machine is too busy for the robot's clock ({(rollout.trouble or reason).rstrip('.')})"
            say(f"  {note}: the same in this process, without the clock")
            alone = in_process(plan, say, realtime=False)
            earlier = (*rollout.earlier, rollout.trouble or reason, *alone.earlier)
            found = replace(self._read(name, plan, replace(alone, earlier=earlier)), note=note)
        say(f"  missed: {missed}" if (missed := self._missed(found)) else "  nothing was missed")
        self._recorded.append(found)

    def _read(self, name: str, plan: Plan, rollout: Rollout) -> Recorded:
        statistics = {key: read_statistics(plan.folder / file) for key, file in STATISTICS.items()}
        episodes: tuple[Measured, ...] = ()
        try:
            episodes = tuple(self._scenario.measure(name, plan, rollout, self._bundle))
        except GantryError as error:
            if not rollout.trouble:  # A rollout that did not begin has said why, and then there is nothing to read.
                self._display.say(f"  {error}")
        rerun = rerun_difference(episodes, self._bundle)
        return Recorded(name, plan.folder, rollout, self._note, episodes, statistics, rerun)

    def _missed(self, found: Recorded) -> str:
        """The first thing that a rollout misses, in words; empty if it misses nothing."""
        if not found.rollout.completed:
            return found.rollout.trouble or "it was not completed"
        scores = self._scenario.judge(found, self._bundle)
        return next((score.name for score in scores if score.passed is False), "")

    def _film(self) -> None:
        self._recorded = [self._filmed(found) for found in self._recorded]

    def _filmed(self, found: Recorded) -> Recorded:
        if not found.episodes:
            return replace(found, film_note="nothing was recorded.")
        films, note = {}, "it was left out as asked."
        try:
            found = replace(found, detail=self._scenario.detail(found, self._bundle))
            if self._config.video:
                films = dict(self._scenario.films(found, self._bundle, self._display.share("film")))
        except (GantryError, ImportError) as error:
            note = str(error)
            self._display.say(f"  no film: {note}")
        for name, film in films.items():
            write_whole(found.folder / name, film)
        return replace(found, films=films, film_note="" if films else note)


def write_outcome(outcome: Outcome) -> Path:
    """Write the numbers and the page; returns the path of the page."""
    write_json(outcome.config.output / RESULT, jsonable(outcome.result()))
    return build_page(outcome).write(outcome.config.output / REPORT)


def adopt(source: Path, folder: Path, scenario: Scenario) -> Path:
    """Copy a finished policy into the demo's own folder, with its learning curve, if that lies beside it.

    Args:
        source: A bundle, or a run folder with one.
        folder: Folder of the demo, new or empty.
        scenario: Kind of the demo.

    Raises:
        GantryError: If the bundle is refused, or the folder in use, or it cannot be written.
    """
    source = bundle_in(source)
    scenario.require(load_bundle(source))  # A refusal comes before anything is copied.
    target = folder / (BUNDLE_FOLDER if source.is_dir() else f"{BUNDLE_FOLDER}.zip")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise GantryError(f"'{folder}' is in use already; name another folder for this demo with --output.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target = copy_bundle(source, target)
        if (curve := source.parent / METRICS_FILE).is_file():
            shutil.copy(curve, folder / METRICS_FILE)
    except OSError as error:
        raise GantryError(f"Cannot copy the bundle '{source}' to '{target}': {error}.") from error
    return target
