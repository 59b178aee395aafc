"""The map around the robot: seeding, following, fusing and looking, against loops and laws."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_mapping.config import KalmanCfg, MappingCfg
from gantry_mapping.elevation.elevation_map import ElevationMap
from gantry_mapping.elevation.grid import GridSpec

CFG = MappingCfg(map_size_m=3.2, map_resolution_m=0.1, nominal_base_height_m=0.3)
LOCAL = GridSpec(12, 8, 0.1, 0.5, 0.05)
INNER = GridSpec(8, 5, 0.1, 0.5, 0.05)  # of LOCAL, away from its edges


def surface(x, y):
    """A world of steps that no turn or shift leaves alike."""
    return np.floor(3.0 * x) * 0.11 + np.floor(2.0 * y) * 0.07


def cell_truth(x, y, resolution=0.1):
    """Height of the surface at the centre of the lattice cell that holds (x, y)."""
    return surface((np.floor(x / resolution) + 0.5) * resolution, (np.floor(y / resolution) + 0.5) * resolution)


def world_of(grid, pos, yaw):
    centers = grid.cell_centers(np.zeros(1))
    x = pos[0] + math.cos(yaw) * centers[..., 0] - math.sin(yaw) * centers[..., 1]
    y = pos[1] + math.sin(yaw) * centers[..., 0] + math.cos(yaw) * centers[..., 1]
    return x, y


def fuse(maps, wide, grid, poses, heights=None, variance=1e-4, valid=None, **kwargs):
    """Fuse the surface (or ``heights`` relative to the base) as seen from poses (N, 4): x, y, z, yaw."""
    poses = np.asarray(poses, float)
    if heights is None:
        heights = [surface(*world_of(grid, pose, pose[3])) - pose[2] for pose in poses]
    heights = np.asarray(heights, float)
    valid = np.ones(heights.shape) if valid is None else valid
    log_variance = np.broadcast_to(np.log(variance), heights.shape)
    maps.fuse(wide(heights), wide(log_variance), wide(valid) > 0, grid, wide(poses[:, :3]), wide(poses[:, 3]), **kwargs)


def look(maps, wide, grid, poses):
    poses = np.asarray(poses, float)
    return (np.asarray(part) for part in maps.query(grid, wide(poses[:, :3]), wide(poses[:, 3])))


def kalman_map(wide, cfg=CFG, envs=1):
    return ElevationMap(replace(cfg, fusion="kalman", kalman=KalmanCfg(0.0)), envs, wide([0.0]))


def test_before_the_first_frame_all_is_flat_and_unknown(wide):
    maps = ElevationMap(CFG, 2, wide([0.0]))
    mean, variance = look(maps, wide, LOCAL, [[5.0, 5.0, 1.0, 0.3], [0.0, 0.0, 0.3, 0.0]])
    np.testing.assert_allclose(mean[0], 0.7)
    np.testing.assert_allclose(mean[1], 0.0, atol=1e-12)
    np.testing.assert_array_equal(variance, 10.0)


def test_the_first_frame_seeds_at_its_own_pose(wide):
    """Whatever was known at the reset is stale by then."""
    maps = kalman_map(wide)
    fuse(maps, wide, LOCAL, [[-7.0, 3.0, 1.0, 0.0]])
    maps.reset()
    assert not bool(maps.seeded.any())
    pose = [[40.0, -20.0, 2.3, 1.0]]
    fuse(maps, wide, LOCAL, pose, valid=np.zeros((1, 12, 8)))
    mean, variance = look(maps, wide, LOCAL, pose)
    np.testing.assert_allclose(mean, 2.0)
    np.testing.assert_array_equal(variance, 10.0)
    assert bool(maps.seeded.all())


def test_reset_forgets_only_what_it_should(wide):
    maps = kalman_map(wide, envs=2)
    poses = [[0.0, 0.0, 0.3, 0.0]] * 2
    fuse(maps, wide, LOCAL, poses)
    maps.reset(wide([1.0, 0.0]) > 0)
    _, variance = look(maps, wide, INNER, poses)
    assert (variance[0] == 10.0).all()
    assert (variance[1] < 1.0).all()
    fuse(maps, wide, LOCAL, poses, valid=np.zeros((2, 12, 8)))
    _, variance = look(maps, wide, INNER, poses)
    assert (variance[0] == 10.0).all()
    assert (variance[1] < 1.0).all()
    # The next frame brings back nothing but itself.
    front = np.zeros((2, 12, 8))
    front[:, 8:] = 1.0
    fuse(maps, wide, LOCAL, poses, valid=front)
    _, variance = look(maps, wide, INNER, poses)
    assert (variance[0, :5] == 10.0).all()
    assert (variance[0, -1] < 1.0).all()


@pytest.mark.parametrize("fusion", ["wta", "kalman"])
@pytest.mark.parametrize("resolution", [0.1, 0.05])
def test_fusing_against_a_loop_over_cells(wide, fusion, resolution):
    """Each cell of the map near enough takes the surest valid local cell inside it; all others keep what they had."""
    cfg = replace(CFG, fusion=fusion, kalman=KalmanCfg(0.0, gate_sigma=1e3))
    maps = ElevationMap(cfg, 1, wide([0.0]))
    grid = GridSpec(round(1.2 / resolution), round(0.8 / resolution), resolution, 0.5, 0.05)
    rng = np.random.default_rng(0)
    pose = np.array([3.123, -1.456, 0.8, 0.7])
    heights, variance = rng.normal(size=(1, *grid.shape)), rng.uniform(0.01, 1.0, (1, *grid.shape))
    valid = rng.random((1, *grid.shape)) < 0.7
    before = [np.asarray(part) for part in _after_seed(maps, wide, grid, pose)]
    fuse(maps, wide, grid, pose[None], heights, variance, valid, draws=wide(np.zeros((1, 1, 1))))
    after = [np.asarray(part) for part in maps.layers()]
    per_cell = round(0.1 / resolution)
    shifts = ((np.arange(per_cell) + 0.5) / per_cell - 0.5) * 0.1
    touched = 0
    for i in range(32):
        for j in range(32):
            best = None
            for shift_x in shifts:
                for shift_y in shifts:
                    x = after[2][0, 0] + (i + 0.5) * 0.1 + shift_x - pose[0]
                    y = after[2][0, 1] + (j + 0.5) * 0.1 + shift_y - pose[1]
                    turned = [math.cos(0.7) * x + math.sin(0.7) * y, math.cos(0.7) * y - math.sin(0.7) * x]
                    row, col, inside = (part.item() for part in grid.index_of(np.array(turned)))
                    if inside and valid[0, row, col] and (best is None or variance[0, row, col] < best[1]):
                        best = (heights[0, row, col] + pose[2], variance[0, row, col])
            prior = before[0][0, i, j], before[1][0, i, j]
            expected = prior
            if best is not None:
                touched += 1
                gain = prior[1] / (prior[1] + best[1])
                expected = (best[0], max(best[1], cfg.wta.least_ratio * prior[1]))
                if fusion == "kalman":
                    expected = (prior[0] + gain * (best[0] - prior[0]), gain * best[1])
            assert (after[0][0, i, j], after[1][0, i, j]) == pytest.approx(expected, abs=1e-9)
    assert touched > 50


def _after_seed(maps, wide, grid, pose):
    fuse(maps, wide, grid, pose[None], np.zeros((1, *grid.shape)), valid=np.zeros((1, *grid.shape)))
    return maps.layers()[:2]


@pytest.mark.parametrize("yaw", [0.0, 0.4, math.pi / 4, 2.5])
def test_a_turned_grid_leaves_no_holes(wide, yaw):
    maps = kalman_map(wide)
    pose = [[0.33, 0.71, 0.3, yaw]]
    fuse(maps, wide, LOCAL, pose)
    inner = GridSpec(40, 24, 0.025, 0.5, 0.05)
    _, variance = look(maps, wide, inner, pose)
    assert variance.max() < 0.01


def test_looking_finds_what_was_written(wide):
    """Fuse the truth on the cells' own centres, look from elsewhere: the nearest cell, never a blend."""
    maps = kalman_map(wide)
    pose = [0.05, 0.05, 0.3, 0.0]
    grid = GridSpec(31, 31, 0.1)  # its centres are the lattice's
    fuse(maps, wide, grid, [pose])
    other = [[0.31, -0.22, 1.0, 1.1]]
    mean, variance = look(maps, wide, LOCAL, other)
    np.testing.assert_allclose(mean[0], cell_truth(*world_of(LOCAL, other[0], 1.1)), atol=1e-4)
    assert variance.max() < 1e-3


