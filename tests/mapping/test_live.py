"""Mapping on a robot: poses between samples, frames that wait, what is not fused and why, maps that travel."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_mapping.config import MappingCfg
from gantry_mapping.elevation.elevation_map import ElevationMap
from gantry_mapping.elevation.grid import LOCAL_GRID_SMALL, GridSpec
from gantry_mapping.elevation.snapshot import MapSnapshot, cfg_of, load_snapshot, snapshot_of
from gantry_mapping.errors import MapperError, MappingError
from gantry_mapping.live import CloudFrame, LiveMapping, Outcome, intrinsics_of, stride_for
from gantry_mapping.sensing.camera import DepthCamera
from gantry_mapping.sensing.poses import PoseBuffer, PoseNews

CAMERA = DepthCamera.from_fov(64, 48, math.radians(90), pos_camera_in_base_m=(0.3, 0.0, 0.1), pitch_down_rad=0.7)
CFG = MappingCfg(cameras=(CAMERA,), map_size_m=4.0, map_resolution_m=0.08, local_grid=LOCAL_GRID_SMALL, fusion="kalman")
HEIGHT = CFG.nominal_base_height_m
LEVEL = np.array([1.0, 0.0, 0.0, 0.0])
VIEW = GridSpec(5, 3, 0.08, 0.9, 0.0)


def floor_depth(camera=CAMERA, height=HEIGHT, floor=0.0):
    """What a camera on an upright robot sees of an endless floor."""
    rays, origin = camera.rays_in_base(np.zeros(1))
    with np.errstate(divide="ignore"):
        depth = (floor - height - origin[2]) / rays[:, 2]
    return np.where(depth > 0, depth, 0.0).reshape(camera.height, camera.width)


def stand(live, until_s, start_s=0.0, x=0.0):
    for k in range(round((until_s - start_s) * 20) + 1):
        live.add_pose(start_s + k / 20, np.array([x, 0.0, HEIGHT]), LEVEL)


# -- poses -------------------------------------------------------------------------------------------------------------


def test_between_two_poses_place_and_turn_are_shared_out():
    poses = PoseBuffer()
    quarter = np.array([math.cos(math.pi / 4), 0.0, 0.0, math.sin(math.pi / 4)])
    assert poses.add(1.0, np.array([0.0, 0.0, 0.3]), LEVEL)
    assert poses.add(1.1, np.array([1.0, 2.0, 0.3]), -quarter)  # the same turn as `quarter`
    pos, quat = poses.at(1.05)
    np.testing.assert_allclose(pos, [0.5, 1.0, 0.3])
    eighth = np.array([math.cos(math.pi / 8), 0.0, 0.0, math.sin(math.pi / 8)])
    assert abs(quat @ eighth) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_array_equal(poses.at(1.1)[0], [1.0, 2.0, 0.3])


def test_there_is_no_pose_before_after_or_in_a_gap():
    poses = PoseBuffer(max_gap_s=0.2)
    assert poses.at(0.0) is None
    for stamp_s in (1.0, 1.1, 1.5):
        poses.add(stamp_s, np.zeros(3), LEVEL)
    assert poses.at(0.99) is None
    assert poses.at(1.51) is None
    assert poses.at(1.3) is None
    assert poses.at(1.05) is not None


@pytest.mark.parametrize("quat", [np.zeros(4), np.full(4, np.nan)])
def test_a_pose_that_is_none_is_left_out(quat):
    poses = PoseBuffer()
    assert not poses.add(1.0, np.zeros(3), quat)
    assert not poses.add(1.0, np.array([np.inf, 0.0, 0.0]), LEVEL)
    assert poses.newest is None


# -- frames ------------------------------------------------------------------------------------------------------------


def test_a_frame_waits_for_its_pose():
    live = LiveMapping(CFG)
    stand(live, 0.5)
    live.add_depth(0.52, floor_depth())
    assert live.last_outcome is None
    stand(live, 0.55, 0.55)
    assert live.last_outcome is Outcome.FUSED
    assert live.newest_frame_s == 0.52


def test_a_frame_lands_where_the_robot_was_then():
    live = LiveMapping(replace(CFG, fusion="kalman"))
    live.add_pose(0.0, np.array([0.0, 0.0, HEIGHT]), LEVEL)
    live.add_depth(0.05, floor_depth(floor=-0.2))
    live.add_pose(0.1, np.array([0.1, 0.0, HEIGHT]), LEVEL)  # half way at 0.05 s
    other = LiveMapping(CFG)
    other.add_pose(0.05, np.array([0.05, 0.0, HEIGHT]), LEVEL)
    other.add_depth(0.05, floor_depth(floor=-0.2))
    for mine, theirs in zip(live.pipeline.map.layers(), other.pipeline.map.layers(), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)


def test_whatever_is_wrong_with_a_frame_is_counted_and_the_map_stays():
    live = LiveMapping(CFG)
    stand(live, 0.5)
    live.add_depth(0.4, floor_depth())
    before = live.pipeline.map.layers()[0].copy()
    live.add_depth(0.4, floor_depth(floor=-0.3))  # again
    live.add_depth(0.45, np.zeros((48, 64)))  # a covered lens
    live.add_depth(0.46, np.full((48, 64), np.nan))
    live.add_depth(0.47, floor_depth()[:, :-1])
    live.add_depth(0.48, floor_depth(), camera=1)
    live.add_depth(0.9, floor_depth(floor=-0.3))  # waits for a pose that never comes
    live.add_depth(1.0, floor_depth(floor=-0.3))
    counts = {outcome.name: count for outcome, count in live.counts.items() if count}
    assert counts == {"FUSED": 1, "EMPTY": 2, "NO_POSE": 1, "NO_CAMERA": 1, "WRONG_SIZE": 1, "OLD": 1}
    np.testing.assert_array_equal(live.pipeline.map.layers()[0], before)
    assert live.newest_frame_s == 0.4


def test_without_frames_uncertainty_grows():
    live = LiveMapping(CFG)
    stand(live, 0.5)
    live.add_depth(0.5, floor_depth())
    pose = (np.array([[0.0, 0.0, HEIGHT]]), LEVEL[None])
    sure = live.pipeline.window(VIEW, *pose)[..., 1]
    stand(live, 5.5, 0.55)
    unsure = live.pipeline.window(VIEW, *pose)[..., 1]
    assert (unsure > sure + 0.5).all()
    live.add_depth(5.5, floor_depth())
    np.testing.assert_allclose(live.pipeline.window(VIEW, *pose)[..., 1], sure, atol=0.1)


@pytest.mark.parametrize(
    ("stamp_s", "x"), [(-5.0, 0.0), (0.6, 3.0)], ids=["the clock goes back", "the robot is elsewhere"]
)
def test_a_robot_that_starts_over_gets_a_new_map(stamp_s, x):
    live = LiveMapping(CFG)
    stand(live, 0.5)
    live.add_depth(0.5, floor_depth())
    live.add_pose(stamp_s, np.array([x, 0.0, HEIGHT]), LEVEL)
    assert live.snapshot(2.0) is None
    live.add_depth(stamp_s, floor_depth())
    assert live.last_outcome is Outcome.FUSED


@pytest.mark.parametrize("clocked", [True, False], ids=["a clock", "no clock"])
@pytest.mark.parametrize("wrong_s", [1800.0, 0.8, -3600.0, 2.0**31, -(2.0**31), math.nan, math.inf])
@pytest.mark.parametrize("source", ["picture", "pose"])
def test_one_wrong_stamp_costs_one_message(source, wrong_s, clocked):
    live = LiveMapping(CFG)
    fused = []
    for k in range(60):  # poses at 50 Hz, a picture after every third
        now_s = 1000.0 + 0.02 * k
        clock = {"now_s": now_s} if clocked else {}
        off_s = {name: wrong_s if name == source and k == 31 else 0.0 for name in ("picture", "pose")}
        live.add_pose(now_s + off_s["pose"], np.array([0.0, 0.0, HEIGHT]), LEVEL, **clock)
        if k % 3 == 1:
            live.add_depth(now_s - 0.005 + off_s["picture"], floor_depth(), **clock)
            fused.append(live.counts[Outcome.FUSED])
    assert live.newest_frame_s == pytest.approx(now_s - 0.025 if k % 3 == 2 else now_s - 0.005)
    assert fused[-1] == len(fused) - (source == "picture")  # the poses beside a wrong one are near enough
    assert live.track.counts[PoseNews.STARTED_OVER] == 0


@pytest.mark.parametrize("clocked", [True, False], ids=["a clock", "no clock"])
def test_a_camera_whose_clock_is_set_right_is_followed_at_once(clocked):
    live = LiveMapping(CFG)
    for k in range(60):
        now_s = 1000.0 + 0.02 * k
        clock = {"now_s": now_s} if clocked else {}
        live.add_pose(now_s, np.array([0.0, 0.0, HEIGHT]), LEVEL, **clock)
        if k % 3 == 1:
            live.add_depth(now_s - 0.005 + (3600.0 if k < 30 else 0.0), floor_depth(), **clock)
    assert live.counts[Outcome.FUSED] == 10
    # Before the clock of the poses is known, the first picture may wait for a pose of its time.
    assert live.counts[Outcome.AHEAD] + live.counts[Outcome.NO_POSE] == 10
    assert live.newest_frame_s == pytest.approx(1000.0 + 0.02 * 58 - 0.005)


def test_all_clocks_that_are_set_back_are_followed_from_the_second_pose_on():
    live = LiveMapping(CFG)
    for start_s in (5000.0, 20.0):
        for k in range(30):
            live.add_pose(start_s + 0.02 * k, np.array([0.0, 0.0, HEIGHT]), LEVEL)
            if k % 3 == 1:
                live.add_depth(start_s + 0.02 * k - 0.005, floor_depth())
    assert live.counts[Outcome.FUSED] == 20
    assert live.track.counts[PoseNews.STARTED_OVER] == 1
    assert live.newest_frame_s == pytest.approx(20.0 + 0.02 * 28 - 0.005)


def test_a_robot_whose_clock_is_behind_by_a_constant_is_mapped_for():
    live = LiveMapping(CFG)
    for k in range(10):
        live.add_pose(0.02 * k, np.array([0.0, 0.0, HEIGHT]), LEVEL, now_s=1.7e9 + 0.02 * k)
        live.add_depth(0.02 * k, floor_depth(), now_s=1.7e9 + 0.02 * k)
    assert live.counts[Outcome.FUSED] == 10


def test_a_stray_pose_costs_no_ground_and_a_robot_elsewhere_loses_it():
    live = LiveMapping(CFG)
    stand(live, 0.5)
    live.add_depth(0.5, floor_depth())
    before = live.pipeline.map.layers()[1].copy()
    live.add_pose(0.55, np.array([5.0, 0.0, HEIGHT]), LEVEL)
    assert live.snapshot(2.0) is None
    live.add_pose(0.6, np.array([0.0, 0.0, HEIGHT]), LEVEL)
    assert live.track.counts[PoseNews.STRAY] == 1
    assert live.snapshot(2.0) is not None
    np.testing.assert_allclose(live.pipeline.map.layers()[1], before, atol=1e-4)
    for stamp_s in (0.65, 0.7):
        live.add_pose(stamp_s, np.array([5.0, 0.0, HEIGHT]), LEVEL)
    assert live.track.counts[PoseNews.STARTED_OVER] == 1
    np.testing.assert_array_equal(live.newest_pose[0], [5.0, 0.0, HEIGHT])
    live.add_depth(0.7, floor_depth())
    assert live.last_outcome is Outcome.FUSED


def test_one_late_pose_keeps_the_map():
    live = LiveMapping(CFG)
    stand(live, 3.0)
    live.add_depth(3.0, floor_depth())
    live.add_pose(1.5, np.array([0.0, 0.0, HEIGHT]), LEVEL)
    live.add_pose(3.05, np.array([0.0, 0.0, HEIGHT]), LEVEL)
    assert live.snapshot(2.0) is not None
    assert live.newest_frame_s == 3.0


@pytest.mark.parametrize(("gap_s", "moved_m", "kept"), [(0.5, 1.0, True), (0.5, 2.9, True), (0.02, 1.2, False)])
def test_a_robot_may_have_gone_on_while_its_odometry_was_silent(gap_s, moved_m, kept):
    live = LiveMapping(CFG)
    stand(live, 0.5)
    live.add_depth(0.5, floor_depth())
    for k in (0, 1):
        stamp_s = 0.5 + gap_s + 0.02 * k
        live.add_pose(stamp_s, np.array([moved_m, 0.0, HEIGHT]), LEVEL, now_s=stamp_s)
    assert (live.track.counts[PoseNews.STARTED_OVER] == 0) is kept


def test_a_gap_in_poses_and_pictures_is_gone_over_without_a_clock_too():
    live = LiveMapping(CFG)
    stand(live, 0.5)
    live.add_depth(0.5, floor_depth())
    stand(live, 20.5, start_s=20.0)
    live.add_depth(20.5, floor_depth())
    assert live.last_outcome is Outcome.FUSED
    assert live.track.counts[PoseNews.STARTED_OVER] == 0


def test_the_reason_of_a_refusal_has_both_sides():
    live = LiveMapping(CFG)
    stand(live, 0.5)
    live.add_depth(0.5, np.zeros((24, 32)))
    assert "32 x 24 pixels for a camera of 64 x 48" in live.last_text
    live.add_depth(1800.0, floor_depth(), now_s=0.5)
    assert "1.8e+03 s ahead of the clock, allowed are 0.5 s" in live.last_text
    live.add_depth(0.2, floor_depth(), camera=2)
    assert "camera 2 of a setup with 1" in live.last_text


def test_a_mapper_that_answers_nan_fuses_nothing():
    answers = iter([np.nan, 0.0, np.inf, -0.4])

    def mapper(z):
        mean = np.where(z > -1.9, z, -2.0)[:, 0]
        value = next(answers)
        return mean + (value if value != -0.4 else 0.0), np.full_like(mean, 1000.0 if value == 0.0 else -4.0)

    live = LiveMapping(CFG, mapper)
    stand(live, 1.0)
    for stamp_s in (0.1, 0.2, 0.3):
        live.add_depth(stamp_s, floor_depth())
        assert live.last_outcome is Outcome.NOT_FINITE
        assert live.newest_frame_s == -math.inf
    live.add_depth(0.4, floor_depth())
    assert live.last_outcome is Outcome.FUSED
    assert np.isfinite(live.pipeline.map.layers()[0]).all()


def test_clouds_in_a_sensors_frame_and_in_the_world_give_the_map_of_the_base():
    rng = np.random.default_rng(4)
    points = np.stack([rng.uniform(0.3, 1.2, 4000), rng.uniform(-0.5, 0.5, 4000), np.full(4000, -HEIGHT)], axis=-1)
    turn = np.array([math.cos(0.4), 0.0, 0.0, math.sin(0.4)])
    pos = np.array([1.0, -2.0, HEIGHT])
    cos, sin = math.cos(0.8), math.sin(0.8)
    rotation = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
    # The sensor looks backward, 0.2 m ahead of the base and 0.1 m above it.
    backward = points * [-1.0, -1.0, 1.0] + [0.2, 0.0, -0.1]
    lidar = CloudFrame((0.2, 0.0, 0.1), (0.0, 0.0, 0.0, 1.0))
    clouds = {
        "base": (points, {"in_base": True}),
        "sensor": (backward, {"frame": lidar}),
        "world": (points @ rotation.T + pos, {"frame": CloudFrame(in_world=True)}),
    }
    maps = []
    for cloud, how in clouds.values():
        live = LiveMapping(CFG)
        live.add_pose(0.0, pos, turn)
        live.add_points(0.0, cloud, **how)
        assert live.last_outcome is Outcome.FUSED
        maps.append(live.snapshot(4.0))
    assert maps[0].seen_share(CFG.prior_variance_m2) > 0.02
    for other in maps[1:]:
        np.testing.assert_allclose(other.elevation_m, maps[0].elevation_m, atol=1e-6)


def test_points_at_the_origin_of_their_sensor_are_no_returns():
    for how in ({"in_base": True}, {"frame": CloudFrame((0.2, 0.0, 0.1))}, {}):
        live = LiveMapping(CFG)
        live.add_pose(0.0, np.array([0.0, 0.0, HEIGHT]), LEVEL)
        live.add_points(0.0, np.array([[0.0, 0.0, 0.0]] * 50 + [[np.inf, 0.0, 0.0], [np.nan] * 3]), **how)
        assert live.last_outcome is Outcome.EMPTY
        live.add_points(0.1, np.zeros((0, 3)), **how)


def test_points_of_the_same_frame_give_the_same_map():
    rays = CAMERA.rays_in_camera(np.zeros(1))
    depth = floor_depth()
    maps = []
    for how in ("depth", "optical frame", "base frame"):
        live = LiveMapping(CFG)
        stand(live, 0.5)
        if how == "depth":
            live.add_depth(0.5, depth)
        elif how == "optical frame":
            live.add_points(0.5, rays * depth.reshape(-1, 1))
        else:
            base_rays, origin = CAMERA.rays_in_base(np.zeros(1))
            seen = CAMERA.valid_depth(depth).reshape(-1, 1)
            live.add_points(0.5, np.where(seen, origin + base_rays * depth.reshape(-1, 1), np.nan), in_base=True)
        assert live.last_outcome is Outcome.FUSED
        maps.append(live.pipeline.map.layers()[0])
    np.testing.assert_allclose(maps[1], maps[0], atol=1e-9)
    np.testing.assert_allclose(maps[2], maps[0], atol=1e-9)


def test_a_camera_that_says_other_numbers_wins_and_keeps_the_map():
    live = LiveMapping(CFG)
    stand(live, 0.5)
    live.add_depth(0.1, floor_depth())
    assert not live.set_intrinsics(0, 64, 48, CAMERA.fx, CAMERA.fy, CAMERA.cx, CAMERA.cy)
    assert live.set_intrinsics(0, 32, 24, 20.0, 20.0, 15.5, 11.5)
    assert live.snapshot(2.0) is not None
    small = replace(CAMERA, width=32, height=24, fx=20.0, fy=20.0, cx=15.5, cy=11.5)
    live.add_depth(0.2, floor_depth(small))
    assert live.last_outcome is Outcome.FUSED
    window = live.pipeline.window(VIEW, np.array([[0.0, 0.0, HEIGHT]]), LEVEL[None])
    np.testing.assert_allclose(window[..., 0], 0.0, atol=1e-6)
    with pytest.raises(MappingError, match="not calibrated"):
        intrinsics_of(np.zeros(9))


def test_a_large_image_is_strided_and_gives_the_same_floor():
    large = DepthCamera.from_fov(640, 480, math.radians(90), pos_camera_in_base_m=(0.3, 0.0, 0.1), pitch_down_rad=0.7)
    assert stride_for(large) == 6
    live = LiveMapping(replace(CFG, cameras=(large,)))
    stand(live, 0.5)
    live.add_depth(0.5, floor_depth(large))
    window = live.pipeline.window(VIEW, np.array([[0.0, 0.0, HEIGHT]]), LEVEL[None])
    np.testing.assert_allclose(window[..., 0], 0.0, atol=1e-6)
    assert (window[..., 1] < 0.0).all()


def test_two_cameras_share_one_map():
    back = replace(CAMERA, pos_camera_in_base_m=(-0.3, 0.0, 0.1), quat_camera_to_base_wxyz=(0.5, -0.5, -0.5, 0.5))
    cfg = replace(CFG, cameras=(CAMERA, back), local_grid=GridSpec(40, 16, 0.08))
    rays, _ = back.rays_in_base(np.zeros(1))
    assert rays[:, 0].max() < 0.0  # it looks backward
    live = LiveMapping(cfg)
    stand(live, 0.5)
    live.add_depth(0.4, floor_depth(), camera=0)
    live.add_depth(0.3, floor_depth(back), camera=1)  # each camera has its own clockwork
    assert live.counts[Outcome.FUSED] == 2
    for x in (1.0, -1.2):
        window = live.pipeline.window(GridSpec(1, 1, 0.08, x), np.array([[0.0, 0.0, HEIGHT]]), LEVEL[None])
        assert window[0, 0, 0, 1] < 0.0


# -- snapshots ---------------------------------------------------------------------------------------------------------


def filled_map():
    rng = np.random.default_rng(0)
    live = LiveMapping(CFG)
    for k in range(40):
        x = -3.0 + 0.05 * k
        live.add_pose(0.1 * k, np.array([x, 1.0, HEIGHT]), LEVEL)
        live.add_depth(0.1 * k, floor_depth() * rng.uniform(0.9, 1.0, (48, 64)))
    return live


def test_layers_and_load_are_inverse():
    live = filled_map()
    mean, variance, corner = live.pipeline.map.layers()
    other = ElevationMap(CFG, 1, np.zeros(1))
    other.load(mean, variance, corner)
    for mine, theirs in zip(other.layers(), (mean, variance, corner), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)


@pytest.mark.parametrize("yaw", [0.0, 0.7, -2.0])
def test_a_window_of_a_snapshot_is_the_window_of_the_map(yaw):
    live = filled_map()
    pos, _ = live.newest_pose
    snapshot = live.snapshot(3.0)
    assert snapshot.cells == 38
    other = ElevationMap(cfg_of(CFG, snapshot), 1, np.zeros(1))
    load_snapshot(other, snapshot)
    grid = GridSpec(10, 6, 0.14, 0.5)
    expected = live.pipeline.map.query(grid, pos[None], np.array([yaw]))
    for mine, theirs in zip(other.query(grid, pos[None], np.array([yaw])), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)
    assert 0.0 < snapshot.seen_share(CFG.prior_variance_m2) < 1.0


def test_a_snapshot_is_cut_at_the_edge_of_the_map_and_none_before_the_first_frame():
    live = filled_map()
    mean, _, corner = (part[0] for part in live.pipeline.map.layers())
    far = snapshot_of(live.pipeline.map, corner + 100.0, 1.6, 0.0)
    np.testing.assert_array_equal(far.elevation_m, mean[-20:, -20:])
    assert snapshot_of(live.pipeline.map, corner, 100.0, 0.0).cells == 50
    assert LiveMapping(CFG).snapshot(1.0) is None


def test_a_snapshot_that_is_none_is_refused():
    with pytest.raises(MappingError, match="two squares"):
        MapSnapshot(np.zeros((3, 2)), np.zeros((3, 2)), (0.0, 0.0), 0.1)
    with pytest.raises(MappingError, match="positive length"):
        MapSnapshot(np.zeros((2, 2)), np.zeros((2, 2)), (0.0, math.nan), 0.1)
    with pytest.raises(MappingError, match="50 cells"):
        load_snapshot(ElevationMap(CFG, 1, np.zeros(1)), MapSnapshot(np.zeros((2, 2)), np.zeros((2, 2)), (0, 0), 0.08))


def test_a_mapper_that_is_stopped_fuses_nothing_and_the_next_frame_counts():
    stopped = iter([True, False])

    def mapper(z):
        if next(stopped):
            raise MapperError("the network was stopped in a step that had computed for more than 1 s.")
        return np.where(z > -1.9, z, -2.0)[:, 0], np.full_like(z, -4.0)[:, 0]

    live = LiveMapping(CFG, mapper)
    stand(live, 1.0)
    live.add_depth(0.1, floor_depth())
    assert live.last_outcome is Outcome.NO_ANSWER
    assert "more than 1 s" in live.last_text
    live.add_depth(0.2, floor_depth())
    assert live.last_outcome is Outcome.FUSED
