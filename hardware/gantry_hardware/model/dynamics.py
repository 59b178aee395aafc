"""Dynamics of one machine: motors, friction, delays and mountings, as identified or assumed, beside its RobotSpec.

A :class:`~gantry_hardware.model.spec.RobotSpec` says what a kind of robot is built to be; a :class:`RobotDynamics` says
how one machine differs. Simulated robots take it, training draws around it, and a contract says for which ranges of it
a policy was trained. :data:`PARAMETERS` is the table of all parameters.

The motor of a joint obeys ``stiffness_share kp (q* - q) + damping_share kd (dq* - dq) + effort``, where ``q`` is what
its encoder reads, limited to ``effort_limit_nm`` and to the line that falls from there at ``corner_speed_rad_s`` to
zero at ``no_load_speed_rad_s``. The joint loses ``viscous_friction_nm_s_rad`` times its speed and
``coulomb_friction_nm`` against it. Joints of a car follow their commands instead: ``gain`` times the command plus
``offset``, with a lag of first order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError, UnknownNameError, unknown_name_text
from gantry_hardware.files.bounds import Range, finite
from gantry_hardware.files.text import plain_text
from gantry_hardware.files.whole_files import write_whole
from gantry_hardware.files.yaml_file import YamlFileError, read_yaml
from gantry_hardware.model.spec import RobotSpec

FloatArray = NDArray[np.float64]

JOINT, ROBOT = "joint", "robot"
"""Scopes of a parameter: one value of each joint, or one of the whole robot."""
NO_LIMIT_RAD_S = 1e4
"""Speed of a torque-speed curve that is never reached."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of the dynamics."""

    unit: str
    """Unit; empty for a pure number."""
    scope: str
    """:data:`JOINT` or :data:`ROBOT`."""
    usual: float | str
    """Value where nothing is known, or the field of the joint's spec that gives it."""
    bounds: Range
    """Least and largest value that makes sense."""
    text: str
    """Meaning, in words."""


_SPEED, _SHARE, _ANGLE = Range(1e-3, NO_LIMIT_RAD_S), Range(0.01, 10.0), Range(-0.5, 0.5)
PARAMETERS: Mapping[str, Parameter] = {
    "armature_kg_m2": Parameter("kg m^2", JOINT, "armature_kg_m2", Range(0.0, 1e3), "rotor inertia at the joint"),
    "viscous_friction_nm_s_rad": Parameter("N m s/rad", JOINT, 0.0, Range(0.0, 1e3), "friction that grows with speed"),
    "coulomb_friction_nm": Parameter("N m", JOINT, 0.0, Range(0.0, 1e3), "dry friction"),
    "stiffness_share": Parameter("", JOINT, 1.0, _SHARE, "position gain in effect over the one that is sent"),
    "damping_share": Parameter("", JOINT, 1.0, _SHARE, "velocity gain in effect over the one that is sent"),
    "effort_limit_nm": Parameter("N m", JOINT, "effort_limit_nm", Range(1e-3, 1e6), "largest torque"),
    "corner_speed_rad_s": Parameter("rad/s", JOINT, NO_LIMIT_RAD_S, _SPEED, "speed up to which there is full torque"),
    "no_load_speed_rad_s": Parameter("rad/s", JOINT, NO_LIMIT_RAD_S, _SPEED, "speed at which no torque is left"),
    "encoder_offset_rad": Parameter("rad", JOINT, 0.0, _ANGLE, "reading of the encoder minus the true angle"),
    "gain": Parameter("", JOINT, 1.0, _SHARE, "response of a car's steering or drive over its command"),
    "offset": Parameter("rad or rad/s", JOINT, 0.0, Range(-10.0, 10.0), "response of a car's joint to no command"),
    "response_s": Parameter("s", JOINT, 0.0, Range(0.0, 10.0), "time constant of a car's steering or drive"),
    "command_delay_s": Parameter("s", ROBOT, 0.0, Range(0.0, 1.0), "time from a command to its effect"),
    "imu_delay_s": Parameter("s", ROBOT, 0.0, Range(0.0, 1.0), "age of the IMU's readings beyond their stamps"),
    "imu_roll_rad": Parameter("rad", ROBOT, 0.0, _ANGLE, "roll of the IMU in its mounting"),
    "imu_pitch_rad": Parameter("rad", ROBOT, 0.0, _ANGLE, "pitch of the IMU in its mounting"),
    "imu_yaw_rad": Parameter("rad", ROBOT, 0.0, _ANGLE, "yaw of the IMU in its mounting"),
}
"""All parameters by name, each with its unit at the end of the name."""


@dataclass(frozen=True)
class Estimate:
    """A value and, where it was identified, the interval that holds the true one with 95 % confidence."""

    value: float
    """Best value."""
    low: float | None = None
    """Lower end of the interval; None where it is not known."""
    high: float | None = None
    """Upper end of the interval; None where it is not known."""

    def plain(self) -> Any:
        """A number, or an object with the interval, as files have it."""
        ends = {name: end for name, end in (("low", self.low), ("high", self.high)) if end is not None}
        return {"value": self.value, **ends} if ends else self.value


