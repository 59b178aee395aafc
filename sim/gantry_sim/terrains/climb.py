"""Terrains with one or two high steps: climb up, climb down, climb up and down twice (paper, training terrains)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gantry_sim.terrains.tile import Ends, GoalTerrainCfg, Tile, at


@dataclass(kw_only=True)
class ClimbCfg(GoalTerrainCfg):
    """A step with a jagged edge up to a platform, or down from it."""

    height_m: tuple[float, float]
    """Height of the step, easiest and hardest."""
    jitter: float = 0.2
    """Parts of the edge stick out by up to this share of the height."""
    parts: int = 5
    """Number of parts of the edge."""
    yaw_rad: float = 0.17
    """Largest turn of a part."""
    down: bool = False
    """Start on the platform."""

    def build(self, tile: Tile, difficulty: float) -> Ends:
        """Add the tile; see :meth:`GoalTerrainCfg.build`."""
        rng, height = tile.rng, at(self.height_m, difficulty)
        tile.slab((0.0, tile.length_m), 0.0)
        tile.reversed = self.down
        width = tile.width_m / self.parts
        out = self.jitter * height + 0.5 * width * np.sin(self.yaw_rad)  # how far a turned part may stick out
        edge = rng.uniform(tile.start_m + out + 0.2, tile.start_m + out + 0.5 * (tile.end_m - tile.start_m))
        tile.slab((edge, tile.length_m), height, 0.0)
        for i in range(self.parts):
            yaw, front = rng.uniform(-self.yaw_rad, self.yaw_rad), edge - rng.uniform(0.0, self.jitter * height)
            tile.turned_box((front + 0.15, (i + 0.5) * width, 0.5 * height), (0.3, width, height), (0.0, 0.0, yaw))
        start, goal = (height, 0.0) if self.down else (0.0, height)
        return Ends(start, goal)


@dataclass(kw_only=True)
class ConsecutiveCfg(GoalTerrainCfg):
    """Two walls as broad as a robot is long: up, down, up, down."""

    first_m: tuple[float, float]
    """Height of the first one, easiest and hardest."""
    second_m: tuple[float, float]
    """Height of the second one."""
    top_m: tuple[float, float] = (0.9, 1.2)
    """Smallest and largest length of the tops."""
    between_m: tuple[float, float] = (0.6, 1.0)
    """Smallest and largest distance between the two."""
    yaw_rad: float = 0.06
    """Largest turn of one."""

    def build(self, tile: Tile, difficulty: float) -> Ends:
        """Add the tile; see :meth:`GoalTerrainCfg.build`."""
        rng = tile.rng
        tile.slab((0.0, tile.length_m), 0.0)
        lengths, between = rng.uniform(*self.top_m, 2), rng.uniform(*self.between_m)
        room = tile.end_m - tile.start_m
        shrink = min(1.0, 0.9 * room / (lengths.sum() + between))  # short tiles get short walls
        lengths, between = shrink * lengths, shrink * between
        x = tile.start_m + rng.uniform(0.0, room - lengths.sum() - between)
        for length, heights in zip(lengths, (self.first_m, self.second_m), strict=True):
            height, yaw = at(heights, difficulty), rng.uniform(-self.yaw_rad, self.yaw_rad)
            center = (x + 0.5 * length, tile.mid_m, 0.5 * height)
            # A little shorter than the tile is wide: turned, it stays on its tile.
            tile.turned_box(center, (length, 0.99 * tile.width_m, height), (0.0, 0.0, yaw))
            x += length + between
        return Ends()
