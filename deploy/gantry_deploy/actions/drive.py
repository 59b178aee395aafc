"""A car's actions to steering and speed set-points, written once for training and robot (Array API standard)."""

from __future__ import annotations

from typing import Any, NamedTuple

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError
from gantry_hardware.cars import CarSpec
from gantry_mapping.ops import namespace

Array = Any


class DriveTarget(NamedTuple):
    """Targets of a car for the next step, each of shape (N,)."""

    steering_rad: Array
    """Target of the steering angle, left positive."""
    accel_m_s2: Array
    """Signed acceleration that was asked for, within the limits."""
    speed_m_s: Array
    """Speed set-point at the end of the step, for cars that take speeds."""


class DriveDecoder:
    """Turns actions (steering, acceleration) in [-1, 1] into targets; it remembers nothing.

    Steering is a share of the contract's steering limit. Acceleration is a share of the contract's acceleration limit
    where it is positive and of its brake limit where it is negative, whichever way the car goes; so a policy that may
    reverse speeds up backwards by negative numbers and stops again by positive ones. The set-point is what the speed
    would be a step later, within the speeds that contract and car allow. Of two limits the smaller one counts.

    Args:
        contract: Has a drive.
        like: Any floating array of the namespace that is worked in.
        car: The car that obeys; if not given, the contract's limits count alone.

    Raises:
        ContractError: If the contract drives no car.
    """

    def __init__(self, contract: PolicyContract, like: Array, car: CarSpec | None = None) -> None:
        drive = contract.drive
        if drive is None:
            raise ContractError(f"The contract for '{contract.robot}' drives no car.")
        self._xp = namespace(like)
        self._drive = drive
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

    def __call__(self, action: Array, speed_m_s: Array) -> DriveTarget:
        """Targets for the next control step.

        Args:
            action: Shape (N, 2), the network's output.
            speed_m_s: Shape (N,), measured now, negative backwards.
        """
        xp, drive, action = self._xp, self._drive, self.clip(action)
        steering = action[:, 0] * drive.steering_limit_rad
        push = action[:, 1]
        accel = xp.where(push > 0.0, push * drive.accel_limit_m_s2, push * drive.brake_limit_m_s2)
        accel = xp.clip(accel, -self.brake_limit_m_s2, self.accel_limit_m_s2)
        return DriveTarget(
            steering_rad=xp.clip(steering, -self.steering_limit_rad, self.steering_limit_rad),
            accel_m_s2=accel,
            speed_m_s=xp.clip(speed_m_s + accel * self._dt_s, *self.speed_range_m_s),
        )
