"""Command inputs of a simulated car: drive commands as ``AckermannDriveStamped`` where that is installed, and as a
Twist.

A car that hears nothing any more brakes by itself and keeps its steering, as a car's own controller must.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from geometry_msgs.msg import Twist, TwistStamped
from rclpy.node import Node

from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.model.cars import CarSpec
from gantry_ros.convert import car as convert_car
from gantry_ros.nodes.sim_node import Inputs
from gantry_ros.robots.car_commands import CAR_MESSAGES, TWIST_STAMPED, ackermann_type
from gantry_ros.runtime import topics


@dataclass(frozen=True)
class Order:
    """Command to a car."""

    steering_rad: float
    """Angle of the steering."""
    speed_m_s: float
    """Speed set-point."""
    accel_m_s2: float | None
    """Size of the acceleration towards it; None where the message tells none."""


class CarInputs(Inputs):
    """The newest drive command of a simulated car.

    Args:
        node: To listen with.
        car: Dimensions and limits.
        watchdog_s: Without a command for so long the car brakes.
        message: A name of ``CAR_MESSAGES``; empty for Ackermann, where it is installed,
            and Twist.
        refuse_two: Whether two commanders are refused.

    Raises:
        UnknownNameError: If there is no such message.
    """

    def __init__(self, node: Node, car: CarSpec, watchdog_s: float, message: str = "", refuse_two: bool = True) -> None:
        if message and message not in CAR_MESSAGES:
            raise UnknownNameError("drive_message", message, CAR_MESSAGES)
        super().__init__(node, watchdog_s, "drive command", "braking", refuse_two)
        self._car = car
        self._newest: Order | None = None
        self._newest_s = 0.0
        self._news = False
        stamped = message == TWIST_STAMPED
        self._listen(
            TwistStamped if stamped else Twist,
            topics.DRIVE_TWIST,
            lambda message: self._take(self._order_of_twist(message)),
            topics.DRIVE_TWIST,
        )
        if (kind := ackermann_type()) is not None:
            self._listen(
                kind, topics.DRIVE, lambda message: self._take(self._order_of_ackermann(message)), topics.DRIVE
            )

    def choose(self, now_s: float) -> Order | None:
        """Order from now on; None to go on as before.

        Args:
            now_s: Local monotonic time.
        """
        with self._lock:
            newest = self._newest
            if newest is None:
                return None
            lost, torn = now_s - self._newest_s > self._watchdog_s, self.torn(now_s)
            noted = self._note(lost=lost, farewell="stop" if newest.speed_m_s == 0.0 else "", torn=torn)
            if lost or torn:
                return Order(newest.steering_rad, 0.0, self._car.brake_limit_m_s2) if noted else None
            news, self._news = self._news, False
            return newest if news else None

    def _forget(self) -> None:
        self._newest, self._news = None, False

    def _order_of_ackermann(self, message: Any) -> Order:
        drive = message.drive
        # An acceleration of 0 asks for the quickest, which is what the car can do.
        accel = abs(float(drive.acceleration)) or max(self._car.accel_limit_m_s2, self._car.brake_limit_m_s2)
        return Order(float(drive.steering_angle), float(drive.speed), accel)

    def _order_of_twist(self, message: Twist | TwistStamped) -> Order:
        before = 0.0 if self._newest is None else self._newest.steering_rad
        return Order(*convert_car.steering_of_twist(message, self._car.wheelbase_m, before), None)

    def _take(self, order: Order) -> None:
        if not math.isfinite(order.steering_rad + order.speed_m_s + (order.accel_m_s2 or 0.0)):
            raise RobotError(f"A drive command holds a number that is not finite: {order}.")
        with self._lock:
            self._newest, self._newest_s, self._news = order, time.monotonic(), True
