"""The registered manipulation tasks of the YAM arm."""

from __future__ import annotations

from gantry_policies.offpolicy.env import StepEnv
from gantry_sim.arm_env import ArmStepEnv
from gantry_sim.tasks.manipulation.cfg import ArmCfg
from gantry_sim.tasks.manipulation.contract import arm_contract
from gantry_sim.tasks.manipulation.experts import Expert, make_expert
from gantry_sim.tasks.manipulation.layouts import insert_cfg, lift_cfg, pick_place_cfg, push_cfg
from gantry_sim.tasks.manipulation.registry import ArmTask


def make_env(cfg: ArmCfg, seed: int) -> StepEnv:
    """The task's environments on the CPU."""
    return ArmStepEnv(cfg, seed)


def expert_in(env: ArmStepEnv, badness: float = 0.0, seed: int = 0) -> Expert:
    """The scripted expert of the task, acting in these environments."""
    return make_expert(env.state, badness, seed)


LIFT = ArmTask("yam-lift", "lift a cube", "yam", lift_cfg, make_env, arm_contract, expert_in)
PICK_PLACE = ArmTask(
    "yam-pick-place", "put a cube onto a stand and let go", "yam", pick_place_cfg, make_env, arm_contract, expert_in
)
PUSH = ArmTask("yam-push", "push a cube to a place on the table", "yam", push_cfg, make_env, arm_contract, expert_in)
INSERT = ArmTask(
    "yam-insert", "put a held peg into a hole 2 mm wider", "yam", insert_cfg, make_env, arm_contract, expert_in
)
