"""One robot, one commander and one voice: who else publishes joint commands, and who speaks for the robot.

An arm may be commanded on several topics, of which its commander uses one; it is alone on none if another is.

DDS tells of other writers as it discovers them, some time after the first state has arrived. So a newcomer looks for a
while before it announces itself, and steps back if one turns up late; whoever drives gives it the time to do so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rclpy.node import Node

from gantry_hardware.errors import RobotError
from gantry_ros import topics

LOOK_PERIOD_S = 0.5
"""Time between two looks while connected."""
PATIENT_LOOKS = 3
"""Looks in a row that must find another writer before a robot that moves is stopped for it."""
DISCOVERY_S = 1.5
"""How long a newcomer looks before it announces itself; discovery takes a quarter of a second on an idle machine."""
POLL_S = 0.02
"""How often it looks in that time."""
UNNAMED = "a node whose name is not known yet"
"""Stands for a name that has not been discovered; an endpoint may be known before its node is."""


class CommandGuard:
    """Watches the publishers of the joint command.

    Args:
        node: Its view of the network, and its own name, count.
        command_topics: Where the robot can be commanded; this node announces itself on one of them.
    """

    def __init__(self, node: Node, command_topics: Sequence[str] = (topics.JOINT_COMMAND,)) -> None:
        self._node = node
        self._topics = [node.resolve_topic_name(topic) for topic in command_topics]
        self._looks = 0
        self.others: list[str] = []
        """Names of the other writers at the last look."""

    def settle(self, discovery_s: float) -> None:
        """Before the own publisher exists: make sure that there is no other.

        Args:
            discovery_s: How long to look.

        Raises:
            RobotError: If there is one.
        """
        deadline_s = time.monotonic() + discovery_s
        while time.monotonic() < deadline_s and (not self.others or UNNAMED in self.others):
            self.look(announced=False)
            time.sleep(POLL_S)
        self.refuse()

    def look(self, announced: bool = True) -> None:
        """Look once; ``announced`` tells whether one of the publishers is this node's own."""
        names = [_name(info) for topic in self._topics for info in self._node.get_publishers_info_by_topic(topic)]
        own = self._node.get_fully_qualified_name()
        if announced and own in names:
            names.remove(own)
        self.others = names
        self._looks = self._looks + 1 if names else 0

    def alone(self) -> bool:
        """Whether this node's own publisher is the only one; cheap enough for every tick."""
        return sum(map(self._node.count_publishers, self._topics)) <= 1

    def refuse(self) -> None:
        """Refuse while there is another writer.

        Raises:
            RobotError: With the names of the others.
        """
        if self.others:
            raise RobotError(f"Another node commands this robot too: {', '.join(self.others)}. Stop one of them.")

    def refuse_after_patience(self) -> None:
        """Refuse if another writer has been there for so long that it will not step back by itself.

        Raises:
            RobotError: With the names of the others.
        """
        if self._looks >= PATIENT_LOOKS:
            self.refuse()


def refuse_two_publishers(node: Node, topic: str) -> None:
    """Refuse a topic on which two nodes speak of one robot: their readings would alternate.

    Raises:
        RobotError: With the names of both.
    """
    resolved = node.resolve_topic_name(topic)
    if node.count_publishers(resolved) < 2:
        return
    deadline_s = time.monotonic() + DISCOVERY_S
    while True:
        names = sorted(_name(info) for info in node.get_publishers_info_by_topic(resolved))
        if len(names) < 2 or UNNAMED not in names or time.monotonic() > deadline_s:
            break
        time.sleep(POLL_S)
    if len(names) > 1:
        raise RobotError(
            f"{resolved} has {len(names)} publishers, expected one: {', '.join(names)}. Stop the others, or remap one; "
            "a node that was killed is remembered for up to 20 s."
        )


def _name(info: object) -> str:
    name: str = info.node_name  # type: ignore[attr-defined]
    namespace: str = info.node_namespace  # type: ignore[attr-defined]
    return UNNAMED if "UNKNOWN" in name else f"{namespace.rstrip('/')}/{name}"
