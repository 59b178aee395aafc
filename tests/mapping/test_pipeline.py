"""The whole pipeline: floors and boxes by hand, torch against numpy, and everything that may go missing."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_fixtures.training import torch
from gantry_mapping.config import GO2_FULL, MappingCfg
from gantry_mapping.elevation.grid import LOCAL_GRID_SMALL, WINDOW_FULL, GridSpec
from gantry_mapping.elevation.infill import infill
from gantry_mapping.errors import MappingError
from gantry_mapping.mapper import MapperInfo
from gantry_mapping.pipeline import MappingPipeline, window_channels
from gantry_mapping.sensing.camera import DepthCamera

CAMERA = DepthCamera.from_fov(64, 48, math.radians(90), pos_camera_in_base_m=(0.3, 0.0, 0.1), pitch_down_rad=0.7)
CFG = MappingCfg(cameras=(CAMERA,), map_size_m=4.0, map_resolution_m=0.08, local_grid=LOCAL_GRID_SMALL)
HEIGHT = CFG.nominal_base_height_m
VIEW = GridSpec(8, 4, 0.08, 0.9, 0.0)
UNKNOWN_U, SURE_U = 0.5 * math.log(2.0) + 0.5, 0.5 * math.log(0.01) + 0.5


def pose(x=0.0, y=0.0, z=HEIGHT, yaw=0.0):
    return np.array([[x, y, z]]), np.array([[math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]])


def render(camera, pos, quat, edge_x=math.inf, step_m=0.0):
    """Depth of a floor at 0 that rises by ``step_m`` at world x = ``edge_x``, from an upright robot."""
    rays, origin = camera.rays_in_base(np.zeros(1))
    yaw = 2 * math.atan2(quat[0, 3], quat[0, 0])
    turn = np.array([[math.cos(yaw), -math.sin(yaw), 0], [math.sin(yaw), math.cos(yaw), 0], [0, 0, 1]])
    rays, start = rays @ turn.T, pos[0] + turn @ origin
    with np.errstate(divide="ignore", invalid="ignore"):
        depths = []
        for depth, beyond in (((0 - start[2]) / rays[:, 2], False), ((step_m - start[2]) / rays[:, 2], True)):
            at = start[0] + depth * rays[:, 0]
            depths.append(np.where((depth > 0) & ((at >= edge_x) == beyond), depth, np.inf))
        wall = (edge_x - start[0]) / rays[:, 0]
        at = start[2] + wall * rays[:, 2]
        depths.append(np.where((wall > 0) & (at >= 0) & (at <= step_m), wall, np.inf))
    return np.min(depths, axis=0).reshape(1, camera.height, camera.width)


def walk(pipeline, array, steps=30, **scene):
    """Turn and walk for a while; returns the last pose."""
    for k in range(steps):
        pos, quat = pose(0.03 * k, 0.01 * k, HEIGHT + 0.01 * math.sin(k), 0.02 * k)
        pipeline.update(array(render(CAMERA, pos, quat, **scene)), array(pos), array(quat))
        pipeline.advance(0.1)
    return pos, quat


@pytest.mark.parametrize("fusion", ["wta", "kalman"])
def test_a_flat_floor_is_flat_and_becomes_sure(array, fusion):
    pipeline = MappingPipeline(replace(CFG, fusion=fusion), None, array([0.0]))
    pos, quat = walk(pipeline, array)
    window = np.asarray(pipeline.window(VIEW, array(pos), array(quat)))
    assert window.shape == (1, 8, 4, 2)
    assert {window.dtype, *(np.asarray(part).dtype for part in pipeline.map.layers())} == {np.dtype(np.float32)}
    np.testing.assert_allclose(window[..., 0], HEIGHT - pos[0, 2], atol=1e-4)
    assert window[..., 1].max() < -1.0


@pytest.mark.parametrize("fusion", ["wta", "kalman"])
def test_a_step_is_where_it_is_and_as_high(array, fusion):
    """Heights come out right on both sides, and the edge within a cell."""
    pipeline = MappingPipeline(replace(CFG, fusion=fusion), None, array([0.0]))
    pos, _ = walk(pipeline, array, edge_x=1.2, step_m=0.15)
    elevation, variance = pipeline.map.query(GridSpec(20, 4, 0.08, 1.2 - pos[0, 0], 0.4), array(pos), array([0.0]))
    x = GridSpec(20, 4, 0.08, 1.2, 0.0).row_centers(np.zeros(1))
    elevation, known = np.asarray(elevation)[0], np.asarray(variance)[0] < 0.1
    low, high = known & (x < 1.2 - 0.08)[:, None], known & (x > 1.2 + 0.08)[:, None]
    assert low.sum() > 10
    assert high.sum() > 10
    np.testing.assert_allclose(elevation[low], 0.0, atol=2e-3)
    np.testing.assert_allclose(elevation[high], 0.15, atol=2e-3)


def random_stream(envs, frames, seed=0):
    rng = np.random.default_rng(seed)
    yaw, pos = rng.uniform(-3, 3, envs), rng.uniform(-3, 3, (envs, 3))
    for _ in range(frames):
        yaw, pos = yaw + 0.05, pos + rng.normal(0, 0.08, (envs, 3)) * [1, 1, 0.2]
        quat = np.stack((np.cos(yaw / 2), 0 * yaw + 0.05, 0 * yaw - 0.03, np.sin(yaw / 2)), axis=-1)
        quat /= np.linalg.norm(quat, axis=-1, keepdims=True)
        depth = rng.uniform(0.3, 2.5, (envs, CAMERA.height, CAMERA.width))
        depth[rng.random(depth.shape) < 0.2] = rng.choice([0.0, math.nan, math.inf])
        yield depth, pos, quat, rng.random(envs) < 0.6


@pytest.mark.parametrize("fusion", ["wta", "kalman"])
def test_torch_and_numpy_agree(fusion):
    """The same stream gives the same map on both, draws included."""
    cfg = replace(CFG, fusion=fusion, map_size_m=3.2, drift_variance_m2_per_s=0.01)
    makers = (lambda a: np.asarray(a, np.float64), lambda a: torch.as_tensor(np.asarray(a, np.float64)))
    pipelines = [MappingPipeline(cfg, None, make([0.0]), 3) for make in makers]
    for depth, pos, quat, fresh in random_stream(3, 40):
        for pipeline, make in zip(pipelines, makers, strict=True):
            pipeline.update(make(depth), make(pos), make(quat), make(fresh) > 0)
            pipeline.advance(0.02)
    windows = [
        np.asarray(p.window(WINDOW_FULL, make(pos), make(quat))) for p, make in zip(pipelines, makers, strict=True)
    ]
    np.testing.assert_allclose(windows[0], windows[1], atol=1e-6)
    layers = [[np.asarray(part) for part in p.map.layers()] for p in pipelines]
    for a, b in zip(*layers, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert (layers[0][1] < 1.0).mean() > 0.05  # and there is something to compare


def test_in_float32_only_cells_on_an_edge_may_differ():
    """Where a point falls between two cells, the last bit of a cosine decides."""
    makers = (lambda a: np.asarray(a, np.float32), lambda a: torch.as_tensor(np.asarray(a, np.float32)))
    pipelines = [MappingPipeline(CFG, None, make([0.0]), 3) for make in makers]
    for depth, pos, quat, fresh in random_stream(3, 20, seed=1):
        for pipeline, make in zip(pipelines, makers, strict=True):
            pipeline.update(make(depth), make(pos), make(quat), make(fresh) > 0)
    a, b = (np.asarray(pipeline.map.layers()[0]) for pipeline in pipelines)
    assert (abs(a - b) > 1e-5).mean() < 1e-3


def test_one_robot_replays_what_the_first_environment_saw(wide):
    many, one = (MappingPipeline(CFG, None, wide([0.0]), count) for count in (4, 1))
    for depth, pos, quat, fresh in random_stream(4, 15, seed=2):
        many.update(wide(depth), wide(pos), wide(quat), wide(fresh) > 0)
        if fresh[0]:
            one.update(wide(depth[:1]), wide(pos[:1]), wide(quat[:1]))
    for a, b in zip(many.map.layers(), one.map.layers(), strict=True):
        np.testing.assert_allclose(np.asarray(a)[:1], np.asarray(b), atol=1e-12)


def test_points_are_as_good_as_depth(wide):
    by_depth, by_points = (MappingPipeline(CFG, None, wide([0.0]), 3) for _ in range(2))
    rays, origin = CAMERA.rays_in_base(np.zeros(1))
    for depth, pos, quat, fresh in random_stream(3, 8, seed=3):
        by_depth.update(wide(depth), wide(pos), wide(quat), wide(fresh) > 0)
        flat = depth.reshape(3, -1, 1)
        points = np.where((flat >= 0.15) & (flat <= 4.0), flat * rays + origin, math.nan)
        by_points.update_points(wide(points), wide(pos), wide(quat), wide(fresh) > 0, camera=0)
    for a, b in zip(by_depth.map.layers(), by_points.map.layers(), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-9)


def test_two_cameras_see_what_each_sees(wide):
    left, right = (replace(CAMERA, cx=CAMERA.cx + shift) for shift in (60.0, -60.0))
    cfg = replace(CFG, cameras=(left, right))
    pos, quat = pose()
    images = [render(camera, pos, quat) for camera in cfg.cameras]
    both, one = MappingPipeline(cfg, None, wide([0.0])), MappingPipeline(cfg, None, wide([0.0]))
    _, covered = both.local_heights([wide(image) for image in images], wide(quat))
    _, covered_left = one.local_heights([wide(images[0]), wide(0 * images[1])], wide(quat))
    _, covered_right = one.local_heights([wide(0 * images[0]), wide(images[1])], wide(quat))
    covered, covered_left, covered_right = (np.asarray(part) for part in (covered, covered_left, covered_right))
    np.testing.assert_array_equal(covered, covered_left | covered_right)
    assert (covered_left != covered_right).any()
    with pytest.raises(MappingError, match="Got 1 depth images, expected 2"):
        both.update(wide(images[0]), wide(pos), wide(quat))


class GuessesEverywhere:
    """A network that is sure of everything, also of an empty image, in which it sees a wall."""

    def __call__(self, z):
        height = 0.4 if float(z.max()) < -1.9 else -0.1
        return 0.0 * z + height, 0.0 * z - 6.0


@pytest.mark.parametrize("nothing", [0.0, math.nan, math.inf])
def test_an_empty_image_teaches_nothing_and_uncertainty_grows(wide, nothing):
    cfg = replace(CFG, drift_variance_m2_per_s=0.05, stale_after_s=0.5, stale_variance_m2_per_s=0.2)
    pipeline = MappingPipeline(cfg, GuessesEverywhere(), wide([0.0]))
    pos, quat = pose()
    for _ in range(25):
        pipeline.update(wide(render(CAMERA, pos, quat)), wide(pos), wide(quat))
    before = [np.asarray(part) for part in pipeline.map.query(VIEW, wide(pos), wide([0.0]))]
    pipeline.update(wide(np.full((1, 48, 64), nothing)), wide(pos), wide(quat))
    pipeline.advance(1.0)
    after = [np.asarray(part) for part in pipeline.map.query(VIEW, wide(pos), wide([0.0]))]
    np.testing.assert_allclose(before[0], HEIGHT - 0.1, atol=1e-9)  # it did take the network's word before
    np.testing.assert_array_equal(after[0], before[0])
    np.testing.assert_allclose(after[1], before[1] + 0.25, rtol=1e-9)


def test_only_a_stale_sensor_makes_uncertainty_grow_fast(array):
    cfg = replace(CFG, stale_after_s=0.25, stale_variance_m2_per_s=0.1)
    pipeline = MappingPipeline(cfg, None, array([0.0]), 3)
    pos, quat = (np.repeat(part, 3, 0) for part in pose())
    image = np.repeat(render(CAMERA, *pose()), 3, 0)
    for _ in range(12):
        pipeline.update(array(image), array(pos), array(quat))
    before = np.asarray(pipeline.map.layers()[1])
    for step in range(10):  # the first goes on seeing, the second is lost, the third is reset on the way
        pipeline.advance(0.1)
        pipeline.update(array(image), array(pos), array(quat), array([1.0, 0.0, 0.0]) > 0)
        if step == 5:
            pipeline.reset(array([0.0, 0.0, 1.0]) > 0)
    after = np.asarray(pipeline.map.layers()[1])
    known = before[1] < 1.0
    np.testing.assert_allclose(after[1][known], before[1][known] + 8 * 0.1 * 0.1, rtol=1e-5)
    assert (after[0][known] <= before[0][known]).all()
    assert (after[2] == 10.0).all()


def test_a_kalman_filter_takes_only_what_was_measured(wide):
    known = {}
    pos, quat = pose()
    image = render(CAMERA, pos, quat)
    image[:, :, :32] = 0.0  # blind on the left
    for fusion in ("wta", "kalman"):
        pipeline = MappingPipeline(replace(CFG, fusion=fusion), GuessesEverywhere(), wide([0.0]))
        for _ in range(10):
            pipeline.update(wide(image), wide(pos), wide(quat))
        _, variance = pipeline.map.query(GridSpec(4, 2, 0.08, 0.9, 0.3), wide(pos), wide([0.0]))
        known[fusion] = (np.asarray(variance) < 1.0).mean()
    assert known == {"wta": 1.0, "kalman": 0.0}


def test_a_void_of_the_network_is_not_fused(wide):
    class Void:
        def __call__(self, z):
            return 0.0 * z - 1.6, 0.0 * z - 6.0

    pipeline = MappingPipeline(CFG, Void(), wide([0.0]))
    pos, quat = pose()
    pipeline.update(wide(render(CAMERA, pos, quat)), wide(pos), wide(quat))
    assert (np.asarray(pipeline.map.layers()[1]) == 10.0).all()


def test_a_measured_pit_is_no_void(wide):
    pipeline = MappingPipeline(replace(CFG, carve_free_space=False), None, wide([0.0]))
    pos, quat = pose(z=1.8)
    for _ in range(10):
        pipeline.update(wide(render(CAMERA, pos, quat)), wide(pos), wide(quat))
    elevation, variance = pipeline.map.query(VIEW, wide(pos), wide([0.0]))
    known = np.asarray(variance) < 1.0
    assert known.sum() > 4
    np.testing.assert_allclose(np.asarray(elevation)[known], 0.0, atol=1e-6)  # 1.8 m below the base


def test_a_network_in_training_leaves_no_history_in_the_map():
    weight = torch.nn.Parameter(torch.ones(()))

    class Trained:
        def __call__(self, z):
            return weight * z, weight * z

    pipeline = MappingPipeline(CFG, Trained(), torch.zeros(1))
    pos, quat = (torch.tensor(part, dtype=torch.float32) for part in pose())
    pipeline.update(torch.tensor(render(CAMERA, *pose()), dtype=torch.float32), pos, quat)
    assert not any(part.requires_grad for part in pipeline.map.layers())


def test_without_a_pose_there_is_nowhere_to_fuse(wide):
    pipeline = MappingPipeline(CFG, None, wide([0.0]), 2)
    pos, quat = pose()
    image = render(CAMERA, pos, quat)
    lost = np.array([[math.nan, 0.0, 0.3], pos[0]])
    pipeline.update(wide(np.repeat(image, 2, 0)), wide(lost), wide(np.repeat(quat, 2, 0)))
    np.testing.assert_array_equal(np.asarray(pipeline.map.seeded), [False, True])


def test_the_first_frame_after_a_reset_starts_anew(array):
    pipeline = MappingPipeline(CFG, None, array([0.0]))
    walk(pipeline, array)
    pipeline.reset()
    pos, quat = pose(20.0, 20.0, 1.0 + HEIGHT)
    window = np.asarray(pipeline.window(VIEW, array(pos), array(quat)))
    np.testing.assert_allclose(window[..., 0], 0.0, atol=1e-5)
    np.testing.assert_allclose(window[..., 1], UNKNOWN_U, atol=1e-6)


def test_the_windows_channels_by_hand(array):
    elevation, variance = array([[[1.5, 9.0, -9.0]]]), array([[[0.25, 1e-9, 10.0]]])
    window = np.asarray(window_channels(elevation, variance, array([[0.0, 0.0, 1.0]]), 0.3))
    np.testing.assert_allclose(window[0, 0, :, 0], [0.8, 2.0, -2.0], atol=1e-6)
    np.testing.assert_allclose(window[0, 0, :, 1], [0.5 * math.log(0.25) + 0.5, SURE_U, UNKNOWN_U], atol=1e-6)
    assert (round(SURE_U, 2), round(UNKNOWN_U, 2)) == (-1.80, 0.85)


def test_infill_by_hand(array):
    """The middle cell, and no other, has three or more neighbours that are surer by half."""
    elevation = array([[[1.0, 2.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 4.0]]])
    variance = array([[[0.1, 0.1, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.2]]])
    filled = np.asarray(infill(elevation, variance))[0]
    assert filled[1, 1] == pytest.approx((10 * 1.0 + 10 * 2.0 + 5 * 4.0) / 25)
    filled[1, 1] = 9.0
    np.testing.assert_array_equal(filled, np.asarray(elevation)[0])


def test_infill_changes_what_is_seen_and_not_what_is_known(array):
    plain, filling = (MappingPipeline(replace(CFG, infill=choice), None, array([0.0])) for choice in (False, True))
    for pipeline in (plain, filling):
        pos, quat = walk(pipeline, array, edge_x=1.2, step_m=0.15)
    windows = [np.asarray(pipeline.window(WINDOW_FULL, array(pos), array(quat))) for pipeline in (plain, filling)]
    assert (windows[0][..., 0] != windows[1][..., 0]).any()
    np.testing.assert_array_equal(windows[0][..., 1], windows[1][..., 1])
    np.testing.assert_array_equal(*(np.asarray(pipeline.map.layers()[0]) for pipeline in (plain, filling)))


def test_a_mapper_for_another_grid_is_refused():
    class Other(GuessesEverywhere):
        info = MapperInfo(LOCAL_GRID_SMALL)

    MappingPipeline(CFG, Other(), np.zeros(1))
    with pytest.raises(MappingError, match=r"rows=26.*rows=51"):
        MappingPipeline(GO2_FULL, Other(), np.zeros(1))


def test_a_cell_beside_a_void_shows_the_void(array):
    """Cells of 12 cm over a map of 4 cm: a third of the middle one lies a metre deeper, seen well or merely guessed."""
    view = GridSpec(1, 3, 0.12, 0.0, 0.0)
    pos, quat = (array(part) for part in pose(0.02, 0.02))
    shown = {}
    for points in (1, 3):
        for std_m in (0.1, 0.5):
            pipeline = MappingPipeline(replace(CFG, map_resolution_m=0.04, window_points=points), None, array([0.0]))
            line = GridSpec(1, 9, 0.04, 0.0, 0.0)
            deep = array([[[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.15]]]) * -1.0 - HEIGHT
            sure = array([[[0.01] * 3 + [std_m] + [0.01] * 5]])
            for _ in range(40):
                pipeline.map.fuse(deep, array(np.log(np.asarray(sure) ** 2)), deep < 1.0, line, pos, array([0.0]))
            window = np.asarray(pipeline.window(view, pos, quat))[0, 0]
            shown[points, std_m] = window[:, 0].round(3).tolist()
            assert window[1, 1] == pytest.approx(SURE_U)
    assert shown[1, 0.1] == shown[1, 0.5] == shown[3, 0.5] == [0.0, 0.0, 0.0]
    assert shown[3, 0.1] == [0.0, -1.0, 0.0]  # and a step of 15 cm is no void


@pytest.mark.parametrize("yaw", [0.0, 0.6])
@pytest.mark.parametrize("resolution_m", [0.04, 0.08])
def test_a_post_stays_in_a_window(array, yaw, resolution_m):
    """It is 8 cm thick and stands on a floor that hides none of it; in a void it is as thick as the void leaves it."""
    pos, quat = (array(part) for part in pose(0.02, 0.02, yaw=yaw))
    grid = GridSpec(25, 25, 0.04, 0.0, 0.0)
    shown = {}
    for floor_m in (0.0, -1.0):
        heights = np.full((1, 25, 25), floor_m - HEIGHT)
        heights[0, 12:14, 12:14] = 0.8 - HEIGHT
        for points in (1, 3):
            pipeline = MappingPipeline(replace(CFG, map_resolution_m=0.04, window_points=points), None, array([0.0]))
            for _ in range(40):
                sure = array(np.full(heights.shape, -9.0))
                pipeline.map.fuse(array(heights), sure, sure < 0.0, grid, pos, array([0.0]))
            window = pipeline.window(GridSpec(8, 8, resolution_m, 0.0, 0.0), pos, quat)
            shown[floor_m, points] = int((np.asarray(window)[..., 0] > 0.5).sum())
    assert shown[0.0, 3] == shown[0.0, 1] >= 1
    assert shown[-1.0, 3] < shown[-1.0, 1]
