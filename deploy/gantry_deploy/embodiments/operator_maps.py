"""Maps from an operator's device to actions in the policy's own frame, one for each kind of robot.

An embodiment names its map by text (:attr:`gantry_deploy.embodiments.embodiment.Embodiment.operator_map`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.arm import ArmDecoder
from gantry_deploy.actions.drive import DriveDecoder
from gantry_deploy.actions.kinematics import rotation_error
from gantry_deploy.contract.arm_spec import BODY_TARGET, ArmSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.observations.signals import Signals
from gantry_deploy.policy.runner import PolicyOutput
from gantry_deploy.teleop.operator import Axis, OperatorInput
from gantry_hardware.plugins import load_named

FloatArray = NDArray[np.float32]

GRIPPER_PRESSED = 0.5
"""A gripper axis beyond it closes or opens."""
HAND_STEP_M = 0.02
"""Largest step of the hand per control step, for a policy whose action moves the joints."""


class OperatorMap(Protocol):
    """Conversion of an operator's motion. It belongs to the control loop's thread."""

    axes: tuple[Axis, ...]
    """Axes that move something."""
    corrects_command: bool
    """Whether the person corrects the command that the policy follows, instead of its action."""
    gripper: int | None
    """Place of a gripper in the action; None without one."""

    def begin(self) -> None:
        """Start: the person takes over, and a gripper stays as it is."""
        ...

    def action(self, given: OperatorInput, seen: PolicyOutput | None) -> FloatArray:
        """Action (a,), or of a map that corrects the command that command (c,), in the contract's units.

        Args:
            given: Reading of the device.
            seen: Observation and answer of the policy; None before it is asked, where a command is corrected.
        """
        ...

    def hold(self, seen: PolicyOutput | None) -> FloatArray:
        """Action (a,) or command (c,) with which the robot holds still; arguments as of :meth:`action`."""
        ...


def make_operator_map(contract: PolicyContract) -> OperatorMap:
    """The map of a contract's embodiment."""
    return load_named(embodiment_of(contract).operator_map)(contract)


class ArmMap:
    """Steps of an arm's end effector, turns where the policy turns it, and a gripper that stays where it was put.

    A leader arm is followed by the end effector, or by the joints if these are what the policy moves; from where both
    are as the person takes over, so that taking over moves nothing.

    Args:
        contract: Of an arm.
    """

    corrects_command = False

    def __init__(self, contract: PolicyContract) -> None:
        arm, like = contract.body_as(ArmSpec), np.zeros((1, 1), dtype=np.float32)
        self._arm, self._contract = arm, contract
        self._moves_ee = contract.action.kind == BODY_TARGET
        self._turns = arm.max_turn_rad > 0.0
        self._scale = np.array(contract.action.scale, dtype=np.float32)
        self._offset = np.array(contract.action.offset_rad, dtype=np.float32)
        self._clip = contract.action.clip
        names = contract.joint_names
        self._joint = names.index(arm.gripper_joint) if arm.gripper_joint else None
        self.gripper = None if self._joint is None else (len(self._scale) - 1 if self._moves_ee else self._joint)
        self._hand = ArmDecoder(_of_hand(contract, arm), like)
        self._grip: float | None = None
        """Place of the gripper as an action, once the person has moved it; None as it is."""
        self._clutch: FloatArray | None = None
        """Joints of this arm minus those of the leader (n,), as the person took over; None before."""
        turns = (Axis.ROLL, Axis.PITCH, Axis.YAW) if self._turns or not self._moves_ee else ()
        self.axes = (Axis.X, Axis.Y, Axis.Z, *turns, *((Axis.GRIPPER,) if self.gripper is not None else ()))

    def begin(self) -> None:
        """Keep the gripper as its last target has it, and a leader arm where it is: nothing jumps."""
        self._grip, self._clutch = None, None

    def action(self, given: OperatorInput, seen: PolicyOutput | None) -> FloatArray:
        """See :meth:`OperatorMap.action`: an action (a,), dimensionless, in the base frame."""
        if given.action is not None:
            return np.clip(given.action, -self._clip, self._clip)
        asked = given.axes.get(Axis.GRIPPER, 0.0)
        if abs(asked) > GRIPPER_PRESSED:
            self._grip = float(np.sign(asked))
        targets, signals = _targets(seen), _signals(seen)
        if given.joint_pos_rad is not None:
            return self._follow(given.joint_pos_rad.astype(np.float32), targets)
        keys = (Axis.X, Axis.Y, Axis.Z, Axis.ROLL, Axis.PITCH, Axis.YAW)
        motion = np.array([given.axes.get(axis, 0.0) for axis in keys], dtype=np.float32)
        return self._of_motion(motion, targets, signals.joint_pos_rad)

    def hold(self, seen: PolicyOutput | None) -> FloatArray:
        """The same targets again, as an action (a,)."""
        return self._of_joints(_targets(seen), _targets(seen))

    def _of_motion(self, motion: FloatArray, targets: FloatArray, joints: FloatArray) -> FloatArray:
        """Action of a motion (6,) in [-1, 1] of the hand, in the base frame, from targets (n,) and joints (1, n)."""
        if self._moves_ee:
            return self._with_grip(motion if self._turns else motion[:3], targets)
        self._hand.reset(targets[None])
        step = np.append(motion[:3], np.float32(0.0))[None, : 3 + (self._joint is not None)]
        return self._of_joints(self._hand.follow(step, joints)[0], targets)

    def _follow(self, leader: FloatArray, targets: FloatArray) -> FloatArray:
        """Action that moves as a leader's joints (n,) do, rad and of a gripper m, from joint targets (n,)."""
        if self._clutch is None:
            self._clutch = targets - leader
        if self._joint is not None:
            # A gripper at its stop lets the leader's go on, and follows as soon as that comes back.
            low, high = sorted((self._arm.gripper_closed_m, self._arm.gripper_open_m))
            here = float(leader[self._joint])
            self._clutch[self._joint] = min(high, max(low, here + float(self._clutch[self._joint]))) - here
        leader = leader + self._clutch
        self._grip = self._place(leader)
        if not self._moves_ee:
            return self._of_joints(leader, targets)
        (pos, rotation), (here, turned) = self._hand.ee_pose(leader[None]), self._hand.ee_pose(targets[None])
        step = (pos - here)[0] / self._scale[:3]
        # The hand goes straight there, as fast as its fastest axis may.
        step = step / max(1.0, float(np.abs(step).max()) / self._clip)
        if not self._turns:
            return self._with_grip(step, targets)
        turn = rotation_error(turned, rotation)[0] / self._scale[3:6]
        return self._with_grip(np.concatenate((step, turn)), targets)

    def _of_joints(self, joints: FloatArray, targets: FloatArray) -> FloatArray:
        """Action that leads from joint targets to joints, both (n,), rad; of the hand none, since it stays."""
        if self._moves_ee:
            return self._with_grip(np.zeros(6 if self._turns else 3, dtype=np.float32), targets)
        start = targets if self._arm.relative else self._offset
        action = (joints - start) / self._scale
        place = self._place(targets) if self._grip is None else self._grip
        if self.gripper is not None and place is not None:
            action[self.gripper] = place
        return np.clip(action, -self._clip, self._clip).astype(np.float32)

    def _place(self, joints: FloatArray) -> float | None:
        """Place of the gripper as an action, from joints (n,), rad and of a gripper m; None without one."""
        if self._joint is None or self.gripper is None:
            return None
        return float((joints[self._joint] - self._offset[self.gripper]) / self._scale[self.gripper])

    def _with_grip(self, motion: FloatArray, targets: FloatArray) -> FloatArray:
        """Action (a,) of a motion of the hand, with the gripper where it is wanted, or at its target (n,) [rad]."""
        place = self._place(targets) if self._grip is None else self._grip
        parts = motion if place is None else np.append(motion, place)
        return np.clip(parts, -self._clip, self._clip).astype(np.float32)


