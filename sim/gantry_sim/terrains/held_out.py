"""Terrains that no policy is trained on: irregular stones, stones-pallets-climb, parkour with obstacles, debris.

They stand for T1 to T4 of the paper's figure 4, of which only the ideas are published, and sizes for two in the
authors' code for a G1. Lengths below are those of a robot with ANYmal-D's legs and are multiplied by ``scale``. Every
tile has a fixed seed: the difficulty only chooses the instance.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gantry_sim.terrains.tile import Ends, GoalTerrainCfg, Tile

HELD_OUT_SEED = 20_260_108
"""Seed of every instance; changing it makes another benchmark."""

_FLOOR_M = -1.0


@dataclass(kw_only=True)
class HeldOutCfg(GoalTerrainCfg, abc.ABC):
    """A terrain for tests only."""

    held_out: ClassVar[bool] = True
    number: ClassVar[int]
    """Of the test, 1 to 4; a part of the seed."""
    scale: float = 1.0
    """The robot's legs over ANYmal-D's."""

    def generator_for(self, difficulty: float, rng: np.random.Generator) -> np.random.Generator:
        """Fixed: depends on the test and on the difficulty (to a thousandth) alone."""
        return np.random.default_rng([HELD_OUT_SEED, self.number, round(1000 * difficulty)])


@dataclass(kw_only=True)
class IrregularStonesCfg(HeldOutCfg):
    """T1: stones of any size and direction, tilted, anywhere, as dense as they fall."""

    number: ClassVar[int] = 1

    def build(self, tile: Tile, difficulty: float) -> Ends:
        """Add the tile; see :meth:`GoalTerrainCfg.build`."""
        rng, scale = tile.rng, self.scale
        tile.slab((0.0, tile.length_m), _FLOOR_M)
        tile.slab((0.0, tile.start_m), 0.0, _FLOOR_M - 0.5)
        tile.slab((tile.end_m, tile.length_m), 0.0, _FLOOR_M - 0.5)
        spacing = 0.36 * scale
        placed = np.zeros((0, 2))
        for _ in range(2000):  # darts: what lies too close to an earlier one is dropped
            low, high = (tile.start_m + 0.15 * scale, tile.mid_m - 0.9), (tile.end_m - 0.15 * scale, tile.mid_m + 0.9)
            point = rng.uniform(low, high)
            if len(placed) == 0 or np.linalg.norm(placed - point, axis=1).min() > spacing:
                placed = np.vstack([placed, point])
        for x, y in placed:
            edges = rng.uniform(0.22, 0.36, 2) * scale
            top, tilt = rng.uniform(-0.08, 0.08) * scale, rng.uniform(-0.17, 0.17, 2)
            tile.turned_box((x, y, top - 0.3), (edges[0], edges[1], 0.6), (tilt[0], tilt[1], rng.uniform(-3.2, 3.2)))
        return Ends(floor_z_m=_FLOOR_M, lateral_m=0.7)


@dataclass(kw_only=True)
class StonesPalletsClimbCfg(HeldOutCfg):
    """T2: small stones, then two pallets that lie askew, then a climb, with no rest between."""

    number: ClassVar[int] = 2

    def build(self, tile: Tile, difficulty: float) -> Ends:
        """Add the tile; see :meth:`GoalTerrainCfg.build`."""
        rng, scale, room = tile.rng, self.scale, tile.end_m - tile.start_m
        tile.slab((0.0, tile.length_m), _FLOOR_M)
        tile.slab((0.0, tile.start_m), 0.0, _FLOOR_M - 0.5)
        edge = 0.2 * scale  # of a stone, and of the gap to the next one
        rows = int(0.4 * room / (2 * edge))
        for i in range(rows):
            for j in range(5):
                x = tile.start_m + (2 * i + 1.5) * edge + rng.uniform(-0.1, 0.1) * edge
                y = tile.mid_m + (2 * (j - 2) + 0.5 * (-1) ** i) * edge
                tile.turned_box((x, y, -0.6), (edge, edge, 1.2 + rng.uniform(-0.06, 0.06) * scale))
        x = tile.start_m + (2 * rows + 1) * edge
        pallet = 0.5 * (tile.end_m - x) - edge
        for sign in (1, -1):
            yaw = sign * 0.175
            planks = 3
            pitch = pallet / planks
            for k in range(planks):
                along = (k - 0.5 * (planks - 1)) * pitch
                center = (x + 0.5 * pallet + along * np.cos(yaw), tile.mid_m + along * np.sin(yaw), -0.05)
                tile.turned_box(center, (0.55 * pitch, 2.4, 0.1), (0.0, 0.0, yaw))
            x += pallet + edge
        height = rng.uniform(0.32, 0.42) * scale
        tile.slab((x, tile.length_m), height, _FLOOR_M - 0.5)
        return Ends(goal_z_m=height, floor_z_m=_FLOOR_M, lateral_m=0.7)


@dataclass(kw_only=True)
class ParkourCfg(HeldOutCfg):
    """T3: up two blocks, over a gap, onto a third and down, with posts in the way on top and below."""

    number: ClassVar[int] = 3

    def build(self, tile: Tile, difficulty: float) -> Ends:
        """Add the tile; see :meth:`GoalTerrainCfg.build`."""
        rng, scale, room = tile.rng, self.scale, tile.end_m - tile.start_m
        tile.slab((0.0, tile.length_m), 0.0)
        gap = rng.uniform(0.35, 0.5) * scale
        heights = np.array([0.3, 0.55, 0.45]) * scale + rng.uniform(-0.05, 0.05, 3) * scale
        ends = tile.start_m + room * np.array([0.2, 0.5, 0.8])
        starts = (tile.start_m, ends[0], ends[1] + gap)
        for start, end, height in zip(starts, ends, heights, strict=True):
            tile.slab((start, end), height, 0.0)
        self._posts(tile, (ends[0] + 0.25, ends[1] - 0.25), heights[1])
        self._posts(tile, (ends[2] + 0.3, tile.end_m), 0.0)
        return Ends(lateral_m=1.0)

    def _posts(self, tile: Tile, x: tuple[float, float], foot: float) -> None:
        """A row of posts across the middle, wide enough apart to pass between."""
        pitch = 1.7 * self.scale
        shift = tile.rng.uniform(-0.5, 0.5) * pitch
        for k in (-2, -1, 0, 1, 2):
            edges = tile.rng.uniform(0.3, 0.7, 2) * self.scale
            center = (tile.rng.uniform(*x), tile.mid_m + k * pitch + shift, foot + 0.5)
            tile.turned_box(center, (edges[0], edges[1], 1.0), (0.0, 0.0, tile.rng.uniform(-0.6, 0.6)))


@dataclass(kw_only=True)
class DebrisCfg(HeldOutCfg):
    """T4: broken slabs and bricks in any attitude, between two walls."""

    number: ClassVar[int] = 4

    def build(self, tile: Tile, difficulty: float) -> Ends:
        """Add the tile; see :meth:`GoalTerrainCfg.build`."""
        rng, scale, half = tile.rng, self.scale, 1.4
        tile.slab((0.0, tile.length_m), 0.0)
        x = (tile.start_m, tile.end_m)
        tile.box(x, (0.0, tile.mid_m - half), 0.8, 0.0)
        tile.box(x, (tile.mid_m + half, tile.width_m), 0.8, 0.0)
        for _ in range(round(12.0 * half * (tile.end_m - tile.start_m))):
            edges = rng.uniform(0.2, 0.8, 2) * scale
            thick, tilt = rng.uniform(0.06, 0.22) * scale, rng.uniform(-0.4, 0.4, 2)
            reach = 0.5 * float(np.hypot(*edges)) + 0.05
            center_x = rng.uniform(tile.start_m + reach, tile.end_m - reach)
            center = (center_x, tile.mid_m + rng.uniform(-1, 1) * half, rng.uniform(0.0, 0.2) * scale)
            tile.turned_box(center, (edges[0], edges[1], thick), (tilt[0], tilt[1], rng.uniform(-3.2, 3.2)))
        return Ends(lateral_m=0.9)
