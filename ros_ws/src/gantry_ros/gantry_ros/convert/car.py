"""Messages of cars: odometry, routes, objects, stop lines, scans, drive commands; see :mod:`gantry_ros.convert.robot`.

Routes with their lanes, objects and stop lines travel as ``PointCloud2``, a table with a header and named columns, of
which standard tools show the places. ``vision_msgs/Detection3DArray`` holds no speed, and is no part of the ROS wheels.
"""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped, Twist, TwistStamped
from nav_msgs.msg import OccupancyGrid, Odometry, Path
from numpy.typing import NDArray
from sensor_msgs.msg import JointState, LaserScan, PointCloud2, PointField
from std_msgs.msg import Header

from gantry_deploy.contract.drive_spec import DRIVE, STEERING
from gantry_deploy.observations.surroundings import (
    NO_ROAD,
    OBJECT_FIELDS,
    PEDESTRIAN,
    ROAD,
    ROAD_BROKEN,
    ROAD_SOLID,
    STATIC,
    VEHICLE,
    road_from_occupancy,
)
from gantry_deploy.perception.road import Route
from gantry_deploy.recording.ros_messages import BASE_FRAME
from gantry_hardware.backends.state import GRAVITY_M_S2, RobotState
from gantry_hardware.errors import RobotError
from gantry_hardware.files.text import plain_text
from gantry_hardware.robots.cars import STEERING_JOINT
from gantry_ros.convert.map import cloud_columns
from gantry_ros.convert.robot import LEAST_QUAT_NORM
from gantry_ros.runtime.frames import SensorPose

FloatArray = NDArray[np.float64]

ROUTE_COLUMNS = ("x", "y", "z", "speed_limit", "left", "right")
"""Of a route with its lanes: place in m, speed limit in m/s, from the line to the lane's left and right edge in m."""
OBJECT_COLUMNS = ("x", "y", "z", "yaw", "speed", "length", "width", "kind")
"""Of objects: place of the middle in m, yaw in rad, speed along it in m/s, length and width in m, and 0 for a vehicle,
1 for a pedestrian, 2 for a thing. Any other kind is taken for a vehicle, and a table without ``kind`` holds vehicles:
no object becomes invisible because its kind is not known."""
STOP_LINE_COLUMNS = ("distance", "state")
"""Of a stop line: distance along the route in m, and 0 for go, 0.5 for yellow, 1 for red."""
ROAD_PERCENT = {NO_ROAD: 100, ROAD: 0, ROAD_BROKEN: 1, ROAD_SOLID: 2}
"""Numbers of an occupancy grid for the cells of a road map. A reader that takes up to 50 for free finds the same road;
broken and solid markings are told apart by readers that know of them."""
SCAN_FRAME = "laser"
"""Of scans: the scanner, x ahead, z up, as the policy's contract has it."""
SCANNER_PLACE_M, LEVEL_RAD = 0.1, 0.1
"""Largest distance of a scanner from the place that the policy expects, and its largest tilt."""
ANGLE_SHARE = 0.02
"""Share of a scan's angles by which its last one may differ from what the others say, beside two beams."""
SLOW_M_S = 1e-3
"""Below this speed a Twist tells nothing of the steering."""


def table_message(columns: tuple[str, ...], rows: FloatArray, stamp: Time, frame_id: str) -> PointCloud2:
    """A table (rows, columns) of 64-bit floats as an unorganised cloud."""
    values = np.ascontiguousarray(rows, dtype="<f8").reshape(-1, len(columns))
    message = PointCloud2(header=Header(stamp=stamp, frame_id=frame_id), height=1, width=len(values), is_dense=True)
    message.fields = [
        PointField(name=name, offset=8 * i, datatype=PointField.FLOAT64, count=1) for i, name in enumerate(columns)
    ]
    message.point_step = 8 * len(columns)
    message.row_step = message.point_step * len(values)
    message.data = array("B", values.tobytes())
    return message


