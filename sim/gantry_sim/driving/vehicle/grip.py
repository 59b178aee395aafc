"""A single-track model whose tyres let go, for cars of any size.

CommonRoad's single-track model lets its tyres hold any force, so that a policy learns to take bends with several times
the grip of a car, and takes all angles for small. Its drift model knows better, but needs wheels and coefficients that
small cars do not publish. Here the force of a tyre grows with its slip angle as a hyperbolic tangent: with the
published stiffness at first, towards friction times load in the end, and less while braking or accelerating uses up a
part of the grip (the friction circle). At small angles the model is CommonRoad's, at low speeds the kinematic one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_hardware.backends.state import GRAVITY_M_S2
from gantry_sim.driving.vehicle.car_params import CarParams
from gantry_sim.driving.vehicle.dynamics import (
    SLOW_M_S,
    kinematic_slip,
    kinematic_turn_rates,
)

LEAST_SHARE = 0.2
"""Share of the grip that is left sideways while all of it is used lengthwise; with none a car could not be steered."""
LEAST_SLIDE_M_S = 1e-4
"""Slower sliding counts as this, so that nothing is divided by zero."""


@dataclass(frozen=True)
class _Axle:
    """One tyre of the single track."""

    along: Tensor
    """Minus the sine of its steering angle."""
    across: Tensor
    """Cosine of its steering angle."""
    lever: Tensor
    """Addition of the yaw rate to its sliding, in m."""
    slide: Tensor
    """Speed across its plane in m/s: along * vx + across * vy + lever * yaw rate."""
    drag: Tensor
    """Force by sliding speed, in N s/m."""
    most: Tensor
    """Largest force in N."""


def grip_rates(state: Tensor, inputs: Tensor, params: CarParams) -> Tensor:
    """Right-hand side; shapes as in ``single_track_rates``."""
    _, _, steering, speed, yaw, yaw_rate, slip = state.unbind(-1)
    rate, accel = inputs[..., 0], _within_grip(inputs[..., 1], params)
    cos, sin = torch.cos(slip), torch.sin(slip)
    front, rear = _axles(steering, speed * cos, speed * sin, yaw_rate, accel, params)
    front_force, rear_force = -front.drag * front.slide, -rear.drag * rear.slide
    accel_x = accel + front.along * front_force / params.mass_kg
    accel_y = (front.across * front_force + rear.across * rear_force) / params.mass_kg
    yaw_accel = (front.lever * front_force + rear.lever * rear_force) / params.yaw_inertia_kg_m2
    slow = speed.abs() < SLOW_M_S
    divisor = torch.where(slow, SLOW_M_S, speed)
    slow_turn, slow_yaw_accel, slow_slip_rate = kinematic_turn_rates(state, inputs, params)
    course = torch.where(slow, kinematic_slip(steering, params), slip) + yaw
    return torch.stack(
        (
            speed * torch.cos(course),
            speed * torch.sin(course),
            rate,
            torch.where(slow, accel, accel_x * cos + accel_y * sin),
            torch.where(slow, slow_turn, yaw_rate),
            torch.where(slow, slow_yaw_accel, yaw_accel),
            torch.where(slow, slow_slip_rate, (accel_y * cos - accel_x * sin) / divisor - yaw_rate),
        ),
        dim=-1,
    )


def advance_grip(state: Tensor, inputs: Tensor, params: CarParams, step_s: float) -> Tensor:
    """One step, stable at any speed and length; shapes as in ``advance_single_track``.

    The velocity first turns against the heading; then the impulses of both tyres follow from how fast they would slide
    afterwards, which is two linear equations. Tyres only take energy out of the car, however long the step. The pose
    follows the mean of old and new velocities.
    """
    x, y, steering, speed, yaw, yaw_rate, slip = state.unbind(-1)
    rate, accel = inputs[..., 0], _within_grip(inputs[..., 1], params)
    mass, inertia = params.mass_kg, params.yaw_inertia_kg_m2
    new_steering, turned = steering + step_s * rate, slip - step_s * yaw_rate
    ahead = speed * torch.cos(turned) + step_s * accel
    left = speed * torch.sin(turned)
    front, rear = _axles(new_steering, ahead, left, yaw_rate, accel, params)

    # Sliding speed that one tyre's impulse takes from itself and from the other, with that tyre's give added.
    front_front = 1.0 / mass + front.lever**2 / inertia + 1.0 / (step_s * front.drag)
    rear_rear = 1.0 / mass + rear.lever**2 / inertia + 1.0 / (step_s * rear.drag)
    both = front.across * rear.across / mass + front.lever * rear.lever / inertia
    determinant = front_front * rear_rear - both * both
    front_push = (rear_rear * front.slide - both * rear.slide) / determinant
    rear_push = (front_front * rear.slide - both * front.slide) / determinant
    front_push = torch.clamp(front_push, -step_s * front.most, step_s * front.most)
    rear_push = torch.clamp(rear_push, -step_s * rear.most, step_s * rear.most)

    ahead = ahead - front.along * front_push / mass
    left = left - (front.across * front_push + rear.across * rear_push) / mass
    new_yaw_rate = yaw_rate - (front.lever * front_push + rear.lever * rear_push) / inertia
    new_yaw = yaw + 0.5 * step_s * (yaw_rate + new_yaw_rate)
    cos, sin, course = torch.cos(new_yaw), torch.sin(new_yaw), yaw + slip
    new_x = x + 0.5 * step_s * (speed * torch.cos(course) + cos * ahead - sin * left)
    new_y = y + 0.5 * step_s * (speed * torch.sin(course) + sin * ahead + cos * left)
    way = torch.where(ahead < 0.0, -1.0, 1.0).to(ahead.dtype)
    new_speed, new_slip = way * torch.hypot(ahead, left), torch.atan2(way * left, way * ahead)
    return torch.stack((new_x, new_y, new_steering, new_speed, new_yaw, new_yaw_rate, new_slip), dim=-1)


def _axles(
    steering: Tensor, ahead: Tensor, left: Tensor, yaw_rate: Tensor, accel: Tensor, params: CarParams
) -> tuple[_Axle, _Axle]:
    """Front and rear tyre of cars whose centre of gravity moves with (ahead, left) in m/s."""
    front_m, rear_m = params.front_axle_to_cog_m, params.rear_axle_to_cog_m
    cos, sin = torch.cos(steering), torch.sin(steering)
    used = accel / (params.friction * GRAVITY_M_S2)
    share = torch.sqrt(torch.clamp(1.0 - used * used, min=LEAST_SHARE**2))
    unit = params.friction * params.mass_kg / params.wheelbase_m
    front_grip = unit * torch.clamp(GRAVITY_M_S2 * rear_m - accel * params.cog_height_m, min=0.0)
    rear_grip = unit * torch.clamp(GRAVITY_M_S2 * front_m + accel * params.cog_height_m, min=0.0)
    nose = left + front_m * yaw_rate
    front_slide, rear_slide = nose * cos - ahead * sin, left - rear_m * yaw_rate
    front_drag = _drag(front_slide, ahead * cos + nose * sin, params.cornering_stiffness_front / share)
    rear_drag = _drag(rear_slide, ahead, params.cornering_stiffness_rear / share)
    front_most, rear_most = front_grip * share, rear_grip * share
    return (
        _Axle(-sin, cos, front_m * cos, front_slide, front_drag * front_most, front_most),
        _Axle(torch.zeros_like(sin), torch.ones_like(cos), -rear_m, rear_slide, rear_drag * rear_most, rear_most),
    )


def _drag(slide: Tensor, roll: Tensor, stiffness: Tensor) -> Tensor:
    """Share of the largest force by sliding speed, in s/m, of a tyre that rolls at ``roll`` m/s."""
    slide = torch.clamp(slide.abs(), min=LEAST_SLIDE_M_S)
    return torch.tanh(stiffness * torch.atan(slide / torch.clamp(roll.abs(), min=SLOW_M_S))) / slide


def _within_grip(accel: Tensor, params: CarParams) -> Tensor:
    """Acceleration that all tyres together can give, in m/s^2."""
    most = params.friction * GRAVITY_M_S2
    return torch.clamp(accel, -most, most)
