"""Changes to the configuration of another package by path, ``env.changes``."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.structured import ConfigError


def change(cfg: Any, path: str, value: Any, package: str) -> None:
    """Set what a path of names, joined by dots, leads to.

    Args:
        cfg: Nested dataclasses and dictionaries.
        path: For example ``commands.twist.ranges.lin_vel_x``.
        value: The new one; a list where a tuple was becomes a tuple.
        package: Owner of the configuration, for messages.

    Raises:
        UnknownNameError: If there is nothing at the path.
        ConfigError: If the path goes through something without parts.
    """
    *above, last = path.split(".")
    part = cfg
    for name in above:
        part = _child(part, name, path, package)
    old = _child(part, last, path, package)
    if isinstance(old, tuple) and isinstance(value, list):
        value = tuple(value)
    if isinstance(part, dict):
        part[last] = value
    else:
        setattr(part, last, value)


def _child(part: Any, name: str, path: str, package: str) -> Any:
    if isinstance(part, dict):
        names = [str(key) for key in part]
    elif is_dataclass(part):
        names = [item.name for item in fields(part)]
    else:
        raise ConfigError(f"env.changes: '{path}' goes into a {type(part).__name__}, which has no parts with names.")
    if name not in names:
        raise UnknownNameError(f"part of {package}'s configuration in env.changes '{path}'", name, names)
    return part[name] if isinstance(part, dict) else getattr(part, name)
