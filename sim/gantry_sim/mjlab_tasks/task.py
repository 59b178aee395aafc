"""Tasks of mjlab as tasks of the commands: ``mjlab:TASK_ID``."""

from __future__ import annotations

import importlib.util

from gantry_hardware.errors import GantryError
from gantry_sim.mjlab_tasks.listing import PREFIX
from gantry_sim.tasks.registry import Task


def mjlab_task(name: str) -> Task:
    """The task that stands for one of mjlab's, with mjlab's own environment, rewards and numbers of PPO.

    Args:
        name: ``mjlab:TASK_ID``, of mjlab's own or of another package that registers tasks with mjlab.

    Raises:
        UnknownNameError: If mjlab knows no such task.
        GantryError: If the name does not begin so, or mjlab is not installed.
    """
    task_id = name.removeprefix(PREFIX)
    if task_id == name or not task_id:
        raise GantryError(f"The task is '{name}', expected {PREFIX}TASK_ID; see `gantry tasks`.")
    if importlib.util.find_spec("mjlab") is None:
        raise GantryError(f"The task '{name}' needs mjlab; install it with: pip install 'gantry-rl[train]'")
    from gantry_sim.managed_tasks.task import Package
    from gantry_sim.mjlab_tasks.cfg import MjlabCfg, agent_cfg, registered
    from gantry_sim.mjlab_tasks.contract import CONTRACTS
    from gantry_sim.mjlab_tasks.env import make_env
    from gantry_sim.mjlab_tasks.reader import make_reader

    package = Package("mjlab", registered, MjlabCfg, agent_cfg, CONTRACTS, make_env, make_reader)
    return package.task(PREFIX, task_id)
