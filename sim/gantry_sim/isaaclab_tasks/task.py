"""Tasks of Isaac Lab as tasks of the commands: ``isaaclab:TASK_ID``."""

from __future__ import annotations

import importlib.util

from gantry_hardware.errors import GantryError
from gantry_sim.isaaclab_tasks.names import PACKAGE, PREFIX
from gantry_sim.tasks.registry import Task


def isaaclab_task(name: str) -> Task:
    """The task that stands for one of Isaac Lab's, with Isaac Lab's own environment, rewards and numbers of PPO.

    Args:
        name: ``isaaclab:TASK_ID``, of Isaac Lab's own or of another package that registers tasks with gymnasium.

    Raises:
        UnknownNameError: If there is no such task.
        GantryError: If the name does not begin so, Isaac Lab is not installed, or has no settings of PPO for it.
    """
    task_id = name.removeprefix(PREFIX)
    if task_id == name or not task_id:
        raise GantryError(f"The task is '{name}', expected {PREFIX}TASK_ID; see `gantry tasks`.")
    if importlib.util.find_spec(PACKAGE) is None:
        raise GantryError(f"The task '{name}' needs Isaac Lab 3; docs/isaaclab.md says how to install it.")
    from gantry_sim.isaaclab_tasks.cfg import IsaacCfg, agent_cfg, registered
    from gantry_sim.isaaclab_tasks.contract import CONTRACTS
    from gantry_sim.isaaclab_tasks.env import make_env
    from gantry_sim.isaaclab_tasks.reader import make_reader
    from gantry_sim.managed_tasks.task import Package

    package = Package("Isaac Lab", registered, IsaacCfg, agent_cfg, CONTRACTS, make_env, make_reader, _remark)
    return package.task(PREFIX, task_id)


def _remark(task_id: str) -> str:
    from gantry_sim.isaaclab_tasks.cfg import IsaacCfg, isaac_env_cfg

    told = isaac_env_cfg(IsaacCfg(task_id), "cpu", seed=0)[1]
    return f"; on Gantry's model: {'; '.join(told)}" if told else ""
