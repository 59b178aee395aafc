"""A scripted operator: waits until the policy runs, drives a profile on ``cmd_vel`` or sends it to a goal, asks it to
stop, and ends."""

from __future__ import annotations

import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped, Twist
from nav_msgs.msg import Odometry
from std_msgs.msg import Empty
from std_srvs.srv import Trigger

from gantry_deploy.control.goals import Goal
from gantry_deploy.evaluation.metrics import goal_errors, goal_reached
from gantry_hardware.errors import GantryError
from gantry_ros.convert import map as convert_map
from gantry_ros.convert import robot as convert
from gantry_ros.nodes.profile import DEMO_PROFILE, Segment, parse_goal, parse_profile, segment_at
from gantry_ros.runtime import frames, topics
from gantry_ros.runtime.frames import Frames
from gantry_ros.runtime.host import NodeHost, Parameter, ask, positive, stop_on_signals

NAME = "operator_node"

PARAMETERS = (
    Parameter("profile", DEMO_PROFILE, "Segments 'seconds:vx,vy,yaw_rate; ...' in m/s and rad/s, base frame."),
    Parameter(
        "goal", "", "Instead of a profile: a goal 'x,y,yaw' in the odometry's frame, m and rad; ends when reached."
    ),
    Parameter("goal_timeout_s", 60.0, "How long walking to the goal may take, s."),
    Parameter("goal_hold", False, "Stay under the policy until that time is over, as an evaluation does."),
    Parameter("policy_node", "policy_node", "Name of the policy node to watch and to stop, in this node's namespace."),
    Parameter("rate_hz", 20.0, "Rate of cmd_vel and heartbeat, Hz."),
    Parameter("wait_s", 30.0, "How long to wait for the policy to run, s."),
    Parameter("stop_at_end", True, "Ask the policy to stop after the profile."),
    *frames.PARAMETERS,
)
"""Every parameter of this node."""

RUNNING = "POLICY"
"""Mode in which the policy obeys ``cmd_vel``."""
DAMPED = "DAMP"
"""Mode in which it obeys no command."""
SILENCE_S = 2.0
"""Without diagnostics for this long the policy node counts as gone."""
GOAL_PERIOD_S = 1.0
"""Time between two sendings of a goal."""
WAIT_S = 3.0
"""Time after which it is logged what the node waits for."""
SERVICE_TIMEOUT_S = 2.0
"""Time that the answer to a stop request may take."""


