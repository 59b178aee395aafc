"""A batch of cars that are told where to steer and how to accelerate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_hardware.model.cars import CarSpec
from gantry_sim.driving.vehicle import dynamics
from gantry_sim.driving.vehicle.actuation import Actuation, CarRandomization
from gantry_sim.driving.vehicle.car_params import CarParams
from gantry_sim.driving.vehicle.models import car_model


@dataclass(frozen=True)
class CarsCfg:
    """Settings of the simulated cars."""

    model: str = "kinematic"
    """``kinematic``, ``kinematic-cog``, ``single-track``, ``single-track-grip`` or ``drift``. Tyres of the last two
    alone let go; ``single-track`` takes the steering angle for its tangent, so that no car should park with it."""
    dt_s: float = 0.1
    """Time between two decisions."""
    substeps: int = 5
    """Physics steps in it."""
    reverse: bool = True
    """Whether cars may drive backwards at all."""
    randomization: CarRandomization = field(default_factory=CarRandomization)
    """Ranges of differences between cars."""

    def __post_init__(self) -> None:
        car_model(self.model)
        if not 0.0 < self.dt_s < math.inf:
            raise GantryError(f"Time between two decisions is {self.dt_s} s, expected a number > 0.")
        if self.substeps < 1:
            raise GantryError(f"There are {self.substeps} physics steps in a decision, expected at least 1.")

    @property
    def step_s(self) -> float:
        """Length of a physics step."""
        return self.dt_s / self.substeps


class BatchedCars:
    """N cars; poses and speeds are those of ``base_link``, the middle of the rear axle.

    After each step and reset there are ``pose`` (N, 3), x, y in m and yaw in [-pi, pi] rad in the world;
    ``velocity_in_base_m_s`` (N, 2), ahead and to the left; ``yaw_rate_rad_s`` (N,); ``slip_rad`` (N,), the angle from
    the heading to the course of the centre of gravity; and the properties below. They are new tensors each time.

    Args:
        specs: One kind for all, or one per car.
        num_cars: N; may be left out with one spec per car.
        cfg: How they are simulated.
        seed: Of the differences between cars.
        device: Of all tensors.
        dtype: Of all numbers.

    Raises:
        GantryError: If the number of specs is not N, or the model needs wheels that a car does not publish.
    """

    def __init__(
        self,
        specs: CarSpec | Sequence[CarSpec],
        num_cars: int | None = None,
        cfg: CarsCfg | None = None,
        seed: int = 0,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.cfg = cfg or CarsCfg()
        self.model = car_model(self.cfg.model)
        self._nominal = _nominal(specs, num_cars, self.cfg, device, dtype)
        self.params = self._nominal.clone()
        """Of every car as it was drawn at its last reset."""
        self.generator = torch.Generator(device=device).manual_seed(seed)
        """Of the differences between cars."""
        count, longest_delay_s = len(self.params.mass_kg), self.cfg.randomization.delay_s[1]
        self.actuation = Actuation(count, self.cfg.dt_s, self.cfg.substeps, longest_delay_s, device, dtype)
        self.state = torch.zeros(count, self.model.num_states, dtype=dtype, device=device)
        """(N, D), see ``dynamics.py``; of the model's own reference point."""
        self.accel_in_base_m_s2 = torch.zeros(count, 2, dtype=dtype, device=device)
        """(N, 2) acceleration of ``base_link`` lengthwise and to the left, mean over the last decision's step."""
        self.pose, self.velocity_in_base_m_s, self.yaw_rate_rad_s, self.slip_rad = self.model.read(
            self.state, self.params
        )
        self.reset(torch.arange(count, device=device), torch.zeros(count, 3), torch.zeros(count))

    @property
    def num_cars(self) -> int:
        """N."""
        return self.state.shape[0]

    @property
    def speed_m_s(self) -> Tensor:
        """(N,) of ``base_link`` along the heading, as odometry reports it; backwards negative."""
        return self.velocity_in_base_m_s[:, 0]

    @property
    def steering_rad(self) -> Tensor:
        """(N,) angle of the front wheels."""
        return self.state[:, dynamics.STEERING]

    def reset(self, env_ids: Tensor, pose: Tensor, speed_m_s: Tensor, steering_rad: Tensor | None = None) -> None:
        """Put some cars elsewhere, drawing anew what makes them differ.

        Args:
            env_ids: (m,) which, int64.
            pose: (m, 3) x, y in m and yaw in rad of ``base_link`` in the world.
            speed_m_s: (m,) of ``base_link``, backwards negative.
            steering_rad: (m,) of the front wheels; straight ahead if left out.
        """
        pose, speed = pose.to(self.state), speed_m_s.to(self.state)
        steering = torch.zeros_like(speed) if steering_rad is None else steering_rad.to(self.state)
        drawn = self.cfg.randomization.draw(len(env_ids), self.generator, self.state.dtype)
        self._vary(env_ids, drawn)
        self.actuation.reset(env_ids, steering, drawn)
        rows = CarParams(**{name: column[env_ids] for name, column in self.params.columns().items()})
        # Clones, so that what was read before stays as it was.
        self.state, self.accel_in_base_m_s2 = self.state.clone(), self.accel_in_base_m_s2.clone()
        self.state[env_ids] = self.model.start(steering, speed, pose, rows)
        self._refresh()
        self.accel_in_base_m_s2[env_ids, 0] = 0.0
        self.accel_in_base_m_s2[env_ids, 1] = (self.speed_m_s * self.yaw_rate_rad_s)[env_ids]

    def step(self, steering_target_rad: Tensor, acceleration_m_s2: Tensor) -> None:
        """Move all cars on by ``cfg.dt_s``.

        Args:
            steering_target_rad: (N,) angle of the front wheels asked for.
            acceleration_m_s2: (N,) asked for; below zero it brakes a car that drives forwards, and speeds up one that
                drives backwards.
        """
        before, yaw_before = self._velocity_in_world(), self.pose[:, 2]
        self.actuation.command(steering_target_rad, acceleration_m_s2)
        for substep in range(self.cfg.substeps):
            inputs = self.actuation.inputs(substep, self.steering_rad, self.model.driven_speed(self.state), self.params)
            self.state = self.model.advance(self.state, inputs, self.params, self.cfg.step_s)
        yaw = self.state[:, dynamics.YAW]
        halfway = 0.5 * (yaw_before + yaw)
        self.state[:, dynamics.YAW] = yaw - 2.0 * math.pi * torch.round(yaw / (2.0 * math.pi))
        self._refresh()
        # Seen from the heading halfway, so that a turn shows as force to one side.
        accel_x, accel_y = ((self._velocity_in_world() - before) / self.cfg.dt_s).unbind(-1)
        cos, sin = torch.cos(halfway), torch.sin(halfway)
        self.accel_in_base_m_s2 = torch.stack((cos * accel_x + sin * accel_y, cos * accel_y - sin * accel_x), dim=-1)

    def state_dict(self) -> dict[str, Any]:
        """All that later steps and resets depend on, as tensors."""
        kept = {"state": self.state, "accel_in_base_m_s2": self.accel_in_base_m_s2}
        kept |= {f"params.{name}": column for name, column in self.params.columns().items()}
        kept |= {f"actuation.{name}": value for name, value in self.actuation.tensors().items()}
        return {name: value.clone() for name, value in kept.items()} | {"generator": self.generator.get_state()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on exactly where :meth:`state_dict` was taken, with the same specs and configuration.

        Raises:
            GantryError: If names or shapes are not those of these cars.
        """
        mine = self.state_dict()
        if mine.keys() != saved.keys():
            raise GantryError(f"Saved cars hold {sorted(saved)}, expected {sorted(mine)}.")
        for name, value in saved.items():
            if value.shape != mine[name].shape:
                raise GantryError(
                    f"Saved cars: '{name}' has shape {tuple(value.shape)}, expected {tuple(mine[name].shape)}."
                )
        self.state = saved["state"].to(self.state, copy=True)
        self.accel_in_base_m_s2 = saved["accel_in_base_m_s2"].to(self.state, copy=True)
        for name, column in self.params.columns().items():
            column.copy_(saved[f"params.{name}"])
        for name, value in self.actuation.tensors().items():
            value.copy_(saved[f"actuation.{name}"])
        self.generator.set_state(saved["generator"].cpu())
        self._refresh()

    def _velocity_in_world(self) -> Tensor:
        """(N, 2) of ``base_link`` in m/s."""
        ahead, left = self.velocity_in_base_m_s.unbind(-1)
        cos, sin = torch.cos(self.pose[:, 2]), torch.sin(self.pose[:, 2])
        return torch.stack((cos * ahead - sin * left, sin * ahead + cos * left), dim=-1)

    def _refresh(self) -> None:
        """Derive what is read from the state."""
        self.pose, self.velocity_in_base_m_s, self.yaw_rate_rad_s, self.slip_rad = self.model.read(
            self.state, self.params
        )

    def _vary(self, env_ids: Tensor, drawn: Mapping[str, Tensor]) -> None:
        """Write the numbers of some cars anew from their specs and what was drawn."""
        factors = {
            "wheelbase_m": "wheelbase_scale",
            "rear_axle_to_cog_m": "wheelbase_scale",
            "front_axle_to_cog_m": "wheelbase_scale",
            "mass_kg": "mass_scale",
            "yaw_inertia_kg_m2": "yaw_inertia_scale",
            "friction": "friction_scale",
            "cornering_stiffness_front": "stiffness_front_scale",
            "cornering_stiffness_rear": "stiffness_rear_scale",
        }
        for name, factor in factors.items():
            getattr(self.params, name)[env_ids] = getattr(self._nominal, name)[env_ids] * drawn[factor]


def _nominal(
    specs: CarSpec | Sequence[CarSpec],
    num_cars: int | None,
    cfg: CarsCfg,
    device: str | torch.device,
    dtype: torch.dtype,
) -> CarParams:
    """The cars as published, checked against what is asked of them."""
    kinds = [specs] if isinstance(specs, CarSpec) else list(specs)
    if not isinstance(specs, CarSpec) and num_cars not in (None, len(kinds)):
        raise GantryError(f"{len(kinds)} car specs for {num_cars} cars, expected one for each or a single one.")
    bare = sorted({kind.name for kind in kinds if kind.wheels is None})
    if car_model(cfg.model).needs_wheels and bare:
        raise GantryError(f"Model '{cfg.model}' needs the wheels of a car, which {', '.join(bare)} does not publish.")
    if isinstance(specs, CarSpec):
        if num_cars is None or num_cars < 1:
            raise GantryError(f"The number of cars is {num_cars}, expected at least 1.")
        params = CarParams.from_spec(specs, num_cars, device, dtype)
    else:
        params = CarParams.from_specs(kinds, device, dtype)
    if not cfg.reverse:
        params.reverse_limit_m_s.zero_()
    return params
