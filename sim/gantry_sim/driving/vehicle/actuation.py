"""Between what is asked for and what wheels and engine do: delay, lag, errors and limits, for many cars at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from gantry_deploy.contract.parts import TrainedRange
from gantry_hardware.errors import GantryError
from gantry_hardware.model.dynamics import RobotDynamics
from gantry_sim.driving.vehicle.car_params import CarParams

Range = tuple[float, float]
"""Lower and upper end of a uniform distribution."""


@dataclass(frozen=True)
class CarRandomization:
    """Ranges of differences between cars: uniform, drawn per car and episode. As it stands, they do not differ at
    all.
    """

    wheelbase_scale: Range = (1.0, 1.0)
    """Factor of the wheelbase; the centre of gravity keeps its share of it."""
    mass_scale: Range = (1.0, 1.0)
    """Factor of the mass; inertia is drawn by itself, since a load in the middle adds little of it."""
    yaw_inertia_scale: Range = (1.0, 1.0)
    """Factor of the inertia."""
    friction_scale: Range = (1.0, 1.0)
    """Factor of the friction."""
    stiffness_front_scale: Range = (1.0, 1.0)
    """Factor of the front tyre's cornering stiffness."""
    stiffness_rear_scale: Range = (1.0, 1.0)
    """Factor of the rear tyre's cornering stiffness."""
    steering_gain: Range = (1.0, 1.0)
    """Factor from the steering asked for to the steering aimed at."""
    steering_offset_rad: Range = (0.0, 0.0)
    """Angle of the wheels when straight ahead is asked for."""
    steering_lag_s: Range = (0.0, 0.0)
    """Time constant of the steering; 0 follows as fast as its speed allows."""
    acceleration_gain: Range = (1.0, 1.0)
    """Factor from the acceleration asked for to the one aimed at."""
    acceleration_lag_s: Range = (0.0, 0.0)
    """Time constant of engine and brakes."""
    delay_s: Range = (0.0, 0.0)
    """From a command to its first effect, rounded to physics steps."""

    def __post_init__(self) -> None:
        for field in fields(self):
            low, high = getattr(self, field.name)
            # Offsets may have any sign, times may be zero, factors are positive.
            least = -math.inf if field.name == "steering_offset_rad" else 0.0
            factor = not field.name.endswith(("_s", "_rad"))
            if not least <= low <= high < math.inf or not math.isfinite(low) or (factor and low == 0.0):
                numbers = f", of numbers {'>' if factor else '>='} 0" if least == 0.0 else ""
                expected = f"a finite range, low first{numbers}"
                raise GantryError(f"Randomization '{field.name}' is ({low}, {high}), expected {expected}.")

    @classmethod
    def usual(cls) -> CarRandomization:
        """Ranges with which a policy for a real car is commonly trained: a tenth of the car, a few degrees, up to 60
        ms.
        """
        return cls(
            wheelbase_scale=(0.95, 1.05),
            mass_scale=(0.9, 1.2),
            yaw_inertia_scale=(0.9, 1.1),
            friction_scale=(0.7, 1.1),
            stiffness_front_scale=(0.85, 1.15),
            stiffness_rear_scale=(0.85, 1.15),
            steering_gain=(0.9, 1.1),
            steering_offset_rad=(-0.03, 0.03),
            steering_lag_s=(0.0, 0.15),
            acceleration_gain=(0.8, 1.1),
            acceleration_lag_s=(0.0, 0.3),
            delay_s=(0.0, 0.06),
        )

    def wide(self) -> CarRandomization:
        """The same cars with more between them: wheels that stand off by more, slower steering, weaker and slower
        drives, less grip, more load, commands up to 90 ms late.
        """
        return replace(
            self,
            mass_scale=(0.85, 1.4),
            friction_scale=(0.5, 1.1),
            steering_gain=(0.85, 1.15),
            steering_offset_rad=(-0.06, 0.06),
            steering_lag_s=(0.0, 0.25),
            acceleration_gain=(0.65, 1.15),
            acceleration_lag_s=(0.0, 0.5),
            delay_s=(self.delay_s[0], 0.09),
        )

    def trained_for(self, steering: str, drive: str) -> tuple[TrainedRange, ...]:
        """The table of a contract, for joints of these names."""
        return (
            TrainedRange("gain", *self.steering_gain, steering),
            TrainedRange("offset", *self.steering_offset_rad, steering),
            TrainedRange("response_s", *self.steering_lag_s, steering),
            TrainedRange("gain", *self.acceleration_gain, drive),
            TrainedRange("response_s", *self.acceleration_lag_s, drive),
            TrainedRange("command_delay_s", *self.delay_s),
            TrainedRange("friction_share", *self.friction_scale),
            TrainedRange("mass_share", *self.mass_scale),
        )

    def around(self, dynamics: RobotDynamics, steering: str, drive: str) -> CarRandomization:
        """These ranges with those of an identified car in their places, see :meth:`RobotDynamics.range_of`.

        Args:
            dynamics: Of the car.
            steering: Name of its steering joint.
            drive: Name of its drive joint.
        """
        found = {
            "steering_gain": dynamics.range_of("gain", [steering]),
            "steering_offset_rad": dynamics.range_of("offset", [steering]),
            "steering_lag_s": dynamics.range_of("response_s", [steering]),
            "acceleration_gain": dynamics.range_of("gain", [drive]),
            "acceleration_lag_s": dynamics.range_of("response_s", [drive]),
            "delay_s": dynamics.range_of("command_delay_s"),
        }
        return replace(self, **{name: pair for name, pair in found.items() if pair is not None})

    def draw(self, count: int, generator: torch.Generator, dtype: torch.dtype) -> dict[str, Tensor]:
        """One number per field and car, each (count,), on the generator's device.

        All fields are drawn whether they vary or not, so that widening one range leaves the others' numbers alone.
        """
        names = [field.name for field in fields(self)]
        unit = torch.rand(len(names), count, generator=generator, device=generator.device, dtype=dtype)
        ranges = [getattr(self, name) for name in names]
        return {name: low + (high - low) * row for name, (low, high), row in zip(names, ranges, unit, strict=True)}


