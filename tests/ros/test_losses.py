"""Processes that die, networks that break down and operators that go away, on real nodes over real DDS."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

pytestmark = [pytest.mark.ros, pytest.mark.timed]
pytest.importorskip("rclpy")

from gantry_deploy.control.safety import Mode  # noqa: E402
from gantry_deploy.recording.reader import read_recording  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

ROOT = Path(__file__).parents[2]
CONTROL_PERIOD_S = 0.02
DAMPED_WITHIN_S = 0.1


def test_a_killed_robot_is_damped_in_the_first_turn_after_the_timeout(own_rig, tmp_path, bundles):
    """Counted in turns of the loop, which a busy machine makes fewer of; how long it took is told and not judged."""
    timeout_s, recording, statistics = 0.5, tmp_path / "loss.mcap", tmp_path / "statistics.json"
    given = {"safety__state_timeout_s": timeout_s, "record": str(recording), "statistics": str(statistics)}
    with own_rig.robot() as robot, own_rig.policy(bundles / "good", **given) as policy:
        own_rig.bring_to_policy()
        killed_s = time.monotonic()
        robot.kill()
        values = own_rig.operator.wait_for("policy_node", mode="DAMP", damped_code="stale_state")
        assert policy.stop() == 1
    assert "ms old, allowed are 500 ms" in values["damped because"]
    assert "Mode DAMP: The robot's state is" in policy.output
    damped = json.loads(statistics.read_text())["damped"]
    assert damped["code"] == "stale_state"
    assert damped["reaction_s"] == damped["sent_s"] - damped["state_s"]
    assert float(values["damped: last state to damping sent ms"]) == pytest.approx(damped["reaction_s"] * 1e3)
    status = read_recording(recording)["/gantry/status"]
    turn = int(np.searchsorted(status["time_s"], damped["fault_s"] - 1e-4))
    assert status["time_s"][turn] == pytest.approx(damped["fault_s"], abs=1e-4)
    assert [str(mode) for mode in status["mode"][turn - 1 : turn + 1]] == [Mode.POLICY.value, Mode.DAMP.value]
    before_s, found_s = status["time_s"][turn - 1 : turn + 1] - damped["state_s"]
    assert before_s <= timeout_s + 1e-4, "the turn before could have known"
    assert timeout_s < found_s + 1e-4
    arrived_s = first_braking_s(own_rig.operator, killed_s) - killed_s
    print(
        f"damping sent {damped['reaction_s']:.3f} s after the last state, on the wire {arrived_s:.3f} s after the end"
    )


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
