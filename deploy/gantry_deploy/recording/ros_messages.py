"""Messages on the wire: frames, the names in a joint command, and the standard ROS 2 messages of a recording with their
definitions and their encoding without a ROS installation.

The encoders put whole arrays into place at once; field by field, a tick would cost a millisecond of the interpreter.
Little-endian CDR: every number is aligned to its own size, counted from behind the four header bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gantry_hardware.backends.state import JointCommand
from gantry_hardware.model.description import Frames
from gantry_hardware.model.spec import RobotSpec
from gantry_mapping.elevation.snapshot import MapSnapshot

ODOM_FRAME = "odom"
"""World frame of the odometry, REP 105."""
BASE_FRAME = "base_link"
"""The robot's base, x forward, y left, z up, REP 103."""
COMMAND_INTERFACES = ("position", "velocity", "effort", "stiffness", "damping")
"""Suffixes of the names in a joint command; units rad, rad/s, N m, N m/rad, N m s/rad. They are the names of
ros2_control's interfaces, so that all five numbers of a joint travel together and need no agreed order."""

MAP_FIELDS = ("x", "y", "z", "variance")
"""Of a map's points: centre of the cell and elevation in the map's frame, m; and variance, m^2. All 32-bit floats."""
_FLOAT32 = 7  # sensor_msgs/msg/PointField


def command_names(spec: RobotSpec) -> list[str]:
    """Names in a joint command, ``<joint>/<interface>``, five per joint in canonical order."""
    return [f"{joint}/{interface}" for joint in spec.joint_names for interface in COMMAND_INTERFACES]


def command_values(command: JointCommand) -> NDArray[np.float64]:
    """The numbers that belong to :func:`command_names`, shape (5 n,)."""
    fields = (command.pos_rad, command.vel_rad_s, command.effort_nm, command.stiffness_nm_rad, command.damping_nm_s_rad)
    return np.stack(fields, axis=-1).ravel()


def command_from_values(values: NDArray[np.float64]) -> JointCommand:
    """The command that :func:`command_values` took apart, from shape (5 n,)."""
    return JointCommand(*(column.copy() for column in values.reshape(-1, len(COMMAND_INTERFACES)).T))


_HEADER = "builtin_interfaces/Time stamp\nstring frame_id\n"
_XYZ = "float64 x\nfloat64 y\nfloat64 z\n"
_TWIST = "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular\n"


def _definition(text: str, **parts: str) -> str:
    """A definition followed by those of its parts, in the form that MCAP and rosbag2 use."""
    blocks = [f"MSG: {name.replace('__', '/')}\n{part}" for name, part in parts.items()]
    return ("=" * 80 + "\n").join([text, *blocks])


