"""An arm's actions to joint targets, written once for training and robot (Array API standard)."""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_deploy.actions.decoder import JointTargets
from gantry_deploy.actions.kinematics import ArmKinematics, damped_step, rotation_error, rotation_of_vector
from gantry_deploy.contract.arm_spec import BODY_TARGET, ArmSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.observations.signals import Signals
from gantry_hardware.model.spec import RobotSpec
from gantry_mapping.elevation.ops import namespace
from gantry_mapping.sensing.frames import rotation_matrix

Array = Any

IK_STEPS = 2
"""Damped steps per action. The target moves little at a time, so that the second one leaves some micrometres."""
BOUND_TOLERANCE_M = 1e-3
"""The end effector's target may be this far outside the workspace, which is what inverse kinematics leaves."""


class ArmDecoder:
    """Turns actions into joint position targets as the contract's ``ArmSpec`` says.

    The decoder remembers its last joint targets and nothing else; the end effector's target is where they would put
    it. So it never runs away from what joints can do, and what drifts in one step is seen in the next.

    Args:
        contract: Scales, limits and arm.
        like: Any floating array of the namespace, dtype and device to work on.
        spec: Not looked at: the contract's limits are never beyond a robot's.

    Raises:
        ContractError: If the contract has no arm.
    """

    def __init__(self, contract: PolicyContract, like: Array, spec: RobotSpec | None = None) -> None:
        arm = contract.body_as(ArmSpec)
        xp = namespace(like)

        def asarray(values: Any, dtype: Any = like.dtype) -> Array:
            return xp.asarray(values, dtype=dtype, device=device(like))

        self._xp = xp
        self._arm = arm
        self._moves_ee = contract.action.kind == BODY_TARGET
        self._scale = asarray([contract.action.scale])
        self._offset = asarray([contract.action.offset_rad])
        self._bound = asarray([[contract.action.clip] * contract.action_size])
        self._lower, self._upper = asarray([contract.joint_lower_rad]), asarray([contract.joint_upper_rad])
        names = contract.joint_names
        self._ids = asarray([names.index(name) for name in arm.chain.joint_names], xp.int64)
        self._gripper = names.index(arm.gripper_joint) if arm.gripper_joint else None
        self._is_gripper = asarray([[name == arm.gripper_joint for name in names]], xp.bool)
        # Column of a joint among those that the end effector's motion gives; the gripper's own is put in afterwards.
        order = [arm.chain.joint_names.index(name) if name in arm.chain.joint_names else 0 for name in names]
        self._column = asarray(order, xp.int64)
        self._in_chain = asarray([[name in arm.chain.joint_names for name in names]], xp.bool)
        self._chain_limits = xp.take(self._lower, self._ids, axis=1), xp.take(self._upper, self._ids, axis=1)
        self._box = asarray([arm.lower_ee_in_base_m]), asarray([arm.upper_ee_in_base_m])
        quat = asarray([arm.quat_ee_to_base_wxyz])
        self._rest = rotation_matrix(quat / xp.sqrt(xp.sum(quat * quat, axis=-1, keepdims=True)))
        self._steps = asarray(
            [[arm.gripper_step_m if name == arm.gripper_joint else arm.max_step_rad for name in names]]
        )
        self._gripper_range = sorted((arm.gripper_closed_m, arm.gripper_open_m))
        self.kinematics = ArmKinematics(arm.chain, like)
        """Of the arm without its gripper."""
        self._targets: Array | None = None
        self._before: Array | None = None
        """Targets (N, n) that the last ones continued from."""

    @property
    def targets(self) -> Array | None:
        """The last joint targets (N, n), rad and, of a gripper, m; None before the first reset."""
        return self._targets

    def clip(self, action: Array) -> Array:
        """The action (N, a), dimensionless, within the contract's bounds; this is what ``last_action`` observes."""
        return self._limit(action, -self._bound, self._bound)

    def reset(self, joint_pos_rad: Array, rows: Array | None = None) -> None:
        """Begin anew with targets where the joints are.

        Args:
            joint_pos_rad: Shape (N, n), measured.
            rows: Boolean mask (N,) of the arms that begin anew; None for all.
        """
        fresh = self._limit(joint_pos_rad, self._lower, self._upper)
        if rows is None or self._targets is None:
            self._targets = fresh
        else:
            self._targets = self._xp.where(rows[:, None], fresh, self._targets)

    def ee_pose(self, joint_pos_rad: Array) -> tuple[Array, Array]:
        """Position (N, 3), m, and rotation (N, 3, 3) of the end effector in the base frame, of joints (N, n)."""
        return self.kinematics.forward(self._xp.take(joint_pos_rad, self._ids, axis=1))

    def __call__(self, action: Array, signals: Signals) -> JointTargets:
        """Joint positions for the next control step, from an action (N, a), dimensionless: see :meth:`follow`."""
        return JointTargets(self.follow(action, signals.joint_pos_rad))

    def follow(self, action: Array, joint_pos_rad: Array) -> Array:
        """Joint position targets for the next control step, which the ones after continue from.

        Args:
            action: Shape (N, a), the network's output, dimensionless.
            joint_pos_rad: Shape (N, n), measured now.

        Returns:
            Shape (N, n), rad and, of a gripper, m: within the joints' limits, and with the end effector within the
            workspace or, where it began outside, no farther outside than before.
        """
        if self._targets is None:
            self.reset(joint_pos_rad)
        assert self._targets is not None
        xp, last, action = self._xp, self._targets, self.clip(action)
        wanted = self._follow_ee(action, last, joint_pos_rad) if self._moves_ee else self._follow_joints(action, last)
        if not self._moves_ee:
            lead = self._arm.max_lead_rad
            near = self._limit(wanted, joint_pos_rad - lead, joint_pos_rad + lead)
            wanted = xp.where(self._is_gripper, wanted, near)  # A gripper's lead is what it grips with.
        target = self._limit(wanted, last - self._steps, last + self._steps)
        target = self._limit(target, self._lower, self._upper)
        self._before = last
        self._targets = xp.where(self._stays_inside(last, target), target, xp.where(self._is_gripper, target, last))
        return self._targets

    def action_of(self, pos_rad: Array, vel_rad_s: Array, signals: Signals) -> Array:
        """Action (N, a), dimensionless, in the base frame, that leads from the targets before the last step to targets
        (N, n) [rad]; a gripper's in m."""
        del vel_rad_s
        xp = self._xp
        last = signals.joint_pos_rad if self._before is None else self._before
        if not self._moves_ee:
            start = self._offset + xp.zeros_like(pos_rad)
            if self._arm.relative:
                start = xp.where(self._is_gripper, start, last)
            return self.clip((pos_rad - start) / self._scale)
        (pos, rotation), (before, turned) = self.ee_pose(pos_rad), self.ee_pose(last)
        parts = [pos - before]
        if self._arm.max_turn_rad > 0.0:
            parts.append(rotation_error(turned, rotation))
        if self._gripper is not None:
            parts.append(pos_rad[:, self._gripper : self._gripper + 1] - self._offset[:, -1:])
        return self.clip(xp.concat(parts, axis=-1) / self._scale)

    def _follow_joints(self, action: Array, last: Array) -> Array:
        step = self._scale * action
        if not self._arm.relative:
            return self._offset + step
        # A gripper is told where to be, not where to go.
        return self._xp.where(self._is_gripper, self._offset + step, last + step)

    def _follow_ee(self, action: Array, last: Array, joint_pos_rad: Array) -> Array:
        xp, arm = self._xp, self._arm
        step = self._scale * action
        joints = xp.take(last, self._ids, axis=1)
        pos, rotation, jacobian = self.kinematics.jacobian(joints)
        here, _ = self.ee_pose(joint_pos_rad)
        goal = here + _shorten(xp, pos + step[:, :3] - here, arm.max_lead_m)
        goal = self._limit(goal, *self._box)
        wanted = self._rest + xp.zeros_like(rotation)
        if arm.max_turn_rad > 0.0:
            turned = rotation_of_vector(step[:, 3:6]) @ rotation
            turn = _shorten(xp, rotation_error(wanted, turned), arm.max_turn_rad)
            wanted = rotation_of_vector(turn) @ wanted
        moved = joints
        for step_number in range(IK_STEPS):
            if step_number > 0:
                pos, rotation, jacobian = self.kinematics.jacobian(moved)
            error = xp.concat((goal - pos, rotation_error(rotation, wanted)), axis=-1)
            moved = self._limit(moved + damped_step(jacobian, error, arm.damping), *self._chain_limits)
        # All joints are slowed down alike, so that a fast motion keeps its direction.
        change = moved - joints
        largest = xp.max(xp.abs(change), axis=-1, keepdims=True)
        moved = joints + change * (arm.max_step_rad / xp.maximum(largest, xp.full_like(largest, arm.max_step_rad)))
        target = xp.where(self._in_chain, xp.take(moved, self._column, axis=1), last)
        if self._gripper is None:
            return target
        place = self._offset[:, -1:] + step[:, -1:]
        low, high = self._gripper_range
        return xp.where(self._is_gripper, xp.clip(place, low, high), target)

    def _stays_inside(self, last: Array, target: Array) -> Array:
        """(N, 1) bool: whether targets keep the end effector within the workspace, or bring it nearer."""
        xp = self._xp
        before, after = (self._outside_m(self.ee_pose(joints)[0]) for joints in (last, target))
        return after <= xp.maximum(before, xp.full_like(before, BOUND_TOLERANCE_M))

    def _outside_m(self, pos_ee_in_base_m: Array) -> Array:
        """Largest distance (N, 1) by which places (N, 3) leave the workspace along an axis, m."""
        xp, (lower, upper) = self._xp, self._box
        return xp.max(xp.maximum(lower - pos_ee_in_base_m, pos_ee_in_base_m - upper), axis=-1, keepdims=True)

    def _limit(self, values: Array, lower: Array, upper: Array) -> Array:
        return self._xp.minimum(self._xp.maximum(values, lower), upper)


def _shorten(xp: Any, vector: Array, longest: float) -> Array:
    """Vectors (N, 3) no longer than that."""
    length = xp.sqrt(xp.sum(vector * vector, axis=-1, keepdims=True))
    return vector * (longest / xp.maximum(length, xp.full_like(length, longest)))
