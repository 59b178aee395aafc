"""A car on real nodes over real DDS: it follows a route, and brakes within its limits whatever is lost."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import numpy as np
import pytest

pytestmark = [pytest.mark.ros, pytest.mark.timed]
pytest.importorskip("rclpy")

from geometry_msgs.msg import Twist  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import JointState, PointCloud2  # noqa: E402

from gantry_deploy.bundle.bundle import write_bundle  # noqa: E402
from gantry_fixtures.drive import drive_bundle, drive_contract_for  # noqa: E402
from gantry_hardware.backends.state import JointCommand  # noqa: E402
from gantry_hardware.backends.testing import check_backend  # noqa: E402
from gantry_hardware.errors import RobotError  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.convert import car as convert_car  # noqa: E402
from gantry_ros.robots import car_commands  # noqa: E402
from gantry_ros.robots.ros_car import RosCar  # noqa: E402
from gantry_ros.robots.ros_robot import RosRobot  # noqa: E402
from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

BMW = robot_spec("bmw_320i")
BRAKE = BMW.body.brake_limit_m_s2
ROAD = {"map_count": 1, "scan_beams": 18, "scan_range_m": 10.0}
SPEED_M_S, FAST_M_S = 8.0, 7.0
"""Speed limit of routes, and what the car has reached when something is lost."""
LOST_S = 0.5
LATEST_S = LOST_S + 0.1 + 0.1 + 0.1
"""From a loss to the first braking: timeout, the last message's age, a control period, and the command's response."""
LOADING_S = 120.0
"""What the simulated car may take to load on a busy machine."""
BUSY_S = 1.0
"""What a busy machine may add."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Follows its route by pure pursuit; it sees three objects and a scan of 18 beams."""
    folder = tmp_path_factory.mktemp("car") / "bundle"
    drive_bundle(folder, drive_contract_for(BMW))
    return folder


class Passenger:
    """Notes what the car does and what it is told, on the machine's monotonic clock."""

    def __init__(self):
        self.host = NodeHost("passenger")
        self.rides, self.steering, self.told = [], [], []
        node = self.host.node
        node.create_subscription(Odometry, topics.ODOM, self._on_odometry, topics.READER_QOS)
        node.create_subscription(JointState, topics.JOINT_STATES, self._on_joints, topics.READER_QOS)
        node.create_subscription(Twist, topics.DRIVE_TWIST, self._on_twist, topics.READER_QOS)
        self.host.start()

    def _on_odometry(self, message):
        place = message.pose.pose.position
        self.rides.append((time.monotonic(), place.x, place.y, message.twist.twist.linear.x))

    def _on_joints(self, message):
        self.steering.append((time.monotonic(), convert_car.steering_of(message)[0]))

    def _on_twist(self, message):
        self.told.append((time.monotonic(), message.linear.x))

    @property
    def speed_m_s(self):
        return self.rides[-1][3] if self.rides else 0.0

    def since(self, begin_s, rows):
        return np.array([row for row in rows if row[0] >= begin_s])

    def wait_for_standstill(self):
        wait_until(lambda: abs(self.speed_m_s) < 0.01, "standstill")


@pytest.fixture(scope="module")
def road(rig, bundle):
    """A rig with a simulated car, a policy that is passive, and a passenger."""
    pytest.importorskip("torch")
    with rig.process("sim_car_node", options=json.dumps(ROAD), scan_range_m=10.0, watchdog_s=1.0) as car:
        car.wait_for_output("on backend 'road'", LOADING_S)
        passenger = Passenger()
        check_backend(RosCar(BMW, steering="joint_states", discovery_s=0.2), hold_s=0.3, max_age_s=0.5)
        with policy_of(rig, bundle, steering="joint_states", route_speed_limit_m_s=SPEED_M_S) as policy:
            rig.operator.wait_for("policy_node", mode="PASSIVE", fault="")
            yield rig, passenger
            assert policy.stop() in (0, 1)  # Braked or not, as the last test has left it.
        passenger.host.close()
        assert car.stop() == 0


def policy_of(rig, bundle, **parameters):
    return rig.policy(bundle, **{"safety__surroundings_timeout_s": LOST_S, **parameters})


@pytest.fixture
def driving(road):
    """The car on its way and fast; passive and healthy again afterwards."""
    rig, passenger = road
    rig.operator.ask("reset")

    def under_way():
        rig.bring_to_policy()  # Again, where a busy machine was too late once.
        return passenger.speed_m_s > FAST_M_S

    wait_until(under_way, "speed")
    yield rig.operator, passenger
    assert rig.operator.set_parameter("sim_car_node", "fault", "") == (True, "")
    wait_until(lambda: rig.operator.ask("policy_node/estop")[0], "the emergency stop")
    passenger.wait_for_standstill()
    wait_until(lambda: rig.operator.ask("policy_node/reset")[0], "the reset")
    rig.operator.wait_for("policy_node", mode="PASSIVE", fault="")


