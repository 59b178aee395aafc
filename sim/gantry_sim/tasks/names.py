"""Names of the tasks, without loading one: a mistyped name is answered before the learning libraries are imported."""

from __future__ import annotations

from importlib.metadata import entry_points

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.gym.names import is_gym_task

GROUP = "gantry.tasks"
"""Entry-point group: name -> :class:`gantry_sim.tasks.registry.Task`."""


def task_names() -> list[str]:
    """Names of all installed tasks, sorted."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def require_task(name: str) -> str:
    """The name itself, of an installed task, or of an environment of gymnasium, which is looked for later.

    Raises:
        UnknownNameError: If no installed package offers a task of that name.
        GantryError: If it is a task of mjlab.
    """
    known = task_names()
    if name not in known and not is_gym_task(name):
        if name.lower().startswith(("mjlab-", "mjlab:")):
            raise GantryError(
                f"'{name}' is a task of mjlab, which is not trained here: it says nothing of what its observations and "
                f"actions mean on a robot, so no bundle could be made of it. Available: {', '.join(sorted(known))}."
            )
        raise UnknownNameError("task", name, known)
    return name
