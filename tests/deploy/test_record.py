"""Recordings: every number comes back, full disks and killed writers leave readable files, the loop never notices."""

from __future__ import annotations

import importlib
import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import yaml
from mcap.reader import make_reader
from mcap.writer import MCAP0_MAGIC
from mcap_ros2._dynamic import serialize_dynamic
from mcap_ros2.decoder import DecoderFactory

from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Mode, SafetyMachine
from gantry_deploy.errors import RecordingError
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording import ros_messages
from gantry_deploy.recording.recorder import TOPICS, Recorder, read_recording
from gantry_deploy.recording.sink import Sink
from gantry_deploy.testing.legs import contract_for, tiny_bundle, tiny_robot
from gantry_hardware import UnknownNameError
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.model.description import Frames
from gantry_mapping.elevation.snapshot import MapSnapshot

SPEC = tiny_robot()
CONTRACT = contract_for(SPEC)
ARM = {"/object_goal", "/object_pose", "/policy/base_action", "/policy/own_action", "/gantry/event"}
ARM |= {"/things", "/zones", "/instruction"}  # see tests/sim/manipulation/language/test_demo_words.py
LOOKS = {"/tf", "/tf_static", "/robot_description"}
"""What is only for viewers, and is not read back."""
WALKED = set(TOPICS) - {"/elevation_map", "/goal_command", *ARM, *LOOKS}
"""Topics of a policy that follows velocities and looks at no map."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return tiny_bundle(tmp_path_factory.mktemp("bundle"))


def drive(bundle, recorder, seconds=1.0):
    """Stand up, walk, be damped; every report of it."""
    robot = MockRobot(SPEC, joint_pos_rad=np.array([0.0, 0.1, 0.2, 0.3]))
    robot.connect()
    robot.sleep_until(1000.0)
    loop, reports = Controller(robot, PolicyRunner(bundle, SPEC), SafetyMachine(SPEC), recorder), []
    loop.run(0.1, on_tick=reports.append)
    loop.request("stand")
    loop.run(2.1, on_tick=reports.append)
    loop.request("start")
    loop.run(seconds, lambda t: (0.5, -0.1, t), on_tick=reports.append)
    robot.set_tilt(1.3)
    loop.run(0.1, on_tick=reports.append)
    return loop, reports


def test_every_number_comes_back(bundle, tmp_path):
    with Recorder(tmp_path / "run.mcap", CONTRACT, SPEC, lossless=True) as recorder:
        _, reports = drive(bundle, recorder)
    recording = read_recording(tmp_path / "run.mcap")
    assert recording.complete
    assert (recording.robot, recording.joint_names, recording.contract) == ("tiny", SPEC.joint_names, CONTRACT)
    assert recording.duration_s == pytest.approx(reports[-1].time_s - reports[0].time_s, abs=1e-8)
    assert set(recording.topics) == WALKED
    expected = {
        "/joint_states": ("state", ("joint_pos_rad", "joint_vel_rad_s", "joint_effort_nm")),
        "/imu/data": ("state", ("quat_base_to_world_wxyz", "ang_vel_base_in_base_rad_s", "lin_acc_base_in_base_m_s2")),
        "/odom": ("state", ("pos_base_in_world_m", "quat_base_to_world_wxyz", "lin_vel_base_in_base_m_s")),
        "/joint_command": ("sent", ("pos_rad", "vel_rad_s", "effort_nm", "stiffness_nm_rad", "damping_nm_s_rad")),
    }
    for topic, (part, names) in expected.items():
        for name in names:
            np.testing.assert_array_equal(
                recording[topic][name], [getattr(getattr(report, part), name) for report in reports], err_msg=name
            )
    np.testing.assert_array_equal(recording["/cmd_vel"]["command"], [report.requested for report in reports])
    np.testing.assert_array_equal(recording["/foot_contacts"]["data"], np.ones((len(reports), 2)))
    steps = [report for report in reports if report.step is not None]
    for name in ("observation", "action", "command"):
        found = recording[f"/policy/{name}"]
        np.testing.assert_array_equal(found["data"], [getattr(report.step, name) for report in steps])
        np.testing.assert_allclose(found["time_s"], [report.time_s for report in steps], atol=1e-8)
    status = recording["/gantry/status"]
    assert status["mode"].tolist() == [report.mode.value for report in reports]
    assert set(status["mode"]) == {mode.value for mode in Mode}
    assert status["fault"][-1] == reports[-1].fault.text
    assert status["fault_code"][-1] == "tilt"
    for name in ("period_s", "busy_s"):
        np.testing.assert_array_equal(status[name], [getattr(report, name) for report in reports])
    np.testing.assert_allclose(status["time_s"], [report.time_s for report in reports], atol=1e-8)
    np.testing.assert_allclose(
        recording["/imu/data"]["stamp_s"], [report.state.stamp_s for report in reports], atol=1e-8
    )


def test_other_readers_find_standard_messages_in_order(bundle, tmp_path):
    with Recorder(tmp_path / "run.mcap", CONTRACT, SPEC, lossless=True) as recorder:
        drive(bundle, recorder, seconds=0.1)
    with open(tmp_path / "run.mcap", "rb") as stream:
        reader = make_reader(stream, decoder_factories=[DecoderFactory()])
        summary = reader.get_summary()
        assert {channel.topic for channel in summary.channels.values()} == WALKED | {"/tf"}
        assert summary.statistics.channel_message_counts
        last = 0
        for schema, channel, message, decoded in reader.iter_decoded_messages():
            assert schema.name == TOPICS[channel.topic]
            assert message.log_time >= last
            last = message.log_time
            if channel.topic == "/joint_command":
                assert decoded.name[:6] == [
                    f"left_hip_joint/{name}" for name in ("position", "velocity", "effort", "stiffness", "damping")
                ] + ["left_knee_joint/position"]
                assert len(decoded.name) == len(decoded.position) == len(decoded.velocity) == len(decoded.effort) == 20
            if channel.topic == "/imu/data":
                assert decoded.header.frame_id == "base_link"
                stamp = decoded.header.stamp.sec * 10**9 + decoded.header.stamp.nanosec
                assert stamp == message.log_time
    # The clock of the day, so that viewers show when it happened.
    assert abs(last * 1e-9 - os.path.getmtime(tmp_path / "run.mcap")) < 60.0


def xyz(values):
    return dict(zip("xyz", values, strict=True))


def level_map(cells, height_m=0.25, variance_m2=0.5):
    """Ground of one height from (-1, 2) on, in cells of half a metre."""
    return MapSnapshot(np.full((cells, cells), height_m), np.full((cells, cells), variance_m2), (-1.0, 2.0), 0.5)


def cloud_of(snapshot):
    """The cloud of a level map, cell by cell."""
    count = snapshot.cells
    points = [(-0.75 + 0.5 * i, 2.25 + 0.5 * j, 0.25, 0.5) for i in range(count) for j in range(count)]
    fields = [
        {"name": name, "offset": 4 * i, "datatype": 7, "count": 1} for i, name in enumerate(("x", "y", "z", "variance"))
    ]
    return {
        "height": count,
        "width": count,
        "fields": fields,
        "is_bigendian": False,
        "point_step": 16,
        "row_step": 16 * count,
        "data": np.array(points, "<f4").tobytes(),
        "is_dense": True,
    }


def transforms_of(stamp, parents, children, *parts):
    """A message of frames as a dictionary."""
    rows = [row for part in parts for row in zip(part.pos_m.tolist(), part.quat_wxyz.tolist(), strict=True)]
    frames = []
    for parent, child, (pos, quat) in zip(parents, children, rows, strict=True):
        transform = {"translation": xyz(pos), "rotation": {**xyz(quat[1:]), "w": quat[0]}}
        header = {"stamp": stamp, "frame_id": parent}
        frames.append({"header": header, "child_frame_id": child, "transform": transform})
    return {"transforms": frames}


def encoder_cases(n):
    """Of each message type what our encoder wrote, and the message as a dictionary for the other one."""
    rng = np.random.default_rng(n)
    stamp = {"sec": 1_700_000_000, "nanosec": 123_456_789}
    stamp_ns = stamp["sec"] * 10**9 + stamp["nanosec"]
    headers = {frame: {"header": {"stamp": stamp, "frame_id": frame}} for frame in ("", "base_link", "odom")}
    pos, vel, effort = rng.normal(size=(3, n)).tolist()
    names = [f"joint_{'x' * i}" for i in range(n)]
    quat, a, b, c = rng.normal(size=4).tolist(), *rng.normal(size=(3, 3)).tolist()
    orientation = {**xyz(quat[1:]), "w": quat[0]}
    covariances = ("orientation", "angular_velocity", "linear_acceleration")
    joints = {"name": names, "position": pos, "velocity": vel, "effort": effort}
    imu = {"orientation": orientation, "angular_velocity": xyz(a), "linear_acceleration": xyz(b)}
    odometry = {
        "child_frame_id": "base_link",
        "pose": {"pose": {"position": xyz(a), "orientation": orientation}, "covariance": [0.0] * 36},
        "twist": {"twist": {"linear": xyz(b), "angular": xyz(c)}, "covariance": [0.0] * 36},
    }
    status = {"level": 2, "name": "gantry", "message": "Ünicode", "hardware_id": "tiny"}
    values = {"a": "1", "longer": "text"}
    pairs = [{"key": key, "value": value} for key, value in values.items()]
    layout = {"dim": [{"label": "label", "size": n, "stride": n}], "data_offset": 0}
    frames = Frames(tuple(names), ("",) * n, rng.normal(size=(n, 3)), rng.normal(size=(n, 4)))
    places = rng.normal(size=(n, 3)).tolist()
    poses = [{"position": xyz(row), "orientation": {**xyz((0.0,) * 3), "w": 1.0}} for row in places]
    base = Frames(("odom",), ("base_link",), np.array([a]), np.array([quat]))
    encoded = {
        "sensor_msgs/msg/JointState": ros_messages.joint_state(stamp_ns, names, pos, vel, effort),
        "sensor_msgs/msg/Imu": ros_messages.imu(stamp_ns, quat, a, b),
        "nav_msgs/msg/Odometry": ros_messages.odometry(stamp_ns, a, quat, b, c),
        "geometry_msgs/msg/Twist": ros_messages.twist(a, b),
        "geometry_msgs/msg/PoseStamped": ros_messages.pose(stamp_ns, a, quat),
        "geometry_msgs/msg/PoseArray": ros_messages.places(stamp_ns, places),
        "std_msgs/msg/String": ros_messages.string("Ünicode" * n),
        "tf2_msgs/msg/TFMessage": ros_messages.transforms(stamp_ns, frames, base),
        "std_msgs/msg/Float32MultiArray": ros_messages.float32_array("label", pos),
        "sensor_msgs/msg/PointCloud2": ros_messages.elevation_map(stamp_ns, level_map(n + 1)),
        "diagnostic_msgs/msg/DiagnosticArray": ros_messages.diagnostics(stamp_ns, *status.values(), values),
    }
    messages = {
        "sensor_msgs/msg/JointState": {**headers[""], **joints},
        "sensor_msgs/msg/Imu": {**headers["base_link"], **imu, **{f"{k}_covariance": [0.0] * 9 for k in covariances}},
        "nav_msgs/msg/Odometry": {**headers["odom"], **odometry},
        "geometry_msgs/msg/Twist": {"linear": xyz(a), "angular": xyz(b)},
        "geometry_msgs/msg/PoseStamped": {
            **headers["base_link"],
            "pose": {"position": xyz(a), "orientation": orientation},
        },
        "geometry_msgs/msg/PoseArray": {**headers["base_link"], "poses": poses},
        "std_msgs/msg/String": {"data": "Ünicode" * n},
        "tf2_msgs/msg/TFMessage": transforms_of(stamp, (*names, "odom"), ("",) * n + ("base_link",), frames, base),
        "std_msgs/msg/Float32MultiArray": {"layout": layout, "data": np.float32(pos).tolist()},
        "sensor_msgs/msg/PointCloud2": {**headers["odom"], **cloud_of(level_map(n + 1))},
        "diagnostic_msgs/msg/DiagnosticArray": {**headers[""], "status": [{**status, "values": pairs}]},
    }
    return {kind: (encoded[kind], message) for kind, message in messages.items()}


@pytest.mark.parametrize("n", [0, 1, 3, 12])
@pytest.mark.parametrize("kind", ros_messages.DEFINITIONS)
def test_the_encoders_write_what_an_independent_encoder_writes(kind, n):
    found, message = encoder_cases(n)[kind]
    assert found == serialize_dynamic(kind, ros_messages.DEFINITIONS[kind])[kind](message)


def test_ros_itself_reads_the_messages(bundle, tmp_path):
    pytest.importorskip("rclpy")
    from rclpy.serialization import deserialize_message

    with Recorder(tmp_path / "run.mcap", CONTRACT, SPEC, lossless=True) as recorder:
        _, reports = drive(bundle, recorder, seconds=0.1)
    newest = {}
    with (tmp_path / "run.mcap").open("rb") as stream:
        for schema, channel, message in make_reader(stream).iter_messages():
            package, _, name = schema.name.split("/")
            if package == "tf2_msgs":
                continue  # It is not among the wheels.
            kind = getattr(importlib.import_module(f"{package}.msg"), name)
            newest[channel.topic] = deserialize_message(message.data, kind)
    assert set(newest) == WALKED
    state = reports[-1].state
    assert newest["/joint_states"].name == list(SPEC.joint_names)
    assert newest["/joint_states"].position.tolist() == state.joint_pos_rad.tolist()
    orientation = newest["/odom"].pose.pose.orientation
    quat = [orientation.w, orientation.x, orientation.y, orientation.z]
    assert quat == state.quat_base_to_world_wxyz.tolist()
    assert newest["/imu/data"].linear_acceleration.z == state.lin_acc_base_in_base_m_s2[2]
    assert newest["/cmd_vel"].linear.y == -0.1
    assert newest["/policy/observation"].layout.dim[0].label == "observation"
    assert newest["/gantry/status"].status[0].level == b"\x02"
    assert newest["/gantry/status"].status[0].message == reports[-1].fault.text


class Maps:
    """A source whose map changes twice."""

    def __init__(self, *news):
        self._news = iter(news)

    def newest(self):
        return next(self._news)


def test_a_map_is_recorded_once_per_news_and_a_goal_at_every_tick(bundle, tmp_path):
    """Of six ticks the first has no map, two share one, and the last three another."""
    _, reports = drive(bundle, None, seconds=0.2)
    low, high = level_map(3), level_map(2, 1.5)
    source = Maps(None, low, low, high, high, high)
    ticks = [replace(report, requested=np.array([2.0, -1.0, 0.0, 1.0])) for report in reports[-6:]]
    with Recorder(tmp_path / "run.mcap", CONTRACT, SPEC, lossless=True, map_source=source) as recorder:
        for report in ticks[:3]:
            recorder.record(report)
    maps = read_recording(tmp_path / "run.mcap")["/elevation_map"]
    assert maps["points"].shape == (1, 3, 3, 4)
    np.testing.assert_array_equal(maps["points"][0, 2, 1], [0.25, 2.75, 0.25, 0.5])
    np.testing.assert_allclose(maps["time_s"], [ticks[1].time_s], atol=1e-8)
    with Recorder(tmp_path / "run.mcap", CONTRACT, SPEC, lossless=True, map_source=source) as recorder:
        for report in ticks[3:]:
            recorder.record(report)
    recording = read_recording(tmp_path / "run.mcap")
    assert recording["/elevation_map"]["points"][0, ..., 2].tolist() == [[1.5, 1.5], [1.5, 1.5]]
    np.testing.assert_array_equal(recording["/goal_command"]["data"], [[2.0, -1.0, 0.0, 1.0]] * 3)
    assert "/cmd_vel" not in recording.topics


def test_a_disk_that_is_full_at_once_leaves_one_message_and_a_walking_robot(bundle, caplog):
    with Recorder("/dev/full", CONTRACT, SPEC) as recorder:
        loop, reports = drive(bundle, recorder)
    assert loop.safety.fault.code == "tilt"
    assert {report.mode for report in reports} == set(Mode)
    assert recorder.failure is not None
    assert "No space left on device. The robot is not affected." in recorder.failure
    assert [record.getMessage() for record in caplog.records] == [recorder.failure]
    assert recorder.dropped == len(reports)
    assert loop.statistics()["recorder"]["failure"] == recorder.failure


def test_a_disk_that_fills_up_keeps_what_was_written(bundle, tmp_path, caplog):
    path = tmp_path / "run.mcap"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    recorder = Recorder(path, CONTRACT, SPEC, chunk_bytes=16 * 1024, lossless=True)
    try:
        # A limit on the size of files stands in for a full disk; Python turns it into an OSError.
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
        _, reports = drive(bundle, recorder, seconds=20.0)
        recorder.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "ended early after" in recorder.failure
    assert len(caplog.records) == 1
    assert path.stat().st_size <= 60_000
    recording = read_recording(path)
    kept = len(recording["/gantry/status"]["time_s"])
    assert 50 < kept < len(reports)
    np.testing.assert_array_equal(
        recording["/joint_states"]["joint_pos_rad"], [report.state.joint_pos_rad for report in reports[:kept]]
    )
    # A reader that insists on a proper end of the file is content as well.
    with path.open("rb") as stream:
        assert sum(1 for _ in make_reader(stream).iter_messages(topics=["/gantry/status"])) == kept


@pytest.mark.parametrize(("room", "kept"), [(150, 100), (149, 60), (60, 0)])
def test_a_failed_write_is_undone_and_the_end_finds_room(tmp_path, room, kept):
    # The shortest end of a file is 50 bytes; what does not fit before it is given up, one write at a time.
    path = tmp_path / "file"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    sink = Sink(path)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        with pytest.raises(OSError, match="too large"):
            list(map(sink.write, (bytes([size]) * size for size in (60, 40, 100))))
        sink.end_early()
        sink.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    data = path.read_bytes()
    if kept == 0:
        assert data == bytes([60]) * 60, "the first write, which holds the head of the file, is never given up"
        return
    assert data[:kept] == (bytes([60]) * 60 + bytes([40]) * 40)[:kept]
    assert len(data) == kept + 50
    assert data.endswith(MCAP0_MAGIC)


def test_a_killed_writer_leaves_all_but_the_last_moments(tmp_path):
    script = f"""
