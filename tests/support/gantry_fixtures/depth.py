"""A RealSense camera without hardware: librealsense's own software device, on a cable that can be pulled."""

from __future__ import annotations

import threading
import time

import numpy as np

from gantry_deploy.depth.realsense_library import load_realsense
from gantry_deploy.depth.source import DepthError
from gantry_mapping.sensing.camera import DepthCamera

SIZE = (64, 48)


class SoftCamera:
    """Software device with one depth stream, in which images are injected.

    Args:
        camera: Its intrinsics.
        unit_m: Metres per unit.
        serial: Serial number.
        rate_hz: Of the profile that it has.
    """

    def __init__(self, camera: DepthCamera, unit_m: float = 0.001, serial: str = "0042", rate_hz: int = 30):
        self.rs = rs = load_realsense()
        self.camera, self.unit_m = camera, unit_m
        self.device = rs.software_device()
        self.device.register_info(rs.camera_info.name, "Soft D435")
        self.device.register_info(rs.camera_info.serial_number, serial)
        self.sensor = self.device.add_sensor("Depth")
        told = rs.intrinsics()
        told.width, told.height = camera.width, camera.height
        told.fx, told.fy, told.ppx, told.ppy = camera.fx, camera.fy, camera.cx, camera.cy
        told.model, told.coeffs = rs.distortion.brown_conrady, [0.0] * 5
        stream = rs.video_stream()
        stream.type, stream.index, stream.uid, stream.fps = rs.stream.depth, 0, 0, rate_hz
        stream.width, stream.height, stream.bpp, stream.fmt = camera.width, camera.height, 2, rs.format.z16
        stream.intrinsics = told
        self.profile = self.sensor.add_video_stream(stream)
        self.sensor.add_read_only_option(rs.option.depth_units, unit_m)
        self.sensor.add_read_only_option(rs.option.stereo_baseline, 50.0)
        self.plugged, self.busy = True, False
        self.asked = []
        self._number = 0
        self._kept = []

    def find(self, rs, serial):
        """As the driver looks for devices."""
        self.asked.append(serial)
        if not self.plugged:
            raise DepthError("No RealSense camera is connected.")
        return self.device

    def inject(self, depth_m, stamp_s):
        """One image (height, width), m; dropped where the camera is unplugged or not streaming."""
        if not self.plugged:
            return
        frame = self.rs.software_video_frame()
        pixels = np.round(np.asarray(depth_m) / self.unit_m).astype(np.uint16)
        self._kept = [*self._kept[-8:], pixels]  # librealsense holds the pixels, not a copy.
        self._number += 1
        frame.stride, frame.bpp, frame.pixels = 2 * pixels.shape[1], 2, pixels
        frame.timestamp, frame.domain = 1e3 * stamp_s, self.rs.timestamp_domain.hardware_clock
        frame.frame_number, frame.profile = self._number, self.profile.as_video_stream_profile()
        frame.depth_units = self.unit_m
        self.sensor.on_video_frame(frame)


class Stream:
    """Injects images at a rate from a thread, as a camera does.

    Args:
        soft: The camera.
        depth_m: The image (height, width), m.
        period_s: Between two images.
        clock_s: Added to the steady clock for the camera's own.
    """

    def __init__(self, soft, depth_m, period_s=0.02, clock_s=1000.0):
        self.soft, self.depth_m, self.clock_s, self.flowing = soft, depth_m, clock_s, True
        self._period_s = period_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _run(self):
        while not self._end.wait(self._period_s):
            if self.flowing:
                self.soft.inject(self.depth_m, time.monotonic() + self.clock_s)


def floor_depth(camera, height_m):
    """Depth image (height, width), m, of level ground ``height_m`` below the base, by the rays' own geometry."""
    rays, origin = camera.rays_in_base(np.zeros(1))
    with np.errstate(divide="ignore"):
        depth = -(height_m + origin[2]) / rays[:, 2]
    depth = np.where((depth > 0.0) & (depth < 10.0), depth, 0.0)
    return depth.reshape(camera.height, camera.width)


def wait_for(condition, what, deadline_s=30.0):
    """Poll until something holds; its value."""
    until_s = time.monotonic() + deadline_s
    while time.monotonic() < until_s:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"no {what} within {deadline_s:g} s")
