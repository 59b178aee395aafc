"""A robot on ROS 2 topics: any backend by name, stepped in real time, MuJoCo unless asked otherwise.

It publishes what a robot's driver publishes and obeys ``joint_command``, an arm also what its controllers would take.
Without a command for the watchdog's time it damps by itself; an arm stays where it is. A robot that has a task tells
where the object is. The parameter ``fault`` injects faults on purpose, for tests and for drills.
"""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry
from rcl_interfaces.msg import SetParametersResult
from rclpy.parameter import Parameter as RclParameter
from rclpy.publisher import Publisher
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float32MultiArray
from std_srvs.srv import Trigger

from gantry_deploy.realtime import prepare_thread
from gantry_deploy.safety import is_arm
from gantry_hardware.backend import Robot
from gantry_hardware.backends import make_backend
from gantry_hardware.errors import GantryError, RobotError, unknown_name_text
from gantry_hardware.robots import robot_spec
from gantry_hardware.state import RobotState
from gantry_ros import convert, topics
from gantry_ros.command_inputs import Activity, CommandInputs
from gantry_ros.depth_publisher import depth_publisher
from gantry_ros.host import NodeHost, Parameter, answer, stop_on_signals, write_json
from gantry_ros.scene_publisher import scene_publisher

NAME = "sim_robot_node"

FAULTS = {
    "": "none",
    "silent": "publishes nothing any more, while the process lives",
    "frozen": "repeats the last reading with its old stamp",
    "nan": "the first joint's position is not a number",
    "wrong_name": "the first joint has another name",
    "wrong_order": "the joints come in reverse order",
    "no_imu": "publishes no IMU any more",
    "no_depth": "publishes no depth images any more",
    "covered": "the depth images hold no measurement, as with a covered lens",
    "no_odom": "publishes no odometry any more",
    "no_object": "publishes no pose of the object any more",
}
"""Values of the parameter ``fault``."""

PARAMETERS = (
    Parameter("robot", "go2", "Robot's name in the registry gantry.robots."),
    Parameter("backend", "mujoco", "Backend's name in the registry gantry.backends."),
    Parameter("options", "{}", 'Options of the backend as a JSON object, for example {"delay_s": 0.004}.'),
    Parameter("rate_hz", 200.0, "Rate of the published state, Hz; the backend is stepped at it, in real time."),
    Parameter("watchdog_s", 0.1, "The robot damps, or holds an arm, when its newest command is older, s."),
    Parameter("picture_rate_hz", 20.0, "Rate of the pictures of a robot that takes some, Hz."),
    Parameter(
        "realtime_priority", 0, "SCHED_FIFO priority of the stepping loop, 1 to 99; 0 for the default scheduler."
    ),
    Parameter("diagnostics_rate_hz", 5.0, "Rate of the published diagnostics, Hz."),
    Parameter("statistics", "", "Path of a JSON file at the end, simulated against real time; empty for none."),
    Parameter("fault", "", f"Injected fault: {'; '.join(f'{k!r} {v}' for k, v in FAULTS.items())}.", read_only=False),
)
"""Every parameter of this node."""

MAX_LAG_S = 0.1
"""A loop that is further behind than this starts over from now instead of catching up with a burst."""


@dataclass
class Counts:
    """What a simulated robot's node counts."""

    steps: int = 0
    """Turns of the loop, each of one period of simulated time."""
    wall_s: float = 0.0
    """How long they took."""
    overruns: int = 0
    """How often the loop was so far behind the clock that it started over from there."""


