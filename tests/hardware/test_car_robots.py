"""Cars as robots of two joints: numbers from their CarSpec, the conformance kit, and the last gate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gantry_hardware.backends.limits import clamp_command
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.errors import GantryError, RobotError
from gantry_hardware.model.cars import CarSpec, car_spec
from gantry_hardware.robots import robot_spec
from gantry_hardware.robots.cars import car_robot

CARS = ("f1tenth", "f1tenth_vesc", "bmw_320i")


@pytest.mark.parametrize("name", CARS)
def test_a_registered_car_has_the_limits_of_its_numbers(name):
    spec, car = robot_spec(name), car_spec(name)
    assert (spec.embodiment, spec.joint_names, spec.body) == ("car", ("steering", "drive"), car)
    np.testing.assert_array_equal(spec.array("upper_rad")[0], car.steering_limit_rad)
    np.testing.assert_array_equal(
        spec.array("velocity_limit_rad_s"), (car.steering_rate_limit_rad_s, car.speed_limit_m_s)
    )
    stiffness, damping = spec.array("stiffness_nm_rad"), spec.array("damping_nm_s_rad")
    assert stiffness[0] > 0.0
    assert stiffness[1] == 0.0
    assert (damping > 0.0).all()


@pytest.mark.parametrize("name", CARS)
def test_a_car_passes_the_conformance_kit_on_the_mock(name):
    check_backend(MockRobot(robot_spec(name)), hold_s=0.2)


def test_speed_is_limited_backwards_as_well_as_forwards():
    spec = robot_spec("f1tenth")
    for asked, given in ((30.0, 20.0), (-30.0, -5.0), (-4.0, -4.0)):
        command = replace(JointCommand.damping(spec), vel_rad_s=np.array([0.0, asked]))
        assert clamp_command(spec, command)[0].vel_rad_s[1] == given


def test_a_car_has_numbers_and_others_have_none():
    spec = car_robot(car_spec("f1tenth_vesc"), "mine")
    assert spec.name == "mine"
    with pytest.raises(RobotError, match="'go2' is of embodiment 'legs' and has no CarSpec"):
        robot_spec("go2").body_as(CarSpec)
    assert spec.body_as(CarSpec) is spec.body
    with pytest.raises(GantryError, match="two joints, steering and drive"):
        replace(spec, joints=spec.joints[:1])
