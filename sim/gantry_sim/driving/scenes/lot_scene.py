"""Cars that park: lots with one free slot to stand in."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gantry_deploy.observations.surroundings import Surroundings
from gantry_hardware.model.cars import CarSpec
from gantry_sim.driving.drivers.cost_to_go import CostToGo
from gantry_sim.driving.drivers.park_driver import Parking, park_actions
from gantry_sim.driving.maps.bank import LotBank, lot_bank
from gantry_sim.driving.maps.generate import split_seeds
from gantry_sim.driving.maps.lots import LotConfig, parking_lot
from gantry_sim.driving.maps.projection import wrapped
from gantry_sim.driving.park_cfg import ParkCfg, WayCfg
from gantry_sim.driving.scenes.lot_starts import driven_out, goal_pose, in_aisle
from gantry_sim.driving.scenes.scene import Outcome, boxes_at, kept
from gantry_sim.driving.sensors.boxes import clearance, hits_segments, overlap
from gantry_sim.driving.sensors.lidar import cast_boxes, cast_segments, rays, scanner_of
from gantry_sim.driving.vehicle.cars import BatchedCars

RAYS_PER_BEAM = 2
"""A beam of the policy is the nearest of so many."""
STOCK = 256
"""Beginnings drawn at once."""
NO_LIMIT_M_S = 100.0
"""Speed limit where there is none."""


@functools.lru_cache(maxsize=4)
def _lots(config: LotConfig, split: str, count: int, device: str) -> LotBank:
    return lot_bank([parking_lot(seed, config) for seed in split_seeds(split, count)], device)


@functools.lru_cache(maxsize=2)
def _ways(config: LotConfig, split: str, count: int, device: str, spec: CarSpec, way: WayCfg) -> CostToGo:
    return CostToGo(_lots(config, split, count, device), spec, way)


def ways_of(cfg: ParkCfg, device: str) -> CostToGo:
    """The ways to the goals of a task's lots, worked out once, whether the task measures them or not."""
    return _ways(cfg.lots, cfg.map_split, cfg.map_count, device, cfg.driver, cfg.way or WayCfg())


