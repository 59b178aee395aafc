"""MuJoCo models of the robots: each alone, with a free base unless it is an arm, or standing on a floor.

A robot's model and its :class:`~gantry_hardware.model.spec.RobotSpec` share names: joints are called as in the spec,
and every foot of the spec is a site at its sole. All models carry the sensors ``imu_ang_vel``, ``imu_lin_vel`` and
``imu_lin_acc``. The model holds masses, shapes, joint ranges and friction; rotor inertias come from the spec. An arm
is screwed to the floor at the origin and has a site ``ee`` where its chain ends.
"""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from pathlib import Path

import mujoco

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.chain import Chain
from gantry_hardware.robots import robot_names, robot_spec
from gantry_sim.robots import scene_visuals
from gantry_sim.robots.model_conventions import add_imu, base_body, meet_conventions

EE_SITE = "ee"
"""Site at an arm's end effector."""


def model_names() -> list[str]:
    """Robots that have a MuJoCo model, sorted; a package with a broken registration does not hide the others."""
    found = []
    for name in robot_names():
        with contextlib.suppress(GantryError):
            if robot_spec(name).mjcf:
                found.append(name)
    return found


def model_file(name: str) -> Path:
    """Path of a robot's MJCF; the package that carries it is located without being imported.

    Raises:
        UnknownNameError: If there is no such robot, or it has no MuJoCo model.
        GantryError: If the package that carries the model is not installed.
    """
    text = robot_spec(name).mjcf if name in robot_names() else ""
    if not text:
        raise UnknownNameError("robot model", name, model_names())
    package, colon, relative = text.partition(":")
    if not colon or Path(text).is_absolute():
        path = Path(text)
        if not path.is_absolute():
            raise GantryError(
                f"Robot '{name}': mjcf is '{text}', expected 'package:path/in/it.xml' or an absolute path."
            )
    else:
        found = find_spec(package)
        if found is None or not found.submodule_search_locations:
            raise GantryError(f"The model of '{name}' comes with the package '{package}', which is not installed.")
        path = Path(found.submodule_search_locations[0]) / relative
    if not path.is_file():
        raise GantryError(f"Robot '{name}': there is no MuJoCo model at {path}.")
    return path


def robot_model(name: str, *, visuals: bool = True) -> mujoco.MjSpec:
    """A robot alone: base, collision shapes, sensors, rotor inertias of its spec; no floor and no actuators.

    Args:
        name: Robot name, one of :func:`model_names`.
        visuals: Keep the shapes that are only looked at. Without them a model compiles faster.

    Raises:
        UnknownNameError: If there is no such model.
    """
    path = model_file(name)
    spec = robot_spec(name)
    try:
        model = mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        raise GantryError(f"Robot '{name}': {path} is no model that MuJoCo reads: {error}") from error
    for joint in spec.joints:
        found = model.joint(joint.name)
        if found is None:
            raise UnknownNameError(f"joint in the model of {name}", joint.name, actuated_joint_names(model))
        found.armature = joint.armature_kg_m2
    if isinstance(spec.body, Chain):
        _make_arm(model, spec.body)
    else:
        meet_conventions(model, spec)
    if not visuals:
        scene_visuals.remove_visuals(model)
    elif spec.mjcf == robot_spec("go2").mjcf:
        scene_visuals.dress_go2(model)
    return model


def scene_model(
    name: str,
    *,
    foot_friction: float = 1.0,
    ground_softness_s: float = 0.0,
    timestep_s: float = 0.002,
    visuals: bool = True,
) -> mujoco.MjSpec:
    """A robot on a flat checkered floor under a light, still without actuators.

    Args:
        name: Robot name, one of :func:`model_names`.
        foot_friction: Sliding friction between a foot and whatever it touches.
        ground_softness_s: Time constant with which the ground gives way under a foot; 0 for the model's own, 20 ms
            unless it says otherwise. The feet of a standing Go2 sink by about 4 m/s^2 times its square.
        timestep_s: Physics step.
        visuals: Keep the shapes that are only looked at.

    Raises:
        UnknownNameError: If there is no such model.
    """
    model = robot_model(name, visuals=visuals)
    model.option.timestep = timestep_s
    if getattr(robot_spec(name).body, "fixed_base", False):
        base_body(model).pos[2] += robot_spec(name).base_height_m
    # The motors' damping term is integrated implicitly, as a motor controller that runs far faster than physics.
    model.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    for foot in robot_spec(name).feet:
        for geom in foot_geoms(model, foot):
            geom.friction[0] = foot_friction
            geom.priority = 1  # The foot's friction and softness count, whatever the floor's are.
            if ground_softness_s:
                geom.solref[:] = (ground_softness_s, 1.0)
    scene_visuals.add_floor(model)
    scene_visuals.add_sky_and_light(model)
    return model


def _make_arm(model: mujoco.MjSpec, chain: Chain) -> None:
    """Add what a model of an arm lacks: end effector, sensors of the base, and the controller that carries its
    weight.
    """
    for light in list(model.lights):
        model.delete(light)
    last = model.joint(chain.joint_names[-1]).parent
    last.add_site(name=EE_SITE, pos=list(chain.pos_ee_m), quat=list(chain.quat_ee_wxyz), group=5)
    base = model.joint(chain.joint_names[0]).parent.parent
    add_imu(model, base)
    for geom in base.geoms:
        geom.pos[2] += 0.001  # The drawn base lies in the floor, and either would show through the other.
    for body in model.bodies:
        body.gravcomp = 1.0
    for coupling in model.equalities:  # One crank moves both fingers; as soft as by default they would part by 1 mm.
        coupling.solref[:] = (0.01, 1.0)
    for geom in model.geoms:
        if geom.contype:  # An arm touches what is not itself; that it cannot touch itself saves most of the checks.
            geom.contype, geom.conaffinity = 0, 1


def has_free_base(model: mujoco.MjSpec) -> bool:
    """Whether the robot's base floats."""
    return any(joint.type == mujoco.mjtJoint.mjJNT_FREE for joint in base_body(model).joints)


def actuated_joint_names(model: mujoco.MjSpec) -> tuple[str, ...]:
    """Names of all joints but the free one, in the order of the compiled model."""
    return tuple(joint.name for joint in model.joints if joint.type != mujoco.mjtJoint.mjJNT_FREE)


def foot_geoms(model: mujoco.MjSpec, foot: str) -> list[mujoco.MjsGeom]:
    """The collision shapes of a foot: those with "foot" in their name on the body that carries the foot's site.

    Raises:
        UnknownNameError: If the model has no such foot.
    """
    site = model.site(foot)
    if site is None:
        raise UnknownNameError("foot", foot, [site.name for site in model.sites])
    return [geom for geom in site.parent.geoms if "foot" in geom.name]
