"""Every tick of the loop, written as MCAP in the background, so that Foxglove and ``ros2 bag`` can read it.

The loop only puts a report into a queue. A disk that is slow costs reports, which are counted; a disk that is full ends
the recording with one message, and what was written until then stays readable.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mcap.writer import CompressionType, Writer

from gantry_deploy.contract.policy_contract import OBJECT_GOAL, PolicyContract
from gantry_deploy.control.loop import TickReport
from gantry_deploy.control.safety import Mode
from gantry_deploy.errors import RecordingError
from gantry_deploy.observations.scene import THINGS_SIGNAL, ZONES_SIGNAL
from gantry_deploy.perception.maps import MapSource, OwnMap
from gantry_deploy.recording import ros_messages
from gantry_deploy.recording.explained import look_values, map_metadata
from gantry_deploy.recording.frames import RecordedFrames
from gantry_deploy.recording.reader import FORMAT, METADATA, Recording, read_recording, sealed
from gantry_deploy.recording.sink import Sink
from gantry_hardware.backends.state import RobotState
from gantry_hardware.model.spec import RobotSpec
from gantry_mapping.elevation.snapshot import MapSnapshot

__all__ = ["Recorder", "Recording", "read_recording"]

_LOG = logging.getLogger("gantry.record")
LOST_RECORDING = "ended early after"
"""Part of the message that tells of a recording that is not whole."""
_UPRIGHT = (1.0, 0.0, 0.0, 0.0)
_LOOK_S = 0.2
"""Period at which a caller that waits for the recorder's thread checks that it is alive."""

TOPICS: dict[str, str] = {
    "/joint_states": "sensor_msgs/msg/JointState",
    "/joint_command": "sensor_msgs/msg/JointState",
    "/imu/data": "sensor_msgs/msg/Imu",
    "/odom": "nav_msgs/msg/Odometry",
    "/foot_contacts": "std_msgs/msg/Float32MultiArray",
    "/cmd_vel": "geometry_msgs/msg/Twist",
    "/elevation_map": "sensor_msgs/msg/PointCloud2",
    "/goal_command": "std_msgs/msg/Float32MultiArray",
    "/policy/observation": "std_msgs/msg/Float32MultiArray",
    "/object_goal": "geometry_msgs/msg/PoseStamped",
    "/object_pose": "geometry_msgs/msg/PoseStamped",
    "/things": "geometry_msgs/msg/PoseArray",
    "/zones": "geometry_msgs/msg/PoseArray",
    "/instruction": "std_msgs/msg/String",
    "/policy/action": "std_msgs/msg/Float32MultiArray",
    "/policy/base_action": "std_msgs/msg/Float32MultiArray",
    "/policy/own_action": "std_msgs/msg/Float32MultiArray",
    "/policy/command": "std_msgs/msg/Float32MultiArray",
    "/gantry/status": "diagnostic_msgs/msg/DiagnosticArray",
    "/gantry/event": "std_msgs/msg/String",
    "/tf": "tf2_msgs/msg/TFMessage",
    "/tf_static": "tf2_msgs/msg/TFMessage",
    "/robot_description": "std_msgs/msg/String",
}
"""Topics of a recording and their types, each there from its first message on. What nodes publish has the name and the
type that it has there; ``/goal_command`` and what is under ``/policy`` and ``/gantry`` is only recorded.
``/joint_command`` is what was sent: five numbers per joint in ``position``, each named ``<joint>/<interface>``.
``/cmd_vel`` is what was asked for, or ``/goal_command`` where goals are, and ``/policy/command`` that, shaped.
``/elevation_map`` is the map that the policy looked at, whenever a number of it has changed; its stamp is that of its
newest frame, and ``/gantry/status`` says in each tick how old that was. ``/object_goal`` and ``/object_pose`` are an
arm's, as are ``/things`` and ``/zones`` beside the ``/instruction`` that a policy followed; ``/policy/base_action`` is
what a residual policy corrected. ``/policy/own_action`` is what the policy wanted
in a tick in which a person corrected it, whose action is ``/policy/action`` then. ``/gantry/event`` marks
beginning and end of each attempt of a session, by the names of :class:`gantry_deploy.teleop.operator.TeleopEvent`.
``/tf`` are the base and the links at :data:`gantry_deploy.recording.frames.RATE_HZ`. Pictures are not recorded."""

