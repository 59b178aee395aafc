"""Messages of arms become Gantry's arrays and back here: position commands, poses of objects, pictures.

A ros2_control arm takes positions alone, with gains of its own. A trajectory names its joints; a plain array of
positions does not, so that both ends must have agreed on its order.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from builtin_interfaces.msg import Duration, Time
from geometry_msgs.msg import Point, Pose, PoseArray, PoseStamped, Quaternion
from numpy.typing import NDArray
from sensor_msgs.msg import Image
from std_msgs.msg import Float64MultiArray, Header, MultiArrayDimension
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from gantry_hardware.backends.state import RobotState, fixed_base_state
from gantry_hardware.errors import RobotError, unknown_name_text
from gantry_hardware.files.text import plain_text
from gantry_hardware.model.spec import RobotSpec
from gantry_ros.convert.robot import QUAT_NORM_TOLERANCE, JointArrays

FloatArray = NDArray[np.float64]

ENCODINGS = ("rgb8", "bgr8")
"""Colour images that are understood."""


@dataclass(frozen=True)
class Path:
    """Positions that some joints are told to take, and their times."""

    joints: NDArray[np.intp]
    """Shape (m,), places of the joints in the robot's order."""
    times_s: FloatArray
    """Shape (k,), since the receipt, increasing."""
    pos_rad: FloatArray
    """Shape (k, m)."""


def arm_state(joints: JointArrays, stamp_s: float, object_pose_in_base: FloatArray | None) -> RobotState:
    """The state of an arm, whose base neither moves nor tilts.

    Args:
        joints: From :class:`gantry_ros.convert.robot.JointStateReader`.
        stamp_s: Local monotonic time at which they were received.
        object_pose_in_base: Shape (7,), m and a unit quaternion, in the arm's base frame, from :func:`pose`, where a
            node reports the object.
    """
    return fixed_base_state(stamp_s, joints.pos_rad, joints.vel_rad_s, joints.effort_nm, object_pose_in_base)


def trajectory_message(names: Sequence[str], pos_rad: FloatArray, period_s: float) -> JointTrajectory:
    """One point (n,), rad and of a gripper m, for the named joints, to be reached after a control period.

    Its stamp is zero, which asks a controller to begin at once, and it holds no velocities, so that the controller
    goes there in a straight line instead of stopping in every point.
    """
    point = JointTrajectoryPoint(positions=array("d", pos_rad.tolist()), time_from_start=_duration(period_s))
    return JointTrajectory(joint_names=list(names), points=[point])


def path_of_trajectory(message: JointTrajectory, spec: RobotSpec) -> Path:
    """The path in a trajectory, whatever its order of joints.

    Raises:
        RobotError: If it names other joints than the robot's or one twice, or has no points, points of another size,
            times that do not increase, or a number that is not finite.
    """
    names = list(message.joint_names)
    for name in names:
        if name not in spec.joint_names:
            raise RobotError(unknown_name_text(f"joint of '{spec.name}' in a trajectory", name, spec.joint_names))
    if not names or len(set(names)) != len(names):
        raise RobotError(f"A trajectory names the joints {', '.join(names) or '(none)'}, expected each once.")
    if not message.points:
        raise RobotError("A trajectory has no points.")
    for point in message.points:
        if len(point.positions) != len(names):
            raise RobotError(f"A point of a trajectory has {len(point.positions)} positions for {len(names)} joints.")
    times_s = np.array([_seconds(point.time_from_start) for point in message.points])
    pos_rad = np.array([point.positions for point in message.points], dtype=np.float64)
    if (np.diff(times_s) <= 0.0).any() or times_s[0] < 0.0:
        raise RobotError(f"The times of a trajectory are {times_s.tolist()} s, expected increasing ones from 0.")
    _require_finite(pos_rad, "A trajectory")
    return Path(np.array([spec.joint_index(name) for name in names]), times_s, pos_rad)


def positions_message(names: Sequence[str], pos_rad: FloatArray) -> Float64MultiArray:
    """Positions (n,), rad and of a gripper m, in the order of the named joints; the names are a label that controllers
    do not look at.
    """
    message = Float64MultiArray(data=array("d", pos_rad.tolist()))
    message.layout.dim = [MultiArrayDimension(label=",".join(names), size=len(pos_rad), stride=len(pos_rad))]
    return message


def path_of_positions(message: Float64MultiArray, joints: Sequence[int], spec: RobotSpec) -> Path:
    """The path in an array of positions: there at once.

    Args:
        message: One number per joint.
        joints: Places of the joints that the controller has, in its order.
        spec: The robot.

    Raises:
        RobotError: If it has another number of positions or other labels, or one is not finite.
    """
    names = [spec.joint_names[i] for i in joints]
    pos_rad = np.array(message.data, dtype=np.float64)
    dimensions = list(message.layout.dim)
    labels = dimensions[0].label.split(",") if dimensions and dimensions[0].label else names
    if pos_rad.shape != (len(names),) or labels != names:
        found = f"{pos_rad.size} positions" + ("" if labels == names else f" of {', '.join(labels)}")
        raise RobotError(f"An array of joint positions has {found}, expected those of {', '.join(names)}.")
    _require_finite(pos_rad, "An array of joint positions")
    return Path(np.array(joints), np.zeros(1), pos_rad[None])


