"""Embodiments by name, as the contract needs them: without importing what they are made of."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from gantry_deploy.errors import ContractError
from gantry_hardware.plugins import find_plugin, load_plugin, plugin_names

GROUP = "gantry.embodiments"
"""Entry-point group: name -> :class:`gantry_deploy.embodiments.embodiment.Embodiment`."""


def embodiment_names() -> list[str]:
    """Names in the entry-point group ``gantry.embodiments``, sorted."""
    return plugin_names(GROUP)


@lru_cache(maxsize=32)
def load_embodiment(name: str) -> Any:
    """Look an embodiment up by name; :func:`gantry_deploy.embodiments.registry.find_embodiment` gives it its type.

    Raises:
        UnknownNameError: If no installed package offers it.
        ContractError: If it cannot be loaded here, or has another name.
    """
    entry = find_plugin(GROUP, name, "embodiment")
    found = load_plugin(entry, "Embodiment", ContractError)
    if getattr(found, "name", None) != name:
        theirs = getattr(found, "name", type(found).__name__)
        raise ContractError(f"Entry point '{entry.value}' registers embodiment '{name}', and is '{theirs}'.")
    return found
