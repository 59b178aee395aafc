"""Counts and rates of a session: attempts, successes, steps by policy and person, and the person's time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from gantry_deploy.session.steps import SessionStep


@dataclass(frozen=True)
class Attempt:
    """A finished attempt."""

    episode: int
    """Number of it."""
    steps: int
    """Control steps."""
    by_person: int
    """Steps in which a person acted."""
    success: bool
    """Whether it succeeded."""
    ended_s: float
    """End on the robot's clock, s since the session began."""
    parameters_version: int
    """Version of the weights that acted at its end."""


class Tally:
    """Adds up steps.

    Args:
        dt_s: Length of a control step, s.
        recent: Finished attempts over which rates are told.
    """

    def __init__(self, dt_s: float, recent: int) -> None:
        self._dt_s = dt_s
        self.attempts: list[Attempt] = []
        """Finished attempts, oldest first."""
        self.steps = 0
        """Control steps so far."""
        self.by_person = 0
        """Steps in which a person acted."""
        self.corrections = 0
        """Times that a person took over."""
        self._recent: deque[Attempt] = deque(maxlen=recent)
        self._open, self._open_by_person = 0, 0
        self._before = False

    @property
    def person_s(self) -> float:
        """Time in which a person has acted, s."""
        return self.by_person * self._dt_s

    @property
    def successes(self) -> int:
        """Attempts that succeeded."""
        return sum(item.success for item in self.attempts)

    @property
    def successes_alone(self) -> int:
        """Those without any correction."""
        return sum(item.success and not item.by_person for item in self.attempts)

    @property
    def success_rate(self) -> float | None:
        """Share of the recent attempts that succeeded; None before the first."""
        return sum(item.success for item in self._recent) / len(self._recent) if self._recent else None

    @property
    def intervention_rate(self) -> float | None:
        """Share of the steps of the recent attempts in which a person acted; None before the first."""
        steps = sum(item.steps for item in self._recent)
        return sum(item.by_person for item in self._recent) / steps if steps else None

    def add(self, step: SessionStep, since_s: float) -> None:
        """Count a step; ``since_s`` is its time since the session began."""
        by_person = step.is_intervention
        self.steps += 1
        self.by_person += by_person
        self.corrections += by_person and not self._before
        self._open += 1
        self._open_by_person += by_person
        self._before = by_person and not step.is_last
        if step.is_last:
            done = Attempt(
                step.episode, self._open, self._open_by_person, step.success, since_s, step.parameters_version
            )
            self.attempts.append(done)
            self._recent.append(done)
            self._open = self._open_by_person = 0

    def drop(self) -> None:
        """Forget the open attempt: the robot was stopped in it; its steps stay counted."""
        self._open = self._open_by_person = 0
        self._before = False

    def summary(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "attempts": len(self.attempts),
            "successes": self.successes,
            "successes_alone": self.successes_alone,
            "steps": self.steps,
            "steps_by_person": self.by_person,
            "corrections": self.corrections,
            "person_s": round(self.person_s, 3),
            "episodes": [vars(item) for item in self.attempts],
        }
