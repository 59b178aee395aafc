"""The demo from beginning to end: train, evaluate, export, check, walk, film, report."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import Bundle, copy_bundle, load_bundle, update_card
from gantry_deploy.bundle.locate import bundle_in
from gantry_deploy.cli.command import counted, jsonable
from gantry_deploy.evaluation.gate import Stage, check_static, judge_rollout, make_card, make_report
from gantry_deploy.evaluation.rollout import run_episodes
from gantry_deploy.evaluation.scenario import RolloutConfig
from gantry_deploy.report import encode_mp4
from gantry_hardware.errors import GantryError
from gantry_hardware.whole_files import write_whole
from gantry_policies.on_policy.trainer import CURVE_FILE, Progress
from gantry_sim.demo import walk as walks
from gantry_sim.demo.measured import MeasuredWalk, measure
from gantry_sim.demo.outcome import Gate, Outcome, missed
from gantry_sim.demo.profile import DEMO_PROFILE, Profile, fitted
from gantry_sim.training.run_config import BUNDLE_FOLDER, EVALUATION_FILE, RunCfg, check_run, create_run, write_json
from gantry_sim.viewing.replay import Poses, film, frame_times

FPS = 20.0
"""Of the film; a frame takes a core without a graphics card some 40 ms."""
REPORT, RESULT, VIDEO = "report.html", "demo.json", "walk.mp4"
"""Files of a demo in its folder, beside those of its walk and its training."""


class Interrupted(Exception):  # noqa: N818 - as KeyboardInterrupt, it is no error
    """The training was stopped and saved; ``args`` holds the run's folder."""


@dataclass(frozen=True)
class DemoConfig:
    """Settings of the demo."""

    output: Path
    """Folder for everything."""
    run: RunCfg | None
    """Run to train; None to show ``bundle`` instead."""
    bundle: Path | None = None
    """A finished policy, a bundle or a run folder."""
    seed: int = 1
    """Of the gate."""
    ros: bool = True
    """Walk over ROS 2 where it is installed."""
    seconds: float = 20.0
    """Length of the recorded walk."""
    episodes: int = 200
    """Held-out episodes; 0 for none."""
    check_episodes: int = 20
    """Episodes of the gate."""
    video: bool = True
    """Whether to film the walk."""


@dataclass(frozen=True)
class Display:
    """Callbacks for progress."""

    say: Callable[[str], None]
    """Takes a line."""
    progress: Callable[[Progress], None]
    """Takes an iteration of the training."""
    share: Callable[[str], Callable[[float], None]]
    """From the name of a job to what takes its share done."""


