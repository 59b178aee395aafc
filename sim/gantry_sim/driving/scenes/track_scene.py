"""Cars on closed tracks between walls, each alone, told by a scanner where the walls are."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gantry_deploy.observations.surroundings import Surroundings
from gantry_deploy.perception.road import AHEAD_M, BEHIND_M
from gantry_hardware.model.cars import car_spec
from gantry_sim.driving.drivers.baselines import ON_TRACKS, rule_based
from gantry_sim.driving.maps.bank import LineBank, line_bank
from gantry_sim.driving.maps.generate import split_seeds
from gantry_sim.driving.maps.graph import LEFT, RIGHT, YAW
from gantry_sim.driving.maps.projection import Projection, Window, pose_at, progress, project, window
from gantry_sim.driving.maps.tracks import TrackConfig, race_track
from gantry_sim.driving.scenes.scene import Outcome, boxes_at, kept, spread
from gantry_sim.driving.sensors.boxes import hits_segments
from gantry_sim.driving.sensors.lidar import LidarConfig
from gantry_sim.driving.sensors.wall_scan import cast_chains
from gantry_sim.driving.track_cfg import RaceCfg
from gantry_sim.driving.vehicle.cars import BatchedCars
from gantry_sim.process.device_work import numbers_like

BEHIND, AHEAD = int(BEHIND_M), int(AHEAD_M) + 1
"""Points of the middle line that drivers follow, behind and ahead of the car."""
BENDS_M = (0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0)
"""The critic is told how much the track bends so far ahead."""
ROUTE_BEHIND_M = 2.0
"""A policy with a map is shown so much of the track's middle line behind the car, and beyond its last look."""
SEEN_SHARE = 1.4
"""Of the scanner's range: so much of the walls is looked at, along the track, ahead and behind. The inner wall of a
bend is shorter than the middle line, so that within its range a scanner sees farther than that along the line."""


@functools.lru_cache(maxsize=4)
def track_bank(tracks: TrackConfig, split: str, count: int, device: str) -> LineBank:
    """Tracks from the first seeds of a split; the last few are kept, since each takes a tenth of a second."""
    return line_bank([race_track(seed, tracks) for seed in split_seeds(split, count)], device, spacing_m=None)


def wall_points(lines: LineBank) -> Tensor:
    """Left and right walls of R tracks at their L points, (R, L, 2, 2), world, m."""
    yaw = lines.table[..., YAW, None]
    normal = torch.cat((-torch.sin(yaw), torch.cos(yaw)), dim=-1)
    middle, sides = lines.table[..., :2], (lines.table[..., LEFT, None], -lines.table[..., RIGHT, None])
    return torch.stack([middle + side * normal for side in sides], dim=2)