def require_frame(found: str, frame_id: str, what: str) -> None:
    """Refuse what is told in another frame than the odometry's; an empty name stands for that one.

    Raises:
        RobotError: With both names.
    """
    if found not in ("", frame_id):
        raise RobotError(f"{what} told in frame {plain_text(found)}, expected '{frame_id}', that of the odometry.")


def car_state(odometry: Odometry, steering_rad: float, steering_rate_rad_s: float, stamp_s: float) -> RobotState:
    """The state of a car.

    Args:
        odometry: Pose of ``base_link``, the middle of the rear axle, and twist in its frame.
        steering_rad: Angle of the steering, measured or guessed.
        steering_rate_rad_s: Its rate; 0 where unknown.
        stamp_s: Local monotonic time at which the oldest part was received.

    Raises:
        RobotError: If the odometry carries no orientation.
    """
    place, turn = odometry.pose.pose.position, odometry.pose.pose.orientation
    linear, angular = odometry.twist.twist.linear, odometry.twist.twist.angular
    quat_wxyz = np.array([turn.w, turn.x, turn.y, turn.z], dtype=np.float64)
    norm = float(np.linalg.norm(quat_wxyz))
    # NaN is left to safety, which names it.
    if norm <= LEAST_QUAT_NORM or norm == np.inf:
        raise RobotError(f"The odometry's orientation is no unit quaternion: norm {norm:.3g}, expected 1.")
    quat_wxyz = quat_wxyz if norm == 1.0 else quat_wxyz / norm
    pos, vel = np.zeros(2), np.zeros(2)
    pos[STEERING], vel[STEERING], vel[DRIVE] = steering_rad, steering_rate_rad_s, linear.x
    return RobotState(
        stamp_s=stamp_s,
        joint_pos_rad=pos,
        joint_vel_rad_s=vel,
        joint_effort_nm=np.zeros(2),
        quat_base_to_world_wxyz=quat_wxyz,
        ang_vel_base_in_base_rad_s=np.array([angular.x, angular.y, angular.z], dtype=np.float64),
        lin_acc_base_in_base_m_s2=np.array([0.0, 0.0, GRAVITY_M_S2]),
        pos_base_in_world_m=np.array([place.x, place.y, place.z], dtype=np.float64),
        lin_vel_base_in_base_m_s=np.array([linear.x, linear.y, linear.z], dtype=np.float64),
    )


def steering_of(message: JointState) -> tuple[float, float]:
    """Angle of the joint ``steering``, rad, and its speed, rad/s, 0 where none is told.

    Raises:
        RobotError: If there is no such joint, or no position of it.
    """
    names = list(message.name)
    index = names.index(STEERING_JOINT) if STEERING_JOINT in names else -1
    if not 0 <= index < len(message.position):
        raise RobotError(
            f"The joint states tell no position of '{STEERING_JOINT}'; their joints are {', '.join(names) or '(none)'}."
        )
    return float(message.position[index]), float(message.velocity[index]) if index < len(message.velocity) else 0.0


def route_of_path(message: Path, frame_id: str, speed_limit_m_s: float, width_m: float) -> Route:
    """The route in a Path, which tells no lanes.

    Args:
        message: Points in order; their headings do not count.
        frame_id: Expected frame.
        speed_limit_m_s: Everywhere.
        width_m: Of the lane, in whose middle the path lies.

    Raises:
        RobotError: If it is in another frame.
        SurroundingsError: If it has less than two points, or one that is not finite.
    """
    for name in {message.header.frame_id, *(pose.header.frame_id for pose in message.poses)}:
        require_frame(name, frame_id, "A route is")
    places = [pose.pose.position for pose in message.poses]
    points = np.array([(place.x, place.y) for place in places], dtype=np.float64).reshape(-1, 2)
    ones = np.ones(len(points))
    return Route(points, speed_limit_m_s * ones, 0.5 * width_m * ones, 0.5 * width_m * ones)


