"""Faults on real nodes over real DDS: what happens to a robot when a part of the system fails."""

from __future__ import annotations

import time

import pytest

pytestmark = [pytest.mark.ros, pytest.mark.timed]
pytest.importorskip("rclpy")

from sensor_msgs.msg import JointState  # noqa: E402

from gantry_ros.nodes.policy_node import NEWCOMER_S  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402


@pytest.fixture(scope="module")
def pair(rig, bundles):
    """A rig with a robot and a policy that are shared by the faults one can recover from."""
    with rig.robot() as robot, rig.policy(bundles / "good") as policy:
        rig.operator.wait_for("policy_node", mode="PASSIVE")
        yield rig
        assert policy.stop() == 0
        assert robot.stop() == 0


@pytest.fixture
def walking(pair):
    """The pair in mode POLICY; healthy and passive again afterwards."""
    pair.bring_to_policy()
    yield pair.operator
    assert pair.operator.set_parameter("sim_robot_node", "fault", "") == (True, "")
    wait_until(lambda: pair.operator.ask("policy_node/estop")[0], "the emergency stop")
    wait_until(lambda: pair.operator.ask("policy_node/reset")[0], "the reset")
    pair.operator.wait_for("policy_node", mode="PASSIVE", fault="")


def is_braking(message):
    """Whether a joint command has no stiffness, no feed-forward, and damping on every joint."""
    values = dict(zip(message.name, message.position, strict=True))
    stiff = [value for name, value in values.items() if name.endswith(("/stiffness", "/effort"))]
    damping = [value for name, value in values.items() if name.endswith("/damping")]
    return not any(stiff) and all(value > 0.0 for value in damping)


@pytest.mark.parametrize(
    ("fault", "code", "reason"),
    [
        ("silent", "stale_state", "ms old, allowed are 1000 ms"),
        ("frozen", "stale_state", "ms old, allowed are 1000 ms"),
        ("no_imu", "stale_state", "ms old, allowed are 1000 ms"),
        ("nan", "nan_state", "joint_pos_rad of FR_hip_joint"),
        ("wrong_name", "no_state", "FR_hip_joint_renamed"),
        ("wrong_order", "no_state", "Same joints, other order"),
    ],
)
def test_a_robot_that_reports_nonsense_is_damped_and_says_why(walking, fault, code, reason):
    assert walking.set_parameter("sim_robot_node", "fault", fault) == (True, "")
    values = walking.wait_for("policy_node", mode="DAMP")
    assert values["damped code"] == code
    assert reason in values["damped because"]
    assert reason in values["message"]
    wait_until(lambda: is_braking(walking.commands[-1]), "braking commands")


def test_an_unknown_fault_is_refused_with_the_near_miss(pair):
    accepted, reason = pair.operator.set_parameter("sim_robot_node", "fault", "frozn")
    assert not accepted
    assert "Did you mean 'frozen'?" in reason


def test_a_lost_cmd_vel_becomes_zero_and_the_policy_goes_on(walking):
    def commanded():
        walking.drive(0.5, 0.0, -0.25)
        return walking.values("policy_node")["command"] == "0.5, 0, -0.25"

    wait_until(commanded, "the command")
    values = walking.wait_for("policy_node", command="0, 0, 0")
    assert values["mode"] == "POLICY"


def test_an_emergency_stop_is_latched_until_the_reset(walking):
    assert walking.ask("policy_node/estop")[0]
    values = walking.wait_for("policy_node", mode="DAMP")
    assert values["damped code"] == "operator_stop"
    for event in ("stand", "start", "stop"):
        granted, text = walking.ask(f"policy_node/{event}")
        assert not granted
        assert "not possible in DAMP" in text
        assert "reset" in text
    assert walking.fresh_values("policy_node")["mode"] == "DAMP"
    assert walking.ask("policy_node/reset")[0]
    walking.wait_for("policy_node", mode="PASSIVE", fault="")


def test_a_stranger_who_could_command_the_robot_is_a_fault(walking):
    with NodeHost("stranger") as stranger:
        stranger.node.create_publisher(JointState, "joint_command", 1)
        values = walking.wait_for("policy_node", mode="DAMP")
        assert values["damped code"] == "write"
        assert "Another node commands this robot too: /stranger" in values["damped because"]
        wait_until(lambda: is_braking(walking.commands[-1]), "braking commands")


def test_a_second_policy_is_refused_and_the_first_goes_on(pair, walking, bundles):
    with pair.policy(bundles / "good", discovery_s=5.0) as second:
        assert second.wait() == 2
        assert "Another node commands this robot too: /policy_node" in second.output
    values = walking.fresh_values("policy_node")
    assert values["mode"] == "POLICY", values["message"]


@pytest.mark.slow
def test_a_passive_policy_sends_nothing_while_somebody_else_commands_the_robot(pair):
    operator = pair.operator
    operator.wait_for("policy_node", mode="PASSIVE")

    def silent():
        count = len(operator.commands)
        operator.fresh_values("policy_node")  # Two reports are 100 ms, five control periods.
        return len(operator.commands) == count

    wait_until(lambda: not silent(), "limp commands of a policy that is alone")
    time.sleep(NEWCOMER_S)  # A newcomer steps back, with exit code 2; from now on it is none, whoever ran before.
    with NodeHost("vendor") as vendor:
        vendor.node.create_publisher(JointState, "joint_command", 1)
        wait_until(silent, "silence")
        said = []

        def refused_by_name():  # A publisher is discovered before the name of its node is.
            said.append(operator.ask("policy_node/stand"))
            return "Another node commands this robot too: /vendor" in said[-1][1]

        wait_until(refused_by_name, "the other node's name")
        assert not any(granted for granted, _ in said)
        values = operator.fresh_values("policy_node")
        assert (values["mode"], values["fault"]) == ("PASSIVE", "")
        assert silent(), "nothing must be sent, not even damping"
    wait_until(lambda: not silent(), "limp commands after the other has gone")
