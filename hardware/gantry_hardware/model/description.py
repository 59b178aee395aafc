"""A robot's appearance as URDF, and the poses of its links: for viewers, tf and recordings.

A robot of the registry has a file ``gantry_hardware/descriptions/NAME.urdf``, made from its MuJoCo model by
``gantry_sim.robots.urdf``, or its body makes one, as a car's does. Frames are ROS's: the base is ``base_link``, lengths
in m, angles in rad.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import RobotSpec

FloatArray = NDArray[np.float64]

BASE_LINK = "base_link"
"""Root of every description."""
_FOLDER = Path(__file__).parents[1] / "descriptions"
_MOVING = ("revolute", "continuous", "prismatic")


@dataclass(frozen=True)
class Frames:
    """Poses of k child frames, each in its parent's frame."""

    parents: tuple[str, ...]
    """Names of the parents."""
    children: tuple[str, ...]
    """Names of the children."""
    pos_m: FloatArray
    """Shape (k, 3), the child's origin in the parent's frame."""
    quat_wxyz: FloatArray
    """Shape (k, 4), unit quaternions that take vectors from the child's frame to the parent's."""


class RobotDescription:
    """One robot's tree of links.

    Args:
        urdf: The description.
        joint_names: Of the robot, in canonical order. A joint of the description that is not among them stays at zero.

    Raises:
        GantryError: If it is no URDF, or its root is not ``base_link``.
    """

    def __init__(self, urdf: str, joint_names: tuple[str, ...]) -> None:
        self.urdf = urdf
        """The description as text."""
        joints = _joints(urdf)
        moving = [joint for joint in joints if joint.moves and joint.driver in joint_names]
        resting = [joint for joint in joints if joint not in moving]
        self.fixed = Frames(
            tuple(joint.parent for joint in resting),
            tuple(joint.child for joint in resting),
            np.array([joint.pos_m for joint in resting]).reshape(-1, 3),
            np.array([joint.quat_wxyz for joint in resting]).reshape(-1, 4),
        )
        """Of links that do not move: tools, feet, sensors."""
        self._parents = tuple(joint.parent for joint in moving)
        self._children = tuple(joint.child for joint in moving)
        self._pos = np.array([joint.pos_m for joint in moving]).reshape(-1, 3)
        self._quat = np.array([joint.quat_wxyz for joint in moving]).reshape(-1, 4)
        self.axis = np.array([joint.axis for joint in moving]).reshape(-1, 3)
        """Shape (k, 3), axis of each link that moves, in its own frame, unit length."""
        self.slides = np.array([joint.slides for joint in moving], dtype=bool)
        """Shape (k,), whether it slides along the axis instead of turning about it."""
        self.drivers = np.array([joint_names.index(joint.driver) for joint in moving], dtype=np.int64)
        """Shape (k,), place of the robot's joint that moves it."""
        self.factor = np.array([joint.factor for joint in moving])
        """Shape (k,), its movement per movement of that joint; 1, or what a coupled joint says."""
        self._offset = np.array([joint.offset for joint in moving])

    def moving(self, joint_pos: ArrayLike) -> Frames:
        """Poses of the links that move.

        Args:
            joint_pos: Shape (n,), canonical order, rad, or m where a joint slides.
        """
        values = np.asarray(joint_pos, dtype=np.float64)[self.drivers] * self.factor + self._offset
        shift, half = np.where(self.slides, values, 0.0), 0.5 * np.where(self.slides, 0.0, values)
        turn = np.concatenate((np.cos(half)[:, None], self.axis * np.sin(half)[:, None]), axis=1)
        pos = self._pos + rotated(self._quat, self.axis * shift[:, None])
        return Frames(self._parents, self._children, pos, quat_product(self._quat, turn))


def robot_description(spec: RobotSpec) -> RobotDescription | None:
    """The description of a robot; None for one that has none."""
    if hasattr(spec.body, "urdf"):
        return RobotDescription(spec.body.urdf(spec.name, spec.joint_names), spec.joint_names)
    path = _FOLDER / f"{spec.name}.urdf"
    return RobotDescription(path.read_text(encoding="utf-8"), spec.joint_names) if path.is_file() else None


def quat_product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Products (k, 4) of unit quaternions, w first: the right rotation, then the left one, as between frames."""
    w, v = left[:, :1], left[:, 1:]
    other, u = right[:, :1], right[:, 1:]
    real = w * other - np.sum(v * u, axis=1, keepdims=True)
    return np.concatenate((real, w * u + other * v + np.cross(v, u)), axis=1)


def rotated(quat_wxyz: FloatArray, vectors: FloatArray) -> FloatArray:
    """Vectors (k, 3), of any unit, turned by unit quaternions (k, 4): from the rotated frame to the
    one around it."""
    w, v = quat_wxyz[:, :1], quat_wxyz[:, 1:]
    twice = 2.0 * np.cross(v, vectors)
    return vectors + w * twice + np.cross(v, twice)


@dataclass(frozen=True)
class _Joint:
    parent: str
    child: str
    pos_m: tuple[float, ...]
    quat_wxyz: tuple[float, ...]
    axis: tuple[float, ...]
    moves: bool
    slides: bool
    driver: str
    factor: float
    offset: float


def _joints(urdf: str) -> list[_Joint]:
    try:
        robot = ElementTree.fromstring(urdf.encode())
        joints = [_joint(element) for element in robot.iter("joint")]
        links = {str(link.get("name")) for link in robot.iter("link")}
    except (ElementTree.ParseError, KeyError, ValueError, AttributeError, TypeError) as error:
        raise GantryError(f"A robot description is no URDF: {error}.") from error
    if (roots := links - {joint.child for joint in joints}) != {BASE_LINK}:
        raise GantryError(f"The root of a robot description is {', '.join(sorted(roots))}, expected {BASE_LINK}.")
    return joints


def _joint(element: ElementTree.Element) -> _Joint:
    def of(tag: str, key: str, default: str) -> str:
        found = element.find(tag)
        return default if found is None else found.get(key, default)

    mimic = element.find("mimic")
    return _Joint(
        parent=of("parent", "link", ""),
        child=of("child", "link", ""),
        pos_m=_numbers(of("origin", "xyz", "0 0 0")),
        quat_wxyz=_quat(*_numbers(of("origin", "rpy", "0 0 0"))),
        axis=_numbers(of("axis", "xyz", "1 0 0")),
        moves=element.attrib["type"] in _MOVING,
        slides=element.attrib["type"] == "prismatic",
        driver=element.attrib["name"] if mimic is None else mimic.attrib["joint"],
        factor=1.0 if mimic is None else float(mimic.get("multiplier", "1")),
        offset=0.0 if mimic is None else float(mimic.get("offset", "0")),
    )


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split())


def _quat(roll: float, pitch: float, yaw: float) -> tuple[float, ...]:
    """URDF's angles: about the fixed x, y and z axes, in this order."""
    turns = np.zeros((3, 1, 4))
    for i, angle in enumerate((roll, pitch, yaw)):
        turns[i, 0, 0], turns[i, 0, i + 1] = np.cos(0.5 * angle), np.sin(0.5 * angle)
    return tuple(quat_product(quat_product(turns[2], turns[1]), turns[0])[0].tolist())
