"""Commands of a car while no policy drives: nothing, a stop, or the brakes.

Damping is no brake for a car, and a speed servo that is told 0 at once locks the wheels or does whatever its own
controller thinks best. So DAMP lowers the speed set-point at the car's brake limit and keeps the steering where it is:
straightening the wheels in the middle of a bend would leave the lane. STAND stops in the same way and straightens the
wheels once the car stands. PASSIVE sends nothing, which leaves the car to its driver, its multiplexer or its own
controller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gantry_deploy.contract.drive_spec import DRIVE, STEERING
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.control.idle_commands import IdleCommands
from gantry_deploy.control.modes import Role, Transition
from gantry_deploy.control.safety_config import SafetyConfig
from gantry_deploy.control.ticks import Tick
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.model.cars import STANDSTILL_M_S, CarSpec
from gantry_hardware.model.spec import RobotSpec

STRAIGHT_RAD = 0.1
"""Wheels that are turned by less are straight enough for a policy to take over."""


@dataclass(frozen=True)
class _Stop:
    """A speed set-point that falls to 0 at the brake limit and never asks for more than the car's speed."""

    speed_m_s: float
    """Speed at the start."""
    start_s: float
    """Start on the robot's clock."""
    brake_m_s2: float
    """Deceleration."""
    dt_s: float
    """Duration of a command; each asks for the speed at its end."""

    @property
    def end_s(self) -> float:
        """Time at which the set-point is 0 for good."""
        return self.start_s + abs(self.speed_m_s) / self.brake_m_s2

    def speed(self, now_s: float, measured_m_s: float | None) -> float:
        """The set-point of now; ``measured_m_s`` is None where that is not known."""
        size = abs(self.speed_m_s) - self.brake_m_s2 * (now_s - self.start_s + self.dt_s)
        if measured_m_s is not None:
            along = measured_m_s * math.copysign(1.0, self.speed_m_s)  # Below 0 for a car that rolls the other way.
            size = min(size, along - self.brake_m_s2 * self.dt_s)
        return math.copysign(max(0.0, size), self.speed_m_s)


class CarIdleCommands(IdleCommands):
    """Idle commands of a car; see :class:`gantry_deploy.control.idle_commands.IdleCommands`.

    Args:
        spec: A car.
        config: Duration of straightening the wheels, age at which a state is old.
        dt_s: Time between two commands.
    """

    def __init__(self, spec: RobotSpec, contract: PolicyContract | None, config: SafetyConfig, dt_s: float) -> None:
        del contract  # A car stops alike before any policy.
        self._spec, self._config, self._dt_s = spec, config, dt_s
        self._brake_m_s2 = spec.body_as(CarSpec).brake_limit_m_s2
        self.duration_s = config.stand_duration_s
        self._begun: Transition | None = None
        self._stop = _Stop(0.0, 0.0, self._brake_m_s2, dt_s)
        self._steering = self._from_rad = 0.0
        self._stands_s: float | None = None

    def begin_stand(self, tick: Tick) -> None:
        """Start a stop from the present speed, with the steering where it is."""
        self._begin(tick)
        self._stands_s, self._from_rad, self._begun = None, self._steering, tick.transition
        self.duration_s = self._stop.end_s - tick.now_s + self._config.stand_duration_s

    def stand(self, tick: Tick) -> JointCommand:
        """Brake with the steering held until the car has come to rest, then straighten along a cosine ramp."""
        speed = self._measured(tick)
        rolls = tick.now_s < self._stop.end_s if speed is None else abs(speed) > STANDSTILL_M_S
        if self._stands_s is None and not rolls:
            self._stands_s = tick.now_s
        if self._stands_s is not None:
            share = min(1.0, (tick.now_s - self._stands_s) / self._config.stand_duration_s)
            self._steering = self._from_rad * (0.5 + 0.5 * math.cos(math.pi * share))
        return self._command(self._stop.speed(tick.now_s, speed))

    def refusal(self, transition: Transition, state: RobotState | None, now_s: float) -> str | None:
        """Time that stopping and straightening still take, or the speed or steering that is too large."""
        left_s = self._config.stand_duration_s
        if self._begun == transition and self._stands_s is not None:
            left_s += self._stands_s - now_s
        if left_s > 1e-6 or state is None:
            return f"the car is still stopping and straightening its wheels, at least {left_s:.1f} s to go."
        speed = _speed(state)  # Of the last tick, which may have been a whole period ago; the judge saw it then.
        if speed is None or not abs(speed) <= STANDSTILL_M_S:
            text = "at an unknown speed" if speed is None else f"at {speed:.2f} m/s"
            return f"the car goes {text}, allowed are {STANDSTILL_M_S} m/s."
        angle = float(state.joint_pos_rad[STEERING])
        if not abs(angle) <= STRAIGHT_RAD:
            return f"the wheels are turned by {angle:.2f} rad, allowed are {STRAIGHT_RAD} rad."
        return None

    def begin_brake(self, tick: Tick) -> None:
        """Start a stop, unless one runs: its set-point must not rise to the speed that the car has still."""
        if tick.last is None or tick.last_role in (None, Role.TASK):
            self._begin(tick)

    def brake(self, tick: Tick) -> JointCommand | None:
        """Speed set-point that falls to 0 at the brake limit; by time alone where the speed is old or no number."""
        return self._command(self._stop.speed(tick.now_s, self._measured(tick)))

    def final(self, command: JointCommand | None) -> JointCommand | None:
        """Speed 0 at once: a set-point on the way to 0 would go on for ever."""
        return self._command(0.0)

    def is_braking(self, now_s: float) -> bool:
        """Whether the set-point is not 0 for good yet."""
        return now_s < self._stop.end_s

    def _measured(self, tick: Tick) -> float | None:
        """The car's speed, None where it is old or no number."""
        return _speed(tick.state) if tick.state is not None and self._is_fresh(tick) else None

    def _is_fresh(self, tick: Tick) -> bool:
        return tick.state is not None and abs(tick.now_s - tick.state.stamp_s) <= self._config.state_timeout_s

    def _begin(self, tick: Tick) -> None:
        """Start a stop from now on, with the steering where it is.

        Where the speed is old or no number, it starts at the lower one of the last command and the last measurement.
        """
        speed, last, state = self._measured(tick), tick.last, tick.state
        if speed is None:
            sent = None if last is None else float(last.vel_rad_s[DRIVE])
            known = [value for value in (sent, None if state is None else _speed(state)) if value is not None]
            speed = min(known, key=abs, default=0.0)
        angle = math.nan if state is None or not self._is_fresh(tick) else float(state.joint_pos_rad[STEERING])
        if not math.isfinite(angle):
            angle = 0.0 if last is None else float(last.pos_rad[STEERING])
        self._steering = angle
        self._stop = _Stop(speed, tick.now_s, self._brake_m_s2, self._dt_s)

    def _command(self, speed_m_s: float) -> JointCommand:
        pos, vel = np.zeros(2), np.zeros(2)
        pos[STEERING], vel[DRIVE] = self._steering, speed_m_s
        return replace(JointCommand.position(self._spec, pos), vel_rad_s=vel)


def _speed(state: RobotState) -> float | None:
    """Speed along the car's axis, m/s; that of the drive where the odometry tells none."""
    velocity = state.lin_vel_base_in_base_m_s
    for value in (None if velocity is None else float(velocity[0]), float(state.joint_vel_rad_s[DRIVE])):
        if value is not None and math.isfinite(value):
            return value
    return None
