"""Questions to controllers of ros2_control: their joints, by their parameters, and switching them on and off."""

from __future__ import annotations

import threading
import time
from typing import Any

from rcl_interfaces.msg import ParameterType
from rcl_interfaces.srv import GetParameters
from rclpy.node import Node
from std_srvs.srv import SetBool

from gantry_hardware.errors import RobotError, near_name
from gantry_hardware.files.text import names_text

ANSWER_S = 3.0
"""Longest wait for a service to appear, and for its answer."""
MANAGER = "controller_manager"
"""Value of ``activate`` that means the controller manager's own service."""


def require_listener(node: Node, topic: str, kind: str, patience_s: float) -> None:
    """Wait until a controller listens on a topic.

    Raises:
        RobotError: If none does, with the topics of that type that have a listener.
    """
    resolved = node.resolve_topic_name(topic)
    deadline_s = time.monotonic() + patience_s
    while node.count_subscribers(resolved) <= _own_subscriptions(node, resolved):
        if time.monotonic() > deadline_s:
            others = [
                name
                for name, kinds in node.get_topic_names_and_types()
                if kind in kinds and node.count_subscribers(name) > _own_subscriptions(node, name)
            ]
            near = near_name(resolved, others)
            raise RobotError(
                f"No controller listens on {resolved} ({kind}). "
                + (f"Did you mean {near}? " if near else "")
                + f"Such commands are taken on: {names_text(others) if others else '(no topic)'}. Is the controller "
                "loaded (ros2 control list_controllers)?"
            )
        time.sleep(0.02)


def controller_parameters(node: Node, controller: str, names: list[str]) -> dict[str, Any]:
    """Parameters of a controller's node; those that it does not have are left out.

    Raises:
        RobotError: If there is no such node, or it does not answer.
    """
    client = node.create_client(GetParameters, f"{controller}/get_parameters")
    values: dict[str, Any] = {}
    try:
        for name in names:  # One at a time: of several of which one is not declared, none is answered.
            response = _call(client, GetParameters.Request(names=[name]), f"Controller '{controller}'")
            for value in response.values:
                if value.type == ParameterType.PARAMETER_STRING_ARRAY:
                    values[name] = list(value.string_array_value)
                elif value.type == ParameterType.PARAMETER_STRING:
                    values[name] = value.string_value
    finally:
        node.destroy_client(client)
    return values


class ControllerSwitch:
    """Switches controllers on and off.

    Args:
        node: To ask with.
        service: :data:`MANAGER`, or a service of ``std_srvs/SetBool`` that a driver offers for that.
        controllers: Names of the controllers.

    Raises:
        RobotError: If the controller manager is asked for and its messages are not installed.
    """

    def __init__(self, node: Node, service: str, controllers: list[str]) -> None:
        self._node, self._service, self._controllers = node, service, controllers
        self._switch = _switch_type() if service == MANAGER else None

    def set(self, active: bool) -> None:
        """Switch the controllers on or off and wait for the answer.

        Raises:
            RobotError: If there is no answer, or it says no.
        """
        word = "on" if active else "off"
        if self._switch is None:
            client, name = self._node.create_client(SetBool, self._service), self._service
            request: Any = SetBool.Request(data=active)
        else:
            client, name = self._node.create_client(self._switch, f"{MANAGER}/switch_controller"), MANAGER
            request = self._switch.Request(strictness=self._switch.Request.STRICT)
            setattr(request, "activate_controllers" if active else "deactivate_controllers", self._controllers)
        try:
            response = _call(client, request, f"Service {name}")
        finally:
            self._node.destroy_client(client)
        done = getattr(response, "success", getattr(response, "ok", False))
        if not done:
            reason = getattr(response, "message", "")
            raise RobotError(
                f"{name} does not switch {', '.join(self._controllers)} {word}" + (f": {reason}" if reason else ".")
            )


def _own_subscriptions(node: Node, topic: str) -> int:
    infos = node.get_subscriptions_info_by_topic(topic)
    mine = (node.get_name(), node.get_namespace())
    return sum((info.node_name, info.node_namespace) == mine for info in infos)


def _call(client: Any, request: Any, what: str) -> Any:
    """The answer of a service, whose node is spun by another thread."""
    if not client.wait_for_service(timeout_sec=ANSWER_S):
        raise RobotError(f"{what} is not there: no service {client.srv_name} within {ANSWER_S:g} s.")
    answered = threading.Event()
    future = client.call_async(request)
    future.add_done_callback(lambda _: answered.set())
    if not answered.wait(ANSWER_S) or future.result() is None:
        raise RobotError(f"{what} does not answer on {client.srv_name} within {ANSWER_S:g} s.")
    return future.result()


def _switch_type() -> Any:
    try:
        from controller_manager_msgs.srv import SwitchController  # type: ignore[import-not-found]
    except ImportError as error:
        raise RobotError(
            f"activate '{MANAGER}' needs the package controller_manager_msgs, which is not installed here (it is no "
            "part of the ROS 2 wheels). Switch it on by hand: ros2 control switch_controllers --activate NAME"
        ) from error
    return SwitchController
