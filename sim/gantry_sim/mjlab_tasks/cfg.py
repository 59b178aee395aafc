"""Configuration of a task of mjlab: mjlab's own, with changes by name."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from gantry_hardware.files.bounds import Range, check_fields
from gantry_sim.managed_tasks.changes import change
from gantry_sim.process.suppress_output import quietly

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnvCfg


@dataclass(frozen=True)
class MjlabCfg:
    """Settings that ``--set env.NAME=VALUE`` changes in a task of mjlab."""

    task: str
    """Name in mjlab's registry, for example ``Mjlab-Velocity-Flat-Unitree-Go1``."""
    num_envs: int = 64
    """Environments side by side."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Changes to mjlab's configuration by path, for example ``{"commands.motion.motion_file": "walk.npz"}``."""
    action_clip: float = 100.0
    """Actions are limited to this before the environment sees them, in training as on a robot."""
    noise: bool = True
    """Noise and delays of the actor's observation, as mjlab sets them; false for none."""

    def __post_init__(self) -> None:
        check_fields(self, {"action_clip": Range(1e-6, 1000.0)}, "env.")

    @property
    def key(self) -> str:
        """Text that is equal for configurations of one contract."""
        return json.dumps(asdict(self) | {"num_envs": 1}, sort_keys=True, default=str)


def registered() -> list[str]:
    """Names of all tasks in mjlab's registry, sorted."""
    with quietly():
        import mjlab.tasks  # noqa: F401 - fills the registry
        from mjlab.tasks.registry import list_tasks

        return list_tasks()


def agent_cfg(task_id: str) -> Any:
    """Settings of mjlab's runner for a task, a fresh copy."""
    from mjlab.tasks.registry import load_rl_cfg

    registered()
    return load_rl_cfg(task_id)


def actor_groups(task_id: str, kind: str = "actor") -> tuple[str, ...]:
    """Observation groups that the actor reads in their order, or with ``kind`` ``critic`` its value function."""
    return tuple(agent_cfg(task_id).obs_groups.get(kind, (kind,)))


def mjlab_env_cfg(cfg: MjlabCfg, seed: int) -> ManagerBasedRlEnvCfg:
    """mjlab's configuration of the task with all changes; a fresh one at every call, since mjlab edits it.

    Raises:
        UnknownNameError: If there is nothing at the path of a change.
        ConfigError: If a path leads nowhere.
    """
    from mjlab.tasks.registry import load_env_cfg

    registered()
    env_cfg = load_env_cfg(cfg.task)
    for path, value in cfg.changes.items():
        change(env_cfg, path, value, "mjlab")
    env_cfg.scene.num_envs, env_cfg.seed = cfg.num_envs, seed
    if not cfg.noise:
        for name in actor_groups(cfg.task):
            group = env_cfg.observations[name]
            group.enable_corruption = False
            for term in group.terms.values():
                if term is not None:
                    term.delay_min_lag = term.delay_max_lag = 0
    return env_cfg
