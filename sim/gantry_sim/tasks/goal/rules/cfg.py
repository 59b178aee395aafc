"""The numbers of the rules, of a Go2 on the gains of the few-sample recipe; from a search over goals reached."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class WayRules:
    """Settings of route and speed."""

    speed_m_s: float = 0.6
    """Most."""
    sideways_m_s: float = 0.4
    """Most to either side."""
    turn_rad_s: float = 1.2039
    """Most that it turns."""
    near_m: float = 0.6
    """From here it goes straight for the goal and may come to rest."""
    face_m: float = 0.7
    """From here it turns to the goal's heading."""
    slow_uneven: float = 0.5
    """Share of the speed that 20 cm between the feet's heights, beyond 8 cm, take; at most 65 %."""
    slow_bad: float = -0.1079
    """Share of the speed that is taken where no place around is good to step on; less than 0 adds some."""
    follow_feet_s: float = 3.0
    """Speed added in the direction in which footholds were moved, m/s per m."""


@dataclass(frozen=True)
class FootholdRules:
    """Settings of the foothold search. Costs are in units of a shift by 40 cm, which costs 1."""

    search_m: float = 0.2833
    """Radius in which a better place is looked for."""
    edge: float = 0.05
    """Cost of more than 5 cm of unevenness within 6 cm; of 3.5 cm within 4 cm it is 1."""
    down: float = 0.274
    """Cost of a place more than 20 cm below the feet."""
    deep_m: float = 0.45
    """So far below the feet a place costs another 5, as those 42 cm above do."""
    forward: float = 0.105
    """Gain of a shift with the velocity, per m x m/s."""
    inward: float = 0.2
    """Cost per 10 cm of a shift to below the body, beyond 4 cm."""
    pair: float = 6.0
    """Cost of the shift, across its line, of the line of two feet that land together."""
    keep: float = 3.0
    """Cost of another choice than before, growing over the swing."""


@dataclass(frozen=True)
class WalkRules:
    """All of them."""

    way: WayRules = field(default_factory=WayRules)
    """Settings of route and speed."""
    feet: FootholdRules = field(default_factory=FootholdRules)
    """Settings of the foothold search."""
