"""One tile of terrain under the robot in plain MuJoCo: where to start is the origin, x leads to the goals."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from gantry_sim.robots.option_checks import require_difficulty
from gantry_sim.robots.terrain_names import terrain_name
from gantry_sim.terrains import TESTS, test_terrains, training_mix
from gantry_sim.terrains.grid import DEFAULT_SIZE_M
from gantry_sim.terrains.tile import GOAL_PATCH, GROUND_GROUP

GOAL_SITE = "goal_"
"""Beginning of the names of the sites to walk to."""
BORDER_M = 3.0
"""Width of the flat ground around the tile."""
_BORDER_THICKNESS_M = 1.0


@dataclass(frozen=True)
class TerrainCfg:
    """Choice of a tile."""

    kind: str
    """A training terrain, or a held-out test, or the beginning of one name: ``t1`` is ``t1_stones``."""
    difficulty: float = 0.5
    """0 to 1; of a held-out test, which instance."""
    seed: int = 0
    """Of a training terrain."""
    size_m: tuple[float, float] = DEFAULT_SIZE_M
    """Length and width."""

    def __post_init__(self) -> None:
        require_difficulty(self.difficulty)


def add_terrain(scene: mujoco.MjSpec, robot: str, cfg: TerrainCfg) -> None:
    """Put a tile in the place of the scene's floor, with sites ``goal_0``, ... at the places to walk to.

    Args:
        scene: With a geom ``floor``, which goes.
        robot: Whose terrains; their sizes depend on it.
        cfg: Which tile.

    Raises:
        UnknownNameError: If there is no such terrain or robot.
        GantryError: If the tile does not fit its size.
    """
    name = terrain_name(cfg.kind)
    parts = test_terrains(robot, (name,)) if name in TESTS else training_mix(robot, (name,))
    part = parts[name]
    part.size = cfg.size_m
    floor = scene.geom("floor")
    if floor is not None:
        scene.delete(floor)
    before = len(scene.worldbody.geoms)
    tile = part.function(cfg.difficulty, scene, np.random.default_rng(cfg.seed))
    _add_border(scene, cfg.size_m)
    # Tiles start at their corner; here the place to start is the origin of the world.
    for geom in scene.worldbody.geoms[before:]:
        geom.pos = np.array(geom.pos) - tile.origin
    assert tile.flat_patches is not None
    for i, goal in enumerate(tile.flat_patches[GOAL_PATCH] - tile.origin):
        scene.worldbody.add_site(name=f"{GOAL_SITE}{i}", pos=goal.tolist(), size=[0.05, 0.05, 0.05])


def _add_border(scene: mujoco.MjSpec, size_m: tuple[float, float]) -> None:
    """Flat ground at the tile's own zero around it, so that a robot that leaves it does not fall out of the world."""
    length, width = size_m
    wide, half = BORDER_M, 0.5 * BORDER_M
    strips = (
        ((-half, 0.5 * width), (half, 0.5 * width + wide)),
        ((length + half, 0.5 * width), (half, 0.5 * width + wide)),
        ((0.5 * length, -half), (0.5 * length, half)),
        ((0.5 * length, width + half), (0.5 * length, half)),
    )
    for center, half_size in strips:
        scene.worldbody.add_geom(
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=[*center, -0.5 * _BORDER_THICKNESS_M],
            size=[*half_size, 0.5 * _BORDER_THICKNESS_M],
            group=GROUND_GROUP,
            rgba=[0.42, 0.47, 0.52, 1.0],
        )
