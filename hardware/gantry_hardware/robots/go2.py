"""Unitree Go2.

Masses, limits and inertias are the manufacturer's published figures, as carried in MuJoCo Menagerie's ``unitree_go2``
(BSD-3-Clause). The joint order FR, FL, RR, RL, each hip, thigh, calf, is that of the robot's low-level interface.

Gains: with a leg's inertia of about 0.04 kg m^2 at the hip, 40 N m/rad puts the position loop at
sqrt(40 / 0.04) / 2 pi = 5 Hz, soft enough to land on, and 1 N m s/rad damps it at 1 / (2 sqrt(40 * 0.04)) = 0.4.
In the default pose a leg carries 15.2 kg * 9.81 m/s^2 / 4 = 37 N on a lever of 0.213 m * sin(0.9) = 0.167 m, that is
6.2 N m or 0.16 rad of sag at the calf, more as the leg folds and the lever grows.

Letting the robot down: 1 N m s/rad would let those 6.2 N m fold the calf at 6 rad/s, and the trunk would hit the ground
with 0.85 m/s after 0.4 s. With 5 N m s/rad it sinks at some 0.3 m/s and lies still after 1.7 s (MuJoCo).
"""

from __future__ import annotations

import math

from gantry_hardware.model.spec import JointSpec, RobotSpec

ARMATURE_KG_M2 = 0.01
"""Reflected rotor inertia of the description."""
STIFFNESS_NM_RAD = 40.0
"""Proportional gain of every joint, derived above."""
DAMPING_NM_S_RAD = 1.0
"""Derivative gain of every joint, derived above."""
DAMP_NM_S_RAD = 5.0
"""Derivative gain of every joint for letting the robot down, derived above."""
HIP_EFFORT_NM = 23.7
"""Torque limit of hip and thigh."""
CALF_EFFORT_NM = 45.43
"""Torque limit of the calf: the same motor behind a further linkage of ratio 1.917."""
HIP_SPEED_RAD_S = 30.1
"""Speed limit of hip and thigh."""
CALF_SPEED_RAD_S = 15.7
"""Speed limit of the calf, 30.1 / 1.917."""
THIGH_RAD, CALF_RAD = 0.9, -1.8
"""Default pose: the calf folds twice as far as the thigh leans, so that the foot is below the hip."""

LINK_M = 0.213
"""Length of the thigh, and of the calf."""
FOOT_OFFSET_M = 0.002
"""The foot's centre lies this far behind the calf's axis."""
FOOT_RADIUS_M = 0.022
"""Radius of the foot."""
LEG_HEIGHT_M = 2.0 * LINK_M * math.cos(THIGH_RAD) + FOOT_OFFSET_M * math.sin(THIGH_RAD)
"""Of the hip above the foot's centre in the default pose; the published home height of 0.27 m includes some sag."""


def _joint(name: str, lower: float, upper: float, default: float, effort: float, speed: float) -> JointSpec:
    return JointSpec(name, lower, upper, speed, effort, default, STIFFNESS_NM_RAD, DAMPING_NM_S_RAD, ARMATURE_KG_M2)


def _leg(leg: str) -> tuple[JointSpec, JointSpec, JointSpec]:
    thigh_range = (-1.5708, 3.4907) if leg.startswith("F") else (-0.5236, 4.5379)
    return (
        _joint(f"{leg}_hip_joint", -1.0472, 1.0472, 0.0, HIP_EFFORT_NM, HIP_SPEED_RAD_S),
        _joint(f"{leg}_thigh_joint", *thigh_range, THIGH_RAD, HIP_EFFORT_NM, HIP_SPEED_RAD_S),
        _joint(f"{leg}_calf_joint", -2.7227, -0.83776, CALF_RAD, CALF_EFFORT_NM, CALF_SPEED_RAD_S),
    )


SPEC = RobotSpec(
    name="go2",
    embodiment="legs",
    joints=_leg("FR") + _leg("FL") + _leg("RR") + _leg("RL"),
    feet=("FR", "FL", "RR", "RL"),
    base_height_m=LEG_HEIGHT_M + FOOT_RADIUS_M,
    fall_height_m=0.15,
    mass_kg=6.921 + 4 * (0.678 + 1.152 + 0.241352),
    source="Unitree's published description, via MuJoCo Menagerie unitree_go2 (BSD-3-Clause)",
    mjcf="gantry_sim:assets/go2.xml",
    damp_gains_nm_s_rad=(DAMP_NM_S_RAD,) * 12,
)
