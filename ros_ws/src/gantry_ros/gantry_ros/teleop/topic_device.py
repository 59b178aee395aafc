"""Operator's device that is fed by topics: a joystick's driver, MoveIt Servo's twists, another machine's device."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from geometry_msgs.msg import Twist, TwistStamped
from sensor_msgs.msg import Joy
from std_msgs.msg import Bool, Float64

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.operator_maps import make_operator_map
from gantry_deploy.errors import TeleopError
from gantry_deploy.recording.ros_messages import BASE_FRAME
from gantry_deploy.teleop.operator import Axis, OperatorInput, TeleopEvent
from gantry_deploy.teleop.pads import MOST_CONTROLS, Pad, choose_map, load_maps
from gantry_hardware.errors import GantryError
from gantry_hardware.files.bounds import finite
from gantry_ros.convert import operator as convert
from gantry_ros.robots.state_stamps import StateStamps
from gantry_ros.runtime import topics
from gantry_ros.runtime.availability import require_ros
from gantry_ros.runtime.frames import Frames
from gantry_ros.runtime.host import NodeHost
from gantry_ros.runtime.listening import Listener
from gantry_ros.teleop.freshness import DeadMan, Fresh
from gantry_ros.teleop.services import EventServices

QUIET_S = 0.5
"""For how long a publisher must have been silent before another one is heard in its place, s."""


@dataclass(frozen=True)
class TopicCfg:
    """Topics of a person, and their limits."""

    map: str = "xbox"
    """Map of the joystick's numbers, a name of :func:`gantry_deploy.teleop.pads.load_maps`."""
    maps: str = ""
    """The person's own file of maps."""
    inverted: bool = True
    """Whether left and up are positive in ``sensor_msgs/Joy``, as ROS drivers have it."""
    stamped: bool = True
    """Whether ``~/delta_twist_cmds`` is a TwistStamped instead of a Twist."""
    same_frames: str = ""
    """Names that mean the same frame, as the parameter of that name."""
    timeout_s: float = 0.3
    """Silence after which a topic counts no more, s."""

    def __post_init__(self) -> None:
        finite("timeout_s", self.timeout_s, 0.02, 60.0, TeleopError)


