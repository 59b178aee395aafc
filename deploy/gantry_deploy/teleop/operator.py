"""Readings of an operator's device, and the protocol that every device implements.

Event names are those of LeRobot's teleoperators (``TeleopEvents``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.compat import StrEnum

if TYPE_CHECKING:  # Devices load no network runtime.
    from gantry_deploy.policy.runner import PolicyOutput


class TeleopEvent(StrEnum):
    """Event that a person triggers with a button or a key."""

    SUCCESS = "success"
    """The attempt has succeeded; it ends."""
    FAILURE = "failure"
    """The attempt has failed; it ends."""
    RERECORD = "rerecord_episode"
    """Discard the attempt and begin it again."""
    INTERVENTION = "is_intervention"
    """Take over, or give back, for devices that toggle; a held dead-man switch needs no event."""
    TERMINATE = "terminate_episode"
    """End the attempt without a verdict."""
    START = "start_episode"
    """Begin the next attempt; the scene has been reset."""
    PAUSE = "pause"
    """Hold still until the next ``start_episode``, ``is_intervention`` or ``pause``."""
    VETO = "veto_success"
    """Take back a success that a reward classifier has reported."""
    QUIT = "quit"
    """End the session."""
    ESTOP = "estop"
    """Stop at once: the safety machine brakes or damps the robot."""


class Axis(StrEnum):
    """Axis of motion, in [-1, 1], in the robot's base frame (REP-103: x ahead, y to the left, z up)."""

    X = "x"
    Y = "y"
    Z = "z"
    ROLL = "roll"
    PITCH = "pitch"
    YAW = "yaw"
    GRIPPER = "gripper"
    """-1 closes, 1 opens, 0 leaves the gripper as it is."""
    THROTTLE = "throttle"
    """-1 brakes fully, 1 accelerates fully."""
    STEER = "steer"
    """1 to the left."""


@dataclass(frozen=True)
class OperatorInput:
    """Reading of a device at one moment."""

    stamp_s: float
    """Time at which the device was last heard of, on the clock that was given to :meth:`TeleopDevice.read`."""
    engaged: bool = False
    """Whether the person holds the dead-man switch, or has taken over with a device that toggles. Motion counts only
    while it is true."""
    axes: Mapping[Axis, float] = field(default_factory=dict)
    """Wanted motion by axis, each in [-1, 1]; an axis that the device does not have is missing."""
    joint_pos_rad: NDArray[np.float64] | None = None
    """Shape (n,), joints of a leader arm in the follower's order and units; None for other devices."""
    action: NDArray[np.float32] | None = None
    """Shape (a,), action in the policy's own units and frame, for a scripted person; None for devices."""
    events: tuple[TeleopEvent, ...] = ()
    """Events since the last reading, oldest first."""


@runtime_checkable
class WatchingDevice(Protocol):
    """Device that sees what the policy sees and acts by itself: a scripted person."""

    def begin(self) -> None:
        """An attempt begins."""
        ...

    def watch(self, seen: PolicyOutput, acts: bool) -> None:
        """Look at a step, and decide whether to take over in the next one.

        Args:
            seen: Observation and answer of the policy.
            acts: Whether the device acts in this step.
        """
        ...

    def act(self, seen: PolicyOutput) -> NDArray[np.float32]:
        """Action (a,) of a step in which it acts, dimensionless, in the policy's own frame."""
        ...


@runtime_checkable
class TogglingDevice(Protocol):
    """Device that toggles between taking over and giving back, and is told where a take-over has ended without it."""

    def release(self) -> None:
        """Let go: the attempt has ended."""
        ...


@runtime_checkable
class AttendedDevice(Protocol):
    """Device that asks the session itself, to answer the person with its state or its reason."""

    def attend(self, request: Callable[[TeleopEvent], str | None], state: Callable[[], str]) -> None:
        """A session has begun.

        Args:
            request: Asks for an event, from any thread; returns None, or the reason why it is not possible.
            state: Name of the session's present state.
        """
        ...


class TeleopDevice(Protocol):
    """Device in an operator's hand. Methods are called from the control loop's thread and never block it."""

    name: str
    """Name in reports and recordings."""

    def connect(self) -> None:
        """Open the device.

        Raises:
            TeleopError: If it is not there or cannot be read, with what to do.
        """
        ...

    def read(self, now_s: float) -> OperatorInput:
        """Newest reading, in microseconds; events are given once.

        A device that was lost, or is silent for longer than its timeout, is not engaged; it never raises for that.

        Args:
            now_s: Time on the robot's clock.
        """
        ...

    def describe(self) -> list[str]:
        """Lines that explain buttons and axes, shown at the start."""
        ...

    def close(self) -> None:
        """Release the device; a terminal gets its settings back."""
        ...
