"""Contract of a task of mjlab, read from the environment that mjlab builds."""

from __future__ import annotations

from typing import Any

import numpy as np
from mjlab.actuator import BuiltinPositionActuator
from mjlab.envs.mdp.actions import JointPositionAction

from gantry_deploy.contract.arm_spec import JOINT_TARGET
from gantry_deploy.contract.policy_contract import ActionSpec, PolicyContract
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.managed_tasks.contract import (
    Contracts,
    NoContractError,
    errors_of,
    floats,
    require_nothing,
    robot_with,
    row_of,
    velocity_command,
)
from gantry_sim.managed_tasks.terms import Driven
from gantry_sim.mjlab_tasks.cfg import MjlabCfg, actor_groups, mjlab_env_cfg
from gantry_sim.mjlab_tasks.terms import (
    actor_terms,
    configured_terms,
    contract_term,
    is_biased,
    known_functions,
    reads_joints,
    require_known,
    window_of,
)
from gantry_sim.process.suppress_output import quietly


def joint_action(env: Any) -> JointPositionAction:
    """The action term of an environment.

    Raises:
        NoContractError: If there are several, or it is none of joint positions.
    """
    names = list(env.action_manager.active_terms)
    terms = [env.action_manager.get_term(name) for name in names]
    kinds = ", ".join(f"'{name}' ({type(term).__name__})" for name, term in zip(names, terms, strict=True))
    if len(terms) != 1 or not isinstance(terms[0], JointPositionAction):
        raise NoContractError(f"its actions are {kinds}; expected a single JointPositionAction.")
    return terms[0]


def _derived(cfg: MjlabCfg) -> PolicyContract:
    env_cfg = mjlab_env_cfg(cfg, seed=0)
    # Told without an environment, which may lack a file.
    unknown = errors_of(require_known, configured_terms(env_cfg, actor_groups(cfg.task)))
    require_nothing(unknown, f" Known are the functions {known_functions()}.")
    env_cfg.scene.num_envs = 1
    terrain = env_cfg.scene.terrain
    if terrain is not None and terrain.terrain_generator is not None:
        terrain.terrain_generator.num_rows = terrain.terrain_generator.num_cols = 1
    with quietly():
        env = GantryEnv(env_cfg, "cpu")
    try:
        return contract_of(env, actor_groups(cfg.task), cfg.action_clip)
    finally:
        env.close()


def contract_of(env: Any, groups: tuple[str, ...], action_clip: float) -> PolicyContract:
    """The contract of an environment of mjlab.

    Args:
        env: Built, with any number of environments.
        groups: Observation groups of the actor, in order.
        action_clip: Bound of the actions.

    Raises:
        NoContractError: With what is missing.
        ContractError: If its numbers make no sense together.
    """
    action = joint_action(env)
    driven = Driven(env, action.cfg.entity_name, tuple(action.target_names))
    terms = actor_terms(env, groups)
    missing = errors_of(lambda term: contract_term(term, driven), terms)
    if len({is_biased(term) for term in terms if reads_joints(term)}) > 1:
        missing.append("some of its terms read joints with the encoders' bias and some without it.")
    require_nothing(missing)
    spec = robot_with(driven.joint_names, "mjlab")
    gains = _gains(driven)
    limits = _limits(driven, action, spec)
    offset = row_of(action.offset, action.action_dim)
    default = driven.entity.data.default_joint_pos[0].cpu().numpy()[action.target_ids.cpu().numpy()]
    contract = PolicyContract(
        robot=spec.name,
        embodiment=spec.embodiment,
        rate_hz=round(1.0 / env.step_dt, 9),
        joint_names=driven.joint_names,
        joint_lower_rad=floats(limits[0]),
        joint_upper_rad=floats(limits[1]),
        default_pos_rad=floats(default),
        stiffness_nm_rad=floats(gains[0]),
        damping_nm_s_rad=floats(gains[1]),
        effort_limit_nm=floats(np.minimum(gains[2], spec.array("effort_limit_nm"))),
        observations=tuple(contract_term(term, driven) for term in terms),
        action=ActionSpec(JOINT_TARGET, row_of(action.scale, action.action_dim), offset, clip=action_clip),
        command=velocity_command(terms, lambda name: env.command_manager.get_term(name).cfg.ranges),
        map_window=window_of(terms, driven),
    )
    contract.check_robot(spec)
    return contract


def _gains(driven: Driven) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stiffness, damping and torque limit, (n,) each, of the position servos in the built model."""
    model, entity = driven.env.sim.mj_model, driven.entity
    numbers = {}
    for actuator in entity.actuators:
        if not isinstance(actuator, BuiltinPositionActuator):
            raise NoContractError(
                f"the actuator of {', '.join(actuator.target_names)} is a {type(actuator).__name__}, expected a "
                "BuiltinPositionActuator, the position loop that a robot's motors run."
            )
        for name, index in zip(actuator.target_names, actuator.global_ctrl_ids.tolist(), strict=True):
            limit = model.actuator_forcerange[index][1] if model.actuator_forcelimited[index] else np.inf
            numbers[name] = (model.actuator_gainprm[index][0], -model.actuator_biasprm[index][2], limit)
    stiffness, damping, limit = np.array([numbers[name] for name in driven.joint_names]).T
    return stiffness, damping, limit


def _limits(driven: Driven, action: JointPositionAction, spec: RobotSpec) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper limits (n,) of the targets, rad: those of model, robot and action together."""
    ids = action.target_ids
    model = driven.entity.data.default_joint_pos_limits[0, ids].cpu().numpy().astype(np.float64)
    lower, upper = np.maximum(model[:, 0], spec.array("lower_rad")), np.minimum(model[:, 1], spec.array("upper_rad"))
    if action.cfg.clip is not None:
        own = action._clip[0].cpu().numpy().astype(np.float64)
        lower, upper = np.maximum(lower, own[:, 0]), np.minimum(upper, own[:, 1])
    return lower, upper


CONTRACTS = Contracts(lambda cfg: cfg.key, lambda cfg: f"mjlab:{cfg.task}", _derived)
"""Contracts of mjlab's tasks."""
