"""A policy that starts by itself does so once; after damping it says how it is started again, and that works."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from gantry_ros.testing import wait_until  # noqa: E402

HINT = "does not start by itself again"


def test_after_damping_the_operator_is_told_how_it_starts_again(own_rig, bundles):
    rig, operator = own_rig, own_rig.operator
    with rig.robot() as robot, rig.policy(bundles / "good", auto_start=True) as policy:
        operator.wait_for("policy_node", mode="POLICY")
        assert HINT not in policy.output
        assert operator.ask("policy_node/estop")[0]
        operator.wait_for("policy_node", mode="DAMP")
        policy.wait_for_output(HINT)
        services = re.findall(r"(/policy_node/\w+)", policy.output.partition(HINT)[2])
        assert services == ["/policy_node/reset", "/policy_node/stand", "/policy_node/start"]
        for service, mode in zip(services, ("PASSIVE", "STAND", "POLICY"), strict=True):
            assert operator.fresh_values("policy_node")["mode"] != mode, "nothing happens by itself"
            wait_until(lambda service=service: operator.ask(service)[0], service)
            operator.wait_for("policy_node", mode=mode)
        assert policy.stop() == 0
        assert robot.stop() == 0


def test_who_was_started_by_an_operator_knows_how(own_rig, bundles):
    with own_rig.robot() as robot, own_rig.policy(bundles / "good") as policy:
        own_rig.bring_to_policy()
        assert own_rig.operator.ask("policy_node/estop")[0]
        policy.wait_for_output("Mode DAMP: The operator pressed the emergency stop.")
        assert policy.stop() == 1
        assert HINT not in policy.output
        assert robot.stop() == 0
