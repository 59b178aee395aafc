"""The numbers of the rules, of a Go2 on the gains of the few-sample recipe; from a search over goals reached."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WayRules:
    """Where to go and how fast."""

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