def pose_message(pose_in_base: FloatArray, stamp: Time, frame_id: str) -> PoseStamped:
    """A pose (7,) in the frame ``frame_id``, place in m and unit quaternion, w first."""
    message = PoseStamped(header=Header(stamp=stamp, frame_id=frame_id))
    place, turn = message.pose.position, message.pose.orientation
    place.x, place.y, place.z, turn.w, turn.x, turn.y, turn.z = pose_in_base.tolist()
    return message


def pose(message: PoseStamped, frame_id: str) -> FloatArray:
    """Place and unit quaternion of a pose, (7,), w first.

    Raises:
        RobotError: If it is in another frame, or is none.
    """
    pos_m = place(message, frame_id)
    turn = message.pose.orientation
    quat_wxyz = np.array([turn.w, turn.x, turn.y, turn.z])
    norm = float(np.linalg.norm(quat_wxyz))
    if not abs(norm - 1.0) <= QUAT_NORM_TOLERANCE:
        raise RobotError(f"A pose's orientation is no unit quaternion: norm {norm:.3g}, expected 1.")
    return np.concatenate((pos_m, quat_wxyz / norm))


def place(message: PoseStamped, frame_id: str) -> FloatArray:
    """Place of a pose, (3,), m.

    Args:
        message: The pose; without a frame it is taken to be in the expected one.
        frame_id: Expected frame.

    Raises:
        RobotError: If it is in another frame, or not finite.
    """
    if message.header.frame_id not in ("", frame_id):
        raise RobotError(f"A pose is given in frame {plain_text(message.header.frame_id)}, expected '{frame_id}'.")
    pos_m = np.array([message.pose.position.x, message.pose.position.y, message.pose.position.z])
    _require_finite(pos_m, "A pose's place")
    return pos_m


def places_message(pos_in_base_m: FloatArray, stamp: Time, frame_id: str) -> PoseArray:
    """Upright poses at places (k, 3), m, in the frame ``frame_id``."""
    upright = Quaternion(w=1.0)
    poses = [Pose(position=Point(x=x, y=y, z=z), orientation=upright) for x, y, z in pos_in_base_m.tolist()]
    return PoseArray(header=Header(stamp=stamp, frame_id=frame_id), poses=poses)


def places(message: PoseArray, frame_id: str, count: int) -> FloatArray:
    """Places of poses, (count, 3), m; which way they are turned is of no matter.

    Raises:
        RobotError: If they are in another frame, not finite, or of another number.
    """
    if message.header.frame_id not in ("", frame_id):
        raise RobotError(f"Places are given in frame {plain_text(message.header.frame_id)}, expected '{frame_id}'.")
    if len(message.poses) != count:
        raise RobotError(f"There are {len(message.poses)} places, expected {count}, in the order of the task.")
    found = np.array([[item.position.x, item.position.y, item.position.z] for item in message.poses])
    _require_finite(found, "A place")
    return found


def picture_message(pixels: NDArray[np.uint8], stamp: Time, frame_id: str) -> Image:
    """A colour image, uint8 (3, height, width), as ``rgb8``."""
    rows, cols = pixels.shape[1:]
    data = array("B", np.ascontiguousarray(pixels.transpose(1, 2, 0)).tobytes())
    header = Header(stamp=stamp, frame_id=frame_id)
    return Image(header=header, height=rows, width=cols, encoding="rgb8", step=3 * cols, data=data)


def picture(message: Image) -> NDArray[np.uint8]:
    """A colour image, uint8 (3, height, width), red, green and blue.

    Raises:
        RobotError: If it is encoded otherwise, or its rows do not fit its data.
    """
    if message.encoding not in ENCODINGS:
        raise RobotError(f"A picture's encoding is '{message.encoding}', expected {' or '.join(ENCODINGS)}.")
    flat = np.frombuffer(message.data, dtype=np.uint8)
    if message.step < 3 * message.width or flat.size != message.step * message.height:
        raise RobotError(
            f"A picture of {message.width} x {message.height} pixels has {flat.size} bytes in rows of {message.step}."
        )
    pixels = flat.reshape(message.height, message.step)[:, : 3 * message.width].reshape(message.height, -1, 3)
    ordered = pixels if message.encoding == "rgb8" else pixels[:, :, ::-1]
    return np.ascontiguousarray(ordered.transpose(2, 0, 1))


def _require_finite(values: FloatArray, what: str) -> None:
    if not np.isfinite(values).all():
        raise RobotError(f"{what} holds a number that is not finite: {values.tolist()}.")


def _duration(time_s: float) -> Duration:
    nanoseconds = round(time_s * 1e9)
    return Duration(sec=nanoseconds // 1_000_000_000, nanosec=nanoseconds % 1_000_000_000)


def _seconds(duration: Duration) -> float:
    return duration.sec + duration.nanosec * 1e-9
