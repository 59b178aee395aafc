"""The scripted operator of an arm: episodes on real nodes over real DDS, and how a launch describes them."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")
pytest.importorskip("mujoco", reason="the simulated arm needs it")

from gantry_bringup.description import find_launch  # noqa: E402
from gantry_deploy.contract.parts import InstructionSpec  # noqa: E402
from gantry_fixtures.arm import (  # noqa: E402
    arm_bundle,
    grasping_contract,
    grasping_plan,
    told_contract,
    told_plan,
)
from gantry_hardware.errors import GantryError  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Lifts the cube by a plan made at its first look."""
    folder, (weight, bias) = tmp_path_factory.mktemp("arm") / "bundle", grasping_plan()
    arm_bundle(folder, grasping_contract(robot_spec("yam")), steps=2, weight=weight, bias=bias)
    return folder


@pytest.mark.slow
@pytest.mark.timed
def test_it_lays_starts_stops_and_counts(own_rig, bundle, tmp_path):
    options, asked = '{"task": "yam-lift", "vary": false}', {"diagnostics_rate_hz": 20.0}
    with (
        own_rig.process(
            "sim_robot_node", robot="yam", backend="workbench", options=options, watchdog_s=1.0, **asked
        ) as robot,
        own_rig.policy(bundle, safety__arm_speed_rad_s=9.0, **asked) as policy,
    ):
        done = tmp_path / "done.json"
        with own_rig.process("episode_node", episodes=2, seconds=30.0, hold_s=0.1, results=str(done)) as operator:
            assert operator.wait() == 0, operator.output
            assert "Episode 2 of 2: done." in operator.output
            assert "Done." in operator.output
        first, second = json.loads(done.read_text())["episodes"]
        assert (first["done"], second["done"], first["reason"]) == (True, True, "")
        assert second["done_s"] - first["done_s"] > 2.0  # The plan alone takes longer.
        late = tmp_path / "late.json"
        with own_rig.process("episode_node", episodes=1, seconds=0.2, hold_s=0.0, results=str(late)) as operator:
            assert operator.wait() == 0, operator.output
        assert json.loads(late.read_text())["episodes"] == [
            {"done": False, "done_s": None, "reason": "not done within 0.2 s"}
        ]
        with own_rig.process("episode_node", episodes=1, hold_s=0.0) as operator:
            own_rig.operator.wait_for("policy_node", mode="POLICY")
            own_rig.operator.ask("policy_node/estop")
            assert operator.wait() == 1
            assert "stop" in operator.output
        assert policy.stop() == 1  # The arm was damped.
        assert robot.stop() == 0


@pytest.fixture(scope="module")
def told_bundle(tmp_path_factory):
    """Lifts the red cube, whatever it is told."""
    words = InstructionSpec(("cube", "pick", "red", "the", "up"), ("pick up the red cube",))
    contract, (weight, bias) = told_contract(robot_spec("yam"), words), told_plan()
    return arm_bundle(tmp_path_factory.mktemp("told") / "bundle", contract, steps=2, weight=weight, bias=bias).path


@pytest.mark.slow
@pytest.mark.timed
def test_it_tells_a_policy_what_to_do(own_rig, told_bundle, tmp_path):
    options, asked = '{"task": "yam-tell-pick", "vary": false, "seed": 0}', {"diagnostics_rate_hz": 20.0}
    done = tmp_path / "done.json"
    with (
        own_rig.process(
            "sim_robot_node", robot="yam", backend="workbench", options=options, watchdog_s=1.0, **asked
        ) as robot,
        own_rig.policy(told_bundle, safety__arm_speed_rad_s=9.0, **asked) as policy,
    ):
        given = {"instructions": "pick up the red cube; lift the red thing", "results": str(done)}
        with own_rig.process("episode_node", episodes=2, seconds=30.0, hold_s=0.1, **given) as operator:
            assert operator.wait() == 0, operator.output
        assert "Told: pick up the red cube" in operator.output
        assert "Told: lift the red thing" in operator.output
        assert [episode["done"] for episode in json.loads(done.read_text())["episodes"]] == [True, True]
        with own_rig.process("episode_node", episodes=1, seconds=0.2, hold_s=0.0) as operator:
            assert operator.wait() == 0, operator.output
        own = own_rig.operator.fresh_values("sim_robot_node")["task instruction"]
        assert f"Told: {own}" in operator.output, "without sentences, what the task asks for"
        assert policy.stop() == 0
        assert robot.stop() == 0


def test_a_launch_has_an_operator_if_episodes_are_asked_for(bundle, tmp_path):
    given = {"bundle": str(bundle), "task": "yam-lift"}
    assert [node.name for node in find_launch("sim_arm").nodes(given)] == ["sim_robot_node", "policy_node"]
    given |= {"episodes": "3", "auto_start": "false", "episode_results": str(tmp_path / "r.json")}
    *_, operator = find_launch("sim_arm").nodes(given)
    assert (operator.executable, operator.parameters) == (
        "episode_node",
        {"episodes": 3, "results": str(tmp_path / "r.json")},
    )
    with pytest.raises(GantryError, match="auto_start:=false"):
        find_launch("sim_arm").nodes(given | {"auto_start": "true"})
    with pytest.raises(GantryError, match="'episodes' is 'few'"):
        find_launch("sim_arm").nodes(given | {"episodes": "few"})
