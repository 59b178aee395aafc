"""A robot behind ROS 2 topics, as a backend of the control loop like any other.

Legs get a joint command with gains; an arm gets positions, as ros2_control's controllers take them. Cars have a class
of their own, :class:`gantry_ros.ros_car.RosCar`.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Literal

from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from sensor_msgs.msg import Image, Imu, JointState, PointCloud2
from std_msgs.msg import Float32MultiArray

from gantry_deploy.pictures import Picture
from gantry_deploy.ros_messages import BASE_FRAME, ODOM_FRAME
from gantry_deploy.safety import is_arm, is_car
from gantry_hardware.errors import GantryError, RobotError, UnknownNameError
from gantry_hardware.limits import CommandLimiter
from gantry_hardware.spec import RobotSpec
from gantry_hardware.state import JointCommand, RobotState
from gantry_mapping.snapshot import MapSnapshot
from gantry_ros import arm_commands, convert, convert_arm, convert_map, topics
from gantry_ros.arm_commands import ArmCommandWriter
from gantry_ros.command_guard import DISCOVERY_S, LOOK_PERIOD_S, CommandGuard, refuse_two_publishers
from gantry_ros.host import NodeHost

OPTIONAL_TIMEOUT_S = 0.5
"""Odometry and foot contacts older than this are left out of the state."""
JOINT_ORDERS = ("strict", "by_name")
"""Values of ``joint_order``."""
_KINDS: dict[str, Any] = {
    topics.JOINT_STATES: JointState,
    topics.IMU: Imu,
    topics.ODOM: Odometry,
    topics.FOOT_CONTACTS: Float32MultiArray,
    topics.OBJECT_POSE: PoseStamped,
}


class RosRobot:
    """Implements :class:`gantry_hardware.backend.Robot` on topics.

    ``stamp_s`` of a state is the local monotonic time at which the older of its two required parts, joints and IMU, was
    received; an arm has no IMU. A message whose header stamp repeats is no news: a robot that keeps sending its last
    reading goes stale.

    Args:
        spec: The robot that must be on the other side.
        host: Node to use; an own one is made without it.
        joint_order: ``strict`` refuses a JointState in another order than the spec's, ``by_name`` sorts it.
        connect_timeout_s: How long :meth:`connect` waits for a first state.
        discovery_s: How long :meth:`connect` then looks for others who command the robot.
        command_message: A name of :data:`gantry_ros.arm_commands.COMMAND_MESSAGES`; empty for ``joint_command``, and
            for ``joint_trajectory`` of an arm.
        gripper_message: A name of :data:`gantry_ros.arm_commands.GRIPPER_MESSAGES`, for an arm.
        command_period_s: Time between two commands, for trajectories.

    Raises:
        UnknownNameError: If an option has no such value.
        RobotError: If a robot that is no arm shall be commanded by positions, which cannot damp it, or if it is a car.
    """

    drives_cars = False
    """Whether this is the class for cars."""

    def __init__(
        self,
        spec: RobotSpec,
        *,
        host: NodeHost | None = None,
        joint_order: Literal["strict", "by_name"] = "strict",
        connect_timeout_s: float = 10.0,
        discovery_s: float = DISCOVERY_S,
        command_message: str = "",
        gripper_message: str = arm_commands.WITH_ARM,
        command_period_s: float = 0.05,
    ) -> None:
        if joint_order not in JOINT_ORDERS:
            raise UnknownNameError("joint_order", joint_order, JOINT_ORDERS)
        if is_car(spec) and not self.drives_cars:
            raise RobotError(
                f"Robot '{spec.name}' is a car, which is told of its road by topics: start policy_node, "
                "for example by 'gantry launch robot'."
            )
        self.spec = spec
        self._message = arm_commands.chosen_message(spec, command_message)
        self._gripper_message, self._command_period_s = gripper_message, command_period_s
        self._required = [topics.JOINT_STATES] if is_arm(spec) else [topics.JOINT_STATES, topics.IMU]
        self._optional = [] if is_arm(spec) else [topics.ODOM, topics.FOOT_CONTACTS]
        self._cameras: tuple[str, ...] = ()
        self._connect_timeout_s = connect_timeout_s
        self._discovery_s = discovery_s
        self._given_host = host
        self._host: NodeHost | None = None
        self._read_joints = convert.JointStateReader(spec, by_name=joint_order == "by_name")
        self._codec = convert.CommandCodec(spec)
        self._limiter = CommandLimiter(spec)
        self._arrived = threading.Condition()
        self._newest: dict[str, tuple[Any, float]] = {}
        self._received: dict[str, int] = {}
        self._repeated = 0
        self._follows_map = False
        self._map: tuple[MapSnapshot, float] | None = None
        self._guard: CommandGuard | None = None
        self._withholding = False
        self._publisher: Any = None
        self._entities: list[tuple[str, Any]] = []

    def connect(self) -> None:
        """Subscribe, wait for a first state, and only then announce that commands will come.

        Raises:
            RobotError: If no state arrives, its joints are not the spec's, two nodes report it, or another node
                commands the robot already; nothing has been sent.
        """
        if self._host is not None:
            return
        self._host = self._given_host or NodeHost(f"gantry_{self.spec.name}")
        node = self._host.node
        for topic in (*self._required, *self._optional):
            handler, kind = self._handler(topic), _KINDS.get(topic, Image)
            self._entities.append(("subscription", node.create_subscription(kind, topic, handler, topics.READER_QOS)))
        if self._follows_map:
            subscription = node.create_subscription(PointCloud2, topics.ELEVATION_MAP, self._on_map, topics.READER_QOS)
            self._entities.append(("subscription", subscription))
        if self._given_host is None:
            self._host.start()
        try:
            self._wait_for_state()
            self.read()
            self._guard = CommandGuard(node, self._command_topics())
            self._guard.settle(self._discovery_s)
            self._refuse_two_voices(node)
            self._introduce(node)
        except RobotError:
            self.close()
            raise
        self._publisher = self._make_publisher(node)
        self._entities.append(("timer", self._host.create_timer(LOOK_PERIOD_S, self._guard.look)))

    def now_s(self) -> float:
        """Local monotonic time."""
        return time.monotonic()

    def sleep_until(self, time_s: float) -> None:
        """Wait for a local monotonic time."""
        time.sleep(max(0.0, time_s - time.monotonic()))

    def read(self) -> RobotState:
        """The newest state.

        Raises:
            RobotError: If none has arrived, or the newest is not of this robot.
        """
        newest = self._complete()
        joints, joints_s = newest[topics.JOINT_STATES]
        now_s = time.monotonic()

        def fresh(topic: str) -> Any:
            message, received_s = newest.get(topic, (None, 0.0))
            return message if now_s - received_s <= OPTIONAL_TIMEOUT_S else None

        if is_arm(self.spec):
            seen = fresh(topics.OBJECT_POSE)
            pose = None if seen is None else convert_arm.pose(seen, BASE_FRAME)
            return convert_arm.arm_state(self._read_joints(joints), joints_s, pose)
        imu, imu_s = newest[topics.IMU]
        return convert.robot_state(
            self._read_joints(joints), imu, min(joints_s, imu_s), fresh(topics.ODOM), fresh(topics.FOOT_CONTACTS)
        )

    def write(self, command: JointCommand) -> JointCommand | None:
        """Publish a command within the spec's limits and return it.

        A limp command is withheld while somebody else commands the robot, and None is returned: between another's
        targets it would make the robot drop. Braking is sent whoever else is there; what moves the robot is refused.
        Positions cannot say that an arm shall be limp or damped; such a command is withheld as well.

        Raises:
            RobotError: If not connected, if shapes or numbers are wrong, or if somebody else commands the robot too.
        """
        if self._host is None or self._publisher is None or self._guard is None:
            raise RobotError("The ROS robot is not connected; call connect() first.")
        limited, _ = self._limiter.clamp(command)
        if isinstance(self._publisher, ArmCommandWriter):
            if not arm_commands.is_expressible(limited):
                return None
            self._guard.refuse_after_patience()
            self._publisher.publish(limited)
            return limited
        if self._is_limp(limited):
            if self._withholds():
                return None
        elif not convert.is_braking(limited):
            self._guard.refuse_after_patience()
        self._publisher.publish(self._codec.message(limited, self._host.node.get_clock().now().to_msg()))
        return limited

    def close(self) -> None:
        """Unsubscribe; an own node is taken down. May be called twice."""
        host, self._host, self._publisher = self._host, None, None
        if host is None:
            return
        if self._given_host is None:
            host.close()
        else:
            for kind, entity in reversed(self._entities):
                getattr(host.node, f"destroy_{kind}")(entity)
        self._entities.clear()
        self._newest.clear()
        self._map = None

    def refuse_other_commanders(self) -> None:
        """Refuse as soon as another node announces joint commands, as a newcomer should before it moves anything.

        A second node that reports the robot's joints or IMU is refused too; it may have been discovered late.

        Raises:
            RobotError: With the names of the others.
        """
        if self._host is None or self._guard is None:
            return
        if not self._guard.alone():
            self._guard.look()
            self._guard.refuse()
        self._refuse_two_voices(self._host.node)

    def statistics(self) -> dict[str, int]:
        """Messages received per topic, those that repeated the one before, and others who command the robot."""
        with self._arrived:
            counts = {f"received {topic}": count for topic, count in self._received.items()}
            others = 0 if self._guard is None else len(self._guard.others)
            return {**counts, "repeated messages": self._repeated, "other commanders": others}

    def follow_map(self) -> None:
        """Listen for the elevation map of a mapping node from :meth:`connect` on."""
        self._follows_map = True

    def follow_object(self) -> None:
        """Wait for the pose of what the arm handles in :meth:`connect`, and listen for it from then on."""
        self._required.append(topics.OBJECT_POSE)

    def follow_pictures(self, cameras: tuple[str, ...]) -> None:
        """Wait for a picture of each camera in :meth:`connect`, and listen for them from then on."""
        self._cameras = cameras
        self._required += [topics.PICTURE.format(name=name) for name in cameras]

    def read_pictures(self) -> dict[str, Picture]:
        """The newest picture of each camera, stamped with the local monotonic time of its receipt.

        Raises:
            RobotError: If one is encoded in another way than is understood.
        """
        with self._arrived:
            newest = {name: self._newest.get(topics.PICTURE.format(name=name)) for name in self._cameras}
        found = {name: item for name, item in newest.items() if item is not None}
        return {name: Picture(received_s, convert_arm.picture(image)) for name, (image, received_s) in found.items()}

    def read_map(self) -> tuple[MapSnapshot, float] | None:
        """The newest map, and the local monotonic time at which its newest frame became known; None before the first.

        A map that is sent again with the stamp of the one before holds no new frame.
        """
        with self._arrived:
            return self._map

    @property
    def odom_frame(self) -> str:
        """Frame of the newest odometry."""
        message, _ = self._newest.get(topics.ODOM, (None, 0.0))
        return ODOM_FRAME if message is None or not message.header.frame_id else message.header.frame_id

    def _on_map(self, message: PointCloud2) -> None:
        received_s = time.monotonic()
        try:
            if message.header.frame_id != self.odom_frame:
                raise RobotError(f"The map is in frame '{message.header.frame_id}', the odometry '{self.odom_frame}'.")
            snapshot = convert_map.map_snapshot(message)
        except GantryError as error:
            if self._host is not None:
                self._host.node.get_logger().error(f"Map refused: {error}", throttle_duration_sec=1.0)
            return
        with self._arrived:
            self._received[topics.ELEVATION_MAP] = self._received.get(topics.ELEVATION_MAP, 0) + 1
            if self._map is not None and self._map[0].stamp_s == snapshot.stamp_s:
                received_s = self._map[1]
            self._map = (snapshot, received_s)

    def _handler(self, topic: str) -> Any:
        last: list[tuple[int, int]] = [(0, 0)]

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
                self._newest[topic] = (message, received_s)
                self._arrived.notify_all()

        return handle

    def _wait_for_state(self) -> None:
        assert self._host is not None
        deadline_s = time.monotonic() + self._connect_timeout_s
        with self._arrived:
            while self._missing(self._newest):
                left_s = deadline_s - time.monotonic()
                if left_s <= 0.0 or self._host.stop.is_set():
                    raise RobotError(self._silence_text())
                self._arrived.wait(min(left_s, 0.1))

    def _silence_text(self) -> str:
        assert self._host is not None
        node = self._host.node
        parts = []
        for topic in self._missing(self._newest):
            name = node.resolve_topic_name(topic)
            count = node.count_publishers(name)
            parts.append(f"{name} ({count} publisher{'' if count == 1 else 's'})")
        return (
            f"Robot '{self.spec.name}' does not answer: nothing arrived within {self._connect_timeout_s:g} s on "
            f"{', '.join(parts)}. Is its node running, with the same ROS_DOMAIN_ID and discovery range?"
        )

    def _command_topics(self) -> tuple[str, ...]:
        """Where such a robot can be commanded."""
        return arm_commands.command_topics(self.spec)

    def _introduce(self, node: Node) -> None:
        """Say what is special about a robot that has just answered."""
        if not self._read_joints(self._newest[topics.JOINT_STATES][0]).effort_measured:
            node.get_logger().info("The robot reports no torques: they count as zero, and no torque limit guards.")

    def _make_publisher(self, node: Node) -> Any:
        if self._message == arm_commands.JOINT_COMMAND:
            publisher = node.create_publisher(JointState, topics.JOINT_COMMAND, topics.WRITER_QOS)
            self._entities.append(("publisher", publisher))
            return publisher
        writer = ArmCommandWriter(node, self.spec, self._message, self._gripper_message, self._command_period_s)
        self._entities += [("publisher", publisher) for publisher in writer.publishers]
        return writer

    def _complete(self) -> dict[str, tuple[Any, float]]:
        """The newest message of each topic and when it came.

        Raises:
            RobotError: If one that is needed has not come.
        """
        with self._arrived:
            newest = dict(self._newest)
        if missing := self._missing(newest):
            raise RobotError(f"Nothing has arrived yet on {', '.join(missing)}.")
        return newest

    def _missing(self, newest: dict[str, tuple[Any, float]]) -> list[str]:
        return [topic for topic in self._required if topic not in newest]

    def _refuse_two_voices(self, node: Node) -> None:
        for topic in self._required:
            refuse_two_publishers(node, topic)

    def _withholds(self) -> bool:
        """Whether a limp command must not be sent, because somebody else commands the robot; a change is logged."""
        assert self._guard is not None
        assert self._host is not None
        withholding, self._withholding = self._withholding, not self._guard.alone()
        if self._withholding is not withholding:
            self._host.node.get_logger().warning(
                "Another node commands this robot; while passive, this one sends nothing."
                if self._withholding
                else "No other node commands this robot any more."
            )
        return self._withholding

    @staticmethod
    def _is_limp(command: JointCommand) -> bool:
        return not (command.stiffness_nm_rad.any() or command.damping_nm_s_rad.any() or command.effort_nm.any())
