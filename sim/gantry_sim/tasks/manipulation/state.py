"""State for the terms of a manipulation task: computed once per change of the physics state and shared."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gantry_deploy.actions.arm import ArmDecoder
from gantry_deploy.actions.kinematics import damped_step, rotation_error
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.observations.signals import Signals
from gantry_hardware.robots.yam import GRIPPER_JOINT
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.manipulation.cfg import ArmCfg
from gantry_sim.tasks.manipulation.language.things import Things
from gantry_sim.tasks.manipulation.rules import RULES, Start

STARTS = 256
"""Poses of the arm that episodes begin in; each is solved once."""


class ArmState:
    """Arm, things and goal in all environments; n joints, T things, N environments. The arm's base is the world's
    origin. Among several things the object is the one that the episode asks for.

    Everything comes from ``qpos`` and ``qvel`` and, of the end effector, from the runtime's own kinematics, so that it
    is always current.

    Args:
        env: The environment.
        cfg: The task.
        contract: Of its policies.
        seed: Of the episodes.
    """

    def __init__(self, env: GantryEnv, cfg: ArmCfg, contract: PolicyContract, seed: int) -> None:
        self.cfg, self.contract, self.seed = cfg, contract, seed
        self.rule = RULES[cfg.task](cfg)
        self._env, self._version = env, -1
        device, model = env.device, env.sim.mj_model
        joints = [model.joint(f"robot/{name}") for name in contract.joint_names]
        self.qpos_ids = torch.tensor([int(joint.qposadr[0]) for joint in joints], device=device)
        self._qvel_ids = torch.tensor([int(joint.dofadr[0]) for joint in joints], device=device)
        self._gripper = contract.joint_names.index(GRIPPER_JOINT)
        self.decoder = ArmDecoder(contract, torch.zeros(1, 1, device=device))
        self.goal = torch.zeros(env.num_envs, self.rule.goal_size, device=device)
        """(N, 3) where the object's middle belongs, m; (N, 0) without a goal."""
        self.things = Things(self.rule.bench, model, contract.instruction, self.goal)
        """What lies on the table."""
        self.start_joint_pos = torch.tensor([contract.default_pos_rad], device=device).repeat(env.num_envs, 1)
        """(N, n) joints at the beginning of the episode, rad and of the gripper m."""
        self.encoder_offset = torch.zeros(env.num_envs, len(joints), device=device)
        """(N, n) readings of the encoders minus the true angles, rad."""
        self.episodes = [0] * env.num_envs
        """Episodes begun in each environment."""
        self.starts = self._solve_starts()
        self.noise = torch.Generator(device=device).manual_seed(seed)
        """Of what the policy sees wrongly."""
        self.joint_pos = self.joint_vel = self.object_pose = self.ee_pos = self.ee_rotation = torch.empty(0)

    @classmethod
    def of(cls, env: GantryEnv) -> ArmState:
        """The environment's state, up to date."""
        state: ArmState = env.task_state
        state.refresh()
        return state

    def begin(self, env_ids: Tensor, start: Start) -> None:
        """Take what the episodes that begin in environments (k,) ask for."""
        self.goal[env_ids] = start.goal_m
        self.things.begin(env_ids, start)

    def refresh(self) -> None:
        """Read the simulation again if it has changed since the last call."""
        if self._version == self._env.state_version:
            return
        self._version = self._env.state_version
        qpos, qvel = self._env.sim.data.qpos, self._env.sim.data.qvel
        self.joint_pos = qpos[:, self.qpos_ids]
        self.joint_vel = qvel[:, self._qvel_ids]
        self.things.refresh(qpos, qvel)
        self.object_pose, self.object_speed = self.things.asked_pose, self.things.asked_speed
        self.ee_pos, self.ee_rotation = self.decoder.ee_pose(self.joint_pos)
        self.object_from_ee = self.object_pos - self.ee_pos
        self.goal_from_object = self.goal - self.object_pos if self.goal.shape[1] else self.goal

    @property
    def object_pos(self) -> Tensor:
        """Place of the object in the arm's base frame, (N, 3), m."""
        return self.object_pose[:, :3]

    @property
    def gripper_m(self) -> Tensor:
        """Place of the driven finger, half of the gripper's opening, (N,), m."""
        return self.joint_pos[:, self._gripper]

    @property
    def verb(self) -> Tensor:
        """See :class:`RuleState`, (N,)."""
        return self.things.verb

    @property
    def others_moved_m(self) -> Tensor:
        """See :class:`RuleState`, (N,), m."""
        return self.things.others_moved_m

    @property
    def gripper(self) -> int:
        """Column of the gripper among the joints."""
        return self._gripper

    def signals(self, last_action: Tensor) -> Signals:
        """Signals of the policy's observation; ``last_action`` is (N, a), dimensionless."""
        seen, things = self.object_pose, self.things.pose[:, :, :3]
        if self.cfg.object_noise_m > 0.0:
            noise = torch.rand(things.shape, generator=self.noise, device=seen.device) * 2.0 - 1.0
            noise = self.cfg.object_noise_m * noise
            seen, things = torch.cat((seen[:, :3] + noise[:, 0], seen[:, 3:]), dim=-1), things + noise
        told = self.things.signals(things)
        # Of several things none is marked as the one that is asked for.
        return replace(self.own_signals(last_action), object_pose_in_base=None if told else seen, extra=told)

    def own_signals(self, last_action: Tensor) -> Signals:
        """Signals without what is seen of the object; ``last_action`` is (N, a), dimensionless."""
        targets = self.decoder.targets
        joint_pos, ee_pose = self.joint_pos, (self.ee_pos, self.ee_rotation)
        if self.cfg.randomize.encoder_offset_rad != (0.0, 0.0):
            joint_pos = self.joint_pos + self.encoder_offset
            ee_pose = self.decoder.ee_pose(joint_pos)
        still = self.joint_pos.new_zeros(len(self.joint_pos), 3)
        return Signals(
            joint_pos_rad=joint_pos,
            joint_vel_rad_s=self.joint_vel,
            quat_base_to_world_wxyz=torch.cat((still.new_ones(len(still), 1), still), dim=-1),
            ang_vel_base_in_base_rad_s=still,
            command=self.goal[:, : len(self.contract.command.names)],
            last_action=last_action,
            time_s=self._env.episode_length_buf * self._env.step_dt,
            joint_target_rad=joint_pos if targets is None else targets,
            start_joint_pos_rad=self.start_joint_pos,
            ee_pose_in_base=ee_pose,
        )

    def _solve_starts(self) -> Tensor:
        """(STARTS, n) joints with the end effector spread around its place in the default pose, gripper open."""
        device, cfg = self._env.device, self.cfg
        draw = torch.Generator().manual_seed(self.seed)
        spread = (torch.rand(STARTS, 3, generator=draw) * 2.0 - 1.0) * cfg.randomize.start_m
        joints = torch.tensor([self.contract.default_pos_rad], device=device).repeat(STARTS, 1)
        arm = self.decoder.kinematics
        chain = slice(0, arm.num_joints)  # a spec lists the chain's joints before its gripper
        home, rest = arm.forward(joints[:, chain])
        goal = home + spread.to(device)
        for _ in range(20):
            pos, rotation, jacobian = arm.jacobian(joints[:, chain])
            error = torch.cat((goal - pos, rotation_error(rotation, rest)), dim=-1)
            joints[:, chain] += damped_step(jacobian, error, 0.02)
        return joints
