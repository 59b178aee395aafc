"""Published cars against the package that publishes them, and the checks of a car's numbers."""

import math
from dataclasses import fields, replace

import pytest

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.cars import CarSpec, WheelSpec, car_names, car_spec


@pytest.mark.parametrize(("name", "number"), [("ford_escort", 1), ("bmw_320i", 2), ("vw_vanagon", 3)])
def test_commonroad_sets_are_those_of_the_package(name, number):
    published = pytest.importorskip("vehiclemodels.vehicle_parameters").setup_vehicle_parameters(number)
    car = car_spec(name)
    assert (car.length_m, car.width_m) == (published.l, published.w)
    assert (car.front_axle_to_cog_m, car.rear_axle_to_cog_m) == (published.a, published.b)
    assert car.center_x_in_base_m == published.b
    assert (car.mass_kg, car.yaw_inertia_kg_m2, car.cog_height_m) == (published.m, published.I_z, published.h_s)
    stiffness = -published.tire.p_ky1 / published.tire.p_dy1
    assert car.friction == published.tire.p_dy1
    assert (car.cornering_stiffness_front, car.cornering_stiffness_rear) == (stiffness, stiffness)
    steering, longitudinal = published.steering, published.longitudinal
    assert (car.steering_limit_rad, -car.steering_limit_rad) == (steering.max, steering.min)
    assert (car.steering_rate_limit_rad_s, -car.steering_rate_limit_rad_s) == (steering.v_max, steering.v_min)
    assert car.accel_limit_m_s2 == car.brake_limit_m_s2 == longitudinal.a_max
    assert (car.speed_limit_m_s, -car.reverse_limit_m_s) == (longitudinal.v_max, longitudinal.v_min)
    assert car.switch_speed_m_s == longitudinal.v_switch
    assert car.wheels == WheelSpec(published.R_w, published.I_y_w, published.T_sb, published.T_se)


def test_the_small_car_is_the_gyms():
    car = car_spec("f1tenth")
    assert car.wheelbase_m == pytest.approx(0.3302)
    assert (car.mass_kg, car.yaw_inertia_kg_m2, car.steering_limit_rad) == (3.74, 0.04712, 0.4189)
    assert car.wheels is None


def test_the_stock_car_reaches_less_than_the_gym_says():
    """By hand: (0.85 - 0.5304) / 1.2135 = 0.26337 rad to the right, 23250 / 4614 = 5.039 m/s."""
    stock, gym = car_spec("f1tenth_vesc"), car_spec("f1tenth")
    assert stock.steering_limit_rad == pytest.approx(0.26337, abs=1e-5)
    assert stock.speed_limit_m_s == stock.reverse_limit_m_s == pytest.approx(5.039, abs=1e-3)
    assert stock.accel_limit_m_s2 == 2.5
    assert stock.wheelbase_m == gym.wheelbase_m


def test_names_are_looked_up_with_a_near_miss():
    assert car_names() == ("bmw_320i", "f1tenth", "f1tenth_vesc", "ford_escort", "vw_vanagon")
    with pytest.raises(UnknownNameError, match="Did you mean 'bmw_320i'"):
        car_spec("bmw_320")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mass_kg": 0.0}, "mass_kg is 0.0, expected a number from 0.01 to"),
        ({"friction": math.nan}, "friction is nan"),
        ({"reverse_limit_m_s": -1.0}, "reverse_limit_m_s is -1.0, expected a number from 0 to"),
        ({"wheelbase_m": 3.0}, "wheelbase_m is 3.0, but the axles are"),
        ({"steering_limit_rad": 1.6}, "steering_limit_rad is .*, expected a number from 0.001 to 1.56"),
    ],
)
def test_impossible_numbers_are_refused(changes, message):
    with pytest.raises(GantryError, match=message):
        replace(car_spec("bmw_320i"), **changes)


def test_impossible_wheels_are_refused():
    with pytest.raises(GantryError, match=r"brake_share_front is 1.2, expected a number from 0 to 1"):
        WheelSpec(0.3, 1.0, 1.2, 0.0)


def test_a_car_that_cannot_reverse_is_a_car():
    assert replace(car_spec("f1tenth"), reverse_limit_m_s=0.0).reverse_limit_m_s == 0.0
    assert len(fields(CarSpec)) <= 25
