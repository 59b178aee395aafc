"""One tile of terrain: a strip to start from, a course, and a strip with goals, one after the other along x.

Every tile is crossed along +x. Its obstacles span the tile's width, or a lane between two drops, so that the way over
them is the short one, and a step, a gap or a plank is one box however wide the tile is: a simulation pays for every
geom at every step. Only boxes are used: the height lookup
(``gantry_sim.physics.heightmap``) is exact for them, and feet are not caught between the prisms of a height field.

The frame of a tile has its origin at the tile's corner with the smallest x and y; z = 0 is the height of a strip that
is neither raised nor sunk, the same for all tiles.

The geoms belong to the world itself, not to mjlab's body ``terrain``: MuJoCo's broadphase goes over all geoms of all
other bodies at every step, moving or not, which more than doubled the time of a step on 200 tiles. Contact sensors
that look for the ground therefore match the body :data:`GROUND_BODY`.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

import mujoco
import numpy as np
from mjlab.terrains.terrain_generator import FlatPatchSamplingCfg, SubTerrainCfg, TerrainGeometry, TerrainOutput

from gantry_hardware.errors import GantryError

GROUND_BODY = "world"
"""Name of the body that all ground belongs to."""
GROUND_GROUP = 0
"""Geom group of all that can be stood on."""
VIRTUAL_FLOOR_GROUP = 4
"""Geom group of floors that only height sensors see; robots use 2 (looks) and 3 (collision)."""
SOLID_GROUPS = (GROUND_GROUP,)
"""Groups that a height sensor includes to see the ground that carries."""
MAP_GROUPS = (GROUND_GROUP, VIRTUAL_FLOOR_GROUP)
"""Groups that a height sensor includes to see what the map shows: the ground and the virtual floors."""
GOAL_PATCH = "goal"
"""Key of the goals among a terrain entity's flat patches, (levels, columns, goals, 3) m in the world."""
FLOOR_PATCH = "floor"
"""Key of one point on the lowest floor of each tile, (levels, columns, 1, 3) m in the world."""

_SLAB_M = 1.0
_GOAL_MARGIN_M = 0.5
_LOW_RGB, _HIGH_RGB = np.array([0.33, 0.38, 0.45]), np.array([0.86, 0.78, 0.62])


def at(span: tuple[float, float], difficulty: float) -> float:
    """The value of an (easiest, hardest) pair at a difficulty in [0, 1]."""
    return span[0] + (span[1] - span[0]) * difficulty


class Tile:
    """Collects the geometry of one tile.

    Args:
        spec: Model to whose world the geometry is added.
        size: Length along x and width along y, m.
        rng: All randomness of the tile.
        strip_m: Length of the strips at both ends.
    """

    def __init__(
        self, spec: mujoco.MjSpec, size: tuple[float, float], rng: np.random.Generator, strip_m: float
    ) -> None:
        self.spec = spec
        self.length_m, self.width_m = size
        self.rng = rng
        self.start_m = strip_m
        """x at which the course begins."""
        self.end_m = self.length_m - strip_m
        """x at which it ends."""
        self.mid_m = self.width_m / 2
        """y of the middle line, on which a robot starts."""
        self.reversed = False
        """Turn the course around: whatever is added from now on is mirrored along x."""
        self.geometries: list[TerrainGeometry] = []

    def box(
        self, x: tuple[float, float], y: tuple[float, float], top: float, bottom: float | None = None
    ) -> mujoco.MjsGeom:
        """An upright box between two x, two y and two heights, m; a metre thick without a ``bottom``."""
        bottom = top - _SLAB_M if bottom is None else bottom
        center = (0.5 * (x[0] + x[1]), 0.5 * (y[0] + y[1]), 0.5 * (top + bottom))
        return self.turned_box(center, (x[1] - x[0], y[1] - y[0], top - bottom))

    def slab(self, x: tuple[float, float], top: float, bottom: float | None = None) -> mujoco.MjsGeom:
        """A box over the whole width of the tile."""
        return self.box(x, (0.0, self.width_m), top, bottom)

    def turned_box(
        self,
        center: tuple[float, float, float],
        size: tuple[float, float, float],
        rpy: tuple[float, float, float] = (0.0, 0.0, 0.0),
    ) -> mujoco.MjsGeom:
        """A box in any attitude.

        Args:
            center: x, y, z of its centre, m.
            size: Full edge lengths, m.
            rpy: Roll, pitch and yaw about the fixed axes x, y, z in this order, rad.
        """
        x, y, z = center
        roll, pitch, yaw = rpy
        if self.reversed:
            x, pitch, yaw = self.length_m - x, -pitch, -yaw
        # Without names: MuJoCo compares each new one with all that exist.
        geom = self.spec.worldbody.add_geom(
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=[x, y, z],
            size=[0.5 * edge for edge in size],
            quat=_quat_wxyz(roll, pitch, yaw),
            group=GROUND_GROUP,
            rgba=_rgba(z + 0.5 * size[2]),
        )
        self.geometries.append(TerrainGeometry(geom=geom))
        return geom

    def virtual_floor(self, top: float) -> mujoco.MjsGeom:
        """A floor under the whole tile that height sensors see and nothing touches (paper, section on terrains)."""
        geom = self.slab((0.0, self.length_m), top, top - 0.1)
        geom.contype = geom.conaffinity = 0
        geom.group = VIRTUAL_FLOOR_GROUP
        geom.rgba = [0.5, 0.6, 0.9, 0.25]
        return geom


