"""The filters of librealsense that a depth image goes through, and what becomes of a camera's intrinsics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gantry_deploy.depth.source import DepthError
from gantry_hardware.errors import unknown_name_text
from gantry_hardware.files.bounds import Range, check_fields

HOLE_FILLS = {"none": None, "left": 0, "farthest": 1, "nearest": 2}
"""Values of :attr:`FilterCfg.fill`, and librealsense's numbers of them."""


@dataclass(frozen=True)
class FilterCfg:
    """Filters, in the order in which they are applied."""

    decimate: int = 3
    """Edge of the block of pixels that becomes one: the median up to 3, the mean of what was measured from 4 on; 1 for
    none."""
    spatial: bool = False
    """Whether neighbours smooth each other within an edge."""
    temporal: bool = False
    """Whether earlier images smooth later ones. On a robot that walks this smears edges."""
    fill: str = "none"
    """Source of pixels without a measurement: ``none``, ``left``, ``farthest`` or ``nearest`` neighbour. An
    elevation map should not be told what was not measured."""

    def __post_init__(self) -> None:
        check_fields(self, {"decimate": Range(1, 8)}, "RealSense filters: ", DepthError)
        if self.fill not in HOLE_FILLS:
            raise DepthError(unknown_name_text("hole filling", self.fill, HOLE_FILLS))


def make_filters(rs: Any, cfg: FilterCfg) -> Callable[[Any], Any]:
    """A function from a depth frame of librealsense to the filtered one."""
    stages: list[Any] = []
    if cfg.decimate > 1:
        stages.append(rs.decimation_filter(float(cfg.decimate)))
    if cfg.spatial or cfg.temporal:
        # Stereo errs evenly in disparity, so both smooth that.
        stages.append(rs.disparity_transform(True))
        if cfg.spatial:
            stages.append(rs.spatial_filter())
        if cfg.temporal:
            temporal = rs.temporal_filter()
            temporal.set_option(rs.option.holes_fill, 0)  # Keeping an old depth where nothing is measured any more.
            stages.append(temporal)
        stages.append(rs.disparity_transform(False))
    if (mode := HOLE_FILLS[cfg.fill]) is not None:
        stages.append(rs.hole_filling_filter(mode))

    def apply(frame: Any) -> Any:
        for stage in stages:
            frame = stage.process(frame)
        return frame

    return apply