class Demo:
    """One demo.

    Args:
        config: What to show.
        display: Where news goes.
    """

    def __init__(self, config: DemoConfig, display: Display) -> None:
        self._config = config
        self._display = display
        self._stage_s: dict[str, float] = {}
        # A finished policy that is not scored is neither trained nor evaluated.
        self._stages = 3 + (config.run is not None) + (config.run is not None or config.episodes > 0)

    def run(self) -> Outcome:
        """Do it all and write the report.

        Raises:
            GantryError: If something is refused; a missed threshold is not.
            Interrupted: If the training was stopped.
        """
        config = self._config
        if config.run is not None:
            bundle, evaluation, note = self._train(config.run)
        else:
            assert config.bundle is not None
            bundle, evaluation, note = self._adopt(config.bundle)
        curve = config.output / CURVE_FILE
        gate = self._check(bundle)
        profile = fitted(DEMO_PROFILE, config.seconds, bundle.contract.command)
        walk, measured, walk_note = self._walk(bundle, profile)
        with self._stage("film", "Film it, and write the report" if config.video else "Write the report"):
            video, video_note = self._film(measured)
        outcome = Outcome(
            folder=config.output,
            bundle=bundle,
            trained=config.run is not None,
            evaluation=evaluation,
            evaluation_note=note,
            curve_file=curve if curve.is_file() else None,
            gate=gate,
            profile=profile,
            walk=walk,
            walk_note=walk_note,
            measured=measured,
            video=video,
            video_note=video_note,
            stage_s=self._stage_s,
        )
        write_outcome(outcome)
        return outcome

    def _train(self, cfg: RunCfg) -> tuple[Bundle, dict[str, Any] | None, str]:
        from gantry_sim.training.train import evaluate_run, export_run, policy_of, train

        config = self._config
        check_run(cfg)
        folder = create_run(cfg, config.output)
        with self._stage("training", f"Train {cfg.task.name} ({cfg.preset_name} preset, seed {cfg.seed})"):
            runner, complete = train(cfg, folder, on_progress=self._display.progress)
        if not complete:
            raise Interrupted(folder)
        evaluation, note = None, "it was left out"
        number = counted(config.episodes, "held-out episode")
        title = f"Score it on {number}, and export" if config.episodes > 0 else "Export it, unscored as asked"
        with self._stage("evaluation", title):
            if config.episodes > 0:
                share = self._display.share("evaluate")
                evaluation = evaluate_run(cfg, folder, policy_of(runner), episodes=config.episodes, on_progress=share)
                note = ""
            bundle = load_bundle(export_run(cfg, folder, runner))
        return bundle, evaluation, note

    def _adopt(self, source: Path) -> tuple[Bundle, dict[str, Any] | None, str]:
        """A copy of a finished policy, scored anew; with its learning curve, if that lies beside it."""
        source = bundle_in(source)
        load_bundle(source)  # A refusal comes before anything is copied.
        bundle = load_bundle(_copy(source, self._config.output))
        curve = source.parent / CURVE_FILE
        if curve.is_file():
            shutil.copy(curve, self._config.output / CURVE_FILE)
        if self._config.episodes == 0:
            return bundle, None, "it was left out"
        evaluation, note = None, ""
        with self._stage("evaluation", f"Score it on {counted(self._config.episodes, 'held-out episode')}"):
            try:
                evaluation = self._evaluate(bundle)
            except GantryError as error:
                note = str(error)
                self._display.say(f"  not scored: {note}")
        return bundle, evaluation, note

    def _evaluate(self, bundle: Bundle) -> dict[str, Any]:
        from gantry_sim.training.evaluate import evaluate_policy
        from gantry_sim.training.policies import open_source

        source = open_source(bundle.path)
        share = self._display.share("evaluate")
        scores = evaluate_policy(
            source.task, source.env_cfg, source.make_policy, episodes=self._config.episodes, on_progress=share
        )
        result = {"task": source.task.name, "training_model": scores}
        write_json(self._config.output / EVALUATION_FILE, result)
        return result

    def _check(self, bundle: Bundle) -> Gate:
        config = RolloutConfig(episodes=self._config.check_episodes, seed=self._config.seed)
        with self._stage("gate", f"Check the bundle, then {counted(config.episodes, 'episode')} in plain MuJoCo"):
            stages: list[Stage] = []
            _, runner = check_static(lambda: load_bundle(bundle.path), stages.append)
            share = self._display.share("check")
            result = run_episodes(runner, config, lambda index, _: share((index + 1) / config.episodes))
            stages += judge_rollout(bundle.contract, result)
            if not bundle.is_signed and bundle.path.is_dir():
                card = make_card(bundle.card, make_report(bundle.contract, stages, config, result))
                update_card(bundle.path, jsonable(card))
            for stage in stages:
                self._display.say(f"  {'pass' if stage.passed else 'FAIL'}  {stage.name}: {stage.text}")
        return Gate(tuple(stages), config, result)

    def _walk(self, bundle: Bundle, profile: Profile) -> tuple[walks.Walk, MeasuredWalk | None, str]:
        """The walk, its recording, and why it was not over ROS 2."""
        config = self._config
        note = walks.ros_trouble() if config.ros else "it was asked to do without"
        over_ros = not note
        title = "Walk over ROS 2: robot, policy and operator as processes" if over_ros else "Walk in this process"
        with self._stage("walk", f"{title}, {config.seconds:g} s"):
            if note:
                self._display.say(f"  without ROS 2: {note}")
            start = walks.walk_over_ros if over_ros else walks.walk_in_process
            walk = start(bundle.path, profile, config.output, self._display.say)
            measured = self._measure(walk)
            if (reason := missed(walk, measured, profile)) and walks.kept_from_time(walk):
                note = f"this machine is too busy for the robot's clock ({(walk.trouble or reason).rstrip('.')})"
                self._display.say(f"  {note}: the same walk in this process, without the clock")
                alone = walks.walk_in_process(bundle.path, profile, config.output, self._display.say, realtime=False)
                walk = walks.without_clock(alone, walk, reason)
                measured = self._measure(walk)
            if walk.trouble:
                self._display.say(f"  not completed: {walk.trouble}")
        return walk, measured, note

    def _measure(self, walk: walks.Walk) -> MeasuredWalk | None:
        try:
            return measure(walk.recording)
        except GantryError as error:
            if not walk.trouble:  # A walk that did not begin has said why, and then there is nothing to read.
                self._display.say(f"  {error}")
            return None

    def _film(self, measured: MeasuredWalk | None) -> tuple[bytes | None, str]:
        if measured is None:
            return None, "nothing was recorded."
        if not self._config.video:
            return None, "it was left out as asked."
        try:
            video = film_mp4(measured, self._display.share("film"))
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