class TrackScene:
    """N cars, each on a track of its own. Touching a wall, standing across the track and finishing end a race.

    A race begins anywhere on the track and ends there some laps later. Only new ground counts, so that nothing is
    earned by driving to and fro.

    Args:
        cfg: The task.
        cars: The cars.
        device: Of all tensors.
        generator: Of starts.
        lines: The tracks, closed; drawn from the task's split if not given.
    """

    faults: tuple[str, ...] = ("static",)
    ends: tuple[str, ...] = ("static", "finished", "wrong_way")
    extras = 5 + len(BENDS_M)
    grounds = "tracks"
    manners = ON_TRACKS
    constant_factors = frozenset(("on_route", "speed", "ttc"))

    def __init__(
        self, cfg: RaceCfg, cars: BatchedCars, device: str, generator: torch.Generator, lines: LineBank | None = None
    ) -> None:
        count = cfg.num_envs
        self.cfg, self.cars, self.device, self.generator = cfg, cars, device, generator
        self.spec = car_spec(cfg.robot)
        self.tracks = lines if lines is not None else track_bank(cfg.tracks, cfg.map_split, cfg.map_count, device)
        self._walls = wall_points(self.tracks)
        self._spacing_m = float(self.tracks.step_m.min())
        layout = cfg.lidar
        self._scanner = LidarConfig(
            layout.beams + 1,
            layout.angle_min_rad,
            layout.angle_max_rad,
            layout.range_max_m,
            mount_m=(layout.pos_x_in_base_m, 0.0),
        )
        self.track = torch.zeros(count, dtype=torch.int64, device=device)
        """(N,) row of ``tracks`` that each car is on."""
        self.along_m = torch.zeros(count, device=device)
        """(N,) way along the middle line since the start; what was driven back is taken off."""
        self.driven_m = torch.zeros(count, device=device)
        """(N,) farthest that ever was."""
        self.clock_s, self.lap_began_s = torch.zeros(count, device=device), torch.zeros(count, device=device)
        """(N,) time since the start, and when the running lap began."""
        self.best_lap_s = torch.full((count,), math.inf, device=device)
        """(N,) of the laps that were finished."""
        self._index = torch.zeros(count, dtype=torch.int64, device=device)
        self._ranges: Tensor | None = None
        self.place: Projection = project(self.tracks, self.track, self._index, cars.pose[:, :2])
        """Where on their tracks the cars are."""

    @property
    def places(self) -> Tensor:
        """(N,) row of ``tracks`` that each car is on."""
        return self.track

    @property
    def lap_m(self) -> Tensor:
        """(N,) length of a lap."""
        return self.tracks.length_m[self.track]

    @property
    def race_m(self) -> Tensor:
        """(N,) length of a race."""
        return self.cfg.laps * self.lap_m

    def begin(self, env_ids: Tensor) -> tuple[Tensor, Tensor]:
        """A start on another track for each of env_ids (m,): poses (m, 3) in the world, m and rad, speeds (m,), m/s."""
        cfg, count = self.cfg, len(env_ids)
        track = torch.randint(0, len(self.tracks), (count,), generator=self.generator, device=self.device)
        share = torch.rand(2, count, generator=self.generator, device=self.device)
        lateral = spread(count, cfg.start_lateral_m, self.generator)
        pose, index = pose_at(self.tracks, track, share[0] * self.tracks.length_m[track], lateral)
        turn = spread(count, cfg.start_heading_rad, self.generator)
        self._index = self.place.index.clone()
        self.track[env_ids], self._index[env_ids] = track, index
        for values in (self.along_m, self.driven_m, self.clock_s, self.lap_began_s):
            values[env_ids] = 0.0
        self.best_lap_s[env_ids] = math.inf
        return torch.cat((pose[:, :2], pose[:, 2:] + turn[:, None]), dim=1), share[1] * cfg.start_speed_m_s

    def started(self, env_ids: Tensor) -> None:
        """Find the cars of env_ids (m,) int64 on their tracks."""
        self.place = project(self.tracks, self.track, self._index, self.cars.pose[:, :2])
        self._ranges = None

    def moved(self, time_s: Tensor) -> Outcome:
        """Check progress and walls of all cars, time_s (N,) s into their episodes."""
        before_m, driven_before = self.place.s_m, self.driven_m
        self.place = place = project(self.tracks, self.track, self.place.index, self.cars.pose[:, :2])
        self._ranges = None
        gained = progress(self.tracks, self.track, before_m, place.s_m)
        self.along_m = self.along_m + gained
        self.driven_m = torch.maximum(driven_before, self.along_m).minimum(self.race_m)
        self._time_laps(driven_before, gained)
        half = torch.where(place.lateral_m > 0.0, place.left_m, place.right_m).clamp(min=0.1)
        heading, limit = place.heading_error(self.cars.pose[:, 2]), place.speed_limit_m_s
        no = torch.zeros_like(place.in_junction)
        return Outcome(
            progress=100.0 * (self.driven_m - driven_before) / self.race_m,
            off_route=no,
            speed_limit_m_s=limit,
            safe_speed_m_s=limit.clamp(max=self.spec.speed_limit_m_s),
            near_collision=no,
            lateral_m=place.lateral_m,
            lane_share=place.lateral_m / half,
            heading_error_rad=heading,
            in_junction=no,
            ends={
                "static": self._touches(),
                "finished": self.driven_m >= self.race_m,
                "wrong_way": heading.abs() > 0.5 * math.pi,
            },
        )

    def _time_laps(self, driven_before: Tensor, gained: Tensor) -> None:
        """Note the time of the laps that were finished in this step, between its beginning and its end."""
        self.clock_s = self.clock_s + self.cfg.dt_s
        laps = torch.floor(self.driven_m / self.lap_m + 1e-6)
        finished = laps > torch.floor(driven_before / self.lap_m + 1e-6)
        beyond = (self.along_m - laps * self.lap_m) / gained.clamp(min=1e-6)
        now = self.clock_s - beyond.clamp(0.0, 1.0) * self.cfg.dt_s
        self.best_lap_s = torch.where(finished, torch.minimum(self.best_lap_s, now - self.lap_began_s), self.best_lap_s)
        self.lap_began_s = torch.where(finished, now, self.lap_began_s)

    def _walls_around(self, reach_m: float) -> Tensor:
        """(N, 2, P, 2) points of the left and the right wall, so far ahead and behind along the middle line."""
        reach = math.ceil(reach_m / self._spacing_m)
        around = self.place.index[:, None] + torch.arange(-reach, reach + 2, device=self.device)
        around = torch.remainder(around, (self.tracks.count[self.track] - 1)[:, None])
        return self._walls[self.track[:, None], around].transpose(1, 2)

    def _touches(self) -> Tensor:
        """(N,) whether a wall is inside a car's box."""
        # In the tightest bend the inner wall has a third of the middle line's length.
        chains = self._walls_around(3.0 * self.spec.length_m)
        segments = torch.cat((chains[:, :, :-1], chains[:, :, 1:]), dim=-1).flatten(1, 2)
        return hits_segments(boxes_at(self.cars.pose, self.spec), segments).any(dim=1)

    def surroundings(self) -> Surroundings:
        """The scan and, for policies with a map, the track's middle line.

        A beam of the scan stands for a share of the angles, in which a real scanner has several; of a wall the nearest
        return is at one of the two ends of the share.
        """
        if self._ranges is None:
            chains = self._walls_around(SEEN_SHARE * self._scanner.range_max_m)
            ranges = cast_chains(self._scanner, self.cars.pose, chains)
            self._ranges = torch.minimum(ranges[:, :-1], ranges[:, 1:])
        if not self.cfg.lookahead_m:
            return Surroundings(scan_ranges_m=self._ranges)
        behind = math.ceil(ROUTE_BEHIND_M / self._spacing_m)
        ahead = math.ceil((max(self.cfg.lookahead_m) + ROUTE_BEHIND_M) / self._spacing_m)
        seen = window(self.tracks, self.track, self.place.index, behind=behind, count=behind + ahead)
        return Surroundings(
            route_points_in_world_m=seen.points,
            route_speed_limit_m_s=seen.speed_limit_m_s,
            route_left_m=seen.left_m,
            route_right_m=seen.right_m,
            scan_ranges_m=self._ranges,
        )

    def line_ahead(self) -> Window:
        """The middle of the track, in the world, m."""
        return window(self.tracks, self.track, self.place.index, behind=BEHIND, count=BEHIND + AHEAD)

    def scripted_actions(self) -> Tensor:
        """Actions (N, 2) in [-1, 1] along the middle of the track, by its bends."""
        cars = self.cars
        return rule_based(cars.pose, cars.speed_m_s, self.line_ahead(), None, self.cfg.driver, self.manners.rules)

    def drawn(self, time_s: Tensor) -> dict[str, Tensor]:
        """Place on the track (N,), m."""
        return {"route_m": self.place.s_m}

    def whole_route(self, car: int) -> None:
        """None: there is no route."""

    def road_cells(self, car: int) -> None:
        """None: there is no road."""

    def critic_extras(self) -> Tensor:
        """Share of the way left, place [m] and heading [rad] on the track, sliding, grip, bends, (N, extras)."""
        place = self.place
        own = (
            1.0 - self.driven_m / self.race_m,
            place.lateral_m,
            place.heading_error(self.cars.pose[:, 2]),
            self.cars.velocity_in_base_m_s[:, 1],
            self.cars.params.friction,
        )
        steps = [round(reach / self._spacing_m) for reach in BENDS_M]
        seen = window(self.tracks, self.track, place.index, behind=0, count=steps[-1] + 1)
        return torch.cat(
            (torch.stack(own, dim=1), 2.0 * seen.curvature.index_select(1, numbers_like(tuple(steps), place.index))),
            dim=1,
        )

    def summary(self, env_ids: Tensor) -> dict[str, Tensor]:
        """Driven share of the race and lap times [s] of the cars of env_ids (m,); times are 0 where there are none."""
        driven, race_m = self.driven_m[env_ids], self.race_m[env_ids]
        best, mean = self.best_lap_s[env_ids], self.lap_began_s[env_ids] / self.cfg.laps
        return {
            "completion": driven / race_m,
            "driven_m": driven,
            "laps": driven / self.lap_m[env_ids],
            "lap_time_s": torch.where(driven >= race_m, mean, 0.0),
            "best_lap_s": torch.where(best.isfinite(), best, 0.0),
        }

    def state_dict(self) -> dict[str, Any]:
        """For an exact continuation."""
        own = {name: getattr(self, name) for name in _STATE}
        return kept(own | {f"place.{name}": value for name, value in vars(self.place).items()})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where it was."""
        tensors = {name: value.to(self.device) for name, value in state.items()}
        for name in _STATE:
            setattr(self, name, tensors[name].clone())
        self.place = Projection(**{name[6:]: value for name, value in tensors.items() if name.startswith("place.")})
        self._ranges = None


_STATE = ("track", "along_m", "driven_m", "clock_s", "lap_began_s", "best_lap_s")
"""Tensors of a scene that a continuation needs beside the place on the track."""
