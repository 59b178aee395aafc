"""Names of mjlab's tasks, known without importing mjlab, which takes seconds."""

from __future__ import annotations

from gantry_hardware.plugins import entry_points
from gantry_sim.tasks.catalogue import TaskInfo

PREFIX = "mjlab:"
"""Names of such tasks begin with it."""
FOREIGN = "mjlab.tasks"
"""mjlab's entry-point group of packages that register tasks."""


def _info(task_id: str, robot: str) -> TaskInfo:
    return TaskInfo(PREFIX + task_id, f"{task_id} of mjlab", robot)


OWN = (
    _info("Mjlab-Cartpole-Balance", "cartpole_mjlab"),
    _info("Mjlab-Cartpole-Swingup", "cartpole_mjlab"),
    _info("Mjlab-Lift-Cube-Yam", "yam"),
    _info("Mjlab-Lift-Cube-Yam-Depth", "yam"),
    _info("Mjlab-Lift-Cube-Yam-Rgb", "yam"),
    _info("Mjlab-Multi-Cube-Seg-Yam", "yam"),
    _info("Mjlab-Tracking-Flat-Unitree-G1", "g1"),
    _info("Mjlab-Tracking-Flat-Unitree-G1-No-State-Estimation", "g1"),
    _info("Mjlab-Velocity-Flat-Unitree-G1", "g1"),
    _info("Mjlab-Velocity-Flat-Unitree-Go1", "go1"),
    _info("Mjlab-Velocity-Rough-Unitree-G1", "g1"),
    _info("Mjlab-Velocity-Rough-Unitree-Go1", "go1"),
)
"""Tasks that mjlab 1.6 registers itself."""


def infos() -> tuple[TaskInfo, ...]:
    """Of all registered tasks; mjlab is imported only where another package adds tasks to it."""
    if not entry_points(group=FOREIGN):
        return OWN
    from gantry_sim.mjlab_tasks.cfg import registered

    known = {info.name for info in OWN}
    others = [name for name in registered() if PREFIX + name not in known]
    return (*OWN, *(_info(name, "") for name in others))
