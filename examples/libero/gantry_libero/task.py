"""Tasks ``libero:SUITE`` and ``libero:SUITE/TASK`` of the commands, by the adapter for gymnasium's environments."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from gantry_hardware.errors import GantryError
from gantry_libero.simulation import CAMERAS
from gantry_libero.suites import libero_task as task_of
from gantry_libero.suites import max_steps, num_tasks, require_suite
from gantry_libero.words import VOCABULARY
from gantry_policies.imitation import config as imitation
from gantry_policies.imitation.config import BcCfg
from gantry_sim.tasks.registry import Preset, Task

PREFIX = "libero:"
"""Names of such tasks begin with it."""
ENV_ID = "gantry_libero.env:LiberoEnv"
"""Environment behind all of them."""
USUAL: dict[str, Any] = {
    "tasks": None,
    "states": None,
    "cameras": tuple(CAMERAS),
    "image_px": 128,
    "turned": False,
    "aim": False,
    "plain_light": False,
}
"""Usual arguments of the environment, all of which ``--set env.env_kwargs.NAME=VALUE`` changes."""


def libero_task(name: str) -> Task:
    """The task that stands for a suite of LIBERO, or for one task of it.

    Args:
        name: ``libero:SUITE``, for example ``libero:spatial``, or ``libero:SUITE/TASK`` with the task's place in the
            suite, from 0.

    Raises:
        UnknownNameError: If there is no such suite.
        GantryError: If the name is not of that form, there is no such task, or LIBERO is not installed.
    """
    suite, tasks = parsed_name(name)
    require_suite(suite)
    from gantry_sim.gym.task import gym_task

    told = f"{num_tasks(suite)} tasks" if tasks is None else f"'{task_of(suite, tasks[0]).instruction}'"
    return replace(
        gym_task(f"gym:{ENV_ID}"),
        name=name,
        summary=f"LIBERO's suite {suite}: {told}",
        presets={
            "vla": partial(_preset, suite, tasks, imitation.vla),
            "bc-images": partial(_preset, suite, tasks, imitation.images),
        },
    )


def parsed_name(name: str) -> tuple[str, tuple[int, ...] | None]:
    """Suite and tasks of a name; None for all tasks.

    Raises:
        GantryError: If it is not of the form.
    """
    suite, slash, index = name.removeprefix(PREFIX).partition("/")
    if not name.startswith(PREFIX) or not suite or (slash and not index.isdecimal()):
        raise GantryError(f"The task is '{name}', expected {PREFIX}SUITE or {PREFIX}SUITE/NUMBER, as in libero:goal/3.")
    return suite, (int(index),) if slash else None


def env_cfg(suite: str, num_envs: int = 1, **kwargs: Any) -> Any:
    """Configuration, a :class:`~gantry_sim.gym.cfg.GymCfg`, of environments of a suite.

    Args:
        suite: Name of the suite.
        num_envs: Environments side by side; a process with one takes 1.8 GB, or 1.1 GB without pictures.
        **kwargs: Arguments of :class:`~gantry_libero.env.LiberoEnv` that differ from :data:`USUAL`.
    """
    from gantry_sim.gym.cfg import GymCfg

    given = {"suite": suite, **USUAL, **kwargs}
    return GymCfg(ENV_ID, num_envs, env_kwargs=given, max_episode_steps=max_steps(suite))


def _preset(suite: str, tasks: tuple[int, ...] | None, learner: Any) -> Preset:
    cfg: BcCfg = learner()
    network = replace(cfg.network, vocabulary=len(VOCABULARY))
    return Preset(env_cfg(suite, tasks=tasks), replace(cfg, network=network), "bc")
