"""Unitree G1, 29 joints.

Masses and ranges are those of the manufacturer's description (revision 1.0), rotor inertias and gear stages those of
its four motor types; mjlab's model carries the same figures, and so does its choice of loop bandwidth.

Every motor drives a two-stage planetary gear. With stage ratios r1 and r2, the rotor turns r1 r2 times per turn of the
joint and the first carrier r2 times, and kinetic energy adds up to half the square of the joint's speed times

    I = I_rotor (r1 r2)^2 + I_first_carrier r2^2 + I_second_carrier.

A planetary stage whose sun drives the carrier inside a fixed ring has the ratio 1 + ring teeth / sun teeth.
As for the Go1, an unloaded joint I q'' + d q' + k (q - q*) = 0 of natural frequency w and damping ratio z needs
k = I w^2 and d = 2 z I w; here w = 10 Hz and z = 2.

Ankles, and the waist's roll and pitch, are moved by two motors each through a parallel linkage, whose ratio depends on
the pose. It is taken as 1 : 1, so that inertia, gains and torque are twice those of one motor.

These gains are for a policy that balances; holding still, they let the robot fall. Leaning by a small angle a, the body
is pulled over by m g h a = 33.3 kg * 9.81 m/s^2 * 0.67 m * a = 219 N m/rad * a, while two ankles of 28.5 N m/rad push
back with 57 N m/rad. To hold a pose without a policy, the ankles' bandwidth is therefore four times as high, which
gives 2 * 456 N m/rad, four times what is needed, and that of the other joints of legs and waist, which bend in series
with the ankles, twice as high. Damping is doubled throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gantry_hardware.model.spec import JointSpec, RobotSpec

BANDWIDTH_RAD_S = 2.0 * math.pi * 10.0
"""Natural frequency of the unloaded position loop."""
DAMPING_RATIO = 2.0
"""Of the unloaded position loop."""
HOLD_BANDWIDTH_RATIO = 2.0
"""Legs and waist: bandwidth while holding a pose over bandwidth under a policy."""
HOLD_BANDWIDTH_RATIO_ANKLE = 4.0
"""The same of the ankles."""
HOLD_DAMPING_RATIO = 2.0
"""Damping of legs and waist while holding a pose over damping under a policy."""


@dataclass(frozen=True)
class Motor:
    """A motor with its two-stage planetary gear."""

    inertias_kg_m2: tuple[float, float, float]
    """Of rotor, first carrier and second carrier, each about its own axis."""
    ratios: tuple[float, float]
    """Of the first and the second stage."""
    effort_limit_nm: float
    """Largest torque at the output."""
    velocity_limit_rad_s: float
    """Largest speed of the output."""

    @property
    def armature_kg_m2(self) -> float:
        """Inertia seen at the output."""
        rotor, first, second = self.inertias_kg_m2
        return rotor * (self.ratios[0] * self.ratios[1]) ** 2 + first * self.ratios[1] ** 2 + second


SMALL = Motor((0.139e-4, 0.017e-4, 0.169e-4), (1.0 + 46.0 / 18.0, 1.0 + 56.0 / 16.0), 25.0, 37.0)
"""Type 5020: arms, and in pairs ankles and waist roll and pitch."""
FAST = Motor((0.489e-4, 0.098e-4, 0.533e-4), (4.5, 1.0 + 48.0 / 22.0), 88.0, 32.0)
"""Type 7520, total ratio 14: hip pitch, hip yaw, waist yaw."""
STRONG = Motor((0.489e-4, 0.109e-4, 0.738e-4), (4.5, 5.0), 139.0, 20.0)
"""Type 7520, total ratio 22: hip roll, knee."""
TINY = Motor((0.068e-4, 0.0, 0.0), (5.0, 5.0), 5.0, 22.0)
"""Type 4010: wrist pitch and yaw. Its carriers' inertias are not published."""


def _joint(
    name: str, limits_rad: tuple[float, float], motor: Motor, default_rad: float = 0.0, *, motors: int = 1
) -> JointSpec:
    armature_kg_m2 = motors * motor.armature_kg_m2
    return JointSpec(
        name=f"{name}_joint",
        lower_rad=limits_rad[0],
        upper_rad=limits_rad[1],
        velocity_limit_rad_s=motor.velocity_limit_rad_s,
        effort_limit_nm=motors * motor.effort_limit_nm,
        default_rad=default_rad,
        stiffness_nm_rad=armature_kg_m2 * BANDWIDTH_RAD_S**2,
        damping_nm_s_rad=2.0 * DAMPING_RATIO * armature_kg_m2 * BANDWIDTH_RAD_S,
        armature_kg_m2=armature_kg_m2,
    )


