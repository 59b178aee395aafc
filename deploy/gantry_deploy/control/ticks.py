"""What a control loop tells of each of its ticks, and who is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.control.safety import Fault, Mode
from gantry_deploy.perception.maps import MapLook
from gantry_deploy.policy.runner import PolicyStep
from gantry_hardware.state import JointCommand, RobotState


@dataclass(frozen=True)
class TickReport:
    """What one tick of the loop found and did."""

    time_s: float
    """Start of the tick on the robot's clock."""
    mode: Mode
    """Mode that decided what was sent."""
    fault: Fault | None
    """In DAMP what led there; in PASSIVE what would keep the robot from standing."""
    state: RobotState | None
    """What was read; None if the robot reported nothing."""
    requested: NDArray[np.float64]
    """Shape (c,), what the operator asked for, zero if that was too old."""
    step: PolicyStep | None
    """What the policy saw and did; None unless it ran."""
    sent: JointCommand | None
    """What was really sent; None if nothing was: the robot took nothing, or a limp command was withheld."""
    period_s: float
    """Time since the last tick began, on the robot's clock; 0 for the first."""
    busy_s: float
    """Wall-clock time that the tick took, before recording."""
    look: MapLook | None = None
    """What the policy was shown of a map; None if it looked at none."""


class TickRecorder(Protocol):
    """Takes note of ticks; ``Recorder`` is one. It must neither block nor raise."""

    def record(self, report: TickReport) -> None:
        """Take one report."""
        ...

    def statistics(self) -> dict[str, Any]:
        """Plain data for JSON: what was written and what was lost."""
        ...
