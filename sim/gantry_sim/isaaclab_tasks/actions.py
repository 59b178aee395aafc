"""Isaac Lab's action terms as parts of a contract: joint positions of robots with gains, and efforts of mechanisms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gantry_deploy.contract.arm_spec import JOINT_TARGET
from gantry_deploy.contract.mechanism_spec import MechanismSpec
from gantry_deploy.contract.policy_contract import ActionSpec, PolicyContract
from gantry_sim.managed_tasks.actions import Parts, effort_parts, require_single_of, starts_of
from gantry_sim.managed_tasks.contract import NoContractError, row_of, velocity_command
from gantry_sim.managed_tasks.terms import ActorTerm, Driven


@dataclass(frozen=True)
class Kind:
    """One of Isaac Lab's kinds of actions that a contract can say."""

    joints: Callable[[Any, Any], tuple[str, ...]]
    """(action term, entity) -> joints of the contract."""
    parts: Callable[[Any, Driven, np.ndarray, list[ActorTerm], float], Parts]
    """(action term, robot, limits, the actor's terms, bound of the actions) -> parts of the contract; limits are
    the efforts (n,) of the joints, N m or N."""
    body_type: type | None
    """Type of the body that the robot's embodiment has; None for none."""
    recorded: Callable[[Any, Driven], dict[str, Any]]
    """(action term, robot) -> targets (N, n) of the step just taken, by their names in a recording."""
    clip: Callable[[PolicyContract], dict[str, tuple[float, float]]]
    """Contract -> bounds of what the actions command, by joint, as on a robot."""
    clipped: Callable[[Any, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    """(action term with bounds of its own, lower, upper) -> limits (n,) of the joints, rad, with those bounds."""


def joint_action(env: Any) -> Any:
    """The action term of an environment.

    Raises:
        NoContractError: If there are several, or it is none of :data:`KINDS`.
    """
    names = list(env.action_manager.active_terms)
    terms = [env.action_manager.get_term(name) for name in names]
    require_single({name: type(term).__name__ for name, term in zip(names, terms, strict=True)})
    return terms[0]


def require_single(kinds: dict[str, str]) -> None:
    """Refuse actions that are not a single one of :data:`KINDS`, from names and kinds.

    Raises:
        NoContractError: If so.
    """
    require_single_of(kinds, KINDS)


def kind_of(action: Any) -> Kind:
    """The kind of an action term of Isaac Lab."""
    return KINDS[type(action).__name__]


def driven_of(env: Any) -> Driven:
    """The robot that the actions of an environment move.

    Raises:
        NoContractError: As of :func:`joint_action`.
    """
    action = joint_action(env)
    name = action.cfg.asset_name
    return Driven(env, name, kind_of(action).joints(action, env.scene[name]))


def _position_parts(action: Any, driven: Driven, limits: np.ndarray, terms: list[ActorTerm], clip: float) -> Parts:
    env, width = driven.env, len(driven.joint_names)
    command = velocity_command(terms, lambda name: env.command_manager.get_term(name).cfg.ranges)
    spec = ActionSpec(JOINT_TARGET, row_of(action._scale, width), row_of(action._offset, width), clip=clip)
    return Parts(spec, command)


def _effort_parts(action: Any, driven: Driven, limits: np.ndarray, terms: list[ActorTerm], clip: float) -> Parts:
    names = tuple(action._joint_names)
    return effort_parts(
        dict(zip(names, row_of(action._scale, len(names)), strict=True)),
        row_of(action._offset, len(names)),
        dict(zip(driven.joint_names, limits.tolist(), strict=True)),
        _starts(driven),
        clip,
    )


def _starts(driven: Driven) -> tuple[np.ndarray, np.ndarray]:
    names, data = driven.entity.joint_names, driven.entity.data
    order = [names.index(name) for name in driven.joint_names]
    default, ends = (
        values.torch[0, order].cpu().numpy().astype(np.float64)
        for values in (data.default_joint_pos, data.joint_pos_limits)
    )
    events = getattr(driven.env.cfg, "events", None)
    return starts_of(
        vars(events).values() if events is not None else (), driven.entity_name, driven.joint_names, default, ends
    )


def _clipped_positions(action: Any, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    own = action._clip[0].cpu().numpy().astype(np.float64)
    return np.maximum(lower, own[:, 0]), np.minimum(upper, own[:, 1])


def _clipped_efforts(action: Any, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    raise NoContractError(f"its efforts are limited to {action.cfg.clip}; expected the actuators' limits alone.")


def _effort_limits(contract: PolicyContract) -> dict[str, tuple[float, float]]:
    limits = dict(zip(contract.joint_names, contract.effort_limit_nm, strict=True))
    body: MechanismSpec = contract.body
    return {name: (-limits[name], limits[name]) for name in body.driven_joints}


def _recorded_positions(action: Any, driven: Driven) -> dict[str, Any]:
    return {"joint_target_rad": action.processed_actions}


def _recorded_efforts(action: Any, driven: Driven) -> dict[str, Any]:
    """Efforts of all joints; positions are those of the default pose, which nothing follows."""
    names, pushed = driven.entity.joint_names, action.processed_actions
    order = [names.index(name) for name in driven.joint_names]
    default = driven.entity.data.default_joint_pos.torch[:, order]
    efforts = default.new_zeros(default.shape)
    efforts[:, [driven.joint_names.index(name) for name in action._joint_names]] = pushed
    return {"joint_target_rad": default, "joint_target_effort_nm": efforts}


KINDS: dict[str, Kind] = {
    "JointPositionAction": Kind(
        lambda action, entity: tuple(action._joint_names),
        _position_parts,
        None,
        _recorded_positions,
        lambda contract: contract.joint_limits,
        _clipped_positions,
    ),
    "JointEffortAction": Kind(
        lambda action, entity: tuple(entity.joint_names),
        _effort_parts,
        MechanismSpec,
        _recorded_efforts,
        _effort_limits,
        _clipped_efforts,
    ),
}
"""Isaac Lab's kind of action -> what a contract says of it."""