def film_mp4(measured: MeasuredWalk, share: Callable[[float], None]) -> bytes:
    """The film of a walk.

    Raises:
        GantryError: If this machine cannot draw.
    """
    poses = Poses(**{name: getattr(measured, name) for name in Poses.__dataclass_fields__})
    total = len(frame_times(poses, FPS))

    def frames() -> Iterator[Any]:
        for index, frame in enumerate(film(measured.spec, poses, FPS), start=1):
            yield frame
            share(index / total)

    return encode_mp4(frames(), FPS)


def write_outcome(outcome: Outcome) -> Path:
    """Write the numbers and the page; returns the path of the page."""
    from gantry_sim.demo.page import build_page

    write_json(outcome.folder / RESULT, jsonable(as_result(outcome)))
    return build_page(outcome).write(outcome.folder / REPORT)


def as_result(outcome: Outcome) -> dict[str, Any]:
    """The outcome in numbers, for ``--json``."""
    found = outcome.measured
    return {
        "passed": outcome.passed,
        "report": str((outcome.folder / REPORT).resolve()),
        "bundle": str(outcome.bundle.path.resolve()),
        "trained": outcome.trained,
        "provenance": asdict(outcome.bundle.contract.provenance),
        "scores": [asdict(score) | {"passed": score.passed} for score in outcome.scores()],
        "evaluation": outcome.evaluation,
        "gate": {"passed": outcome.gate.passed, "stages": [asdict(stage) for stage in outcome.gate.stages]},
        "walk": {
            "over_ros": outcome.walk.over_ros,
            "note": outcome.walk_note,
            "completed": outcome.walk.completed,
            "trouble": outcome.walk.trouble,
            "earlier_attempts": list(outcome.walk.earlier),
            "recording": str(outcome.walk.recording),
            "ticks": None if found is None else len(found.time_s),
            "distance_m": None if found is None else found.distance_m,
        },
        "video": outcome.video_note or str((outcome.folder / VIDEO).resolve()),
        "stage_s": dict(outcome.stage_s),
    }


def _copy(source: Path, folder: Path) -> Path:
    """The bundle in the demo's own folder, where the gate may write its card.

    Raises:
        GantryError: If the folder is in use, or cannot be written.
    """
    target = folder / (BUNDLE_FOLDER if source.is_dir() else f"{BUNDLE_FOLDER}.zip")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise GantryError(f"'{folder}' is in use already; name another folder for this demo with --output.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return copy_bundle(source, target)
    except OSError as error:
        raise GantryError(f"Cannot copy the bundle '{source}' to '{target}': {error}.") from error
