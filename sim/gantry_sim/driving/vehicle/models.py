"""The models of a car by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_hardware.errors import UnknownNameError
from gantry_sim.driving.vehicle import drift, dynamics, grip
from gantry_sim.driving.vehicle.car_params import CarParams
from gantry_sim.driving.vehicle.integrate import Rates

Advance = Callable[[Tensor, Tensor, CarParams, float], Tensor]
"""(state (N, D), inputs (N, 2), parameters, step in s) to the next state."""


@dataclass(frozen=True)
class CarModel:
    """One way to say how cars move."""

    name: str
    """For :func:`car_model`."""
    num_states: int
    """Columns of its state."""
    rates: Rates
    """Right-hand side."""
    advance: Advance
    """One step of the integrator that suits it."""
    at_cog: bool
    """Whether its reference point is the centre of gravity and not the rear axle."""
    needs_wheels: bool = False
    """Whether the car's wheels must be known."""
    drives_ahead: bool = False
    """Whether drive and brakes act along the heading, and not along the course of the centre of gravity."""

    @property
    def has_slip(self) -> bool:
        """Whether yaw rate and slip angle are states of their own."""
        return self.num_states > dynamics.SLIP

    def driven_speed(self, state: Tensor) -> Tensor:
        """(N,) speed that drive and brakes change, m/s, of states (N, D)."""
        speed = state[:, dynamics.SPEED]
        return speed * torch.cos(state[:, dynamics.SLIP]) if self.drives_ahead else speed

    def start(self, steering: Tensor, speed_base: Tensor, pose_base: Tensor, params: CarParams) -> Tensor:
        """The state of cars whose wheels roll without slipping.

        Args:
            steering: (m,) in rad.
            speed_base: (m,) of the rear axle in m/s.
            pose_base: (m, 3) x, y in m and yaw in rad of the rear axle in the world.
            params: Of these m cars.

        Returns:
            (m, D).
        """
        x, y, yaw = pose_base.unbind(-1)
        slip = dynamics.kinematic_slip(steering, params)
        speed = speed_base
        if self.at_cog:
            x, y = x + params.rear_axle_to_cog_m * torch.cos(yaw), y + params.rear_axle_to_cog_m * torch.sin(yaw)
            speed = speed_base / torch.cos(slip)
        columns = [x, y, steering, speed, yaw]
        if self.has_slip:
            columns += [dynamics.kinematic_yaw_rate(steering, speed, params), slip]
        if self.needs_wheels:
            columns += drift.rolling_wheels(steering, speed, slip, params).unbind(-1)
        return torch.stack(columns, dim=-1)

    def read(self, state: Tensor, params: CarParams) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """State at ``base_link``, whatever the model's own reference point is.

        Args:
            state: (N, D).
            params: Of the N cars.

        Returns:
            Pose (N, 3) in the world in m and rad, velocity (N, 2) ahead and to the left in m/s, yaw rate (N,) in rad/s,
            and slip angle (N,) of the centre of gravity in rad.
        """
        x, y, steering, speed, yaw = state[:, : dynamics.YAW_RATE].unbind(-1)
        rear_m = params.rear_axle_to_cog_m
        if self.at_cog:
            x, y = x - rear_m * torch.cos(yaw), y - rear_m * torch.sin(yaw)
        pose = torch.stack((x, y, yaw), dim=-1)
        if self.has_slip:
            yaw_rate, slip = state[:, dynamics.YAW_RATE].clone(), state[:, dynamics.SLIP].clone()
            sideways = speed * torch.sin(slip) - rear_m * yaw_rate
            return pose, torch.stack((speed * torch.cos(slip), sideways), dim=-1), yaw_rate, slip
        slip = dynamics.kinematic_slip(steering, params)
        ahead = speed * torch.cos(slip) if self.at_cog else speed
        yaw_rate = ahead * torch.tan(steering) / params.wheelbase_m
        return pose, torch.stack((ahead, torch.zeros_like(ahead)), dim=-1), yaw_rate, slip


def _advance_cog(state: Tensor, inputs: Tensor, params: CarParams, step_s: float) -> Tensor:
    """The midpoint rule, as the model about the rear axle has it."""
    half = state + 0.5 * step_s * dynamics.kinematic_cog_rates(state, inputs, params)
    return state + step_s * dynamics.kinematic_cog_rates(half, inputs, params)


_MODELS = {
    model.name: model
    for model in (
        CarModel("kinematic", 5, dynamics.kinematic_rates, dynamics.advance_kinematic, at_cog=False),
        CarModel("kinematic-cog", 5, dynamics.kinematic_cog_rates, _advance_cog, at_cog=True),
        CarModel("single-track", 7, dynamics.single_track_rates, dynamics.advance_single_track, at_cog=True),
        CarModel("single-track-grip", 7, grip.grip_rates, grip.advance_grip, at_cog=True, drives_ahead=True),
        CarModel("drift", 9, drift.drift_rates, drift.advance_drift, at_cog=True, needs_wheels=True),
    )
}


def model_names() -> tuple[str, ...]:
    """Names that :func:`car_model` knows."""
    return tuple(_MODELS)


def car_model(name: str) -> CarModel:
    """The model of that name.

    Raises:
        UnknownNameError: If there is none.
    """
    if name not in _MODELS:
        raise UnknownNameError("car model", name, _MODELS)
    return _MODELS[name]
