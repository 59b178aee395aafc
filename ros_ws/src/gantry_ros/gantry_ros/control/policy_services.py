"""A control loop's mode, faults and times as diagnostics, and its requests as services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from diagnostic_msgs.msg import DiagnosticArray
from std_srvs.srv import Trigger

from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import Mode
from gantry_deploy.control.timing import TimingLog
from gantry_deploy.perception.maps import map_values
from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import LINE_LIMIT, printable
from gantry_ros.control.auto_start import AutoStart, waiting_text
from gantry_ros.control.command_topics import CommandTopics
from gantry_ros.convert import robot as convert
from gantry_ros.robots import ros_road
from gantry_ros.robots.senses import TopicSenses
from gantry_ros.robots.state_publisher import StatePublisher
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost, answer

if TYPE_CHECKING:
    from gantry_deploy.recording.recorder import Recorder

RECENT_TICKS = 500
"""Ticks that the published percentiles are about."""
WAIT_S = 3.0
"""Time after which it is logged what the robot waits for; standing up takes two seconds."""


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


class PolicyServices:
    """Topics and services around one controller.

    Args:
        host: Its node.
        controller: On a robot of :func:`gantry_ros.robots.ros_backend.make_robot` that uses the same node.
        recorder: Of the loop's ticks, if there is one.
        values: Values of :data:`PARAMETERS`.
    """

    def __init__(
        self, host: NodeHost, controller: Controller, recorder: Recorder | None, values: dict[str, Any]
    ) -> None:
        assert controller.runner is not None
        self._host = host
        self._controller, self._runner = controller, controller.runner
        self._recorder = recorder
        self._starts_itself = bool(values["auto_start"])
        self._auto = AutoStart(controller, self._starts_itself)
        self._recent = TimingLog(("period", "busy", "infer"), RECENT_TICKS)
        self._senses = cast(TopicSenses, controller.robot)  # Every robot of make_robot has them, perhaps wrapped.
        self._told = StatePublisher(host.node, controller.robot) if values["backend"] else None
        self._report: TickReport | None = None
        self._state_s = 0.0
        self._waiting = host.wait_reason("Waiting", settle_s=WAIT_S)
        self.active = False
        """Whether the control loop runs; requests are refused while it does not."""
        self.damped: Damped | None = None
        """When and why the robot was damped last; None if it never was."""

    def on_tick(self, report: TickReport) -> None:
        """Take note of a tick; called by the control loop."""
        self._recent.add("busy", report.busy_s)
        if report.period_s > 0.0:
            self._recent.add("period", report.period_s)
        if report.step is not None:
            self._recent.add("infer", report.step.infer_s)
        if report.state is not None:
            self._state_s = report.state.stamp_s
            if self._told is not None:
                self._told.publish(report.state)
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

    def open(self, values: dict[str, Any]) -> None:
        """Open topics and services; call it once the robot is connected."""
        node = self._host.node
        told = {"stamped": values["cmd_vel_stamped"], "instruction": values["instruction"]}
        self._commands = CommandTopics(self._host, self._controller, self._senses, **told)
        for event in ("stand", "start", "stop", "estop", "reset"):
            node.create_service(Trigger, f"~/{event}", answer(lambda event=event: self._ask(event)))
        self._publisher = node.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, topics.REPORT_QOS)
        self._host.create_timer(1.0 / values["diagnostics_rate_hz"], self._publish)

    def _ask(self, event: str) -> str:
        if not self.active:
            raise GantryError(f"'{event}' is refused: the node is not active.")
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
        values.update(self._senses.statistics())
        if self._runner.contract.instruction is not None:
            values["instruction"] = printable(self._runner.instruction, LINE_LIMIT)
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
