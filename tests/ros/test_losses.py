"""Processes that die, networks that break down and operators that go away, on real nodes over real DDS."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from gantry_deploy.safety import SafetyConfig  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

CONTROL_PERIOD_S = 0.02
DAMPED_WITHIN_S = 0.1


def test_a_killed_robot_is_damped_in_the_first_tick_after_the_timeout(own_rig, bundles):
    timeout_s = SafetyConfig().state_timeout_s
    # On a machine that keeps its deadlines this is what the configuration promises.
    assert timeout_s + CONTROL_PERIOD_S < DAMPED_WITHIN_S
    as_delivered = {"safety__state_timeout_s": timeout_s}
    with own_rig.robot() as robot, own_rig.policy(bundles / "good", **as_delivered) as policy:
        own_rig.bring_to_policy()
        robot.kill()
        values = own_rig.operator.wait_for("policy_node", mode="DAMP", damped_code="stale_state")
        assert policy.stop() == 1
    last_state_s, found_s, sent_s = (
        float(values[f"damped: {name}"])
        for name in ("last state received at s", "fault found at s", "first damping sent at s")
    )
    longest_period_s = float(values["period max ms"]) * 1e-3
    # The age is beyond the timeout now and was not one period earlier; the command goes out in the same tick.
    assert timeout_s < found_s - last_state_s <= timeout_s + longest_period_s + 1e-6
    assert sent_s == found_s
    assert "ms old, allowed are 50 ms" in values["damped because"]
    assert "Mode DAMP: The robot's state is" in policy.output


def test_a_robot_whose_policy_is_killed_damps_by_itself(own_rig, bundles):
    with own_rig.robot(), own_rig.policy(bundles / "good") as policy:
        own_rig.bring_to_policy()
        own_rig.operator.wait_for("sim_robot_node", activity="commanded")
        policy.kill()
        values = own_rig.operator.wait_for("sim_robot_node", activity="damping: no joint command")
        assert int(values["watchdog trips"]) >= 1
        # A policy that comes back starts from nothing.
        with own_rig.policy(bundles / "good") as again:
            own_rig.operator.wait_for("sim_robot_node", activity="commanded")
            assert own_rig.operator.fresh_values("policy_node")["mode"] == "PASSIVE"
            assert again.stop() == 0


def test_a_network_that_overflows_is_damped_by_joint_name(own_rig, bundles):
    with own_rig.robot(), own_rig.policy(bundles / "explosive") as policy:
        own_rig.bring_to_policy()
        assert own_rig.operator.fresh_values("policy_node")["mode"] == "POLICY"

        def damped():
            own_rig.operator.drive(1.0)
            return own_rig.operator.values("policy_node")["mode"] == "DAMP"

        wait_until(damped, "mode DAMP")
        values = own_rig.operator.values("policy_node")
        assert values["damped code"] == "policy"
        assert "FR_hip_joint" in values["damped because"]
        assert policy.stop() == 1


def test_an_operator_who_goes_away_is_noticed(own_rig, bundles):
    required = {"safety__require_heartbeat": True, "safety__heartbeat_timeout_s": 0.3}
    with own_rig.robot(), own_rig.policy(bundles / "good", **required) as policy:
        own_rig.operator.wait_for("policy_node", mode="PASSIVE", fault_code="heartbeat")
        granted, text = own_rig.operator.ask("policy_node/stand")
        assert not granted
        assert "heartbeat" in text

        def standing():
            own_rig.operator.beat()
            return own_rig.operator.ask("policy_node/stand")[0]

        wait_until(standing, "a granted request")
        values = own_rig.operator.wait_for("policy_node", mode="DAMP")
        assert values["damped code"] == "heartbeat"
        assert policy.stop() == 1
