"""Depth and calibration in ROS 2 messages (``sensor_msgs``), as they come from a topic or out of a bag."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.files.text import plain_text
from gantry_mapping.errors import MappingError
from gantry_mapping.live import intrinsics_of
from gantry_mapping.sensing.units import require_metres

FloatArray = NDArray[np.floating]

DEPTH_ENCODINGS = {"32FC1": ("f4", 1.0), "16UC1": ("u2", 0.001), "mono16": ("u2", 0.001)}
"""Encodings of depth images that are read: type of a pixel, and metres per unit (REP 118)."""
STRAIGHT = 1e-6
"""A distortion coefficient up to this is none."""


def depth_image(message: Any) -> FloatArray:
    """Depth (height, width), m; zero where the image holds nothing.

    Raises:
        RobotError: If the encoding is no depth's, the data too short, or the numbers cannot be metres.
    """
    if message.encoding not in DEPTH_ENCODINGS:
        raise RobotError(str(UnknownNameError("encoding of a depth image", message.encoding, DEPTH_ENCODINGS)))
    code, scale = DEPTH_ENCODINGS[message.encoding]
    dtype = np.dtype(code).newbyteorder(">" if message.is_bigendian else "<")
    step = message.step or message.width * dtype.itemsize
    if step < message.width * dtype.itemsize or len(message.data) < message.height * step:
        raise RobotError(
            f"A depth image of {message.width} x {message.height} pixels in {message.encoding} has {len(message.data)} "
            f"bytes, {step} per row; expected {message.height * message.width * dtype.itemsize} or more."
        )
    rows = np.frombuffer(message.data, np.uint8)[: message.height * step].reshape(message.height, step)
    pixels = np.ascontiguousarray(rows[:, : message.width * dtype.itemsize]).view(dtype)
    if scale != 1.0:
        return pixels.astype(np.float32) * np.float32(scale)
    depth_m = pixels.astype(np.float32)
    try:
        require_metres(depth_m, "metres; millimetres are sent as 16UC1")
    except MappingError as error:
        raise RobotError(f"In a depth image in {message.encoding}, {error}.") from error
    return depth_m


def intrinsics(message: Any) -> tuple[int, int, float, float, float, float]:
    """Width, height, fx, fy, cx, cy of the images, that is of the rectified ones, or of the raw ones where the message
    says no more.

    The calibration is of the full sensor; a region of interest is cut out of it and then reduced by the binning, as
    ``image_geometry`` has it.

    Raises:
        MappingError: If the camera is not calibrated, or its region lies outside of its sensor.
        RobotError: If its images are raw and its lens distorts.
    """
    projection = np.array(message.p).reshape(3, 4)[:, :3]
    rectified = bool(projection[0, 0] > 0.0)
    fx, fy, cx, cy = intrinsics_of(projection if rectified else np.array(message.k))
    if not rectified and (bent := [value for value in message.d if not abs(value) <= STRAIGHT]):
        raise RobotError(
            f"The camera's lens distorts ({plain_text(message.distortion_model)}, {bent[0]:g}, ...) and its "
            "calibration has no projection matrix p; depth images must be rectified."
        )
    region, width, height = message.roi, message.width, message.height
    if region.width and region.height:
        if region.x_offset + region.width > width or region.y_offset + region.height > height:
            raise MappingError(
                f"The camera's region of {region.width} x {region.height} pixels at {region.x_offset}, "
                f"{region.y_offset} is not part of its {width} x {height} pixels."
            )
        width, height, cx, cy = region.width, region.height, cx - region.x_offset, cy - region.y_offset
    across, down = max(1, message.binning_x), max(1, message.binning_y)
    return (width // across, height // down, fx / across, fy / down, cx / across, cy / down)
