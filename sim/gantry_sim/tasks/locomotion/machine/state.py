"""Differences between machines that belong to commands and sensors, drawn anew for every episode."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gantry_deploy.observations.builder import Signals
from gantry_sim.tasks.locomotion.machine.motors import TorqueSpeed
from gantry_sim.tasks.locomotion.machine.ranges import MachineCfg, Range

KNOWN = 6
"""Numbers of a machine that a critic sees; none of them changes in the mirror."""


class MachineState:
    """Delays, offsets and drop-outs of the episodes that run, and the readings of the step before.

    Args:
        cfg: Ranges.
        num_envs: Environments N.
        joints: Joints n.
        dt_s: Control step.
        device: Where tensors live.
    """

    def __init__(self, cfg: MachineCfg, num_envs: int, joints: int, dt_s: float, device: str) -> None:
        self.cfg = cfg
        """Ranges that the next episodes draw from."""
        self._dt_s = dt_s
        self._count, self._joints, self._device = num_envs, joints, device
        cfg.require_within(dt_s)
        self.encoder_offset_rad = torch.zeros(num_envs, joints, device=device)
        """(N, n), reading of every encoder minus the true angle."""
        self.command_delay_s = torch.zeros(num_envs, 1, device=device)
        """(N, 1), from an action to the motors."""
        self.physics = torch.zeros(num_envs, 4, device=device)
        """(N, 4), mean dry friction [N m] and viscous friction [N m s/rad] of the joints, strength and stiffness beyond
        the usual ones: what a critic may know."""
        self.imu_tilt_rad = torch.zeros(num_envs, 3, device=device)
        """(N, 3), rotation vector of the IMU in its mounting."""
        self.torque_speed: TorqueSpeed | None = None
        """Torque limits that fall with speed; None for motors without."""
        self._sensor_age = torch.zeros(num_envs, 1, device=device)
        self._before: Signals | None = None
        self._newest: Signals | None = None
        self._step = -1
        self._fresh = torch.ones(num_envs, 1, dtype=torch.bool, device=device)
        self.begin(torch.arange(num_envs, device=device))

    def begin(self, env_ids: Tensor) -> None:
        """Draw the differences of the episodes that begin in these environments, indices (k,)."""
        k = len(env_ids)
        self.encoder_offset_rad[env_ids] = self._uniform(self.cfg.encoder_offset_rad, k, self._joints)
        self.command_delay_s[env_ids] = self._uniform(self.cfg.command_delay_s, k, 1)
        self.imu_tilt_rad[env_ids] = self._uniform(self.cfg.imu_tilt_rad, k, 3)
        self._sensor_age[env_ids] = self._uniform(self.cfg.sensor_delay_s, k, 1) / self._dt_s
        self._fresh[env_ids] = True

    @property
    def known(self) -> Tensor:
        """(N, KNOWN), what a critic may know of the machines: physics and delays, of the order of one."""
        return torch.cat((self.physics, self.command_delay_s / self._dt_s, self._sensor_age), dim=-1)

    def reading(self, signals: Signals, step: int) -> Signals:
        """Signals as late sensors tell them: between those of the control step before and the present ones.

        Args:
            signals: Exact and present.
            step: Control steps so far, to tell a second look at the same step from the next one.
        """
        if self.cfg.sensor_delay_s[1] <= 0.0 and self.cfg.dropout_share <= 0.0:
            return signals
        if step != self._step:
            self._step, self._before = step, self._newest
        self._newest = signals
        before = self._before or signals
        age = self._sensor_age
        if self.cfg.dropout_share > 0.0:
            lost = torch.rand(self._count, 1, device=self._device) < self.cfg.dropout_share
            age = torch.where(lost, torch.ones_like(age), age)
        age = torch.where(self._fresh, torch.zeros_like(age), age)
        self._fresh = torch.zeros_like(self._fresh)

        def aged(name: str) -> Tensor:
            now = getattr(signals, name)
            return now + age * (getattr(before, name) - now)

        quat = aged("quat_base_to_world_wxyz")
        return replace(
            signals,
            joint_pos_rad=aged("joint_pos_rad"),
            joint_vel_rad_s=aged("joint_vel_rad_s"),
            ang_vel_base_in_base_rad_s=aged("ang_vel_base_in_base_rad_s"),
            quat_base_to_world_wxyz=quat / quat.norm(dim=-1, keepdim=True),
        )

    def late_targets(self, before: Tensor, targets: Tensor, begin_s: float, length_s: float) -> Tensor:
        """Targets (N, n), rad, that the motors follow on average from ``begin_s`` after an action for ``length_s``."""
        waits = ((self.command_delay_s - begin_s) / length_s).clamp(0.0, 1.0)
        return targets + waits * (before - targets)

    def _uniform(self, low_high: Range, rows: int, columns: int) -> Tensor:
        low, high = low_high
        return low + (high - low) * torch.rand(rows, columns, device=self._device)
