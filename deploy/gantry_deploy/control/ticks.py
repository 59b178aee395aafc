"""Report of a control loop about each of its ticks, and its receivers."""

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
    """Inputs and outputs of one tick of the loop."""

    time_s: float
    """Start of the tick on the robot's clock."""
    mode: Mode
    """Mode that decided what was sent."""
    fault: Fault | None
    """In DAMP what led there; in PASSIVE what would keep the robot from standing."""
    state: RobotState | None
    """State that was read; None if the robot reported nothing."""
    requested: NDArray[np.float64]
    """Shape (c,), what the operator asked for, zero if that was too old."""
    step: PolicyStep | None
    """Inputs and outputs of the policy; None unless it ran."""
    sent: JointCommand | None
    """Command that was really sent; None if nothing was: the robot took nothing, or a limp command was withheld."""
    period_s: float
    """Time since the last tick began, on the robot's clock; 0 for the first."""
    busy_s: float
    """Wall-clock time that the tick took, before recording."""
    look: MapLook | None = None
    """Map window that the policy was shown; None if it looked at none."""


class TickRecorder(Protocol):
    """Takes note of ticks; ``Recorder`` is one. It must neither block nor raise."""

    def record(self, report: TickReport) -> None:
        """Take one report."""
        ...

    def statistics(self) -> dict[str, Any]:
        """Plain data for JSON: what was written and what was lost."""
        ...
