"""Terrain for goal reaching: levels of growing difficulty along x, columns of terrain kinds along y; goals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch
from mjlab.terrains import SubTerrainCfg, TerrainEntity, TerrainEntityCfg, TerrainGeneratorCfg

from gantry_hardware.errors import GantryError
from gantry_sim.terrains.catalogue import HeldOutTerrainError, group_of, test_terrains, training_mix
from gantry_sim.terrains.sparse import SparseTerrainCfg
from gantry_sim.terrains.tile import FLOOR_PATCH, GOAL_PATCH, Apron, GoalTerrainCfg

DEFAULT_SIZE_M = (8.0, 8.0)
"""Length and width of a tile."""


def ame2_terrain(
    robot: str,
    levels: int = 10,
    columns: int = 20,
    kinds: Iterable[str] | None = None,
    seed: int = 0,
    size: tuple[float, float] = DEFAULT_SIZE_M,
    held_out: Iterable[str] | None = None,
    start_levels: int | None = None,
    border_m: float = 3.0,
    even: bool = False,
) -> TerrainEntityCfg:
    """The terrain of a goal-reaching task.

    Args:
        robot: Robot name.
        levels: Rows of increasing difficulty; of held-out terrains, instances.
        columns: Columns, shared out to the kinds by the square root of their proportions, at least one each; robots
            are spread by the proportions themselves. Every second column of a sparse kind has virtual floors; where
            a kind has a single column, each of its tiles has one with equal chance.
        kinds: Training terrains or groups; None for all.
        seed: Of all tiles; held-out ones do not depend on it.
        size: Length (along x) and width of a tile, m.
        held_out: Names of held-out terrains to build instead of training terrains, one column each; () for all.
        start_levels: Robots start on this many of the lowest levels; None for all.
        border_m: Width of the flat border around the grid.
        even: Spread robots over all kinds alike instead; the tiles are the same.

    Raises:
        HeldOutTerrainError: If ``kinds`` names a held-out terrain.
        UnknownNameError: If there is no such robot or terrain.
        GantryError: If there are fewer columns than kinds.
    """
    if held_out is not None:
        if kinds is not None:
            raise GantryError("A terrain has training kinds or held-out tests, not both; got kinds and held_out.")
        parts = dict(test_terrains(robot, tuple(held_out) or None))
    else:
        parts = _columns(training_mix(robot, kinds), columns, even)
    if border_m > 0.0:
        # mjlab's own border would belong to the body "terrain", see tile.py.
        for part in parts.values():
            part.apron = Apron(levels, len(parts), border_m)
    generator = TerrainGeneratorCfg(
        seed=seed,
        curriculum=True,
        size=size,
        num_rows=levels,
        color_scheme="none",
        sub_terrains=dict[str, SubTerrainCfg](parts),
    )
    highest = None if start_levels is None else max(min(start_levels, levels) - 1, 0)
    return TerrainEntityCfg(terrain_type="generator", terrain_generator=generator, max_init_terrain_level=highest)


def _columns(mix: Mapping[str, GoalTerrainCfg], columns: int, even: bool) -> dict[str, GoalTerrainCfg]:
    """One configuration per column, called after its kind and a number; proportions are those of the mix, or even."""
    if columns < len(mix):
        raise GantryError(f"{columns} columns are too few for {len(mix)} terrain kinds ({', '.join(mix)}).")
    # By the square root of the proportions: robots of a large share meet each of their columns more often, which costs
    # nothing, while every column of stones costs each robot's physics the kinematics of some sixty geoms a level.
    weights = np.sqrt([cfg.proportion for cfg in mix.values()])
    ideal = weights / weights.sum() * columns
    counts = np.ones(len(mix), dtype=int)
    while counts.sum() < columns:
        counts[np.argmax(ideal - counts)] += 1
    parts: dict[str, GoalTerrainCfg] = {}
    for (kind, cfg), count in zip(mix.items(), counts, strict=True):
        for i in range(count):
            part = copy(cfg)
            part.proportion = (1.0 / len(mix) if even else cfg.proportion) / count
            if isinstance(part, SparseTerrainCfg) and count > 1:
                # A last column without a partner mixes both.
                part.floor = "random" if i == count - 1 and count % 2 else ("virtual" if i % 2 else "real")
            parts[f"{kind}_{i:02d}"] = part
    return parts


def kind_of(column: str) -> str:
    """Terrain kind of a column's name: ``stones_03`` is of kind ``stones``, ``t1_stones`` is a kind itself."""
    head, _, tail = column.rpartition("_")
    return head if tail.isdigit() else column


def assert_trainable(cfg: TerrainEntityCfg) -> None:
    """Refuse a terrain that contains a held-out test.

    Raises:
        HeldOutTerrainError: If it does.
    """
    generator = cfg.terrain_generator
    if generator is None:
        return
    found = [name for name, part in generator.sub_terrains.items() if getattr(part, "held_out", False)]
    if found:
        raise HeldOutTerrainError(f"Training terrain contains held-out tests: {', '.join(found)}.")


@dataclass(frozen=True)
class TerrainSite:
    """Start and goal on one tile, in the world."""

    spawn: tuple[float, float, float, float]
    """x, y, z of the ground, m, and yaw towards the goals, rad."""
    goals: torch.Tensor
    """(goals, 3) points on the ground, m."""
    floor_z_m: float
    """Height of the tile's lowest floor, real or virtual."""


@dataclass(frozen=True)
class TerrainSites:
    """All tiles' sites as tensors, on the terrain's device, in the world."""

    spawn: torch.Tensor
    """(levels, columns, 4) x, y, z of the ground, m, and yaw, rad."""
    goals: torch.Tensor
    """(levels, columns, goals, 3) points on the ground, m."""
    floor_z_m: torch.Tensor
    """(levels, columns) height of the lowest floor. A base half a metre below it has fallen through: under a virtual
    floor there is nothing."""
    kinds: tuple[str, ...]
    """Per column, the kind of terrain."""
    groups: tuple[str, ...]
    """Per column, its group: dense, climb, sparse or test."""

    def at(self, level: int, column: int) -> TerrainSite:
        """The sites of one tile."""
        x, y, z, yaw = self.spawn[level, column].tolist()
        return TerrainSite((x, y, z, yaw), self.goals[level, column], float(self.floor_z_m[level, column]))


def terrain_sites(terrain: TerrainEntity) -> TerrainSites:
    """The sites of a built terrain of :func:`ame2_terrain`.

    Raises:
        GantryError: If the terrain is of another make.
    """
    generator, origins = terrain.cfg.terrain_generator, terrain.terrain_origins
    if generator is None or origins is None or not {GOAL_PATCH, FLOOR_PATCH} <= terrain.flat_patches.keys():
        raise GantryError(
            f"The terrain has no goals: expected the patches '{GOAL_PATCH}' and '{FLOOR_PATCH}', it has "
            f"{sorted(terrain.flat_patches)}. Use ame2_terrain()."
        )
    kinds = tuple(kind_of(name) for name in generator.sub_terrains)
    return TerrainSites(
        spawn=torch.cat([origins, torch.zeros_like(origins[..., :1])], dim=-1),
        goals=terrain.flat_patches[GOAL_PATCH],
        floor_z_m=terrain.flat_patches[FLOOR_PATCH][:, :, 0, 2],
        kinds=kinds,
        groups=tuple(group_of(kind) for kind in kinds),
    )
