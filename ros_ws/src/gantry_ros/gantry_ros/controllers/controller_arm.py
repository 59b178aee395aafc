"""An arm behind controllers of ros2_control, as a backend of the control loop.

A position controller keeps its last command for ever, moves to it when it is switched on, and does not ask whether its
commander is alive. So the first command is the measured pose, the way from there is slow, and a watch tells the
controller the measured pose again when commands have stopped.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from gantry_hardware.backends.start_ramp import StartRamp
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.files.bounds import finite
from gantry_hardware.model.spec import RobotSpec
from gantry_ros.controllers.questions import ControllerSwitch, controller_parameters, require_listener
from gantry_ros.robots import arm_commands
from gantry_ros.robots.arm_commands import ArmCommandWriter
from gantry_ros.robots.ros_robot import RosRobot
from gantry_ros.runtime import topics
from gantry_ros.runtime.command_guard import DISCOVERY_S, CommandGuard
from gantry_ros.runtime.host import NodeHost

FloatArray = NDArray[np.float64]

MESSAGES = (arm_commands.POSITIONS, arm_commands.TRAJECTORY)
"""Values of ``command_message``: for a forward_command_controller of positions, for a joint_trajectory_controller."""
_TYPES = {
    arm_commands.POSITIONS: "std_msgs/msg/Float64MultiArray",
    arm_commands.TRAJECTORY: "trajectory_msgs/msg/JointTrajectory",
}
MATCH_S = 3.0
"""Longest wait until a controller has found this node's publisher."""


