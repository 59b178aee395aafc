"""Definitions of message types, and decoders made of them, for bags with and without definitions of their own.

A bag's own definition comes first. Old SQLite bags hold none: common types are in a table here, and others are read
from the ``.msg`` files of a ROS 2 installation, if there is one. Nothing is imported or executed for it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcap.records import Schema
from mcap_ros2.decoder import DecoderFactory

from gantry_deploy.dataset.bags.messages import BagError, Topic
from gantry_deploy.recording.ros_messages import DEFINITIONS

Decode = Callable[[bytes], Any]

_TYPE = re.compile(r"[A-Za-z]\w*/(?:msg|srv|action)/[A-Za-z]\w*")
_FIELD = re.compile(r"^\s*([A-Za-z][\w/]*)((?:<=\d+)?)((?:\[[^\]]*\])?)\s+[A-Za-z]\w*(\s*=)?", re.MULTILINE)
_TYPE_NAME = re.compile(r"^((?:MSG:\s+)?(?:[a-z][a-z0-9_]*/)*)([A-Z][A-Za-z0-9]*_\w*)(?=[\[<\s]|$)", re.MULTILINE)
_SPLIT = re.compile(r"^={3,}$", re.MULTILINE)
_NAME = re.compile(r"^MSG:\s+(\S+)$", re.MULTILINE)
_PRIMITIVES = frozenset(
    f"{kind}{bits}"
    for kind, sizes in (("float", (32, 64)), ("int", (8, 16, 32, 64)), ("uint", (8, 16, 32, 64)))
    for bits in sizes
) | {"bool", "byte", "char", "string", "wstring"}
_LARGEST_FILE_BYTES, _DEEPEST = 100_000, 16

_PARTS: dict[str, str] = {
    "std_msgs/Header": "builtin_interfaces/Time stamp\nstring frame_id\n",
    "geometry_msgs/Vector3": "float64 x\nfloat64 y\nfloat64 z\n",
    "geometry_msgs/Point": "float64 x\nfloat64 y\nfloat64 z\n",
    "geometry_msgs/Quaternion": "float64 x\nfloat64 y\nfloat64 z\nfloat64 w\n",
    "geometry_msgs/Twist": "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular\n",
    "geometry_msgs/Wrench": "geometry_msgs/Vector3 force\ngeometry_msgs/Vector3 torque\n",
    "geometry_msgs/Pose": "geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation\n",
    "geometry_msgs/Transform": "geometry_msgs/Vector3 translation\ngeometry_msgs/Quaternion rotation\n",
    "std_msgs/MultiArrayDimension": "string label\nuint32 size\nuint32 stride\n",
    "std_msgs/MultiArrayLayout": "std_msgs/MultiArrayDimension[] dim\nuint32 data_offset\n",
    "trajectory_msgs/JointTrajectoryPoint": (
        "float64[] positions\nfloat64[] velocities\nfloat64[] accelerations\nfloat64[] effort\n"
        "builtin_interfaces/Duration time_from_start\n"
    ),
    "service_msgs/ServiceEventInfo": (
        "uint8 event_type\nbuiltin_interfaces/Time stamp\nuint8[16] client_gid\nint64 sequence_number\n"
    ),
    "std_srvs/Trigger_Request": "",
    "std_srvs/Trigger_Response": "bool success\nstring message\n",
    "std_srvs/Empty_Request": "",
    "std_srvs/Empty_Response": "",
    "std_srvs/SetBool_Request": "bool data\n",
    "std_srvs/SetBool_Response": "bool success\nstring message\n",
}


def _array(kind: str) -> str:
    return f"std_msgs/MultiArrayLayout layout\n{kind}[] data\n"


def _event(name: str) -> str:
    return (
        f"service_msgs/ServiceEventInfo info\nstd_srvs/{name}_Request[<=1] request\n"
        f"std_srvs/{name}_Response[<=1] response\n"
    )


def _stamped(kind: str, name: str) -> str:
    return f"std_msgs/Header header\n{kind} {name}\n"


_NUMBERS = ("Bool", "Float32", "Float64", "Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64")
_COMMON: dict[str, str] = {
    **{f"std_msgs/msg/{name}": f"{name.lower()} data\n" for name in (*_NUMBERS, "String")},
    **{f"std_msgs/msg/{name}MultiArray": _array(name.lower()) for name in _NUMBERS if name != "Bool"},
    "std_msgs/msg/Empty": "",
    "sensor_msgs/msg/Image": (
        "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\n"
        "uint8[] data\n"
    ),
    "sensor_msgs/msg/CompressedImage": "std_msgs/Header header\nstring format\nuint8[] data\n",
    "sensor_msgs/msg/Joy": "std_msgs/Header header\nfloat32[] axes\nint32[] buttons\n",
    "sensor_msgs/msg/Temperature": "std_msgs/Header header\nfloat64 temperature\nfloat64 variance\n",
    "trajectory_msgs/msg/JointTrajectory": (
        "std_msgs/Header header\nstring[] joint_names\ntrajectory_msgs/JointTrajectoryPoint[] points\n"
    ),
    "trajectory_msgs/msg/JointTrajectoryPoint": _PARTS["trajectory_msgs/JointTrajectoryPoint"],
    "control_msgs/msg/JointJog": (
        "std_msgs/Header header\nstring[] joint_names\nfloat64[] displacements\nfloat64[] velocities\n"
        "float64 duration\n"
    ),
    "control_msgs/msg/DynamicJointState": (
        "std_msgs/Header header\nstring[] joint_names\ncontrol_msgs/InterfaceValue[] interface_values\n"
    ),
    "geometry_msgs/msg/Vector3": _PARTS["geometry_msgs/Vector3"],
    "geometry_msgs/msg/Point": _PARTS["geometry_msgs/Point"],
    "geometry_msgs/msg/Quaternion": _PARTS["geometry_msgs/Quaternion"],
    "geometry_msgs/msg/Pose": _PARTS["geometry_msgs/Pose"],
    "geometry_msgs/msg/Wrench": _PARTS["geometry_msgs/Wrench"],
    "geometry_msgs/msg/TwistStamped": _stamped("geometry_msgs/Twist", "twist"),
    "geometry_msgs/msg/WrenchStamped": _stamped("geometry_msgs/Wrench", "wrench"),
    "geometry_msgs/msg/PointStamped": _stamped("geometry_msgs/Point", "point"),
    "geometry_msgs/msg/Vector3Stamped": _stamped("geometry_msgs/Vector3", "vector"),
    "geometry_msgs/msg/TransformStamped": (
        "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/Transform transform\n"
    ),
    "std_srvs/srv/Trigger_Event": _event("Trigger"),
    "std_srvs/srv/Empty_Event": _event("Empty"),
    "std_srvs/srv/SetBool_Event": _event("SetBool"),
}
_PARTS["control_msgs/InterfaceValue"] = "string[] interface_names\nfloat64[] values\n"


class Decoders:
    """Decoders of the topics of a bag; each type is parsed once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Decode] = {}

    def of(self, topic: Topic) -> Decode:
        """The decoder of a topic's messages.

        Raises:
            BagError: If its messages cannot be read, with the reason.
        """
        if topic.obstacle:
            raise BagError(f"The messages of '{topic.name}' cannot be read: {topic.obstacle}.")
        key = (topic.type, topic.definition)
        if key not in self._found:
            self._found[key] = _decoder(topic)
        return self._found[key]

    def obstacle(self, topic: Topic) -> str:
        """Reason why a topic's messages cannot be read; empty if they can."""
        try:
            self.of(topic)
        except BagError as error:
            return str(error)
        return ""