def assert_braked(passenger, lost_s, damped_s):
    """Whether the car has come to rest within v^2 / 2b and what passes before, told ever less and not 0 at once."""
    passenger.wait_for_standstill()
    rides = passenger.since(lost_s, passenger.rides)
    fastest = rides[:, 3].max()
    driven = np.hypot(*np.diff(rides[:, 1:3], axis=0).T).sum()
    assert fastest**2 / (2.0 * BRAKE) - 0.2 <= driven <= fastest**2 / (2.0 * BRAKE) + fastest * (LATEST_S + BUSY_S)
    braking = passenger.since(damped_s, passenger.told)[:, 1]
    assert (np.diff(braking) <= 1e-6).all()
    assert braking[-1] == 0.0
    assert braking[0] > 1.0, "speed 0 at once would lock the wheels"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("no_scan", r"the scan is \d{3}(\.\d+)? ms old"),
        ("no_objects", r"the objects are \d{3}(\.\d+)? ms old"),
        ("late_objects", r"the objects are 1\d{3}(\.\d+)? ms old"),
    ],
)
def test_a_lost_input_brakes_the_car_to_standstill_within_its_limits(driving, fault, reason):
    operator, passenger = driving
    lost_s = time.monotonic()
    assert operator.set_parameter("sim_car_node", "fault", fault) == (True, "")
    values = operator.wait_for("policy_node", mode="DAMP")
    assert values["damped code"] == "surroundings"
    assert re.search(reason, values["damped because"])
    damped_s = float(values["damped: first damping sent at s"])
    assert_braked(passenger, lost_s, damped_s)
    assert float(operator.fresh_values("sim_car_node")["hardest braking m s2"]) <= 1.02 * BRAKE
    held = passenger.since(damped_s, passenger.steering)[:, 1]
    assert np.ptp(held) < 0.1, "the steering stays where it is"


@pytest.mark.parametrize(
    ("fault", "code"),
    [("silent", "stale_state"), ("frozen", "stale_state"), ("nan", "nan_state"), ("no_joints", "stale_state")],
)
def test_a_car_that_does_not_know_how_it_moves_is_braked(driving, fault, code):
    operator, passenger = driving
    assert operator.set_parameter("sim_car_node", "fault", fault) == (True, "")
    assert operator.wait_for("policy_node", mode="DAMP")["damped code"] == code
    wait_until(lambda: passenger.told[-1][1] == 0.0, "a stop")
    operator.wait_for("sim_car_node", stands="True")


def test_whoever_else_could_drive_the_car_is_a_fault_and_it_still_brakes(driving):
    operator, passenger = driving
    with NodeHost("stranger") as stranger:
        stranger.node.create_publisher(Twist, topics.DRIVE_TWIST, 1)
        values = operator.wait_for("policy_node", mode="DAMP")
        assert values["damped code"] == "write"
        assert "/stranger" in values["damped because"]
        passenger.wait_for_standstill()


def test_what_cannot_be_believed_is_refused_and_grows_old(driving):
    """A table without a stamp, and one in another frame, are no news; the policy sees nothing and the car is braked."""
    operator, passenger = driving
    before = int(operator.values("policy_node")["road messages refused"])
    table = np.zeros((0, 7))
    messages = [convert_car.objects_message(table, passenger.host.node.get_clock().now().to_msg(), "elsewhere")]
    messages.append(replace_stamp(convert_car.objects_message(table, messages[0].header.stamp, "odom")))
    assert operator.set_parameter("sim_car_node", "fault", "no_objects") == (True, "")
    publisher = passenger.host.node.create_publisher(PointCloud2, topics.OBJECTS, topics.WRITER_QOS)

    def refused():
        for message in messages:
            publisher.publish(message)
        return int(operator.values("policy_node")["road messages refused"]) >= before + 4

    wait_until(refused, "refused objects")
    operator.wait_for("policy_node", mode="DAMP", damped_code="surroundings")
    passenger.host.node.destroy_publisher(publisher)


def replace_stamp(message):
    message.header.stamp.sec = message.header.stamp.nanosec = 0
    return message


