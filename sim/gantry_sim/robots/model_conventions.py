"""Bring a MuJoCo model of a robot from any source to what tasks and backends rely on.

A floating base; sensors of an IMU on it; a site of the spec's name at every foot; collision shapes that are called
``<body>_collision<n>``, those of a foot with "foot" in their name; no motors and no key frames. Models that have all of
it stay as they are.
"""

from __future__ import annotations

import re

import mujoco
import numpy as np

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.spec import RobotSpec

COLLISION_NAME = re.compile(r".*_collision\d*")
"""Name of a collision shape."""
IMU_SITE = "imu"
"""Site at the base's inertial measurement unit."""
VISUAL_GROUP = 2
"""Group of shapes that are only looked at, as MuJoCo Menagerie and mjlab have it."""


def meet_conventions(model: mujoco.MjSpec, spec: RobotSpec) -> None:
    """Give a model what it lacks; a base floats unless the robot's body says that it is fixed.

    Args:
        model: With the joints of the spec.
        spec: Names the feet: sites, shapes or bodies of the model.

    Raises:
        UnknownNameError: If the model has no such foot.
        GantryError: If a foot has no shape that collides.
    """
    for motor in list(model.actuators):
        model.delete(motor)
    for key in list(model.keys):
        model.delete(key)
    base = base_body(model)
    is_fixed = getattr(spec.body, "fixed_base", False)
    if not is_fixed and not any(joint.type == mujoco.mjtJoint.mjJNT_FREE for joint in base.joints):
        base.add_freejoint(name="floating_base")
    if any(model.sensor(name) is None for name, _ in IMU_SENSORS):
        add_imu(model, base)
    for foot in spec.feet:
        _name_foot(model, foot)
    numbers: dict[str, int] = {}
    for geom in model.geoms:
        if (
            geom.group != VISUAL_GROUP
            and (geom.contype or geom.conaffinity)
            and not COLLISION_NAME.fullmatch(geom.name)
        ):
            body = geom.parent.name
            numbers[body] = numbers.get(body, 0) + 1
            geom.name = f"{geom.name}_collision" if "foot" in geom.name else f"{body}_collision{numbers[body]}"


IMU_SENSORS = (
    ("imu_ang_vel", mujoco.mjtSensor.mjSENS_GYRO),
    ("imu_lin_vel", mujoco.mjtSensor.mjSENS_VELOCIMETER),
    ("imu_lin_acc", mujoco.mjtSensor.mjSENS_ACCELEROMETER),
)
"""Names and kinds of the sensors that every robot's base has."""


def add_imu(model: mujoco.MjSpec, base: mujoco.MjsBody) -> None:
    """Add those sensors of an inertial measurement unit that are missing, at the site ``imu`` or the base's origin."""
    if model.site(IMU_SITE) is None:
        base.add_site(name=IMU_SITE, group=5)
    for name, kind in IMU_SENSORS:
        if model.sensor(name) is None:
            model.add_sensor(name=name, type=kind, objtype=mujoco.mjtObj.mjOBJ_SITE, objname=IMU_SITE)


def base_body(model: mujoco.MjSpec) -> mujoco.MjsBody:
    """The robot's base: the body that carries the free joint, or the one that the first joint turns on.

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


def _name_foot(model: mujoco.MjSpec, foot: str) -> None:
    """Give a foot its site, and its collision shape a name with "foot" in it."""
    site, shape, body = model.site(foot), model.geom(foot), model.body(foot)
    if site is None:
        if shape is None and body is None:
            known = [item.name for group in (model.sites, model.geoms, model.bodies) for item in group if item.name]
            raise UnknownNameError("foot (a site, shape or body of the model)", foot, known)
        parent = shape.parent if shape is not None else body
        place = list(shape.pos) if shape is not None else [0.0, 0.0, 0.0]
        site = parent.add_site(name=foot, pos=place, group=5)
    solid = [geom for geom in site.parent.geoms if _is_solid(geom)]
    if any("foot" in geom.name for geom in solid):
        return
    if not solid:
        raise GantryError(f"Foot '{foot}': body '{site.parent.name}' has no shape that collides.")
    named = [geom for geom in solid if geom.name == foot]
    nearest = (named or sorted(solid, key=lambda geom: float(np.linalg.norm(geom.pos - site.pos))))[0]
    nearest.name = f"{foot}_foot_collision"


def _is_solid(geom: mujoco.MjsGeom) -> bool:
    """Whether a shape collides, now or once a task switches its collisions on."""
    return geom.group != VISUAL_GROUP and bool(geom.contype or geom.conaffinity)
