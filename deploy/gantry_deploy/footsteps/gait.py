"""The gait clock, once, for the observation, the joint targets, the rewards and the robot.

All functions take arrays of either numpy or torch with a leading batch dimension (Array API standard).
"""

from __future__ import annotations

import math
from typing import Any

from gantry_deploy.arrays import limited
from gantry_deploy.contract.policy_contract import BODY_POSE, CommandSpec, GaitSpec
from gantry_deploy.errors import ContractError
from gantry_mapping.elevation.ops import namespace

Array = Any


def drive_command(spec: CommandSpec, command: Array) -> Array:
    """The velocity that drives the gait, (N, 3): m/s forward and to the left, rad/s.

    A velocity command is that itself. A goal (N, 4), see ``goal_command``, is walked to in
    a straight line, the base turning towards it on the way and into the goal's heading when near; zero once both are
    reached.

    Raises:
        ContractError: If the command is a goal and the contract has no goal velocity.
    """
    if spec.kind != BODY_POSE:
        return command
    goal = spec.goal_velocity
    if goal is None:
        raise ContractError("A gait that is driven by goals needs 'command.goal_velocity' in the contract.")
    xp = namespace(command)
    ahead, aside = command[:, 0], command[:, 1]
    distance = xp.sqrt(ahead * ahead + aside * aside)
    walks = distance > goal.stop_m
    # Of the way, how much a second; backwards it is walked no faster than sideways: the robot turns round first.
    share = limited(goal.speed_gain_s * distance, None, goal.speed_m_s) / limited(distance, 1e-9, None)
    share = xp.where(walks, share, xp.zeros_like(distance))
    forward = limited(share * ahead, -goal.lateral_m_s, goal.speed_m_s)
    lateral = limited(share * aside, -goal.lateral_m_s, goal.lateral_m_s)
    bearing = _turn(goal.yaw_gain_s * xp.atan2(aside, ahead), goal.yaw_rate_rad_s)
    error = xp.atan2(command[:, 2], command[:, 3])
    turns = walks | (xp.abs(error) > goal.stop_rad)
    align = xp.where(turns, _turn(goal.yaw_gain_s * error, goal.yaw_rate_rad_s), xp.zeros_like(error))
    far = limited(distance / goal.near_m - 1.0, 0.0, 1.0)
    return xp.stack((forward, lateral, far * bearing + (1.0 - far) * align), axis=-1)


def _turn(rate: Array, limit: float) -> Array:
    return limited(rate, -limit, limit)


def moving(gait: GaitSpec, command: Array) -> Array:
    """Shape (N,) of 0 or 1: whether the command (N, c) asks for motion, so that the clock runs."""
    xp = namespace(command)
    norm2 = xp.sum(command * command, axis=-1)
    return xp.astype(norm2 >= gait.stand_below**2, command.dtype)


def clock(gait: GaitSpec, time_s: Array, command: Array) -> Array:
    """Shape (N, 2): sine and cosine of the phase, zero while standing; ``time_s`` (N,) since the policy started."""
    xp = namespace(time_s)
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
    xp = namespace(time_s)
    phase = gait.frequency_hz * time_s[:, None] + foot_offset[None, :]
    return phase - xp.floor(phase)


def swing_arc(gait: GaitSpec, phase: Array) -> Array:
    """Height of the swing, 0 to 1, of the shape of ``phase``: 0 in stance, half a sine from 0 over 1 to 0 in swing."""
    xp = namespace(phase)
    progress = (phase - gait.duty) / (1.0 - gait.duty)
    return xp.sin(math.pi * limited(progress, 0.0, 1.0))


def stride(gait: GaitSpec, phase: Array) -> Array:
    """Place of the foot in [-1, 1], of the shape of ``phase``: falls evenly from 1 to -1 in stance and swings back
    along a cosine.
    """
    xp = namespace(phase)
    progress = (phase - gait.duty) / (1.0 - gait.duty)
    back = -xp.cos(math.pi * limited(progress, 0.0, 1.0))
    return xp.where(phase < gait.duty, 1.0 - 2.0 * phase / gait.duty, back)


def sway(gait: GaitSpec, time_s: Array) -> Array:
    """Shape of ``time_s`` (N,), in [-1, 1]: the sine that moves the weight from foot to foot."""
    xp = namespace(time_s)
    return xp.sin(2.0 * math.pi * (gait.frequency_hz * time_s + gait.sway_offset))


def foot_displacement(
    gait: GaitSpec, phase: Array, command: Array, foot_x_m: Array, foot_y_m: Array
) -> tuple[Array, Array]:
    """Displacement of each foot so that a stance foot moves against the commanded velocity of the body above it.

    Over a stance of duration T the foot travels from +vT/2 to -vT/2, with v the velocity of a point of the base at the
    foot: the planar velocity plus yaw rate times lever arm (the feed-forward part of Raibert's foot placement).

    ``gait.stride_lag`` sets all of it back.

    Args:
        gait: The clock.
        phase: Shape (N, feet).
        command: Shape (N, 3), forward and lateral velocity in m/s, yaw rate in rad/s.
        foot_x_m: Shape (feet,), ``gait.foot_x_m`` as an array.
        foot_y_m: Shape (feet,), ``gait.foot_y_m`` as an array.

    Returns:
        Forward and lateral displacement, each (N, feet), m.
    """
    half_stance_s, place = _half_stance_s(gait), stride(gait, phase)
    vel_x = command[:, 0:1] - command[:, 2:3] * foot_y_m[None, :]
    vel_y = command[:, 1:2] + command[:, 2:3] * foot_x_m[None, :]
    lag_x, lag_y = gait.stride_lag
    return (place - lag_x) * half_stance_s * vel_x, (place - lag_y) * half_stance_s * vel_y


def foot_turn(gait: GaitSpec, phase: Array, command: Array) -> Array:
    """Angle by which each foot is turned to the left so that the base turns over stance feet as commanded, (N, feet),
    rad.

    Args:
        gait: The clock.
        phase: Shape (N, feet).
        command: Shape (N, 3), as for :func:`foot_displacement`.
    """
    return stride(gait, phase) * _half_stance_s(gait) * command[:, 2:3]


def tilt(quat_base_to_world_wxyz: Array) -> Array:
    """Roll and pitch of the base, (N, 2), as the sines that gravity in the base frame (N, 4 -> 3) shows."""
    xp = namespace(quat_base_to_world_wxyz)
    w, x, y, z = (quat_base_to_world_wxyz[:, i] for i in range(4))
    return xp.stack((2.0 * (w * x + y * z), 2.0 * (w * y - x * z)), axis=-1)


def _half_stance_s(gait: GaitSpec) -> float:
    return 0.5 * gait.duty / gait.frequency_hz
