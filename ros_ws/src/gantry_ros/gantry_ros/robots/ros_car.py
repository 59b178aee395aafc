"""A car behind ROS 2 topics, as a backend of the control loop: odometry in, steering and speed out."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from rclpy.node import Node

from gantry_deploy.contract.drive_spec import DRIVE, STEERING
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.backends.steering import SteeringEstimate
from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots.cars import car_of
from gantry_ros.convert import car as convert_car
from gantry_ros.convert import robot as convert
from gantry_ros.robots.car_commands import (
    CAR_TOPICS,
    CarCommandWriter,
    chosen_car_message,
    told_acceleration,
    watched_car_topics,
)
from gantry_ros.robots.ros_robot import SHARED_PARAMETERS, RosRobot
from gantry_ros.robots.state_topics import StateTopics
from gantry_ros.runtime import topics
from gantry_ros.runtime.command_guard import DISCOVERY_S, CommandGuard
from gantry_ros.runtime.host import NodeHost

COMMANDED, MEASURED = "commanded", "joint_states"
STEERING_SOURCES = (COMMANDED, MEASURED)
"""Values of ``steering``: what was commanded, as far as the steering's rate can have turned it since, or the joint
``steering`` of the joint states."""


class RosCar(RosRobot):
    """Implements :class:`gantry_hardware.backends.backend.Robot` for a car on topics.

    ``stamp_s`` of a state is the local monotonic time at which the odometry was received, and the joint states where
    the steering is measured, of two the older one.

    Args:
        spec: The car.
        host: Node to use.
        steering: A name of :data:`STEERING_SOURCES`.
        connect_timeout_s: How long :meth:`connect` waits for a first state.
        discovery_s: How long :meth:`connect` then looks for other commanders of the car.
        command_message: A name of :data:`gantry_ros.robots.car_commands.CAR_MESSAGES`, or empty.
        command_period_s: Time between two commands.
        same_frames: Names that mean the same frame, see :data:`gantry_ros.runtime.frames.PARAMETERS`.
        frame_poses: Where sensors sit, likewise.

    Raises:
        UnknownNameError: If an option has no such value.
        RobotError: If the robot is no car, or the message is not installed.
    """

    def __init__(
        self,
        spec: RobotSpec,
        *,
        host: NodeHost | None = None,
        steering: str = COMMANDED,
        connect_timeout_s: float = 10.0,
        discovery_s: float = DISCOVERY_S,
        command_message: str = "",
        command_period_s: float = 0.1,
        same_frames: str = "",
        frame_poses: str = "",
    ) -> None:
        car = car_of(spec)
        if steering not in STEERING_SOURCES:
            raise UnknownNameError("steering", steering, STEERING_SOURCES)
        super().__init__(
            spec,
            host=host,
            connect_timeout_s=connect_timeout_s,
            discovery_s=discovery_s,
            command_period_s=command_period_s,
            same_frames=same_frames,
            frame_poses=frame_poses,
        )
        self._message = chosen_car_message(command_message)
        self._car = car
        self._measured = steering == MEASURED
        self._told = StateTopics([topics.ODOM, topics.JOINT_STATES] if self._measured else [topics.ODOM], [])
        self._turned = SteeringEstimate(car.steering_rate_limit_rad_s)
        self._told_m_s = 0.0

    @classmethod
    def from_parameters(
        cls, spec: RobotSpec, host: NodeHost, values: dict[str, Any], command_period_s: float
    ) -> RosCar:
        """The backend as a node's parameters say; see :func:`gantry_ros.robots.ros_backend.ros_robot`."""
        names = ("steering", *SHARED_PARAMETERS)
        return cls(spec, host=host, command_period_s=command_period_s, **{name: values[name] for name in names})

    def read(self) -> RobotState:
        """The newest state.

        Raises:
            RobotError: If none has arrived, or the newest tells no orientation or no steering.
        """
        newest = self._newest()
        odometry, stamp_s = newest[topics.ODOM]
        convert.require_odometry(odometry, self.frames)
        if not self._measured:
            return convert_car.car_state(odometry, self._turned.at(time.monotonic()), 0.0, stamp_s)
        joints, joints_s = newest[topics.JOINT_STATES]
        return convert_car.car_state(odometry, *convert_car.steering_of(joints), min(stamp_s, joints_s))

    def write(self, command: JointCommand) -> JointCommand | None:
        """Publish steering and speed of a command within the car's limits and return it.

        Slowing down is sent whatever else commands the car; what keeps it moving is refused then. A command that does
        not hold the steering has no angle that counts, and is withheld.

        Raises:
            RobotError: If not connected, if shapes or numbers are wrong, or if another node commands the car too.
        """
        writer = self._publisher
        if self._host is None or self._guard is None or not isinstance(writer, CarCommandWriter):
            raise RobotError("The ROS car is not connected; call connect() first.")
        limited, _ = self._limiter.clamp(command)
        if not limited.stiffness_nm_rad[STEERING] > 0.0:
            return None
        speed, measured = float(limited.vel_rad_s[DRIVE]), self._speed()
        if speed != 0.0 and not abs(speed) < abs(self._told_m_s if measured is None else measured):
            self._guard.refuse_after_patience()
        before = self._told_m_s if measured is None else measured
        writer.publish(limited, told_acceleration(self._car, speed, before, self._command_period_s))
        self._turned.tell(float(limited.pos_rad[STEERING]), time.monotonic())
        self._told_m_s = speed
        return limited

    def _speed(self) -> float | None:
        """Measured speed, m/s; None where the odometry tells no number."""
        found = self._told.newest(topics.ODOM)
        speed = None if found is None else float(found[0].twist.twist.linear.x)
        return speed if speed is not None and np.isfinite(speed) else None

    def _command_topics(self) -> tuple[str, ...]:
        return CAR_TOPICS

    def _watched_topics(self) -> dict[str, Any]:
        return watched_car_topics(self._message)

    def _introduce(self, node: Node) -> None:
        topic = node.resolve_topic_name(topics.DRIVE if self._message == "ackermann" else topics.DRIVE_TWIST)
        node.get_logger().info(f"Commands leave as '{self._message}' on {topic}.")

    def _make_publisher(self, guard: CommandGuard) -> Any:
        assert self._host is not None
        writer = CarCommandWriter(self._host.node, guard, self._car, self._message)
        self._entities.append(("publisher", writer.own.publisher))
        return writer
