"""Frames to learn mapping from: what a depth camera makes of random ground, and the ground that was really there.

Frames are a function of the seed and the step alone, so that a training that is resumed sees what it would have seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from gantry_hardware.robots.go2 import SPEC as GO2
from gantry_mapping.elevation.grid import LOCAL_GRID_SMALL, GridSpec
from gantry_mapping.elevation.rasterize import EMPTY_Z_M, rasterize
from gantry_mapping.errors import MappingError
from gantry_mapping.learn.depth import render_depth
from gantry_mapping.learn.heightfields import FAMILIES, Heights, Patch, cut_patch, make_patch
from gantry_mapping.learn.march import march_depth
from gantry_mapping.learn.noise import DepthNoiseCfg, add_depth_noise, crop_borders
from gantry_mapping.learn.rays import RasterError
from gantry_mapping.sensing.camera import REALSENSE_LIKE, DepthCamera

TERRAINS = "terrains"
"""Family of patches that are cut from rasters which were handed in."""
_REACH_MARGIN_M = 0.1
_ALIGNED_STD_RAD = 0.15


def _default_shares() -> dict[str, float]:
    return {"stacked_boxes": 0.25, "random_field": 0.15, "steps": 0.2, "stones": 0.25, "floating_boxes": 0.08}


@dataclass(frozen=True)
class SampleCfg:
    """Settings of the frames that are generated."""

    local_grid: GridSpec = LOCAL_GRID_SMALL
    """Grid that the network sees."""
    camera: DepthCamera = REALSENSE_LIKE
    """The camera, before its pose is disturbed."""
    shares: dict[str, float] = field(default_factory=_default_shares)
    """Families of ground and how often each is drawn; with rasters at hand, ``terrains`` joins them."""
    terrain_share: float = 0.6
    """Share of patches that are cut from rasters, where there are any."""
    resolution_m: float = 0.04
    """Edge of a cell of the ground."""
    exact: bool = False
    """Whether all depth is rendered exactly, as evaluations do it, and not only where something floats. Profiles take a
    quarter of the time; measured cells are then off by 8.2 cm instead of 8.5, since they round some edges."""
    patch_m: float = 6.0
    """Edge of a patch of ground."""
    patches: int = 64
    """Patches at a time."""
    renewed: int = 16
    """Patches that are replaced by new ones from step to step."""
    nominal_base_height_m: float = GO2.base_height_m
    """Height of the base over the ground below it."""
    height_m: float = 0.03
    """Largest deviation from that height."""
    tilt_rad: float = 0.1
    """Standard deviation of roll and pitch."""
    aligned_share: float = 0.5
    """Share of frames that look along an axis of the ground, give or take 0.15 rad, as robots do on a course."""
    mounting_rad: float = 0.03
    """Standard deviation of what a batch's camera is turned by, about each axis; and of the unknown rest of it in
    attitude, a fifth."""
    noise: DepthNoiseCfg = field(
        default_factory=lambda: DepthNoiseCfg(missing_share=0.2, artefact_share=0.03, std_m=0.006, std_per_m=0.008)
    )
    """Flaws of a depth image at twice the mean: each image has them between 0 and 1 times as strong."""
    crop_share: float = 0.5
    """Largest margin that is cut off at a border of an image."""
    crop_chance: float = 0.15
    """Probability that anything is cut off."""
    cell_noise_m: float = 0.01
    """Largest half width of the uniform noise on measured cells; each frame has its own."""
    lost_cells: float = 0.05
    """Largest share of measured cells that are emptied."""
    outlier_cells: float = 0.005
    """Largest share of cells with any height at all."""
    lowest_m: float = -1.95
    """Points, and labels, are no lower over the base."""
    highest_m: float = 1.0
    """Points above are dropped, labels are cut."""

    def __post_init__(self) -> None:
        unknown = set(self.shares) - set(FAMILIES)
        if unknown or not self.shares:
            raise MappingError(f"shares name {sorted(self.shares)}, expected some of {sorted(FAMILIES)}.")
        reach = self.reach_m
        if self.patch_m < 2 * reach:
            raise MappingError(f"patch_m is {self.patch_m}, expected {2 * reach:.2f} or more to hold the local grid.")

    @property
    def reach_m(self) -> float:
        """Distance from the base to the farthest corner of the local grid."""
        grid = self.local_grid
        x = abs(grid.center_x_m) + 0.5 * grid.rows * grid.resolution_m
        y = abs(grid.center_y_m) + 0.5 * grid.cols * grid.resolution_m
        return math.hypot(x, y) + _REACH_MARGIN_M

    @property
    def patch_cells(self) -> int:
        """Cells along the edge of a patch."""
        return round(self.patch_m / self.resolution_m)


@dataclass(frozen=True)
class Frames:
    """A batch."""

    z_m: torch.Tensor
    """(N, 1, rows, cols) the network's input: highest measured point relative to the base, m; or empty."""
    target_m: torch.Tensor
    """(N, 1, rows, cols) ground at the cells' centres relative to the base, m."""