class DriveNode:
    """Publishes the profile and watches the policy node.

    Args:
        host: Its node.
        values: Values of :data:`PARAMETERS`.

    Raises:
        GantryError: If the profile or the goal is malformed, or the rate makes no sense.
    """

    def __init__(self, host: NodeHost, values: dict[str, Any]) -> None:
        self._host = host
        self._segments = parse_profile(values["profile"])
        self._goal = parse_goal(values["goal"]) if values["goal"] else None
        self._goal_timeout_s, self._goal_hold = values["goal_timeout_s"], values["goal_hold"]
        self._frames = Frames.of(values)
        self._newest: Odometry | None = None
        self._policy_node = values["policy_node"]
        self._period_s = 1.0 / positive(values, "rate_hz")
        self._wait_s = values["wait_s"]
        self._stop_at_end = values["stop_at_end"]
        self._mode = ""
        self._because = ""
        self._heard_s = 0.0
        node = host.node
        self._twist = node.create_publisher(Twist, topics.CMD_VEL, topics.OPERATOR_QOS)
        self._beat = node.create_publisher(Empty, topics.HEARTBEAT, topics.OPERATOR_QOS)
        node.create_subscription(DiagnosticArray, topics.DIAGNOSTICS, self._on_diagnostics, topics.REPORT_QOS)
        self._waiting = host.wait_reason("Waiting", settle_s=WAIT_S)
        self._goals = node.create_publisher(PoseStamped, topics.GOAL_POSE, topics.REPORT_QOS)
        node.create_subscription(Odometry, topics.ODOM, self._on_odometry, topics.READER_QOS)
        self._stop_policy = node.create_client(Trigger, f"{self._policy_node}/stop")

    def run(self) -> int:
        """Drive.

        Returns:
            0 after the whole profile; 1 if the policy ended before, or does not stop when asked to.

        Raises:
            GantryError: If the policy never ran.
        """
        if not self._wait_for_policy():
            return 0
        if self._goal is not None:
            return self._walk_to(self._goal)
        start_s = time.monotonic()
        last: Segment | None = None
        while not self._host.stop.is_set():
            segment = segment_at(self._segments, time.monotonic() - start_s)
            if segment is None:
                return self._finish()
            if segment is not last:
                self._log(f"{segment.duration_s:g} s: {_speeds(segment)}")
                last = segment
            if self._left():
                return 1
            self._send(segment)
            self._host.stop.wait(self._period_s)
        return 0

    def _walk_to(self, goal: Goal) -> int:
        """Send the goal until the robot stands there; it is sent again and again, as one message alone may get lost."""
        self._log(f"Goal: x {goal.x_in_world_m:g} m, y {goal.y_in_world_m:g} m, yaw {goal.yaw_in_world_rad:g} rad.")
        deadline_s, sent_s = time.monotonic() + self._goal_timeout_s, 0.0
        while not self._host.stop.is_set():
            now_s = time.monotonic()
            towards = None if self._newest is None else convert_map.goal_from_odometry(goal, self._newest)
            there = towards is not None and bool(goal_reached(towards[None])[0])
            if there and (now_s > deadline_s or not self._goal_hold):
                self._log("Goal reached.")
                return self._finish()
            if now_s > deadline_s:
                left = "unknown" if towards is None else f"{float(goal_errors(towards[None])[0][0]):.2f} m"
                self._host.node.get_logger().error(f"Not there within {self._goal_timeout_s:g} s: {left} to go.")
                self._finish()
                return 1
            if self._left():
                return 1
            self._beat.publish(Empty())
            topic = self._host.node.resolve_topic_name(topics.ODOM)
            self._waiting.note(f"nothing has come on {topic}: the goal is not sent." if self._newest is None else "")
            if now_s - sent_s > GOAL_PERIOD_S and self._newest is not None:
                stamp, frame = self._host.node.get_clock().now().to_msg(), self._newest.header.frame_id
                self._goals.publish(convert_map.goal_message(goal, stamp, frame))
                sent_s = now_s
            self._host.stop.wait(self._period_s)
        return 0

    def _left(self) -> bool:
        """Whether the policy no longer runs, and say so."""
        if self._mode == RUNNING and time.monotonic() - self._heard_s <= SILENCE_S:
            return False
        self._host.node.get_logger().error(f"The policy left {RUNNING}: {self._state()}.")
        return True

    def _on_odometry(self, message: Odometry) -> None:
        try:
            convert.require_odometry(message, self._frames)
        except GantryError as error:
            self._host.node.get_logger().error(str(error), throttle_duration_sec=5.0)
            return
        self._newest = message

    def _wait_for_policy(self) -> bool:
        deadline_s = time.monotonic() + self._wait_s
        while not self._host.stop.is_set():
            if self._mode == RUNNING:
                return True
            if self._mode == DAMPED:
                raise GantryError(f"'{self._policy_node}' damped the robot before it ran: {self._state()}.")
            if time.monotonic() > deadline_s:
                raise GantryError(f"'{self._policy_node}' does not run within {self._wait_s:g} s: {self._state()}.")
            self._waiting.note(f"'{self._policy_node}' does not run yet: {self._state()}.")
            self._beat.publish(Empty())
            self._host.stop.wait(self._period_s)
        return False

    def _finish(self) -> int:
        self._twist.publish(convert.twist_message(0.0, 0.0, 0.0))
        refusal = self._ask_to_stop() if self._stop_at_end else None
        if refusal is not None:
            self._host.node.get_logger().error(f"Profile done, but '{self._policy_node}' does not stop: {refusal}")
            return 1
        self._log("Profile done." if self._goal is None else "Done.")
        return 0

    def _ask_to_stop(self) -> str | None:
        """Reason for which the policy does not stop, or None if it does."""
        answer = ask(self._stop_policy, SERVICE_TIMEOUT_S)
        if answer is None:
            return f"no answer within {SERVICE_TIMEOUT_S:g} s."
        return None if answer.success else answer.message

    def _send(self, segment: Segment) -> None:
        self._beat.publish(Empty())
        self._twist.publish(
            convert.twist_message(segment.lin_vel_x_base_m_s, segment.lin_vel_y_base_m_s, segment.ang_vel_z_base_rad_s)
        )

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        values = convert.diagnostic_values(message, self._policy_node)
        if values is not None:
            self._heard_s = time.monotonic()
            self._because = values["message"]
            self._mode = values.get("mode", "")

    def _state(self) -> str:
        if not self._mode:
            trouble = self._host.network.trouble
            return "no diagnostics from it" + (f" ({trouble})" if trouble else "")
        if time.monotonic() - self._heard_s > SILENCE_S:
            return f"it fell silent after '{self._because}'"
        return self._because.rstrip(".")

    def _log(self, text: str) -> None:
        self._host.node.get_logger().info(text)


def main(arguments: list[str]) -> int:
    """Run the node until the profile is over.

    Raises:
        GantryError: If parameters are refused or the policy never runs.
    """
    with NodeHost(NAME, arguments) as host, stop_on_signals(host.stop):
        node = DriveNode(host, host.declare(PARAMETERS))
        host.start()
        return node.run()


def _speeds(segment: Segment) -> str:
    return (
        f"{segment.lin_vel_x_base_m_s:g} m/s forward, {segment.lin_vel_y_base_m_s:g} m/s left, "
        f"{segment.ang_vel_z_base_rad_s:g} rad/s"
    )
