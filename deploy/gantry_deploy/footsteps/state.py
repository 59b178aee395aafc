"""State and command of the footstep controller (Array API standard)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Array = Any


@dataclass(frozen=True)
class StepState:
    """State of the body at a control step; N robots, f feet."""

    level: Array
    """(N, 3, 3) rotation of the base to the level frame."""
    ang_vel_b: Array
    """(N, 3) rad/s."""
    vel: Array
    """(N, 3) of the base, in the level frame, m/s."""
    joint_pos: Array
    """(N, 3 f) rad."""
    feet_b: Array
    """(N, f, 3) in the base frame, m."""
    feet: Array
    """(N, f, 3) in the level frame, m."""
    lowest: Array
    """(N, 1) the lowest sole of the feet that are to stand, over the base, m."""
    highest: Array
    """(N, 1) the highest of them."""
    jacobian_b: Array
    """(N, f, 3, 3) of the feet in the base frame, m/rad."""
    swings: Array
    """(N, f) bool, which feet are to be in the air."""
    progress: Array
    """(N, f) share of the swing that is over; 0 in a stance."""
    left_s: Array
    """(N, f) time to the landing; 0 on the ground."""
    drive: Array
    """(N, 3) velocity that the goal amounts to, m/s and rad/s."""
    goes: Array
    """(N, 1) share of its velocity at which the base is to move, 0 to 1: less while it turns to where it can look."""
    rests: Array
    """(N, 1) bool, robots that have reached their goal and stand."""
    stands: Array
    """(N, f) bool, which feet carry: those on the ground, and those in the air that have landed before their time."""
    ground: Array
    """(N, rows, cols) the map's heights over the base, m, as high as the standing feet."""
    void: Array
    """(N, 1) height over the base, m, below which ground is none to step on where there is other beside it."""
    predicted_touchdown: Array
    """(N, f, 2) where a foot in the air would land if it went on as it moves, in the level frame, m."""


@dataclass(frozen=True)
class StepCommand:
    """Command for the body and its feet."""

    vel: Array
    """(N, 2) of the base in the level frame, m/s."""
    turn: Array
    """(N, 1) rad/s."""
    places: Array
    """(N, f, 3) where the feet in the air are to land, in the level frame, m."""
    ways: Array
    """(N, f, ``CRESTS``) the map's heights over the base from where a foot is to where it is
    to land, m."""
    pose: Array
    """(N, 3) added to the base's height, pitch and roll, m and rad."""
