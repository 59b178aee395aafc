"""Intel RealSense depth cameras, through librealsense."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gantry_deploy.depth.realsense_filters import FilterCfg, make_filters
from gantry_deploy.depth.realsense_library import find_camera, load_realsense
from gantry_deploy.depth.registry import require_mount
from gantry_deploy.depth.source import CameraMount, DepthError
from gantry_deploy.depth.supervised import Grab, ReconnectCfg, SupervisedSource
from gantry_mapping.sensing.camera import DepthCamera

UNITS_M = (1e-6, 0.05)
"""Plausible metres per unit of a depth image."""
BUSY = ("busy", "errno=16", "streaming", "power state", "in use")
"""Words in librealsense's errors where another program has the camera."""
GLOBAL_AGE_S = (-0.05, 1.0)
"""A capture time in librealsense's global time must be of such an age, or the host's and the camera's clock "
"disagree."""
QUEUE_FRAMES = 2
"""Frames that librealsense keeps for the thread."""


class RealSenseDriver:
    """Opens the depth sensor of one camera; see :class:`gantry_deploy.depth.supervised.CameraDriver`.

    Args:
        mount: Where the camera is on the robot.
        serial: Serial number; empty for the only one.
        size: Pixels per row and rows of the profile.
        rate_hz: Images per second of the profile.
        filters: What is done to the images.
        find: From the module ``pyrealsense2`` and a serial number to the device.
    """

    def __init__(
        self,
        mount: CameraMount,
        serial: str = "",
        size: tuple[int, int] = (848, 480),
        rate_hz: int = 30,
        filters: FilterCfg | None = None,
        find: Callable[[Any, str], Any] = find_camera,
    ) -> None:
        self._rs = load_realsense()
        self._mount, self._serial, self._size, self._rate_hz = mount, serial or mount.serial, size, rate_hz
        self._filter_cfg = filters or FilterCfg()
        self._find = find
        self._sensor: Any = None
        self._device: Any = None
        self._queue: Any = None
        self._apply: Callable[[Any], Any] = lambda frame: frame
        self.device_name = "a RealSense camera"
        """Name and serial number; known after :meth:`start`."""

    def start(self) -> DepthCamera:
        """Open the camera.

        Raises:
            DepthError: If there is none, it has no such profile, another program has it, or its calibration is not
                its own.
        """
        self.stop()
        rs = self._rs
        device = self._find(rs, self._serial)
        try:
            self.device_name = f"{_info(device, rs.camera_info.name)} {_info(device, rs.camera_info.serial_number)}"
            self._check_serial(_info(device, rs.camera_info.serial_number))
            sensor = device.first_depth_sensor()
            profile = self._profile(sensor)
            unit_m = float(sensor.get_depth_scale())
        except RuntimeError as error:
            raise DepthError(f"{self.device_name} cannot be used: {error}") from error
        if not UNITS_M[0] <= unit_m <= UNITS_M[1]:
            raise DepthError(
                f"{self.device_name} counts depth in {unit_m:g} m, expected {UNITS_M[0]:g} to {UNITS_M[1]:g} m "
                "(0.001 is usual); set its option Depth Units."
            )
        camera = self._intrinsics(profile)
        queue = rs.frame_queue(QUEUE_FRAMES)
        try:
            sensor.open(profile)
            try:
                sensor.start(queue)
            except RuntimeError:
                sensor.close()
                raise
        except RuntimeError as error:
            raise DepthError(self._open_text(str(error))) from error
        self._device, self._sensor, self._queue = device, sensor, queue
        self._apply = make_filters(rs, self._filter_cfg)
        return camera

    def grab(self, timeout_s: float) -> Grab | None:
        """The next image.

        Raises:
            DepthError: If the camera was unplugged.
        """
        rs = self._rs
        arrived, frame = self._queue.try_wait_for_frame(int(1e3 * timeout_s))
        if not arrived:
            if not self._device.is_connected():
                raise DepthError(f"{self.device_name} was unplugged")
            return None
        arrival_s, wall_s = time.monotonic(), time.time()
        depth = self._apply(frame).as_depth_frame()
        depth_m = np.asarray(depth.get_data()).astype(np.float32) * np.float32(depth.get_units())
        stamp_s = 1e-3 * frame.get_timestamp()
        age_s = wall_s - stamp_s
        if (
            frame.get_frame_timestamp_domain() == rs.timestamp_domain.global_time
            and GLOBAL_AGE_S[0] <= age_s <= GLOBAL_AGE_S[1]
        ):
            return Grab(depth_m, arrival_s - age_s, arrival_s, steady=True)
        return Grab(depth_m, stamp_s, arrival_s)

    def stop(self) -> None:
        """Release the camera."""
        sensor, self._sensor, self._queue = self._sensor, None, None
        if sensor is None:
            return
        for release in (sensor.stop, sensor.close):
            try:
                release()
            except RuntimeError:  # It was unplugged.
                continue

    def _check_serial(self, found: str) -> None:
        if self._mount.serial and found and self._mount.serial != found:
            raise DepthError(
                f"The camera is {self.device_name}, its calibration is of serial {self._mount.serial}. Calibrate this "
                "one, or connect the other."
            )

    def _profile(self, sensor: Any) -> Any:
        """The sensor's profile of the wanted size and rate.

        Raises:
            DepthError: With those that there are.
        """
        rs, wanted = self._rs, (*self._size, self._rate_hz)
        found = {}
        for profile in sensor.get_stream_profiles():
            if profile.stream_type() == rs.stream.depth and profile.format() == rs.format.z16:
                video = profile.as_video_stream_profile()
                found[video.width(), video.height(), profile.fps()] = video
        if wanted not in found:
            listed = ", ".join(f"{w} x {h} at {rate} Hz" for w, h, rate in sorted(found)) or "(none)"
            raise DepthError(
                f"{self.device_name} has no depth profile of {wanted[0]} x {wanted[1]} at {wanted[2]} Hz. It has: "
                f"{listed}. On USB 2 a camera has few."
            )
        return found[wanted]

    def _intrinsics(self, profile: Any) -> DepthCamera:
        """The camera of the filtered images.

        Raises:
            DepthError: If the lens distorts, or the calibration is of another shape of image.
        """
        told = profile.get_intrinsics()
        if any(abs(value) > 1e-6 for value in told.coeffs):
            raise DepthError(
                f"{self.device_name} gives depth with the lens's distortion ({told.model}), expected rectified images."
            )
        full = DepthCamera(told.width, told.height, told.fx, told.fy, told.ppx, told.ppy)
        return binned(self._mount.camera(full, self.device_name), self._filter_cfg.decimate)

    def _open_text(self, error: str) -> str:
        if any(word in error.lower() for word in BUSY):
            return (
                f"{self.device_name} is in use by another program ({error}). End that one (realsense-viewer, a ROS "
                "driver, another gantry run), or unplug the camera and plug it in again."
            )
        return f"{self.device_name} cannot be opened: {error}"


