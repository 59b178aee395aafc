"""A policy that sees a picture from above, told over real DDS: the road map with its markings, and kinds of objects."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest

pytestmark = [pytest.mark.ros]
pytest.importorskip("rclpy")
pytest.importorskip("torch", reason="the simulated car needs it")

from gantry_bringup.description import find_launch  # noqa: E402
from gantry_deploy.contract.bev_layout import BevLayout  # noqa: E402
from gantry_deploy.observations.bev import bev_raster  # noqa: E402
from gantry_deploy.observations.builder import make_term  # noqa: E402
from gantry_deploy.observations.surroundings import surroundings_row  # noqa: E402
from gantry_deploy.perception.road import RoadView, needs  # noqa: E402
from gantry_deploy.perception.simulated_road import road_options  # noqa: E402
from gantry_fixtures.drive import drive_bundle, drive_contract_for  # noqa: E402
from gantry_hardware.backends.registry import make_backend  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.robots.ros_car import RosCar  # noqa: E402
from gantry_ros.robots.ros_road import PARAMETERS, RosRoad  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402
from gantry_ros.simulated.road_publisher import RoadPublisher  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

BMW = robot_spec("bmw_320i")
LAYOUT = BevLayout(pixels=64, metres_per_pixel=1.0, behind_m=16.0)
OLD_S = 60.0
"""Nothing grows old on a busy machine."""


@pytest.fixture
def contract():
    base = drive_contract_for(BMW)
    term = make_term("bev", LAYOUT.size, scale=1.0 / 255.0)
    return replace(base, body=replace(base.body, bev=LAYOUT), observations=(term,))


@pytest.fixture
def car(contract):
    car = make_backend("road", BMW, map_count=1, traffic=True, seed=6, **road_options(contract, contract.body))
    car.connect()
    return car


def heard(contract, host, car, *, late, **changes):
    """What a policy's side has heard of a car's surroundings; late, it listens only when all has been said."""
    values = {parameter.name: parameter.default for parameter in PARAMETERS} | {"route_message": "lanes"} | changes
    road = RosRoad(contract, host, RosCar(BMW, host=host), values)
    publisher = RoadPublisher(host.node, car, 30.0)
    if late:
        car.tell_road(publisher)
    road.open()

    def complete():
        if late:  # Those that grow old come again and again.
            publisher.set_stop_line(np.inf, 0.0, car.now_s())
            car.sleep_until(car.now_s() + 0.1)
        else:
            car.tell_road(publisher)
        return road.missing(time.monotonic(), OLD_S) is None

    wait_until(complete, "all that the policy needs")
    return road


def raster(view, car, now_s):
    """What the runner draws: places told from the car, in single precision."""
    state = car.read()
    place, (w, _, _, z) = state.pose_in_world
    seen = surroundings_row(view.newest(state, now_s, OLD_S), place[:2])
    pose = np.array([[0.0, 0.0, 2.0 * np.arctan2(z, w)]], dtype=np.float32)
    return bev_raster(seen, pose, LAYOUT)


@pytest.mark.parametrize("late", [False, True])
def test_the_picture_is_the_one_that_training_draws(rig, contract, car, late):
    """To the bit, whether the map was sent before anybody listened or after; of a car beside others."""
    assert {"road", "objects", "route", "stop_line"} == set(needs(contract))
    with NodeHost("both") as host:
        host.start()
        road = heard(contract, host, car, late=late, road_markings=True)
        direct = RoadView(contract)
        car.tell_road(direct)
        wait_until(lambda: same_objects(road, direct, car), "the newest objects")
        found = raster(road, car, time.monotonic())
        expected = raster(direct, car, car.now_s())
        np.testing.assert_array_equal(found, expected)
        shown = dict(zip(LAYOUT.channels, expected[0], strict=True))
        assert shown["road"].any()
        assert shown["markings"].any()
        if not late:  # Later the others are elsewhere.
            assert all(shown[name].any() for name in ("vehicles", "pedestrians", "static"))


def same_objects(road, direct, car):
    """Whether what came over the wire is of this moment; otherwise it is sent once more."""
    state = car.read()
    mine = road.newest(state, time.monotonic(), OLD_S)
    theirs = direct.newest(state, car.now_s(), OLD_S)
    return np.array_equal(mine.objects, theirs.objects) and np.array_equal(mine.object_kinds, theirs.object_kinds)


def test_a_map_without_markings_shows_none(rig, contract, car):
    with NodeHost("both") as host:
        host.start()
        road = heard(contract, host, car, late=False)
        shown = dict(zip(LAYOUT.channels, raster(road, car, time.monotonic())[0], strict=True))
        assert shown["road"].any()
        assert not shown["markings"].any()


def test_a_launch_tells_a_car_that_sees_a_picture_a_road_map_with_markings(contract, tmp_path):
    drive_bundle(tmp_path / "bundle", contract, weight=np.zeros((LAYOUT.size, 2)))
    robot, policy = find_launch("sim_drive").nodes({"bundle": str(tmp_path / "bundle")})
    assert json.loads(robot.parameters["options"])["road_cell_m"] == LAYOUT.metres_per_pixel
    assert policy.parameters["road_markings"] is True
