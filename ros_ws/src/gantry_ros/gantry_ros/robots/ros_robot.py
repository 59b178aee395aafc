"""A robot behind ROS 2 topics, as a backend of the control loop like any other.

Legs get a joint command with gains; an arm gets positions, as ros2_control's controllers take them. Cars have a class
of their own, :class:`gantry_ros.robots.ros_car.RosCar`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Literal

from rclpy.node import Node
from sensor_msgs.msg import JointState

from gantry_deploy.embodiments.registry import embodiment_of_robot
from gantry_hardware.backends.limits import CommandLimiter
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.plugins import load_named
from gantry_ros.convert import arm as convert_arm
from gantry_ros.convert import robot as convert
from gantry_ros.robots import arm_commands
from gantry_ros.robots.arm_commands import ArmCommandWriter
from gantry_ros.robots.senses import OPTIONAL_TIMEOUT_S, TopicSenses
from gantry_ros.robots.state_topics import StateTopics
from gantry_ros.runtime import topics
from gantry_ros.runtime.command_guard import DISCOVERY_S, LOOK_PERIOD_S, CommandGuard, refuse_two_publishers
from gantry_ros.runtime.frames import Frames
from gantry_ros.runtime.host import NodeHost
from gantry_ros.runtime.listening import Listener
from gantry_ros.runtime.waiting import WaitReason

SHARED_PARAMETERS = ("connect_timeout_s", "discovery_s", "command_message", "same_frames", "frame_poses")
"""Parameters of a node that every backend behind topics takes."""
JOINT_ORDERS = ("strict", "by_name")
"""Values of ``joint_order``."""


class RosRobot(TopicSenses):
    """Implements :class:`gantry_hardware.backends.backend.Robot` on topics.

    ``stamp_s`` of a state is the local monotonic time at which the older of its two required parts, joints and IMU, was
    received; an arm has no IMU. A message with a repeated stamp does not refresh the age: a robot that keeps sending
    its last reading goes stale.

    Args:
        spec: The robot that must be on the other side.
        host: Node to use; an own one is made without it.
        joint_order: ``strict`` refuses a JointState in another order than the spec's, ``by_name`` sorts it.
        connect_timeout_s: How long :meth:`connect` waits for a first state.
        discovery_s: How long :meth:`connect` then looks for other commanders of the robot.
        command_message: A name of ``COMMAND_MESSAGES``; empty for ``joint_command``, and
            for ``joint_trajectory`` of an arm.
        gripper_message: A name of :data:`gantry_ros.robots.arm_commands.GRIPPER_MESSAGES`, for an arm.
        command_period_s: Time between two commands, for trajectories.
        same_frames: Names that mean the same frame, see :data:`gantry_ros.runtime.frames.PARAMETERS`.
        frame_poses: Where sensors sit, likewise.
        map_max_latency_s: See :class:`gantry_ros.mapping.map_inbox.MapInbox`.

    Raises:
        UnknownNameError: If an option has no such value.
        RobotError: If a robot that is no arm shall be commanded by positions, which cannot damp it, or if it is a car.
    """

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
        same_frames: str = "",
        frame_poses: str = "",
        map_max_latency_s: float = 0.0,
    ) -> None:
        if joint_order not in JOINT_ORDERS:
            raise UnknownNameError("joint_order", joint_order, JOINT_ORDERS)
        embodiment = embodiment_of_robot(spec)
        if not isinstance(self, load_named(embodiment.ros_robot)):
            raise RobotError(
                f"Robot '{spec.name}' is {embodiment.noun}, for which this backend is none: start policy_node, for "
                "example by 'gantry launch robot'."
            )
        self.spec = spec
        self._message = arm_commands.chosen_message(spec, command_message)
        self._gripper_message, self._command_period_s = gripper_message, command_period_s
        self._base_moves = embodiment.base_moves
        of_base = ([topics.IMU], [topics.ODOM, topics.FOOT_CONTACTS]) if self._base_moves else ([], [])
        told = StateTopics([topics.JOINT_STATES, *of_base[0]], of_base[1])
        super().__init__(told, Frames(same_frames, frame_poses), map_max_latency_s)
        self._listener = None if host is None else Listener(host.node)
        self._late: WaitReason | None = None
        self._connect_timeout_s = connect_timeout_s
        self._discovery_s = discovery_s
        self._given_host = host
        self._read_joints = convert.JointStateReader(spec, by_name=joint_order == "by_name")
        self._codec = convert.CommandCodec(spec)
        self._limiter = CommandLimiter(spec)
        self._guard: CommandGuard | None = None
        self._withholding = False
        self._publisher: Any = None

    @classmethod
    def from_parameters(
        cls, spec: RobotSpec, host: NodeHost, values: dict[str, Any], command_period_s: float
    ) -> RosRobot:
        """The backend as a node's parameters say; see :func:`gantry_ros.robots.ros_backend.ros_robot`."""
        names = ("joint_order", "gripper_message", "map_max_latency_s", *SHARED_PARAMETERS)
        return cls(spec, host=host, command_period_s=command_period_s, **{name: values[name] for name in names})

    def connect(self) -> None:
        """Subscribe, wait for a first state, and only then announce that commands will come.

        Raises:
            RobotError: If no state arrives, its joints are not the spec's, two nodes report it, or another node
                commands the robot already; nothing has been sent.
        """
        if self._host is not None:
            return
        self._host = self._given_host or self._make_host()
        node = self._host.node
        if self._listener is None:
            self._listener = Listener(node)
        self._guard = CommandGuard(node, self._command_topics(), self._watched_topics())
        subscriptions = [*self._open_senses(self._host, self._listener), *self._guard.subscriptions]
        self._entities += [("subscription", subscription) for subscription in subscriptions]
        if self._given_host is None:
            self._host.start()
        try:
            self._told.wait(self._host, self._connect_timeout_s, f"Robot '{self.spec.name}'")
            self.read()
            self._guard.settle(self._discovery_s)
            self._refuse_duplicate_publishers(node, DISCOVERY_S)
            self._introduce(node)
        except RobotError:
            self.close()
            raise
        self._publisher = self._make_publisher(self._guard)
        self._late = self._host.wait_reason("Readings are old")
        for look in (self._guard.look, self._listener.look, self._look_late):
            self._entities.append(("timer", self._host.create_timer(LOOK_PERIOD_S, look)))

    def now_s(self) -> float:
        """Local monotonic time."""
        return time.monotonic()

    def sleep_until(self, time_s: float) -> None:
        """Wait for a local monotonic time."""
        time.sleep(max(0.0, time_s - time.monotonic()))

    def read(self) -> RobotState:
        """The newest state.

        Raises:
            RobotError: If none has arrived, the newest is not of this robot, or two nodes speak for it.
        """
        newest = self._newest()
        joints, joints_s = newest[topics.JOINT_STATES]
        if not self._base_moves:
            arm = convert_arm.arm_state(self._read_joints(joints), joints_s, self._object_pose())
            return replace(arm, extra=self._scene())
        imu, imu_s = newest[topics.IMU]
        odometry, contacts = (
            self._told.fresh(topic, OPTIONAL_TIMEOUT_S) for topic in (topics.ODOM, topics.FOOT_CONTACTS)
        )
        return convert.robot_state(
            self._read_joints(joints), imu, min(joints_s, imu_s), odometry, contacts, self.frames
        )

    def write(self, command: JointCommand) -> JointCommand | None:
        """Publish a command within the spec's limits and return it.

        A limp command is withheld while another node commands the robot, and None is returned: between another's
        targets it would make the robot drop. Braking is sent whatever else is there; what moves the robot is refused.
        Positions cannot say that an arm shall be limp or damped; such a command is withheld as well.

        Raises:
            RobotError: If not connected, if shapes or numbers are wrong, or if another node commands the robot too.
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
            host.destroy(self._entities)
        self._entities.clear()
        self._listener = None if self._given_host is None else Listener(self._given_host.node)
        self._told.clear()
        self._maps.newest = None

    def refuse_other_commanders(self) -> None:
        """Refuse as soon as another node announces joint commands, as a newcomer should before it moves anything.

        A second node that tells of the robot is refused too; it may have been discovered late. Nothing is waited for.

        Raises:
            RobotError: With the names of the others.
        """
        if self._host is None or self._guard is None:
            return
        if not self._guard.alone():
            self._guard.look()
            self._guard.refuse()
        self._refuse_duplicate_publishers(self._host.node, 0.0)

    def statistics(self) -> dict[str, Any]:
        """Messages received per topic, those that repeated the one before, and other nodes that command the robot or
        speak for it.
        """
        return {**super().statistics(), **({} if self._guard is None else self._guard.values())}

    def _make_host(self) -> NodeHost:
        """A node of its own, where none is given."""
        return NodeHost(f"gantry_{self.spec.name}")

    def _command_topics(self) -> tuple[str, ...]:
        """Topics on which such a robot can be commanded."""
        return arm_commands.command_topics(self.spec)

    def _watched_topics(self) -> dict[str, Any]:
        """Every topic on which a message moves a joint of such a robot, and its class."""
        return arm_commands.watched_topics(self.spec)

    def _introduce(self, node: Node) -> None:
        """Say what is special about a robot that has just answered."""
        if not self._read_joints(self._newest()[topics.JOINT_STATES][0]).effort_measured:
            node.get_logger().info("The robot reports no torques: they count as zero, and no torque limit guards.")

    def _make_publisher(self, guard: CommandGuard) -> Any:
        if self._message == arm_commands.JOINT_COMMAND:
            own = guard.publisher(JointState, topics.JOINT_COMMAND)
            self._entities.append(("publisher", own.publisher))
            return own
        writer = ArmCommandWriter(guard, self.spec, self._message, self._gripper_message, self._command_period_s)
        self._entities += [("publisher", publisher) for publisher in writer.publishers]
        return writer

    def _newest(self) -> dict[str, tuple[Any, float]]:
        """The newest message of each topic and when it came.

        Raises:
            RobotError: If one that is needed has not come, or two nodes speak for the robot.
        """
        self._refuse_second_publisher()
        return self._told.complete()

    def _look_late(self) -> None:
        if self._late is not None:
            self._late.note(self._told.late_text())

    def _refuse_duplicate_publishers(self, node: Node, patience_s: float) -> None:
        for topic in (*self._told.required, *self._told.optional):
            refuse_two_publishers(node, topic, patience_s)

    def _withholds(self) -> bool:
        """Whether a limp command must not be sent, because another node commands the robot; a change is logged."""
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
