"""What a driving task is, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from gantry_deploy.contract import Acceptance
from gantry_hardware.cars import car_spec
from gantry_hardware.errors import GantryError
from gantry_sim.driving.actuation import CarRandomization
from gantry_sim.driving.comfort import ComfortLimits
from gantry_sim.driving.maps.generate import MapConfig, split_seeds
from gantry_sim.driving.models import car_model
from gantry_sim.driving.reward import RewardCfg


@dataclass(frozen=True)
class DriveNoise:
    """What odometry and sensors get wrong: standard deviations of white noise on what the actor sees."""

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


@dataclass(frozen=True)
class DriveCfg:
    """Everything about a driving task on roads that differs between tasks and presets."""

    robot: str = "bmw_320i"
    """A car of :func:`gantry_hardware.cars.car_spec`."""
    num_envs: int = 256
    """Cars side by side, each alone on its map."""
    model: str = "kinematic"
    """Dynamics, see :mod:`gantry_sim.driving.models`."""
    substeps: int = 2
    """Physics steps in a decision."""
    rate_hz: float = 10.0
    """Decisions per second."""
    maps: MapConfig = field(default_factory=lambda: MapConfig(min_route_m=320.0))
    """What maps are made of."""
    map_split: str = "train"
    """Which seeds maps come from: ``train``, ``validation`` or ``test``."""
    map_count: int = 64
    """Different maps."""
    routes_per_map: int = 4
    """Routes on each of them."""
    route_m: float = 300.0
    """Length of a route."""
    episode_s: float = 60.0
    """Longest episode."""
    blocked_s: float = 15.0
    """A car that has not moved for so long is blocked, which ends its episode."""
    start_lateral_m: float = 0.3
    """Half width of the distance from the lane's middle at the start."""
    start_heading_rad: float = 0.1
    """Half width of the heading error at the start."""
    start_speed_share: float = 1.0
    """A start is as fast as this share of the speed limit at most."""
    lookahead_m: tuple[float, ...] = (3.0, 6.0, 10.0, 15.0, 20.0, 30.0, 40.0, 55.0)
    """Distances along the route at which the policy looks at it."""
    noise: DriveNoise | None = field(default_factory=DriveNoise)
    """Of what the actor sees; None for none."""
    randomization: CarRandomization = field(default_factory=CarRandomization.usual)
    """How much cars differ."""
    reward: RewardCfg = field(default_factory=RewardCfg)
    """What driving is worth."""
    comfort: ComfortLimits = field(default_factory=ComfortLimits)
    """What passengers put up with."""
    acceptance: Acceptance = field(default_factory=Acceptance)
    """What is asked of the policy."""

    def __post_init__(self) -> None:
        car_spec(self.robot)
        car_model(self.model)
        split_seeds(self.map_split, self.map_count)
        for name in ("num_envs", "substeps", "map_count", "routes_per_map"):
            if getattr(self, name) < 1:
                raise GantryError(f"env.{name} is {getattr(self, name)}, expected at least 1.")
        for name in ("rate_hz", "route_m", "episode_s", "blocked_s"):
            if not getattr(self, name) > 0.0:
                raise GantryError(f"env.{name} is {getattr(self, name)}, expected more than 0.")
        if not 0.0 <= self.start_speed_share <= 1.0:
            raise GantryError(f"env.start_speed_share is {self.start_speed_share}, expected 0 to 1.")
        if not self.lookahead_m:
            raise GantryError("env.lookahead_m is empty, expected distances along the route.")

    @property
    def dt_s(self) -> float:
        """Time between two decisions."""
        return 1.0 / self.rate_hz
