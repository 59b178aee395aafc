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

LIFT_SHARE = 0.08
"""Share of a swing at which a foot begins to move ahead."""


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
    """Support of the base by the feet on the ground."""

    mass_kg: float
    """Of the robot."""
    mass_in_base_m: tuple[float, float, float]
    """Its centre."""
    inertia_kg_m2: tuple[float, float, float]
    """About the base's axes; what the tilt's gains are multiplied with."""
    height_m: float = 0.2815
    """Of the hips over the mean of the soles of their end, front or rear."""
    highest_m: float = 0.3391
    """Most over the lower of the two."""
    lowest_m: float = 0.1124
    """Least over the higher of the two."""
    pitch_share: float = 0.9208
    """Share of the slope between front and rear that the base takes on."""
    roll_share: float = 0.4
    """The same between left and right; at most 0.3 rad."""
    velocity_gain_1_s: float = 4.8519
    """Horizontal acceleration for an error of the velocity; with that for the drag at most 4 m/s^2."""
    drag_1_s: float = 0.0
    """Acceleration that makes up for what the damping of the standing legs' joints takes, per velocity that is wanted:
    without it a trot is half as fast as it is asked to be."""
    height_gain_1_s2: float = 161.37
    """Vertical acceleration for an error of the height."""
    height_damping_1_s: float = 14.1729
    """The same for the vertical velocity."""
    tilt_gain_1_s2: float = 262.9786
    """Angular acceleration for an error of roll and pitch."""
    tilt_damping_1_s: float = 14.0
    """The same for an error of the angular velocity."""
    friction: float = 0.4404
    """Greatest horizontal force of a foot, as a share of the vertical one."""
    upright_1_s: float = 2.0
    """Rate at which the base comes back over its feet at rest, m/s per m."""
    narrow_share: float = 0.0
    """At the goal the robot keeps stepping while its front or its rear feet are less than this share of their stance
    apart sideways: on feet that have come together it sways until it falls. With 0 it rests on any."""


@dataclass(frozen=True)
class SwingSpec:
    """Motion of feet to their places."""

    foot_radius_m: float
    """Height of a foot's centre over its sole."""
    capture_s: float = 0.1757
    """Distance by which a foot is put ahead after a velocity that is not as wanted, m per m/s."""
    capture_aside_s: float = 0.1757
    """The same sideways."""
    ahead_m: float = 0.22
    """Most that velocities move a foot ahead or back of where it stands."""
    aside_m: float = 0.1
    """The same sideways."""
    clearance_m: float = 0.0714
    """Over the highest ground on the way."""
    arrive: float = 0.8835
    """Share of the swing after which a foot is above its place."""
    lead_s: float = 0.04
    """Time that a foot is sent ahead of the clock, since joints lag."""
    turn_lead_s: float = 0.0154
    """Time by which the base's attitude is predicted ahead."""
    move_lead_s: float = 0.021
    """The same of its place."""
    early_share: float = 0.6
    """A foot that comes to rest after this share of its swing has landed, and carries."""
    early_m_s: float = 0.3
    """It comes to rest when it falls more slowly than this."""
    most_lead_rad: tuple[float, float, float] = (0.8, 0.8, 0.4)
    """Most that the targets of hip, thigh and calf are away from the joints of a leg in the air: they turn the faster
    the farther that is, a Go2's some 37 rad/s for each rad, and its motors allow 30, 30 and 16 rad/s."""


@dataclass(frozen=True)
class FootholdSpec:
    """Search for ground around the places that feet are sent to; costs are squares of distances, m^2."""

    search_m: float = 0.28
    """Radius of the search."""
    edge_share: float = 0.2
    """Share of the four cells around a place that may lack ground without its being as bad as none."""
    lack_m2: float = 0.16
    """Cost of a place without ground."""
    ahead_m_s: float = 0.0168
    """Gain of a metre ahead, per m/s."""
    inward_m: float = 0.32
    """Cost of a metre to below the body, beyond 4 cm."""
    together: float = 6.0
    """Cost of the shift, across their line, of two feet that land together, beside that of each."""
    follow_1_s: float = 3.0
    """Velocity added to where feet were moved, m/s per m of their mean."""
    keep: float = 0.0
    """Cost of another place than the one that a foot is bound for, growing over its swing: between two that are as
    good, it would land between them."""


@dataclass(frozen=True)
class SteerSpec:
    """Choice of the way to a goal by what the map shows ahead; costs are per metre of a way, as its length is."""

    fan_rad: float = 0.7
    """Ways lie within this of straight ahead."""
    ways: int = 13
    """Number of ways."""
    reach_m: float = 0.7
    """Distance ahead of the base within which the ground is looked at."""
    points: int = 7
    """At how many points along each way."""
    go_m: float = 0.4
    """The base goes by the ground as near as this; it faces the way that all of it asks for."""
    near_m: float = 0.4
    """Nearer than this to the goal it goes straight, farther than twice this by the ground alone."""
    track_m: float = 0.135
    """Distance of the feet's tracks to the side of the base."""
    deep_m: float = 0.3
    """Ground so far below the lowest standing foot is none."""
    wall_m: float = 0.4
    """Ground so far above the highest one is a wall."""
    lack: float = 5.0
    """Cost where the feet of one side find no ground."""
    wall: float = 30.0
    """Cost where a wall is near."""
    most_lack: float = 0.8
    """Share of lacking ground: where every way has a point that lacks more, the straight one is as good."""
    straight: float = 2.0
    """Cost of a way that leads aside, times how much longer it is."""
    turn_rad: tuple[float, float] = (0.5, 1.0)
    """Bearing to the goal [rad]: full speed to a far goal below the first value, turn in place above the second and
    move only to where its feet find ground: beside and behind it there may be none. Applies only to maps that may be
    unsure, made from a camera.
    """


@dataclass(frozen=True)
class PostureSpec:
    """Body pose before a step and over one, by what the map shows."""

    ahead_m: tuple[float, float] = (0.32, 0.75)
    """From where to where ahead of the base the ground is looked at."""
    free_m: float = 0.1
    """A step so high over the lower front foot is none to the nose."""
    nose_m: float = 0.3
    """Distance of the nose ahead of the base: what is higher needs this much more pitch per m."""
    nose_up_rad: float = 0.45
    """Most that the nose is raised."""
    height_m_rad: float = 0.1
    """Additional height of the base, per rad of that."""
    belly_m: float = 0.12
    """The base's centre is to be so high over the ground below it."""
    belly_up_m: float = 0.12
    """Most that the base is raised for it."""
    wall_m: float = 0.45
    """Height from which on a rise is a wall."""


@dataclass(frozen=True)
class StepsSpec:
    """Legs that are told where to step: ``Stepper``, which these are the numbers of.

    Two front and two rear feet, of which at most one each is in the air: the action has one place for either.
    """

    legs: tuple[LegSpec, ...]
    """In the order of the clock's feet and of the joints, three each."""
    support: SupportSpec
    """Support of the base by the feet on the ground."""
    swing: SwingSpec
    """Motion of feet to their places."""
    footholds: FootholdSpec = FootholdSpec()
    """Search for ground at these."""
    posture: PostureSpec | None = None
    """Body pose for steps ahead; None as the feet alone ask for."""
    steer: SteerSpec | None = None
    """Choice of the way to a goal; None for the straight one."""
