"""Depth cameras that a node opens itself: their images never travel over DDS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gantry_deploy.depth.attached import close_all, open_depth
from gantry_deploy.depth.source import DepthImage
from gantry_mapping.config import MappingCfg
from gantry_ros.runtime.host import NodeHost, Parameter

PARAMETER = Parameter(
    "depth_source",
    "",
    "Depth cameras that this node opens itself instead of listening to topics: 'realsense,site=front.yaml', several "
    "separated by semicolons; see docs/depth.md.",
)
POLL_RATE_HZ = 200.0
"""Rate at which sources are asked for images."""


class DepthInput:
    """Open depth sources, asked again and again.

    Args:
        choices: Value of :data:`PARAMETER`.

    Raises:
        GantryError: If a source is unknown, or cannot be opened.
    """

    def __init__(self, choices: str) -> None:
        self._sources = open_depth(split_sources(choices))
        self._offsets = [sum(len(item.cameras) for item in self._sources[:i]) for i in range(len(self._sources))]

    def into(self, cfg: MappingCfg) -> MappingCfg:
        """The setup with the sources' cameras in place of its own."""
        return replace(cfg, cameras=tuple(camera for item in self._sources for camera in item.cameras))

    def start(
        self, host: NodeHost, now_s: Callable[[], float | None], take: Callable[[DepthImage, float], None]
    ) -> None:
        """Hand every image to ``take``, with the time; stamps are on the clock of ``now_s``."""

        def poll() -> None:
            time_s = now_s()
            if time_s is None:
                return
            for offset, source in zip(self._offsets, self._sources, strict=True):
                for image in source.read(time_s):
                    take(replace(image, camera=image.camera + offset), time_s)

        host.create_timer(1.0 / POLL_RATE_HZ, poll)

    def trouble(self) -> str:
        """Reason for which no images come; empty while they do."""
        return "; ".join(filter(None, (source.trouble() for source in self._sources)))

    def statistics(self) -> dict[str, object]:
        """Counts of all sources."""
        return {key: value for source in self._sources for key, value in source.statistics().items()}

    def close(self) -> None:
        """Release the cameras."""
        close_all(self._sources)


def split_sources(choices: str) -> list[str]:
    """Texts of single depth sources out of a value of :data:`PARAMETER`."""
    return [choice.strip() for choice in choices.split(";") if choice.strip()]
