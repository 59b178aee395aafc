"""Cars on roads as rsl_rl's ``VecEnv``: a batched core in torch, without a loop over cars."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from gantry_deploy.contract import PolicyContract
from gantry_deploy.drive import DriveDecoder
from gantry_deploy.observations import ObservationBuilder, Signals
from gantry_deploy.surroundings import Surroundings
from gantry_hardware.cars import car_spec
from gantry_sim.driving.boxes import corners
from gantry_sim.driving.cars import BatchedCars, CarsCfg
from gantry_sim.driving.cfg import DriveCfg
from gantry_sim.driving.comfort import Comfort
from gantry_sim.driving.contract import lane_contract
from gantry_sim.driving.maps.bank import LineBank, line_bank
from gantry_sim.driving.maps.generate import MapConfig, lane_map, split_seeds
from gantry_sim.driving.maps.projection import Projection, corner_offsets, pose_at, project, window
from gantry_sim.driving.maps.routes import random_route
from gantry_sim.driving.reward import DriveFacts, make_reward

BEHIND, AHEAD = 6, 64
"""Points of the route that a car is shown, about a metre apart."""
MOVING_M_S = 0.3
"""A slower car does not move."""
OFF_ROAD_M = 0.3
"""A car is off the road if a corner is farther beyond the pavement than this."""


@dataclass
class Ride:
    """What the running episodes of N cars have amounted to, each (N,)."""

    steps: Tensor
    """Decisions."""
    driven_m: Tensor
    """Farthest place on the route, from the start."""
    lateral_sq_m2: Tensor
    """Sum of squares of the distance from the lane's middle."""
    off_route: Tensor
    """Decisions outside the route's lane."""
    discomfort: Tensor
    """Decisions with some limit of comfort exceeded."""
    still: Tensor
    """Decisions since the car moved."""

    @classmethod
    def zeros(cls, num_envs: int, device: str) -> Ride:
        """Nothing yet."""
        return cls(*(torch.zeros(num_envs, device=device) for _ in range(6)))


def build_routes(cfg: DriveCfg, device: str) -> LineBank:
    """The routes of a task's maps, ``map_count * routes_per_map`` of them; the same for the same configuration."""
    return _routes(_Roads(cfg.maps, cfg.map_split, cfg.map_count, cfg.routes_per_map, cfg.route_m), device)


@dataclass(frozen=True)
class _Roads:
    """What routes depend on. Drawing maps takes seconds, and several environments in turn want the same ones."""

    maps: MapConfig
    split: str
    count: int
    routes_per_map: int
    route_m: float

    def __hash__(self) -> int:
        return hash(repr(self))


@functools.lru_cache(maxsize=4)
def _routes(roads: _Roads, device: str) -> LineBank:
    lines = []
    for seed in split_seeds(roads.split, roads.count):
        drawn = lane_map(seed, roads.maps)
        rng = np.random.default_rng((seed, 1))
        lines += [random_route(drawn, rng, roads.route_m) for _ in range(roads.routes_per_map)]
    return line_bank(lines, device)


