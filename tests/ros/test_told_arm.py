"""An arm that is told in words, on real nodes: it waits for an instruction, says what it heard, and does it."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = [pytest.mark.ros, pytest.mark.timed]
pytest.importorskip("rclpy")

from geometry_msgs.msg import PoseArray  # noqa: E402
from std_msgs.msg import String  # noqa: E402

from gantry_deploy.contract.parts import MAX_WORDS, InstructionSpec  # noqa: E402
from gantry_deploy.contract.policy_contract import INSTRUCTION_TERM  # noqa: E402
from gantry_deploy.observations.builder import make_term  # noqa: E402
from gantry_deploy.recording.reader import read_recording  # noqa: E402
from gantry_fixtures.arm import arm_bundle, told_contract, told_plan  # noqa: E402
from gantry_hardware.errors import RobotError  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.convert import arm as convert_arm  # noqa: E402
from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

YAM = robot_spec("yam")
SPEC = InstructionSpec(("cube", "pick", "red", "the", "up"), ("pick up the red cube",))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Lifts the red cube, whatever it is told."""
    weight, bias = told_plan()
    contract = told_contract(YAM, SPEC)
    return arm_bundle(tmp_path_factory.mktemp("told") / "bundle", contract, steps=2, weight=weight, bias=bias).path


class Person:
    """Sees things and says what to do, again and again, as one message alone may get lost."""

    def __init__(self):
        self.host = NodeHost("person")
        self.things, self.text = None, ""
        node = self.host.node
        self._voice = node.create_publisher(String, topics.INSTRUCTION, topics.REPORT_QOS)
        node.create_subscription(PoseArray, topics.THINGS, self._on_things, topics.READER_QOS)
        self.host.create_timer(0.1, self._say)
        self.host.start()

    def _on_things(self, message):
        self.things = convert_arm.places(message, "base_link", 3)

    def _say(self):
        if self.text:
            self._voice.publish(String(data=self.text))


@pytest.fixture(scope="module")
def bench(rig):
    """The rig's operator, a person, and the simulated arm with a scene of three things."""
    pytest.importorskip("mujoco")
    options = '{"task": "yam-tell-pick", "vary": false, "seed": 7}'
    with rig.process("sim_robot_node", robot="yam", backend="workbench", options=options, rate_hz=100.0) as robot:
        robot.wait_for_output("on backend 'workbench'")
        person = Person()
        yield rig, person
        person.host.close()
        assert robot.stop() == 0


@pytest.mark.slow
def test_an_arm_waits_for_an_instruction_and_does_it(bench, bundle):
    rig, person = bench
    asked = rig.operator.fresh_values("sim_robot_node")["task instruction"]
    assert asked
    with rig.policy(bundle, auto_start=True, safety__arm_speed_rad_s=9.0) as policy:
        waits = "the policy waits for an instruction"
        wait_until(lambda: waits in rig.operator.values("policy_node").get("waiting for", ""), waits)
        assert rig.operator.values("policy_node")["mode"] == "STAND"
        assert rig.operator.values("policy_node")["instruction"] == ""
        person.text = "fetch beer"
        policy.wait_for_output("Instruction refused: The policy knows no word of the instruction 'fetch beer'")
        assert rig.operator.fresh_values("policy_node")["mode"] == "STAND"
        person.text = "pick up the red cub"
        policy.wait_for_output("Instruction: 'pick up the red cub'.")
        policy.wait_for_output("not trained on 'cub' (did you mean 'cube'?)")
        wait_until(lambda: rig.operator.values("policy_node").get("mode") == "POLICY", "mode POLICY")
        assert rig.operator.fresh_values("policy_node")["instruction"] == "pick up the red cub"
        # The workbench does not know that word, and goes on to ask for what it asked for.
        assert rig.operator.fresh_values("sim_robot_node")["task instruction"] == asked
        wait_until(lambda: person.things is not None and person.things[0, 2] > 0.1, "the red cube in the air")
        person.text = "pick up the red cube"
        wait_until(lambda: rig.operator.values("sim_robot_node").get("task done") == "True", "the task done")
        assert rig.operator.fresh_values("sim_robot_node")["task instruction"] == "pick up the red cube"
        assert policy.stop() == 0


@pytest.mark.slow
def test_a_first_instruction_is_a_parameter_and_one_that_says_nothing_is_refused(bench, bundle):
    rig, person = bench
    person.text = ""
    with rig.policy(bundle, instruction="fetch beer") as policy:
        assert policy.wait() == 2
        assert "knows no word of the instruction 'fetch beer'" in policy.output
    with rig.policy(bundle, instruction="pick up the red cube") as policy:
        policy.wait_for_output("Instruction: 'pick up the red cube'.")
        rig.bring_to_policy()
        assert rig.operator.fresh_values("policy_node")["instruction"] == "pick up the red cube"
        assert policy.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("noted", [True, False])
def test_a_recording_holds_a_scene_that_the_policy_does_not_see_if_it_is_asked_to(bench, tmp_path, noted):
    rig, _ = bench
    hears = (make_term(INSTRUCTION_TERM, MAX_WORDS),)
    bundle = arm_bundle(tmp_path / "bundle", told_contract(YAM, SPEC, observations=hears), steps=2)
    path = tmp_path / "blind.mcap"
    given = {"instruction": "pick up the red cube", "record": str(path), "record_scene": noted, "auto_start": True}
    with rig.policy(bundle.path, **given) as policy:
        policy.wait_for_output("Mode POLICY.")
        assert policy.stop() == 0
    recording = read_recording(path)
    assert ("/things" in recording.topics, "/zones" in recording.topics) == (noted, noted)
    if noted:
        assert recording["/things"]["data"].shape[1:] == (3, 3)


def test_places_come_and_go_as_messages():
    places = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    message = convert_arm.places_message(places, convert_arm.Time(sec=3), "base_link")
    np.testing.assert_array_equal(convert_arm.places(message, "base_link", 2), places)
    assert message.poses[1].orientation.w == 1.0
    with pytest.raises(RobotError, match="There are 2 places, expected 3"):
        convert_arm.places(message, "base_link", 3)
    with pytest.raises(RobotError, match="expected 'map'"):
        convert_arm.places(message, "map", 2)
    message.poses[0].position.x = float("nan")
    with pytest.raises(RobotError, match="place"):
        convert_arm.places(message, "base_link", 2)
