"""Judge of a robot's state: the faults at which it must stop, and their limits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gantry_deploy.control.modes import Mode
from gantry_deploy.control.safety_config import SETTINGS, SafetyConfig, age_text
from gantry_deploy.embodiments.registry import embodiment_of_robot
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.compat import StrEnum
from gantry_hardware.model.spec import RobotSpec

POLICY_SOURCE = "policy"
"""Name of the command source that runs the network; its errors are ``policy``, those of other sources ``source``."""


class FaultCode(StrEnum):
    """Reason for damping a robot."""

    NO_STATE = "no_state"
    STALE_STATE = "stale_state"
    NAN_STATE = "nan_state"
    TILT = "tilt"
    IMU = "imu"
    JOINT_POSITION = "joint_position"
    JOINT_VELOCITY = "joint_velocity"
    JOINT_TORQUE = "joint_torque"
    NAN_COMMAND = "nan_command"
    POLICY = "policy"
    WRITE = "write"
    MISSED_DEADLINES = "missed_deadlines"
    HEARTBEAT = "heartbeat"
    OPERATOR_STOP = "operator_stop"
    SURROUNDINGS = "surroundings"
    SOURCE = "source"
    ROBOT = "robot"


@dataclass(frozen=True)
class Fault:
    """One reason to damp."""

    code: FaultCode
    """Kind of fault, for programs."""
    text: str
    """One sentence with the value and its limit, for people."""
    time_s: float
    """Time at which it was found, on the robot's clock."""
    kind: str = ""
    """Kind of a robot's own fault, in the words of its backend; empty for all others."""


GRAVITY_M_S2 = 9.81
"""Reading of an accelerometer at rest."""
REST_ACCELERATION_SHARE = 0.15
"""At rest the accelerometer is within this share of gravity."""
REST_ANG_VEL_RAD_S = 0.3
"""At rest the gyroscope reads less than this."""

SHORT_RANGE_SHARE = 0.25
"""A joint may be beyond its limit by no more than this share of its range."""


