"""Messages of perception: depth images, point clouds, elevation maps, poses and goals; see ``convert.robot``.

An elevation map travels as an organised ``PointCloud2``: one point per cell, a row of the cloud per row of the map, so
that standard tools show it and nothing but standard messages is needed. ``grid_map_msgs`` is used where it is there.
"""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry
from numpy.typing import NDArray
from sensor_msgs.msg import CameraInfo, Image, PointCloud2, PointField
from std_msgs.msg import Float32MultiArray, Header, MultiArrayDimension

from gantry_deploy.actions.commands import goal_command
from gantry_deploy.control.goals import Goal
from gantry_deploy.recording.ros_messages import MAP_FIELDS, map_points
from gantry_hardware.errors import RobotError
from gantry_hardware.files.text import plain_text
from gantry_mapping.elevation.snapshot import MapSnapshot
from gantry_mapping.sensing.camera import DepthCamera
from gantry_mapping.sensing.frames import yaw_of

FloatArray = NDArray[np.floating]

GRID_LAYERS = ("elevation", "variance")
"""Layers of a ``grid_map_msgs/GridMap``."""
_FLOATS = {PointField.FLOAT32: "f4", PointField.FLOAT64: "f8"}
_RESOLUTION_DIGITS = 5
# Single precision blurs the cells' places; to 10 micrometres their distance survives kilometres from the origin.


def seconds(stamp: Time) -> float:
    """A stamp in seconds of its clock."""
    return stamp.sec + 1e-9 * stamp.nanosec


def stamp_from_s(time_s: float) -> Time:
    """A stamp from seconds."""
    whole = math.floor(time_s)
    return Time(sec=int(whole), nanosec=min(999_999_999, round((time_s - whole) * 1e9)))


def depth_image_message(depth_m: FloatArray, stamp: Time, frame_id: str) -> Image:
    """Depth (height, width), m, as ``32FC1``."""
    height, width = depth_m.shape
    pixels = np.ascontiguousarray(depth_m, dtype="<f4")
    message = Image(header=Header(stamp=stamp, frame_id=frame_id), height=height, width=width, encoding="32FC1")
    message.step = 4 * width
    message.data = array("B", pixels.tobytes())
    return message


def camera_info_message(camera: DepthCamera, stamp: Time, frame_id: str) -> CameraInfo:
    """An ideal pinhole camera's calibration."""
    message = CameraInfo(header=Header(stamp=stamp, frame_id=frame_id), height=camera.height, width=camera.width)
    message.distortion_model = "plumb_bob"
    message.d = [0.0] * 5
    message.k = [camera.fx, 0.0, camera.cx, 0.0, camera.fy, camera.cy, 0.0, 0.0, 1.0]
    message.r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    message.p = [camera.fx, 0.0, camera.cx, 0.0, 0.0, camera.fy, camera.cy, 0.0, 0.0, 0.0, 1.0, 0.0]
    return message


def cloud_points(message: PointCloud2) -> FloatArray:
    """Points (P, 3), m, in the cloud's frame; NaN for no measurement.

    Raises:
        RobotError: If there are no coordinates, or the data is too short.
    """
    return np.stack(cloud_columns(message, MAP_FIELDS[:3]), axis=-1)


def map_message(snapshot: MapSnapshot, stamp: Time, frame_id: str) -> PointCloud2:
    """A map as a cloud of S x S points, row by row."""
    count = snapshot.cells
    message = PointCloud2(header=Header(stamp=stamp, frame_id=frame_id), height=count, width=count, is_dense=True)
    message.fields = [
        PointField(name=name, offset=4 * i, datatype=PointField.FLOAT32, count=1) for i, name in enumerate(MAP_FIELDS)
    ]
    message.point_step = 4 * len(MAP_FIELDS)
    message.row_step = count * message.point_step
    message.data = array("B", map_points(snapshot).tobytes())
    return message


def map_snapshot(message: PointCloud2) -> MapSnapshot:
    """The map in a cloud of :func:`map_message`.

    Raises:
        RobotError: If it is no such cloud: not a square of at least 2 x 2 cells on a grid, or not finite.
    """
    count = message.height
    if count < 2 or message.width != count:
        raise RobotError(f"A map of {message.height} x {message.width} points arrived, expected a square.")
    x, y, z, variance = (column.reshape(count, count) for column in cloud_columns(message, MAP_FIELDS))
    if not all(np.isfinite(part).all() for part in (x, y, z, variance)):
        raise RobotError("A map with numbers that are not finite arrived.")
    resolution = round((x[-1, 0] - x[0, 0]) / (count - 1), _RESOLUTION_DIGITS)
    if not resolution > 0.0:
        raise RobotError(f"A map whose rows are {resolution} m apart arrived, expected a positive distance.")
    corner = (x[0, 0] - 0.5 * resolution, y[0, 0] - 0.5 * resolution)
    steps = (np.arange(count) + 0.5) * resolution
    error = max(np.abs(x - (corner[0] + steps)[:, None]).max(), np.abs(y - (corner[1] + steps)[None, :]).max())
    if error > 0.25 * resolution:
        raise RobotError(f"A map whose points are up to {error:.3g} m off a grid of {resolution:g} m arrived.")
    return MapSnapshot(z, variance, (float(corner[0]), float(corner[1])), resolution, seconds(message.header.stamp))


