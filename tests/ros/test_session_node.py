"""A correction session over real DDS: a simulated arm, the session's node, a joystick, the page in a browser, and a
learner, each in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess

import numpy as np
import pytest

pytestmark = [pytest.mark.ros]
pytest.importorskip("rclpy")

from sensor_msgs.msg import JointState, Joy  # noqa: E402

from gantry_fixtures.browsers import CHROMIUM, DRIVER, MISSING, headless_chromium  # noqa: E402
from gantry_fixtures.learners import GANTRY, PATIENCE_S, Learner  # noqa: E402
from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

NODE = "session_node"
DEAD_MAN = 5
"""Number of the button RB of the map 'xbox'."""
REST = [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
TO_THE_LEFT = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
QUICK = {
    "safety__stand_duration_s": 0.5,
    "safety__state_timeout_s": 1.0,
    "safety__max_missed_deadlines": 1000,
    "safety__arm_speed_rad_s": 9.0,
    "connect_timeout_s": 60.0,
    "discovery_s": 0.2,
    "diagnostics_rate_hz": 10.0,
    "auto_start": True,
    "scene_reset": "reset",
}
"""A busy machine is no fault."""


class Joystick:
    """A joystick's driver, and a listener to the arm's joints."""

    def __init__(self):
        self.host = NodeHost("joystick")
        self.axes, self.held, self.joints = REST, False, None
        node = self.host.node
        self._publisher = node.create_publisher(Joy, topics.JOY, topics.OPERATOR_QOS)
        node.create_subscription(JointState, topics.JOINT_STATES, self._on_joints, topics.READER_QOS)
        self.host.create_timer(0.02, self._publish)
        self.host.start()

    def _publish(self):
        message = Joy(axes=self.axes, buttons=[int(self.held and number == DEAD_MAN) for number in range(11)])
        message.header.stamp = self.host.node.get_clock().now().to_msg()
        self._publisher.publish(message)

    def _on_joints(self, message):
        self.joints = np.array(message.position)


@pytest.fixture
def joystick(own_rig):
    made = Joystick()
    yield made
    made.host.close()


@pytest.fixture
def arm(own_rig):
    options = '{"task": "yam-lift", "seed": 5}'
    with own_rig.process("sim_robot_node", robot="yam", backend="workbench", options=options, rate_hz=100.0) as robot:
        robot.wait_for_output("on backend 'workbench'")
        yield robot
        assert robot.stop() == 0


@pytest.fixture
def learner(tmp_path):
    run = tmp_path / "run"
    made = Learner(run, "yam-lift", "--preset", "hil-serl", "--run-dir", str(run), "--set", "learner.warmup_steps=40")
    yield made
    assert made.end() in (0, 130)


@pytest.fixture
def browser():
    if CHROMIUM is None or DRIVER is None:
        pytest.skip(MISSING)
    pytest.importorskip("selenium", reason="the package selenium (extra 'dev') is not installed")
    made = headless_chromium()
    yield made
    made.quit()


def at_rest(operator, joystick):
    """Joints of the arm once it has come to rest, rad; the gripper's in m."""

    def rest():
        before = joystick.joints
        operator.fresh_values(NODE)
        return np.abs(joystick.joints - before).max() < 0.003

    wait_until(rest, "an arm at rest")
    return joystick.joints


def button(browser, event):
    return browser.find_element("css selector", f"[data-event={event}]")


def pauses(operator, joystick, browser):
    """Pause by the page; without the dead-man switch nothing moves then."""
    button(browser, "pause").click()
    operator.wait_for(NODE, state="PAUSED")
    before = at_rest(operator, joystick)
    joystick.axes = TO_THE_LEFT
    for _ in range(5):
        assert operator.fresh_values(NODE)["state"] == "PAUSED"
    np.testing.assert_allclose(joystick.joints, before, atol=0.02)
    button(browser, "pause").click()
    operator.wait_for(NODE, state="AUTONOMOUS")


def corrects(operator, joystick, browser, screenshot):
    """Turn the arm to the left by the joystick, with the dead-man switch held; then let go."""
    joystick.held = True
    operator.wait_for(NODE, state="CORRECTING", actor="person")
    before = joystick.joints
    wait_until(lambda: joystick.joints[0] - before[0] > 0.1, "an arm that turns to the left")
    wait_until(lambda: "You act" in browser.page_source, "the page's headline")
    browser.save_screenshot(str(screenshot))
    joystick.held = False
    operator.wait_for(NODE, state="AUTONOMOUS", actor="policy")


def ends_attempts(operator, browser, first_version):
    """One with success by the page, on newer weights than the first; one with failure by services."""
    wait_until(lambda: int(operator.values(NODE)["learner updates"]) > 10, "updates of the learner")
    button(browser, "success").click()
    seen = operator.wait_for(NODE, attempts="1", successes="1", successes_alone="0", success_rate="1.000")
    assert float(seen["person s"]) > 0.0
    seen = operator.wait_for(NODE, state="AUTONOMOUS", attempt="1")
    assert int(seen["weights version"]) > first_version
    assert operator.ask(f"{NODE}/take_over")[0]
    operator.wait_for(NODE, actor="person")
    assert not operator.ask(f"{NODE}/take_over")[0]
    assert operator.ask(f"{NODE}/give_back")[0]
    operator.wait_for(NODE, actor="policy")
    assert operator.ask(f"{NODE}/episode/failure")[0]
    operator.wait_for(NODE, attempts="2", successes="1")


@pytest.mark.slow
def test_a_person_corrects_with_joystick_and_page_and_the_learner_sends_weights_back(
    own_rig, arm, learner, joystick, browser, tmp_path
):
    told, data, screenshot = tmp_path / "session.json", tmp_path / "data", tmp_path / "run" / "page.png"
    with own_rig.process(
        NODE,
        learner=learner.address,
        spool=str(tmp_path / "spool"),
        device="ros, page",
        device_options="ros.timeout_s=2.0",
        page=0,
        dataset=str(data),
        results=str(told),
        episode_s=300.0,
        **QUICK,
    ) as session:
        operator = own_rig.operator
        session.wait_for_output("page: http")
        browser.get(re.search(r"page: (http\S+)", session.output)[1])
        seen = operator.wait_for(NODE, state="AUTONOMOUS", actor="policy")
        assert seen["learner connected"] == "True"
        first_version = int(seen["weights version"])
        wait_until(lambda: "Policy acts" in browser.page_source, "the page's headline")
        pauses(operator, joystick, browser)
        corrects(operator, joystick, browser, screenshot)
        ends_attempts(operator, browser, first_version)
        assert session.stop() == 0
    result = json.loads(told.read_text())
    assert result["learner"]["acknowledged"] > 0
    assert result["learner"]["parameters_version"] > first_version
    assert screenshot.stat().st_size > 10_000
    assert "2 attempts, 1 succeeded" in replayed(data, tmp_path / "run" / "session.html")


def replayed(data, report):
    """What ``gantry session replay`` prints; its report has drawings."""
    command = (*GANTRY, "session", "replay", str(data), "--html", str(report))
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "<svg" in report.read_text()
    return done.stdout


def test_refusals_name_the_parameter(own_rig):
    for text, parameters in (
        ("'bundle' and 'learner' are empty", {}),
        ("expected 'name=value'", {"bundle": "pretrained:yam-pick-place", "device_options": "xbox"}),
    ):
        with own_rig.process(NODE, **parameters) as session:
            assert session.wait() == 2
            assert text in session.output