class Judge:
    """Comparison of readings with the limits of a robot.

    Args:
        spec: The robot whose limits count.
        config: Limits and timeouts.
    """

    def __init__(self, spec: RobotSpec, config: SafetyConfig) -> None:
        self.spec = spec
        self.config = config
        lower, upper = spec.array("lower_rad"), spec.array("upper_rad")
        # A gripper slides, over less than the margin of a joint that turns.
        margin = np.minimum(self.config.joint_pos_margin_rad, SHORT_RANGE_SHARE * (upper - lower))
        self._lower, self._upper = lower - margin, upper + margin
        self._speed = spec.array("velocity_limit_rad_s") * self.config.joint_vel_factor
        self._effort = spec.array("effort_limit_nm") * self.config.joint_effort_factor
        self._min_cos_tilt = math.cos(self.config.max_tilt_rad)
        self._embodiment = embodiment_of_robot(spec)
        self._beyond = 0

    def forget(self) -> None:
        """Count the ticks beyond a limit anew."""
        self._beyond = 0

    def __call__(
        self,
        state: RobotState | None,
        now_s: float,
        mode: Mode,
        *,
        missed_deadlines: int = 0,
        heartbeat_s: float | None = None,
        requested_command: np.ndarray | None = None,
    ) -> Fault | None:
        """The first thing that is wrong, most fundamental first; None if nothing is.

        Args:
            state: The newest reading; None if there is none.
            now_s: On the robot's clock.
            mode: The present one.
            missed_deadlines: Control periods in a row in which no tick began.
            heartbeat_s: Stamp of the operator's newest heartbeat, None if none ever came.
            requested_command: Shape (c,), what the operator asks for.
        """
        config = self.config
        if state is None:
            return Fault(FaultCode.NO_STATE, "The robot reports no state.", now_s)
        age = now_s - state.stamp_s
        # A stamp from the future would hide a lost robot, one that is not a number too; both count as stale.
        if not abs(age) <= config.state_timeout_s:
            text = f"The robot's state is {age_text(age, 'state_timeout_s', config.state_timeout_s)}."
            return Fault(FaultCode.STALE_STATE, text, now_s)
        if not state.is_finite():
            return Fault(FaultCode.NAN_STATE, f"The robot's state is not finite: {_nan_text(self.spec, state)}.", now_s)
        if self._embodiment.needs_odometry and (fault := _odometry(state, now_s)) is not None:
            return fault
        if requested_command is not None and not np.isfinite(requested_command).all():
            text = f"The requested command {np.asarray(requested_command).tolist()} is not finite."
            return Fault(FaultCode.NAN_COMMAND, text, now_s)
        if config.require_heartbeat:
            age = math.inf if heartbeat_s is None else now_s - heartbeat_s
            if not age <= config.heartbeat_timeout_s:
                seen = f"never came ({SETTINGS}.require_heartbeat)"
                if heartbeat_s is not None:
                    seen = f"is {age_text(age, 'heartbeat_timeout_s', config.heartbeat_timeout_s)}"
                return Fault(FaultCode.HEARTBEAT, f"The operator's heartbeat {seen}.", now_s)
        if missed_deadlines > config.max_missed_deadlines:
            text = (
                f"{missed_deadlines} control periods in a row were missed, allowed are {config.max_missed_deadlines} "
                f"({SETTINGS}.max_missed_deadlines)."
            )
            return Fault(FaultCode.MISSED_DEADLINES, text, now_s)
        fault = self._limits(state, now_s, mode)
        # The accelerometer check runs only before STAND, because impacts saturate it.
        looks = fault is None and self._embodiment.has_accelerometer_check and mode is Mode.PASSIVE
        return self._imu(state, now_s) if looks else fault

    def targets(self, command: JointCommand, now_s: float, source: str) -> Fault | None:
        """Whether the command of ``source`` may be sent at all: a number that is not finite never may."""
        if command.is_finite():
            return None
        return Fault(FaultCode.NAN_COMMAND, f"The {source}'s joint targets are not finite.", now_s)

    def _limits(self, state: RobotState, now_s: float, mode: Mode) -> Fault | None:
        """Tilt and joint limits, once they have been exceeded for long enough."""
        fault = (self._tilt(state, now_s) if self._embodiment.base_moves else None) or self._joints(state, now_s)
        self._beyond = 0 if fault is None else self._beyond + 1
        enough = self.config.limit_ticks if mode in (Mode.STAND, Mode.POLICY) else 1
        return fault if self._beyond >= enough else None

    def _tilt(self, state: RobotState, now_s: float) -> Fault | None:
        w, x, y, z = state.quat_base_to_world_wxyz.tolist()
        norm2 = w * w + x * x + y * y + z * z
        # An all-zero quaternion is what an IMU that never answered looks like.
        cos_tilt = 1.0 - 2.0 * (x * x + y * y) / norm2 if norm2 > 1e-6 else -1.0
        if cos_tilt >= self._min_cos_tilt:
            return None
        tilt = math.acos(max(-1.0, min(1.0, cos_tilt)))
        text = f"The base is tilted by {tilt:.2f} rad, allowed are {self.config.max_tilt_rad:.2f} rad."
        return Fault(FaultCode.TILT, text, now_s)

    def _imu(self, state: RobotState, now_s: float) -> Fault | None:
        """Orientation against accelerometer at rest: an IMU that is mounted or read wrongly shows a level robot."""
        acceleration, limit_rad = state.lin_acc_base_in_base_m_s2, self.config.max_imu_error_rad
        norm = float(np.linalg.norm(acceleration))
        if norm == 0.0 or not math.isfinite(norm):
            if not self.config.require_accelerometer:
                return None
            text = (
                f"The accelerometer reads {_numbers(acceleration)} m/s^2, expected gravity: it has never been filled "
                "in, or the robot has none (then set require_accelerometer to false)."
            )
            return Fault(FaultCode.IMU, text, now_s)
        gyro = float(np.linalg.norm(state.ang_vel_base_in_base_rad_s))
        if abs(norm / GRAVITY_M_S2 - 1.0) > REST_ACCELERATION_SHARE or gyro > REST_ANG_VEL_RAD_S:
            return None
        w, x, y, z = (state.quat_base_to_world_wxyz / np.linalg.norm(state.quat_base_to_world_wxyz)).tolist()
        up = np.array([2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)])
        error = math.acos(float(np.clip(up @ acceleration / norm, -1.0, 1.0)))
        if error <= limit_rad:
            return None
        text = (
            f"At rest, up is {_numbers(up)} in the base by the IMU's orientation and {_numbers(acceleration / norm)} "
            f"by its accelerometer, {error:.2f} rad apart, allowed are {limit_rad:.2f} rad: one of them is wrong "
            "(mounting, order of the quaternion, sign of gravity)."
        )
        return Fault(FaultCode.IMU, text, now_s)

    def _joints(self, state: RobotState, now_s: float) -> Fault | None:
        pos, vel, effort = state.joint_pos_rad, state.joint_vel_rad_s, state.joint_effort_nm
        bad = (pos < self._lower) | (pos > self._upper)
        if bad.any():
            i = int(np.argmax(bad))
            limits = f"[{self._lower[i]:.3f}, {self._upper[i]:.3f}] rad"
            return self._joint_fault(FaultCode.JOINT_POSITION, i, f"is at {pos[i]:.3f} rad", limits, now_s)
        bad = np.abs(vel) > self._speed
        if bad.any():
            i = int(np.argmax(bad))
            limit = f"{self._speed[i]:.2f} rad/s"
            return self._joint_fault(FaultCode.JOINT_VELOCITY, i, f"turns at {vel[i]:.2f} rad/s", limit, now_s)
        bad = np.abs(effort) > self._effort
        if bad.any():
            i = int(np.argmax(bad))
            limit = f"{self._effort[i]:.2f} N m"
            return self._joint_fault(FaultCode.JOINT_TORQUE, i, f"carries {effort[i]:.2f} N m", limit, now_s)
        return None

    def _joint_fault(self, code: FaultCode, index: int, what: str, limit: str, now_s: float) -> Fault:
        return Fault(code, f"Joint '{self.spec.joint_names[index]}' {what}, allowed are {limit}.", now_s)


