"""Names of the tasks, without loading one: a mistyped name is answered before the learning libraries are imported."""

from __future__ import annotations

from importlib.metadata import EntryPoint

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.plugins import entry_points

GROUP = "gantry.tasks"
"""Entry-point group: name -> :class:`gantry_sim.tasks.registry.Task`."""
FAMILIES = "gantry.task_families"
"""Entry-point group of tasks that are made on demand: prefix -> function from a name ``PREFIX:REST`` to a task."""
FOREIGN = {
    "mjlab-": ("mjlab", "mjlab"),
    "isaac-": ("isaaclab", "Isaac Lab"),
    "isaaccontrib-": ("isaaclab", "Isaac Lab"),
}
"""Beginning of other packages' names of tasks, in small letters -> prefix of their family, and the package."""


def task_names() -> list[str]:
    """Names of all installed tasks, sorted."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def family_names() -> list[str]:
    """Prefixes of all installed families, sorted."""
    return sorted({entry.name for entry in entry_points(group=FAMILIES)})


def family_of(name: str) -> EntryPoint | None:
    """Family of a name ``PREFIX:REST``, for example ``gym:Pendulum-v1``; None for any other name."""
    prefix, colon, _ = name.partition(":")
    found = [entry for entry in entry_points(group=FAMILIES) if colon and entry.name == prefix]
    return found[0] if found else None


def require_task(name: str) -> str:
    """The name itself, of an installed task or of one of a family, which is looked for later.

    Raises:
        UnknownNameError: If no installed package offers a task of that name.
        GantryError: If it is a task of mjlab or Isaac Lab without the prefix of its family.
    """
    known = task_names()
    if name not in known and family_of(name) is None:
        for start, (family, package) in FOREIGN.items():
            if name.lower().startswith(start):
                raise GantryError(
                    f"'{name}' is a task of {package}, which is called {family}:{name} here; see `gantry tasks`."
                )
        raise UnknownNameError("task", name, known)
    return name
