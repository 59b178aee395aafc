"""Episodes of a policy in a simulated robot, through the runtime's own loop and safety."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import Event, Mode, SafetyMachine
from gantry_deploy.errors import SafetyError
from gantry_deploy.evaluation.perturbations.perturbation import Push, draw_pushes
from gantry_deploy.evaluation.scenario import (
    PUSH_STREAM,
    End,
    Episode,
    FloatArray,
    RolloutConfig,
    RolloutResult,
    Scenario,
    scenario_class,
)
from gantry_deploy.perception.maps import make_map_source
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.backend import Robot
from gantry_hardware.errors import RobotError
from gantry_hardware.model.capabilities import HasPush, missing_methods

START_PATIENCE_S = 1.0
"""Time after standing up for which a refused start is tried again, while the legs settle."""


def run_episodes(
    runner: PolicyRunner,
    config: RolloutConfig,
    on_episode: Callable[[int, Episode], None] | None = None,
    scenario: Scenario | None = None,
) -> RolloutResult:
    """Run every episode: stand up, then the policy until the scenario ends it or its time is over.

    Args:
        runner: The policy; its robot is simulated.
        config: Conditions.
        on_episode: Told of each episode that is over, with its index.
        scenario: What is asked and counted; if not given, that of the contract.

    Raises:
        ContractError: If the policy is of another sort than the scenario, or sees what the backend does not show.
        RobotError: If the backend is missing or lacks a capability.
    """
    scenario = scenario or scenario_class(runner.contract)(runner, config)
    episodes = []
    for index in range(config.episodes):
        robot = scenario.make_robot(index)
        episode = _EpisodeRun(scenario, robot, runner, _pushes(scenario, robot, config, index)).run()
        episodes.append(episode)
        if on_episode is not None:
            on_episode(index, episode)
    return RolloutResult(tuple(episodes), scenario.summarise(episodes), scenario.short_of_s())


def _pushes(scenario: Scenario, robot: Robot, config: RolloutConfig, index: int) -> Sequence[Push]:
    """Pushes of an episode; none without a perturbation that has some."""
    if config.perturbation is None or config.perturbation.pushes is None:
        return ()
    if lacking := missing_methods(robot, HasPush):
        raise RobotError(f"Backend '{config.backend}' cannot be pushed; it lacks: {', '.join(lacking)}.")
    rng = np.random.default_rng((config.seed, index, PUSH_STREAM))
    return draw_pushes(config.perturbation.pushes, scenario.length_s(), rng)


class _EpisodeRun:
    """Drives a controller through one episode: stand up, then the policy, until it ends or its time is over.

    Args:
        scenario: What is asked and counted.
        robot: Simulated, not yet connected; it is closed after :meth:`run`.
        runner: The policy.
        pushes: Of the robot's base, in order.
    """

    def __init__(self, scenario: Scenario, robot: Robot, runner: PolicyRunner, pushes: Sequence[Push]) -> None:
        contract = runner.contract
        self._pushes = deque(pushes)
        self._scenario, self._rate_hz = scenario, contract.rate_hz
        self._controller = Controller(
            robot,
            runner,
            SafetyMachine(runner.spec),
            map_source=make_map_source(contract, robot, runner.mapper_model),
            surroundings=runner.embodiment.surroundings_source(contract, robot),
        )
        self._total = max(1, round(scenario.length_s() * contract.rate_hz))
        self._asked: FloatArray | None = None
        self._standing_since_s: float | None = None
        self._stood = False
        self._steps = 0
        self._fault, self._reason = "", ""

    def run(self) -> Episode:
        """Run the episode."""
        robot, scenario = self._controller.robot, self._scenario
        scenario.begin(self._controller)
        try:
            robot.connect()
            self._run()
        finally:
            robot.close()
        failed = bool(self._reason)
        return Episode(
            seconds=self._steps / self._rate_hz,
            failed=failed,
            fault=self._fault,
            reason=self._reason,
            scores=scenario.measured(failed),
            conditions=scenario.drawn_conditions(),
        )

    def _run(self) -> None:
        report = self._controller.tick()  # Look at the robot once, so that a fault refuses the stand by its reason.
        try:
            self._controller.request(Event.STAND)
        except SafetyError as error:
            self._end(str(error), report)
            return
        self._controller.run(command_input=self._command, on_tick=self._on_tick)

    def _command(self, time_s: float) -> FloatArray | None:
        if self._controller.safety.mode is not Mode.POLICY:
            return None
        # The tick that is about to begin is number `steps` of the policy, plus one that is still unscored.
        return self._scenario.command((self._steps + (self._asked is not None)) / self._rate_hz)

    def _on_tick(self, report: TickReport) -> None:
        end: End | None = None
        if self._asked is not None:
            end = self._scenario.judge(self._asked)
            self._steps += 1
            self._push()
        self._asked = report.requested if report.mode is Mode.POLICY else None
        if report.mode is Mode.DAMP:
            self._end(report.fault.text if report.fault is not None else "damped", report)
        elif report.mode is Mode.STAND:
            self._while_standing(report)
        elif end is not None:
            self._end(end.text, report)
        elif self._steps >= self._total:
            self._controller.stop()

    def _push(self) -> None:
        """Push the robot where it is time to."""
        robot: Any = self._controller.robot
        while self._pushes and self._pushes[0].time_s <= self._steps / self._rate_hz:
            robot.push(np.array(self._pushes.popleft().vel_change_in_world_m_s))

    def _while_standing(self, report: TickReport) -> None:
        over_s = self._stood_s(report)
        if over_s < 0.0:
            return
        if not self._stood:
            self._stood = True
            self._scenario.stood_up()
        try:
            self._controller.request(Event.START)
        except SafetyError as error:
            if over_s >= START_PATIENCE_S:
                self._end(str(error), report)

    def _stood_s(self, report: TickReport) -> float:
        """Time since standing up was over; negative before."""
        if self._standing_since_s is None:
            self._standing_since_s = report.time_s
        return report.time_s - self._standing_since_s - self._controller.stand_duration_s

    def _end(self, reason: str, report: TickReport) -> None:
        self._reason = reason
        self._fault = report.fault.code.value if report.mode is Mode.DAMP and report.fault is not None else ""
        self._controller.stop()
