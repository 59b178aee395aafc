"""A policy on ROS 2: the controller of ``gantry_deploy`` on a robot behind topics, its requests as services.

Nothing is published before the bundle is verified, fits the robot and the robot answers; until then the reason for a
refusal is one message and exit code 2. The control loop owns the main thread, ROS has its executor's.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from diagnostic_msgs.msg import DiagnosticArray
from std_srvs.srv import Trigger

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import Mode, SafetyMachine
from gantry_deploy.control.timing import TimingLog
from gantry_deploy.flash.status import publisher_for_service
from gantry_deploy.perception.images import watch_scene
from gantry_deploy.perception.maps import MapLimits, MapSource, make_map_source, map_values
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.process.realtime import prepare_thread
from gantry_hardware.errors import GantryError
from gantry_hardware.model.capabilities import capability
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec
from gantry_ros.convert import robot as convert
from gantry_ros.nodes import bundle_parameters, command_topics, safety_parameters
from gantry_ros.nodes.auto_start import AutoStart, waiting_text
from gantry_ros.nodes.bundle_parameters import load_named_bundle
from gantry_ros.nodes.command_topics import CommandTopics
from gantry_ros.robots import ros_backend, ros_road
from gantry_ros.robots.ros_robot import RosRobot
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost, Parameter, answer, stop_on_signals, write_json

if TYPE_CHECKING:
    from gantry_deploy.recording.recorder import Recorder

NAME = "policy_node"

PARAMETERS = (
    *bundle_parameters.PARAMETERS,
    Parameter("robot", "", "Robot's name in the registry gantry.robots; empty for the one in the bundle's contract."),
    Parameter("record", "", "Path of an MCAP file to record to; empty for no recording."),
    Parameter("statistics", "", "Path of a JSON file for the loop's statistics at the end; empty for none."),
    Parameter("auto_start", False, "Stand up and start by itself, once; for simulated robots."),
    *command_topics.PARAMETERS,
    *ros_backend.PARAMETERS,
    *ros_road.PARAMETERS,
    Parameter(
        "map_stale_s", MapLimits().stale_s, "A policy that looks at a map sees unseen ground beyond this age, s."
    ),
    Parameter("map_lost_s", MapLimits().lost_s, "Beyond this age of the map the policy is asked to stay, s."),
    Parameter("diagnostics_rate_hz", 10.0, "Rate of the published diagnostics, Hz."),
    Parameter("realtime_priority", 0, "SCHED_FIFO priority of the control loop, 1 to 99; 0 for the default scheduler."),
    Parameter("cpu", -1, "Core that the control loop is pinned to; -1 for any."),
    *safety_parameters.PARAMETERS,
)
"""Every parameter of this node."""

RECENT_TICKS = 500
"""Ticks that the published percentiles are about."""
WAIT_S = 3.0
"""Time after which it is logged what the robot waits for; standing up takes two seconds."""
NEWCOMER_S = 5.0
"""For how long after connecting a passive node steps back for another commander."""


@dataclass(frozen=True)
class Damped:
    """Record of damping the robot and its cause; all times on the local monotonic clock."""

    code: str
    """The fault's code."""
    text: str
    """Message to the operator."""
    fault_s: float
    """Time at which the fault was found."""
    sent_s: float
    """Time at which the first damping command had been handed to ROS."""
    state_s: float
    """Time at which the last state before it was received."""

    @property
    def reaction_s(self) -> float:
        """From the last state received to the first damping command sent."""
        return self.sent_s - self.state_s


