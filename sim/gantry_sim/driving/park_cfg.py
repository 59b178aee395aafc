"""Settings of parking."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from gantry_deploy.contract.drive_spec import LidarLayout
from gantry_hardware.errors import GantryError
from gantry_sim.driving.cfg import RANDOM, RULES, ActionLimits, CarTaskCfg
from gantry_sim.driving.maps.lots import LotConfig
from gantry_sim.driving.reward import RewardCfg


@dataclass(frozen=True)
class WayCfg:
    """Measure of the way to the slot: the shortest one of a car that turns no tighter than it can."""

    cell_m: float = 0.25
    """Between places at which it is worked out."""
    headings: int = 72
    """Headings at each of them, a multiple of four."""
    steering_share: float = 0.8
    """Share of the steering limit that ways need, since wheels take time to turn."""
    margin_m: float = 0.1
    """Distance of ways from cars and walls, each side."""
    change_m: float = 1.0
    """Length that a change of direction counts as."""
    reach_m: float = 10.0
    """Distance along the aisle within which it is worked out; beyond that straight distance is added."""

    def __post_init__(self) -> None:
        for name in ("cell_m", "steering_share", "reach_m"):
            if not getattr(self, name) > 0.0:
                raise GantryError(f"env.way.{name} is {getattr(self, name)}, expected more than 0.")
        for name in ("margin_m", "change_m"):
            if not getattr(self, name) >= 0.0:
                raise GantryError(f"env.way.{name} is {getattr(self, name)}, expected at least 0.")
        if self.headings < 8 or self.headings % 4:
            raise GantryError(f"env.way.headings is {self.headings}, expected a multiple of four from 8.")


@dataclass(frozen=True)
class ParkCfg(CarTaskCfg):
    """Reaching a free slot among parked cars, forwards and backwards, and standing in it."""

    drivers: ClassVar[tuple[str, ...]] = (RULES, RANDOM)
    reverse: bool = True
    """Whether the policy may drive backwards."""
    map_count: int = 256
    """Different lots."""
    episode_s: float = 60.0
    """Longest episode."""
    history: int = 3
    """Number of its last actions, and of its last steering angles, that the policy sees."""
    limits: ActionLimits = field(default_factory=lambda: ActionLimits(0.9, 1.5, 2.5, 2.0))
    """Of actions."""
    lots: LotConfig = field(default_factory=LotConfig)
    """Settings of the lots."""
    position_m: float = 0.25
    """A car has arrived if the middle of its box is so near to the slot's,"""
    heading_rad: float = math.radians(5.0)
    """turned by no more than this,"""
    still_m_s: float = 0.1
    """and slower than this."""
    way: WayCfg | None = field(default_factory=WayCfg)
    """Measure of the way to go among what stands there; None for the straight distance."""
    radian_m: float = 2.0
    """A radian off counts as much as so many metres of straight distance."""
    whole_way_m: float = 15.0
    """Coming so much nearer is worth 100 in all, but for ``arrival_percent``."""
    arrival_percent: float = 25.0
    """Share of the reward for having arrived."""
    near_share: float = 0.5
    """Share of episodes that begin where a drive out of the slot may have led (reverse curriculum, arXiv 1707.05300);
    none when scored."""
    near_m: tuple[float, float] = (0.5, 14.0)
    """Range of the length of such drives."""
    lidar: LidarLayout = field(default_factory=lambda: LidarLayout(36, -math.pi, math.pi, 12.0, 1.25))
    """The scan, taken in the middle of the car."""
    reward: RewardCfg = field(
        default_factory=lambda: RewardCfg(near_collision=1.0, discomfort=0.0, lane=False, infraction_hint=10.0)
    )
    """Rewards: coming nearer, and not touching anything."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("position_m", "heading_rad", "still_m_s", "radian_m", "whole_way_m"):
            if not getattr(self, name) > 0.0:
                raise GantryError(f"env.{name} is {getattr(self, name)}, expected more than 0.")
        if not 0.0 <= self.near_share <= 1.0:
            raise GantryError(f"env.near_share is {self.near_share}, expected 0 to 1.")
        if not 0.0 <= self.arrival_percent <= 100.0:
            raise GantryError(f"env.arrival_percent is {self.arrival_percent}, expected 0 to 100.")
        if not 0.0 < self.near_m[0] <= self.near_m[1]:
            raise GantryError(f"env.near_m is {self.near_m}, expected a range above 0.")
