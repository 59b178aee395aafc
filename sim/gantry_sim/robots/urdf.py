"""Descriptions of robots as URDF, made from their MuJoCo models: ``python -m gantry_sim.robots.urdf`` writes them all.

Links are the model's bodies, the base being ``base_link``, and fixed links at the soles of the feet, at the IMU and at
an arm's end effector. Shapes stand in for meshes, which are not shipped: what the model draws in simple shapes, else
what it collides with, else a mesh's box.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import quoteattr

import mujoco
import numpy as np

import gantry_hardware
from gantry_hardware.errors import GantryError
from gantry_hardware.model.description import BASE_LINK
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec
from gantry_sim.robots.models import EE_SITE, base_body, model_names, robot_model

_DRAWN_GROUP = 2
_DIGITS = 12
_SPHERE, _CAPSULE = mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_CAPSULE
_CYLINDER, _BOX = mujoco.mjtGeom.mjGEOM_CYLINDER, mujoco.mjtGeom.mjGEOM_BOX
_SIMPLE = (_SPHERE, _CAPSULE, _CYLINDER, _BOX)


def urdf_of(name: str) -> str:
    """The description of a robot.

    Args:
        name: Robot name, one of :func:`gantry_sim.robots.models.model_names`.

    Raises:
        GantryError: If the model has joints that URDF cannot describe.
    """
    described, spec = robot_model(name), robot_spec(name)
    base = base_body(described).name
    model = described.compile()
    names = {model.body(i).id: _link_name(model.body(i).name, base) for i in range(1, model.nbody)}
    lines = ['<?xml version="1.0"?>', f"<robot name={quoteattr(name)}>"]
    for body, link in names.items():
        lines += [f"  <link name={quoteattr(link)}>", *_inertial(model, body), *_visuals(model, body), "  </link>"]
    for body in names:
        if model.body(body).name != base:
            lines += _body_joint(model, body, names, spec)
    for site, link in _marks(model, spec).items():
        found = model.site(site)
        lines += [f"  <link name={quoteattr(link)}/>"]
        lines += _joint(f"{link}_joint", "fixed", names[int(found.bodyid[0])], link, found.pos, found.quat)
    return "\n".join([*lines, "</robot>", ""])


def _link_name(body: str, base: str) -> str:
    return BASE_LINK if body == base else body


def _marks(model: mujoco.MjModel, spec: RobotSpec) -> dict[str, str]:
    """Sites that are links as well, and the links' names."""
    marks = {foot: foot if "foot" in foot else f"{foot}_foot" for foot in spec.feet}
    sites = [model.site(i).name for i in range(model.nsite)]
    if EE_SITE in sites:
        marks[EE_SITE] = EE_SITE
    return marks | {site: "imu_link" for site in ("imu", "imu_in_pelvis") if site in sites and spec.feet}


def _body_joint(model: mujoco.MjModel, body: int, names: dict[int, str], spec: RobotSpec) -> list[str]:
    """Attachment of a body to the one before."""
    parent, child = names[int(model.body_parentid[body])], names[body]
    pos, quat = model.body_pos[body], model.body_quat[body]
    if model.body_jntnum[body] == 0:
        return _joint(f"{child}_joint", "fixed", parent, child, pos, quat)
    joint = int(model.body_jntadr[body])
    if model.body_jntnum[body] > 1 or model.jnt_pos[joint].any():
        raise GantryError(f"Body '{child}' has several joints, or one beside its origin, which URDF cannot describe.")
    name, (lower, upper) = model.joint(joint).name, model.jnt_range[joint]
    kind = "prismatic" if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE else "revolute"
    axis = f'    <axis xyz="{_text(model.jnt_axis[joint])}"/>'
    driver, factor = _driver(model, joint)
    found = spec.joints[spec.joint_index(driver)]
    if driver == name:
        lower, upper = found.lower_rad, found.upper_rad
    limit = f'lower="{_text(lower)}" upper="{_text(upper)}"'
    limit += f' effort="{_text(found.effort_limit_nm)}" velocity="{_text(found.velocity_limit_rad_s)}"'
    more = [axis, f"    <limit {limit}/>"]
    if driver != name:
        more.append(f'    <mimic joint={quoteattr(driver)} multiplier="{_text(factor)}" offset="0"/>')
    return _joint(name, kind, parent, child, pos, quat, more)


def _driver(model: mujoco.MjModel, joint: int) -> tuple[str, float]:
    """The joint that moves a joint, itself unless it is coupled, and the factor between them."""
    for i in range(model.neq):
        if model.eq_type[i] != mujoco.mjtEq.mjEQ_JOINT or joint != model.eq_obj2id[i]:
            continue
        offset, factor, *bent = model.eq_data[i, :5]
        if offset or any(bent) or abs(factor) != 1.0:  # By plus or minus one it reads the same from either side.
            raise GantryError(f"Joint '{model.joint(joint).name}' is coupled in a way that is not described here.")
        return model.joint(model.eq_obj1id[i]).name, float(factor)
    return model.joint(joint).name, 1.0


