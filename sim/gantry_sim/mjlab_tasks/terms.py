"""mjlab's observation terms as terms of a contract, told by the identity of their functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
from mjlab.envs.mdp import observations as mdp
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.sensor import BuiltinSensor, GridPatternCfg, ObjRef
from mjlab.tasks.cartpole.cartpole_env_cfg import pole_angle_cos_sin
from mjlab.tasks.velocity.mdp import UniformVelocityCommand

from gantry_deploy.contract.policy_contract import MapWindow, ObservationTerm
from gantry_deploy.observations.builder import make_term
from gantry_deploy.perception.maps import SCAN_TERM
from gantry_sim.managed_tasks.terms import (
    ROUNDING,
    ActorTerm,
    Driven,
    MissingTermError,
    only_scan,
    scan_window,
    shaped,
    shown_joints,
)


def reads_joints(term: ActorTerm) -> bool:
    """Whether a term shows positions of joints."""
    return term.cfg.func in (mdp.joint_pos_rel, pole_angle_cos_sin)


def is_biased(term: ActorTerm) -> bool:
    """Whether a term reads joints through encoders that are off."""
    return bool(term.cfg.params.get("biased", False))


def actor_terms(env: Any, groups: tuple[str, ...]) -> list[ActorTerm]:
    """Terms of some groups in the order of their numbers."""
    manager = env.observation_manager
    return [
        ActorTerm(group, name, manager.get_term_cfg(group, name))
        for group in groups
        for name in manager.active_terms[group]
    ]


def configured_terms(env_cfg: Any, groups: tuple[str, ...]) -> list[ActorTerm]:
    """The same of a configuration, before an environment is built."""
    return [
        ActorTerm(group, name, term)
        for group in groups
        for name, term in env_cfg.observations[group].terms.items()
        if term is not None
    ]


def require_known(term: ActorTerm) -> None:
    """Refuse a term whose function has no counterpart.

    Raises:
        MissingTermError: If so.
    """
    if term.cfg.func not in FUNCTIONS:
        raise MissingTermError(f"{term.where} is none that Gantry knows.")


def contract_term(term: ActorTerm, driven: Driven) -> ObservationTerm:
    """The contract's term.

    Raises:
        MissingTermError: If there is none, or scale, clip or history are not what a contract can say.
    """
    require_known(term)
    return shaped(FUNCTIONS[term.cfg.func](term, driven), term)


def _asset(term: ActorTerm, driven: Driven) -> SceneEntityCfg:
    found: SceneEntityCfg = term.cfg.params.get("asset_cfg", SceneEntityCfg("robot"))
    if found.name != driven.entity_name:
        raise MissingTermError(f"{term.where} is of '{found.name}', the actions are of '{driven.entity_name}'.")
    return found


def _of_root(name: str) -> Callable[[ActorTerm, Driven], ObservationTerm]:
    def found(term: ActorTerm, driven: Driven) -> ObservationTerm:
        _asset(term, driven)
        return make_term(name, 3)

    return found


def _joint_pos(term: ActorTerm, driven: Driven) -> ObservationTerm:
    return shown_joints("joint_pos", _asset(term, driven).joint_ids, term, driven)


def _joint_cos_sin(term: ActorTerm, driven: Driven) -> ObservationTerm:
    found = shown_joints("joint_cos_sin", _asset(term, driven).joint_ids, term, driven)
    return replace(found, size=2 * found.size)


def _joint_vel(term: ActorTerm, driven: Driven) -> ObservationTerm:
    if float(driven.entity.data.default_joint_vel.abs().max()) > ROUNDING:
        raise MissingTermError(f"{term.where} is relative to joints that move by default, expected zero.")
    return shown_joints("joint_vel", _asset(term, driven).joint_ids, term, driven)


def _last_action(term: ActorTerm, driven: Driven) -> ObservationTerm:
    return make_term("last_action", len(driven.joint_names))


def _command(term: ActorTerm, driven: Driven) -> ObservationTerm:
    command = driven.env.command_manager.get_term(term.cfg.params["command_name"])
    if not isinstance(command, UniformVelocityCommand):
        raise MissingTermError(
            f"{term.where} shows a {type(command).__name__}, expected a UniformVelocityCommand, the one that Gantry "
            "knows."
        )
    return make_term("velocity_command", 3)


def _sensor(term: ActorTerm, driven: Driven) -> ObservationTerm:
    """Gyroscope or velocity at a site that is fixed to the base and not turned."""
    index, model = _sensor_id(term, driven)
    kind = mujoco.mjtSensor(int(model.sensor_type[index]))
    if kind not in (mujoco.mjtSensor.mjSENS_GYRO, mujoco.mjtSensor.mjSENS_VELOCIMETER):
        raise MissingTermError(f"{term.where} is a sensor of type {kind.name}, expected a gyro or a velocimeter.")
    place = _site_on_base(term, driven, model, int(model.sensor_objid[index]))
    if kind == mujoco.mjtSensor.mjSENS_GYRO:
        return make_term("base_ang_vel", 3)
    return replace(make_term("base_lin_vel", 3), point_in_base_m=place if any(place) else ())


def _gravity_sensor(term: ActorTerm, driven: Driven) -> ObservationTerm:
    """World's z axis in the frame of such a site."""
    index, model = _sensor_id(term, driven)
    is_z = model.sensor_type[index] == mujoco.mjtSensor.mjSENS_FRAMEZAXIS
    of_world = model.sensor_objtype[index] in (mujoco.mjtObj.mjOBJ_BODY, mujoco.mjtObj.mjOBJ_XBODY) and (
        model.sensor_objid[index] == 0
    )
    if not is_z or not of_world or model.sensor_reftype[index] != mujoco.mjtObj.mjOBJ_SITE:
        raise MissingTermError(f"{term.where} is no sensor of the world's z axis in the frame of a site.")
    _site_on_base(term, driven, model, int(model.sensor_refid[index]))
    return make_term("projected_gravity", 3)


