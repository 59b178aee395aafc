"""mjlab terms of the manipulation tasks; observation and joint targets go through the runtime's own code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from mjlab.managers.action_manager import ActionTerm, ActionTermCfg
from mjlab.managers.event_manager import RecomputeLevel, requires_model_fields
from mjlab.managers.observation_manager import ObservationTermCfg
from torch import Tensor

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.observations.builder import ObservationBuilder
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.manipulation.draws import Draws
from gantry_sim.tasks.manipulation.state import ArmState
from gantry_sim.tasks.manipulation.workbench import PADS, TABLE_FRICTION

ENCODERS, STRENGTH, ARMATURE = 1, 2, 3
"""Streams of random draws of an episode."""
ACTION = "arm"
"""Name of the action term."""


@dataclass(kw_only=True)
class ArmActionCfg(ActionTermCfg):
    """Joint targets of an arm by the policy's contract."""

    contract: PolicyContract
    """Scales, limits and arm."""

    def build(self, env: Any) -> ArmAction:
        """Make the term."""
        return ArmAction(self, env)


class ArmAction(ActionTerm):
    """Runs the runtime's :class:`~gantry_deploy.actions.arm.ArmDecoder` on all environments at once."""

    def __init__(self, cfg: ArmActionCfg, env: Any) -> None:
        super().__init__(cfg, env)
        self._raw = torch.zeros(self.num_envs, cfg.contract.action_size, device=self.device)
        ids = [self._entity.find_joints(f"^{name}$")[0][0] for name in cfg.contract.joint_names]
        self._joint_ids = torch.tensor(ids, device=self.device)
        self._targets = torch.zeros(self.num_envs, len(ids), device=self.device)
        self._obeyed = torch.zeros_like(self._targets)
        self.late = torch.zeros(self.num_envs, 1, dtype=torch.bool, device=self.device)
        """(N, 1) whether the motors obey one control step late in this episode."""

    @property
    def action_dim(self) -> int:
        """Numbers of an action."""
        return self._raw.shape[1]

    @property
    def raw_action(self) -> Tensor:
        """The last action within the contract's bounds, (N, a)."""
        return self._raw

    @property
    def targets(self) -> Tensor:
        """Joint targets of this control step, (N, n), rad and, of the gripper, m."""
        return self._targets

    def process_actions(self, actions: Tensor) -> None:
        """Decode actions (N, a), dimensionless, once per control step."""
        state = ArmState.of(self._env)  # type: ignore[arg-type]
        self._raw[:] = state.decoder.clip(actions)
        before, self._targets = self._targets, state.decoder(actions, state.own_signals(actions)).pos_rad
        self._obeyed = torch.where(self.late, before, self._targets)

    def apply_actions(self) -> None:
        """Hand the targets to the actuators."""
        state: ArmState = self._env.task_state  # type: ignore[attr-defined]
        self._entity.set_joint_position_target(self._obeyed - state.encoder_offset, joint_ids=self._joint_ids)

    def reset(self, env_ids: Tensor | slice | None = None) -> None:
        """Begin anew with targets at the joints of these environments, indices (k,)."""
        rows = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        rows[slice(None) if env_ids is None else env_ids] = True
        state: ArmState = self._env.task_state  # type: ignore[attr-defined]
        joints = self._env.sim.data.qpos[:, state.qpos_ids] + state.encoder_offset
        state.decoder.reset(joints, rows)
        self._targets = torch.where(rows[:, None], joints, self._targets)
        self._raw[rows] = 0.0


class ArmObservation:
    """The policy's whole observation beside images in one term, built by the runtime's :class:`ObservationBuilder`."""

    def __init__(self, cfg: ObservationTermCfg, env: GantryEnv) -> None:
        self._builder = ObservationBuilder(cfg.params["contract"], torch.zeros(env.num_envs, 1, device=env.device))

    def __call__(self, env: GantryEnv, contract: PolicyContract) -> Tensor:
        """Observation (N, contract.observation_size)."""
        del contract  # It is the builder's.
        return self._builder(ArmState.of(env).signals(env.action_manager.get_term(ACTION).raw_action))


def sparse_reward(env: GantryEnv) -> Tensor:
    """(N,), 1 where the task is done, otherwise 0."""
    return success(env).to(torch.float32)


class DenseReward:
    """1 where the task is done, and the change of its progress, which ends at 1 where it is done and at 0 where it is
    lost: shaping by a potential (Ng, Harada and Russell, ICML 1999).

    Progress itself as the reward would make waiting just before the end worth more than the end of the episode.
    """

    def __init__(self, cfg: object, env: GantryEnv) -> None:
        del cfg
        self._before = torch.zeros(env.num_envs, device=env.device)
        self._started = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)

    def __call__(self, env: GantryEnv) -> Tensor:
        """(N,), of the step just taken; without the change of progress in an episode's first step."""
        state = ArmState.of(env)
        done = state.rule.success(state)
        progress = state.rule.progress(state) * ~state.rule.lost(state)
        progress = torch.where(done, torch.ones_like(progress), progress)
        change = torch.where(self._started, progress - self._before, torch.zeros_like(progress))
        self._before = progress
        self._started[:] = True
        return change + done

    def reset(self, env_ids: Tensor | slice | None = None) -> None:
        """Forget the progress of the episodes that ended in environments, indices (k,)."""
        self._started[slice(None) if env_ids is None else env_ids] = False


