"""The driving tasks, each with a preset for a laptop and one for a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gantry_policies.config import PpoCfg
from gantry_sim.driving.cfg import DriveCfg
from gantry_sim.driving.contract import lane_contract
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.evaluation import evaluate_drive, held_out, record_drive
from gantry_sim.tasks.registry import Preset, Task


def cpu_lane() -> Preset:
    """Following a route alone, from few samples: numbers instead of pictures, small networks, large minibatches."""
    return Preset(
        env=DriveCfg(),
        learner=PpoCfg(
            total_steps=3_000_000,
            steps_per_env=64,
            epochs=3,
            minibatch_samples=4096,
            learning_rate=1e-3,
            final_learning_rate_factor=0.1,
            clip=0.1,
            entropy=0.003,
            gamma=0.99,
            hidden=(128, 128),
            critic_hidden=(128, 128),
            distribution="beta",
        ),
    )


def gpu_lane() -> Preset:
    """The same at the size of CaRL's batches (arXiv 2504.17838)."""
    few = cpu_lane()
    learner = replace(
        few.learner,
        total_steps=100_000_000,
        steps_per_env=16,
        minibatch_samples=16_384,
        learning_rate=2.5e-4,
        entropy=0.01,
        hidden=(256, 256),
        critic_hidden=(256, 256),
    )
    return Preset(replace(few.env, num_envs=4096, map_count=512), learner)


def _make_env(cfg: Any, device: str, seed: int) -> Any:
    return DriveEnv(cfg, device, seed)


DRIVE_LANE = Task(
    name="drive-lane",
    summary="follow a route through a town, alone",
    robot="bmw_320i",
    presets={"cpu": cpu_lane, "gpu": gpu_lane},
    make_env=_make_env,
    contract=lane_contract,
    mirror=lambda env_cfg: None,
    metrics=lambda env: {},
    evaluation=held_out,
    evaluate=evaluate_drive,
    record=record_drive,
)
