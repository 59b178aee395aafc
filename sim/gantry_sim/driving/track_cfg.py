"""Settings of racing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from gantry_deploy.contract.drive_spec import LidarLayout
from gantry_hardware.errors import GantryError
from gantry_sim.driving.cfg import RANDOM, RULES, SCAN, STEADY, ActionLimits, CarTaskCfg, DriveNoise
from gantry_sim.driving.comfort import ComfortLimits
from gantry_sim.driving.maps.tracks import TrackConfig
from gantry_sim.driving.reward import RewardCfg
from gantry_sim.driving.vehicle.actuation import CarRandomization


def small_cars() -> CarRandomization:
    """Ranges of differences between cars at a tenth of the size: less of a frame, more of the floor, and quicker
    servos.
    """
    return CarRandomization(
        wheelbase_scale=(0.98, 1.02),
        mass_scale=(0.9, 1.2),
        yaw_inertia_scale=(0.9, 1.1),
        friction_scale=(0.6, 1.1),
        stiffness_front_scale=(0.8, 1.2),
        stiffness_rear_scale=(0.8, 1.2),
        steering_gain=(0.9, 1.1),
        steering_offset_rad=(-0.03, 0.03),
        steering_lag_s=(0.0, 0.1),
        acceleration_gain=(0.8, 1.1),
        acceleration_lag_s=(0.0, 0.2),
        delay_s=(0.01, 0.06),
    )


def race_comfort() -> ComfortLimits:
    """No passengers: what tyres give is allowed, steering and throttle thrown to and fro are not."""
    return ComfortLimits(
        lon_jerk_m_s3=30.0,
        jerk_m_s3=60.0,
        brake_m_s2=12.0,
        accel_m_s2=12.0,
        lat_acc_m_s2=12.0,
        yaw_rate_rad_s=6.0,
        yaw_acc_rad_s2=25.0,
    )


@dataclass(frozen=True)
class RaceCfg(CarTaskCfg):
    """A task on closed tracks between walls, driven by what a scanner sees of them."""

    drivers: ClassVar[tuple[str, ...]] = (RULES, SCAN, STEADY, RANDOM)
    robot: str = "f1tenth_vesc"
    """A car of :func:`gantry_hardware.model.cars.car_spec`; with the limits that the real one has as it comes."""
    model: str = "single-track-grip"
    """Dynamics, see :mod:`gantry_sim.driving.vehicle.models`; races are about tyres."""
    substeps: int = 4
    """Physics steps in a decision."""
    rate_hz: float = 20.0
    """Decisions per second."""
    episode_s: float = 90.0
    """Longest race."""
    blocked_s: float = 4.0
    """A car that has not moved for so long is blocked, which ends its race."""
    history: int = 3
    """Number of its last actions and turning rates that the policy sees."""
    limits: ActionLimits = field(default_factory=lambda: ActionLimits(0.42, 9.6, 9.6, 8.0))
    """Of actions; all that a small car can do, at a speed that tyres take round a bend."""
    noise: DriveNoise | None = field(default_factory=lambda: DriveNoise(scan_m=0.02, scan_dropout=0.01))
    """Of what the actor sees; None for none."""
    randomization: CarRandomization = field(default_factory=small_cars)
    """Ranges of differences between cars."""
    reward: RewardCfg = field(default_factory=lambda: RewardCfg(lane=False, infraction_hint=0.0))
    """Rewards. A track has no lane to be kept, and a wall costs the rest of the race, which is enough: a
    beginner, which earns a percent before the first wall, must not find standing better."""
    comfort: ComfortLimits = field(default_factory=race_comfort)
    """Comfort limits of a race."""
    tracks: TrackConfig = field(default_factory=TrackConfig)
    """Settings of the tracks."""
    laps: int = 2
    """Length of a race."""
    lidar: LidarLayout = field(default_factory=lambda: LidarLayout(108, -2.35, 2.35, 10.0, 0.275))
    """The scan that the policy sees; 10 m is what a small scanner is good for on dark walls."""
    start_lateral_m: float = 0.4
    """Half width of the distance from the track's middle at the start."""
    start_heading_rad: float = 0.2
    """Half width of the heading error at the start."""
    start_speed_m_s: float = 2.0
    """A start is so fast at most."""
    lookahead_m: tuple[float, ...] = ()
    """Distances at which the policy looks at the track's middle line; none for a policy without a map."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.laps < 1:
            raise GantryError(f"env.laps is {self.laps}, expected at least 1.")
        for name in ("start_lateral_m", "start_heading_rad", "start_speed_m_s"):
            if not getattr(self, name) >= 0.0:
                raise GantryError(f"env.{name} is {getattr(self, name)}, expected at least 0.")
        narrowest = 0.5 * self.tracks.width_m[0]
        if not self.start_lateral_m < narrowest:
            raise GantryError(
                f"env.start_lateral_m is {self.start_lateral_m}, which lies beyond the walls {narrowest} m from the "
                "middle of the narrowest track."
            )
