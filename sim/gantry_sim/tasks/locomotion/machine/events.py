"""Events that draw the differences between machines, and the stages by which they grow in training."""

from __future__ import annotations

from typing import Any

import torch
from mjlab.managers.curriculum_manager import CurriculumTermCfg
from mjlab.managers.event_manager import EventTermCfg, RecomputeLevel
from torch import Tensor

from gantry_hardware.model.spec import RobotSpec
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.locomotion.machine.motors import draw_motors
from gantry_sim.tasks.locomotion.machine.ranges import MachineCfg

Stages = tuple[tuple[int, float], ...]
"""(control step of the training, share of the differences and pushes from there on), in ascending order."""


def begin_machine(env: GantryEnv, env_ids: Tensor) -> None:
    """Event of a reset: other delays and offsets for the episodes that begin."""
    env.task_state.machine.begin(env_ids)


def machine_events(cfg: MachineCfg, spec: RobotSpec) -> dict[str, EventTermCfg]:
    """Events that draw the differences; none where there are none."""
    if cfg == MachineCfg():
        return {}
    return {
        "motors": EventTermCfg(func=draw_motors, mode="startup", params=_draw_params(cfg, spec)),
        "machine": EventTermCfg(func=begin_machine, mode="reset", params={}),
    }


def _draw_params(cfg: MachineCfg, spec: RobotSpec) -> dict[str, Any]:
    return {"cfg": cfg, "speed_limit_rad_s": {joint.name: joint.velocity_limit_rad_s for joint in spec.joints}}


class MachineStages:
    """Differences and pushes that grow by stages: a robot as its model first, all others when it can walk.

    A stage draws the motors of all robots anew, and the rest with every episode that begins.
    """

    def __init__(self, cfg: Any, env: Any) -> None:
        del cfg, env
        self._share: float | None = None

    def __call__(
        self,
        env: GantryEnv,
        env_ids: Tensor,
        stages: Stages,
        cfg: MachineCfg,
        push_m_s: float,
        spec: RobotSpec,
    ) -> dict[str, Tensor]:
        """Begin the stage of the present step if it has not begun; called before a reset. Returns its share.

        Args:
            env: The environments.
            env_ids: Of the episodes that end; not looked at.
            stages: When how much of it is there.
            cfg: All of the differences.
            push_m_s: Half width of the whole pushes; 0 for none.
            spec: The robot.
        """
        del env_ids
        share = max((pair for pair in stages if pair[0] <= env.common_step_counter), default=(0, 0.0))[1]
        if share != self._share:
            self._share = share
            if cfg != MachineCfg():
                self._draw(env, cfg.scaled(share), spec)
            if push_m_s > 0.0:
                kick = (-share * push_m_s, share * push_m_s)
                env.event_manager.get_term_cfg("push").params["velocity_range"] = {"x": kick, "y": kick}
        return {"share": torch.tensor(share)}

    def _draw(self, env: GantryEnv, cfg: MachineCfg, spec: RobotSpec) -> None:
        draw_motors(env, None, **_draw_params(cfg, spec))
        env.sim.recompute_constants(RecomputeLevel.set_const_0)
        env.task_state.machine.cfg = cfg


def machine_stages(stages: Stages, cfg: MachineCfg, push_m_s: float, spec: RobotSpec) -> dict[str, CurriculumTermCfg]:
    """The curriculum's term of the stages; none without stages."""
    if not stages:
        return {}
    params = {"stages": stages, "cfg": cfg, "push_m_s": push_m_s, "spec": spec}
    return {"machines": CurriculumTermCfg(func=MachineStages, params=params)}
