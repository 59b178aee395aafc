"""Tasks of mjlab as tasks of the commands: ``mjlab:TASK_ID``."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.common.batched_env import BatchedEnv
from gantry_sim.mjlab_tasks.listing import NO_ROBOT, PREFIX
from gantry_sim.tasks.registry import Preset, Task

if TYPE_CHECKING:
    from gantry_sim.mjlab_tasks.cfg import MjlabCfg

CPU_ENVS, GPU_ENVS = 64, 4096
"""Environments of the presets; the second is mjlab's own usual number."""


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
    from gantry_sim.mjlab_tasks.cfg import MjlabCfg, agent_cfg, registered
    from gantry_sim.mjlab_tasks.contract import contract_or_none
    from gantry_sim.mjlab_tasks.episodes import evaluate_mjlab, record_mjlab
    from gantry_sim.mjlab_tasks.learner import unmapped

    if task_id not in registered():
        raise UnknownNameError("task of mjlab", task_id, registered())
    contract = contract_or_none(MjlabCfg(task_id))
    left_out = unmapped(agent_cfg(task_id))
    without = f", without its agent's {', '.join(left_out)}" if left_out else ""
    return Task(
        name=name,
        summary=f"{task_id} of mjlab{without}",
        robot=NO_ROBOT if contract is None else contract.robot,
        presets={"cpu": partial(_preset, task_id, CPU_ENVS), "gpu": partial(_preset, task_id, GPU_ENVS)},
        make_env=_make_env,
        contract=_contract,
        evaluate=evaluate_mjlab,
        record=record_mjlab if contract is not None else partial(_no_record, MjlabCfg(task_id)),
        models=("training",),
        has_contract=contract is not None,
    )


def _preset(task_id: str, num_envs: int) -> Preset:
    from gantry_sim.mjlab_tasks.cfg import MAX_ACTION, MjlabCfg, agent_cfg
    from gantry_sim.mjlab_tasks.learner import learner_of

    agent = agent_cfg(task_id)
    bound = MAX_ACTION if agent.clip_actions is None else float(agent.clip_actions)
    return Preset(MjlabCfg(task_id, num_envs, action_clip=bound), learner_of(agent, num_envs))


def _make_env(cfg: MjlabCfg, device: str, seed: int) -> BatchedEnv:
    from gantry_sim.mjlab_tasks.env import make_env

    return make_env(cfg, device, seed)


def _contract(cfg: MjlabCfg) -> PolicyContract:
    from gantry_sim.mjlab_tasks.contract import mjlab_contract

    return mjlab_contract(cfg)


def _no_record(cfg: MjlabCfg, *args: Any, **options: Any) -> NoReturn:
    del args, options
    _contract(cfg)
    raise AssertionError("A task without a contract says so.")
