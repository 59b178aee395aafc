"""Real nodes in processes of their own, watched and commanded over real DDS; shipped, so that drivers can be tested."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped, Twist
from rcl_interfaces.srv import SetParameters
from rclpy.node import Node
from rclpy.parameter import Parameter as RclParameter
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty
from std_srvs.srv import Trigger

from gantry_deploy.control.goals import Goal
from gantry_deploy.process.domains import free_domain
from gantry_deploy.process.transports import LOCALHOST, RANGE_VARIABLE, udp_variables
from gantry_deploy.recording.ros_messages import ODOM_FRAME
from gantry_hardware.errors import GantryError
from gantry_ros.convert import map as convert_map
from gantry_ros.convert import robot as convert
from gantry_ros.runtime import topics
from gantry_ros.runtime.availability import child_environment
from gantry_ros.runtime.host import NodeHost

PATIENCE_S = 120.0
"""Time to wait for what must come; long, because only a failure ever waits that long."""
POLL_S = 0.01
"""Period at which a condition is looked at."""


def isolated_environment() -> dict[str, str]:
    """Variables that keep nodes on this machine and in a random domain that is free."""
    variables = {RANGE_VARIABLE: LOCALHOST, "ROS_DOMAIN_ID": str(free_domain())}
    changes = udp_variables({**os.environ, **variables})
    return {**variables, **{name: value or "" for name, value in changes.items()}}  # ROS 2 reads an empty one as unset.


def wait_until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Wait until ``condition()`` is true and return its value.

    Raises:
        AssertionError: If it never becomes true.
    """
    deadline_s = time.monotonic() + patience_s
    while not (value := condition()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {patience_s:g} s for {what}")
        time.sleep(POLL_S)
    return value


class NodeProcess:
    """A node of ``gantry_ros`` in a process of its own.

    Args:
        executable: For example ``policy_node``.
        environment: From :func:`isolated_environment`.
        log: File that takes its output.
        parameters: ROS parameters.
    """

    def __init__(self, executable: str, environment: dict[str, str], log: Path, **parameters: Any) -> None:
        self.executable = executable
        self._log = log
        command = [sys.executable, "-m", "gantry_ros", executable, "--ros-args"]
        for name, value in parameters.items():
            command += ["-p", f"{name.replace('__', '.')}:={json.dumps(value)}"]
        with log.open("w") as stream:
            self._child = subprocess.Popen(
                command,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**child_environment(), "PYTHONFAULTHANDLER": "1", **environment},
            )

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child.poll() is None:
            self.kill()

    @property
    def pid(self) -> int:
        """Number of its process."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code; negative is the signal that ended it, None while it runs."""
        return self._child.poll()

    @property
    def output(self) -> str:
        """Output that it has printed."""
        return self._log.read_text(errors="replace")

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """Exit code, once it ends by itself.

        Raises:
            AssertionError: If it does not; then with where each of its threads is.
        """
        try:
            return self._child.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._abort()
            raise AssertionError(f"{self.executable} does not end:\n{self.output}") from None

    def wait_for_output(self, text: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until it has printed ``text``.

        Raises:
            AssertionError: If it ends without, or does not print it; then with where each of its threads is.
        """

        def seen() -> bool:
            if text in self.output:
                return True
            assert self._child.poll() is None, f"{self.executable} ended with {self._child.poll()}:\n{self.output}"
            return False

        try:
            wait_until(seen, f"'{text}' from {self.executable}", patience_s)
        except AssertionError as error:
            self._abort()
            raise AssertionError(f"{error}\n{self.output}") from None

    def stop(self) -> int:
        """Ask it to end, as Ctrl-C does, and return its exit code."""
        self._child.send_signal(signal.SIGINT)
        return self.wait()

    def _abort(self) -> None:
        """End it in such a way that Python's fault handler prints the stack of every thread."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGABRT)
            self._child.wait()

    def kill(self) -> None:
        """End it without warning, as a power cut does."""
        self._child.kill()
        self._child.wait()


class Operator:
    """Watches the diagnostics and the commands of nodes, and does what an operator does.

    Its process must have the variables of :func:`isolated_environment` while it is made.
    """

    def __init__(self) -> None:
        self.commands: list[JointState] = []
        """Joint commands as they came, newest last."""
        self.commands_s: list[float] = []
        """When each of them was received, on the machine's monotonic clock, which its processes share."""
        self._host = NodeHost("operator")
        node = self._host.node
        self._lock = threading.Lock()
        self._values: dict[str, dict[str, str]] = {}
        self._seen: dict[str, int] = {}
        self._clients: dict[str, Any] = {}
        self._twist = node.create_publisher(Twist, topics.CMD_VEL, topics.OPERATOR_QOS)
        self._goals = node.create_publisher(PoseStamped, topics.GOAL_POSE, topics.REPORT_QOS)
        self._beat = node.create_publisher(Empty, topics.HEARTBEAT, topics.OPERATOR_QOS)
        node.create_subscription(DiagnosticArray, topics.DIAGNOSTICS, self._on_diagnostics, topics.REPORT_QOS)
        node.create_subscription(JointState, topics.JOINT_COMMAND, self._on_command, topics.READER_QOS)
        self._host.start()

    @property
    def node(self) -> Node:
        """Its node."""
        return self._host.node

    def close(self) -> None:
        """Leave; may be called twice."""
        self._host.close()

    def values(self, node: str) -> dict[str, str]:
        """Newest diagnostics of a node; empty before the first."""
        with self._lock:
            return dict(self._values.get(node, {}))

    def fresh_values(self, node: str) -> dict[str, str]:
        """Diagnostics that were sent after this was called: two later ones, since one may be on its way."""
        with self._lock:
            before = self._seen.get(node, 0)
        wait_until(lambda: self._seen.get(node, 0) >= before + 2, f"diagnostics of {node}")
        return self.values(node)

    def wait_for(self, node: str, **expected: str) -> dict[str, str]:
        """Wait until a node's diagnostics have these values (``_`` in a name stands for a space) and return them."""
        wanted = {name.replace("_", " "): value for name, value in expected.items()}

        def met() -> dict[str, str] | None:
            values = self.values(node)
            return values if all(values.get(name) == value for name, value in wanted.items()) else None

        try:
            return wait_until(met, f"{wanted} of {node}")
        except AssertionError as error:
            raise AssertionError(f"{error}; its diagnostics are {self.values(node)}") from None

    def ask(self, service: str) -> tuple[bool, str]:
        """Call a Trigger service and return its answer."""
        response = self.call(service, Trigger, Trigger.Request())
        return response.success, response.message

    def set_parameter(self, node: str, name: str, value: Any) -> tuple[bool, str]:
        """Set a parameter of another node and return whether it was accepted, and why not."""
        request = SetParameters.Request(parameters=[RclParameter(name, value=value).to_parameter_msg()])
        result = self.call(f"{node}/set_parameters", SetParameters, request).results[0]
        return result.successful, result.reason

    def drive(
        self, lin_vel_x_base_m_s: float, lin_vel_y_base_m_s: float = 0.0, ang_vel_z_base_rad_s: float = 0.0
    ) -> None:
        """Send one velocity command."""
        self._twist.publish(convert.twist_message(lin_vel_x_base_m_s, lin_vel_y_base_m_s, ang_vel_z_base_rad_s))

    def send_to(self, goal: Goal, frame_id: str = ODOM_FRAME) -> None:
        """Send a policy to a goal, once."""
        stamp = self._host.node.get_clock().now().to_msg()
        self._goals.publish(convert_map.goal_message(goal, stamp, frame_id))

    def beat(self) -> None:
        """Send one heartbeat."""
        self._beat.publish(Empty())

    def call(self, service: str, kind: Any, request: Any) -> Any:
        """Call any service and return its answer.

        Raises:
            GantryError: If there is no such service.
        """
        if service not in self._clients:
            self._clients[service] = self._host.node.create_client(kind, service)
        client = self._clients[service]
        if not client.wait_for_service(PATIENCE_S):
            raise GantryError(f"There is no service {service}.")
        future = client.call_async(request)
        wait_until(future.done, f"the answer of {service}")
        return future.result()

    def _on_command(self, message: JointState) -> None:
        self.commands_s.append(time.monotonic())
        self.commands.append(message)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            with self._lock:
                self._values[status.name] = convert.diagnostic_values(message, status.name) or {}
                self._seen[status.name] = self._seen.get(status.name, 0) + 1