class FrameSource:
    """Makes frames.

    Args:
        cfg: How.
        seed: Of everything random.
        rasters: Locomotion terrains by name, cells of ``cfg.resolution_m``; none where empty.
    """

    def __init__(self, cfg: SampleCfg, seed: int, rasters: Mapping[str, Heights] | None = None) -> None:
        self.cfg = cfg
        self.seed = seed
        self.names = sorted(rasters or {})
        """Rasters that patches are cut from."""
        self._rasters = [rasters[name] for name in self.names] if rasters else []
        for raster in self._rasters:
            if min(raster.shape) < cfg.patch_cells:
                raise RasterError(f"A raster has {raster.shape} cells, expected {cfg.patch_cells} or more each way.")
        self._pool: dict[int, tuple[int, Patch]] = {}

    def batch(self, step: int, count: int) -> Frames:
        """The frames of a step of training, (count, ...)."""
        cfg = self.cfg
        generator = torch.Generator().manual_seed(_mixed_seed(self.seed, 1, step))
        patches = [self._patch(slot, step) for slot in range(cfg.patches)]
        ground = torch.from_numpy(np.stack([patch.ground_m for patch in patches]))
        surface = torch.from_numpy(np.stack([patch.surface_m for patch in patches]))
        index = torch.randint(cfg.patches, (count,), generator=generator)
        pos, quat = self._poses(ground, index, generator)
        camera = disturbed_camera(cfg.camera, cfg.mounting_rad, generator)
        depth = self._depth(patches, ground, index, camera, pos, quat)
        depth = add_depth_noise(depth, camera, cfg.noise, generator, scale=torch.rand(count, generator=generator))
        depth = crop_borders(depth, 0.0, cfg.crop_share, cfg.crop_chance, generator)
        told = _small_turns(count, 0.2 * cfg.mounting_rad, generator)
        points, valid = camera.points_in_base_yaw(depth, _product(quat, told))
        z, _ = rasterize(points, valid, cfg.local_grid, lowest_m=cfg.lowest_m, highest_m=cfg.highest_m)
        target = sample_ground(surface, cfg.resolution_m, cfg.local_grid, pos, _yaw(quat), index)
        target = (target - pos[:, 2, None, None]).clamp(cfg.lowest_m, cfg.highest_m)
        return Frames(self._worse_cells(z, generator).unsqueeze(1), target.unsqueeze(1))

    def _patch(self, slot: int, step: int) -> Patch:
        """The ground in a slot, which is renewed every ``patches / renewed`` steps."""
        period = max(self.cfg.patches // max(self.cfg.renewed, 1), 1)
        serial = (step + slot) // period
        known = self._pool.get(slot)
        if known is None or known[0] != serial:
            rng = np.random.default_rng((self.seed, 2, slot, serial))
            known = self._pool[slot] = (serial, self._new_patch(rng))
        return known[1]

    def _new_patch(self, rng: np.random.Generator) -> Patch:
        cfg = self.cfg
        if self._rasters and rng.random() < cfg.terrain_share:
            return cut_patch(self._rasters, rng, cfg.patch_cells)
        names = sorted(cfg.shares)
        weights = np.array([cfg.shares[name] for name in names])
        family = names[int(rng.choice(len(names), p=weights / weights.sum()))]
        return make_patch(family, rng, cfg.patch_cells, cfg.resolution_m)

    def _poses(
        self, ground: torch.Tensor, index: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(N, 3) and (N, 4) poses of bases: above the ground below them, somewhat tilted."""
        cfg, count = self.cfg, len(index)
        free = cfg.patch_m - 2 * cfg.reach_m
        xy = cfg.reach_m + free * torch.rand((count, 2), generator=generator)
        cell = (xy / cfg.resolution_m).long()
        lift = cfg.nominal_base_height_m + cfg.height_m * (2 * torch.rand(count, generator=generator) - 1)
        below = support_height(ground, cfg.resolution_m)[index, cell[:, 0], cell[:, 1]]
        pos = torch.cat((xy, (below + lift)[:, None]), dim=1)
        aligned = torch.rand(count, generator=generator) < cfg.aligned_share
        yaw = 2 * math.pi * torch.rand(count, generator=generator)
        along = 0.5 * math.pi * (yaw / (0.5 * math.pi)).floor() + _ALIGNED_STD_RAD * torch.randn(
            count, generator=generator
        )
        yaw = torch.where(aligned, along, yaw)
        zero = torch.zeros_like(yaw)
        heading = torch.stack((torch.cos(yaw / 2), zero, zero, torch.sin(yaw / 2)), dim=1)
        return pos, _product(heading, _small_turns(count, cfg.tilt_rad, generator))

    def _depth(
        self,
        patches: list[Patch],
        ground: torch.Tensor,
        index: torch.Tensor,
        camera: DepthCamera,
        pos: torch.Tensor,
        quat: torch.Tensor,
    ) -> torch.Tensor:
        """(N, height, width) images; what floats is rendered exactly, the rest only if so configured."""
        cfg = self.cfg
        floats = torch.tensor([bool(np.isfinite(patch.roof_m).any()) for patch in patches])
        exact = floats | cfg.exact
        depth = pos.new_zeros(len(pos), camera.height, camera.width)
        rows = (~exact[index]).nonzero().flatten()
        near = replace(camera, max_range_m=min(camera.max_range_m, 1.3 * cfg.reach_m))
        args = (cfg.resolution_m, (0.0, 0.0), near)
        if len(rows):
            depth[rows] = render_depth(
                ground, *args, pos[rows], quat[rows], raster_index=index[rows], azimuths=96, ranges=320
            )
        rows = (exact & ~floats)[index].nonzero().flatten()
        if len(rows):
            depth[rows] = march_depth(ground, *args, pos[rows], quat[rows], raster_index=index[rows])
        rows = floats[index].nonzero().flatten()
        if len(rows):
            used, local = index[rows].unique(return_inverse=True)
            layers = [
                np.stack([getattr(patches[i], name) for i in used.tolist()]) for name in ("underside_m", "roof_m")
            ]
            underside, roof = (torch.from_numpy(layer) for layer in layers)
            depth[rows] = march_depth(
                ground[used], *args, pos[rows], quat[rows], raster_index=local, floating_m=(underside, roof)
            )
        return depth

    def _worse_cells(self, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """(N, rows, cols) grids with noise, lost cells and outliers of a strength that differs from frame to frame."""
        cfg, shape = self.cfg, (len(z), 1, 1)

        def strength(largest: float) -> torch.Tensor:
            return largest * torch.rand(shape, generator=generator)

        def draw() -> torch.Tensor:
            return torch.rand(z.shape, generator=generator)

        known = z > EMPTY_Z_M
        z = torch.where(known, z + strength(cfg.cell_noise_m) * (2 * draw() - 1), z)
        z = torch.where(draw() < strength(cfg.lost_cells), EMPTY_Z_M, z)
        anything = cfg.lowest_m + (cfg.highest_m - cfg.lowest_m) * draw()
        z = torch.where(draw() < strength(cfg.outlier_cells), anything, z)
        return z.clamp(max=cfg.highest_m)


def support_height(raster_m: torch.Tensor, resolution_m: float) -> torch.Tensor:
    """(R, H, W) heights that a body above each cell stands on: it rides on the ground of half a metre around it, rather
    on the stones than between them.

    Args:
        raster_m: (R, H, W) heights, m; what is not finite counts as 1.5 m deep.
        resolution_m: Edge of a cell.
    """
    solid = raster_m.nan_to_num(nan=-1.5, neginf=-1.5).unsqueeze(1)
    edge = 2 * round(0.25 / resolution_m) + 1
    smooth = torch.nn.functional.avg_pool2d(solid, edge, 1, edge // 2, count_include_pad=False)
    return torch.maximum(smooth, torch.nn.functional.max_pool2d(solid, edge, 1, edge // 2) - 0.15)[:, 0]


def sample_ground(
    raster_m: torch.Tensor,
    resolution_m: float,
    grid: GridSpec,
    pos_base_in_world: torch.Tensor,
    yaw_rad: torch.Tensor,
    raster_index: torch.Tensor | None = None,
    corner_m: tuple[float, float] = (0.0, 0.0),
) -> torch.Tensor:
    """True heights at the cell centres of robot-centric grids.

    Args:
        raster_m: (H, W) or (R, H, W) heights, m in the world; row i grows along +x, column j along +y.
        resolution_m: Edge of a cell of the raster.
        grid: The grid, in ``base_yaw``.
        pos_base_in_world: (N, 3) m.
        yaw_rad: (N,).
        raster_index: (N,) which raster; None where there is one.
        corner_m: Outer corner of the raster's cell (0, 0), m in the world.

    Returns:
        (N, rows, cols) m in the world; beyond the raster its outermost cells go on.
    """
    stack = raster_m if raster_m.ndim == 3 else raster_m.unsqueeze(0)
    centers = grid.cell_centers(pos_base_in_world)
    cos, sin = torch.cos(yaw_rad)[:, None, None], torch.sin(yaw_rad)[:, None, None]
    x = pos_base_in_world[:, 0, None, None] + cos * centers[..., 0] - sin * centers[..., 1]
    y = pos_base_in_world[:, 1, None, None] + sin * centers[..., 0] + cos * centers[..., 1]
    rows, columns = stack.shape[1:]
    row = ((x - corner_m[0]) / resolution_m).clamp(0, rows - 1).long()
    column = ((y - corner_m[1]) / resolution_m).clamp(0, columns - 1).long()
    index = 0 if raster_index is None else raster_index[:, None, None]
    return stack[index, row, column]


def disturbed_camera(camera: DepthCamera, std_rad: float, generator: torch.Generator) -> DepthCamera:
    """The camera, turned a little about every axis of the base."""
    turn = _small_turns(1, std_rad, generator)
    quat = _product(turn, torch.tensor([camera.quat_camera_to_base_wxyz]))[0]
    w, x, y, z = (quat / quat.norm()).tolist()
    return replace(camera, quat_camera_to_base_wxyz=(w, x, y, z))


def _small_turns(count: int, std_rad: float, generator: torch.Generator) -> torch.Tensor:
    """(count, 4) turns by normally distributed angles about x and y, and a tenth of that about z."""
    angles = std_rad * torch.randn((count, 3), generator=generator) * torch.tensor([1.0, 1.0, 0.1])
    quat = torch.cat((torch.ones(count, 1), 0.5 * angles), dim=1)
    return quat / quat.norm(dim=1, keepdim=True)


def _product(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """(N, 4) first after second; both w first."""
    w, x, y, z = first.unbind(-1)
    a, b, c, d = second.unbind(-1)
    parts = (
        w * a - x * b - y * c - z * d,
        w * b + x * a + y * d - z * c,
        w * c - x * d + y * a + z * b,
        w * d + x * c - y * b + z * a,
    )
    return torch.stack(parts, dim=-1)


def _yaw(quat: torch.Tensor) -> torch.Tensor:
    w, x, y, z = quat.unbind(-1)
    return torch.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def _mixed_seed(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
