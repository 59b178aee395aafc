"""mjlab's action terms as parts of a contract: joint positions of robots with gains, and efforts of mechanisms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import mujoco
import numpy as np
import torch
from mjlab.actuator import BuiltinMotorActuator, BuiltinPositionActuator, XmlActuator
from mjlab.envs.mdp.actions import (
    JointEffortAction,
    JointEffortActionCfg,
    JointPositionAction,
    JointPositionActionCfg,
)
from torch import Tensor

from gantry_deploy.actions.efforts import EffortDecoder
from gantry_deploy.contract.arm_spec import JOINT_TARGET
from gantry_deploy.contract.mechanism_spec import MechanismSpec
from gantry_deploy.contract.policy_contract import ActionSpec, PolicyContract
from gantry_sim.managed_tasks.actions import Parts, effort_parts, require_single_of, starts_of
from gantry_sim.managed_tasks.contract import NoContractError, row_of, velocity_command
from gantry_sim.managed_tasks.terms import ActorTerm, Driven

Loops = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Stiffness, damping and effort limit, (n,) each, of the joints."""


@dataclass(frozen=True)
class Kind:
    """One of mjlab's kinds of actions that a contract can say."""

    joints: Callable[[Any, Any], tuple[str, ...]]
    """(action term, entity) -> joints of the contract."""
    loops: Callable[[Driven], Loops]
    """Robot -> its loops in the built model."""
    parts: Callable[[Any, Driven, np.ndarray, list[ActorTerm], float], Parts]
    """(action term, robot, effort limits (n,), the actor's terms, bound of the actions) -> parts of the contract."""
    body_type: type | None
    """Type of the body that the robot's embodiment has; None for none."""
    recorded: Callable[[Any, Driven], dict[str, Tensor]]
    """(action term, robot) -> targets (N, n) of the step just taken, by their names in a recording."""
    bounded: Callable[[Any, PolicyContract], Any]
    """(action's configuration, contract) -> the configuration with the bounds that a robot has."""


def joint_action(env: Any) -> Any:
    """The action term of an environment.

    Raises:
        NoContractError: If there are several, or it is none of :data:`KINDS`.
    """
    names = list(env.action_manager.active_terms)
    terms = [env.action_manager.get_term(name) for name in names]
    require_single_of({name: _kind_name(term) for name, term in zip(names, terms, strict=True)}, KINDS)
    return terms[0]


def kind_of(action: Any) -> Kind:
    """The kind of an action term of mjlab, or of its configuration."""
    return KINDS[_kind_name(action)]


def _kind_name(action: Any) -> str:
    named = (kind.__name__.removesuffix("Cfg") for kind in type(action).__mro__)
    return next((name for name in named if name in KINDS), type(action).__name__)


def driven_of(env: Any) -> Driven:
    """The robot that the actions of an environment move.

    Raises:
        NoContractError: As of :func:`joint_action`.
    """
    action = joint_action(env)
    name = action.cfg.entity_name
    return Driven(env, name, kind_of(action).joints(action, env.scene[name]))


def joint_ids(driven: Driven) -> list[int]:
    """Places of the contract's joints among those of the entity."""
    return [driven.entity.joint_names.index(name) for name in driven.joint_names]


def joint_ends(driven: Driven, limits: Tensor) -> np.ndarray:
    """Lower and upper ends (n, 2) of the contract's joints, rad, by limits (N, joints, 2) of the entity.

    A joint without limits, which has zeros or infinities there, ends nowhere.
    """
    ends = limits[0, joint_ids(driven)].cpu().numpy().astype(np.float64)
    ends[~(ends[:, 0] < ends[:, 1])] = (-np.inf, np.inf)
    return ends


def _position_parts(action: Any, driven: Driven, limits: np.ndarray, terms: list[ActorTerm], clip: float) -> Parts:
    env, width = driven.env, action.action_dim
    command = velocity_command(terms, lambda name: env.command_manager.get_term(name).cfg.ranges)
    return Parts(
        ActionSpec(JOINT_TARGET, row_of(action.scale, width), row_of(action.offset, width), clip=clip), command
    )


def _position_loops(driven: Driven) -> Loops:
    model, numbers = driven.env.sim.mj_model, {}
    for actuator in driven.entity.actuators:
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


def _bounded_positions(action: JointPositionActionCfg, contract: PolicyContract) -> JointPositionActionCfg:
    action.clip = {f"^{name}$": limits for name, limits in contract.joint_limits.items()}
    return action


def _effort_parts(action: Any, driven: Driven, limits: np.ndarray, terms: list[ActorTerm], clip: float) -> Parts:
    if action.cfg.clip is not None:
        raise NoContractError(f"its efforts are limited to {action.cfg.clip}; expected the actuators' limits alone.")
    names, width = tuple(action.target_names), action.action_dim
    pushes = [_motors(driven)[name][0] for name in names]
    efforts = [scale * push for scale, push in zip(row_of(action.scale, width), pushes, strict=True)]
    data = driven.entity.data
    default = data.default_joint_pos[0, joint_ids(driven)].cpu().numpy().astype(np.float64)
    ends = joint_ends(driven, data.soft_joint_pos_limits)
    return effort_parts(
        dict(zip(names, efforts, strict=True)),
        row_of(action.offset, width),
        dict(zip(driven.joint_names, limits.tolist(), strict=True)),
        starts_of(driven.env.cfg.events.values(), driven.entity_name, driven.joint_names, default, ends),
        clip,
    )