def limit_acceleration(accel: Tensor, speed: Tensor, params: CarParams, step_s: float) -> Tensor:
    """The acceleration that drive and brakes give for the one asked for.

    What speeds a car up, either way, is limited by its drive, and above the switching speed by power; what slows
    it down by its brakes. No step takes the speed beyond its limits.

    Args:
        accel: (N,) asked for, in m/s^2, forwards positive.
        speed: (N,) in m/s, forwards positive.
        params: Of the N cars.
        step_s: For which it is held.

    Returns:
        (N,) in m/s^2.
    """
    lowest, highest = -params.reverse_limit_m_s - speed, params.speed_limit_m_s - speed
    accel = torch.clamp(accel, lowest / step_s, highest / step_s)
    power = params.accel_limit_m_s2 * params.switch_speed_m_s / torch.maximum(speed.abs(), params.switch_speed_m_s)
    limit = torch.where(accel * speed >= 0.0, power, params.brake_limit_m_s2)
    return torch.clamp(accel, -limit, limit)


class Actuation:
    """Steering and drive of N cars.

    Once per decision call :meth:`command`, then :meth:`inputs` for every physics step in it.

    Args:
        num_cars: N.
        dt_s: Time between two decisions.
        substeps: Physics steps in it.
        longest_delay_s: Largest delay that any car will be given.
        device: Of all tensors.
        dtype: Of all numbers.
    """

    def __init__(
        self,
        num_cars: int,
        dt_s: float,
        substeps: int,
        longest_delay_s: float,
        device: str | torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._substeps, self._step_s = substeps, dt_s / substeps
        ones = torch.ones(num_cars, dtype=dtype, device=device)
        self.steering_gain, self.acceleration_gain = ones.clone(), ones.clone()
        """(N,) factors of the commands."""
        self.steering_offset_rad = torch.zeros_like(ones)
        """(N,) added to the steering asked for."""
        self.steering_share, self.acceleration_share = ones.clone(), ones.clone()
        """(N,) share of the way to the target that one physics step covers, 1 without lag."""
        self.delay_steps = torch.zeros(num_cars, dtype=torch.int64, device=device)
        """(N,) delay in physics steps."""
        depth = 1 + math.ceil(round(longest_delay_s / self._step_s) / substeps)
        self.history = torch.zeros(depth, num_cars, 2, dtype=dtype, device=device)
        """(depth, N, 2) commands in rad and m/s^2, the newest first, a decision apart."""
        self.acceleration_m_s2 = torch.zeros_like(ones)
        """(N,) what engine and brakes aim at after their lag."""

    def command(self, steering_target_rad: Tensor, acceleration_m_s2: Tensor) -> None:
        """Take the next commands, each (N,)."""
        newest = torch.stack((steering_target_rad, acceleration_m_s2), dim=-1).to(self.history.dtype)
        self.history = torch.cat((newest[None], self.history[:-1]))

    def inputs(self, substep: int, steering_rad: Tensor, speed_m_s: Tensor, params: CarParams) -> Tensor:
        """Inputs of the car models for one physics step.

        Args:
            substep: 0 for the first after the command.
            steering_rad: (N,) angle of the wheels.
            speed_m_s: (N,) that drive and brakes change, forwards positive.
            params: Of the N cars.

        Returns:
            (N, 2): steering rate in rad/s and acceleration in m/s^2, within all limits.
        """
        steering, acceleration = self._delayed(substep).unbind(-1)
        target = self.steering_gain * steering + self.steering_offset_rad
        target = torch.clamp(target, -params.steering_limit_rad, params.steering_limit_rad)
        rate = (target - steering_rad) * self.steering_share / self._step_s
        rate = torch.clamp(rate, -params.steering_rate_limit_rad_s, params.steering_rate_limit_rad_s)
        target = torch.clamp(self.acceleration_gain * acceleration, -params.brake_limit_m_s2, params.accel_limit_m_s2)
        self.acceleration_m_s2 = torch.lerp(self.acceleration_m_s2, target, self.acceleration_share)
        accel = limit_acceleration(self.acceleration_m_s2, speed_m_s, params, self._step_s)
        return torch.stack((rate, accel), dim=-1)

    def reset(self, env_ids: Tensor, steering_rad: Tensor, drawn: dict[str, Tensor]) -> None:
        """Start anew for some cars.

        Args:
            env_ids: (m,) which.
            steering_rad: (m,) where their wheels stand, in rad; commands of the time before asked to keep them there.
            drawn: From :meth:`CarRandomization.draw`, each (m,).
        """
        gain, offset = drawn["steering_gain"], drawn["steering_offset_rad"]
        self.steering_gain[env_ids], self.steering_offset_rad[env_ids] = gain, offset
        self.acceleration_gain[env_ids] = drawn["acceleration_gain"]
        # exp(-h / 0) is 0, as a steering without lag has it.
        self.steering_share[env_ids] = 1.0 - torch.exp(-self._step_s / drawn["steering_lag_s"])
        self.acceleration_share[env_ids] = 1.0 - torch.exp(-self._step_s / drawn["acceleration_lag_s"])
        self.delay_steps[env_ids] = torch.round(drawn["delay_s"] / self._step_s).to(torch.int64)
        self.history[:, env_ids, 0] = (steering_rad - offset) / gain
        self.history[:, env_ids, 1] = 0.0
        self.acceleration_m_s2[env_ids] = 0.0

    def tensors(self) -> dict[str, Tensor]:
        """All that the next step depends on."""
        names = ("steering_gain", "acceleration_gain", "steering_offset_rad", "steering_share", "acceleration_share")
        return {name: getattr(self, name) for name in (*names, "delay_steps", "history", "acceleration_m_s2")}

    def _delayed(self, substep: int) -> Tensor:
        """(N, 2) commands that have arrived by this physics step."""
        if self.history.shape[0] == 1:
            return self.history[0]
        # A command given k steps ago is in force from step k on; before that one of an earlier decision is.
        waiting = torch.clamp(self.delay_steps - substep, min=0)
        age = torch.div(waiting + self._substeps - 1, self._substeps, rounding_mode="floor")
        return self.history[age, torch.arange(self.history.shape[1], device=self.history.device)]
