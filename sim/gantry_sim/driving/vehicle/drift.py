"""The drift model: a single track whose tyres saturate and whose wheels may spin or lock.

Equations and tyre: M. Althoff and G. Würsching, "CommonRoad: Vehicle Models" (2020), STD; the tyre is Pacejka's magic
formula with combined slip (H. Pacejka, "Tyre and Vehicle Dynamics"), without camber and turn slip.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_hardware.backends.state import GRAVITY_M_S2
from gantry_sim.driving.vehicle.car_params import CarParams
from gantry_sim.driving.vehicle.dynamics import (
    SLIP,
    SLIP_LIMIT_RAD,
    SPEED,
    STEERING,
    WHEEL_FRONT,
    WHEEL_REAR,
    YAW,
    YAW_RATE,
    X,
    Y,
    kinematic_slip,
    kinematic_turn_rates,
    kinematic_yaw_rate,
)
from gantry_sim.driving.vehicle.integrate import damped_delta

BLEND_SPEED_M_S, BLEND_WIDTH_M_S = 0.2, 0.05
"""Around this speed the model passes over into the kinematic one, as a hyperbolic tangent of this width."""
SLOW_WHEEL_M_S = 0.5 * BLEND_SPEED_M_S
"""Below it tyres have no slip angle, and slip is measured as if the wheel moved this fast."""
WHEEL_FOLLOW_S = 0.02
"""Time in which the wheels of a slow car take on its speed."""
ROLLING_M_S = BLEND_SPEED_M_S + 2.0 * BLEND_WIDTH_M_S
"""Steps leave tyres out of account below it: passing from one model to the other is no motion that a method of finite
steps could follow."""
STIFF = {YAW_RATE: 1e-3, SLIP: 1e-3, WHEEL_FRONT: 0.05, WHEEL_REAR: 0.05}
"""Columns that are advanced implicitly, and how far each is moved to see what depends on it."""


@dataclass(frozen=True)
class PacejkaTyre:
    """Coefficients of the magic formula in its usual names; x lengthwise, y sideways, r for combined slip."""

    p_cx1: float = 1.6411
    """Shape factor lengthwise."""
    p_dx1: float = 1.1739
    """Friction lengthwise."""
    p_ex1: float = 0.46403
    """Curvature lengthwise."""
    p_kx1: float = 22.303
    """Slip stiffness by load."""
    p_hx1: float = 0.0012297
    """Horizontal shift."""
    p_vx1: float = -8.8098e-06
    """Vertical shift by load."""
    r_bx1: float = 13.276
    """Slope of the reduction lengthwise."""
    r_bx2: float = -13.778
    """Its variation with slip."""
    r_cx1: float = 1.2568
    """Its shape."""
    r_ex1: float = 0.65225
    """Its curvature."""
    r_hx1: float = 0.0050722
    """Its shift."""
    p_cy1: float = 1.3507
    """Shape factor sideways."""
    p_dy1: float = 1.0489
    """Friction sideways."""
    p_ey1: float = -0.0074722
    """Curvature sideways."""
    p_ky1: float = -21.92
    """Cornering stiffness by load."""
    r_by1: float = 7.1433
    """Slope of the reduction sideways."""
    r_by2: float = 9.1916
    """Its variation with slip angle."""
    r_by3: float = -0.027856
    """Shift of that variation."""
    r_cy1: float = 1.0719
    """Its shape."""
    r_ey1: float = -0.27572
    """Its curvature."""
    r_hy1: float = 5.7448e-06
    """Its shift."""
    r_vy1: float = -0.027825
    """Side force induced by slip, by friction and load."""
    r_vy4: float = 12.12
    """Its variation with slip angle."""
    r_vy5: float = 1.9
    """Its variation with slip."""
    r_vy6: float = -10.704
    """Its variation with the arctangent of slip."""


ADAMS_TYRE = PacejkaTyre()
"""The tyre of CommonRoad's parameter sets, from the ADAMS handbook."""