def _decoder(topic: Topic) -> Decode:
    known = known_definition(topic.type)
    texts = [text for text in dict.fromkeys([topic.definition, known]) if text is not None]
    if topic.definition == "":
        texts = texts[1:]
    if not texts:
        raise BagError(
            f"The messages of '{topic.name}' cannot be read: the bag holds no definition of {topic.type}, and it is "
            "neither a common type nor one of a ROS 2 installation here. 'ros2 bag convert' to MCAP, where the type is "
            "installed, adds it."
        )
    failure: Exception | None = None
    for own in texts:
        name, text = parsable(topic.type, own)
        if endless := _endless_type(name, text):
            raise BagError(
                f"The messages of '{topic.name}' cannot be read: arrays of {endless} would have no safe length."
            )
        try:
            # The parser prints what it does not like, letter by letter; the message below says it.
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                decode = DecoderFactory().decoder_for("cdr", Schema(1, text.encode(), "ros2msg", name))
        except Exception as error:  # Whatever a parser raises on a text that is no definition.
            failure = error
            continue
        if decode is not None:
            return decode
    raise BagError(f"The definition of {topic.type} in the bag cannot be read: {failure}.")


def parsable(kind: str, text: str) -> tuple[str, str]:
    """A type and its definition in names that the parser takes: those of services and actions have underscores."""
    package, _, name = kind.rpartition("/")
    plain = _TYPE_NAME.sub(lambda found: found[1] + found[2].replace("_", ""), text)
    return f"{package}/{name.replace('_', '')}", plain


