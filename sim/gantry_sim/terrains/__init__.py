"""Terrains for goal reaching over obstacles (AME-2): twelve to train on, four held out for tests."""

from gantry_sim.terrains.catalogue import (
    GROUPS,
    SHARES,
    TESTS,
    HeldOutTerrainError,
    group_of,
    test_terrains,
    training_kinds,
    training_mix,
)
from gantry_sim.terrains.grid import (
    TerrainSite,
    TerrainSites,
    ame2_terrain,
    assert_trainable,
    kind_of,
    terrain_sites,
)
from gantry_sim.terrains.tile import (
    GROUND_BODY,
    GROUND_GROUP,
    MAP_GROUPS,
    SOLID_GROUPS,
    VIRTUAL_FLOOR_GROUP,
    GoalTerrainCfg,
)

__all__ = [
    "GROUND_BODY",
    "GROUND_GROUP",
    "GROUPS",
    "MAP_GROUPS",
    "SHARES",
    "SOLID_GROUPS",
    "TESTS",
    "VIRTUAL_FLOOR_GROUP",
    "GoalTerrainCfg",
    "HeldOutTerrainError",
    "TerrainSite",
    "TerrainSites",
    "ame2_terrain",
    "assert_trainable",
    "group_of",
    "kind_of",
    "terrain_sites",
    "test_terrains",
    "training_kinds",
    "training_mix",
]
