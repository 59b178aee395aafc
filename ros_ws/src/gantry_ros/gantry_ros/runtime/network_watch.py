"""Missing messages and their causes: publishers of another type on a topic that a node listens to, and a clock that is
not there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rclpy.clock import ROSClock
from rclpy.node import Node

from gantry_hardware.files.text import names_text, printable

LOOK_PERIOD_S = 1.0
"""Time between two looks."""
CLOCK_PATIENCE_S = 2.0
"""For so long ``/clock`` may be silent or stand still before that is said."""


class NetworkWatch:
    """Looks at what a node listens to. Cheap: a few graph queries per look.

    Args:
        node: The node; its subscriptions count as they are at each look.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.hints: dict[str, str] = {}
        """Topic's name as the node gave it -> the parameter by which another type can be chosen."""
        self.findings: dict[str, str] = {}
        """Topic, resolved -> what is wrong with it now."""
        self._clock = _ClockWatch(node)

    def look(self) -> None:
        """Look once; what is new is said in the log, and so is that it has passed."""
        self._clock.look()
        found = self._mismatches()
        log = self._node.get_logger()
        for topic, text in found.items():
            if text != self.findings.get(topic):
                log.warning(text)
        for topic in self.findings.keys() - found.keys():
            log.info(f"{topic}: no publisher of another type any more.")
        self.findings = found

    @property
    def simulated(self) -> bool:
        """Whether ROS time hangs on ``/clock``."""
        clock = self._node.get_clock()
        return isinstance(clock, ROSClock) and clock.ros_time_is_active

    @property
    def clock_trouble(self) -> str:
        """Problem of ``/clock``; empty if it is not used, or runs."""
        return self._clock.text

    @property
    def trouble(self) -> str:
        """Everything that is wrong now, for diagnostics; empty if nothing is."""
        return " ".join(filter(None, (self._clock.text, *self.findings.values())))

    def _mismatches(self) -> dict[str, str]:
        node, expected = self._node, dict[str, set[str]]()
        for subscription in list(node.subscriptions):
            expected.setdefault(subscription.topic_name, set()).add(type_name(subscription.msg_type))
        hints: Mapping[str, str] = {node.resolve_topic_name(topic): hint for topic, hint in self.hints.items()}
        found = {}
        for topic, types in expected.items():
            others = sorted({info.topic_type for info in node.get_publishers_info_by_topic(topic)} - types)
            if others:
                hint = f" {hints[topic]}" if topic in hints else ""
                found[topic] = (
                    f"{printable(topic, 200)} is published as {names_text(others)}, and this node reads "
                    f"{names_text(sorted(types))}: nothing of it arrives.{hint}"
                )
        return found


class _ClockWatch:
    """Watch over ROS time, where the parameter ``use_sim_time`` makes it hang on ``/clock``."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._last_ns, self._moved_s = -1, time.monotonic()
        self._simulated = False
        self.text = ""

    def look(self) -> None:
        node, now_s = self._node, time.monotonic()
        clock = node.get_clock()
        simulated = isinstance(clock, ROSClock) and clock.ros_time_is_active
        now_ns = clock.now().nanoseconds if simulated else -1
        if now_ns != self._last_ns or simulated is not self._simulated:
            if self.text:
                node.get_logger().info("ROS time runs again." if simulated else "ROS time is that of this machine.")
            self._last_ns, self._moved_s, self._simulated, self.text = now_ns, now_s, simulated, ""
        if simulated and not self.text and now_s - self._moved_s >= CLOCK_PATIENCE_S:
            what = "nothing has come on /clock" if now_ns == 0 else "/clock stands still"
            self.text = (
                f"use_sim_time is true and {what}: ROS time stands still, and with it the stamps of what this node "
                "sends. Is the simulator running? Otherwise set use_sim_time to false. Guards, timeouts and reports do "
                "not depend on it."
            )
            node.get_logger().error(self.text)


def type_name(message_type: Any) -> str:
    """A message class's name as the graph tells it, for example ``geometry_msgs/msg/Twist``."""
    parts = message_type.__module__.split(".")
    return f"{parts[0]}/{parts[1]}/{message_type.__name__}"
