"""An arm on real nodes over real DDS: a bundle lifts a cube on the simulated YAM by either message of ros2_control."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytestmark = [pytest.mark.ros, pytest.mark.timed]
pytest.importorskip("rclpy")

from geometry_msgs.msg import PoseStamped  # noqa: E402
from sensor_msgs.msg import JointState  # noqa: E402
from std_msgs.msg import Float64MultiArray  # noqa: E402
from trajectory_msgs.msg import JointTrajectory  # noqa: E402

from gantry_deploy.contract.policy_contract import OBJECT_GOAL, OBJECT_GOAL_NAMES, CommandSpec  # noqa: E402
from gantry_fixtures.arm import arm_bundle, grasping_contract, grasping_plan  # noqa: E402
from gantry_hardware.backends.registry import make_backend  # noqa: E402
from gantry_hardware.backends.testing import check_backend  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.convert import arm as convert_arm  # noqa: E402
from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

YAM = robot_spec("yam")
LIFTED_M = 0.1


class Watcher:
    """Listens to the arm and what it works on, and may speak to its controllers."""

    def __init__(self):
        self.host = NodeHost("watcher")
        self.joints, self.object, self.commands = None, None, {}
        node = self.host.node
        node.create_subscription(JointState, topics.JOINT_STATES, self._on_joints, topics.READER_QOS)
        node.create_subscription(PoseStamped, topics.OBJECT_POSE, self._on_object, topics.READER_QOS)
        for kind, topic in (
            (JointTrajectory, topics.ARM_TRAJECTORY),
            (Float64MultiArray, topics.ARM_POSITIONS),
            (JointTrajectory, topics.GRIPPER_TRAJECTORY),
        ):
            node.create_subscription(
                kind, topic, lambda message, topic=topic: self.commands.update({topic: message}), topics.READER_QOS
            )
        self.host.start()

    def _on_joints(self, message):
        self.joints = np.array(message.position)

    def _on_object(self, message):
        self.object = convert_arm.pose(message, "base_link")

    def command(self, topic):
        """Newest command on a topic; a reader on a busy machine may find its writer after the arm has."""
        return wait_until(lambda: self.commands.get(topic), f"a command on {topic}")

    def wait_until_lifted(self):
        wait_until(lambda: self.object is not None and self.object[2] > LIFTED_M, "the cube in the air")

    def assert_still(self, operator):
        """Whether the arm, once it has come to rest, stays where it is, cube in hand."""

        def change():
            before = self.joints
            operator.fresh_values("sim_robot_node")
            return np.abs(self.joints - before).max()

        wait_until(lambda: change() < 0.02, "an arm at rest")  # On a busy machine a simulated second takes longer.
        assert change() < 0.02
        assert self.object[2] > LIFTED_M


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Sees the object, waits for a goal, and lifts the cube by a plan made at its first look, then again and again."""
    goal = CommandSpec(OBJECT_GOAL, OBJECT_GOAL_NAMES, (0.2, -0.2, 0.0), (0.45, 0.2, 0.25), (0.0,) * 3)
    contract = grasping_contract(YAM, command=goal)
    # A second plan would open the hand; its first action comes after 40 s of holding.
    chunk = replace(contract.chunk, steps=contract.chunk.steps + 800, execute=contract.chunk.execute + 800)
    weight, bias = grasping_plan()
    hold = np.tile([0.0, 0.0, 0.0, -1.0], 800)
    folder = tmp_path_factory.mktemp("arm") / "bundle"
    weight, bias = np.concatenate((weight, np.zeros((3, hold.size))), axis=1), np.concatenate((bias, hold))
    arm_bundle(folder, replace(contract, chunk=chunk), steps=2, weight=weight, bias=bias)
    return folder


@pytest.fixture(scope="module")
def bench(rig):
    """The rig's operator, a watcher, and the simulated arm with the scene of a task."""
    pytest.importorskip("mujoco")
    options = '{"task": "yam-pick-place", "vary": false}'
    with rig.process("sim_robot_node", robot="yam", backend="workbench", options=options, rate_hz=100.0) as robot:
        robot.wait_for_output("on backend 'workbench'")
        watcher = Watcher()
        yield rig, watcher
        watcher.host.close()
        assert robot.stop() == 0


def test_an_arm_behind_topics_keeps_every_promise_of_a_backend(bench):
    check_backend(make_backend("ros", YAM, command_message="positions"), hold_s=0.5, max_age_s=0.5)


def start(bench, bundle, **parameters):
    """A policy on an arm that is back at its start; what was heard before is forgotten."""
    rig, watcher = bench
    rig.operator.ask("reset")
    wait_until(lambda: watcher.object is not None and watcher.object[2] < LIFTED_M, "the cube on the table")
    watcher.commands.clear()
    return rig.policy(bundle, auto_start=True, safety__arm_speed_rad_s=9.0, **parameters)


@pytest.mark.slow
def test_an_array_of_positions_moves_the_arm_and_a_lost_object_holds_it(bench, bundle):
    rig, watcher = bench
    parameters = {"command_message": "positions", "gripper_message": "joint_trajectory"}
    with start(bench, bundle, **parameters) as policy:
        watcher.wait_until_lifted()
        assert len(watcher.command(topics.ARM_POSITIONS).data) == 6
        assert watcher.command(topics.GRIPPER_TRAJECTORY).joint_names == ["left_finger"]
        assert topics.ARM_TRAJECTORY not in watcher.commands
        assert rig.operator.set_parameter("sim_robot_node", "fault", "no_object") == (True, "")
        values = rig.operator.wait_for("policy_node", mode="DAMP")
        assert values["damped code"] == "policy"
        assert "needs an object's pose" in values["damped because"]
        watcher.assert_still(rig.operator)
        assert rig.operator.set_parameter("sim_robot_node", "fault", "") == (True, "")
        assert policy.stop() == 1  # The arm was damped.


def test_wrong_joints_are_refused_both_ways(bench, bundle):
    rig, watcher = bench
    before = int(rig.operator.fresh_values("sim_robot_node")["refused commands"])
    joints = watcher.joints
    publisher = watcher.host.node.create_publisher(JointTrajectory, topics.ARM_TRAJECTORY, topics.WRITER_QOS)
    wrong = convert_arm.trajectory_message(["joint1", "joint7"], np.array([1.0, 1.0]), 0.05)

    def refused():
        publisher.publish(wrong)
        return int(rig.operator.values("sim_robot_node")["refused commands"]) > before

    wait_until(refused, "a refused trajectory")
    np.testing.assert_allclose(watcher.joints, joints, atol=0.02)
    watcher.host.node.destroy_publisher(publisher)
    assert rig.operator.set_parameter("sim_robot_node", "fault", "wrong_name") == (True, "")
    with start(bench, bundle) as policy:
        assert policy.wait() == 2
        assert "joint1_renamed" in policy.output
    assert rig.operator.set_parameter("sim_robot_node", "fault", "") == (True, "")


def test_a_trajectory_moves_the_arm_and_it_holds_when_its_policy_is_killed(bench, bundle):
    rig, watcher = bench
    watcher.commands.clear()
    with start(bench, bundle) as policy:
        watcher.wait_until_lifted()
        message = watcher.command(topics.ARM_TRAJECTORY)
        assert message.joint_names == list(YAM.joint_names)
        assert len(message.points) == 1
        assert message.points[0].time_from_start.nanosec == 50_000_000
        assert topics.ARM_POSITIONS not in watcher.commands
        policy.kill()
        rig.operator.wait_for("sim_robot_node", activity="holding: no joint command")
        watcher.assert_still(rig.operator)
