"""A picture of all terrains, seen from above: height as colour, slopes shaded, where to start and where to go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import LightSource
from matplotlib.figure import Figure
from mjlab.terrains import TerrainEntity, TerrainEntityCfg
from numpy.typing import NDArray

from gantry_sim.terrains.grid import DEFAULT_SIZE_M, ame2_terrain, terrain_sites
from gantry_sim.terrains.rasters import TerrainRasters, terrain_rasters

_SPAN_M = 1.2


def preview(
    path: Path,
    robot: str = "go2",
    *,
    held_out: bool = False,
    difficulties: int = 3,
    seed: int = 0,
    size: tuple[float, float] = DEFAULT_SIZE_M,
    kinds: Sequence[str] | None = None,
    resolution_m: float = 0.03,
) -> None:
    """Write a contact sheet as PNG: a column of pictures per kind, one row per difficulty, x to the right.

    Args:
        path: Where to write.
        robot: Robot name.
        held_out: Show the held-out tests (one instance a row) instead of the training terrains.
        difficulties: Number of rows.
        seed: Of the training terrains.
        size: Of a tile, m.
        kinds: Training kinds or groups; None for all.
        resolution_m: Of the pictures.
    """
    if held_out:
        cfg = ame2_terrain(robot, levels=difficulties, held_out=(), size=size, seed=seed)
    else:
        chosen = ame2_terrain(robot, levels=1, columns=20, kinds=kinds).terrain_generator
        assert chosen is not None
        count = len({name.rpartition("_")[0] for name in chosen.sub_terrains})
        cfg = ame2_terrain(robot, levels=difficulties, columns=count, kinds=kinds, seed=seed, size=size)
    terrain = TerrainEntity(cfg, device="cpu")
    raster, sites = terrain_rasters(cfg, resolution_m, margin_m=0.0, terrain=terrain), terrain_sites(terrain)
    rows = max(len(sites.kinds) // 6, 1) * difficulties
    across = int(np.ceil(len(sites.kinds) * difficulties / rows))
    figure = Figure(figsize=(2.4 * across, 2.4 * rows * size[1] / size[0] + 0.25 * rows), layout="constrained")
    axes = figure.subplots(rows, across, squeeze=False)
    for panel in axes.flat:
        panel.set_axis_off()
    for column, kind in enumerate(sites.kinds):
        for level in range(difficulties):
            panel = axes[(column // across) * difficulties + level, column % across]
            low, high = _corners(cfg, level, column)
            part = raster.window(low, high)
            panel.imshow(shade(part).swapaxes(0, 1), origin="lower", extent=(low[0], high[0], low[1], high[1]))
            site = sites.at(level, column)
            panel.plot(*site.spawn[:2], "o", color="white", markeredgecolor="black", markersize=4)
            panel.plot(site.goals[:, 0], site.goals[:, 1], "x", color="black", markersize=3)
            panel.set_title(f"{kind} {level / max(difficulties - 1, 1):.1f}", fontsize=8)
    figure.savefig(path, dpi=110)


def shade(raster: TerrainRasters) -> NDArray[np.float64]:
    """(rows, columns, 3) colours of a raster: blue where only a virtual floor shows, black where nothing is."""
    heights = raster.mapped_m.astype(np.float64)
    empty = ~np.isfinite(heights)
    heights[empty] = -2.0
    light = LightSource(azdeg=135, altdeg=50)
    norm = np.clip((heights + _SPAN_M) / (2 * _SPAN_M), 0.0, 1.0)
    colour = np.stack([0.25 + 0.7 * norm, 0.35 + 0.5 * norm, 0.5 - 0.1 * norm], axis=-1)
    bright = light.hillshade(heights, vert_exag=1.0, dx=raster.resolution_m, dy=raster.resolution_m)
    picture = colour * (0.35 + 0.75 * bright[..., None])
    virtual = ~np.isfinite(raster.solid_m) & ~empty
    picture[virtual] = 0.5 * picture[virtual] + 0.5 * np.array([0.25, 0.4, 0.9])
    picture[empty] = 0.0
    return np.clip(picture, 0.0, 1.0)


def _corners(cfg: TerrainEntityCfg, level: int, column: int) -> tuple[tuple[float, float], tuple[float, float]]:
    generator = cfg.terrain_generator
    assert generator is not None
    length, width = generator.size
    x = (level - 0.5 * generator.num_rows) * length
    y = (column - 0.5 * len(generator.sub_terrains)) * width
    return (x, y), (x + length, y + width)
