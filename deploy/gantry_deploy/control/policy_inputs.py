"""Inputs of a policy beside the robot's state: map window, pictures and surroundings, fetched for one step."""

from __future__ import annotations

import numpy as np

from gantry_deploy.control.ticks import Tick
from gantry_deploy.errors import SafetyError
from gantry_deploy.observations.builder import needed_signals
from gantry_deploy.perception.images import MOVING_RAD_S, make_picture_source
from gantry_deploy.perception.maps import MapSource, require_source
from gantry_deploy.perception.road import SurroundingsSource, require_surroundings
from gantry_deploy.policy.runner import Decide, PolicyRunner, PolicyStep
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import RobotState

VELOCITY = "lin_vel_base_in_base_m_s"
"""Signal that only a robot with an estimator or odometry reports."""


class PolicyInputs:
    """Asks a policy with everything that it sees.

    Args:
        runner: The policy.
        robot: A robot that takes the pictures which the policy sees.
        map_source: For a policy that sees a map.
        surroundings: For a policy that drives a car.
        surroundings_timeout_s: Greatest age of the surroundings.

    Raises:
        ContractError: If the policy sees something that has no source.
    """

    def __init__(
        self,
        runner: PolicyRunner,
        robot: Robot,
        map_source: MapSource | None,
        surroundings: SurroundingsSource | None,
        surroundings_timeout_s: float,
    ) -> None:
        require_source(runner.contract, map_source)
        require_surroundings(runner.contract, surroundings)
        self.runner = runner
        self._map_source, self._surroundings = map_source, surroundings
        self._pictures = make_picture_source(runner.contract, robot)
        self._timeout_s = surroundings_timeout_s

    def lacking(self, state: RobotState) -> str | None:
        """Estimate that the policy observes and the robot does not report, or None."""
        if VELOCITY in needed_signals(self.runner.contract) and state.lin_vel_base_in_base_m_s is None:
            return "the policy observes the base's linear velocity, and the robot has no estimator that reports it."
        return None

    def refusal(self, now_s: float, state: RobotState | None) -> str | None:
        """Input without which the policy must not start, or None; ``state`` is the newest reading."""
        if state is not None and (lacking := self.lacking(state)) is not None:
            return lacking
        if self._map_source is not None and self._map_source.lost(now_s):
            return "the policy looks at a map, and none has come for a while."
        if self.runner.contract.instruction is not None and not self.runner.instruction:
            return "the policy waits for an instruction, and none has been given."
        return None if self._surroundings is None else self._surroundings.missing(now_s, self._timeout_s)

    def step(self, tick: Tick, decide: Decide | None = None) -> PolicyStep:
        """One step of the policy with the inputs of a tick; ``decide`` as in :meth:`PolicyRunner.step`.

        Raises:
            SafetyError: If the robot has reported no state yet.
        """
        state, now_s = tick.state, tick.now_s
        if state is None:
            raise SafetyError("The policy needs a state, and the robot has reported none yet.")
        window = None if self._map_source is None else self._map_source.window(state, now_s)
        moving = bool(np.abs(state.joint_vel_rad_s).max(initial=0.0) > MOVING_RAD_S)
        images = None if self._pictures is None else self._pictures.newest(now_s, moving=moving)
        around = None if self._surroundings is None else self._surroundings.newest(state, now_s, self._timeout_s)
        return self.runner.step(state, tick.requested, window, images, around, decide)
