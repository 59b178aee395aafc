"""Isaac Lab's configurations on Gantry's models of the robots, where links and joints have other names or are missing.

Patterns of names that match nothing would stop Isaac Lab. What is left out or replaced here is told in the task's
summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from gantry_hardware.backends.limits import gain_limits
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec
from gantry_sim.isaaclab_tasks.assets import (
    GROUND,
    OTHER_JOINTS,
    below_root,
    feet_links,
    is_own,
    own_root,
    provide,
    robot_of,
    source_model,
)

MANAGERS = ("observations", "events", "rewards", "terminations", "curriculum")
"""Parts of a configuration with terms."""


@dataclass(frozen=True)
class Names:
    """Names of the parts of a robot's model."""

    joints: tuple[str, ...]
    """Joints in Gantry's order."""
    links: tuple[str, ...]
    """Links of the model."""
    feet: dict[str, str]
    """Isaac Lab's name of a foot's link -> the link of the model that carries the foot."""

    def fitting(self, patterns: Any, among: tuple[str, ...]) -> list[str]:
        """Those of some patterns that match a whole name."""
        given = [patterns] if isinstance(patterns, str) else list(patterns)
        return [pattern for pattern in given if any(re.fullmatch(pattern, name) for name in among)]

    def links_of(self, patterns: Any) -> list[str]:
        """Patterns of links that fit; where none does, the links that carry feet of such names."""
        given = [patterns] if isinstance(patterns, str) else list(patterns)
        carried = [link for foot, link in self.feet.items() if self.fitting(given, (foot,))]
        return self.fitting(given, self.links) or carried


def fit_to_robot(env_cfg: Any) -> list[str]:
    """Give a configuration Gantry's order of joints, and where the model is Gantry's own, its names.

    Args:
        env_cfg: Isaac Lab's; it is changed.

    Returns:
        What was left out or replaced, for people.
    """
    robot: Any = getattr(env_cfg.scene, "robot", None)
    path = getattr(getattr(robot, "spawn", None), "usd_path", None)
    name = robot_of(path) if isinstance(path, str) else None
    if name is None:
        return []
    spec, own = robot_spec(name), is_own(str(path))
    if own or name not in OTHER_JOINTS:
        robot.joint_ordering = list(spec.joint_names)
    if not own:
        return []
    model = source_model(below_root(str(path)))
    names = Names(spec.joint_names, tuple(body.name for body in model.bodies[1:]), feet_links(name))
    return [*_fit_terms(env_cfg, names), *fit_actuators(robot, spec)]


def provide_files(env_cfg: Any) -> None:
    """Make the files that a configuration opens, where they are to lie in our own root.

    Raises:
        GantryError: If there is no model to make one of.
    """
    provide(str(own_root() / GROUND))
    for path in _usd_paths(env_cfg, set()):
        provide(path)


def _usd_paths(part: Any, seen: set[int]) -> Iterator[str]:
    """Values of ``usd_path`` in a configuration, of all that is more than a drawn mark."""
    if id(part) in seen:
        return
    seen.add(id(part))
    if is_dataclass(part) and not isinstance(part, type):
        named = {item.name: getattr(part, item.name, None) for item in fields(part)} | vars(part)
    elif isinstance(part, dict):
        named = part
    elif isinstance(part, (list, tuple)):
        named = dict(enumerate(part))
    else:
        return
    for name, value in named.items():
        if name == "usd_path" and isinstance(value, str):
            yield value
        elif "visualizer" not in str(name):  # Marks that are only drawn.
            yield from _usd_paths(value, seen)


def _fit_terms(env_cfg: Any, names: Names) -> list[str]:
    told = []
    for manager in MANAGERS:
        part = getattr(env_cfg, manager, None)
        for holder in _holders(part):
            for name, term in list(vars(holder).items()):
                for entity in _entities(term):
                    lacking = fit_entity(entity, names)
                    if lacking:
                        setattr(holder, name, None)
                        told.append(f"{manager}.{name} left out ({lacking})")
                        break
    return told


def _holders(part: Any) -> Iterator[Any]:
    """Objects with terms as their parts: a manager's configuration, or each group of observations."""
    if part is None:
        return
    yield part
    yield from (group for group in vars(part).values() if hasattr(group, "concatenate_terms"))


