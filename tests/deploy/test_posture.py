"""How the base is held for a step that the map shows, against steps made by hand; numpy and torch alike."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.contract import MapWindow
from gantry_deploy.posture import Posture
from gantry_deploy.step_spec import PostureSpec
from gantry_deploy.steps import Stepper
from gantry_deploy.testing_steps import STEPS, sensed, stepping_contract

WINDOW = MapWindow(40, 16, 0.04, 0.4, 0.0, ("elevation",))
X = WINDOW.center_x_m + (np.arange(40) - 19.5) * 0.04
SOLE_M = -0.3
"""Flat ground and the soles on it, over the base."""


def held(spec, ground, pose=(0.0, 0.0, 0.0)):
    """What is added to height, pitch and roll, (3,), by numpy, after torch has said the same."""
    arrays = ground, np.array([SOLE_M]), np.array([pose])
    found = Posture(spec, WINDOW, ground)(*arrays)
    tensors = [torch.from_numpy(values) for values in arrays]
    np.testing.assert_allclose(Posture(spec, WINDOW, tensors[0])(*tensors).numpy(), found, atol=1e-12)
    return found[0]


def step_at(x_m, up_m):
    """Ground (1, 40, 16) that is so much higher from here on."""
    return np.broadcast_to(SOLE_M + np.where(x_m <= X, up_m, 0.0)[None, :, None], (1, 40, 16)).copy()


@pytest.mark.parametrize(
    ("x_m", "step_m", "nose_up"),
    [
        (1.0, 0.2, 0.0),  # farther than it looks
        (0.5, 0.05, 0.0),  # lower than what the nose minds
        (0.5, 0.2, 0.2),  # 0.1 m more than it minds, over half a metre
        (0.5, 0.4, 0.3),  # no more than it may
        (0.5, 0.6, 0.0),  # a wall
        (0.5, -0.3, 0.0),  # an edge down
    ],
)
def test_the_nose_goes_up_before_a_step(x_m, step_m, nose_up):
    spec = PostureSpec((0.3, 0.8), 0.1, 0.5, 0.3, 0.5, belly_up_m=0.0)
    np.testing.assert_allclose(held(spec, step_at(x_m, step_m)), (0.5 * nose_up, -nose_up, 0.0), atol=1e-9)


def test_what_is_higher_beside_the_way_is_none_of_the_noses_business():
    ground = step_at(9.0, 0.0)
    ground[:, :, :5] += 0.2  # up to 12 cm to the right of the middle lie six cells, from 14 cm on these
    assert not held(PostureSpec(), ground).any()
    ground[:, :, 5] += 0.2
    assert held(PostureSpec(), ground)[1] < -0.1


@pytest.mark.parametrize(
    ("ahead", "pitch", "up"),
    [
        (True, 0.0, 0.05),  # the base is 5 cm over the step, of 10 that are asked for
        (False, 0.0, 0.05),
        (True, -0.4, 0.05),  # the nose is up: only the base's middle is so near
        (False, -0.4, 0.12),  # the rear is down and over the step: no more than it may
        (True, 0.4, 0.12),
        (False, 0.4, 0.05 - 0.075 * np.tan(0.4)),  # the first point over the step lies 7.5 cm behind the middle
    ],
)
def test_the_belly_is_held_over_the_edge_below_it(ahead, pitch, up):
    """The edge is below the base, which looks 3 cm ahead: 1 to 5 cm behind what counts as its middle."""
    ground = np.full((1, 40, 16), SOLE_M)
    ground[:, X > 0.0 if ahead else X < 0.0] = -0.05
    found = held(PostureSpec(belly_m=0.1, belly_up_m=0.12, wall_m=0.1), ground, (0.0, pitch, 0.0))
    np.testing.assert_allclose(found, (up, 0.0, 0.0), atol=1e-6)


def decided(ahead_up_m, posture, *, far=True):
    """Pose (3,) that the whole decoder asks for, on flat ground with a step 45 cm ahead."""
    contract = stepping_contract()
    assert contract.gait is not None
    assert contract.map_window is not None
    own = replace(contract, gait=replace(contract.gait, steps=replace(STEPS, posture=posture)))
    window = contract.map_window
    x = window.center_x_m + (np.arange(window.rows) - 0.5 * (window.rows - 1)) * window.resolution_m
    body = sensed(far=far)
    body = replace(body, ground=body.ground + np.where(x > 0.45, ahead_up_m, 0.0)[None, :, None])
    stepper = Stepper(own, np.zeros((1, 1)))
    return stepper.held(body, stepper.plan(np.zeros((1, 12)), body))[0]


def test_the_legs_hold_the_base_so_and_not_at_rest():
    """By what the lower front sole lacks to the step: the standing one's, 28 cm below the base."""
    spec = PostureSpec(free_m=0.05, nose_m=0.5, height_m_rad=0.2)
    flat, stepped = decided(0.0, spec), decided(0.2, spec)
    np.testing.assert_allclose(flat, decided(0.0, None))
    np.testing.assert_allclose(stepped - decided(0.2, None), (0.06, -0.3, 0.0), atol=1e-6)
    np.testing.assert_allclose(decided(0.2, spec, far=False), decided(0.2, None, far=False))
