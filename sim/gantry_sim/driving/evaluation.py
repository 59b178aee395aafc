"""Scores of driving policies on maps that no training has seen, and records of their exports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from gantry_deploy.evaluation.drive_metrics import DriveEpisodes, drive_scores
from gantry_deploy.evaluation.metrics import bootstrap_mean
from gantry_deploy.observations.builder import Signals
from gantry_deploy.policy.golden import AROUND_PREFIX, PLACE_ARRAY, TARGET_ARRAY, TARGET_VELOCITY_ARRAY
from gantry_policies.common.batched_env import STATE
from gantry_sim.driving.cfg import CarTaskCfg
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.park_cfg import ParkCfg
from gantry_sim.driving.reward import evaluation_reward
from gantry_sim.tasks.registry import MakePolicy, Task, acting

COUNTED = ("pedestrian", "vehicle", "static", "red_light", "blocked")
"""Ends of episodes that are infractions."""
PICTURE_STEPS = 170
"""Most decisions of each car that are recorded with pictures, which fill a bundle."""
ENDS = ("finished", "off_road", "wrong_way", *COUNTED)
"""Names of the ends of an episode but running out of time; not all of them everywhere."""


def held_out(env_cfg: CarTaskCfg, *, num_envs: int, full_model: bool = False, **changes: Any) -> CarTaskCfg:
    """The configuration to evaluate on: maps of the test split, cars that differ as in training.

    Args:
        env_cfg: The configuration in training.
        num_envs: Cars side by side.
        full_model: Cars with tyres and finer steps instead of the training's kinematic ones.
        changes: Further fields.
    """
    # Where cars have tyres in training already, they differ by the length of a step alone.
    finer = {"model": "single-track-grip", "substeps": max(10, 4 * env_cfg.substeps)} if full_model else {}
    maps = {"map_split": "test", "map_count": min(env_cfg.map_count, 32)}
    if isinstance(env_cfg, ParkCfg):
        # Every episode begins in the aisle; ways to go of more lots would take minutes to work out.
        maps |= {"map_count": min(env_cfg.map_count, 64), "near_share": 0.0}
    reward = {"reward": evaluation_reward(env_cfg.reward)}
    return replace(env_cfg, **({"num_envs": num_envs} | maps | finer | reward | changes))


def drive_episodes(
    env: DriveEnv, act: Callable[[DriveEnv, Any], torch.Tensor], on_progress: Callable[[float], None] = lambda _: None
) -> dict[str, np.ndarray]:
    """One whole episode of every car.

    Args:
        env: Where; it is reset.
        act: (environment, observations) -> actions ``(N, 2)``.
        on_progress: Called with the share that is done.

    Returns:
        What :class:`DriveEnv` says of ended episodes, each (N,) in the order of the environments.
    """
    obs = env.reset()
    found: dict[str, np.ndarray] = {}
    open_ = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    # Not in inference mode, whose tensors no later reset could write to.
    with torch.no_grad():
        for _ in range(env.max_episode_steps):
            obs = env.step(act(env, obs)).obs
            which = env.ended["envs"]
            first = open_[which]
            for name, values in env.ended.items():
                whole = found.setdefault(name, np.zeros(env.num_envs))
                whole[which[first].cpu().numpy()] = values[first].cpu().numpy()
            open_[which] = False
            on_progress(1.0 - float(open_.float().mean()))
            if not bool(open_.any()):
                break
    return found


def scores_of(found: dict[str, np.ndarray]) -> dict[str, Any]:
    """Episodes as scores: those of ``drive_scores``, flat, and how episodes ended."""
    infractions = {kind: found[kind].astype(int) for kind in COUNTED if kind in found}
    episodes = DriveEpisodes(
        completion=found["completion"],
        driven_m=found["driven_m"],
        duration_s=found["duration_s"],
        infractions=infractions,
        off_route_share=found["off_route_share"],
        lateral_rmse_m=found["lateral_rmse_m"],
        discomfort_share=found["discomfort_share"],
    )
    scores = asdict(drive_scores(episodes))
    scores["completion_percent"] = scores.pop("completion")
    ends = {name: float(np.mean(found[name])) for name in ENDS if name in found}
    if "position_error_m" in found:
        scores |= {name: float(np.median(found[name])) for name in ("position_error_m", "heading_error_rad")}
    if "laps" in found:
        scores |= _race_scores(found, scores["per_km"]["static"])
    return scores | {"ends": ends, "mean_speed_m_s": float(found["driven_m"].sum() / found["duration_s"].sum())}


def _race_scores(found: dict[str, np.ndarray], crashes_per_km: float) -> dict[str, Any]:
    """Of races on closed tracks; lap times are means over finished races and left out where there is none."""
    scores: dict[str, Any] = {"laps": asdict(bootstrap_mean(found["laps"])), "crashes_per_km": crashes_per_km}
    whole = found["completion"] >= 1.0
    if whole.any():
        scores |= {name: asdict(bootstrap_mean(found[name][whole])) for name in ("lap_time_s", "best_lap_s")}
    return scores


def evaluate_drive(
    task: Task,
    env_cfg: CarTaskCfg,
    make_policy: MakePolicy,
    *,
    episodes: int,
    device: str,
    seed: int,
    full_model: bool,
    on_progress: Callable[[float], None],
) -> dict[str, Any]:
    """Episodes on held-out maps, as :class:`~gantry_sim.tasks.registry.Task` asks for them."""
    env = task.make_env(task.evaluation(env_cfg, num_envs=episodes, full_model=full_model), device, seed)
    assert isinstance(env, DriveEnv)
    act = acting(make_policy, env)
    return scores_of(drive_episodes(env, lambda _, obs: act(obs), on_progress))


def record_drive(
    task: Task, env_cfg: CarTaskCfg, make_policy: MakePolicy, *, seed: int, envs: int = 6, steps: int = 240
) -> dict[str, np.ndarray]:
    """Signals, observations and targets of the training environment under the policy.

    Args:
        task: The task.
        env_cfg: Its configuration in training.
        make_policy: From environments to the policy that acts in them, deterministic.
        seed: Of the episodes.
        envs: Cars side by side.
        steps: Decisions of each.

    Returns:
        Arrays of ``envs * steps`` rows, car by car, ``episode_start`` marking those without a past.
    """
    if getattr(env_cfg, "bev", None) is not None:
        steps = min(steps, PICTURE_STEPS)
    reward, maps = evaluation_reward(env_cfg.reward), min(env_cfg.map_count, 4)
    env = task.make_env(replace(env_cfg, num_envs=envs, map_count=maps, reward=reward), "cpu", seed)
    assert isinstance(env, DriveEnv)
    rows: dict[str, list[torch.Tensor]] = {}
    act = acting(make_policy, env)
    with torch.inference_mode():
        obs = env.reset()
        start = torch.ones(envs, dtype=torch.bool)
        for _ in range(steps):
            signals = env.signals
            assert signals is not None
            action = act(obs)
            step = _told(signals) | {"observation": obs[STATE].clone(), "episode_start": start.clone()}
            target = env.decoder(action, signals)
            assert target.vel_rad_s is not None
            step |= {TARGET_ARRAY: target.pos_rad, TARGET_VELOCITY_ARRAY: target.vel_rad_s}
            taken = env.step(action)
            obs = taken.obs
            for name, value in step.items():
                rows.setdefault(name, []).append(value)
            start = taken.terminated | taken.truncated
    return {name: torch.stack(values, dim=1).flatten(0, 1).numpy() for name, values in rows.items()}


def _told(signals: Signals) -> dict[str, torch.Tensor]:
    """Reports of a robot, by the names of ``golden.npz``."""
    names = ("joint_pos_rad", "joint_vel_rad_s", "command", "last_action", "time_s")
    names += ("ang_vel_base_in_base_rad_s", "lin_vel_base_in_base_m_s")
    found = {name: getattr(signals, name).clone() for name in names}
    pose, around = signals.pose_in_world, signals.surroundings
    assert pose is not None
    assert around is not None
    # In double precision, so that the heading is the same number again, and pixels of a raster fall alike.
    half, zeros = 0.5 * pose[:, 2].double(), torch.zeros_like(pose[:, 2])
    found[PLACE_ARRAY] = torch.cat((pose[:, :2], zeros[:, None]), dim=1)
    found["quat_base_to_world_wxyz"] = torch.stack((torch.cos(half), zeros, zeros, torch.sin(half)), dim=1)
    return found | {AROUND_PREFIX + name: values.clone() for name, values in around.given().items()}
