"""Noise of depth images and odometry; every draw comes from a generator that is handed in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from gantry_mapping.errors import MappingError
from gantry_mapping.sensing.camera import DepthCamera
from gantry_mapping.sensing.frames import yaw_of


@dataclass(frozen=True)
class DepthNoiseCfg:
    """Flaws of a depth image; the paper trains its student with 15 % missing points and 2 % artefacts."""

    missing_share: float = 0.0
    """Share of pixels without a measurement."""
    artefact_share: float = 0.0
    """Share of pixels with a depth that is anywhere within the camera's range."""
    std_m: float = 0.003
    """Standard deviation of a depth at range 0."""
    std_per_m: float = 0.004
    """Growth of the standard deviation with the squared depth, 1/m, as stereo has it."""
    missing_block_px: int = 1
    """Edge of the squares in which measurements go missing together."""

    def __post_init__(self) -> None:
        for name in ("missing_share", "artefact_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise MappingError(f"{name} is {getattr(self, name)}, expected a share between 0 and 1.")


CLEAN = DepthNoiseCfg(std_m=0.0, std_per_m=0.0)
"""No flaws at all."""


def add_depth_noise(
    depth_m: torch.Tensor,
    camera: DepthCamera,
    cfg: DepthNoiseCfg,
    generator: torch.Generator,
    *,
    scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """Depth images with flaws.

    Args:
        depth_m: (N, height, width) along the optical axis, m; 0 for none.
        camera: Whose range artefacts fall into.
        cfg: How many and how large the flaws are.
        generator: Source of every draw, on the images' device.
        scale: (N,) factor of all shares and deviations per image; 1 where None.

    Returns:
        (N, height, width), m; 0 for none.
    """
    count, height, width = depth_m.shape
    factor = (depth_m.new_ones(count) if scale is None else scale).view(-1, 1, 1)

    def draw(rows: int, columns: int) -> torch.Tensor:
        return torch.rand((count, rows, columns), generator=generator, device=depth_m.device, dtype=depth_m.dtype)

    noise = torch.randn(depth_m.shape, generator=generator, device=depth_m.device, dtype=depth_m.dtype)
    deviation = factor * (cfg.std_m + cfg.std_per_m * depth_m.square())
    noisy = torch.where(depth_m > 0, (depth_m + deviation * noise).clamp(min=0.0), 0.0)
    anywhere = camera.min_range_m + (camera.max_range_m - camera.min_range_m) * draw(height, width)
    noisy = torch.where(draw(height, width) < factor * cfg.artefact_share, anywhere, noisy)
    block = cfg.missing_block_px
    lost = draw(-(-height // block), -(-width // block)) < factor * cfg.missing_share
    lost = lost.repeat_interleave(block, 1).repeat_interleave(block, 2)[:, :height, :width]
    return noisy.masked_fill_(lost, 0.0)


def crop_borders(
    values: torch.Tensor, fill: float, largest_share: float, chance: float, generator: torch.Generator
) -> torch.Tensor:
    """Blank a random margin at each border of some images, as a smaller field of view or a leg before the lens does.

    Args:
        values: (N, rows, columns).
        fill: What the margins hold afterwards.
        largest_share: Of a margin, relative to the image's extent.
        chance: That an image is cropped at all.
        generator: Source of every draw.
    """
    count, rows, columns = values.shape
    kept = torch.ones_like(values, dtype=torch.bool)
    chosen = torch.rand(count, generator=generator, device=values.device) < chance
    margins = largest_share * torch.rand((count, 4), generator=generator, device=values.device) * chosen[:, None]
    for extent, axis, pair in ((rows, 1, margins[:, :2]), (columns, 2, margins[:, 2:])):
        at = (torch.arange(extent, device=values.device) + 0.5) / extent
        inside = (at >= pair[:, :1]) & (at <= 1.0 - pair[:, 1:])
        kept &= inside.unsqueeze(3 - axis)
    return torch.where(kept, values, fill)


@dataclass(frozen=True)
class DriftCfg:
    """Drift of odometry: random walks of position and yaw. Per square root of a second."""

    xy_m: float = 0.01
    """Of x and y each."""
    z_m: float = 0.005
    """Of the height."""
    yaw_rad: float = 0.005
    """Of the yaw."""


class OdometryDrift:
    """Turns true poses into those that odometry would tell; exact at the first step.

    Args:
        cfg: Size of the random walks.
        num_envs: N.
        generator: Source of every draw.
    """

    def __init__(self, cfg: DriftCfg, num_envs: int, generator: torch.Generator) -> None:
        self.cfg = cfg
        self.offset_m = torch.zeros(num_envs, 3, device=generator.device)
        """(N, 3) error of the position, m in the world."""
        self.yaw_rad = torch.zeros(num_envs, device=generator.device)
        """(N,) error of the yaw."""
        self._generator = generator

    def step(
        self, pos_base_in_world: torch.Tensor, quat_base_to_world_wxyz: torch.Tensor, dt_s: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The poses that odometry tells in the world frame, and then ``dt_s`` more of drift.

        Args:
            pos_base_in_world: (N, 3) m.
            quat_base_to_world_wxyz: (N, 4).
            dt_s: Time until the next step.

        Returns:
            (N, 3) m and (N, 4).
        """
        pos = pos_base_in_world + self.offset_m
        half = 0.5 * self.yaw_rad
        cos, sin = torch.cos(half), torch.sin(half)
        w, x, y, z = quat_base_to_world_wxyz.unbind(-1)
        quat = torch.stack((cos * w - sin * z, cos * x - sin * y, cos * y + sin * x, cos * z + sin * w), dim=-1)
        widths = (self.cfg.xy_m, self.cfg.xy_m, self.cfg.z_m, self.cfg.yaw_rad)
        scale = torch.stack([torch.full((), width, device=pos.device) for width in widths])
        steps = torch.randn((len(pos), 4), generator=self._generator, device=pos.device) * scale * dt_s**0.5
        self.offset_m = self.offset_m + steps[:, :3]
        self.yaw_rad = self.yaw_rad + steps[:, 3]
        return pos, quat


Item = TypeVar("Item")


class DelayLine(Generic[Item]):
    """Gives back what was put in some steps before; at the beginning, the first of all.

    Args:
        steps: Delay; 0 for none.
    """

    def __init__(self, steps: int) -> None:
        if steps < 0:
            raise MappingError(f"A delay of {steps} steps was asked for, expected 0 or more.")
        self._items: deque[Item] = deque(maxlen=steps + 1)

    def push(self, item: Item) -> Item:
        """Put an item in and take the delayed one."""
        self._items.append(item)
        return self._items[0]


def yaw_error_rad(first_wxyz: torch.Tensor, second_wxyz: torch.Tensor) -> torch.Tensor:
    """(N,) yaw [rad] of the second orientation (N, 4) over the first, both from one frame, in [-pi, pi]."""
    difference = yaw_of(second_wxyz) - yaw_of(first_wxyz)
    return torch.atan2(torch.sin(difference), torch.cos(difference))
