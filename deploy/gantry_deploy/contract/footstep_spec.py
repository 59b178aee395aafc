"""Footstep part of a policy contract: legs that are told where to step, and speed of the body."""

from __future__ import annotations

from dataclasses import dataclass

STEP_TARGET = "target/body/steps"
"""Semantic kind of an action that says where feet land and how the base moves."""
STEP_NAMES = (
    "front_foot_x_m",
    "front_foot_y_m",
    "front_foot_z_m",
    "rear_foot_x_m",
    "rear_foot_y_m",
    "rear_foot_z_m",
    "lin_vel_x_m_s",
    "lin_vel_y_m_s",
    "ang_vel_z_rad_s",
    "base_height_m",
    "base_pitch_rad",
    "base_roll_rad",
)
"""The numbers of such an action, in units of ``action.scale``; see ``Stepper``."""


@dataclass(frozen=True)
class LegSpec:
    """One leg of hip (about x), thigh and calf (about y); the knee bends backwards."""

    hip_in_base_m: tuple[float, float, float]
    """Origin of the hip's axis in the base frame [m]."""
    side_m: float
    """From there to the leg's plane, positive to the left."""
    thigh_m: float
    """Length of the thigh."""
    calf_m: float
    """From the knee to the centre of the foot."""
    stand_x_m: float
    """Nominal place of the foot, ahead of the base [m]."""
    stand_y_m: float
    """The same to the left."""


@dataclass(frozen=True)
class SupportSpec:
    """Base that the feet on the ground carry: what differs between robots; gains are in ``footsteps.support``."""

    mass_kg: float
    """Mass of the robot."""
    mass_in_base_m: tuple[float, float, float]
    """Centre of mass in the base frame [m]."""
    inertia_kg_m2: tuple[float, float, float]
    """Inertia about the base's axes, by which angular accelerations are multiplied."""
    height_m: float = 0.2815
    """Height of the hips over the mean of the soles of their end, front or rear."""
    highest_m: float = 0.3391
    """Largest height over the lower of the two soles."""
    lowest_m: float = 0.1124
    """Smallest height over the higher of the two soles."""
    drag_1_s: float = 0.0
    """Acceleration per wanted velocity that makes up for the damping of the standing legs' joints: without it a trot
    is half as fast as it is asked to be."""


@dataclass(frozen=True)
class SwingSpec:
    """Motion of feet to their places."""

    foot_radius_m: float
    """Height of a foot's centre over its sole."""
    capture_s: float = 0.1757
    """Distance by which a foot is put ahead after a velocity that is not as wanted, m per m/s."""
    capture_aside_s: float = 0.25
    """The same sideways."""
    ahead_m: float = 0.22
    """Largest distance by which velocities move a foot ahead or back of where it stands."""
    aside_m: float = 0.1
    """The same sideways."""
    clearance_m: float = 0.0714
    """Clearance over the highest ground on the way."""
    search_m: float = 0.28
    """Radius around the places that feet are sent to, in which better ground is searched for."""
    most_lead_rad: tuple[float, float, float] = (0.8, 0.8, 0.4)
    """Largest distance of the targets of hip, thigh and calf from the joints of a leg in the air: they turn the faster
    the farther that is, a Go2's some 37 rad/s for each rad, and its motors allow 30, 30 and 16 rad/s."""


@dataclass(frozen=True)
class PathSelectorSpec:
    """Choice of the path to a goal by what the map shows ahead; costs are in ``footsteps.path_selector``."""

    reach_m: float = 0.7
    """Distance ahead of the base within which the ground is looked at."""
    track_m: float = 0.135
    """Distance of the feet's tracks to the side of the base."""
    deep_m: float = 0.3
    """Depth below the lowest standing foot from which on ground is none."""
    wall_m: float = 0.4
    """Height over the highest standing foot from which on ground is a wall."""


@dataclass(frozen=True)
class BodyPoseSpec:
    """Body pose before a step and over one, by what the map shows; limits are in ``footsteps.body_pose``."""

    ahead_m: tuple[float, float] = (0.32, 0.75)
    """Nearest and farthest distance ahead of the base at which the ground is looked at."""
    nose_m: float = 0.3
    """Distance of the nose ahead of the base: what is higher needs this much more pitch per m."""
    belly_m: float = 0.12
    """Smallest height of the base's centre over the ground below it."""


@dataclass(frozen=True)
class StepsSpec:
    """Legs that are told where to step: ``Stepper``, which these are the numbers of.

    Two front and two rear feet, of which at most one each is in the air: the action has one place for either.
    """

    legs: tuple[LegSpec, ...]
    """In the order of the clock's feet and of the joints, three each."""
    support: SupportSpec
    """Base that the feet on the ground carry."""
    swing: SwingSpec
    """Motion of feet to their places."""
    body_pose: BodyPoseSpec | None = None
    """Body pose for steps ahead; None as the feet alone ask for."""
    path: PathSelectorSpec | None = None
    """Choice of the path to a goal; None for the straight one."""
