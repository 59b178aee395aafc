"""A standing pose for a model that brings none: knees bent, feet below their hips."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import mujoco
import numpy as np

from gantry_sim.robot_kit.feet import Foot
from gantry_sim.robot_kit.geometry import ancestors, posed

BENT_SHARE = {4: 0.8, 2: 0.95}
"""Height of the hip above the foot over that of the stretched leg, by the number of legs: a Go2 stands at
0.265 / 0.426 = 0.62, larger robots with straighter legs."""
GRID = 41
"""Angles tried per joint."""
WIDEST_RAD = 2.6
"""Angles tried where a joint turns without limits."""
ACROSS = 0.7
"""Share of a joint's axis along the base's y axis from which on it turns in the plane of the leg."""


def bent_legs(
    model: mujoco.MjModel, joints: Sequence[str], feet: Sequence[Foot], straight: Mapping[str, float]
) -> dict[str, float]:
    """Angles by joint name: the given pose, and in it two joints per leg so bent that the foot is below its hip.

    Args:
        model: With a free base.
        joints: Names of the joints with motors.
        feet: The feet.
        straight: The pose to start from.
    """
    pose = dict(straight)
    data = posed(model, pose)
    for foot in feet:
        end = model.body(foot.body).id
        chain = [name for name in joints if int(model.jnt_bodyid[model.joint(name).id]) in ancestors(model, end)]
        bending = [name for name in chain if abs(data.xaxis[model.joint(name).id, 1]) > ACROSS]
        if len(bending) < 2:
            continue
        pose |= _bend(model, data, foot, (bending[0], bending[1]), BENT_SHARE.get(len(feet), 0.9))
        if len(bending) > 2:  # An ankle keeps the sole level.
            axes = {name: float(np.sign(data.xaxis[model.joint(name).id, 1])) for name in bending[:3]}
            ankle = -axes[bending[2]] * sum(axes[name] * pose[name] for name in bending[:2])
            low, high = _range(model, model.joint(bending[2]).id)
            pose[bending[2]] = round(min(max(ankle, low), high), 3)
    return pose


def _bend(
    model: mujoco.MjModel, data: mujoco.MjData, foot: Foot, names: tuple[str, str], share: float
) -> dict[str, float]:
    """Of all pairs of angles that put the foot below the hip, those with the hip at the height asked for; of the two
    ways to bend, that with the knee behind the foot, as of a Go2."""
    hip, knee = (model.joint(name) for name in names)
    grids = [np.linspace(*_range(model, joint.id), GRID) for joint in (hip, knee)]
    before = data.qpos.copy()
    found = []
    for angles in itertools.product(*grids):
        data.qpos[[hip.qposadr[0], knee.qposadr[0]]] = angles
        mujoco.mj_kinematics(model, data)
        place = data.geom_xpos[foot.geom] - data.xanchor[hip.id]
        found.append((*angles, place[0], -place[2], data.xanchor[knee.id, 0] - data.geom_xpos[foot.geom, 0]))
    data.qpos[:] = before
    mujoco.mj_kinematics(model, data)
    table = np.array(found)
    length = float(np.hypot(table[:, 2], table[:, 3]).max())
    cost = np.abs(table[:, 2]) + np.abs(table[:, 3] - share * length) + 0.02 * length * (table[:, 4] > 0.0)
    best = table[int(np.argmin(cost))]
    return {name: round(float(angle), 3) for name, angle in zip(names, best[:2], strict=True)}


def _range(model: mujoco.MjModel, joint: int) -> tuple[float, float]:
    if not model.jnt_limited[joint]:
        return -WIDEST_RAD, WIDEST_RAD
    low, high = (float(value) for value in model.jnt_range[joint])
    return max(low, -WIDEST_RAD), min(high, WIDEST_RAD)
