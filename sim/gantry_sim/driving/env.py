"""Cars on roads, lots and tracks: a batched core in torch, without a loop over cars."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gantry_deploy.contract.drive_spec import DRIVE, STEERING, DriveSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.observations.builder import ObservationBuilder, Signals
from gantry_hardware.model.cars import car_spec
from gantry_policies.common.batched_env import STATE, EnvStep, Observation
from gantry_policies.networks.layout import ObservationLayout
from gantry_sim.driving.cfg import CarTaskCfg
from gantry_sim.driving.comfort import Comfort
from gantry_sim.driving.reward import make_reward
from gantry_sim.driving.scenes.registry import drive_contract, make_scene
from gantry_sim.driving.scenes.scene import BLOCKED, MOVING_M_S, Outcome
from gantry_sim.driving.sensors.lidar import LidarConfig, finish
from gantry_sim.driving.step_info import StepInfo
from gantry_sim.driving.vehicle.cars import BatchedCars, CarsCfg
from gantry_sim.process.device_work import numbers_like

RECENT = 200.0
"""Episodes over which the progress of a training is told."""


@dataclass
class Ride:
    """Sums over the running episodes of N cars, each (N,)."""

    steps: Tensor
    """Decisions."""
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
        return cls(*(torch.zeros(num_envs, device=device) for _ in range(5)))


class DriveEnv:
    """N cars, each in surroundings of its own, that are paid for getting on.

    Implements :class:`gantry_policies.common.batched_env.BatchedEnv`. Observations are ``state``, built
    by the robot's own code from noisy signals, and ``critic``: the same but for a raster, what only the reward
    remembers, and what only the scene knows. An episode ends for good in the ways of the scene, or blocked; running
    out of time is told apart as truncated. Having arrived is an end for good, without anything to come, where CaRL's
    code treats it as running out of time.

    Args:
        cfg: The task.
        device: Of all tensors.
        seed: Of starts, noise, cars and traffic.
    """

    def __init__(self, cfg: CarTaskCfg, device: str = "cpu", seed: int = 0) -> None:
        self.cfg: Any = cfg
        self.num_envs, self.action_size, self.device = cfg.num_envs, 2, device
        self.dt_s = cfg.dt_s
        self.keep_final_obs = False
        """Whether ``next_obs`` holds the last observation of episodes that ended, at the price of looking twice."""
        self.max_episode_steps = max(1, round(cfg.episode_s * cfg.rate_hz))
        self.contract: PolicyContract = drive_contract(cfg)
        like = torch.zeros(cfg.num_envs, 1, device=device)
        self.decoder = embodiment_of(self.contract).make_decoder(self.contract, like)
        self._builder = ObservationBuilder(self.contract, like)
        self._layout = ObservationLayout.from_contract(self.contract)
        cars = CarsCfg(
            cfg.model, dt_s=cfg.dt_s, substeps=cfg.substeps, reverse=cfg.reverse, randomization=cfg.randomization
        )
        self.cars = BatchedCars(car_spec(cfg.robot), cfg.num_envs, cars, seed=seed, device=device)
        self.generator = torch.Generator(device).manual_seed(seed + 1)
        self.scene = make_scene(cfg, self.cars, device, self.generator, seed + 2)
        self.ends = (*self.scene.ends, BLOCKED)
        """How episodes may end but by running out of time; of several the first counts."""
        self.comfort = Comfort(cfg.comfort, cfg.num_envs, cfg.dt_s, device)
        self.reward = make_reward(cfg.reward, cfg.num_envs, cfg.dt_s, cfg.episode_s, device)
        self.ride = Ride.zeros(cfg.num_envs, device)
        self.episode_length_buf = torch.zeros(cfg.num_envs, dtype=torch.int64, device=device)
        self.last_action = torch.zeros(cfg.num_envs, 2, device=device)
        self.factors: dict[str, Tensor] = {}
        """Of the last reward, each (N,)."""
        self.ended: dict[str, Tensor] = {}
        """How the episodes that ended in the last step went: ``envs`` (m,), and what :meth:`_summary` says of them."""
        self._recent = dict.fromkeys(("completion", *self.ends), torch.zeros((), device=device))
        self.signals: Signals | None = None
        """What the actor's last observation was built from, noise included."""
        self._seen: Observation
        self.reset()
        # Otherwise all of them would run out of time together.
        self.episode_length_buf = torch.randint(
            0, self.max_episode_steps, (cfg.num_envs,), generator=self.generator, device=device
        )

    @property
    def obs_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of one observation, by key."""
        return {STATE: tuple(self._seen[STATE].shape[1:])}

    @property
    def drive(self) -> DriveSpec:
        """The contract's car."""
        return self.contract.body_as(DriveSpec)

    def reset(self) -> Observation:
        """New episodes everywhere, from their beginning; returns what is seen, (N, ...) by key."""
        self._begin(torch.arange(self.num_envs, device=self.device))
        self.episode_length_buf.zero_()
        self._look()
        return self.observe()

    def observe(self) -> Observation:
        """``state`` and ``critic`` of the running episodes, (N, ...) each; the same ones until the next step, noise and
        all.
        """
        return dict(self._seen)

    def step(self, actions: Tensor) -> EnvStep:
        """Decisions of all cars; those whose episode ends show the beginning of their next one.

        Args:
            actions: ``(N, 2)``, clipped to [-1, 1].
        """
        action = self.decoder.clip(actions.to(self.device))
        target = self.decoder(action, self.own_signals())
        assert target.acc_rad_s2 is not None
        self.cars.step(target.pos_rad[:, STEERING], target.acc_rad_s2[:, DRIVE])
        self.episode_length_buf += 1
        outcome = self.scene.moved(self.episode_length_buf * self.dt_s)
        ends = self._ends(outcome)
        reward, self.factors = self.reward(self._step_info(outcome, ends, action))
        self.last_action = action
        terminated = torch.stack(list(ends.values())).any(dim=0)
        late = (self.episode_length_buf >= self.max_episode_steps) & ~terminated
        done = terminated | late
        which = done.nonzero().squeeze(1)
        self.ended = self._summary(which, ends)
        last = self._last_look() if self.keep_final_obs and which.numel() else None
        if which.numel():
            self._remember()
            self._begin(which)
        self._look()
        obs = next_obs = self.observe()
        if last is not None:
            next_obs = {key: torch.where(done[:, None], last[key], value) for key, value in obs.items()}
        success = self._succeeded(which)
        return EnvStep(obs, next_obs, reward, terminated, late, success)

    def expert_action(self) -> Tensor:
        """Actions of the scene's scripted driver in the present state, ``(N, 2)`` in [-1, 1].

        Raises:
            GantryError: If the scene has none.
        """
        return self.scene.scripted_actions()

    def step_metrics(self) -> dict[str, Tensor]:
        """Means over the environments of this step, and over some hundred recent episodes; scalars, speed in m/s."""
        found = {f"factor_{name}": value.mean() for name, value in self.factors.items()}
        found["speed_m_s"] = self.cars.speed_m_s.mean()
        return found | self._recent

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """Generators of all that is drawn: starts and noise, cars, traffic."""
        traffic = getattr(self.scene, "traffic", None)
        return self.generator, self.cars.generator, *(() if traffic is None else (traffic.generator,))

    def training_state(self) -> dict[str, Any]:
        """State for an exact continuation."""
        state = {f"ride.{name}": value.clone() for name, value in vars(self.ride).items()}
        state |= {name: getattr(self, name).clone() for name in ("episode_length_buf", "last_action")}
        state |= {f"seen.{name}": value.clone() for name, value in self._seen.items()}
        return {
            "tensors": state,
            "scene": self.scene.state_dict(),
            "cars": self.cars.state_dict(),
            "comfort": self.comfort.state_dict(),
            "reward": self.reward.state_dict(),
            "recent": dict(self._recent),
            "past": self._builder.past,
            "generator": self.generator.get_state(),
        }

    def restore_training_state(self, state: dict[str, Any]) -> None:
        """Go on inside the episodes."""
        tensors = {name: value.to(self.device) for name, value in state["tensors"].items()}
        self.ride = Ride(**{name[5:]: value for name, value in tensors.items() if name.startswith("ride.")})
        self._seen = {name[5:]: value for name, value in tensors.items() if name.startswith("seen.")}
        for name in ("episode_length_buf", "last_action"):
            setattr(self, name, tensors[name])
        self.cars.load_state_dict(state["cars"])
        self.scene.load_state_dict(state["scene"])
        self.comfort.load_state_dict(state["comfort"])
        self.reward.load_state_dict(state["reward"])
        self._recent = {name: value.to(self.device) for name, value in state["recent"].items()}
        past = state["past"]
        self._builder.past = None if past is None else tuple(kept.to(self.device) for kept in past)
        self.generator.set_state(state["generator"].cpu())

    def close(self) -> None:
        """Nothing to be closed."""

    def _ends(self, outcome: Outcome) -> dict[str, Tensor]:
        """At most one of them true for each car."""
        ride = self.ride
        ride.still = torch.where(self.cars.speed_m_s.abs() > MOVING_M_S, 0.0, ride.still + 1)
        raw = dict(outcome.ends) | {BLOCKED: ride.still * self.dt_s >= self.cfg.blocked_s}
        over = torch.zeros_like(outcome.off_route)
        found: dict[str, Tensor] = {}
        for name in self.ends:
            found[name] = raw[name] & ~over
            over = over | raw[name]
        return found

    def _step_info(self, outcome: Outcome, ends: dict[str, Tensor], action: Tensor) -> StepInfo:
        """Quantities that rewards use; counts them, too."""
        fault = torch.zeros_like(outcome.off_route)
        for name in self.scene.faults:
            fault = fault | ends[name]
        info = StepInfo(
            progress=outcome.progress,
            off_route=outcome.off_route,
            speed_m_s=self.cars.speed_m_s,
            speed_limit_m_s=outcome.speed_limit_m_s,
            near_collision=outcome.near_collision,
            discomfort=self.comfort(self.cars.accel_in_base_m_s2, self.cars.yaw_rate_rad_s),
            lane_share=outcome.lane_share,
            heading_error_rad=outcome.heading_error_rad,
            in_junction=outcome.in_junction,
            steer_change=action[:, 0] - self.last_action[:, 0],
            safe_speed_m_s=outcome.safe_speed_m_s,
            fault=fault,
            look=lambda: (self.scene.surroundings(), self.cars.pose),
        )
        ride = self.ride
        ride.steps = ride.steps + 1
        ride.lateral_sq_m2 = ride.lateral_sq_m2 + outcome.lateral_m**2
        ride.off_route = ride.off_route + info.off_route
        ride.discomfort = ride.discomfort + info.discomfort.any(dim=1)
        return info

    def _summary(self, which: Tensor, ends: dict[str, Tensor]) -> dict[str, Tensor]:
        ride = self.ride
        steps = ride.steps[which].clamp(min=1)
        found = {name: value[which] for name, value in ends.items()} | self.scene.summary(which)
        return found | {
            "envs": which,
            "duration_s": steps * self.dt_s,
            "lateral_rmse_m": (ride.lateral_sq_m2[which] / steps).sqrt(),
            "off_route_share": ride.off_route[which] / steps,
            "discomfort_share": ride.discomfort[which] / steps,
        }

    def _remember(self) -> None:
        """Update the means of recent episodes, which forget by episodes, not by steps."""
        weight = 1.0 - (1.0 - 1.0 / RECENT) ** len(self.ended["envs"])
        for name in ("completion", *self.ends):
            now = self.ended[name].float().mean()
            self._recent[name] = torch.lerp(self._recent[name], now, weight)

    def _begin(self, env_ids: Tensor) -> None:
        pose, speed_m_s = self.scene.begin(env_ids)
        self.cars.reset(env_ids, pose, speed_m_s)
        for values in vars(self.ride).values():
            values[env_ids] = 0.0
        self.last_action[env_ids] = 0.0
        self.episode_length_buf[env_ids] = 0
        self.comfort.reset(env_ids)
        self.reward.reset(env_ids)
        new = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        new[env_ids] = True
        self._builder.reset(new)
        self.scene.started(env_ids)

    def _succeeded(self, which: Tensor) -> Tensor:
        """(N,) bool: episodes that have just ended with the whole route driven, or the goal reached."""
        success = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        success[which] = self.ended["completion"] >= 1.0
        return success

    def _last_look(self) -> Observation:
        """Observation before ended episodes begin anew, without any effect on what is seen later but for noise."""
        past, signals = self._builder.past, self.signals
        self._look()
        last = self.observe()
        self._builder.past, self.signals = past, signals
        return last

    def _look(self) -> None:
        self.signals = self._noisy(self.exact_signals())
        actor = self._builder(self.signals)
        # Built once: what noise hides from a critic is little, and building is a fifth of a step.
        critic = torch.cat((self._layout.all_but_raster(actor), self._critic_extras()), dim=1)
        self._seen = {STATE: actor, "critic": critic}

    def exact_signals(self) -> Signals:
        """Signals of the actor without noise."""
        return replace(self.own_signals(), surroundings=self.scene.surroundings())

    def own_signals(self) -> Signals:
        """Signals of the cars' own motion without noise."""
        cars, zeros = self.cars, torch.zeros(self.num_envs, device=self.device)
        pose = cars.pose
        half_yaw = 0.5 * pose[:, 2]
        return Signals(
            joint_pos_rad=torch.stack((cars.steering_rad, zeros), dim=1),
            joint_vel_rad_s=torch.stack((zeros, cars.speed_m_s), dim=1),
            quat_base_to_world_wxyz=torch.stack((torch.cos(half_yaw), zeros, zeros, torch.sin(half_yaw)), dim=1),
            ang_vel_base_in_base_rad_s=torch.stack((zeros, zeros, cars.yaw_rate_rad_s), dim=1),
            command=torch.zeros(self.num_envs, 0, device=self.device),
            last_action=self.last_action,
            time_s=self.episode_length_buf * self.dt_s,
            lin_vel_base_in_base_m_s=torch.cat((cars.velocity_in_base_m_s, zeros[:, None]), dim=1),
            pose_in_world=pose,
        )

    def _noisy(self, exact: Signals) -> Signals:
        noise = self.cfg.noise
        if noise is None:
            return exact

        def white(like: Tensor, std: tuple[float, ...]) -> Tensor:
            drawn = torch.randn(like.shape, generator=self.generator, device=self.device)
            return like + drawn * numbers_like(std, drawn)

        around, velocity = exact.surroundings, exact.lin_vel_base_in_base_m_s
        assert around is not None
        assert velocity is not None
        assert exact.pose_in_world is not None
        if around.objects is not None:
            std = (noise.object_pos_m, noise.object_pos_m, noise.object_yaw_rad, noise.object_speed_m_s, 0.0, 0.0, 0.0)
            around = replace(around, objects=white(around.objects, std))
        layout = self.drive.lidar
        if around.scan_ranges_m is not None and layout is not None:
            scanner = LidarConfig(range_max_m=layout.range_max_m, noise_std_m=noise.scan_m, dropout=noise.scan_dropout)
            around = replace(around, scan_ranges_m=finish(scanner, around.scan_ranges_m, self.generator))
        return replace(
            exact,
            joint_pos_rad=white(exact.joint_pos_rad, (noise.steering_rad, 0.0)),
            ang_vel_base_in_base_rad_s=white(exact.ang_vel_base_in_base_rad_s, (0.0, 0.0, noise.yaw_rate_rad_s)),
            lin_vel_base_in_base_m_s=white(velocity, (noise.speed_m_s, 0.0, 0.0)),
            pose_in_world=white(exact.pose_in_world, (noise.pos_m, noise.pos_m, noise.yaw_rad)),
            surroundings=around,
            route=None,
            objects_on_route=None,
        )

    def _critic_extras(self) -> Tensor:
        """``(N, 9 + E)``: time left, time till blocked, what the reward remembers, and what the scene knows."""
        left = 1.0 - self.episode_length_buf / self.max_episode_steps
        still = self.ride.still * self.dt_s / self.cfg.blocked_s
        return torch.cat((left[:, None], still[:, None], self.reward.remembered, self.scene.critic_extras()), dim=1)