@dataclass(frozen=True)
class RobotDynamics:
    """Dynamics of one machine; what is absent is as :data:`PARAMETERS` says.

    Raises:
        GantryError: For an unknown parameter, a value out of bounds, or an interval that does not hold its value.
    """

    robot: str
    """Name of the kind of robot."""
    joints: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)
    """Joint name -> parameter -> estimate."""
    whole: Mapping[str, Estimate] = field(default_factory=dict)
    """Parameter of the whole robot -> estimate."""
    source: str = ""
    """Origin of the numbers."""

    def __post_init__(self) -> None:
        for joint, found in self.joints.items():
            where = f"joint '{joint}' of '{self.robot}'"
            for name, estimate in found.items():
                _check(where, name, JOINT, estimate)
            _check_curve(where, found)
        for name, estimate in self.whole.items():
            _check(f"robot '{self.robot}'", name, ROBOT, estimate)

    def check_robot(self, spec: RobotSpec) -> None:
        """Refuse another robot, and joints that it has not.

        Raises:
            GantryError: With what was found and what was expected.
        """
        if self.robot != spec.name:
            raise GantryError(f"The dynamics are those of robot '{self.robot}', this robot is '{spec.name}'.")
        for joint in self.joints:
            spec.joint_index(joint)

    def joint_values(self, name: str, spec: RobotSpec, otherwise: FloatArray | None = None) -> FloatArray:
        """Shape (num_joints,), a parameter of every joint in the spec's order, in its unit.

        Args:
            name: Parameter of a joint.
            spec: The robot.
            otherwise: Shape (num_joints,), values where nothing is said, as a simulator's model has them; if not given,
                those of :data:`PARAMETERS`.
        """
        usual = _parameter(name, JOINT).usual
        base = spec.array(usual) if isinstance(usual, str) else np.full(spec.num_joints, usual)
        if otherwise is not None:
            base = otherwise
        found = [self.joints.get(joint, {}).get(name) for joint in spec.joint_names]
        return np.array([float(b) if e is None else e.value for b, e in zip(base, found, strict=True)])

    def value(self, name: str) -> float:
        """A parameter of the whole robot, in its unit."""
        usual = _parameter(name, ROBOT).usual
        assert not isinstance(usual, str)
        return self.whole[name].value if name in self.whole else usual

    def range_of(
        self,
        name: str,
        joints: Sequence[str] = (),
        margin: float = 0.25,
        relative_to: Mapping[str, float] | None = None,
    ) -> tuple[float, float] | None:
        """Range that a training should cover for this machine: from the least to the largest end of the intervals of
        its joints, wider by a margin.

        Args:
            name: Parameter.
            joints: Joints that count; all if empty.
            margin: Share of the range that is added at either end.
            relative_to: Joint -> value in the parameter's unit that its ends are divided by, for a range of shares of
                joints alone; joints without one do not count.

        Returns:
            Least and largest value within the parameter's bounds; None if nothing is said of it.
        """
        found = [
            (estimate, 1.0 if relative_to is None else float(relative_to[joint]))
            for joint, estimate in ((joint, each[name]) for joint, each in self.joints.items() if name in each)
            if (not joints or joint in joints) and (relative_to is None or joint in relative_to)
        ]
        if name in self.whole and relative_to is None:
            found.append((self.whole[name], 1.0))
        if not found:
            return None
        low = min((e.value if e.low is None else e.low) / of for e, of in found)
        high = max((e.value if e.high is None else e.high) / of for e, of in found)
        more = margin * (high - low)
        if relative_to is not None:
            return max(0.0, low - more), high + more
        bounds = PARAMETERS[name].bounds
        return max(bounds.low, low - more), min(bounds.high, high + more)

    def training_range(
        self, name: str, spec: RobotSpec, before: tuple[float, float] | None, share_of: str = ""
    ) -> tuple[float, float] | None:
        """Range of all joints of which some or all were identified, see :meth:`range_of`: what is said of all of them
        replaces the range before, what is said of some widens it.

        Args:
            name: Parameter.
            spec: The robot.
            before: The range before; None for that of a model.
            share_of: Field of the joints' specs that the range is a share of; empty for the parameter's own unit.

        Returns:
            The range; None if nothing is said of it.
        """
        usual = dict(zip(spec.joint_names, map(float, spec.array(share_of)), strict=True)) if share_of else None
        found = self.range_of(name, relative_to=usual)
        is_whole = name in self.whole or all(name in self.joints.get(joint, {}) for joint in spec.joint_names)
        if found is None or before is None or is_whole:
            return found
        return min(before[0], found[0]), max(before[1], found[1])

    def has(self, name: str) -> bool:
        """Whether anything is said of a parameter."""
        return name in self.whole or any(name in found for found in self.joints.values())

    def plain(self) -> dict[str, Any]:
        """Plain data as files have it."""
        joints = {joint: {name: e.plain() for name, e in found.items()} for joint, found in self.joints.items()}
        return {
            "robot": self.robot,
            **({"source": self.source} if self.source else {}),
            **{name: estimate.plain() for name, estimate in self.whole.items()},
            **({"joints": joints} if joints else {}),
        }


