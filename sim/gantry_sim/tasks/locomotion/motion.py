"""Smoothness of walking: power, changes of action and torque, and turning that was not asked for."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from gantry_deploy.evaluation.metrics import bootstrap_mean
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.locomotion.state import LocomotionState

SETTLE_S = 0.5
"""Time over which the mean turning is taken from which jitter is counted; a period of the gait."""


class MotionScores:
    """Sums of every environment's motion, one row each, until its first fall.

    Args:
        env: The environments.
    """

    def __init__(self, env: GantryEnv) -> None:
        self._env = env
        zeros = torch.zeros(env.num_envs, device=env.device)
        self._sums = {
            name: zeros.clone()
            for name in ("power_w", "action_rate", "torque_rate_nm_s", "yaw_jitter_rad_s", "lifted_feet")
        }
        self._steps = zeros.clone()
        _ = env.sim.data.actuator_velocity  # Bound here: a field that is asked for between two steps is empty at first.
        self._torque, self._mean_yaw = self._torques(), zeros.clone()

    def update(self, alive: Tensor) -> None:
        """Count the control step just taken.

        Args:
            alive: Shape (N,) bool, environments that count.
        """
        env, dt_s = self._env, self._env.step_dt
        state, torque = LocomotionState.of(env), self._torques()
        yaw = state.ang_vel_b[:, 2]
        self._mean_yaw += (yaw - self._mean_yaw) * (dt_s / SETTLE_S)
        manager = env.action_manager
        found = {
            "power_w": (torque * env.sim.data.actuator_velocity).abs().sum(-1),
            "action_rate": (manager.action - manager.prev_action).abs().mean(-1),
            "torque_rate_nm_s": (torque - self._torque).abs().mean(-1) / dt_s,
            "yaw_jitter_rad_s": (yaw - self._mean_yaw).abs(),
            "lifted_feet": (1.0 - state.foot_contact).sum(-1),
        }
        for name, values in found.items():
            self._sums[name] += torch.where(alive, values, torch.zeros_like(values))
        self._torque = torque
        self._steps += alive.float()

    def result(self) -> dict[str, Any]:
        """Means per control step with their intervals: power of all joints |torque x speed|, mean change of an action
        per step, mean rate of a joint's torque, mean distance of the yaw rate from its mean over half a second, and
        feet in the air.
        """
        return {
            name: asdict(bootstrap_mean((values / self._steps).cpu().numpy())) for name, values in self._sums.items()
        }

    def _torques(self) -> Tensor:
        return self._env.sim.data.actuator_force.clone()
