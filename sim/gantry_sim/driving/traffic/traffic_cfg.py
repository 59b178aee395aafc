"""Settings of other road users."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from gantry_hardware.errors import GantryError
from gantry_sim.driving.traffic.lights import LightsCfg

BEHAVIOURS = ("lead", "follow", "oncoming", "crossing", "stopped", "cut_in", "broken", "obstacle", "pedestrian")
"""Behaviours of a slot; its number is the place in here."""
LEAD, FOLLOW, ONCOMING, CROSSING, STOPPED, CUT_IN, BROKEN, OBSTACLE, WALKER = range(len(BEHAVIOURS))


@dataclass(frozen=True)
class TrafficShares:
    """Weights with which a slot gets each behaviour."""

    lead: float = 2.0
    """A vehicle ahead on the car's route."""
    follow: float = 0.5
    """A vehicle behind it."""
    oncoming: float = 2.0
    """A vehicle on a lane that leads the other way."""
    crossing: float = 2.0
    """A vehicle that reaches a junction ahead about when the car does; where there is none, as ``lead``."""
    stopped: float = 0.4
    """A vehicle that stands on the route and goes on after a while."""
    cut_in: float = 0.6
    """A vehicle beside the route that changes to its lane; where there is no such lane, as ``oncoming``."""
    broken: float = 0.4
    """A vehicle that stands at the lane's edge for good."""
    obstacle: float = 0.5
    """A thing at the lane's edge."""
    pedestrian: float = 0.5
    """A pedestrian that crosses the road when the car is near."""
    empty: float = 1.0
    """Nothing, until the slot is drawn again some seconds later."""

    def __post_init__(self) -> None:
        weights = [getattr(self, item.name) for item in fields(self)]
        if min(weights) < 0.0 or sum(weights) <= 0.0:
            raise GantryError(f"Shares of traffic must be >= 0 and not all 0, not {self}.")


@dataclass(frozen=True)
class TrafficCfg:
    """Traffic around one car. Ranges are drawn from uniformly."""

    slots: int = 8
    """Most others at a time, K."""
    shares: TrafficShares = field(default_factory=TrafficShares)
    """Weights of the behaviours."""
    lights: LightsCfg = field(default_factory=LightsCfg)
    """Traffic lights."""
    horizon_m: float = 120.0
    """Distance from the car beyond which a user is placed anew."""
    out_of_sight_m: float = 75.0
    """Distance from the car at which a user that is placed anew appears at least; on the way to a junction, half as
    far.
    """
    time_gap_s: float = 1.5
    """No user is placed nearer to another in the same lane than what is driven in this time."""
    accel_m_s2: tuple[float, float] = (1.2, 1.8)
    """Largest acceleration of the driver model, a."""
    comfort_brake_m_s2: tuple[float, float] = (2.0, 3.0)
    """Comfortable braking, b."""
    headway_s: tuple[float, float] = (1.2, 1.5)
    """Time headway, T."""
    standstill_m: float = 2.0
    """Gap that is left when standing, s0."""
    speed_factor: tuple[float, float] = (0.8, 1.05)
    """Wanted speed over what limit and bends allow."""
    gap_accept_s: tuple[float, float] = (3.5, 5.0)
    """Time gap that a driver wants in traffic that has priority."""
    hard_brake_m_s2: float = 8.0
    """Hardest braking of any user."""
    lateral_accel_m_s2: float = 2.5
    """Sideways acceleration that drivers accept in bends."""
    aggressive: float = 0.1
    """Share of drivers with half the headway, more speed and half the gap."""
    timid: float = 0.15
    """Share of drivers with 1.5 times the headway, less speed and 1.5 times the gap."""
    blind: float = 0.02
    """Share of drivers that do not see the car."""
    phantom: float = 0.1
    """Share of drivers that brake for nothing now and then."""
    phantom_rate_hz: float = 0.05
    """Rate at which those do."""
    phantom_s: float = 1.5
    """For how long."""
    dwell_s: tuple[float, float] = (2.0, 8.0)
    """Time for which a stopped vehicle still stands once the car is near."""
    patience_s: float = 8.0
    """Waiting time at a give-way after which a user takes any gap; after twice that time it goes."""
    jam_s: float = 20.0
    """Standing time inside a junction after which a user is placed anew."""
    cut_in_gap_m: tuple[float, float] = (5.0, 25.0)
    """Gap ahead of the car at which a vehicle cuts in, beside a tenth of the car's speed."""
    walk_m_s: tuple[float, float] = (0.8, 1.8)
    """Speed of pedestrians."""
    walk_when_s: tuple[float, float] = (3.0, 6.0)
    """Pedestrians set out when the car would be there in this time, provided it can stop."""

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise GantryError(f"traffic.slots is {self.slots}, expected at least 1.")
        if not 0.0 < self.out_of_sight_m < self.horizon_m:
            raise GantryError(
                f"traffic.out_of_sight_m is {self.out_of_sight_m}, expected more than 0 and less than the horizon of "
                f"{self.horizon_m} m."
            )
        for name in ("aggressive", "timid", "blind", "phantom"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise GantryError(f"traffic.{name} is {getattr(self, name)}, expected 0 to 1.")
        if self.aggressive + self.timid > 1.0:
            raise GantryError(f"traffic.aggressive and traffic.timid sum to {self.aggressive + self.timid}, above 1.")
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, tuple) and not 0.0 <= value[0] <= value[1]:
                raise GantryError(f"traffic.{item.name} is {value}, expected a range from low to high, not negative.")
