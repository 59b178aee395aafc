"""Network output to joint targets, written once for training and robot (Array API standard)."""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_deploy.actions.decoder import JointTargets
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.footsteps import gait as gait_clock
from gantry_deploy.footsteps import terrain_lookup as footing
from gantry_deploy.footsteps.controller import Stepper
from gantry_deploy.observations.signals import Signals
from gantry_hardware.model.spec import RobotSpec
from gantry_mapping.elevation.ops import namespace

Array = Any


class JointDecoder:
    """Turns actions into joint position targets as the contract and its gait say; remembers nothing.

    Args:
        contract: Scales, offsets, limits and gait.
        like: Any floating array of the namespace, dtype and device to work on.
        spec: Not looked at: the contract's limits are never beyond a robot's.
    """

    targets = None

    def __init__(self, contract: PolicyContract, like: Array, spec: RobotSpec | None = None) -> None:
        self._contract = contract
        xp = namespace(like)

        def asarray(values: Any, dtype: Any = like.dtype) -> Array:
            return xp.asarray(values, dtype=dtype, device=device(like))

        self._xp = xp
        self._scale = asarray([contract.action.scale])
        self._offset = asarray([contract.action.offset_rad])
        self._bound = asarray([[contract.action.clip] * contract.action_size])
        self._lower = asarray([contract.joint_lower_rad])
        self._upper = asarray([contract.joint_upper_rad])
        self._stepper = None if contract.gait is None or contract.gait.steps is None else Stepper(contract, like)
        if contract.gait is not None and self._stepper is None:
            self._foot_offset = asarray(contract.gait.foot_offset)
            self._joint_foot = asarray(contract.gait.joint_foot, xp.int64)
            self._joint_gain = asarray([contract.gait.joint_gain]) * contract.gait.amplitude_rad
            self._strides = bool(contract.gait.foot_x_m)
            if self._strides:
                self._foot_x, self._foot_y = asarray(contract.gait.foot_x_m), asarray(contract.gait.foot_y_m)
                self._stride_x = asarray([contract.gait.stride_x_rad_m])
                self._stride_y = asarray([contract.gait.stride_y_rad_m])
            self._sway = asarray([contract.gait.sway_rad]) if contract.gait.sway_rad else None
            self._stride_yaw = asarray([contract.gait.stride_yaw]) if contract.gait.stride_yaw else None
            ground = contract.gait.ground
            self._lift = asarray([ground.lift_rad_m]) if ground is not None else None
            balance = contract.gait.balance
            if balance is not None:
                self._axis = asarray(balance.joint_axis, xp.int64)
                self._stance = asarray([balance.stance_tilt]), asarray([balance.stance_rate_s])
                self._swing = asarray([balance.swing_tilt]), asarray([balance.swing_rate_s])

    def clip(self, action: Array) -> Array:
        """The action (N, a), dimensionless, within the contract's bounds; this is what ``last_action`` observes."""
        # The namespace's own clip costs ten times as much on a single row, and this runs in every tick of the robot.
        return self._xp.minimum(self._xp.maximum(action, -self._bound), self._bound)

    def reset(self, joint_pos_rad: Array, rows: Array | None = None) -> None:
        """See :meth:`gantry_deploy.actions.decoder.ActionDecoder.reset`; nothing continues from earlier targets."""

    def __call__(self, action: Array, signals: Signals) -> JointTargets:
        """Joint positions for the next control step, rad, within the contract's joint limits.

        Args:
            action: Shape (N, a), network output, dimensionless.
            signals: As the observation saw them: time and command of the gait clock, which rests when what the command
                asks of the gait is small; attitude and turning rate; the map, where the gait follows the ground.

        Raises:
            ContractError: If the gait follows the ground and there is no map.
        """
        xp, gait, time_s, command = self._xp, self._contract.gait, signals.time_s, signals.command
        quat, ang_vel = signals.quat_base_to_world_wxyz, signals.ang_vel_base_in_base_rad_s
        target = self._offset + self._scale * self.clip(action)
        if self._stepper is not None:
            seen = (quat, ang_vel, signals.joint_pos_rad, signals.joint_vel_rad_s, signals.elevation_map)
            target = self._stepper(target, self._stepper.sense(time_s, command, *seen))
        elif gait is not None:
            phase = gait_clock.foot_phase(gait, time_s + gait.lead_s, self._foot_offset)
            drive = gait_clock.drive_command(self._contract.command, command)
            runs = gait_clock.moving(gait, drive)[:, None]
            lift = gait_clock.swing_arc(gait, phase) * runs
            target = target + xp.take(lift, self._joint_foot, axis=1) * self._joint_gain
            if self._strides:
                ahead, aside = gait_clock.foot_displacement(gait, phase, drive * runs, self._foot_x, self._foot_y)
                target = target + xp.take(ahead, self._joint_foot, axis=1) * self._stride_x
                target = target + xp.take(aside, self._joint_foot, axis=1) * self._stride_y
            if self._lift is not None:
                rise = self._rise(phase, drive * runs, signals.elevation_map, quat, ang_vel)
                target = target + xp.take(rise, self._joint_foot, axis=1) * self._lift
            if self._sway is not None:
                target = target + (gait_clock.sway(gait, time_s + gait.lead_s)[:, None] * runs) * self._sway
            if self._stride_yaw is not None:
                turn = gait_clock.foot_turn(gait, phase, drive * runs)
                target = target + xp.take(turn, self._joint_foot, axis=1) * self._stride_yaw
            if gait.balance is not None:
                swings = (phase >= gait.duty) & (runs > 0.0)
                target = target + self._balance(swings, quat, ang_vel)
        return JointTargets(xp.minimum(xp.maximum(target, self._lower), self._upper))

    def _rise(self, phase: Array, drive: Array, elevation_map: Array | None, quat: Array, ang_vel: Array) -> Array:
        """Height by which each foot is raised to follow the ground, (N, feet), m."""
        gait, window = self._contract.gait, self._contract.map_window
        if gait is None or window is None or elevation_map is None:
            raise ContractError("A gait that follows the ground needs the elevation map.")
        feet = self._foot_x, self._foot_y
        return footing.foot_lift(gait, window, phase, drive, *feet, elevation_map, gait_clock.tilt(quat), ang_vel)

    def _balance(self, swings: Array, quat: Array, ang_vel: Array) -> Array:
        """Answers to tilt and turning rate, (N, n), rad; ``swings`` is (N, feet), bool."""
        xp = self._xp
        tilt = xp.take(gait_clock.tilt(quat), self._axis, axis=1)
        rate = xp.take(ang_vel, self._axis, axis=1)
        stance = tilt * self._stance[0] + rate * self._stance[1]
        swing = tilt * self._swing[0] + rate * self._swing[1]
        return xp.where(xp.take(swings, self._joint_foot, axis=1), swing, stance)
