"""Contract of a task of mjlab, read from the environment that mjlab builds."""

from __future__ import annotations

from typing import Any

import numpy as np
from mjlab.envs.mdp.actions import JointPositionAction

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.managed_tasks.contract import (
    Contracts,
    errors_of,
    floats,
    require_nothing,
    robot_with,
)
from gantry_sim.managed_tasks.terms import Driven
from gantry_sim.mjlab_tasks.actions import driven_of, joint_action, joint_ends, joint_ids, kind_of
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
    action, driven = joint_action(env), driven_of(env)
    terms = actor_terms(env, groups)
    missing = errors_of(lambda term: contract_term(term, driven), terms)
    if len({is_biased(term) for term in terms if reads_joints(term)}) > 1:
        missing.append("some of its terms read joints with the encoders' bias and some without it.")
    require_nothing(missing)
    kind, ids = kind_of(action), joint_ids(driven)
    spec = robot_with(driven.joint_names, "mjlab", kind.body_type)
    stiffness, damping, effort = kind.loops(driven)
    effort = np.minimum(effort, spec.array("effort_limit_nm"))
    lower, upper = _limits(driven, action, spec)
    parts = kind.parts(action, driven, effort, terms, action_clip)
    contract = PolicyContract(
        robot=spec.name,
        embodiment=spec.embodiment,
        rate_hz=round(1.0 / env.step_dt, 9),
        joint_names=driven.joint_names,
        joint_lower_rad=floats(lower),
        joint_upper_rad=floats(upper),
        default_pos_rad=floats(driven.entity.data.default_joint_pos[0, ids].cpu().numpy()),
        stiffness_nm_rad=floats(stiffness),
        damping_nm_s_rad=floats(damping),
        effort_limit_nm=floats(effort),
        observations=tuple(contract_term(term, driven) for term in terms),
        action=parts.action,
        command=parts.command,
        map_window=window_of(terms, driven),
        body=parts.body,
        acceptance=parts.acceptance,
    )
    contract.check_robot(spec)
    return contract


def _limits(driven: Driven, action: Any, spec: RobotSpec) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper limits (n,) of the joints, rad: those of model, robot and action together."""
    model = joint_ends(driven, driven.entity.data.default_joint_pos_limits)
    lower, upper = np.maximum(model[:, 0], spec.array("lower_rad")), np.minimum(model[:, 1], spec.array("upper_rad"))
    if isinstance(action, JointPositionAction) and action.cfg.clip is not None:
        own = action._clip[0].cpu().numpy().astype(np.float64)
        lower, upper = np.maximum(lower, own[:, 0]), np.minimum(upper, own[:, 1])
    return lower, upper


CONTRACTS = Contracts(lambda cfg: cfg.key, lambda cfg: f"mjlab:{cfg.task}", _derived)
"""Contracts of mjlab's tasks."""