def known_definition(kind: str) -> str | None:
    """Definition of a type that a bag does not define: a common one, or that of a ROS 2 installation."""
    if not _TYPE.fullmatch(kind):
        return None
    if kind in DEFINITIONS:
        return DEFINITIONS[kind]
    parts: dict[str, str] = {}
    text = _COMMON.get(kind) if kind in _COMMON else _installed(kind)
    if text is None or not _collect(text, kind.split("/")[0], parts, 0):
        return None
    return ("=" * 80 + "\n").join([text, *(f"MSG: {name}\n{part}" for name, part in parts.items())])


def _collect(text: str, package: str, parts: dict[str, str], depth: int) -> bool:
    """Add the definitions of the parts of a type; whether all of them are known."""
    for kind, _, _, constant in _FIELD.findall(text):
        if kind in _PRIMITIVES or constant:
            continue
        name = kind if "/" in kind else f"{package}/{kind}"
        if name in parts or name in ("builtin_interfaces/Time", "builtin_interfaces/Duration"):
            continue
        own = _PARTS.get(name, _installed(name.replace("/", "/msg/", 1)))
        if own is None or depth > _DEEPEST:
            return False
        parts[name] = own
        if not _collect(own, name.split("/")[0], parts, depth + 1):
            return False
    return True


def _installed(kind: str) -> str | None:
    """The ``.msg`` file of a type in a ROS 2 installation, without comments; None if there is none."""
    if not _TYPE.fullmatch(kind):
        return None
    package, folder, name = kind.split("/")
    prefixes = [*os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep), sys.prefix]
    for prefix in filter(None, prefixes):
        path = Path(prefix) / "share" / package / folder / f"{name}.msg"
        if path.is_file() and path.stat().st_size <= _LARGEST_FILE_BYTES:
            lines = (line.split("#")[0].rstrip() for line in path.read_text("utf-8", "replace").splitlines())
            return "".join(f"{line}\n" for line in lines if line)
    return None


def _endless_type(kind: str, text: str) -> str:
    """A type of which arrays occur although reading past the end of a message never fails in one: its fields are bytes
    of a fixed count alone, so that a length of some billions would be believed. Empty if there is none."""
    blocks = {}
    for block in _SPLIT.split(text):
        name = _NAME.search(block)
        short = name[1] if name else kind
        parts = short.split("/")
        blocks[f"{parts[0]}/{parts[-1]}"] = _FIELD.findall(_NAME.sub("", block))
    bare = {
        name
        for name, fields in blocks.items()
        if any(not constant for *_, constant in fields)
        and all(
            constant or (part in ("uint8", "byte") and array.strip("[]").isdigit())
            for part, _, array, constant in fields
        )
    }
    for owner, fields in blocks.items():
        for part, _, array, _ in fields:
            name = part if "/" in part else f"{owner.split('/')[0]}/{part}"
            pieces = name.split("/")
            if array and f"{pieces[0]}/{pieces[-1]}" in bare:
                return name
    return ""
