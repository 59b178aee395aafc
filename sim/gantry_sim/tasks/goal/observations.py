"""What actor, teacher and critic see; the actor's part goes through the robot's own code."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from mjlab.managers.observation_manager import ObservationTermCfg
from torch import Tensor

from gantry_deploy.commands import GOAL_REACH_M
from gantry_deploy.contract import PolicyContract
from gantry_deploy.metrics import goal_errors
from gantry_deploy.observations import ObservationBuilder
from gantry_sim.env import GantryEnv
from gantry_sim.tasks.goal.cfg import GoalNoiseCfg
from gantry_sim.tasks.goal.contract import TEACHER_Z_M
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.tasks.locomotion.terms import ActorObservation

VARIANCE_RANGE_M2 = (0.01, 2.0)
"""Variances are limited to this before a policy sees them."""
STAND_IN_VARIANCE_M2 = 0.01
"""Of the stand-in map, which is the true one: a good estimate."""
CLEAN_VARIANCE_M2 = 0.0025
"""Of a complete map (paper, App. B); below the range, so that it reads as its lower end."""
OUTLIER_M = (-0.7, 0.2)
"""Heights of random cells, over the nominal ground."""
OUTLIER_VARIANCE_M2 = (1.0, 2.0)
"""Their variances."""


def uncertainty(variance_m2: Tensor) -> Tensor:
    """The map's second channel: half the log of the variance, plus a half; -1.80 for the best estimate, 0.85 for the
    worst."""
    return 0.5 * torch.log(variance_m2.clamp(*VARIANCE_RANGE_M2)) + 0.5


class GoalObservation(ActorObservation):
    """The whole observation of a teacher or of a student."""

    def __init__(self, cfg: ObservationTermCfg, env: GantryEnv) -> None:
        super().__init__(cfg, env)
        noise: GoalNoiseCfg | None = cfg.params["noise"]
        self._goal_noise = noise
        self._clean = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
        if noise is not None:
            self._clean = torch.rand(env.num_envs, device=env.device) < noise.clean_share

    def __call__(self, env: GantryEnv, contract: PolicyContract, noise: GoalNoiseCfg | None) -> Tensor:  # type: ignore[override]
        """Observation (N, contract.observation_size)."""
        state = GoalState.of(env)
        window = contract.map_window
        assert window is not None
        names = state.goal_names
        drifts = noise is not None and names.seen_sensor in env.scene.sensors
        elevation = state.window(names.seen_sensor if drifts else names.map_sensor)[..., None]
        signals = state.signals()
        if noise is not None:
            elevation = elevation + _uniform(elevation, state.ramp * noise.map_z_m)
            signals = replace(
                noise.body.apply(signals),
                lin_vel_base_in_base_m_s=state.lin_vel_b + _uniform(state.lin_vel_b, noise.lin_vel_m_s),
                command=hide_far_heading(signals.command),
            )
        student = len(window.channels) == 2
        signals.elevation_map = self._with_uncertainty(elevation, noise) if student else elevation
        self.signals = state.measured = signals
        return self._builder(signals)

    def _with_uncertainty(self, elevation: Tensor, noise: GoalNoiseCfg | None) -> Tensor:
        """A stand-in for the student's map until a mapper makes one: heights (N, rows, cols, 1) with a variance."""
        variance = torch.full_like(elevation, STAND_IN_VARIANCE_M2)
        if noise is not None:
            variance[self._clean] = CLEAN_VARIANCE_M2
            wrong = (torch.rand_like(elevation) < noise.outlier_share) & ~self._clean[:, None, None, None]
            elevation = torch.where(wrong, _between(elevation, OUTLIER_M), elevation)
            variance = torch.where(wrong, _between(variance, OUTLIER_VARIANCE_M2), variance)
        return torch.cat((elevation.clamp(-2.0, 2.0), uncertainty(variance)), dim=-1)


def hide_far_heading(command: Tensor) -> Tensor:
    """Goal commands (N, 4) whose heading error is drawn anew where the goal is farther than an actor sees: what is
    asked for there must not matter, so that at run time anything may be said."""
    angle = torch.rand_like(command[:, 0]) * (2.0 * math.pi)
    random = torch.stack((command[:, 0], command[:, 1], torch.sin(angle), torch.cos(angle)), dim=-1)
    far = goal_errors(command)[0] > GOAL_REACH_M
    return torch.where(far[:, None], random, command)


class GoalCriticObservation:
    """Without noise: the teacher's proprioception, the whole goal, time left, contacts, the true map."""

    def __init__(self, cfg: ObservationTermCfg, env: GantryEnv) -> None:
        contract: PolicyContract = cfg.params["contract"]
        seen = tuple(term for term in contract.observations if term.name not in ("goal_command", "elevation_map"))
        self._builder = ObservationBuilder(
            replace(contract, observations=seen), torch.zeros(env.num_envs, 1, device=env.device)
        )

    def __call__(self, env: GantryEnv, contract: PolicyContract) -> Tensor:
        """Proprioception, goal (4), share of time left (1), contacts of feet (f) and shapes, map (cells)."""
        state = GoalState.of(env)
        signals = state.signals()
        parts = [
            self._builder.frame(signals),
            state.command,
            (state.time_left_s / (env.max_episode_length * env.step_dt))[:, None],
            state.foot_contact,
            state.body_contact,
            signals.elevation_map.flatten(1).clamp(-TEACHER_Z_M, TEACHER_Z_M),  # type: ignore[union-attr]
        ]
        return torch.cat(parts, dim=-1)


def _uniform(like: Tensor, half_width: float) -> Tensor:
    return (torch.rand_like(like) * 2.0 - 1.0) * half_width


def _between(like: Tensor, span: tuple[float, float]) -> Tensor:
    return span[0] + torch.rand_like(like) * (span[1] - span[0])
