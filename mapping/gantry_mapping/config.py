"""Settings of a mapping pipeline, and their YAML form. Lengths in m, variances in m^2, frames as in ``grid``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.bounds import Range, check_fields
from gantry_hardware.files.structured import ConfigError, from_plain
from gantry_hardware.files.yaml_file import YamlFileError, read_yaml
from gantry_hardware.robots.go2 import SPEC as GO2
from gantry_mapping.elevation.grid import LOCAL_GRID_FULL, LOCAL_GRID_SMALL, GridSpec
from gantry_mapping.sensing.camera import REALSENSE_LIKE, DepthCamera

FUSIONS = ("wta", "kalman")
"""Values of ``MappingCfg.fusion``."""


@dataclass(frozen=True)
class WinnerTakeAllCfg:
    """Probabilistic winner-take-all (AME-2, eq. 6-8).

    Two things differ from the paper's, which are in :data:`PAPER_WTA`; what they are worth was measured on training
    terrains, with range noise, as the error of cells that were in sight, when a guess could still replace a
    measurement (:func:`gantry_mapping.elevation.fusion.fusion_variances` forbids it since).

    * The gate is narrower (8.1 to 7.4 cm): of two looks at a cell the surer one is to be kept, which with a gate of
      0.2 m of deviation it is not.
    * A win may lower the variance to a quarter instead of a half (7.1 to 6.7 cm, and the map is less too cautious).
      From unknown to a centimetre takes 17 wins, that is 25 frames, by halves, longer than a cell is in sight.
    """

    gate_ratio: float = 1.0
    """A measurement whose variance is at least this times the cell's is not considered."""
    gate_variance_m2: float = 0.001
    """... unless its variance is below this: a good measurement always has a chance."""
    least_ratio: float = 0.25
    """A win lowers the variance to no less than this times the cell's."""
    anti_erase: bool = False
    """Whether a confident higher surface is protected from a steep, lower measurement."""
    anti_erase_drop_m: float = 0.15
    """Protected from measurements lower by at least this."""
    anti_erase_std_m: float = 0.2
    """A cell is confident below this standard deviation."""
    anti_erase_slope: float = 0.8
    """A measurement is steep where the local grid rises by more than this per metre."""

    def __post_init__(self) -> None:
        check_fields(self, _WTA_RANGES, "wta.", ConfigError)


_WTA_RANGES = {
    "gate_ratio": Range(0.01, 100.0),
    "gate_variance_m2": Range(0.0, 100.0),
    "least_ratio": Range(0.0, 1.0),
    "anti_erase_drop_m": Range(0.0, 100.0),
    "anti_erase_std_m": Range(0.0, 100.0),
    "anti_erase_slope": Range(0.0, 100.0),
}


PAPER_WTA = WinnerTakeAllCfg(gate_ratio=1.5, gate_variance_m2=0.04, least_ratio=0.5)
"""The paper's numbers; its code has a ratio of 1.25 for lidars."""


@dataclass(frozen=True)
class KalmanCfg:
    """Classical elevation mapping: one Kalman filter per cell, on measured cells only (see ``carve_free_space``)."""

    process_variance_m2_per_s: float = 1e-4
    """Growth rate of a cell's variance."""
    gate_sigma: float = 3.0
    """A measurement further off than this many standard deviations (of cell and measurement together) is an outlier."""
    outlier_variance_m2: float = 0.01
    """Variance that an outlier adds to the cell's instead of moving it, so that a changed world gets through."""
    variance_floor_m2: float = 1e-4
    """No cell becomes surer than this."""

    def __post_init__(self) -> None:
        check_fields(self, _KALMAN_RANGES, "kalman.", ConfigError)


_KALMAN_RANGES = {
    "process_variance_m2_per_s": Range(0.0, 100.0),
    "gate_sigma": Range(0.01, 1000.0),
    "outlier_variance_m2": Range(0.0, 100.0),
    "variance_floor_m2": Range(0.0, 100.0),
}


@dataclass(frozen=True)
class SensorModelCfg:
    """Standard deviation of a measured height: constant plus growth with the squared range, as stereo depth has it."""

    std_m: float = 0.01
    """At range 0."""
    std_per_m: float = 0.005
    """Growth per squared metre of range, 1/m: 2 cm at 2 m."""

    def __post_init__(self) -> None:
        check_fields(self, {"std_m": Range(1e-6, 10.0), "std_per_m": Range(0.0, 10.0)}, "sensor.", ConfigError)


_RANGES = {
    "map_size_m": Range(0.1, 200.0),
    "map_resolution_m": Range(0.005, 10.0),
    "nominal_base_height_m": Range(-10.0, 10.0),
    "prior_variance_m2": Range(1e-6, 1e4),
    "drift_variance_m2_per_s": Range(0.0, 100.0),
    "stale_after_s": Range(0.001, 60.0),
    "stale_variance_m2_per_s": Range(0.0, 100.0),
    "recenter_fraction": Range(0.001, 0.499),
    "carving_reach_m": Range(0.0, 10.0),
    "carving_std_m": Range(1e-6, 10.0),
    "lowest_m": Range(-1.999999, 100.0),
    "highest_m": Range(-1.999999, 100.0),
    "void_margin_m": Range(0.0, 10.0),
    "min_covered_cells": Range(0, 1_000_000),
    "spawn_floor_half_m": Range(0.0, 100.0),
    "spawn_floor_variance_m2": Range(1e-9, 100.0),
    "window_points": Range(1, 99),
    "window_drop_m": Range(0.0, 10.0),
    "seed": Range(0, 2.0**53),
}
MAX_MAP_CELLS = 4096
"""Most cells along one edge of a map."""


