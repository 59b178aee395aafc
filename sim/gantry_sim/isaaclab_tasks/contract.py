"""Contract of a task of Isaac Lab, read from the environment that Isaac Lab builds."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec
from gantry_sim.isaaclab_tasks.actions import driven_of, joint_action, kind_of, require_single
from gantry_sim.isaaclab_tasks.assets import robot_of
from gantry_sim.isaaclab_tasks.cfg import IsaacCfg, actor_groups, isaac_env_cfg
from gantry_sim.isaaclab_tasks.names import PREFIX
from gantry_sim.isaaclab_tasks.opened import OpenEnv
from gantry_sim.isaaclab_tasks.terms import (
    actor_terms,
    configured_terms,
    contract_term,
    known_functions,
    require_known,
    window_of,
)
from gantry_sim.managed_tasks.contract import (
    Contracts,
    NoContractError,
    errors_of,
    floats,
    require_body,
    require_nothing,
    robot_with,
)
from gantry_sim.managed_tasks.terms import Driven

LIMITS = ("actuator_effort_limit", "joint_effort_limit", "effort_limit_sim", "effort_limit")
"""Fields of an actuator's configuration that limit its torque, the one that holds first."""


def _derived(cfg: IsaacCfg) -> PolicyContract:
    env_cfg, _ = isaac_env_cfg(cfg.one(), "cpu", seed=0)
    groups = actor_groups(cfg.task)
    require_sayable(env_cfg, cfg.task, groups)
    tiles = getattr(getattr(env_cfg.scene, "terrain", None), "terrain_generator", None)
    if tiles is not None:
        tiles.num_rows = tiles.num_cols = 1
    opened = OpenEnv(cfg.task, env_cfg)
    try:
        return contract_of(opened.env, groups, cfg.action_clip)
    finally:
        opened.close()


def require_sayable(env_cfg: Any, task_id: str, groups: tuple[str, ...]) -> None:
    """Refuse a configuration with terms or actions that no contract can say; its environment may lack a file.

    Args:
        env_cfg: Isaac Lab's.
        task_id: Name in gymnasium's registry.
        groups: Observation groups of the actor.

    Raises:
        NoContractError: With all of them.
    """
    if not hasattr(env_cfg, "observations") or not hasattr(env_cfg, "actions"):
        raise NoContractError(
            f"{task_id} is a direct environment of Isaac Lab ({type(env_cfg).__name__}), which computes observations "
            "and actions in code of its own, without managers that would name them."
        )
    unknown = errors_of(require_known, configured_terms(env_cfg, groups))
    note = f" Known are the functions {known_functions()}."
    require_nothing([*unknown, *errors_of(_require_action, [env_cfg])], note if unknown else "")


def _require_action(env_cfg: Any) -> None:
    """Refuse actions of a configuration that no contract can say.

    Raises:
        NoContractError: If so.
    """
    terms = {name: term for name, term in vars(env_cfg.actions).items() if term is not None}
    require_single({name: type(term).__name__.removesuffix("Cfg") for name, term in terms.items()})


def contract_of(env: Any, groups: tuple[str, ...], action_clip: float) -> PolicyContract:
    """The contract of an environment of Isaac Lab.

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
    missing += [f"the terms of group '{name}' are not joined term by term." for name in groups if _is_mixed(env, name)]
    require_nothing(missing)
    kind = kind_of(action)
    spec = _robot(driven, kind.body_type)
    order = [driven.entity.joint_names.index(name) for name in driven.joint_names]
    stiffness, damping = _gains(driven.entity)
    lower, upper = _limits(driven.entity, order, spec)
    if action.cfg.clip is not None:
        lower, upper = kind.clipped(action, lower, upper)
    torque = np.minimum(_torque_limits(driven)[order], spec.array("effort_limit_nm"))
    parts = kind.parts(action, driven, torque, terms, action_clip)
    contract = PolicyContract(
        robot=spec.name,
        embodiment=spec.embodiment,
        rate_hz=round(1.0 / env.step_dt, 9),
        joint_names=driven.joint_names,
        joint_lower_rad=floats(lower),
        joint_upper_rad=floats(upper),
        default_pos_rad=floats(driven.entity.data.default_joint_pos.torch[0, order].cpu().numpy()),
        stiffness_nm_rad=floats(stiffness[order]),
        damping_nm_s_rad=floats(damping[order]),
        effort_limit_nm=floats(torque),
        observations=tuple(contract_term(term, driven) for term in terms),
        action=parts.action,
        command=parts.command,
        map_window=window_of(terms, driven),
        body=parts.body,
        acceptance=parts.acceptance,
    )
    contract.check_robot(spec)
    return contract


def _is_mixed(env: Any, group: str) -> bool:
    """Whether a group's numbers are not one term after the other."""
    manager = env.observation_manager
    return not manager.group_obs_concatenate[group] or bool(manager._group_obs_time_major[group])


