"""Height rasters of terrains: what depth cameras are rendered from and mapping networks are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import torch
from mjlab.terrains import TerrainEntity, TerrainEntityCfg
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_hardware.files.whole_files import whole_file
from gantry_sim.physics.heightmap import HeightMap
from gantry_sim.terrains.tile import MAP_GROUPS, SOLID_GROUPS

_ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class TerrainRasters:
    """Heights at the centres of square cells, in the world. Row i grows along +x, column j along +y."""

    solid_m: NDArray[np.float32]
    """(rows, columns) height of the ground that carries, m; -inf where there is none."""
    mapped_m: NDArray[np.float32]
    """(rows, columns) the same with virtual floors as ground: what a map is to show."""
    resolution_m: float
    """Edge length of a cell."""
    corner_m: tuple[float, float]
    """x, y of the outer corner of cell (0, 0): the centre of cell (i, j) is corner + (i + 1/2, j + 1/2) edges."""

    def window(self, low: tuple[float, float], high: tuple[float, float]) -> TerrainRasters:
        """The cells whose centres lie in a rectangle given by two corners, m in the world.

        Raises:
            GantryError: If there are none.
        """
        first = [
            max(int(np.ceil((a - c) / self.resolution_m - 0.5)), 0) for a, c in zip(low, self.corner_m, strict=True)
        ]
        last = [int(np.ceil((b - c) / self.resolution_m - 0.5)) for b, c in zip(high, self.corner_m, strict=True)]
        part = (slice(first[0], last[0]), slice(first[1], last[1]))
        if not self.solid_m[part].size:
            raise GantryError(f"No cell of the raster lies between {low} and {high}; it starts at {self.corner_m}.")
        x, y = (c + i * self.resolution_m for c, i in zip(self.corner_m, first, strict=True))
        return TerrainRasters(self.solid_m[part], self.mapped_m[part], self.resolution_m, (x, y))


def rasterize(
    model: mujoco.MjModel, low: tuple[float, float], high: tuple[float, float], resolution_m: float = 0.04
) -> TerrainRasters:
    """Rasters of a compiled model's static ground, exact at the centres of cells.

    Args:
        model: Any model; geoms of the groups :data:`SOLID_GROUPS` carry, those of :data:`MAP_GROUPS` are seen.
        low: Smallest x and y, m.
        high: Largest x and y; the raster may end up to a cell later.
        resolution_m: Edge length of a cell.

    Raises:
        GantryError: If the rectangle is empty.
    """
    rows, columns = (int(np.ceil((b - a) / resolution_m - 1e-6)) for a, b in zip(low, high, strict=True))
    if rows <= 0 or columns <= 0:
        raise GantryError(f"Expected an area from its low to its high corner, got {low} to {high} m.")
    above = float(model.stat.center[2] + 2 * model.stat.extent + 10.0)
    x = low[0] + resolution_m * (torch.arange(rows) + 0.5)
    y = low[1] + resolution_m * (torch.arange(columns) + 0.5)

    def heights(groups: tuple[int, ...]) -> NDArray[np.float32]:
        ground = HeightMap(model, groups)
        result = np.empty((rows, columns), np.float32)
        for start in range(0, rows, _ROWS_AT_ONCE):
            part = x[start : start + _ROWS_AT_ONCE]
            points = torch.stack([*torch.meshgrid(part, y, indexing="ij")], dim=-1).reshape(-1, 2)
            origin = torch.nn.functional.pad(points, (0, 1), value=above)
            distance = ground.cast_down(origin)[0]
            height = torch.where(distance < 0, -torch.inf, above - distance)
            result[start : start + len(part)] = height.reshape(len(part), columns).numpy()
        return result

    return TerrainRasters(heights(SOLID_GROUPS), heights(MAP_GROUPS), resolution_m, low)


def terrain_rasters(
    cfg: TerrainEntityCfg,
    resolution_m: float = 0.04,
    margin_m: float = 1.0,
    *,
    terrain: TerrainEntity | None = None,
    model: mujoco.MjModel | None = None,
) -> TerrainRasters:
    """Rasters of a whole terrain.

    Args:
        cfg: Any generated terrain.
        resolution_m: Edge length of a cell.
        margin_m: How much of the border around the grid of tiles to include.
        terrain: The terrain built from ``cfg``, if there is one already. A terrain whose seed is None differs from
            build to build.
        model: The compiled scene that it has become part of, if it has.

    Raises:
        GantryError: If the terrain is a plane.
    """
    size = _grid_size(cfg)
    half = (0.5 * size[0] + margin_m, 0.5 * size[1] + margin_m)
    if model is None:
        model = (TerrainEntity(cfg, device="cpu") if terrain is None else terrain).spec.compile()
    return rasterize(model, (-half[0], -half[1]), half, resolution_m)


def tile_rasters(cfg: TerrainEntityCfg, resolution_m: float = 0.04) -> dict[str, TerrainRasters]:
    """Rasters of each tile, called after its column and level: ``stones_00/3``.

    Raises:
        GantryError: If the terrain is a plane.
    """
    whole, grid = terrain_rasters(cfg, resolution_m, margin_m=0.0), _grid_size(cfg)
    generator = cfg.terrain_generator
    assert generator is not None
    length, width = generator.size
    tiles = {}
    for j, name in enumerate(generator.sub_terrains):
        for i in range(generator.num_rows):
            low = (i * length - 0.5 * grid[0], j * width - 0.5 * grid[1])
            tiles[f"{name}/{i}"] = whole.window(low, (low[0] + length, low[1] + width))
    return tiles


def save_rasters(path: Path, rasters: dict[str, TerrainRasters]) -> None:
    """Write an ``.npz`` of maps (with virtual floors), one array a name, and their common ``resolution_m``.

    Raises:
        GantryError: If the resolutions differ, or there is no raster.
    """
    resolutions = {raster.resolution_m for raster in rasters.values()}
    if len(resolutions) != 1:
        raise GantryError(f"Expected rasters of one resolution, got {sorted(resolutions)} m.")
    arrays = {name: raster.mapped_m for name, raster in rasters.items()}
    with whole_file(path) as file:
        np.savez_compressed(file, resolution_m=np.float64(resolutions.pop()), **arrays)  # type: ignore[arg-type]


def _grid_size(cfg: TerrainEntityCfg) -> tuple[float, float]:
    generator = cfg.terrain_generator
    if cfg.terrain_type != "generator" or generator is None:
        raise GantryError(f"Expected a generated terrain, got one of type '{cfg.terrain_type}'.")
    columns = len(generator.sub_terrains) if generator.curriculum else generator.num_cols
    return generator.num_rows * generator.size[0], columns * generator.size[1]