class DriveEnv(VecEnv):
    """N cars, each on a route of its own, that are paid for following it.

    Observations are the groups ``actor``, built by the robot's own code from noisy signals, and ``critic``: the same
    without noise, and what only the reward remembers. An episode ends for good with the end of the route, off the road,
    or blocked; running out of time is told apart in ``time_outs``. The end of the route is an end for good, without
    anything to come, where CaRL's code treats it as running out of time.

    Args:
        cfg: The task.
        device: Of all tensors.
        seed: Of starts, noise and cars.
    """

    def __init__(self, cfg: DriveCfg, device: str = "cpu", seed: int = 0) -> None:
        self.cfg: Any = cfg
        self.num_envs, self.num_actions, self.device = cfg.num_envs, 2, device
        self.step_dt = cfg.dt_s
        self.max_episode_length = max(1, round(cfg.episode_s * cfg.rate_hz))
        self.contract: PolicyContract = lane_contract(cfg)
        self.routes = build_routes(cfg, device)
        like = torch.zeros(cfg.num_envs, 1, device=device)
        self.decoder = DriveDecoder(self.contract, like)
        self._builders = [ObservationBuilder(self.contract, like) for _ in range(2)]
        spec = car_spec(cfg.robot)
        cars = CarsCfg(cfg.model, dt_s=cfg.dt_s, substeps=cfg.substeps, reverse=False, randomization=cfg.randomization)
        self.cars = BatchedCars(spec, cfg.num_envs, cars, seed=seed, device=device)
        self._box = torch.tensor([spec.center_x_in_base_m, spec.length_m, spec.width_m], device=device)
        self.generator = torch.Generator(device).manual_seed(seed + 1)
        self.comfort = Comfort(cfg.comfort, cfg.num_envs, cfg.dt_s, device)
        self.reward = make_reward(cfg.reward, cfg.num_envs, cfg.dt_s, cfg.episode_s, device)
        self.ride = Ride.zeros(cfg.num_envs, device)
        self.route = torch.zeros(cfg.num_envs, dtype=torch.int64, device=device)
        self.start_m = torch.zeros(cfg.num_envs, device=device)
        self.episode_length_buf = torch.zeros(cfg.num_envs, dtype=torch.int64, device=device)
        self.last_action = torch.zeros(cfg.num_envs, 2, device=device)
        self.factors: dict[str, Tensor] = {}
        """Of the last reward, each (N,)."""
        self.ended: dict[str, Tensor] = {}
        """How the episodes that ended in the last step went: ``envs`` (m,), and what :meth:`_summary` says of them."""
        self.signals: Signals | None = None
        """What the actor's last observation was built from, noise included."""
        self.place: Projection
        self._seen: dict[str, Tensor]
        self.reset()
        # Otherwise all of them would run out of time together.
        self.episode_length_buf = torch.randint(
            0, self.max_episode_length, (cfg.num_envs,), generator=self.generator, device=device
        )

    def reset(self) -> TensorDict:
        """New episodes everywhere, from their beginning."""
        self._begin(torch.arange(self.num_envs, device=self.device))
        self.episode_length_buf.zero_()
        self._look()
        return self.get_observations()

    def get_observations(self) -> TensorDict:
        """Groups ``actor`` and ``critic`` of the running episodes; the same ones until the next step, noise and all."""
        return TensorDict(dict(self._seen), batch_size=[self.num_envs], device=self.device)

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Decisions of all cars; those whose episode ends show the beginning of their next one.

        Args:
            actions: ``(N, 2)``, clipped to [-1, 1].
        """
        action = self.decoder.clip(actions.to(self.device))
        target = self.decoder(action, self.cars.speed_m_s)
        self.cars.step(target.steering_rad, target.accel_m_s2)
        self.episode_length_buf += 1
        before = self.place.s_m
        self.place = project(self.routes, self.route, self.place.index, self.cars.pose[:, :2])
        facts, off_road = self._facts(before, action)
        reward, self.factors = self.reward(facts)
        self._count(facts)
        self.last_action = action
        ends = self._ends(off_road)
        terminated = ends["finished"] | ends["off_road"] | ends["blocked"]
        late = (self.episode_length_buf >= self.max_episode_length) & ~terminated
        done = terminated | late
        which = done.nonzero().squeeze(1)
        self.ended = self._summary(which, ends)
        if which.numel():
            self._begin(which)
        self._look()
        return self.get_observations(), reward, done.long(), {"time_outs": late}

    def step_metrics(self) -> dict[str, Tensor]:
        """Means over the environments, of the step just taken."""
        found = {f"factor_{name}": value.mean() for name, value in self.factors.items()}
        found["speed_m_s"] = self.cars.speed_m_s.mean()
        if len(self.ended["envs"]):
            found["completion"] = self.ended["completion"].mean()
        return found

    def training_state(self) -> dict[str, Any]:
        """What an exact continuation needs."""
        state = {f"ride.{name}": value.clone() for name, value in vars(self.ride).items()}
        names = ("route", "start_m", "episode_length_buf", "last_action")
        state |= {name: getattr(self, name).clone() for name in names}
        state |= {f"place.{name}": value.clone() for name, value in vars(self.place).items()}
        state |= {f"seen.{name}": value.clone() for name, value in self._seen.items()}
        return {
            "tensors": state,
            "cars": self.cars.state_dict(),
            "comfort": self.comfort.state_dict(),
            "reward": self.reward.state_dict(),
            "generator": self.generator.get_state(),
        }

    def restore_training_state(self, state: dict[str, Any]) -> None:
        """Go on inside the episodes."""
        tensors = {name: value.to(self.device) for name, value in state["tensors"].items()}
        self.ride = Ride(**{name[5:]: value for name, value in tensors.items() if name.startswith("ride.")})
        self.place = Projection(**{name[6:]: value for name, value in tensors.items() if name.startswith("place.")})
        self._seen = {name[5:]: value for name, value in tensors.items() if name.startswith("seen.")}
        for name in ("route", "start_m", "episode_length_buf", "last_action"):
            setattr(self, name, tensors[name])
        self.cars.load_state_dict(state["cars"])
        self.comfort.load_state_dict(state["comfort"])
        self.reward.load_state_dict(state["reward"])
        self.generator.set_state(state["generator"].cpu())

    def close(self) -> None:
        """Nothing to be closed."""

    @property
    def to_drive_m(self) -> Tensor:
        """(N,) length of each route from where its car started."""
        return self.routes.length_m[self.route] - self.start_m

    def _facts(self, before_m: Tensor, action: Tensor) -> tuple[DriveFacts, Tensor]:
        place, speed = self.place, self.cars.speed_m_s
        centre_x, length, width = self._box
        pose = self.cars.pose
        cos, sin = torch.cos(pose[:, 2]), torch.sin(pose[:, 2])
        centre = pose[:, :2] + centre_x * torch.stack((cos, sin), dim=1)
        ones = torch.ones_like(speed)
        boxes = torch.stack((centre[:, 0], centre[:, 1], pose[:, 2], length * ones, width * ones), dim=1)
        beyond_lane, beyond_road = corner_offsets(self.routes, self.route, place.index, corners(boxes))
        half = torch.where(place.lateral_m > 0.0, place.left_m, place.right_m).clamp(min=0.5)
        # Only new ground counts, so that nothing is earned by driving to and fro.
        driven = torch.maximum(self.ride.driven_m, place.s_m - self.start_m).minimum(self.to_drive_m)
        progress = 100.0 * (driven - self.ride.driven_m) / self.to_drive_m
        no = torch.zeros_like(place.in_junction)
        heading = place.heading_error(pose[:, 2])
        facts = DriveFacts(
            progress=progress,
            off_route=(beyond_lane.amax(dim=1) > 0.0) & ~place.in_junction,
            speed_m_s=speed,
            speed_limit_m_s=place.speed_limit_m_s,
            near_collision=no,
            discomfort=self.comfort(self.cars.accel_in_base_m_s2, self.cars.yaw_rate_rad_s),
            lane_share=place.lateral_m / half,
            heading_error_rad=heading,
            in_junction=place.in_junction,
            steer_change=action[:, 0] - self.last_action[:, 0],
            safe_speed_m_s=place.speed_limit_m_s,
            infraction=no,
        )
        self.ride.driven_m = driven
        return facts, (beyond_road.amax(dim=1) > OFF_ROAD_M) | (heading.abs() > 0.5 * math.pi)

    def _count(self, facts: DriveFacts) -> None:
        ride = self.ride
        ride.steps = ride.steps + 1
        ride.lateral_sq_m2 = ride.lateral_sq_m2 + self.place.lateral_m**2
        ride.off_route = ride.off_route + facts.off_route
        ride.discomfort = ride.discomfort + facts.discomfort.any(dim=1)
        ride.still = torch.where(facts.speed_m_s.abs() > MOVING_M_S, 0.0, ride.still + 1)

    def _ends(self, off_road: Tensor) -> dict[str, Tensor]:
        # The route's last metres lie under the car's nose when it has been driven.
        finished = self.ride.driven_m >= self.to_drive_m - 1.0
        blocked = self.ride.still * self.step_dt >= self.cfg.blocked_s
        return {"finished": finished, "off_road": off_road & ~finished, "blocked": blocked & ~finished & ~off_road}

    def _summary(self, which: Tensor, ends: dict[str, Tensor]) -> dict[str, Tensor]:
        ride = self.ride
        steps = ride.steps[which].clamp(min=1)
        found = {name: value[which] for name, value in ends.items()}
        completion = ride.driven_m[which] / self.to_drive_m[which]
        return found | {
            "envs": which,
            "completion": torch.where(found["finished"], torch.ones_like(completion), completion),
            "driven_m": ride.driven_m[which],
            "duration_s": steps * self.step_dt,
            "lateral_rmse_m": (ride.lateral_sq_m2[which] / steps).sqrt(),
            "off_route_share": ride.off_route[which] / steps,
            "discomfort_share": ride.discomfort[which] / steps,
        }

    def _begin(self, env_ids: Tensor) -> None:
        count = len(env_ids)

        def uniform(half: float) -> Tensor:
            return half * (2.0 * torch.rand(count, generator=self.generator, device=self.device) - 1.0)

        route = torch.randint(0, len(self.routes), (count,), generator=self.generator, device=self.device)
        # Some way in, so that there is a route behind the car as well.
        start = torch.full((count,), float(BEHIND), device=self.device)
        pose, index = pose_at(self.routes, route, start, uniform(self.cfg.start_lateral_m))
        pose = torch.cat((pose[:, :2], pose[:, 2:] + uniform(self.cfg.start_heading_rad)[:, None]), dim=1)
        self.route[env_ids], self.start_m[env_ids] = route, start
        limit = project(self.routes, route, index, pose[:, :2]).speed_limit_m_s
        share = 0.5 * (1.0 + uniform(1.0)) * self.cfg.start_speed_share
        self.cars.reset(env_ids, pose, share * limit)
        for values in vars(self.ride).values():
            values[env_ids] = 0.0
        self.last_action[env_ids] = 0.0
        self.episode_length_buf[env_ids] = 0
        self.comfort.reset(env_ids)
        self.reward.reset(env_ids)
        last = torch.zeros_like(self.route) if not hasattr(self, "place") else self.place.index.clone()
        last[env_ids] = index
        self.place = project(self.routes, self.route, last, self.cars.pose[:, :2])

    def _look(self) -> None:
        exact = self.exact_signals()
        self.signals = self._noisy(exact)
        critic = torch.cat((self._builders[1](exact), self._critic_extras()), dim=1)
        self._seen = {"actor": self._builders[0](self.signals), "critic": critic}

    def exact_signals(self) -> Signals:
        """What the actor would see without noise."""
        cars, zeros = self.cars, torch.zeros(self.num_envs, device=self.device)
        pose = cars.pose
        around = window(self.routes, self.route, self.place.index, behind=BEHIND, count=BEHIND + AHEAD)
        half_yaw = 0.5 * pose[:, 2]
        return Signals(
            joint_pos_rad=torch.stack((cars.steering_rad, zeros), dim=1),
            joint_vel_rad_s=torch.stack((zeros, cars.speed_m_s), dim=1),
            quat_base_to_world_wxyz=torch.stack((torch.cos(half_yaw), zeros, zeros, torch.sin(half_yaw)), dim=1),
            ang_vel_base_in_base_rad_s=torch.stack((zeros, zeros, cars.yaw_rate_rad_s), dim=1),
            command=torch.zeros(self.num_envs, 0, device=self.device),
            last_action=self.last_action,
            time_s=self.episode_length_buf * self.step_dt,
            lin_vel_base_in_base_m_s=torch.cat((cars.velocity_in_base_m_s, zeros[:, None]), dim=1),
            pose_in_world=pose,
            surroundings=Surroundings(
                route_points_in_world_m=around.points,
                route_speed_limit_m_s=around.speed_limit_m_s,
                route_left_m=around.left_m,
                route_right_m=around.right_m,
            ),
        )

    def _noisy(self, exact: Signals) -> Signals:
        noise = self.cfg.noise
        if noise is None:
            return exact

        def white(like: Tensor, std: tuple[float, ...]) -> Tensor:
            drawn = torch.randn(like.shape, generator=self.generator, device=self.device)
            return like + drawn * torch.tensor(std, device=self.device)

        assert exact.lin_vel_base_in_base_m_s is not None
        assert exact.pose_in_world is not None
        return replace(
            exact,
            joint_pos_rad=white(exact.joint_pos_rad, (noise.steering_rad, 0.0)),
            ang_vel_base_in_base_rad_s=white(exact.ang_vel_base_in_base_rad_s, (0.0, 0.0, noise.yaw_rate_rad_s)),
            lin_vel_base_in_base_m_s=white(exact.lin_vel_base_in_base_m_s, (noise.speed_m_s, 0.0, 0.0)),
            pose_in_world=white(exact.pose_in_world, (noise.pos_m, noise.pos_m, noise.yaw_rad)),
            route=None,
        )

    def _critic_extras(self) -> Tensor:
        """``(N, 11)``: time and way left, time till blocked, what the reward remembers, whether in a junction."""
        left = 1.0 - self.episode_length_buf / self.max_episode_length
        way = 1.0 - self.ride.driven_m / self.to_drive_m
        still = self.ride.still * self.step_dt / self.cfg.blocked_s
        parts = torch.stack((left, way, still, self.place.in_junction.float()), dim=1)
        return torch.cat((parts, self.reward.remembered), dim=1)
