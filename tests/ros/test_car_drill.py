"""A car follows its route among traffic, loses its scan, and brakes to a stop within its limits; over real DDS."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import replace

import numpy as np
import pytest

pytestmark = [pytest.mark.ros, pytest.mark.timed]
pytest.importorskip("rclpy")
pytest.importorskip("torch", reason="the simulated car needs it")

from geometry_msgs.msg import Twist  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import LaserScan, PointCloud2  # noqa: E402

from gantry_deploy.contract.drive_spec import LidarLayout  # noqa: E402
from gantry_deploy.observations.builder import make_term  # noqa: E402
from gantry_deploy.perception.simulated_road import road_options  # noqa: E402
from gantry_fixtures.drive import SPEED_GAIN_S_M, drive_bundle, drive_contract_for, pursuit_weight  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.convert import car as convert_car  # noqa: E402
from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

BMW = robot_spec("bmw_320i")
BRAKE = BMW.body.brake_limit_m_s2
SCAN = LidarLayout(61, -0.5 * math.pi, 0.5 * math.pi, 40.0, 3.0)
SLOWER_M_S = 8.0
"""By how much the policy wants to be slower where something stands right ahead of its scanner."""
LOST_S = 0.5
"""Timeout of what a policy sees."""
AFTER_S = 2.0
"""On its way for so long, the car loses its scan."""
LATE_S = 0.1 + 0.1 + 0.1
"""The last scan's age, a control period and the command's response."""
LOADING_S, BUSY_S = 120.0, 1.0
"""What loading may take on a busy machine, and what that may add to a reaction."""


def seeing_bundle(folder):
    """Follows its route by pure pursuit, slower the nearer its scan sees something ahead; needs objects, too."""
    contract = drive_contract_for(BMW)
    terms = tuple(make_term("lidar", SCAN.beams) if term.name == "lidar" else term for term in contract.observations)
    contract = replace(contract, observations=terms, body=replace(contract.body, lidar=SCAN))
    assert terms[-1].name == "lidar"
    weight, bias = pursuit_weight(contract), np.zeros(2)
    ahead = contract.observation_size - SCAN.beams + SCAN.beams // 2
    weight[ahead, 1] = SPEED_GAIN_S_M * SLOWER_M_S
    bias[1] = -SPEED_GAIN_S_M * SLOWER_M_S
    drive_bundle(folder, contract, weight=weight, bias=bias)
    return contract


class Witness:
    """Notes what is on the wire, on the machine's monotonic clock."""

    def __init__(self):
        self.host = NodeHost("witness")
        self.speeds, self.told, self.scans, self.objects = [], [], [], []
        node = self.host.node
        for kind, topic, rows, read in (
            (Odometry, topics.ODOM, self.speeds, lambda message: message.twist.twist.linear.x),
            (Twist, topics.DRIVE_TWIST, self.told, lambda message: message.linear.x),
            (LaserScan, topics.SCAN, self.scans, lambda message: len(message.ranges)),
            (PointCloud2, topics.OBJECTS, self.objects, fastest),
        ):
            node.create_subscription(kind, topic, self._noter(rows, read), topics.READER_QOS)
        self.host.start()

    @staticmethod
    def _noter(rows, read):
        return lambda message: rows.append((time.monotonic(), read(message)))


def fastest(message):
    """Speed of the fastest tracked object, 0 where there is none."""
    objects, _ = convert_car.objects_of(message, "odom")
    return float(np.abs(objects[:, 3]).max(initial=0.0))


class Ride:
    """What became of one drill."""

    def __init__(self, rig, folder):
        contract = seeing_bundle(folder / "bundle")
        options = {**road_options(contract, contract.body), "map_count": 1, "seed": 2, "traffic": True}
        truth, statistics = folder / "truth.json", folder / "statistics.json"
        drill = {"fault": "no_scan", "fault_after_s": AFTER_S, "statistics": str(truth), "scan_range_m": 40.0}
        given = {"route_message": "lanes", "steering": "joint_states", "auto_start": True}
        given |= {"safety__surroundings_timeout_s": LOST_S, "statistics": str(statistics)}
        with rig.process("sim_car_node", options=json.dumps(options), **drill) as car:
            car.wait_for_output("on backend 'road'", LOADING_S)
            self.witness = Witness()
            seen = (self.witness.speeds, self.witness.scans, self.witness.objects)
            wait_until(lambda: all(seen), "the witness's first odometry, scan and objects", LOADING_S)
            with rig.policy(folder / "bundle", **given) as policy:
                assert car.wait(LOADING_S) == 0, car.output
                assert policy.stop() == 1, "it was damped"
                self.policy_output = policy.output
            self.witness.host.close()
            self.car_output = car.output
        truth = json.loads(truth.read_text())
        self.drill, self.outcome = truth["drill"], truth["outcome"]
        self.damped = json.loads(statistics.read_text())["damped"]
        self.lost_s = self.witness.scans[-1][0]


