"""A second node that speaks for a robot, or commands it, on real nodes over real DDS."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import Imu, JointState  # noqa: E402
from std_msgs.msg import Float32MultiArray  # noqa: E402

from gantry_hardware.backends.registry import make_backend  # noqa: E402
from gantry_hardware.backends.state import JointCommand  # noqa: E402
from gantry_hardware.errors import RobotError  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.convert import robot as convert  # noqa: E402
from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402
from gantry_ros.runtime.publishers import HOLD_S  # noqa: E402
from gantry_ros.simulated.commanders import Commanders  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

ROOT = Path(__file__).parents[2]
SPEC = robot_spec("go2")


@contextmanager
def speaking(kind, topic, make, rate_hz=200.0, name="stranger"):
    """A node that publishes what ``make(stamp)`` returns, again and again."""
    over = threading.Event()
    with NodeHost(name) as host:
        publisher = host.node.create_publisher(kind, topic, topics.WRITER_QOS)

        def speak():
            while not over.wait(1.0 / rate_hz):
                publisher.publish(make(host.node.get_clock().now().to_msg()))

        thread = threading.Thread(target=speak)
        thread.start()
        try:
            yield host
        finally:
            over.set()
            thread.join()


def joints(stamp):
    """What a robot that stands at rest reports."""
    count = SPEC.num_joints
    pose = [float(value) for value in SPEC.array("default_rad")]
    message = JointState(name=list(SPEC.joint_names), position=pose, velocity=[0.0] * count, effort=[0.0] * count)
    message.header.stamp = stamp
    return message


def imu(stamp):
    message = Imu()
    message.header.stamp = stamp
    message.orientation.w, message.linear_acceleration.z = 1.0, 9.81
    return message


def odometry(stamp):
    message = Odometry()
    message.header.stamp, message.header.frame_id, message.child_frame_id = stamp, "odom", "base_link"
    message.pose.pose.orientation.w = 1.0
    return message


def crouch(stamp):
    pose = SPEC.array("default_rad").copy()
    pose[:] = [1.2 if "thigh" in name else -2.4 if "calf" in name else 0.0 for name in SPEC.joint_names]
    return convert.CommandCodec(SPEC).message(JointCommand.position(SPEC, pose), stamp)


TOPICS = {
    topics.JOINT_STATES: (JointState, joints),
    topics.IMU: (Imu, imu),
    topics.ODOM: (Odometry, odometry),
    topics.FOOT_CONTACTS: (Float32MultiArray, lambda _: Float32MultiArray(data=[1.0] * 4)),
}


@pytest.fixture(scope="module")
def pair(rig, bundles):
    """A robot and a policy."""
    with rig.robot(watchdog_s=0.5) as robot, rig.policy(bundles / "good") as policy:
        rig.operator.wait_for("policy_node", mode="PASSIVE")
        rig.output = lambda: policy.output
        yield rig
        policy.stop()
        robot.stop()


@pytest.fixture
def walking(pair):
    """The pair in mode POLICY; passive again afterwards."""
    pair.bring_to_policy()
    yield pair.operator
    calm(pair.operator)


def calm(operator):
    """PASSIVE, and nobody else is known any more."""
    wait_until(lambda: operator.ask("policy_node/estop")[0], "the emergency stop")
    operator.wait_for("policy_node", topics_with_two_publishers="", other_commanders="0")
    wait_until(lambda: operator.ask("policy_node/reset")[0], "the reset")
    operator.wait_for("policy_node", mode="PASSIVE", fault="")


@pytest.mark.parametrize("topic", TOPICS)
def test_a_second_publisher_damps_a_walking_robot_and_is_named(pair, walking, topic):
    kind, make = TOPICS[topic]
    for _ in range(3):
        with speaking(kind, topic, make):
            values = walking.wait_for("policy_node", mode="DAMP")
            wait_until(
                lambda: "/sim_robot_node, /stranger" in walking.values("policy_node")["topics with two publishers"],
                "both names in the diagnostics",
            )
            wait_until(lambda: f"on /{topic}: /sim_robot_node, /stranger" in pair.output(), "both names in the log")
        if values["damped code"] != "stale_state":  # A machine that is busy for a second comes first.
            break
        calm(walking)
        pair.bring_to_policy()
    assert f"Two publishers speak in turn on /{topic}" in values["damped because"]
    assert values["damped code"] == "no_state"
    walking.wait_for("policy_node", topics_with_two_publishers="")


@pytest.mark.parametrize("mode", ["PASSIVE", "STAND"])
def test_a_second_publisher_is_noticed_in_the_other_modes_too(pair, mode):
    operator = pair.operator
    operator.wait_for("policy_node", mode="PASSIVE")
    # A passive node that has just come (NEWCOMER_S) does not damp but ends, with the reason.
    wait_until(lambda: int(operator.values("policy_node")["ticks"]) > 300, "the end of the node's first seconds")
    for _ in range(3):
        if mode == "STAND":
            wait_until(lambda: operator.ask("policy_node/stand")[0], "STAND")
            operator.wait_for("policy_node", mode="STAND")
        with speaking(Imu, topics.IMU, imu):
            if mode == "STAND":
                operator.wait_for("policy_node", mode="DAMP")
            # A machine that is busy for a second comes first.
            with contextlib.suppress(AssertionError):
                wait_until(lambda: "Two publishers" in operator.values("policy_node")["fault"], "the fault", 20.0)
                assert not operator.ask("policy_node/stand")[0]
                break
        calm(operator)
    else:
        pytest.fail("not noticed in three attempts")
    calm(operator)


def test_a_second_publisher_that_is_silent_is_told_and_damps_nothing(walking, pair):
    with NodeHost("mute") as mute:
        mute.node.create_publisher(JointState, topics.JOINT_STATES, 1)
        wait_until(lambda: "of which one speaks: /mute, /sim_robot_node" in pair.output(), "the warning")
        assert "/mute" in walking.fresh_values("policy_node")["silent second publishers"]
        assert walking.values("policy_node")["mode"] == "POLICY"


def test_another_commanders_first_message_damps_the_robot(pair, walking):
    with speaking(JointState, topics.JOINT_COMMAND, crouch):
        values = walking.wait_for("policy_node", mode="DAMP")
        assert values["damped code"] == "write"
        assert "Another node commands this robot too" in values["damped because"]
        wait_until(lambda: "commands this robot too: /stranger" in pair.output(), "its name in the log")
        walking.wait_for("sim_robot_node", activity="damping: two commanders")
    assert int(walking.fresh_values("sim_robot_node")["two commanders"]) >= 1


def test_one_who_repeats_our_own_commands_is_a_second_commander(pair, walking):
    """The same bytes, under another publisher's numbers."""
    for _ in range(3):
        wait_until(lambda: walking.commands, "commands")
        with speaking(JointState, topics.JOINT_COMMAND, lambda _: walking.commands[-1], rate_hz=100.0, name="parrot"):
            code = walking.wait_for("policy_node", mode="DAMP")["damped code"]
        if code != "stale_state":  # A machine that is busy for a second comes first.
            break
        calm(walking)
        pair.bring_to_policy()
    assert code == "write"


