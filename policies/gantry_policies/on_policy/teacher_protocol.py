"""Interface of a teacher: observations in, actions out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tensordict import TensorDict
from torch import Tensor

TEACHER_GROUP = "teacher"
"""Observation group of a trained teacher, unless it has another one; noiseless, with what a student lacks."""


class Guidance(NamedTuple):
    """Teacher actions and, optionally, its embedding."""

    actions: Tensor
    """Mean actions, (N, n), in the units of the student's actions."""
    embedding: tuple[Tensor, ...] = ()
    """Parts of a representation that the student's is compared with, (N, width) each; empty for none."""
    known: Tensor | None = None
    """Rows that were answered, (N,) bool; the others are not learned from. None for all."""


class Teacher(Protocol):
    """A frozen policy, a script, or a vision-language-action model behind one call."""

    def __call__(self, observations: TensorDict) -> Guidance:
        """Answer every observation group that the environment gives, (N, ...) each; without gradients."""
        ...


class ScriptedTeacher:
    """A scripted policy that acts in the simulator beside the learner.

    Teachers with ``present_only`` know the present state alone: they are asked in every step of a rollout.

    Args:
        expert_action: Gives its actions (N, n), dimensionless, in the environment's present state.
    """

    present_only = True

    def __init__(self, expert_action: Callable[[], Tensor]) -> None:
        self.expert_action = expert_action

    def __call__(self, observations: TensorDict) -> Guidance:
        """Actions in the state that observations (N, ...) are of, which must be the environment's present one."""
        return Guidance(self.expert_action().to(observations.device))
