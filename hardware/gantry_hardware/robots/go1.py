"""Unitree Go1.

Masses, ranges and inertias are those of the manufacturer's description, the motors' rotor inertia and gear ratios
those of its URDF; mjlab's model carries the same figures, and so does its choice of loop bandwidth.

Gains: a motor whose reflected rotor inertia is I behaves, when nothing else hangs on it, as the second-order system
I q'' + d q' + k (q - q*) = 0. Asking for a natural frequency w and a damping ratio z gives k = I w^2 and d = 2 z I w.
With w = 10 Hz and z = 2 a hip gets 15.9 N m/rad and 1.01 N m s/rad, a knee (larger gear, larger I) 2.25 times as much.
"""

from __future__ import annotations

import math

from gantry_hardware.model.spec import JointSpec, RobotSpec

ROTOR_INERTIA_KG_M2 = 1.11842e-4
"""Of the motor's rotor about its own axis; one motor serves hip, thigh and calf."""
GEAR_RATIO = 6.0
"""Of hip and thigh."""
CALF_LINKAGE_RATIO = 1.5
"""The calf's linkage gears down further."""
BANDWIDTH_RAD_S = 2.0 * math.pi * 10.0
"""Natural frequency of the unloaded position loop."""
DAMPING_RATIO = 2.0
"""Of the unloaded position loop: well overdamped, since a loaded leg has more inertia than the rotor alone."""

DAMP_NM_S_RAD = 5.0
"""Derivative gain of every joint for letting the robot down: with those of the position loop the trunk hits the ground
with 0.42 m/s after 0.9 s, with this one it sinks at 0.13 m/s for 2.4 s (MuJoCo)."""
HIP_EFFORT_NM = 23.7
"""Torque limit of hip and thigh."""
CALF_EFFORT_NM = HIP_EFFORT_NM * CALF_LINKAGE_RATIO
"""Torque limit of the calf, 35.55 N m."""
HIP_SPEED_RAD_S = 30.1
"""Speed limit of hip and thigh."""
CALF_SPEED_RAD_S = 20.06
"""Speed limit of the calf: 30.1 / 1.5, as published."""
HIP_SPLAY_RAD = 0.1
"""Abduction in the default pose, which brings the feet under the hips."""
THIGH_RAD, CALF_RAD = 0.9, -1.8
"""Default pose: the calf folds twice as far as the thigh leans, so that the foot is below the hip."""

LINK_M = 0.213
"""Length of the thigh, and of the calf."""
HIP_OFFSET_M = 0.08
"""From the axis of abduction sideways to the thigh."""
FOOT_RADIUS_M = 0.023
"""Radius of the foot."""
LEG_HEIGHT_M = 2.0 * LINK_M * math.cos(THIGH_RAD) * math.cos(HIP_SPLAY_RAD) + HIP_OFFSET_M * math.sin(HIP_SPLAY_RAD)
"""Of the hip above the foot's centre in the default pose."""


def _joint(
    name: str, limits_rad: tuple[float, float], default_rad: float, ratio: float, speed_rad_s: float, effort_nm: float
) -> JointSpec:
    armature_kg_m2 = ROTOR_INERTIA_KG_M2 * ratio**2
    return JointSpec(
        name=name,
        lower_rad=limits_rad[0],
        upper_rad=limits_rad[1],
        velocity_limit_rad_s=speed_rad_s,
        effort_limit_nm=effort_nm,
        default_rad=default_rad,
        stiffness_nm_rad=armature_kg_m2 * BANDWIDTH_RAD_S**2,
        damping_nm_s_rad=2.0 * DAMPING_RATIO * armature_kg_m2 * BANDWIDTH_RAD_S,
        armature_kg_m2=armature_kg_m2,
    )


def _leg(leg: str) -> tuple[JointSpec, JointSpec, JointSpec]:
    hip_rad = HIP_SPLAY_RAD if leg.endswith("R") else -HIP_SPLAY_RAD
    hip, calf = (GEAR_RATIO, HIP_SPEED_RAD_S, HIP_EFFORT_NM), GEAR_RATIO * CALF_LINKAGE_RATIO
    return (
        _joint(f"{leg}_hip_joint", (-0.863, 0.863), hip_rad, *hip),
        _joint(f"{leg}_thigh_joint", (-0.686, 4.501), THIGH_RAD, *hip),
        _joint(f"{leg}_calf_joint", (-2.818, -0.888), CALF_RAD, calf, CALF_SPEED_RAD_S, CALF_EFFORT_NM),
    )


SPEC = RobotSpec(
    name="go1",
    embodiment="legs",
    joints=_leg("FR") + _leg("FL") + _leg("RR") + _leg("RL"),
    feet=("FR", "FL", "RR", "RL"),
    base_height_m=LEG_HEIGHT_M + FOOT_RADIUS_M,
    fall_height_m=0.15,
    mass_kg=5.204 + 4 * (0.68 + 1.009 + 0.195862),
    source="Unitree's published description, via mjlab's unitree_go1 (model BSD-3-Clause, code Apache-2.0)",
    mjcf="mjlab:asset_zoo/robots/unitree_go1/xmls/go1.xml",
    damp_gains_nm_s_rad=(DAMP_NM_S_RAD,) * 12,
)
