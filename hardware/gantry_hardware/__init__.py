"""Robots in numbers, and the interface that simulated and real ones share."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gantry_hardware.backends.backend import Robot
    from gantry_hardware.backends.state import JointCommand, RobotState
    from gantry_hardware.errors import GantryError, RobotError, UnknownNameError
    from gantry_hardware.model.spec import JointSpec, RobotSpec

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

_MODULES = {
    "backends.backend": ("Robot",),
    "errors": ("GantryError", "RobotError", "UnknownNameError"),
    "model.spec": ("JointSpec", "RobotSpec"),
    "backends.state": ("JointCommand", "RobotState"),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: an error message needs none of numpy."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