DEFINITIONS: dict[str, str] = {
    "sensor_msgs/msg/JointState": _definition(
        "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n",
        std_msgs__Header=_HEADER,
    ),
    "sensor_msgs/msg/Imu": _definition(
        "std_msgs/Header header\n"
        "geometry_msgs/Quaternion orientation\nfloat64[9] orientation_covariance\n"
        "geometry_msgs/Vector3 angular_velocity\nfloat64[9] angular_velocity_covariance\n"
        "geometry_msgs/Vector3 linear_acceleration\nfloat64[9] linear_acceleration_covariance\n",
        std_msgs__Header=_HEADER,
        geometry_msgs__Quaternion=_XYZ + "float64 w\n",
        geometry_msgs__Vector3=_XYZ,
    ),
    "nav_msgs/msg/Odometry": _definition(
        "std_msgs/Header header\nstring child_frame_id\n"
        "geometry_msgs/PoseWithCovariance pose\ngeometry_msgs/TwistWithCovariance twist\n",
        std_msgs__Header=_HEADER,
        geometry_msgs__PoseWithCovariance="geometry_msgs/Pose pose\nfloat64[36] covariance\n",
        geometry_msgs__Pose="geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation\n",
        geometry_msgs__Point=_XYZ,
        geometry_msgs__Quaternion=_XYZ + "float64 w\n",
        geometry_msgs__TwistWithCovariance="geometry_msgs/Twist twist\nfloat64[36] covariance\n",
        geometry_msgs__Twist=_TWIST,
        geometry_msgs__Vector3=_XYZ,
    ),
    "geometry_msgs/msg/Twist": _definition(_TWIST, geometry_msgs__Vector3=_XYZ),
    "geometry_msgs/msg/PoseStamped": _definition(
        "std_msgs/Header header\ngeometry_msgs/Pose pose\n",
        std_msgs__Header=_HEADER,
        geometry_msgs__Pose="geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation\n",
        geometry_msgs__Point=_XYZ,
        geometry_msgs__Quaternion=_XYZ + "float64 w\n",
    ),
    "geometry_msgs/msg/PoseArray": _definition(
        "std_msgs/Header header\ngeometry_msgs/Pose[] poses\n",
        std_msgs__Header=_HEADER,
        geometry_msgs__Pose="geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation\n",
        geometry_msgs__Point=_XYZ,
        geometry_msgs__Quaternion=_XYZ + "float64 w\n",
    ),
    "std_msgs/msg/String": "string data\n",
    "tf2_msgs/msg/TFMessage": _definition(
        "geometry_msgs/TransformStamped[] transforms\n",
        geometry_msgs__TransformStamped=(
            "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/Transform transform\n"
        ),
        std_msgs__Header=_HEADER,
        geometry_msgs__Transform="geometry_msgs/Vector3 translation\ngeometry_msgs/Quaternion rotation\n",
        geometry_msgs__Vector3=_XYZ,
        geometry_msgs__Quaternion=_XYZ + "float64 w\n",
    ),
    "std_msgs/msg/Float32MultiArray": _definition(
        "std_msgs/MultiArrayLayout layout\nfloat32[] data\n",
        std_msgs__MultiArrayLayout="std_msgs/MultiArrayDimension[] dim\nuint32 data_offset\n",
        std_msgs__MultiArrayDimension="string label\nuint32 size\nuint32 stride\n",
    ),
    "sensor_msgs/msg/PointCloud2": _definition(
        "std_msgs/Header header\nuint32 height\nuint32 width\nsensor_msgs/PointField[] fields\n"
        "bool is_bigendian\nuint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense\n",
        std_msgs__Header=_HEADER,
        sensor_msgs__PointField=(
            "uint8 INT8=1\nuint8 UINT8=2\nuint8 INT16=3\nuint8 UINT16=4\nuint8 INT32=5\nuint8 UINT32=6\n"
            "uint8 FLOAT32=7\nuint8 FLOAT64=8\nstring name\nuint32 offset\nuint8 datatype\nuint32 count\n"
        ),
    ),
    "diagnostic_msgs/msg/DiagnosticArray": _definition(
        "std_msgs/Header header\ndiagnostic_msgs/DiagnosticStatus[] status\n",
        std_msgs__Header=_HEADER,
        diagnostic_msgs__DiagnosticStatus=(
            "byte OK=0\nbyte WARN=1\nbyte ERROR=2\nbyte STALE=3\n"
            "byte level\nstring name\nstring message\nstring hardware_id\ndiagnostic_msgs/KeyValue[] values\n"
        ),
        diagnostic_msgs__KeyValue="string key\nstring value\n",
    ),
}
"""Definition of each message type by its schema name."""


class _Cdr:
    """Bytes of one message under construction."""

    def __init__(self) -> None:
        self._data = bytearray(b"\x00\x01\x00\x00")

    def align(self, size: int) -> None:
        self._data += bytes(-(len(self._data) - 4) % size)

    def uint32(self, value: int) -> None:
        self.align(4)
        self._data += struct.pack("<I", value)

    def string(self, text: str) -> None:
        encoded = text.encode() + b"\0"
        self.uint32(len(encoded))
        self._data += encoded

    def strings(self, texts: Sequence[str]) -> None:
        self.uint32(len(texts))
        for text in texts:
            self.string(text)

    def byte(self, value: int) -> None:
        self._data.append(value)

    def array(self, values: ArrayLike, dtype: str = "<f8") -> None:
        """Numbers without a length before them."""
        self.align(int(dtype[-1]))
        self._data += np.asarray(values, dtype=dtype).tobytes()

    def sequence(self, values: ArrayLike, dtype: str = "<f8") -> None:
        """Numbers with their count before them."""
        values = np.asarray(values, dtype=dtype)
        self.uint32(values.size)
        if values.size:
            self.array(values, dtype)

    def header(self, stamp_ns: int, frame_id: str) -> None:
        self.align(4)
        self._data += struct.pack("<iI", *divmod(stamp_ns, 1_000_000_000))
        self.string(frame_id)

    def done(self) -> bytes:
        return bytes(self._data)