def _motors(driven: Driven) -> dict[str, tuple[float, float]]:
    """Effort of one unit of control, and largest effort, N m or N, of the motors in the built model by joint.

    Raises:
        NoContractError: If an actuator is more than a motor.
    """
    model, numbers = driven.env.sim.mj_model, {}
    for actuator in driven.entity.actuators:
        for name, index in zip(actuator.target_names, actuator.global_ctrl_ids.tolist(), strict=True):
            plain = (
                isinstance(actuator, (XmlActuator, BuiltinMotorActuator))
                and model.actuator_gaintype[index] == mujoco.mjtGain.mjGAIN_FIXED
                and model.actuator_biastype[index] == mujoco.mjtBias.mjBIAS_NONE
                and model.actuator_dyntype[index] == mujoco.mjtDyn.mjDYN_NONE
            )
            if not plain:
                raise NoContractError(f"the actuator of {name} is a {type(actuator).__name__}, expected a plain motor.")
            gear, gain = float(model.actuator_gear[index][0]), float(model.actuator_gainprm[index][0])
            limits = [np.inf]
            if model.actuator_ctrllimited[index]:
                limits.append(abs(gear * gain) * np.abs(model.actuator_ctrlrange[index]).min())
            if model.actuator_forcelimited[index]:
                limits.append(abs(gear) * np.abs(model.actuator_forcerange[index]).min())
            numbers[name] = (gear * gain, min(limits))
    return numbers


def _effort_loops(driven: Driven) -> Loops:
    motors, zeros = _motors(driven), np.zeros(len(driven.joint_names))
    return zeros, zeros, np.array([motors.get(name, (0.0, np.inf))[1] for name in driven.joint_names])


class RobotEffortAction(JointEffortAction):
    """mjlab's action of efforts with the bounds that a robot's runtime keeps, computed by the runtime's own code."""

    cfg: RobotEffortActionCfg

    def __init__(self, cfg: RobotEffortActionCfg, env: Any) -> None:
        super().__init__(cfg=cfg, env=env)
        driven = Driven(env, cfg.entity_name, cfg.contract.joint_names)
        self._decode = EffortDecoder(cfg.contract, self._raw_actions)
        places = [driven.joint_names.index(name) for name in self.target_names]
        # On the device: a list as an index is copied there in every step.
        self._joints, self._places = (torch.tensor(ids, device=self.device) for ids in (joint_ids(driven), places))
        push = [_motors(driven)[name][0] for name in self.target_names]
        self._push = torch.tensor([push], device=self.device, dtype=self._raw_actions.dtype)
        self.efforts = torch.zeros(self.num_envs, len(self._joints), device=self.device)
        """Efforts (N, n) of the step just taken, N m or N."""

    def process_actions(self, actions: Tensor) -> None:
        """Controls of actions (N, a)."""
        super().process_actions(actions)
        self.efforts = self._decode.efforts(self._raw_actions, self._entity.data.joint_pos[:, self._joints])
        self._processed_actions = self.efforts[:, self._places] / self._push


@dataclass(kw_only=True)
class RobotEffortActionCfg(JointEffortActionCfg):
    """Configuration of :class:`RobotEffortAction`."""

    contract: PolicyContract
    """Contract of the task."""

    def build(self, env: Any) -> RobotEffortAction:
        """The action term of an environment."""
        return RobotEffortAction(self, env)


def _bounded_efforts(action: JointEffortActionCfg, contract: PolicyContract) -> RobotEffortActionCfg:
    same = {item.name: getattr(action, item.name) for item in fields(action) if item.init}
    return RobotEffortActionCfg(**same, contract=contract)


def _recorded_efforts(action: RobotEffortAction, driven: Driven) -> dict[str, Tensor]:
    """Efforts of all joints; positions are those of the default pose, which nothing follows."""
    default = driven.entity.data.default_joint_pos[:, joint_ids(driven)]
    return {"joint_target_rad": default, "joint_target_effort_nm": action.efforts}


KINDS: dict[str, Kind] = {
    JointPositionAction.__name__: Kind(
        lambda action, entity: tuple(action.target_names),
        _position_loops,
        _position_parts,
        None,
        lambda action, driven: {"joint_target_rad": action._processed_actions},
        _bounded_positions,
    ),
    JointEffortAction.__name__: Kind(
        lambda action, entity: tuple(entity.joint_names),
        _effort_loops,
        _effort_parts,
        MechanismSpec,
        _recorded_efforts,
        _bounded_efforts,
    ),
}
"""mjlab's kind of action -> what a contract says of it."""