class TopicDevice:
    """Device behind topics; ``joy``, ``~/delta_twist_cmds``, ``~/gripper_opening`` and ``~/dead_man``.

    The person moves the robot while the joystick's dead-man button is held or ``~/dead_man`` is true. Motion is that of
    the twists where they come, otherwise that of the joystick. Each topic is heard of one publisher alone.

    Args:
        host: Node of another program, or the name of a node of its own.
        axes: Axes that the policy's kind of robot uses.
        cfg: Settings.

    Raises:
        GantryError: If the settings make no sense.
    """

    name = "ros"

    def __init__(self, host: NodeHost | str, axes: tuple[Axis, ...], cfg: TopicCfg | None = None) -> None:
        cfg = cfg or TopicCfg()
        self._host, self._own = (None, host) if isinstance(host, str) else (host, "")
        self._axes, self._cfg, self._frames = axes, cfg, Frames(cfg.same_frames)
        self._events: deque[TeleopEvent] = deque()
        self._pad = Pad(choose_map(load_maps(cfg.maps), cfg.map, "", (0, 0), topics.JOY), axes, self._events)
        self._lock = threading.Lock()
        self._joy = Fresh[bool](cfg.timeout_s)
        self._twist = Fresh[dict[Axis, float]](cfg.timeout_s)
        self._grip = Fresh[float](cfg.timeout_s)
        self._switch = DeadMan(cfg.timeout_s)
        self._stamps = {Joy: StateStamps(), TwistStamped: StateStamps()}
        self._services: EventServices | None = None
        self._subscriptions: list[Any] = []
        self._attended: tuple[Callable[[TeleopEvent], str | None], Callable[[], str]] | None = None

    def connect(self) -> None:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.connect`; messages may come later."""
        if self._services is not None:
            return
        host = self._host = NodeHost(self._own) if self._host is None else self._host
        listener, qos = Listener(host.node), topics.COMMAND_WATCH_QOS
        kind: Any = TwistStamped if self._cfg.stamped else Twist
        self._subscriptions = [
            listener.listen(message, topic, self._guarded(take), qos, QUIET_S)
            for message, topic, take in (
                (Joy, topics.JOY, self._on_joy),
                (kind, topics.DELTA_TWIST, self._on_twist),
                (Float64, topics.GRIPPER_OPENING, self._on_gripper),
                (Bool, topics.DEAD_MAN, self._on_dead_man),
            )
        ]
        self._services = EventServices(host)
        if self._attended is not None:
            self._services.attend(*self._attended)
        if self._own:
            host.start()

    def attend(self, request: Callable[[TeleopEvent], str | None], state: Callable[[], str]) -> None:
        """See :meth:`gantry_deploy.teleop.operator.AttendedDevice.attend`."""
        self._attended = (request, state)
        if self._services is not None:
            self._services.attend(request, state)

    def read(self, now_s: float) -> OperatorInput:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.read`."""
        here_s = time.monotonic()
        with self._lock:
            events = tuple(self._events)
            self._events.clear()
            if self._joy.get(here_s) is None:
                self._pad.reset()
            motion, grip = self._twist.get(here_s), self._grip.get(here_s)
            axes = {**dict.fromkeys(self._axes, 0.0), **self._pad.motion(), **(motion or {})}
            if grip is not None and Axis.GRIPPER in axes:
                axes[Axis.GRIPPER] = grip
            engaged = self._pad.engaged or self._switch.held(here_s)
            heard_s = max(part.heard_s for part in (self._joy, self._twist, self._grip, self._switch))
            return OperatorInput(now_s - (here_s - heard_s), engaged, axes, events=events)

    def describe(self) -> list[str]:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.describe`."""
        name = "~" if self._host is None else self._host.node.get_fully_qualified_name()
        kind = "TwistStamped" if self._cfg.stamped else "Twist"
        own = [topics.DEAD_MAN, f"{topics.DELTA_TWIST} ({kind})", topics.GRIPPER_OPENING]
        return [
            f"topics {', '.join(topic.replace('~', name, 1) for topic in own)}",
            f"services {', '.join(f'{name}/{service}' for service in topics.EVENT_SERVICES)}",
            f"topic {topics.JOY} by the map '{self._cfg.map}':",
            *(f"  {line}" for line in self._pad.describe()),
        ]

    def close(self) -> None:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.close`."""
        host, services = self._host, self._services
        if host is None or services is None:
            return
        if self._own:
            host.close()
            self._host = None
        else:
            host.destroy(
                [("subscription", subscription) for subscription in self._subscriptions]
                + [("service", service) for service in services.services]
            )
        self._subscriptions, self._services = [], None

    def _guarded(self, take: Callable[[Any, float], None]) -> Callable[[Any], None]:
        """A callback of which a message that is refused is said in the log, not raised."""

        def callback(message: Any) -> None:
            with self._lock:
                try:
                    take(message, self._sent_s(message))
                except GantryError as error:
                    assert self._host is not None
                    self._host.node.get_logger().error(str(error), throttle_duration_sec=2.0)

        return callback

    def _sent_s(self, message: Any) -> float:
        """Time at which a message was sent, monotonic: earlier than now if it was long on its way.

        Raises:
            TeleopError: If its stamp is not believed.
        """
        now_s, stamps = time.monotonic(), self._stamps.get(type(message))
        stamp = message.header.stamp if stamps is not None else None
        if stamps is None or stamp is None or (stamp.sec, stamp.nanosec) == (0, 0):
            return now_s  # Many programs leave it out.
        if not stamps.judge(stamp.sec + 1e-9 * stamp.nanosec, now_s):
            raise TeleopError(f"A {type(message).__name__} is stamped {stamp.sec}.{stamp.nanosec:09d} s, not newer.")
        return now_s - stamps.late_s

    def _on_joy(self, message: Joy, sent_s: float) -> None:
        if max(len(message.axes), len(message.buttons)) > MOST_CONTROLS:
            raise TeleopError(f"A Joy has {len(message.axes)} axes, expected at most {MOST_CONTROLS}.")
        values, sign = list(message.axes), -1.0 if self._cfg.inverted else 1.0
        if not all(abs(value) <= 1e6 for value in values):
            self._pad.reset()
            self._joy.hear(None, sent_s)
            raise TeleopError("A Joy holds an axis that is no number, expected -1 to 1.")
        initial = self._joy.get(sent_s) is None
        if initial:
            self._pad.reset()
        self._joy.hear(True, sent_s)
        for number, value in enumerate(values):
            self._pad.set_axis(number, sign * value, initial=initial)
        for number, pressed in enumerate(message.buttons):
            self._pad.set_button(number, bool(pressed), initial=initial)

    def _on_twist(self, message: Twist | TwistStamped, sent_s: float) -> None:
        self._twist.hear(None, sent_s)  # What is refused leaves nothing to move by.
        if isinstance(message, TwistStamped):
            self._frames.require(message.header.frame_id, BASE_FRAME, "The person's motion is told")
            message = message.twist
        self._twist.hear(convert.motion(message, self._axes), sent_s)

    def _on_gripper(self, message: Float64, sent_s: float) -> None:
        self._grip.hear(None, sent_s)
        self._grip.hear(convert.gripper(message.data), sent_s)

    def _on_dead_man(self, message: Bool, sent_s: float) -> None:
        self._switch.hear(bool(message.data), sent_s)
        if self._switch.stuck(sent_s):
            raise TeleopError("The dead-man switch was pressed before anything came from it; let go of it first.")


def make_topic_device(
    contract: PolicyContract,
    node: str = "gantry_session",
    map: str = "xbox",
    maps: str = "",
    inverted: bool = True,
    stamped: bool = True,
    same_frames: str = "",
    timeout_s: float = 0.3,
) -> TopicDevice:
    """Device ``ros`` with a node of its own.

    Args:
        contract: Of the policy that is corrected.
        node: Name of the node; services and topics are below it.
        map: See :class:`TopicCfg`, as the others.
        maps: The same.
        inverted: The same.
        stamped: The same.
        same_frames: The same.
        timeout_s: The same.

    Raises:
        GantryError: If ROS 2 is not here, or an option makes no sense.
    """
    require_ros()
    cfg = TopicCfg(map, maps, inverted, stamped, same_frames, timeout_s)
    return TopicDevice(node, make_operator_map(contract).axes, cfg)
