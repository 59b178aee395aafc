"""Commands of the demo to a walking robot, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import CommandSpec

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Segment:
    """One constant command."""

    seconds: float
    """Duration for which it is held."""
    command: tuple[float, float, float]
    """Forward and lateral velocity in m/s and yaw rate in rad/s, base frame."""
    name: str
    """In a word or two."""


Profile = tuple[Segment, ...]

DEMO_PROFILE: Profile = (
    Segment(1.0, (0.0, 0.0, 0.0), "stand"),
    Segment(4.0, (0.8, 0.0, 0.0), "forward"),
    Segment(3.0, (-0.5, 0.0, 0.0), "backward"),
    Segment(3.0, (0.0, 0.4, 0.0), "left"),
    Segment(3.0, (0.0, 0.0, -0.8), "turn right"),
    Segment(4.0, (0.6, 0.0, 0.6), "curve left"),
    Segment(2.0, (0.0, 0.0, 0.0), "stop"),
)
"""Twenty seconds through every direction, at rest at both ends."""


def total_s(profile: Sequence[Segment]) -> float:
    """Length of a profile in seconds."""
    return sum(segment.seconds for segment in profile)


def fitted(profile: Profile, seconds: float, spec: CommandSpec) -> Profile:
    """The profile stretched to ``seconds``, each command limited to what the policy was trained for."""
    stretch = seconds / total_s(profile)
    lower, upper = np.array(spec.lower), np.array(spec.upper)
    return tuple(
        replace(
            segment,
            seconds=segment.seconds * stretch,
            command=tuple(np.clip(segment.command, lower, upper).tolist()),
        )
        for segment in profile
    )


def constant(command: Sequence[float], seconds: float) -> Profile:
    """One command (3,) for the whole time."""
    x, y, yaw = command
    return (Segment(seconds, (x, y, yaw), "as asked"),)


def command_at(profile: Sequence[Segment], time_s: float) -> FloatArray:
    """The command (3,) at a time since the start; zero once the profile is over."""
    end_s = 0.0
    for segment in profile:
        end_s += segment.seconds
        # Half a nanosecond, so that sums of steps do not fall on the wrong side of an edge.
        if time_s < end_s - 5e-10:
            return np.array(segment.command)
    return np.zeros(3)


def as_text(profile: Sequence[Segment]) -> str:
    """The profile as the scripted operator of ``gantry launch`` reads it: ``seconds:vx,vy,yaw_rate; ...``."""
    return "; ".join(
        f"{segment.seconds:g}:" + ",".join(f"{value:g}" for value in segment.command) for segment in profile
    )


def describe(profile: Sequence[Segment]) -> str:
    """For people: ``forward 0.8 m/s for 4 s, ...``."""
    return ", ".join(f"{segment.name} ({segment.seconds:g} s)" for segment in profile)
