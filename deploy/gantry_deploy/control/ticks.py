"""Ticks of a control loop: inputs and outputs of its command sources, the report, and receivers of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.control.judge import Fault
from gantry_deploy.control.modes import Mode, Role, Transition
from gantry_hardware.backends.state import JointCommand, RobotState

if TYPE_CHECKING:  # Modules that only ask for the mode load no network runtime.
    from gantry_deploy.perception.maps import MapLook
    from gantry_deploy.policy.runner import PolicyStep


@dataclass(frozen=True)
class Tick:
    """Inputs of the command sources in one tick."""

    now_s: float
    """Start of the tick on the robot's clock."""
    transition: Transition
    """Newest change of the mode."""
    state: RobotState | None
    """Newest reading, whose stamp tells its age; None if there never was one."""
    requested: NDArray[np.float64]
    """Shape (c,), request of the operator to the policy, in the units of the contract's command."""
    last: JointCommand | None
    """Command that was really sent last; None if nothing was."""
    last_role: Role | None = None
    """Role of the source that acted last; None if none did."""


@dataclass(frozen=True)
class SourceCommand:
    """Command of a source for one tick."""

    command: JointCommand | None
    """Command to send; None sends nothing on purpose."""
    step: PolicyStep | None = None
    """Inputs and outputs of the policy, if it was asked."""


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
    source: str = ""
    """Name of the command source that acted, whose command was ``sent``; empty if there was none."""


class TickRecorder(Protocol):
    """Takes note of ticks; ``Recorder`` is one. It must neither block nor raise."""

    def record(self, report: TickReport) -> None:
        """Take one report."""
        ...

    def statistics(self) -> dict[str, Any]:
        """Plain data for JSON: what was written and what was lost."""
        ...
