"""Choosing depth sources, where cameras are, recordings, and what becomes of bad images."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.cli.main import main
from gantry_deploy.commission.site import CommissionCfg, Site
from gantry_deploy.commission.still import check_camera
from gantry_deploy.contract.policy_contract import MapWindow
from gantry_deploy.depth.attached import SeeingRobot, open_depth, with_depth
from gantry_deploy.depth.inbox import ClockMatch, ImageInbox, ImageOutcome
from gantry_deploy.depth.recorded import Recorded, RecordedSource, save_images
from gantry_deploy.depth.registry import make_source, parse_choice, source_names
from gantry_deploy.depth.site import (
    CameraSite,
    Intrinsics,
    load_site,
    mount_of,
    mount_of_pose,
    product,
    quat_of_matrix,
    quat_of_rpy,
    save_site,
)
from gantry_deploy.depth.source import CameraMount, DepthError
from gantry_deploy.observations.builder import make_term
from gantry_deploy.perception.maps import make_map_source
from gantry_deploy.testing.legs import contract_for, map_contract_for, tiny_bundle, tiny_robot
from gantry_fixtures.depth import floor_depth
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.model.capabilities import HasDepthCameras, HasElevationMap, HasReset, capability
from gantry_hardware.robots import robot_spec
from gantry_mapping.errors import MappingError
from gantry_mapping.sensing.camera import REALSENSE_LIKE, DepthCamera, pitched_down_quat_wxyz
from gantry_mapping.sensing.frames import rotation_matrix
from gantry_mapping.sensing.units import require_metres

SPEC = tiny_robot()
WINDOW = MapWindow(6, 4, 0.1, 0.9, 0.0, ("elevation", "uncertainty"), 0.3)
FORWARD = (0.5, -0.5, 0.5, -0.5)
CAMERA = DepthCamera.from_fov(64, 48, math.radians(90), pos_camera_in_base_m=(0.3, 0.0, 0.1), pitch_down_rad=0.7)


# -- names, options, mounts --------------------------------------------------------------------------------------------


def test_sources_are_chosen_by_name_and_options():
    assert {"realsense", "recorded", "ros"} <= set(source_names())
    name, options = parse_choice("realsense, serial=0042,decimate=2,spatial=true,site=a.yaml")
    assert (name, options) == (
        "realsense",
        {"serial": "0042", "decimate": 2, "spatial": True, "site": "a.yaml"},
    )
    for text, what in (
        ("recorded,path", "not of the form key=value"),
        ("recorded,path=a,path=b", "given twice"),
        ("recordet,path=a", "Did you mean 'recorded'"),
        ("recorded,pat=a", "Did you mean 'path'"),
        ("recorded,path=a,start_s=early", "'start_s' of depth source 'recorded' is 'early', expected a number"),
        ("recorded,path=a,repeat=1", "expected true or false"),
        ("recorded", "needs path=BAG"),
        ("recorded,path=a,max_range_m=3", "where the camera is must be given too"),
        ("recorded,path=a,site=x.yaml,pose=1 2 3 4 5 6", "give one of them"),
        ("recorded,path=a,site=x.yaml", "There is no camera file x.yaml"),
        ("recorded,path=a,pose=1 2 3", "has 3 numbers, expected six"),
        ("recorded,path=a,pose=here", "expected six numbers"),
        ("recorded,path=a,pose=0 0 0 0 0 0,min_range_m=5", "expected near < far"),
    ):
        with pytest.raises((DepthError, UnknownNameError), match=what):
            make_source(*parse_choice(text))


def test_the_pose_of_a_camera_that_looks_down_is_that_of_its_pitch():
    mount = mount_of_pose((0.32, 0.0, 0.06, 0.0, 0.5, 0.0))
    np.testing.assert_allclose(mount.quat_camera_to_base_wxyz, pitched_down_quat_wxyz(0.5), atol=1e-12)
    quat = product(quat_of_rpy(0.3, -1.1, 2.0), quat_of_rpy(-0.4, 0.2, 0.9))
    one, two = (rotation_matrix(np.array([q]))[0] for q in (quat_of_rpy(0.3, -1.1, 2.0), quat_of_rpy(-0.4, 0.2, 0.9)))
    np.testing.assert_allclose(rotation_matrix(np.array([quat]))[0], one @ two, atol=1e-12)
    np.testing.assert_allclose(np.abs(np.dot(quat_of_matrix(one @ two), quat)), 1.0, atol=1e-12)


def test_a_cameras_file_survives_and_is_read_strictly(tmp_path):
    path = tmp_path / "front.yaml"
    lens = Intrinsics(848, 480, 421.5, 421.7, 424.1, 239.2)
    site = CameraSite("front", "0042", lens, (0.3, 0.0, 0.1), FORWARD, calibration={"pose": {"rms_px": 0.1}})
    save_site(path, site)
    assert load_site(path) == replace(site, calibration={"pose": {"rms_px": 0.1}})
    mount = mount_of(load_site(path), "front.yaml")
    assert (mount.serial, mount.calibrated.fx) == ("0042", 421.5)
    half = mount.camera(DepthCamera(424, 240, 1.0, 1.0, 0.0, 0.0), "it")
    assert (half.fx, half.cx) == (421.5 / 2, (424.1 + 0.5) / 2 - 0.5)
    path.write_text("serail: 3\n")
    with pytest.raises(DepthError, match="Did you mean 'serial'"):
        load_site(path)
    path.write_text("serial: '3'\n")
    with pytest.raises(DepthError, match=r"does not say where the camera is .*gantry calibrate camera mounted"):
        mount_of(load_site(path), "front.yaml")
    with pytest.raises(DepthError, match="length 2"):
        CameraMount((0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0))


# -- stamps, sizes, units ----------------------------------------------------------------------------------------------


def test_capture_times_follow_the_least_delay_and_a_clock_that_is_set():
    match = ClockMatch(delay_s=0.01)
    assert match.capture_s(100.0, 7.05)[0] == pytest.approx(7.04)  # 50 ms on the way, as far as is known
    assert match.capture_s(100.1, 7.12)[0] == pytest.approx(7.11)  # a quicker one tells more
    late, outcome = match.capture_s(100.2, 7.42)
    assert late == pytest.approx(7.21)
    assert outcome is ImageOutcome.TAKEN
    assert match.capture_s(100.2, 7.45)[1] is ImageOutcome.REPEATED
    back, outcome = match.capture_s(3.0, 7.5)
    assert outcome is ImageOutcome.CLOCK_SET
    assert back == pytest.approx(7.49)
    assert match.capture_s(3.1, 7.6)[0] == pytest.approx(7.59)
    ahead, outcome = match.capture_s(5000.0, 7.7)
    assert outcome is ImageOutcome.CLOCK_SET
    assert ahead == pytest.approx(7.69)


def test_a_drifting_clock_is_followed():
    """200 ppm for ten minutes are 120 ms; the newest ten seconds are 2 ms off."""
    match = ClockMatch()
    for k in range(18_000):
        capture, _ = match.capture_s(k / 30.0 * (1.0 + 2e-4), k / 30.0 + 0.01)
    assert capture == pytest.approx(17_999 / 30.0 + 0.01, abs=0.003)


def test_images_of_another_size_or_unit_or_without_time_are_refused_and_said(caplog):
    inbox = ImageInbox("eye")
    inbox.camera = CAMERA
    good = np.full((48, 64), 1.5, np.float32)
    assert inbox.put(good, 1.0, 2.0) is ImageOutcome.TAKEN
    assert inbox.put(good[:24], 1.1, 2.1) is ImageOutcome.WRONG_SIZE
    assert inbox.put(1000.0 * good, 1.2, 2.2) is ImageOutcome.WRONG_UNIT
    assert inbox.put(0.001 * good, 1.2, 2.2) is ImageOutcome.WRONG_UNIT
    assert inbox.put(good, math.nan, 2.3) is ImageOutcome.NO_TIME
    assert [image.depth_m is good for image in inbox.take(50.0)] == [True]
    texts = [record.getMessage() for record in caplog.records]
    assert any("of another size (64 x 24 pixels, expected 64 x 48)" in text for text in texts)
    assert any("they may be millimetres" in text for text in texts)
    inbox._heard_s -= 3.0
    assert "no image of eye for 3.0 s: images are without a stamp" in inbox.trouble()


def test_a_slow_reader_gets_the_newest_images():
    inbox = ImageInbox("eye")
    for k in range(10):
        inbox.put(np.full((2, 2), 1.0 + k, np.float32), float(k), float(k))
    assert [image.depth_m[0, 0] for image in inbox.take(0.0)] == [7.0, 8.0, 9.0, 10.0]
    assert inbox.counts[ImageOutcome.DROPPED] == 6


def test_units_are_judged_by_three_quarters_of_what_is_seen():
    for depth, word in ((1500.0, "millimetres"), (0.0015, "0.001")):
        with pytest.raises(MappingError, match=word):
            require_metres(np.full((4, 4), depth))
    wild = np.array([[1.5, 1.2, 1.1, 5000.0], [0.0, np.nan, np.inf, 2.0]])
    require_metres(wild)
    require_metres(np.zeros((3, 3)))


# -- recordings --------------------------------------------------------------------------------------------------------


def images_of(count, period_s=0.1, first_s=500.0):
    return [Recorded(first_s + period_s * k, np.full((48, 64), 1.0 + 0.01 * k, np.float32)) for k in range(count)]


def test_a_folder_of_images_is_replayed_by_its_stamps(tmp_path):
    save_images(tmp_path, CAMERA, images_of(3))
    save_images(tmp_path, CAMERA, images_of(3, first_s=500.3))
    source = RecordedSource(tmp_path)
    source.open()
    for name, value in vars(CAMERA).items():
        assert getattr(source.cameras[0], name) == pytest.approx(value, abs=1e-8)
    found = []
    for tick in range(40):
        found += source.read(10.0 + 0.02 * tick)
    assert [image.stamp_s for image in found] == pytest.approx([10.0 + 0.1 * k for k in range(6)])
    assert [float(image.depth_m[0, 0]) for image in found] == pytest.approx([1.0, 1.01, 1.02, 1.0, 1.01, 1.02])
    source.read(12.0)
    assert source.trouble() == f"recorded {tmp_path.name} has ended"
    again = RecordedSource(tmp_path, start_s=0.4, repeat=True)
    again.open()
    assert len([image for tick in range(100) for image in again.read(0.02 * tick)]) > 10
    assert again.trouble() == ""


def test_a_damaged_or_incomplete_recording_is_refused(tmp_path):
    for path, what in ((tmp_path / "x", "There is no recording"), (tmp_path, "There is no camera file")):
        with pytest.raises(DepthError, match=what):
            RecordedSource(path).open()
    save_images(tmp_path, CAMERA, images_of(2))
    (tmp_path / "0.npz").write_bytes(b"PK no archive")
    with pytest.raises(DepthError, match=r"holds no depth image: .*0.npz cannot be read"):
        RecordedSource(tmp_path).open()
    np.savez(tmp_path / "0.npz", stamp_s=np.zeros(2), depth=np.zeros((2, 48, 64)))
    with pytest.raises(DepthError, match="has no array depth_m; it has: depth, stamp_s"):
        RecordedSource(tmp_path).open()
    np.savez(tmp_path / "0.npz", stamp_s=np.zeros(3), depth_m=np.zeros((2, 48, 64)))
    with pytest.raises(DepthError, match=r"shape \(2, 48, 64\) and stamp_s \(3,\)"):
        RecordedSource(tmp_path).open()
    np.savez(tmp_path / "0.npz", stamp_s=np.arange(2.0), depth_m=np.full((2, 24, 64), 1.0))  # of another size
    source = RecordedSource(tmp_path)
    source.open()
    source.read(0.0)
    assert source.statistics()[f"recorded {tmp_path.name}: refused"] == 2


def test_a_bag_of_another_writer_is_replayed(tmp_path):
    rosbags = pytest.importorskip("rosbags.rosbag2")
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    kinds = store.types
    header = lambda s: kinds["std_msgs/msg/Header"](  # noqa: E731
        stamp=kinds["builtin_interfaces/msg/Time"](sec=int(s), nanosec=round(1e9 * (s % 1))), frame_id="eye"
    )
    roi = kinds["sensor_msgs/msg/RegionOfInterest"](0, 0, 0, 0, False)
    k = np.array([32.0, 0, 31.5, 0, 32.0, 23.5, 0, 0, 1.0])
    with rosbags.Writer(tmp_path / "bag", version=9) as writer:
        info = writer.add_connection("/eye/depth/camera_info", "sensor_msgs/msg/CameraInfo", typestore=store)
        image = writer.add_connection("/eye/depth/image", "sensor_msgs/msg/Image", typestore=store)
        for i in range(4):
            stamp = 900.0 + 0.05 * i
            told = kinds["sensor_msgs/msg/CameraInfo"](
                header(stamp), 48, 64, "plumb_bob", np.zeros(5), k, np.eye(3).ravel(), np.zeros(12), 0, 0, roi
            )
            writer.write(info, int(1e9 * stamp), store.serialize_cdr(told, "sensor_msgs/msg/CameraInfo"))
            pixels = np.full((48, 64), 1500 + i, "<u2")
            picture = kinds["sensor_msgs/msg/Image"](
                header(stamp), 48, 64, "16UC1", 0, 128, pixels.view(np.uint8).ravel()
            )
            writer.write(image, int(1e9 * stamp), store.serialize_cdr(picture, "sensor_msgs/msg/Image"))
    with pytest.raises(DepthError, match="A bag does not say where the camera is"):
        open_depth([f"recorded,path={tmp_path / 'bag'}"])
    with pytest.raises(UnknownNameError, match="Did you mean '/eye/depth/image'"):
        open_depth([f"recorded,path={tmp_path / 'bag'},topic=/eye/depth/imag,pose=0 0 0 0 0 0"])
    (source,) = open_depth([f"recorded,path={tmp_path / 'bag'},pose=0.3 0 0.1 0 0.7 0,max_range_m=2"])
    assert (source.cameras[0].fx, source.cameras[0].max_range_m) == (32.0, 2.0)
    found = [image for tick in range(20) for image in source.read(5.0 + 0.02 * tick)]
    assert [image.stamp_s for image in found] == pytest.approx([5.0, 5.05, 5.1, 5.15])
    assert [float(image.depth_m[5, 5]) for image in found] == pytest.approx([1.5, 1.501, 1.502, 1.503])


# -- robots ------------------------------------------------------------------------------------------------------------


class Walking(MockRobot):
    """A mock robot that walks along +x with 0.5 m/s at a height of 0.25 m."""

    def read(self):
        return replace(super().read(), pos_base_in_world_m=np.array([0.5 * self.now_s(), 0.0, 0.25]))


class Remote(MockRobot):
    """A robot that passes a capability on and has an attribute of its own."""

    reset_count = 0

    def reset(self):
        super().reset()
        self.reset_count += 1


def seeing(robot, tmp_path, count=30):
    save_images(tmp_path, CAMERA, images_of(count))
    return with_depth(robot, [f"recorded,path={tmp_path}"])


def test_a_robot_that_sees_is_the_robot_in_everything_else(tmp_path):
    robot = seeing(Remote(SPEC), tmp_path)
    assert isinstance(robot, SeeingRobot)
    assert capability(robot, HasDepthCameras) is robot
    assert capability(robot, HasReset) is robot  # passed on
    assert capability(robot, HasElevationMap) is None
    before = robot.reset_count
    robot.reset()
    assert robot.reset_count == before + 1
    with pytest.raises(AttributeError):
        _ = robot.nothing_of_the_kind
    check_backend(robot)
    assert with_depth(robot, []) is robot


def test_images_come_with_the_pose_of_their_capture(tmp_path):
    robot = seeing(Walking(SPEC), tmp_path)
    robot.connect()
    frames = []
    for tick in range(60):
        robot.sleep_until(0.03 * tick)
        robot.read()
        frames += robot.read_depth()
    assert len(frames) >= 15
    for frame in frames:
        assert frame.pos_base_in_world_m[0] == pytest.approx(0.5 * frame.stamp_s, abs=1e-9)
    robot.close()


def test_a_robot_of_several_cameras_numbers_them(tmp_path):
    for name in "ab":
        save_images(tmp_path / name, CAMERA, images_of(5))
    robot = with_depth(Walking(SPEC), [f"recorded,path={tmp_path / name}" for name in "ab"])
    robot.connect()
    robot.read()
    assert sorted(frame.camera for frame in robot.read_depth()) == [0, 1]
    assert len(robot.depth_cameras) == 2


def test_a_recorded_floor_becomes_the_map_of_a_walking_robot(tmp_path):
    image = floor_depth(CAMERA, 0.25).astype(np.float32)
    save_images(tmp_path, CAMERA, [Recorded(0.1 * k, image) for k in range(25)])
    robot = with_depth(Walking(SPEC), [f"recorded,path={tmp_path}"])
    contract = contract_for(SPEC, map_window=WINDOW, observations=(make_term("elevation_map", 48),), gait=None)
    eyes = make_map_source(contract, robot)
    robot.connect()
    for tick in range(100):
        robot.sleep_until(0.02 * tick)
        state = robot.read()
        eyes.update(robot.now_s())
    window = eyes.window(state, robot.now_s())
    assert eyes.look.blind == ""
    known = window[..., 1] < 0.0
    assert known.sum() >= 8
    np.testing.assert_allclose(window[..., 0][known], 0.05, atol=0.02)
    for tick in range(100, 250):
        robot.sleep_until(0.02 * tick)
        state = robot.read()
        eyes.update(robot.now_s())
        eyes.window(state, robot.now_s())
    assert eyes.look.blind == f"the map is too old: recorded {tmp_path.name} has ended"
    assert eyes.lost(robot.now_s())


def test_the_command_runs_a_policy_by_a_recording_and_refuses_what_does_not_fit(tmp_path, capsys):
    go2 = robot_spec("go2")
    bundle, blind = tmp_path / "b", tmp_path / "blind"
    tiny_bundle(bundle, map_contract_for(go2))
    tiny_bundle(blind, contract_for(go2))
    folder = tmp_path / "images"
    own = REALSENSE_LIKE
    image = floor_depth(own, go2.base_height_m).astype(np.float32)
    save_images(folder, own, [Recorded(0.1 * k, image) for k in range(150)])
    run = ["run", str(bundle), "--backend", "mock", "--duration", "0.5", "--depth", f"recorded,path={folder}"]
    result = tmp_path / "r.json"
    begun = time.monotonic()
    assert main([*run, "--json", str(result)]) in (0, 1), capsys.readouterr().err
    print(f"run took {time.monotonic() - begun:.1f} s")
    told = json.loads(result.read_text())
    assert told["map"]["recorded images: taken"] > 5
    assert told["map"]["depth frames: fused"] > 5
    assert told["depth"] == [f"recorded,path={folder}"]
    capsys.readouterr()
    for arguments, what in (
        (["run", str(blind), "--backend", "mock", "--depth", f"recorded,path={folder}"], "looks at no map"),
        ([*run[:-1], "recorded,path=nowhere"], "There is no recording nowhere"),
        ([*run[:-1], "realsens"], "Did you mean 'realsense'"),
        ([*run[:-1], "realsense"], "needs to know where the camera is"),
    ):
        assert main(arguments) == 2
        printed = capsys.readouterr().err
        assert printed.count("Error:") == 1
        assert what in printed


class Lost(MockRobot):
    """A mock robot without odometry."""

    def read(self):
        return replace(super().read(), pos_base_in_world_m=None, quat_base_to_odom_wxyz=None)


class Agreeing:
    """An operator who says yes."""

    def ask(self, question):
        return "y"


@pytest.mark.parametrize(("pitch_rad", "verdict"), [(0.7, "passed"), (0.5, "failed")])
def test_commissioning_finds_a_camera_that_is_mounted_otherwise_without_odometry(tmp_path, pitch_rad, verdict):
    image = floor_depth(CAMERA, 0.25).astype(np.float32)
    save_images(tmp_path, CAMERA, [Recorded(0.1 * k, image) for k in range(25)])
    choice = f"recorded,path={tmp_path},pose=0.3 0 0.1 0 {pitch_rad} 0"
    robot = with_depth(Lost(SPEC), [choice], placed=False)
    robot.connect()
    found = check_camera(Site(robot, Agreeing(), CommissionCfg(), None))
    assert found.verdict == verdict, found.text
    assert found.data["pitch_rad"] == pytest.approx(0.7 - pitch_rad, abs=0.01) or verdict == "failed"
    robot.close()
    assert with_depth(Lost(SPEC), [choice]).read_depth() == []