def test_the_very_next_target_after_anothers_command_is_refused_and_braking_is_not(own_rig):
    with own_rig.robot(watchdog_s=0.5):
        robot = make_backend("ros", SPEC, discovery_s=0.3)
        robot.connect()
        try:
            target = JointCommand.position(SPEC, SPEC.array("default_rad"))
            for _ in range(50):
                robot.write(target)
                time.sleep(0.01)
            statistics = robot.statistics()
            assert statistics["foreign commands"] == 0
            assert statistics["other commanders"] == 0
            with NodeHost("stranger") as stranger:
                publisher = stranger.node.create_publisher(JointState, topics.JOINT_COMMAND, topics.WRITER_QOS)
                wait_until(lambda: publisher.get_subscription_count() >= 3, "robot, operator and guard")
                publisher.publish(crouch(stranger.node.get_clock().now().to_msg()))  # Once.
                wait_until(lambda: robot.statistics()["foreign commands"] == 1, "the one command")
                with pytest.raises(RobotError, match="Another node commands this robot too"):
                    robot.write(target)
                assert robot.write(JointCommand.damping(SPEC)) is not None
        finally:
            robot.close()


@pytest.mark.slow
def test_a_robot_that_was_killed_and_started_again_is_believed(own_rig, bundles):
    """Its old publisher is remembered for 20 s, and is no second one."""
    operator = own_rig.operator
    with own_rig.policy(bundles / "good") as policy:
        with own_rig.robot() as first:
            own_rig.bring_to_policy()
            first.kill()
        operator.wait_for("policy_node", mode="DAMP", damped_code="stale_state")
        with own_rig.robot():
            wait_until(lambda: operator.ask("policy_node/reset")[0], "the reset")
            operator.wait_for("policy_node", mode="PASSIVE", fault="")
            assert operator.values("policy_node")["topics with two publishers"] == ""
            own_rig.bring_to_policy()
            assert operator.fresh_values("policy_node")["mode"] == "POLICY"
            assert policy.output.count("Two publishers") == 0


def test_two_ways_of_commanding_used_in_turn_are_two_commanders():
    commanders, obeyed = Commanders(0.1), []
    for step in range(100):
        now_s = 0.02 * step
        obeyed.append(commanders.hear("/a", "gains", step + 1, now_s))
        if step >= 50:
            assert not commanders.hear("/b", "controllers", step - 49, now_s + 0.01)
    assert all(obeyed[:51])
    assert not any(obeyed[51:])
    assert commanders.has_two(2.0)
    assert commanders.second_s is not None
    later = [commanders.hear("/b", "controllers", 100 + step, 2.0 + 0.02 * step) for step in range(200)]
    assert not any(later[: round(0.9 * HOLD_S / 0.02)])
    assert all(later[round((HOLD_S + 0.3) / 0.02) :])


def test_a_way_that_is_left_for_another_is_no_second_commander():
    commanders = Commanders(0.1)
    assert all(commanders.hear("/a", "gains", step + 1, 0.02 * step) for step in range(50))
    assert all(commanders.hear("/b", "controllers", step + 1, 1.5 + 0.02 * step) for step in range(50))
    assert not commanders.has_two(2.5)


@pytest.mark.soak
def test_the_measurement_runs_and_says_when_the_robot_was_damped(tmp_path):
    program = ROOT / "scripts/measure/second_commander.py"
    done = subprocess.run(
        [sys.executable, str(program), "--trials", "2", "--backend", "mock", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for trial in json.loads(done.stdout):
        assert trial["damped_s"] >= trial["heard_s"]
        assert trial["damped_by"] in ("the robot", "a command")