import sys, time
sys.path.insert(0, {os.path.dirname(__file__)!r})
from pathlib import Path
from gantry_deploy.testing.legs import *
from gantry_deploy.recording.recorder import Recorder
from test_record import drive, CONTRACT, SPEC
bundle = tiny_bundle(Path({str(tmp_path)!r}) / "bundle")
recorder = Recorder({str(tmp_path / "run.mcap")!r}, CONTRACT, SPEC, chunk_bytes=16 * 1024, lossless=True)
drive(bundle, recorder, seconds=10.0)
while recorder.statistics()["written"] < 600:
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    recording = read_recording(tmp_path / "run.mcap")
    assert not recording.complete
    assert recording.contract == CONTRACT
    assert 500 < len(recording["/gantry/status"]["time_s"]) <= 615


def test_a_disk_that_is_too_slow_costs_reports_which_are_counted(bundle, tmp_path, monkeypatch):
    recorder = Recorder(tmp_path / "run.mcap", CONTRACT, SPEC, queue_size=10)
    write = recorder._write
    gate = threading.Event()
    monkeypatch.setattr(recorder, "_write", lambda *item: (gate.wait(), write(*item)))
    loop, reports = drive(bundle, recorder)
    gate.set()
    recorder.close()
    assert loop.safety.fault.code == "tilt"
    # One report is being written, ten wait.
    assert recorder.dropped in (len(reports) - 11, len(reports) - 10)
    assert recorder.statistics()["written"] + recorder.dropped == len(reports)
    assert read_recording(tmp_path / "run.mcap").complete