class PolicyNode:
    """Topics and services around one controller.

    Args:
        host: Its node.
        controller: On a :class:`RosRobot` that uses the same node.
        values: Values of :data:`PARAMETERS`.
    """

    def __init__(
        self, host: NodeHost, controller: Controller, recorder: Recorder | None, values: dict[str, Any]
    ) -> None:
        assert controller.runner is not None
        self._host = host
        self._controller = controller
        self._recorder = recorder
        self._starts_itself = bool(values["auto_start"])
        self._auto = AutoStart(controller, self._starts_itself)
        self._recent = TimingLog(("period", "busy", "infer"), RECENT_TICKS)
        self._ros = capability(controller.robot, RosRobot)
        self._report: TickReport | None = None
        self._state_s = 0.0
        self._waiting = host.wait_reason("Waiting", settle_s=WAIT_S)
        self.damped: Damped | None = None
        """When and why the robot was damped last; None if it never was."""
        self._open(values)

    def on_tick(self, report: TickReport) -> None:
        """Take note of a tick; called by the control loop."""
        self._recent.add("busy", report.busy_s)
        if report.period_s > 0.0:
            self._recent.add("period", report.period_s)
        if report.step is not None:
            self._recent.add("infer", report.step.infer_s)
        if report.state is not None:
            self._state_s = report.state.stamp_s
        before = Mode.PASSIVE if self._report is None else self._report.mode
        if report.mode is not before:
            self._note_mode(report)
        self._report = report
        self._auto.on_tick(report)

    def _note_mode(self, report: TickReport) -> None:
        if report.mode is not Mode.DAMP:
            self._log().info(f"Mode {report.mode}.")
            return
        fault = report.fault
        code, text, fault_s = ("", "", report.time_s) if fault is None else (fault.code.value, fault.text, fault.time_s)
        self.damped = Damped(code, text, fault_s, report.time_s + report.busy_s, self._state_s)
        self._log().error(f"Mode DAMP: {text}")
        if self._starts_itself:
            name = self._host.node.get_fully_qualified_name()
            self._log().warning(
                f"It does not start by itself again: call the services {name}/reset, {name}/stand and {name}/start, or "
                "end with Ctrl-C."
            )

    def _open(self, values: dict[str, Any]) -> None:
        node = self._host.node
        self._commands = CommandTopics(self._host, self._controller, self._ros, stamped=values["cmd_vel_stamped"])
        for event in ("stand", "start", "stop", "estop", "reset"):
            node.create_service(Trigger, f"~/{event}", answer(lambda event=event: self._ask(event)))
        self._publisher = node.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, topics.REPORT_QOS)
        self._host.create_timer(1.0 / values["diagnostics_rate_hz"], self._publish)

    def _ask(self, event: str) -> str:
        self._controller.request(event)
        return f"{event}: now {self._controller.safety.mode}."

    def _publish(self) -> None:
        report = self._report
        if report is None:
            return
        self._waiting.note(waiting_text(self._controller, report, self._auto.refusal, self._commands.unheard))
        # Of the tick, not of this moment: mode, fault and times belong together.
        mode, fault = report.mode, report.fault
        text = f"{mode}" if fault is None else f"{mode}: {fault.text}"
        node = self._host.node
        self._publisher.publish(
            convert.diagnostics_message(
                node.get_clock().now().to_msg(),
                node.get_name(),
                self._controller.robot.spec.name,
                text,
                self._values(report),
                error=mode is Mode.DAMP,
            )
        )

    def _values(self, report: TickReport) -> dict[str, object]:
        values: dict[str, object] = {
            "mode": report.mode,
            "source": report.source,
            "possible requests": ", ".join(self._controller.safety.allowed_events()),
            "fault": "" if report.fault is None else report.fault.text,
            "fault code": "" if report.fault is None else report.fault.code,
            "command": ", ".join(f"{value:.4g}" for value in report.requested),
            "waiting for": self._waiting.reason,
            "does not arrive": self._host.network.trouble,
        }
        for name, timing in self._recent.summary().items():
            for statistic in ("p50", "p99", "max"):
                values[f"{name} {statistic} ms"] = timing[f"{statistic}_s"] * 1e3
        values.update(self._controller.counts())
        if self._ros is not None:
            values.update(self._ros.statistics())
        if (goal := self._controller.goal) is not None:
            values["goal"] = f"{goal.x_in_world_m:.3f}, {goal.y_in_world_m:.3f}, {goal.yaw_in_world_rad:.3f}"
        values.update(map_values(self._controller.map_source))
        if isinstance(self._controller.surroundings, ros_road.RosRoad):
            values.update(self._controller.surroundings.values())
        if self._recorder is not None:
            values["recording drops"] = self._recorder.dropped
            values["recording failure"] = self._recorder.failure or ""
        if self.damped is not None:
            values.update(
                {
                    "damped code": self.damped.code,
                    "damped because": self.damped.text,
                    "damped: fault found at s": self.damped.fault_s,
                    "damped: first damping sent at s": self.damped.sent_s,
                    "damped: last state received at s": self.damped.state_s,
                    "damped: last state to damping sent ms": self.damped.reaction_s * 1e3,
                }
            )
        return values

    def _log(self) -> Any:
        return self._host.node.get_logger()


