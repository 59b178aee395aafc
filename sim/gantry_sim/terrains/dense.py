"""Terrains with ground everywhere: rough, stairs, boxes, obstacles (paper, table of training terrains)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gantry_sim.terrains.tile import Ends, GoalTerrainCfg, Tile, at

_TREAD_M = 0.05
_RAMP_M = 0.5


@dataclass(kw_only=True)
class RoughCfg(GoalTerrainCfg):
    """A causeway of blocks of random heights.

    Blocks and not a height field: in MuJoCo a foot that presses on a height field also meets the inner walls of the
    prisms it is made of, whose contacts push sideways, and is caught between them (docs/ame2.md).
    """

    amplitude_m: tuple[float, float]
    """Heights are uniform within plus and minus this, easiest and hardest."""
    block_m: float = 0.4
    """Edge of a block."""
    lane_m: float = 3.2
    """Width of the causeway."""
    drop_m: float = 0.3
    """Depth of the ground beside it below its lowest block."""

    def build(self, tile: Tile, difficulty: float) -> Ends:
        """Add the tile; see :meth:`GoalTerrainCfg.build`."""
        amplitude = at(self.amplitude_m, difficulty)
        beside = -amplitude - self.drop_m
        tile.slab((0.0, tile.start_m), 0.0)
        tile.slab((tile.end_m, tile.length_m), 0.0)
        tile.slab((tile.start_m, tile.end_m), beside)
        x = np.linspace(tile.start_m, tile.end_m, round((tile.end_m - tile.start_m) / self.block_m) + 1)
        half = 0.5 * self.lane_m
        y = np.linspace(tile.mid_m - half, tile.mid_m + half, round(self.lane_m / self.block_m) + 1)
        heights = tile.rng.uniform(-amplitude, amplitude, (len(x) - 1, len(y) - 1))
        for i, row in enumerate(heights):
            for j, top in enumerate(row):
                tile.box((x[i], x[i + 1]), (y[j], y[j + 1]), float(top))
        return Ends(floor_z_m=beside, lateral_m=half - 0.4)


@dataclass(kw_only=True)
class StairsCfg(GoalTerrainCfg):
    """A flight of stairs of random width, with open or closed risers, with or without walls, up to a landing."""

    rise_m: tuple[float, float]
    """Height of a step, easiest and hardest."""
    tread_m: tuple[float, float] = (0.27, 0.35)
    """Smallest and largest depth of a step."""
    width_m: tuple[float, float] = (0.8, 1.8)
    """Smallest and largest width of the flight."""
    max_steps: int = 8
    """Most steps of a flight."""
    open_share: float = 0.5
    """Share of flights whose treads float (no risers)."""
    wall_share: float = 0.35
    """Share of sides with a wall."""
    wall_m: tuple[float, float] = (0.4, 1.8)
    """Lowest and highest wall, above the landing."""
    down: bool = False
    """Start on the landing."""

    def build(self, tile: Tile, difficulty: float) -> Ends:
        """Add the tile; see :meth:`GoalTerrainCfg.build`."""
        rng = tile.rng
        rise, tread = at(self.rise_m, difficulty), rng.uniform(*self.tread_m)
        steps = min(self.max_steps, int((tile.end_m - tile.start_m) / tread))
        half = 0.5 * rng.uniform(*self.width_m)
        first = tile.start_m + rng.uniform(0.0, tile.end_m - tile.start_m - steps * tread)
        top = steps * rise
        lane = (tile.mid_m - half, tile.mid_m + half)
        tile.slab((0.0, tile.length_m), 0.0)
        tile.reversed = self.down
        is_open = rng.random() < self.open_share
        for i in range(steps - 1):  # the landing is the last step
            height = (i + 1) * rise
            bottom = height - min(_TREAD_M, rise) if is_open else 0.0
            tile.box((first + i * tread, first + (i + 1) * tread), lane, height, bottom)
        landing = first + (steps - 1) * tread
        tile.slab((landing, tile.length_m), top, 0.0)
        for side in lane:
            wall = top + rng.uniform(*self.wall_m)
            if rng.random() < self.wall_share:
                outward = 0.1 if side > tile.mid_m else -0.1
                tile.box((first, landing), (min(side, side + outward), max(side, side + outward)), wall, 0.0)
        start, goal = (top, 0.0) if self.down else (0.0, top)
        return Ends(start, goal, 0.0, lateral_m=max(half - 0.2, 0.1))


@dataclass(kw_only=True)
class BoxesCfg(GoalTerrainCfg):
    """Low boxes in any direction, side by side and on top of each other."""

    height_m: tuple[float, float]
    """Height of the highest box, easiest and hardest."""
    edge_m: tuple[float, float]
    """Smallest and largest edge length of a box seen from above."""
    density_m2: float = 0.45
    """Boxes per square metre of course."""

    def build(self, tile: Tile, difficulty: float) -> Ends:
        """Add the tile; see :meth:`GoalTerrainCfg.build`."""
        rng, highest = tile.rng, at(self.height_m, difficulty)
        tile.slab((0.0, tile.length_m), 0.0)
        for _ in range(round(self.density_m2 * (tile.end_m - tile.start_m) * tile.width_m)):
            edges = rng.uniform(*self.edge_m, 2)
            reach = 0.5 * float(np.hypot(*edges))
            x, y = _anywhere(tile, reach)
            top, yaw = highest * rng.uniform(0.3, 1.0), rng.uniform(-np.pi, np.pi)
            tile.turned_box((x, y, 0.5 * top), (edges[0], edges[1], top), (0.0, 0.0, yaw))
        return Ends()


@dataclass(kw_only=True)
class ObstaclesCfg(GoalTerrainCfg):
    """Things to walk around, on a ridge of two ramps."""

    density_m2: tuple[float, float]
    """Obstacles per square metre of course, easiest and hardest."""
    edge_m: tuple[float, float]
    """Smallest and largest edge length seen from above."""
    height_m: tuple[float, float]
    """Lowest and highest obstacle above the ground."""
    clearance_m: float
    """Least free space between two obstacles."""
    slope_rad: tuple[float, float] = (0.0, 0.349)
    """Steepest slope of the ridge, easiest and hardest."""

    def build(self, tile: Tile, difficulty: float) -> Ends:
        """Add the tile; see :meth:`GoalTerrainCfg.build`."""
        rng = tile.rng
        course = tile.end_m - tile.start_m
        crest = _ridge(tile, at(self.slope_rad, difficulty))

        def ground(x: float) -> float:
            return crest * (1.0 - abs(2.0 * (x - tile.start_m) / course - 1.0))

        placed: list[tuple[float, float, float]] = []
        wanted = round(at(self.density_m2, difficulty) * course * tile.width_m)
        for _ in range(20 * wanted):
            edges = rng.uniform(*self.edge_m, 2)
            reach = 0.5 * float(np.hypot(*edges))
            px, py = _anywhere(tile, reach)
            if all(np.hypot(px - qx, py - qy) > reach + r + self.clearance_m for qx, qy, r in placed):
                placed.append((px, py, reach))
                foot = ground(px)
                top, bottom = foot + rng.uniform(*self.height_m), foot - 0.5
                tile.turned_box(
                    (px, py, 0.5 * (top + bottom)), (*edges, top - bottom), (0.0, 0.0, rng.uniform(-np.pi, np.pi))
                )
            if len(placed) == wanted:
                break
        return Ends()


def _anywhere(tile: Tile, reach: float) -> tuple[float, float]:
    """A random point of the course, at least ``reach`` from its borders."""
    x = tile.rng.uniform(tile.start_m + reach, tile.end_m - reach)
    return float(x), float(tile.rng.uniform(reach, tile.width_m - reach))


def _ridge(tile: Tile, slope_rad: float) -> float:
    """Level strips and two ramps over the whole width of the tile; height of the crest between them, m."""
    tile.slab((0.0, tile.start_m), 0.0)
    tile.slab((tile.end_m, tile.length_m), 0.0)
    half = 0.5 * (tile.end_m - tile.start_m)
    crest = float(np.tan(slope_rad)) * half
    for start, up in ((tile.start_m, 1.0), (tile.start_m + half, -1.0)):
        # The middle of the upper face, and half a thickness down along its normal.
        x = start + 0.5 * half + 0.5 * _RAMP_M * up * np.sin(slope_rad)
        z = 0.5 * crest - 0.5 * _RAMP_M * np.cos(slope_rad)
        size = (half / float(np.cos(slope_rad)), tile.width_m, _RAMP_M)
        tile.turned_box((float(x), tile.mid_m, float(z)), size, (0.0, -up * slope_rad, 0.0))
    return crest