class SimRobotNode:
    """Steps a backend and speaks for it.

    Args:
        host: Its node.
        values: Values of :data:`PARAMETERS`.

    Raises:
        GantryError: If the robot, the backend or its options do not exist.
    """

    def __init__(self, host: NodeHost, values: dict[str, Any]) -> None:
        self._host = host
        self.spec = robot_spec(values["robot"])
        self._robot: Robot = make_backend(values["backend"], self.spec, **backend_options(values["options"]))
        self._backend_name = values["backend"]
        self._period_s = 1.0 / positive(values, "rate_hz")
        self._inputs = CommandInputs(host.node, self.spec, positive(values, "watchdog_s"))
        self._robot_lock = threading.Lock()
        self._fault: str = ""
        self._set_fault(values["fault"])
        self._scene = scene_publisher(host.node, self._robot, positive(values, "picture_rate_hz"))
        self._counts = Counts()
        self._last_stamp_s = -math.inf
        self._priority: int = values["realtime_priority"]
        self._open_topics(1.0 / positive(values, "diagnostics_rate_hz"))

    def run(self) -> None:
        """Step and publish in real time until the host is stopped."""
        self._robot.connect()
        prepare_thread(self._priority, cpu=-1)
        self._log().info(f"Robot '{self.spec.name}' on backend '{self._backend_name}' at {1.0 / self._period_s:g} Hz.")
        try:
            self._loop()
        finally:
            self._robot.close()

    def statistics(self) -> dict[str, Any]:
        """How long the loop ran and how much of that was simulated, s; plain data for JSON."""
        return {
            "wall_s": self._counts.wall_s,
            "simulated_s": self._counts.steps * self._period_s,
            "overruns": self._counts.overruns,
            "watchdog_trips": self._inputs.watchdog_trips,
            "refused_commands": self._inputs.refused,
        }

    def _loop(self) -> None:
        begin_s = next_s = time.monotonic()
        robot_s, joints = self._robot.now_s(), None
        while not self._host.stop.is_set():
            with self._robot_lock:
                command = self._inputs.choose(time.monotonic(), joints)
                if command is not None:
                    self._robot.write(command)
                robot_s += self._period_s
                self._robot.sleep_until(robot_s)
                state = self._robot.read()
                joints, now_s = state.joint_pos_rad, self._robot.now_s()
                frames = [] if self._eyes is None else self._eyes.collect(now_s)
                pictures = {} if self._scene is None else self._scene.pictures(now_s)
            if self._scene is not None and self._fault not in ("silent", "frozen"):
                self._scene.publish(state, now_s, pictures, silent=self._fault == "no_object")
            self._publish(state, now_s - state.stamp_s)
            if self._eyes is not None and self._fault not in ("silent", "frozen", "no_depth"):
                for frame, frame_age_s in frames:
                    self._eyes.publish(frame, frame_age_s, covered=self._fault == "covered")
            next_s += self._period_s
            self._counts.steps, self._counts.wall_s = self._counts.steps + 1, time.monotonic() - begin_s
            late_s = time.monotonic() - next_s
            if late_s > MAX_LAG_S:
                self._counts.overruns += 1
                next_s = time.monotonic()
            elif late_s < 0.0:
                time.sleep(-late_s)

    def _publish(self, state: RobotState, age_s: float) -> None:
        fault = self._fault
        if fault == "silent":
            return
        if fault == "frozen":
            self._joints.publish(self._last_joints)
            if self._imu is not None:
                self._imu.publish(self._last_imu)
            return
        if state.stamp_s <= self._last_stamp_s:
            return  # Nothing new, nothing said.
        self._last_stamp_s = state.stamp_s
        now_ns = self._host.node.get_clock().now().nanoseconds
        stamp = convert.stamp_from_ns(now_ns - int(age_s * 1e9))
        if fault == "nan":
            state = replace(state, joint_pos_rad=np.concatenate(([np.nan], state.joint_pos_rad[1:])))
        if self._imu is not None:
            self._publish_base(self._imu, state, stamp)
        # Last, so that whoever waits for joints finds the rest of the same reading already there.
        self._last_joints = _relabel(convert.joint_state_message(self.spec, state, stamp), fault)
        self._joints.publish(self._last_joints)

    def _publish_base(self, imu: Publisher, state: RobotState, stamp: Time) -> None:
        """What a robot has whose base moves."""
        odometry = convert.odometry_message(state, stamp)
        if odometry is not None and self._fault != "no_odom":
            self._odom.publish(odometry)
        contacts = convert.foot_contact_message(self.spec, state)
        if contacts is not None:
            self._contacts.publish(contacts)
        self._last_imu = convert.imu_message(state, stamp)
        if self._fault != "no_imu":
            imu.publish(self._last_imu)

    def _open_topics(self, diagnostics_period_s: float) -> None:
        node = self._host.node
        self._last_joints = JointState()
        self._last_imu = Imu()
        self._joints = node.create_publisher(JointState, topics.JOINT_STATES, topics.WRITER_QOS)
        self._imu: Publisher | None = None
        if not is_arm(self.spec):
            self._imu = node.create_publisher(Imu, topics.IMU, topics.WRITER_QOS)
            self._odom = node.create_publisher(Odometry, topics.ODOM, topics.WRITER_QOS)
            self._contacts = node.create_publisher(Float32MultiArray, topics.FOOT_CONTACTS, topics.WRITER_QOS)
        self._eyes = depth_publisher(node, self._robot)
        self._diagnostics = node.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, topics.REPORT_QOS)
        node.create_service(Trigger, "reset", answer(self._reset))
        node.create_timer(diagnostics_period_s, self._report)
        node.add_on_set_parameters_callback(self._on_parameters)

    def _on_parameters(self, parameters: list[RclParameter]) -> SetParametersResult:
        try:
            for parameter in parameters:
                if parameter.name == "fault":
                    self._set_fault(str(parameter.value))
        except GantryError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _set_fault(self, fault: str) -> None:
        if fault not in FAULTS:
            raise GantryError(unknown_name_text("fault", fault, FAULTS))
        if fault != self._fault:
            self._log().warning(f"Injected fault: {FAULTS[fault]}.")
        self._fault = fault

    def _reset(self) -> str:
        reset = getattr(self._robot, "reset", None)
        if reset is None:
            raise RobotError(f"Backend '{self._backend_name}' cannot be reset.")
        with self._robot_lock:
            reset()
            self._inputs.reset()
        return f"Robot '{self.spec.name}' is back at its start."

    def _report(self) -> None:
        activity = self._inputs.activity
        values = {
            "activity": activity,
            "backend": self._backend_name,
            "fault injected": FAULTS[self._fault],
            "watchdog trips": self._inputs.watchdog_trips,
            "refused commands": self._inputs.refused,
            "overruns": self._counts.overruns,
            **({} if self._scene is None else self._scene.values()),
        }
        stamp = self._host.node.get_clock().now().to_msg()
        name = self._host.node.get_name()
        self._diagnostics.publish(
            convert.diagnostics_message(
                stamp, name, self.spec.name, activity, values, error=activity in (Activity.DAMPING, Activity.HOLDING)
            )
        )

    def _log(self) -> Any:
        return self._host.node.get_logger()


