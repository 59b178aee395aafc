"""The demo of an arm from beginning to end: demonstrate, clone, correct, score, export, check, run, film, report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import Bundle, load_bundle
from gantry_deploy.cli.command import counted, jsonable
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.gate import Stage, check_static
from gantry_hardware.errors import GantryError
from gantry_hardware.whole_files import write_whole
from gantry_sim.demo import walk as walks
from gantry_sim.demo.arm import learning
from gantry_sim.demo.arm.episodes import ROBOT, TrialsConfig, read_trials, trials_in_process, trials_over_ros
from gantry_sim.demo.arm.film import film_arm
from gantry_sim.demo.arm.learning import BASE, RESIDUAL, Display, Recipe
from gantry_sim.demo.arm.measured import MeasuredArm, measure_arm, rerun_difference
from gantry_sim.demo.arm.outcome import ArmOutcome, Learned, Scores, arm_result
from gantry_sim.demo.pipeline import REPORT, RESULT, VIDEO
from gantry_sim.training.arm.evaluate import score_source
from gantry_sim.training.arm.policies import open_arm_source
from gantry_sim.training.run_files import BUNDLE_FOLDER, write_json
from gantry_sim.training.run_validation import read_run_file


@dataclass(frozen=True)
class ArmDemoConfig:
    """Settings of the demo."""

    output: Path
    """Folder for everything, new or empty."""
    recipe: Recipe
    """Amounts to learn; of a finished policy only its ``episodes`` count."""
    bundle: Path | None = None
    """A finished policy to show instead."""
    ros: bool = True
    """Run over ROS 2 where it is installed."""
    trials: int = 10
    """Recorded episodes."""
    video: bool = True
    """Whether to film them."""
    realtime: bool = True
    """Without ROS 2: follow the clock instead of running as fast as possible."""


class ArmDemo:
    """One demo.

    Args:
        config: What to show.
        display: Where news goes.
    """

    def __init__(self, config: ArmDemoConfig, display: Display) -> None:
        self._config, self._display = config, display
        self._stage_s: dict[str, float] = {}
        scored = config.recipe.episodes > 0
        self._stages = 3 + (scored if config.bundle is not None else 4 + 2 * scored)

    def run(self) -> ArmOutcome:
        """Do it all and write the report.

        Raises:
            GantryError: If something is refused; a missed threshold is not.
            TrainingStopped: If a training was stopped.
        """
        config = self._config
        learned, scores = None, None
        if config.bundle is None:
            path, learned, scores = self._learn()
        else:
            path, scores = config.bundle, self._score_bundle(config.bundle)
        bundle, stages = self._check(path)
        task = bundle.contract.provenance.task
        walk, note = self._walk(bundle, task)
        with self._stage("film", "Film them, and write the report" if config.video else "Write the report"):
            found = self._measure(walk)
            video, video_note = self._film(found, task)
            outcome = ArmOutcome(
                folder=config.output,
                bundle=bundle,
                task=task,
                learned=learned,
                scores=scores,
                stages=stages,
                asked=config.trials,
                walk=walk,
                note=note,
                measured=found,
                rerun=None if found is None else rerun_difference(found, bundle),
                loop=_read(config.output / walks.STATISTICS),
                robot=_read(config.output / ROBOT) if walk.over_ros else None,
                video=video,
                video_note=video_note,
                stage_s=self._stage_s,
            )
        write_arm_outcome(outcome)
        return outcome

    def _learn(self) -> tuple[Path, Learned, Scores | None]:
        config, recipe, show = self._config, self._config.recipe, self._display
        task = learning.arm_task(recipe)
        config.output.mkdir(parents=True, exist_ok=True)
        bad = f"an expert of suboptimality {recipe.suboptimality:g}"
        with self._stage("demonstrations", f"Record {counted(recipe.demos, 'demonstration')} of {task.name} by {bad}"):
            done = learning.demonstrate(task, recipe, config.output, show)
            show.say(f"  {done.succeeded} of {done.tried} tries succeeded; {done.frames} steps")
        with self._stage("clone", f"Clone them in {recipe.clone_updates} updates"):
            learning.clone(task, recipe, config.output, show)
        base = self._score("score of the clone", "the clone", config.output / BASE)
        with self._stage("correction", f"Learn a correction by trying, {recipe.steps} steps"):
            learning.correct(task, recipe, config.output, show)
        residual = config.output / RESIDUAL
        scores = self._score("score", "clone and correction", residual)
        with self._stage("export", "Export both as one bundle"):
            path = learning.export(residual, config.output / BUNDLE_FOLDER)
        share = done.succeeded / max(1, done.tried)
        looks, corrections = learning.looks(residual), learning.corrections(residual)
        return path, Learned(recipe, done.frames, share, base, looks, corrections), scores

    def _score(self, name: str, what: str, run: Path) -> Scores | None:
        recipe = self._config.recipe
        if not recipe.episodes:
            return None
        with self._stage(name, f"Score {what} on {counted(recipe.episodes, 'held-out episode')}"):
            scores = learning.score(recipe, run, self._display)
            assert scores is not None
            self._tell(scores)
        return scores

    def _score_bundle(self, path: Path) -> Scores | None:
        """Scores of a finished policy, run row by row as on a robot."""
        config = self._config
        try:
            config.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise GantryError(f"Cannot make the folder '{config.output}': {error.strerror}.") from error
        if not config.recipe.episodes:
            return None
        with self._stage("score", f"Score it on {counted(config.recipe.episodes, 'held-out episode')}"):
            share = self._display.share("evaluate")
            scores = score_source(open_arm_source(path), config.recipe.episodes, on_progress=share)
            self._tell(scores)
        return scores

    def _tell(self, scores: Scores) -> None:
        found, steps = scores["success_once"], scores["steps_to_success"]
        after = "" if steps is None else f", after {steps:.0f} steps"
        interval = f"[{100 * found['low']:.0f}, {100 * found['high']:.0f}]"
        self._display.say(f"  success {100 * found['mean']:.3g} % {interval}{after}")

    def _check(self, path: Path) -> tuple[Bundle, list[Stage]]:
        stages: list[Stage] = []
        with self._stage("check", "Check the bundle"):
            bundle, _ = check_static(lambda: load_bundle(path), stages.append)
            require_arm(bundle)
            for stage in stages:
                self._display.say(f"  {'pass' if stage.passed else 'FAIL'}  {stage.name}: {stage.text}")
        return bundle, stages

    def _walk(self, bundle: Bundle, task: str) -> tuple[walks.Walk, str]:
        config, say = self._config, self._display.say
        note = walks.ros_trouble() if config.ros else "it was asked to do without"
        trials = TrialsConfig(task, config.trials, learning.episode_s(task))
        number = counted(config.trials, "episode")
        title = "over ROS 2: arm, policy and operator as processes" if not note else "in this process"
        with self._stage("episodes", f"Run {number} {title}"):
            if note:
                say(f"  without ROS 2: {note}")
                walk = trials_in_process(bundle.path, trials, config.output, say, realtime=config.realtime)
            else:
                walk = trials_over_ros(bundle.path, trials, config.output, say)
                if (reason := self._missed(walk, bundle)) and walks.kept_from_time(walk):
                    note = f"this machine is too busy for the robot's clock ({reason.rstrip('.')})"
                    say(f"  {note}: the same episodes in this process, without the clock")
                    alone = trials_in_process(bundle.path, trials, config.output, say, realtime=False)
                    walk = walks.without_clock(alone, walk, reason)
            if walk.trouble:
                say(f"  not completed: {walk.trouble}")
        return walk, note

    def _missed(self, walk: walks.Walk, bundle: Bundle) -> str:
        """Requirements that recorded episodes miss, in words; empty if none."""
        if not walk.completed:
            return walk.trouble or "the episodes were not completed"
        done = sum(trial.done for trial in read_trials(self._config.output))
        least = bundle.contract.acceptance.min_success_rate
        if least is None or done >= least * self._config.trials:
            return ""
        return f"{done} of {counted(self._config.trials, 'episode')} done"

    def _measure(self, walk: walks.Walk) -> MeasuredArm | None:
        try:
            return measure_arm(walk.recording, read_trials(self._config.output))
        except GantryError as error:
            if not walk.trouble:  # What did not begin has said why, and then there is nothing to read.
                self._display.say(f"  {error}")
            return None

    def _film(self, found: MeasuredArm | None, task: str) -> tuple[bytes | None, str]:
        if found is None:
            return None, "nothing was recorded."
        if not self._config.video:
            return None, "it was left out as asked."
        try:
            video = film_arm(found, task, self._display.share("film"))
        except (GantryError, ImportError) as error:
            self._display.say(f"  no video: {error}")
            return None, str(error)
        write_whole(self._config.output / VIDEO, video)
        return video, ""

    @contextmanager
    def _stage(self, name: str, title: str) -> Iterator[None]:
        begin = time.monotonic()
        self._display.say(f"[{len(self._stage_s) + 1}/{self._stages}] {title}")
        yield
        self._stage_s[name] = time.monotonic() - begin


def require_arm(bundle: Bundle) -> None:
    """Refuse what is no policy of an arm, or does not say of which task.

    Raises:
        ContractError: With what it is.
    """
    contract = bundle.contract
    if contract.embodiment != "arm":
        raise ContractError(f"{bundle.path} is a policy of robot '{contract.robot}', which is no arm.")
    if contract.cameras:
        raise ContractError(f"{bundle.path} looks through cameras, whose pictures are not recorded; it can be played.")


def write_arm_outcome(outcome: ArmOutcome) -> Path:
    """Write the numbers and the page; returns the path of the page."""
    from gantry_sim.demo.arm.page import build_arm_page

    write_json(outcome.folder / RESULT, jsonable(arm_result(outcome)))
    return build_arm_page(outcome).write(outcome.folder / REPORT)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return read_run_file(path)
    except (OSError, ValueError):
        return None
