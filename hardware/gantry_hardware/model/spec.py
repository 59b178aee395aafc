"""A robot in numbers: joints in canonical order, limits, gains, default pose."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError, RobotError, UnknownNameError
from gantry_hardware.files.bounds import Range, check_fields

FloatArray = NDArray[np.float64]
B = TypeVar("B")

FALL_TILT_RAD = math.radians(60.0)
"""A robot whose base's up axis is further than this from the vertical has fallen, whatever its height: in training, in
every simulator and in every score."""


@dataclass(frozen=True)
class JointSpec:
    """One actuated joint."""

    name: str
    """Name as in the robot description, for example ``FL_hip_joint``."""
    lower_rad: float
    """Lower position limit."""
    upper_rad: float
    """Upper position limit."""
    velocity_limit_rad_s: float
    """Largest speed of the joint."""
    effort_limit_nm: float
    """Largest torque at the joint."""
    default_rad: float
    """Position in the default standing pose."""
    stiffness_nm_rad: float
    """Proportional gain of the position loop."""
    damping_nm_s_rad: float
    """Derivative gain of the position loop."""
    armature_kg_m2: float
    """Rotor inertia seen at the joint, that is rotor inertia times gear ratio squared."""
    reverse_limit_rad_s: float | None = None
    """Largest speed towards smaller positions, where it is not ``velocity_limit_rad_s``, as of a car's drive."""

    def __post_init__(self) -> None:
        check_fields(self, _JOINT_RANGES, f"Joint '{self.name}': ")
        if not self.lower_rad <= self.default_rad <= self.upper_rad:
            raise GantryError(
                f"Joint '{self.name}': default {self.default_rad} rad is outside its limits "
                f"[{self.lower_rad}, {self.upper_rad}] rad."
            )


_JOINT_RANGES = {
    # A car's drive turns for ever.
    "lower_rad": Range(-1e9, 1e9),
    "upper_rad": Range(-1e9, 1e9),
    "velocity_limit_rad_s": Range(1e-3, 1e4),
    "effort_limit_nm": Range(1e-3, 1e6),
    "default_rad": Range(-1e9, 1e9),
    "stiffness_nm_rad": Range(0.0, 1e6),
    "damping_nm_s_rad": Range(0.0, 1e6),
    "armature_kg_m2": Range(0.0, 1e6),
    "reverse_limit_rad_s": Range(0.0, 1e4),
}


