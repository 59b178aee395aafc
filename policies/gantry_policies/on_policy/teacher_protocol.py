"""Interface of a teacher: observations in, actions out."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tensordict import TensorDict
from torch import Tensor

TEACHER_GROUP = "teacher"
"""Observation group that a teacher reads unless it is told otherwise; noiseless, with what a student lacks."""


class Guidance(NamedTuple):
    """Teacher actions and, optionally, its embedding."""

    actions: Tensor
    """Mean actions, (N, n), in the units of the student's actions."""
    embedding: tuple[Tensor, ...] = ()
    """Parts of a representation that the student's is compared with, (N, width) each; empty for none."""


class Teacher(Protocol):
    """A frozen policy, a script, or a vision-language-action model behind one call."""

    def __call__(self, observations: TensorDict) -> Guidance:
        """Answer every observation group that the environment gives, (N, ...) each; without gradients."""
        ...