def grid_map_message(snapshot: MapSnapshot, stamp: Time, frame_id: str) -> Any:
    """A map as ``grid_map_msgs/GridMap``; None where that package is not installed.

    A grid map's first cell is the one with the largest x and y, and its matrices are stored column by column.
    """
    try:
        from grid_map_msgs.msg import GridMap
    except ImportError:
        return None
    size_m = snapshot.cells * snapshot.resolution_m
    message = GridMap(header=Header(stamp=stamp, frame_id=frame_id))
    message.info.resolution = float(snapshot.resolution_m)
    message.info.length_x = message.info.length_y = float(size_m)
    message.info.pose.position.x = snapshot.corner_in_world_m[0] + 0.5 * size_m
    message.info.pose.position.y = snapshot.corner_in_world_m[1] + 0.5 * size_m
    message.info.pose.orientation.w = 1.0
    message.layers = list(GRID_LAYERS)
    message.basic_layers = [GRID_LAYERS[0]]
    message.data = [grid_layer(values) for values in (snapshot.elevation_m, snapshot.variance_m2)]
    return message


def grid_layer(values: FloatArray) -> Float32MultiArray:
    """A map's layer (rows, cols), m or its own unit, row along x of the map's frame, in a grid map's order."""
    flipped = np.asarray(values, dtype=np.float32)[::-1, ::-1]
    rows, cols = flipped.shape
    message = Float32MultiArray(data=array("f", flipped.tobytes(order="F")))
    message.layout.dim = [
        MultiArrayDimension(label="column_index", size=cols, stride=rows * cols),
        MultiArrayDimension(label="row_index", size=rows, stride=rows),
    ]
    return message


def odometry_pose(message: Odometry) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Position (3,), m, and orientation (4,) w first, of the base in the odometry's frame."""
    place, turn = message.pose.pose.position, message.pose.pose.orientation
    return np.array([place.x, place.y, place.z]), np.array([turn.w, turn.x, turn.y, turn.z])


def goal(message: PoseStamped, frame_id: str) -> Goal:
    """The goal in a pose.

    Args:
        message: A place and a heading.
        frame_id: Of the odometry; a pose without a frame is taken to be in it.

    Raises:
        RobotError: If the pose is in another frame, or holds no orientation.
    """
    if message.header.frame_id not in ("", frame_id):
        raise RobotError(f"The goal is given in frame {plain_text(message.header.frame_id)}, expected '{frame_id}'.")
    place, turn = message.pose.position, message.pose.orientation
    quat = np.array([turn.w, turn.x, turn.y, turn.z])
    norm = float(np.linalg.norm(quat))
    if not (norm > 0.5 and np.isfinite([place.x, place.y, norm]).all()):
        raise RobotError(f"The goal's orientation has norm {norm:.3g} and its place is ({place.x:g}, {place.y:g}).")
    return Goal(place.x, place.y, float(yaw_of((quat / norm)[None])[0]))


def goal_from_odometry(target: Goal, message: Odometry) -> NDArray[np.float64]:
    """The goal command (4,) in the base's yaw frame [m], from where the odometry says that the base is."""
    pos, quat = odometry_pose(message)
    place = np.array([[target.x_in_world_m, target.y_in_world_m, 0.0]])
    return goal_command(place, np.array([target.yaw_in_world_rad]), pos[None], quat[None])[0]


def goal_message(target: Goal, stamp: Time, frame_id: str) -> PoseStamped:
    """A goal as a pose."""
    message = PoseStamped(header=Header(stamp=stamp, frame_id=frame_id))
    message.pose.position.x, message.pose.position.y = target.x_in_world_m, target.y_in_world_m
    message.pose.orientation.w = math.cos(0.5 * target.yaw_in_world_rad)
    message.pose.orientation.z = math.sin(0.5 * target.yaw_in_world_rad)
    return message


def cloud_columns(message: PointCloud2, names: tuple[str, ...]) -> list[NDArray[np.float64]]:
    """The named numbers of every point, each (height * width,).

    Raises:
        RobotError: If a field is missing or no floating-point number, or the data is too short.
    """
    fields = {field.name: field for field in message.fields}
    missing = [name for name in names if name not in fields or fields[name].datatype not in _FLOATS]
    if missing:
        raise RobotError(
            f"A point cloud has no floating-point field {', '.join(missing)}; its fields are "
            f"{', '.join(sorted(fields)) or '(none)'}."
        )
    step, row_step = message.point_step, message.row_step or message.width * message.point_step
    needed = (message.height - 1) * row_step + message.width * step if message.height else 0
    ends = max(fields[name].offset + int(_FLOATS[fields[name].datatype][1]) for name in names)
    if len(message.data) < needed or ends > step or row_step < message.width * step:
        raise RobotError(
            f"A point cloud of {message.height} x {message.width} points of {step} bytes has {len(message.data)} bytes."
        )
    order = ">" if message.is_bigendian else "<"
    points = np.ndarray(
        (message.height, message.width, step), np.uint8, memoryview(message.data), strides=(row_step, step, 1)
    )
    columns = []
    for name in names:
        field = fields[name]
        dtype = np.dtype(_FLOATS[field.datatype]).newbyteorder(order)
        part = np.ascontiguousarray(points[..., field.offset : field.offset + dtype.itemsize])
        columns.append(part.view(dtype).astype(np.float64).ravel())
    return columns