class LotScene:
    """N cars, each alone on a parking lot of its own.

    What is earned is coming nearer to the slot, by the shortest way that a car can drive; going away costs as much, so
    that nothing is gained by going to and fro.

    Args:
        cfg: The task.
        cars: The cars.
        device: Of all tensors.
        generator: Of starts.
    """

    faults: tuple[str, ...] = ("static",)
    ends: tuple[str, ...] = ("static", "finished")
    extras = 4
    grounds = "parking lots"
    manners = None
    constant_factors = frozenset(("on_route", "speed", "ttc"))

    def __init__(self, cfg: ParkCfg, cars: BatchedCars, device: str, generator: torch.Generator) -> None:
        self.cfg, self.cars, self.device, self.generator = cfg, cars, device, generator
        self.spec = cfg.driver
        self.lots = _lots(cfg.lots, cfg.map_split, cfg.map_count, device)
        self.way = None if cfg.way is None else ways_of(cfg, device)
        """What measures the way to go; None for the straight distance."""
        count = cfg.num_envs
        self.lot = torch.zeros(count, dtype=torch.int64, device=device)
        """(N,) which lot."""
        self.goal = torch.zeros(count, 3, device=device)
        """(N, 3) where ``base_link`` shall end, in the world."""
        self.distance_to_go_m = torch.ones(count, device=device)
        """(N,) of the way to the goal."""
        self.began_m = torch.ones(count, device=device)
        """(N,) the same at the beginning of the episode."""
        self.driven_m = torch.zeros(count, device=device)
        """(N,) to and fro."""
        self._scanner = scanner_of(cfg.lidar, RAYS_PER_BEAM)
        self._next = STOCK
        self._stock = torch.zeros(STOCK, 4, device=device)

    @property
    def places(self) -> Tensor:
        """(N,) lot of each car."""
        return self.lot

    def begin(self, env_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Another lot for each of env_ids (m,): poses (m, 3) in the world, m and rad, and speeds (m,), 0 m/s."""
        parts: list[Tensor] = []
        while (left := len(env_ids) - sum(map(len, parts))) > 0:
            if self._next >= STOCK:
                self._stock, self._next = self._draw(), 0
            parts.append(self._stock[self._next : self._next + left].clone())
            self._next += len(parts[-1])
        drawn = torch.cat(parts)
        self.lot[env_ids] = drawn[:, 3].long()
        return drawn[:, :3], torch.zeros(len(env_ids), device=self.device)

    def _draw(self) -> Tensor:
        """``(STOCK, 4)``: pose and lot."""
        lot = torch.randint(0, len(self.lots.goal), (STOCK,), generator=self.generator, device=self.device)
        pose = in_aisle(self.lots, lot, self.spec, self.generator)
        if self.cfg.near_share > 0.0:
            near, driven = driven_out(self.lots, lot, self.spec, self.cfg, self.generator)
            chosen = torch.rand(STOCK, generator=self.generator, device=self.device) < self.cfg.near_share
            pose = torch.where((chosen & (driven > 0.0))[:, None], near, pose)
        return torch.cat((pose, lot[:, None].to(pose.dtype)), dim=1)

    def started(self, env_ids: Tensor) -> None:
        """Measure the way to go, m, of the cars of env_ids (m,) int64."""
        self.goal[env_ids] = goal_pose(self.lots, self.lot[env_ids], self.spec)
        self.distance_to_go_m = torch.where(self._these(env_ids), self._away(), self.distance_to_go_m)
        self.began_m[env_ids] = self.distance_to_go_m[env_ids]
        self.driven_m[env_ids] = 0.0

    def _these(self, env_ids: Tensor) -> Tensor:
        found = torch.zeros(self.cfg.num_envs, dtype=torch.bool, device=self.device)
        found[env_ids] = True
        return found

    @property
    def errors(self) -> tuple[Tensor, Tensor]:
        """Distance from the middle of the slot to the middle of the box, m, and heading error, rad; each (N,)."""
        slot, box = self.lots.goal[self.lot], boxes_at(self.cars.pose, self.spec)
        return torch.linalg.vector_norm(box[:, :2] - slot[:, :2], dim=1), wrapped(box[:, 2] - slot[:, 2])

    def _away(self) -> Tensor:
        if self.way is not None:
            return self.way.distance_to_go_m(self.cars.pose, self.lot)
        position, heading = self.errors
        return position + self.cfg.radian_m * heading.abs()

    def moved(self, time_s: Tensor) -> Outcome:
        """Check contacts and the pose of all cars, time_s (N,) s into their episodes."""
        cfg, lots, speed = self.cfg, self.lots, self.cars.speed_m_s
        box = boxes_at(self.cars.pose, self.spec)
        hit = overlap(box, lots.boxes[self.lot], lots.taken[self.lot]).any(dim=1)
        hit = hit | hits_segments(box, lots.walls[self.lot]).any(dim=1)
        position, heading = self.errors
        there = (position <= cfg.position_m) & (heading.abs() <= cfg.heading_rad) & (speed.abs() <= cfg.still_m_s)
        there = there & ~hit
        away = self._away()
        nearer = (100.0 - cfg.arrival_percent) * (self.distance_to_go_m - away) / cfg.whole_way_m
        self.distance_to_go_m = away
        self.driven_m = self.driven_m + speed.abs() * cfg.dt_s
        no, none = torch.zeros_like(hit), torch.zeros_like(speed)
        limit = torch.full_like(speed, NO_LIMIT_M_S)
        return Outcome(
            progress=nearer + cfg.arrival_percent * there,
            off_route=no,
            speed_limit_m_s=limit,
            safe_speed_m_s=limit,
            near_collision=no,
            lateral_m=none,
            lane_share=none,
            heading_error_rad=heading,
            in_junction=no,
            ends={"static": hit, "finished": there},
        )

    def surroundings(self) -> Surroundings:
        """The goal, and the scan."""
        origin, direction = rays(self._scanner, self.cars.pose)
        lots, layout = self.lots, self.cfg.lidar
        reach = cast_boxes(origin, direction, lots.boxes[self.lot], lots.taken[self.lot])
        reach = torch.minimum(reach, cast_segments(origin, direction, lots.walls[self.lot]))
        nearest = reach.view(-1, layout.beams, RAYS_PER_BEAM).amin(-1).clamp(max=layout.range_max_m)
        return Surroundings(scan_ranges_m=nearest, goal_pose=self.goal.clone())

    def line_ahead(self) -> None:
        """None: there is no lane."""

    def scripted_actions(self) -> Tensor:
        """Actions (N, 2) in [-1, 1] along the shortest way."""
        where = Parking(ways_of(self.cfg, self.device), self.lots, self.lot, self.cfg, *self.errors)
        return park_actions(self.cars, where)

    def drawn(self, time_s: Tensor) -> dict[str, Tensor]:
        """Nothing more, whatever time_s (N,) is, s."""
        return {}

    def whole_route(self, car: int) -> None:
        """None: there is no route."""

    def road_cells(self, car: int) -> None:
        """None: there is no road."""

    def critic_extras(self) -> Tensor:
        """Errors, distance to the nearest obstacle and way to go, scaled, (N, 4)."""
        position, heading = self.errors
        lots = self.lots
        gap = clearance(boxes_at(self.cars.pose, self.spec), lots.boxes[self.lot], lots.taken[self.lot])
        room = gap.amin(dim=1).clamp(-1.0, 5.0)
        return torch.stack((0.2 * position, heading.abs(), room, 0.1 * self.distance_to_go_m), dim=1)

    def summary(self, env_ids: Tensor) -> dict[str, Tensor]:
        """Summary of parking, (k,) each: completed share, distance driven [m], errors of the pose [m, rad]."""
        position, heading = self.errors
        there = (position <= self.cfg.position_m) & (heading.abs() <= self.cfg.heading_rad)
        there = (there & (self.cars.speed_m_s.abs() <= self.cfg.still_m_s))[env_ids]
        share = (1.0 - self.distance_to_go_m / self.began_m)[env_ids].clamp(0.0, 1.0)
        return {
            "completion": torch.where(there, 1.0, share),
            "driven_m": self.driven_m[env_ids],
            "position_error_m": position[env_ids],
            "heading_error_rad": heading[env_ids].abs(),
        }

    def state_dict(self) -> dict[str, Any]:
        """For an exact continuation."""
        names = ("lot", "goal", "distance_to_go_m", "began_m", "driven_m", "_stock")
        return kept({name: getattr(self, name) for name in names}) | {"next": self._next}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where it was."""
        for name in ("lot", "goal", "distance_to_go_m", "began_m", "driven_m", "_stock"):
            setattr(self, name, state[name].to(self.device))
        self._next = state["next"]