def _sensor_id(term: ActorTerm, driven: Driven) -> tuple[int, Any]:
    name, model = term.cfg.params["sensor_name"], driven.env.sim.mj_model
    if not isinstance(driven.env.scene[name], BuiltinSensor):
        raise MissingTermError(f"{term.where} reads '{name}', expected one of MuJoCo's own sensors.")
    return model.sensor(name).id, model


def _site_on_base(term: ActorTerm, driven: Driven, model: Any, site: int) -> tuple[float, float, float]:
    """Place in the base frame, m."""
    root = int(driven.entity.indexing.root_body_id)
    turned = np.abs(np.abs(model.site_quat[site]) - (1.0, 0.0, 0.0, 0.0)).max()
    if int(model.site_bodyid[site]) != root or turned > ROUNDING:
        raise MissingTermError(
            f"{term.where} is measured at the site '{model.site(site).name}', which is turned or not fixed to the base."
        )
    x, y, z = (float(value) for value in model.site_pos[site])
    return x, y, z


def _height_scan(term: ActorTerm, driven: Driven) -> ObservationTerm:
    window = _window(term, driven)
    return make_term(SCAN_TERM, window.rows * window.cols)


def _window(term: ActorTerm, driven: Driven) -> MapWindow:
    """The cells that a height scan shows, one for each ray."""
    sensor: Any = driven.env.scene[term.cfg.params["sensor_name"]]
    cfg = sensor.cfg
    pattern, frame = cfg.pattern, cfg.frame
    root = driven.entity.body_names[0]
    down = isinstance(pattern, GridPatternCfg) and tuple(pattern.direction) == (0.0, 0.0, -1.0)
    of_root = isinstance(frame, ObjRef) and (frame.type, frame.name, frame.entity) == (
        "body",
        root,
        driven.entity_name,
    )
    if not down or not of_root or cfg.ray_alignment != "yaw":
        raise MissingTermError(
            f"{term.where} is of {type(pattern).__name__} at {frame}, aligned with '{cfg.ray_alignment}'; expected a "
            f"grid of rays that point down from the base '{root}', aligned with its yaw."
        )
    return scan_window(pattern, float(term.cfg.params.get("offset", 0.0)))


def scan_of(terms: list[ActorTerm]) -> ActorTerm | None:
    """The height scan among the terms of an actor; None for none. Several are refused."""
    return only_scan([term for term in terms if term.cfg.func is mdp.height_scan])


def window_of(terms: list[ActorTerm], driven: Driven) -> MapWindow | None:
    """Window of the elevation map that the height scan of an actor looks at; None without one.

    Raises:
        MissingTermError: If the scan is no grid around the base.
    """
    scan = scan_of(terms)
    return None if scan is None else _window(scan, driven)


FUNCTIONS: dict[Any, Callable[[ActorTerm, Driven], ObservationTerm]] = {
    mdp.base_lin_vel: _of_root("base_lin_vel"),
    mdp.base_ang_vel: _of_root("base_ang_vel"),
    mdp.projected_gravity: _of_root("projected_gravity"),
    mdp.projected_gravity_from_sensor: _gravity_sensor,
    mdp.builtin_sensor: _sensor,
    mdp.joint_pos_rel: _joint_pos,
    mdp.joint_vel_rel: _joint_vel,
    pole_angle_cos_sin: _joint_cos_sin,
    mdp.last_action: _last_action,
    mdp.generated_commands: _command,
    mdp.height_scan: _height_scan,
}
"""mjlab's function -> what makes the contract's term of it."""


def known_functions() -> str:
    """Names of the functions that have a counterpart."""
    return ", ".join(sorted(func.__name__ for func in FUNCTIONS))
