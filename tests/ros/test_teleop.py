"""Operator's devices over real DDS: joystick, twists, dead-man switch, services, and a node that publishes a device."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from geometry_msgs.msg import TwistStamped  # noqa: E402
from std_msgs.msg import Bool, Float64  # noqa: E402
from std_srvs.srv import Trigger  # noqa: E402

from gantry_deploy.teleop.operator import Axis, TeleopEvent  # noqa: E402
from gantry_fixtures.arm import arm_bundle, arm_contract_for  # noqa: E402
from gantry_fixtures.teleop import (  # noqa: E402
    JS_AXIS,
    JS_BUTTON,
    Plug,
    js_beginning,
    js_event,
    wait_for,
)
from gantry_hardware.errors import GantryError, RobotError, UnknownNameError  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.convert import operator as convert  # noqa: E402
from gantry_ros.nodes.teleop_node import device_options  # noqa: E402
from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.availability import child_environment  # noqa: E402
from gantry_ros.runtime.host import NodeHost, ask  # noqa: E402
from gantry_ros.teleop.freshness import DeadMan, Fresh  # noqa: E402
from gantry_ros.teleop.topic_device import TopicCfg, TopicDevice  # noqa: E402

ARM = (Axis.X, Axis.Y, Axis.Z, Axis.GRIPPER)
JOYSTICK = """
import json, sys, threading, time
import rclpy
from sensor_msgs.msg import Joy
rclpy.init()
node = rclpy.create_node("joystick")
publisher = node.create_publisher(Joy, "joy", 10)
state = json.loads(sys.stdin.readline())
threading.Thread(target=lambda: [state.update(json.loads(line)) for line in sys.stdin], daemon=True).start()
while True:
    message = Joy(axes=[float(value) for value in state["axes"]], buttons=state["buttons"])
    message.header.stamp = node.get_clock().now().to_msg()
    publisher.publish(message)
    time.sleep(0.02)
