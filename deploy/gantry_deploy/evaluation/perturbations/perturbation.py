"""Perturbation of a simulated robot as data: changed dynamics, options of its backend, noise and pushes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.backends.registry import backend_factory, has_option
from gantry_hardware.model.capabilities import HasPush, missing_methods
from gantry_hardware.model.dynamics import PARAMETERS, Estimate, RobotDynamics, load_dynamics
from gantry_hardware.model.spec import RobotSpec

Span = tuple[float, float]
"""Least and largest value of a draw; equal for a fixed one."""
MOTOR_SPEEDS = ("corner_speed_rad_s", "no_load_speed_rad_s")
"""Parameters of which the smaller one of machine and perturbation counts."""


@dataclass(frozen=True)
class Pushes:
    """Short pushes of the base: changes of its velocity in the plane, in a direction that is drawn for each."""

    every_s: Span = (3.0, 5.0)
    """Time between two of them, and before the first."""
    speed_m_s: Span = (0.5, 1.0)
    """Size of the change."""


@dataclass(frozen=True)
class Push:
    """One push."""

    time_s: float
    """Time after the policy's start."""
    vel_change_in_world_m_s: tuple[float, float, float]
    """Change of the base's velocity, along the world's axes."""


@dataclass(frozen=True)
class Perturbation:
    """Named condition of a simulated robot."""

    name: str
    """Name on the command line."""
    text: str
    """Difference from the nominal robot, in one sentence for people."""
    joints: Mapping[str, Mapping[str, Span]] = field(default_factory=dict)
    """Joint -> parameter of :data:`gantry_hardware.model.dynamics.PARAMETERS` -> its change, drawn for each episode,
    see :func:`changed`."""
    whole: Mapping[str, Span] = field(default_factory=dict)
    """Parameter of the whole robot -> its change, likewise."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the backend, in place of what is drawn or given."""
    noise_share: float = 1.0
    """Factor of the sensor noise."""
    pushes: Pushes | None = None
    """Pushes of the base; None for none."""

    def lacking(self, backend: str) -> list[str]:
        """Options and methods that a backend lacks for it, sorted.

        Raises:
            UnknownNameError: If there is no such backend.
            RobotError: If it cannot be loaded.
        """
        needed = [*self.options, *(["dynamics"] if self._changes_dynamics else [])]
        if self.noise_share != 1.0:
            needed.append("noise")
        missing = [name for name in needed if not has_option(backend, name)]
        if self.pushes is not None:
            missing += missing_methods(backend_factory(backend), HasPush)
        return sorted(missing)

    def applied(self, options: Mapping[str, Any], spec: RobotSpec, rng: np.random.Generator) -> dict[str, Any]:
        """Options of the backend under the perturbation.

        Args:
            options: Those without it; ``dynamics`` may be the path of a file.
            spec: The robot.
            rng: Draws.

        Raises:
            GantryError: If the file of dynamics is refused.
        """
        found = {**options, **self.options}
        if self.noise_share != 1.0:
            found["noise"] = self.noise_share * float(options.get("noise", 0.0))
        if self._changes_dynamics:
            given = options.get("dynamics") or RobotDynamics(spec.name)
            machine = load_dynamics(given, spec) if isinstance(given, str) else given
            found["dynamics"] = self.dynamics(machine, spec, rng)
        return found

    def dynamics(self, machine: RobotDynamics, spec: RobotSpec, rng: np.random.Generator) -> RobotDynamics:
        """Dynamics of a machine under the perturbation.

        Args:
            machine: The machine without it.
            spec: The robot.
            rng: Draws, joint after joint in the spec's order.
        """
        joints = {name: dict(found) for name, found in machine.joints.items()}
        for joint in spec.joint_names:
            for name, span in self.joints.get(joint, {}).items():
                base = float(machine.joint_values(name, spec)[spec.joint_index(joint)])
                value = changed(name, base, float(rng.uniform(*span)))
                joints.setdefault(joint, {})[name] = Estimate(value)
        whole = dict(machine.whole)
        for name, span in self.whole.items():
            whole[name] = Estimate(changed(name, machine.value(name), float(rng.uniform(*span))))
        return RobotDynamics(spec.name, joints, whole, f"{machine.source or 'nominal'}, {self.name}")

    @property
    def _changes_dynamics(self) -> bool:
        return bool(self.joints or self.whole)


def changed(name: str, base: float, by: float) -> float:
    """A parameter's value after a change, kept within its bounds.

    Frictions, offsets, delays and angles, which are usually 0, are added to; the speeds of a motor's curve are the
    smaller of the two; all others are multiplied.

    Args:
        name: Name in :data:`gantry_hardware.model.dynamics.PARAMETERS`.
        base: The machine's value, in the parameter's unit.
        by: Summand, speed or factor.
    """
    parameter = PARAMETERS[name]
    if name in MOTOR_SPEEDS:
        return min(base, by)
    value = base + by if parameter.usual == 0.0 else base * by
    return float(np.clip(value, *parameter.bounds))


def all_joints(spec: RobotSpec, **spans: Span) -> dict[str, dict[str, Span]]:
    """The same change of parameters for every joint of a robot."""
    return {joint: dict(spans) for joint in spec.joint_names}


def scaled_joints(spec: RobotSpec, scale: NDArray[np.float64], **spans: Span) -> dict[str, dict[str, Span]]:
    """A change of parameters for every joint, times a factor of each, shape (num_joints,), dimensionless."""
    return {
        joint: {name: (low * factor, high * factor) for name, (low, high) in spans.items()}
        for joint, factor in zip(spec.joint_names, scale.tolist(), strict=True)
    }


def merged(*parts: Mapping[str, Mapping[str, Span]]) -> dict[str, dict[str, Span]]:
    """Changes of several kinds for the same joints."""
    found: dict[str, dict[str, Span]] = {}
    for part in parts:
        for joint, spans in part.items():
            found.setdefault(joint, {}).update(spans)
    return found


def draw_pushes(pushes: Pushes, seconds: float, rng: np.random.Generator) -> list[Push]:
    """Pushes of an episode of a length in seconds, in order."""
    schedule, time_s = [], float(rng.uniform(*pushes.every_s))
    while time_s < seconds:
        speed, heading = rng.uniform(*pushes.speed_m_s), rng.uniform(-math.pi, math.pi)
        change = (float(speed * math.cos(heading)), float(speed * math.sin(heading)), 0.0)
        schedule.append(Push(time_s, change))
        time_s += float(rng.uniform(*pushes.every_s))
    return schedule
