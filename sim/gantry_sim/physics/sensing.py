"""Ray sensors on a CPU: vertical rays are looked up in a rasterised height map, any other ray is refused."""

from __future__ import annotations

import mujoco
import torch
import warp as wp
from mjlab.sensor.raycast_sensor import RayCastSensor
from mjlab.sensor.sensor_context import SensorContext

from gantry_hardware.errors import GantryError


class CpuSensorContext(SensorContext):
    """mjlab's shared sensing resources without MuJoCo Warp's ray tracer.

    Raises:
        GantryError: If a camera sensor is asked for.
    """

    def _create_context(self, mj_model: mujoco.MjModel) -> None:
        if self.camera_sensors:
            names = ", ".join(sensor.cfg.name for sensor in self.camera_sensors)
            raise GantryError(f"Camera sensors ({names}) need the GPU backend; the CPU backend has none yet.")
        self._ctx = None

    def cast(self) -> None:
        """Fill distances and normals of every ray sensor."""
        for sensor in self.raycast_sensors:
            self._cast_sensor(sensor)

    def _cast_sensor(self, sensor: RayCastSensor) -> None:
        shape = (self._data.nworld, sensor.num_rays, 3)
        origin = wp.to_torch(sensor._ray_pnt).view(shape)
        distance = wp.to_torch(sensor._ray_dist).view(shape[:2])
        normal = wp.to_torch(sensor._ray_normal).view(shape)
        distance.copy_(origin[..., 2].clamp(min=0.0))
        normal.zero_()
        normal[..., 2] = torch.ones_like(distance)
