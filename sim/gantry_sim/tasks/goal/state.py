"""State for the terms of the goal tasks, computed once per change of the physics state and shared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gantry_deploy.actions.commands import goal_command
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.evaluation.metrics import goal_errors
from gantry_deploy.footsteps.gait import drive_command
from gantry_deploy.observations.builder import Signals
from gantry_hardware.backends.state import GRAVITY_M_S2
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.cfg import GoalCfg
from gantry_sim.tasks.goal.ground import SEEN_MAP, TRUE_MAP
from gantry_sim.tasks.goal.motion import Motion
from gantry_sim.tasks.goal.robots import GoalRobotCfg
from gantry_sim.tasks.locomotion.state import LocomotionNames, LocomotionState
from gantry_sim.terrains.grid import TerrainSites, terrain_sites


@dataclass(frozen=True)
class GoalNames(LocomotionNames):
    """Names by which goal terms find their parts."""

    command: str = "goal"
    """Command term."""
    body_sensor: str = "body_contact"
    """Contact sensor of all shapes but the feet."""
    self_sensor: str = "self_contact"
    """Contact sensor of the robot with itself, where there is one."""
    map_sensor: str = TRUE_MAP
    """The window as it is."""
    seen_sensor: str = SEEN_MAP
    """The window as the actor's map shows it, where that differs."""
    base_shapes: tuple[str, ...] = field(default=())
    """Regular expressions of the base's collision shapes."""


class GoalState(LocomotionState):
    """The walking robot's state, its goal and its map; N environments."""

    def __init__(
        self, env: GantryEnv, names: GoalNames, cfg: GoalCfg, robot: GoalRobotCfg, contract: PolicyContract
    ) -> None:
        super().__init__(env, names)
        assert contract.map_window is not None
        self.cfg = cfg
        self.robot = robot
        self.contract = contract
        self.goal_names = names
        self.sites: TerrainSites = terrain_sites(env.scene.terrain)  # type: ignore[arg-type]
        self.goal_pos_w = torch.zeros(env.num_envs, 3, device=env.device)
        """(N, 3) the goal's place, m."""
        self.goal_yaw = torch.zeros(env.num_envs, device=env.device)
        """(N,) the heading asked for, in the world, rad."""
        self.success_ema = torch.zeros(env.num_envs, device=env.device)
        """(N,) running success of each environment's episodes."""
        self._goal_version = -1
        self._command = torch.zeros(env.num_envs, 4, device=env.device)
        self._drive = torch.zeros(env.num_envs, 3, device=env.device)
        self.refresh()
        self.motion = Motion(env, robot, self)
        self.weight_n = float(env.sim.mj_model.body_subtreemass[self.motion.base_id]) * GRAVITY_M_S2
        """Weight of the robot."""

    @classmethod
    def of(cls, env: GantryEnv) -> GoalState:
        """The environment's state, up to date."""
        state: GoalState = env.task_state
        state.refresh()
        return state

    def refresh(self) -> None:
        """Read the simulation again if it has changed since the last call."""
        super().refresh()
        if self._goal_version != self._version:
            self._goal_version = self._version
            self._command = goal_command(self.goal_pos_w, self.goal_yaw, self.pos_w, self.quat)
            self._drive = drive_command(self.contract.command, self._command) if self.cfg.goal_velocity else self._drive

    def set_goals(self, env_ids: Tensor, pos_w: Tensor, yaw: Tensor) -> None:
        """Give environments (k,) new goals in the world frame, (k, 3) in m and (k,) in rad."""
        self.goal_pos_w[env_ids], self.goal_yaw[env_ids] = pos_w, yaw
        self._goal_version = -1

    @property
    def pos_w(self) -> Tensor:
        """Position of the base in the world, (N, 3), m."""
        return self._data.qpos[:, self._pos]

    @property
    def command(self) -> Tensor:
        """The goal as the critic knows it, (N, 4): :func:`gantry_deploy.actions.commands.goal_command`."""
        return self._command

    @property
    def drive(self) -> Tensor:
        """The velocity that the goal amounts to, (N, 3); zeros without a gait prior."""
        return self._drive

    @property
    def distance(self) -> Tensor:
        """Horizontal distance from the goal, (N,), m."""
        return goal_errors(self.command)[0]

    @property
    def heading_error(self) -> Tensor:
        """Absolute heading error, (N,), rad, between the goal's and the base's heading in the world frame."""
        return goal_errors(self.command)[1]

    @property
    def time_left_s(self) -> Tensor:
        """Time left in the episode, (N,), s."""
        return (self._env.max_episode_length - self._env.episode_length_buf) * self._env.step_dt

    @property
    def ramp(self) -> float:
        """Progress of the curriculum's ramps, 0 to 1."""
        steps = self.cfg.randomize.ramp_steps
        if not self.cfg.curriculum or steps == 0:
            return 1.0
        return min(1.0, self._env.common_step_counter / steps)

    @property
    def body_contact(self) -> Tensor:
        """1 where a collision shape other than a foot's touches the ground, (N, shapes)."""
        return (self._env.scene[self.goal_names.body_sensor].data.found > 0).to(torch.float32)

    def contact_force(self, sensor: str) -> Tensor:
        """Contact force on each shape of a sensor in the world, (N, shapes, 3), N, of the newest physics step."""
        return self._env.scene[sensor].data.force

    def window(self, sensor: str) -> Tensor:
        """Heights over the base plus the nominal base height, (N, rows, cols), m; where nothing is, as low as a map
        shows anything."""
        window = self.contract.map_window
        assert window is not None
        heights = self._env.scene[sensor].heights()
        relative = heights - self.pos_w[:, 2:3] + window.nominal_base_height_m
        return relative.clamp(-2.0, 2.0).view(-1, window.rows, window.cols)

    def signals(self) -> Signals:
        """Signals of an observation, without noise; the map has the true window's one channel."""
        plain = super().signals()
        plain.lin_vel_base_in_base_m_s = self.lin_vel_b
        plain.elevation_map = self.window(self.goal_names.map_sensor)[..., None]
        return plain

    def reset(self, env_ids: Tensor) -> None:
        """Forget the motion of these environments, indices (k,), and what their sensors remember."""
        self.motion.reset(env_ids)
        if self.sensors is not None:
            self.sensors.reset(env_ids)

    def training_state(self) -> dict[str, Any]:
        """State for a resumed training beside mjlab's counters."""
        return {"success_ema": self.success_ema.clone()}

    def restore_training_state(self, state: dict[str, Any]) -> None:
        """Put it back."""
        self.success_ema[:] = state["success_ema"].to(self.success_ema.device)
