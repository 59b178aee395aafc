"""State for locomotion terms: computed once per change of the physics state and shared by all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from gantry_deploy.observations.builder import Signals
from gantry_hardware.model.spec import RobotSpec
from gantry_mapping.sensing.frames import rotation_matrix
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.locomotion.machine.state import MachineState


@dataclass(frozen=True)
class LocomotionNames:
    """Names by which locomotion terms find their parts in the scene."""

    spec: RobotSpec
    """The robot; its joint order is the order of every joint tensor."""
    command: str = "twist"
    """Command term."""
    action: str = "joint_pos"
    """Action term."""
    contact_sensor: str = "feet_contact"
    """Contact sensor of the feet's collision shapes against the terrain."""
    foot_sites: tuple[str, ...] = ()
    """Sites at the feet, in the spec's order."""
    foot_geoms: tuple[str, ...] = ()
    """Regular expression of the collision shapes of each foot, in the spec's order."""
    foot_radius_m: float = 0.0
    """Height of a foot site above the sole."""
    height_sensor: str | None = None
    """Ray sensor with one ray under the base and one under each foot; None on a plane at height zero."""


class Sensors(Protocol):
    """Sensor stage of a task: what the robot's sensors report of its state."""

    def measure(self, state: Any) -> Signals:
        """Signals of a :class:`LocomotionState`, noise included."""
        ...

    def reset(self, env_ids: Tensor) -> None:
        """Begin episodes in these environments, indices (k,)."""
        ...


