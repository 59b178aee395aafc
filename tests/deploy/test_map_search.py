"""Where feet find ground: planks, feet that land together, what is better ahead; numpy and torch alike."""

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.contract.policy_contract import MapWindow
from gantry_deploy.footsteps.map_search import FootholdCosts, FootholdSearch, vertex
from gantry_fixtures.footsteps import LEGS
from gantry_fixtures.training import torch

WINDOW = MapWindow(10, 6, 0.1, 0.25, 0.0, ("elevation",))
X = WINDOW.center_x_m + (np.arange(10) - 4.5) * 0.1
Y = (np.arange(6) - 2.5) * 0.1
ALONE = FootholdCosts(ahead_m_s=0.0, inward_m=0.0, together=0.0, keep=0.0)
"""Each foot for itself, and only for ground."""
BOUNDS = np.array([[-0.15]]), np.array([[0.25]])
STAND = np.array([[(leg.stand_x_m, leg.stand_y_m) for leg in LEGS]])


def search(costs, ground, places, vel, lowest_m, highest_m, towards, progress):
    """Offsets (1, 4, 2) in the arrays' own namespace."""
    limits = lowest_m, highest_m
    return FootholdSearch(LEGS, 0.28, places, costs).on_map(WINDOW, ground, places, vel, limits, towards, progress)


def shifts(costs, ground, places, vel=(0.0, 0.0), towards=None, progress=0.0):
    """How far feet are moved, (4, 2), by numpy, after torch has said the same."""
    towards = places if towards is None else towards
    arrays = ground, places, np.array([vel]), *BOUNDS, towards, np.full((1, 4), progress)
    found = search(costs, *arrays)
    if torch:
        np.testing.assert_allclose(search(costs, *(torch.from_numpy(values) for values in arrays)).numpy(), found)
    return found[0]


@pytest.mark.parametrize(
    ("x_m", "lands_m"),
    [
        (0.00, 0.0),  # on the plank
        (0.03, -0.01),  # at its edge: a quarter of four cells lacks
        (0.09, -0.03),  # beside it: the nearest place of the grid of 4 cm with all four
        (0.13, -0.03),
        (0.17, 0.33),  # the other plank is nearer
    ],
)
@pytest.mark.parametrize("void_m", [-0.5, 0.5])
def test_a_place_between_two_planks_is_moved_onto_one(x_m, lands_m, void_m):
    """Cells at x <= 0 and x >= 0.3 carry, those between are a hole or a wall."""
    ground = np.full((1, 10, 6), void_m)
    ground[:, :3] = ground[:, 5:] = 0.0
    places = np.stack((np.full(4, x_m), np.array([0.0, 0.1, -0.1, 0.05])), axis=1)[None]
    found = shifts(ALONE, ground, places)
    assert (places[0] + found)[:, 0] == pytest.approx([lands_m] * 4)
    assert found[:, 1] == pytest.approx([0.0] * 4)


def test_who_finds_no_ground_stays():
    np.testing.assert_array_equal(shifts(ALONE, np.full((1, 10, 6), -1.0), STAND), np.zeros((4, 2)))


def test_among_good_places_those_ahead_and_not_those_further_in_are_taken():
    flat = np.zeros((1, 10, 6))
    np.testing.assert_array_equal(shifts(FootholdCosts(), flat, STAND), np.zeros((4, 2)))
    ahead = shifts(replace(ALONE, ahead_m_s=0.16), flat, STAND, (0.5, 0.0))  # s^2 - 0.08 s is least at 4 cm
    assert ahead == pytest.approx(np.tile([0.04, 0.0], (4, 1)))
    left = shifts(replace(ALONE, ahead_m_s=0.32), flat, STAND, (0.0, 0.5))  # at 8 cm
    assert left == pytest.approx(np.tile([0.0, 0.08], (4, 1)))
    held = shifts(replace(ALONE, ahead_m_s=0.32, inward_m=0.32), flat, STAND, (0.0, 0.5))
    assert held == pytest.approx(np.array([[0.0, 0.04], [0.0, 0.08], [0.0, 0.04], [0.0, 0.08]]))  # the right ones


def test_feet_that_land_together_keep_their_line_below_the_body():
    """The front right foot has no ground within 8 cm ahead of and beside it; its mate behind on the left has all."""
    ground = np.zeros((1, 10, 6))
    ground[:, (X > 0.05)[:, None] & (Y < -0.01)[None]] = -1.0
    line = STAND[0, 0] - STAND[0, 3]
    across = np.array([-line[1], line[0]]) / np.linalg.norm(line)
    alone, together = (shifts(spec, ground, STAND) for spec in (ALONE, replace(ALONE, together=6.0)))
    assert np.abs(alone[0]).sum() > 0.05
    np.testing.assert_array_equal(alone[3], [0.0, 0.0])
    apart, held = (abs((found[0] + found[3]) @ across) / 2.0 for found in (alone, together))
    assert held < 0.5 * apart


@pytest.mark.parametrize(("keep", "progress", "lands_m"), [(0.0, 0.8, 0.0), (4.0, 0.8, 0.32), (4.0, 0.0, 0.0)])
def test_a_foot_that_is_bound_for_a_plank_is_not_called_back(keep, progress, lands_m):
    """Planks up to x = 0.04 and from 0.26 on, a place 2 cm nearer to the first: without its way, it is sent back."""
    ground = np.full((1, 10, 6), -0.5)
    ground[:, :3] = ground[:, 5:] = 0.0
    places = np.stack((np.full(4, 0.12), np.array([0.0, 0.1, -0.1, 0.05])), axis=1)[None]
    towards = places + np.array([0.21, 0.0])
    found = shifts(replace(ALONE, keep=keep), ground, places, towards=towards, progress=progress)
    assert (places[0] + found)[:, 0] == pytest.approx([lands_m] * 4)


def test_what_is_near_to_where_a_foot_is_bound_is_no_other_place():
    """5 cm off, as the estimate may be, nothing pulls; 10 cm off the place gives way, but not by all of them."""
    flat, spec = np.zeros((1, 10, 6)), replace(ALONE, keep=50.0)
    near, far = (STAND + np.array([shift, 0.0]) for shift in (0.05, 0.1))
    np.testing.assert_array_equal(shifts(spec, flat, STAND, towards=near, progress=0.9), np.zeros((4, 2)))
    assert shifts(spec, flat, STAND, towards=far, progress=0.9) == pytest.approx(np.tile([0.04, 0.0], (4, 1)))
    np.testing.assert_array_equal(shifts(spec, flat, STAND, towards=far, progress=0.0), np.zeros((4, 2)))


@pytest.mark.parametrize("lowest", [-0.4, 0.0, 0.25])
def test_the_lowest_point_between_three_costs_is_the_parabolas(lowest):
    costs = [np.array([2.0 * (x - lowest) ** 2 + 1.0]) for x in (-1.0, 0.0, 1.0)]
    assert vertex(*costs, 1.0) == pytest.approx(lowest)
    if torch:
        bounded = vertex(*(torch.from_numpy(cost) for cost in costs), 0.2)
        assert bounded.item() == pytest.approx(np.clip(lowest, -0.2, 0.2))
    assert vertex(*(0.0 * cost for cost in costs), 1.0) == 0.0  # all as good: the middle one
