"""A recording explains every window that its policy saw: maps that come late, are sent again or age, lost odometry."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.contract.policy_contract import BODY_POSE, BODY_POSE_NAMES, CommandSpec, GoalVelocitySpec, MapWindow
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Mode, SafetyMachine
from gantry_deploy.errors import RecordingError
from gantry_deploy.observations.builder import make_term
from gantry_deploy.perception.maps import DepthFrame, MapLimits, ReceivedMap, make_map_source
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.explained import explained_windows
from gantry_deploy.recording.recorder import Recorder, read_recording
from gantry_deploy.testing.legs import contract_for, tiny_bundle, tiny_robot
from gantry_hardware.backends.mock import MockRobot
from gantry_mapping.config import MappingCfg
from gantry_mapping.elevation.snapshot import MapSnapshot
from gantry_mapping.sensing.camera import DepthCamera

SPEC = tiny_robot()
WINDOW = MapWindow(6, 4, 0.1, 0.5, 0.0, ("elevation", "uncertainty"), 0.3)
POSE = CommandSpec(
    BODY_POSE, BODY_POSE_NAMES, (-99.0, -99.0, -1.0, -1.0), (99.0, 99.0, 1.0, 1.0), (0.0,) * 4, GoalVelocitySpec()
)
TERMS = (make_term("joint_pos", 4), make_term("goal_command", 4), make_term("elevation_map", 48, scale=0.5))
CONTRACT = contract_for(SPEC, command=POSE, map_window=WINDOW, observations=TERMS, gait=None)
CAMERA = DepthCamera.from_fov(64, 48, math.radians(90), pos_camera_in_base_m=(0.3, 0.0, 0.1), pitch_down_rad=0.7)


class Walker(MockRobot):
    """A mock robot that goes along x and turns, with odometry that can be lost."""

    odometry = True

    def read(self):
        state = super().read()
        if not self.odometry:
            return replace(state, pos_base_in_world_m=None, lin_vel_base_in_base_m_s=None)
        return replace(state, pos_base_in_world_m=self.place, quat_base_to_odom_wxyz=self.turn)

    @property
    def place(self):
        return np.array([0.1 * self.now_s(), 0.02 * math.sin(self.now_s()), 0.3])

    @property
    def turn(self):
        return np.array([math.cos(0.05 * self.now_s()), 0.0, 0.0, math.sin(0.05 * self.now_s())])


class Mapped(Walker):
    newest = None

    def follow_map(self):
        pass

    def read_map(self):
        return self.newest


class Seeing(Walker):
    depth_cameras = (CAMERA,)
    seen = 0

    def read_depth(self):
        """A picture of uneven ground at every seventh tick, with the noise of its own time."""
        self.seen += 1
        if self.seen % 7:
            return []
        rays, origin = CAMERA.rays_in_base(np.zeros(1))
        with np.errstate(divide="ignore"):
            depth = -(0.3 + origin[2]) / rays[:, 2] * np.random.default_rng(self.seen).uniform(0.9, 1.0, len(rays))
        image = np.where(depth > 0, depth, 0.0).reshape(CAMERA.height, CAMERA.width)
        return [DepthFrame(self.now_s(), image, self.place, self.turn)]


def some_map(seed, stamp_s, variance=0.01):
    heights = np.random.default_rng(seed).normal(0.0, 0.1, (60, 60)).astype(np.float32)
    return MapSnapshot(heights, np.full((60, 60), variance, np.float32), (-3.0, -3.0), 0.1, stamp_s)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return tiny_bundle(tmp_path_factory.mktemp("bundle"), CONTRACT)


def recorded(robot, bundle, path, drive, cfg=None):
    """A recording of a walk; ``drive`` gets a function that runs the loop."""
    runner = PolicyRunner(bundle, SPEC)
    source = make_map_source(runner.contract, robot, runner.mapper_model, cfg, MapLimits(stale_s=0.5, lost_s=9.0))
    robot.connect()
    with Recorder(path, CONTRACT, SPEC, lossless=True, map_source=source) as recorder:
        loop = Controller(robot, runner, SafetyMachine(SPEC), recorder, map_source=source)
        loop.request("stand")
        loop.run(2.1)
        loop.request("start")
        drive(loop.run)
        assert loop.safety.mode is Mode.POLICY, loop.safety.fault
    return read_recording(path), source


def test_a_map_that_is_sent_again_late_and_one_that_became_less_sure_are_explained(bundle, tmp_path):
    robot = Mapped(SPEC)
    robot.newest = (some_map(0, 1.0), 0.0)

    def drive(run):
        for k in range(4):
            robot.newest = (some_map(k, 50.0 + k), robot.now_s())  # news, stamped on the clock of its maker
            run(0.3)
        received_s = robot.newest[1]
        for k in range(6):  # sent again at 2 Hz, once less sure; the policy goes blind between two ticks
            robot.newest = (some_map(3, 53.0, variance=0.01 if k < 3 else 0.5), received_s)
            run(0.15)
        robot.newest = (some_map(9, 54.0), robot.now_s())
        run(0.2)

    recording, source = recorded(robot, bundle, tmp_path / "walk.mcap", drive)
    found = explained_windows(recording)
    assert len(found.time_s) == len(recording["/policy/observation"]["time_s"]) > 50
    assert found.worst < 1e-5
    assert source.statistics()["maps received"] == 12
    maps = recording["/elevation_map"]
    # Sent again as it was, it is no news; as it became less sure it is, under the same stamp.
    assert np.count_nonzero(np.diff(maps["stamp_s"]) == 0.0) == 1
    assert len(maps["stamp_s"]) == 7
    assert found.blind.any()
    assert (found.age_s[found.blind] > 0.5).all()
    assert (found.age_s[~found.blind] <= 0.5).all()
    assert set(recording["/gantry/status"]["map"]) == {"", "seen", "blind: the map is too old"}
    # One map was new to a policy that was blind: it explains nothing if its age is not looked at.
    assert (found.blind & found.news).any()


def test_odometry_that_is_missing_for_a_while_is_told_and_the_next_pose_is_not_taken_for_it(bundle, tmp_path):
    robot = Mapped(SPEC)
    robot.newest = (some_map(0, 1.0), 0.0)

    def drive(run):
        for k in range(6):
            robot.newest = (some_map(k, 60.0 + k), robot.now_s())
            robot.odometry = k % 2 == 0
            run(0.2)

    recording, _ = recorded(robot, bundle, tmp_path / "walk.mcap", drive)
    assert len(recording["/odom"]["time_s"]) < len(recording["/gantry/status"]["time_s"])
    found = explained_windows(recording)
    assert found.worst < 1e-5
    assert "blind: no pose" in set(recording["/gantry/status"]["map"])


@pytest.mark.parametrize("fusion", ["kalman", "wta"])
def test_a_map_of_the_robots_own_cameras_ages_between_its_frames(bundle, tmp_path, fusion):
    cfg = MappingCfg(map_size_m=4.0, map_resolution_m=0.1, fusion=fusion, drift_variance_m2_per_s=0.01, window_points=1)
    recording, _ = recorded(Seeing(SPEC), bundle, tmp_path / "walk.mcap", lambda run: run(1.5), cfg)
    found = explained_windows(recording)
    assert len(found.time_s) > 60
    assert not found.blind.all()
    assert np.count_nonzero(found.news) > 5
    assert found.worst < 1e-5
    maps, status = recording["/elevation_map"], recording["/gantry/status"]
    assert (maps["stamp_s"] <= maps["time_s"] + 1e-6).all()
    assert np.nanmax(status["map_age_s"]) < 0.5


def test_two_looks_at_a_map_that_is_sent_again_are_one_object(bundle):
    robot = Mapped(SPEC)
    source = ReceivedMap(CONTRACT, robot, MappingCfg(), MapLimits())
    robot.newest = (some_map(0, 1.0), 10.0)
    source.update(10.01)
    first = source.newest()
    source.window(robot_state(robot), 10.01)
    assert (source.look.blind, source.look.age_s) == ("", pytest.approx(0.01))
    robot.newest = (some_map(0, 1.0), 10.0)  # the same again, half a second later
    source.update(10.52)
    assert source.newest() is first
    source.window(robot_state(robot), 10.52)
    assert (source.look.blind, source.look.age_s) == ("the map is too old", pytest.approx(0.52))
    robot.newest = (some_map(0, 1.0, variance=0.02), 10.0)
    source.update(10.53)
    assert source.newest() is not first


def robot_state(robot):
    robot.connect()
    return robot.read()


def test_a_recording_without_maps_says_so(tmp_path, bundle):
    robot = Mapped(SPEC)
    robot.newest = (some_map(0, 1.0), 0.0)
    recording, _ = recorded(robot, bundle, tmp_path / "walk.mcap", lambda run: run(0.1))
    with pytest.raises(RecordingError, match="no policy that observes a map"):
        explained_windows(replace(recording, contract=None))
    with pytest.raises(RecordingError, match="does not say how"):
        explained_windows(replace(recording, info={}))
    with pytest.raises(RecordingError, match="mapping"):
        explained_windows(replace(recording, info={**recording.info, "mapping": '{"fusoin": "wta"}'}))
