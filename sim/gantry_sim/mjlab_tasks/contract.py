"""Contract of a task of mjlab, read from the environment that mjlab builds."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from mjlab.actuator import BuiltinPositionActuator
from mjlab.envs.mdp.actions import JointPositionAction
from mjlab.tasks.velocity.mdp import UniformVelocityCommand

from gantry_deploy.contract.arm_spec import JOINT_TARGET
from gantry_deploy.contract.embodiments import load_embodiment
from gantry_deploy.contract.policy_contract import (
    BODY_VELOCITY,
    BODY_VELOCITY_NAMES,
    ActionSpec,
    CommandSpec,
    PolicyContract,
)
from gantry_deploy.errors import ContractError
from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_names, robot_spec
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.mjlab_tasks.cfg import MjlabCfg, actor_groups, mjlab_env_cfg
from gantry_sim.mjlab_tasks.terms import (
    ActorTerm,
    Driven,
    MissingTermError,
    actor_terms,
    configured_terms,
    contract_term,
    known_functions,
    require_known,
    window_of,
)
from gantry_sim.process.suppress_output import quietly

_KEPT: dict[str, PolicyContract | str] = {}


class NoContractError(GantryError):
    """A task of mjlab without a contract; the text says what is missing."""


def mjlab_contract(cfg: MjlabCfg) -> PolicyContract:
    """The contract of the policies of a task; derived once for each configuration.

    Raises:
        NoContractError: With everything that keeps the task from having one.
    """
    if cfg.key not in _KEPT:
        missing = _unknown_terms(cfg)
        note = f" Known are the functions {known_functions()}."
        _KEPT[cfg.key] = _missing_text(cfg, missing, note) if missing else _derived(cfg)
    found = _KEPT[cfg.key]
    if isinstance(found, str):
        raise NoContractError(found)
    return found


def contract_or_none(cfg: MjlabCfg) -> PolicyContract | None:
    """The same; None where there is none."""
    try:
        return mjlab_contract(cfg)
    except NoContractError:
        return None


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


def _unknown_terms(cfg: MjlabCfg) -> list[str]:
    """Terms whose functions are not known: told without an environment, which may lack a file."""
    env_cfg = mjlab_env_cfg(cfg, seed=0)
    return _errors(require_known, configured_terms(env_cfg, actor_groups(cfg.task)))


def _errors(check: Any, terms: list[ActorTerm]) -> list[str]:
    found = []
    for term in terms:
        try:
            check(term)
        except GantryError as error:
            found.append(str(error))
    return found


def _missing_text(cfg: MjlabCfg, missing: list[str], note: str = "") -> str:
    return (
        f"Task 'mjlab:{cfg.task}' has no contract, so its policies are trained and evaluated, not exported: "
        f"{' And '.join(missing)}{note}"
    )


def _derived(cfg: MjlabCfg) -> PolicyContract | str:
    env_cfg = mjlab_env_cfg(cfg, seed=0)
    env_cfg.scene.num_envs = 1
    terrain = env_cfg.scene.terrain
    if terrain is not None and terrain.terrain_generator is not None:
        terrain.terrain_generator.num_rows = terrain.terrain_generator.num_cols = 1
    with quietly():
        env = GantryEnv(env_cfg, "cpu")
    try:
        return contract_of(env, actor_groups(cfg.task), cfg.action_clip)
    except (NoContractError, MissingTermError, ContractError) as error:
        return _missing_text(cfg, [str(error)])
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
    missing = _errors(lambda term: contract_term(term, driven), terms)
    if len({term.biased for term in terms if term.reads_joints}) > 1:
        missing.append("some of its terms read joints with the encoders' bias and some without it.")
    if missing:
        raise NoContractError(" And ".join(missing))
    spec = robot_with(driven.joint_names)
    gains = _gains(driven)
    limits = _limits(driven, action, spec)
    offset = _row(action.offset, action)
    default = driven.entity.data.default_joint_pos[0].cpu().numpy()[action.target_ids.cpu().numpy()]
    contract = PolicyContract(
        robot=spec.name,
        embodiment=spec.embodiment,
        rate_hz=round(1.0 / env.step_dt, 9),
        joint_names=driven.joint_names,
        joint_lower_rad=_floats(limits[0]),
        joint_upper_rad=_floats(limits[1]),
        default_pos_rad=_floats(default),
        stiffness_nm_rad=_floats(gains[0]),
        damping_nm_s_rad=_floats(gains[1]),
        effort_limit_nm=_floats(np.minimum(gains[2], spec.array("effort_limit_nm"))),
        observations=tuple(contract_term(term, driven) for term in terms),
        action=ActionSpec(JOINT_TARGET, _row(action.scale, action), offset, clip=action_clip),
        command=_command(env, terms),
        map_window=window_of(terms, driven),
    )
    contract.check_robot(spec)
    return contract


@lru_cache
def robot_with(joint_names: tuple[str, ...]) -> RobotSpec:
    """The installed robot that has these joints in this order.

    Raises:
        NoContractError: If there is none.
    """
    found = [spec for spec in map(robot_spec, robot_names()) if spec.joint_names == joint_names]
    if not found:
        raise NoContractError(
            f"no robot of Gantry has the joints {', '.join(joint_names)} in this order; `gantry robot new` makes one "
            f"from its model. Available: {', '.join(robot_names())}."
        )
    if load_embodiment(found[0].embodiment).body_type is not None:
        raise NoContractError(
            f"a contract for robot '{found[0].name}' needs a body, as every one of embodiment '{found[0].embodiment}', "
            "which mjlab's task does not describe."
        )
    return found[0]


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


def _command(env: Any, terms: list[ActorTerm]) -> CommandSpec:
    name = command_name(terms)
    if name is None:
        raise NoContractError("it has no velocity command among the actor's observations, and nothing could be asked.")
    command = env.command_manager.get_term(name)
    assert isinstance(command, UniformVelocityCommand)
    ranges = command.cfg.ranges
    low, high = zip(ranges.lin_vel_x, ranges.lin_vel_y, ranges.ang_vel_z, strict=True)
    return CommandSpec(BODY_VELOCITY, BODY_VELOCITY_NAMES, _floats(low), _floats(high), (0.0, 0.0, 0.0))


def command_name(terms: list[ActorTerm]) -> str | None:
    """Name of the command that a term of the actor shows; None for none."""
    return next((term.cfg.params["command_name"] for term in terms if "command_name" in term.cfg.params), None)


def _row(value: Any, action: JointPositionAction) -> tuple[float, ...]:
    """A number for each joint, of scale or offset of an action."""
    if isinstance(value, (int, float)):
        return (float(value),) * action.action_dim
    return _floats(value[0].cpu().numpy())


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