def drift_rates(state: Tensor, inputs: Tensor, params: CarParams, tyre: PacejkaTyre = ADAMS_TYRE) -> Tensor:
    """Right-hand side of the drift model. The car's friction scales the tyre's in both directions.

    Args:
        state: (..., N, 9), see ``dynamics.py``.
        inputs: (..., N, 2), already limited; acceleration becomes torque of the engine or the brakes.
        params: Of the N cars, whose wheels must be known.
        tyre: Shared by all.

    Returns:
        (..., N, 9).
    """
    _, _, steering, speed, yaw, yaw_rate, slip, front_spin, rear_spin = state.unbind(-1)
    rate, accel = inputs.unbind(-1)
    front_m, rear_m, mass_kg = params.front_axle_to_cog_m, params.rear_axle_to_cog_m, params.mass_kg
    radius_m, inertia = params.wheel_radius_m, params.wheel_inertia_kg_m2
    (front_x, front_y), (rear_x, rear_y), front_way, rear_way = _tyre_forces(state, accel, params, tyre)

    torque = mass_kg * radius_m * accel
    engine, brake = torch.clamp(torque, min=0.0), torch.clamp(torque, max=0.0)
    front_torque = params.brake_share_front * brake + params.drive_share_front * engine
    rear_torque = (1.0 - params.brake_share_front) * brake + (1.0 - params.drive_share_front) * engine
    across, along = torch.sin(steering - slip), torch.cos(steering - slip)
    sin_slip, cos_slip = torch.sin(slip), torch.cos(slip)
    moving = speed > SLOW_WHEEL_M_S
    divisor = mass_kg * torch.where(moving, speed, SLOW_WHEEL_M_S)
    sideways = front_y * along + rear_y * cos_slip - rear_x * sin_slip + front_x * across
    speed_rate = (-front_y * across + rear_y * sin_slip + rear_x * cos_slip + front_x * along) / mass_kg
    yaw_lever = front_y * torch.cos(steering) * front_m - rear_y * rear_m + front_x * torch.sin(steering) * front_m
    slip_rate = torch.where(moving, sideways / divisor - yaw_rate, 0.0)
    front_rate = torch.where(front_spin >= 0.0, (front_torque - radius_m * front_x) / inertia, 0.0)
    rear_rate = torch.where(rear_spin >= 0.0, (rear_torque - radius_m * rear_x) / inertia, 0.0)

    slow_turn, slow_yaw_accel, slow_slip_rate = kinematic_turn_rates(state, inputs, params)
    slow_front = (front_way / radius_m - torch.clamp(front_spin, min=0.0)) / WHEEL_FOLLOW_S
    slow_rear = (rear_way / radius_m - torch.clamp(rear_spin, min=0.0)) / WHEEL_FOLLOW_S
    share = blend_share(speed)
    course = slip + yaw
    return torch.stack(
        (
            speed * torch.cos(course),
            speed * torch.sin(course),
            rate,
            torch.lerp(accel, speed_rate, share),
            torch.lerp(slow_turn, yaw_rate, share),
            torch.lerp(slow_yaw_accel, yaw_lever / params.yaw_inertia_kg_m2, share),
            torch.lerp(slow_slip_rate, slip_rate, share),
            torch.lerp(slow_front, front_rate, share),
            torch.lerp(slow_rear, rear_rate, share),
        ),
        dim=-1,
    )


def blend_share(speed: Tensor) -> Tensor:
    """Share of the dynamic model at this speed (m/s), 0 to 1; backwards it is none."""
    return 0.5 * (torch.tanh((speed - BLEND_SPEED_M_S) / BLEND_WIDTH_M_S) + 1.0)


def advance_drift(state: Tensor, inputs: Tensor, params: CarParams, step_s: float) -> Tensor:
    """One step of the drift model; shapes as in ``advance_single_track`` with nine columns.

    A wheel takes on the road's speed within a millisecond and less, so that explicit methods would need thousands of
    steps a second. First yaw rate, slip angle and wheels are advanced implicitly, then the speed by the forces that
    result, then the pose along the means. Below ``ROLLING_M_S`` the car rolls as the kinematic model says.
    """
    rate, accel = inputs.unbind(-1)
    turned = state.clone()
    turned[..., STEERING] = state[..., STEERING] + step_s * rate
    turned = turned + damped_delta(drift_rates, turned, inputs, params, step_s, STIFF)
    turned = settle_drift(turned, params)
    speed = state[..., SPEED]
    speed_rate = torch.where(speed < ROLLING_M_S, accel, drift_rates(turned, inputs, params)[..., SPEED])
    turned[..., SPEED] = speed + step_s * speed_rate
    turned = settle_drift(turned, params)
    slip, yaw_rate = state[..., SLIP], state[..., YAW_RATE]
    turn = 0.5 * step_s * (yaw_rate + turned[..., YAW_RATE])
    course = state[..., YAW] + 0.5 * (turn + slip + turned[..., SLIP])
    way = 0.5 * step_s * (speed + turned[..., SPEED])
    turned[..., X] = state[..., X] + way * torch.cos(course)
    turned[..., Y] = state[..., Y] + way * torch.sin(course)
    turned[..., YAW] = state[..., YAW] + turn
    return turned


def settle_drift(state: Tensor, params: CarParams) -> Tensor:
    """The state (N, 9) with what a slow car's yaw rate, slip angle and wheels must be, within the limits of slip."""
    steering, speed = state[..., STEERING], state[..., SPEED]
    slow = speed < ROLLING_M_S
    slip = kinematic_slip(steering, params)
    wheels = rolling_wheels(steering, speed, slip, params)
    free = torch.clamp(state[..., SLIP], -SLIP_LIMIT_RAD, SLIP_LIMIT_RAD)
    settled = state.clone()
    settled[..., YAW_RATE] = torch.where(slow, kinematic_yaw_rate(steering, speed, params), state[..., YAW_RATE])
    settled[..., SLIP] = torch.where(slow, slip, free)
    settled[..., WHEEL_FRONT:] = torch.where(slow[..., None], wheels, torch.clamp(state[..., WHEEL_FRONT:], min=0.0))
    return settled


