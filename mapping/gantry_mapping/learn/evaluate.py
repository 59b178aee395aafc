"""Quality of maps on ground outside the training data: the whole pipeline, walked over rasters, against the truth.

Robots walk over each raster along +x. Depth is rendered exactly, once per frame, then flawed as each condition says;
every mapper gets the same flawed images and the same told poses. Scores are over the cells of a policy's window that
have lain in the local grid of some frame so far; *seen* are those whose ground at the centre the camera had in sight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from gantry_mapping.config import GO2_SMALL, KalmanCfg, MappingCfg
from gantry_mapping.elevation.elevation_map import ElevationMap
from gantry_mapping.elevation.grid import WINDOW_FULL, GridSpec
from gantry_mapping.elevation.metrics import ScoreCounter
from gantry_mapping.errors import MappingError
from gantry_mapping.learn.heightfields import Heights
from gantry_mapping.learn.march import first_hits, march_depth
from gantry_mapping.learn.noise import CLEAN, DelayLine, DepthNoiseCfg, DriftCfg, OdometryDrift, add_depth_noise
from gantry_mapping.learn.samples import sample_ground, support_height
from gantry_mapping.mapper import Mapper
from gantry_mapping.pipeline import MappingPipeline
from gantry_mapping.sensing.camera import DepthCamera
from gantry_mapping.sensing.frames import rotation_matrix, yaw_of

ALL = "all"
"""Name of the scores over every raster."""


@dataclass(frozen=True)
class Condition:
    """Disturbances during a walk."""

    noise: DepthNoiseCfg = field(default_factory=DepthNoiseCfg)
    """Of the depth images."""
    drift: DriftCfg | None = None
    """Of the odometry."""
    latency_frames: int = 0
    """Delay of images, in frames; they carry the pose at which they were taken."""


CONDITIONS: dict[str, Condition] = {
    "range noise": Condition(),
    "15 % missing": Condition(DepthNoiseCfg(missing_share=0.15)),
    "2 % artefacts": Condition(DepthNoiseCfg(artefact_share=0.02)),
    "drift": Condition(drift=DriftCfg()),
    "all": Condition(DepthNoiseCfg(missing_share=0.15, artefact_share=0.02), DriftCfg(), latency_frames=1),
}
"""Conditions by name; range noise is in all of them."""


@dataclass(frozen=True)
class EvalCfg:
    """A walk."""

    window: GridSpec = WINDOW_FULL
    """Cells that count."""
    robots_per_raster: int = 2
    """Each with a path of its own."""
    seconds: float = 8.0
    """Length of the walk."""
    rate_hz: float = 10.0
    """Frames per second."""
    speed_m_s: float = 0.6
    """Walking speed of the robots."""
    start_m: float = 0.8
    """Distance from the raster's low edge along x at which they start."""
    lateral_m: float = 0.5
    """Largest distance of a path from the middle of the raster."""
    tilt_rad: float = 0.06
    """Amplitude of roll and pitch."""
    score_every: int = 2
    """Frames between scores."""
    seed: int = 7
    """Of paths and flaws."""


@dataclass(frozen=True)
class Entrant:
    """A mapper and how its map is set up."""

    mapping: MappingCfg
    """Everything but the network."""
    mapper: Mapper | None = None
    """The network; None for the classical way."""


def classical(mapping: MappingCfg = GO2_SMALL) -> Entrant:
    """Kalman elevation mapping of measured cells and of nothing else, with the same grids."""
    return Entrant(replace(mapping, fusion="kalman", carve_free_space=False))


