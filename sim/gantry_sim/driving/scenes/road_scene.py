"""Cars on routes through procedural maps, alone or among others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gantry_deploy.observations.surroundings import PEDESTRIAN, STATIC, VEHICLE, Surroundings
from gantry_deploy.perception.road import AHEAD_M, BEHIND_M
from gantry_deploy.perception.simulated_road import RAYS_PER_BEAM
from gantry_sim.driving.cfg import DriveCfg
from gantry_sim.driving.drivers.baselines import ON_ROADS, rule_based
from gantry_sim.driving.maps.projection import Projection, Window, corner_offsets, project, window
from gantry_sim.driving.maps.tiles import road_tiles
from gantry_sim.driving.scenes.roads import Roads, RoadsCfg, roads
from gantry_sim.driving.scenes.scene import Outcome, boxes_at, kept
from gantry_sim.driving.scenes.starts import Starts
from gantry_sim.driving.sensors.boxes import corners, meets
from gantry_sim.driving.sensors.lidar import cast_boxes, rays, scanner_of
from gantry_sim.driving.traffic.traffic import Traffic
from gantry_sim.driving.vehicle.cars import BatchedCars

BEHIND, AHEAD = int(BEHIND_M), int(AHEAD_M) + 1
"""Points of the route that a car is shown, about a metre apart."""
OFF_ROAD_M = 0.3
"""A car is off the road if a corner is farther beyond the pavement than this."""
NEAR_S = 0.9
"""A collision so soon, if everybody went straight on, is a near one (CaRL's last look)."""
NEAR_M_S = 0.1
"""A car that is slower causes none."""
KINDS = {"pedestrian": PEDESTRIAN, "vehicle": VEHICLE, "static": STATIC}
"""Kinds of users that a car may collide with."""


def build_roads(cfg: DriveCfg, device: str) -> Roads:
    """The roads of a task."""
    traffic = cfg.traffic is not None
    return roads(RoadsCfg(cfg.maps, cfg.map_split, cfg.map_count, cfg.routes_per_map, cfg.route_m, traffic), device)


class RoadScene:
    """N cars, each on a route of its own and, with ``cfg.traffic``, among others that no other car meets.

    Args:
        cfg: The task.
        cars: The cars.
        device: Of all tensors.
        generator: Of starts.
        seed: Of traffic.
    """

    faults = (*KINDS, "red_light", "off_road")
    ends = (*KINDS, "red_light", "finished", "off_road")
    grounds = "roads"
    manners = ON_ROADS

    def __init__(self, cfg: DriveCfg, cars: BatchedCars, device: str, generator: torch.Generator, seed: int) -> None:
        count = cfg.num_envs
        self.cfg, self.cars, self.device, self.generator = cfg, cars, device, generator
        self.spec = cfg.driver
        self.roads = build_roads(cfg, device)
        self.routes = self.roads.lines
        self.traffic: Traffic | None = None
        if cfg.traffic is not None:
            assert self.roads.traffic is not None
            self.traffic = Traffic(cfg.traffic, self.roads.traffic, count, cfg.dt_s, seed)
        self.starts = Starts(cfg, self.roads, generator, seed + 1)
        self.extras = 2 if self.traffic is None else 8
        bev = cfg.bev
        self.tiles = None if bev is None else road_tiles(self.roads.maps, bev.metres_per_pixel, bev.reach_m, device)
        """The road as cells, where the policy sees them."""
        self._scanner = None if cfg.lidar is None else scanner_of(cfg.lidar, RAYS_PER_BEAM)
        self.route = self.roads.rows[torch.zeros(count, dtype=torch.int64, device=device)]
        """(N,) row of ``routes`` that each car drives."""
        self.driven_m = torch.zeros(count, device=device)
        """(N,) farthest place on the route, from where the car began."""
        self._index = torch.zeros(count, dtype=torch.int64, device=device)
        self.place: Projection = project(self.routes, self.route, self._index, cars.pose[:, :2])
        """Where on their routes the cars are."""

    @property
    def places(self) -> Tensor:
        """(N,) row of ``routes`` that each car drives."""
        return self.route

    @property
    def constant_factors(self) -> frozenset[str]:
        """Without traffic there are no near collisions."""
        return frozenset(() if self.traffic is not None else ("ttc",))

    @property
    def to_drive_m(self) -> Tensor:
        """(N,) length of each route from where its car started."""
        return self.routes.length_m[self.route] - BEHIND_M

    def begin(self, env_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Another route for each of env_ids (m,): poses (m, 3) in the world, m and rad, and speeds (m,), m/s."""
        pose, speed = torch.empty(len(env_ids), 3, device=self.device), torch.empty(len(env_ids), device=self.device)
        self._index, done = self.place.index.clone(), 0
        while done < len(env_ids):
            rows = self.starts.take(len(env_ids) - done)
            part, which = slice(done, done + len(rows)), env_ids[done : done + len(rows)]
            start = self.starts.start
            pose[part], speed[part] = start.pose[rows], start.speed_m_s[rows]
            self.route[which], self._index[which] = start.route[rows], start.index[rows]
            if self.traffic is not None and self.starts.traffic is not None:
                self.traffic.adopt(which, self.starts.traffic, rows)
            done += len(rows)
        self.driven_m[env_ids] = 0.0
        return pose, speed

    def started(self, env_ids: Tensor) -> None:
        """Find the cars of env_ids (m,) int64 on their routes."""
        self.place = project(self.routes, self.route, self._index, self.cars.pose[:, :2])

    def moved(self, time_s: Tensor) -> Outcome:
        """Move others on and check all cars, time_s (N,) s into their episodes."""
        boxes = boxes_at(self.cars.pose, self.spec)
        self.place = place = project(self.routes, self.route, self.place.index, self.cars.pose[:, :2])
        ends, near, safe = self._among_others(boxes, time_s)
        # Only new ground counts, so that nothing is earned by driving to and fro.
        driven = torch.maximum(self.driven_m, place.s_m - BEHIND_M).minimum(self.to_drive_m)
        progress = 100.0 * (driven - self.driven_m) / self.to_drive_m
        self.driven_m = driven
        beyond_lane, beyond_road = corner_offsets(self.routes, self.route, place.index, corners(boxes))
        half = torch.where(place.lateral_m > 0.0, place.left_m, place.right_m).clamp(min=0.5)
        heading = place.heading_error(self.cars.pose[:, 2])
        # The route's last metres lie under the car's nose when it has been driven.
        ends["finished"] = driven >= self.to_drive_m - 1.0
        ends["off_road"] = (beyond_road.amax(dim=1) > OFF_ROAD_M) | (heading.abs() > 0.5 * math.pi)
        return Outcome(
            progress=progress,
            off_route=(beyond_lane.amax(dim=1) > 0.0) & ~place.in_junction,
            speed_limit_m_s=place.speed_limit_m_s,
            safe_speed_m_s=safe,
            near_collision=near,
            lateral_m=place.lateral_m,
            lane_share=place.lateral_m / half,
            heading_error_rad=heading,
            in_junction=place.in_junction,
            ends=ends,
        )

    def _among_others(self, boxes: Tensor, time_s: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Collisions and red lights, near collisions, and the speed that others leave."""
        limit, speed = self.place.speed_limit_m_s, self.cars.speed_m_s
        no = torch.zeros_like(self.place.in_junction)
        if self.traffic is None:
            return {name: no for name in (*KINDS, "red_light")}, no, limit
        traffic = self.traffic
        line_m, light = traffic.car.stop_m, traffic.car.light
        traffic.step(boxes, speed, time_s)
        passed = (traffic.car.stop_m > line_m + 0.5) & (line_m < 2.0 * speed.abs() * self.cfg.dt_s + 0.5)
        others, kinds = traffic.objects, traffic.kinds
        velocity = others[..., 3:4] * torch.stack((torch.cos(others[..., 2]), torch.sin(others[..., 2])), dim=-1)
        own = speed[:, None] * torch.stack((torch.cos(boxes[:, 2]), torch.sin(boxes[:, 2])), dim=-1)
        now, soon = meets(
            boxes,
            torch.cat((others[..., :3], others[..., 4:6]), dim=-1),
            velocity - own[:, None],
            NEAR_S,
            others[..., 6] > 0.5,
        )
        ends = {name: (now & (kinds == kind)).any(dim=1) for name, kind in KINDS.items()}
        ends["red_light"] = passed & (light > 0.75)
        return ends, soon.any(dim=1) & (speed.abs() > NEAR_M_S), traffic.safe_speed(limit)

    def surroundings(self) -> Surroundings:
        """Routes and, where there is traffic, others and the next stop lines, told from the cars' noses."""
        around = self.line_ahead()
        objects = stop_line = kinds = cells = place = None
        if self.tiles is not None:
            cells, place = self.tiles.around(self.route // self.roads.per_map, self.cars.pose[:, :2])
            kinds = None if self.traffic is None else self.traffic.kinds
        if self.traffic is not None:
            objects = self.traffic.objects
            stop_line = torch.stack((self.traffic.car.stop_m, self.traffic.car.light), dim=1)
        return Surroundings(
            route_points_in_world_m=around.points,
            route_speed_limit_m_s=around.speed_limit_m_s,
            route_left_m=around.left_m,
            route_right_m=around.right_m,
            objects=objects,
            stop_line=stop_line,
            object_kinds=kinds,
            road_cells=cells,
            road_place=place,
            scan_ranges_m=self._scan(),
        )

    def line_ahead(self) -> Window:
        """The middle of the route's lane, in the world, m."""
        return window(self.routes, self.route, self.place.index, behind=BEHIND, count=BEHIND + AHEAD)

    def scripted_actions(self) -> Tensor:
        """Actions (N, 2) in [-1, 1] by rules, knowing what traffic's own drivers would know in the car's place."""
        others = None if self.traffic is None else self.traffic.car
        return rule_based(self.cars.pose, self.cars.speed_m_s, self.line_ahead(), others, self.spec, self.manners.rules)

    def drawn(self, time_s: Tensor) -> dict[str, Tensor]:
        """Place on the route (N,), m, and of traffic the kinds (N, K) and lights (N, J, G); ``time_s`` is (N,), s."""
        found = {"route_m": self.place.s_m}
        if self.traffic is None:
            return found
        return found | {"kinds": self.traffic.kinds, "lights": self.traffic.lights.state(time_s)}

    def whole_route(self, car: int) -> Tensor:
        """Table (P, 10) of a car's route in the world, m."""
        row = int(self.route[car])
        return self.routes.table[row, : int(self.routes.count[row])]

    def road_cells(self, car: int) -> tuple[Tensor, Tensor, float] | None:
        """Cells (rows, columns) of a car's map, their corner (2,) in the world, m, and their size, m."""
        if self.tiles is None:
            return None
        which = int(self.route[car]) // self.roads.per_map
        return self.tiles.cells[which], self.tiles.corner_m[which], self.tiles.cell_m

    def _scan(self) -> Tensor | None:
        """(N, beams) to the nearest of the others; None where the policy sees no scan."""
        layout = self.cfg.lidar
        if layout is None or self._scanner is None or self.traffic is None:
            return None
        origin, direction = rays(self._scanner, self.cars.pose)
        others = self.traffic.objects
        reach = cast_boxes(
            origin, direction, torch.cat((others[..., :3], others[..., 4:6]), dim=-1), others[..., 6] > 0.5
        )
        return reach.view(-1, layout.beams, RAYS_PER_BEAM).amin(-1).clamp(max=layout.range_max_m)

    def critic_extras(self) -> Tensor:
        """Share of the way left, whether in a junction, and what traffic's drivers know, scaled, (N, extras)."""
        parts = [1.0 - self.driven_m / self.to_drive_m, self.place.in_junction.float()]
        if self.traffic is not None:
            car, limit = self.traffic.car, self.place.speed_limit_m_s
            parts += [0.02 * car.gap_m.clamp(max=100.0), 0.1 * car.leader_m_s, 0.02 * car.stop_m.clamp(max=100.0)]
            parts += [car.light, car.give_way.float(), 0.1 * self.traffic.safe_speed(limit)]
        return torch.stack(parts, dim=1)

    def summary(self, env_ids: Tensor) -> dict[str, Tensor]:
        """Driven share of the route and distance, m, of the cars of env_ids (m,)."""
        share = self.driven_m[env_ids] / self.to_drive_m[env_ids]
        whole = self.driven_m[env_ids] >= self.to_drive_m[env_ids] - 1.0
        return {"completion": torch.where(whole, 1.0, share), "driven_m": self.driven_m[env_ids]}

    def state_dict(self) -> dict[str, Any]:
        """For an exact continuation."""
        own = {"route": self.route, "driven_m": self.driven_m}
        state = {"starts": self.starts.state_dict()} | kept(
            own | {f"place.{name}": value for name, value in vars(self.place).items()}
        )
        return state if self.traffic is None else state | {"traffic": self.traffic.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where it was."""
        tensors = {name: value.to(self.device) for name, value in state.items() if name not in ("traffic", "starts")}
        self.starts.load_state_dict(state["starts"])
        self.route, self.driven_m = tensors["route"], tensors["driven_m"]
        self.place = Projection(**{name[6:]: value for name, value in tensors.items() if name.startswith("place.")})
        if self.traffic is not None:
            self.traffic.load_state_dict(state["traffic"])
