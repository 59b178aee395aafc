"""Teachers that plan: one from pictures, state and words that may be away, asked in every step of a rollout; and any
of them by whole plans, asked once in some steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from tensordict import TensorDict
from torch import Tensor

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
        """First actions (N, n) of its plans now, see :meth:`plans`; rows that were not answered are not known."""
        plans = self.plans(observations)
        if plans is not None:
            known = torch.ones(len(plans), dtype=torch.bool, device=plans.device)
            return Guidance(plans[:, 0], known=known)
        count, device = observations.batch_size[0], observations.device
        known = torch.zeros(count, dtype=torch.bool, device=device)
        return Guidance(torch.zeros(count, self._action_size, device=device), known=known)

    def plans(self, observations: TensorDict) -> Tensor | None:
        """Plans (N, T, n) of the present state, in the units of the student's actions; None without an answer.

        Args:
            observations: Groups (N, ...) of the present state, of which the device is taken.

        Raises:
            PolicyServerError: If a server answers with something that cannot be trusted, or serves another policy.
            TeacherError: If question and teacher do not fit each other, or the plan makes no sense.
        """
        if self.is_away:
            return None
        try:
            plan = self.timed.plan(self._show())
        except PolicyServerError as error:
            if error.reason not in PASSING:
                raise
            self._note(error)
            return None
        if self._missed:
            self._told(f"The teacher answers again, after {self._missed} questions without an answer.")
        self._missed = 0
        return torch.as_tensor(plan, device=observations.device)

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


class Planning(Protocol):
    """A teacher that plans several actions."""

    def plans(self, observations: TensorDict) -> Tensor | None:
        """Plans (N, T, n) for observation groups (N, ...), in the units of the student's actions; None without an
        answer.
        """
        ...


class WholePlans:
    """Guidance by whole plans: a teacher is asked once in some steps, and its plan of then guides the steps between.

    A student of single actions is thus compared with what the teacher would do without looking again, as it acts on a
    robot, and is not held to the first action of ever new plans; and the teacher is asked as much less often. All
    environments are asked about at once. Of one that begins an episode in between nothing is known until the next
    question: the old plan was for another place. A question without an answer is asked again in the next step.

    Args:
        teacher: Plans.
        every: Steps from a question to the next one, at most T.
        action_size: Numbers of the student's action.
    """

    present_only = True

    def __init__(self, teacher: Planning, every: int, action_size: int) -> None:
        self.teacher = teacher
        self.every = every
        self._action_size = action_size
        self._plans: Tensor | None = None
        self._known: Tensor | None = None
        self._age = 0

    def __call__(self, observations: TensorDict) -> Guidance:
        """Actions (N, n) that were planned for this step; rows without a plan are not known.

        Args:
            observations: Groups (N, ...) of the present state, of which one follows the other.

        Raises:
            GantryError: If a plan is shorter than the steps between questions, or what the teacher raises.
        """
        count, device = observations.batch_size[0], observations.device
        if self._plans is None or self._age >= self.every:
            self._age, self._plans = 0, self.teacher.plans(observations)
            self._known = torch.ones(count, dtype=torch.bool, device=device)
            if self._plans is not None:
                require_covered(self.every, self._plans.shape[1])
        if self._plans is None or self._known is None:
            nothing = torch.zeros(count, self._action_size, device=device)
            return Guidance(nothing, known=torch.zeros(count, dtype=torch.bool, device=device))
        self._age += 1
        return Guidance(self._plans[:, self._age - 1], known=self._known.clone())

    def forget(self, ended: Tensor) -> None:
        """Drop the plans where an episode has ended, (N,) bool."""
        if self._known is not None:
            self._known &= ~ended.to(self._known.device)


def require_covered(every: int, horizon: int | None) -> None:
    """Refuse plans that end before the next question.

    Args:
        every: Steps from a question to the next one.
        horizon: Actions of a plan; None for not known.

    Raises:
        GantryError: With both.
    """
    if horizon is not None and every > horizon:
        raise GantryError(
            f"learner.guide.plan_steps is {every}, the teacher plans {horizon} actions; expected at most {horizon}."
        )