_NO_COVARIANCE = np.zeros(9)
_NO_COVARIANCE_36 = np.zeros(36)


def joint_state(
    stamp_ns: int, names: Sequence[str], position: ArrayLike, velocity: ArrayLike, effort: ArrayLike
) -> bytes:
    """A ``sensor_msgs/msg/JointState`` with all arrays filled, each of shape (len(names),)."""
    cdr = _Cdr()
    cdr.header(stamp_ns, "")
    cdr.strings(names)
    for values in (position, velocity, effort):
        cdr.sequence(values)
    return cdr.done()


def imu(stamp_ns: int, quat_wxyz: ArrayLike, ang_vel_rad_s: ArrayLike, lin_acc_m_s2: ArrayLike) -> bytes:
    """A ``sensor_msgs/msg/Imu`` in frame ``base_link``; shapes (4,), (3,), (3,), the last two in the base frame."""
    cdr = _Cdr()
    cdr.header(stamp_ns, BASE_FRAME)
    for values in (_xyzw(quat_wxyz), _NO_COVARIANCE, ang_vel_rad_s, _NO_COVARIANCE, lin_acc_m_s2, _NO_COVARIANCE):
        cdr.array(values)
    return cdr.done()


def odometry(
    stamp_ns: int, pos_m: ArrayLike, quat_wxyz: ArrayLike, lin_vel_m_s: ArrayLike, ang_vel_rad_s: ArrayLike
) -> bytes:
    """A ``nav_msgs/msg/Odometry``: pose of ``base_link`` in ``odom``, velocities (3,) in ``base_link``."""
    cdr = _Cdr()
    cdr.header(stamp_ns, ODOM_FRAME)
    cdr.string(BASE_FRAME)
    for values in (pos_m, _xyzw(quat_wxyz), _NO_COVARIANCE_36, lin_vel_m_s, ang_vel_rad_s, _NO_COVARIANCE_36):
        cdr.array(values)
    return cdr.done()


def twist(lin_vel_m_s: ArrayLike, ang_vel_rad_s: ArrayLike) -> bytes:
    """A ``geometry_msgs/msg/Twist``; shapes (3,) and (3,)."""
    cdr = _Cdr()
    cdr.array(lin_vel_m_s)
    cdr.array(ang_vel_rad_s)
    return cdr.done()


def pose(stamp_ns: int, pos_m: ArrayLike, quat_wxyz: ArrayLike) -> bytes:
    """A ``geometry_msgs/msg/PoseStamped`` in ``base_link``; shapes (3,) and (4,)."""
    cdr = _Cdr()
    cdr.header(stamp_ns, BASE_FRAME)
    cdr.array(pos_m)
    cdr.array(_xyzw(quat_wxyz))
    return cdr.done()


def places(stamp_ns: int, pos_m: ArrayLike) -> bytes:
    """A ``geometry_msgs/msg/PoseArray`` in ``base_link``, each upright; shape (k, 3)."""
    rows = np.asarray(pos_m, dtype="<f8").reshape(-1, 3)
    cdr = _Cdr()
    cdr.header(stamp_ns, BASE_FRAME)
    cdr.uint32(len(rows))
    if len(rows):  # Nothing is aligned for an empty sequence.
        cdr.array(np.hstack((rows, np.tile((0.0, 0.0, 0.0, 1.0), (len(rows), 1)))))
    return cdr.done()


def string(text: str) -> bytes:
    """A ``std_msgs/msg/String``."""
    cdr = _Cdr()
    cdr.string(text)
    return cdr.done()


