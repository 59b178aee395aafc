"""The only place where ROS messages become Gantry's arrays and back.

Two traps live here and nowhere else: ROS quaternions are x, y, z, w while Gantry's are w, x, y, z, and a JointState
is sent with all of its arrays filled, because serialised empty ones carry padding that other readers refuse.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import Twist, TwistStamped
from nav_msgs.msg import Odometry
from numpy.typing import NDArray
from rclpy.clock import Clock
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float32MultiArray, Header, MultiArrayDimension

from gantry_deploy.contract.policy_contract import check_joint_names
from gantry_deploy.errors import ContractError
from gantry_deploy.recording.ros_messages import (
    BASE_FRAME,
    ODOM_FRAME,
    command_from_values,
    command_names,
    command_values,
)
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.model.spec import RobotSpec
from gantry_ros.runtime.frames import Frames

FloatArray = NDArray[np.float64]

QUAT_NORM_TOLERANCE = 0.02
"""Largest difference of an orientation's norm from 1; single precision and rounded digits stay far below."""

LEAST_QUAT_NORM = 1e-3
"""An orientation of an odometry with a smaller norm is none; any other is scaled to 1."""

TWIST_FIELDS = {
    "lin_vel_x_base_m_s": ("linear", "x"),
    "lin_vel_y_base_m_s": ("linear", "y"),
    "ang_vel_z_base_rad_s": ("angular", "z"),
}
"""Command names of a contract and the field of a Twist that carries them."""


@dataclass(frozen=True)
class JointArrays:
    """Content of a JointState in the canonical order of the robot; n joints."""

    pos_rad: FloatArray
    """Shape (n,)."""
    vel_rad_s: FloatArray
    """Shape (n,)."""
    effort_nm: FloatArray
    """Shape (n,), zeros where the message carries none."""
    effort_measured: bool
    """Whether it carries any: they may be left out, or all be NaN as a broadcaster without a torque sensor sends."""


def header(stamp: Time, frame_id: str = "") -> Header:
    """A message header."""
    return Header(stamp=stamp, frame_id=frame_id)


