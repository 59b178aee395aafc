"""State that a robot reports and commands that it takes: plain arrays with frames and units in their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.model.spec import RobotSpec

FloatArray = NDArray[np.float64]

GRAVITY_M_S2 = 9.81
"""Standard gravity, as every simulation and controller here has it."""


@dataclass(frozen=True)
class RobotState:
    """One reading. ``n`` is the number of joints, in the canonical order of the robot's spec."""

    stamp_s: float
    """Time of the reading on the robot backend's own clock (:meth:`gantry_hardware.backends.backend.Robot.now_s`)."""
    joint_pos_rad: FloatArray
    """Shape (n,)."""
    joint_vel_rad_s: FloatArray
    """Shape (n,)."""
    joint_effort_nm: FloatArray
    """Shape (n,); zeros where the robot does not measure torque."""
    quat_base_to_world_wxyz: FloatArray
    """Shape (4,), unit quaternion, rotates base vectors into the world."""
    ang_vel_base_in_base_rad_s: FloatArray
    """Shape (3,), gyroscope."""
    lin_acc_base_in_base_m_s2: FloatArray
    """Shape (3,), accelerometer: gravity reaction included, so (0, 0, 9.81) at rest."""
    pos_base_in_world_m: FloatArray | None = None
    """Shape (3,), odometry where there is any."""
    lin_vel_base_in_base_m_s: FloatArray | None = None
    """Shape (3,), odometry where there is any."""
    foot_contact: NDArray[np.bool_] | None = None
    """Shape (feet,), true where a foot touches the ground; None where it is not sensed."""
    quat_base_to_odom_wxyz: FloatArray | None = None
    """Shape (4,), orientation in the frame of ``pos_base_in_world_m``, where the odometry has a heading of its own;
    None where that is the one of ``quat_base_to_world_wxyz``."""

    object_pose_in_base: FloatArray | None = None
    """Shape (7,), place in m and unit quaternion, w first, of what an arm handles, in the arm's base frame; None where
    no source reports it."""
    extra: Mapping[str, FloatArray] = field(default_factory=dict)
    """Further signals by name, each (k,), for observation terms of other packages; a name ends with its unit."""

    @property
    def pose_in_world(self) -> tuple[FloatArray, FloatArray] | None:
        """Position (3,), m, and unit quaternion (4,) in one frame, for places in the world; None without finite
        odometry.
        """
        pos = self.pos_base_in_world_m
        quat = self.quat_base_to_odom_wxyz
        quat = self.quat_base_to_world_wxyz if quat is None else quat
        if pos is None or not (np.isfinite(pos).all() and np.isfinite(quat).all()):
            return None
        return pos, quat

    def is_finite(self) -> bool:
        """Whether every number that a policy may read is finite."""
        required = (
            self.joint_pos_rad,
            self.joint_vel_rad_s,
            self.joint_effort_nm,
            self.quat_base_to_world_wxyz,
            self.ang_vel_base_in_base_rad_s,
        )
        return all(bool(np.isfinite(values).all()) for values in required)


@dataclass(frozen=True)
class JointCommand:
    """Impedance command: effort = feed-forward + stiffness (pos - q) + damping (vel - dq), at the motor's own rate."""

    pos_rad: FloatArray
    """Shape (n,), target position."""
    vel_rad_s: FloatArray
    """Shape (n,), target velocity."""
    effort_nm: FloatArray
    """Shape (n,), feed-forward torque."""
    stiffness_nm_rad: FloatArray
    """Shape (n,), proportional gain."""
    damping_nm_s_rad: FloatArray
    """Shape (n,), derivative gain."""

    @classmethod
    def position(cls, spec: RobotSpec, pos_rad: FloatArray) -> JointCommand:
        """Hold ``pos_rad`` (n,) with the gains that this robot holds a pose with."""
        zeros = np.zeros(spec.num_joints)
        return cls(
            pos_rad=np.asarray(pos_rad, dtype=np.float64),
            vel_rad_s=zeros,
            effort_nm=zeros,
            stiffness_nm_rad=spec.hold_stiffness_nm_rad,
            damping_nm_s_rad=spec.hold_damping_nm_s_rad,
        )

    @classmethod
    def damping(cls, spec: RobotSpec, pos_rad: FloatArray | None = None) -> JointCommand:
        """No position term, only damping towards zero velocity, with the gains that let this robot down slowly: what
        DAMP sends. ``pos_rad`` (n,) is informative."""
        zeros = np.zeros(spec.num_joints)
        return cls(
            pos_rad=spec.array("default_rad") if pos_rad is None else np.asarray(pos_rad, dtype=np.float64),
            vel_rad_s=zeros,
            effort_nm=zeros,
            stiffness_nm_rad=zeros,
            damping_nm_s_rad=spec.damp_damping_nm_s_rad,
        )

    @classmethod
    def passive(cls, spec: RobotSpec) -> JointCommand:
        """No torque at all: what PASSIVE sends."""
        zeros = np.zeros(spec.num_joints)
        return cls(spec.array("default_rad"), zeros, zeros, zeros, zeros)

    def is_finite(self) -> bool:
        """Whether every number is finite."""
        fields = (self.pos_rad, self.vel_rad_s, self.effort_nm, self.stiffness_nm_rad, self.damping_nm_s_rad)
        return all(bool(np.isfinite(values).all()) for values in fields)

    def with_pos(self, pos_rad: FloatArray) -> JointCommand:
        """The same command with other target positions (n,)."""
        return replace(self, pos_rad=pos_rad)


def fixed_base_state(
    stamp_s: float,
    joint_pos_rad: FloatArray,
    joint_vel_rad_s: FloatArray,
    joint_effort_nm: FloatArray,
    object_pose_in_base: FloatArray | None = None,
) -> RobotState:
    """State of a robot whose base neither moves nor tilts, such as an arm that is screwed down.

    Args:
        stamp_s: See :class:`RobotState`, as the others.
        joint_pos_rad: Shape (n,).
        joint_vel_rad_s: Shape (n,).
        joint_effort_nm: Shape (n,), zeros where no torque is measured.
        object_pose_in_base: Shape (7,).
    """
    return RobotState(
        stamp_s=stamp_s,
        joint_pos_rad=joint_pos_rad,
        joint_vel_rad_s=joint_vel_rad_s,
        joint_effort_nm=joint_effort_nm,
        quat_base_to_world_wxyz=np.array([1.0, 0.0, 0.0, 0.0]),
        ang_vel_base_in_base_rad_s=np.zeros(3),
        lin_acc_base_in_base_m_s2=np.array([0.0, 0.0, GRAVITY_M_S2]),
        object_pose_in_base=object_pose_in_base,
    )
