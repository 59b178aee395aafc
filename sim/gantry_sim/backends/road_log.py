"""Events of a single simulated car: the truth, as its scene tells it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from gantry_sim.driving.scenes.scene import BLOCKED, Outcome


@dataclass
class RoadLog:
    """Events since the start, the truth."""

    ended: str = ""
    """End of the episode, a name of the scene's ends; empty while it has not ended."""
    ended_s: float | None = None
    """Time of the end on the robot's clock."""
    events: dict[str, int] = field(default_factory=dict)
    """Number of times that each end was met; after the first one the car goes on."""
    now: frozenset[str] = frozenset()
    """Ends that are met now."""
    still_s: float = 0.0
    """Time for which it has not moved, though it is commanded."""
    looks: int = 0
    """Steps of the surroundings."""
    off_route: int = 0
    """Those outside the route's lanes."""
    lateral_sq_m2: float = 0.0
    """Sum of squares of the distance from the lane's middle until the end."""
    lateral_max_m: float = 0.0
    """Largest distance from it until the end."""
    top_m_s: float = 0.0
    """Highest speed."""
    braking_m_s2: float = 0.0
    """Hardest deceleration along the car."""

    def look(self, outcome: Outcome, time_s: float, *, blocked: bool) -> None:
        """The surroundings have moved on; being blocked counts where they know no other end."""
        met = frozenset(name for name, value in outcome.ends.items() if bool(value[0]))
        for name in met - self.now:
            self.events[name] = self.events.get(name, 0) + 1
        self.now = met
        if self.ended:
            return
        first = next((name for name in outcome.ends if name in met), BLOCKED if blocked else "")
        if first:
            self.ended, self.ended_s = first, time_s
        lateral = abs(float(outcome.lateral_m[0]))
        self.looks += 1
        self.off_route += bool(outcome.off_route[0])
        self.lateral_sq_m2 += lateral**2
        self.lateral_max_m = max(self.lateral_max_m, lateral)

    def values(self) -> dict[str, Any]:
        """Plain data."""
        looks = max(1, self.looks)
        return {
            "ended": self.ended,
            "ended_s": self.ended_s,
            "finished": self.ended == "finished",
            "events": dict(self.events),
            "off_route_share": self.off_route / looks,
            "lateral_rmse_m": math.sqrt(self.lateral_sq_m2 / looks),
            "lateral_max_m": self.lateral_max_m,
            "top_speed_m_s": self.top_m_s,
            "hardest_braking_m_s2": self.braking_m_s2,
        }