def test_a_report_that_cannot_be_encoded_ends_the_recording_not_the_loop(bundle, tmp_path, caplog):
    with Recorder(tmp_path / "run.mcap", CONTRACT, SPEC, lossless=True) as recorder:
        _, reports = drive(bundle, recorder, seconds=0.1)
        recorder.record(replace(reports[0], state=replace(reports[0].state, joint_pos_rad="nonsense")))
        recorder.record(reports[0])
    assert "ended early after" in recorder.failure
    assert recorder.dropped == 1
    assert len(read_recording(tmp_path / "run.mcap")["/joint_states"]["time_s"]) == len(reports)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("lossless", [False, True])
def test_a_recorder_whose_thread_died_neither_blocks_nor_keeps_silent(bundle, tmp_path, monkeypatch, lossless):
    _, reports = drive(bundle, None, seconds=0.1)
    recorder = Recorder(tmp_path / "run.mcap", CONTRACT, SPEC, queue_size=3, lossless=lossless)
    gate = threading.Event()

    def die(*_):
        gate.wait()
        raise SystemExit  # Past everything that catches errors.

    monkeypatch.setattr(recorder, "_write", die)
    for report in reports[:4]:
        recorder.record(report)
    gate.set()
    recorder._thread.join()
    for report in reports[:10]:
        recorder.record(report)  # The queue is full, and nothing empties it any more.
    recorder.close()
    assert "its thread died" in recorder.failure
    assert recorder.dropped >= 10


