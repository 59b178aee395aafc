"""Teacher that plans from pictures, state and words: asked once in every step of a rollout, and allowed to be away."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDict

from gantry_deploy.errors import PolicyServerError
from gantry_hardware.errors import GantryError
from gantry_policies.common.checkpoint import tell_stderr
from gantry_policies.on_policy.teacher_protocol import Guidance
from gantry_policies.teachers.teacher import ActionTeacher, TeacherQuestion, TimedTeacher

PASSING = ("slow", "dead", "error_frame")
"""Reasons of a server's error that may pass; any other one ends the training, as targets could be wrong."""
PATIENCE = 10
"""Questions in a row without an answer after which a training goes on without its teacher."""


class PlanTeacher:
    """Guidance by the first action of the plans of a teacher that is shown the environments as they are.

    Args:
        teacher: Plans, in the units of the student's actions.
        show: Shows the present state of all N environments.
        action_size: Numbers of the student's action.
        patience: Questions in a row without an answer after which it is asked no more.
        told: Told of failures, in a sentence.

    Raises:
        GantryError: If the teacher's description tells another number of actions than the student has.
    """

    present_only = True

    def __init__(
        self,
        teacher: ActionTeacher,
        show: Callable[[], TeacherQuestion],
        action_size: int,
        patience: int = PATIENCE,
        told: Callable[[str], None] = tell_stderr,
    ) -> None:
        theirs = teacher.description.action_size
        if theirs not in (None, action_size):
            raise GantryError(f"The teacher's actions have {theirs} numbers, the student's {action_size}.")
        self.timed = TimedTeacher(teacher)
        """The teacher with its counters."""
        self.is_away = False
        """Whether it is asked no more."""
        self._show, self._action_size, self._patience, self._told = show, action_size, patience, told
        self._missed = 0

    def __call__(self, observations: TensorDict) -> Guidance:
        """First actions (N, n) of its plans now; rows that were not answered are not known.

        Args:
            observations: Groups (N, ...) of the present state, of which the device and N are taken.

        Raises:
            PolicyServerError: If a server answers with something that cannot be trusted, or serves another policy.
            TeacherError: If question and teacher do not fit each other, or the plan makes no sense.
        """
        count, device = observations.batch_size[0], observations.device
        nothing = Guidance(
            torch.zeros(count, self._action_size, device=device),
            known=torch.zeros(count, dtype=torch.bool, device=device),
        )
        if self.is_away:
            return nothing
        try:
            plan = self.timed.plan(self._show())
        except PolicyServerError as error:
            if error.reason not in PASSING:
                raise
            self._note(error)
            return nothing
        if self._missed:
            self._told(f"The teacher answers again, after {self._missed} questions without an answer.")
        self._missed = 0
        return Guidance(torch.as_tensor(plan[:, 0], device=device), known=~nothing.known)  # type: ignore[operator]

    def _note(self, error: PolicyServerError) -> None:
        self._missed += 1
        if self._missed == 1:
            self._told(f"The teacher does not answer: {error} What is learned meanwhile is learned without it.")
        if self._missed >= self._patience:
            self.is_away = True
            self._told(
                f"The teacher has not answered {self._missed} questions in a row; the training goes on without it."
            )

    def close(self) -> None:
        """Release the teacher."""
        self.timed.close()
