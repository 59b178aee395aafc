"""Recordings as logs: MCAP files of Gantry, bags of ROS 2 with Gantry's topics, and tables as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.locate import near_miss
from gantry_deploy.dataset.bags.bag import Bag
from gantry_deploy.dataset.bags.definitions import Decoders
from gantry_deploy.dataset.bags.messages import BagError
from gantry_deploy.recording.reader import Recording, read_recording
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.files.text import path_text
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.identification.motion_log import COMMAND_FIELDS, MotionLog, checked

FloatArray = NDArray[np.float64]

STATES, COMMANDS, IMU, CONTACTS = "/joint_states", "/joint_command", "/imu/data", "/foot_contacts"
"""Topics of a recording that are read."""
_PARTS = ("position", "velocity", "effort", "stiffness", "damping")
_MOST_ROWS = 20_000_000


def read_log(path: str | Path, spec: RobotSpec) -> MotionLog:
    """Read a recording: a ``.csv``, a ``.mcap`` of Gantry or of ROS 2, a ``.db3``, or the folder of a bag.

    Raises:
        GantryError: If it cannot be read, is another robot's, lacks joints, or is too short.
    """
    path = Path(path)
    if not path.exists():
        raise GantryError(f"There is no recording {path_text(path)}.{near_miss(path)}")
    if path.is_file() and path.suffix == ".csv":
        return checked(_table(path, spec))
    if path.is_file() and path.suffix == ".mcap":
        bag = Bag(path)
        bag.topics()
        if bag.is_gantry:
            return checked(_recording(read_recording(path), spec))
    return checked(_bag(path, spec))


def _recording(recording: Recording, spec: RobotSpec) -> MotionLog:
    where = path_text(recording.path)
    if recording.robot != spec.name:
        raise GantryError(f"{where} was recorded on robot '{recording.robot}', expected '{spec.name}'.")
    order = _order(recording.joint_names, spec, where)
    for topic in (STATES, COMMANDS):
        if topic not in recording.topics:
            raise UnknownNameError(f"topic of {where}", topic, recording.topics)
    states, sent = recording[STATES], recording[COMMANDS]
    times = states["stamp_s"]
    commands = np.stack([np.asarray(sent[name], np.float64)[:, order] for name in COMMAND_FIELDS], axis=1)
    imu, feet = recording.topics.get(IMU, {}), recording.topics.get(CONTACTS, {})
    return MotionLog(
        spec=spec,
        time_s=times,
        joint_pos_rad=np.asarray(states["joint_pos_rad"], np.float64)[:, order],
        joint_vel_rad_s=np.asarray(states["joint_vel_rad_s"], np.float64)[:, order],
        joint_effort_nm=np.asarray(states["joint_effort_nm"], np.float64)[:, order],
        quat_base_to_world_wxyz=_latest(times, imu.get("stamp_s"), imu.get("quat_base_to_world_wxyz"), 4),
        ang_vel_base_in_base_rad_s=_latest(times, imu.get("stamp_s"), imu.get("ang_vel_base_in_base_rad_s"), 3),
        foot_contact=_latest(times, feet.get("time_s"), feet.get("data"), len(spec.feet)),
        command_time_s=sent["time_s"],
        commands=commands,
        source=where,
    )


def _order(names: Sequence[str], spec: RobotSpec, where: str) -> NDArray[np.intp]:
    """Places (n,) of the robot's joints among the names of a recording."""
    for joint in spec.joint_names:
        if joint not in names:
            raise UnknownNameError(f"joint in {where}", joint, names)
    return np.array([names.index(joint) for joint in spec.joint_names])


def _latest(times: FloatArray, own_s: FloatArray | None, values: Any, width: int) -> FloatArray:
    """Shape (T, width), the values that were newest at times (T,); NaN where there are none."""
    if own_s is None or values is None or not len(own_s) or np.shape(values)[1:] != (width,):
        return np.full((len(times), width), np.nan)
    rows = np.searchsorted(own_s, times + 1e-9, side="right") - 1
    found = np.asarray(values, np.float64)[np.maximum(rows, 0)]
    return np.where((rows >= 0)[:, None], found, np.nan)


def _bag(path: Path, spec: RobotSpec) -> MotionLog:
    """A bag in which Gantry's topics were recorded, whatever recorded them."""
    where, rows = path_text(path), _bag_rows(path)
    for topic in (STATES, COMMANDS):
        if not rows[topic]:
            raise BagError(
                f"{where} has no messages of '{topic}'; expected {STATES} and {COMMANDS} (docs/identify.md)."
            )
    times, positions, speeds, efforts = ([] for _ in range(4))
    first = rows[STATES][0][1]
    order = _order(list(first.name), spec, where)
    for time_s, message in rows[STATES]:
        if list(message.name) != list(first.name):
            raise BagError(f"{where}: '{STATES}' names other joints in some messages; expected all in each.")
        times.append(time_s)
        for column, name in ((positions, "position"), (speeds, "velocity"), (efforts, "effort")):
            values = np.asarray(getattr(message, name), np.float64)
            column.append(values[order] if len(values) == len(first.name) else np.full(spec.num_joints, np.nan))
    names = [f"{joint}/{part}" for joint in spec.joint_names for part in _PARTS]
    sent_names = list(rows[COMMANDS][0][1].name)
    for name in names:
        if name not in sent_names:
            raise UnknownNameError(f"name in '{COMMANDS}' of {where}", name, sent_names)
    places = [sent_names.index(name) for name in names]
    sent = np.array([np.asarray(message.position, np.float64)[places] for _, message in rows[COMMANDS]])
    imu = [(time_s, m.orientation, m.angular_velocity) for time_s, m in rows[IMU]]
    quats = [(q.w, q.x, q.y, q.z) for _, q, _ in imu]
    turning = [(v.x, v.y, v.z) for _, _, v in imu]
    imu_s, foot_s = (np.array([time_s for time_s, _ in rows[topic]]) for topic in (IMU, CONTACTS))
    stamps = np.array(times)
    return MotionLog(
        spec=spec,
        time_s=stamps,
        joint_pos_rad=np.array(positions),
        joint_vel_rad_s=np.array(speeds),
        joint_effort_nm=np.array(efforts),
        quat_base_to_world_wxyz=_latest(stamps, imu_s, quats, 4),
        ang_vel_base_in_base_rad_s=_latest(stamps, imu_s, turning, 3),
        foot_contact=_latest(stamps, foot_s, [message.data for _, message in rows[CONTACTS]], len(spec.feet)),
        command_time_s=np.array([time_s for time_s, _ in rows[COMMANDS]]),
        commands=sent.reshape(len(sent), spec.num_joints, len(_PARTS)).transpose(0, 2, 1),
        source=where,
    )


