"""Ranges of the differences between machines of one kind: motors, friction, delays and mountings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from gantry_deploy.contract.parts import TrainedRange
from gantry_deploy.contract.trained_range import ranges_of_joints
from gantry_hardware.files.bounds import ordered
from gantry_hardware.files.structured import ConfigError
from gantry_hardware.model.dynamics import RobotDynamics
from gantry_hardware.model.spec import RobotSpec

Range = tuple[float, float]
"""Least and largest value of a uniform distribution."""
SAME = {
    "viscous_friction_nm_s_rad": "viscous_friction_nm_s_rad",
    "coulomb_friction_nm": "coulomb_friction_nm",
    "stiffness_share": "stiffness_share",
    "damping_share": "damping_share",
    "encoder_offset_rad": "encoder_offset_rad",
    "command_delay_s": "command_delay_s",
    "sensor_delay_s": "imu_delay_s",
    "imu_tilt_rad": "imu_pitch_rad",
}
"""Field -> parameter of :data:`gantry_hardware.model.dynamics.PARAMETERS` in the same unit, from which it is taken."""
SHARES = {
    "armature_share": ("armature_kg_m2", "armature_kg_m2"),
    "strength_share": ("effort_limit_nm", "effort_limit_nm"),
    "no_load_speed_share": ("no_load_speed_rad_s", "velocity_limit_rad_s"),
}
"""Field -> parameter of a joint, and the field of the joint's spec that it is a share of."""


SIGNED = ("encoder_offset_rad", "imu_tilt_rad")
"""Fields that may be negative."""
POSITIVE = ("armature_share", "stiffness_share", "damping_share", "strength_share", "no_load_speed_share")
"""Fields that are greater than zero."""
TILTS = ("imu_roll_rad", "imu_pitch_rad", "imu_yaw_rad")
"""Parameters that one range of tilts covers."""


