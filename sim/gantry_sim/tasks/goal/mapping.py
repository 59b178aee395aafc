"""The student's map: made by the robot's own mapping pipeline from rendered depth, for all environments at once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from gantry_deploy.perception.maps import default_cfg
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.structured import ConfigError
from gantry_mapping.config import MappingCfg
from gantry_mapping.elevation.grid import GridSpec
from gantry_mapping.learn.depth import render_depth
from gantry_mapping.learn.noise import CLEAN, DepthNoiseCfg, DriftCfg, OdometryDrift, add_depth_noise
from gantry_mapping.learn.rays import VOID_M
from gantry_mapping.learn.torch_mapper import TorchMapper
from gantry_mapping.mapper import Mapper, OnnxMapper
from gantry_mapping.pipeline import MappingPipeline
from gantry_sim.process.device_work import worth_doing
from gantry_sim.robots.depth_camera import head_camera
from gantry_sim.terrains.rasters import TerrainRasters

SOURCES = ("truth", "pipeline")
"""Sources of a student's map: a stand-in made of the true heights, or the mapping pipeline."""
PRETRAINED = Path(__file__).resolve().parents[2] / "pretrained"
"""Mappers that come with the package, each in a folder."""
MAPPER_FILE = "mapper.onnx"
NO_DRIFT = DriftCfg(xy_m=0.0, z_m=0.0, yaw_rad=0.0)


def _paper_noise() -> DepthNoiseCfg:
    return DepthNoiseCfg(missing_share=0.15, artefact_share=0.02)


@dataclass(frozen=True)
class StudentMapCfg:
    """Generation of a student's map (AME-2, App. B)."""

    source: str = "truth"
    """A name of :data:`SOURCES`."""
    mapper: str = "mapper-go2"
    """A mapper of the package by name, or the path of a ``mapper.onnx``; empty to map with a Kalman filter per cell."""
    camera_hz: float = 10.0
    """Frames per second and environment; the control rate divided by it is rounded."""
    depth_noise: DepthNoiseCfg = field(default_factory=_paper_noise)
    """Flaws of the depth images, off where the task's noise is."""
    drift: DriftCfg = field(default_factory=DriftCfg)
    """Drift of odometry within an episode, off where the task's noise is."""
    raster_m: float = 0.04
    """Edge of the cells of the ground that depth is rendered from; the terrain's walls move by up to half of it."""

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise UnknownNameError("source of a student's map", self.source, SOURCES)
        for name in ("camera_hz", "raster_m"):
            if not getattr(self, name) > 0.0:
                raise ConfigError(f"env.student_map.{name} is {getattr(self, name)}, expected a positive number.")


def mapper_path(cfg: StudentMapCfg) -> Path | None:
    """Path of the mapping network; None for mapping without one.

    Raises:
        UnknownNameError: If there is no such mapper.
    """
    if not cfg.mapper:
        return None
    inside = PRETRAINED / cfg.mapper / MAPPER_FILE
    path = inside if inside.is_file() else Path(cfg.mapper)
    if not path.is_file():
        found = sorted(item.parent.name for item in PRETRAINED.glob(f"*/{MAPPER_FILE}"))
        raise UnknownNameError("mapper (no such file either)", cfg.mapper, found)
    return path


def mapper_bytes(cfg: StudentMapCfg) -> bytes | None:
    """The network that the map is made with; None where it is made without one, or not made at all."""
    path = mapper_path(cfg) if cfg.source == "pipeline" else None
    return None if path is None else path.read_bytes()


def mapper_hash(cfg: StudentMapCfg) -> str:
    """SHA-256 of :func:`mapper_bytes`; empty for none."""
    model = mapper_bytes(cfg)
    return "" if model is None else hashlib.sha256(model).hexdigest()


def mapping_cfg(cfg: StudentMapCfg, robot: str, nominal_base_height_m: float) -> MappingCfg:
    """The pipeline's setup: what a runtime chooses for this mapper, with the robot's camera.

    Args:
        cfg: Which mapper.
        robot: Whose camera.
        nominal_base_height_m: Of the standing base over flat ground.
    """
    model = mapper_bytes(replace(cfg, source="pipeline"))
    chosen = default_cfg(None if model is None else _onnx_mapper(model))
    return replace(chosen, cameras=(head_camera(robot),), nominal_base_height_m=nominal_base_height_m)


@lru_cache(maxsize=4)
def _onnx_mapper(model: bytes) -> OnnxMapper:
    return OnnxMapper(model)