def test_a_second_commander_and_the_backend_of_other_robots_are_refused(road):
    with pytest.raises(RobotError, match="not connected"):
        RosCar(BMW).write(JointCommand.damping(BMW))
    with pytest.raises(RobotError, match="Another node commands this robot too: /policy_node"):
        RosCar(BMW, discovery_s=10.0).connect()
    with pytest.raises(RobotError, match="is a car"):
        RosRobot(BMW)


@pytest.mark.slow
def test_a_car_whose_policy_is_killed_brakes_by_itself(own_rig, bundle):
    rig = own_rig
    with rig.process("sim_car_node", options=json.dumps(ROAD)) as car:
        car.wait_for_output("on backend 'road'", LOADING_S)
        passenger = Passenger()
        with policy_of(rig, bundle, auto_start=True, route_speed_limit_m_s=SPEED_M_S) as policy:
            wait_until(lambda: passenger.speed_m_s > FAST_M_S, "speed")
            policy.kill()
            rig.operator.wait_for("sim_car_node", activity="braking: no drive command", stands="True")
        passenger.host.close()
        assert car.stop() == 0
    assert "No drive command for 0.3 s: braking." in car.output


@pytest.mark.parametrize(
    ("car_options", "policy_options"),
    [
        ({"fault": "no_scan", "fault_after_s": 600.0}, {"route_message": "lanes", "steering": "joint_states"}),
        pytest.param(
            {"drive_message": "twist_stamped"},
            {"route_message": "path", "route_speed_limit_m_s": 6.0, "command_message": "twist_stamped"},
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_car_follows_its_route_and_stops_at_its_end(own_rig, bundle, tmp_path, car_options, policy_options):
    """Whichever messages carry route, steering and commands; the car's node says what really happened.

    A drill whose fault is not due before the end is told of as well.
    """
    pytest.importorskip("torch")
    options = json.dumps({**ROAD, "route_m": 80.0, "traffic": False})
    truth = tmp_path / "truth.json"
    with own_rig.process("sim_car_node", options=options, statistics=str(truth), **car_options) as car:
        car.wait_for_output("on backend 'road'", LOADING_S)
        ends = {"route_end": "end", "route_end_m": 10.0, "auto_start": True, "safety__surroundings_timeout_s": 5.0}
        with policy_of(own_rig, bundle, **ends, **policy_options) as policy:
            assert policy.wait(LOADING_S) == 0, policy.output
        assert car.stop() == 0
        assert ("The fault 'no_scan' did not begin." in car.output) == ("fault" in car_options)
    outcome = json.loads(truth.read_text())["outcome"]
    assert outcome["completion"] > 0.8
    assert set(outcome["events"]) <= {"finished"}, "a fast car needs more than the last ten metres to stop"
    assert outcome["stands"]
    assert outcome["lateral_max_m"] < 1.0
    assert outcome["off_route_share"] == 0.0
    assert outcome["top_speed_m_s"] > 4.0
    if "route_speed_limit_m_s" in policy_options:
        assert outcome["top_speed_m_s"] < 6.5


def refused(rig, bundle, **parameters):
    with policy_of(rig, bundle, **parameters) as policy:
        assert policy.wait() == 2, policy.output
        assert "Traceback" not in policy.output
        return policy.output


def test_what_the_contract_forbids_is_refused(own_rig, bundle, bundles, tmp_path):
    """Before anything listens or speaks, one sentence each."""
    longer = drive_contract_for(BMW)
    longer = replace(longer, body=replace(longer.body, wheelbase_m=2.0 * BMW.body.wheelbase_m))
    network = (bundle / "policy.onnx").read_bytes()
    golden = dict(np.load(bundle / "golden.npz"))
    write_bundle(tmp_path / "longer", contract=longer, model_bytes=network, golden=golden)
    assert "trained for another car" in refused(own_rig, tmp_path / "longer")
    assert "is of embodiment 'legs', robot 'bmw_320i' is of 'car'" in refused(
        own_rig, bundles / "good", robot="bmw_320i"
    )
    older = tmp_path / "drive.mcap"
    older.write_bytes(b"an older drive")
    assert "Did you mean 'lanes'?" in refused(own_rig, bundle, route_message="lane", record=str(older))
    assert older.read_bytes() == b"an older drive"
    assert "'route_end_m' is -1.0, expected 0 to 100000" in refused(own_rig, bundle, route_end_m=-1.0)
    if car_commands.ackermann_type() is None:
        assert "ackermann_msgs" in refused(own_rig, bundle, command_message="ackermann")


@pytest.mark.slow
def test_a_car_without_odometry_is_waited_for_and_refused(own_rig, bundle):
    output = refused(own_rig, bundle, connect_timeout_s=1.0)
    assert "/odom (0 publishers)" in output