class ControllerArm(RosRobot):
    """Implements :class:`gantry_hardware.backends.backend.Robot` for an arm behind ros2_control.

    The joints' names and order are those that the controllers themselves tell (their parameter ``joints``); joint
    states are sorted by name. Limp and damping commands are withheld, since positions cannot express them. If no
    command has come for ``command_timeout_s``, a timer in another thread tells the controllers the measured pose, and
    a gripper what it was told last; so does :meth:`close`.

    Args:
        spec: The arm.
        controller: Name of the arm's controller.
        command_message: ``positions`` or ``joint_trajectory``.
        gripper_controller: Name of the gripper's, of the same kind; empty where the gripper is a joint of the arm's.
        joint_states: Topic of the joint_state_broadcaster.
        activate: Empty where the controllers are active; ``controller_manager`` or the name of a
            ``std_srvs/SetBool`` service to switch them on in :meth:`connect`, after the measured pose was told, and off
            in :meth:`close`.
        command_timeout_s: Age of the newest command from which the arm is held.
        start_speed_rad_s: Largest speed when commands begin, of sliding joints m/s.
        command_period_s: Time between two commands, in which a trajectory's point is reached.
        connect_timeout_s: How long :meth:`connect` waits for joint states.
        discovery_s: How long it looks for other commanders.

    Raises:
        GantryError: If an option has no such value, or the robot is no arm.
    """

    def __init__(
        self,
        spec: RobotSpec,
        *,
        controller: str = "forward_position_controller",
        command_message: str = arm_commands.POSITIONS,
        gripper_controller: str = "",
        joint_states: str = topics.JOINT_STATES,
        activate: str = "",
        command_timeout_s: float = 0.2,
        start_speed_rad_s: float = 0.5,
        command_period_s: float = 0.05,
        connect_timeout_s: float = 10.0,
        discovery_s: float = DISCOVERY_S,
    ) -> None:
        if command_message not in MESSAGES:
            raise UnknownNameError("command_message of ros2-control", command_message, MESSAGES)
        gripper = command_message if gripper_controller else arm_commands.WITH_ARM
        super().__init__(
            spec,
            joint_order="by_name",
            command_message=command_message,
            gripper_message=gripper,
            command_period_s=command_period_s,
            connect_timeout_s=connect_timeout_s,
            discovery_s=discovery_s,
        )
        self._remaps = _remaps(controller, gripper_controller, joint_states)
        self._controllers = [controller, *([gripper_controller] if gripper_controller else [])]
        self._orders: list[list[int]] = []
        self._activate = activate
        self._watch = _Watch(
            spec, finite("command_timeout_s", command_timeout_s, 0.02, 10.0, RobotError), start_speed_rad_s
        )

    def connect(self) -> None:
        """See :meth:`gantry_ros.robots.ros_robot.RosRobot.connect`; then, where it was asked for, switch on.

        Raises:
            RobotError: Also if no controller listens, or one has other joints, takes no positions or stays off.
        """
        if self._host is not None:
            return
        self._watch.forget()
        super().connect()
        assert self._host is not None
        self._entities.append(("timer", self._host.create_timer(0.25 * self._watch.timeout_s, self._hold_if_late)))
        if not self._activate:
            return
        try:
            switch = ControllerSwitch(self._host.node, self._activate, self._controllers)
            self._wait_for_match()
            # A controller goes to its last command when it is switched on: let that be where the arm is.
            for active in (False, True):
                self._publish(self.read().joint_pos_rad)
                if not active:
                    switch.set(True)
        except RobotError:
            self.close()
            raise
        self._watch.switch = switch

    def write(self, command: JointCommand) -> JointCommand | None:
        """Publish the positions of a command within the limits, on the slow way from the measured pose at first.

        Raises:
            RobotError: If not connected, if shapes or numbers are wrong, if another node commands the robot too, or if
                the newest joint states are too old to begin from.
        """
        limited, _ = self._limiter.clamp(command)
        if self._host is None or self._publisher is None or self._guard is None:
            raise RobotError("The arm behind ros2_control is not connected; call connect() first.")
        if not arm_commands.is_expressible(limited):
            return None
        self._guard.refuse_after_patience()
        state, now_s = self.read(), self.now_s()
        sent = limited.with_pos(self._watch.begin(limited.pos_rad, state.joint_pos_rad, state.stamp_s, now_s))
        self._publish(sent.pos_rad)
        return sent

    def close(self) -> None:
        """Tell the controllers the measured pose, switch them off if they were switched on here, and unsubscribe."""
        if self._host is not None and self._publisher is not None:
            switch, self._watch.switch = self._watch.switch, None
            if (pose := self._watch.pose_to_hold(self._measured())) is not None:
                self._publish(pose)
                time.sleep(0.05)  # It leaves before the publisher does.
            if switch is not None:
                try:
                    switch.set(False)
                except RobotError as error:
                    self._host.node.get_logger().error(str(error))
        super().close()

    def statistics(self) -> dict[str, Any]:
        """Those of every robot behind topics, and holds so far."""
        return {**super().statistics(), "holds": self._watch.holds}

    def _make_host(self) -> NodeHost:
        arguments = [part for remap in self._remaps for part in ("-r", remap)]
        return NodeHost(f"gantry_{self.spec.name}", ["--ros-args", *arguments])

    def _introduce(self, node: Node) -> None:
        super()._introduce(node)
        gripper = arm_commands.gripper_joints(self.spec) if len(self._controllers) > 1 else []
        arm = [i for i in range(self.spec.num_joints) if i not in gripper]
        by_message = (arm_commands.ARM_TOPICS, arm_commands.GRIPPER_TOPICS)
        self._orders = []
        for name, joints, by in zip(self._controllers, (arm, gripper), by_message, strict=False):
            require_listener(node, by[self._message], _TYPES[self._message], DISCOVERY_S)
            self._orders.append(self._order(node, name, joints))

    def _order(self, node: Node, controller: str, joints: list[int]) -> list[int]:
        """Places of the joints in the order of a controller."""
        told = controller_parameters(node, controller, ["joints", "interface_name", "command_interfaces"])
        expected = [self.spec.joint_names[i] for i in joints]
        names = told.get("joints", [])
        if sorted(names) != sorted(expected):
            raise RobotError(
                f"Controller '{controller}' has the joints {', '.join(names) or '(none)'}; expected those of "
                f"'{self.spec.name}': {', '.join(expected)}."
            )
        interfaces = told.get("command_interfaces") or [told.get("interface_name") or "position"]
        if interfaces != ["position"]:
            raise RobotError(
                f"Controller '{controller}' commands {', '.join(interfaces)}; expected position alone: one that "
                "commands speed or torque moves on when commands stop."
            )
        return [self.spec.joint_index(name) for name in names]

    def _make_publisher(self, guard: CommandGuard) -> ArmCommandWriter:
        writer = ArmCommandWriter(
            guard, self.spec, self._message, self._gripper_message, self._command_period_s, self._orders
        )
        self._entities += [("publisher", publisher) for publisher in writer.publishers]
        return writer

    def _wait_for_match(self) -> None:
        """Wait until the controllers have found the publishers."""
        deadline_s = time.monotonic() + MATCH_S
        # The node itself listens on its topics as well, to see other commanders.
        while any(publisher.get_subscription_count() < 2 for publisher in self._publisher.publishers):
            if time.monotonic() > deadline_s:
                raise RobotError(f"{', '.join(self._controllers)}: no controller has found this node in {MATCH_S:g} s.")
            time.sleep(0.02)

    def _measured(self) -> FloatArray | None:
        """Positions (n,) of the newest joint states; None where there are none that count."""
        try:
            return self.read().joint_pos_rad
        except RobotError:
            return None

    def _publish(self, pos_rad: FloatArray) -> None:
        with self._watch.lock:
            self._publisher.publish(JointCommand.position(self.spec, pos_rad))

    def _hold_if_late(self) -> None:
        """In the executor's thread: hold the arm if the loop has stopped."""
        if self._publisher is not None and self._watch.is_late(self.now_s()):
            pose = self._watch.pose_to_hold(self._measured())
            if pose is not None:
                self._publish(pose)


