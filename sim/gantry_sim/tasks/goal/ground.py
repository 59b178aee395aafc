"""Terrain of the goal tasks, and the rays that look at it from above."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import warp as wp
from mjlab.sensor import GridPatternCfg, ObjRef, RayCastSensor, RayCastSensorCfg
from mjlab.sensor.sensor import SensorCfg
from mjlab.terrains import TerrainEntityCfg
from torch import Tensor

from gantry_mapping.elevation.grid import GridSpec
from gantry_sim.tasks.goal.cfg import GoalCfg, maps_in_loop
from gantry_sim.tasks.goal.robots import GoalRobotCfg
from gantry_sim.terrains.grid import ame2_terrain, assert_trainable
from gantry_sim.terrains.tile import MAP_GROUPS, SOLID_GROUPS

HEIGHT_SENSOR = "ground_height"
"""One vertical ray under the base and under each foot, to what carries."""
TRUE_MAP = "true_map"
"""The window as it is, for critic and rewards."""
SEEN_MAP = "seen_map"
"""The window as a drifting map shows it, for the actor."""
RAY_START_M = 4.0
"""Rays start this high above the base: whatever stands on the ground is seen from above, as in a map."""
RAY_LENGTH_M = 12.0
"""A ray that has met nothing by then never will."""


@dataclass
class WindowPattern:
    """Vertical rays at the cell centres of a grid in the base's yaw frame, row-major."""

    grid: GridSpec
    """Grid of the cells."""

    def generate_rays(self, mj_model: Any, device: str) -> tuple[Tensor, Tensor]:
        """(cells, 3) starts and (cells, 3) directions in the frame, for mjlab."""
        del mj_model
        centers = self.grid.cell_centers(torch.zeros(1, device=device)).reshape(-1, 2)
        starts = torch.cat((centers, torch.full_like(centers[:, :1], RAY_START_M)), dim=-1)
        down = torch.tensor([[0.0, 0.0, -1.0]], device=device)
        return starts, down.repeat(len(starts), 1)


@dataclass
class MapSensorCfg(RayCastSensorCfg):
    """A window of elevations that may be displaced per environment."""

    def build(self) -> MapSensor:
        """Make the sensor."""
        return MapSensor(self)


class MapSensor(RayCastSensor):
    """Heights of the ground in a window around the base."""

    drift_m: Tensor | None = None
    """(N, 3) displacement of the map in the world; None for none."""
    _looked: Tensor | None = None

    def stop_casting(self) -> None:
        """Look heights up from now on, see :class:`gantry_sim.physics.sensing.LooksDown`."""
        assert self._data is not None
        self._looked = torch.zeros(self._data.nworld, self.num_rays)

    def look_down(self, tops: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Take the heights of all cells by a function from x (P,) and y (P,) to heights (P,), all in the world, m."""
        assert self._data is not None
        assert self._local_offsets is not None
        _, body, _ = self._frame_infos[0]
        pos, rotation = self._data.xpos[:, body, :2], self._compute_alignment_rotation(self._data.xmat[:, body])
        if self.drift_m is not None:
            pos = pos - self.drift_m[:, :2]
        # One product for all: as many small ones would take ten times as long.
        turned = rotation[:, :2, :2].reshape(-1, 2) @ self._local_offsets[:, :2].T
        x, y = (turned.view(len(pos), 2, -1) + pos[..., None]).unbind(1)
        self._looked = tops(x.flatten(), y.flatten()).view(x.shape)

    def postprocess_rays(self) -> None:
        """Nothing where no rays were cast."""
        if self._looked is None:
            super().postprocess_rays()

    def prepare_rays(self) -> None:
        """Start the rays where the map thinks that the window is."""
        if self._looked is not None:
            return
        super().prepare_rays()
        if self.drift_m is None:
            return
        assert self._cached_world_origins is not None
        assert self._ray_pnt is not None
        self._cached_world_origins[..., :2] -= self.drift_m[:, None, :2]
        wp.to_torch(self._ray_pnt).view_as(self._cached_world_origins).copy_(self._cached_world_origins)

    def heights(self) -> Tensor:
        """(N, cells) height in the world of what the map shows; -inf where nothing is."""
        height = self._looked
        if height is None:
            height = torch.where(self.data.distances >= 0, self.data.hit_pos_w[..., 2], -torch.inf)
        return height if self.drift_m is None else height + self.drift_m[:, None, 2]


def terrain_cfg(cfg: GoalCfg, seed: int) -> TerrainEntityCfg:
    """The terrain of a task.

    Raises:
        HeldOutTerrainError: If a training would contain a test.
    """
    ground = cfg.ground
    terrain = ame2_terrain(
        cfg.robot,
        levels=ground.levels,
        columns=ground.columns,
        kinds=None if ground.held_out else ground.kinds or None,
        seed=seed,
        size=ground.tile_m,
        held_out=ground.held_out or None,
        start_levels=ground.start_levels if cfg.curriculum else None,
        even=ground.even,
    )
    if cfg.curriculum:
        assert_trainable(terrain)
    return terrain


def ground_sensors(cfg: GoalCfg, robot: GoalRobotCfg, *, below: bool) -> tuple[SensorCfg, ...]:
    """Rays to the ground, refreshed once per control step.

    Args:
        cfg: The task.
        robot: Its robot.
        below: With a ray under base and feet each.
    """
    base = ObjRef(type="body", name=robot.body.root_body, entity="robot")
    feet = tuple(ObjRef(type="site", name=foot, entity="robot") for foot in robot.body.spec.feet)
    common: dict[str, Any] = {"ray_alignment": "yaw", "exclude_parent_body": True}
    window: dict[str, Any] = common | {
        "frame": base,
        "pattern": WindowPattern(cfg.window),
        "max_distance": RAY_LENGTH_M,
        "include_geom_groups": MAP_GROUPS,
    }
    under = RayCastSensorCfg(
        name=HEIGHT_SENSOR,
        frame=(base, *feet),
        pattern=GridPatternCfg(size=(0.0, 0.0), resolution=1.0),
        max_distance=RAY_LENGTH_M,
        include_geom_groups=SOLID_GROUPS,
        **common,
    )
    sensors = (*((under,) if below else ()), MapSensorCfg(name=TRUE_MAP, **window))
    drifts = cfg.noise is not None and cfg.noise.map_drift_m > 0 and not maps_in_loop(cfg)
    return (*sensors, MapSensorCfg(name=SEEN_MAP, **window)) if drifts else sensors