def test_outside_the_map_nothing_is_known(wide):
    maps = kalman_map(wide)
    fuse(maps, wide, GridSpec(31, 31, 0.1), [[0.05, 0.05, 0.3, 0.0]])
    mean, variance = look(maps, wide, GridSpec(3, 1, 1.0), [[1.5, 0.0, 0.9, 0.0]])
    np.testing.assert_array_equal(variance[0, :, 0] < 1.0, [True, True, False])
    assert mean[0, 2, 0] == pytest.approx(0.6)


def test_following_loses_nothing_inside(wide):
    """After any walk, every cell that stayed in the window holds what was written, every other one the prior."""
    maps = kalman_map(wide)
    fuse(maps, wide, GridSpec(31, 31, 0.1), [[0.05, 0.05, 0.3, 0.0]])
    nothing = np.zeros((1, 12, 8))
    low, high = np.array([-1.5, -1.5]), np.array([1.6, 1.6])  # what was seen and is still inside
    rng = np.random.default_rng(4)
    pos, moves, ground = np.array([0.05, 0.05]), 0, 0.0
    for _ in range(60):
        pos = pos + rng.normal(0.0, 0.15, 2) + [0.01, -0.01]
        corner = np.asarray(maps.layers()[2])[0]
        fuse(maps, wide, LOCAL, [[*pos, 0.3, 1.0]], nothing, valid=nothing)
        mean, variance, new_corner = (np.asarray(part)[0] for part in maps.layers())
        if not np.array_equal(corner, new_corner):
            moves += 1
            assert (abs(new_corner + 1.6 - pos) <= 0.1).all()  # back to the middle
        low, high = np.maximum(low, new_corner), np.minimum(high, new_corner + 3.2)
        # On whole cells, and never further off than a fifth of its size.
        np.testing.assert_allclose(new_corner / 0.1, np.round(new_corner / 0.1), atol=1e-9)
        assert (abs(new_corner + 1.6 - pos) <= 0.2 * 3.2 + 1e-9).all()
        x, y = (new_corner[k] + (np.arange(32) + 0.5) * 0.1 for k in (0, 1))
        kept = ((x > low[0]) & (x < high[0]))[:, None] & ((y > low[1]) & (y < high[1]))[None]
        np.testing.assert_array_equal(variance < 1.0, kept)
        np.testing.assert_allclose(mean[kept], surface(x[:, None], y[None])[kept], atol=1e-4)
        np.testing.assert_allclose(mean[~kept], ground, atol=1e-12)
    assert moves > 3
    assert kept.any()
    assert not kept.all()


