"""A watch over a forward position controller: when its commander dies, the controller is told where the arm is.

Such a controller keeps its last command for ever and does not ask whether its commander is alive. The backend
``ros2-control`` tells it the measured pose when its loop stops, and at its end; this node does so when the whole
process was killed. It announces itself as a commander only while it holds.
"""

from __future__ import annotations

import time
from array import array
from typing import Any

from rclpy.publisher import Publisher
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_ros.controllers.questions import controller_parameters
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost, Parameter, positive, stop_on_signals

NAME = "controller_watch_node"

PARAMETERS = (
    Parameter("robot", "", "The arm, a name of the registry gantry.robots; its gripper keeps its last target."),
    Parameter("controller", "forward_position_controller", "Name of the controller to watch."),
    Parameter("command_timeout_s", 0.5, "Silence after which the arm is held, s; longer than the commander's own."),
    Parameter("hold_s", 2.0, "How long the pose to hold is repeated, s."),
)
"""Every parameter of this node."""

PERIOD_S = 0.05
"""Time between two looks, and between two sendings of the pose."""
STATE_S = 0.5
"""Joint states that are older tell no pose to hold."""


class ControllerWatch:
    """Holds the arm when commands have stopped.

    Args:
        host: Its node, which spins already.
        values: Of :data:`PARAMETERS`.

    Raises:
        GantryError: If there is no such robot or controller, or a value is out of range.
    """

    def __init__(self, host: NodeHost, values: dict[str, Any]) -> None:
        spec = robot_spec(values["robot"])
        self._host, self._controller = host, values["controller"]
        self._timeout_s, self._hold_s = positive(values, "command_timeout_s"), positive(values, "hold_s")
        self._joints = controller_parameters(host.node, self._controller, ["joints"]).get("joints", [])
        if not self._joints:
            raise GantryError(
                f"Controller '{self._controller}' tells no joints; expected a forward position controller."
            )
        self._gripper = [name in spec.gripper_joints for name in self._joints]
        self._topic = f"{self._controller}/commands"
        self._measured: tuple[dict[str, float], float] | None = None
        self._command: tuple[list[float], float] | None = None
        self._held: tuple[list[float], float] | None = None
        self._publisher: Publisher | None = None
        self.holds = 0
        """Times that the arm was held."""
        host.node.create_subscription(JointState, topics.JOINT_STATES, self._on_state, topics.READER_QOS)
        host.node.create_subscription(Float64MultiArray, self._topic, self._on_command, topics.COMMAND_WATCH_QOS)
        host.create_timer(PERIOD_S, self._look)

    def _on_state(self, message: JointState) -> None:
        self._measured = (dict(zip(message.name, message.position, strict=False)), time.monotonic())

    def _on_command(self, message: Float64MultiArray) -> None:
        data = list(message.data)
        if self._held is not None and data == self._held[0]:
            return  # Its own.
        if len(data) == len(self._joints):
            self._command = (data, time.monotonic())
            self._let_go()

    def _look(self) -> None:
        now_s = time.monotonic()
        if self._held is not None:
            if now_s - self._held[1] > self._hold_s:
                self._command = None
                self._let_go()
            elif self._publisher is not None:
                self._publisher.publish(Float64MultiArray(data=array("d", self._held[0])))
            return
        if self._command is None or now_s - self._command[1] <= self._timeout_s:
            return
        pose = self._pose(self._command[0], now_s)
        if pose is None:
            self._say("Commands have stopped, and the arm's pose is not known: the controller keeps its last target.")
            return
        self._say(f"Commands on {self._topic} have stopped for {self._timeout_s:g} s: the arm is held where it is.")
        self._publisher = self._host.node.create_publisher(Float64MultiArray, self._topic, topics.WRITER_QOS)
        self._held = (pose, now_s)
        self.holds += 1

    def _pose(self, last: list[float], now_s: float) -> list[float] | None:
        """Position of each joint of the controller, rad or m, a gripper's as told last; None if it is not known."""
        if self._measured is None or now_s - self._measured[1] > STATE_S:
            return None
        positions = self._measured[0]
        if not set(self._joints) <= set(positions):
            return None
        rows = zip(self._joints, self._gripper, last, strict=True)
        return [told if gripper else float(positions[name]) for name, gripper, told in rows]

    def _let_go(self) -> None:
        publisher, self._publisher, self._held = self._publisher, None, None
        if publisher is not None:
            self._host.node.destroy_publisher(publisher)

    def _say(self, text: str) -> None:
        self._host.node.get_logger().warning(text, throttle_duration_sec=5.0)


def main(arguments: list[str]) -> int:
    """Watch until the node is told to stop.

    Raises:
        GantryError: If parameters are refused, or the controller does not answer.
    """
    with NodeHost(NAME, arguments) as host, stop_on_signals(host.stop):
        values = host.declare(PARAMETERS)
        if not values["robot"]:
            raise GantryError("Parameter 'robot' is empty, expected the arm's name, for example yam.")
        host.start()
        ControllerWatch(host, values)
        host.node.get_logger().info(f"Watching {values['controller']}.")
        host.stop.wait()
    return 0