def transforms(stamp_ns: int, *parts: Frames) -> bytes:
    """A ``tf2_msgs/msg/TFMessage`` of all the frames, in their order."""
    cdr = _Cdr()
    cdr.uint32(sum(len(frames.children) for frames in parts))
    for frames in parts:
        rows = np.concatenate((frames.pos_m, np.roll(frames.quat_wxyz, -1, axis=1)), axis=1)
        for parent, child, row in zip(frames.parents, frames.children, rows, strict=True):
            cdr.header(stamp_ns, parent)
            cdr.string(child)
            cdr.array(row)
    return cdr.done()


def float32_array(label: str, values: ArrayLike) -> bytes:
    """A ``std_msgs/msg/Float32MultiArray`` of one dimension with a label."""
    values = np.asarray(values, dtype="<f4").ravel()
    cdr = _Cdr()
    cdr.uint32(1)
    cdr.string(label)
    cdr.uint32(values.size)
    cdr.uint32(values.size)
    cdr.uint32(0)
    cdr.sequence(values, "<f4")
    return cdr.done()


def map_points(snapshot: MapSnapshot) -> NDArray[np.float32]:
    """A map as points (S, S, 4), in the order of :data:`MAP_FIELDS`."""
    steps = (np.arange(snapshot.cells) + 0.5) * snapshot.resolution_m
    points = np.empty((snapshot.cells, snapshot.cells, len(MAP_FIELDS)), dtype="<f4")
    points[..., 0] = (snapshot.corner_in_world_m[0] + steps)[:, None]
    points[..., 1] = (snapshot.corner_in_world_m[1] + steps)[None, :]
    points[..., 2], points[..., 3] = snapshot.elevation_m, snapshot.variance_m2
    return points


def map_of_points(points: NDArray[np.floating]) -> MapSnapshot:
    """The map that :func:`map_points` took apart, from shape (S, S, 4) with two or more cells along an edge."""
    corner, count = points[0, 0, :2].astype(np.float64), len(points)
    # Single precision blurs the cells' places; a hundredth of a millimetre is finer than any resolution.
    resolution = round(float(points[-1, 0, 0] - points[0, 0, 0]) / (count - 1), 5)
    x, y = (corner - 0.5 * resolution).tolist()
    return MapSnapshot(points[..., 2], points[..., 3], (x, y), resolution)


def elevation_map(stamp_ns: int, snapshot: MapSnapshot) -> bytes:
    """A map as a ``sensor_msgs/msg/PointCloud2`` of S x S points in ``odom``, a row of the cloud per row of the map."""
    points = map_points(snapshot)
    step = points.itemsize * len(MAP_FIELDS)
    cdr = _Cdr()
    cdr.header(stamp_ns, ODOM_FRAME)
    cdr.uint32(snapshot.cells)
    cdr.uint32(snapshot.cells)
    cdr.uint32(len(MAP_FIELDS))
    for i, name in enumerate(MAP_FIELDS):
        cdr.string(name)
        cdr.uint32(points.itemsize * i)
        cdr.byte(_FLOAT32)
        cdr.uint32(1)
    cdr.byte(False)
    cdr.uint32(step)
    cdr.uint32(step * snapshot.cells)
    cdr.sequence(points.view(np.uint8).ravel(), "|u1")
    cdr.byte(True)
    return cdr.done()


def diagnostics(
    stamp_ns: int, level: int, name: str, message: str, hardware_id: str, values: Mapping[str, str]
) -> bytes:
    """A ``diagnostic_msgs/msg/DiagnosticArray`` with one status; level 0 is fine, 1 a warning, 2 an error."""
    cdr = _Cdr()
    cdr.header(stamp_ns, "")
    cdr.uint32(1)
    cdr.byte(level)
    for text in (name, message, hardware_id):
        cdr.string(text)
    cdr.uint32(len(values))
    for text in _flat(values.items()):
        cdr.string(text)
    return cdr.done()


def _xyzw(quat_wxyz: ArrayLike) -> np.ndarray:
    return np.roll(np.asarray(quat_wxyz, dtype=np.float64), -1)


def _flat(pairs: Iterable[tuple[str, str]]) -> Iterable[str]:
    for pair in pairs:
        yield from pair
