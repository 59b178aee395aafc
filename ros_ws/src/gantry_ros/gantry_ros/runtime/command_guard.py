"""One robot, one commander: other publishers of joint commands, and commands that this node has not sent.

An arm may be commanded on several topics, of which its commander uses one; it is alone on none if another is.

What was sent is compared with what is on the topic, so that the first message of another commander is known for what
it is. DDS tells of other writers as it discovers them, some time after the first state has arrived. So a newcomer looks
for a while before it announces itself, and steps back if one turns up late; one that has announced itself and says
nothing gets the time to do so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.serialization import serialize_message

from gantry_hardware.errors import RobotError
from gantry_hardware.files.text import names_text
from gantry_ros.runtime import topics
from gantry_ros.runtime.listening import NUMBER, UNNAMED, name_of, publisher_names
from gantry_ros.runtime.publishers import HOLD_S

LOOK_PERIOD_S = 0.5
"""Time between two looks while connected."""
PATIENT_LOOKS = 3
"""Looks in a row that must find another writer, which says nothing, before a robot that moves is stopped for it."""
DISCOVERY_S = 1.5
"""Time for which a newcomer looks before it announces itself; discovery takes a quarter of a second on an idle
machine.
"""
POLL_S = 0.02
"""Period at which it looks in that time."""
REMEMBERED = 256
"""Own commands that are known again: far more than can be on their way."""


class OwnPublisher:
    """A publisher that remembers what it has sent.

    Args:
        publisher: Of the node; nothing else publishes with it.
    """

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        """To be taken down with the node's others."""
        self._count = 0
        self._sent: dict[int, bytes] = {}

    def publish(self, message: Any) -> None:
        """Send a message."""
        data = serialize_message(message)
        self._count += 1
        self._sent[self._count] = data
        self._sent.pop(self._count - REMEMBERED, None)
        self.publisher.publish(data)

    def is_own(self, data: bytes, number: int) -> bool:
        """Whether this was sent from here: the same bytes under the same number, or under any where the middleware
        counts none."""
        if 0 < number < 2**63:
            return self._sent.get(number) == data
        return data in self._sent.values()


class CommandGuard:
    """Watches the topics on which the robot can be commanded.

    Args:
        node: Its view of the network, and its own name, count.
        announced: Where the robot can be commanded; this node announces itself on one of them.
        watched: Topic -> message class, of these and all others on which a command moves a joint.
    """

    def __init__(self, node: Node, announced: Sequence[str], watched: Mapping[str, Any]) -> None:
        self._node = node
        self._topics = [node.resolve_topic_name(topic) for topic in announced]
        self._looks = 0
        self._own: dict[str, OwnPublisher] = {}
        self._foreign_s = -float("inf")
        self._foreign_topic = ""
        self._unnamed = False
        self.foreign = 0
        """Commands on the topics that others have sent."""
        self.others: list[str] = []
        """Names of the other writers at the last look."""
        hear: Any = self._hear
        self.subscriptions = [
            node.create_subscription(
                kind, topic, partial(hear, node.resolve_topic_name(topic)), topics.COMMAND_WATCH_QOS, raw=True
            )
            for topic, kind in watched.items()
        ]
        """To be taken down with the node's others."""

    def publisher(self, kind: Any, topic: str) -> OwnPublisher:
        """Announce this node as a commander: a publisher whose messages are known again."""
        own = OwnPublisher(self._node.create_publisher(kind, topic, topics.WRITER_QOS))
        self._own[self._node.resolve_topic_name(topic)] = own
        return own

    def settle(self, discovery_s: float) -> None:
        """Before the own publisher exists: make sure that there is no other.

        Args:
            discovery_s: How long to look.

        Raises:
            RobotError: If there is one.
        """
        deadline_s = time.monotonic() + discovery_s
        while time.monotonic() < deadline_s and (not self.others or UNNAMED in self.others):
            self.look()
            time.sleep(POLL_S)
        self.refuse()

    def look(self) -> None:
        """Look once at the graph; a commander that was heard before its name was known is named in the log."""
        names = [name_of(info) for topic in self._topics for info in self._node.get_publishers_info_by_topic(topic)]
        mine = self._node.get_fully_qualified_name()
        if mine in names and any(topic in self._own for topic in self._topics):
            names.remove(mine)
        self.others = names
        self._looks = self._looks + 1 if names else 0
        if self._unnamed and self.commanded() and UNNAMED not in (text := self._text()):
            self._unnamed = False
            self._node.get_logger().error(text)

    def alone(self) -> bool:
        """Whether no other node could command the robot, nor has just done so; cheap enough for every tick."""
        count = sum(map(self._node.count_publishers, self._topics))
        return count <= sum(topic in self._own for topic in self._topics) and not self.commanded()

    def commanded(self) -> bool:
        """Whether another node has commanded the robot within the last moment."""
        return time.monotonic() - self._foreign_s < HOLD_S

    def refuse(self) -> None:
        """Refuse while there is another writer, or one has just sent something.

        Raises:
            RobotError: With the names of the others.
        """
        if self.others or self.commanded():
            raise RobotError(self._text())

    def refuse_after_patience(self) -> None:
        """Refuse if another has sent something, or has been there for so long that it will not step back by itself.

        Raises:
            RobotError: With the names of the others.
        """
        if self.commanded() or self._looks >= PATIENT_LOOKS:
            self.refuse()

    def values(self) -> dict[str, object]:
        """For diagnostics."""
        return {
            "other commanders": len(self.others),
            "other commanders are": names_text(self.others),
            "foreign commands": self.foreign,
        }

    def _hear(self, topic: str, data: bytes, info: Any) -> None:
        own = self._own.get(topic)
        if own is not None and own.is_own(data, info[NUMBER]):
            return
        news = not self.commanded()
        self.foreign += 1
        self._foreign_topic, self._foreign_s = topic, time.monotonic()
        if news:
            self.look()
            text = self._text()
            self._node.get_logger().error(text)
            self._unnamed = UNNAMED in text

    def _text(self) -> str:
        names, topic = list(self.others), ""
        if self.commanded():
            topic = f" on {self._foreign_topic}"
            if not names:
                mine = self._node.get_fully_qualified_name()
                names = [name for name in publisher_names(self._node, self._foreign_topic) if name != mine]
        return f"Another node commands this robot too: {names_text(names or [UNNAMED])}{topic}. Stop one of them."


def refuse_two_publishers(node: Node, topic: str, patience_s: float = DISCOVERY_S) -> None:
    """Refuse a topic on which two nodes speak of one robot: their readings would alternate.

    Args:
        node: Its view of the network counts.
        topic: The topic.
        patience_s: How long to wait for names that are not known yet.

    Raises:
        RobotError: With the names of both.
    """
    resolved = node.resolve_topic_name(topic)
    if node.count_publishers(resolved) < 2:
        return
    deadline_s = time.monotonic() + patience_s
    while True:
        names = publisher_names(node, resolved)
        if len(names) < 2 or UNNAMED not in names or time.monotonic() > deadline_s:
            break
        time.sleep(POLL_S)
    if len(names) > 1:
        raise RobotError(
            f"{resolved} has {len(names)} publishers, expected one: {names_text(names)}. Stop the others, or remap "
            "one; a node that was killed is remembered for up to 20 s."
        )