class _Watch:
    """Newest command, its time, and the pose to hold when no more comes.

    Args:
        spec: The arm.
        timeout_s: Age from which the newest command is late.
        start_speed_rad_s: Of the way to the first targets.
    """

    def __init__(self, spec: RobotSpec, timeout_s: float, start_speed_rad_s: float) -> None:
        self.timeout_s = timeout_s
        self.lock = threading.Lock()
        self.holds = 0
        self.switch: ControllerSwitch | None = None
        self._gripper = np.array([name in spec.gripper_joints for name in spec.joint_names])
        self._ramp = StartRamp(start_speed_rad_s, timeout_s)
        self._newest: tuple[FloatArray, float] | None = None
        self._held: FloatArray | None = None

    def forget(self) -> None:
        """A new connection begins."""
        self._ramp.restart()
        self._newest = self._held = None

    def begin(self, target: FloatArray, measured: FloatArray, stamp_s: float, now_s: float) -> FloatArray:
        """Positions (n,) to command now for a target (n,)."""
        if self._ramp.starts_anew(now_s) and now_s - stamp_s > self.timeout_s:
            raise RobotError(
                f"The newest joint states are {now_s - stamp_s:.2f} s old; the arm begins only from ones younger than "
                f"{self.timeout_s:g} s."
            )
        pos = self._ramp.limit(target, measured, now_s)
        self._newest, self._held = (pos, now_s), None
        return pos

    def is_late(self, now_s: float) -> bool:
        """Whether commands have begun and stopped."""
        return self._newest is not None and now_s - self._newest[1] > self.timeout_s

    def pose_to_hold(self, measured: FloatArray | None) -> FloatArray | None:
        """Pose (n,): where the arm was when it was first asked for since the newest command, a gripper as it was told;
        None before any command, or where the pose is not known: the controller keeps its last target then."""
        if self._newest is None:
            return None
        if self._held is None:
            if measured is None:
                return None
            self.holds += 1
            self._held = np.where(self._gripper, self._newest[0], measured)
        return self._held


def _remaps(controller: str, gripper_controller: str, joint_states: str) -> list[str]:
    """Remapping rules from the names of topics here to those of the controllers."""
    rules = [f"{topics.JOINT_STATES}:={joint_states}"] if joint_states != topics.JOINT_STATES else []
    for by_message, name in ((arm_commands.ARM_TOPICS, controller), (arm_commands.GRIPPER_TOPICS, gripper_controller)):
        if name:
            rules += [f"{topic}:={name}/{topic.rpartition('/')[2]}" for topic in by_message.values()]
    return rules
