"""The gait clock, once, for the observation, the joint targets, the rewards and the robot.

All functions take arrays of either numpy or torch with a leading batch dimension (Array API standard).
"""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import array_namespace

from gantry_deploy.contract import GaitSpec

Array = Any


def moving(gait: GaitSpec, command: Array) -> Array:
    """Shape (N,) of 0 or 1: whether the command (N, c) asks for motion, so that the clock runs."""
    xp = array_namespace(command)
    norm2 = xp.sum(command * command, axis=-1)
    return xp.astype(norm2 >= gait.stand_below**2, command.dtype)


def clock(gait: GaitSpec, time_s: Array, command: Array) -> Array:
    """Shape (N, 2): sine and cosine of the phase, zero while standing; ``time_s`` (N,) since the policy started."""
    xp = array_namespace(time_s)
    angle = 2.0 * math.pi * gait.frequency_hz * time_s
    pair = xp.stack((xp.sin(angle), xp.cos(angle)), axis=-1)
    return pair * moving(gait, command)[:, None]


def foot_phase(gait: GaitSpec, time_s: Array, foot_offset: Array) -> Array:
    """Shape (N, feet) in [0, 1): stance below ``gait.duty``, swing above.

    Args:
        gait: The clock.
        time_s: Shape (N,).
        foot_offset: ``gait.foot_offset`` as an array (feet,) on the device of ``time_s``.
    """
    xp = array_namespace(time_s)
    phase = gait.frequency_hz * time_s[:, None] + foot_offset[None, :]
    return phase - xp.floor(phase)


def swing_arc(gait: GaitSpec, phase: Array) -> Array:
    """Shape of ``phase``: 0 in stance, half a sine from 0 over 1 to 0 during swing."""
    xp = array_namespace(phase)
    progress = (phase - gait.duty) / (1.0 - gait.duty)
    return xp.sin(math.pi * xp.clip(progress, 0.0, 1.0))


def stride(gait: GaitSpec, phase: Array) -> Array:
    """Shape of ``phase``, in [-1, 1]: falls evenly from 1 to -1 in stance and swings back along a cosine."""
    xp = array_namespace(phase)
    progress = (phase - gait.duty) / (1.0 - gait.duty)
    back = -xp.cos(math.pi * xp.clip(progress, 0.0, 1.0))
    return xp.where(phase < gait.duty, 1.0 - 2.0 * phase / gait.duty, back)


def sway(gait: GaitSpec, time_s: Array) -> Array:
    """Shape of ``time_s`` (N,), in [-1, 1]: the sine that moves the weight from foot to foot."""
    xp = array_namespace(time_s)
    return xp.sin(2.0 * math.pi * (gait.frequency_hz * time_s + gait.sway_offset))


def foot_displacement(
    gait: GaitSpec, phase: Array, command: Array, foot_x_m: Array, foot_y_m: Array
) -> tuple[Array, Array]:
    """How far each foot is displaced so that a stance foot moves against the commanded velocity of the body above it.

    Over a stance of duration T the foot travels from +vT/2 to -vT/2, with v the velocity of a point of the base at the
    foot: the planar velocity plus yaw rate times lever arm (the feed-forward part of Raibert's foot placement).

    Args:
        gait: The clock.
        phase: Shape (N, feet).
        command: Shape (N, 3), forward and lateral velocity in m/s, yaw rate in rad/s.
        foot_x_m: Shape (feet,), ``gait.foot_x_m`` as an array.
        foot_y_m: Shape (feet,), ``gait.foot_y_m`` as an array.

    Returns:
        Forward and lateral displacement, each (N, feet), m.
    """
    half_stance_s = 0.5 * gait.duty / gait.frequency_hz
    shift = stride(gait, phase) * half_stance_s
    vel_x = command[:, 0:1] - command[:, 2:3] * foot_y_m[None, :]
    vel_y = command[:, 1:2] + command[:, 2:3] * foot_x_m[None, :]
    return shift * vel_x, shift * vel_y
