"""Cells and their centres."""

import numpy as np
import pytest

from gantry_mapping.elevation.grid import (
    LOCAL_GRID_FULL,
    LOCAL_GRID_NEAR,
    LOCAL_GRID_SMALL,
    WINDOW_FULL,
    WINDOW_SMALL,
    GridSpec,
)
from gantry_mapping.errors import MappingError

GRIDS = (LOCAL_GRID_FULL, LOCAL_GRID_SMALL, LOCAL_GRID_NEAR, WINDOW_FULL, WINDOW_SMALL)


def test_centers_by_hand(array):
    centers = np.asarray(GridSpec(3, 2, 0.5, 1.0, -2.0).cell_centers(array([0.0])))
    assert centers.shape == (3, 2, 2)
    np.testing.assert_allclose(centers[:, 0, 0], [0.5, 1.0, 1.5])
    np.testing.assert_allclose(centers[0, :, 1], [-2.25, -1.75])


@pytest.mark.parametrize("grid", GRIDS)
def test_every_center_is_in_its_own_cell(grid, array):
    row, col, inside = grid.index_of(grid.cell_centers(array([0.0])))
    assert bool(inside.all())
    np.testing.assert_array_equal(np.asarray(row), np.indices(grid.shape)[0])
    np.testing.assert_array_equal(np.asarray(col), np.indices(grid.shape)[1])


def test_a_cell_holds_its_lower_edges_only(array):
    grid = GridSpec(4, 2, 0.5)
    xy = array([[-1.0, -0.5], [-0.5, 0.0], [0.999, 0.499], [1.0, 0.0], [0.0, 0.5], [-1.001, 0.0], [float("nan"), 0.0]])
    row, col, inside = (np.asarray(part) for part in grid.index_of(xy))
    np.testing.assert_array_equal(inside, [True, True, True, False, False, False, False])
    np.testing.assert_array_equal(row, [0, 1, 3, 0, 0, 0, 0])
    np.testing.assert_array_equal(col, [0, 1, 1, 0, 0, 0, 0])


def test_the_papers_grids():
    assert (LOCAL_GRID_FULL.size, WINDOW_FULL.size) == (1581, 504)
    # The reduced grid covers the same ground.
    assert LOCAL_GRID_SMALL.corner_x_m == pytest.approx(LOCAL_GRID_FULL.corner_x_m, abs=0.03)
    assert LOCAL_GRID_SMALL.corner_y_m == pytest.approx(LOCAL_GRID_FULL.corner_y_m, abs=0.03)


def test_refusals_name_the_value():
    with pytest.raises(MappingError, match="rows is 0, expected a number from 1"):
        GridSpec(0, 3, 0.1)
    with pytest.raises(MappingError, match=r"-0\.1"):
        GridSpec(1, 3, -0.1)
