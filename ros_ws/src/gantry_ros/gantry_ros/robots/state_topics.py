"""The newest message of each topic that tells of a robot, and when it came."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from geometry_msgs.msg import PoseArray, PoseStamped
from nav_msgs.msg import Odometry
from rclpy.subscription import Subscription
from sensor_msgs.msg import Image, Imu, JointState
from std_msgs.msg import Float32MultiArray

from gantry_hardware.errors import RobotError
from gantry_ros.robots.state_stamps import StateStamps
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost
from gantry_ros.runtime.listening import Listener

_KINDS: dict[str, Any] = {
    topics.JOINT_STATES: JointState,
    topics.IMU: Imu,
    topics.ODOM: Odometry,
    topics.FOOT_CONTACTS: Float32MultiArray,
    topics.OBJECT_POSE: PoseStamped,
    topics.THINGS: PoseArray,
    topics.ZONES: PoseArray,
}


class StateTopics:
    """Listens to a robot; its topics can be changed until :meth:`open`.

    Args:
        required: Topics without which there is no state.
        optional: Others.
    """

    def __init__(self, required: Sequence[str], optional: Sequence[str]) -> None:
        self.required = list(required)
        """Topics without which there is no state."""
        self.optional = list(optional)
        """Topics that add to it."""
        self._arrived = threading.Condition()
        self._newest: dict[str, tuple[Any, float]] = {}
        self._received: dict[str, int] = {}
        self._repeated = 0
        self._stamps: dict[str, StateStamps] = {}
        self._host: NodeHost | None = None

    def open(self, host: NodeHost, listener: Listener) -> list[Subscription]:
        """Listen; returns the subscriptions, to be taken down with the node's others."""
        self._host = host
        subscriptions = []
        for topic in dict.fromkeys((*self.required, *self.optional)):
            kind = _KINDS.get(topic, Image)
            qos = topics.READER_QOS if kind is Image else topics.STATE_QOS
            subscriptions.append(listener.listen(kind, topic, self._handler(topic), qos))
        return subscriptions

    def newest(self, topic: str) -> tuple[Any, float] | None:
        """The newest message of a topic and the local monotonic time at which it came; None before the first."""
        with self._arrived:
            return self._newest.get(topic)

    def fresh(self, topic: str, limit_s: float) -> Any:
        """The newest message of a topic; None if it is older than a limit, or there is none."""
        found = self.newest(topic)
        return None if found is None or time.monotonic() - found[1] > limit_s else found[0]

    def complete(self) -> dict[str, tuple[Any, float]]:
        """The newest message of each topic and when it came.

        Raises:
            RobotError: If one that is needed has not come.
        """
        with self._arrived:
            newest = dict(self._newest)
        if missing := self._missing(newest):
            raise RobotError(f"Nothing has arrived yet on {', '.join(missing)}.")
        return newest

    def wait(self, host: NodeHost, timeout_s: float, robot_name: str) -> None:
        """Wait until there is a state.

        Args:
            host: Node host; its stop ends the wait.
            timeout_s: Longest wait.
            robot_name: Noun for the robot in messages.

        Raises:
            RobotError: If none comes.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._arrived:
            while self._missing(self._newest):
                left_s = deadline_s - time.monotonic()
                if left_s <= 0.0 or host.stop.is_set():
                    raise RobotError(self._silence_text(host, timeout_s, robot_name))
                self._arrived.wait(min(left_s, 0.1))

    def note_received(self, topic: str) -> None:
        """Count a message that was received elsewhere."""
        with self._arrived:
            self._received[topic] = self._received.get(topic, 0) + 1

    def statistics(self) -> dict[str, int]:
        """Messages received per topic, those that repeated the one before, those whose stamps are not believed, and
        how late they come by their own clock."""
        with self._arrived:
            counts = {f"received {topic}": count for topic, count in self._received.items()}
            refused = sum(stamps.refused for stamps in self._stamps.values())
            late = {f"late {topic} ms": round(1e3 * item.late_s) for topic, item in self._stamps.items() if item.late_s}
            return {**counts, "repeated messages": self._repeated, "stamps not believed": refused, **late}

    def late_text(self) -> str:
        """Readings that come late by their own clock, with the likely cause; empty if none does."""
        late = [f"{topic} by {item.late_s:.2f} s" for topic, item in self._stamps.items() if item.late_s > 0.0]
        if not late:
            return ""
        return (
            f"The stamps fall behind this machine's clock: {', '.join(late)}. What the robot reports is that old: a "
            "link that is clogged, or a simulator that is slower than real time and whose /clock is not used "
            "(use_sim_time)."
        )

    def clear(self) -> None:
        """Forget everything."""
        with self._arrived:
            self._newest.clear()

    def _handler(self, topic: str) -> Any:
        last: list[tuple[int, int]] = [(0, 0)]
        stamps = self._stamps[topic] = StateStamps()

        def handle(message: Any) -> None:
            received_s = time.monotonic()
            head = getattr(message, "header", None)
            stamp = (0, 0) if head is None else (head.stamp.sec, head.stamp.nanosec)
            with self._arrived:
                self._received[topic] = self._received.get(topic, 0) + 1
                # A driver that stamps nothing can only be judged by what arrives.
                if stamp != (0, 0) and stamp == last[0]:
                    self._repeated += 1
                    return
                last[0] = stamp
                source_s = self._source_clock_s(received_s)
                if stamp != (0, 0) and source_s is not None:
                    if not stamps.judge(stamp[0] + 1e-9 * stamp[1], source_s):
                        return
                    received_s -= stamps.late_s
                self._newest[topic] = (message, received_s)
                self._arrived.notify_all()

        return handle

    def _source_clock_s(self, received_s: float) -> float | None:
        """A clock that runs as the stamps do: ROS time where it is simulated, None while that stands still."""
        assert self._host is not None
        if not self._host.network.simulated:
            return received_s
        now_ns = self._host.node.get_clock().now().nanoseconds
        return 1e-9 * now_ns if now_ns > 0 and not self._host.network.clock_trouble else None

    def _missing(self, newest: dict[str, tuple[Any, float]]) -> list[str]:
        return [topic for topic in self.required if topic not in newest]

    def _silence_text(self, host: NodeHost, timeout_s: float, robot_name: str) -> str:
        parts = []
        for topic in self._missing(self._newest):
            name = host.node.resolve_topic_name(topic)
            count = host.node.count_publishers(name)
            parts.append(f"{name} ({count} publisher{'' if count == 1 else 's'})")
        trouble = f" {host.network.trouble}" if host.network.trouble else ""
        return (
            f"{robot_name} does not answer: nothing arrived within {timeout_s:g} s on {', '.join(parts)}. Is its node "
            f"running, with the same ROS_DOMAIN_ID and discovery range?{trouble}"
        )
