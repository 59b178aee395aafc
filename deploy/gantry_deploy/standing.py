"""Standing up: from where the robot is held to the default pose, and whether a policy may take over from there."""

from __future__ import annotations

import math

import numpy as np

from gantry_deploy.runner import PolicyRunner
from gantry_deploy.safety import SafetyMachine
from gantry_hardware.spec import RobotSpec
from gantry_hardware.state import JointCommand, RobotState


class Stand:
    """Moves from where the robot is held to the default pose, then holds it.

    Args:
        spec: The robot.
        runner: The policy that will take over, if there is one.
        safety: Its settings say how long standing up takes; its count of modes entered tells one stand from the next.
    """

    def __init__(self, spec: RobotSpec, runner: PolicyRunner | None, safety: SafetyMachine) -> None:
        self._spec = spec
        self._safety = safety
        # The policy's own pose, so that nothing jumps when it takes over, with the robot's holding gains.
        pose = spec.array("default_rad") if runner is None else np.array(runner.contract.default_pos_rad)
        self._goal = JointCommand.position(spec, pose)
        self._duration_s = safety.config.stand_duration_s
        self._from = self._goal.pos_rad
        self._start_s = 0.0
        self._entry = -1

    def begin(self, state: RobotState, last: JointCommand | None, now_s: float, entry: int) -> None:
        """Start with the torque that ``last``, what was sent before, asks for at the measured pose.

        From a limp robot that is the measured pose itself. A policy's target lies beyond the measured pose by what
        carries the weight; a start without that would drop the robot. ``entry`` is the safety machine's count.
        """
        self._from, self._start_s, self._entry = state.joint_pos_rad.copy(), now_s, entry
        if last is not None:
            share = last.stiffness_nm_rad / np.maximum(self._goal.stiffness_nm_rad, 1e-9)
            self._from += np.minimum(share, 1.0) * (last.pos_rad - state.joint_pos_rad)

    def command(self, now_s: float) -> JointCommand:
        """The pose of now, along a cosine ramp that starts and ends at rest."""
        share = min(1.0, max(0.0, (now_s - self._start_s) / self._duration_s))
        blend = 0.5 - 0.5 * math.cos(math.pi * share)
        return self._goal.with_pos(self._from + blend * (self._goal.pos_rad - self._from))

    def refusal(self, state: RobotState | None, now_s: float) -> str | None:
        """Why the policy may not take over yet, or None."""
        # A stand that was granted but not ticked yet has another count than the last one that began.
        begun = self._entry == self._safety.entries
        left_s = self._start_s + self._duration_s - now_s if begun else self._duration_s
        if left_s > 1e-6 or state is None:
            return f"the robot is still standing up, {left_s:.1f} s to go."
        error = np.abs(state.joint_pos_rad - self._goal.pos_rad)
        worst = int(np.argmax(error))
        if not error[worst] <= self._safety.config.stand_tolerance_rad:
            return (
                f"joint '{self._spec.joint_names[worst]}' is {error[worst]:.2f} rad from the standing pose, "
                f"allowed are {self._safety.config.stand_tolerance_rad} rad."
            )
        return None