def _bag_rows(path: Path) -> dict[str, list[tuple[float, Any]]]:
    """Time, s since the first message, and message of each topic that is read."""
    bag, decoders = Bag(path), Decoders()
    topics = bag.topics()
    decode = {name: decoders.of(topics[name]) for name in (STATES, COMMANDS, IMU, CONTACTS) if name in topics}
    rows: dict[str, list[tuple[float, Any]]] = {name: [] for name in (STATES, COMMANDS, IMU, CONTACTS)}
    begin_ns, count = None, 0
    for message in bag.messages():
        if message.topic not in decode:
            continue
        count += 1
        if count > _MOST_ROWS:
            raise BagError(f"{path_text(path)} has more than {_MOST_ROWS} messages; split the bag.")
        try:
            decoded = decode[message.topic](message.data)
        except Exception as error:  # Whatever a decoder raises on a message that is none.
            raise BagError(f"A message of '{message.topic}' in {path_text(path)} cannot be decoded: {error}") from error
        stamp = getattr(getattr(decoded, "header", None), "stamp", None)
        own_ns = 0 if stamp is None else int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)
        time_ns = own_ns if own_ns > 0 else message.log_ns
        begin_ns = time_ns if begin_ns is None else begin_ns
        rows[message.topic].append(((time_ns - begin_ns) * 1e-9, decoded))
    return rows


def csv_columns(spec: RobotSpec) -> tuple[list[str], list[str]]:
    """Names of the columns of a table that it must have, and of those that it may have."""
    names = spec.joint_names
    must = ["time_s"] + [f"{kind}.{joint}" for kind in _NEEDED for joint in names]
    may = [f"{kind}.{joint}" for kind in _OPTIONAL for joint in names]
    may += [f"quat_{axis}" for axis in "wxyz"] + [f"gyro_{axis}_rad_s" for axis in "xyz"]
    return must, may + [f"contact.{foot}" for foot in spec.feet]


_NEEDED = ("pos_rad", "vel_rad_s", "sent_pos_rad", "sent_stiffness_nm_rad", "sent_damping_nm_s_rad")
_OPTIONAL = ("effort_nm", "sent_vel_rad_s", "sent_effort_nm")


def _table(path: Path, spec: RobotSpec) -> MotionLog:
    where, (must, may) = path_text(path), csv_columns(spec)
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = list(csv.reader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise GantryError(f"{where} cannot be read: {error}.") from error
    if len(lines) < 2:
        raise GantryError(f"{where} has {len(lines)} lines, expected a line of names and one for each reading.")
    head = [name.strip() for name in lines[0]]
    for name in must:
        if name not in head:
            raise UnknownNameError(f"column of {where}", name, head)
    table = np.full((len(lines) - 1, len(head)), np.nan)
    for number, line in enumerate(lines[1:]):
        if len(line) != len(head):
            raise GantryError(f"{where}, line {number + 2}: {len(line)} values, expected {len(head)}.")
        for column, text in enumerate(line):
            try:
                table[number, column] = float(text) if text.strip() else np.nan
            except ValueError:
                if head[column] in must or head[column] in may:
                    raise GantryError(
                        f"{where}, line {number + 2}: '{head[column]}' is '{text}', expected a number."
                    ) from None

    def columns(names: Sequence[str], missing: float = np.nan) -> FloatArray:
        found = [table[:, head.index(name)] if name in head else np.full(len(table), missing) for name in names]
        return np.array(found).reshape(len(names), len(table)).T

    def joints(kind: str, missing: float = np.nan) -> FloatArray:
        return columns([f"{kind}.{joint}" for joint in spec.joint_names], missing)

    sent = [joints(f"sent_{name}", 0.0 if name in ("vel_rad_s", "effort_nm") else np.nan) for name in COMMAND_FIELDS]
    return MotionLog(
        spec=spec,
        time_s=table[:, head.index("time_s")],
        joint_pos_rad=joints("pos_rad"),
        joint_vel_rad_s=joints("vel_rad_s"),
        joint_effort_nm=joints("effort_nm"),
        quat_base_to_world_wxyz=columns([f"quat_{axis}" for axis in "wxyz"]),
        ang_vel_base_in_base_rad_s=columns([f"gyro_{axis}_rad_s" for axis in "xyz"]),
        foot_contact=columns([f"contact.{foot}" for foot in spec.feet]),
        command_time_s=table[:, head.index("time_s")],
        commands=np.stack(sent, axis=1),
        source=where,
    )
