"""Result of the demo of goals: one crossing per terrain, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.control.goals import Goal
from gantry_deploy.evaluation.gate import Stage
from gantry_deploy.report.attention import AttentionRollout
from gantry_sim.demo import walk as walks
from gantry_sim.demo.goal.measured import MeasuredGoalWalk
from gantry_sim.terrains import TESTS

FLAT = "flat"
"""Name of the ground without terrain."""
HELD_OUT = tuple(TESTS)
"""Default terrains of the demo: those that no policy was trained on."""
ATTENTION_VIDEO = "attention.mp4"
"""Film of what the policy saw, in a walk's folder."""


@dataclass(frozen=True)
class GoalDemoConfig:
    """Settings of the demo."""

    output: Path
    """Folder for everything."""
    bundle: Path
    """The policy."""
    terrains: tuple[str, ...] = HELD_OUT
    """Terrains, full names; :data:`FLAT` for a flat floor."""
    difficulty: float = 0.5
    """0 to 1; of a held-out test, which instance."""
    goal: tuple[float, float, float] | None = None
    """x, y in m and yaw in rad from the start; None for the terrain's goal that is most ahead."""
    seconds: float = 20.0
    """Time under the policy; success is judged at its end."""
    video: bool = True
    """Whether to film."""


@dataclass(frozen=True)
class Crossing:
    """One walk over one terrain."""

    terrain: str
    """Name."""
    goal: Goal
    """Commanded goal."""
    walk: walks.Walk
    """Run of the walk, over ROS 2 or, on a machine that was too busy for the robot's clock, in one process without
    it.
    """
    found: MeasuredGoalWalk | None = None
    """Its recording; None if there is nothing to read."""
    mapping: dict[str, Any] | None = None
    """Statistics of the mapping node; None if there are none."""
    robot: dict[str, Any] | None = None
    """Statistics of the simulated robot's node; None if there are none."""
    loop: dict[str, Any] | None = None
    """Statistics of the policy's node; None if there are none."""
    rerun: float | None = None
    """Largest difference of the recorded actions from those of the network run again."""
    attention: AttentionRollout | None = None
    """Map input and attention of the policy."""
    films: dict[str, bytes] = field(default_factory=dict)
    """MP4 by file name: ``gantry_sim.demo.pipeline.VIDEO`` and :data:`ATTENTION_VIDEO`."""
    note: str = ""
    """Reason for what is missing; empty if nothing is."""

    @property
    def crossed(self) -> bool:
        """The verdict: the walk went to its end, and found the robot where it was sent."""
        return self.walk.completed and self.found is not None and self.found.crossed

    @property
    def real_time(self) -> float | None:
        """Simulated seconds per second of the clock, below 1 on a machine that is too busy; None if unknown."""
        told = self.robot or {}
        return told["simulated_s"] / told["wall_s"] if told.get("wall_s") else None

    @property
    def blind_ticks(self) -> int | None:
        """Ticks at which the newest map was too old to be shown to the policy; None if unknown."""
        return None if self.loop is None else self.loop.get("map", {}).get("blind steps")

    @property
    def reason(self) -> str:
        """Reason for not crossing it; empty if it was crossed."""
        if self.crossed:
            return ""
        if self.found is not None and self.found.fault:
            return self.found.fault
        if self.found is not None and self.found.fell:
            return "it fell"
        return self.walk.trouble or "it was not there at the end"


@dataclass(frozen=True)
class GoalOutcome:
    """Everything that the report is made of."""

    config: GoalDemoConfig
    """Settings of the demo."""
    bundle: Bundle
    """The policy."""
    stages: tuple[Stage, ...]
    """Verified properties of the bundle."""
    crossings: tuple[Crossing, ...]
    """In order."""
    stage_s: dict[str, float] = field(default_factory=dict)
    """Wall-clock seconds of each part of the demo."""

    @property
    def passed(self) -> bool:
        """Whether all were crossed."""
        return all(crossing.crossed for crossing in self.crossings)


def in_words(crossing: Crossing) -> str:
    """Outcome in a line."""
    found = crossing.found
    if found is None:
        return f"NOT crossed: {crossing.walk.trouble or crossing.note}"
    verdict = "crossed" if crossing.crossed else "NOT crossed"
    reason = f" ({crossing.reason.rstrip('.')})" if crossing.reason else ""
    return (
        f"{verdict}: {found.distance_m:.2f} m from the goal, {found.heading_error_rad:.2f} rad off its heading after "
        f"{found.time_s[-1]:.1f} s; {found.map_rate_hz:.1f} maps per second{reason}"
    )