def _robot(driven: Driven, body_type: type | None) -> RobotSpec:
    """Gantry's robot in the scene, of an embodiment with such a body: by its file, or by its joints.

    Raises:
        NoContractError: If there is none.
    """
    name = robot_of(str(getattr(driven.entity.cfg.spawn, "usd_path", "")))
    if name is None or robot_spec(name).joint_names != driven.joint_names:
        return robot_with(driven.joint_names, "Isaac Lab", body_type)
    require_body(robot_spec(name), "Isaac Lab", body_type)
    return robot_spec(name)


def _gains(robot: Any) -> tuple[np.ndarray, np.ndarray]:
    """Stiffness and damping (n,) of the joints in the robot's order, from whatever runs the actuator.

    Newton's actuators keep theirs to themselves, so that the robot's own numbers are zero.

    Raises:
        NoContractError: If an actuator has none.
    """
    from isaaclab.actuators import ActuatorBase
    from isaaclab.actuators.newton import read_group_parameter

    stiffness, damping = (values.torch[0].clone() for values in (robot.data.joint_stiffness, robot.data.joint_damping))
    for name, group in robot.actuators.items():
        if isinstance(group, ActuatorBase):
            if getattr(group.cfg, "network_file", None) is not None:
                raise NoContractError(f"the actuator '{name}' is a network, expected stiffness and damping.")
            stiffness[group.joint_indices], damping[group.joint_indices] = group.stiffness[0], group.damping[0]
        else:
            where = robot.actuators._group_joint_indices[name]
            stiffness[where] = read_group_parameter(robot.actuators, name, "controller", "kp")[0]
            damping[where] = read_group_parameter(robot.actuators, name, "controller", "kd")[0]
    return stiffness.cpu().numpy().astype(np.float64), damping.cpu().numpy().astype(np.float64)


def _torque_limits(driven: Driven) -> np.ndarray:
    """Torque limits (n,), N m, of the joints in the robot's order, as its actuators are configured."""
    robot = driven.entity
    limits = robot.data.joint_effort_limits.torch[0].cpu().numpy().astype(np.float64)
    for actuator in robot.cfg.actuators.values():
        given = next((v for v in (getattr(actuator, field, None) for field in LIMITS) if v is not None), None)
        if given is None:
            continue
        for index, joint in enumerate(robot.joint_names):
            if any(re.fullmatch(pattern, joint) for pattern in actuator.joint_names_expr):
                named = given if isinstance(given, dict) else {".*": given}
                found = [value for pattern, value in named.items() if re.fullmatch(pattern, joint)]
                limits[index] = found[0] if found else limits[index]
    return limits


def _limits(robot: Any, order: list[int], spec: RobotSpec) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper limits (n,) of the joints, rad: those of model and robot together."""
    model = robot.data.joint_pos_limits.torch[0, order].cpu().numpy().astype(np.float64)
    return np.maximum(model[:, 0], spec.array("lower_rad")), np.minimum(model[:, 1], spec.array("upper_rad"))


CONTRACTS = Contracts(lambda cfg: cfg.key, lambda cfg: PREFIX + cfg.task, _derived)
"""Contracts of Isaac Lab's tasks."""
