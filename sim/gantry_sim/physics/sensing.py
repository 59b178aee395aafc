"""Ray sensors on a CPU: vertical rays onto ground that does not move are looked up, all others cast by MuJoCo."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import mujoco
import torch
import warp as wp
from mjlab.sensor.raycast_sensor import RayCastSensor
from mjlab.sensor.sensor_context import SensorContext

from gantry_hardware.errors import GantryError
from gantry_sim.physics.ground import is_static, is_visible
from gantry_sim.physics.heightmap import ExactRays, HeightMap


@runtime_checkable
class LooksDown(Protocol):
    """A ray sensor that asks for the height of the ground alone, where this can be looked up."""

    def stop_casting(self) -> None:
        """From now on :meth:`look_down` is called instead of casting rays."""
        ...

    def look_down(self, tops: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        """Take heights by a function from x (P,) and y (P,) in the world to the ground's height there, (P,), m."""
        ...


class CpuSensorContext(SensorContext):
    """mjlab's shared sensing resources without MuJoCo Warp's ray tracer.

    Raises:
        GantryError: If a camera sensor is asked for.
    """

    def _create_context(self, mj_model: mujoco.MjModel) -> None:
        if self.camera_sensors:
            names = ", ".join(sensor.cfg.name for sensor in self.camera_sensors)
            raise GantryError(
                f"Camera sensors ({names}) are drawn by MuJoCo Warp alone: on a GPU, or slowly on a CPU with "
                "GANTRY_PHYSICS_ENGINE=warp. There too, policies do not learn from pictures of mjlab's tasks."
            )
        self._ctx = None
        self._maps: dict[tuple[int, ...] | None, HeightMap] = {}
        self._lookups: dict[str, HeightMap] = {}
        self._rays: dict[str, ExactRays] = {}
        for sensor in self.raycast_sensors:
            if isinstance(sensor, LooksDown):
                sensor.stop_casting()
            groups = sensor.include_geom_groups
            reason = _why_not_looked_up(sensor, mj_model)
            if reason is None:
                if groups not in self._maps:
                    self._maps[groups] = HeightMap(mj_model, groups)
                self._lookups[sensor.cfg.name] = self._maps[groups]
            else:
                warnings.warn(
                    f"Ray sensor '{sensor.cfg.name}' casts every ray by itself, which is slow on a CPU: {reason}.",
                    stacklevel=2,
                )
                data = mujoco.MjData(mj_model)
                mujoco.mj_forward(mj_model, data)
                self._rays[sensor.cfg.name] = ExactRays(mj_model, data, groups)

    def cast(self) -> None:
        """Fill distances and normals of every ray sensor."""
        for sensor in self.raycast_sensors:
            if isinstance(sensor, LooksDown):
                sensor.look_down(self._lookups[sensor.cfg.name].tops)
                continue
            count = (self._data.nworld, sensor.num_rays)
            origin = _tensor(sensor._ray_pnt).view(*count, 3)
            distance = _tensor(sensor._ray_dist).view(count)
            normal = _tensor(sensor._ray_normal).view(*count, 3)
            ground = self._lookups.get(sensor.cfg.name)
            if ground is None:
                self._cast_exactly(sensor, origin, distance, normal)
            else:
                hit_distance, hit_normal = ground.cast_down(origin.view(-1, 3))
                distance.copy_(hit_distance.view(count))
                normal.copy_(hit_normal.view(*count, 3))

    def _cast_exactly(
        self, sensor: RayCastSensor, origin: torch.Tensor, distance: torch.Tensor, normal: torch.Tensor
    ) -> None:
        rays = self._rays[sensor.cfg.name]
        direction = _tensor(sensor._ray_vec).view_as(origin)
        excluded = _tensor(sensor._ray_bodyexclude)[:: sensor.num_rays_per_frame]
        position, rotation = self._data.geom_xpos, self._data.geom_xmat
        for env in range(len(origin)):
            rays.data.geom_xpos[:] = position[env].numpy()
            rays.data.geom_xmat[:] = rotation[env].reshape(-1, 9).numpy()
            for frame, body in enumerate(excluded):
                part = slice(frame * sensor.num_rays_per_frame, (frame + 1) * sensor.num_rays_per_frame)
                distance[env, part], normal[env, part] = rays.cast(origin[env, part], direction[env, part], int(body))


def _tensor(array: wp.array | None) -> torch.Tensor:
    assert array is not None  # a sensor has its arrays once the scene is initialised
    return wp.to_torch(array)


def _why_not_looked_up(sensor: RayCastSensor, model: mujoco.MjModel) -> str | None:
    """The reason, or None if a height map gives what the sensor's rays would."""
    directions = sensor._local_directions
    down = torch.tensor([0.0, 0.0, -1.0])
    if sensor.cfg.ray_alignment not in ("yaw", "world") or directions is None:
        return f"they turn with their frame (ray_alignment='{sensor.cfg.ray_alignment}', not 'yaw' or 'world')"
    if not torch.allclose(directions, down.expand_as(directions), atol=1e-6):
        return "not all of them point straight down"
    frame_bodies = {body for _, _, body in sensor._frame_infos} if sensor.cfg.exclude_parent_body else set()
    for geom in range(model.ngeom):
        if is_visible(model, geom, sensor.include_geom_groups):
            if not is_static(model, geom):
                return f"geom '{model.geom(geom).name}' in its geom groups {sensor.include_geom_groups} can move"
            if int(model.geom_bodyid[geom]) in frame_bodies:
                return f"its frame belongs to the ground (geom '{model.geom(geom).name}')"
    return None
