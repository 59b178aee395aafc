"""Commands of a car while no policy drives: nothing, a stop, or the brakes.

Damping is no brake for a car, and a speed servo that is told 0 at once locks the wheels or does whatever its own
controller thinks best. So DAMP lowers the speed set-point at the car's brake limit and keeps the steering where it is:
straightening the wheels in the middle of a bend would leave the lane. STAND stops in the same way and straightens the
wheels once the car stands. PASSIVE sends nothing, which leaves the car to its driver, its multiplexer or its own
controller.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gantry_deploy.contract.drive_spec import DRIVE, STEERING
from gantry_deploy.control.idle_commands import Postures
from gantry_deploy.control.safety import Mode, SafetyMachine, is_car
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.cars import STANDSTILL_M_S
from gantry_hardware.spec import RobotSpec
from gantry_hardware.state import JointCommand, RobotState

STRAIGHT_RAD = 0.1
"""Wheels that are turned by less are straight enough for a policy to take over."""


def make_postures(
    spec: RobotSpec, runner: PolicyRunner | None, safety: SafetyMachine, dt_s: float
) -> Postures | CarPostures:
    """Make the commands of every mode but POLICY, for the kind of robot.

    Args:
        spec: The robot.
        runner: The policy that will take over, if there is one.
        safety: The judge.
        dt_s: Time between two commands.
    """
    return CarPostures(spec, safety, dt_s) if is_car(spec) else Postures(spec, runner, safety)


class _Stop:
    """A speed set-point that falls to 0 at the brake limit and never asks for more than the car's speed.

    Args:
        speed_m_s: At the start.
        start_s: When it starts, on the robot's clock.
        brake_m_s2: Deceleration.
        dt_s: How long a command lasts; each asks for the speed at its end.
    """

    def __init__(self, speed_m_s: float, start_s: float, brake_m_s2: float, dt_s: float) -> None:
        self._speed, self._start_s, self._brake, self._dt_s = speed_m_s, start_s, brake_m_s2, dt_s

    @property
    def end_s(self) -> float:
        """Time at which the set-point is 0 for good."""
        return self._start_s + abs(self._speed) / self._brake

    def speed(self, now_s: float, measured_m_s: float | None) -> float:
        """The set-point of now; ``measured_m_s`` is None where that is not known."""
        size = abs(self._speed) - self._brake * (now_s - self._start_s + self._dt_s)
        if measured_m_s is not None:
            along = measured_m_s * math.copysign(1.0, self._speed)  # Below 0 for a car that rolls the other way.
            size = min(size, along - self._brake * self._dt_s)
        return math.copysign(max(0.0, size), self._speed)


class CarStand:
    """Conditions at which a car that has been told to stop straightens its wheels, and at which a policy may take over.

    Args:
        safety: Its settings say how long straightening takes; its count of modes entered tells one stand from the next.
    """

    def __init__(self, safety: SafetyMachine) -> None:
        self._safety = safety
        self.duration_s = safety.config.stand_duration_s
        """How long the newest stand takes, stopping included."""
        self._stands_s: float | None = None
        self._from_rad = 0.0
        self._entry = -1

    def begin(self, stopping_s: float, steering_rad: float, entry: int) -> None:
        """Start; ``stopping_s`` is how long stopping takes, ``entry`` the safety machine's count."""
        self._stands_s, self._from_rad, self._entry = None, steering_rad, entry
        self.duration_s = stopping_s + self._safety.config.stand_duration_s

    def steering(self, rolls: bool, now_s: float) -> float:
        """The steering of now: held until the car has come to rest, then along a cosine ramp to straight."""
        if self._stands_s is None:
            if rolls:
                return self._from_rad
            self._stands_s = now_s
        share = min(1.0, (now_s - self._stands_s) / self._safety.config.stand_duration_s)
        return self._from_rad * (0.5 + 0.5 * math.cos(math.pi * share))

    def refusal(self, state: RobotState | None, now_s: float) -> str | None:
        """Reason for which the policy may not take over yet, or None."""
        duration_s = self._safety.config.stand_duration_s
        begun = self._entry == self._safety.entries and self._stands_s is not None
        left_s = duration_s if self._stands_s is None or not begun else self._stands_s + duration_s - now_s
        if left_s > 1e-6 or state is None:
            return f"the car is still stopping and straightening its wheels, at least {left_s:.1f} s to go."
        speed = _speed(state)  # Of the last tick, which may have been a whole period ago; the judge saw it then.
        if speed is None or not abs(speed) <= STANDSTILL_M_S:
            told = "at an unknown speed" if speed is None else f"at {speed:.2f} m/s"
            return f"the car goes {told}, allowed are {STANDSTILL_M_S} m/s."
        angle = float(state.joint_pos_rad[STEERING])
        if not abs(angle) <= STRAIGHT_RAD:
            return f"the wheels are turned by {angle:.2f} rad, allowed are {STRAIGHT_RAD} rad."
        return None