def path_message(route: Route, stamp: Time, frame_id: str) -> Path:
    """A route's points, each heading for the next one."""
    points = route.points_in_world_m
    steps = np.diff(points, axis=0)
    yaws = np.arctan2(steps[:, 1], steps[:, 0])
    poses = []
    for (x, y), yaw in zip(points.tolist(), [*yaws.tolist(), float(yaws[-1])], strict=True):
        pose = PoseStamped(header=Header(stamp=stamp, frame_id=frame_id))
        pose.pose.position.x, pose.pose.position.y = x, y
        pose.pose.orientation.w, pose.pose.orientation.z = math.cos(0.5 * yaw), math.sin(0.5 * yaw)
        poses.append(pose)
    return Path(header=Header(stamp=stamp, frame_id=frame_id), poses=poses)


def route_of_lanes(message: PointCloud2, frame_id: str) -> Route:
    """The route in a table with :data:`ROUTE_COLUMNS`.

    Raises:
        RobotError: If it is in another frame or lacks a column.
        SurroundingsError: If it has less than two points, or a number that is not finite.
    """
    require_frame(message.header.frame_id, frame_id, "A route is")
    x, y, limit, left, right = cloud_columns(message, tuple(name for name in ROUTE_COLUMNS if name != "z"))
    return Route(np.stack((x, y), axis=-1), limit, left, right)


def lanes_message(route: Route, stamp: Time, frame_id: str) -> PointCloud2:
    """A route with its lanes."""
    x, y = route.points_in_world_m.T
    columns = (x, y, np.zeros_like(x), route.speed_limit_m_s, route.left_m, route.right_m)
    return table_message(ROUTE_COLUMNS, np.stack(columns, axis=-1), stamp, frame_id)


def objects_of(message: PointCloud2, frame_id: str) -> tuple[FloatArray, FloatArray | None]:
    """Objects (K, 7) as ``OBJECT_FIELDS`` has them, and their kinds (K,) where told.

    Raises:
        RobotError: If they are in another frame or lack a column.
    """
    require_frame(message.header.frame_id, frame_id, "Objects are")
    names = OBJECT_FIELDS[:-1]
    table = np.stack(cloud_columns(message, names), axis=-1)
    told = any(field.name == OBJECT_COLUMNS[-1] for field in message.fields)
    kinds = cloud_columns(message, OBJECT_COLUMNS[-1:])[0] if told else None
    if kinds is not None:
        kinds = np.where(np.isin(kinds, (VEHICLE, PEDESTRIAN, STATIC)), kinds, VEHICLE)
    return np.concatenate((table, np.ones((len(table), 1))), axis=-1), kinds


def objects_message(objects: FloatArray, stamp: Time, frame_id: str, kinds: FloatArray | None = None) -> PointCloud2:
    """The taken ones of objects (K, 7), of kinds (K,) or all vehicles."""
    taken = objects[:, -1] > 0.5
    kind = np.zeros(len(objects)) if kinds is None else kinds
    table = np.insert(np.concatenate((objects[:, :-1], kind[:, None]), axis=1), 2, 0.0, axis=1)
    return table_message(OBJECT_COLUMNS, table[taken], stamp, frame_id)


def stop_line_of(message: PointCloud2) -> tuple[float, float] | None:
    """Distance along the route and state of the next stop line; None if there is none.

    Raises:
        RobotError: If there are several, or a column is missing.
    """
    distance, state = cloud_columns(message, STOP_LINE_COLUMNS)
    if len(distance) > 1:
        raise RobotError(f"{len(distance)} stop lines are told, expected the next one alone.")
    return (float(distance[0]), float(state[0])) if len(distance) else None


def stop_line_message(line: tuple[float, float] | None, stamp: Time) -> PointCloud2:
    """Distance and state of the next stop line; None for none."""
    return table_message(STOP_LINE_COLUMNS, np.array([] if line is None else [line]), stamp, BASE_FRAME)


