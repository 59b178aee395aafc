"""The interface of a source of depth images, and the pose of a camera on the robot."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.files.bounds import Range, check_fields
from gantry_mapping.errors import MappingError
from gantry_mapping.sensing.camera import DepthCamera

DepthArray = NDArray[np.float32]


class DepthError(MappingError):
    """A depth camera cannot be opened, its settings make no sense, or its images cannot be used."""


@dataclass(frozen=True)
class DepthImage:
    """One image of a source."""

    stamp_s: float
    """Capture time, on the clock that was handed to :meth:`DepthSource.read`."""
    depth_m: DepthArray
    """Shape (height, width), m along the optical axis; zero means no measurement."""
    camera: int = 0
    """Index in :attr:`DepthSource.cameras`."""


class DepthSource(Protocol):
    """Gives depth images, of one or several cameras."""

    live: bool
    """Whether images come in real time, whatever the clock of the robot does."""

    @property
    def name(self) -> str:
        """Words for messages, for example "realsense 0123"."""
        ...

    @property
    def cameras(self) -> tuple[DepthCamera, ...]:
        """Intrinsics, range, and pose in the base frame; known after :meth:`open`."""
        ...

    def open(self) -> None:
        """Open the camera and learn its intrinsics; nothing of the robot is needed.

        Raises:
            DepthError: If there is no such camera, if another program has it, or if it does not answer.
        """
        ...

    def read(self, now_s: float) -> list[DepthImage]:
        """The images since the last call, oldest first, at once. Trouble of the camera raises nothing.

        Args:
            now_s: The reader's clock at this moment; stamps are on it.
        """
        ...

    def trouble(self) -> str:
        """Reason for which no images come, in words; empty while they do."""
        ...

    def statistics(self) -> dict[str, object]:
        """Plain values for diagnostics."""
        ...

    def close(self) -> None:
        """Release the camera; may be called twice."""
        ...


_RANGES = {
    "pos_camera_in_base_m": Range(-100.0, 100.0),
    "quat_camera_to_base_wxyz": Range(-1.001, 1.001),
    "min_range_m": Range(0.0, 1000.0),
    "max_range_m": Range(0.001, 1000.0),
    "delay_s": Range(0.0, 1.0),
}


@dataclass(frozen=True)
class CameraMount:
    """Pose of a camera's optical frame in the base frame, the range to believe, and intrinsics that were calibrated."""

    pos_camera_in_base_m: tuple[float, float, float]
    """Position of the optical centre."""
    quat_camera_to_base_wxyz: tuple[float, float, float, float]
    """Orientation of the optical frame: z forward, x right, y down."""
    min_range_m: float = 0.15
    """Nearer depths are no measurements."""
    max_range_m: float = 4.0
    """Farther depths are no measurements."""
    delay_s: float = 0.0
    """Time from a capture to its earliest arrival, for cameras that do not tell it."""
    calibrated: DepthCamera | None = None
    """Calibrated intrinsics, which win over those that the camera tells; None without."""
    serial: str = ""
    """Serial number of the camera that was calibrated; empty where it is not known."""

    def __post_init__(self) -> None:
        check_fields(self, _RANGES, "A camera's ", DepthError)
        norm = math.sqrt(sum(part * part for part in self.quat_camera_to_base_wxyz))
        if abs(norm - 1.0) > 1e-3:
            raise DepthError(f"A camera's quat_camera_to_base_wxyz has length {norm:.4g}, expected 1.")
        if not self.min_range_m < self.max_range_m:
            raise DepthError(
                f"A camera's range is {self.min_range_m:g} to {self.max_range_m:g} m, expected near < far."
            )

    def camera(self, told: DepthCamera, name: str) -> DepthCamera:
        """The camera on the robot, from the intrinsics that it tells.

        Args:
            told: Intrinsics of the images as they come; its mounting does not count.
            name: For the message.

        Raises:
            DepthError: If the calibration is of another shape of image.
        """
        own = self.calibrated
        intrinsics = told
        if own is not None:
            across, down = told.width / own.width, told.height / own.height
            if abs(across - down) > 0.02 * across:
                raise DepthError(
                    f"{name} gives images of {told.width} x {told.height} pixels, its calibration is of "
                    f"{own.width} x {own.height}: the one is no reduction of the other. Calibrate with this profile."
                )
            # A pixel's centre is its whole number, so that an image's left edge lies at -0.5.
            intrinsics = replace(
                told,
                fx=own.fx * across,
                fy=own.fy * down,
                cx=(own.cx + 0.5) * across - 0.5,
                cy=(own.cy + 0.5) * down - 0.5,
            )
        return replace(
            intrinsics,
            pos_camera_in_base_m=self.pos_camera_in_base_m,
            quat_camera_to_base_wxyz=self.quat_camera_to_base_wxyz,
            min_range_m=self.min_range_m,
            max_range_m=self.max_range_m,
        )
