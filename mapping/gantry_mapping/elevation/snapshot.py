"""A map at one moment, cut out around the robot: what travels from where it is made to where it is looked at."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gantry_mapping.config import MappingCfg
from gantry_mapping.elevation.elevation_map import ElevationMap
from gantry_mapping.errors import MappingError

FloatArray = NDArray[np.floating]


@dataclass(frozen=True)
class MapSnapshot:
    """A square of cells of the world's lattice. Row i grows along the world's x, column j along its y."""

    elevation_m: FloatArray
    """Shape (S, S), in the world; where nothing was seen, the ground that the robot started on."""
    variance_m2: FloatArray
    """Shape (S, S); the prior's where nothing was seen."""
    corner_in_world_m: tuple[float, float]
    """Lower corner of cell (0, 0): its centre is half a cell further."""
    resolution_m: float
    """Edge length of a cell."""
    stamp_s: float = 0.0
    """Time of the newest frame in it, on the clock of the map's source."""

    def __post_init__(self) -> None:
        shape = self.elevation_m.shape
        if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 1 or self.variance_m2.shape != shape:
            raise MappingError(
                f"A map has elevations of shape {shape} and variances of shape {self.variance_m2.shape}, expected two "
                "squares of one size."
            )
        if not (self.resolution_m > 0.0 and np.isfinite(self.corner_in_world_m).all()):
            raise MappingError(
                f"A map has cells of {self.resolution_m} m and its corner at {self.corner_in_world_m}, expected a "
                "positive length and finite numbers."
            )

    @property
    def cells(self) -> int:
        """S, cells along one edge."""
        return self.elevation_m.shape[0]

    def is_same(self, other: MapSnapshot) -> bool:
        """Whether it is another one again, stamp and every number."""
        return (
            self.stamp_s == other.stamp_s
            and self.resolution_m == other.resolution_m
            and self.corner_in_world_m == other.corner_in_world_m
            and np.array_equal(self.elevation_m, other.elevation_m)
            and np.array_equal(self.variance_m2, other.variance_m2)
        )

    def seen_share(self, prior_variance_m2: float) -> float:
        """Share of the cells that are surer than half the prior."""
        return float(np.mean(self.variance_m2 < 0.5 * prior_variance_m2))


def snapshot_of(
    elevation_map: ElevationMap, pos_base_in_world_m: FloatArray, extent_m: float, stamp_s: float
) -> MapSnapshot | None:
    """The cells of the only map in ``elevation_map`` around the robot; None before its first frame.

    Args:
        elevation_map: With one environment, in numpy.
        pos_base_in_world_m: Shape (3,) or (2,), what to cut out around.
        extent_m: Edge length of the square; that of the map if the map is smaller.
        stamp_s: Of the newest frame.
    """
    if not bool(elevation_map.seeded[0]):
        return None
    mean, variance, corner = (np.asarray(part)[0] for part in elevation_map.layers())
    resolution = elevation_map.cfg.map_resolution_m
    count = min(max(1, round(extent_m / resolution)), elevation_map.cells)
    here = np.floor((np.asarray(pos_base_in_world_m)[:2] - corner) / resolution).astype(int)
    start = np.clip(here - count // 2, 0, elevation_map.cells - count)
    part = tuple(slice(first, first + count) for first in start)
    x, y = (corner + start * resolution).tolist()
    return MapSnapshot(mean[part], variance[part], (x, y), resolution, stamp_s)


def cfg_of(cfg: MappingCfg, snapshot: MapSnapshot) -> MappingCfg:
    """The setup of a map that holds a snapshot, everything else as in ``cfg``."""
    return replace(cfg, map_size_m=snapshot.cells * snapshot.resolution_m, map_resolution_m=snapshot.resolution_m)


def load_snapshot(elevation_map: ElevationMap, snapshot: MapSnapshot) -> None:
    """Replace the only map in ``elevation_map``, which :func:`cfg_of` fits.

    Raises:
        MappingError: If it has another size.
    """
    if elevation_map.cells != snapshot.cells:
        raise MappingError(f"The map has {elevation_map.cells} cells along an edge, the snapshot {snapshot.cells}.")
    elevation_map.load(
        snapshot.elevation_m[None].astype(np.float64),
        snapshot.variance_m2[None].astype(np.float64),
        np.array([snapshot.corner_in_world_m], dtype=np.float64),
    )