def test_a_recording_is_on_the_disk_when_it_is_closed(bundle, tmp_path, monkeypatch):
    """Both the file and its name in the folder; a disk that then refuses has lost it, which is said."""
    synced, fsync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda number: (synced.append(os.readlink(f"/proc/self/fd/{number}")), fsync(number))
    )
    with Recorder(tmp_path / "run.mcap", CONTRACT, SPEC, lossless=True) as recorder:
        drive(bundle, recorder, seconds=0.1)
        assert synced == [], "the loop never waits for it"
    assert synced == [str(tmp_path / "run.mcap"), str(tmp_path)]
    assert recorder.failure is None

    def refuse(number):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with Recorder(tmp_path / "run.mcap", CONTRACT, SPEC, lossless=True) as recorder:
        drive(bundle, recorder, seconds=0.1)
    assert "Input/output error" in recorder.failure


def test_a_topic_is_there_from_its_first_message_on_with_its_quality_of_service(bundle, tmp_path):
    with Recorder(tmp_path / "run.mcap", None, SPEC, lossless=True) as recorder:
        drive(bundle, recorder, seconds=0.1)
    with (tmp_path / "run.mcap").open("rb") as stream:
        summary = make_reader(stream).get_summary()
    counts = summary.statistics.channel_message_counts
    assert set(counts) == set(summary.channels)
    assert min(counts.values()) >= 1
    for channel in summary.channels.values():
        (quality,) = yaml.safe_load(channel.metadata["offered_qos_profiles"])
        # By rmw's numbers: keep the last one, reliable, volatile, automatic.
        for name, number in {"history": 1, "depth": 1, "reliability": 1, "durability": 2, "liveliness": 1}.items():
            assert quality[name] == number, channel.topic


