"""A simulated car on ROS 2 topics, stepped in real time: any backend by name that tells of its road.

It publishes what a car's odometry, planner, tracker and scanner publish and obeys ``drive`` and ``drive_twist``.
Without a command for the watchdog's time it brakes by itself. At the end it writes down what really happened. The
parameter ``fault`` injects faults on purpose, for tests and for drills.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from nav_msgs.msg import Odometry
from rclpy.publisher import Publisher

from gantry_deploy.perception.simulated_road import ROAD
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.backends.state import RobotState
from gantry_hardware.errors import GantryError, RobotError
from gantry_hardware.model.capabilities import HasRoad, capability
from gantry_hardware.model.cars import CarSpec
from gantry_hardware.robots import robot_spec
from gantry_ros.convert import robot as convert
from gantry_ros.nodes.sim_node import (
    SHARED_PARAMETERS,
    SimNode,
    backend_options,
    fault_parameter,
    require_node,
    run_node,
)
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost, Parameter, positive
from gantry_ros.simulated.car_faults import FAULTS, LOST_INPUTS, Drill, drill_text, require_fault
from gantry_ros.simulated.car_inputs import CarInputs
from gantry_ros.simulated.road_publisher import RoadPublisher

NAME = "sim_car_node"

PARAMETERS = (
    Parameter("robot", "bmw_320i", "Car's name in the registry gantry.robots."),
    Parameter("backend", ROAD, "Backend's name in the registry gantry.backends; it must tell of its road."),
    Parameter("options", "{}", 'Options of the backend as a JSON object, for example {"seed": 3}.'),
    Parameter("rate_hz", 50.0, "Rate of odometry and joint states, Hz; the backend is stepped at it, in real time."),
    Parameter("watchdog_s", 0.3, "The car brakes when its newest command is older, s."),
    Parameter("drive_message", "", "'twist_stamped' for a TwistStamped on drive_twist; otherwise a Twist."),
    Parameter("scan_range_m", 30.0, "Largest range that its scanner says it has, m."),
    *SHARED_PARAMETERS,
    Parameter("statistics", "", "Path of a JSON file at the end: what happened, the truth; empty for none."),
    fault_parameter(FAULTS),
    Parameter(
        "fault_after_s",
        0.0,
        "A drill: the fault begins when the car has been on its way for so long, and the node ends once the car has "
        "come to rest, s; 0 begins at once and goes on.",
    ),
)
"""Every parameter of this node."""


class SimCarNode(SimNode):
    """Steps a simulated car and speaks for it and for what is around it.

    Args:
        host: Its node.
        values: Values of :data:`PARAMETERS`.

    Raises:
        GantryError: If the car, the backend, its options or the fault do not exist, or the backend tells of no road.
    """

    noun, after_reset, faults = "Car", "at the start of its next episode", FAULTS

    def __init__(self, host: NodeHost, values: dict[str, Any]) -> None:
        spec, node = robot_spec(values["robot"]), host.node
        require_node(spec, NAME)
        car = spec.body_as(CarSpec)
        fault, after_s = require_fault(values["fault"]), values["fault_after_s"]
        if not after_s >= 0.0:
            raise GantryError(f"Parameter 'fault_after_s' is {after_s:g}, expected 0 for at once, or more.")
        self._drill = Drill(fault, after_s, car.brake_limit_m_s2) if after_s > 0.0 else None
        robot = make_backend(values["backend"], spec, **backend_options(values["options"]))
        teller = capability(robot, HasRoad)
        if teller is None:
            raise GantryError(f"Backend '{values['backend']}' tells of no road; expected one like '{ROAD}'.")
        self._teller = teller
        refuse_two = values["refuse_two_commanders"]
        self._orders = CarInputs(node, car, positive(values, "watchdog_s"), values["drive_message"], refuse_two)
        super().__init__(host, values, robot, self._orders)
        host.network.hints[topics.DRIVE_TWIST] = "The parameter drive_message chooses between Twist and TwistStamped."
        self._road = RoadPublisher(node, robot, positive(values, "scan_range_m"))
        self._odom = node.create_publisher(Odometry, topics.ODOM, topics.WRITER_QOS)
        self._set_fault("" if self._drill is not None else fault)
        teller.tell_road(self._road)

    def run(self) -> None:
        """Step and publish in real time until the host is stopped; a drill that was not seen through is told."""
        super().run()
        if self._drill is not None and not self._drill.over:
            self._log().warning(drill_text(self._drill.report(self._last_told_s(self._drill))))

    def statistics(self) -> dict[str, Any]:
        """Events, and the loop's duration with the simulated share of it, s; plain data for JSON."""
        drill = None if self._drill is None else self._drill.report(self._last_told_s(self._drill))
        return {**super().statistics(), "outcome": self._teller.outcome, "drill": drill}

    def _reset(self) -> str:
        if self._drill is not None:
            raise RobotError("A drill is under way, of which a reset would be taken for braking; the car goes on.")
        return super()._reset()

    def _obey(self, state: RobotState | None) -> None:
        order = self._orders.choose(time.monotonic())
        if order is not None:
            self._teller.obey(order.steering_rad, order.speed_m_s, order.accel_m_s2)

    def _look(self, now_s: float) -> None:
        """Begin a drill's fault when it is due, and end when its outcome is known."""
        drill = self._drill
        if drill is None:
            return
        if drill.note(now_s, self._teller.outcome["speed_m_s"]):
            self._set_fault(drill.fault)
        if drill.over:
            self._log().info(drill_text(drill.report(self._last_told_s(drill))))
            self._host.stop.set()

    def _publish(self, state: RobotState, stamp: Time) -> list[tuple[Publisher, Any]]:
        if self._fault == "nan":
            state = replace(state, lin_vel_base_in_base_m_s=np.full(3, np.nan))
        joints = convert.joint_state_message(self._robot.spec, state, stamp)
        odometry = convert.odometry_message(state, stamp)
        if odometry is None:
            raise RobotError(f"Backend '{self._backend_name}' tells no place and velocity of the car.")
        if self._body is not None:
            self._body.publish(state, stamp)
        if self._fault != "no_joints":
            self._joints.publish(joints)
        self._odom.publish(odometry)
        return [(self._joints, joints), (self._odom, odometry)]

    def _last_told_s(self, drill: Drill) -> float | None:
        """Time at which what a drill takes away was told last, on the robot's clock."""
        return self._road.told_s.get(LOST_INPUTS.get(drill.fault, ""))

    def _set_fault(self, fault: str) -> None:
        super()._set_fault(fault)
        lost = frozenset((LOST_INPUTS[fault],) if fault in LOST_INPUTS else ())
        late = fault == "late_objects"
        self._road.lost, self._road.late = (frozenset(), lost) if late else (lost, frozenset())

    def _values(self) -> dict[str, object]:
        with self._robot_lock:
            outcome = self._teller.outcome
        return {name.replace("_", " "): value for name, value in outcome.items() if not isinstance(value, dict)}


main = partial(run_node, NAME, PARAMETERS, SimCarNode)
"""Run the node until it is stopped."""