def test_there_and_back_smears_nothing(wide):
    """After a walk with frames all along, the ground around the start is what one frame there would show."""
    grid, rng = GridSpec(31, 31, 0.1), np.random.default_rng(5)
    walked, fresh = kalman_map(wide), kalman_map(wide)
    for x in (*np.arange(0.05, 3.0, 0.4), *np.arange(3.0, 0.0, -0.4)):
        fuse(walked, wide, grid, [[np.floor(x / 0.1) * 0.1 + 0.05, 0.05, rng.uniform(0.2, 0.4), 0.0]])
    fuse(walked, wide, grid, [[0.05, 0.05, 0.3, 0.0]])
    fuse(fresh, wide, grid, [[0.05, 0.05, 0.3, 0.0]])
    # The lattice is the world's: nothing has smeared over all those recentrings.
    view = GridSpec(20, 20, 0.1)
    for maps in (walked, fresh):
        mean, _ = look(maps, wide, view, [[0.0, 0.0, 0.3, 0.0]])
        np.testing.assert_allclose(mean[0], cell_truth(*world_of(view, [1e-6, 1e-6], 0.0)), atol=1e-4)


def test_only_fresh_environments_change_and_each_as_if_alone(wide):
    cfg = replace(CFG, seed=3)
    rng = np.random.default_rng(6)
    together = ElevationMap(cfg, 3, wide([0.0]))
    poses = np.array([[0.2, 0.1, 0.3, 0.5], [30.0, 9.0, 1.0, -2.0], [-4.0, 2.0, 0.0, 3.0]])
    alone = ElevationMap(cfg, 1, wide([0.0]))  # draws the numbers of the first environment
    for frame in range(6):
        poses[:, :2] += 0.3
        heights = rng.normal(size=(3, *LOCAL.shape))
        before = [np.asarray(part).copy() for part in together.layers()]
        fresh = np.array([frame % 2 == 0, frame % 3 == 0, False])
        fuse(together, wide, LOCAL, poses, heights, fresh=wide(fresh) > 0)
        if fresh[0]:
            fuse(alone, wide, LOCAL, poses[:1], heights[:1])
        after = [np.asarray(part) for part in together.layers()]
        for old, new, single in zip(before, after, alone.layers(), strict=True):
            np.testing.assert_array_equal(new[~fresh], old[~fresh])
            np.testing.assert_array_equal(new[0], np.asarray(single)[0])
    assert not bool(together.seeded[2])


