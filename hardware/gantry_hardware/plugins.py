"""Objects that installed packages offer by name: entry points, found with near misses, and ``module:name`` texts."""

from __future__ import annotations

import importlib.metadata
import sys
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

from gantry_hardware.errors import GantryError, UnknownNameError


def entry_points(group: str) -> EntryPoints:
    """Entry points of a group, of all packages on the path.

    Packages are looked through once for each path (``sys.path``), since that takes longer than most of what is done
    with an entry point. Whatever is installed into a folder of the path while a process runs is seen by the next one.
    """
    return _found(group, tuple(sys.path))


@lru_cache(maxsize=128)
def _found(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Entry points of a group; ``path`` is that of the process, and tells whether it is still the same."""
    del path
    return importlib.metadata.entry_points(group=group)


def plugin_names(group: str) -> list[str]:
    """Names in an entry-point group, sorted."""
    return sorted({entry.name for entry in entry_points(group=group)})


def find_plugin(group: str, name: str, noun: str) -> EntryPoint:
    """Look an entry point up without loading it.

    Args:
        group: For example ``gantry.robots``.
        name: Name in the group.
        noun: What the group holds, for the message.

    Raises:
        UnknownNameError: If no installed package offers it.
    """
    for entry in entry_points(group=group):
        if entry.name == name:
            return entry
    raise UnknownNameError(noun, name, plugin_names(group))


def load_plugin(entry: EntryPoint, noun: str, error: type[GantryError]) -> Any:
    """Import the object of an entry point.

    Raises:
        GantryError: Of class ``error``, if it cannot be imported here.
    """
    try:
        return entry.load()
    except (ImportError, AttributeError) as problem:
        raise error(f"{noun} '{entry.name}': entry point '{entry.value}' cannot be loaded: {problem}.") from problem


def load_named(path: str) -> Any:
    """Import the object that a text ``module:name`` names.

    Raises:
        GantryError: If there is none, or its module cannot be imported here.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as problem:
        raise GantryError(f"'{path}' cannot be loaded: {problem}.") from problem
