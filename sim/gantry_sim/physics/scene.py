"""mjlab's scene with ray sensors that work on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from mjlab.scene import Scene
from mjlab.sensor import CameraSensor, RayCastSensor

from gantry_sim.physics.sensing import CpuSensorContext


class GantryScene(Scene):
    """mjlab's scene with ray sensors that work on a CPU, over any simulation of plain torch tensors."""

    ground_model: Any = None
    """Model of the whole ground, where the physics holds a part of it; None where it holds all."""

    def initialize(self, mj_model: Any, model: Any, data: Any) -> None:
        """Connect entities and sensors to the simulation's arrays."""
        self._default_env_origins = torch.zeros((self.num_envs, 3), device=self.device)
        for part in (*self.entities.values(), *self.sensors.values()):
            part.initialize(mj_model, model, data, self.device)
        sensing = [sensor for sensor in self.sensors.values() if sensor.requires_sensor_context]
        if sensing:
            self._sensor_context = CpuSensorContext(
                mj_model=mj_model if self.ground_model is None else self.ground_model,
                model=model,
                data=data,
                camera_sensors=[sensor for sensor in sensing if isinstance(sensor, CameraSensor)],
                raycast_sensors=[sensor for sensor in sensing if isinstance(sensor, RayCastSensor)],
                device=self.device,
            )
