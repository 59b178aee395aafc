"""Which way to a goal: around walls, along beams, straight where it does not matter; numpy and torch alike."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.contract.footstep_spec import PathSelectorSpec
from gantry_deploy.contract.policy_contract import MapWindow
from gantry_deploy.footsteps import path_selector
from gantry_deploy.footsteps.gait import drive_command
from gantry_deploy.footsteps.path_selector import PathSelector
from gantry_fixtures.footsteps import FAR, SEEN, STEPS, Stepper, sensed, stepping_contract, stepping_inputs
from gantry_fixtures.training import torch

WINDOW = MapWindow(18, 10, 0.08, 0.4, 0.0, ("elevation",))
X = WINDOW.center_x_m + (np.arange(18) - 8.5) * 0.08
Y = (np.arange(10) - 4.5) * 0.08
SOLE_M = -0.28
AHEAD = (3.0, 0.0, 0.0, 1.0)


def ground(where=None, height_m=0.0):
    """Flat below the soles (1, 18, 10), and so much higher where ``where(x, y)`` says."""
    cells = np.full((1, 18, 10), SOLE_M)
    if where is not None:
        cells[:, where(X[:, None], Y[None, :])] += height_m
    return cells


def bearings(cells, goal=AHEAD):
    """Bearings of the goals to go to and to face, rad, by numpy, after torch has said the same."""
    arrays = np.array([goal]), cells, np.array([[SOLE_M]]), np.array([[SOLE_M]])
    found = PathSelector(PathSelectorSpec(), WINDOW, cells)(*arrays)
    if torch:
        tensors = [torch.from_numpy(values) for values in arrays]
        same = PathSelector(PathSelectorSpec(), WINDOW, tensors[0])(*tensors)
        np.testing.assert_allclose(same.numpy(), found, atol=1e-9)
    assert np.hypot(*found[0, :, :2].T) == pytest.approx(np.hypot(*goal[:2]))
    np.testing.assert_array_equal(found[0, :, 2:], [goal[2:]] * 2)
    return tuple(np.arctan2(found[0, :, 1], found[0, :, 0]).tolist())


@pytest.mark.parametrize("bearing", [-0.5, 0.0, 0.07, 0.3])
def test_on_open_ground_the_way_is_straight(bearing):
    goal = (3.0 * np.cos(bearing), 3.0 * np.sin(bearing), 0.6, 0.8)
    assert bearings(ground(), goal) == pytest.approx((bearing, bearing), abs=0.005)


def test_a_wall_is_passed_on_the_open_side():
    """It stands from 0.4 m ahead on, from the right up to 10 cm left of the middle."""
    cells = ground(lambda x, y: (x > 0.4) & (y < 0.1), 0.8)
    go, face = bearings(cells)
    assert go > 0.2
    assert face > 0.2
    mirrored = bearings(cells[:, :, ::-1].copy())
    assert mirrored == pytest.approx((-go, -face), abs=1e-9)
    assert bearings(ground(lambda x, y: (x > 0.4) & (y < 0.1), 0.3)) == pytest.approx((0.0, 0.0), abs=0.005)  # a step


def test_a_beam_beside_is_come_back_to():
    """40 cm wide and 12 cm to the left: there both sides' feet find ground."""
    go, face = bearings(ground(lambda x, y: np.abs(y - 0.12) + 0.0 * x > 0.2, -1.0))
    assert go > 0.1
    assert 0.05 < face < go + 0.1


def test_before_a_ledge_all_ways_are_alike(monkeypatch):
    """Nothing but void from 40 cm ahead on, aslant: whoever turned aside would come to its edge all the same."""
    cells = ground(lambda x, y: x + 0.3 * y > 0.4, -1.0)
    assert bearings(cells) == (0.0, 0.0)
    monkeypatch.setattr(path_selector, "MOST_LACK", 1.1)
    assert bearings(cells)[1] != 0.0


@pytest.mark.parametrize("goal", [(0.35, 0.0, 0.0, 1.0), (-3.0, 0.5, 0.0, 1.0), (1.0, 3.0, 0.0, 1.0)])
def test_who_is_near_or_has_yet_to_turn_round_goes_as_he_was(goal):
    cells = ground(lambda x, y: (x > 0.3) & (y < 0.1), 0.8)
    assert bearings(cells, goal) == pytest.approx((np.arctan2(goal[1], goal[0]),) * 2)


