"""Channels and size of a bird's-eye-view raster; apart from its drawing, since contracts name it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gantry_deploy.errors import ContractError

CHANNELS = (
    "road",
    "route",
    "markings",
    "vehicles",
    "pedestrians",
    "stop_line",
    "static",
    "speed_limit",
)
"""Channels of a raster: the road's surface, 255; the route ahead, 255; lane markings, solid 255, broken 127; vehicles
and pedestrians, their speed (:func:`speed_code`); the next stop line on the route, 80 green, 170 yellow, 255 red; what
does not move, 255; the speed limit along the route ahead, coded as speeds are."""


@dataclass(frozen=True)
class BevLayout:
    """Raster that a policy sees; square, with the car in the middle column."""

    pixels: int = 64
    """Rows and columns."""
    metres_per_pixel: float = 1.0
    """Edge of a pixel on the ground."""
    behind_m: float = 16.0
    """Reach behind ``base_link``; the rest lies ahead."""
    channels: tuple[str, ...] = CHANNELS
    """Names of :data:`CHANNELS`, in order."""
    nose_m: float = 0.0
    """Distance ahead of ``base_link`` of the place from which the distance to a stop line is measured."""
    speed_lines: bool = True
    """Whether a line shows from the nose of each road user that moves to where it will be in a second."""

    def __post_init__(self) -> None:
        if self.pixels < 8:
            raise ContractError(f"drive.bev.pixels is {self.pixels}, expected 8 or more.")
        if not self.metres_per_pixel > 0.0:
            raise ContractError(f"drive.bev.metres_per_pixel is {self.metres_per_pixel}, expected more than 0.")
        if not 0.0 <= self.behind_m < self.extent_m:
            raise ContractError(
                f"drive.bev.behind_m is {self.behind_m}, expected 0 or more and less than the raster's "
                f"{self.extent_m:g} m."
            )
        unknown = [name for name in self.channels if name not in CHANNELS]
        if unknown or not self.channels or len(set(self.channels)) != len(self.channels):
            raise ContractError(
                f"drive.bev.channels is {list(self.channels)}, expected some of {list(CHANNELS)}, each once."
            )

    @property
    def extent_m(self) -> float:
        """Edge of the raster on the ground."""
        return self.pixels * self.metres_per_pixel

    @property
    def ahead_m(self) -> float:
        """Reach ahead of ``base_link``."""
        return self.extent_m - self.behind_m

    @property
    def reach_m(self) -> float:
        """From ``base_link`` to the farthest corner."""
        return math.hypot(max(self.ahead_m, self.behind_m), 0.5 * self.extent_m)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns."""
        return len(self.channels), self.pixels, self.pixels

    @property
    def size(self) -> int:
        """Numbers in a raster."""
        return len(self.channels) * self.pixels**2
