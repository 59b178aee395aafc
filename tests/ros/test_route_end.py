"""Where a route ends, a car's policy is stopped, its node as well, or nothing happens; with a car in lock-step."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from gantry_deploy.control.loop import Controller  # noqa: E402
from gantry_deploy.control.safety import Mode, SafetyMachine  # noqa: E402
from gantry_deploy.perception.road import RoadView  # noqa: E402
from gantry_deploy.policy.runner import PolicyRunner  # noqa: E402
from gantry_fixtures.drive import MockCar, MockEyes, curved_route, drive_bundle, drive_contract_for  # noqa: E402
from gantry_hardware.model.cars import STANDSTILL_M_S  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.robots.ros_road import RouteEnd  # noqa: E402

BMW = robot_spec("bmw_320i")
CONTRACT = drive_contract_for(BMW)
BEFORE_M = 12.0
"""So far before the end of the route it is over."""


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    return PolicyRunner(drive_bundle(tmp_path_factory.mktemp("car") / "bundle", CONTRACT), BMW)


def ride(runner, kind):
    """Ten seconds of a policy on a route of 55 m: mode, metres left, whether the node shall end, and speed."""
    car, view = MockCar(BMW), RoadView(CONTRACT)
    car.connect()
    eyes = MockEyes(view, car)
    view.set_route(curved_route(25.0, 8.0, straight_m=30.0, turn_rad=1.0))
    loop = Controller(car, runner, SafetyMachine(BMW), surroundings=view)
    end, rows = RouteEnd(view, loop, {"route_end": kind, "route_end_m": BEFORE_M}), []
    eyes(0.0)
    loop.tick()
    loop.request("stand")
    loop.run(2.3, command_input=eyes)
    loop.request("start")
    loop.run(
        10.0,
        command_input=eyes,
        on_tick=lambda report: rows.append((report.mode, view.left_m, end.on_tick(report), car.speed_m_s)),
    )
    assert rows[0][0] is Mode.POLICY
    return rows


@pytest.mark.parametrize("kind", ["stop", "end"])
def test_the_policy_is_stopped_so_far_before_the_end(runner, kind):
    rows = ride(runner, kind)
    stopped = next(i for i, row in enumerate(rows) if row[0] is not Mode.POLICY)
    assert {row[0] for row in rows[stopped:]} == {Mode.STAND}
    # The tick before asked for it, the first one that saw the car there.
    assert rows[stopped - 1][1] <= BEFORE_M < rows[stopped - 2][1]
    ends = [row[2] for row in rows]
    assert not any(ends[:stopped])
    assert any(ends) == (kind == "end")
    assert all(row[3] <= STANDSTILL_M_S + 0.01 for row in rows if row[2]), "the node ends once the car stands"


def test_a_policy_that_is_not_stopped_drives_on(runner):
    rows = ride(runner, "ignore")
    assert {row[0] for row in rows} == {Mode.POLICY}
    assert min(row[1] for row in rows) < BEFORE_M
    assert not any(row[2] for row in rows)
