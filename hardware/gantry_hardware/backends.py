"""The registry of robot backends: what a lower shelf may start by name without importing it."""

from __future__ import annotations

import inspect
from importlib.metadata import entry_points
from typing import Any

from gantry_hardware.backend import Robot
from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.spec import RobotSpec

GROUP = "gantry.backends"
"""Entry-point group: name -> callable ``(spec, **options) -> Robot``."""

SIMULATED = ("mock", "mujoco")
"""Backends that move no robot of metal. Every other one may."""


def backend_names() -> list[str]:
    """Names in the entry-point group ``gantry.backends``, sorted."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def make_backend(name: str, spec: RobotSpec, **options: Any) -> Robot:
    """Build a backend by name; it is not connected yet.

    Args:
        name: A name of :func:`backend_names`, for example ``mock`` or ``mujoco``.
        spec: The robot.
        options: Keyword arguments of the backend's own constructor.

    Raises:
        UnknownNameError: If no installed package offers the backend, or if it has no such option.
        RobotError: If the backend's packages are not installed, or what it builds is no robot.
    """
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            try:
                factory = entry.load()
            except ImportError as error:
                raise RobotError(f"Backend '{name}' ({entry.value}) cannot be loaded here: {error}.") from error
            _check_options(name, factory, options)
            robot = factory(spec, **options)
            if not isinstance(robot, Robot):
                raise RobotError(f"Backend '{name}' built a {type(robot).__name__}, which is no Robot.")
            return robot
    raise UnknownNameError("robot backend", name, backend_names())


def _check_options(name: str, factory: Any, options: dict[str, Any]) -> None:
    parameters = list(inspect.signature(factory).parameters.values())[1:]
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters]
    for option in options:
        if option not in known:
            raise UnknownNameError(f"option of backend '{name}'", option, known)
