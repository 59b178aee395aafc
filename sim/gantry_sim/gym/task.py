"""Environments of gymnasium as tasks of the commands: ``gym:ENV_ID`` in place of a manipulation task's name."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import TYPE_CHECKING, Any

from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import BatchedEnv
from gantry_sim.managed_tasks.names import NO_ROBOT
from gantry_sim.tasks.manipulation.evaluation import evaluate_success
from gantry_sim.tasks.manipulation.presets import presets
from gantry_sim.tasks.registry import Task

if TYPE_CHECKING:
    from gantry_sim.gym.cfg import GymCfg

PREFIX = "gym:"
"""Names of such tasks begin with it."""


def gym_task(name: str) -> Task:
    """The task that stands for environments of gymnasium.

    Its configuration is a :class:`~gantry_sim.gym.cfg.GymCfg`. It has no contract and no expert, and says so where one
    is asked for.

    Args:
        name: ``gym:ENV_ID``, or ``gym:MODULE:NAME`` to import a module that registers or makes it.

    Raises:
        UnknownNameError: If there is no such environment.
        GantryError: If the name does not begin so, or gymnasium or a module is missing.
    """
    env_id = name.removeprefix(PREFIX)
    if env_id == name or not env_id:
        raise GantryError(f"The task is '{name}', expected {PREFIX}ENV_ID, for example {PREFIX}Pendulum-v1.")
    if importlib.util.find_spec("gymnasium") is None:
        raise GantryError(f"The task '{name}' needs gymnasium; install it with: pip install 'gantry-rl[gym]'")
    from gantry_sim.gym.cfg import GymCfg, find_gym

    find_gym(env_id)
    return Task(
        name=name,
        summary=f"{env_id} of gymnasium",
        robot=NO_ROBOT,
        presets=presets(partial(GymCfg, env_id)),
        make_env=_make_env,
        contract=partial(_no_contract, name),
        evaluate=evaluate_success,
        record=partial(_no_contract, name),
        models=("training",),
        has_contract=False,
    )


def _make_env(cfg: GymCfg, device: str, seed: int) -> BatchedEnv:
    from gantry_sim.gym.env import GymStepEnv

    del device  # Of the networks; environments of gymnasium are on the CPU.
    return GymStepEnv(cfg, seed)


def _no_contract(name: str, *args: Any, **options: Any) -> Any:
    del args, options
    raise GantryError(
        f"Task '{name}' has no contract: gymnasium does not say what its observations and actions mean on a robot. "
        "Policies of it can be trained and evaluated, not exported."
    )