def stamp_of_age(clock: Clock, age_s: float) -> Time:
    """The ROS stamp of what was measured some time ago."""
    time_ns = clock.now().nanoseconds - int(age_s * 1e9)
    return Time(sec=time_ns // 1_000_000_000, nanosec=time_ns % 1_000_000_000)


class JointStateReader:
    """Reads JointState messages of one robot and refuses those of another.

    Args:
        spec: The robot that is expected.
        by_name: Accept another order and sort by name; otherwise another order is refused like a wrong name, since
            it usually means that joints were relabelled.
    """

    def __init__(self, spec: RobotSpec, *, by_name: bool = False) -> None:
        self._spec = spec
        self._by_name = by_name
        self._names = list(spec.joint_names)
        self._seen: list[str] = self._names
        self._index: list[int] | None = None

    def __call__(self, message: JointState) -> JointArrays:
        """The arrays of a message.

        Raises:
            RobotError: If names, order or lengths are not those of the robot; the text prints both lists.
        """
        if message.name != self._seen:
            self._index = self._permutation(list(message.name))
            self._seen = list(message.name)
        pos, vel = self._pick("position", message.position), self._pick("velocity", message.velocity)
        effort = self._pick("effort", message.effort) if len(message.effort) else np.full_like(pos, np.nan)
        # Some NaN among numbers is a broken sensor, and left to safety; NaN throughout is the absence of one.
        measured = not bool(np.isnan(effort).all())
        return JointArrays(pos, vel, effort if measured else np.zeros_like(pos), measured)

    def _pick(self, field: str, values: Sequence[float]) -> FloatArray:
        if len(values) != len(self._seen):
            raise RobotError(
                f"A JointState has {len(values)} numbers in '{field}' for its {len(self._seen)} joints; "
                f"robot '{self._spec.name}' needs one per joint."
            )
        numbers = np.array(values, dtype=np.float64)
        return numbers if self._index is None else numbers[self._index]

    def _permutation(self, found: list[str]) -> list[int] | None:
        if found == self._names:
            return None
        unique = len(set(found)) == len(found)
        if self._by_name and unique and set(self._names) <= set(found):
            return [found.index(name) for name in self._names]
        hint = "\nSet joint_order:=by_name to sort them." if sorted(found) == sorted(self._names) else ""
        try:
            check_joint_names(self._names, found, f"robot '{self._spec.name}'", "the JointState topic")
        except ContractError as error:
            raise RobotError(f"{error}{hint}") from error
        return None


def robot_state(
    joints: JointArrays,
    imu: Imu,
    stamp_s: float,
    odometry: Odometry | None = None,
    contacts: Float32MultiArray | None = None,
    frames: Frames | None = None,
) -> RobotState:
    """One state out of the newest messages of its parts.

    Args:
        joints: From :class:`JointStateReader`.
        imu: Orientation, gyroscope and accelerometer in the base frame.
        stamp_s: Local monotonic time at which the oldest required part was received.
        odometry: Position in the odometry frame and velocity in the base frame, where there is any.
        contacts: One number per foot, above 0.5 for contact, where it is sensed.
        frames: Which names mean the same frame.

    Raises:
        RobotError: If the IMU carries no orientation or no rotation rate, or a frame is another than the expected one.
    """
    frames = frames or Frames()
    frames.require(imu.header.frame_id, BASE_FRAME, "The IMU measures")
    state = RobotState(
        stamp_s=stamp_s,
        joint_pos_rad=joints.pos_rad,
        joint_vel_rad_s=joints.vel_rad_s,
        joint_effort_nm=joints.effort_nm,
        quat_base_to_world_wxyz=_imu_quat_wxyz(imu),
        ang_vel_base_in_base_rad_s=_vector(imu.angular_velocity),
        lin_acc_base_in_base_m_s2=_vector(imu.linear_acceleration),
        foot_contact=None if contacts is None else np.array(contacts.data) > 0.5,
    )
    return state if odometry is None else with_odometry(state, odometry, frames)


def with_odometry(state: RobotState, odometry: Odometry, frames: Frames) -> RobotState:
    """The state with the place of an odometry; a velocity that the robot measures itself stays.

    Raises:
        RobotError: If a frame is another than the expected one.
    """
    require_odometry(odometry, frames)
    lin_vel = state.lin_vel_base_in_base_m_s
    return replace(
        state,
        pos_base_in_world_m=_vector(odometry.pose.pose.position),
        lin_vel_base_in_base_m_s=_vector(odometry.twist.twist.linear) if lin_vel is None else lin_vel,
        quat_base_to_odom_wxyz=_odometry_quat_wxyz(odometry),
    )


def require_odometry(odometry: Odometry, frames: Frames) -> None:
    """Refuse odometry of another frame than ``odom`` or of another body than ``base_link``.

    Raises:
        RobotError: With both names.
    """
    frames.require(odometry.header.frame_id, ODOM_FRAME, "The odometry is told")
    frames.require(odometry.child_frame_id, BASE_FRAME, "The odometry is of a body (child_frame_id)")


def joint_state_message(spec: RobotSpec, state: RobotState, stamp: Time) -> JointState:
    """Joint positions, velocities and efforts of a state."""
    return JointState(
        header=header(stamp),
        name=list(spec.joint_names),
        position=_doubles(state.joint_pos_rad),
        velocity=_doubles(state.joint_vel_rad_s),
        effort=_doubles(state.joint_effort_nm),
    )


def imu_message(state: RobotState, stamp: Time) -> Imu:
    """Orientation, gyroscope and accelerometer of a state, in the base frame; covariances unknown (zero)."""
    message = Imu(header=header(stamp, BASE_FRAME))
    _set_quat(message.orientation, state.quat_base_to_world_wxyz)
    _set_vector(message.angular_velocity, state.ang_vel_base_in_base_rad_s)
    _set_vector(message.linear_acceleration, state.lin_acc_base_in_base_m_s2)
    return message


def odometry_message(state: RobotState, stamp: Time) -> Odometry | None:
    """Pose in the odometry frame, twist in the base frame; None if the state carries no odometry."""
    if state.pos_base_in_world_m is None or state.lin_vel_base_in_base_m_s is None:
        return None
    message = Odometry(header=header(stamp, ODOM_FRAME), child_frame_id=BASE_FRAME)
    _set_vector(message.pose.pose.position, state.pos_base_in_world_m)
    turned = state.quat_base_to_odom_wxyz
    _set_quat(message.pose.pose.orientation, state.quat_base_to_world_wxyz if turned is None else turned)
    _set_vector(message.twist.twist.linear, state.lin_vel_base_in_base_m_s)
    _set_vector(message.twist.twist.angular, state.ang_vel_base_in_base_rad_s)
    return message


def foot_contact_message(spec: RobotSpec, state: RobotState) -> Float32MultiArray | None:
    """1 or 0 per foot, the feet's names in the label of the only dimension; None where contact is not sensed."""
    if state.foot_contact is None:
        return None
    message = Float32MultiArray(data=array("f", state.foot_contact.astype(np.float32).tobytes()))
    feet = len(state.foot_contact)
    message.layout.dim = [MultiArrayDimension(label=",".join(spec.feet), size=feet, stride=feet)]
    return message


def is_braking(command: JointCommand) -> bool:
    """Whether a command moves no joint to anywhere: it is damping, or limp."""
    return not command.stiffness_nm_rad.any() and not command.effort_nm.any()


class CommandCodec:
    """Joint commands as one self-describing message: ``<joint>/<interface>`` names, values in ``position``.

    Names and order are those of a recording, :func:`gantry_deploy.recording.ros_messages.command_names`.
    """

    def __init__(self, spec: RobotSpec) -> None:
        self._spec = spec
        self._names = command_names(spec)
        self._zeros = array("d", bytes(8 * len(self._names)))

    def message(self, command: JointCommand, stamp: Time) -> JointState:
        """A command as a message."""
        return JointState(
            header=header(stamp),
            name=self._names,
            position=_doubles(command_values(command)),
            velocity=self._zeros,
            effort=self._zeros,
        )

    def command(self, message: JointState) -> JointCommand:
        """The command in a message, whatever its order.

        Raises:
            RobotError: If a name is missing or unknown, the lengths differ, or a number is not finite.
        """
        if len(message.position) != len(message.name):
            raise RobotError(f"A joint command has {len(message.name)} names and {len(message.position)} values.")
        values = np.array(message.position, dtype=np.float64)
        if message.name != self._names:
            values = values[self._permutation(list(message.name))]
        if not np.isfinite(values).all():
            name = self._names[int(np.flatnonzero(~np.isfinite(values))[0])]
            raise RobotError(f"A joint command has {values[self._names.index(name)]} for '{name}', expected a number.")
        return command_from_values(values)

    def _permutation(self, found: list[str]) -> list[int]:
        for name in self._names:
            count = found.count(name)
            if count != 1:
                raise RobotError(
                    f"A joint command has '{name}' {count} times, expected once. It has: {_listed(found)}."
                )
        if len(found) != len(self._names):
            extra = sorted(set(found) - set(self._names))
            raise RobotError(f"A joint command has names that robot '{self._spec.name}' has not: {_listed(extra)}.")
        return [found.index(name) for name in self._names]


class TwistReader:
    """Reads the numbers that a contract's command consists of out of a Twist.

    Args:
        names: ``contract.command.names``.

    Raises:
        UnknownNameError: If a Twist cannot carry one of them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in TWIST_FIELDS:
                raise UnknownNameError("command that a Twist can carry", name, TWIST_FIELDS)
        self._fields = [TWIST_FIELDS[name] for name in names]

    def __call__(self, message: Twist | TwistStamped) -> FloatArray:
        """Shape (c,), in the contract's order and units."""
        twist = message.twist if isinstance(message, TwistStamped) else message
        return np.array([getattr(getattr(twist, part), axis) for part, axis in self._fields], dtype=np.float64)


def twist_message(lin_vel_x_base_m_s: float, lin_vel_y_base_m_s: float, ang_vel_z_base_rad_s: float) -> Twist:
    """A planar velocity in the base frame."""
    message = Twist()
    message.linear.x = float(lin_vel_x_base_m_s)
    message.linear.y = float(lin_vel_y_base_m_s)
    message.angular.z = float(ang_vel_z_base_rad_s)
    return message


def diagnostics_message(
    stamp: Time, name: str, hardware_id: str, text: str, values: Mapping[str, object], *, error: bool = False
) -> DiagnosticArray:
    """One diagnostic status with its values as text."""
    status = DiagnosticStatus(
        level=DiagnosticStatus.ERROR if error else DiagnosticStatus.OK,
        name=name,
        message=text,
        hardware_id=hardware_id,
        values=[KeyValue(key=key, value=_text(value)) for key, value in values.items()],
    )
    return DiagnosticArray(header=header(stamp), status=[status])


def diagnostic_values(message: DiagnosticArray, name: str) -> dict[str, str] | None:
    """The values of one status of a diagnostics message, its text under ``message``; None if it is not in there."""
    for status in message.status:
        if status.name == name:
            return {"message": status.message, **{item.key: item.value for item in status.values}}
    return None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "(nothing)"


def _text(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _doubles(values: FloatArray) -> array[float]:
    return array("d", np.ascontiguousarray(values, dtype=np.float64).tobytes())


def _vector(message: object) -> FloatArray:
    return np.array([message.x, message.y, message.z], dtype=np.float64)  # type: ignore[attr-defined]


def _set_vector(message: object, values: FloatArray) -> None:
    message.x, message.y, message.z = values.tolist()  # type: ignore[attr-defined]


def _set_quat(message: object, quat_wxyz: FloatArray) -> None:
    message.w, message.x, message.y, message.z = quat_wxyz.tolist()  # type: ignore[attr-defined]


def _odometry_quat_wxyz(odometry: Odometry) -> FloatArray | None:
    """Shape (4,), a unit quaternion; None where the odometry carries no orientation, which then is the IMU's."""
    orientation = odometry.pose.pose.orientation
    quat_wxyz = np.array([orientation.w, orientation.x, orientation.y, orientation.z], dtype=np.float64)
    norm = float(np.linalg.norm(quat_wxyz))
    return quat_wxyz if norm == 1.0 else quat_wxyz / norm if LEAST_QUAT_NORM < norm < np.inf else None


def _imu_quat_wxyz(imu: Imu) -> FloatArray:
    """Shape (4,). An IMU without orientation says so in its covariance, or leaves all zeros; NaN is left to safety."""
    orientation = imu.orientation
    quat_wxyz = np.array([orientation.w, orientation.x, orientation.y, orientation.z], dtype=np.float64)
    if imu.orientation_covariance[0] == -1.0:
        raise RobotError("The IMU message says that it carries no orientation (covariance -1); a policy needs one.")
    if imu.angular_velocity_covariance[0] == -1.0:
        raise RobotError("The IMU message says that it carries no rotation rate (covariance -1); a policy needs one.")
    # Gravity in the base frame is quadratic in the quaternion, so a norm that is off tilts what the policy sees.
    if abs((norm := float(np.linalg.norm(quat_wxyz))) - 1.0) > QUAT_NORM_TOLERANCE:
        raise RobotError(f"The IMU's orientation is no unit quaternion: norm {norm:.3g}, expected 1.")
    return quat_wxyz
