"""Observations of actor, teacher and critic; the actor's part goes through the robot's own code."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from mjlab.managers.observation_manager import ObservationTermCfg
from torch import Tensor

from gantry_deploy.actions.commands import GOAL_REACH_M
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.evaluation.metrics import goal_errors
from gantry_deploy.observations.builder import ObservationBuilder
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.cfg import GoalNoiseCfg, maps_in_loop
from gantry_sim.tasks.goal.contract import TEACHER_Z_M
from gantry_sim.tasks.goal.mapping import StudentMap
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.tasks.locomotion.terms import ActorObservation
from gantry_sim.terrains.rasters import terrain_rasters

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
        window = cfg.params["contract"].map_window
        looks = maps_in_loop(env.task_state.cfg) and len(window.channels) == 2
        self.student_map = _make_map(env, noise, self._clean) if looks else None
        """The mapping pipeline of a student that has one."""

    def reset(self, env_ids: Tensor | slice | None = None) -> None:
        """Forget the history and the maps of these environments, indices (k,)."""
        super().reset(env_ids)
        if self.student_map is not None:
            self.student_map.reset(slice(None) if env_ids is None else env_ids)

    def __call__(self, env: GantryEnv, contract: PolicyContract, noise: GoalNoiseCfg | None) -> Tensor:  # type: ignore[override]
        """Observation (N, contract.observation_size)."""
        state = GoalState.of(env)
        window = contract.map_window
        assert window is not None
        names = state.goal_names
        signals = state.signals()
        if noise is not None:
            signals = replace(
                noise.body.apply(signals),
                lin_vel_base_in_base_m_s=state.lin_vel_b + _uniform(state.lin_vel_b, noise.lin_vel_m_s),
                command=hide_far_heading(signals.command),
            )
        if self.student_map is not None:
            self.student_map.observe(state.pos_w, state.quat, env.common_step_counter)
            seen = self._flawed(self.student_map.window(state.cfg.window), state, noise)
        else:
            drifts = noise is not None and names.seen_sensor in env.scene.sensors
            seen = state.window(names.seen_sensor if drifts else names.map_sensor)[..., None]
            if noise is not None:
                seen = seen + _uniform(seen, state.ramp * noise.map_z_m)
            if len(window.channels) == 2:
                variance = torch.full_like(seen, STAND_IN_VARIANCE_M2)
                seen = self._flawed(torch.cat((seen, uncertainty(variance)), dim=-1), state, noise)
        signals.elevation_map = seen
        self.signals = signals
        if contract == state.contract:  # the gait answers what the actor reads, not what its teacher does
            state.measured = signals
        return self._builder(signals)

    def _flawed(self, seen: Tensor, state: GoalState, noise: GoalNoiseCfg | None) -> Tensor:
        """A student's window (N, rows, cols, 2) with random cells, and the complete truth for some environments."""
        if noise is not None:
            height, unsure = seen.split(1, dim=-1)
            clean = self._clean[:, None, None, None]
            truth = state.window(state.goal_names.map_sensor)[..., None] if self.student_map is not None else height
            height = torch.where(clean, truth, height)
            unsure = torch.where(clean, uncertainty(torch.full_like(unsure, CLEAN_VARIANCE_M2)), unsure)
            wrong = (torch.rand_like(height) < noise.outlier_share) & ~clean
            height = torch.where(wrong, _between(height, OUTLIER_M), height)
            unsure = torch.where(wrong, uncertainty(_between(unsure, OUTLIER_VARIANCE_M2)), unsure)
            seen = torch.cat((height, unsure), dim=-1)
        return torch.cat((seen[..., :1].clamp(-2.0, 2.0), seen[..., 1:]), dim=-1)


def _make_map(env: GantryEnv, noise: GoalNoiseCfg | None, clean: Tensor) -> StudentMap:
    state = GoalState.of(env)
    cfg, terrain = state.cfg.student_map, env.scene.terrain
    window = state.contract.map_window
    assert terrain is not None
    assert window is not None
    assert window.mapping is not None
    made = StudentMap(
        cfg,
        window.mapping,
        terrain_rasters(terrain.cfg, cfg.raster_m, model=env.sim.mj_model),
        env.num_envs,
        env.step_dt,
        env.device,
        flaws=noise is not None,
        query_drift_m=0.0 if noise is None else noise.map_drift_m,
    )
    made.skipped[:] = clean
    return made


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
