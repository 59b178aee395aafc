"""A motion for mjlab's tasks that follow a recorded one: mjlab brings none, so the robot's first pose is held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import numpy as np

FRAMES = 100
"""Frames of the motion."""


def held_motion(task_id: str, folder: Path) -> dict[str, Any]:
    """Changes for a task that follows a recorded motion; none for any other.

    Args:
        task_id: Name in mjlab's registry.
        folder: Where the motion is written.
    """
    from mjlab.entity import Entity

    from gantry_sim.mjlab_tasks.cfg import MjlabCfg, mjlab_env_cfg

    env_cfg = mjlab_env_cfg(MjlabCfg(task_id), seed=0)
    if "motion" not in (env_cfg.commands or {}):
        return {}
    model = Entity(env_cfg.scene.entities["robot"]).spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_forward(model, data)
    held = {
        "joint_pos": data.qpos[7:],
        "joint_vel": np.zeros(model.nv - 6),
        "body_pos_w": data.xpos[1:],
        "body_quat_w": data.xquat[1:],
        "body_lin_vel_w": np.zeros((model.nbody - 1, 3)),
        "body_ang_vel_w": np.zeros((model.nbody - 1, 3)),
    }
    path = folder / "stand.npz"
    frames: dict[str, Any] = {name: np.repeat(value[None], FRAMES, axis=0) for name, value in held.items()}
    np.savez(path, fps=50, **frames)
    return {"commands.motion.motion_file": str(path)}
