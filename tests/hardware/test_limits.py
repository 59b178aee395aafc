"""The last gate before the motors, against hand-made numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.testing.legs import tiny_robot
from gantry_hardware import JointCommand, RobotError
from gantry_hardware.backends.limits import clamp_command

SPEC = tiny_robot()


def command(**fields):
    zeros = np.zeros(4)
    return replace(JointCommand(zeros, zeros, zeros, zeros, zeros), **fields)


def test_a_command_within_the_limits_passes_unchanged_and_silently():
    asked = command(
        pos_rad=np.array([-1.0, 2.0, 0.0, 0.5]),
        vel_rad_s=np.array([10.0, -10.0, 0.0, 1.0]),
        effort_nm=np.array([20.0, -20.0, 0.0, 1.0]),
        stiffness_nm_rad=np.full(4, 30.0),
        damping_nm_s_rad=np.full(4, 1.0),
    )
    sent, changes = clamp_command(SPEC, asked)
    assert changes == []
    for field in ("pos_rad", "vel_rad_s", "effort_nm", "stiffness_nm_rad", "damping_nm_s_rad"):
        np.testing.assert_array_equal(getattr(sent, field), getattr(asked, field))


def test_every_number_beyond_a_limit_is_limited_and_named():
    asked = command(
        pos_rad=np.array([-1.5, 0.0, 2.5, 0.0]),
        vel_rad_s=np.array([0.0, 11.0, 0.0, -12.0]),
        effort_nm=np.array([0.0, 0.0, 25.0, -21.0]),
        stiffness_nm_rad=np.array([-1.0, 0.0, 0.0, 0.0]),
        damping_nm_s_rad=np.array([0.0, 0.0, 0.0, -0.5]),
    )
    sent, changes = clamp_command(SPEC, asked)
    np.testing.assert_array_equal(sent.pos_rad, [-1.0, 0.0, 2.0, 0.0])
    np.testing.assert_array_equal(sent.vel_rad_s, [0.0, 10.0, 0.0, -10.0])
    np.testing.assert_array_equal(sent.effort_nm, [0.0, 0.0, 20.0, -20.0])
    np.testing.assert_array_equal(sent.stiffness_nm_rad, np.zeros(4))
    np.testing.assert_array_equal(sent.damping_nm_s_rad, np.zeros(4))
    assert changes == [
        "left_hip_joint: pos_rad -1.5 limited to -1",
        "right_hip_joint: pos_rad 2.5 limited to 2",
        "left_knee_joint: vel_rad_s 11 limited to 10",
        "right_knee_joint: vel_rad_s -12 limited to -10",
        "right_hip_joint: effort_nm 25 limited to 20",
        "right_knee_joint: effort_nm -21 limited to -20",
        "left_hip_joint: stiffness_nm_rad -1 limited to 0",
        "right_knee_joint: damping_nm_s_rad -0.5 limited to 0",
    ]


@pytest.mark.parametrize("field", ["pos_rad", "vel_rad_s", "effort_nm", "stiffness_nm_rad", "damping_nm_s_rad"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_refused_by_joint(field, value):
    values = np.zeros(4)
    values[2] = value
    with pytest.raises(RobotError, match=f"'{field}' is not finite: right_hip_joint"):
        clamp_command(SPEC, command(**{field: values}))


@pytest.mark.parametrize("shape", [(3,), (5,), (1, 4), ()])
def test_a_wrong_shape_is_refused(shape):
    with pytest.raises(RobotError, match=r"'pos_rad' has shape .* expected \(4,\)"):
        clamp_command(SPEC, command(pos_rad=np.zeros(shape)))


def test_gains_are_limited_to_five_times_the_larger_of_the_robots_own_and_its_holding_gains():
    asked = command(
        stiffness_nm_rad=np.array([150.0, 151.0, 30_000.0, 0.0]), damping_nm_s_rad=np.array([5.0, 6.0, 0.0, 1.0])
    )
    sent, changes = clamp_command(SPEC, asked)
    np.testing.assert_array_equal(sent.stiffness_nm_rad, [150.0, 150.0, 150.0, 0.0])
    np.testing.assert_array_equal(sent.damping_nm_s_rad, [5.0, 5.0, 0.0, 1.0])
    assert changes == [
        "left_knee_joint: stiffness_nm_rad 151 limited to 150",
        "right_hip_joint: stiffness_nm_rad 3e+04 limited to 150",
        "left_knee_joint: damping_nm_s_rad 6 limited to 5",
    ]
    sent, changes = clamp_command(replace(SPEC, hold_gains=((120.0, 2.0),) * 4), asked)
    np.testing.assert_array_equal(sent.stiffness_nm_rad, [150.0, 151.0, 600.0, 0.0])
    np.testing.assert_array_equal(sent.damping_nm_s_rad, [5.0, 6.0, 0.0, 1.0])
    assert len(changes) == 1
