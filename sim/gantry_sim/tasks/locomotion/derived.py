"""Gait and heights of a quadruped, derived from its MuJoCo model: for robots without numbers found by hand.

Each leg has three joints. The Jacobian of its foot in the default pose, inverted, says how the joints lift the foot
straight up and how they carry it along x and y, whatever the joints are called and however they turn.
"""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import GaitSpec
from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.robots.model_conventions import base_body
from gantry_sim.robots.models import foot_geoms, robot_model
from gantry_sim.tasks.locomotion.legged_robot import LeggedRobotCfg

FloatArray = NDArray[np.float64]

LEG_JOINTS = 3
"""Joints per leg that this knows to use."""
LIFT = 2.0
"""Largest gain of a joint in swing, as a trot by hand has it: the knee folds twice as far as the thigh turns."""


def derived_quadruped(spec: RobotSpec) -> LeggedRobotCfg:
    """Trot of a quadruped: diagonal feet together.

    Raises:
        GantryError: If the robot has other than four feet with three joints each, or a leg that is stretched.
    """
    if len(spec.feet) != 4:
        raise GantryError(
            f"Robot '{spec.name}' has {len(spec.feet)} feet; a gait is derived for quadrupeds with four feet alone. "
            "Others need a LeggedRobotCfg of their own, entry-point group gantry.legged_robots."
        )
    model = robot_model(spec.name, visuals=False)
    base, shapes = base_body(model).name, tuple(_pattern(model, foot) for foot in spec.feet)
    places, jacobians = _feet(model.compile(), spec)
    legs = [np.flatnonzero(np.abs(jacobian).max(axis=0) > 1e-6) for jacobian in jacobians]
    for foot, joints in zip(spec.feet, legs, strict=True):
        if len(joints) != LEG_JOINTS:
            names = ", ".join(spec.joint_names[joint] for joint in joints) or "none"
            raise GantryError(f"Foot '{foot}' of '{spec.name}' is moved by {names}; expected {LEG_JOINTS} joints.")
    lift, along_x, along_y = (np.zeros(spec.num_joints) for _ in range(3))
    joint_foot, hip = np.zeros(spec.num_joints, int), np.zeros(spec.num_joints, bool)
    for foot, (jacobian, joints) in enumerate(zip(jacobians, legs, strict=True)):
        inverse = _inverse(jacobian[:, joints], spec, foot)
        up = inverse @ np.array([0.0, 0.0, 1.0])
        lift[joints] = LIFT * up / np.abs(up).max()
        along_x[joints], along_y[joints] = inverse[:, 0], inverse[:, 1]
        joint_foot[joints] = foot
        hip[joints[np.argmax(np.abs(jacobian[1, joints]))]] = True
    front, left = places[:, 0] > places[:, 0].mean(), places[:, 1] > 0.0
    gait = GaitSpec(
        frequency_hz=2.0,
        duty=0.55,
        foot_offset=tuple(0.0 if a != b else 0.5 for a, b in zip(front, left, strict=True)),
        amplitude_rad=0.3,
        lead_s=0.03,
        joint_foot=tuple(joint_foot.tolist()),
        joint_gain=tuple(lift.tolist()),
        stand_below=0.1,
        foot_x_m=tuple(places[:, 0].tolist()),
        foot_y_m=tuple(places[:, 1].tolist()),
        stride_x_rad_m=tuple(along_x.tolist()),
        stride_y_rad_m=tuple(along_y.tolist()),
    )
    return LeggedRobotCfg(
        spec=spec,
        root_body=base,
        heavy_body=base,
        foot_geoms=shapes,
        foot_radius_m=float(spec.base_height_m + places[:, 2].mean()),
        gait=gait,
        action_scale=(0.25,) * spec.num_joints,
        base_height_m=spec.base_height_m,
        swing_height_m=0.25 * spec.base_height_m,
        deviation_weight=tuple(1.0 if is_hip else 0.5 for is_hip in hip),
        spawn_height_m=spec.base_height_m + 0.01,
    )


def _feet(model: mujoco.MjModel, spec: RobotSpec) -> tuple[FloatArray, list[FloatArray]]:
    """Places (feet, 3) in the base's frame, m, and Jacobians (3, joints), m/rad, in the default pose."""
    data = mujoco.MjData(model)
    data.qpos[:] = model.qpos0
    data.qpos[3:7] = (1.0, 0.0, 0.0, 0.0)
    for joint in spec.joints:
        data.qpos[model.joint(joint.name).qposadr[0]] = joint.default_rad
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    columns = [int(model.joint(name).dofadr[0]) for name in spec.joint_names]
    places, jacobians = [], []
    for foot in spec.feet:
        site = model.site(foot).id
        jacobian = np.zeros((3, model.nv))
        mujoco.mj_jacSite(model, data, jacobian, None, site)
        places.append(data.site_xpos[site] - data.qpos[:3])
        jacobians.append(jacobian[:, columns])
    return np.array(places), jacobians


def _inverse(jacobian: FloatArray, spec: RobotSpec, foot: int) -> FloatArray:
    if np.linalg.cond(jacobian) > 100.0:
        raise GantryError(
            f"The leg of '{spec.feet[foot]}' of '{spec.name}' is stretched in the default pose, or its joints turn "
            "alike: no joint moves its foot in some direction. Bend the knees in default_rad."
        )
    return np.asarray(np.linalg.inv(jacobian), dtype=np.float64)


def _pattern(model: mujoco.MjSpec, foot: str) -> str:
    """Regular expression of the shapes of a foot."""
    return "^(" + "|".join(geom.name for geom in foot_geoms(model, foot)) + ")$"
