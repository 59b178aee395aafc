"""The episodes that a demo of an arm records: over ROS 2 as processes of their own, or in this process without it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import Event, Mode, SafetyConfig, SafetyMachine
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.recorder import Recorder
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.workbench_robot import BenchRobot
from gantry_sim.demo import walk as walks
from gantry_sim.training.run_files import EVALUATION_SEED, write_json
from gantry_sim.training.run_validation import read_run_file

TRIALS, ROBOT = "trials.json", "robot.json"
"""Files of the episodes in their folder, beside those of :mod:`gantry_sim.demo.walk`."""
SEED = EVALUATION_SEED + 2
"""Of where things lie; neither a training nor a score has seen them."""
THROUGH = "Done."
"""Message of the operator when all episodes are over."""
HOLD_S = 0.7
"""The arm is held so long after an episode, so that its end can be seen."""
ROUTINE = ("Mode STAND.", "Mode POLICY.", "Mode PASSIVE.", "Joint commands arrive.")
"""Messages of the nodes in every episode; for the log alone."""
OVERHEAD_S = 8.0
"""Time that an episode may take beside its own: laying out, moving to the start, holding, asking."""

_SETUP: dict[str, dict[str, Any]] = {
    "policy_node": {"connect_timeout_s": 90.0, "diagnostics_rate_hz": 20.0, "safety.state_timeout_s": 0.1},
    "sim_robot_node": {"diagnostics_rate_hz": 20.0, "watchdog_s": 0.2},
}


@dataclass(frozen=True)
class Trial:
    """One episode as its operator saw it."""

    done: bool
    """Whether the simulator said that the task was done."""
    done_s: float | None = None
    """Time of success on the clock of the recording; None if never."""
    reason: str = ""
    """Reason for another end; empty if it was done."""


@dataclass(frozen=True)
class TrialsConfig:
    """Settings of the arm's trials."""

    task: str
    """Manipulation task."""
    episodes: int = 10
    """Number of episodes, the object laid anew for each."""
    episode_s: float = 5.0
    """Longest time under the policy in each."""
    seed: int = SEED
    """Of where things lie."""


def trials_over_ros(bundle: Path, config: TrialsConfig, folder: Path, say: walks.Say) -> walks.Walk:
    """Robot, policy and scripted operator as processes, as ``gantry launch sim_arm`` starts them.

    Args:
        bundle: The policy.
        config: What is asked.
        folder: Gets recording, log, statistics and what the operator saw, :func:`read_trials`.
        say: Takes lines for people.

    Returns:
        How it went. Every process that this started is gone, also when an exception leaves this function.
    """
    walks.write_setup(folder / walks.SETUP, _SETUP)
    given = {
        "bundle": bundle.resolve(),
        "task": config.task,
        "seed": config.seed,
        "record": (folder / walks.RECORDING).resolve(),
        "statistics": (folder / walks.STATISTICS).resolve(),
        "robot_statistics": (folder / ROBOT).resolve(),
        "config": (folder / walks.SETUP).resolve(),
        "auto_start": "false",
        "episodes": config.episodes,
        "episode_seconds": config.episode_s,
        "episode_results": (folder / TRIALS).resolve(),
    }

    def arguments(attempt: int) -> Mapping[str, Any]:
        for name in (walks.RECORDING, walks.STATISTICS, ROBOT, TRIALS):
            (folder / name).unlink(missing_ok=True)  # What an earlier attempt left is not of this one.
        return given

    def say_news(text: str) -> None:
        if not text.endswith(ROUTINE):
            say(text)

    limit_s = walks.START_TIMEOUT_S + config.episodes * (config.episode_s + OVERHEAD_S)
    return walks.launched("sim_arm", arguments, folder, say_news, limit_s, THROUGH)