"""
REST = [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
AHEAD = [0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]


def pressed(*numbers):
    return [int(number in numbers) for number in range(11)]


class Joystick:
    """A joystick's driver in a process of its own."""

    def __init__(self):
        self.child = subprocess.Popen(
            [sys.executable, "-c", JOYSTICK], stdin=subprocess.PIPE, text=True, env=child_environment()
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def set(self, axes, *buttons):
        self.child.stdin.write(json.dumps({"axes": axes, "buttons": pressed(*buttons)}) + "\n")
        self.child.stdin.flush()

    def kill(self):
        """SIGKILL."""
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()


class Held:
    """The device ``ros`` and its events so far, with a second node that talks to it."""

    def __init__(self, **cfg):
        self.host, self.other = NodeHost("session"), NodeHost("person")
        self.device = TopicDevice(self.host, ARM, TopicCfg(timeout_s=1.0, **cfg))
        self.events = []

    def __enter__(self):
        self.device.connect()
        self.host.start()
        self.other.start()
        return self

    def __exit__(self, *_):
        self.device.close()
        self.host.close()
        self.other.close()

    def until(self, condition, meanwhile=lambda: None):
        found = []

        def met():
            meanwhile()
            found[:] = [self.device.read(50.0)]
            self.events.extend(found[0].events)
            return condition(found[0])

        wait_for(met)
        return found[0]


@pytest.mark.usefixtures("rig")
def test_a_joystick_that_is_killed_lets_go_and_comes_back():
    with Held() as held, Joystick() as first:
        first.set(REST)
        held.until(lambda given: given.stamp_s > 40.0)
        first.set(AHEAD)
        assert not held.until(lambda given: given.axes[Axis.X] > 0.9).engaged
        first.set(AHEAD, 5, 3)
        given = held.until(lambda given: given.engaged)
        assert given.axes == {Axis.X: 1.0, Axis.Y: 0.0, Axis.Z: 0.0, Axis.GRIPPER: 0.0}
        held.until(lambda _: held.events == ["success"])
        first.kill()
        given = held.until(lambda given: not given.engaged)
        assert not any(given.axes.values())
        with Joystick() as second:
            second.set(AHEAD, 5, 3)  # Held from the beginning: no press.
            assert not held.until(lambda given: given.axes[Axis.X] > 0.9).engaged
            second.set(AHEAD)
            second.set(REST)
            held.until(lambda given: given.axes[Axis.X] == 0.0)
            second.set(AHEAD, 5)
            held.until(lambda given: given.engaged)
        assert held.events == ["success"]


@pytest.mark.usefixtures("rig")
def test_twists_count_in_the_base_frame_while_the_switch_is_held():
    with Held() as held:
        node = held.other.node
        twists = node.create_publisher(TwistStamped, "session/delta_twist_cmds", topics.OPERATOR_QOS)
        grips = node.create_publisher(Float64, "session/gripper_opening", topics.OPERATOR_QOS)
        switch = node.create_publisher(Bool, "session/dead_man", topics.OPERATOR_QOS)

        def send(x, held_=True, frame="base_link", grip=None):
            message = TwistStamped(twist=convert.motion_message({Axis.X: x}))
            message.header.frame_id = frame
            message.header.stamp = node.get_clock().now().to_msg()
            twists.publish(message)
            switch.publish(Bool(data=held_))
            if grip is not None:
                grips.publish(Float64(data=grip))

        # Pressed from the beginning counts for nothing.
        given = held.until(lambda given: given.axes[Axis.X] == 0.5, lambda: send(0.5))
        assert not given.engaged
        held.until(lambda given: given.axes[Axis.X] == 0.25, lambda: send(0.25, False))
        given = held.until(lambda given: given.engaged and given.axes[Axis.X] == 1.0, lambda: send(7.0, grip=0.0))
        assert held.until(lambda given: given.axes[Axis.GRIPPER], lambda: send(1.0, grip=0.0)).axes[Axis.GRIPPER] == -1
        # The person still holds on, but what comes is told in another frame, or is no number.
        held.until(lambda given: given.engaged and not given.axes[Axis.X], lambda: send(1.0, frame="camera_link"))
        held.until(lambda given: given.engaged and given.axes[Axis.X] == 0.5, lambda: send(0.5, frame=""))
        held.until(lambda given: given.engaged and not given.axes[Axis.X], lambda: send(float("nan")))
        held.until(lambda given: not given.engaged)  # Silence.


@pytest.mark.usefixtures("rig")
def test_two_people_on_one_topic_are_heard_as_none():
    with Held() as held, NodeHost("second") as second:
        second.start()
        first, other = (
            host.node.create_publisher(Bool, "session/dead_man", topics.OPERATOR_QOS) for host in (held.other, second)
        )
        held.until(lambda given: given.stamp_s > 45.0, lambda: first.publish(Bool(data=False)))
        held.until(lambda given: given.engaged, lambda: first.publish(Bool(data=True)))

        def both():
            first.publish(Bool(data=True))
            other.publish(Bool(data=False))

        held.until(lambda given: not given.engaged and given.stamp_s < 49.0, both)


@pytest.mark.usefixtures("rig")
def test_services_answer_with_the_state_or_the_reason():
    with Held() as held:
        clients = {
            name: held.other.node.create_client(Trigger, f"session/{name}") for name in ("episode/start", "pause")
        }
        for client in clients.values():
            assert client.wait_for_service(60.0)
        answer = ask(clients["pause"], 60.0)
        assert (answer.success, answer.message) == (False, "No session runs yet.")
        asked = []

        def request(event):
            asked.append(event)
            return "'pause' is not possible in READY; possible: start_episode." if event is TeleopEvent.PAUSE else None

        held.device.attend(request, lambda: "READY")
        answer = ask(clients["episode/start"], 60.0)
        assert (answer.success, answer.message) == (True, "start_episode: asked for in READY.")
        answer = ask(clients["pause"], 60.0)
        assert not answer.success
        assert "possible: start_episode" in answer.message
        assert asked == [TeleopEvent.START, TeleopEvent.PAUSE]


def test_a_device_of_another_machine_through_the_teleop_node(rig, tmp_path):
    arm_bundle(tmp_path / "bundle", arm_contract_for(robot_spec("yam")))
    plug = Plug(tmp_path / "js0")
    options = f"path={plug.path}, map=xbox"
    asked = []

    def request(event):
        asked.append(event.value)
        return None

    with Held() as held:
        held.device.attend(request, lambda: "AUTONOMOUS")
        with rig.process(
            "teleop_node",
            bundle=str(tmp_path / "bundle"),
            device="gamepad",
            device_options=options,
            session="session",
        ) as node:
            node.wait_for_output("rb (button 5) held")
            plug.send(js_beginning() + js_event(JS_AXIS, 1, -32767))
            given = held.until(lambda given: given.stamp_s > 45.0)
            assert not given.engaged
            plug.send(js_event(JS_BUTTON, 5, 1))
            assert held.until(lambda given: given.engaged and given.axes[Axis.X]).axes[Axis.X] == 1.0
            plug.send(js_event(JS_AXIS, 5, 32767))
            held.until(lambda given: given.axes[Axis.GRIPPER] == 1.0)
            plug.send(js_event(JS_BUTTON, 3, 1) + js_event(JS_BUTTON, 3, 0))
            node.wait_for_output("success: asked for in AUTONOMOUS.")
            plug.unplug()
            held.until(lambda given: not given.engaged and not given.axes[Axis.X])
            plug.send(js_beginning() + js_event(JS_BUTTON, 5, 1))
            held.until(lambda given: given.engaged)
            plug.send(js_event(JS_BUTTON, 8, 1))  # Quits.
            assert node.wait() == 0
            held.until(lambda given: not given.engaged)
        assert asked == ["success", "quit"]
    plug.unplug()


def test_a_switch_counts_after_it_was_open_and_while_it_is_repeated():
    switch = DeadMan(0.5)
    switch.hear(True, 0.0)
    assert switch.stuck(0.1)
    assert not switch.held(0.1)
    switch.hear(False, 0.2)
    switch.hear(True, 0.3)
    assert switch.held(0.7)
    assert not switch.held(0.9)
    switch.hear(True, 1.0)  # After a silence: pressed all the time, or anew, is not known.
    assert not switch.held(1.0)
    switch.hear(False, 1.1)
    switch.hear(True, 1.2)
    assert switch.held(1.3)


def test_a_value_counts_while_it_is_young():
    value = Fresh[float](0.5)
    assert value.get(0.0) is None
    value.hear(2.0, 1.0)
    assert value.get(1.5) == 2.0
    assert value.get(1.6) is None


def test_motion_and_gripper_are_cut_and_refused():
    message = convert.motion_message({Axis.X: 3.0, Axis.YAW: -0.5, Axis.GRIPPER: 1.0})
    assert convert.motion(message, (Axis.X, Axis.YAW)) == {Axis.X: 1.0, Axis.YAW: -0.5}
    assert convert.motion(message, (Axis.THROTTLE, Axis.STEER)) == {Axis.THROTTLE: 1.0, Axis.STEER: -0.5}
    message.angular.z = float("inf")
    with pytest.raises(RobotError, match=r"angular\.z is inf"):
        convert.motion(message, (Axis.YAW,))
    assert [convert.gripper(opening) for opening in (-1.0, 0.0, 0.5, 1.0)] == [-1.0, -1.0, 0.0, 1.0]
    assert convert.gripper(convert.opening(0.3)) == pytest.approx(0.3)
    with pytest.raises(RobotError, match="opening is nan"):
        convert.gripper(float("nan"))


def test_options_as_text_and_mistakes():
    assert device_options("path=/dev/input/js1, dead_zone=0.2,hold=3, x=true") == {
        "path": "/dev/input/js1",
        "dead_zone": 0.2,
        "hold": 3,
        "x": True,
    }
    assert device_options("") == {}
    with pytest.raises(GantryError, match="holds 'path', expected 'name=value'"):
        device_options("path")
    with pytest.raises(UnknownNameError, match="Did you mean 'xbox'"):
        TopicDevice("session", ARM, TopicCfg(map="xbx"))
