"""A node that waits says why, and guards hold without ROS time, on real nodes over real DDS."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from geometry_msgs.msg import TwistStamped  # noqa: E402
from sensor_msgs.msg import JointState  # noqa: E402

from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402


def test_a_policy_that_may_not_start_says_why_once_and_again_when_that_changes(own_rig, bundles):
    with (
        own_rig.robot() as robot,
        own_rig.policy(
            bundles / "good", auto_start=True, safety__require_heartbeat=True, safety__heartbeat_timeout_s=5.0
        ) as policy,
    ):
        operator = own_rig.operator
        policy.wait_for_output("Waiting: 'stand' is refused in PASSIVE: The operator's heartbeat never came")
        assert "heartbeat never came" in operator.fresh_values("policy_node")["waiting for"]
        assert operator.set_parameter("sim_robot_node", "fault", "nan") == (True, "")
        policy.wait_for_output("Waiting: 'stand' is refused in PASSIVE: The robot's state is not finite")
        assert operator.set_parameter("sim_robot_node", "fault", "") == (True, "")
        wait_until(lambda: operator.beat() or operator.values("policy_node")["mode"] == "POLICY", "mode POLICY")
        assert policy.output.count("heartbeat never came") <= 2
        policy.stop()
        robot.stop()


def test_a_passive_policy_says_why_its_robot_cannot_be_stood_up(own_rig, bundles):
    with own_rig.robot() as robot, own_rig.policy(bundles / "good") as policy:
        own_rig.operator.wait_for("policy_node", mode="PASSIVE")
        assert own_rig.operator.set_parameter("sim_robot_node", "fault", "silent") == (True, "")
        policy.wait_for_output("Waiting: the robot cannot be stood up: The robot's state is")
        policy.stop()
        robot.stop()


def test_a_command_of_another_type_is_named_with_the_parameter_that_helps(own_rig, bundles):
    with own_rig.robot() as robot, own_rig.policy(bundles / "good", auto_start=True) as policy:
        own_rig.operator.wait_for("policy_node", mode="POLICY")
        with NodeHost("teleoperation") as teleoperation:
            teleoperation.node.create_publisher(TwistStamped, topics.CMD_VEL, topics.OPERATOR_QOS)
            # The operator of the rig publishes a Twist as well: both types are on the topic.
            policy.wait_for_output(
                "/cmd_vel is published as geometry_msgs/msg/TwistStamped, and this node reads geometry_msgs/msg/Twist"
            )
            policy.wait_for_output("Set cmd_vel_stamped:=true.")
            policy.wait_for_output("Waiting: nothing has come on /cmd_vel yet: the command is zero.")
            values = own_rig.operator.fresh_values("policy_node")
            assert "TwistStamped" in values["does not arrive"]
        policy.stop()
        robot.stop()


def test_guards_and_reports_hold_under_simulated_time_without_a_clock(own_rig, bundles):
    operator = own_rig.operator
    with (
        own_rig.robot(use_sim_time=True) as robot,
        own_rig.policy(bundles / "good", auto_start=True, use_sim_time=True) as policy,
    ):
        operator.wait_for("policy_node", mode="POLICY")
        for node in (robot, policy):
            node.wait_for_output("use_sim_time is true and nothing has come on /clock")
        assert "nothing has come on /clock" in operator.fresh_values("policy_node")["does not arrive"]
        with NodeHost("intruder") as intruder:
            intruder.node.create_publisher(JointState, topics.JOINT_COMMAND, 10)
            values = operator.wait_for("policy_node", mode="DAMP")
            assert "Another node commands this robot too: /intruder" in values["damped because"]
        robot.kill()
        policy.stop()


def test_an_operators_node_says_whom_it_waits_for(own_rig):
    with own_rig.process("operator_node", wait_s=8.0) as drive, own_rig.process("episode_node", wait_s=9.0) as episodes:
        drive.wait_for_output("Waiting: 'policy_node' does not run yet: no diagnostics from it.")
        episodes.wait_for_output("Waiting: for both nodes; the policy node: it says nothing; the robot's node")
        assert drive.wait() == 2
        assert episodes.wait() == 2


def test_a_robot_that_nobody_commands_says_so(own_rig):
    with own_rig.robot() as robot:
        robot.wait_for_output("The robot stays at its start: waiting for joint commands.")
        robot.stop()


def test_names_from_messages_are_cut_and_escaped(own_rig, bundles):
    """A megabyte of a joint's name, and a terminal's control characters, from a robot that is none."""
    with NodeHost("robot") as host:
        publisher = host.node.create_publisher(JointState, topics.JOINT_STATES, topics.WRITER_QOS)
        from sensor_msgs.msg import Imu

        imu = host.node.create_publisher(Imu, topics.IMU, topics.WRITER_QOS)

        def send():
            stamp = host.node.get_clock().now().to_msg()
            names = ["\x1b[2J" + "x" * 1_000_000, *(f"joint{i}" for i in range(200))]
            zeros = [0.0] * len(names)
            message = JointState(name=names, position=zeros, velocity=zeros, effort=zeros)
            message.header.stamp = stamp
            reading = Imu()
            reading.header.stamp = stamp
            reading.orientation.w = 1.0
            publisher.publish(message)
            imu.publish(reading)

        with own_rig.policy(bundles / "good") as policy:
            wait_until(lambda: send() or "Unknown joint" in policy.output, "the refusal")
            assert policy.wait() == 2
            assert len(policy.output) < 5000
            assert "\x1b" not in policy.output.partition("Unknown joint")[2]
