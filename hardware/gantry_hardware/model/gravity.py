"""Torques that hold an arm up against gravity, from the masses of its description."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.backends.state import GRAVITY_M_S2
from gantry_hardware.errors import RobotError
from gantry_hardware.model.description import BASE_LINK, RobotDescription, robot_description, rotated
from gantry_hardware.model.spec import RobotSpec

FloatArray = NDArray[np.float64]


class GravityModel:
    """Efforts that balance the weight of a robot on a fixed upright base.

    Args:
        spec: A robot with a description.

    Raises:
        RobotError: If it has none, or one without masses.
    """

    def __init__(self, spec: RobotSpec) -> None:
        description = robot_description(spec)
        if description is None:
            raise RobotError(f"Robot '{spec.name}' has no description, so the torque of its weight is not known.")
        bodies = _bodies(description.urdf)
        if not bodies:
            raise RobotError(f"The description of robot '{spec.name}' holds no masses.")
        self._description, self._num_joints = description, spec.num_joints
        self._carriers, self._order, self._mass_kg, self._first_moment = _lumped(description, spec.num_joints, bodies)

    def effort(self, joint_pos: FloatArray) -> FloatArray:
        """Efforts (n,), N m, of sliding joints N, at joint positions (n,), rad or m.

        By virtual work: the effort of a joint is the weight of all that it carries times the rate at which the centre
        of that rises.
        """
        description = self._description
        frames = description.moving(joint_pos)
        turns = _matrices(frames.quat_wxyz)
        poses: list[tuple[FloatArray, FloatArray]] = [(np.eye(3), np.zeros(3))] * len(turns)
        for i in self._order:
            carrier, turn, place = self._carriers[i]
            if carrier is not None:
                above, origin = poses[carrier]
                turn, place = above @ turn, origin + above @ place
            poses[i] = (turn @ turns[i], place + turn @ frames.pos_m[i])
        mass = self._mass_kg.copy()
        moment = np.stack([turn @ first for (turn, _), first in zip(poses, self._first_moment, strict=True)])
        moment += mass[:, None] * np.stack([place for _, place in poses])
        for i in reversed(self._order):
            carrier = self._carriers[i][0]
            if carrier is not None:
                mass[carrier] += mass[i]
                moment[carrier] += moment[i]
        effort = np.zeros(self._num_joints)
        for i, (turn, place) in enumerate(poses):
            axis, lever = turn @ description.axis[i], moment[i] - mass[i] * place
            rise = mass[i] * axis[2] if description.slides[i] else axis[0] * lever[1] - axis[1] * lever[0]
            effort[description.drivers[i]] += description.factor[i] * GRAVITY_M_S2 * rise
        return effort


Carrier = tuple[int | None, FloatArray, FloatArray]
"""Moving link that carries a frame (None for the base), and the frame's rotation (3, 3) and place (3,), m, in it."""


def _lumped(
    description: RobotDescription, num_joints: int, bodies: dict[str, tuple[float, FloatArray]]
) -> tuple[list[Carrier], list[int], FloatArray, FloatArray]:
    """Carrier of each moving link, an order from the base outwards, and mass and first moment of each with all that
    is fixed to it."""
    moving, fixed = description.moving(np.zeros(num_joints)), description.fixed
    turns = _matrices(fixed.quat_wxyz)
    places: dict[str, Carrier] = {BASE_LINK: (None, np.eye(3), np.zeros(3))}
    order: list[int] = []
    while len(places) <= len(moving.children) + len(fixed.children):
        for i, name in enumerate(moving.children):
            if moving.parents[i] in places and name not in places:
                places[name] = (i, np.eye(3), np.zeros(3))
                order.append(i)
        for i, name in enumerate(fixed.children):
            if fixed.parents[i] in places and name not in places:
                carrier, turn, place = places[fixed.parents[i]]
                places[name] = (carrier, turn @ turns[i], place + turn @ fixed.pos_m[i])
    mass_kg, first_moment = np.zeros(len(moving.children)), np.zeros((len(moving.children), 3))
    for name, (mass, centre) in bodies.items():
        carrier, turn, place = places[name]
        if carrier is not None:
            mass_kg[carrier] += mass
            first_moment[carrier] += mass * (place + turn @ centre)
    return [places[parent] for parent in moving.parents], order, mass_kg, first_moment


def _matrices(quat_wxyz: FloatArray) -> FloatArray:
    """Rotation matrices (k, 3, 3) of unit quaternions (k, 4)."""
    rows = [rotated(quat_wxyz, np.tile(axis, (len(quat_wxyz), 1))) for axis in np.eye(3)]
    return np.stack(rows, axis=2)


def _bodies(urdf: str) -> dict[str, tuple[float, FloatArray]]:
    """Link -> mass, kg, and centre of mass (3,), m, in the link's frame."""
    bodies = {}
    for link in ElementTree.fromstring(urdf.encode()).iter("link"):
        inertial = link.find("inertial")
        mass = None if inertial is None else inertial.find("mass")
        if inertial is None or mass is None:
            continue
        origin = inertial.find("origin")
        text = "0 0 0" if origin is None else origin.get("xyz", "0 0 0")
        bodies[str(link.get("name"))] = (float(mass.get("value", "0")), np.array([float(x) for x in text.split()]))
    return bodies
