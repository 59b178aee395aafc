"""RealSense cameras through librealsense's software device: from injected pixels to the window of a policy."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.contract.policy_contract import MapWindow
from gantry_deploy.depth.attached import SeeingRobot, require_pose
from gantry_deploy.depth.realsense import RealSenseDriver, binned, make_realsense
from gantry_deploy.depth.realsense_filters import FilterCfg
from gantry_deploy.depth.realsense_library import find_camera, load_realsense
from gantry_deploy.depth.site import mount_of_pose
from gantry_deploy.depth.source import DepthError
from gantry_deploy.observations.builder import make_term
from gantry_deploy.perception.maps import MapLimits, make_map_source
from gantry_deploy.testing.legs import contract_for, tiny_robot
from gantry_fixtures.depth import SoftCamera, Stream, floor_depth, wait_for
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.errors import RobotError
from gantry_mapping.sensing.camera import DepthCamera

try:
    load_realsense()
except DepthError as missing:
    pytest.skip(str(missing), allow_module_level=True)

SPEC = tiny_robot()
NOMINAL_M, HEIGHT_M = 0.3, 0.25
WINDOW = MapWindow(6, 4, 0.1, 0.9, 0.0, ("elevation", "uncertainty"), NOMINAL_M)
CONTRACT = contract_for(SPEC, map_window=WINDOW, observations=(make_term("elevation_map", 48),), gait=None)
MOUNT = mount_of_pose((0.3, 0.0, 0.1, 0.0, 0.7, 0.0))
PLAIN = DepthCamera(64, 48, 32.0, 32.0, 31.5, 23.5)
"""What the camera tells of itself."""
CAMERA = MOUNT.camera(PLAIN, "camera")
"""... and on the robot."""
FLOOR = floor_depth(CAMERA, HEIGHT_M)


class Lost(MockRobot):
    """A mock robot without odometry."""

    def read(self):
        return replace(super().read(), pos_base_in_world_m=None)


class Placed(MockRobot):
    """A mock robot in real time that stands at (1, 2), looking along +y."""

    place = np.array([1.0, 2.0, HEIGHT_M])
    turn = np.array([math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)])

    def read(self):
        return replace(super().read(), pos_base_in_world_m=self.place, quat_base_to_odom_wxyz=self.turn)


def source_of(soft, **options):
    plain = {"width": 64, "height": 48, "decimate": 1, "find": soft.find, **options}
    return make_realsense(MOUNT, **plain)


@pytest.fixture
def soft():
    return SoftCamera(PLAIN)


@pytest.fixture
def opened(soft):
    """A camera that streams the floor, its source, and the robot that sees by it."""
    with Stream(soft, FLOOR) as stream:
        source = source_of(soft)
        source.open()
        robot = SeeingRobot(Placed(SPEC, realtime=True), [source])
        robot.connect()
        yield stream, source, robot
        robot.close()


def test_injected_pixels_become_the_window_of_a_policy(opened):
    _, source, robot = opened
    assert source.cameras == robot.depth_cameras == (CAMERA,)
    eyes = make_map_source(CONTRACT, robot, limits=MapLimits(stale_s=10.0, lost_s=20.0))

    def seen():
        state = robot.read()
        eyes.update(robot.now_s())
        window = eyes.window(state, robot.now_s())
        return [window] if eyes.look.blind == "" else []

    wait_for(seen, "map")
    for _ in range(20):
        seen()
        time.sleep(0.02)
    (window,) = seen()
    # The floor lies a little higher than nominal under the robot; cells in front of it are seen and sure.
    known = window[..., 1] < 0.0
    assert known.sum() >= 8
    np.testing.assert_allclose(window[..., 0][known], NOMINAL_M - HEIGHT_M, atol=0.02)
    assert eyes.statistics()["depth frames: fused"] > 5


def test_one_image_is_the_injected_one_in_metres_on_the_readers_clock(soft):
    driver = RealSenseDriver(MOUNT, size=(64, 48), filters=FilterCfg(decimate=1), find=soft.find)
    assert driver.start() == CAMERA
    soft.inject(FLOOR, 5.0)
    grab = driver.grab(5.0)
    np.testing.assert_array_equal(grab.depth_m, np.round(FLOOR / 0.001).astype(np.uint16) * np.float32(0.001))
    assert grab.stamp_s == 5.0
    assert driver.grab(0.01) is None
    driver.stop()
    driver.stop()


@pytest.mark.parametrize("unit_m", [0.0001, 0.001])
def test_depth_units_are_the_cameras_own(unit_m):
    soft = SoftCamera(PLAIN, unit_m=unit_m)
    driver = RealSenseDriver(MOUNT, size=(64, 48), filters=FilterCfg(decimate=1), find=soft.find)
    driver.start()
    soft.inject(np.full((48, 64), 1.25), 0.0)
    np.testing.assert_allclose(driver.grab(5.0).depth_m, 1.25, rtol=1e-4)
    driver.stop()


def test_an_implausible_unit_is_refused():
    with pytest.raises(DepthError, match=r"counts depth in 1 m, expected 1e-06 to 0.05 m"):
        RealSenseDriver(MOUNT, size=(64, 48), find=SoftCamera(PLAIN, unit_m=1.0).find).start()


@pytest.mark.parametrize("edge", [3, 4])
def test_a_decimated_pixel_lies_in_the_middle_of_its_block(edge):
    """A plane whose inverse depth is linear in the image: the ray of every decimated pixel has to meet that plane."""
    wide = DepthCamera.from_fov(96, 48, math.radians(80))
    soft = SoftCamera(wide, unit_m=0.0001)
    u = np.arange(96)[None, :] + np.zeros((48, 1))
    inverse = 0.4 + 0.2 * (u - wide.cx) / wide.fx  # 1 = z (0.4 + 0.2 x/z)
    driver = RealSenseDriver(MOUNT, size=(96, 48), filters=FilterCfg(decimate=edge), find=soft.find)
    camera = driver.start()
    soft.inject(1.0 / inverse, 0.0)
    depth = driver.grab(5.0).depth_m
    assert depth.shape == (camera.height, camera.width)
    x = (np.arange(camera.width) - camera.cx) / camera.fx
    np.testing.assert_allclose(depth[2] * (0.4 + 0.2 * x), 1.0, atol=5e-4)
    # librealsense's own principal point is a third of a pixel beside, which that bound would show.
    beside = (np.arange(camera.width) - wide.cx / edge) / camera.fx
    assert np.abs(depth[2] * (0.4 + 0.2 * beside) - 1.0).max() > 1e-3
    driver.stop()
    assert binned(wide, 1) is wide


def test_the_filters_run_and_holes_stay_unless_they_are_filled(soft):
    image = np.full((48, 64), 1.5)
    image[20:24, 30:34] = 0.0
    for cfg, hole in ((FilterCfg(1, spatial=True, temporal=True), 0.0), (FilterCfg(1, fill="nearest"), 1.5)):
        driver = RealSenseDriver(MOUNT, size=(64, 48), filters=cfg, find=soft.find)
        driver.start()
        soft.inject(image, 0.0)
        depth = driver.grab(5.0).depth_m
        driver.stop()
        assert depth[22, 32] == pytest.approx(hole, abs=0.01)
        assert depth[5, 5] == pytest.approx(1.5, abs=0.01)


def test_refusals_name_what_there_is(soft):
    with pytest.raises(DepthError, match=r"no depth profile of 640 x 480 at 30 Hz. It has: 64 x 48 at 30 Hz"):
        source_of(soft, width=640, height=480).open()
    with pytest.raises(DepthError, match="Did you mean 'nearest'"):
        source_of(soft, fill="neares")
    with pytest.raises(DepthError, match="decimate is 9"):
        source_of(soft, decimate=9)
    with pytest.raises(DepthError, match=r"Soft D435 0042, its calibration is of serial 0043"):
        make_realsense(replace(MOUNT, serial="0043"), width=64, height=48, find=soft.find).open()
    other = replace(MOUNT, calibrated=DepthCamera(640, 360, 300.0, 300.0, 320.0, 180.0))
    with pytest.raises(DepthError, match=r"is no reduction of the other"):
        make_realsense(other, width=64, height=48, find=soft.find).open()
    with pytest.raises(DepthError, match=r"No RealSense camera is connected \(serial 77 was asked for\)"):
        find_camera(load_realsense(), "77")


def test_calibrated_intrinsics_win_over_those_that_the_camera_tells(soft):
    own = replace(PLAIN, fx=31.0, fy=31.5, cx=30.0, cy=24.5)
    driver = RealSenseDriver(
        replace(MOUNT, calibrated=own), size=(64, 48), filters=FilterCfg(decimate=1), find=soft.find
    )
    camera = driver.start()
    driver.stop()
    assert (camera.fx, camera.fy, camera.cx, camera.cy) == (31.0, 31.5, 30.0, 24.5)
    assert camera.pos_camera_in_base_m == MOUNT.pos_camera_in_base_m


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_second_start_of_a_busy_camera_is_refused_with_what_to_do(soft):
    with Stream(soft, FLOOR):
        first = source_of(soft)
        first.open()
        with pytest.raises(DepthError, match=r"in use by another program .* End that one"):
            source_of(soft).open()
        assert wait_for(lambda: first.read(0.0), "image of the first")
        first.close()
        second = source_of(soft)
        second.open()
        second.close()


def test_a_camera_without_images_is_refused_at_the_start(soft):
    source = source_of(soft)
    source._first_image_s = 0.2
    with pytest.raises(DepthError, match=r"gave no image within 0.2 s. Unplug it"):
        source.open()
    with Stream(soft, FLOOR):
        source._first_image_s = 30.0
        source.open()  # It was released.
        source.close()


def quick(source, attempts):
    """Reconnects within a moment."""
    source._cfg = replace(source._cfg, silence_s=0.2, first_wait_s=0.02, longest_wait_s=0.05, attempts=attempts)
    return source


def test_an_unplugged_camera_blinds_the_map_with_its_reason_and_comes_back(opened, caplog):
    stream, source, robot = opened
    quick(source, 1000)
    eyes = make_map_source(CONTRACT, robot, limits=MapLimits(stale_s=0.5, lost_s=1.0))

    def look():
        state = robot.read()
        eyes.update(robot.now_s())
        eyes.window(state, robot.now_s())
        return eyes.look

    wait_for(lambda: look().blind == "", "map")
    stream.soft.plugged = False
    blind = wait_for(lambda: "No RealSense camera is connected" in (text := look().blind) and text, "reason")
    assert blind.startswith("the map is too old: no image of realsense for")
    wait_for(lambda: eyes.lost(robot.now_s()), "loss")
    stream.soft.plugged = True
    wait_for(lambda: look().blind == "", "map again")
    assert source.statistics()["realsense: opened again"] >= 1
    assert any("was opened again" in record.message for record in caplog.records)
    assert not robot.depth_trouble()


def test_attempts_are_bounded_and_said(opened, caplog):
    stream, source, _ = opened
    quick(source, 3)
    stream.soft.plugged = False
    asked = len(stream.soft.asked)
    wait_for(lambda: "given up after 3 attempts" in source.trouble(), "end")
    assert len(stream.soft.asked) - asked == 3
    assert sum(record.levelno == logging.ERROR for record in caplog.records if "given up" in record.message) == 1
    assert source.read(0.0) is not None


def test_a_silent_camera_is_opened_again(opened):
    stream, source, _ = opened
    quick(source, 1000)
    stream.flowing = False
    wait_for(lambda: source.statistics().get("realsense: opened again", 0) >= 1, "attempt")
    stream.flowing = True
    source.read(0.0)
    wait_for(lambda: source.read(0.0), "image")


def test_a_clock_that_goes_back_is_followed_and_stamps_stay_on_the_robots_clock(opened, caplog):
    stream, source, robot = opened

    def newest():
        images = source.read(robot.now_s())
        return images and images[-1]

    before = wait_for(newest, "image")
    stream.clock_s = -5000.0
    wait_for(lambda: source._inbox.counts["taken: the camera's clock was set"], "new clock")
    source.read(robot.now_s())
    after = wait_for(newest, "image")
    assert before.stamp_s < after.stamp_s <= robot.now_s()
    assert after.stamp_s > robot.now_s() - 30.0
    assert any("The clock of realsense was set" in record.message for record in caplog.records)


def test_a_robot_that_does_not_follow_real_time_is_refused(soft):
    with pytest.raises(DepthError, match="takes pictures in real time"):
        SeeingRobot(MockRobot(SPEC), [source_of(soft)])


def test_a_robot_without_odometry_is_blind_with_that_reason(soft):
    with Stream(soft, FLOOR):
        source = source_of(soft)
        source.open()
        robot = SeeingRobot(Lost(SPEC, realtime=True), [source])
        robot.connect()
        with pytest.raises(RobotError, match="reports no position"):
            require_pose(robot, ["realsense"])
        eyes = make_map_source(CONTRACT, robot)
        state = robot.read()
        eyes.update(robot.now_s())
        eyes.window(state, robot.now_s())
        assert "reports no odometry" in eyes.look.blind
        robot.close()
