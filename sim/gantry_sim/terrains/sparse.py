"""Terrains with few places to stand on: gap, pallets, stones, beam, over a floor that is real or only seen.

Half of the tiles have a floor that carries. On the others nothing is there, yet the map shows a floor: a policy that
has learnt to climb down to a low floor and walk on it would otherwise do so on every terrain (paper, virtual floors).
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gantry_sim.terrains.tile import Ends, GoalTerrainCfg, Tile, at

_ABOVE_FLOOR_M = 0.2

FloorChoice = Literal["real", "virtual", "random"]
"""Kind of the ground below: a floor, the sight of one, or either with equal chance."""


@dataclass(kw_only=True)
class SparseTerrainCfg(GoalTerrainCfg, abc.ABC):
    """Something to cross between two strips, above a low floor."""

    floor: FloorChoice = "random"
    """Whether the floor carries."""
    floor_depth_m: tuple[float, float] = (0.35, 1.5)
    """Smallest and largest depth of the floor."""

    @abc.abstractmethod
    def cross(self, tile: Tile, difficulty: float, floor_z_m: float) -> tuple[float, float, float]:
        """Add what is to be crossed.

        Args:
            tile: Where to add it.
            difficulty: 0 (easiest) to 1 (hardest).
            floor_z_m: Height of the floor.

        Returns:
            x at which the first strip must end, x at which the second one must begin, and its height, m.
        """

    def build(self, tile: Tile, difficulty: float) -> Ends:
        """Add the tile; see :meth:`GoalTerrainCfg.build`."""
        floor = -tile.rng.uniform(*self.floor_depth_m)
        is_virtual = self.floor == "virtual" or (self.floor == "random" and tile.rng.random() < 0.5)
        if is_virtual:
            tile.virtual_floor(floor)
        else:
            tile.slab((0.0, tile.length_m), floor)
        start, end, goal_z = self.cross(tile, difficulty, floor)
        tile.slab((0.0, start), 0.0, floor - 0.5)
        tile.slab((end, tile.length_m), goal_z, floor - 0.5)
        return Ends(0.0, goal_z, floor, lateral_m=1.0)


@dataclass(kw_only=True)
class GapCfg(SparseTerrainCfg):
    """Two gaps with a platform between them; the sides differ in height."""

    gap_m: tuple[float, float]
    """Width of a gap, easiest and hardest."""
    edge_jitter: float = 0.1
    """Edges are displaced by up to this share of the gap."""
    step: float = 0.3
    """Largest difference in height across a gap, as a share of the gap."""
    platform_m: tuple[float, float] = (1.2, 1.8)
    """Smallest and largest length of the platform."""
    parts: int = 5
    """The platform is cut into this many parts, each with edges of its own."""

    def cross(self, tile: Tile, difficulty: float, floor_z_m: float) -> tuple[float, float, float]:
        """Add the platform; see :meth:`SparseTerrainCfg.cross`."""
        rng, gap = tile.rng, at(self.gap_m, difficulty)
        room = tile.end_m - tile.start_m
        platform = min(rng.uniform(*self.platform_m), room - 2 * gap)
        start = tile.start_m + rng.uniform(0.0, max(room - platform - 2 * gap, 0.0))
        reach, lowest = self.step * gap, floor_z_m + _ABOVE_FLOOR_M
        middle_z = max(rng.uniform(-reach, reach), lowest)
        width = tile.width_m / self.parts
        for i in range(self.parts):
            front, back = rng.uniform(-1, 1, 2) * self.edge_jitter * gap
            tile.box(
                (start + gap + front, start + gap + platform + back),
                (i * width, (i + 1) * width),
                middle_z,
                floor_z_m - 0.5,
            )
        goal_z = max(middle_z + rng.uniform(-reach, reach), lowest)
        return start, start + platform + 2 * gap, goal_z


@dataclass(kw_only=True)
class PalletsCfg(SparseTerrainCfg):
    """Planks across the way."""

    plank_m: tuple[float, float]
    """Width of a plank, easiest and hardest."""
    gap_m: tuple[float, float]
    """Free space between two planks."""
    step_m: tuple[float, float]
    """Planks differ in height by up to this."""
    lane_m: float = 3.2
    """Length of a plank."""
    thickness_m: float = 0.1
    """Thickness of a plank."""

    def cross(self, tile: Tile, difficulty: float, floor_z_m: float) -> tuple[float, float, float]:
        """Add the planks; see :meth:`SparseTerrainCfg.cross`."""
        plank, gap = at(self.plank_m, difficulty), at(self.gap_m, difficulty)
        step = at(self.step_m, difficulty)
        half = 0.5 * min(self.lane_m, tile.width_m)
        x = tile.start_m + gap
        while x + plank + gap <= tile.end_m + 1e-9:
            top = tile.rng.uniform(-0.5, 0.5) * step
            tile.box((x, x + plank), (tile.mid_m - half, tile.mid_m + half), top, top - self.thickness_m)
            x += plank + gap
        return tile.start_m, x, 0.0


@dataclass(kw_only=True)
class StonesCfg(SparseTerrainCfg):
    """Stones on a jittered lattice; a few are missing, a few stick out as obstacles."""

    pitch_m: tuple[float, float]
    """Distance between the centres of neighbours, easiest and hardest."""
    gap_m: tuple[float, float]
    """Free space between neighbours, before jitter."""
    step_m: tuple[float, float]
    """Tops lie within plus and minus this."""
    lane_m: float
    """Width of the lattice."""
    jitter: float = 0.15
    """Stones are displaced by up to this share of the gap, and their edges shortened or lengthened as much."""
    missing: float = 0.06
    """Share of stones that are not there."""
    raised: float = 0.04
    """Share of stones that stick out."""
    raised_m: float = 1.0
    """By how much."""

    def cross(self, tile: Tile, difficulty: float, floor_z_m: float) -> tuple[float, float, float]:
        """Add the stones; see :meth:`SparseTerrainCfg.cross`."""
        rng, pitch, gap = tile.rng, at(self.pitch_m, difficulty), at(self.gap_m, difficulty)
        step, top_edge = at(self.step_m, difficulty), pitch - gap
        rows = max(int((tile.end_m - tile.start_m - gap) / pitch), 1)
        columns = max(int(self.lane_m / pitch), 2)
        for i in range(rows):
            shift = rng.uniform(-0.25, 0.25) * pitch
            for j in range(columns):
                kind = rng.random()
                place, edges = rng.uniform(-1, 1, 2) * self.jitter * gap, rng.uniform(-1, 1, 2) * self.jitter * gap
                lift = rng.uniform(-step, step)
                if kind < self.missing:
                    continue
                top = self.raised_m if kind > 1 - self.raised else lift
                x = tile.start_m + gap + (i + 0.5) * pitch - 0.5 * gap + place[0]
                y = tile.mid_m + (j - 0.5 * (columns - 1)) * pitch + shift + place[1]
                bottom = floor_z_m - 0.1
                tile.turned_box((x, y, 0.5 * (top + bottom)), (top_edge + edges[0], top_edge + edges[1], top - bottom))
        return tile.start_m, tile.start_m + gap + rows * pitch, 0.0


@dataclass(kw_only=True)
class BeamCfg(SparseTerrainCfg):
    """Beams end to end, each a little turned, tilted and higher or lower than the last."""

    beam_m: tuple[float, float]
    """Width of a beam, easiest and hardest."""
    length_m: float
    """Length of a beam, about; they fill the course."""
    turn_rad: tuple[float, float] = (0.0, 0.1)
    """Roll, pitch and yaw lie within plus and minus this."""
    step_m: tuple[float, float] = (0.0, 0.2)
    """Middles lie within plus and minus this."""
    thickness_m: float = 0.15
    """Thickness of a beam."""

    def cross(self, tile: Tile, difficulty: float, floor_z_m: float) -> tuple[float, float, float]:
        """Add the beams; see :meth:`SparseTerrainCfg.cross`."""
        rng, width = tile.rng, at(self.beam_m, difficulty)
        room = tile.end_m - tile.start_m
        count = max(round(room / self.length_m), 1)
        length = room / count
        turn, step = at(self.turn_rad, difficulty), at(self.step_m, difficulty)
        for i in range(count):
            center_z = rng.uniform(-step, step) - 0.5 * self.thickness_m
            angles = rng.uniform(-turn, turn, 3)
            rpy = (float(angles[0]), float(angles[1]), float(angles[2]))
            center = (tile.start_m + (i + 0.5) * length, tile.mid_m, center_z)
            tile.turned_box(center, (length / np.cos(turn), width, self.thickness_m), rpy)
        return tile.start_m, tile.end_m, 0.0
