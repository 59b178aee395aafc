"""Legs and the forces of feet, by their laws."""

import numpy as np

from gantry_deploy.footsteps.forces import foot_forces, skew
from gantry_deploy.footsteps.legs import Legs
from gantry_fixtures.footsteps import LEGS, random_joints

# -- kinematics ----------------------------------------------------------------------------------------------------


def test_joints_of_feet_are_those_that_put_them_there():
    legs, angles = Legs(LEGS, np.zeros(1)), random_joints(200)
    np.testing.assert_allclose(legs.joints(legs.feet(angles)[0]), angles, atol=1e-9)


def test_a_place_out_of_reach_is_reached_for():
    legs = Legs(LEGS, np.zeros(1))
    foot = legs.feet(random_joints(1))[0]
    wanted = foot - np.array([0.0, 0.0, 1.0])
    reached = legs.feet(legs.joints(wanted))[0]
    assert (reached[..., 2] < foot[..., 2]).all()
    length = np.sqrt(((reached - legs.hip_b) ** 2).sum(-1) - legs.side_m**2)
    np.testing.assert_allclose(length, 0.981 * 0.426, atol=1e-6)


def test_jacobian_is_the_change_of_the_feet():
    legs, angles, step = Legs(LEGS, np.zeros(1)), random_joints(5), 1e-5
    jacobian = legs.feet(angles)[1]
    for k in range(12):
        shift = np.zeros(12)
        shift[k] = step
        change = (legs.feet(angles + shift)[0] - legs.feet(angles - shift)[0]) / (2 * step)
        expected = np.zeros((5, 4, 3))
        expected[:, k // 3] = jacobian[:, k // 3, :, k % 3]
        np.testing.assert_allclose(change, expected, atol=1e-8)


# -- forces --------------------------------------------------------------------------------------------------------

ARMS = np.array([[[0.19, -0.14, -0.28], [0.19, 0.14, -0.28], [-0.19, -0.14, -0.28], [-0.19, 0.14, -0.28]]])


def test_a_cross_product_is_a_matrix():
    a, b = np.array([1.0, 2.0, 3.0]), np.array([-1.0, 0.5, 2.0])
    np.testing.assert_allclose(skew(a) @ b, np.cross(a, b))


def test_four_feet_give_the_wrench():
    force, torque = np.array([[6.0, -5.0, 150.0]]), np.array([[2.0, -3.0, 1.0]])
    found = foot_forces(force, torque, ARMS, np.ones((1, 4), bool), 0.6)
    np.testing.assert_allclose(found.sum(1), force, atol=0.2)
    np.testing.assert_allclose(np.cross(ARMS, found).sum(1), torque, atol=0.05)


def test_feet_in_the_air_carry_nothing_and_the_others_all():
    on = np.array([[True, False, False, True], [False] * 4])
    force = np.array([[0.0, 0.0, 150.0]] * 2)
    found = foot_forces(force, np.zeros((2, 3)), np.repeat(ARMS, 2, 0), on, 0.6)
    assert np.abs(found[~on]).max() == 0.0
    np.testing.assert_allclose(found[0, [0, 3], 2], 75.0, atol=0.5)


def test_feet_push_and_slide_not():
    make = np.random.default_rng(1)
    force, torque = 200.0 * make.normal(size=(100, 3)), 60.0 * make.normal(size=(100, 3))
    found = foot_forces(force, torque, np.repeat(ARMS, 100, 0), np.ones((100, 4), bool), 0.4)
    assert found[..., 2].min() == 0.0
    assert found[..., 2].max() <= 220.0
    assert (np.linalg.norm(found[..., :2], axis=-1) <= 0.4 * found[..., 2] + 1e-4).all()