@pytest.fixture(scope="module")
def ride(rig, tmp_path_factory):
    """One drill for all tests here."""
    return Ride(rig, tmp_path_factory.mktemp("drill"))


def before(ride, rows):
    return np.array([value for time_s, value in rows if time_s <= ride.lost_s])


def test_until_then_it_follows_its_route_among_traffic(ride):
    assert ride.drill["speed_m_s"] > 8.0
    assert before(ride, ride.witness.speeds).max() > 8.0
    assert before(ride, ride.witness.objects).max() > 1.0, "somebody else moves"
    assert len(before(ride, ride.witness.scans)) > 10
    assert ride.outcome["lateral_max_m"] < 1.0
    assert ride.outcome["driven_m"] > 0.5 * AFTER_S * ride.drill["speed_m_s"]
    assert "red_light" not in ride.outcome["events"]


def test_the_scan_alone_is_lost_and_the_policy_names_it_and_its_age(ride):
    assert "Injected fault: publishes no scan any more." in ride.car_output
    for rows in (ride.witness.objects, ride.witness.speeds):
        assert sum(time_s > ride.lost_s + LOST_S for time_s, _ in rows) > 5, "all else goes on"
    assert ride.damped["code"] == "surroundings"
    (age_ms,) = re.findall(
        r"Mode DAMP: Surroundings: the scan is ([\d.]+) ms old, allowed are 500 ms \(safety.surroundings_timeout_s\)",
        ride.policy_output,
    )
    assert LOST_S < 1e-3 * float(age_ms) <= LOST_S + LATE_S + BUSY_S


def test_it_comes_to_rest_in_time_within_the_brake_limit(ride):
    """Against v / b and v^2 / 2b, in simulated time; the speed is the true one."""
    drill, speed = ride.drill, ride.drill["top_speed_after_m_s"]
    assert drill["brake_limit_m_s2"] == BRAKE
    assert drill["within_limit"]
    assert 0.5 * BRAKE < drill["hardest_braking_m_s2"] <= 1.02 * BRAKE
    assert drill["last_told_before_s"] <= 0.1 + 1e-6
    assert ride.drill["speed_m_s"] / BRAKE <= drill["rest_after_s"] <= LOST_S + LATE_S + BUSY_S + speed / BRAKE
    assert (
        speed**2 / (2.0 * BRAKE) - 0.2
        <= drill["way_m"]
        <= speed**2 / (2.0 * BRAKE) + speed * (LOST_S + LATE_S + BUSY_S)
    )


def test_the_set_point_falls_at_the_limit_and_never_rises(ride):
    told = np.array([row for row in ride.witness.told if row[0] >= ride.damped["sent_s"] - 0.02])
    assert (np.diff(told[:, 1]) <= 1e-6).all()
    assert told[-1, 1] == 0.0
    falling_s = told[int(np.argmax(told[:, 1] == 0.0)), 0] - told[0, 0]
    # Two control periods for when commands are sent and when they arrive.
    assert falling_s >= told[0, 1] / BRAKE - 0.2, "speed 0 at once would lock the wheels"


def test_it_stays_where_it_is(ride):
    assert not ride.drill["moved_again"]
    speeds = np.array(ride.witness.speeds)
    stands = int(np.argmax((speeds[:, 0] > ride.lost_s) & (np.abs(speeds[:, 1]) < 0.05)))
    assert speeds[-1, 0] - speeds[stands, 0] > 1.0
    assert np.abs(speeds[stands:, 1]).max() < 0.05
