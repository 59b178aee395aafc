"""Robots in numbers, and the interface that simulated and real ones share."""

from gantry_hardware.backend import Robot
from gantry_hardware.errors import GantryError, RobotError, UnknownNameError
from gantry_hardware.spec import JointSpec, RobotSpec
from gantry_hardware.state import JointCommand, RobotState

__all__ = [
    "GantryError",
    "JointCommand",
    "JointSpec",
    "Robot",
    "RobotError",
    "RobotSpec",
    "RobotState",
    "UnknownNameError",
]