@dataclass(frozen=True)
class RobotSpec:
    """One robot; the order of ``joints`` is the order of every joint array in Gantry."""

    name: str
    """Registry name, for example ``go2``."""
    embodiment: str
    """Name in the entry-point group ``gantry.embodiments``, for example ``legs``, ``arm`` or ``car``: what kind of body
    it is, which decides how it is run, judged and evaluated."""
    joints: tuple[JointSpec, ...]
    """Actuated joints in canonical order."""
    feet: tuple[str, ...]
    """Names of the feet in the order of every foot array."""
    base_height_m: float
    """Height of the base origin above flat ground in the default pose, feet on the ground."""
    fall_height_m: float
    """Below this height of the base above the ground the robot has fallen."""
    mass_kg: float
    """Total mass."""
    source: str
    """Source of the numbers."""
    hold_gains: tuple[tuple[float, float], ...] = ()
    """Stiffness (N m/rad) and damping (N m s/rad) of every joint for holding a pose without a policy. Empty: the
    joints' own gains, which suffice where a robot need not balance on its ankles."""
    central_joints: tuple[str, ...] = ()
    """Joints in the plane of symmetry, such as a waist, which have no counterpart on the other side."""
    damp_gains_nm_s_rad: tuple[float, ...] = ()
    """Derivative gain of every joint for letting the robot down without a policy, position gains zero. Empty: the
    joints' own, which belong to a position loop and let a legged robot drop onto its trunk."""
    body: Any = None
    """Body beside the joints, of a type of the embodiment: a :class:`gantry_hardware.model.chain.Chain` of an arm, a
    :class:`gantry_hardware.model.cars.CarSpec` of a car, a :class:`gantry_hardware.model.mechanism.Mechanism` of a
    mechanism, None of a robot with legs. Its method ``check_joints``, if it has one, is called with the joints' names,
    and ``urdf`` with name and joints' names; with ``fixed_base`` the robot's model gets no free joint."""
    mjcf: str = ""
    """The robot's MuJoCo model, as ``package:path/inside/it.xml`` or as an absolute path; the package is not
    imported to find it. Empty for a robot that no simulator knows. docs/robots.md says what the model must hold."""
    mirrored_joints: tuple[tuple[str, float], ...] = ()
    """For every joint its partner on the other side (itself in the plane of symmetry) and the factor on its angle in
    the mirror image, 1 or -1. Empty: both are told from the joints' names."""
    mirrored_feet: tuple[str, ...] = ()
    """For every foot its partner on the other side. Empty: told from the feet's names."""

    def __post_init__(self) -> None:
        if len(self.hold_gains) not in (0, len(self.joints)):
            raise GantryError(
                f"Robot '{self.name}': {len(self.hold_gains)} pairs of hold gains, expected {len(self.joints)} or none."
            )
        for name in self.central_joints:
            if name not in self.joint_names:
                raise GantryError(
                    f"Robot '{self.name}': '{name}' is declared central, expected one of {', '.join(self.joint_names)}."
                )
        if len(self.damp_gains_nm_s_rad) not in (0, len(self.joints)):
            found = f"{len(self.damp_gains_nm_s_rad)} damp gains"
            raise GantryError(f"Robot '{self.name}': {found}, expected {len(self.joints)} or none.")
        self._check_mirror()
        check_fields(self, _ROBOT_RANGES, f"Robot '{self.name}': ")
        if hasattr(self.body, "check_joints"):
            self.body.check_joints(self.name, self.joint_names)

    def _check_mirror(self) -> None:
        mirrored_joints = tuple(name for name, _ in self.mirrored_joints)
        for field, found, names in (
            ("mirrored_joints", mirrored_joints, self.joint_names),
            ("mirrored_feet", self.mirrored_feet, self.feet),
        ):
            if found and (
                sorted(found) != sorted(names)
                or any(found[names.index(found[i])] != names[i] for i in range(len(names)))
            ):
                raise GantryError(
                    f"Robot '{self.name}': {field} are {', '.join(found)}; expected for each of {', '.join(names)} its "
                    "partner, which has it as its own."
                )
        if any(sign not in (1.0, -1.0) for _, sign in self.mirrored_joints):
            raise GantryError(f"Robot '{self.name}': the signs of mirrored_joints are 1 or -1.")

    def body_as(self, kind: type[B]) -> B:
        """The body, which must be of a type.

        Raises:
            RobotError: If the robot has another body, or none.
        """
        if isinstance(self.body, kind):
            return self.body
        raise RobotError(f"Robot '{self.name}' is of embodiment '{self.embodiment}' and has no {kind.__name__}.")

    @cached_property
    def joint_names(self) -> tuple[str, ...]:
        """Joint names in canonical order."""
        return tuple(joint.name for joint in self.joints)

    @property
    def gripper_joints(self) -> tuple[str, ...]:
        """Joints that the body's chain leaves out, as that of an arm does its gripper; none without a chain."""
        chain = getattr(self.body, "joint_names", self.joint_names)
        return tuple(name for name in self.joint_names if name not in chain)

    @property
    def num_joints(self) -> int:
        """Number of actuated joints."""
        return len(self.joints)

    @property
    def hold_stiffness_nm_rad(self) -> FloatArray:
        """Shape (num_joints,), proportional gains [N m/rad] for holding a pose without a policy."""
        return np.array([gains[0] for gains in self.hold_gains]) if self.hold_gains else self.array("stiffness_nm_rad")

    @property
    def hold_damping_nm_s_rad(self) -> FloatArray:
        """Shape (num_joints,), derivative gains [N m s/rad] for holding a pose without a policy."""
        return np.array([gains[1] for gains in self.hold_gains]) if self.hold_gains else self.array("damping_nm_s_rad")

    @property
    def damp_damping_nm_s_rad(self) -> FloatArray:
        """Shape (num_joints,), derivative gains [N m s/rad] for letting the robot down without a policy."""
        return np.array(self.damp_gains_nm_s_rad) if self.damp_gains_nm_s_rad else self.array("damping_nm_s_rad")

    def array(self, field: str) -> FloatArray:
        """One number of every joint in canonical order.

        Args:
            field: A numeric field of :class:`JointSpec`, for example ``effort_limit_nm``.

        Returns:
            Read-only array of shape (num_joints,) in the field's unit.

        Raises:
            UnknownNameError: If there is no such field.
        """
        fields = [name for name in JointSpec.__dataclass_fields__ if name not in ("name", "reverse_limit_rad_s")]
        if field not in fields:
            raise UnknownNameError("joint field", field, fields)
        values = np.array([getattr(joint, field) for joint in self.joints], dtype=np.float64)
        values.setflags(write=False)
        return values

    @property
    def reverse_limit_rad_s(self) -> FloatArray:
        """Shape (num_joints,), largest speed of every joint towards smaller positions, rad/s."""
        limits = [(joint.reverse_limit_rad_s, joint.velocity_limit_rad_s) for joint in self.joints]
        return np.array([usual if own is None else own for own, usual in limits])

    def numbers(self, field: str) -> tuple[float, ...]:
        """:meth:`array` as plain numbers, as contracts hold them."""
        return tuple(float(value) for value in self.array(field))

    def joint_index(self, name: str) -> int:
        """Canonical index of a joint.

        Raises:
            UnknownNameError: If the robot has no such joint.
        """
        if name not in self.joint_names:
            raise UnknownNameError(f"joint of {self.name}", name, self.joint_names)
        return self.joint_names.index(name)


_ROBOT_RANGES = {
    "base_height_m": Range(-10.0, 10.0),
    "fall_height_m": Range(-10.0, 10.0),
    "mass_kg": Range(1e-3, 1e6),
    "hold_gains": Range(0.0, 1e6),
    "damp_gains_nm_s_rad": Range(1e-3, 1e6),
}
