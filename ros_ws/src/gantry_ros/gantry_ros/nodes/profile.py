"""Scripted operator commands: how long and which velocity, or where to."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gantry_deploy.control.goals import Goal
from gantry_hardware.errors import GantryError

DEMO_PROFILE = "2:0,0,0; 4:0.6,0,0; 3:0.5,0,0.6; 3:0,0.3,0; 3:-0.4,0,0; 3:0.4,-0.2,-0.6; 2:0,0,0"
"""Twenty seconds through forward, turning, sideways and backward walking, at rest at both ends."""


@dataclass(frozen=True)
class Segment:
    """One constant command."""

    duration_s: float
    """Duration for which it is held."""
    lin_vel_x_base_m_s: float
    """Forward."""
    lin_vel_y_base_m_s: float
    """To the left."""
    ang_vel_z_base_rad_s: float
    """Turning to the left."""


def parse_profile(text: str) -> tuple[Segment, ...]:
    """Read ``seconds:vx,vy,yaw_rate; ...``, for example ``2:0,0,0; 5:0.5,0,0``.

    Raises:
        GantryError: Naming the segment that is malformed.
    """
    segments = tuple(_segment(part.strip()) for part in text.split(";") if part.strip())
    if not segments:
        raise GantryError("The profile is empty, expected segments like 2:0.5,0,0.")
    return segments


def segment_at(segments: tuple[Segment, ...], time_s: float) -> Segment | None:
    """The segment at a time since the start; None once all are over."""
    end_s = 0.0
    for segment in segments:
        end_s += segment.duration_s
        if time_s < end_s:
            return segment
    return None


def parse_goal(text: str) -> Goal:
    """Read ``x,y,yaw``, for example ``6,0,0``.

    Raises:
        GantryError: If it is no such thing.
    """
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or not all(map(math.isfinite, numbers)):
        raise GantryError(f"Goal '{text}' is not of the form x,y,yaw in m and rad, for example 6,0,0.")
    return Goal(*numbers)


def _segment(text: str) -> Segment:
    duration, colon, rest = text.partition(":")
    try:
        numbers = [float(duration), *(float(part) for part in rest.split(","))]
    except ValueError:
        numbers = []
    if not colon or len(numbers) != 4 or not all(map(math.isfinite, numbers)) or numbers[0] <= 0.0:
        raise GantryError(f"Profile segment '{text}' is not of the form seconds:vx,vy,yaw_rate, for example 2:0.5,0,0.")
    return Segment(*numbers)