def _joint(
    name: str, kind: str, parent: str, child: str, pos: np.ndarray, quat: np.ndarray, more: list[str] | None = None
) -> list[str]:
    return [
        f'  <joint name={quoteattr(name)} type="{kind}">',
        f"    <parent link={quoteattr(parent)}/>",
        f"    <child link={quoteattr(child)}/>",
        f"    {_origin(pos, quat)}",
        *(more or []),
        "  </joint>",
    ]


def _inertial(model: mujoco.MjModel, body: int) -> list[str]:
    if model.body_mass[body] == 0.0:
        return []
    ixx, iyy, izz = (_text(value) for value in model.body_inertia[body])
    return [
        "    <inertial>",
        f"      {_origin(model.body_ipos[body], model.body_iquat[body])}",
        f'      <mass value="{_text(model.body_mass[body])}"/>',
        f'      <inertia ixx="{ixx}" ixy="0" ixz="0" iyy="{iyy}" iyz="0" izz="{izz}"/>',
        "    </inertial>",
    ]


def _visuals(model: mujoco.MjModel, body: int) -> Iterator[str]:
    begin = int(model.body_geomadr[body])
    geoms = [begin + i for i in range(int(model.body_geomnum[body]))]
    drawn = [i for i in geoms if model.geom_group[i] == _DRAWN_GROUP]
    if not drawn or any(model.geom_type[i] not in _SIMPLE for i in drawn):
        drawn = [i for i in geoms if model.geom_group[i] != _DRAWN_GROUP and model.geom_type[i] in _SIMPLE] or drawn
    for i in drawn:
        colour = " ".join(f"{value:.3g}" for value in model.geom_rgba[i])
        for shape, pos in _shapes(model, i):
            yield "    <visual>"
            yield f"      {_origin(pos, model.geom_quat[i])}"
            yield f"      <geometry>{shape}</geometry>"
            yield f'      <material name="rgba {colour}"><color rgba="{colour}"/></material>'
            yield "    </visual>"


def _shapes(model: mujoco.MjModel, geom: int) -> Iterator[tuple[str, np.ndarray]]:
    """URDF's shapes for one of the model's, and where their middles are in the body."""
    kind, (a, b, _), pos = model.geom_type[geom], model.geom_size[geom], model.geom_pos[geom]
    rotation = _matrix(model.geom_quat[geom])
    if kind == _SPHERE:
        yield f'<sphere radius="{_text(a)}"/>', pos
    elif kind in (_CAPSULE, _CYLINDER):
        yield f'<cylinder radius="{_text(a)}" length="{_text(2.0 * b)}"/>', pos
        for end in (-b, b) if kind == _CAPSULE else ():
            yield f'<sphere radius="{_text(a)}"/>', pos + rotation @ (0.0, 0.0, end)
    elif kind == _BOX:
        yield f'<box size="{_text(2.0 * model.geom_size[geom])}"/>', pos
    else:
        middle, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
        yield f'<box size="{_text(2.0 * half)}"/>', pos + rotation @ middle


def _origin(pos: np.ndarray, quat: np.ndarray) -> str:
    return f'<origin xyz="{_text(pos)}" rpy="{_text(_roll_pitch_yaw(_matrix(quat)))}"/>'


def _matrix(quat_wxyz: np.ndarray) -> np.ndarray:
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(quat_wxyz, dtype=np.float64))
    return matrix.reshape(3, 3)


def _roll_pitch_yaw(matrix: np.ndarray) -> tuple[float, float, float]:
    """Angles about the fixed x, y and z axes; where pitch is a quarter of a turn, roll is taken to be zero."""
    across = math.hypot(matrix[0, 0], matrix[1, 0])
    pitch = math.atan2(-matrix[2, 0], across)
    if across < 1e-9:
        return 0.0, pitch, math.atan2(-matrix[0, 1], matrix[1, 1])
    return math.atan2(matrix[2, 1], matrix[2, 2]), pitch, math.atan2(matrix[1, 0], matrix[0, 0])


def _text(values: float | np.ndarray | tuple[float, ...]) -> str:
    return " ".join(f"{round(float(value), _DIGITS) + 0.0:.{_DIGITS}g}" for value in np.atleast_1d(values))


def main() -> None:
    """Write the descriptions of all robots that have a MuJoCo model where the robot's side looks for them."""
    folder = Path(gantry_hardware.__path__[0]) / "descriptions"
    folder.mkdir(exist_ok=True)
    for name in model_names():
        path = folder / f"{name}.urdf"
        path.write_text(urdf_of(name), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
