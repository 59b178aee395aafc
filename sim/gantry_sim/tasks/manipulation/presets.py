"""The registered manipulation tasks of the YAM arm."""

from __future__ import annotations

from gantry_policies.offpolicy.env import StepEnv
from gantry_sim.arm_env import ArmStepEnv
from gantry_sim.tasks.manipulation.cfg import ArmCfg, RandomizeCfg
from gantry_sim.tasks.manipulation.contract import arm_contract
from gantry_sim.tasks.manipulation.experts import Expert, make_expert
from gantry_sim.tasks.manipulation.registry import ArmTask


def lift_cfg() -> ArmCfg:
    """A cube anywhere on the table."""
    return ArmCfg("lift")


def pick_place_cfg() -> ArmCfg:
    """The cube to the right, the stand to the left, so that they never overlap."""
    chance = RandomizeCfg(object_y_m=(-0.15, -0.03), goal_x_m=(0.27, 0.39), goal_y_m=(0.06, 0.14))
    return ArmCfg("pick-place", episode_s=8.0, randomize=chance)


def push_cfg() -> ArmCfg:
    """The cube close to the base, the disc beyond it."""
    chance = RandomizeCfg(
        object_x_m=(0.25, 0.30), object_y_m=(-0.10, 0.10), goal_x_m=(0.35, 0.41), goal_y_m=(-0.12, 0.12)
    )
    return ArmCfg("push", randomize=chance)


def insert_cfg() -> ArmCfg:
    """The peg in the hand, the hole on the table."""
    return ArmCfg("insert", randomize=RandomizeCfg(goal_x_m=(0.28, 0.38), goal_y_m=(-0.10, 0.10)))


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
