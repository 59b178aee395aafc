"""MuJoCo models of the robots: each alone, with a free base unless it is an arm, or standing on a floor.

A robot's model and its :class:`~gantry_hardware.spec.RobotSpec` share names: joints are called as in the spec, and
every foot of the spec is a site at its sole. All models carry the sensors ``imu_ang_vel``, ``imu_lin_vel`` and
``imu_lin_acc``. The model holds masses, shapes, joint ranges and friction; rotor inertias come from the spec. An arm
is screwed to the floor at the origin and has a site ``ee`` where its chain ends.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import mujoco

from gantry_hardware.chain import Chain
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_sim import looks

MODEL_FILES: dict[str, tuple[str, str]] = {
    "go1": ("mjlab", "asset_zoo/robots/unitree_go1/xmls/go1.xml"),
    "go2": ("gantry_sim", "assets/go2.xml"),
    "g1": ("mjlab", "asset_zoo/robots/unitree_g1/xmls/g1.xml"),
    "yam": ("mjlab", "asset_zoo/robots/i2rt_yam/xmls/yam.xml"),
}
"""Robot name to the package that carries its MJCF, and the file's path inside that package."""
EE_SITE = "ee"
"""Site at an arm's end effector."""


def model_names() -> list[str]:
    """Robots that have a MuJoCo model, sorted."""
    return sorted(MODEL_FILES)


def model_file(name: str) -> Path:
    """Where a robot's MJCF lies; the package that carries it is located without being imported.

    Raises:
        UnknownNameError: If the robot has no MuJoCo model.
        GantryError: If the package that carries the model is not installed.
    """
    if name not in MODEL_FILES:
        raise UnknownNameError("robot model", name, MODEL_FILES)
    package, relative = MODEL_FILES[name]
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise GantryError(f"The model of '{name}' comes with the package '{package}', which is not installed.")
    path = Path(found.submodule_search_locations[0]) / relative
    if not path.is_file():
        raise GantryError(f"The installed '{package}' has no model of '{name}': expected {path}.")
    return path


def robot_model(name: str, *, visuals: bool = True) -> mujoco.MjSpec:
    """A robot alone: base, collision shapes, sensors, rotor inertias of its spec; no floor and no actuators.

    Args:
        name: Robot name, one of :func:`model_names`.
        visuals: Keep the shapes that are only looked at. Without them a model compiles faster.

    Raises:
        UnknownNameError: If there is no such model.
    """
    model = mujoco.MjSpec.from_file(str(model_file(name)))
    spec = robot_spec(name)
    for joint in spec.joints:
        found = model.joint(joint.name)
        if found is None:
            raise UnknownNameError(f"joint in the model of {name}", joint.name, actuated_joint_names(model))
        found.armature = joint.armature_kg_m2
    if spec.chain is not None:
        _make_arm(model, spec.chain)
    if not visuals:
        looks.remove_visuals(model)
    elif name == "go2":
        looks.dress_go2(model)
    return model


def scene_model(
    name: str,
    *,
    foot_friction: float = 1.0,
    timestep_s: float = 0.002,
    visuals: bool = True,
) -> mujoco.MjSpec:
    """A robot on a flat checkered floor under a light, still without actuators.

    Args:
        name: Robot name, one of :func:`model_names`.
        foot_friction: Sliding friction between a foot and whatever it touches.
        timestep_s: Physics step.
        visuals: Keep the shapes that are only looked at.

    Raises:
        UnknownNameError: If there is no such model.
    """
    model = robot_model(name, visuals=visuals)
    model.option.timestep = timestep_s
    # The motors' damping term is integrated implicitly, as a motor controller that runs far faster than physics.
    model.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    for foot in robot_spec(name).feet:
        for geom in foot_geoms(model, foot):
            geom.friction[0] = foot_friction
            geom.priority = 1  # The foot's friction counts, whatever the floor's is.
    looks.add_floor(model)
    looks.add_sky_and_light(model)
    return model


def _make_arm(model: mujoco.MjSpec, chain: Chain) -> None:
    """What a model of an arm lacks: end effector, sensors of the base, and the controller that carries its weight."""
    for light in list(model.lights):
        model.delete(light)
    last = model.joint(chain.joint_names[-1]).parent
    last.add_site(name=EE_SITE, pos=list(chain.pos_ee_m), quat=list(chain.quat_ee_wxyz), group=5)
    base = model.joint(chain.joint_names[0]).parent.parent
    base.add_site(name="imu", group=5)
    for name, kind in (
        ("imu_ang_vel", mujoco.mjtSensor.mjSENS_GYRO),
        ("imu_lin_vel", mujoco.mjtSensor.mjSENS_VELOCIMETER),
        ("imu_lin_acc", mujoco.mjtSensor.mjSENS_ACCELEROMETER),
    ):
        model.add_sensor(name=name, type=kind, objtype=mujoco.mjtObj.mjOBJ_SITE, objname="imu")
    for geom in base.geoms:
        geom.pos[2] += 0.001  # The drawn base lies in the floor, and either would show through the other.
    for body in model.bodies:
        body.gravcomp = 1.0
    for coupling in model.equalities:  # One crank moves both fingers; as soft as by default they would part by 1 mm.
        coupling.solref[:] = (0.01, 1.0)
    for geom in model.geoms:
        if geom.contype:  # An arm touches what is not itself; that it cannot touch itself saves most of the checks.
            geom.contype, geom.conaffinity = 0, 1


def base_body(model: mujoco.MjSpec) -> mujoco.MjsBody:
    """The robot's base: the body that carries the free joint, or of an arm the one that its first joint turns on.

    Raises:
        GantryError: If the model has no joint.
    """
    joints = model.joints
    for joint in joints:
        if joint.type == mujoco.mjtJoint.mjJNT_FREE:
            return joint.parent
    if not joints:
        raise GantryError("The model has no joint, so it has no base.")
    return joints[0].parent.parent


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
