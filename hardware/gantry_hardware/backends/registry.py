"""The registry of robot backends: what a lower shelf may start by name without importing it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from typing import Any

from gantry_hardware.backends.backend import Robot
from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.files.bounds import MAX_SEED
from gantry_hardware.files.text import plain_text
from gantry_hardware.model.capabilities import missing_methods
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.plugins import entry_points, find_plugin, plugin_names

GROUP = "gantry.backends"
"""Entry-point group: name -> callable ``(spec, **options) -> Robot``."""


def backend_names() -> list[str]:
    """Names in the entry-point group ``gantry.backends``, sorted."""
    return plugin_names(GROUP)


def backend_factory(name: str) -> Any:
    """The callable ``(spec, **options) -> Robot`` of a backend, usually its class.

    Args:
        name: A name of :func:`backend_names`.

    Raises:
        UnknownNameError: If there is no such backend.
        RobotError: If it cannot be loaded.
    """
    return _load(_entry(name))


def moves_metal(name: str) -> bool:
    """Whether a backend may move a robot of metal: every one may whose class does not say ``simulated = True``.

    Args:
        name: A name of :func:`backend_names`.

    Raises:
        UnknownNameError: If there is no such backend.
        RobotError: If it cannot be loaded.
    """
    return getattr(backend_factory(name), "simulated", False) is not True


def make_backend(name: str, spec: RobotSpec, **options: Any) -> Robot:
    """Build a backend by name; it is not connected yet.

    Args:
        name: A name of :func:`backend_names`, for example ``mock`` or ``mujoco``.
        spec: The robot.
        options: Keyword arguments of the backend's own constructor.

    Raises:
        UnknownNameError: If no installed package offers the backend, or if it has no such option.
        RobotError: If the backend's packages are not installed, an option has a value of another type, or what it
            builds is no robot.
    """
    check_options(name, options)
    robot = _load(_entry(name))(spec, **options)
    if lacking := missing_methods(robot, Robot):
        raise RobotError(
            f"Backend '{name}' built a {type(robot).__name__}, which is no Robot; it lacks: {', '.join(lacking)}."
        )
    return robot


def require_options(name: str, options: Iterable[str], purpose: str) -> None:
    """Refuse a backend that does not take these options, and name those that do.

    Args:
        name: The backend.
        options: What it must take.
        purpose: The caller, for the message: "gantry check".

    Raises:
        UnknownNameError: If there is no such backend.
        RobotError: If it lacks an option, or cannot be loaded.
    """
    needed = list(options)
    missing = _missing_options(_load(_entry(name)), needed)
    if not missing:
        return
    able = []
    for entry in entry_points(group=GROUP):
        try:
            if not _missing_options(_load(entry), needed):
                able.append(entry.name)
        except RobotError:  # What is not installed here is no way out.
            continue
    raise RobotError(
        f"{purpose} needs a simulated backend with the options {', '.join(needed)}; '{name}' has no "
        f"{', '.join(missing)}. Available: {', '.join(sorted(able)) or '(none)'}."
    )


def has_option(name: str, option: str) -> bool:
    """Whether a backend takes an option.

    Raises:
        UnknownNameError: If there is no such backend.
        RobotError: If it cannot be loaded.
    """
    return not _missing_options(_load(_entry(name)), [option])


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that a backend does not have, plain values of a type that they do not take, and names that it
    knows by heart and are none: a backend may have an attribute ``OPTION_CHECKS``, option -> function that raises.

    Raises:
        UnknownNameError: If there is no such backend or option, or what an option names does not exist.
        RobotError: If a value is of another type, or the backend cannot be loaded.
    """
    backend = _load(_entry(name))
    parameters = _parameters(backend)
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        for option in options:
            if option not in parameters:
                raise UnknownNameError(f"option of backend '{name}'", option, parameters)
    for option, value in options.items():
        expected = _expected(parameters[option].annotation) if option in parameters else {}
        if expected and isinstance(value, _PLAIN) and not any(fits(value) for fits in expected.values()):
            raise RobotError(
                f"Option '{option}' of backend '{name}' is {plain_text(value)}, expected {' or '.join(expected)}."
            )
        if option == "seed" and isinstance(value, int) and not 0 <= value <= MAX_SEED:
            raise RobotError(f"Option 'seed' of backend '{name}' is {value}, expected 0 to {MAX_SEED}.")
        check = getattr(backend, "OPTION_CHECKS", {}).get(option)
        if check is not None and value is not None:
            check(value)


_PLAIN = (str, int, float, list, dict, type(None))
"""Types that a command line or a parameter file can express; objects are for code, which has a type checker."""


def _expected(annotation: Any) -> dict[str, Any]:
    """The plain types of an annotation, in words, with the predicate of each; empty if none is plain."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    kinds = {
        "float": ("a number", lambda value: _is_number(value, (int, float)) and math.isfinite(value)),
        "int": ("a whole number", lambda value: _is_number(value, (int,))),
        "bool": ("true or false", lambda value: isinstance(value, bool)),
        "str": ("text", lambda value: isinstance(value, str)),
        "None": ("null", lambda value: value is None),
    }
    plain = [kinds[part.strip()] for part in text.split("|") if part.strip() in kinds]
    return {} if [words for words, _ in plain] == ["null"] else dict(plain)


def _is_number(value: Any, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and not isinstance(value, bool)


def _entry(name: str) -> EntryPoint:
    return find_plugin(GROUP, name, "robot backend")


def _load(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except ImportError as error:
        raise RobotError(f"Backend '{entry.name}' ({entry.value}) cannot be loaded here: {error}.") from error


def _parameters(factory: Any) -> dict[str, inspect.Parameter]:
    """Options of a backend; the first parameter is the robot's numbers."""
    return dict(list(inspect.signature(factory).parameters.items())[1:])


def _missing_options(factory: Any, needed: list[str]) -> list[str]:
    parameters = _parameters(factory)
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return [] if takes_any else [name for name in needed if name not in parameters]
