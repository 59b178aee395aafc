"""Configuration of the velocity tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from gantry_deploy.contract.policy_contract import Acceptance
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.bounds import ordered
from gantry_hardware.files.structured import ConfigError
from gantry_sim.tasks.locomotion.machine.ranges import MachineCfg
from gantry_sim.tasks.locomotion.terms import SensorNoiseCfg

RATE_HZ = 50.0
"""Control rate of every velocity policy."""


@dataclass(frozen=True)
class VelocityCfg:
    """Everything about a velocity task that differs between robots, grounds and presets."""

    robot: str
    """Robot name."""
    num_envs: int
    """Environments side by side."""
    physics_dt_s: float
    """Physics step; 50 Hz divided by it must be whole."""
    feet_only: bool
    """Collide the feet alone; a fall is then seen by height and tilt."""
    pyramidal: bool
    """Pyramidal friction cone, cheaper than the elliptic one."""
    rough: bool = False
    """Stairs, slopes and rubble instead of a plane."""
    terrain_levels: int = 6
    """Levels of difficulty of rough ground."""
    curriculum: bool = True
    """Robots that get far move to harder ground; otherwise they are spread over all levels."""
    lin_vel_x_m_s: tuple[float, float] = (-1.0, 1.0)
    """Range of the forward command."""
    lin_vel_y_m_s: tuple[float, float] = (-0.5, 0.5)
    """Range of the lateral command."""
    yaw_rate_rad_s: tuple[float, float] = (-1.0, 1.0)
    """Range of the turning command."""
    command_stages: tuple[tuple[int, float], ...] = ()
    """(control step of the training, share of the ranges above) in ascending order, for robots that must learn to stay
    up first; empty for the whole ranges at once. Held-out episodes always take the whole ranges."""
    resample_s: tuple[float, float] = (4.0, 6.0)
    """A new command comes after a time drawn from this range."""
    standing_share: float = 0.1
    """Share of commands that ask to stand."""
    episode_s: float = 20.0
    """Length of an episode."""
    gait_frequency_hz: float | None = None
    """Strides per second of the gait clock; None for the robot's usual."""
    bandwidth: float = 1.0
    """Factor on the bandwidth of the joints' position loops: stiffness grows with its square, damping with itself. A
    stiffer loop feels less of friction that differs from machine to machine."""
    history: int = 1
    """Frames of readings and actions that the actor sees, the newest last: what tells one machine from another."""
    noise: SensorNoiseCfg | None = field(default_factory=SensorNoiseCfg)
    """Sensor noise of the actor; None for none."""
    friction: tuple[float, float] = (0.4, 1.25)
    """Sliding friction of the feet."""
    added_mass_kg: tuple[float, float] = (-1.0, 2.0)
    """Mass added to the base."""
    com_offset_m: float = 0.02
    """Half width of the shift of the base's centre of mass along x and y."""
    machine: MachineCfg = field(default_factory=MachineCfg)
    """Differences between the robots' motors, delays and mountings."""
    machine_stages: tuple[tuple[int, float], ...] = ()
    """(control step of the training, share of the machines' differences and of the pushes) in ascending order, for
    robots that walk as their model first; empty for all of it at once. Held-out episodes always take all of it."""
    reset_joint_rad: float = 0.1
    """Half width of the joints' distance from the default pose at the start of an episode."""
    push_m_s: float = 0.0
    """Half width of velocity kicks; 0 for none."""
    reward_weights: dict[str, float] = field(default_factory=dict)
    """Changes to :data:`REWARD_WEIGHTS`."""
    track_width_m_s: float = 0.35
    """Width of the planar tracking reward."""
    acceptance: Acceptance = field(default_factory=Acceptance)
    """Thresholds of the sim-to-sim gate for the policy, on flat ground."""

    def __post_init__(self) -> None:
        for name in self.reward_weights:
            if name not in REWARD_WEIGHTS:
                raise UnknownNameError("reward term", name, REWARD_WEIGHTS)
        for name in ("lin_vel_x_m_s", "lin_vel_y_m_s", "yaw_rate_rad_s", "resample_s", "friction", "added_mass_kg"):
            ordered(f"env.{name}", getattr(self, name), error=ConfigError)
        self.machine.require_within(1.0 / RATE_HZ)
        for name in ("command_stages", "machine_stages"):
            _check_stages(f"env.{name}", getattr(self, name))
        if not self.friction[0] > 0 or not self.resample_s[0] > 0:
            raise ConfigError(
                f"env.friction {self.friction} and env.resample_s {self.resample_s} must be greater than zero."
            )


def _check_stages(name: str, stages: tuple[tuple[int, float], ...]) -> None:
    """Refuse stages that are out of order, or shares that are none.

    Raises:
        ConfigError: With what was found and what was expected.
    """
    steps = [step for step, _ in stages]
    if steps != sorted(set(steps)) or any(step < 0 for step in steps):
        raise ConfigError(f"{name} has the control steps {steps}, expected them from 0 on and in ascending order.")
    for step, share in stages:
        if not 0.0 <= share <= 1.0:
            raise ConfigError(f"{name} has the share {share} at step {step}, expected 0 to 1.")


REWARD_WEIGHTS: dict[str, float] = {
    "track_planar_velocity": 4.0,
    "track_yaw_rate": 2.0,
    "power": 0.0,
    "vertical_velocity": -2.0,
    "roll_pitch_rate": -0.05,
    "tilt": -2.0,
    "height": -30.0,
    "action_rate": -0.01,
    "joint_deviation": -0.1,
    "contact_matches_clock": 1.0,
    "swing_height": 1.0,
    "foot_slip": -0.1,
}
"""Weights per second of the few-sample recipe."""
