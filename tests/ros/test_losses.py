"""Processes that die, networks that break down and operators that go away, on real nodes over real DDS."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.ros, pytest.mark.timed]
pytest.importorskip("rclpy")

from gantry_deploy.safety import SafetyConfig  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

ROOT = Path(__file__).parents[2]
CONTROL_PERIOD_S = 0.02
DAMPED_WITHIN_S = 0.1


def test_a_killed_robot_is_damped_within_two_periods_of_the_timeout(new_rig, tmp_path, bundles):
    """A loop that is late by its making is late every time; of three losses, a busy machine spoils some, not all."""
    timeout_s = SafetyConfig().state_timeout_s
    limit_s = timeout_s + 2 * CONTROL_PERIOD_S
    reactions_s, arrivals_s = [], []
    for attempt in range(3):
        with new_rig() as rig:
            times_s, killed_s = lose_robot(rig, bundles / "good", tmp_path / f"statistics{attempt}.json", timeout_s)
            braking_s = first_braking_s(rig.operator, killed_s)
        last_state_s, found_s, sent_s = times_s
        assert found_s - last_state_s > timeout_s
        assert found_s < sent_s
        reactions_s.append(sent_s - last_state_s)
        arrivals_s.append(braking_s - killed_s)
        if reactions_s[-1] < limit_s and arrivals_s[-1] < DAMPED_WITHIN_S:
            break
    assert min(reactions_s) < limit_s, "from the last state received to the first damping command sent"
    assert min(arrivals_s) < DAMPED_WITHIN_S, "from the robot's end to the first damping command on the wire"


def lose_robot(rig, bundle, statistics, timeout_s):
    """Kill a walking robot.

    Returns:
        The node's own times of the last state, the fault and the first damping command; when the robot was killed.
    """
    with (
        rig.robot() as robot,
        rig.policy(bundle, safety__state_timeout_s=timeout_s, statistics=str(statistics)) as policy,
    ):
        rig.bring_to_policy()
        killed_s = time.monotonic()
        robot.kill()
        values = rig.operator.wait_for("policy_node", mode="DAMP", damped_code="stale_state")
        assert policy.stop() == 1
    assert "ms old, allowed are 50 ms" in values["damped because"]
    assert "Mode DAMP: The robot's state is" in policy.output
    damped = json.loads(statistics.read_text())["damped"]
    assert damped["code"] == "stale_state"
    assert damped["reaction_s"] == damped["sent_s"] - damped["state_s"]
    assert float(values["damped: last state to damping sent ms"]) == pytest.approx(damped["reaction_s"] * 1e3)
    return (damped["state_s"], damped["fault_s"], damped["sent_s"]), killed_s


def first_braking_s(operator, after_s):
    """When the operator received the first command without stiffness after ``after_s``."""
    for message, received_s in zip(operator.commands, operator.commands_s, strict=True):
        values = dict(zip(message.name, message.position, strict=True))
        if received_s > after_s and not any(value for name, value in values.items() if name.endswith("/stiffness")):
            return received_s
    raise AssertionError("no damping command arrived")


def test_the_simulated_walk_is_configured_to_damp_a_lost_robot_in_time():
    content = yaml.safe_load((ROOT / "configs" / "ros" / "sim_walk.yaml").read_text())
    timeout_s = content["/**/policy_node"]["ros__parameters"]["safety.state_timeout_s"]
    # The first tick after the timeout damps; half a period is left for the machine.
    assert timeout_s + 1.5 * CONTROL_PERIOD_S <= DAMPED_WITHIN_S


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


@pytest.mark.slow
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


@pytest.mark.slow
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
