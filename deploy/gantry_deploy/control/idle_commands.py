"""Commands while no policy runs: the way to the default pose, nothing or no torque, and the brake.

A legged robot without torque sinks to the ground it stands on, and damping lets it sink slowly. An arm without torque
falls onto whatever it works on and drops what it holds, and so does a damped one, only slower. So an arm is held: DAMP
keeps the joints where they are and the gripper closed around what it had, and PASSIVE sends nothing, which leaves the
arm to its holder, its brakes or its own controller. That is also what position controllers do when commands end.
No mode but POLICY opens a gripper.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.control.safety import Mode, SafetyMachine
from gantry_deploy.embodiments.registry import embodiment_of_robot
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.spec import RobotSpec
from gantry_hardware.state import JointCommand, RobotState

WIDE_OPEN = 0.9
"""A gripper that is open by this share holds nothing."""


class Stand:
    """Moves from where the robot is held to the default pose, then holds it; an arm takes the time that it needs.

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
        self._default = JointCommand.position(spec, pose)
        self._goal = self._default
        self._holds = embodiment_of_robot(spec).holds_position
        self._grip = None if runner is None else runner.embodiment.gripper_range_m(runner.contract)
        self.duration_s = safety.config.stand_duration_s
        """How long the newest stand takes."""
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
        if not self._holds:
            return
        gripper = _of_gripper(self._spec)
        self._goal = self._default.with_pos(np.where(gripper, self._keep(state, last), self._default.pos_rad))
        # At once, or what it holds would slip while it closes slowly.
        self._from = np.where(gripper, self._goal.pos_rad, self._from)
        # A cosine ramp is pi / 2 times as fast in its middle as on average.
        way = np.abs(self._goal.pos_rad - self._from).max()
        config = self._safety.config
        self.duration_s = max(config.stand_duration_s, 0.5 * math.pi * float(way) / config.arm_speed_rad_s)

    def _keep(self, state: RobotState, last: JointCommand | None) -> NDArray[np.float64]:
        """Target of a gripper, (n,): its last command, so that it drops nothing. Where it has had no command
        and is not wide open, something may be between its fingers, and it is told to close."""
        if last is not None:
            return last.pos_rad
        if self._grip is None:
            return state.joint_pos_rad
        closed, opened = self._grip
        share = (state.joint_pos_rad - closed) / (opened - closed)
        return np.where(share > WIDE_OPEN, state.joint_pos_rad, closed)

    def command(self, now_s: float) -> JointCommand:
        """The pose of now, along a cosine ramp that starts and ends at rest."""
        share = min(1.0, max(0.0, (now_s - self._start_s) / self.duration_s))
        blend = 0.5 - 0.5 * math.cos(math.pi * share)
        return self._goal.with_pos(self._from + blend * (self._goal.pos_rad - self._from))

    def refusal(self, state: RobotState | None, now_s: float) -> str | None:
        """Reason for which the policy may not take over yet, or None."""
        # A stand that was granted but not ticked yet has another count than the last one that began.
        begun = self._entry == self._safety.entries
        left_s = self._start_s + self.duration_s - now_s if begun else self.duration_s
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


class Postures:
    """The command of every mode but POLICY.

    Args:
        spec: The robot.
        runner: The policy that will take over, if there is one.
        safety: The judge; its settings and its count of modes entered.
        dt_s: Time between two commands.
    """

    def __init__(self, spec: RobotSpec, runner: PolicyRunner | None, safety: SafetyMachine, dt_s: float) -> None:
        self.stand = Stand(spec, runner, safety)
        """The way to the default pose."""
        self._spec, self._safety = spec, safety
        self._holds = embodiment_of_robot(spec).holds_position
        self._passive = None if self._holds else JointCommand.passive(spec)
        self._damping = JointCommand.damping(spec)
        self._hold: JointCommand | None = None

    def begin(self, mode: Mode, state: RobotState | None, last: JointCommand | None, now_s: float, entry: int) -> None:
        """A mode is entered.

        Args:
            mode: The new one.
            state: The newest reading.
            last: What was sent last.
            now_s: On the robot's clock.
            entry: The safety machine's count.
        """
        if mode is Mode.STAND and state is not None:
            self.stand.begin(state, last, now_s, entry)

    def command(self, mode: Mode, state: RobotState | None, now_s: float) -> JointCommand | None:
        """Command of STAND and PASSIVE; None for nothing. Legs and arms stand up whatever ``state`` says."""
        self.release()
        return self.stand.command(now_s) if mode is Mode.STAND else self._passive

    def release(self) -> None:
        """The robot does something else than braking: the next brake holds it where it is then."""
        self._hold = None

    def brake(self, state: RobotState | None, last: JointCommand | None, now_s: float) -> JointCommand | None:
        """Command of DAMP: damping, or an arm held where it was when it was first asked to brake.

        Where an arm's state is old or no state, it is held at what was sent last, which was a good target then. An
        arm that was never commanded is left alone.

        Args:
            state: The newest reading.
            last: What was sent last, None for nothing.
            now_s: On the robot's clock.
        """
        if not self._holds:
            return self._damping
        if self._hold is None and last is not None:
            self._hold = JointCommand.position(self._spec, self._held(state, last, now_s))
        return self._hold

    def last_word(self, state: RobotState | None, last: JointCommand | None, now_s: float) -> JointCommand | None:
        """Command that DAMP would send, where nothing may follow it."""
        return self.brake(state, last, now_s)

    def braking(self, now_s: float) -> bool:
        """Whether the robot has to be told more than once to come to rest; damping and holding do by themselves."""
        return False

    def _held(self, state: RobotState | None, last: JointCommand, now_s: float) -> NDArray[np.float64]:
        """The pose to hold, (n,)."""
        fresh = state is not None and abs(now_s - state.stamp_s) <= self._safety.config.state_timeout_s
        if state is None or not fresh or not np.isfinite(state.joint_pos_rad).all():
            return last.pos_rad
        # An arm that presses on something stops pressing; a gripper goes on, or it would drop what it holds.
        return np.where(_of_gripper(self._spec), last.pos_rad, state.joint_pos_rad)


def _of_gripper(spec: RobotSpec) -> NDArray[np.bool_]:
    """Shape (n,), the joints that are a gripper's."""
    return np.array([name in spec.gripper_joints for name in spec.joint_names])
