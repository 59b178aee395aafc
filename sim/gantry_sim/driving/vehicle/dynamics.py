"""Vehicle dynamics: equations of single-track models for any number of cars at once.

The equations are those of M. Althoff and G. Würsching, "CommonRoad: Vehicle Models" (2020): the kinematic single-track
model (KS), about the rear axle and about the centre of gravity, and the single-track model with linear tyres and load
transfer (ST). The drift model is in ``drift.py``.

A state is a tensor of shape (..., N, D). Its columns, of which a kinematic model has the first five:

===== ============ =======================================================
index name         meaning
===== ============ =======================================================
0, 1  X, Y         place of the reference point in the world, m
2     STEERING     angle of the front wheel, rad, left positive
3     SPEED        along the course of the reference point, m/s
4     YAW          heading in the world, rad
5     YAW_RATE     rad/s
6     SLIP         course minus heading at the centre of gravity, rad
7, 8  WHEEL_*      turning speed of the front and the rear wheel, rad/s
===== ============ =======================================================

Inputs are (..., N, 2): speed of the steering angle in rad/s, and longitudinal acceleration in m/s^2. Functions named
``*_rates`` are right-hand sides d(state)/dt; ``advance_*`` moves a state on by one short step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_hardware.backends.state import GRAVITY_M_S2
from gantry_sim.driving.vehicle.car_params import CarParams

X, Y, STEERING, SPEED, YAW, YAW_RATE, SLIP, WHEEL_FRONT, WHEEL_REAR = range(9)
"""Columns of a state."""

SLOW_M_S = 0.1
"""Below this speed, either way, a car moves as the kinematic model says."""
SLIP_LIMIT_RAD = 1.5
"""Linear tyres never let go, so that a car which spins would spin without end; nearly sideways the slip angle stops."""


def kinematic_rates(state: Tensor, inputs: Tensor, params: CarParams) -> Tensor:
    """Kinematic single track about the rear axle, which never slips.

    Args:
        state: (..., N, 5).
        inputs: (..., N, 2), already limited.
        params: Of the N cars.

    Returns:
        (..., N, 5).
    """
    _, _, steering, speed, yaw = state.unbind(-1)
    rate, accel = inputs.unbind(-1)
    yaw_rate = speed * torch.tan(steering) / params.wheelbase_m
    return torch.stack((speed * torch.cos(yaw), speed * torch.sin(yaw), rate, accel, yaw_rate), dim=-1)


def kinematic_cog_rates(state: Tensor, inputs: Tensor, params: CarParams) -> Tensor:
    """Kinematic single track about the centre of gravity; shapes as in :func:`kinematic_rates`."""
    _, _, steering, speed, yaw = state.unbind(-1)
    rate, accel = inputs.unbind(-1)
    slip = kinematic_slip(steering, params)
    yaw_rate = speed * torch.cos(slip) * torch.tan(steering) / params.wheelbase_m
    course = slip + yaw
    return torch.stack((speed * torch.cos(course), speed * torch.sin(course), rate, accel, yaw_rate), dim=-1)


def single_track_rates(state: Tensor, inputs: Tensor, params: CarParams) -> Tensor:
    """Single track with linear tyres, load transfer, and the kinematic model below ``SLOW_M_S``.

    Forwards this is the source's model to the last digit. Backwards the source's tyres would push a car the way that it
    slides already, which no simulation survives; here a tyre's force opposes its sliding in either direction.

    Args:
        state: (..., N, 7).
        inputs: (..., N, 2), already limited.
        params: Of the N cars.

    Returns:
        (..., N, 7).
    """
    _, _, steering, speed, yaw, yaw_rate, slip = state.unbind(-1)
    rate, accel = inputs.unbind(-1)
    slow = speed.abs() < SLOW_M_S
    course = torch.where(slow, kinematic_slip(steering, params), slip) + yaw
    (yaw_yaw, yaw_slip, yaw_steer), (slip_yaw, slip_slip, slip_steer) = tyre_matrix(speed, accel, params)
    yaw_accel = yaw_yaw * yaw_rate + yaw_slip * slip + yaw_steer * steering
    slip_rate = slip_yaw * yaw_rate + slip_slip * slip + slip_steer * steering
    slow_turn, slow_yaw_accel, slow_slip_rate = kinematic_turn_rates(state, inputs, params)
    return torch.stack(
        (
            speed * torch.cos(course),
            speed * torch.sin(course),
            rate,
            accel,
            torch.where(slow, slow_turn, yaw_rate),
            torch.where(slow, slow_yaw_accel, yaw_accel),
            torch.where(slow, slow_slip_rate, slip_rate),
        ),
        dim=-1,
    )


def kinematic_slip(steering: Tensor, params: CarParams) -> Tensor:
    """Slip angle at the centre of gravity of a car whose wheels do not slip, rad, shape of ``steering``."""
    return torch.atan(torch.tan(steering) * params.rear_axle_to_cog_m / params.wheelbase_m)


def kinematic_yaw_rate(steering: Tensor, speed_cog: Tensor, params: CarParams) -> Tensor:
    """Yaw rate of a car whose wheels do not slip, from the speed of its centre of gravity, rad/s."""
    return speed_cog * torch.cos(kinematic_slip(steering, params)) * torch.tan(steering) / params.wheelbase_m


def kinematic_turn_rates(state: Tensor, inputs: Tensor, params: CarParams) -> tuple[Tensor, Tensor, Tensor]:
    """Turn rates of the kinematic model in a state of the dynamic models.

    Returns:
        Yaw rate in rad/s, its derivative in rad/s^2, and the derivative of the slip angle in rad/s, each (..., N).
    """
    steering, speed, slip = state[..., STEERING], state[..., SPEED], state[..., SLIP]
    rate, accel = inputs.unbind(-1)
    tan, cos_squared = torch.tan(steering), torch.cos(steering) ** 2
    share = params.rear_axle_to_cog_m / params.wheelbase_m
    # The source squares tan(steering) before the share of the axles, which is not the derivative of the slip angle but
    # differs little; numbers are compared with it.
    slip_rate = share * rate / (cos_squared * (1.0 + (tan**2 * share) ** 2))
    yaw_accel = (
        accel * torch.cos(slip) * tan
        - speed * torch.sin(slip) * slip_rate * tan
        + speed * torch.cos(slip) * rate / cos_squared
    ) / params.wheelbase_m
    return kinematic_yaw_rate(steering, speed, params), yaw_accel, slip_rate


def tyre_matrix(
    speed: Tensor, accel: Tensor, params: CarParams
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
    """The linear system of (yaw rate, slip angle) at one speed and acceleration.

    Args:
        speed: (..., N) in m/s.
        accel: (..., N) in m/s^2.
        params: Of the N cars.

    Returns:
        Two rows, for the derivatives of yaw rate and slip angle; each holds the factors of yaw rate, slip angle and
        steering angle, shapes (..., N). Speeds below ``SLOW_M_S`` count as that, so that nothing is divided by zero.
    """
    front_m, rear_m, base_m = params.front_axle_to_cog_m, params.rear_axle_to_cog_m, params.wheelbase_m
    way = torch.where(speed < 0.0, -1.0, 1.0).to(speed.dtype)
    pace = torch.clamp(speed.abs(), min=SLOW_M_S)
    lift = accel * params.cog_height_m
    front = params.cornering_stiffness_front * (GRAVITY_M_S2 * rear_m - lift)
    rear = params.cornering_stiffness_rear * (GRAVITY_M_S2 * front_m + lift)
    turn = params.friction * params.mass_kg / (params.yaw_inertia_kg_m2 * base_m)
    drift = params.friction / (pace * base_m)
    balance = way * (rear_m * rear - front_m * front)
    yaw_row = (
        -turn / pace * (front_m * front_m * front + rear_m * rear_m * rear),
        turn * balance,
        way * turn * front_m * front,
    )
    slip_row = (drift / pace * balance - 1.0, -drift * (rear + front), drift * front)
    return yaw_row, slip_row


def advance_kinematic(state: Tensor, inputs: Tensor, params: CarParams, step_s: float) -> Tensor:
    """One step of the model about the rear axle: speeds first, then the pose along their mean. Second order.

    Args:
        state: (N, 5).
        inputs: (N, 2), limited, and held for the step.
        params: Of the N cars.
        step_s: Length of the step.

    Returns:
        (N, 5); yaw is not wrapped.
    """
    x, y, steering, speed, yaw = state.unbind(-1)
    rate, accel = inputs.unbind(-1)
    mean_steering, mean_speed = steering + 0.5 * step_s * rate, speed + 0.5 * step_s * accel
    turn = step_s * mean_speed * torch.tan(mean_steering) / params.wheelbase_m
    course, way = yaw + 0.5 * turn, step_s * mean_speed
    new = (
        x + way * torch.cos(course),
        y + way * torch.sin(course),
        steering + step_s * rate,
        speed + step_s * accel,
        yaw + turn,
    )
    return torch.stack(new, dim=-1)


def advance_single_track(state: Tensor, inputs: Tensor, params: CarParams, step_s: float) -> Tensor:
    """One step of the single-track model, stable at any speed and length.

    Tyres pull the faster the slower a car is: at 0.2 m/s within a millisecond, where explicit integrators at usual
    steps diverge. At a given speed yaw rate and slip angle obey a linear system, so that the implicit Euler method
    costs no more than a determinant. The pose follows the mean of old and new speeds.

    Args:
        state: (N, 7).
        inputs: (N, 2), limited, and held for the step.
        params: Of the N cars.
        step_s: Length of the step.

    Returns:
        (N, 7); yaw is not wrapped.
    """
    x, y, steering, speed, yaw, yaw_rate, slip = state.unbind(-1)
    rate, accel = inputs.unbind(-1)
    new_steering, new_speed = steering + step_s * rate, speed + step_s * accel
    mean_speed = 0.5 * (speed + new_speed)
    (yaw_yaw, yaw_slip, yaw_steer), (slip_yaw, slip_slip, slip_steer) = tyre_matrix(mean_speed, accel, params)
    a, b = 1.0 - step_s * yaw_yaw, -step_s * yaw_slip
    c, d = -step_s * slip_yaw, 1.0 - step_s * slip_slip
    right_yaw = yaw_rate + step_s * yaw_steer * new_steering
    right_slip = slip + step_s * slip_steer * new_steering
    determinant = a * d - b * c
    new_yaw_rate = (d * right_yaw - b * right_slip) / determinant
    new_slip = (a * right_slip - c * right_yaw) / determinant
    new_slip = torch.clamp(new_slip, -SLIP_LIMIT_RAD, SLIP_LIMIT_RAD)
    slow = new_speed.abs() < SLOW_M_S
    new_yaw_rate = torch.where(slow, kinematic_yaw_rate(new_steering, new_speed, params), new_yaw_rate)
    new_slip = torch.where(slow, kinematic_slip(new_steering, params), new_slip)
    turn = 0.5 * step_s * (yaw_rate + new_yaw_rate)
    course, way = yaw + 0.5 * (turn + slip + new_slip), step_s * mean_speed
    new_x, new_y = x + way * torch.cos(course), y + way * torch.sin(course)
    return torch.stack((new_x, new_y, new_steering, new_speed, yaw + turn, new_yaw_rate, new_slip), dim=-1)