def _leg(side: str) -> tuple[JointSpec, ...]:
    hip_roll_rad = (-0.5236, 2.9671) if side == "left" else (-2.9671, 0.5236)
    return (
        _joint(f"{side}_hip_pitch", (-2.5307, 2.8798), FAST, -0.312),
        _joint(f"{side}_hip_roll", hip_roll_rad, STRONG),
        _joint(f"{side}_hip_yaw", (-2.7576, 2.7576), FAST),
        _joint(f"{side}_knee", (-0.087267, 2.8798), STRONG, 0.669),
        _joint(f"{side}_ankle_pitch", (-0.87267, 0.5236), SMALL, -0.363, motors=2),
        _joint(f"{side}_ankle_roll", (-0.2618, 0.2618), SMALL, motors=2),
    )


def _arm(side: str) -> tuple[JointSpec, ...]:
    shoulder_roll_rad, roll_default_rad = ((-1.5882, 2.2515), 0.2) if side == "left" else ((-2.2515, 1.5882), -0.2)
    return (
        _joint(f"{side}_shoulder_pitch", (-3.0892, 2.6704), SMALL, 0.2),
        _joint(f"{side}_shoulder_roll", shoulder_roll_rad, SMALL, roll_default_rad),
        _joint(f"{side}_shoulder_yaw", (-2.618, 2.618), SMALL),
        _joint(f"{side}_elbow", (-1.0472, 2.0944), SMALL, 0.6),
        _joint(f"{side}_wrist_roll", (-1.97222, 1.97222), SMALL),
        _joint(f"{side}_wrist_pitch", (-1.61443, 1.61443), TINY),
        _joint(f"{side}_wrist_yaw", (-1.61443, 1.61443), TINY),
    )


WAIST = (
    _joint("waist_yaw", (-2.618, 2.618), FAST),
    _joint("waist_roll", (-0.52, 0.52), SMALL, motors=2),
    _joint("waist_pitch", (-0.52, 0.52), SMALL, motors=2),
)
"""The three joints between pelvis and torso."""

LEG_KG = 1.35 + 1.52 + 1.702 + 1.932 + 0.074 + 0.608
"""One leg from hip to foot."""
TRUNK_KG = 3.813 + 0.214 + 0.086 + 7.818
"""Pelvis, waist and torso with head."""
ARM_KG = 0.718 + 0.643 + 0.734 + 0.6 + 0.085445 + 0.48405 + 0.254576
"""One arm from shoulder to hand."""

JOINTS = _leg("left") + _leg("right") + WAIST + _arm("left") + _arm("right")
"""In canonical order."""


def _hold_gains(joint: JointSpec) -> tuple[float, float]:
    if "_ankle_" in joint.name:
        bandwidth_ratio = HOLD_BANDWIDTH_RATIO_ANKLE
    elif any(part in joint.name for part in ("_hip_", "_knee_", "waist_")):
        bandwidth_ratio = HOLD_BANDWIDTH_RATIO
    else:
        return joint.stiffness_nm_rad, joint.damping_nm_s_rad
    return joint.stiffness_nm_rad * bandwidth_ratio**2, joint.damping_nm_s_rad * HOLD_DAMPING_RATIO


SPEC = RobotSpec(
    name="g1",
    embodiment="legs",
    joints=JOINTS,
    feet=("left_foot", "right_foot"),
    base_height_m=0.757,
    fall_height_m=0.4,
    mass_kg=TRUNK_KG + 2 * (LEG_KG + ARM_KG),
    source="Unitree's published description, via mjlab's unitree_g1 (model BSD-3-Clause, code Apache-2.0)",
    hold_gains=tuple(_hold_gains(joint) for joint in JOINTS),
    mjcf="mjlab:asset_zoo/robots/unitree_g1/xmls/g1.xml",
    central_joints=tuple(joint.name for joint in WAIST),
    damp_gains_nm_s_rad=tuple(_hold_gains(joint)[1] for joint in JOINTS),
)
