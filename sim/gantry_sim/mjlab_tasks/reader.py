"""State of an environment of mjlab as signals of a robot."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gantry_deploy.evaluation.metrics import planar_velocity_error_m_s, yaw_rate_error_rad_s
from gantry_deploy.observations.builder import Signals
from gantry_sim.managed_tasks.contract import command_name
from gantry_sim.managed_tasks.terms import ActorTerm
from gantry_sim.mjlab_tasks.actions import driven_of, joint_action, joint_ids, kind_of
from gantry_sim.mjlab_tasks.cfg import MjlabCfg, actor_groups
from gantry_sim.mjlab_tasks.contract import CONTRACTS
from gantry_sim.mjlab_tasks.terms import actor_terms, is_biased, reads_joints, scan_of, window_of


class MjlabReader:
    """Signals of a robot in an environment of mjlab, as its sensors tell them.

    Args:
        env: The environment.
        groups: Observation groups of the actor.
    """

    def __init__(self, env: Any, groups: tuple[str, ...]) -> None:
        terms: list[ActorTerm] = actor_terms(env, groups)
        driven = driven_of(env)
        self._env, self._action, self._driven = env, joint_action(env), driven
        self._ids, self._data = joint_ids(driven), driven.entity.data
        self._biased = any(is_biased(term) for term in terms if reads_joints(term))
        self._command = command_name(terms)
        self._scan = scan_of(terms)
        self._window = window_of(terms, driven)

    @property
    def follows_velocity(self) -> bool:
        """Whether a velocity is asked of the policy; nothing otherwise."""
        return self._command is not None

    def command(self) -> Tensor:
        """Commanded velocities (N, 3) in the base frame, m/s and rad/s; (N, 0) where nothing is asked."""
        if self._command is None:
            return torch.zeros(self._env.num_envs, 0, device=self._env.device)
        found = self._env.command_manager.get_command(self._command)
        assert found is not None
        return found

    def errors(self, asked: Tensor) -> Tensor:
        """Errors (2, N) of planar velocity, m/s, and yaw rate, rad/s, from what was asked for, (N, 3)."""
        data = self._data
        planar = planar_velocity_error_m_s(data.root_link_lin_vel_b, asked)
        return torch.stack((planar, yaw_rate_error_rad_s(data.root_link_ang_vel_b, asked)))

    def targets(self) -> dict[str, Tensor]:
        """Joint targets (N, n) of the step just taken, by their names in a recording."""
        return kind_of(self._action).recorded(self._action, self._driven)

    def signals(self) -> Signals:
        """Of the present state, n joints in the order of the contract."""
        data, env = self._data, self._env
        joints = data.joint_pos_biased if self._biased else data.joint_pos
        return Signals(
            joint_pos_rad=joints[:, self._ids],
            joint_vel_rad_s=data.joint_vel[:, self._ids],
            quat_base_to_world_wxyz=data.root_link_quat_w,
            ang_vel_base_in_base_rad_s=data.root_link_ang_vel_b,
            lin_vel_base_in_base_m_s=data.root_link_lin_vel_b,
            command=self.command(),
            last_action=env.action_manager.action,
            time_s=env.episode_length_buf * env.step_dt,
            elevation_map=self._map(),
        )

    def _map(self) -> Tensor | None:
        """The contract's window (N, rows, cols, 1), m, of the ground that the rays hit; a miss is as deep as they
        go.
        """
        if self._scan is None or self._window is None:
            return None
        heights = self._scan.cfg.func(self._env, **self._scan.cfg.params)
        rows = heights.reshape(len(heights), self._window.cols, self._window.rows)
        return -rows.transpose(1, 2)[..., None]


def make_reader(env: Any, cfg: MjlabCfg) -> MjlabReader | None:
    """Reader of an environment; None where its task has no contract."""
    return None if CONTRACTS.or_none(cfg) is None else MjlabReader(env, actor_groups(cfg.task))
