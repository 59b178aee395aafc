"""Common parts of the nodes of a simulated robot and of a simulated car: any backend by name, stepped in real time.

The parameter ``fault`` injects faults on purpose, for tests and for drills.
"""

from __future__ import annotations

import gc
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.msg import SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter as RclParameter
from rclpy.publisher import Publisher
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

from gantry_deploy.embodiments.registry import embodiment_of_robot
from gantry_deploy.process.realtime import prepare_thread
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import RobotState
from gantry_hardware.errors import GantryError, RobotError, UnknownNameError
from gantry_hardware.files.json_file import parse_json_object
from gantry_hardware.files.text import names_text
from gantry_hardware.model.spec import RobotSpec
from gantry_ros.convert import robot as convert
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost, Parameter, answer, positive, stop_on_signals, write_json
from gantry_ros.runtime.listening import NUMBER, publisher_names
from gantry_ros.simulated.body_publisher import BodyPublisher
from gantry_ros.simulated.commanders import Commanders

SHARED_PARAMETERS = (
    Parameter(
        "realtime_priority", 0, "SCHED_FIFO priority of the stepping loop, 1 to 99; 0 for the default scheduler."
    ),
    Parameter("diagnostics_rate_hz", 5.0, "Rate of the published diagnostics, Hz."),
    Parameter(
        "refuse_two_commanders", True, "Obey neither while two send commands; false obeys both, as many robots do."
    ),
    Parameter(
        "publish_body", True, "Publish robot_description, tf and tf_static; false where robot_state_publisher does."
    ),
)
"""Of every such node, which also has ``backend``, ``rate_hz``, ``statistics`` and :func:`fault_parameter`."""

MAX_LAG_S = 0.1
"""A loop that is further behind than this starts over from now instead of catching up with a burst."""


class Inputs(ABC):
    """Command inputs of a simulated robot: its newest command, until that is too old, and none while two command it.

    Args:
        node: To listen with.
        watchdog_s: A command that is older counts no more; a commander that was heard within this time is alive, and
            no other one is obeyed.
        what: What it is told, for example "joint command".
        alone: What it does when it hears nothing any more, for example "damping".
        refuse_two: Whether it refuses two commanders, and does then what it does alone; many robots obey both.
    """

    def __init__(self, node: Node, watchdog_s: float, what: str, alone: str, refuse_two: bool = True) -> None:
        self.activity = f"waiting for {what}s"
        """Activity of the robot: the command that it obeys now."""
        self.commanders = Commanders(watchdog_s)
        """Commanders of the robot."""
        self.two_commanders = 0
        """How often it was told two things at once."""
        self._refuse_two = refuse_two
        self.refused = 0
        """Commands that were none."""
        self.watchdog_trips = 0
        """How often it was left without a command."""
        self._node, self._watchdog_s, self._what, self._alone = node, watchdog_s, what, alone
        self._topics: list[str] = []
        self._lock = threading.Lock()

    @property
    def lost(self) -> bool:
        """Whether it was left without a command, or with two commanders, and still is."""
        return self.activity in (f"{self._alone}: no {self._what}", f"{self._alone}: two commanders")

    def torn(self, now_s: float) -> bool:
        """Whether two commanders are refused now; ``now_s`` is the local monotonic time."""
        return self._refuse_two and self.commanders.has_two(now_s)

    def reset(self) -> None:
        """Forget every command."""
        with self._lock:
            self._forget()
            self.activity = f"waiting for {self._what}s"

    @abstractmethod
    def _forget(self) -> None: ...

    def _note(self, *, lost: bool, farewell: str, torn: bool = False) -> bool:
        """Whether it is news that commands arrive, are lost, or come from two; says so.

        Args:
            lost: The newest command is too old.
            torn: There are two commanders.
            farewell: What it asked for, "stop", if it left nothing to do: a commander that sends that last has left on
                purpose.
        """
        activity = f"{self._alone}: no {self._what}" if lost else "commanded"
        if torn:
            activity = f"{self._alone}: two commanders"
        if activity == self.activity:
            return False
        self.activity, log = activity, self._node.get_logger()
        if torn:
            self.two_commanders += 1
            log.error(
                f"Two send {self._what}s: {self._commander_names()}. {self._alone.capitalize()}, obeying neither."
            )
            return True
        self.watchdog_trips += lost
        silence = f"No {self._what} for {self._watchdog_s:g} s"
        if not lost:
            log.info(f"{self._what.capitalize()}s arrive.")
        elif farewell:
            log.info(f"{silence} since the one to {farewell}: {self._alone} on.")
        else:
            log.warning(f"{silence}: {self._alone}.")
        return True

    def _commander_names(self) -> str:
        return names_text(name for topic in self._topics for name in publisher_names(self._node, topic))

    def _listen(self, kind: Any, topic: str, take: Callable[[Any], None], way: str = "") -> None:
        """Hand messages on, and count those that are refused with a RobotError.

        Args:
            kind: Message class.
            topic: Where they come.
            take: Takes those that are to be obeyed.
            way: Which way of commanding the topic belongs to; one commander uses one.
        """
        resolved = self._node.resolve_topic_name(topic)
        self._topics.append(resolved)

        def callback(message: Any, info: Any) -> None:
            if not self.commanders.hear(resolved, way, info[NUMBER], time.monotonic()) and self._refuse_two:
                return
            try:
                take(message)
            except RobotError as error:
                self.refused += 1
                self._node.get_logger().error(f"Refused: {error}", throttle_duration_sec=1.0)

        hear: Any = callback
        self._node.create_subscription(kind, topic, hear, topics.STATE_QOS)


