"""How the base is held for a step that the map shows, against steps made by hand; numpy and torch alike."""

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.contract.footstep_spec import BodyPoseSpec
from gantry_deploy.contract.policy_contract import MapWindow
from gantry_deploy.footsteps import body_pose
from gantry_deploy.footsteps.body_pose import BodyPoseAdapter
from gantry_deploy.footsteps.controller import Stepper
from gantry_deploy.footsteps.support import HEIGHT_GAIN_1_S2
from gantry_fixtures.footsteps import (
    STAND_M,
    STEPS,
    forces_of,
    joints_of,
    sensed,
    standing_feet,
    stepping_contract,
)
from gantry_fixtures.training import torch

WINDOW = MapWindow(40, 16, 0.04, 0.4, 0.0, ("elevation",))
X = WINDOW.center_x_m + (np.arange(40) - 19.5) * 0.04
SOLE_M = -0.3
"""Flat ground and the soles on it, over the base."""


def held(spec, ground, pose=(0.0, 0.0, 0.0)):
    """What is added to height, pitch and roll, (3,), by numpy, after torch has said the same."""
    arrays = ground, np.array([SOLE_M]), np.array([pose])
    found = BodyPoseAdapter(spec, WINDOW, ground)(*arrays)
    if torch:
        tensors = [torch.from_numpy(values) for values in arrays]
        np.testing.assert_allclose(BodyPoseAdapter(spec, WINDOW, tensors[0])(*tensors).numpy(), found, atol=1e-12)
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
        (0.5, 0.4, 0.45),  # no more than it may: 0.3 m more than it minds are 0.6 rad
        (0.5, 0.5, 0.0),  # a wall
        (0.5, -0.3, 0.0),  # an edge down
    ],
)
def test_the_nose_goes_up_before_a_step(x_m, step_m, nose_up):
    spec = BodyPoseSpec((0.3, 0.8), nose_m=0.5 if step_m < 0.3 else 0.3, belly_m=0.0)
    np.testing.assert_allclose(held(spec, step_at(x_m, step_m)), (0.1 * nose_up, -nose_up, 0.0), atol=1e-9)


def test_what_is_higher_beside_the_way_is_none_of_the_noses_business():
    ground = step_at(9.0, 0.0)
    ground[:, :, :5] += 0.2  # up to 12 cm to the right of the middle lie six cells, from 14 cm on these
    np.testing.assert_allclose(held(BodyPoseSpec(), ground), 0.0, atol=1e-9)
    ground[:, :, 5] += 0.2
    assert held(BodyPoseSpec(), ground)[1] < -0.1


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
    # Nothing is looked at from 75 cm ahead on, where the step is flat ground again.
    ground[:, X > 0.6] = SOLE_M
    found = held(BodyPoseSpec((0.75, 0.8), belly_m=0.1), ground, (0.0, pitch, 0.0))
    np.testing.assert_allclose(found, (up, 0.0, 0.0), atol=1e-6)


@pytest.mark.parametrize(
    ("pose", "down_rad", "there_m"),
    [
        ((0.0, 0.0, 0.0), 0.2, 0.0),
        ((0.04, 0.0, 0.0), 0.2, 0.04),  # the legs raise it by so much already
        ((0.0, -0.1, 0.0), 0.3, 0.0),  # and hold the nose up by so much
        ((0.0, 0.0, 0.2), 0.2, 0.0),
    ],
)
def test_a_nose_that_is_raised_lowers_the_belly_behind(pose, down_rad, there_m):
    """It is to be 12 cm over ground that lies 10 cm below; the nose's own 2 cm of height are not added to that."""
    spec = BodyPoseSpec((0.3, 0.8), nose_m=0.5, belly_m=0.12)
    ground = np.where(X > 0.4, SOLE_M + 0.2, -0.1)[None, :, None] * np.ones((1, 40, 16))
    higher = 0.02 + 0.3 * np.tan(down_rad) - there_m
    np.testing.assert_allclose(held(spec, ground, pose), (higher, -0.2, 0.0), atol=1e-9)


