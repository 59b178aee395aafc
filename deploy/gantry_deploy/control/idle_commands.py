"""Commands while no policy runs: the way to the default pose, nothing or no torque, and the brake.

A legged robot without torque sinks to the ground it stands on, and damping lets it sink slowly. An arm without torque
falls onto whatever it works on and drops what it holds, and so does a damped one, only slower. So an arm is held: DAMP
keeps the joints where they are and the gripper closed around what it had, and PASSIVE sends nothing, which leaves the
arm to its holder, its brakes or its own controller. That is also what position controllers do when commands end.
No mode but POLICY opens a gripper. Of a mechanism the joints with a motor go to the default pose; the others are held
by hand until the policy starts.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.mechanism_spec import MechanismSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.control.modes import Role, Transition
from gantry_deploy.control.safety_config import SafetyConfig
from gantry_deploy.control.ticks import Tick
from gantry_deploy.embodiments.registry import embodiment_of, embodiment_of_robot
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.plugins import load_named

START_MARGIN_RAD = 0.05
"""A mechanism's policy may start this far outside the positions at which its training began, rad or m."""
WIDE_OPEN = 0.9
"""A gripper that is open by this share holds nothing."""


class IdleCommands(Protocol):
    """Commands of a kind of robot while no task source acts."""

    duration_s: float
    """Duration of the newest way to the standing pose, s."""

    def begin_stand(self, tick: Tick) -> None:
        """STAND is entered; ``tick.last`` is what the joints follow until now."""

    def stand(self, tick: Tick) -> JointCommand:
        """Command of STAND."""
        ...

    def passive(self) -> JointCommand | None:
        """Command of PASSIVE; None for nothing."""
        return None

    def refusal(self, transition: Transition, state: RobotState | None, now_s: float) -> str | None:
        """Reason for which no task source may take over yet, or None.

        Args:
            transition: The newest one; a stand that was granted but has not ticked has another one than the last stand.
            state: The newest reading.
            now_s: On the robot's clock.
        """
        ...

    def begin_brake(self, tick: Tick) -> None:
        """The brake takes over, or DAMP is entered while it acts already."""

    def brake(self, tick: Tick) -> JointCommand | None:
        """Command of DAMP; None for nothing."""
        ...

    def final(self, command: JointCommand | None) -> JointCommand | None:
        """Command of the brake in a form that nothing needs to follow."""
        return command

    def is_braking(self, now_s: float) -> bool:
        """Whether the brake is still on its way to rest and needs commands; one that damps or holds needs none."""
        return False


def make_idle_commands(
    spec: RobotSpec, contract: PolicyContract | None, config: SafetyConfig, dt_s: float
) -> IdleCommands:
    """Make the idle commands for the kind of robot.

    Args:
        spec: The robot.
        contract: That of the policy that will take over, if there is one.
        config: Durations and tolerances.
        dt_s: Time between two commands.
    """
    return load_named(embodiment_of_robot(spec).idle_commands)(spec, contract, config, dt_s)


