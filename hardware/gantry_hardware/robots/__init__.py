"""One file of numbers per robot, and the registry that finds them, installed third parties included."""

from __future__ import annotations

from importlib.metadata import entry_points

from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.spec import RobotSpec


def robot_names() -> list[str]:
    """Names in the entry-point group ``gantry.robots``, sorted."""
    return sorted({entry.name for entry in entry_points(group="gantry.robots")})


def robot_spec(name: str) -> RobotSpec:
    """Look a robot up by name.

    Raises:
        UnknownNameError: If no installed package offers it.
        RobotError: If what the entry point names is no :class:`RobotSpec`, cannot be loaded, or has another name.
    """
    for entry in entry_points(group="gantry.robots"):
        if entry.name == name:
            try:
                spec = entry.load()
            except (ImportError, AttributeError) as error:
                raise RobotError(f"Robot '{name}': entry point '{entry.value}' cannot be loaded: {error}.") from error
            if not isinstance(spec, RobotSpec):
                raise RobotError(f"Entry point '{entry.value}' is a {type(spec).__name__}, expected a RobotSpec.")
            if spec.name != name:
                raise RobotError(f"Entry point '{entry.value}' registers '{name}', and its RobotSpec is '{spec.name}'.")
            return spec
    raise UnknownNameError("robot", name, robot_names())
