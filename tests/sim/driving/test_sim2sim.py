"""Cars in the real MetaDrive, where it is installed: physics, routes, rides by a bundle.

It is an extra: ``pip install 'gantry-rl[metadrive]'``.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_fixtures.drive import drive_bundle, drive_contract_for
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_sim.driving.external_sims.riding import ride, watched

BMW = robot_spec("bmw_320i")
DT_S = 0.1


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Small tensors."""


@pytest.fixture(scope="module")
def pursuit(tmp_path_factory):
    """Pure pursuit of the route, at its speed limits; it sees nobody."""
    contract = drive_contract_for(BMW)
    seen = tuple(term for term in contract.observations if term.name != "lidar")
    contract = replace(contract, observations=seen, body=replace(contract.body, lidar=None))
    return drive_bundle(tmp_path_factory.mktemp("pursuit") / "bundle", contract)


@pytest.fixture
def world():
    """``world(traffic, maps)`` gives MetaDrive, of which there can be one."""
    pytest.importorskip("metadrive")
    from gantry_sim.driving.external_sims.metadrive import MetaDriveWorld

    made = []

    def make(traffic=0.0, maps=3, **changes):
        made.append(MetaDriveWorld("bmw_320i", DT_S, traffic, maps, **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_metadrives_car_has_our_dimensions_and_keeps_a_backends_promises(world):
    car = world().scene(0).car
    vehicle = car._vehicle
    sizes = vehicle.LENGTH, vehicle.WIDTH, vehicle.MASS, math.radians(vehicle.max_steering)
    assert sizes == pytest.approx((4.508, 1.61, BMW.mass_kg, BMW.body.steering_limit_rad))
    axles = vehicle.FRONT_WHEELBASE, vehicle.REAR_WHEELBASE
    assert axles == pytest.approx((BMW.body.front_axle_to_cog_m, BMW.body.rear_axle_to_cog_m))
    check_backend(car, rate_hz=10.0, max_age_s=0.01)


def test_metadrives_pedals_do_what_was_measured(world):
    """Within what MetaDrive draws: 750 to 850 N and 80 to 180 N s around the middle that is reckoned with."""
    from gantry_sim.driving.external_sims.metadrive import pedal_gains

    car = world().scene(0).car
    gains = pedal_gains(BMW.mass_kg)
    force, impulse = car._vehicle.config["max_engine_force"], car._vehicle.config["max_brake_force"]

    def felt(pedal, steps):
        before = car.motion().forward_m_s
        for _ in range(steps):
            car._env.step(np.array([0.0, pedal]))
        return (car.motion().forward_m_s - before) / (steps * DT_S)

    felt(0.5, 5)  # The car settles on its suspension.
    assert felt(0.5, 20) == pytest.approx(0.5 * gains.drive_m_s2 * force / 800.0, rel=0.02)
    assert felt(-0.1, 5) == pytest.approx(-0.1 * gains.brake_m_s2 * impulse / 130.0, rel=0.05)


def test_metadrives_car_turns_as_a_bicycle_at_low_speed(world):
    car = world().scene(0).car
    for _ in range(15):
        car.advance(0.0, 4.0)
    for _ in range(10):
        car.advance(0.1, 4.0)
    now = car.motion()
    assert now.yaw_rate_rad_s == pytest.approx(now.forward_m_s * math.tan(0.1) / BMW.body.wheelbase_m, rel=0.05)
    assert abs(now.left_m_s) < 0.05


def test_the_route_begins_under_the_car_and_ends_where_metadrive_arrives(world):
    scene = world().scene(2)
    now, points = scene.car.motion(), scene.route.points_in_world_m
    nearest = np.hypot(*(points - (now.x_m, now.y_m)).T)
    assert nearest.min() < 0.6
    end = scene.car._vehicle.navigation.final_lane
    assert min(np.hypot(*(points[-1] - end.position(end.length, -3.5 * k))) for k in range(-3, 3)) < 0.1
    np.testing.assert_allclose(np.hypot(*np.diff(points, axis=0).T), 1.0, atol=0.1)
    assert scene.route.along_m[-1] == pytest.approx(scene.car._vehicle.navigation.total_length, rel=0.1)


def test_a_bundle_drives_metadrive_sim2sim(world, pursuit):
    place = world()
    for index in range(3):
        done = ride(pursuit, place.scene(index))
        assert (done.end, done.completion) == ("finished", 1.0), done
        assert done.lateral_rmse_m < 0.4
        assert done.steering_reversals_per_s < 2.0


def test_traffic_is_told(world, pursuit):
    place = world(traffic=0.3)
    scene = place.scene(0)
    others = scene.objects()
    assert len(others) > 5
    assert ((others[:, 4] > 3.0) & (others[:, 4] < 6.0) & (others[:, 6] == 1.0)).all()
    begin = others[:, :2].copy()
    ride(pursuit, scene)
    assert len(scene.objects()) != len(begin) or np.abs(scene.objects()[:, :2] - begin).max() > 5.0


def test_metadrives_own_driver_arrives(world):
    done = watched(world(own_driver=True).scene(2))
    assert (done.end, done.completion) == ("finished", 1.0)


def test_a_small_car_is_refused(world):
    from gantry_sim.driving.external_sims.metadrive import MetaDriveWorld

    with pytest.raises(GantryError, match="no car of at least 3"):
        MetaDriveWorld("f1tenth", DT_S, 0.0, 1)
    with pytest.raises(GantryError, match=r"multiple of 0\.02 s"):
        MetaDriveWorld("bmw_320i", 0.05, 0.0, 1)
