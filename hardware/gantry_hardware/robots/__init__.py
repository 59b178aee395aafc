"""One file of numbers per robot, and the registry that finds them, installed third parties included."""

from __future__ import annotations

from gantry_hardware.errors import RobotError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.plugins import find_plugin, load_plugin, plugin_names

GROUP = "gantry.robots"
"""Entry-point group: name -> :class:`RobotSpec`."""


def robot_names() -> list[str]:
    """Names in the entry-point group ``gantry.robots``, sorted."""
    return plugin_names(GROUP)


def robot_spec(name: str) -> RobotSpec:
    """Look a robot up by name.

    Raises:
        UnknownNameError: If no installed package offers it.
        RobotError: If what the entry point names is no :class:`RobotSpec`, cannot be loaded, or has another name.
    """
    entry = find_plugin(GROUP, name, "robot")
    spec = load_plugin(entry, "Robot", RobotError)
    if not isinstance(spec, RobotSpec):
        raise RobotError(f"Entry point '{entry.value}' is a {type(spec).__name__}, expected a RobotSpec.")
    if spec.name != name:
        raise RobotError(f"Entry point '{entry.value}' registers '{name}', and its RobotSpec is '{spec.name}'.")
    return spec
