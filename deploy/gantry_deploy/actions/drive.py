"""A car's actions to steering and speed set-points, written once for training and robot (Array API standard)."""

from __future__ import annotations

from typing import Any

from gantry_deploy.actions.decoder import JointTargets
from gantry_deploy.contract.drive_spec import DriveSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.signals import Signals
from gantry_hardware.model.cars import CarSpec
from gantry_hardware.model.spec import RobotSpec
from gantry_mapping.elevation.ops import namespace

Array = Any


class DriveDecoder:
    """Turns actions (steering, acceleration) in [-1, 1] into targets; it remembers nothing.

    Steering is a share of the contract's steering limit. Acceleration is a share of the contract's acceleration limit
    where it is positive and of its brake limit where it is negative, whichever way the car goes; so a policy that may
    reverse speeds up backwards by negative numbers and stops again by positive ones. The set-point is what the speed
    would be a step later, within the speeds that contract and car allow. Of two limits the smaller one counts.

    Args:
        contract: Of a car.
        like: Any floating array of the namespace that is worked in.
        spec: The car that obeys; if not given, the contract's limits count alone.

    Raises:
        ContractError: If the contract drives no car.
    """

    targets = None

    def __init__(self, contract: PolicyContract, like: Array, spec: RobotSpec | None = None) -> None:
        drive = contract.body_as(DriveSpec)
        car = None if spec is None else spec.body_as(CarSpec)
        self._xp = namespace(like)
        self.drive = drive
        """The contract's car."""
        self._bound = contract.action.clip
        self._dt_s = contract.dt_s

        def smaller(mine: float, theirs: float | None) -> float:
            return mine if theirs is None else min(mine, theirs)

        self.steering_limit_rad = smaller(drive.steering_limit_rad, car and car.steering_limit_rad)
        """No steering target is larger."""
        self.accel_limit_m_s2 = smaller(drive.accel_limit_m_s2, car and car.accel_limit_m_s2)
        """No acceleration is larger."""
        self.brake_limit_m_s2 = smaller(drive.brake_limit_m_s2, car and car.brake_limit_m_s2)
        """No deceleration is larger."""
        slowest = smaller(-drive.slowest_m_s, car and car.reverse_limit_m_s)
        self.speed_range_m_s = (0.0 - slowest, smaller(drive.speed_limit_m_s, car and car.speed_limit_m_s))
        """Smallest and largest set-point."""

    def clip(self, action: Array) -> Array:
        """The action (N, 2) within the contract's bounds; this is what ``last_action`` observes."""
        return self._xp.clip(action, -self._bound, self._bound)

    def reset(self, joint_pos_rad: Array, rows: Array | None = None) -> None:
        """See :meth:`gantry_deploy.actions.decoder.ActionDecoder.reset`; nothing continues from earlier targets."""

    def __call__(self, action: Array, signals: Signals) -> JointTargets:
        """Targets of steering (rad) and drive (m, m/s) for the next control step, and the acceleration asked for.

        Args:
            action: Shape (N, 2), the network's output, dimensionless.
            signals: With the car's velocity, negative backwards; the drive stays where it is measured.

        Raises:
            ContractError: If there is no velocity.
        """
        if signals.lin_vel_base_in_base_m_s is None:
            raise ContractError("A car's speed set-point needs its velocity; there is none.")
        xp, drive, action = self._xp, self.drive, self.clip(action)
        steering = xp.clip(action[:, 0] * drive.steering_limit_rad, -self.steering_limit_rad, self.steering_limit_rad)
        push = action[:, 1]
        accel = xp.where(push > 0.0, push * drive.accel_limit_m_s2, push * drive.brake_limit_m_s2)
        accel = xp.clip(accel, -self.brake_limit_m_s2, self.accel_limit_m_s2)
        speed = xp.clip(signals.lin_vel_base_in_base_m_s[:, 0] + accel * self._dt_s, *self.speed_range_m_s)
        still = xp.zeros_like(speed)
        return JointTargets(
            pos_rad=xp.stack((steering, signals.joint_pos_rad[:, 1]), axis=-1),
            vel_rad_s=xp.stack((still, speed), axis=-1),
            acc_rad_s2=xp.stack((still, accel), axis=-1),
        )

    def action_of(self, pos_rad: Array, vel_rad_s: Array, signals: Signals) -> Array:
        """Action (N, 2), dimensionless, of targets (N, 2), steering [rad] and speed [m/s] in the base frame.

        Raises:
            ContractError: If there is no velocity.
        """
        if signals.lin_vel_base_in_base_m_s is None:
            raise ContractError("The action of a car's set-point needs its velocity; there is none.")
        xp, drive = self._xp, self.drive
        accel = (vel_rad_s[:, 1] - signals.lin_vel_base_in_base_m_s[:, 0]) / self._dt_s
        push = xp.where(accel > 0.0, accel / drive.accel_limit_m_s2, accel / drive.brake_limit_m_s2)
        return self.clip(xp.stack((pos_rad[:, 0] / drive.steering_limit_rad, push), axis=-1))
