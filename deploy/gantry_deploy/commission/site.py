"""Settings, outcome and surroundings of the steps of commissioning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.commission.operator import Operator
from gantry_deploy.control.safety_config import SafetyConfig
from gantry_hardware.backends.backend import Robot


@dataclass(frozen=True)
class CommissionCfg:
    """Settings of commissioning."""

    gain_share: float = 0.3
    """Share of the usual gains in all motions."""
    amplitude_rad: float = 0.15
    """Excursion of a joint, rad, at most a quarter of its range."""
    period_s: float = 2.0
    """Time in which a joint goes out and back."""
    rate_hz: float = 100.0
    """Rate of commands to single joints."""
    readings_s: float = 5.0
    """Time for which a robot is read that is not moved."""
    policy_s: float = 5.0
    """Time under the policy on the gantry."""
    joints: tuple[str, ...] = ()
    """Joints to move; all if empty."""


@dataclass
class StepResult:
    """Outcome of one step."""

    name: str
    """Name of the step."""
    verdict: str
    """``passed``, ``failed`` or ``skipped``."""
    text: str
    """Summary in words."""
    rows: list[tuple[str, ...]] = field(default_factory=list)
    """Lines of the report's table."""
    data: dict[str, Any] = field(default_factory=dict)
    """Numbers, for JSON."""


@dataclass(frozen=True)
class Site:
    """Robot, operator and settings of the steps."""

    robot: Robot
    """Connected."""
    operator: Operator
    """The person at the robot."""
    cfg: CommissionCfg
    """Settings."""
    bundle: Bundle | None = None
    """Policy to try on the gantry; None to leave that out."""

    @property
    def safety(self) -> SafetyConfig:
        """The judge's limits; a hanging robot may tilt."""
        return SafetyConfig(max_tilt_rad=np.pi)