def main(arguments: list[str]) -> int:
    """Run the node until it is stopped.

    Returns:
        0; 1 if the robot was damped at the end, if a callback failed, or if the recording is not whole.

    Raises:
        GantryError: If parameters, bundle or robot are refused; nothing has been sent.
    """
    with NodeHost(NAME, arguments) as host, stop_on_signals(host.stop):
        values = host.declare(PARAMETERS)
        bundle = load_named_bundle(values)
        spec = robot_spec(values["robot"] or bundle.contract.robot)
        runner = PolicyRunner(bundle, spec)
        safety = SafetyMachine(spec, safety_parameters.safety_config(values))
        robot = ros_backend.ros_robot(spec, host, values, bundle.contract.dt_s)
        watch_scene(bundle.contract, robot)
        limits = MapLimits(values["map_stale_s"], values["map_lost_s"])
        eyes = make_map_source(bundle.contract, robot, limits=limits)
        road = ros_road.ros_road(bundle.contract, host, robot, values)
        recorder = _recorder(values["record"], bundle, spec, eyes)  # It replaces an older file.
        controller = Controller(robot, runner, safety, recorder, map_source=eyes, surroundings=road)
        node = PolicyNode(host, controller, recorder, values)
        host.start()
        try:
            code = _drive(host, controller, node, robot, values)
        finally:
            robot.close()
            if recorder is not None:
                recorder.close()
        if recorder is not None and recorder.failure is not None:
            host.node.get_logger().error(recorder.failure)
            code = code or 1
        if values["statistics"]:
            _write_statistics(values["statistics"], controller, recorder, node.damped)
        return code


def _drive(host: NodeHost, controller: Controller, node: PolicyNode, robot: RosRobot, values: dict[str, Any]) -> int:
    """Connect, run the loop, and leave the robot without a target to follow."""
    try:
        robot.connect()
    except GantryError:
        if host.stop.is_set():
            return 0  # Stopped by the operator while the robot was still silent.
        raise
    if isinstance(controller.surroundings, ros_road.RosRoad):
        controller.surroundings.open()
    name = host.node.get_fully_qualified_name()
    host.node.get_logger().info(
        f"Robot '{robot.spec.name}' answers; {controller.rate_hz:g} Hz. "
        + ("Starting by itself." if values["auto_start"] else f"Waiting for {name}/stand, then {name}/start.")
    )
    prepare_thread(values["realtime_priority"], values["cpu"])
    # A thread that waits for the interpreter gets it after this time; the default of 5 ms shows in the loop's period.
    sys.setswitchinterval(0.0005)
    controller.run(on_tick=_Steps(host, controller, node, robot, values))
    controller.send_final_damping()
    return 1 if controller.safety.mode is Mode.DAMP or host.failure is not None else 0


class _Steps:
    """Steps of the control loop after each tick."""

    def __init__(
        self, host: NodeHost, controller: Controller, node: PolicyNode, robot: RosRobot, values: dict[str, Any]
    ) -> None:
        self._host = host
        self._controller = controller
        self._node = node
        self._robot = robot
        road = controller.surroundings
        self._route_end = ros_road.RouteEnd(road, controller, values) if isinstance(road, ros_road.RosRoad) else None
        self._status = publisher_for_service()
        self._newcomer = True
        self._newcomer_until_s = robot.now_s() + NEWCOMER_S

    def __call__(self, report: TickReport) -> None:
        """Take note, and end the loop when asked to."""
        self._node.on_tick(report)
        if self._status is not None:
            self._status.note(report, self._controller.counts())
        self._newcomer = self._newcomer and report.mode is Mode.PASSIVE and report.time_s < self._newcomer_until_s
        if self._newcomer:
            # A node that was here first, and was discovered late, goes on; this one has moved nothing yet.
            self._robot.refuse_other_commanders()
        if self._host.stop.is_set() or (self._route_end is not None and self._route_end.on_tick(report)):
            self._controller.stop()


def _write_statistics(path: str, controller: Controller, recorder: Recorder | None, damped: Damped | None) -> None:
    result = controller.statistics()
    result["damped"] = None if damped is None else {**asdict(damped), "reaction_s": damped.reaction_s}
    result["recording"] = None if recorder is None else recorder.statistics()
    result["map"] = map_values(controller.map_source)
    write_json(path, result, "statistics")


def _recorder(path: str, bundle: Bundle, spec: RobotSpec, eyes: MapSource | None) -> Recorder | None:
    if not path:
        return None
    from gantry_deploy.recording.recorder import Recorder  # A robot that does not record needs no MCAP packages.

    return Recorder(path, bundle.contract, spec, map_source=eyes)
