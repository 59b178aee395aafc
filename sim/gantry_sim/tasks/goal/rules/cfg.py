"""The numbers of the rules, of a Go2 on the gains of the few-sample recipe; from a search over goals reached."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class WayRules:
    """Where to go and how fast."""

    speed_m_s: float = 0.9495
    """Most."""
    sideways_m_s: float = 0.25
    """Most to either side."""
    turn_rad_s: float = 1.2039
    """Most that it turns."""
    smooth: float = 0.3
    """Share of the new direction of the way in each control step."""
    near_m: float = 0.6
    """From here it goes straight for the goal and may come to rest."""
    face_m: float = 0.7
    """From here it turns to the goal's heading."""
    probe_m: float = 0.5
    """How far ahead it looks for a step."""
    slow_at_steps: float = 0.6
    """Share of the speed that 20 cm of a step ahead, beyond 8 cm, take."""
    slowest: float = 0.4
    """Share of the speed that is left before any step."""
    slow_uneven: float = 0.5
    """Share of the speed that 20 cm between the feet's heights, beyond 8 cm, take; at most 65 %."""
    slow_bad: float = -0.1079
    """Share of the speed that is taken where no place around is good to step on; less than 0 adds some."""
    follow_feet_s: float = 3.0
    """Speed added in the direction in which footholds were moved, m/s per m."""


@dataclass(frozen=True)
class FootholdRules:
    """Where feet are to land. Costs are in units of a shift by 40 cm, which costs 1."""

    ahead_m: float = -0.0046
    """Of the hips' axes."""
    width: float = 0.8886
    """Feet apart sideways, as a share of what straight legs would have."""
    capture_s: float = 0.1757
    """How far a foot is put after a velocity that is not as wanted, m per m/s."""
    widest_m: float = 0.1
    """Most that these two move a foot sideways; ahead it is 22 cm."""
    search_m: float = 0.2833
    """Radius in which a better place is looked for."""
    edge: float = 0.0114
    """Cost of more than 5 cm of unevenness within 6 cm; of 3.5 cm within 4 cm it is 1."""
    down: float = 0.274
    """Cost of a place more than 20 cm below the feet."""
    deep_m: float = 0.45
    """So far below the feet a place costs another 5, as those 42 cm above do."""
    forward: float = 0.105
    """Gain of a shift with the velocity, per m x m/s."""
    inward: float = 0.2
    """Cost per 10 cm of a shift to below the body, beyond 4 cm."""
    pair: float = 6.0
    """Cost of the shift, across its line, of the line of two feet that land together."""
    keep: float = 3.0
    """Cost of another choice than before, growing over the swing."""


@dataclass(frozen=True)
class SwingRules:
    """How feet get there."""

    clearance_m: float = 0.0714
    """Over the highest ground on the way."""
    arrive: float = 0.8835
    """Share of the swing after which a foot is above its place."""
    press_m: float = 0.003
    """How far below the ground it is sent."""
    lead_steps: float = 0.7692
    """Control steps that it is sent ahead of the time, since joints lag."""
    base_lead_steps: float = 1.0525
    """The same for where the base will be."""
    damping_share: float = 0.3863
    """Share of the joints' damping that the targets make up for."""


@dataclass(frozen=True)
class SupportRules:
    """How the base is carried."""

    height_m: float = 0.2815
    """Of the hips over the mean of the feet of their end, front or rear."""
    highest_m: float = 0.3391
    """Most over the lower of the two."""
    lowest_m: float = 0.1124
    """Least over the higher of the two."""
    pitch_share: float = 0.9208
    """Share of the slope between front and rear that the base takes on."""
    roll_share: float = 0.4
    """The same between left and right; at most 0.3 rad."""
    pose_share: float = 0.3
    """Share of the new height and attitude in each control step."""
    velocity_gain: float = 4.8519
    """Horizontal acceleration of an error of the velocity, 1/s; at most 4 m/s^2."""
    height_gain: float = 161.37
    """Vertical acceleration of an error of the height, 1/s^2."""
    height_damping: float = 14.1729
    """The same of the vertical velocity, 1/s."""
    tilt_gain: float = 262.9786
    """Angular acceleration of an error of roll and pitch, 1/s^2."""
    tilt_damping: float = 14.0
    """The same of an error of the angular velocity, 1/s."""
    friction: float = 0.4404
    """Greatest horizontal force, as a share of the vertical one."""
    mass_x_m: float = -0.0006
    """Centre of mass ahead of the base's origin."""
    mass_z_m: float = -0.02
    """The same above."""
    inertia_kg_m2: tuple[float, float, float] = (0.12, 0.32, 0.36)
    """About the base's axes."""


@dataclass(frozen=True)
class WalkRules:
    """All of them."""

    way: WayRules = field(default_factory=WayRules)
    """Where to go and how fast."""
    feet: FootholdRules = field(default_factory=FootholdRules)
    """Where feet are to land."""
    swing: SwingRules = field(default_factory=SwingRules)
    """How they get there."""
    support: SupportRules = field(default_factory=SupportRules)
    """How the base is carried."""
