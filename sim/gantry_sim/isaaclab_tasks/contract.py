"""Contract of a task of Isaac Lab, read from the environment that Isaac Lab builds."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gantry_deploy.contract.arm_spec import JOINT_TARGET
from gantry_deploy.contract.policy_contract import ActionSpec, PolicyContract
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec
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
    require_bodiless,
    require_nothing,
    robot_with,
    row_of,
    velocity_command,
)
from gantry_sim.managed_tasks.terms import Driven

ACTION = "JointPositionAction"
"""The one kind of action that a contract can say here."""
LIMITS = ("actuator_effort_limit", "joint_effort_limit", "effort_limit_sim", "effort_limit")
"""Fields of an actuator's configuration that limit its torque, the one that holds first."""


def joint_action(env: Any) -> Any:
    """The action term of an environment.

    Raises:
        NoContractError: If there are several, or it is none of joint positions.
    """
    names = list(env.action_manager.active_terms)
    terms = [env.action_manager.get_term(name) for name in names]
    if len(terms) != 1 or type(terms[0]).__name__ != ACTION:
        kinds = ", ".join(f"'{name}' ({type(term).__name__})" for name, term in zip(names, terms, strict=True))
        raise NoContractError(f"its actions are {kinds}; expected a single {ACTION}.")
    return terms[0]


def driven_of(env: Any) -> Driven:
    """The robot that the actions of an environment move.

    Raises:
        NoContractError: As of :func:`joint_action`.
    """
    action = joint_action(env)
    return Driven(env, action.cfg.asset_name, tuple(action._joint_names))


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
    require_nothing([*unknown, *_other_actions(env_cfg)], note if unknown else "")


def _other_actions(env_cfg: Any) -> list[str]:
    """Actions of a configuration that no contract can say, each in words."""
    terms = {name: term for name, term in vars(env_cfg.actions).items() if term is not None}
    kinds = {name: type(term).__name__.removesuffix("Cfg") for name, term in terms.items()}
    if list(kinds.values()) == [ACTION]:
        return []
    told = ", ".join(f"'{name}' ({kind})" for name, kind in kinds.items())
    return [f"its actions are {told}; expected a single {ACTION}."]


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
    spec, width = _robot(driven), len(driven.joint_names)
    order = [driven.entity.joint_names.index(name) for name in driven.joint_names]
    stiffness, damping = _gains(driven.entity)
    lower, upper = _limits(driven.entity, action, order, spec)
    torque = np.minimum(_torque_limits(driven)[order], spec.array("effort_limit_nm"))
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
        action=ActionSpec(JOINT_TARGET, row_of(action._scale, width), row_of(action._offset, width), clip=action_clip),
        command=velocity_command(terms, lambda name: env.command_manager.get_term(name).cfg.ranges),
        map_window=window_of(terms, driven),
    )
    contract.check_robot(spec)
    return contract


def _is_mixed(env: Any, group: str) -> bool:
    """Whether a group's numbers are not one term after the other."""
    manager = env.observation_manager
    return not manager.group_obs_concatenate[group] or bool(manager._group_obs_time_major[group])


def _robot(driven: Driven) -> RobotSpec:
    """Gantry's robot in the scene: by its file, or by its joints.

    Raises:
        NoContractError: If there is none.
    """
    name = robot_of(str(getattr(driven.entity.cfg.spawn, "usd_path", "")))
    if name is None or robot_spec(name).joint_names != driven.joint_names:
        return robot_with(driven.joint_names, "Isaac Lab")
    require_bodiless(robot_spec(name), "Isaac Lab")
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


def _limits(robot: Any, action: Any, order: list[int], spec: RobotSpec) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper limits (n,) of the targets, rad: those of model, robot and action together."""
    model = robot.data.joint_pos_limits.torch[0, order].cpu().numpy().astype(np.float64)
    lower, upper = np.maximum(model[:, 0], spec.array("lower_rad")), np.minimum(model[:, 1], spec.array("upper_rad"))
    if action.cfg.clip is not None:
        own = action._clip[0].cpu().numpy().astype(np.float64)
        lower, upper = np.maximum(lower, own[:, 0]), np.minimum(upper, own[:, 1])
    return lower, upper


CONTRACTS = Contracts(lambda cfg: cfg.key, lambda cfg: PREFIX + cfg.task, _derived)
"""Contracts of Isaac Lab's tasks."""