def _odometry(state: RobotState, now_s: float) -> Fault | None:
    """A car that does not know where it is or how fast it goes can neither follow a route nor stop as it should."""
    velocity = state.lin_vel_base_in_base_m_s
    if state.pose_in_world is None:
        text = f"The car's place is {_told(state.pos_base_in_world_m)}, expected finite odometry."
    elif velocity is None or not np.isfinite(velocity).all():
        text = f"The car's velocity is {_told(velocity)}, expected finite odometry."
    else:
        return None
    return Fault(FaultCode.NAN_STATE, text, now_s)


def _told(values: np.ndarray | None) -> str:
    return "not told" if values is None else str(values.tolist())


def _numbers(values: np.ndarray) -> str:
    return f"({', '.join(f'{value:.2f}' for value in values)})"


def _nan_text(spec: RobotSpec, state: RobotState) -> str:
    """Names of the values of a state that are not finite."""
    for field in ("joint_pos_rad", "joint_vel_rad_s", "joint_effort_nm"):
        bad = np.flatnonzero(~np.isfinite(getattr(state, field)))
        if bad.size:
            return f"{field} of {', '.join(spec.joint_names[i] for i in bad)}"
    for field in ("quat_base_to_world_wxyz", "ang_vel_base_in_base_rad_s"):
        if not np.isfinite(getattr(state, field)).all():
            return f"{field} is {getattr(state, field).tolist()}"
    return "unknown field"