def test_no_fresh_frame_at_all(wide):
    maps = ElevationMap(CFG, 2, wide([0.0]))
    fuse(maps, wide, LOCAL, np.zeros((2, 4)), fresh=wide([0.0, 0.0]) > 0)
    assert not bool(maps.seeded.any())


def test_variance_grows_with_time_up_to_the_priors(wide):
    cfg = replace(CFG, drift_variance_m2_per_s=0.5, fusion="kalman", kalman=KalmanCfg(0.1))
    maps = ElevationMap(cfg, 1, wide([0.0]))
    pose = [[0.05, 0.05, 0.3, 0.0]]
    fuse(maps, wide, LOCAL, pose, variance=0.01)
    _, first = look(maps, wide, INNER, pose)
    maps.advance(2.0)
    _, later = look(maps, wide, INNER, pose)
    np.testing.assert_allclose(later, first + 0.6 * 2.0)
    fuse(maps, wide, LOCAL, pose, variance=0.01)
    _, again = look(maps, wide, INNER, pose)
    np.testing.assert_allclose(again, 1 / (1 / later + 1 / 0.01), rtol=1e-9)
    maps.advance(1000.0)
    _, last = look(maps, wide, INNER, pose)
    np.testing.assert_array_equal(last, 10.0)


def test_what_is_not_finite_is_not_fused(wide):
    maps = kalman_map(wide)
    heights, log_variance = np.zeros((1, *LOCAL.shape)), np.full((1, *LOCAL.shape), -4.0)
    heights[0, :4], log_variance[0, 4:8] = math.nan, math.inf
    pose = wide([[0.05, 0.05, 0.3]])
    maps.fuse(wide(heights), wide(log_variance), wide(heights * 0) == 0, LOCAL, pose, wide([0.0]))
    maps.fuse(wide(heights), wide(log_variance), wide(np.ones_like(heights)) > 0, LOCAL, pose, wide([0.0]))
    mean, variance = (np.asarray(part)[0] for part in maps.layers()[:2])
    assert np.isfinite(mean).all()
    assert np.isfinite(variance).all()
    assert (variance < 1.0).sum() == 4 * 8


def test_a_floor_under_the_robot_at_its_first_frame(wide):
    cfg = replace(CFG, spawn_floor_half_m=0.5)
    maps = ElevationMap(cfg, 2, wide([0.0]))
    poses = [[0.03, 0.04, 0.5, 0.7], [9.0, 3.0, 0.3, 0.0]]
    fuse(maps, wide, LOCAL, poses, valid=np.zeros((2, 12, 8)))
    wide_view = GridSpec(60, 60, 0.05)
    mean, variance = look(maps, wide, wide_view, poses)
    centers = abs(wide_view.cell_centers(np.zeros(1)))
    inside, outside = centers.max(axis=-1) < 0.42, centers.max(axis=-1) > 0.58
    for env, ground in enumerate((0.2, 0.0)):
        np.testing.assert_allclose(variance[env][inside], 0.01)
        np.testing.assert_array_equal(variance[env][outside], 10.0)
        np.testing.assert_allclose(mean[env], ground, atol=1e-12)


def test_a_grid_larger_than_the_map(wide):
    maps = kalman_map(wide, replace(CFG, map_size_m=0.8))
    fuse(maps, wide, GridSpec(31, 31, 0.1), [[0.05, 0.05, 0.3, 0.4]], np.zeros((1, 31, 31)))
    mean, variance, _ = maps.layers()
    assert np.asarray(variance).max() < 1.0
    np.testing.assert_allclose(np.asarray(mean), 0.3, atol=1e-3)
