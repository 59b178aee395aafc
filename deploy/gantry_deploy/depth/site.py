"""The file of one camera on one robot: where it sits, what it measures, and how that was found."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from gantry_deploy.bundle.locate import near_miss
from gantry_deploy.depth.source import CameraMount, DepthError
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.whole_files import write_whole
from gantry_hardware.files.yaml_file import YamlFileError, read_yaml
from gantry_mapping.sensing.camera import FORWARD_QUAT_WXYZ, DepthCamera

STRAIGHT = 1e-3
"""A distortion coefficient up to this bends a ray at the image's edge by less than a pixel."""


@dataclass(frozen=True)
class Intrinsics:
    """A pinhole camera and its lens."""

    width: int
    """Pixels per row."""
    height: int
    """Rows."""
    fx: float
    """Focal length along the image's x, pixels."""
    fy: float
    """Focal length along the image's y, pixels."""
    cx: float
    """Principal point along the image's x, pixels; the first pixel's centre is 0."""
    cy: float
    """Principal point along the image's y, pixels; the first pixel's centre is 0."""
    distortion: tuple[float, ...] = ()
    """OpenCV's coefficients k1, k2, p1, p2, k3 of the images as they were taken; empty for rectified ones."""


@dataclass(frozen=True)
class CameraSite:
    """A camera's file; ``gantry calibrate`` writes it, and a depth source's option ``site`` reads it."""

    name: str = "camera"
    """Name of the camera on the robot."""
    serial: str = ""
    """Serial number; a camera with another one is refused. Empty for any."""
    intrinsics: Intrinsics | None = None
    """Calibrated intrinsics, which win over those that the camera tells; None to believe the camera."""
    pos_camera_in_base_m: tuple[float, float, float] | None = None
    """Position of the optical centre in the base frame; None while it is not known."""
    quat_camera_to_base_wxyz: tuple[float, float, float, float] | None = None
    """Orientation of the optical frame, z forward, x right, y down; None while it is not known."""
    mounted_on: str = "base"
    """The frame of the pose above: ``base``, or ``tool`` for a camera on an arm's wrist."""
    min_range_m: float = 0.15
    """Nearer depths are no measurements."""
    max_range_m: float = 4.0
    """Farther depths are no measurements."""
    delay_s: float = 0.0
    """Time from a capture to its earliest arrival."""
    calibration: dict[str, Any] = field(default_factory=dict)
    """Record of how the numbers were found; nothing reads it."""


def load_site(path: str | Path) -> CameraSite:
    """A camera's file.

    Raises:
        DepthError: If there is none, or it holds a field that is unknown (with the near miss) or ill-typed.
    """
    path = Path(path)
    if not path.is_file():
        raise DepthError(f"There is no camera file {path}.{near_miss(path)} 'gantry calibrate camera' writes one.")
    try:
        data = read_yaml(path)
    except YamlFileError as problem:
        raise DepthError(f"Cannot read the camera file {problem}") from problem
    return from_plain(CameraSite, {} if data is None else data, path.name, DepthError)


def save_site(path: str | Path, site: CameraSite) -> None:
    """Write a camera's file.

    Raises:
        DepthError: If it cannot be written; a file that was there is still whole.
    """
    values = {item.name: _plain(getattr(site, item.name)) for item in fields(site)}
    values = {key: value for key, value in values.items() if value is not None and value != {}}
    head = "# A camera on a robot: lengths in m, pixels where no unit is said. Written by gantry calibrate.\n"
    text = head + yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=118)
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise DepthError(f"Cannot write the camera file {path}: {error.strerror}.") from error


def mount_of(site: CameraSite, where: str) -> CameraMount:
    """Mounting of a camera on the robot.

    Raises:
        DepthError: If its file holds no pose, a pose on something that moves, or a lens that is not straight.
    """
    if site.pos_camera_in_base_m is None or site.quat_camera_to_base_wxyz is None:
        raise DepthError(
            f"{where} does not say where the camera is on the robot. Measure it with 'gantry calibrate camera "
            "mounted', or give pos_camera_in_base_m and quat_camera_to_base_wxyz."
        )
    if site.mounted_on != "base":
        raise DepthError(
            f"{where} is of a camera on the '{site.mounted_on}', which moves; a map needs one on the base."
        )
    own = site.intrinsics
    bent = [] if own is None else [value for value in own.distortion if abs(value) > STRAIGHT]
    if bent:
        raise DepthError(
            f"{where} holds a lens that distorts ({bent[0]:g}); depth images are rectified, so calibrate with "
            "rectified images of the imager that depth is aligned with."
        )
    calibrated = None if own is None else DepthCamera(own.width, own.height, own.fx, own.fy, own.cx, own.cy)
    return CameraMount(
        site.pos_camera_in_base_m,
        site.quat_camera_to_base_wxyz,
        site.min_range_m,
        site.max_range_m,
        site.delay_s,
        calibrated,
        site.serial,
    )


def mount_of_pose(numbers: tuple[float, ...]) -> CameraMount:
    """Mounting of a camera that looks along its own +x, from x, y, z [m] and roll, pitch, yaw [rad] in the base frame.

    Positive pitch looks down.

    Raises:
        DepthError: If these are not six finite numbers.
    """
    if len(numbers) != 6 or not all(math.isfinite(number) for number in numbers):
        raise DepthError(
            f"A camera's pose has {len(numbers)} numbers, expected six: x y z in m, roll pitch yaw in rad, for example "
            "pose='0.32 0 0.06 0 0.52 0'."
        )
    quat = product(quat_of_rpy(*numbers[3:]), FORWARD_QUAT_WXYZ)
    return CameraMount((numbers[0], numbers[1], numbers[2]), quat)


Quat = tuple[float, float, float, float]


def quat_of_rpy(roll_rad: float, pitch_rad: float, yaw_rad: float) -> Quat:
    """The unit quaternion, w first, of turns about the fixed axes x, y and z, in this order."""
    (cr, cp, cy), (sr, sp, sy) = (
        tuple(turn(0.5 * angle) for angle in (roll_rad, pitch_rad, yaw_rad)) for turn in (math.cos, math.sin)
    )
    return (
        cr * cp * cy + sr * sp * sy,
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    )


def product(a: Quat, b: Quat) -> Quat:
    """The orientation b, seen from where a leads; quaternions, w first."""
    return (
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


def quat_of_matrix(rotation: NDArray[np.float64]) -> Quat:
    """The unit quaternion, w first and not negative, of a rotation matrix (3, 3).

    It is the eigenvector of the largest eigenvalue of a symmetric matrix, so that small errors of the rotation do not
    matter, and no angle is special.
    """
    r = np.asarray(rotation, dtype=np.float64)
    k = np.zeros((4, 4))
    k[0, 0] = np.trace(r)
    k[0, 1:] = k[1:, 0] = r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]
    k[1:, 1:] = r + r.T - np.trace(r) * np.eye(3)
    quat = np.linalg.eigh(k)[1][:, -1]
    quat = quat if quat[0] >= 0.0 else -quat
    return (float(quat[0]), float(quat[1]), float(quat[2]), float(quat[3]))


def _plain(value: Any) -> Any:
    if isinstance(value, Intrinsics):
        return {key: _plain(item) for key, item in asdict(value).items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return round(value, 9) if isinstance(value, float) else value
