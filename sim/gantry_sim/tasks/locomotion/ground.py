"""The ground of the velocity tasks, and the sensors that tell its height."""

from __future__ import annotations

from mjlab import terrains
from mjlab.sensor import GridPatternCfg, ObjRef, RayCastSensorCfg
from mjlab.sensor.sensor import SensorCfg
from mjlab.terrains import TerrainEntityCfg, TerrainGeneratorCfg

from gantry_sim.tasks.locomotion.legged_robot import LeggedRobotCfg

HEIGHT_SENSOR = "ground_height"
"""One vertical ray under the base and under each foot."""
SCAN_SENSOR = "terrain_scan"
"""A grid of vertical rays around the base, for the critic."""
SCAN_SIZE_M = (1.6, 1.0)
"""Length and width of the scan."""
SCAN_RESOLUTION_M = 0.1
"""Spacing of its rays."""


def terrain_cfg(rough: bool, *, levels: int, seed: int, curriculum: bool) -> TerrainEntityCfg:
    """A plane, or patches of stairs, slopes and rubble that get harder along x.

    Args:
        rough: False for a plane.
        levels: Rows of increasing difficulty.
        seed: Of the patches.
        curriculum: Start on the easier half; otherwise robots are spread over all levels.
    """
    if not rough:
        return TerrainEntityCfg(terrain_type="plane")
    kinds = {
        "flat": terrains.BoxFlatTerrainCfg(proportion=0.1),
        "stairs_up": terrains.BoxInvertedPyramidStairsTerrainCfg(
            proportion=0.25, step_height_range=(0.02, 0.12), step_width=0.35, platform_width=2.0, border_width=0.5
        ),
        "stairs_down": terrains.BoxPyramidStairsTerrainCfg(
            proportion=0.25, step_height_range=(0.02, 0.12), step_width=0.35, platform_width=2.0, border_width=0.5
        ),
        "slope": terrains.HfPyramidSlopedTerrainCfg(
            proportion=0.2, slope_range=(0.0, 0.4), platform_width=2.0, border_width=0.25
        ),
        "rubble": terrains.HfRandomUniformTerrainCfg(
            proportion=0.2, noise_range=(0.01, 0.06), noise_step=0.01, border_width=0.25
        ),
    }
    generator = TerrainGeneratorCfg(
        seed=seed, curriculum=True, size=(8.0, 8.0), border_width=10.0, num_rows=levels, sub_terrains=kinds
    )
    start = (levels - 1) // 2 if curriculum else None
    return TerrainEntityCfg(terrain_type="generator", terrain_generator=generator, max_init_terrain_level=start)


def height_sensors(body: LeggedRobotCfg) -> tuple[SensorCfg, ...]:
    """Sensors of uneven ground; they are refreshed once per control step, after it."""
    base = ObjRef(type="body", name=body.root_body, entity="robot")
    feet = tuple(ObjRef(type="site", name=foot, entity="robot") for foot in body.spec.feet)
    common = {"ray_alignment": "yaw", "max_distance": 5.0, "include_geom_groups": (0,), "exclude_parent_body": True}
    return (
        RayCastSensorCfg(
            name=HEIGHT_SENSOR, frame=(base, *feet), pattern=GridPatternCfg(size=(0.0, 0.0), resolution=1.0), **common
        ),
        RayCastSensorCfg(
            name=SCAN_SENSOR,
            frame=base,
            pattern=GridPatternCfg(size=SCAN_SIZE_M, resolution=SCAN_RESOLUTION_M),
            **common,
        ),
    )
