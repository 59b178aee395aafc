import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.backends.state import RobotState
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_sim.robots.sensor_noise import SensorNoise


@pytest.fixture(scope="module")
def truth() -> RobotState:
    mock = MockRobot(robot_spec("go2"))
    mock.connect()
    yaw_rad = 0.7
    return replace(
        mock.read(), quat_base_to_world_wxyz=np.array([math.cos(yaw_rad / 2), 0.0, 0.0, math.sin(yaw_rad / 2)])
    )


def gravity_and_heading(quat):
    w, x, y, z = quat
    gravity = np.array([2 * (w * y - x * z), -2 * (w * x + y * z), 2 * (x * x + y * y) - 1])
    return gravity, math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def many(noise, truth, count=2000):
    rng = np.random.default_rng(0)
    return [noise.apply(truth, rng) for _ in range(count)]


def test_no_noise_is_the_truth_itself(truth):
    assert SensorNoise().apply(truth, np.random.default_rng(0)) is truth
    assert SensorNoise.usual(0.0).is_zero


def test_uniform_noise_fills_its_band(truth):
    readings = many(SensorNoise(joint_pos_rad=0.01, joint_vel_rad_s=1.5, ang_vel_rad_s=0.2), truth)
    for field, width in (("joint_pos_rad", 0.01), ("joint_vel_rad_s", 1.5), ("ang_vel_base_in_base_rad_s", 0.2)):
        errors = np.array([getattr(reading, field) for reading in readings]) - getattr(truth, field)
        assert np.abs(errors).max() <= width
        assert np.abs(errors).max() > 0.99 * width
        # The standard deviation of a uniform band is its half width over sqrt(3).
        assert errors.std() == pytest.approx(width / math.sqrt(3), rel=0.03)
        assert abs(errors.mean()) < 0.03 * width


def test_gaussian_noise_has_its_standard_deviation(truth):
    noise = SensorNoise(lin_acc_m_s2=0.3, lin_vel_m_s=0.1, distribution="gaussian")
    readings = many(noise, truth)
    for field, deviation in (("lin_acc_base_in_base_m_s2", 0.3), ("lin_vel_base_in_base_m_s", 0.1)):
        errors = np.array([getattr(reading, field) for reading in readings]) - getattr(truth, field)
        assert errors.std() == pytest.approx(deviation, rel=0.03)
        assert np.abs(errors).max() > 2.5 * deviation


def test_orientation_noise_tilts_gravity_and_keeps_the_heading(truth):
    readings = many(SensorNoise(orientation_rad=0.05), truth)
    quats = np.array([reading.quat_base_to_world_wxyz for reading in readings])
    np.testing.assert_allclose(np.linalg.norm(quats, axis=1), 1.0, atol=1e-12)
    gravity, heading = zip(*(gravity_and_heading(quat) for quat in quats), strict=True)
    sideways = np.array(gravity)[:, :2]
    assert 0.048 < np.abs(sideways).max() <= 0.05
    # Tilting about two horizontal axes at once turns the heading only to second order.
    assert np.abs(np.array(heading) - 0.7).max() < 0.05**2
    assert all(np.array_equal(reading.joint_pos_rad, truth.joint_pos_rad) for reading in readings[:10])


def test_one_noise_does_not_shift_the_others(truth):
    alone = SensorNoise(joint_vel_rad_s=1.0).apply(truth, np.random.default_rng(5))
    together = SensorNoise(joint_vel_rad_s=1.0, joint_pos_rad=0.1).apply(truth, np.random.default_rng(5))
    np.testing.assert_array_equal(alone.joint_vel_rad_s, together.joint_vel_rad_s)


def test_the_truth_is_left_alone(truth):
    before = truth.joint_pos_rad.copy()
    SensorNoise.usual().apply(truth, np.random.default_rng(0))
    np.testing.assert_array_equal(truth.joint_pos_rad, before)


def test_bad_noise_is_refused():
    with pytest.raises(GantryError, match="joint_pos_rad"):
        SensorNoise(joint_pos_rad=-0.1)
    with pytest.raises(UnknownNameError, match="gaussian"):
        SensorNoise(distribution="gausian")
