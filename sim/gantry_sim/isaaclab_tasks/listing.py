"""Names of Isaac Lab's tasks, known without importing Isaac Lab, which takes seconds."""

from __future__ import annotations

from importlib.util import find_spec

from gantry_hardware.plugins import entry_points
from gantry_sim.isaaclab_tasks.names import FOREIGN, PACKAGE, PREFIX
from gantry_sim.managed_tasks.names import NO_ROBOT
from gantry_sim.tasks.catalogue import TaskInfo


def _info(task_id: str, robot: str = NO_ROBOT) -> TaskInfo:
    return TaskInfo(PREFIX + task_id, f"{task_id} of Isaac Lab", robot)


MODELLED = (
    _info("Isaac-Ant"),
    _info("Isaac-Ant-Direct"),
    _info("Isaac-Cartpole", "cartpole"),
    _info("Isaac-Cartpole-Direct"),
    _info("Isaac-Velocity-Flat-G1", "g1"),
    _info("Isaac-Velocity-Flat-UnitreeGo2", "go2"),
    _info("Isaac-Velocity-Rough-G1", "g1"),
    _info("Isaac-Velocity-Rough-UnitreeGo2", "go2"),
    _info("IsaacContrib-Velocity-Flat-UnitreeGo1", "go1"),
    _info("IsaacContrib-Velocity-Rough-UnitreeGo1", "go1"),
)
"""Tasks of Isaac Lab 3.0 whose robots Gantry has a model of; all others are found by name as well."""


def infos() -> tuple[TaskInfo, ...]:
    """Of the tasks with a model, and of those that other packages add; none where Isaac Lab is not installed."""
    if find_spec(PACKAGE) is None:
        return ()
    if not entry_points(group=FOREIGN):
        return MODELLED
    from gantry_sim.isaaclab_tasks.cfg import registered

    own = ("Isaac-", "IsaacContrib-")
    return (*MODELLED, *(_info(name, "") for name in registered() if not name.startswith(own)))