def evaluate(
    entrants: Mapping[str, Entrant],
    rasters: Mapping[str, Heights],
    resolution_m: float,
    cfg: EvalCfg | None = None,
    conditions: Mapping[str, Condition] | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Walk and score.

    Args:
        entrants: What to compare, by name; all with one local grid and camera.
        rasters: Equally large ground by name, ``group/number``; -inf where there is none.
        resolution_m: Edge of a raster's cell.
        cfg: The walk.
        conditions: What goes wrong, by name; :data:`CONDITIONS` where None.
        on_progress: Told the share of work done.

    Returns:
        ``conditions`` -> condition -> entrant -> group or ``all`` -> scores; ``walk``: the configuration.

    Raises:
        MappingError: If entrants or rasters do not fit each other.
    """
    cfg, conditions = cfg or EvalCfg(), conditions or CONDITIONS
    mapping = _common_mapping(entrants)
    shapes = {raster.shape for raster in rasters.values()}
    if len(shapes) != 1:
        raise MappingError(f"Rasters have shapes {sorted(shapes)}, expected one shape.")
    walk = _Walk(cfg, rasters, resolution_m)
    runs = [
        _Run(name, entrant_name, entrant, condition, walk, cfg)
        for name, condition in conditions.items()
        for entrant_name, entrant in entrants.items()
    ]
    judge = _Judge(mapping, walk, cfg)
    for frame in range(walk.frames):
        pos, quat = walk.pose(frame)
        depth = march_depth(
            walk.raster, resolution_m, (0.0, 0.0), mapping.cameras[0], pos, quat, raster_index=walk.index
        )
        judge.look(pos, quat)
        scored = frame % cfg.score_every == cfg.score_every - 1
        truth, seen, mask = judge.verdict(pos, quat) if scored else (None, None, None)
        for run in runs:
            run.step(frame, depth, pos, quat)
            if truth is not None and seen is not None and mask is not None:
                run.score(truth, seen, mask)
        if on_progress is not None:
            on_progress((frame + 1) / walk.frames)
    return {
        "conditions": {
            name: {run.entrant_name: run.scores() for run in runs if run.condition_name == name} for name in conditions
        },
        "walk": asdict(cfg),
        "rasters": sorted(rasters),
        "robots": walk.count,
        "frames": walk.frames,
        "raster_resolution_m": resolution_m,
    }


def _common_mapping(entrants: Mapping[str, Entrant]) -> MappingCfg:
    if not entrants:
        raise MappingError("No entrant was given to evaluate.")
    first, *others = (entrant.mapping for entrant in entrants.values())
    for other in others:
        if (other.local_grid, other.cameras) != (first.local_grid, first.cameras):
            raise MappingError("Entrants differ in local grid or cameras, expected the same for all.")
    if len(first.cameras) != 1:
        raise MappingError(f"Entrants have {len(first.cameras)} cameras, expected one.")
    return first


class _Walk:
    """Paths of robots over rasters, ``robots_per_raster`` on each."""

    def __init__(self, cfg: EvalCfg, rasters: Mapping[str, Heights], resolution_m: float) -> None:
        self.cfg = cfg
        self.names = [name for name in sorted(rasters) for _ in range(cfg.robots_per_raster)]
        self.count = len(self.names)
        self.raster = torch.stack([torch.from_numpy(rasters[name]) for name in sorted(rasters)])
        self.index = torch.arange(len(rasters)).repeat_interleave(cfg.robots_per_raster)
        self.frames = round(cfg.seconds * cfg.rate_hz)
        self.dt_s = 1.0 / cfg.rate_hz
        self.resolution_m = resolution_m
        generator = torch.Generator().manual_seed(cfg.seed)
        self._lateral = cfg.lateral_m * (2 * torch.rand(self.count, generator=generator) - 1)
        self._phase = 2 * math.pi * torch.rand((self.count, 4), generator=generator)
        self._support = support_height(self.raster, resolution_m)

    def pose(self, frame: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(N, 3) m and (N, 4): where the robots are at a frame."""
        cfg, time_s = self.cfg, frame * self.dt_s
        swing = torch.sin(self._phase + torch.tensor([0.5, 3.0, 4.0, 6.0]) * time_s)
        x = torch.full((self.count,), cfg.start_m + cfg.speed_m_s * time_s)
        y = 0.5 * self.raster.shape[2] * self.resolution_m + self._lateral + 0.15 * swing[:, 0]
        cell = (torch.stack((x, y), dim=1) / self.resolution_m).long()
        for axis in (0, 1):
            cell[:, axis].clamp_(0, self.raster.shape[axis + 1] - 1)
        ground = self._support[self.index, cell[:, 0], cell[:, 1]]
        z = ground + GO2_SMALL.nominal_base_height_m + 0.01 * swing[:, 3]
        roll, pitch, yaw = 0.5 * cfg.tilt_rad * swing[:, 1], 0.5 * cfg.tilt_rad * swing[:, 2], 0.1 * swing[:, 0]
        quat = torch.stack((torch.cos(yaw), roll - pitch * yaw, pitch + roll * yaw, torch.sin(yaw)), dim=1)
        return torch.stack((x, y, z), dim=1), quat / quat.norm(dim=1, keepdim=True)


class _Judge:
    """Knows the truth: true heights, which ground a camera has had in sight, and what lay in the local grid at all."""

    def __init__(self, mapping: MappingCfg, walk: _Walk, cfg: EvalCfg) -> None:
        still = replace(mapping, fusion="kalman", kalman=KalmanCfg(0.0), drift_variance_m2_per_s=0.0)
        self._walk, self._window, self._grid = walk, cfg.window, mapping.local_grid
        self._camera = mapping.cameras[0]
        self._prior = mapping.prior_variance_m2
        self._seen, self._reached = (ElevationMap(still, walk.count, torch.zeros(1)) for _ in range(2))

    def look(self, pos: torch.Tensor, quat: torch.Tensor) -> None:
        """Note what can be seen from poses (N, 3), (N, 4)."""
        walk, yaw = self._walk, yaw_of(quat)
        ground = sample_ground(walk.raster, walk.resolution_m, self._grid, pos, yaw, walk.index)
        sight = in_sight(walk.raster, walk.resolution_m, self._camera, self._grid, ground, pos, quat, walk.index)
        zeros = torch.zeros_like(ground)
        self._seen.fuse(zeros, zeros, sight, self._grid, pos, yaw)
        self._reached.fuse(zeros, zeros, zeros == 0, self._grid, pos, yaw)

    def verdict(self, pos: torch.Tensor, quat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(N, rows, cols) each: heights relative to the base, m, NaN for none; seen cells; cells that count."""
        walk, yaw = self._walk, yaw_of(quat)
        ground = sample_ground(walk.raster, walk.resolution_m, self._window, pos, yaw, walk.index)
        truth = torch.where(torch.isfinite(ground), ground - pos[:, 2, None, None], math.nan)
        seen, reached = (map_.query(self._window, pos, yaw)[1] < self._prior for map_ in (self._seen, self._reached))
        return truth, seen & reached, reached


def in_sight(
    raster_m: torch.Tensor,
    resolution_m: float,
    camera: DepthCamera,
    grid: GridSpec,
    ground_m: torch.Tensor,
    pos_base_in_world: torch.Tensor,
    quat_base_to_world_wxyz: torch.Tensor,
    raster_index: torch.Tensor,
) -> torch.Tensor:
    """Whether a camera sees the ground at the cell centres of a grid: in its image, in range, and nothing in between.

    A point that falls into a cell does not make it seen: it may lie on the side of a stone whose foot is hidden.

    Args:
        raster_m: (R, H, W) heights, m in the world.
        resolution_m: Edge of a raster's cell.
        camera: The camera.
        grid: In ``base_yaw``.
        ground_m: (N, rows, cols) heights at the centres, m in the world; not finite is never seen.
        pos_base_in_world: (N, 3) m.
        quat_base_to_world_wxyz: (N, 4).
        raster_index: (N,).

    Returns:
        (N, rows, cols) bool.
    """
    yaw = yaw_of(quat_base_to_world_wxyz)[:, None, None]
    centers = grid.cell_centers(pos_base_in_world)
    x = torch.cos(yaw) * centers[..., 0] - torch.sin(yaw) * centers[..., 1] + pos_base_in_world[:, 0, None, None]
    y = torch.sin(yaw) * centers[..., 0] + torch.cos(yaw) * centers[..., 1] + pos_base_in_world[:, 1, None, None]
    known = torch.isfinite(ground_m)
    target = torch.stack((x, y, torch.where(known, ground_m, 0.0)), dim=-1).flatten(1, 2)
    base_to_world = rotation_matrix(quat_base_to_world_wxyz)
    camera_to_base = rotation_matrix(torch.tensor([camera.quat_camera_to_base_wxyz]))
    offset = target.new_tensor(camera.pos_camera_in_base_m)
    origin = pos_base_in_world + base_to_world @ offset
    direction = target - origin[:, None]
    right, down, depth = (direction @ (base_to_world @ camera_to_base)).unbind(-1)
    u = camera.cx + camera.fx * right / depth
    v = camera.cy + camera.fy * down / depth
    inside = (depth >= camera.min_range_m) & (depth <= camera.max_range_m)
    inside &= (u >= -0.5) & (u <= camera.width - 0.5) & (v >= -0.5) & (v <= camera.height - 0.5)
    hits = first_hits(raster_m, resolution_m, (0.0, 0.0), origin, direction, 1.0, raster_index=raster_index)
    free = hits >= 1.0 - 1e-3  # the ground itself is hit at 1, up to rounding
    return (inside & free).view_as(ground_m) & known


class _Run:
    """One entrant under one condition."""

    def __init__(
        self, condition_name: str, entrant_name: str, entrant: Entrant, condition: Condition, walk: _Walk, cfg: EvalCfg
    ) -> None:
        self.condition_name, self.entrant_name = condition_name, entrant_name
        self._walk, self._cfg, self._condition = walk, cfg, condition
        # The same seed for every entrant, so that all get the same flaws.
        self._generator = torch.Generator().manual_seed(cfg.seed)
        drift_generator = torch.Generator().manual_seed(cfg.seed + 1)
        still = DriftCfg(0.0, 0.0, 0.0)
        self._drift = OdometryDrift(condition.drift or still, walk.count, drift_generator)
        self._delay: DelayLine[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = DelayLine(condition.latency_frames)
        self._camera = entrant.mapping.cameras[0]
        self._pipeline = MappingPipeline(entrant.mapping, entrant.mapper, torch.zeros(1), walk.count)
        self._told: tuple[torch.Tensor, torch.Tensor] | None = None
        prior = entrant.mapping.prior_variance_m2
        self._groups = sorted({name.partition("/")[0] for name in walk.names})
        self._members = {
            group: torch.tensor([name.partition("/")[0] == group for name in walk.names]) for group in self._groups
        }
        self._counters = {group: ScoreCounter(prior) for group in (*self._groups, ALL)}

    def step(self, frame: int, depth: torch.Tensor, pos: torch.Tensor, quat: torch.Tensor) -> None:
        """Take in a frame at its true pose, flawed as the condition says."""
        noise = self._condition.noise
        flawed = depth if noise == CLEAN else add_depth_noise(depth, self._camera, noise, self._generator)
        self._told = self._drift.step(pos, quat, self._walk.dt_s)
        late = self._delay.push((flawed, *self._told))
        self._pipeline.advance(self._walk.dt_s)
        if frame >= self._condition.latency_frames:
            self._pipeline.update(*late)

    def score(self, truth: torch.Tensor, seen: torch.Tensor, mask: torch.Tensor) -> None:
        """Compare the map with heights relative to the base; what odometry has lost of the pose counts as error."""
        assert self._told is not None
        pos, quat = self._told
        elevation, variance = self._pipeline.map.query(self._cfg.window, pos, yaw_of(quat))
        mean = elevation - pos[:, 2, None, None]
        for group in self._groups:
            rows = self._members[group]
            self._counters[group].add(mean[rows], variance[rows], truth[rows], seen[rows], mask[rows])
        self._counters[ALL].add(mean, variance, truth, seen, mask)

    def scores(self) -> dict[str, dict[str, float]]:
        """Scores by group."""
        return {group: asdict(counter.scores()) for group, counter in self._counters.items()}


COLUMNS = {
    "mae_seen_cm": -1,
    "mae_occluded_cm": -1,
    "coverage": 1,
    "nll": -1,
    "within_1_sigma": 0,
}
"""Columns of the comparison and which way is better: -1 less, 1 more, 0 nearer to 0.683."""


def compare(result: Mapping[str, Any], first: str, second: str, group: str = ALL) -> dict[str, dict[str, bool]]:
    """For each condition and column, whether ``first`` is better than ``second``."""
    verdicts: dict[str, dict[str, bool]] = {}
    for condition, entrants in result["conditions"].items():
        one, other = entrants[first][group], entrants[second][group]
        verdicts[condition] = {
            name: (
                abs(one[name] - 0.6827) < abs(other[name] - 0.6827) if way == 0 else way * one[name] > way * other[name]
            )
            for name, way in COLUMNS.items()
        }
    return verdicts
