"""An operator's device of this machine on ROS 2: keyboard, gamepad or SpaceMouse as topics for a correction session
elsewhere, and its events as calls of the session's services."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from geometry_msgs.msg import TwistStamped
from std_msgs.msg import Bool, Float64
from std_srvs.srv import Trigger

from gantry_deploy.recording.ros_messages import BASE_FRAME
from gantry_deploy.teleop.operator import Axis, OperatorInput, TeleopDevice, TeleopEvent
from gantry_deploy.teleop.registry import make_device
from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import plain_text
from gantry_ros.control import bundle_parameters
from gantry_ros.control.bundle_parameters import load_named_bundle
from gantry_ros.convert import operator as convert
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost, Parameter, positive, stop_on_signals

NAME = "teleop_node"

PARAMETERS = (
    *bundle_parameters.PARAMETERS,
    Parameter("device", "keyboard", "Name in the registry gantry.teleop_devices."),
    Parameter("device_options", "", "Options of the device, 'path=/dev/input/js1, map=xbox'; numbers as numbers."),
    Parameter("session", "gantry_session", "Name of the session's node, in this node's namespace."),
    Parameter("rate_hz", 50.0, "Rate of motion and dead-man switch, Hz."),
)
"""Every parameter of this node."""

GRIPPER_PRESSED = 0.5
"""A gripper axis beyond it is sent."""
WAIT_S = 2.0
"""Time after which it is logged that the session's node is not there, s."""
ANSWER_S = 2.0
"""Longest wait for answers at the end, s."""
POLL_S = 0.01
"""Period at which they are looked for, s."""


class TeleopNode:
    """Publishes a device.

    Args:
        host: Its node.
        device: Connected.
        values: Values of :data:`PARAMETERS`.
    """

    def __init__(self, host: NodeHost, device: TeleopDevice, values: dict[str, Any]) -> None:
        self._host, self._device, session = host, device, values["session"]
        self._period_s = 1.0 / positive(values, "rate_hz")
        node, qos = host.node, topics.OPERATOR_QOS
        below = {topic: topic.replace("~", session, 1) for topic in _TOPICS}
        self._twist = node.create_publisher(TwistStamped, below[topics.DELTA_TWIST], qos)
        self._grip = node.create_publisher(Float64, below[topics.GRIPPER_OPENING], qos)
        self._switch = node.create_publisher(Bool, below[topics.DEAD_MAN], qos)
        self._clients = {
            TeleopEvent(event): node.create_client(Trigger, f"{session}/{name}")
            for name, event in topics.EVENT_SERVICES.items()
        }
        self._waiting = host.wait_reason("Waiting", settle_s=WAIT_S)
        self._session = session
        self._asked = 0  # Calls without an answer yet.

    def run(self) -> int:
        """Publish until the node is stopped, or the person quits."""
        while not self._host.stop.is_set():
            given = self._device.read(time.monotonic())
            self._publish(given)
            for event in given.events:
                self._ask(event)
            if TeleopEvent.QUIT in given.events:
                break
            there = self._host.node.count_subscribers(self._switch.topic_name) > 0
            self._waiting.note("" if there else f"nothing listens: is the session's node '{self._session}'?")
            self._host.stop.wait(self._period_s)
        self._switch.publish(Bool(data=False))
        end_s = time.monotonic() + ANSWER_S
        while self._asked and time.monotonic() < end_s:
            time.sleep(POLL_S)
        return 0

    def _publish(self, given: OperatorInput) -> None:
        self._switch.publish(Bool(data=given.engaged))
        message = TwistStamped(twist=convert.motion_message(given.axes if given.engaged else {}))
        message.header.stamp, message.header.frame_id = self._host.node.get_clock().now().to_msg(), BASE_FRAME
        self._twist.publish(message)
        grip = given.axes.get(Axis.GRIPPER, 0.0)
        if given.engaged and abs(grip) > GRIPPER_PRESSED:
            self._grip.publish(Float64(data=convert.opening(grip)))

    def _ask(self, event: TeleopEvent) -> None:
        client, log = self._clients.get(event), self._host.node.get_logger()
        if client is None:
            return
        if not client.service_is_ready():
            log.error(f"'{event.value}' is lost: there is no service {client.srv_name}.")
            return
        self._asked += 1
        client.call_async(Trigger.Request()).add_done_callback(partial(self._answered, event))

    def _answered(self, event: TeleopEvent, future: Any) -> None:
        self._asked -= 1
        response, log = future.result(), self._host.node.get_logger()
        if response.success:
            log.info(response.message)
        else:
            log.error(f"'{event.value}' was refused: {response.message}")


_TOPICS = (topics.DELTA_TWIST, topics.GRIPPER_OPENING, topics.DEAD_MAN)


def device_options(text: str) -> dict[str, Any]:
    """Options of a device from 'name=value, ...'.

    Raises:
        GantryError: If it is not written like that.
    """
    found: dict[str, Any] = {}
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if item.strip() and not (name and equals):
            raise GantryError(f"Parameter 'device_options' holds {plain_text(item.strip())}, expected 'name=value'.")
        if name:
            found[name] = _plain(value)
    return found


def _plain(text: str) -> bool | int | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def main(arguments: list[str]) -> int:
    """Run the node until it is stopped.

    Raises:
        GantryError: If parameters are refused, or the device is not there.
    """
    with NodeHost(NAME, arguments) as host, stop_on_signals(host.stop):
        values = host.declare(PARAMETERS)
        contract = load_named_bundle(values).contract
        device = make_device(values["device"], contract, **device_options(values["device_options"]))
        device.connect()
        try:
            for line in device.describe():
                print(line, flush=True)
            node = TeleopNode(host, device, values)
            host.start()
            return node.run()
        finally:
            device.close()
