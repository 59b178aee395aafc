"""The task: follow a velocity command."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gantry_deploy.observations.mirrors import MirrorMap, mirror_action
from gantry_policies.common.recorded_rows import MIN_OBSERVATIONS
from gantry_policies.on_policy.symmetry import mirror_actor
from gantry_rover.env import RoverCfg, RoverEnv, contract_of
from gantry_rover.search import SearchCfg
from gantry_sim.tasks.manipulation.evaluation import evaluate_success
from gantry_sim.tasks.registry import MakePolicy, Preset, ScriptedPolicy, Task


@torch.no_grad()
def record(task: Task, env_cfg: RoverCfg, make_policy: MakePolicy, *, seed: int) -> dict[str, np.ndarray]:
    """Signals, observations and targets of one policy's steps, (M, ...) each."""
    env = RoverEnv(replace(env_cfg, num_envs=16), seed)
    policy, obs, rows = make_policy(env), env.observe(), []
    while len(rows) * env.num_envs < MIN_OBSERVATIONS:
        signals, action = env.signals(), policy.act(obs)
        target = env.decoder(action, signals)
        names = ("joint_pos_rad", "joint_vel_rad_s", "quat_base_to_world_wxyz", "ang_vel_base_in_base_rad_s")
        seen = {name: getattr(signals, name).clone() for name in (*names, "command", "last_action", "time_s")}
        seen |= {"observation": obs["state"], "joint_target_rad": target.pos_rad.clone()}
        rows.append({**seen, "joint_target_vel_rad_s": target.vel_rad_s})
        obs = env.step(action).obs
    return {name: torch.cat([row[name] for row in rows]).numpy() for name in rows[0]}


def mirror(cfg: RoverCfg) -> dict[str, MirrorMap]:
    """Symmetry maps: what the policy sees is what its value function sees."""
    contract = contract_of(cfg)
    return {"actor": mirror_actor(contract), "critic": mirror_actor(contract), "action": mirror_action(contract)}


def make_env(cfg: Any, device: str, seed: int) -> RoverEnv:
    """The task's environments, on the CPU."""
    del device
    return RoverEnv(cfg, seed)


FOLLOW = Task(
    name="rover-follow",
    summary="Rover follows a velocity command",
    robot="rover",
    presets={"search": lambda: Preset(RoverCfg(), SearchCfg(), "search")},
    make_env=make_env,
    contract=contract_of,
    evaluate=evaluate_success,
    record=record,
    models=("training",),
    mirror=mirror,
    scripted=ScriptedPolicy(),
)
"""Registered as ``rover-follow``."""