SCENE_TOPICS = {"/things": THINGS_SIGNAL, "/zones": ZONES_SIGNAL}
"""Topics of what a policy that is told in words sees, and their signals."""
EVENT_NOTE = "event"
"""Note of a policy step that is recorded as ``/gantry/event``."""
_SAID_ONCE = ("/tf_static", "/robot_description")
_RELIABLE = 1
_VOLATILE, _TRANSIENT_LOCAL = 2, 1
_ENDLESS = "    sec: 9223372036\n    nsec: 854775807\n"


def offered_qos(topic: str) -> str:
    """Quality of service of a topic as rosbag2 stores it, in the numbers that every release of it reads."""
    durability = _TRANSIENT_LOCAL if topic in _SAID_ONCE else _VOLATILE
    return (
        f"- history: 1\n  depth: 1\n  reliability: {_RELIABLE}\n  durability: {durability}\n"
        f"  deadline:\n{_ENDLESS}  lifespan:\n{_ENDLESS}  liveliness: 1\n  liveliness_lease_duration:\n{_ENDLESS}"
        "  avoid_ros_namespace_conventions: false\n"
    )


class Recorder:
    """Writes one recording.

    Args:
        path: The ``.mcap`` file; its folder exists, an older file is replaced.
        contract: Stored in the recording's metadata; None without a policy.
        spec: The robot.
        queue_size: Reports that may wait; 1000 are 20 s at 50 Hz.
        chunk_bytes: Data that is written at once; a killed process loses at most this much.
        lossless: Wait for the disk instead of dropping reports, for robots whose clock waits too.
        map_source: That of the loop, for a policy that looks at a map.

    Raises:
        RecordingError: If the file cannot be opened.
    """

    def __init__(
        self,
        path: str | Path,
        contract: PolicyContract | None,
        spec: RobotSpec,
        *,
        queue_size: int = 1000,
        chunk_bytes: int = 256 * 1024,
        lossless: bool = False,
        map_source: MapSource | None = None,
    ) -> None:
        self.path = Path(path)
        self.dropped = 0
        """Reports that were lost because the disk was too slow, or after it had failed."""
        self.failure: str | None = None
        """Why the recording ended early, or None."""
        self._spec = spec
        self._contract = contract
        self._command_names = ros_messages.command_names(spec)
        self._command_zeros = np.zeros(len(self._command_names))
        self._frames = RecordedFrames(spec)
        self._channels: dict[str, int] = {}
        self._schemas: dict[str, int] = {}
        self._clock_offset_ns: int | None = None
        self._reports = 0
        self._queue: queue.Queue[tuple[TickReport, MapSnapshot | None] | None] = queue.Queue(queue_size)
        self._map_source = map_source
        self._map: MapSnapshot | None = None
        self._lossless = lossless
        self._closed = self._ended = False
        try:
            self._sink = Sink(self.path)
        except OSError as error:
            raise RecordingError(f"The recording {self.path} cannot be opened: {error.strerror}.") from error
        self._writer = Writer(
            self._sink,  # type: ignore[arg-type]
            chunk_size=chunk_bytes,
            compression=CompressionType.ZSTD,
            enable_data_crcs=True,  # Of all that is in no chunk.
        )
        self._thread = threading.Thread(target=self._work, name="gantry-recorder", daemon=True)
        self._thread.start()

    def record(self, report: TickReport) -> None:
        """Take a report; never raises, and blocks only if lossless."""
        if self._closed or self.failure is not None:
            self.dropped += 1
            return
        newest = None if self._map_source is None else self._map_source.newest()
        news = newest if newest is not self._map else None
        if self._hand_over((report, news), patient=self._lossless):
            self._map = newest
        else:
            self.dropped += 1

    def close(self) -> None:
        """Write what waits, finish the file and wait until it is on the disk; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self._hand_over(None, patient=True)
        self._thread.join()
        if not self._ended and self.failure is None:
            self._fail("its thread died")

    def _hand_over(self, item: tuple[TickReport, MapSnapshot | None] | None, *, patient: bool) -> bool:
        """Whether the thread will get it; waits for room if patient, as long as the thread lives."""
        while self._thread.is_alive():
            try:
                self._queue.put(item, block=patient, timeout=_LOOK_S)
                return True
            except queue.Full:
                if not patient:
                    return False
        return False

    def statistics(self) -> dict[str, Any]:
        """Plain data for the loop's statistics: path, reports written, dropped, failure."""
        return {
            "path": str(self.path),
            "written": self._reports,
            "dropped": self.dropped,
            "failure": self.failure,
        }

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        """Body of the thread: write until closed; after a failure only empty the queue."""
        try:
            with contextlib.closing(self._sink):
                self._guarded(lambda: self._writer.start(profile="ros2", library="gantry"))
                while (item := self._queue.get()) is not None:
                    if self.failure is None:
                        self._guarded(lambda item=item: self._write(*item))
                    else:
                        self.dropped += 1
                if self.failure is None:
                    self._guarded(self._finish)
                self._sink.to_disk()
        except OSError as error:  # Of a disk that took what was written and then lost it.
            self._fail(f"{error.strerror or error}")
        self._ended = True

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run a step of the thread; trouble ends the recording, never the robot's loop."""
        try:
            action()
        except OSError as error:
            self._fail(f"{error.strerror or error}")
            self._sink.end_early()
        except Exception as error:  # a report that cannot be encoded, for example of another robot
            self._fail(f"{type(error).__name__}: {error}")
            try:
                self._finish()
            except Exception:
                self._sink.end_early()

    def _finish(self) -> None:
        if self._clock_offset_ns is not None:
            self._writer.add_metadata(METADATA, sealed(self._metadata()))  # Once more, should the first be damaged.
        self._writer.finish()

    def _fail(self, reason: str) -> None:
        if self.failure is not None:
            return
        self.failure = (
            f"The recording {self.path} {LOST_RECORDING} {self._reports} ticks: {reason}. The robot is not affected."
        )
        _LOG.error(self.failure)

    def _write(self, report: TickReport, news: MapSnapshot | None) -> None:
        first = self._clock_offset_ns is None
        if first:
            # Robots count from their start; viewers and ROS want the time of day.
            self._clock_offset_ns = time.time_ns() - int(report.time_s * 1e9)
            self._writer.add_metadata(METADATA, sealed(self._metadata()))
        now_ns = self._ns(report.time_s)
        messages = self._frames.first(now_ns) if first else {}
        messages |= self._messages(report, now_ns)
        if news is not None:
            messages["/elevation_map"] = ros_messages.elevation_map(self._map_stamp_ns(news, now_ns), news)
        for topic, data in messages.items():
            self._writer.add_message(self._channel(topic), now_ns, data, now_ns, self._reports)
        self._reports += 1

    def _map_stamp_ns(self, news: MapSnapshot, now_ns: int) -> int:
        """The map's own stamp; one that was received has that of its maker's clock already."""
        if not abs(news.stamp_s) < 2.0**31:
            return now_ns
        return self._ns(news.stamp_s) if isinstance(self._map_source, OwnMap) else round(news.stamp_s * 1e9)

    def _channel(self, topic: str) -> int:
        """The topic's channel, described when its first message comes."""
        if topic not in self._channels:
            kind = TOPICS[topic]
            if kind not in self._schemas:
                definition = ros_messages.DEFINITIONS[kind].encode()
                self._schemas[kind] = self._writer.register_schema(kind, "ros2msg", definition)
            quality = {"offered_qos_profiles": offered_qos(topic)}
            self._channels[topic] = self._writer.register_channel(topic, "cdr", self._schemas[kind], quality)
        return self._channels[topic]

    def _metadata(self) -> dict[str, str]:
        return {
            "format": FORMAT,
            "robot": self._spec.name,
            "joint_names": ",".join(self._spec.joint_names),
            "clock_offset_ns": str(self._clock_offset_ns),
            "contract": "" if self._contract is None else self._contract.to_json(),
            **map_metadata(self._map_source),
        }

    def _messages(self, report: TickReport, now_ns: int) -> dict[str, bytes]:
        messages = {"/gantry/status": self._status(report, now_ns)}
        if report.state is not None:
            messages |= self._state_messages(report.state, now_ns)
            messages |= self._frames.due(report.time_s, now_ns, report.state)
        if report.sent is not None:
            zeros = self._command_zeros
            messages["/joint_command"] = ros_messages.joint_state(
                now_ns, self._command_names, ros_messages.command_values(report.sent), zeros, zeros
            )
        if self._contract is not None and self._contract.command.kind == OBJECT_GOAL:
            messages["/object_goal"] = ros_messages.pose(now_ns, report.requested, _UPRIGHT)
        elif report.requested.shape == (3,):
            x, y, yaw = report.requested.tolist()
            messages["/cmd_vel"] = ros_messages.twist((x, y, 0.0), (0.0, 0.0, yaw))
        elif report.requested.shape == (4,):
            messages["/goal_command"] = ros_messages.float32_array("goal", report.requested)
        if report.step is not None:
            if event := report.step.notes.get(EVENT_NOTE):
                messages["/gantry/event"] = ros_messages.string(event)
            if report.step.instruction:
                messages["/instruction"] = ros_messages.string(report.step.instruction)
            for name in ("observation", "action", "command"):
                messages[f"/policy/{name}"] = ros_messages.float32_array(name, getattr(report.step, name))
            if report.step.base_action is not None:
                messages["/policy/base_action"] = ros_messages.float32_array("base_action", report.step.base_action)
            if report.step.policy_action is not None:
                messages["/policy/own_action"] = ros_messages.float32_array("own_action", report.step.policy_action)
        return messages

    def _state_messages(self, state: RobotState, now_ns: int) -> dict[str, bytes]:
        stamp_ns = self._ns(state.stamp_s) if math.isfinite(state.stamp_s) else now_ns
        quat, ang_vel = state.quat_base_to_world_wxyz, state.ang_vel_base_in_base_rad_s
        messages = {
            "/joint_states": ros_messages.joint_state(
                stamp_ns, self._spec.joint_names, state.joint_pos_rad, state.joint_vel_rad_s, state.joint_effort_nm
            ),
            "/imu/data": ros_messages.imu(stamp_ns, quat, ang_vel, state.lin_acc_base_in_base_m_s2),
        }
        pos, lin_vel = state.pos_base_in_world_m, state.lin_vel_base_in_base_m_s
        if pos is not None or lin_vel is not None:
            unknown = (math.nan, math.nan, math.nan)
            turn = state.quat_base_to_odom_wxyz
            messages["/odom"] = ros_messages.odometry(
                stamp_ns,
                unknown if pos is None else pos,
                quat if turn is None else turn,
                unknown if lin_vel is None else lin_vel,
                ang_vel,
            )
        if state.object_pose_in_base is not None:
            pose = state.object_pose_in_base
            messages["/object_pose"] = ros_messages.pose(stamp_ns, pose[:3], pose[3:])
        for topic, signal in SCENE_TOPICS.items():
            if signal in state.extra:
                messages[topic] = ros_messages.places(stamp_ns, state.extra[signal])
        if state.foot_contact is not None:
            messages["/foot_contacts"] = ros_messages.float32_array("foot", state.foot_contact)
        return messages

    def _status(self, report: TickReport, now_ns: int) -> bytes:
        fault, step = report.fault, report.step
        level = 2 if report.mode is Mode.DAMP else 0 if fault is None else 1
        values = {
            "mode": report.mode.value,
            "source": report.source,
            "fault_code": "" if fault is None else fault.code.value,
            "fault": "" if fault is None else fault.text,
            "period_s": repr(report.period_s),
            "busy_s": repr(report.busy_s),
            "observe_s": "nan" if step is None else repr(step.observe_s),
            "infer_s": "nan" if step is None else repr(step.infer_s),
            "dropped": str(self.dropped),
            **look_values(report.look),
            **({} if step is None else step.notes),
        }
        message = report.mode.value if fault is None else fault.text
        return ros_messages.diagnostics(now_ns, level, "gantry", message, self._spec.name, values)

    def _ns(self, time_s: float) -> int:
        return max(0, round(time_s * 1e9) + (self._clock_offset_ns or 0))
