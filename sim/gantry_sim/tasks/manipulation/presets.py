"""The registered manipulation tasks of the YAM arm."""

from __future__ import annotations

from collections.abc import Callable

from gantry_policies.common.batched_env import BatchedEnv
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks import catalogue
from gantry_sim.tasks.catalogue import TaskInfo
from gantry_sim.tasks.manipulation.cfg import ArmCfg
from gantry_sim.tasks.manipulation.contract import arm_contract
from gantry_sim.tasks.manipulation.experts import Expert, make_expert
from gantry_sim.tasks.manipulation.layouts import insert_cfg, lift_cfg, pick_place_cfg, push_cfg
from gantry_sim.tasks.manipulation.registry import ArmTask


def make_env(cfg: ArmCfg, seed: int) -> BatchedEnv:
    """The task's environments on the CPU."""
    return ArmStepEnv(cfg, seed)


def expert_in(env: ArmStepEnv, badness: float = 0.0, seed: int = 0) -> Expert:
    """The scripted expert of the task, acting in these environments."""
    return make_expert(env.state, badness, seed)


def _task(info: TaskInfo, make_cfg: Callable[[], ArmCfg]) -> ArmTask:
    return ArmTask(info.name, info.summary, info.robot, make_cfg, make_env, arm_contract, expert_in)


LIFT = _task(catalogue.YAM_LIFT, lift_cfg)
PICK_PLACE = _task(catalogue.YAM_PICK_PLACE, pick_place_cfg)
PUSH = _task(catalogue.YAM_PUSH, push_cfg)
INSERT = _task(catalogue.YAM_INSERT, insert_cfg)
