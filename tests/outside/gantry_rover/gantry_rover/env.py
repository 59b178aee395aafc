"""Batched rovers that follow a velocity command."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_deploy.contract.parts import BODY_VELOCITY, BODY_VELOCITY_NAMES, Acceptance, ActionSpec, CommandSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.observations.builder import ObservationBuilder, Signals, make_term
from gantry_policies.common.batched_env import STATE, EnvStep, Observation
from gantry_rover.embodiment import WHEEL_TARGET, WheelDecoder
from gantry_rover.robot import ROVER, RoverBody, speeds_after

MOST_RAD_S = 10.0
CLOSE = 0.1


@dataclass(frozen=True)
class RoverCfg:
    """Environments of the task."""

    num_envs: int = 64
    """Rovers side by side."""
    episode_steps: int = 50
    """Control steps of an episode."""
    rate_hz: float = 50.0
    """Control rate."""


def contract_of(cfg: RoverCfg) -> PolicyContract:
    """The contract of the task's policies."""
    return PolicyContract(
        robot=ROVER.name,
        embodiment=ROVER.embodiment,
        rate_hz=cfg.rate_hz,
        joint_names=ROVER.joint_names,
        joint_lower_rad=ROVER.numbers("lower_rad"),
        joint_upper_rad=ROVER.numbers("upper_rad"),
        default_pos_rad=ROVER.numbers("default_rad"),
        stiffness_nm_rad=ROVER.numbers("stiffness_nm_rad"),
        damping_nm_s_rad=ROVER.numbers("damping_nm_s_rad"),
        effort_limit_nm=ROVER.numbers("effort_limit_nm"),
        observations=(make_term("wheel_odometry", 2), make_term("last_action", 2), make_term("velocity_command", 3)),
        action=ActionSpec(WHEEL_TARGET, (MOST_RAD_S,) * 2, (0.0, 0.0), 1.0),
        command=CommandSpec(BODY_VELOCITY, BODY_VELOCITY_NAMES, (-0.5, 0.0, -1.0), (0.5, 0.0, 1.0), (0.0,) * 3),
        body=ROVER.body_as(RoverBody),
        acceptance=Acceptance(max_lin_vel_error_m_s=1.0, max_yaw_rate_error_rad_s=2.0),
    )


class RoverEnv:
    """N rovers, each with its own command; success is a motion within 0.1 m/s and rad/s of it.

    Args:
        cfg: Sizes.
        seed: Of the commands.
    """

    def __init__(self, cfg: RoverCfg, seed: int) -> None:
        self.cfg, self.contract = cfg, contract_of(cfg)
        self.num_envs, self.device, self.action_size = cfg.num_envs, "cpu", 2
        self.max_episode_steps, self.dt_s = cfg.episode_steps, 1.0 / cfg.rate_hz
        self.obs_shapes = {STATE: (self.contract.observation_size,)}
        self.keep_final_obs = True
        self._body, self._random = ROVER.body_as(RoverBody), torch.Generator().manual_seed(seed)
        self._builder = ObservationBuilder(self.contract, torch.zeros(1, 1))
        self.decoder = WheelDecoder(self.contract, torch.zeros(1, 1))
        self._lower, self._upper = torch.tensor(self.contract.command.lower), torch.tensor(self.contract.command.upper)
        self.reset()

    def reset(self) -> Observation:
        """Begin new episodes everywhere."""
        self.place, self.speed, self.last_action = (torch.zeros(self.num_envs, 2) for _ in range(3))
        self.steps = torch.zeros(self.num_envs)
        self.command = self._drawn()
        return self.observe()

    def signals(self) -> Signals:
        """What the policy may see now."""
        upright = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).repeat(self.num_envs, 1)
        turning = torch.zeros(self.num_envs, 3)
        turning[:, 2] = self._body.velocity(self.speed)[:, 1]
        return Signals(
            joint_pos_rad=self.place,
            joint_vel_rad_s=self.speed,
            quat_base_to_world_wxyz=upright,
            ang_vel_base_in_base_rad_s=turning,
            command=self.command,
            last_action=self.last_action,
            time_s=self.steps * self.dt_s,
        )

    def observe(self) -> Observation:
        """Observations (N, obs)."""
        return {STATE: self._builder(self.signals())}

    def step(self, action: Tensor) -> EnvStep:
        """Apply actions (N, 2) in [-1, 1]."""
        self.last_action = self.decoder.clip(action.detach())
        target = self.decoder(action.detach(), self.signals()).vel_rad_s
        self.speed = speeds_after(self.speed, target, self.dt_s)
        self.place = self.place + self.dt_s * self.speed
        self.steps = self.steps + 1
        error = (self._body.velocity(self.speed) - self.command[:, ::2]).abs()
        final, ended = self.observe(), self.steps >= self.max_episode_steps
        for values in (self.place, self.speed, self.last_action, self.steps):
            values[ended] = 0.0
        self.command = torch.where(ended[:, None], self._drawn(), self.command)
        return EnvStep(
            obs=self.observe(),
            next_obs=final,
            reward=torch.exp(-4.0 * error.sum(dim=1)),
            terminated=torch.zeros_like(ended),
            truncated=ended,
            success=(error < CLOSE).all(dim=1),
        )

    def expert_action(self) -> Tensor:
        """Wheel speeds of the commanded motion (N, 2), by the inverse kinematics."""
        forward, turn = self.command[:, 0], 0.5 * self._body.track_m * self.command[:, 2]
        wheels = torch.stack((forward - turn, forward + turn), dim=1) / self._body.wheel_radius_m
        return wheels / MOST_RAD_S

    def close(self) -> None:
        """Nothing to release."""

    def _drawn(self) -> Tensor:
        share = torch.rand(self.num_envs, 3, generator=self._random)
        return self._lower + share * (self._upper - self._lower)
