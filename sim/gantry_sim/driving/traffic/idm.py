"""Car following: intelligent driver model and safe speed, over tensors of any shape."""

from __future__ import annotations

import torch
from torch import Tensor

Number = Tensor | float


def idm_accel(
    speed_m_s: Tensor,
    wanted_m_s: Tensor,
    gap_m: Tensor,
    leader_m_s: Tensor,
    *,
    accel_m_s2: Number = 1.5,
    brake_m_s2: Number = 2.5,
    headway_s: Number = 1.4,
    standstill_m: Number = 2.0,
) -> Tensor:
    """Acceleration of the intelligent driver model (Treiber, Hennecke and Helbing 2000), m/s^2; any shape.

    Above the wanted speed it brakes comfortably at most, so that a limit that falls is no emergency.

    Args:
        speed_m_s: Own speed.
        wanted_m_s: Speed on a free road.
        gap_m: Bumper to bumper, inf without a leader.
        leader_m_s: Speed of the leader along one's way.
        accel_m_s2: Largest acceleration, a.
        brake_m_s2: Comfortable braking, b.
        headway_s: Time headway, T.
        standstill_m: Gap when standing, s0.
    """
    ratio = speed_m_s / wanted_m_s.clamp(min=0.1)
    square = ratio * ratio
    free = torch.maximum(accel_m_s2 * (1.0 - square * square), -1.0 * _like(brake_m_s2, speed_m_s))
    root = 2.0 * (_like(accel_m_s2, speed_m_s) * brake_m_s2).sqrt()
    dynamic = speed_m_s * headway_s + speed_m_s * (speed_m_s - leader_m_s) / root
    share = (standstill_m + dynamic.clamp(min=0.0)) / gap_m.clamp(min=0.1)
    return free - accel_m_s2 * share * share


def _like(number: Number, like: Tensor) -> Tensor:
    """The number as a tensor of the same device and type, which a GPU is not waited for."""
    return (
        number.to(like) if isinstance(number, Tensor) else torch.full((), number, dtype=like.dtype, device=like.device)
    )


def safe_speed_m_s(gap_m: Tensor, leader_m_s: Tensor, brake_m_s2: float = 3.0, reaction_s: float = 1.0) -> Tensor:
    """Speed from which one still stops behind a leader that brakes as hard as oneself (Krauss 1998, Gipps 1981), m/s;
    any shape.

    Args:
        gap_m: Net gap, what shall be left when standing already taken off.
        leader_m_s: Speed of the leader, below zero (towards one) counts as 0.
        brake_m_s2: Braking of both.
        reaction_s: Time before one brakes.
    """
    leader, late = leader_m_s.clamp(min=0.0), brake_m_s2 * reaction_s
    return (late * late + leader * leader + 2.0 * brake_m_s2 * gap_m.clamp(min=0.0)).sqrt() - late
