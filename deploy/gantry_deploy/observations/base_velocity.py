"""Linear velocity of the base as an observation, of its origin or of another point that is fixed to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gantry_deploy.contract.parts import ObservationTerm
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.signals import Signals, TermConstants
from gantry_mapping.elevation.ops import namespace

Array = Any

VELOCITY_TERM = "base_lin_vel"
"""The term that may be of another point than the base's origin."""


def base_lin_vel(signals: Signals, constants: TermConstants) -> Array:
    """Linear velocity of the base in its own frame, (N, 3), m/s."""
    if signals.lin_vel_base_in_base_m_s is None:
        raise ContractError("The observation 'base_lin_vel' needs the base's linear velocity; there is none.")
    return signals.lin_vel_base_in_base_m_s


def velocity_at(point_in_base_m: tuple[float, ...]) -> Callable[[Signals, TermConstants], Array]:
    """The same of another point, where an IMU sits for example: v + omega x r, (N, 3), m/s.

    Args:
        point_in_base_m: r, three numbers in the base frame.
    """
    x, y, z = point_in_base_m

    def velocity(signals: Signals, constants: TermConstants) -> Array:
        turning = signals.ang_vel_base_in_base_rad_s
        a, b, c = (turning[:, i] for i in range(3))
        own = namespace(turning).stack((b * z - c * y, c * x - a * z, a * y - b * x), axis=-1)
        return base_lin_vel(signals, constants) + own

    return velocity


def check_point(term: ObservationTerm) -> None:
    """Refuse a point of a term that is no velocity of the base, or one without three numbers.

    Raises:
        ContractError: With the term and its point.
    """
    point = term.point_in_base_m
    if point and (term.name != VELOCITY_TERM or len(point) != 3):
        raise ContractError(
            f"Observation '{term.name}': the contract's point_in_base_m is {list(point)}, expected three numbers for "
            f"'{VELOCITY_TERM}', and none for others."
        )