@dataclass(frozen=True)
class MachineCfg:
    """Ranges of the differences; as it stands, all robots are as their model."""

    armature_share: Range = (1.0, 1.0)
    """Rotor inertia over that of the model."""
    viscous_friction_nm_s_rad: Range = (0.0, 0.0)
    """Friction of a joint that grows with its speed, N m s/rad."""
    coulomb_friction_nm: Range | None = None
    """Dry friction of a joint, N m; None for that of the model."""
    stiffness_share: Range = (1.0, 1.0)
    """Position gain in effect over the contract's."""
    damping_share: Range = (1.0, 1.0)
    """Velocity gain in effect over the contract's."""
    strength_share: Range = (1.0, 1.0)
    """Torque of all motors of a robot over the usual one, its limit included: a weak motor, an empty battery."""
    no_load_speed_share: Range | None = None
    """Speed at which no torque is left over the joint's speed limit, all motors of a robot alike: it falls with the
    battery's voltage. None for full torque at any speed."""
    corner_speed_share: Range = (0.6, 0.8)
    """Speed up to which there is full torque over that at which none is left; the torque falls in a line between."""
    encoder_offset_rad: Range = (0.0, 0.0)
    """Reading of an encoder minus the true angle."""
    command_delay_s: Range = (0.0, 0.0)
    """From an action to the motors, at most one control step."""
    sensor_delay_s: Range = (0.0, 0.0)
    """Age of all readings, at most one control step."""
    imu_tilt_rad: Range = (0.0, 0.0)
    """Rotation of the IMU in its mounting, about each axis."""
    dropout_share: float = 0.0
    """Share of the control steps in which the readings are those of the step before."""

    def __post_init__(self) -> None:
        for name, pair in self._ranges():
            least = None if name in SIGNED else 0.0
            above = 0.0 if name in POSITIVE else None
            ordered(f"env.machine.{name}", pair, least, above, ConfigError)
        if not 0.0 <= self.corner_speed_share[0] <= self.corner_speed_share[1] < 1.0:
            raise ConfigError(
                f"env.machine.corner_speed_share is {list(self.corner_speed_share)}, expected 0 to less than 1."
            )
        if not 0.0 <= self.dropout_share < 1.0:
            raise ConfigError(f"env.machine.dropout_share is {self.dropout_share}, expected 0 to less than 1.")

    def _ranges(self) -> Iterator[tuple[str, Range]]:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, tuple):
                yield item.name, value

    @classmethod
    def wide(cls, scale: float = 1.0) -> MachineCfg:
        """Ranges that cover robots of other people: friction as measured on Go2s, delay of a wireless link.

        Args:
            scale: Factor on friction, for motors that are stronger than a Go2's.
        """
        return cls(
            armature_share=(0.8, 1.5),
            viscous_friction_nm_s_rad=(0.0, 2.0 * scale),
            coulomb_friction_nm=(0.0, 1.4 * scale),
            stiffness_share=(0.85, 1.15),
            damping_share=(0.85, 1.15),
            strength_share=(0.85, 1.15),
            no_load_speed_share=(0.8, 1.2),
            encoder_offset_rad=(-0.02, 0.02),
            command_delay_s=(0.0, 0.02),
            sensor_delay_s=(0.0, 0.01),
            imu_tilt_rad=(-0.03, 0.03),
            dropout_share=0.01,
        )

    def around(self, dynamics: RobotDynamics, spec: RobotSpec) -> MachineCfg:
        """These ranges with those of an identified machine in their places, see :meth:`RobotDynamics.range_of`.

        One range is for all joints, and one for all axes of the IMU: it grows by what is said of some of them, and is
        replaced by what is said of all.

        Args:
            dynamics: Of the machine.
            spec: The robot, of which shares are taken.
        """
        changes = {mine: dynamics.training_range(name, spec, getattr(self, mine)) for mine, name in SAME.items()}
        for mine, (name, usual) in SHARES.items():
            changes[mine] = dynamics.training_range(name, spec, getattr(self, mine), usual)
        tilts = [found for found in map(dynamics.range_of, TILTS) if found is not None]
        if tilts:
            tilts += [] if len(tilts) == len(TILTS) else [self.imu_tilt_rad]
            changes["imu_tilt_rad"] = min(low for low, _ in tilts), max(high for _, high in tilts)
        curves = {name: found for name, found in dynamics.joints.items() if "corner_speed_rad_s" in found}
        speed = {name: found["no_load_speed_rad_s"].value for name, found in curves.items()}
        corner = dynamics.range_of("corner_speed_rad_s", relative_to=speed)
        if corner is not None:
            changes["corner_speed_share"] = (min(corner[0], 0.95), min(corner[1], 0.95))
        return replace(self, **{mine: pair for mine, pair in changes.items() if pair is not None})

    def scaled(self, share: float) -> MachineCfg:
        """The same differences at a share of their size: ranges drawn together towards a robot as its model, so that a
        share of 0 leaves none and 1 all of them. Torque that falls with speed is there from the beginning.

        Args:
            share: 0 to 1.
        """
        usual = MachineCfg()
        changes: dict[str, Range | float] = {"dropout_share": share * self.dropout_share}
        for name, (low, high) in self._ranges():
            centre = getattr(usual, name)
            if name not in ("no_load_speed_share", "corner_speed_share"):
                middle = 0.0 if centre is None else centre[0]
                changes[name] = (middle + share * (low - middle), middle + share * (high - middle))
        return replace(self, **changes)  # type: ignore[arg-type]

    def trained_for(self, spec: RobotSpec) -> tuple[TrainedRange, ...]:
        """The table of a contract; of parameters that are drawn as shares, a range for each joint where joints differ.

        Args:
            spec: The robot.
        """
        found = [TrainedRange(SAME[name], *pair) for name, pair in self._ranges() if name in SAME]
        found = [item for item in found if item.name != "imu_delay_s" or item.upper > 0.0]
        found += [TrainedRange(name, *self.imu_tilt_rad) for name in ("imu_roll_rad", "imu_yaw_rad")]
        for mine, (name, usual) in SHARES.items():
            share = getattr(self, mine)
            if share is not None and share != (1.0, 1.0):
                found += ranges_of_joints(name, spec.array(usual), share, spec)
        if self.no_load_speed_share is not None:
            share = tuple(a * b for a, b in zip(self.no_load_speed_share, self.corner_speed_share, strict=True))
            found += ranges_of_joints("corner_speed_rad_s", spec.array("velocity_limit_rad_s"), share, spec)
        return tuple(found)

    def require_within(self, dt_s: float) -> None:
        """Refuse delays that are longer than a control step.

        Args:
            dt_s: Control step.

        Raises:
            ConfigError: With the range and what was expected.
        """
        for name in ("command_delay_s", "sensor_delay_s"):
            pair = getattr(self, name)
            if pair[1] > dt_s + 1e-9:
                raise ConfigError(f"env.machine.{name} is {list(pair)}, expected 0 to {dt_s:g} s.")

    @property
    def is_constant(self) -> bool:
        """Whether targets and torque limits stay as they are within a control step."""
        return self.command_delay_s[1] <= 0.0 and self.no_load_speed_share is None
