"""Isaac Lab's observation terms as terms of a contract, told by the qualified names of their functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

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

MDP = "isaaclab.envs.mdp.observations"
"""Module of Isaac Lab's common terms."""
VELOCITY = "UniformVelocityCommand"
"""The one command that Gantry knows, or a class that is made of it."""


def actor_terms(env: Any, groups: tuple[str, ...]) -> list[ActorTerm]:
    """Terms of some groups in the order of their numbers."""
    manager = env.observation_manager
    return [
        ActorTerm(group, name, cfg)
        for group in groups
        for name, cfg in zip(manager.active_terms[group], manager._group_obs_term_cfgs[group], strict=True)
    ]


def configured_terms(env_cfg: Any, groups: tuple[str, ...]) -> list[ActorTerm]:
    """The same of a configuration, before an environment is built."""
    return [
        ActorTerm(group, name, term)
        for group in groups
        for name, term in vars(getattr(env_cfg.observations, group)).items()
        if hasattr(term, "func")
    ]


def function_of(term: ActorTerm) -> str:
    """Qualified name of the function of a term."""
    func = term.cfg.func
    if isinstance(func, str):  # Isaac Lab finds the function at its first use.
        return func.replace(":", ".")
    known = func if hasattr(func, "__qualname__") else type(func)
    return f"{known.__module__}.{known.__qualname__}"


def require_known(term: ActorTerm) -> None:
    """Refuse a term whose function has no counterpart.

    Raises:
        MissingTermError: If so.
    """
    if function_of(term) not in FUNCTIONS:
        raise MissingTermError(f"{term.where} is none that Gantry knows.")


def contract_term(term: ActorTerm, driven: Driven) -> ObservationTerm:
    """The contract's term.

    Raises:
        MissingTermError: If there is none, or scale, clip, history or modifiers are not what a contract can say.
    """
    require_known(term)
    if getattr(term.cfg, "modifiers", None):
        kinds = ", ".join(str(getattr(item.func, "__name__", item.func)) for item in term.cfg.modifiers)
        raise MissingTermError(f"{term.where} is changed by modifiers ({kinds}), which no contract can say.")
    return shaped(FUNCTIONS[function_of(term)](term, driven), term)


def _asset(term: ActorTerm, driven: Driven) -> Any:
    """Isaac Lab's choice of joints and links of a term; None for the robot as a whole."""
    found = term.cfg.params.get("asset_cfg")
    name = "robot" if found is None else found.name
    if name != driven.entity_name:
        raise MissingTermError(f"{term.where} is of '{name}', the actions are of '{driven.entity_name}'.")
    return found


def _of_root(name: str) -> Callable[[ActorTerm, Driven], ObservationTerm]:
    def found(term: ActorTerm, driven: Driven) -> ObservationTerm:
        _asset(term, driven)
        return make_term(name, 3)

    return found


def _base_lin_vel(term: ActorTerm, driven: Driven) -> ObservationTerm:
    """Velocity of the base's centre of mass, in the base's axes."""
    _asset(term, driven)
    x, y, z = (float(value) for value in driven.entity.data.body_com_pos_b.torch[0, 0])
    return replace(make_term("base_lin_vel", 3), point_in_base_m=(x, y, z) if any((x, y, z)) else ())


def _joints(name: str) -> Callable[[ActorTerm, Driven], ObservationTerm]:
    def found(term: ActorTerm, driven: Driven) -> ObservationTerm:
        asset = _asset(term, driven)
        return shown_joints(name, slice(None) if asset is None else asset.joint_ids, term, driven)

    return found


def _joint_vel_rel(term: ActorTerm, driven: Driven) -> ObservationTerm:
    if float(driven.entity.data.default_joint_vel.torch.abs().max()) > ROUNDING:
        raise MissingTermError(f"{term.where} is relative to joints that move by default, expected zero.")
    return _joints("joint_vel")(term, driven)


def _last_action(term: ActorTerm, driven: Driven) -> ObservationTerm:
    return make_term("last_action", int(driven.env.action_manager.total_action_dim))


def _command(term: ActorTerm, driven: Driven) -> ObservationTerm:
    command = driven.env.command_manager.get_term(term.cfg.params["command_name"])
    if VELOCITY not in {kind.__name__ for kind in type(command).__mro__}:
        raise MissingTermError(
            f"{term.where} shows a {type(command).__name__}, expected a {VELOCITY}, the one that Gantry knows."
        )
    return make_term("velocity_command", 3)


def _height_scan(term: ActorTerm, driven: Driven) -> ObservationTerm:
    window = _window(term, driven)
    return make_term(SCAN_TERM, window.rows * window.cols)


def _window(term: ActorTerm, driven: Driven) -> MapWindow:
    """The cells that a height scan shows, one for each ray."""
    cfg = driven.env.scene.sensors[term.cfg.params["sensor_cfg"].name].cfg
    pattern, offset = cfg.pattern_cfg, cfg.offset
    root = driven.entity.body_names[0]
    down = hasattr(pattern, "resolution") and tuple(pattern.direction) == (0.0, 0.0, -1.0)
    level = not any(offset.pos[:2]) and tuple(abs(x) for x in offset.rot) == (0.0, 0.0, 0.0, 1.0)
    of_root = cfg.prim_path.endswith(f"/{root}")
    if not (down and level and of_root) or cfg.ray_alignment != "yaw" or getattr(pattern, "ordering", "xy") != "xy":
        raise MissingTermError(
            f"{term.where} is of {type(pattern).__name__} at {cfg.prim_path}, aligned with '{cfg.ray_alignment}'; "
            f"expected a grid of rays that point down from the base '{root}', aligned with its yaw, x first."
        )
    return scan_window(pattern, float(term.cfg.params.get("offset", 0.5)))


def scan_of(terms: list[ActorTerm]) -> ActorTerm | None:
    """The height scan among the terms of an actor; None for none. Several are refused."""
    return only_scan([term for term in terms if function_of(term) == f"{MDP}.height_scan"])


def window_of(terms: list[ActorTerm], driven: Driven) -> MapWindow | None:
    """Window of the elevation map that the height scan of an actor looks at; None without one.

    Raises:
        MissingTermError: If the scan is no grid around the base.
    """
    scan = scan_of(terms)
    return None if scan is None else _window(scan, driven)


FUNCTIONS: dict[str, Callable[[ActorTerm, Driven], ObservationTerm]] = {
    f"{MDP}.base_lin_vel": _base_lin_vel,
    f"{MDP}.base_ang_vel": _of_root("base_ang_vel"),
    f"{MDP}.projected_gravity": _of_root("projected_gravity"),
    f"{MDP}.joint_pos_rel": _joints("joint_pos"),
    f"{MDP}.joint_vel": _joints("joint_vel"),
    f"{MDP}.joint_vel_rel": _joint_vel_rel,
    f"{MDP}.last_action": _last_action,
    f"{MDP}.generated_commands": _command,
    f"{MDP}.height_scan": _height_scan,
}
"""Isaac Lab's function -> what makes the contract's term of it."""


def known_functions() -> str:
    """Names of the functions that have a counterpart."""
    return ", ".join(sorted(name.rpartition(".")[2] for name in FUNCTIONS))
