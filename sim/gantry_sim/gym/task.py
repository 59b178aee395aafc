"""Environments of gymnasium as tasks of the commands: ``gym:ENV_ID`` in place of a manipulation task's name."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import TYPE_CHECKING, Any

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import BatchedEnv
from gantry_sim.gym.names import PREFIX, is_gym_task
from gantry_sim.tasks.manipulation.registry import ArmTask, ScriptedExpert, find_arm_task

if TYPE_CHECKING:
    from gantry_sim.gym.cfg import GymCfg

NO_ROBOT = "none"
"""Stands for the robot of a task that has none which Gantry knows."""


def find_any_task(name: str) -> ArmTask:
    """Look a manipulation task up, Gantry's own by its name or one of gymnasium by ``gym:ENV_ID``.

    Raises:
        UnknownNameError: If there is none of that name.
        GantryError: If gymnasium or a module is missing.
    """
    return gym_task(name) if is_gym_task(name) else find_arm_task(name)


def gym_task(name: str) -> ArmTask:
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
    return ArmTask(
        name=name,
        summary=f"{env_id} of gymnasium",
        robot=NO_ROBOT,
        make_cfg=partial(GymCfg, env_id),
        make_env=_make_env,
        contract=partial(_no_contract, name),
        expert=partial(_no_expert, name),
    )


def _make_env(cfg: GymCfg, seed: int) -> BatchedEnv:
    from gantry_sim.gym.env import GymStepEnv

    return GymStepEnv(cfg, seed)


def _no_contract(name: str, cfg: Any) -> PolicyContract:
    del cfg
    raise GantryError(
        f"Task '{name}' has no contract: gymnasium does not say what its observations and actions mean on a robot. "
        "Policies of it can be trained and evaluated, not exported."
    )


def _no_expert(name: str, env: Any, badness: float, seed: int) -> ScriptedExpert:
    del env, badness, seed
    raise GantryError(f"Task '{name}' has no scripted expert; bring demonstrations as a LeRobot dataset.")
