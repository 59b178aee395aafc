"""Steering and speed commands to a car: as ``AckermannDriveStamped`` or as a Twist.

``ackermann_msgs`` is no part of the ROS 2 wheels; it is used where it is installed. In it an acceleration of 0 asks for
a speed "as quickly as possible", so that each command tells the acceleration that leads from the measured speed to the
set-point within a control period. A Twist tells speed and yaw rate, neither acceleration nor, at standstill, steering.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Twist, TwistStamped
from rclpy.node import Node
from std_msgs.msg import Header

from gantry_deploy.contract.drive_spec import DRIVE, STEERING
from gantry_deploy.recording.ros_messages import BASE_FRAME
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.model.cars import CarSpec
from gantry_ros.convert import car as convert_car
from gantry_ros.runtime import topics
from gantry_ros.runtime.command_guard import CommandGuard

ACKERMANN, TWIST, TWIST_STAMPED = "ackermann", "twist", "twist_stamped"
CAR_MESSAGES = (ACKERMANN, TWIST, TWIST_STAMPED)
"""Values of ``command_message`` for a car; the first where it is installed, otherwise the second, if nothing is
said."""
CAR_TOPICS = (topics.DRIVE, topics.DRIVE_TWIST)
"""Topics on which a car can be commanded."""
LEAST_ACCEL_M_S2 = 0.05
"""No smaller acceleration is told: 0 would mean as quickly as possible."""


def ackermann_type() -> Any:
    """The class ``ackermann_msgs.msg.AckermannDriveStamped``; None where that package is not installed."""
    try:
        from ackermann_msgs.msg import AckermannDriveStamped  # type: ignore[import-not-found]
    except ImportError:
        return None
    return AckermannDriveStamped


def chosen_car_message(message: str) -> str:
    """Message type by which a car is commanded: the requested one, or the available one if that is empty.

    Raises:
        UnknownNameError: If there is no such message.
        RobotError: If it is not installed.
    """
    if not message:
        return TWIST if ackermann_type() is None else ACKERMANN
    if message not in CAR_MESSAGES:
        raise UnknownNameError("command_message of a car", message, CAR_MESSAGES)
    if message == ACKERMANN and ackermann_type() is None:
        raise RobotError(
            f"command_message '{ACKERMANN}' needs the package ackermann_msgs, which is not installed here (it is no "
            f"part of the ROS 2 wheels). Others: {', '.join(CAR_MESSAGES[1:])}."
        )
    return message


def watched_car_topics(message: str) -> dict[str, Any]:
    """Every topic on which a message moves a car, and its class; ``message`` is the one by which it is commanded."""
    kind = ackermann_type()
    twist = {topics.DRIVE_TWIST: TwistStamped if message == TWIST_STAMPED else Twist}
    return twist if kind is None else {topics.DRIVE: kind, **twist}


def told_acceleration(car: CarSpec, speed_m_s: float, measured_m_s: float, period_s: float) -> float:
    """Size of the acceleration from the measured speed to the set-point within a control period, never 0 and within
    the car's limits, m/s^2."""
    limit = car.brake_limit_m_s2 if abs(speed_m_s) < abs(measured_m_s) else car.accel_limit_m_s2
    return float(np.clip(abs(speed_m_s - measured_m_s) / period_s, min(LEAST_ACCEL_M_S2, limit), limit))


class CarCommandWriter:
    """Publishes steering and speed of commands.

    Args:
        node: Whose clock stamps.
        guard: Publishes, and knows again what it has sent.
        car: Dimensions and limits.
        message: A name of :data:`CAR_MESSAGES`.
    """

    def __init__(self, node: Node, guard: CommandGuard, car: CarSpec, message: str) -> None:
        self._node, self._car, self._message = node, car, message
        topic = topics.DRIVE if message == ACKERMANN else topics.DRIVE_TWIST
        self._kind = watched_car_topics(message)[topic]
        self.own = guard.publisher(self._kind, topic)
        """Its publisher, to be taken down with the node's others."""

    def publish(self, command: JointCommand, accel_m_s2: float) -> None:
        """Send a command; ``accel_m_s2`` is the size of the acceleration that it asks for."""
        stamp = self._node.get_clock().now().to_msg()
        self.own.publish(self.message(command, accel_m_s2, stamp))

    def message(self, command: JointCommand, accel_m_s2: float, stamp: Time) -> Any:
        """Message for a command."""
        steering, speed = float(command.pos_rad[STEERING]), float(command.vel_rad_s[DRIVE])
        if self._message == ACKERMANN:
            rate = self._car.steering_rate_limit_rad_s
            return convert_car.fill_ackermann(self._kind(), steering, speed, accel_m_s2, rate, stamp)
        twist = convert_car.drive_twist_message(steering, speed, self._car.wheelbase_m)
        if self._message == TWIST:
            return twist
        return TwistStamped(header=Header(stamp=stamp, frame_id=BASE_FRAME), twist=twist)
