"""Steps of an attempt, from the decision over what was really sent to the outcome."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.session.states import SessionEvent, event_of_end
from gantry_deploy.session.steps import Observation, SessionStep
from gantry_deploy.teleop.operator import TeleopEvent

FloatArray = NDArray[np.float32]

SWITCH = 0.5
"""A gripper's place as an action that is farther from zero opens or closes it."""


class AttemptRecorder:
    """Holds the step whose outcome is not known yet; a step is handed on when the observation after it has been made.

    Args:
        gripper: Place of a gripper in an action; None without one.
        penalty: Penalty of a step that opens or closes it, at most 0.
    """

    def __init__(self, gripper: int | None, penalty: float) -> None:
        self._gripper, self._penalty = gripper, penalty
        self.episode = -1
        """Number of the attempt."""
        self.steps = 0
        """Steps that have been decided in it."""
        self.is_running = False
        """Whether an attempt has begun and not ended."""
        self.event: TeleopEvent | None = None
        """Event by which an attempt has begun or ended in this tick; emptied by the session in the next one."""
        self._open: SessionStep | None = None
        self._sent = False
        self._last_grip: float | None = None

    @property
    def notes(self) -> dict[str, str]:
        """The event of this tick, for a recording; empty without one."""
        return {} if self.event is None else {"event": self.event.value}

    @property
    def is_open(self) -> bool:
        """Whether a step waits for its outcome."""
        return self._open is not None

    def begin(self) -> None:
        """Begin the next attempt."""
        self.episode, self.steps, self.is_running = self.episode + 1, 0, True
        self._open, self._last_grip, self.event = None, None, TeleopEvent.START

    def decide(self, step: SessionStep) -> None:
        """Take a step as it was decided."""
        self._open, self._sent = step, False
        self.steps += 1

    def sent(self, executed: FloatArray | None) -> None:
        """Take what was really sent: executed action (a,), dimensionless, in the policy's frame; None for nothing."""
        if self._open is None or self._sent:
            return
        if executed is None:
            self._open = None
            return
        self._open = replace(self._open, action=executed.copy(), penalty=self._penalty_of(executed))
        self._sent = True

    def complete(self) -> SessionStep:
        """The step whose outcome is known now; the recorder waits for the next one."""
        assert self._open is not None
        step, self._open = self._open, None
        return step

    def end(self, ends: SessionEvent, success: bool) -> None:
        """End the attempt, by an event."""
        self._open, self.is_running, self.event = None, False, event_of_end(ends, success)

    def abort(self) -> None:
        """End the attempt in its middle; a step without an outcome is left out."""
        self._open, self.is_running = None, False

    def _penalty_of(self, executed: FloatArray) -> float:
        """Penalty of an executed action (a,), dimensionless, that opens a closed gripper or closes an open one."""
        if self._gripper is None:
            return 0.0
        grip, before = float(executed[self._gripper]), self._last_grip
        if abs(grip) > SWITCH:
            self._last_grip = float(np.sign(grip))
        return self._penalty if before is not None and self._last_grip != before else 0.0


def ended(step: SessionStep, success: bool, terminated: bool, obs: Observation, base: FloatArray | None) -> SessionStep:
    """The last step of an attempt.

    Args:
        step: As it was sent.
        success: Whether the attempt has succeeded.
        terminated: Whether it has ended for good; otherwise for lack of time.
        obs: Observation after the step.
        base: Shape (a,), the base's action at it, dimensionless; None without a base.
    """
    return replace(
        step,
        reward=float(success),
        success=success,
        terminated=terminated,
        truncated=not terminated,
        last_obs=obs,
        last_base_action=base,
    )