def test_a_ridge_is_seen_wherever_it_lies_ahead():
    """Three cells deep, 12 cm; what is looked at lies 9 cm apart."""
    for i in np.flatnonzero((X > 0.36) & (X < 0.72)):
        ground = np.full((1, 40, 16), SOLE_M)
        ground[:, i - 1 : i + 2] += 0.25
        assert held(BodyPoseSpec(), ground)[1] < -0.4, X[i]


def stepper_before(step_m, spec, *, far=True, **changes):
    """The whole decoder, and a body on flat ground with a step 45 cm ahead."""
    contract = stepping_contract()
    assert contract.gait is not None
    assert contract.map_window is not None
    own = replace(contract, gait=replace(contract.gait, steps=replace(STEPS, body_pose=spec)))
    window = contract.map_window
    x = window.center_x_m + (np.arange(window.rows) - 0.5 * (window.rows - 1)) * window.resolution_m
    body = sensed(far=far, **changes)
    body = replace(body, ground=body.ground + np.where(x > 0.45, step_m, 0.0)[None, :, None])
    return Stepper(own, np.zeros((1, 1))), body


def decided(step_m, spec, **changes):
    """Height, pitch and roll, (3,), that it asks for."""
    stepper, body = stepper_before(step_m, spec, **changes)
    return stepper.support.held(body, stepper.plan(np.zeros((1, 12)), body))[0]


def test_the_legs_hold_the_base_so_and_not_at_rest():
    """By what the lower front sole lacks to the step: the standing one's, 28 cm below the base."""
    spec = BodyPoseSpec(nose_m=0.5, belly_m=0.0)
    flat, stepped = decided(0.0, spec), decided(0.2, spec)
    np.testing.assert_allclose(flat, decided(0.0, None))
    np.testing.assert_allclose(stepped - decided(0.2, None), (0.02, -0.2, 0.0), atol=1e-6)
    np.testing.assert_allclose(decided(0.2, spec, far=False), decided(0.2, None, far=False))


@pytest.mark.parametrize("front", [0, 1])
def test_the_lower_front_foot_says_how_high_a_step_is(front):
    """The other one is raised already, and a rear one hangs lower."""
    spec = BodyPoseSpec(nose_m=0.5, belly_m=0.0)
    feet = standing_feet()
    feet[:, front, 2] += 0.05
    feet[:, 2, 2] -= 0.05
    joints = joints_of(feet)
    _, body = stepper_before(0.2, spec, joint_pos_rad=joints)
    lacks_m = body.ground.max() + STAND_M  # the map's drift has been taken out by the feet that stand
    pitch = decided(0.2, spec, joint_pos_rad=joints)[1] - decided(0.2, None, joint_pos_rad=joints)[1]
    assert pitch == pytest.approx(-(lacks_m - 0.1) / 0.5)


def test_the_standing_feet_push_for_it(monkeypatch):
    """They lift by the height that is added, the mass and the gain; to raise the nose the front one pushes more."""
    pushes = {}
    for name, height_m_rad in (("none", None), ("nose", 0.0), ("both", 0.1)):
        monkeypatch.setattr(body_pose, "HEIGHT_M_RAD", height_m_rad)
        stepper, body = stepper_before(0.15, None if height_m_rad is None else BodyPoseSpec(nose_m=0.5, belly_m=0.0))
        inputs = {"joint_pos_rad": body.joint_pos}
        forces = forces_of(stepper(np.zeros((1, 12)), body)[0], inputs)
        pushes[name] = -forces[body.stands[0], 2]  # one front foot, then a rear one
    lift = STEPS.support.mass_kg * HEIGHT_GAIN_1_S2 * 0.1 * 0.1
    np.testing.assert_allclose(pushes["nose"].sum(), pushes["none"].sum(), rtol=1e-3)
    np.testing.assert_allclose(pushes["both"].sum() - pushes["nose"].sum(), lift, rtol=1e-2)
    assert pushes["nose"][0] - pushes["none"][0] > 5.0