def test_states_that_are_not_finite_are_recorded_as_they_are(bundle, tmp_path):
    _, reports = drive(bundle, None, seconds=0.1)
    broken = replace(reports[-1].state, stamp_s=np.nan, joint_pos_rad=np.array([np.nan, np.inf, 0, 1]))
    with Recorder(tmp_path / "run.mcap", None, SPEC) as recorder:
        recorder.record(replace(reports[-1], state=broken))
        recorder.record(replace(reports[-1], state=None, sent=None))
    assert recorder.failure is None
    recording = read_recording(tmp_path / "run.mcap")
    np.testing.assert_array_equal(recording["/joint_states"]["joint_pos_rad"], [[np.nan, np.inf, 0, 1]])
    assert len(recording["/gantry/status"]["mode"]) == 2
    assert recording.contract is None


def test_recordings_that_cannot_be_opened_or_read_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match="cannot be opened"):
        Recorder(tmp_path / "file" / "run.mcap", CONTRACT, SPEC)
    with pytest.raises(RecordingError, match="No such file or directory"):
        Recorder(tmp_path / "missing" / "run.mcap", CONTRACT, SPEC)
    with pytest.raises(RecordingError, match="cannot be opened: Is a directory"):
        Recorder(tmp_path, CONTRACT, SPEC)
    with pytest.raises(RecordingError, match="cannot be read: No such file"):
        read_recording(tmp_path / "nothing.mcap")
    for content in (b"", b"hello", bytes(100)):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(RecordingError, match="no recording of Gantry"):
            read_recording(tmp_path / "file")


def test_a_topic_that_was_not_recorded_is_answered_with_the_list(bundle, tmp_path):
    with Recorder(tmp_path / "run.mcap", CONTRACT, SPEC) as recorder:
        drive(bundle, recorder, seconds=0.1)
    recorder.close()
    with pytest.raises(UnknownNameError, match=r"Did you mean '/joint_states'\?"):
        read_recording(tmp_path / "run.mcap")["/joint_state"]
