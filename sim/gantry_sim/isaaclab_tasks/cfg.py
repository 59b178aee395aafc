"""Configuration of a task of Isaac Lab: its own, for Newton's MuJoCo Warp solver, with changes by name."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from gantry_hardware.errors import GantryError
from gantry_hardware.files.bounds import Range, check_fields
from gantry_hardware.plugins import entry_points
from gantry_sim.isaaclab_tasks.assets import use_own_root
from gantry_sim.isaaclab_tasks.fit import fit_to_robot, provide_files
from gantry_sim.isaaclab_tasks.names import FOREIGN
from gantry_sim.managed_tasks.changes import change
from gantry_sim.process.suppress_output import quietly, start_warp

AGENT = "rsl_rl_cfg_entry_point"
"""Entry of a task's registration that names the settings of rsl_rl's runner."""
ENVIRONMENT = "env_cfg_entry_point"
"""Entry of a task's registration that names its configuration."""
PHYSICS = "newton_mjwarp"
"""Isaac Lab's name of the only solver that runs without Isaac Sim on a CPU."""


@dataclass(frozen=True)
class IsaacCfg:
    """Settings that ``--set env.NAME=VALUE`` changes in a task of Isaac Lab."""

    task: str
    """Name in gymnasium's registry, for example ``Isaac-Velocity-Flat-UnitreeGo2``."""
    num_envs: int = 64
    """Environments side by side."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Changes to Isaac Lab's configuration by path, for example ``{"episode_length_s": 10.0}``."""
    action_clip: float = 100.0
    """Actions are limited to this before the environment sees them, in training as on a robot."""
    noise: bool = True
    """Noise, delays and centres of mass drawn at the start, as Isaac Lab sets them; false for none."""
    substeps: int = 0
    """Steps of the solver in a physics step; 0 for as many as Isaac Lab sets, two in most tasks."""

    def __post_init__(self) -> None:
        check_fields(self, {"action_clip": Range(1e-6, 1000.0), "substeps": Range(0, 100)}, "env.")

    @property
    def key(self) -> str:
        """Text that is equal for configurations of one contract."""
        return json.dumps(asdict(self) | {"num_envs": 1}, sort_keys=True, default=str)

    def one(self) -> IsaacCfg:
        """The same with one environment and without noise."""
        return replace(self, num_envs=1, noise=False)


@lru_cache
def registered() -> list[str]:
    """Names of all tasks in gymnasium's registry that Isaac Lab configures, sorted."""
    use_own_root()
    with quietly():
        start_warp()
        import gymnasium
        import isaaclab_tasks  # noqa: F401 - fills the registry
        import warp

        warp.config.log_level = warp.LOG_WARNING  # A line for each kernel is hundreds in a machine's first run.
        for entry in entry_points(group=FOREIGN):
            entry.load()
        return sorted(name for name, spec in gymnasium.registry.items() if ENVIRONMENT in spec.kwargs)


def resolved(task_id: str) -> tuple[Any, Any]:
    """Isaac Lab's configurations of environment and runner, fresh ones.

    Raises:
        GantryError: If Isaac Lab cannot make them, for example because the task has no such solver.
    """
    registered()
    import gymnasium
    from isaaclab_rl.rsl_rl import check_rsl_rl_version, handle_deprecated_rsl_rl_cfg
    from isaaclab_tasks.utils import resolve_task_config

    agent = AGENT if AGENT in gymnasium.spec(task_id).kwargs else None
    try:
        with quietly():
            env_cfg, agent_cfg = resolve_task_config(task_id, agent, overrides=(f"physics={PHYSICS}",))
            if agent is not None:
                agent_cfg = handle_deprecated_rsl_rl_cfg(agent_cfg, check_rsl_rl_version())
    except (Exception, SystemExit) as error:
        raise GantryError(f"Isaac Lab cannot configure {task_id} for {PHYSICS}: {error}") from error
    return env_cfg, agent_cfg


def agent_cfg(task_id: str) -> Any:
    """Settings of Isaac Lab's rsl_rl runner for a task, a fresh copy.

    Raises:
        GantryError: If the task has none.
    """
    found = resolved(task_id)[1]
    if found is None:
        raise GantryError(
            f"{task_id} of Isaac Lab has no settings of rsl_rl ({AGENT}), the learner that is known here."
        )
    return found


@lru_cache
def actor_groups(task_id: str, kind: str = "actor") -> tuple[str, ...]:
    """Observation groups that the actor reads in their order, or with ``kind`` ``critic`` its value function."""
    found = agent_cfg(task_id).obs_groups
    usual = {"actor": ("policy",), "critic": ("critic",)}
    return tuple((found if isinstance(found, dict) else {}).get(kind) or usual[kind])


def isaac_env_cfg(cfg: IsaacCfg, device: str, seed: int) -> tuple[Any, list[str]]:
    """Isaac Lab's configuration of the task with all changes, and what was fitted to the robot's model.

    Args:
        cfg: Ours.
        device: Where to simulate.
        seed: Of everything random in it.

    Raises:
        UnknownNameError: If there is nothing at the path of a change.
        ConfigError: If a path leads nowhere.
        GantryError: If Isaac Lab cannot configure the task, or has no file of its robot.
    """
    env_cfg, _ = resolved(cfg.task)
    fitted = fit_to_robot(env_cfg)
    for path, value in cfg.changes.items():
        change(env_cfg, path, value, "Isaac Lab")
    provide_files(env_cfg)
    env_cfg.scene.num_envs, env_cfg.seed, env_cfg.sim.device = cfg.num_envs, seed, device
    if cfg.substeps:
        env_cfg.sim.physics.num_substeps = cfg.substeps
    if not cfg.noise:
        _without_noise(env_cfg, actor_groups(cfg.task))
    return env_cfg, fitted


def _without_noise(env_cfg: Any, groups: tuple[str, ...]) -> None:
    """Take noise and delays from groups of observations, and drawn centres of mass, whose velocity some terms show."""
    for name in groups if hasattr(env_cfg, "observations") else ():
        group = getattr(env_cfg.observations, name)
        group.enable_corruption = False
        for term in vars(group).values():
            if hasattr(term, "delay_max_lag"):
                term.delay_min_lag = term.delay_max_lag = 0
    events = getattr(env_cfg, "events", None)
    for name, term in list(vars(events).items()) if events is not None else ():
        if str(getattr(term, "func", "")).find("randomize_rigid_body_com") >= 0:
            setattr(events, name, None)
