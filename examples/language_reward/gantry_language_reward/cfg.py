"""Language goals for driving, in numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gantry_deploy.contract.bev_layout import BevLayout
from gantry_hardware.errors import GantryError, UnknownNameError

SCORERS = ("small", "clip")
"""Scorers that compare pictures with sentences."""
BAD_GOAL = "Two cars have collided with each other on the road"
"""Sentence that a picture shall not match; the words of VLM-RL (arXiv 2412.15544)."""
GOOD_GOAL = "The road is clear with no car accidents"
"""Sentence that it shall match; likewise."""
PICTURE = BevLayout(pixels=64, metres_per_pixel=0.75, behind_m=12.0)
"""48 m by 48 m, most of it ahead; what the small scorer has been taught with."""


@dataclass(frozen=True)
class LanguageCfg:
    """The reward of VLM-RL (arXiv 2412.15544): contrasting language goals give a speed, driving multiplies the rest.

    z = similarity to the bad goal - similarity to the good one; clear = 1 - clip(z, 0, margin) / margin; the desired
    speed is clear times the highest one; the reward of a step is the product of the factors below.
    """

    scorer: str = "small"
    """Scorer, a name of :data:`SCORERS`: ``small`` comes along, ``clip`` needs weights in a local folder."""
    path: str = ""
    """Folder of a CLIP model as ``transformers`` saves it, or file of another small scorer; empty for the one that
    comes along. Nothing is ever downloaded."""
    bad: str = BAD_GOAL
    """The bad goal; the small scorer knows the two of VLM-RL alone."""
    good: str = GOOD_GOAL
    """The good goal."""
    margin: float | None = None
    """Lead of the bad goal at which the desired speed is 0, in cosines; None for the scorer's own, 0.03 for CLIP as in
    VLM-RL."""
    picture: BevLayout = field(default_factory=lambda: PICTURE)
    """Picture that is drawn for the scorer; the small one knows the usual pictures alone."""
    every_s: float = 1.0
    """Time between two looks at the road; what was seen counts until the next one."""
    v_max_m_s: float | None = None
    """Speed that is desired on a clear road, and the difference from the desired speed at which nothing is earned; None
    for the speed limit where the car is. VLM-RL has 25 km/h, 6.9 m/s."""
    lane_half_widths: float = 1.7
    """Distance from the lane's middle at which nothing is earned, in half widths of the lane: about VLM-RL's 3 m in a
    lane of 3.5 m."""
    heading_rad: float = 0.5 * math.pi
    """Angle to the lane at which nothing is earned."""
    spread_half_widths: float = 0.23
    """Standard deviation of that distance at which nothing is earned: VLM-RL's 0.4 m, likewise."""
    spread_s: float = 2.0
    """Time over which it is taken."""
    infraction: float = 10.0
    """Cost of a step with a fault; nothing is earned in it."""

    def __post_init__(self) -> None:
        if self.scorer not in SCORERS:
            raise UnknownNameError("scorer", self.scorer, SCORERS)
        if self.scorer == "clip" and not self.path:
            raise GantryError(
                "env.reward.options.path is empty, expected the folder of a CLIP model for env.reward.options.scorer "
                "'clip'."
            )
        for name in ("every_s", "lane_half_widths", "heading_rad", "spread_half_widths", "spread_s"):
            if not getattr(self, name) > 0.0:
                raise GantryError(f"env.reward.options.{name} is {getattr(self, name)}, expected more than 0.")
        for name in ("margin", "v_max_m_s"):
            value = getattr(self, name)
            if value is not None and not value > 0.0:
                raise GantryError(f"env.reward.options.{name} is {value}, expected more than 0, or none.")
        if not self.infraction >= 0.0:
            raise GantryError(f"env.reward.options.infraction is {self.infraction}, expected at least 0.")
        if not self.bad.strip() or not self.good.strip() or self.bad == self.good:
            raise GantryError(
                f"env.reward.options.bad and env.reward.options.good are '{self.bad}' and '{self.good}', expected "
                "two sentences."
            )