def make_realsense(
    mount: CameraMount | None,
    serial: str = "",
    width: int = 848,
    height: int = 480,
    rate_hz: int = 30,
    decimate: int = 3,
    spatial: bool = False,
    temporal: bool = False,
    fill: str = "none",
    reconnects: int = 20,
    find: Callable[[Any, str], Any] = find_camera,
) -> SupervisedSource:
    """A source of one RealSense camera, from the entry-point group ``gantry.depth_sources``.

    Args:
        mount: Pose of the camera on the robot.
        serial: Serial number; empty for the only one, or for that of the calibration.
        width: Pixels per row of the profile.
        height: Rows of the profile.
        rate_hz: Images per second of the profile.
        decimate: See :class:`gantry_deploy.depth.realsense_filters.FilterCfg`.
        spatial: Likewise.
        temporal: Likewise.
        fill: Likewise.
        reconnects: How often in a row a silent camera is opened again.
        find: From the module ``pyrealsense2`` and a serial number to the device.

    Raises:
        DepthError: If librealsense is not installed, an option makes no sense, or the camera's pose is not given.
    """
    mount = require_mount(mount, "realsense")
    filters = FilterCfg(decimate, spatial, temporal, fill)
    driver = RealSenseDriver(mount, str(serial), (width, height), rate_hz, filters, find)
    name = f"realsense {serial or mount.serial}".strip()
    return SupervisedSource(name, driver, mount.delay_s, ReconnectCfg(attempts=reconnects))


def _info(device: Any, what: Any) -> str:
    return device.get_info(what) if device.supports(what) else ""


def binned(camera: DepthCamera, n: int) -> DepthCamera:
    """The camera of librealsense's decimated images, in which blocks of n x n pixels are one.

    librealsense divides a principal point by n; the middle of a block lies (n - 1) / 2 pixels behind its first one's
    centre, so it is computed here: the difference is a third of a pixel for n = 3. Width and height are padded to a
    multiple of four.
    """
    if n == 1:
        return camera
    return replace(
        camera,
        width=4 * -(-(camera.width // n) // 4),
        height=4 * -(-(camera.height // n) // 4),
        fx=camera.fx / n,
        fy=camera.fy / n,
        cx=(camera.cx + 0.5) / n - 0.5,
        cy=(camera.cy + 0.5) / n - 0.5,
    )
