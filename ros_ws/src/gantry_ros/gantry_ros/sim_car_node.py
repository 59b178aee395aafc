"""A simulated car on ROS 2 topics, stepped in real time: any backend by name that tells of its road.

It publishes what a car's odometry, planner, tracker and scanner publish and obeys ``drive`` and ``drive_twist``.
Without a command for the watchdog's time it brakes by itself. At the end it writes down what really happened. The
parameter ``fault`` injects faults on purpose, for tests and for drills.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry
from rcl_interfaces.msg import SetParametersResult
from rclpy.parameter import Parameter as RclParameter
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

from gantry_deploy.realtime import prepare_thread
from gantry_deploy.road_teller import ROAD, RoadTeller
from gantry_hardware.backend import Robot
from gantry_hardware.backends import make_backend
from gantry_hardware.errors import GantryError, RobotError
from gantry_hardware.robots import robot_spec
from gantry_hardware.state import RobotState
from gantry_ros import convert, topics
from gantry_ros.car_faults import FAULTS, LOST_INPUTS, Drill, drill_text, require_fault
from gantry_ros.car_inputs import CarActivity, CarInputs
from gantry_ros.host import NodeHost, Parameter, answer, stop_on_signals, write_json
from gantry_ros.road_publisher import RoadPublisher
from gantry_ros.sim_robot_node import MAX_LAG_S, Counts, backend_options, positive

NAME = "sim_car_node"

PARAMETERS = (
    Parameter("robot", "bmw_320i", "Car's name in the registry gantry.robots."),
    Parameter("backend", ROAD, "Backend's name in the registry gantry.backends; it must tell of its road."),
    Parameter("options", "{}", 'Options of the backend as a JSON object, for example {"seed": 3}.'),
    Parameter("rate_hz", 50.0, "Rate of odometry and joint states, Hz; the backend is stepped at it, in real time."),
    Parameter("watchdog_s", 0.3, "The car brakes when its newest command is older, s."),
    Parameter("drive_message", "", "'twist_stamped' for a TwistStamped on drive_twist; otherwise a Twist."),
    Parameter("scan_range_m", 30.0, "Largest range that its scanner says it has, m."),
    Parameter(
        "realtime_priority", 0, "SCHED_FIFO priority of the stepping loop, 1 to 99; 0 for the default scheduler."
    ),
    Parameter("diagnostics_rate_hz", 5.0, "Rate of the published diagnostics, Hz."),
    Parameter("statistics", "", "Path of a JSON file at the end: what happened, the truth; empty for none."),
    Parameter("fault", "", f"Injected fault: {'; '.join(f'{k!r} {v}' for k, v in FAULTS.items())}.", read_only=False),
    Parameter(
        "fault_after_s",
        0.0,
        "A drill: the fault begins when the car has been on its way for so long, and the node ends once the car has "
        "come to rest, s; 0 begins at once and goes on.",
    ),
)
"""Every parameter of this node."""


class SimCarNode:
    """Steps a simulated car and speaks for it and for what is around it.

    Args:
        host: Its node.
        values: Values of :data:`PARAMETERS`.

    Raises:
        GantryError: If the car, the backend or its options do not exist, or the backend tells of no road.
    """

    def __init__(self, host: NodeHost, values: dict[str, Any]) -> None:
        self._host = host
        self.spec = robot_spec(values["robot"])
        if self.spec.car is None:
            raise GantryError(f"Robot '{self.spec.name}' is no car; start sim_robot_node.")
        self._robot, self._teller = _car(values["backend"], self.spec, values["options"])
        self._backend_name: str = values["backend"]
        self._period_s = 1.0 / positive(values, "rate_hz")
        self._priority: int = values["realtime_priority"]
        node = host.node
        self._inputs = CarInputs(node, self.spec.car, positive(values, "watchdog_s"), values["drive_message"])
        self._road = RoadPublisher(node, self._robot, positive(values, "scan_range_m"))
        self._robot_lock = threading.Lock()
        self._fault = ""
        after_s: float = values["fault_after_s"]
        brakes = self.spec.car.brake_limit_m_s2
        self._drill = Drill(values["fault"], after_s, brakes) if after_s > 0.0 else None
        self._set_fault("" if self._drill is not None else values["fault"])
        self._counts = Counts()
        self._last: tuple[JointState, Odometry] | None = None
        self._last_stamp_s = -math.inf
        self._joints = node.create_publisher(JointState, topics.JOINT_STATES, topics.WRITER_QOS)
        self._odom = node.create_publisher(Odometry, topics.ODOM, topics.WRITER_QOS)
        self._diagnostics = node.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, topics.REPORT_QOS)
        node.create_service(Trigger, "reset", answer(self._reset))
        node.create_timer(1.0 / positive(values, "diagnostics_rate_hz"), self._report)
        node.add_on_set_parameters_callback(self._on_parameters)

    def run(self) -> None:
        """Step and publish in real time until the host is stopped."""
        self._robot.connect()
        prepare_thread(self._priority, cpu=-1)
        self._log().info(f"Car '{self.spec.name}' on backend '{self._backend_name}' at {1.0 / self._period_s:g} Hz.")
        try:
            with self._robot_lock:
                self._teller.tell_road(self._road)
            self._loop()
        finally:
            self._robot.close()

    def statistics(self) -> dict[str, Any]:
        """What happened, and how long the loop ran and how much of that was simulated, s; plain data for JSON."""
        return {
            "wall_s": self._counts.wall_s,
            "simulated_s": self._counts.steps * self._period_s,
            "overruns": self._counts.overruns,
            "watchdog_trips": self._inputs.watchdog_trips,
            "refused_commands": self._inputs.refused,
            "outcome": self._teller.outcome,
            "drill": None if self._drill is None else self._drill.report(self._last_told_s(self._drill)),
        }

    def _loop(self) -> None:
        begin_s = next_s = time.monotonic()
        robot_s = self._robot.now_s()
        while not self._host.stop.is_set():
            with self._robot_lock:
                order = self._inputs.choose(time.monotonic())
                if order is not None:
                    self._teller.obey(order.steering_rad, order.speed_m_s, order.accel_m_s2)
                robot_s += self._period_s
                self._robot.sleep_until(robot_s)
                state = self._robot.read()
                age_s = self._robot.now_s() - state.stamp_s
            self._publish(state, age_s)
            if self._drill is not None:
                self._practise(self._drill)
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
        if fault == "silent" or (fault != "frozen" and state.stamp_s <= self._last_stamp_s):
            return
        if fault != "frozen" or self._last is None:
            self._last_stamp_s = state.stamp_s
            stamp = convert.stamp_from_ns(self._host.node.get_clock().now().nanoseconds - int(age_s * 1e9))
            if fault == "nan":
                state = replace(state, lin_vel_base_in_base_m_s=np.full(3, np.nan))
            odometry = convert.odometry_message(state, stamp)
            assert odometry is not None
            self._last = convert.joint_state_message(self.spec, state, stamp), odometry
        joints, odometry = self._last
        if fault != "no_joints":
            self._joints.publish(joints)
        self._odom.publish(odometry)

    def _practise(self, drill: Drill) -> None:
        """Begin the fault when it is due, and end when its outcome is known."""
        with self._robot_lock:
            speed_m_s = self._teller.outcome["speed_m_s"]
        if drill.note(self._robot.now_s(), speed_m_s):
            self._set_fault(drill.fault)
        if drill.over:
            self._log().info(drill_text(drill.report(self._last_told_s(drill))))
            self._host.stop.set()

    def _last_told_s(self, drill: Drill) -> float | None:
        """When what a drill takes away was told last, on the robot's clock."""
        return self._road.told_s.get(LOST_INPUTS.get(drill.fault, ""))

    def _on_parameters(self, parameters: list[RclParameter]) -> SetParametersResult:
        try:
            for parameter in parameters:
                if parameter.name == "fault":
                    self._set_fault(str(parameter.value))
        except GantryError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _set_fault(self, fault: str) -> None:
        if require_fault(fault) != self._fault:
            self._log().warning(f"Injected fault: {FAULTS[fault]}.")
        self._fault = fault
        lost = frozenset((LOST_INPUTS[fault],) if fault in LOST_INPUTS else ())
        late = fault == "late_objects"
        self._road.lost, self._road.late = (frozenset(), lost) if late else (lost, frozenset())

    def _reset(self) -> str:
        reset = getattr(self._robot, "reset", None)
        if reset is None:
            raise RobotError(f"Backend '{self._backend_name}' cannot be reset.")
        with self._robot_lock:
            reset()
            self._inputs.reset()
        return f"Car '{self.spec.name}' is at the start of its next episode."

    def _report(self) -> None:
        activity = self._inputs.activity
        with self._robot_lock:
            outcome = self._teller.outcome
        values = {
            "activity": activity,
            "backend": self._backend_name,
            "fault injected": FAULTS[self._fault],
            "watchdog trips": self._inputs.watchdog_trips,
            "refused commands": self._inputs.refused,
            "overruns": self._counts.overruns,
            **{name.replace("_", " "): value for name, value in outcome.items() if not isinstance(value, dict)},
        }
        stamp = self._host.node.get_clock().now().to_msg()
        name, error = self._host.node.get_name(), activity is CarActivity.BRAKING
        self._diagnostics.publish(
            convert.diagnostics_message(stamp, name, self.spec.name, activity, values, error=error)
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
        node = SimCarNode(host, values)
        host.start()
        node.run()
        if values["statistics"]:
            write_json(values["statistics"], node.statistics(), "statistics")
        return 1 if host.failure is not None else 0


def _car(backend: str, spec: Any, options: str) -> tuple[Robot, RoadTeller]:
    robot = make_backend(backend, spec, **backend_options(options))
    if not isinstance(robot, RoadTeller):
        raise GantryError(f"Backend '{backend}' tells of no road; expected one like '{ROAD}'.")
    return robot, robot
