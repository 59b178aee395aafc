"""Points to the highest point per cell."""

import math

import numpy as np

from gantry_mapping.elevation.grid import GridSpec
from gantry_mapping.elevation.rasterize import EMPTY_Z_M, rasterize

GRID = GridSpec(4, 3, 0.1, 0.2, 0.0)  # x from 0 to 0.4, y from -0.15 to 0.15


def ones(array, points):
    return array(np.ones(points.shape[:2])) > 0


def test_by_hand(array):
    points = array(
        [
            [
                [0.05, 0.0, -0.3],
                [0.06, 0.01, -0.1],
                [0.04, 0.0, -0.2],
                [0.35, 0.14, 0.2],
                [0.45, 0.0, 0.5],
                [-0.01, 0, 0.5],
            ]
        ]
    )
    heights, covered = rasterize(points, ones(array, points), GRID)
    expected = np.full((4, 3), EMPTY_Z_M)
    expected[0, 1], expected[3, 2] = -0.1, 0.2
    np.testing.assert_allclose(np.asarray(heights)[0], expected, atol=1e-7)
    np.testing.assert_array_equal(np.asarray(covered)[0], expected > EMPTY_Z_M)


def test_invalid_points_count_for_nothing(array):
    points = array([[[0.05, 0, 0.5], [0.05, 0, math.nan], [math.nan, 0, 0.1], [0.05, 0, -3.0], [0.05, 0, 1.5]]])
    valid = array([[0, 1, 1, 1, 1]]) > 0
    heights, covered = rasterize(points, valid, GRID, highest_m=1.0)
    assert not bool(covered.any())
    np.testing.assert_array_equal(np.asarray(heights), np.full((1, 4, 3), EMPTY_Z_M, np.float32))


def test_the_order_of_points_does_not_matter(array):
    rng = np.random.default_rng(2)
    points = rng.uniform([-0.1, -0.2, -0.5], [0.5, 0.2, 0.5], (3, 300, 3))
    heights, _ = rasterize(array(points), ones(array, points), GRID)
    shuffled = points[:, rng.permutation(300)]
    again, _ = rasterize(array(shuffled), ones(array, shuffled), GRID)
    np.testing.assert_array_equal(np.asarray(heights), np.asarray(again))


def test_environments_do_not_mix(array):
    rng = np.random.default_rng(3)
    points = rng.uniform([0, -0.15, -0.5], [0.4, 0.15, 0.5], (3, 9, 3))
    heights, covered = rasterize(array(points), ones(array, points), GRID)
    assert not bool(covered.all())
    for i in range(3):
        alone, _ = rasterize(array(points[i : i + 1]), ones(array, points[i : i + 1]), GRID)
        np.testing.assert_array_equal(np.asarray(heights)[i], np.asarray(alone)[0])