def _entities(term: Any) -> list[Any]:
    """Parameters of a term that choose joints or links."""
    params = getattr(term, "params", None) or {}
    return [value for value in params.values() if hasattr(value, "joint_names") and hasattr(value, "body_names")]


def fit_entity(entity: Any, names: Names) -> str:
    """Let a choice of joints and links name those of the model.

    Args:
        entity: Isaac Lab's ``SceneEntityCfg``; it is changed.
        names: Of the model.

    Returns:
        What it chooses and the model lacks altogether; empty if something is left.
    """
    if entity.joint_names is not None:
        found = names.fitting(entity.joint_names, names.joints)
        if not found:
            return f"joints {_listed(entity.joint_names)}"
        entity.joint_names = found
    if entity.body_names is not None:
        found = names.links_of(entity.body_names)
        if not found:
            return f"links {_listed(entity.body_names)}"
        entity.body_names = found if len(found) > 1 else found[0]
    return ""


def fit_actuators(robot: Any, spec: RobotSpec) -> list[str]:
    """Drive every joint of the model: as Isaac Lab does where it names the joint, else with Gantry's gains.

    Args:
        robot: Isaac Lab's ``ArticulationCfg``; it is changed.
        spec: Gantry's numbers of the robot.

    Returns:
        What was replaced, for people.
    """
    told, driven = [], set()
    for group, actuator in list(robot.actuators.items()):
        network = getattr(actuator, "network_file", None)
        found = _matching(actuator.joint_names_expr, spec.joint_names)
        if network is not None and is_own(network) and not Path(network).is_file():
            found = []
            told.append(f"actuator network '{group}' replaced by stiffness and damping")
        if not found:
            del robot.actuators[group]
            continue
        actuator.joint_names_expr = [p for p in actuator.joint_names_expr if _matching([p], spec.joint_names)]
        for item in fields(actuator):
            value = getattr(actuator, item.name)
            if isinstance(value, dict):
                setattr(actuator, item.name, {p: v for p, v in value.items() if _matching([p], tuple(found))})
        told += _limit_gains(group, actuator, found, spec)
        driven |= set(found)
    pose = {p: v for p, v in robot.init_state.joint_pos.items() if _matching([p], spec.joint_names)}
    posed = set(_matching(list(pose), spec.joint_names))
    robot.init_state.joint_pos = pose | {j.name: j.default_rad for j in spec.joints if j.name not in posed}
    left = [joint for joint in spec.joints if joint.name not in driven]
    if left:
        from isaaclab.actuators import ImplicitActuatorCfg

        robot.actuators["gantry"] = ImplicitActuatorCfg(
            joint_names_expr=[joint.name for joint in left],
            stiffness={joint.name: joint.stiffness_nm_rad for joint in left},
            damping={joint.name: joint.damping_nm_s_rad for joint in left},
            armature={joint.name: joint.armature_kg_m2 for joint in left},
            joint_effort_limit={joint.name: joint.effort_limit_nm for joint in left},
        )
        told.append(f"{len(left)} joints with Gantry's gains ({_listed([joint.name for joint in left])})")
    return told


def _limit_gains(group: str, actuator: Any, joints: list[str], spec: RobotSpec) -> list[str]:
    """Lower gains to what the robot takes; what was lowered, for people."""
    told = []
    for name, limits in zip(("stiffness", "damping"), gain_limits(spec), strict=True):
        value = getattr(actuator, name)
        named = value if isinstance(value, dict) else {".*": value}
        asked = {joint: number for joint in joints for p, number in named.items() if _matching([p], (joint,))}
        allowed = dict(zip(spec.joint_names, limits, strict=True))
        over = [joint for joint, number in asked.items() if number is not None and number > allowed[joint]]
        if over:
            setattr(actuator, name, asked | {joint: float(allowed[joint]) for joint in over})
            told.append(f"{name} of '{group}' lowered to what the robot takes ({_listed(over)})")
    return told


def _matching(patterns: list[str], names: tuple[str, ...]) -> list[str]:
    return [name for name in names if any(re.fullmatch(pattern, name) for pattern in patterns)]


def _listed(patterns: Any) -> str:
    return patterns if isinstance(patterns, str) else ", ".join(patterns)