def road_of_grid(
    message: OccupancyGrid, frame_id: str, *, markings: bool = False
) -> tuple[NDArray[np.uint8], FloatArray, float]:
    """A road map in an occupancy grid, of which what is known to be free is road.

    Args:
        message: The grid.
        frame_id: Expected frame.
        markings: Whether cells of 1 and 2 are broken and solid lane markings, see :data:`ROAD_PERCENT`.

    Returns:
        Cells (R, C), x and y (2,) of the outer corner of the first one, m, and the edge of a cell, m.

    Raises:
        RobotError: If it is in another frame, turned against it, or its data has another size.
    """
    require_frame(message.header.frame_id, frame_id, "A road map is")
    info, turn = message.info, message.info.origin.orientation
    if abs(turn.x) + abs(turn.y) + abs(turn.z) > 1e-6:
        raise RobotError("A road map is turned against its frame, expected its rows along y and its columns along x.")
    if len(message.data) != info.height * info.width:
        raise RobotError(f"A road map of {info.height} x {info.width} cells has {len(message.data)} numbers.")
    values = np.array(message.data, dtype=np.int16).reshape(info.height, info.width)
    corner = np.array([info.origin.position.x, info.origin.position.y])
    cells = road_from_occupancy(values)
    for code in (ROAD_BROKEN, ROAD_SOLID) if markings else ():
        cells[values == ROAD_PERCENT[code]] = code
    return cells, corner, float(info.resolution)


def grid_message(cells: NDArray[Any], corner_m: FloatArray, cell_m: float, stamp: Time, frame_id: str) -> OccupancyGrid:
    """A road map (R, C), rows along y, as an occupancy grid with the numbers of :data:`ROAD_PERCENT`."""
    message = OccupancyGrid(header=Header(stamp=stamp, frame_id=frame_id))
    message.info.map_load_time, message.info.resolution = stamp, float(cell_m)
    message.info.height, message.info.width = (int(size) for size in cells.shape)
    message.info.origin.position.x, message.info.origin.position.y = float(corner_m[0]), float(corner_m[1])
    percent = np.full(1 + max(ROAD_PERCENT), -1, dtype=np.int8)
    percent[list(ROAD_PERCENT)] = list(ROAD_PERCENT.values())
    message.data = array("b", percent[cells].tobytes())
    return message


def scan_ranges(message: LaserScan) -> FloatArray:
    """Ranges (beams,), m, as REP-117 has them: infinity for no return, NaN for what cannot be believed.

    Numbers below the scanner's smallest range tell nothing, and neither does 0, which many drivers send for no reading;
    those beyond its largest are none.

    Raises:
        RobotError: If there are none, its angles are no numbers or contradict each other, or its limits make no sense.
    """
    first, step, count = message.angle_min, message.angle_increment, len(message.ranges)
    if not count or not (math.isfinite(first) and math.isfinite(step) and abs(step) > 0.0):
        raise RobotError(f"A scan has {count} ranges from {first} rad in steps of {step} rad.")
    if not (message.range_max > message.range_min and math.isfinite(message.range_min)):
        raise RobotError(
            f"The scan's range_max is {message.range_max:g} m and its range_min {message.range_min:g} m, expected "
            "range_min < range_max: its driver leaves them wrong."
        )
    # Some drivers do not fill in the last angle, and some tell that of the beam after the last one.
    last, off = first + step * (count - 1), 2.0 * abs(step) + ANGLE_SHARE * abs(step) * count
    if message.angle_max != 0.0 and not abs(math.remainder(message.angle_max - last, 2.0 * math.pi)) <= off:
        raise RobotError(
            f"The scan's angles contradict each other: {count} ranges from {first:g} rad in steps of {step:g} rad end "
            f"at {last:g} rad, angle_max says {message.angle_max:g} rad."
        )
    ranges = np.array(message.ranges, dtype=np.float64)
    below = np.isfinite(ranges) & ((ranges < message.range_min) | (ranges <= 0.0))
    beyond = np.isfinite(ranges) & (ranges > message.range_max)
    return np.where(below, np.nan, np.where(beyond, np.inf, ranges))


def scan_text(message: LaserScan) -> str:
    """Entries of a scan that are no readings, for people; empty if all are readings."""
    ranges = np.array(message.ranges, dtype=np.float64)
    parts = {
        "0": ranges == 0.0,
        f"below its range_min of {message.range_min:g} m": np.isfinite(ranges) & (ranges < message.range_min),
        "not a number": np.isnan(ranges),
    }
    parts[f"below its range_min of {message.range_min:g} m"] &= ranges != 0.0
    told = [f"{int(found.sum())} are {what}" for what, found in parts.items() if found.any()]
    return f"of its {len(ranges)} ranges {', '.join(told)}" if told else ""