def trials_in_process(
    bundle: Path, config: TrialsConfig, folder: Path, say: walks.Say, *, realtime: bool = True
) -> walks.Walk:
    """The same episodes through the same loop on the same simulated arm, without ROS.

    Args:
        bundle: The policy.
        config: What is asked.
        folder: Gets recording, statistics and what the operator saw, :func:`read_trials`.
        say: Takes lines for people.
        realtime: As in :func:`gantry_sim.demo.walk.walk_in_process`.
    """
    loaded = load_bundle(bundle)
    spec = robot_spec(loaded.contract.robot)

    def attempt(number: int) -> walks.Walk:
        paced = realtime and number == 0
        with contextlib.ExitStack() as stack:
            robot = BenchRobot(spec, task=config.task, seed=config.seed, realtime=paced)
            stack.callback(robot.close)
            recorder = Recorder(folder / walks.RECORDING, loaded.contract, spec, lossless=not paced)
            stack.callback(recorder.close)
            robot.connect()
            safety = SafetyMachine(spec, SafetyConfig(state_timeout_s=_SETUP["policy_node"]["safety.state_timeout_s"]))
            controller = Controller(robot, PolicyRunner(loaded, spec), safety, recorder)
            trials: list[Trial] = []
            while len(trials) < config.episodes and safety.fault is None:
                trials.append(_Operator(controller, robot, config.episode_s).run())
                say(f"  {in_words(len(trials), config.episodes, trials[-1])}")
        write_json(folder / TRIALS, {"episodes": [asdict(trial) for trial in trials]})
        write_json(folder / walks.STATISTICS, controller.statistics())
        trouble = (recorder.failure or "") if safety.fault is None else safety.fault.text
        return walks.Walk(False, folder / walks.RECORDING, not trouble, trouble, paced=paced)

    return walks.repeated(attempt, say)


def read_trials(folder: Path) -> tuple[Trial, ...]:
    """Results that the operator's node noted, in order; empty if it left no note."""
    try:
        rows = read_run_file(folder / TRIALS)["episodes"]
        return tuple(Trial(bool(row["done"]), row["done_s"], str(row["reason"])) for row in rows)
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def in_words(number: int, total: int, trial: Trial) -> str:
    """Outcome of an episode, counted from 1, in a line."""
    return f"Episode {number} of {total}: {'done' if trial.done else trial.reason}."


class _Operator:
    """Sees one episode through: object laid anew, arm at its start, policy until the task is done or time is over."""

    def __init__(self, controller: Controller, robot: BenchRobot, episode_s: float) -> None:
        self._controller, self._robot, self._episode_s = controller, robot, episode_s
        self._trial: Trial | None = None
        self._began_s = self._ended_s = 0.0

    def run(self) -> Trial:
        """The episode; the controller is passive afterwards, unless a fault has damped it.

        Raises:
            GantryError: If the arm may not move.
        """
        robot, controller = self._robot, self._controller
        robot.reset()
        if robot.goal_in_base_m is not None:
            controller.set_command(robot.goal_in_base_m, robot.now_s())
        controller.tick()  # Look at the arm once, so that a fault refuses by its reason.
        controller.request(Event.STAND)
        controller.run(on_tick=self._on_tick)
        if self._trial is None:
            raise GantryError("The arm never came under the policy.")
        return self._trial

    def _on_tick(self, report: TickReport) -> None:
        if report.mode is Mode.DAMP:
            self._trial = Trial(False, reason="damped" if report.fault is None else report.fault.text.rstrip("."))
            self._controller.stop()
        elif report.mode is Mode.POLICY:
            self._watch(report.time_s)
        elif report.mode is Mode.PASSIVE and self._trial is not None:
            self._controller.stop()
        elif report.mode is Mode.STAND:
            if self._trial is None:
                with contextlib.suppress(GantryError):  # Still on its way to the start; the next tick asks again.
                    self._controller.request(Event.START)
            elif report.time_s - self._ended_s >= HOLD_S:
                self._controller.request(Event.STOP)

    def _watch(self, now_s: float) -> None:
        if self._trial is not None:
            return
        self._began_s = self._began_s or now_s
        if self._robot.task_done:
            self._trial = Trial(True, now_s)
        elif self._robot.task_lost:
            self._trial = Trial(False, reason="the object is out of reach")
        elif now_s - self._began_s >= self._episode_s:
            self._trial = Trial(False, reason=f"not done within {self._episode_s:g} s")
        else:
            return
        self._ended_s = now_s
        self._controller.request(Event.STOP)
