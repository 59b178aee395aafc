"""Interface of teachers that answer with chunks of actions, and the checks that all of them share."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.openpi.description import PolicyDescription
from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import names_text, plain_text

FloatArray = NDArray[np.float32]


class TeacherError(GantryError):
    """A teacher that cannot be made, a question that does not fit it, or an answer that makes no sense."""


@dataclass(frozen=True)
class TeacherQuestion:
    """Situations of N students that a teacher is asked about at once."""

    images: Mapping[str, NDArray[np.uint8]]
    """Camera to pictures (N, H, W, 3), uint8, rows from above, red, green and blue."""
    state: FloatArray
    """Shape (N, s), in the unit that the teacher's description tells."""
    instructions: Sequence[str]
    """N texts; empty ones for a teacher without instruction."""

    def __post_init__(self) -> None:
        if self.state.ndim != 2 or self.state.dtype != np.float32:
            raise TeacherError(
                f"state of a question is {self.state.dtype} of shape {self.state.shape}, expected float32 and (N, s)."
            )
        if (rows := len(self.state)) == 0:
            raise TeacherError("A question has no row, expected one or more.")
        if len(self.instructions) != rows:
            raise TeacherError(
                f"A question has {len(self.instructions)} instructions, expected {rows}, one for each row."
            )
        for name, pictures in self.images.items():
            if pictures.dtype != np.uint8 or pictures.ndim != 4 or len(pictures) != rows or pictures.shape[3] != 3:
                raise TeacherError(
                    f"Pictures of camera {plain_text(name)} are {pictures.dtype} of shape {pictures.shape}, expected "
                    f"uint8 of shape ({rows}, height, width, 3)."
                )

    @property
    def rows(self) -> int:
        """N."""
        return len(self.state)


class ActionTeacher(Protocol):
    """A frozen policy that plans actions from pictures, state and text. It remembers nothing between two questions."""

    @property
    def description(self) -> PolicyDescription:
        """Inputs and outputs, as far as they are known."""
        ...

    def plan(self, question: TeacherQuestion) -> FloatArray:
        """Plans of shape (N, T, n) with T the horizon, in the units of the teacher's actions; all numbers are finite.

        Raises:
            GantryError: If the question does not fit, or no answer comes that can be acted on.
        """
        ...

    def close(self) -> None:
        """Release what the teacher holds."""
        ...


def check_question(question: TeacherQuestion, description: PolicyDescription, name: str) -> None:
    """Refuse a question that a teacher cannot answer, as far as its description tells.

    Raises:
        TeacherError: With what is missing or of another size.
    """
    if description.state_size not in (None, 0) and question.state.shape[1] != description.state_size:
        raise TeacherError(
            f"The teacher {name} sees {description.state_size} numbers of state, the question has "
            f"{question.state.shape[1]}."
        )
    for camera in description.cameras or ():
        if camera.name not in question.images:
            there = names_text(question.images) or "(none)"
            raise TeacherError(f"The teacher {name} sees camera {plain_text(camera.name)}, the question has: {there}.")
        size = question.images[camera.name].shape[1:3]
        if size != (camera.height, camera.width):
            raise TeacherError(
                f"The teacher {name} sees camera {plain_text(camera.name)} with {camera.height} x {camera.width} "
                f"pixels, the question has {size[0]} x {size[1]}."
            )
    if description.instruction and not all(question.instructions):
        raise TeacherError(f"The teacher {name} follows an instruction, and a row of the question has none.")


def checked_plan(plan: FloatArray, rows: int, description: PolicyDescription, name: str) -> FloatArray:
    """The plan (N, T, n) with T the horizon, in the teacher's units, if it has the shape that was told and is finite.

    Raises:
        TeacherError: With what was found and expected, or the first number that is not finite.
    """
    sizes = (rows, description.horizon, description.action_size)
    if plan.ndim != 3 or any(size not in (None, found) for size, found in zip(sizes, plan.shape, strict=True)):
        expected = ", ".join("any" if size is None else str(size) for size in sizes)
        raise TeacherError(f"The teacher {name} has planned {plan.shape} numbers, expected ({expected}).")
    if not np.isfinite(plan).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(plan))[0])
        raise TeacherError(f"The teacher {name} has planned {plan[place]} at {place}, expected finite numbers.")
    return plan


class TimedTeacher:
    """A teacher with counters around it.

    Args:
        teacher: Answers.
    """

    def __init__(self, teacher: ActionTeacher) -> None:
        self.teacher = teacher
        self.calls = 0
        """Questions that were asked, those that failed included."""
        self.rows = 0
        """Rows that were answered."""
        self.failures = 0
        """Questions that raised an error."""
        self.seconds = 0.0
        """Time of all questions together, s."""

    @property
    def description(self) -> PolicyDescription:
        """See :attr:`ActionTeacher.description`."""
        return self.teacher.description

    def plan(self, question: TeacherQuestion) -> FloatArray:
        """See :meth:`ActionTeacher.plan`; the answer is of shape (N, T, n), in the teacher's units."""
        self.calls += 1
        begin_s = time.perf_counter()
        try:
            found = self.teacher.plan(question)
        except BaseException:
            self.failures += 1
            raise
        finally:
            self.seconds += time.perf_counter() - begin_s
        self.rows += question.rows
        return found

    def counts(self) -> dict[str, float]:
        """Counters by name, for a log; ``seconds_per_row`` is 0 before the first answer."""
        per_row = self.seconds / self.rows if self.rows else 0.0
        return {
            "calls": self.calls,
            "rows": self.rows,
            "failures": self.failures,
            "seconds": self.seconds,
            "seconds_per_row": per_row,
        }

    def close(self) -> None:
        """See :meth:`ActionTeacher.close`."""
        self.teacher.close()
