"""Network output to joint targets, written once for training and robot (Array API standard)."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from gantry_deploy import gait as gait_clock
from gantry_deploy.contract import PolicyContract

Array = Any


class ActionDecoder:
    """Turns actions into joint position targets as the contract says.

    Args:
        contract: Scales, offsets, limits and gait.
        like: Any floating array of the namespace, dtype and device to work on.
    """

    def __init__(self, contract: PolicyContract, like: Array) -> None:
        self._contract = contract
        xp = array_namespace(like)

        def asarray(values: Any, dtype: Any = like.dtype) -> Array:
            return xp.asarray(values, dtype=dtype, device=device(like))

        self._xp = xp
        self._scale = asarray([contract.action.scale])
        self._offset = asarray([contract.action.offset_rad])
        self._bound = asarray([[contract.action.clip] * contract.action_size])
        self._lower = asarray([contract.joint_lower_rad])
        self._upper = asarray([contract.joint_upper_rad])
        if contract.gait is not None:
            self._foot_offset = asarray(contract.gait.foot_offset)
            self._joint_foot = asarray(contract.gait.joint_foot, xp.int64)
            self._joint_gain = asarray([contract.gait.joint_gain]) * contract.gait.amplitude_rad
            self._strides = bool(contract.gait.foot_x_m)
            if self._strides:
                self._foot_x, self._foot_y = asarray(contract.gait.foot_x_m), asarray(contract.gait.foot_y_m)
                self._stride_x = asarray([contract.gait.stride_x_rad_m])
                self._stride_y = asarray([contract.gait.stride_y_rad_m])
            self._sway = asarray([contract.gait.sway_rad]) if contract.gait.sway_rad else None

    def clip(self, action: Array) -> Array:
        """The action (N, n) within the contract's bounds; this is what ``last_action`` observes."""
        # The namespace's own clip costs ten times as much on a single row, and this runs in every tick of the robot.
        return self._xp.minimum(self._xp.maximum(action, -self._bound), self._bound)

    def __call__(self, action: Array, time_s: Array, command: Array) -> Array:
        """Joint position targets.

        Args:
            action: Shape (N, n), network output.
            time_s: Shape (N,), since the policy started.
            command: Shape (N, c), shaped command; the gait clock rests when what it asks of the gait is small.

        Returns:
            Shape (N, n), rad, within the contract's joint limits.
        """
        xp = self._xp
        target = self._offset + self._scale * self.clip(action)
        gait = self._contract.gait
        if gait is not None:
            phase = gait_clock.foot_phase(gait, time_s + gait.lead_s, self._foot_offset)
            drive = gait_clock.drive_command(self._contract.command, command)
            runs = gait_clock.moving(gait, drive)[:, None]
            lift = gait_clock.swing_arc(gait, phase) * runs
            target = target + xp.take(lift, self._joint_foot, axis=1) * self._joint_gain
            if self._strides:
                ahead, aside = gait_clock.foot_displacement(gait, phase, drive * runs, self._foot_x, self._foot_y)
                target = target + xp.take(ahead, self._joint_foot, axis=1) * self._stride_x
                target = target + xp.take(aside, self._joint_foot, axis=1) * self._stride_y
            if self._sway is not None:
                target = target + (gait_clock.sway(gait, time_s + gait.lead_s)[:, None] * runs) * self._sway
        return xp.minimum(xp.maximum(target, self._lower), self._upper)
