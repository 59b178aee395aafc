"""Settings of a driving task."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

from gantry_deploy.contract.bev_layout import BevLayout
from gantry_deploy.contract.drive_spec import LidarLayout
from gantry_deploy.contract.policy_contract import Acceptance
from gantry_hardware.errors import GantryError
from gantry_hardware.model.cars import CarSpec, car_spec
from gantry_sim.driving.comfort import ComfortLimits
from gantry_sim.driving.maps.generate import MapConfig, split_seeds
from gantry_sim.driving.reward import RewardCfg
from gantry_sim.driving.traffic.traffic_cfg import TrafficCfg
from gantry_sim.driving.vehicle.actuation import CarRandomization
from gantry_sim.driving.vehicle.models import car_model


@dataclass(frozen=True)
class DriveNoise:
    """Errors of odometry and sensors: standard deviations of white noise on what is seen, by critics, too."""

    pos_m: float = 0.03
    """Of the car's place, each axis."""
    yaw_rad: float = 0.005
    """Of its heading."""
    speed_m_s: float = 0.05
    """Of its speed."""
    yaw_rate_rad_s: float = 0.01
    """Of its turning rate."""
    steering_rad: float = 0.005
    """Of the steering angle."""
    object_pos_m: float = 0.1
    """Of the places of other road users, each axis."""
    object_yaw_rad: float = 0.02
    """Of their headings."""
    object_speed_m_s: float = 0.2
    """Of their speeds."""
    scan_m: float = 0.0
    """Of each range of a scan."""
    scan_dropout: float = 0.0
    """Chance that a beam of a scan reports nothing."""


@dataclass(frozen=True)
class ActionLimits:
    """Action scaling: values at action = 1, capped by the car's limits; a car can do more than a driver should."""

    steering_rad: float = 0.6
    """Steering angle."""
    accel_m_s2: float = 3.0
    """Acceleration."""
    brake_m_s2: float = 8.0
    """Deceleration."""
    speed_m_s: float = 20.0
    """Speed, forwards and backwards."""

    def __post_init__(self) -> None:
        for item in fields(self):
            if not getattr(self, item.name) > 0.0:
                raise GantryError(f"env.limits.{item.name} is {getattr(self, item.name)}, expected more than 0.")


RULES, SCAN, STEADY, RANDOM = "by rules", "by its scan", "constant speed", "random"
"""Drivers that learned nothing, see :mod:`gantry_sim.driving.drivers.baselines` and ``racers``."""


@dataclass(frozen=True)
class CarTaskCfg:
    """Settings that every driving task has."""

    drivers: ClassVar[tuple[str, ...]] = (RULES, STEADY, RANDOM)
    """Those of the drivers that learned nothing that can drive here."""

    robot: str = "bmw_320i"
    """A car of :func:`gantry_hardware.model.cars.car_spec`."""
    num_envs: int = 256
    """Cars side by side, each without the others."""
    model: str = "kinematic"
    """Dynamics, see :mod:`gantry_sim.driving.vehicle.models`."""
    substeps: int = 2
    """Physics steps in a decision."""
    rate_hz: float = 10.0
    """Decisions per second."""
    map_split: str = "train"
    """Split of the seeds from which maps are made: ``train``, ``validation`` or ``test``."""
    map_count: int = 64
    """Different maps."""
    episode_s: float = 60.0
    """Longest episode."""
    blocked_s: float = 15.0
    """A car that has not moved for so long is blocked, which ends its episode."""
    reverse: bool = False
    """Whether the policy may drive backwards."""
    limits: ActionLimits = field(default_factory=ActionLimits)
    """Of actions."""
    history: int = 1
    """Number of its last actions, and of its last steering angles, that the policy sees."""
    noise: DriveNoise | None = field(default_factory=DriveNoise)
    """Of what the actor sees; None for none."""
    randomization: CarRandomization = field(default_factory=CarRandomization.usual)
    """Ranges of differences between cars."""
    reward: RewardCfg = field(default_factory=RewardCfg)
    """Rewards."""
    comfort: ComfortLimits = field(default_factory=ComfortLimits)
    """Comfort limits of passengers."""
    acceptance: Acceptance = field(default_factory=lambda: Acceptance(min_success_rate=0.8))
    """Thresholds that the policy must reach."""

    def __post_init__(self) -> None:
        car_spec(self.robot)
        car_model(self.model)
        split_seeds(self.map_split, self.map_count)
        for name in ("num_envs", "substeps", "map_count", "history"):
            if getattr(self, name) < 1:
                raise GantryError(f"env.{name} is {getattr(self, name)}, expected at least 1.")
        for name in ("rate_hz", "episode_s", "blocked_s"):
            if not getattr(self, name) > 0.0:
                raise GantryError(f"env.{name} is {getattr(self, name)}, expected more than 0.")

    @property
    def dt_s(self) -> float:
        """Time between two decisions."""
        return 1.0 / self.rate_hz

    @property
    def driver(self) -> CarSpec:
        """The car as far as policies and other drivers may use it."""
        car, most = car_spec(self.robot), self.limits
        return replace(
            car,
            steering_limit_rad=min(car.steering_limit_rad, most.steering_rad),
            accel_limit_m_s2=min(car.accel_limit_m_s2, most.accel_m_s2),
            brake_limit_m_s2=min(car.brake_limit_m_s2, most.brake_m_s2),
            speed_limit_m_s=min(car.speed_limit_m_s, most.speed_m_s),
            reverse_limit_m_s=min(car.reverse_limit_m_s, most.speed_m_s),
        )


@dataclass(frozen=True)
class DriveCfg(CarTaskCfg):
    """A task on roads: routes through procedural maps, alone or among others."""

    maps: MapConfig = field(default_factory=lambda: MapConfig(min_route_m=320.0))
    """Settings of the maps."""
    routes_per_map: int = 4
    """Routes on each of them."""
    route_m: float = 300.0
    """Length of a route."""
    start_lateral_m: float = 0.3
    """Half width of the distance from the lane's middle at the start."""
    start_heading_rad: float = 0.1
    """Half width of the heading error at the start."""
    start_speed_share: float = 1.0
    """A start is as fast as this share of the speed limit at most."""
    lookahead_m: tuple[float, ...] = (3.0, 6.0, 10.0, 15.0, 20.0, 30.0, 40.0, 55.0)
    """Distances along the route at which the policy looks at it."""
    traffic: TrafficCfg | None = None
    """Other road users and lights; None for none."""
    max_objects: int = 8
    """Number of the nearest others that the policy sees, where there are any."""
    bev: BevLayout | None = None
    """A picture from above that the policy sees instead of numbers of others; None for none."""
    lidar: LidarLayout | None = None
    """A scan of other road users that the policy sees beside all else; None for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.routes_per_map < 1:
            raise GantryError(f"env.routes_per_map is {self.routes_per_map}, expected at least 1.")
        if not self.route_m > 0.0:
            raise GantryError(f"env.route_m is {self.route_m}, expected more than 0.")
        if not 0.0 <= self.start_speed_share <= 1.0:
            raise GantryError(f"env.start_speed_share is {self.start_speed_share}, expected 0 to 1.")
        if not self.lookahead_m:
            raise GantryError("env.lookahead_m is empty, expected distances along the route.")
        if self.lidar is not None and self.traffic is None:
            raise GantryError("env.lidar sees other road users alone, and env.traffic is none.")
