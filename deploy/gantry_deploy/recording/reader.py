"""A recording read back as arrays, up to the first damage: its writer may have been killed, or its disk have failed."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from mcap.records import Channel, McapRecord, Message, Metadata, Schema
from mcap_ros2.decoder import DecoderFactory

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import RecordingError
from gantry_deploy.recording.mcap_records import McapRecords
from gantry_deploy.recording.ros_messages import MAP_FIELDS
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.files.text import path_text

_LOG = logging.getLogger("gantry.recording")

METADATA = "gantry"
"""Name of the metadata records that describe a recording: one at its beginning, and the same at its end."""
FORMAT = "2"
"""Of those records; the first format had no checksum in them."""
_SEAL = "crc32"
_LATEST_NS = 2**62
_FORMER_NAMES = {"/imu": "/imu/data"}

_STATUS_TEXTS = ("mode", "source", "fault_code", "fault", "map", "session_state", "attempt", "successes")

Row = dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """Arrays by topic and field; the first dimension is time, T differs from topic to topic.

    ``/joint_states``: joint_pos_rad, joint_vel_rad_s, joint_effort_nm (T, n).
    ``/joint_command``: pos_rad, vel_rad_s, effort_nm, stiffness_nm_rad, damping_nm_s_rad (T, n).
    ``/imu/data``: quat_base_to_world_wxyz (T, 4), ang_vel_base_in_base_rad_s and lin_acc_base_in_base_m_s2 (T, 3).
    ``/odom``: pos_base_in_world_m, lin_vel_base_in_base_m_s, ang_vel_base_in_base_rad_s (T, 3),
    quat_base_to_world_wxyz (T, 4).
    ``/cmd_vel``: command (T, 3): forward and lateral m/s, yaw rad/s.
    ``/elevation_map``: points (T, S, S, 4), ``MAP_FIELDS``, in the odometry's frame,
    whenever a number of the map has changed; stamp_s, of its newest frame, says whether that was new ground.
    ``/goal_command``: data (T, 4), ``goal_command``, of a policy that walks to goals.
    ``/object_goal``: data (T, 3), m; ``/object_pose``: data (T, 7), m and unit quaternion, w first; in an arm's base
    frame, as ``/things`` and ``/zones``: data (T, k, 3), m. ``/instruction``: data (T,) strings.
    ``/policy/base_action``: data (T, size), what a residual policy corrected.
    ``/policy/own_action``: data (T, size), what the policy wanted in ticks in which a person corrected it.
    ``/foot_contacts``, ``/policy/observation``, ``/policy/action``, ``/policy/command``: data (T, size).
    ``/gantry/status``: mode, source (of the command that was sent), fault_code, fault (T,) strings; period_s, busy_s,
    observe_s, infer_s (T,); map (T,), what the policy was shown of a map: ``seen``, ``blind:`` and why, or empty where
    it looked at none; and map_age_s (T,); session_state, attempt and successes (T,) strings, empty without a session.
    ``/gantry/event``: data (T,) strings, beginnings and ends of a session's attempts.
    Every topic has time_s (T,), the robot's clock, and stamp_s (T,), that of the reading where there is one.
    """

    path: Path
    """File that was read."""
    robot: str
    """Robot that was recorded."""
    joint_names: tuple[str, ...]
    """Joints in the order of every joint array."""
    contract: PolicyContract | None
    """Contract of the policy that ran; None if none did."""
    complete: bool
    """Whether the file was finished and every checksum in it is right; false if its writer was killed, which loses the
    last second or two, and for whatever was damaged. What is here is right in any case: it ends at the damage."""
    damage: str = ""
    """Damage that makes it incomplete: place in the file, and what was found there. Empty if it is complete."""
    topics: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    """Arrays by topic and field."""
    info: dict[str, str] = field(default_factory=dict)
    """The metadata as they are in the file."""

    def __getitem__(self, topic: str) -> dict[str, np.ndarray]:
        """Arrays of a topic.

        Raises:
            UnknownNameError: If nothing was recorded on it.
            RecordingError: If nothing was recorded at all.
        """
        if not self.topics:
            raise RecordingError(f"{path_text(self.path)} holds no messages: its writer ended before the first ones.")
        if topic not in self.topics:
            raise UnknownNameError(f"topic in {self.path}", topic, self.topics)
        return self.topics[topic]

    @property
    def duration_s(self) -> float:
        """From the first tick to the last."""
        times = self.topics.get("/gantry/status", {}).get("time_s", np.zeros(0))
        return float(times[-1] - times[0]) if times.size else 0.0


def read_recording(path: str | Path) -> Recording:
    """Read a recording of ``Recorder``, up to its first damage, of which a warning is logged.

    Raises:
        RecordingError: If there is no such file, it is no recording of Gantry, or it is damaged before its first tick.
    """
    path = Path(path)
    reader = _Reader()
    try:
        with path.open("rb") as stream:
            reader.read(stream)
    except OSError as error:
        raise RecordingError(f"The recording {path} cannot be read: {error.strerror}.") from error
    if reader.info is None:
        raise RecordingError(f"{path} is no recording of Gantry: {reader.damage or 'it lacks the metadata'}.")
    recording = _recording(path, reader, reader.info)
    if recording.damage:
        _LOG.warning(
            f"The recording {path} is not complete, {recording.duration_s:.2f} s are read: {recording.damage}."
        )
    return recording


def _recording(path: Path, reader: _Reader, info: dict[str, str]) -> Recording:
    try:
        offset_ns = int(info.get("clock_offset_ns", "0"))
        if abs(offset_ns) > _LATEST_NS:
            raise ValueError(f"clock_offset_ns is {offset_ns}")
        contract = PolicyContract.from_json(info["contract"]) if info.get("contract") else None
    except (ValueError, GantryError) as error:
        raise RecordingError(f"The metadata of the recording {path} cannot be used: {error}") from error
    return Recording(
        path=path,
        robot=info.get("robot", ""),
        joint_names=tuple(info.get("joint_names", "").split(",")),
        contract=contract,
        complete=not reader.damage,
        damage=reader.damage,
        topics=reader.arrays(offset_ns),
        info=dict(info),
    )


def sealed(info: Mapping[str, str]) -> dict[str, str]:
    """The metadata of a recording with their checksum, which MCAP has for chunks alone."""
    return {**info, _SEAL: f"{_checksum(info):08x}"}


def _unsealed(metadata: Mapping[str, str]) -> dict[str, str] | None:
    """The metadata without their checksum; None if it differs, or is missing although their format has one."""
    info = {key: value for key, value in metadata.items() if key != _SEAL}
    if _SEAL not in metadata and metadata.get("format") == "1":
        return info
    return info if metadata.get(_SEAL) == f"{_checksum(info):08x}" else None


def _checksum(info: Mapping[str, str]) -> int:
    return zlib.crc32("\0".join(f"{key}\0{info[key]}" for key in sorted(info)).encode())


class _Reader:
    """Walks through the records in file order, which needs no index and works on a file without an end."""

    def __init__(self) -> None:
        self.info: dict[str, str] | None = None
        self.damage = ""
        self._schemas: dict[int, Schema] = {}
        self._channels: dict[int, Channel] = {}
        self._times: dict[str, list[int]] = {}
        self._rows: dict[str, list[Row]] = {}
        self._decoders = DecoderFactory()
        self._tick: int | None = None

    def read(self, stream: BinaryIO) -> None:
        records = McapRecords(stream)
        for record in records:
            try:
                self._take(record, records)
            except Exception as error:  # Whatever a decoder raises on a message that is none.
                records.note(f"a record that cannot be read ({type(error).__name__}: {error})")
                break
        self.damage = records.damage

    def arrays(self, clock_offset_ns: int) -> dict[str, dict[str, np.ndarray]]:
        result: dict[str, dict[str, np.ndarray]] = {}
        for topic, rows in self._rows.items():
            columns = {name: _column([row[name] for row in rows]) for name in rows[0] if name != "stamp_ns"}
            # Nanoseconds since 1970 do not fit a double to the nanosecond; the robot's own clock does.
            times = np.array(self._times[topic], dtype=np.int64)
            columns["time_s"] = (times - clock_offset_ns) * 1e-9
            if "stamp_ns" in rows[0]:
                stamps = np.array([row["stamp_ns"] for row in rows], dtype=np.int64)
                columns["stamp_s"] = (stamps - clock_offset_ns) * 1e-9
            result[topic] = columns
        return result

    def _take(self, record: McapRecord, records: McapRecords) -> None:
        if isinstance(record, Message):
            self._message(record)
        elif isinstance(record, Schema):
            self._schemas[record.id] = record
        elif isinstance(record, Channel):
            self._channels[record.id] = record
        elif isinstance(record, Metadata) and record.name == METADATA:
            info = _unsealed(record.metadata)
            if info is None:
                records.note("the checksum of its metadata differs")
            self.info = self.info or info

    def _message(self, message: Message) -> None:
        channel = self._channels.get(message.channel_id)
        if channel is None:
            raise ValueError(f"a message of channel {message.channel_id}, which is not described")
        topic = _FORMER_NAMES.get(channel.topic, channel.topic)
        self._require_order(topic, message.sequence)
        if topic not in _ROWS:
            return
        decode = self._decoders.decoder_for(channel.message_encoding, self._schemas.get(channel.schema_id))
        if decode is None:
            return
        row, time_ns = _ROWS[topic](decode(message.data)), message.log_time
        if time_ns > _LATEST_NS:
            raise ValueError(f"a message of the time {time_ns} ns")
        self._rows.setdefault(topic, []).append(row)
        self._times.setdefault(topic, []).append(time_ns)

    def _require_order(self, topic: str, tick: int) -> None:
        """Refuse ticks that are doubled or left out, as where whole chunks were copied or lost.

        Every message has the count of its tick, which begins with its status; without one, topics were filtered out.
        """
        if self._tick is not None and tick - self._tick != (topic == "/gantry/status"):
            raise ValueError(f"a message on {topic} of tick {tick} follows tick {self._tick}")
        if topic == "/gantry/status":
            self._tick = tick


def _column(values: list[Any]) -> np.ndarray:
    """Values with time as the first dimension; an array of arrays where their shapes differ, as of a map that grew."""
    try:
        return np.array(values)
    except ValueError:
        column = np.empty(len(values), dtype=object)
        for i, value in enumerate(values):
            column[i] = np.asarray(value)
        return column


def _stamp_ns(message: Any) -> int:
    return message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec


def _vector(value: Any) -> tuple[float, float, float]:
    return (value.x, value.y, value.z)


def _quat_wxyz(value: Any) -> tuple[float, float, float, float]:
    return (value.w, value.x, value.y, value.z)


def _joint_states(message: Any) -> Row:
    return {
        "stamp_ns": _stamp_ns(message),
        "joint_pos_rad": message.position,
        "joint_vel_rad_s": message.velocity,
        "joint_effort_nm": message.effort,
    }


def _joint_command(message: Any) -> Row:
    names = ("pos_rad", "vel_rad_s", "effort_nm", "stiffness_nm_rad", "damping_nm_s_rad")
    return {name: message.position[i :: len(names)] for i, name in enumerate(names)}


def _imu(message: Any) -> Row:
    return {
        "stamp_ns": _stamp_ns(message),
        "quat_base_to_world_wxyz": _quat_wxyz(message.orientation),
        "ang_vel_base_in_base_rad_s": _vector(message.angular_velocity),
        "lin_acc_base_in_base_m_s2": _vector(message.linear_acceleration),
    }


def _odom(message: Any) -> Row:
    return {
        "stamp_ns": _stamp_ns(message),
        "pos_base_in_world_m": _vector(message.pose.pose.position),
        "quat_base_to_world_wxyz": _quat_wxyz(message.pose.pose.orientation),
        "lin_vel_base_in_base_m_s": _vector(message.twist.twist.linear),
        "ang_vel_base_in_base_rad_s": _vector(message.twist.twist.angular),
    }


def _cmd_vel(message: Any) -> Row:
    return {"command": (message.linear.x, message.linear.y, message.angular.z)}


def _data(message: Any) -> Row:
    return {"data": message.data}


def _place(message: Any) -> Row:
    return _data(message) if hasattr(message, "data") else {"data": _vector(message.pose.position)}


def _object_pose(message: Any) -> Row:
    if hasattr(message, "data"):  # Former recordings hold plain numbers.
        return _data(message)
    return {"data": (*_vector(message.pose.position), *_quat_wxyz(message.pose.orientation))}


def _places(message: Any) -> Row:
    return {"data": [_vector(pose.position) for pose in message.poses]}


def _elevation_map(message: Any) -> Row:
    points = np.frombuffer(bytes(message.data), "<f4")
    return {
        "stamp_ns": _stamp_ns(message),
        "points": points.reshape(message.height, message.width, len(MAP_FIELDS)),
    }


def _status(message: Any) -> Row:
    values = {pair.key: pair.value for pair in message.status[0].values}
    row: Row = {name: values.get(name, "") for name in _STATUS_TEXTS}
    times = ("period_s", "busy_s", "observe_s", "infer_s", "map_age_s")
    return row | {name: float(values.get(name, "nan")) for name in times}


_ROWS: dict[str, Callable[[Any], Row]] = {
    "/joint_states": _joint_states,
    "/joint_command": _joint_command,
    "/imu/data": _imu,
    "/odom": _odom,
    "/foot_contacts": _data,
    "/cmd_vel": _cmd_vel,
    "/elevation_map": _elevation_map,
    "/goal_command": _data,
    "/object_goal": _place,
    "/object_pose": _object_pose,
    "/things": _places,
    "/zones": _places,
    "/instruction": _data,
    "/policy/observation": _data,
    "/policy/action": _data,
    "/policy/base_action": _data,
    "/policy/own_action": _data,
    "/policy/command": _data,
    "/gantry/status": _status,
    "/gantry/event": _data,
}
