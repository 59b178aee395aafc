"""Sensor stage of the goal tasks, and the critic's observation; the actor's goes through the robot's own code."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from mjlab.managers.observation_manager import ObservationTermCfg
from torch import Tensor

from gantry_deploy.actions.commands import GOAL_REACH_M
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.evaluation.metrics import goal_errors
from gantry_deploy.observations.builder import ObservationBuilder, Signals
from gantry_mapping.pipeline import uncertainty_of
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.cfg import GoalNoiseCfg, maps_in_loop
from gantry_sim.tasks.goal.contract import TEACHER_Z_M
from gantry_sim.tasks.goal.mapping import StudentMap
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.terrains.rasters import terrain_rasters

STAND_IN_VARIANCE_M2 = 0.01
"""Of the stand-in map, which is the true one: a good estimate."""
CLEAN_VARIANCE_M2 = 0.0025
"""Of a complete map (paper, App. B); below the range, so that it reads as its lower end."""
OUTLIER_M = (-0.7, 0.2)
"""Heights of random cells, over the nominal ground."""
OUTLIER_VARIANCE_M2 = (1.0, 2.0)
"""Their variances."""


class GoalSensors:
    """Sensor stage of the goal tasks: noisy signals, and the map that the actor is shown.

    Args:
        env: The environment.
        state: Its state.
    """

    def __init__(self, env: GantryEnv, state: GoalState) -> None:
        self._env, self._noise = env, state.cfg.noise
        window = state.contract.map_window
        assert window is not None
        self._channels = len(window.channels)
        share = 0.0 if self._noise is None else self._noise.clean_share
        self._clean = torch.rand(env.num_envs, device=env.device) < share
        self.student_map = _make_map(env, state, self._clean) if maps_in_loop(state.cfg) else None
        """The mapping pipeline of a student that has one."""

    def reset(self, env_ids: Tensor) -> None:
        """Begin episodes in these environments, indices (k,): a map without ground, and another drift."""
        if self.student_map is not None:
            self.student_map.reset(env_ids)
        names, sensors = self._env.task_state.goal_names, self._env.scene.sensors
        if names.seen_sensor in sensors and self._noise is not None:
            sensor = self._env.scene[names.seen_sensor]
            if sensor.drift_m is None:
                sensor.drift_m = torch.zeros(self._env.num_envs, 3, device=self._env.device)
            sensor.drift_m[env_ids] = _uniform(sensor.drift_m[env_ids], self._noise.map_drift_m)

    def measure(self, state: GoalState) -> Signals:
        """Signals of the state, noise included, with the map."""
        signals, noise = state.signals(), self._noise
        if noise is not None:
            signals = replace(
                noise.body.apply(signals),
                lin_vel_base_in_base_m_s=state.lin_vel_b + _uniform(state.lin_vel_b, noise.lin_vel_m_s),
                command=hide_far_heading(signals.command),
            )
        signals.elevation_map = self._map(state)
        return signals

    def _map(self, state: GoalState) -> Tensor:
        """The actor's window (N, rows, cols, channels)."""
        noise, names = self._noise, state.goal_names
        if self.student_map is not None:
            self.student_map.observe(state.pos_w, state.quat, self._env.common_step_counter)
            return self._flawed(self.student_map.window(state.cfg.window), state, noise)
        drifts = noise is not None and names.seen_sensor in self._env.scene.sensors
        seen = state.window(names.seen_sensor if drifts else names.map_sensor)[..., None]
        if noise is not None:
            seen = seen + _uniform(seen, state.ramp * noise.map_z_m)
        if self._channels == 1:
            return seen
        unsure = uncertainty_of(torch.full_like(seen, STAND_IN_VARIANCE_M2))
        return self._flawed(torch.cat((seen, unsure), dim=-1), state, noise)

    def _flawed(self, seen: Tensor, state: GoalState, noise: GoalNoiseCfg | None) -> Tensor:
        """A student's window (N, rows, cols, 2) with random cells, and the complete truth for some environments."""
        if noise is not None:
            height, unsure = seen.split(1, dim=-1)
            clean = self._clean[:, None, None, None]
            truth = state.window(state.goal_names.map_sensor)[..., None] if self.student_map is not None else height
            height = torch.where(clean, truth, height)
            unsure = torch.where(clean, uncertainty_of(torch.full_like(unsure, CLEAN_VARIANCE_M2)), unsure)
            wrong = (torch.rand_like(height) < noise.outlier_share) & ~clean
            height = torch.where(wrong, _between(height, OUTLIER_M), height)
            unsure = torch.where(wrong, uncertainty_of(_between(unsure, OUTLIER_VARIANCE_M2)), unsure)
            seen = torch.cat((height, unsure), dim=-1)
        return torch.cat((seen[..., :1].clamp(-2.0, 2.0), seen[..., 1:]), dim=-1)


def _make_map(env: GantryEnv, state: GoalState, clean: Tensor) -> StudentMap:
    cfg, noise, terrain = state.cfg.student_map, state.cfg.noise, env.scene.terrain
    window = state.contract.map_window
    assert terrain is not None
    assert window is not None
    assert window.mapping is not None
    made = StudentMap(
        cfg,
        window.mapping,
        terrain_rasters(terrain.cfg, cfg.raster_m, model=env.ground_model),
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