class CarMap:
    """Steering and acceleration of a car.

    Args:
        contract: Of a car.
    """

    axes = (Axis.STEER, Axis.THROTTLE)
    corrects_command = False
    gripper = None

    def __init__(self, contract: PolicyContract) -> None:
        self._decoder = DriveDecoder(contract, np.zeros((1, 1), dtype=np.float32))

    def begin(self) -> None:
        """Nothing continues from the last action."""

    def action(self, given: OperatorInput, seen: PolicyOutput | None) -> FloatArray:
        """Steering and acceleration (2,) in [-1, 1]."""
        if given.action is not None:
            return given.action
        return np.array([given.axes.get(axis, 0.0) for axis in self.axes], dtype=np.float32)

    def hold(self, seen: PolicyOutput | None) -> FloatArray:
        """Brake to a stop with the wheels as they are, (2,) in [-1, 1]."""
        signals = _signals(seen)
        return self._decoder.action_of(signals.joint_pos_rad, np.zeros_like(signals.joint_vel_rad_s), signals)[0]


class CommandMap:
    """Velocity command of a policy that follows one: a person corrects the command, not the legs.

    Args:
        contract: With a command of at least one number.
    """

    axes = (Axis.X, Axis.Y, Axis.YAW)
    corrects_command = True
    gripper = None

    def __init__(self, contract: PolicyContract) -> None:
        command = contract.command
        self._lower, self._upper = (np.array(side, dtype=np.float32) for side in (command.lower, command.upper))

    def begin(self) -> None:
        """Nothing continues from the last command."""

    def action(self, given: OperatorInput, seen: PolicyOutput | None) -> FloatArray:
        """Command (c,) in the contract's units: the axes' share of the trained range."""
        if given.action is not None:
            return given.action
        share = np.array([given.axes.get(axis, 0.0) for axis in self.axes], dtype=np.float32)[: len(self._lower)]
        return np.where(share >= 0.0, share * self._upper[: len(share)], -share * self._lower[: len(share)])

    def hold(self, seen: PolicyOutput | None) -> FloatArray:
        """Standing, (c,)."""
        return np.zeros_like(self._lower)


def _signals(seen: PolicyOutput | None) -> Signals:
    """Signals of the step; maps of actions are asked after the policy."""
    assert seen is not None
    return seen.signals


def _targets(seen: PolicyOutput | None) -> FloatArray:
    """Last joint targets (n,), rad, or where the joints are if there are none yet."""
    signals = _signals(seen)
    return np.asarray(signals.joint_pos_rad if signals.joint_target_rad is None else signals.joint_target_rad)[0]


def _of_hand(contract: PolicyContract, arm: ArmSpec) -> PolicyContract:
    """The contract with steps of the hand as its action; what it observes is left out."""
    if contract.action.kind == BODY_TARGET:
        return contract
    gripper = 0 if not arm.gripper_joint else 1
    index = contract.joint_names.index(arm.gripper_joint) if gripper else 0
    scale = (HAND_STEP_M,) * 3 + (contract.action.scale[index],) * gripper
    offset = (0.0,) * 3 + (contract.action.offset_rad[index],) * gripper
    action = replace(contract.action, kind=BODY_TARGET, scale=scale, offset_rad=offset)
    return replace(contract, action=action, body=replace(arm, max_turn_rad=0.0), chunk=None, observations=())