def scan_angles(message: LaserScan, pose: SensorPose | None, pos_x_in_base_m: float) -> tuple[float, float]:
    """First angle and step of a scan, rad, seen from above and from ahead.

    Args:
        message: The scan.
        pose: Where its frame sits in the base; None for where the policy expects it.
        pos_x_in_base_m: How far ahead of the base the policy expects it.

    Raises:
        RobotError: If the scanner is tilted, or sits elsewhere.
    """
    if pose is None:
        return message.angle_min, message.angle_increment
    away_m = math.hypot(pose.pos_m[0] - pos_x_in_base_m, pose.pos_m[1])
    roll, pitch = (abs(math.remainder(angle, 2.0 * math.pi)) for angle in (pose.roll_rad, pose.pitch_rad))
    upright, upside_down = roll <= LEVEL_RAD, roll >= math.pi - LEVEL_RAD
    if away_m > SCANNER_PLACE_M or pitch > LEVEL_RAD or not (upright or upside_down):
        raise RobotError(
            f"The scanner sits at x {pose.pos_m[0]:g} m, y {pose.pos_m[1]:g} m, rolled by {pose.roll_rad:g} rad and "
            f"pitched by {pose.pitch_rad:g} rad; expected x {pos_x_in_base_m:g} m, y 0 m, level or upside down."
        )
    side = -1.0 if upside_down else 1.0
    first = math.remainder(pose.yaw_rad + side * message.angle_min, 2.0 * math.pi)
    return first, side * message.angle_increment


def scan_message(
    ranges_m: FloatArray, angle_min_rad: float, angle_step_rad: float, stamp: Time, range_max_m: float
) -> LaserScan:
    """A scan (beams,) [m], counter-clockwise for a positive step."""
    message = LaserScan(header=Header(stamp=stamp, frame_id=SCAN_FRAME), range_min=0.0, range_max=float(range_max_m))
    message.angle_min, message.angle_increment = float(angle_min_rad), float(angle_step_rad)
    message.angle_max = float(angle_min_rad + angle_step_rad * (len(ranges_m) - 1))
    ranges = np.asarray(ranges_m, dtype=np.float32)
    # 0 is no reading to readers of scans; what touches the scanner is nearer than it can see (REP-117).
    message.ranges = array("f", np.where(ranges <= 0.0, np.float32(-np.inf), ranges).astype(np.float32).tobytes())
    return message


def fill_ackermann(
    message: Any, steering_rad: float, speed_m_s: float, accel_m_s2: float, steering_rate_rad_s: float, stamp: Time
) -> Any:
    """Fill in an ``AckermannDriveStamped`` and return it; acceleration and rate are sizes, 0 for the quickest."""
    message.header = Header(stamp=stamp, frame_id=BASE_FRAME)
    message.drive.steering_angle, message.drive.speed = float(steering_rad), float(speed_m_s)
    message.drive.steering_angle_velocity = float(steering_rate_rad_s)
    message.drive.acceleration = float(accel_m_s2)
    return message


def drive_twist_message(steering_rad: float, speed_m_s: float, wheelbase_m: float) -> Twist:
    """Speed, and the yaw rate that a car rolling without slip has; at standstill the steering cannot be told."""
    message = Twist()
    message.linear.x = float(speed_m_s)
    message.angular.z = float(speed_m_s * math.tan(steering_rad) / wheelbase_m)
    return message


def steering_of_twist(message: Twist | TwistStamped, wheelbase_m: float, before_rad: float) -> tuple[float, float]:
    """Steering and speed that a Twist asks for; the steering stays as before where it asks for no speed."""
    twist = message.twist if isinstance(message, TwistStamped) else message
    speed = float(twist.linear.x)
    if abs(speed) < SLOW_M_S:
        return before_rad, speed
    return math.atan(float(twist.angular.z) * wheelbase_m / speed), speed