def main(arguments: list[str]) -> int:
    """Run the node until it is stopped.

    Raises:
        GantryError: If parameters or backend are refused.
    """
    with NodeHost(NAME, arguments) as host, stop_on_signals(host.stop):
        values = host.declare(PARAMETERS)
        node = SimRobotNode(host, values)
        host.start()
        node.run()
        if values["statistics"]:
            write_json(values["statistics"], node.statistics(), "statistics")
        return 1 if host.failure is not None else 0


def _relabel(message: JointState, fault: str) -> JointState:
    if fault == "wrong_name":
        first, *others = message.name
        message.name = [f"{first}_renamed", *others]
    elif fault == "wrong_order":
        for field in ("name", "position", "velocity", "effort"):
            setattr(message, field, list(getattr(message, field))[::-1])
    return message


def backend_options(text: str) -> dict[str, Any]:
    """Options of a backend in JSON.

    Raises:
        GantryError: If it is no JSON object.
    """
    try:
        options = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise GantryError(f"Parameter 'options' is no JSON: {error}. It is: {text}") from error
    if not isinstance(options, dict):
        raise GantryError(f"Parameter 'options' is {text}, expected a JSON object.")
    return options


def positive(values: dict[str, Any], name: str) -> float:
    """A parameter that must be more than 0.

    Raises:
        GantryError: If it is not.
    """
    if not values[name] > 0.0:
        raise GantryError(f"Parameter '{name}' is {values[name]}, expected more than 0.")
    return values[name]
