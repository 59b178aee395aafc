"""Layout of each task's things; loads no learning library, so that the simulated robot of the runtime shares it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gantry_sim.tasks.manipulation.cfg import ArmCfg, RandomizeCfg
from gantry_sim.tasks.manipulation.language.instructions import VERBS

TELL_EPISODE_S = 8.0
"""Length of an episode that is told in words, whatever is asked for."""


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


def tell_cfg(*verbs: str) -> ArmCfg:
    """Three things and two zones, and an instruction of one of some verbs."""
    return ArmCfg("tell", episode_s=TELL_EPISODE_S, verbs=verbs)


LAYOUTS: dict[str, Callable[[], ArmCfg]] = {
    "yam-lift": lift_cfg,
    "yam-pick-place": pick_place_cfg,
    "yam-push": push_cfg,
    "yam-insert": insert_cfg,
    "yam-tell": partial(tell_cfg, *VERBS),
    **{f"yam-tell-{verb}": partial(tell_cfg, verb) for verb in VERBS},
}
"""Configurations by the names of the registered tasks."""