class SimNode(ABC):
    """Steps a backend in real time and speaks for it.

    Args:
        host: Its node.
        values: Of its parameters.
        robot: The backend that they name.
        inputs: Commands that it obeys.

    Raises:
        GantryError: If a rate makes no sense.
    """

    noun: ClassVar[str]
    """Noun for its robot."""
    after_reset: ClassVar[str]
    """State of the robot after a reset."""
    faults: ClassVar[Mapping[str, str]]
    """Values of the parameter ``fault``, and what each does."""

    def __init__(self, host: NodeHost, values: dict[str, Any], robot: Robot, inputs: Inputs) -> None:
        self._host, self._robot, self._inputs = host, robot, inputs
        self._backend_name: str = values["backend"]
        self._priority: int = values["realtime_priority"]
        self._period_s = 1.0 / positive(values, "rate_hz")
        self._robot_lock = threading.Lock()
        self._fault = ""
        self._steps, self._wall_s, self._overruns = 0, 0.0, 0
        self._last: list[tuple[Publisher, Any]] = []
        self._last_stamp_s = -math.inf
        self._waiting = host.wait_reason("The robot stays at its start", settle_s=5.0)
        node = host.node
        self._joints = node.create_publisher(JointState, topics.JOINT_STATES, topics.WRITER_QOS)
        self._diagnostics = node.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, topics.REPORT_QOS)
        self._body = BodyPublisher(node, robot) if values["publish_body"] else None
        node.create_service(Trigger, "reset", answer(self._reset))
        host.create_timer(1.0 / positive(values, "diagnostics_rate_hz"), self._report)
        node.add_on_set_parameters_callback(self._on_parameters)

    def run(self) -> None:
        """Step and publish in real time until the host is stopped."""
        self._robot.connect()
        prepare_thread(self._priority, cpu=-1)
        what, rate_hz = f"{self.noun} '{self._robot.spec.name}'", 1.0 / self._period_s
        self._log().info(f"{what} on backend '{self._backend_name}' at {rate_hz:g} Hz.")
        try:
            self._loop()
        finally:
            self._robot.close()

    def statistics(self) -> dict[str, Any]:
        """Duration of the loop and the simulated share of it, s; plain data for JSON."""
        return {
            "wall_s": self._wall_s,
            "simulated_s": self._steps * self._period_s,
            "overruns": self._overruns,
            "watchdog_trips": self._inputs.watchdog_trips,
            "two_commanders": self._inputs.two_commanders,
            "refused_commands": self._inputs.refused,
        }

    @abstractmethod
    def _obey(self, state: RobotState | None) -> None:
        """Hand the robot its next command; ``state`` is the last reading."""

    @abstractmethod
    def _look(self, now_s: float) -> None:
        """Look around while nothing moves the robot; ``now_s`` is on its clock."""

    @abstractmethod
    def _publish(self, state: RobotState, stamp: Time) -> list[tuple[Publisher, Any]]:
        """Publish a new reading; returns what a frozen robot repeats of it."""

    @abstractmethod
    def _values(self) -> dict[str, object]:
        """Further diagnostics."""

    def _loop(self) -> None:
        begin_s = next_s = time.monotonic()
        robot_s, state = self._robot.now_s(), None
        while not self._host.stop.is_set():
            with self._robot_lock:
                self._obey(state)
                robot_s += self._period_s
                self._robot.sleep_until(robot_s)
                state, now_s = self._robot.read(), self._robot.now_s()
                self._look(now_s)
            self._speak(state, now_s)
            next_s += self._period_s
            self._steps, self._wall_s = self._steps + 1, time.monotonic() - begin_s
            late_s = time.monotonic() - next_s
            if late_s > MAX_LAG_S:
                self._overruns += 1
                next_s = time.monotonic()
            elif late_s < 0.0:
                time.sleep(-late_s)

    def _speak(self, state: RobotState, now_s: float) -> None:
        if self._fault == "frozen" and self._last:
            for publisher, message in self._last:
                publisher.publish(message)
        elif self._fault != "silent" and state.stamp_s > self._last_stamp_s:  # Nothing new, nothing said.
            self._last_stamp_s = state.stamp_s
            stamp = convert.stamp_of_age(self._host.node.get_clock(), now_s - state.stamp_s)
            self._last = self._publish(state, stamp)

    def _on_parameters(self, parameters: list[RclParameter]) -> SetParametersResult:
        try:
            for parameter in parameters:
                if parameter.name == "fault":
                    self._set_fault(str(parameter.value))
        except GantryError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _set_fault(self, fault: str) -> None:
        if fault not in self.faults:
            raise UnknownNameError("fault", fault, self.faults)
        if fault != self._fault:
            self._log().warning(f"Injected fault: {self.faults[fault]}.")
        self._fault = fault

    def _reset(self) -> str:
        reset = getattr(self._robot, "reset", None)
        if reset is None:
            raise RobotError(f"Backend '{self._backend_name}' cannot be reset.")
        with self._robot_lock:
            reset()
            self._inputs.reset()
        return f"{self.noun} '{self._robot.spec.name}' is {self.after_reset}."

    def _report(self) -> None:
        node, inputs = self._host.node, self._inputs
        values = {
            "activity": inputs.activity,
            "backend": self._backend_name,
            "fault injected": self.faults[self._fault],
            "watchdog trips": inputs.watchdog_trips,
            "two commanders": inputs.two_commanders,
            "refused commands": inputs.refused,
            "overruns": self._overruns,
            "does not arrive": self._host.network.trouble,
            **self._values(),
        }
        idle = inputs.activity.startswith("waiting")
        self._waiting.note(f"{inputs.activity}. {self._host.network.trouble}" if idle else "")
        stamp, name = node.get_clock().now().to_msg(), self._robot.spec.name
        self._diagnostics.publish(
            convert.diagnostics_message(stamp, node.get_name(), name, inputs.activity, values, error=inputs.lost)
        )

    def _log(self) -> Any:
        return self._host.node.get_logger()