def test_the_decoder_walks_to_where_it_is_steered():
    """The whole decoder, told of a goal straight ahead behind a wall that is open to the left."""
    gait, window = stepping_contract().gait, stepping_contract().map_window
    x = window.center_x_m + (np.arange(window.rows) - 0.5 * (window.rows - 1)) * window.resolution_m
    y = (np.arange(window.cols) - 0.5 * (window.cols - 1)) * window.resolution_m
    seen = stepping_inputs(FAR)["elevation_map"]
    seen[..., 0] += 0.8 * ((x > 0.45)[:, None] & (y < 0.1)[None])
    contract = stepping_contract(gait=replace(gait, steps=replace(STEPS, path=PathSelectorSpec())))
    inputs = stepping_inputs(FAR, elevation_map=seen)
    body = Stepper(contract, seen).sense(inputs["time_s"], inputs["command"], *(inputs[name] for name in SEEN))
    straight = drive_command(contract.command, inputs["command"])
    np.testing.assert_array_equal(sensed(elevation_map=seen).drive, straight)
    assert body.drive[0, 1] > straight[0, 1] + 0.05
    assert body.drive[0, 2] > straight[0, 2] + 0.1


@pytest.mark.parametrize(
    ("goal", "share"),
    [
        ((5.0, 0.0), 1.0),
        ((5.0, 2.0), 1.0),
        ((0.0, 5.0), 0.0),
        ((-5.0, 0.0), 0.0),
        ((0.0, 0.0), 1.0),
        ((0.0, -0.5), 1.0),  # near
        ((0.0, 0.75), 0.5),
        ((5.0 * math.cos(0.6), 5.0 * math.sin(0.6)), (math.cos(0.6) - math.cos(1.0)) / (math.cos(0.5) - math.cos(1.0))),
    ],
)
def test_who_sees_by_a_camera_turns_to_a_far_goal_before_it_walks(goal, share):
    goals = np.array([(*goal, 0.0, 1.0)])
    looks = replace(WINDOW, channels=("elevation", "uncertainty"))
    assert PathSelector(PathSelectorSpec(), looks, goals).goes(goals, 0.5)[0, 0] == pytest.approx(share)
    if torch:
        tensors = torch.from_numpy(goals)
        assert PathSelector(PathSelectorSpec(), looks, tensors).goes(tensors, 0.5).item() == pytest.approx(share)
    assert PathSelector(PathSelectorSpec(), WINDOW, goals).goes(goals, 0.5).tolist() == [[1.0]]


def test_while_it_turns_no_velocity_of_an_action_moves_the_base():
    contract = stepping_contract(gait=replace(stepping_contract().gait, steps=replace(STEPS, path=PathSelectorSpec())))
    assert len(contract.map_window.channels) == 2
    steps = np.zeros((1, 12))
    steps[:, 6:9] = 0.2
    vels = {}
    for goal in ([5.0, 0.0, 0.0, 1.0], [0.0, 5.0, 0.0, 1.0]):
        inputs = stepping_inputs([goal])
        stepper = Stepper(contract, inputs["elevation_map"])
        plan = stepper.plan(steps, stepper.sense(inputs["time_s"], inputs["command"], *(inputs[name] for name in SEEN)))
        vels[goal[0]] = np.hypot(*plan.vel[0])
        assert abs(plan.turn[0, 0]) >= 0.2
    assert vels[5.0] > 0.3
    assert vels[0.0] < 0.02


@pytest.mark.parametrize("near_m", [0.5, 1.0])
@pytest.mark.parametrize("distance_m", [0.9, 1.5])
@pytest.mark.parametrize("heading", [0.0, 1.5, 3.0])
def test_nobody_turns_for_ever(distance_m, heading, near_m):
    """A point that moves as it is told comes to every goal, from any side."""
    looks = replace(WINDOW, channels=("elevation", "uncertainty"))
    command = stepping_contract().command
    command = replace(command, goal_velocity=replace(command.goal_velocity, near_m=near_m))
    bearings = np.linspace(-np.pi, np.pi, 16)
    place = distance_m * np.stack((np.cos(bearings), np.sin(bearings)), axis=1)
    yaw, pos, dt_s = np.zeros(16), np.zeros((16, 2)), 0.02
    steering = PathSelector(PathSelectorSpec(), looks, place)
    for _ in range(500):
        away, c, s = place - pos, np.cos(yaw), np.sin(yaw)
        turn = bearings + heading - yaw
        ahead, aside = c * away[:, 0] + s * away[:, 1], c * away[:, 1] - s * away[:, 0]
        goal = np.stack((ahead, aside, np.sin(turn), np.cos(turn)), axis=1)
        vel = drive_command(command, goal)
        move = steering.goes(goal, near_m) * vel[:, :2]
        pos += dt_s * np.stack((c * move[:, 0] - s * move[:, 1], s * move[:, 0] + c * move[:, 1]), axis=1)
        yaw += dt_s * vel[:, 2]
    assert np.hypot(*(place - pos).T).max() <= command.goal_velocity.stop_m + 0.01
