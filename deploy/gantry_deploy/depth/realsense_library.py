"""Loads librealsense, and finds its cameras. Nothing else imports ``pyrealsense2``."""

from __future__ import annotations

import ctypes
from typing import Any

from gantry_deploy.depth.source import DepthError
from gantry_hardware.errors import unknown_name_text


def load_realsense() -> Any:
    """The module ``pyrealsense2``.

    Its wheel needs the system's ``libusb-1.0.so.0``; where that is missing, the one of the package ``libusb-package``
    serves.

    Raises:
        DepthError: If it is not installed, or does not load.
    """
    try:
        import pyrealsense2 as rs
    except ImportError as error:
        if "libusb" not in str(error):
            raise DepthError(_MISSING.format(error=error)) from error
    else:
        return rs
    try:
        import libusb_package

        ctypes.CDLL(str(libusb_package.get_library_path()), ctypes.RTLD_GLOBAL)
        import pyrealsense2 as rs
    except (ImportError, OSError) as error:
        raise DepthError(
            f"pyrealsense2 needs libusb-1.0.so.0 ({error}): install the system's package libusb-1.0-0, or "
            "pip install libusb-package."
        ) from error
    return rs


_MISSING = (
    "RealSense cameras need the package pyrealsense2 ({error}): pip install 'gantry-rl[realsense]'. It has no wheel "
    "for every Python on ARM; docs/depth.md lists them."
)


def find_camera(rs: Any, serial: str = "") -> Any:
    """The connected RealSense camera with a serial number, or the only one.

    Raises:
        DepthError: If there is none, or several and no number.
    """
    cameras = {}
    for device in rs.context().query_devices():
        try:
            cameras[device.get_info(rs.camera_info.serial_number)] = device
        except RuntimeError:  # It was unplugged in between, or is in recovery.
            continue
    if not cameras:
        asked = f" (serial {serial} was asked for)" if serial else ""
        raise DepthError(
            f"No RealSense camera is connected{asked}. Check the cable (USB 3), 'lsusb -d 8086:', and the udev rules "
            "of librealsense."
        )
    if serial:
        if serial not in cameras:
            raise DepthError(unknown_name_text("serial number of a RealSense camera", serial, cameras))
        return cameras[serial]
    if len(cameras) > 1:
        raise DepthError(f"{len(cameras)} RealSense cameras are connected; say which: serial={' or '.join(cameras)}.")
    return next(iter(cameras.values()))
