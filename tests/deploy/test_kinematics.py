"""Forward kinematics and Jacobians of arms: by hand, by finite differences, and numpy against torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gantry_deploy.actions.kinematics import ArmKinematics, damped_step, rotation_error, rotation_of_vector
from gantry_fixtures.training import torch
from gantry_hardware.errors import GantryError
from gantry_hardware.model.chain import Chain, JointFrame
from gantry_hardware.robots import robot_spec

ELBOW = Chain(
    frames=(
        JointFrame("shoulder", (0.0, 0.0, 0.5), (1.0, 0.0, 0.0, 0.0)),
        JointFrame("elbow", (0.3, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), axis=(0.0, 1.0, 0.0)),
    ),
    pos_ee_m=(0.2, 0.0, 0.0),
    quat_ee_wxyz=(1.0, 0.0, 0.0, 0.0),
)
"""Turns about z half a metre up, then about y 0.3 m further out; the tool is 0.2 m beyond."""
YAM = robot_spec("yam")
BOTH = (lambda x: np.asarray(x, dtype=np.float64), lambda x: torch.as_tensor(np.asarray(x), dtype=torch.float64))


def poses(count=5, seed=0):
    spec = YAM
    low, high = spec.array("lower_rad")[:6], spec.array("upper_rad")[:6]
    return np.random.default_rng(seed).uniform(low, high, (count, 6))


@pytest.mark.parametrize("make", BOTH)
def test_an_arm_of_two_joints_by_hand(make):
    arm = ArmKinematics(ELBOW, make([[0.0]]))
    quarter = math.pi / 2
    position, rotation = arm.forward(make([[0.0, 0.0], [quarter, 0.0], [0.0, quarter]]))
    # Stretched along x; turned to y; the elbow turned about y, which lowers the tool.
    wanted = [[0.5, 0.0, 0.5], [0.0, 0.5, 0.5], [0.3, 0.0, 0.3]]
    np.testing.assert_allclose(np.asarray(position), wanted, atol=1e-12)
    np.testing.assert_allclose(np.asarray(rotation)[2] @ [1.0, 0.0, 0.0], [0.0, 0.0, -1.0], atol=1e-12)


def test_the_jacobian_is_the_derivative_of_the_pose():
    arm = ArmKinematics(YAM.body, np.zeros((1, 1)))
    joints, step = poses(), 1e-6
    _, _, jacobian = arm.jacobian(joints)
    for joint in range(6):
        nudge = step * np.eye(6)[joint]
        (before, turned_from), (after, turned_to) = arm.forward(joints - nudge), arm.forward(joints + nudge)
        np.testing.assert_allclose(jacobian[:, :3, joint], (after - before) / (2 * step), atol=1e-8)
        turn = rotation_error(turned_from, turned_to) / (2 * step)
        np.testing.assert_allclose(jacobian[:, 3:, joint], turn, atol=1e-8)


def test_numpy_and_torch_agree():
    joints = poses(20)
    ours = ArmKinematics(YAM.body, np.zeros((1, 1))).jacobian(joints)
    theirs = ArmKinematics(YAM.body, torch.zeros(1, 1, dtype=torch.float64)).jacobian(torch.from_numpy(joints))
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, two.numpy(), atol=1e-12)


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize("vector", [(0.0, 0.0, 0.0), (1e-9, 0.0, 0.0), (0.3, -0.2, 0.5), (0.0, 2.5, 0.0)])
def test_rotation_vectors_come_back(make, vector):
    rotation = rotation_of_vector(make([vector]))
    np.testing.assert_allclose(np.asarray(rotation[0] @ rotation[0].T), np.eye(3), atol=1e-12)
    identity = make([np.eye(3)])
    np.testing.assert_allclose(np.asarray(rotation_error(identity, rotation)), [vector], atol=1e-7)


def test_damped_steps_solve_where_the_arm_can_and_stay_small_where_it_cannot():
    arm = ArmKinematics(YAM.body, np.zeros((1, 1)))
    home = YAM.array("default_rad")[None, :6]
    _, _, jacobian = arm.jacobian(home)
    error = np.array([[0.01, -0.01, 0.005, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose((jacobian @ damped_step(jacobian, error, 1e-6)[..., None])[..., 0], error, atol=1e-7)
    flat = np.zeros((1, 6, 6))  # an arm that nothing moves
    assert np.abs(damped_step(flat, error, 0.02)).max() == 0.0
    weak = flat + 1e-4 * np.eye(6)
    assert np.abs(damped_step(weak, error, 0.02)).max() < 1e-2  # the exact inverse would take 100 rad


def test_an_arm_at_its_default_pose_is_where_its_spec_says():
    position, rotation = ArmKinematics(YAM.body, np.zeros((1, 1))).forward(YAM.array("default_rad")[None, :6])
    np.testing.assert_allclose(position, [[0.30, 0.0, 0.17]], atol=1e-3)
    # Fingers down and forward, 40 degrees from the vertical; they close along y.
    tilt = math.radians(40.0)
    np.testing.assert_allclose(rotation[0][:, 2], [math.sin(tilt), 0.0, -math.cos(tilt)], atol=1e-3)
    np.testing.assert_allclose(rotation[0][:, 1], [0.0, 1.0, 0.0], atol=1e-3)


def test_a_chain_without_joints_or_with_one_twice_is_refused():
    with pytest.raises(GantryError, match="no joints"):
        Chain((), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
    with pytest.raises(GantryError, match="joint twice: a, a"):
        Chain((JointFrame("a", (0.0,) * 3, (1.0, 0.0, 0.0, 0.0)),) * 2, (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