class JointIdleCommands(IdleCommands):
    """Idle commands of legs and arms: a way to the default pose, then damping, or an arm held where it was.

    Args:
        spec: The robot.
        contract: That of the policy that will take over, if there is one.
        config: Duration, speed and tolerance of standing up.
        dt_s: Time between two commands.
    """

    def __init__(self, spec: RobotSpec, contract: PolicyContract | None, config: SafetyConfig, dt_s: float) -> None:
        del dt_s  # Damping and holding do not depend on it.
        self._spec, self._config, self._holds = spec, config, embodiment_of_robot(spec).holds_position
        # The policy's own pose, so that nothing jumps when it takes over, with the robot's holding gains.
        pose = spec.array("default_rad") if contract is None else np.array(contract.default_pos_rad)
        self._goal = self._default = JointCommand.position(spec, pose)
        self._grip = None if contract is None else embodiment_of(contract).gripper_range_m(contract)
        self.duration_s = config.stand_duration_s
        self._from, self._start_s = pose, 0.0
        self._begun: Transition | None = None
        self._passive = None if self._holds else JointCommand.passive(spec)
        self._brake = None if self._holds else JointCommand.damping(spec)

    def begin_stand(self, tick: Tick) -> None:
        """Start with the torque that the last command asks for at the measured pose.

        From a limp robot that is the measured pose itself. A policy's target lies beyond the measured pose by what
        carries the weight; a start without that would drop the robot. An arm takes the time that it needs.
        """
        state, last = tick.state, tick.last
        if state is None:
            return
        self._from, self._start_s, self._begun = state.joint_pos_rad.copy(), tick.now_s, tick.transition
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
        way = float(np.abs(self._goal.pos_rad - self._from).max())
        self.duration_s = max(self._config.stand_duration_s, 0.5 * math.pi * way / self._config.arm_speed_rad_s)

    def stand(self, tick: Tick) -> JointCommand:
        """The pose of now, along a cosine ramp that starts and ends at rest."""
        share = min(1.0, max(0.0, (tick.now_s - self._start_s) / self.duration_s))
        blend = 0.5 - 0.5 * math.cos(math.pi * share)
        return self._goal.with_pos(self._from + blend * (self._goal.pos_rad - self._from))

    def passive(self) -> JointCommand | None:
        """No torque; None for an arm."""
        return self._passive

    def refusal(self, transition: Transition, state: RobotState | None, now_s: float) -> str | None:
        """Time that standing up still takes, or the joint that did not follow."""
        left_s = self._start_s + self.duration_s - now_s if self._begun == transition else self.duration_s
        if left_s > 1e-6 or state is None:
            return f"the robot is still standing up, {left_s:.1f} s to go."
        error = np.abs(state.joint_pos_rad - self._goal.pos_rad)
        worst = int(np.argmax(error))
        if not error[worst] <= self._config.stand_tolerance_rad:
            return (
                f"joint '{self._spec.joint_names[worst]}' is {error[worst]:.2f} rad from the standing pose, "
                f"allowed are {self._config.stand_tolerance_rad} rad."
            )
        return None

    def begin_brake(self, tick: Tick) -> None:
        """Hold an arm where it is, or at what was sent last, a good target then, where its state is old or none.

        An arm that was never commanded is left alone, and one that is braked already stays where it is held.
        """
        if self._holds and (self._brake is None or tick.last_role is not Role.BRAKE):
            self._brake = None if tick.last is None else JointCommand.position(self._spec, self._held(tick, tick.last))

    def brake(self, tick: Tick) -> JointCommand | None:
        """Damping, or an arm's pose."""
        return self._brake

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

    def _held(self, tick: Tick, last: JointCommand) -> NDArray[np.float64]:
        """The pose to hold, (n,)."""
        state = tick.state
        fresh = state is not None and abs(tick.now_s - state.stamp_s) <= self._config.state_timeout_s
        if state is None or not fresh or not np.isfinite(state.joint_pos_rad).all():
            return last.pos_rad
        # An arm that presses on something stops pressing; a gripper goes on, or it would drop what it holds.
        return np.where(_of_gripper(self._spec), last.pos_rad, state.joint_pos_rad)


class MechanismIdleCommands(JointIdleCommands):
    """Idle commands of a mechanism. A policy starts only from positions as in its training.

    Args:
        spec: The robot.
        contract: That of the policy that will take over, if there is one.
        config: Duration and tolerance of the way to the default pose.
        dt_s: Time between two commands.
    """

    def __init__(self, spec: RobotSpec, contract: PolicyContract | None, config: SafetyConfig, dt_s: float) -> None:
        super().__init__(spec, contract, config, dt_s)
        body: MechanismSpec | None = None if contract is None else contract.body
        ends = () if body is None else zip(body.start_lower_rad, body.start_upper_rad, strict=True)
        self._starts = dict(zip(spec.joint_names, ends, strict=False))

    def refusal(self, transition: Transition, state: RobotState | None, now_s: float) -> str | None:
        """Time that the way still takes, or the joint that is not where training began."""
        found = super().refusal(transition, state, now_s)
        if found is not None or state is None:
            return found
        for (joint, (lower, upper)), pos in zip(self._starts.items(), state.joint_pos_rad.tolist(), strict=False):
            if not lower - START_MARGIN_RAD <= pos <= upper + START_MARGIN_RAD:
                return (
                    f"joint '{joint}' is at {pos:.2f}, and the policy was trained to start from {lower:.2f} to "
                    f"{upper:.2f} (rad, or m where it slides). A joint without a motor is held there by hand."
                )
        return None


def _of_gripper(spec: RobotSpec) -> NDArray[np.bool_]:
    """Shape (n,), the joints that are a gripper's."""
    return np.array([name in spec.gripper_joints for name in spec.joint_names])