def success(env: GantryEnv) -> Tensor:
    """(N,) bool: the task is done."""
    state = ArmState.of(env)
    return state.rule.success(state)


def lost(env: GantryEnv) -> Tensor:
    """(N,) bool: the object is out of reach."""
    state = ArmState.of(env)
    return state.rule.lost(state)


@requires_model_fields(
    "body_mass",
    "body_inertia",
    "geom_friction",
    "actuator_gainprm",
    "actuator_biasprm",
    "actuator_forcerange",
    "dof_armature",
    "dof_damping",
    "dof_frictionloss",
    recompute=RecomputeLevel.set_const,
)
def begin_episode(env: GantryEnv, env_ids: Tensor | None) -> None:
    """Lay arm, object and fixture where chance puts them, and choose the physics of the episode."""
    if env_ids is None:
        env_ids = torch.arange(env.num_envs, device=env.device)
    state: ArmState = env.task_state
    ids = env_ids.tolist()
    draws = Draws(state.seed, ids, [state.episodes[i] for i in ids], env.device)
    for i in ids:
        state.episodes[i] += 1
    joints = state.starts[draws.index(len(state.starts))].clone()
    ee_pos, _ = state.decoder.ee_pose(joints)
    start = state.rule.start(draws, ee_pos)
    if start.gripper_m is not None:
        joints[:, state.gripper] = start.gripper_m
    data = env.sim.data
    data.qpos[env_ids[:, None], state.qpos_ids] = joints
    chain, offset = state.gripper, state.cfg.randomize.encoder_offset_rad
    if offset != (0.0, 0.0):
        state.encoder_offset[env_ids, :chain] = draws.each(ENCODERS, chain, *offset)
    state.start_joint_pos[env_ids] = joints + state.encoder_offset[env_ids]
    # The other finger mirrors the driven one.
    data.qpos[env_ids, _other_finger(env)] = -joints[:, state.gripper]
    data.qpos[env_ids[:, None], state.things.qpos_ids.flatten()] = start.things_in_base.flatten(1)
    state.begin(env_ids, start)
    for place, name in enumerate(state.rule.bench.mocap_bodies):
        data.mocap_pos[env_ids, int(env.sim.mj_model.body(name).mocapid[0])] = start.fixtures_m[:, place]
    _choose_physics(env, env_ids, draws, state)
    action: Any = env.action_manager.get_term(ACTION)
    action.late[env_ids, 0] = draws.uniform(0.0, 1.0) < state.cfg.randomize.late_share


def _other_finger(env: GantryEnv) -> int:
    return int(env.sim.mj_model.joint("robot/right_finger").qposadr[0])


def _choose_physics(env: GantryEnv, env_ids: Tensor, draws: Draws, state: ArmState) -> None:
    sim, model, chance = env.sim, env.sim.mj_model, state.cfg.randomize
    mass = draws.uniform(*chance.mass)
    for body in (model.body(name).id for name in state.rule.bench.thing_bodies):
        sim.model.body_mass[env_ids, body] = sim.get_default_field("body_mass")[body] * mass
        sim.model.body_inertia[env_ids, body] = sim.get_default_field("body_inertia")[body] * mass[:, None]
    friction = draws.uniform(*chance.friction)
    for name in PADS:
        sim.model.geom_friction[env_ids, model.geom(f"robot/{name}").id, 0] = friction
    # Where neither has priority the larger friction of two shapes counts, so all others change together.
    others = [geom for geom in range(model.ngeom) if model.geom_priority[geom] == 0]
    sim.model.geom_friction[env_ids[:, None], torch.tensor(others, device=env.device), 0] = (
        TABLE_FRICTION[0] * friction[:, None]
    )
    stiffness, damping = draws.uniform(*chance.stiffness)[:, None], draws.uniform(*chance.damping)[:, None]
    joints = env.robot.indexing.joint_v_adr
    if chance.strength_share != (1.0, 1.0):
        strength = draws.each(STRENGTH, 1, *chance.strength_share)
        stiffness, damping = stiffness * strength, damping * strength
        limits = sim.get_default_field("actuator_forcerange")
        sim.model.actuator_forcerange[env_ids] = limits * strength[..., None]
    if chance.armature_share != (1.0, 1.0):
        armature = sim.get_default_field("dof_armature")[joints]
        sim.model.dof_armature[env_ids[:, None], joints] = armature * draws.each(ARMATURE, 1, *chance.armature_share)
    gain, bias = (sim.get_default_field(f"actuator_{kind}prm") for kind in ("gain", "bias"))
    sim.model.actuator_gainprm[env_ids, :, 0] = gain[:, 0] * stiffness
    sim.model.actuator_biasprm[env_ids, :, 1] = bias[:, 1] * stiffness
    sim.model.actuator_biasprm[env_ids, :, 2] = bias[:, 2] * damping
    for field, low_high in (
        ("dof_damping", chance.viscous_friction_nm_s_rad),
        ("dof_frictionloss", chance.coulomb_friction_nm),
    ):
        if low_high is not None:
            getattr(sim.model, field)[env_ids[:, None], joints] = draws.uniform(*low_high)[:, None]