def usual_value(name: str, spec: RobotSpec, joint: str = "") -> float:
    """Value of a parameter where nothing is known, of a joint where it has one of each."""
    usual = PARAMETERS[name].usual
    return float(spec.array(usual)[spec.joint_index(joint)]) if isinstance(usual, str) else usual


def load_dynamics(path: str | Path, spec: RobotSpec | None = None) -> RobotDynamics:
    """Read a file of dynamics: ``robot``, ``source``, parameters of the whole robot, and ``joints``.

    Args:
        path: Of the file.
        spec: Robot that it must be of; None for any.

    Raises:
        YamlFileError: If it cannot be read, something in it is refused, or it is another robot's.
    """
    data = read_yaml(path)
    try:
        found = _from_plain(data)
        if spec is not None:
            found.check_robot(spec)
        return found
    except GantryError as error:
        raise YamlFileError(path, str(error)) from error


def save_dynamics(path: str | Path, dynamics: RobotDynamics) -> None:
    """Write a file that :func:`load_dynamics` reads.

    Raises:
        OSError: If it cannot be written; an older file is left as it was.
    """
    text = yaml.safe_dump(dynamics.plain(), sort_keys=False, allow_unicode=True)
    write_whole(Path(path), text.encode())


def _from_plain(data: Any) -> RobotDynamics:
    if not isinstance(data, dict):
        what = "the file is empty" if data is None else f"found {plain_text(data)}"
        raise GantryError(f"{what}, expected 'robot', 'joints' and parameters.")
    rest = dict(data)
    kind, source, joints = rest.pop("robot", None), rest.pop("source", ""), rest.pop("joints", None) or {}
    if not isinstance(kind, str) or not isinstance(source, str):
        raise GantryError(f"'robot' is {plain_text(kind)}, expected the name of a robot.")
    if not isinstance(joints, dict) or not all(isinstance(found, dict) for found in joints.values()):
        raise GantryError("'joints' is no table of joints with their parameters.")
    whole = {str(name): _estimate(str(name), value) for name, value in rest.items()}
    each = {
        str(joint): {str(name): _estimate(f"{joint}.{name}", value) for name, value in found.items()}
        for joint, found in joints.items()
    }
    return RobotDynamics(kind, each, whole, source)


def _estimate(where: str, value: Any) -> Estimate:
    if isinstance(value, dict):
        names = ("value", "low", "high")
        for name in value:
            if name not in names:
                raise UnknownNameError(f"part of '{where}'", str(name), names)
        if "value" not in value:
            raise GantryError(f"'{where}' lacks its value.")
        return Estimate(*(None if value.get(name) is None else _number(where, value[name]) for name in names))  # type: ignore[arg-type]
    return Estimate(_number(where, value))


def _number(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise GantryError(f"'{where}' is {plain_text(value)}, expected a number.")
    return float(value)


def _parameter(name: str, scope: str) -> Parameter:
    names = [other for other, parameter in PARAMETERS.items() if parameter.scope == scope]
    if name not in names:
        raise GantryError(unknown_name_text(f"parameter of a {scope}", name, names))
    return PARAMETERS[name]


def _check(where: str, name: str, scope: str, estimate: Estimate) -> None:
    bounds = _parameter(name, scope).bounds
    for value in (estimate.value, estimate.low, estimate.high):
        if value is not None:
            finite(f"'{name}' of {where}", value, *bounds)
    low = bounds.low if estimate.low is None else estimate.low
    high = bounds.high if estimate.high is None else estimate.high
    if not low <= estimate.value <= high:
        raise GantryError(
            f"'{name}' of {where} is {estimate.value:g}, which its interval {low:g} to {high:g} does not hold."
        )


def _check_curve(where: str, found: Mapping[str, Estimate]) -> None:
    """Refuse a corner speed that stands alone or is not below the speed without torque."""
    corner, none_left = found.get("corner_speed_rad_s"), found.get("no_load_speed_rad_s")
    if corner is None:
        return
    if none_left is None:
        raise GantryError(f"'corner_speed_rad_s' of {where} means nothing without 'no_load_speed_rad_s'.")
    if not corner.value < none_left.value:
        raise GantryError(
            f"'corner_speed_rad_s' of {where} is {corner.value:g}, expected less than 'no_load_speed_rad_s', which is "
            f"{none_left.value:g}."
        )