@dataclass(frozen=True)
class Apron:
    """Level ground around a grid of tiles."""

    levels: int
    """Tiles along x."""
    columns: int
    """Tiles along y."""
    width_m: float
    """Width of the ground around them."""

    def build(self, tile: Tile) -> None:
        """Add the ground, seen from the tile of level 0 and column 0."""
        out = self.width_m
        x, y = self.levels * tile.length_m, self.columns * tile.width_m
        for side in (-out, y):
            tile.box((-out, x + out), (side, side + out), 0.0)
        for side in (-out, x):
            tile.box((side, side + out), (0.0, y), 0.0)


@dataclass(frozen=True)
class Ends:
    """Strips at both ends of a tile, by its builder."""

    spawn_z_m: float = 0.0
    """Height of the strip at x = 0."""
    goal_z_m: float = 0.0
    """Height of the strip at the other end."""
    floor_z_m: float = 0.0
    """Lowest height on which something could stand, or a virtual floor shows."""
    lateral_m: float = 2.0
    """Largest distance of a goal from the middle line."""


@dataclass(kw_only=True)
class GoalTerrainCfg(SubTerrainCfg, abc.ABC):
    """A tile with one place to start, facing +x, and goals at the far end."""

    held_out: ClassVar[bool] = False
    """Whether the terrain is for tests only."""
    strip_m: float = 1.6
    """Length of the flat strips at both ends."""
    goal_count: int = 8
    """Number of goals."""
    apron: Apron | None = None
    """Ground around the whole grid, added with the first tile that is built into a model."""

    def __post_init__(self) -> None:
        # mjlab sizes its tables by these; the patches themselves are placed below, not searched for.
        self.flat_patch_sampling = {
            GOAL_PATCH: FlatPatchSamplingCfg(num_patches=self.goal_count, patch_radius=_GOAL_MARGIN_M),
            FLOOR_PATCH: FlatPatchSamplingCfg(num_patches=1, patch_radius=0.0),
        }

    @abc.abstractmethod
    def build(self, tile: Tile, difficulty: float) -> Ends:
        """Add the geometry of one tile.

        Args:
            tile: Where to add it.
            difficulty: 0 (easiest) to 1 (hardest).
        """

    def generator_for(self, difficulty: float, rng: np.random.Generator) -> np.random.Generator:
        """The tile's own randomness: a child, so that no tile depends on how much another one draws."""
        return rng.spawn(1)[0]

    def function(self, difficulty: float, spec: mujoco.MjSpec, rng: np.random.Generator) -> TerrainOutput:
        """mjlab's entry; see :class:`mjlab.terrains.SubTerrainCfg`.

        Raises:
            GantryError: If the tile is too short for its strips or too narrow.
        """
        shortest = 2 * self.strip_m + 2.0
        if self.size[0] < shortest or self.size[1] < 3.0:
            raise GantryError(
                f"A tile of {self.size[0]:g} x {self.size[1]:g} m holds no {type(self).__name__}; expected at least "
                f"{shortest:g} x 3 m."
            )
        tile = Tile(spec, (self.size[0], self.size[1]), self.generator_for(difficulty, rng), self.strip_m)
        if self.apron is not None and spec.worldbody.first_geom() is None:
            self.apron.build(tile)
        ends = self.build(tile, difficulty)
        origin = np.array([self.strip_m / 2, tile.mid_m, ends.spawn_z_m])
        lateral = min(ends.lateral_m, tile.mid_m - _GOAL_MARGIN_M)
        goals = np.full((self.goal_count, 3), ends.goal_z_m)
        goals[:, 0] = tile.rng.uniform(tile.end_m + _GOAL_MARGIN_M, tile.length_m - _GOAL_MARGIN_M, self.goal_count)
        # Spread over the width, so that even few goals ask for turns to both sides.
        slots = (np.arange(self.goal_count) + tile.rng.random(self.goal_count)) / self.goal_count
        goals[:, 1] = tile.mid_m + lateral * (2 * slots - 1)
        floor = np.array([[self.strip_m / 2, tile.mid_m, ends.floor_z_m]])
        return TerrainOutput(origin, tile.geometries, {GOAL_PATCH: goals, FLOOR_PATCH: floor})


def _quat_wxyz(roll: float, pitch: float, yaw: float) -> list[float]:
    quat = np.zeros(4)
    mujoco.mju_euler2Quat(quat, np.array([roll, pitch, yaw]), "XYZ")
    return quat.tolist()


def _rgba(top: float) -> list[float]:
    share = float(np.clip(0.5 + 0.7 * top, 0.0, 1.0))
    return [*(_LOW_RGB + share * (_HIGH_RGB - _LOW_RGB)).tolist(), 1.0]
