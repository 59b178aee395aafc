"""I2RT YAM, six joints and a parallel gripper.

Geometry, ranges and masses are those of MuJoCo Menagerie's ``i2rt_yam`` (MIT) as mjlab carries it; motors and gripper
transmission are the manufacturer's. The frame of the base lies on the surface that the arm is screwed to.

The manufacturer's controller adds the torque that gravity asks of each joint, and runs a position loop of
80, 80, 80, 40, 10, 10 N m/rad and 5, 5, 5, 1.5, 1.5, 1.5 N m s/rad on top, which is what stands here. With the arm's
inertia of 0.28 kg m^2 at the shoulder that is
sqrt(80 / 0.28) / 2 pi = 2.7 Hz, damped at 5 / (2 sqrt(80 * 0.28)) = 0.53.

The gripper is the last joint. It slides, so that its position is in m where a name says rad, its force in N and its
gains in N/m and N s/m: the distance of a finger from the middle, 0 being closed. A motor drives one finger through a
crank whose 2.7 rad move it by 71 mm; the other finger is coupled to it. With r = 0.071 / 2.7 = 26.3 mm/rad the motor's
rotor inertia of 0.0018 kg m^2 weighs 0.0018 / r^2 = 2.60 kg, its 30 rad/s are 0.79 m/s, and its 10 N m are 380 N, of
which a tenth is used so that nothing is crushed. 1500 N/m press with 30 N on a thing 4 cm thick when told to close;
with fingers of 0.12 kg each they make a loop of sqrt(1500 / 2.84) / 2 pi = 3.7 Hz, and 130 N s/m damp it critically.
"""

from __future__ import annotations

import math

from gantry_hardware.model.chain import Chain, JointFrame
from gantry_hardware.model.spec import JointSpec, RobotSpec

STRONG_ARMATURE_KG_M2 = 0.032
"""Reflected rotor inertia of the motors of joints 1 to 3 (DM4340)."""
SMALL_ARMATURE_KG_M2 = 0.0018
"""Reflected rotor inertia of the other motors (DM4310)."""
STRONG_EFFORT_NM, SMALL_EFFORT_NM = 28.0, 10.0
"""Torque limits of the two motors."""
STRONG_SPEED_RAD_S, SMALL_SPEED_RAD_S = 10.0, 30.0
"""Speed limits of the two motors."""

CRANK_M_RAD = 0.071 / 2.7
"""Mean travel of a finger per angle of the gripper's motor."""
GRIPPER_EFFORT_N = 0.1 * SMALL_EFFORT_NM / CRANK_M_RAD
"""Force limit of the driven finger, a tenth of what the motor could."""
GRIPPER_STIFFNESS_N_M, GRIPPER_DAMPING_N_S_M = 4000.0, 210.0
"""Gains of the gripper, derived above."""
GRIPPER_JOINT = "left_finger"
"""The joint of the driven finger."""
GRIPPER_CLOSED_M, GRIPPER_OPEN_M = -0.002, 0.037
"""Positions of the driven finger; closed presses a little."""

EE_BEHIND_TIPS_M = 0.01
"""The end effector's frame lies between the pads, this far behind the finger tips."""
TOOL_TILT_RAD = math.radians(40.0)
"""In the default pose the fingers point down and forward, this far from the vertical: the fourth joint's range keeps
them from pointing straight down anywhere but close to the table."""

CHAIN = Chain(
    frames=(
        JointFrame("joint1", (0.0, 0.0, 0.0631), (1.0, 0.0, 0.0, 1.0)),
        JointFrame("joint2", (2.5e-05, -0.02, 0.0409), (1.0, 1.0, 1.0, 1.0)),
        JointFrame("joint3", (0.264, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)),
        JointFrame("joint4", (-0.245, -0.06, 0.0), (1.0, 0.0, 0.0, 0.0)),
        JointFrame("joint5", (-0.074, -0.0395, 2.5e-05), (1.0, -1.0, 1.0, 1.0)),
        JointFrame("joint6", (0.0, 0.0353, 0.0395), (1.0, -1.0, 0.0, 0.0)),
    ),
    # The pads' middle lies at y = -0.044 m and their tips 0.1467 m ahead. Turned about z by a quarter: x points away
    # from the camera, y from finger to finger, z along the fingers.
    pos_ee_m=(0.0, -0.044, 0.1467 - EE_BEHIND_TIPS_M),
    quat_ee_wxyz=(1.0, 0.0, 0.0, -1.0),
)
"""From the base to the end effector between the finger tips."""

_HOME_RAD = (0.0, 1.2065, 1.1097, -0.7759, 0.0, 0.0)

"""The end effector 0.30 m ahead of the base and 0.17 m above the table, tilted as above."""


def _strong(name: str, lower: float, upper: float, default: float) -> JointSpec:
    return JointSpec(
        name, lower, upper, STRONG_SPEED_RAD_S, STRONG_EFFORT_NM, default, 80.0, 5.0, STRONG_ARMATURE_KG_M2
    )


def _small(name: str, reach: float, default: float, stiffness: float) -> JointSpec:
    return JointSpec(
        name, -reach, reach, SMALL_SPEED_RAD_S, SMALL_EFFORT_NM, default, stiffness, 1.5, SMALL_ARMATURE_KG_M2
    )


SPEC = RobotSpec(
    name="yam",
    embodiment="arm",
    joints=(
        _strong("joint1", -2.61799, 3.05433, _HOME_RAD[0]),
        _strong("joint2", 0.0, 3.66519, _HOME_RAD[1]),
        _strong("joint3", 0.0, 3.66519, _HOME_RAD[2]),
        _small("joint4", 1.5708, _HOME_RAD[3], 40.0),
        _small("joint5", 1.5708, _HOME_RAD[4], 10.0),
        _small("joint6", 2.0944, _HOME_RAD[5], 10.0),
        JointSpec(
            name=GRIPPER_JOINT,
            lower_rad=-0.00205,
            upper_rad=0.037524,
            velocity_limit_rad_s=SMALL_SPEED_RAD_S * CRANK_M_RAD,
            effort_limit_nm=GRIPPER_EFFORT_N,
            default_rad=GRIPPER_OPEN_M,
            stiffness_nm_rad=GRIPPER_STIFFNESS_N_M,
            damping_nm_s_rad=GRIPPER_DAMPING_N_S_M,
            armature_kg_m2=SMALL_ARMATURE_KG_M2 / CRANK_M_RAD**2,
        ),
    ),
    feet=(),
    base_height_m=0.0,
    fall_height_m=-1.0,
    mass_kg=4.006152,
    source="MuJoCo Menagerie i2rt_yam (MIT) via mjlab, and I2RT's published motor and controller figures",
    body=CHAIN,
    mjcf="mjlab:asset_zoo/robots/i2rt_yam/xmls/yam.xml",
)
