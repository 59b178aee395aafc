"""Poses and shapes of a compiled robot: the default pose, what touches in it, and how low a shape reaches."""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np

VISUAL_GROUP = 2
"""Group of shapes that are only looked at."""
FREE_COORDINATES = 7
"""Coordinates of a free base in ``qpos``: position, then quaternion."""


def posed(model: mujoco.MjModel, joint_pos_rad: Mapping[str, float]) -> mujoco.MjData:
    """The robot upright with its base's origin at the world's, with kinematics and contacts computed.

    Args:
        model: With a free base as its first joint.
        joint_pos_rad: Joint name to angle; joints that are not named stay at the model's reference.
    """
    data = mujoco.MjData(model)
    data.qpos[:] = model.qpos0
    data.qpos[:FREE_COORDINATES] = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    for name, angle in joint_pos_rad.items():
        data.qpos[model.joint(name).qposadr[0]] = angle
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_collision(model, data)
    return data


def is_solid(model: mujoco.MjModel, geom: int) -> bool:
    """Whether a shape collides."""
    return model.geom_group[geom] != VISUAL_GROUP and bool(model.geom_contype[geom] or model.geom_conaffinity[geom])


def lowest_point_m(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> float:
    """Height of the lowest point of a shape in the world; of an ellipsoid, that of its box."""
    up = data.geom_xmat[geom].reshape(3, 3)[2]
    height, kind, size = float(data.geom_xpos[geom, 2]), model.geom_type[geom], model.geom_size[geom]
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        return height - float(size[0])
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        return height - abs(float(up[2])) * float(size[1]) - float(size[0])
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        return height - abs(float(up[2])) * float(size[1]) - float(np.hypot(up[0], up[1]) * size[0])
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        start = model.mesh_vertadr[mesh]
        corners = model.mesh_vert[start : start + model.mesh_vertnum[mesh]]
        return height + float((corners @ up).min())
    middle, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    return height + float(up @ middle - np.abs(up) @ half)


def overlaps(model: mujoco.MjModel, data: mujoco.MjData, depth_m: float) -> list[tuple[str, str, float]]:
    """Pairs of bodies that reach into each other by more than a depth, deepest first: names and depth, m."""
    found: dict[tuple[str, str], float] = {}
    for contact in data.contact[: data.ncon]:
        bodies = sorted(model.body(int(model.geom_bodyid[geom])).name for geom in contact.geom)
        depth = -float(contact.dist)
        if depth > depth_m and "world" not in bodies:
            pair = (bodies[0], bodies[1])
            found[pair] = max(depth, found.get(pair, 0.0))
    return sorted(((*pair, depth) for pair, depth in found.items()), key=lambda item: -item[2])


def geom_text(model: mujoco.MjModel, geom: int) -> str:
    """A shape's name, or what body it belongs to."""
    body = model.body(int(model.geom_bodyid[geom])).name
    return f"shape '{model.geom(geom).name}' of '{body}'" if model.geom(geom).name else f"a shape of '{body}'"


def ancestors(model: mujoco.MjModel, body: int) -> list[int]:
    """A body and those that carry it, up to the one on the world."""
    found = []
    while body:
        found.append(body)
        body = int(model.body_parentid[body])
    return found
