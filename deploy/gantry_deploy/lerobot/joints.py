"""Joints of a robot in the numbers of LeRobot: degrees, or shares of a calibrated range, by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError, RobotError, UnknownNameError
from gantry_hardware.files.bounds import Range, check_fields
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.yaml_file import read_yaml
from gantry_hardware.model.spec import RobotSpec

FloatArray = NDArray[np.float64]

DEGREES, RADIANS, SYMMETRIC, SHARE = "deg", "rad", "range_m100_100", "range_0_100"
UNITS = (DEGREES, RADIANS, SYMMETRIC, SHARE)
"""Units of LeRobot's motors (``MotorNormMode``), and radians (of sliding joints m) of plugins that give these."""
POS = ".pos"
"""Ending of LeRobot's keys of positions."""


@dataclass(frozen=True)
class LerobotJoint:
    """One joint: where its number is and what it means."""

    key: str = ""
    """LeRobot's name of it, with or without ``.pos``; empty for the joint's own name."""
    unit: str = ""
    """One of :data:`UNITS`; empty for the unit of the whole arm, and for ``range_0_100`` of a gripper."""
    sign: float = 1.0
    """1, or -1 where it turns the other way; of degrees and radians."""
    offset: float = 0.0
    """Joint position where the number is zero, rad or m; of degrees and radians."""
    ends: tuple[float, ...] = ()
    """Joint positions, rad or m, at the two ends of the calibrated range, that is at -100 and 100, or at 0 and 100;
    empty for the joint's limits."""

    def __post_init__(self) -> None:
        check_fields(self, {"offset": Range(-1e3, 1e3), "ends": Range(-1e3, 1e3)}, "LeRobot joint: ", RobotError)
        if self.unit and self.unit not in UNITS:
            raise UnknownNameError("unit of a LeRobot joint", self.unit, UNITS)
        if abs(self.sign) != 1.0:
            raise RobotError(f"The sign of LeRobot joint '{self.key}' is {self.sign}, expected 1 or -1.")
        if self.ends and (len(self.ends) != 2 or self.ends[0] == self.ends[1]):
            raise RobotError(f"The ends of LeRobot joint '{self.key}' are {list(self.ends)}, expected two positions.")


@dataclass(frozen=True)
class LerobotArmCfg:
    """Joints of an arm in LeRobot's names and units."""

    unit: str = DEGREES
    """Unit of joints that name none, grippers excepted."""
    joints: Mapping[str, LerobotJoint] = field(default_factory=dict)
    """Joint of the robot -> what LeRobot calls it; joints that are left out have equal names."""

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise UnknownNameError("unit of a LeRobot arm", self.unit, UNITS)


class LerobotJoints:
    """Positions of a robot's joints in LeRobot's dictionaries.

    Args:
        spec: The robot.
        cfg: Names and units.

    Raises:
        UnknownNameError: If the configuration names a joint that the robot does not have.
        RobotError: If two joints have the same key.
    """

    def __init__(self, spec: RobotSpec, cfg: LerobotArmCfg) -> None:
        for name in cfg.joints:
            if name not in spec.joint_names:
                raise UnknownNameError(f"joint of '{spec.name}'", name, spec.joint_names)
        links = [cfg.joints.get(name, LerobotJoint()) for name in spec.joint_names]
        pairs = zip(links, spec.joint_names, strict=True)
        self.keys = [(link.key or name).removesuffix(POS) + POS for link, name in pairs]
        """LeRobot's keys in the order of the joints."""
        if len(set(self.keys)) != len(self.keys):
            raise RobotError(f"LeRobot keys are used twice: {', '.join(self.keys)}; expected one for each joint.")
        lines = []
        for link, joint in zip(links, spec.joints, strict=True):
            unit = link.unit or (SHARE if joint.name in spec.gripper_joints else cfg.unit)
            lines.append(_line(link, unit, (joint.lower_rad, joint.upper_rad)))
        self._factor, self._offset = np.array(lines).T

    def require(self, features: Mapping[str, Any], what: str, *, alone: bool = False) -> None:
        """Refuse a device that lacks a key, or has others.

        Args:
            features: The device's observations or actions.
            what: Noun for the device.
            alone: Whether further numbers are refused, as of a device that would be left uncommanded in part.

        Raises:
            UnknownNameError: If a key is missing, with the near miss.
            RobotError: If there are others.
        """
        for key in self.keys:
            if key not in features:
                raise UnknownNameError(f"key of {what}", key, [key for key in features if _is_number(features[key])])
        others = [key for key in features if key not in self.keys]
        if alone and others:
            raise RobotError(
                f"{what} is commanded by {', '.join(others)} too, which no joint of the robot is mapped to; expected "
                f"{', '.join(self.keys)} alone."
            )

    def pos(self, values: Mapping[str, Any], what: str, error: type[GantryError] = RobotError) -> FloatArray:
        """Positions (n,), rad or m, each in its joint's own frame, of a dictionary of LeRobot's.

        Raises:
            GantryError: Of class ``error``, if a key is missing or no number.
        """
        try:
            numbers = np.array([float(values[key]) for key in self.keys])
        except (KeyError, TypeError, ValueError) as problem:
            raise error(f"{what} gives no number for {problem}; expected {', '.join(self.keys)}.") from problem
        return self._factor * numbers + self._offset

    def action(self, pos: FloatArray) -> dict[str, float]:
        """LeRobot's action for positions (n,), rad or m, each in its joint's own frame."""
        numbers = (pos - self._offset) / self._factor
        return {key: float(number) for key, number in zip(self.keys, numbers, strict=True)}


def arm_cfg(path: str, unit: str = "") -> LerobotArmCfg:
    """Configuration of a YAML file; without one, equal names in one unit, degrees if that is empty.

    Raises:
        GantryError: If both are given, or the file cannot be used.
    """
    if path and unit:
        raise RobotError("Give map=FILE or unit=UNIT, not both: the file has a field 'unit'.")
    return from_plain(LerobotArmCfg, read_yaml(path), path, RobotError) if path else LerobotArmCfg(unit or DEGREES)


def _line(link: LerobotJoint, unit: str, limits: tuple[float, float]) -> tuple[float, float]:
    """Factor and offset of the joint position over LeRobot's number."""
    if unit == RADIANS:
        return link.sign, link.offset
    if unit == DEGREES:
        return link.sign * math.radians(1.0), link.offset
    low, high = link.ends or limits
    if unit == SHARE:
        return (high - low) / 100.0, low
    return (high - low) / 200.0, 0.5 * (low + high)


def _is_number(feature: Any) -> bool:
    return not isinstance(feature, tuple)
