"""From steering angle and speed of a car to servo position and electrical speed of its VESC, and back."""

from __future__ import annotations

from dataclasses import dataclass

from gantry_hardware.errors import RobotError
from gantry_hardware.files.bounds import Range, check_fields
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.yaml_file import read_yaml
from gantry_hardware.model.cars import (
    ERPM_LIMIT,
    ERPM_PER_M_S,
    SERVO_GAIN,
    SERVO_MAX,
    SERVO_MIN,
    SERVO_OFFSET,
    CarSpec,
)

COUNTS_PER_ERPM_S = 0.1
"""Six counts of the tachometer per electrical turn, and 60 s in a minute."""
TOLERANCE = 1e-6
"""Share by which limits of car and calibration may differ."""


@dataclass(frozen=True)
class VescCalibration:
    """Numbers of one car, by default those of f1tenth_system's ``vesc.yaml``."""

    servo_gain: float = SERVO_GAIN
    """Servo position per steering angle, 1/rad; negative where a larger position steers to the right."""
    servo_offset: float = SERVO_OFFSET
    """Servo position with straight wheels."""
    servo_min: float = SERVO_MIN
    """Smallest servo position that the linkage allows, 0 to 1."""
    servo_max: float = SERVO_MAX
    """Largest one."""
    erpm_per_m_s: float = ERPM_PER_M_S
    """Electrical speed per speed of the car; negative where the motor is wired the other way round."""
    erpm_limit: float = ERPM_LIMIT
    """Largest electrical speed to either side."""
    brake_current_a: float = 20.0
    """Braking current when commands have stopped."""

    def __post_init__(self) -> None:
        check_fields(self, _RANGES, "VESC calibration: ")
        for name, least in (("servo_gain", 1e-3), ("erpm_per_m_s", 1.0)):
            if not abs(getattr(self, name)) >= least:
                raise RobotError(
                    f"VESC calibration: {name} is {getattr(self, name)}, expected a size of {least} or more."
                )
        if not self.servo_min < self.servo_offset < self.servo_max:
            raise RobotError(
                f"VESC calibration: servo_offset is {self.servo_offset}, expected between servo_min {self.servo_min} "
                f"and servo_max {self.servo_max}: straight wheels must be within the servo's range."
            )

    @property
    def steering_range_rad(self) -> tuple[float, float]:
        """Smallest and largest steering angle, left positive."""
        ends = (self.steering_rad(self.servo_min), self.steering_rad(self.servo_max))
        return min(ends), max(ends)

    @property
    def speed_limit_m_s(self) -> float:
        """Largest speed to either side."""
        return self.erpm_limit / abs(self.erpm_per_m_s)

    def servo(self, steering_rad: float) -> float:
        """Servo position of a steering angle, within the servo's range."""
        position = self.servo_gain * steering_rad + self.servo_offset
        return min(max(position, self.servo_min), self.servo_max)

    def steering_rad(self, servo: float) -> float:
        """Steering angle of a servo position."""
        return (servo - self.servo_offset) / self.servo_gain

    def erpm(self, speed_m_s: float) -> int:
        """Electrical speed of a speed, within its limit."""
        erpm = self.erpm_per_m_s * speed_m_s
        return round(min(max(erpm, -self.erpm_limit), self.erpm_limit))

    def speed_m_s(self, erpm: float) -> float:
        """Speed of an electrical speed."""
        return erpm / self.erpm_per_m_s

    def travel_m(self, counts: int) -> float:
        """Travel in counts of the tachometer."""
        return counts / (COUNTS_PER_ERPM_S * self.erpm_per_m_s)

    def require_car(self, car: CarSpec) -> None:
        """Refuse a car whose policies may steer or drive beyond what servo and motor reach.

        Raises:
            RobotError: With both limits.
        """
        low, high = self.steering_range_rad
        reach = min(-low, high)
        if car.steering_limit_rad > reach * (1.0 + TOLERANCE):
            raise RobotError(
                f"Car '{car.name}' steers {car.steering_limit_rad:.4f} rad to both sides, but the VESC calibration "
                f"allows {low:.4f} to {high:.4f} rad (servo {self.servo_min} to {self.servo_max}). Expected a car "
                f"whose steering_limit_rad is at most {reach:.4f}, such as 'f1tenth_vesc' with the stock calibration."
            )
        fastest = max(car.speed_limit_m_s, car.reverse_limit_m_s)
        if fastest > self.speed_limit_m_s * (1.0 + TOLERANCE):
            raise RobotError(
                f"Car '{car.name}' drives up to {fastest:.2f} m/s, but the VESC calibration allows "
                f"{self.speed_limit_m_s:.2f} m/s (erpm_limit {self.erpm_limit:g} at {self.erpm_per_m_s:g} per m/s)."
            )


_RANGES = {
    "servo_gain": Range(-100.0, 100.0),
    "servo_offset": Range(0.0, 1.0),
    "servo_min": Range(0.0, 1.0),
    "servo_max": Range(0.0, 1.0),
    "erpm_per_m_s": Range(-1e6, 1e6),
    "erpm_limit": Range(1.0, 1e6),
    "brake_current_a": Range(0.1, 500.0),
}


def load_calibration(path: str) -> VescCalibration:
    """Calibration of a YAML file; the stock one without a path.

    Raises:
        GantryError: If the file is not there, or a field is unknown or out of range.
    """
    return VescCalibration() if not path else from_plain(VescCalibration, read_yaml(path), path, RobotError)