def rolling_wheels(steering: Tensor, speed: Tensor, slip: Tensor, params: CarParams) -> Tensor:
    """(N, 2) turning speeds of front and rear wheels that roll, rad/s; never backwards.

    Args:
        steering: (N,) in rad.
        speed: (N,) of the centre of gravity in m/s.
        slip: (N,) of the kinematic model in rad.
        params: Of the N cars.
    """
    rear = torch.clamp(speed * torch.cos(slip), min=0.0) / params.wheel_radius_m
    return torch.stack((rear / torch.cos(steering), rear), dim=-1)


Pair = tuple[Tensor, Tensor]


def _tyre_forces(
    state: Tensor, accel: Tensor, params: CarParams, tyre: PacejkaTyre
) -> tuple[Pair, Pair, Tensor, Tensor]:
    """Forces (lengthwise, sideways) in N of front and rear tyre in their own frames, and the speeds of both wheels'
    hubs along the wheels in m/s, not below zero."""
    _, _, steering, speed, _, yaw_rate, slip, front_spin, rear_spin = state.unbind(-1)
    front_m, rear_m = params.front_axle_to_cog_m, params.rear_axle_to_cog_m
    ahead, across = speed * torch.cos(slip), speed * torch.sin(slip)
    moving = speed > SLOW_WHEEL_M_S
    divisor = torch.where(moving, ahead, 1.0)
    front_angle = torch.where(moving, torch.atan((across + yaw_rate * front_m) / divisor) - steering, 0.0)
    rear_angle = torch.where(moving, torch.atan((across - yaw_rate * rear_m) / divisor), 0.0)
    load = params.mass_kg / params.wheelbase_m
    front_load = load * (GRAVITY_M_S2 * rear_m - accel * params.cog_height_m)
    rear_load = load * (GRAVITY_M_S2 * front_m + accel * params.cog_height_m)
    front_way = ahead * torch.cos(steering) + (across + front_m * yaw_rate) * torch.sin(steering)
    front_way, rear_way = torch.clamp(front_way, min=0.0), torch.clamp(ahead, min=0.0)
    front_slip = 1.0 - params.wheel_radius_m * front_spin / torch.clamp(front_way, min=SLOW_WHEEL_M_S)
    rear_slip = 1.0 - params.wheel_radius_m * rear_spin / torch.clamp(rear_way, min=SLOW_WHEEL_M_S)
    front = tyre_force(front_slip, front_angle, front_load, params.friction, tyre)
    rear = tyre_force(rear_slip, rear_angle, rear_load, params.friction, tyre)
    return front, rear, front_way, rear_way


def tyre_force(
    slip: Tensor, angle: Tensor, load: Tensor, friction: Tensor, tyre: PacejkaTyre = ADAMS_TYRE
) -> tuple[Tensor, Tensor]:
    """Force of one tyre with combined slip, along the tyre's own axes; any shape.

    Args:
        slip: Lengthwise slip, 1 for a locked wheel, 0 for one that rolls.
        angle: Slip angle in rad, positive when the tyre slides to its left.
        load: Vertical force in N.
        friction: Sideways friction; lengthwise it is scaled in proportion.
        tyre: Coefficients.

    Returns:
        Force lengthwise (forwards positive) and sideways (left positive) in N.
    """
    grip_x = tyre.p_dx1 * friction / tyre.p_dy1 * load
    grip_y = friction * load
    # The source has the vertical shift inside of the sine.
    bend = _bent(load * tyre.p_kx1 / (tyre.p_cx1 * grip_x) * (tyre.p_hx1 - slip), tyre.p_ex1)
    pure_x = grip_x * torch.sin(tyre.p_cx1 * torch.atan(bend) + load * tyre.p_vx1)
    bend = _bent(load * tyre.p_ky1 / (tyre.p_cy1 * grip_y) * angle, tyre.p_ey1)
    pure_y = grip_y * torch.sin(tyre.p_cy1 * torch.atan(bend))

    slope_x = tyre.r_bx1 * torch.cos(torch.atan(tyre.r_bx2 * slip))
    slope_y = tyre.r_by1 * torch.cos(torch.atan(tyre.r_by2 * (angle - tyre.r_by3)))
    left_x = _reduction(slope_x, angle, tyre.r_hx1, tyre.r_cx1, tyre.r_ex1)
    left_y = _reduction(slope_y, slip, tyre.r_hy1, tyre.r_cy1, tyre.r_ey1)
    induced = grip_y * tyre.r_vy1 * torch.cos(torch.atan(tyre.r_vy4 * angle))
    return pure_x * left_x, pure_y * left_y + induced * torch.sin(tyre.r_vy5 * torch.atan(tyre.r_vy6 * slip))


def _bent(value: Tensor, curvature: float) -> Tensor:
    return value - curvature * (value - torch.atan(value))


def _reduction(slope: Tensor, other: Tensor, shift: float, shape: float, curvature: float) -> Tensor:
    """Remaining share of a force when the tyre slips the other way as well; 1 without such slip."""
    alone = torch.cos(shape * torch.atan(_bent(slope * shift, curvature)))
    return torch.cos(shape * torch.atan(_bent(slope * (other + shift), curvature))) / alone
