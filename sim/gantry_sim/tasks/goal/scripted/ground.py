"""The ground as it is: its height and how uneven it is, looked up at points."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import max_pool2d

from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.terrains.rasters import terrain_rasters

RESOLUTION_M = 0.02
"""Edge length of a cell."""
DEEPEST_M = -3.0
"""Height that stands for no ground at all."""
NEAR_M, WIDE_M = 0.04, 0.06
"""Half widths of the squares around a cell whose unevenness is known."""


class Ground:
    """Layers of one raster, (rows along x, columns along y), m.

    Args:
        height_m: Height of each cell.
        corner_m: x, y of the outer corner of cell (0, 0), in the world.
        resolution_m: Edge length of a cell.
    """

    def __init__(self, height_m: Tensor, corner_m: tuple[float, float], resolution_m: float = RESOLUTION_M) -> None:
        self.height = height_m
        """Height in the world."""
        self.resolution_m = resolution_m
        self._corner = torch.tensor(corner_m, dtype=height_m.dtype, device=height_m.device)
        self.lowest, self.highest = _extremes(height_m, round(NEAR_M / resolution_m))
        """Lowest and highest within :data:`NEAR_M`."""
        self.rough = self.highest - self.lowest
        """How far these two are apart."""
        low, high = _extremes(height_m, round(WIDE_M / resolution_m))
        self.rough_wide = high - low
        """The same within :data:`WIDE_M`."""

    @classmethod
    def of(cls, env: GantryEnv) -> Ground:
        """The whole terrain of an environment; 96 tiles of 8 m take ten seconds and 300 MB.

        Raises:
            GantryError: If the terrain is a plane.
        """
        terrain = env.scene.terrain
        assert terrain is not None
        raster = terrain_rasters(terrain.cfg, RESOLUTION_M, terrain=terrain, model=env.ground_model)
        height = torch.from_numpy(np.maximum(raster.solid_m, DEEPEST_M)).to(env.device)
        return cls(height, raster.corner_m, raster.resolution_m)

    def at(self, points_w: Tensor, layer: Tensor) -> Tensor:
        """A layer at points (..., 2), m in the world; beyond the edge, that of the nearest cell."""
        rows, columns = layer.shape
        i, j = ((points_w - self._corner) / self.resolution_m).floor().long().unbind(-1)
        return layer.view(-1)[i.clamp(0, rows - 1) * columns + j.clamp(0, columns - 1)]


def _extremes(height: Tensor, cells: int) -> tuple[Tensor, Tensor]:
    """Least and greatest in the square of ``cells`` to each side."""
    size = 2 * cells + 1
    whole = height[None, None]
    return -max_pool2d(-whole, size, 1, cells)[0, 0], max_pool2d(whole, size, 1, cells)[0, 0]