@dataclass(frozen=True)
class MappingCfg:
    """A mapping pipeline; the defaults are the Go2's with the paper's grid."""

    local_grid: GridSpec = LOCAL_GRID_FULL
    """Grid that the mapper sees."""
    cameras: tuple[DepthCamera, ...] = (REALSENSE_LIKE,)
    """Depth cameras, in the order in which their images are handed in."""
    map_size_m: float = 8.0
    """Edge length of the world-aligned map."""
    map_resolution_m: float = 0.04
    """Edge length of the map's cells."""
    nominal_base_height_m: float = GO2.base_height_m
    """Height of the base over flat ground while standing."""
    prior_variance_m2: float = 10.0
    """Variance of a cell that was never seen."""
    drift_variance_m2_per_s: float = 0.0
    """Growth rate of variance because odometry drifts, whatever the fusion."""
    stale_after_s: float = 0.5
    """A sensor that gave nothing for longer than this is stale."""
    stale_variance_m2_per_s: float = 0.05
    """Additional growth rate of variance while it is: a robot that walks on blindly should come to know that it does.
    """
    recenter_fraction: float = 0.2
    """The map follows a robot that is off centre by more than this share of its size."""
    fusion: str = "wta"
    """``wta`` or ``kalman``."""
    wta: WinnerTakeAllCfg = field(default_factory=WinnerTakeAllCfg)
    """For ``wta``."""
    kalman: KalmanCfg = field(default_factory=KalmanCfg)
    """For ``kalman``."""
    carve_free_space: bool = True
    """Whether ground behind which an image shows something is lowered to the ray over it
    (:mod:`gantry_mapping.elevation.free_space`)."""
    carving_reach_m: float = 0.32
    """Ground that was looked past is as deep as the deepest such ground within this along the grid's axes, unless more
    is known of it; with 0 as deep as the look alone."""
    carving_std_m: float = 0.15
    """Standard deviation of a cell of which no more is known than that."""
    sensor: SensorModelCfg = field(default_factory=SensorModelCfg)
    """For mapping without a network."""
    lowest_m: float = -1.95
    """Points below this height over the base are dropped; must be above the height that means empty, -2."""
    highest_m: float = 1.0
    """Points above this height over the base are dropped: ceilings, branches."""
    void_margin_m: float = 0.5
    """Cells that the mapper puts at most this far above the height that means empty, without a point there, are not
    fused as it has them."""
    min_covered_cells: int = 1
    """A frame in which fewer cells of the local grid hold a point or were looked past is not fused."""
    spawn_floor_half_m: float = 0.0
    """Half the edge of a square of confident floor that is written under the robot at its first frame; 0 for none."""
    spawn_floor_variance_m2: float = 0.01
    """Variance of that floor."""
    window_points: int = 3
    """Along each axis a window's cell is looked at in so many places..."""
    window_drop_m: float = 0.2
    """... and shows the lowest of them where that is so much lower than its middle and than the ground that a robot
    stands on: beside a void there is less ground than the highest points of cells say."""
    infill: bool = False
    """Whether a window shows, for a cell among surer ones, their mean; see :mod:`gantry_mapping.elevation.infill`."""
    seed: int = 0
    """Of the draws of winner-take-all."""

    def __post_init__(self) -> None:
        if self.fusion not in FUSIONS:
            raise UnknownNameError("fusion", self.fusion, FUSIONS)
        check_fields(self, _RANGES, error=ConfigError)
        if self.map_cells > MAX_MAP_CELLS:
            raise ConfigError(
                f"map_size_m is {self.map_size_m:g} and map_resolution_m {self.map_resolution_m:g}: a map of "
                f"{self.map_cells} cells along an edge, allowed are {MAX_MAP_CELLS}."
            )
        if self.window_points % 2 == 0:
            raise ConfigError(f"window_points is {self.window_points}, expected an odd number: one is in the middle.")
        if not self.lowest_m < self.highest_m:
            raise ConfigError(
                f"lowest_m is {self.lowest_m} and highest_m {self.highest_m}, expected -2 < lowest_m < highest_m."
            )

    @property
    def map_cells(self) -> int:
        """Cells along one edge of the map."""
        return max(1, round(self.map_size_m / self.map_resolution_m))


GO2_FULL = MappingCfg()
"""The paper's grids: for the robot and for training on a GPU."""
GO2_SMALL = MappingCfg(local_grid=LOCAL_GRID_SMALL, map_resolution_m=0.08)
"""Half the resolution, for training on a CPU."""


def load_mapping_cfg(path: str | Path) -> MappingCfg:
    """Read a configuration; fields that the file leaves out keep their defaults.

    Raises:
        ConfigError: If the file cannot be read, or names the field that is unknown (with the near miss) or ill-typed.
        UnknownNameError: If the fusion does not exist.
    """
    path = Path(path)
    try:
        data = read_yaml(path)
    except YamlFileError as problem:
        raise ConfigError(f"Cannot read the mapping configuration {problem}") from problem
    return from_plain(MappingCfg, {} if data is None else data, path.name, ConfigError)