class StudentMap:
    """Maps of N environments: depth images of their cameras, each with a phase of its own, into the pipeline.

    Args:
        cfg: Camera rate, flaws and mapper.
        mapping: The pipeline's setup, one camera.
        ground: The whole terrain, as a map is to show it.
        num_envs: N.
        dt_s: Length of a control step.
        device: Where to compute.
        flaws: With depth noise and odometry drift.
        query_drift_m: Half width of the displacement of what is looked up, drawn once per episode (AME-2, App. B).
    """

    def __init__(
        self,
        cfg: StudentMapCfg,
        mapping: MappingCfg,
        ground: TerrainRasters,
        num_envs: int,
        dt_s: float,
        device: str = "cpu",
        *,
        flaws: bool = True,
        query_drift_m: float = 0.0,
    ) -> None:
        self.cfg = cfg
        self.skipped = torch.zeros(num_envs, dtype=torch.bool, device=device)
        """(N,) environments whose map is not used."""
        self.depth_m: Tensor | None = None
        """(M, height, width) the newest images, m."""
        self.fresh_rows = torch.zeros(0, dtype=torch.long, device=device)
        """(M,) environments that they are of."""
        self.pos = torch.zeros(num_envs, 3, device=device)
        """(N, 3) where odometry takes the base to be, m."""
        self.quat = torch.zeros(num_envs, 4, device=device)
        """(N, 4) how odometry takes it to be turned, wxyz."""
        path = mapper_path(cfg)
        mapper: Mapper | None = None
        if path is not None:
            # The network runs some tenths faster in onnxruntime than in torch on one core.
            mapper = OnnxMapper(path) if device == "cpu" else TorchMapper(path, device)
        self.pipeline = MappingPipeline(mapping, mapper, torch.zeros(1, 1, device=device), num_envs)
        """The robot's own."""
        self._ground = torch.from_numpy(ground.mapped_m).to(device).nan_to_num(nan=VOID_M, posinf=VOID_M, neginf=VOID_M)
        self._resolution_m, self._corner = ground.resolution_m, torch.as_tensor(ground.corner_m, device=device)
        self._camera = mapping.cameras[0]
        self._generator = default_generator(device)
        self._noise = cfg.depth_noise if flaws else CLEAN
        self._drift = OdometryDrift(cfg.drift if flaws else NO_DRIFT, num_envs, self._generator)
        self._half_m = query_drift_m if flaws else 0.0
        self._displaced = torch.zeros(num_envs, 3, device=device)
        self._dt_s = dt_s
        self._every = max(1, round(1.0 / (cfg.camera_hz * dt_s)))
        self._phase = torch.randint(self._every, (num_envs,), device=device)
        self._images = torch.zeros(num_envs, self._camera.height, self._camera.width, device=device)
        self._ticks = torch.zeros(num_envs, dtype=torch.long, device=device)
        self._new = torch.ones(num_envs, dtype=torch.bool, device=device)
        self._step: int | None = None

    def reset(self, env_ids: Tensor | slice) -> None:
        """Begin episodes (k,): no map, odometry that is right, and a frame at the next look, wherever that is from."""
        self._new[env_ids] = True
        self._drift.offset_m[env_ids] = 0.0
        self._drift.yaw_rad[env_ids] = 0.0
        shape = self._displaced[env_ids].shape
        self._displaced[env_ids] = (torch.rand(shape, device=self._new.device) * 2.0 - 1.0) * self._half_m

    def observe(self, pos_base_in_world: Tensor, quat_base_to_world_wxyz: Tensor, step: int) -> None:
        """Let time pass and take in the frames that are due; a second call in the same step adds those of resets.

        Args:
            pos_base_in_world: (N, 3) true positions, m.
            quat_base_to_world_wxyz: (N, 4) true orientations.
            step: Counts control steps.
        """
        fresh = self._new.clone()
        passed = self._step != step
        if passed:
            self.pipeline.advance(self._dt_s)
            self._ticks += 1
            fresh |= (self._ticks + self._phase) % self._every == 0
        if worth_doing(self._new):
            self.pipeline.reset(self._new)
        told = self._drift.step(pos_base_in_world, quat_base_to_world_wxyz, self._dt_s if passed else 0.0)
        self.pos, self.quat = told
        self._step = step
        self._new[:] = False
        self._take(fresh & ~self.skipped, pos_base_in_world, quat_base_to_world_wxyz)

    def _take(self, fresh: Tensor, pos: Tensor, quat: Tensor) -> None:
        """Render and fuse the frames of ``fresh`` (N,) from true poses, placed where odometry takes them to be."""
        rows = fresh.nonzero()[:, 0]
        self.fresh_rows = rows
        if len(rows) == 0:
            self.depth_m = self._images[:0]
            return
        # Physics may have broken down where an episode is about to end.
        pos, quat = (torch.nan_to_num(part[rows], posinf=0.0, neginf=0.0) for part in (pos, quat))
        depth = render_depth(self._ground, self._resolution_m, self._corner, self._camera, pos, quat, finite=True)
        self.depth_m = add_depth_noise(depth, self._camera, self._noise, self._generator)
        self._images[rows] = self.depth_m
        self.pipeline.update(self._images, self.pos, self.quat, fresh)

    def window(self, grid: GridSpec) -> Tensor:
        """Current map window of the policies, (N, rows, cols, 2): :func:`gantry_mapping.pipeline.window_channels`."""
        return self.pipeline.window(grid, self.pos - self._displaced, self.quat)


def default_generator(device: str) -> torch.Generator:
    """torch's own generator of a device, whose state a checkpoint holds."""
    if not device.startswith("cuda"):
        return torch.default_generator
    torch.cuda.init()
    return torch.cuda.default_generators[torch.device(device).index or 0]
