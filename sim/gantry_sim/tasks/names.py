"""Names of the tasks, without loading one: a mistyped name is answered before the learning libraries are imported."""

from __future__ import annotations

from importlib.metadata import entry_points

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.gym.names import is_gym_task

GROUP = "gantry.tasks"
"""Entry-point group: name -> :class:`gantry_sim.tasks.registry.Task`."""

ARM_GROUP = "gantry.arm_tasks"
"""Entry-point group: name -> :class:`gantry_sim.tasks.manipulation.registry.ArmTask`."""


def arm_task_names() -> list[str]:
    """Names of all installed manipulation tasks, sorted."""
    return sorted({entry.name for entry in entry_points(group=ARM_GROUP)})


def is_arm_task(name: str | None) -> bool:
    """Whether a task is learned by the commands of manipulation: an arm's, or an environment of gymnasium."""
    return name is not None and (name in arm_task_names() or is_gym_task(name))


def task_names() -> list[str]:
    """Names of all installed tasks, sorted."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def require_task(name: str) -> str:
    """The name itself, of a task of either kind, or of an environment of gymnasium, which is looked for later.

    Raises:
        UnknownNameError: If no installed package offers a task of that name.
        GantryError: If it is a task of mjlab.
    """
    known = [*task_names(), *arm_task_names()]
    if name not in known and not is_gym_task(name):
        if name.lower().startswith(("mjlab-", "mjlab:")):
            raise GantryError(
                f"'{name}' is a task of mjlab, which is not trained here: it says nothing of what its observations and "
                f"actions mean on a robot, so no bundle could be made of it. Available: {', '.join(sorted(known))}."
            )
        raise UnknownNameError("task", name, known)
    return name
