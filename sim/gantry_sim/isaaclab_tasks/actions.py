"""Isaac Lab's action terms as parts of a contract: joint positions of robots with gains, and efforts of mechanisms."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gantry_deploy.contract.arm_spec import JOINT_TARGET
from gantry_deploy.contract.mechanism_spec import JOINT_EFFORT, MechanismSpec
from gantry_deploy.contract.policy_contract import Acceptance, ActionSpec, CommandSpec, PolicyContract
from gantry_sim.managed_tasks.contract import NoContractError, floats, row_of, velocity_command
from gantry_sim.managed_tasks.terms import ActorTerm, Driven

NO_COMMAND = CommandSpec("", (), (), (), ())
"""Nothing is asked of the policy."""
MIN_BALANCED_RATE = 0.9
"""Share of episodes in which a mechanism must come to rest, for `gantry check`."""
RESET = "reset_joints_by_offset"
"""Isaac Lab's event that draws the joints' positions at the start of an episode."""


@dataclass(frozen=True)
class Parts:
    """Parts of a contract that depend on the kind of action."""

    action: ActionSpec
    """Meaning of the actor's output."""
    command: CommandSpec
    """Commands that the policy accepts."""
    body: Any = None
    """Part of the embodiment."""
    acceptance: Acceptance = field(default_factory=Acceptance)
    """Thresholds of `gantry check`."""


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
    if len(kinds) != 1 or not set(kinds.values()) <= set(KINDS):
        told = ", ".join(f"'{name}' ({kind})" for name, kind in kinds.items())
        raise NoContractError(f"its actions are {told}; expected a single {' or '.join(KINDS)}.")


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
    efforts = np.array(row_of(action._scale, len(names)))
    scale = efforts / limits[[driven.joint_names.index(name) for name in names]]
    if any(row_of(action._offset, len(names))):
        raise NoContractError(f"its efforts have the offset {action._offset}, expected none.")
    for name, effort, share in zip(names, efforts, scale, strict=True):
        if abs(share) > 1.0:
            raise NoContractError(
                f"its action pushes '{name}' with {effort:g} per unit, beyond the joint's limit {effort / share:g}; a "
                "joint without a motor has next to none."
            )
    lower, upper = _starts(driven)
    return Parts(
        ActionSpec(JOINT_EFFORT, floats(scale), (0.0,) * len(names), clip=clip),
        NO_COMMAND,
        MechanismSpec(names, floats(lower), floats(upper)),
        Acceptance(min_success_rate=MIN_BALANCED_RATE),
    )


def _starts(driven: Driven) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest position (n,) of the joints at the start of an episode, as its events draw them; default pose
    for joints that none of them moves. Velocities that they draw as well are left out: a mechanism begins at rest.

    Raises:
        NoContractError: If an event places joints in another way.
    """
    names, events = driven.entity.joint_names, getattr(driven.env.cfg, "events", None)
    order = [names.index(name) for name in driven.joint_names]
    default = driven.entity.data.default_joint_pos.torch[0].cpu().numpy().astype(np.float64)
    lower, upper = default, default
    for event in vars(events).values() if events is not None else ():
        function = getattr(getattr(event, "func", None), "__name__", "")
        chosen = getattr(event, "params", {}).get("asset_cfg")
        if getattr(event, "mode", "") != "reset" or getattr(chosen, "name", driven.entity_name) != driven.entity_name:
            continue
        if function != RESET:
            if "joint" in function:
                raise NoContractError(f"its event {function} places joints; expected {RESET}.")
            continue
        low, high = event.params["position_range"]
        patterns = getattr(chosen, "joint_names", None) or ".*"
        patterns = [patterns] if isinstance(patterns, str) else list(patterns)
        moved = [any(re.fullmatch(pattern, name) for pattern in patterns) for name in names]
        lower, upper = np.where(moved, default + low, lower), np.where(moved, default + high, upper)
    ends = driven.entity.data.joint_pos_limits.torch[0].cpu().numpy().astype(np.float64)
    lower, upper = (np.clip(values, ends[:, 0], ends[:, 1]) for values in (lower, upper))
    return lower[order], upper[order]


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