def run_node(
    name: str,
    parameters: Sequence[Parameter],
    make: Callable[[NodeHost, dict[str, Any]], SimNode],
    arguments: Sequence[str],
) -> int:
    """Make a node and run it until it is stopped, which breaks off what it loads.

    Returns:
        0; 1 if a callback failed.

    Raises:
        GantryError: If parameters or backend are refused.
    """
    with NodeHost(name, arguments) as host, stop_on_signals(host.stop):
        values = host.declare(parameters)
        try:
            with stop_on_signals(host.stop, at_once=True):
                node = make(host, values)
        except (KeyboardInterrupt, GantryError):
            if host.stop.is_set():
                return 0
            raise
        finally:
            # Else the process, at its end, searches all that a simulator loads for garbage: ten seconds if it is busy.
            gc.freeze()
        host.start()
        node.run()
        if values["statistics"]:
            write_json(values["statistics"], node.statistics(), "statistics")
        return 1 if host.failure is not None else 0


def fault_parameter(faults: Mapping[str, str]) -> Parameter:
    """The parameter ``fault``, which explains each."""
    texts = "; ".join(f"{name!r} {text}" for name, text in faults.items())
    return Parameter("fault", "", f"Injected fault: {texts}.", read_only=False)


def require_node(spec: RobotSpec, name: str) -> None:
    """Refuse a robot that another node simulates.

    Raises:
        GantryError: With that node.
    """
    embodiment = embodiment_of_robot(spec)
    if embodiment.sim_node != name:
        raise GantryError(f"Robot '{spec.name}' is {embodiment.noun}; start {embodiment.sim_node}.")


def backend_options(text: str) -> dict[str, Any]:
    """Options of a backend in JSON.

    Raises:
        GantryError: If it is no JSON object.
    """
    return parse_json_object(text or "{}", "Parameter 'options'", error=GantryError)