class LocomotionState:
    """Kinematics of the robot in all environments; n joints, f feet, N environments.

    Velocities and joint readings come straight from ``qpos`` and ``qvel`` and are always current; foot positions and
    contacts come from MuJoCo's derived quantities.
    """

    def __init__(self, env: GantryEnv, names: LocomotionNames) -> None:
        self._env = env
        self._version = -1
        self._data = env.sim.data
        self.names = names
        robot = env.robot
        found, joint_ids = [], []
        for name in names.spec.joint_names:
            ids, matched = robot.find_joints(f"^{name}$")
            joint_ids += ids
            found += matched
        index = robot.indexing
        self._q = _as_slice(index.joint_q_adr[torch.tensor(joint_ids)])
        self._v = _as_slice(index.joint_v_adr[torch.tensor(joint_ids)])
        root_q, root_v = index.free_joint_q_adr, index.free_joint_v_adr
        self._pos = _as_slice(root_q[:3])
        self._quat = _as_slice(root_q[3:7])
        self._lin = _as_slice(root_v[:3])
        self._ang = _as_slice(root_v[3:6])
        site_ids, _ = robot.find_sites(names.foot_sites, preserve_order=True)
        self._sites = _as_slice(index.site_ids[torch.tensor(site_ids)])
        self._flat = torch.zeros(env.num_envs, 1 + len(site_ids), device=env.device)
        self._shape_foot = self._foot_of_shapes()
        self.joint_pos = self.joint_vel = self.quat = self.ang_vel_b = torch.empty(0)
        self.lin_vel_b = self.gravity_b = self.foot_pos_w = torch.empty(0)
        self.sensors: Sensors | None = None
        """Sensor stage of the task; None for exact signals."""
        self.machine: MachineState | None = None
        """Delays and offsets of the robots; None where all are exact."""
        self._measured: Signals | None = None
        self._measured_version = -1

    @classmethod
    def of(cls, env: GantryEnv) -> LocomotionState:
        """The environment's state, up to date."""
        state: LocomotionState = env.task_state
        state.refresh()
        return state

    def refresh(self) -> None:
        """Read the simulation again if it has changed since the last call."""
        if self._version == self._env.state_version:
            return
        self._version = self._env.state_version
        qpos, qvel = self._data.qpos, self._data.qvel
        self.joint_pos = qpos[:, self._q]
        self.joint_vel = qvel[:, self._v]
        self.quat = qpos[:, self._quat]
        self.ang_vel_b = qvel[:, self._ang]
        rotation = rotation_matrix(self.quat)
        self.gravity_b = -rotation[:, 2]
        self.lin_vel_b = torch.einsum("nij,ni->nj", rotation, qvel[:, self._lin])
        self.foot_pos_w = self._data.site_xpos[:, self._sites]

    @property
    def base_height(self) -> Tensor:
        """Height of the base above the ground under it, (N,), m."""
        return self._data.qpos[:, self._pos][:, 2] - self.ground_height

    @property
    def ground_height(self) -> Tensor:
        """Height of the ground that the robot stands over, (N,), m: the mean under base and feet, so that a step's edge
        passing below the base is no fall; on uneven ground as of the last observation."""
        return self._ground().mean(-1)

    @property
    def foot_height(self) -> Tensor:
        """Height of the soles above the terrain, (N, f), m, limited to [-0.1, 0.5]: a ray that starts inside a step
        leaves through its underside."""
        height = self.foot_pos_w[..., 2] - self.names.foot_radius_m - self._ground()[:, 1:]
        return height.clamp(-0.1, 0.5)

    @property
    def foot_contact(self) -> Tensor:
        """1 where a foot touches the ground, (N, f)."""
        touching = (self._env.scene[self.names.contact_sensor].data.found > 0).to(torch.float32)
        if self._shape_foot is None:
            return touching
        return (touching @ self._shape_foot).clamp(max=1.0)

    def _ground(self) -> Tensor:
        if self.names.height_sensor is None:
            return self._flat
        hit = self._env.scene[self.names.height_sensor].data.hit_pos_w
        return hit[..., 2]

    def _foot_of_shapes(self) -> Tensor | None:
        """(shapes, f), 1 where a collision shape belongs to a foot; None where they are one to one."""
        shapes = self._env.scene[self.names.contact_sensor].primary_names
        table = [[float(re.search(foot, shape) is not None) for foot in self.names.foot_geoms] for shape in shapes]
        matrix = torch.tensor(table, device=self._env.device)
        return None if torch.equal(matrix, torch.eye(len(shapes), device=matrix.device)) else matrix

    @property
    def command(self) -> Tensor:
        """Commanded planar velocity and yaw rate in the base frame, (N, 3)."""
        command = self._env.command_manager.get_command(self.names.command)
        assert command is not None
        return command

    @property
    def drive(self) -> Tensor:
        """Planar velocity and yaw rate that drive the gait, (N, 3): the command itself."""
        return self.command

    @property
    def step_count(self) -> int:
        """Control steps since the environments were made."""
        return self._env.common_step_counter

    @property
    def time_s(self) -> Tensor:
        """Time since the start of the episode, (N,)."""
        return self._env.episode_length_buf * self._env.step_dt

    @property
    def measured(self) -> Signals:
        """Signals of this control step's sensor stage, noise included: drawn once per state of the physics, for the
        actor's observation and for the gait that answers it."""
        if self._measured is None or self._measured_version != self._env.state_version:
            self._measured_version = self._env.state_version
            self._measured = self.signals() if self.sensors is None else self.sensors.measure(self)
        return self._measured

    def signals(self) -> Signals:
        """Signals of the actor's observation, without sensor noise."""
        return Signals(
            joint_pos_rad=self.joint_pos,
            joint_vel_rad_s=self.joint_vel,
            quat_base_to_world_wxyz=self.quat,
            ang_vel_base_in_base_rad_s=self.ang_vel_b,
            command=self.command,
            last_action=self._env.action_manager.get_term(self.names.action).raw_action,
            time_s=self.time_s,
        )


def _as_slice(ids: Tensor) -> slice | Tensor:
    """A slice where indices are consecutive, so that reading makes a view and no copy."""
    first, count = int(ids[0]), len(ids)
    if torch.equal(ids.cpu(), torch.arange(first, first + count)):
        return slice(first, first + count)
    return ids
