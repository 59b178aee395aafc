"""Numbers of every car in a batch, as tensors, so that no two cars need be alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_hardware.model.cars import CarSpec


@dataclass(frozen=True)
class CarParams:
    """The fields of :class:`CarSpec` with one row per car, each of shape (N,). Randomising writes into the tensors.

    Wheels of cars that publish none are NaN, which a model that needs them refuses (:class:`BatchedCars`).
    """

    length_m: Tensor
    """Length of the box."""
    width_m: Tensor
    """Width of the box."""
    center_x_in_base_m: Tensor
    """Distance of the box's middle ahead of the rear axle."""
    wheelbase_m: Tensor
    """Sum of the next two."""
    rear_axle_to_cog_m: Tensor
    """``b``."""
    front_axle_to_cog_m: Tensor
    """``a``."""
    mass_kg: Tensor
    """Total mass."""
    yaw_inertia_kg_m2: Tensor
    """About the vertical axis through the centre of gravity."""
    cog_height_m: Tensor
    """Height of the centre of gravity."""
    friction: Tensor
    """Of tyre on road."""
    cornering_stiffness_front: Tensor
    """Normalised ``C_Sf``, 1/rad."""
    cornering_stiffness_rear: Tensor
    """Normalised ``C_Sr``, 1/rad."""
    steering_limit_rad: Tensor
    """Largest steering angle to either side."""
    steering_rate_limit_rad_s: Tensor
    """Largest speed of the steering angle."""
    accel_limit_m_s2: Tensor
    """Largest acceleration of the drive."""
    brake_limit_m_s2: Tensor
    """Largest deceleration of the brakes."""
    speed_limit_m_s: Tensor
    """Largest speed forwards."""
    reverse_limit_m_s: Tensor
    """Largest speed backwards, >= 0."""
    switch_speed_m_s: Tensor
    """Speed above which power limits the drive."""
    wheel_radius_m: Tensor
    """Effective rolling radius."""
    wheel_inertia_kg_m2: Tensor
    """Of one wheel of the single-track model."""
    brake_share_front: Tensor
    """Share of the braking torque in front."""
    drive_share_front: Tensor
    """Share of the engine's torque in front."""

    @classmethod
    def from_specs(
        cls, specs: Sequence[CarSpec], device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
    ) -> CarParams:
        """One car per spec, in this order.

        Raises:
            GantryError: If there is no spec at all.
        """
        if not specs:
            raise GantryError("A batch of cars needs at least one car, got none.")
        rows = torch.tensor([_numbers(spec) for spec in specs], dtype=torch.float64).to(device, dtype)
        return cls(*(column.contiguous() for column in rows.unbind(1)))

    @classmethod
    def from_spec(
        cls, spec: CarSpec, num_cars: int, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
    ) -> CarParams:
        """``num_cars`` cars of one kind."""
        one = cls.from_specs([spec], device, dtype)
        return cls(*(getattr(one, field.name).repeat(num_cars) for field in fields(cls)))

    def columns(self) -> dict[str, Tensor]:
        """Every field by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def clone(self) -> CarParams:
        """A copy that shares no memory."""
        return CarParams(**{name: column.clone() for name, column in self.columns().items()})


def _numbers(spec: CarSpec) -> list[float]:
    """One row in the order of :class:`CarParams`."""
    wheels = spec.wheels
    extra = {
        "wheel_radius_m": wheels.radius_m if wheels else math.nan,
        "wheel_inertia_kg_m2": wheels.inertia_kg_m2 if wheels else math.nan,
        "brake_share_front": wheels.brake_share_front if wheels else math.nan,
        "drive_share_front": wheels.drive_share_front if wheels else math.nan,
    }
    return [float(extra.get(field.name, getattr(spec, field.name, math.nan))) for field in fields(CarParams)]
