"""Position commands to an arm's controllers: types of messages, their topics, with or without the gripper.

The forms are those of ros2_control: ``joint_trajectory_controller`` takes ``trajectory_msgs/JointTrajectory``, a
``forward_command_controller`` of positions takes ``std_msgs/Float64MultiArray``. A gripper is a joint of the same
controller, or has a controller of its own, of either kind or one that takes ``control_msgs/GripperCommand``. That
package is no part of the ROS 2 wheels; it is used where it is installed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from rclpy.publisher import Publisher
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from gantry_deploy.embodiments.registry import embodiment_of_robot
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.model.spec import RobotSpec
from gantry_ros.convert import arm as convert_arm
from gantry_ros.runtime import topics
from gantry_ros.runtime.command_guard import CommandGuard, OwnPublisher

JOINT_COMMAND, TRAJECTORY, POSITIONS = "joint_command", "joint_trajectory", "positions"
COMMAND_MESSAGES = (JOINT_COMMAND, TRAJECTORY, POSITIONS)
"""Values of ``command_message``: a JointState with gains, as legs take it, or one of ros2_control's."""
WITH_ARM, GRIPPER_COMMAND = "with_arm", "gripper_command"
GRIPPER_MESSAGES = (WITH_ARM, TRAJECTORY, POSITIONS, GRIPPER_COMMAND)
"""Values of ``gripper_message``."""
ARM_TOPICS = {TRAJECTORY: topics.ARM_TRAJECTORY, POSITIONS: topics.ARM_POSITIONS}
GRIPPER_TOPICS = {
    TRAJECTORY: topics.GRIPPER_TRAJECTORY,
    POSITIONS: topics.GRIPPER_POSITIONS,
    GRIPPER_COMMAND: topics.GRIPPER_COMMAND,
}

KINDS = {TRAJECTORY: JointTrajectory, POSITIONS: Float64MultiArray}
"""Their classes, but for that of another package, see :func:`gripper_command_type`."""


def takes_positions(spec: RobotSpec) -> bool:
    """Whether positions alone may command a robot: one that is held, not damped, when nothing may move it."""
    return embodiment_of_robot(spec).holds_position


def chosen_message(spec: RobotSpec, message: str) -> str:
    """The message that a robot is commanded by: what was asked for, or what its kind takes if that is empty.

    Raises:
        UnknownNameError: If there is no such message.
        RobotError: If positions are asked for and the robot is no arm.
    """
    if not message:
        return TRAJECTORY if takes_positions(spec) else JOINT_COMMAND
    if message not in COMMAND_MESSAGES:
        raise UnknownNameError("command_message", message, COMMAND_MESSAGES)
    if message != JOINT_COMMAND and not takes_positions(spec):
        raise RobotError(
            f"command_message '{message}' holds positions alone, with which '{spec.name}', which is no arm, cannot be "
            f"damped; expected '{JOINT_COMMAND}'."
        )
    return message


def command_topics(spec: RobotSpec) -> tuple[str, ...]:
    """Topics on which a robot of that kind can be told where to move its joints."""
    return (topics.JOINT_COMMAND, *(ARM_TOPICS.values() if takes_positions(spec) else ()))


def watched_topics(spec: RobotSpec) -> dict[str, Any]:
    """Every topic on which a message moves a joint of a robot of that kind, and its class."""
    watched: dict[str, Any] = {topics.JOINT_COMMAND: JointState}
    if takes_positions(spec):
        for by_message in (ARM_TOPICS, GRIPPER_TOPICS):
            watched |= {topic: KINDS[message] for message, topic in by_message.items() if message in KINDS}
        with contextlib.suppress(RobotError):  # Where its package is not installed, no such message arrives.
            watched[topics.GRIPPER_COMMAND] = gripper_command_type()
    return watched


def gripper_joints(spec: RobotSpec) -> list[int]:
    """Places of a gripper's joints."""
    return [spec.joint_index(name) for name in spec.gripper_joints]


def gripper_command_type() -> Any:
    """The class ``control_msgs.msg.GripperCommand``.

    Raises:
        RobotError: If the package is not installed.
    """
    try:
        from control_msgs.msg import GripperCommand  # type: ignore[import-not-found]
    except ImportError as error:
        raise RobotError(
            f"gripper_message '{GRIPPER_COMMAND}' needs the package control_msgs, which is not installed here (it is "
            f"no part of the ROS 2 wheels). Others: {', '.join(GRIPPER_MESSAGES[:3])}."
        ) from error
    return GripperCommand


class ArmCommandWriter:
    """Publishes the positions of commands; their gains stay behind, since the controllers have gains of their own.

    Args:
        guard: Publishes, and knows again what it has sent.
        spec: The arm.
        message: ``joint_trajectory`` or ``positions``.
        gripper: A name of :data:`GRIPPER_MESSAGES`.
        period_s: Time between two commands, in which a trajectory reaches its point.
        orders: Places of the joints in the order of a controller whose array names none: of the arm's, and of the
            gripper's if that has its own; the robot's order if not given.

    Raises:
        UnknownNameError: If there is no such message.
        RobotError: If the gripper's message is not installed.
    """

    def __init__(
        self,
        guard: CommandGuard,
        spec: RobotSpec,
        message: str,
        gripper: str,
        period_s: float,
        orders: Sequence[Sequence[int]] = (),
    ) -> None:
        if message not in ARM_TOPICS:
            raise UnknownNameError("command_message of an arm", message, ARM_TOPICS)
        if gripper not in GRIPPER_MESSAGES:
            raise UnknownNameError("gripper_message", gripper, GRIPPER_MESSAGES)
        self._spec, self._period_s = spec, period_s
        own = gripper_joints(spec) if gripper != WITH_ARM else []
        arm = [i for i in range(spec.num_joints) if i not in own]
        self._parts = [(message, arm, self._own(guard, message, ARM_TOPICS[message]))]
        if own:
            self._parts.append((gripper, own, self._own(guard, gripper, GRIPPER_TOPICS[gripper])))
        for i, order in enumerate(orders):
            self._parts[i] = (self._parts[i][0], list(order), self._parts[i][2])

    @property
    def publishers(self) -> list[Publisher]:
        """All that were made, to be taken down with the node's others."""
        return [own.publisher for _, _, own in self._parts]

    def publish(self, command: JointCommand) -> None:
        """Send the positions of a command."""
        for message, joints, publisher in self._parts:
            names, pos_rad = [self._spec.joint_names[i] for i in joints], command.pos_rad[joints]
            if message == TRAJECTORY:
                publisher.publish(convert_arm.trajectory_message(names, pos_rad, self._period_s))
            elif message == POSITIONS:
                publisher.publish(convert_arm.positions_message(names, pos_rad))
            else:
                # No limit of its own: the gripper's controller has one.
                publisher.publish(gripper_command_type()(position=float(pos_rad[0]), max_effort=0.0))

    @staticmethod
    def _own(guard: CommandGuard, message: str, topic: str) -> OwnPublisher:
        return guard.publisher(KINDS[message] if message in KINDS else gripper_command_type(), topic)


def is_expressible(command: JointCommand) -> bool:
    """Whether positions alone say what a command wants: limp and damping ones have no position that counts."""
    return bool(np.all(command.stiffness_nm_rad > 0.0))