class CarPostures:
    """The command of every mode but POLICY for a car; see :class:`gantry_deploy.control.idle_commands.Postures`.

    Args:
        spec: A car.
        safety: The judge; its settings and its count of modes entered.
        dt_s: Time between two commands.
    """

    def __init__(self, spec: RobotSpec, safety: SafetyMachine, dt_s: float) -> None:
        assert spec.car is not None
        self._spec, self._safety, self._dt_s = spec, safety, dt_s
        self._brake_m_s2 = spec.car.brake_limit_m_s2
        self.stand = CarStand(safety)
        """The way to standing still with straight wheels."""
        self._stop: _Stop | None = None
        self._steering = 0.0

    def begin(self, mode: Mode, state: RobotState | None, last: JointCommand | None, now_s: float, entry: int) -> None:
        """A mode is entered; see :meth:`gantry_deploy.control.idle_commands.Postures.begin`."""
        if mode is Mode.STAND:
            stop = self._stop = self._begin(state, last, now_s)
            self.stand.begin(stop.end_s - now_s, self._steering, entry)
        elif mode is Mode.DAMP and self._stop is None:
            # A stop that runs goes on: the tick of the fault has braked already, and no set-point may rise again.
            self._stop = self._begin(state, last, now_s)

    def command(self, mode: Mode, state: RobotState | None, now_s: float) -> JointCommand | None:
        """Command of STAND and PASSIVE; None for nothing."""
        if mode is not Mode.STAND:
            self.release()
            return None
        stop = self._stop = self._stop or self._begin(state, None, now_s)
        speed = self.measured(state, now_s)
        rolls = now_s < stop.end_s if speed is None else abs(speed) > STANDSTILL_M_S
        self._steering = self.stand.steering(rolls, now_s)
        return self._told(self._steering, stop.speed(now_s, speed))

    def release(self) -> None:
        """The car is driven: the next stop starts anew."""
        self._stop = None

    def brake(self, state: RobotState | None, last: JointCommand | None, now_s: float) -> JointCommand | None:
        """Command of DAMP.

        It starts at the measured speed. Where that is old or no number, it starts at the lower one of what was told
        last and what was known last, and runs down by time.

        Args:
            state: The newest reading.
            last: What was sent last, None for nothing.
            now_s: On the robot's clock.
        """
        stop = self._stop = self._stop or self._begin(state, last, now_s)
        return self._told(self._steering, stop.speed(now_s, self.measured(state, now_s)))

    def last_word(self, state: RobotState | None, last: JointCommand | None, now_s: float) -> JointCommand | None:
        """Speed 0 at once, where nothing may follow it: a set-point on the way to 0 would go on for ever."""
        if self._stop is None:
            self._begin(state, last, now_s)
        return self._told(self._steering, 0.0)

    def braking(self, now_s: float) -> bool:
        """Whether the set-point is not 0 for good yet."""
        return self._stop is not None and now_s < self._stop.end_s

    def measured(self, state: RobotState | None, now_s: float) -> float | None:
        """The car's speed, None where it is old or no number."""
        if state is None or not abs(now_s - state.stamp_s) <= self._safety.config.state_timeout_s:
            return None
        return _speed(state)

    def _begin(self, state: RobotState | None, last: JointCommand | None, now_s: float) -> _Stop:
        """A stop from now on, with the steering where it is."""
        speed = self.measured(state, now_s)
        told = None if last is None else float(last.vel_rad_s[DRIVE])
        if speed is None:
            known = [value for value in (told, None if state is None else _speed(state)) if value is not None]
            speed = min(known, key=abs, default=0.0)
        angle = math.nan if state is None else float(state.joint_pos_rad[STEERING])
        fresh = state is not None and abs(now_s - state.stamp_s) <= self._safety.config.state_timeout_s
        if fresh and math.isfinite(angle):
            self._steering = angle
        elif last is not None:
            self._steering = float(last.pos_rad[STEERING])
        else:
            self._steering = 0.0
        return _Stop(speed, now_s, self._brake_m_s2, self._dt_s)

    def _told(self, steering_rad: float, speed_m_s: float) -> JointCommand:
        pos, vel = np.zeros(2), np.zeros(2)
        pos[STEERING], vel[DRIVE] = steering_rad, speed_m_s
        return replace(JointCommand.position(self._spec, pos), vel_rad_s=vel)


def _speed(state: RobotState) -> float | None:
    """Speed along the car's axis, m/s; that of the drive where the odometry tells none."""
    velocity = state.lin_vel_base_in_base_m_s
    for value in (None if velocity is None else float(velocity[0]), float(state.joint_vel_rad_s[DRIVE])):
        if value is not None and math.isfinite(value):
            return value
    return None
