"""Topics that have one publisher each: another speaker is noticed by the messages, and named by the graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription

from gantry_hardware.errors import RobotError
from gantry_hardware.files.text import names_text
from gantry_ros.runtime.publishers import QUIET_S, DuplicateMonitor

UNNAMED = "a node whose name is not known yet"
"""Stands for a name that has not been discovered; an endpoint may be known before its node is."""
NUMBER = "publication_sequence_number"
"""In a message's info: its publisher's own count of it."""


class Listener:
    """Subscriptions of a node of which each hears one publisher alone.

    Args:
        node: To listen with.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._monitors: dict[str, list[DuplicateMonitor]] = {}
        self._texts: dict[str, str] = {}
        self._silent: dict[str, str] = {}

    def listen(
        self, kind: Any, topic: str, take: Callable[[Any], None], qos: QoSProfile, quiet_s: float = QUIET_S
    ) -> Subscription:
        """Hand on what one publisher sends. While two are heard, nothing is handed on, and :meth:`refuse` raises.

        Args:
            kind: Message class.
            topic: Its name.
            take: Takes the messages.
            qos: More than one message deep, or a second publisher might hide behind the first.
            quiet_s: For how long a publisher must have been silent before another one is heard in its place.
        """
        monitor, resolved = DuplicateMonitor(quiet_s), self._node.resolve_topic_name(topic)
        self._monitors.setdefault(resolved, []).append(monitor)

        def callback(message: Any, info: Any) -> None:
            now_s = time.monotonic()
            if monitor.hear(info[NUMBER], now_s):
                take(message)
            elif monitor.has_two(now_s):
                self._say(resolved)

        hear: Any = callback
        return self._node.create_subscription(kind, topic, hear, qos)

    def refuse(self) -> None:
        """Refuse while two publishers are heard on a topic.

        Raises:
            RobotError: With the topic and the names of all that publish on it.
        """
        now_s = time.monotonic()
        for topic, monitors in self._monitors.items():
            if any(monitor.has_two(now_s) for monitor in monitors):
                raise RobotError(self._texts.get(topic) or self._text(topic))

    def look(self) -> None:
        """Look at the graph: say in the log where a second publisher is there and silent, and where two have become one
        again."""
        now_s, log = time.monotonic(), self._node.get_logger()
        for topic, monitors in self._monitors.items():
            if any(monitor.has_two(now_s) for monitor in monitors):
                text = self._text(topic)
                if UNNAMED in self._texts.get(topic, UNNAMED) and UNNAMED not in text:  # A name has become known.
                    log.error(text)
                self._texts[topic] = text
                continue
            if self._texts.pop(topic, ""):
                log.info(f"{topic} has one publisher that speaks again.")
            names = publisher_names(self._node, topic) if self._node.count_publishers(topic) > 1 else []
            text = ", ".join(names) if len(names) > 1 else ""
            if text and UNNAMED not in text and text != self._silent.get(topic, ""):
                log.warning(
                    f"{topic} has {len(names)} publishers, of which one speaks: {names_text(names)}. A node that was "
                    "killed is remembered for up to 20 s; if the other one speaks too, the robot is damped."
                )
            self._silent[topic] = text

    def values(self) -> dict[str, object]:
        """For diagnostics."""
        now_s = time.monotonic()
        two = [
            topic for topic, monitors in self._monitors.items() if any(monitor.has_two(now_s) for monitor in monitors)
        ]
        held = sum(monitor.held for monitors in self._monitors.values() for monitor in monitors)
        values: dict[str, object] = {
            "topics with two publishers": " ".join(self._texts.get(topic, topic) for topic in two),
            "foreign messages kept back": held,
        }
        if silent := [f"{topic}: {names}" for topic, names in self._silent.items() if names]:
            values["silent second publishers"] = names_text(silent, 200)
        return values

    def _say(self, topic: str) -> None:
        if topic not in self._texts:
            self._texts[topic] = self._text(topic)
            self._node.get_logger().error(self._texts[topic])

    def _text(self, topic: str) -> str:
        names = publisher_names(self._node, topic)
        names += [UNNAMED] * (2 - len(names))
        return f"Two publishers speak in turn on {topic}: {names_text(names)}. Stop one of them, or remap it."


def publisher_names(node: Node, topic: str) -> list[str]:
    """Names of the nodes that publish on a topic, sorted; one for each publisher."""
    return sorted(name_of(info) for info in node.get_publishers_info_by_topic(topic))


def name_of(info: object) -> str:
    """Full name of the node of an endpoint, or :data:`UNNAMED`."""
    name: str = info.node_name  # type: ignore[attr-defined]
    namespace: str = info.node_namespace  # type: ignore[attr-defined]
    return UNNAMED if "UNKNOWN" in name else f"{namespace.rstrip('/')}/{name}"
