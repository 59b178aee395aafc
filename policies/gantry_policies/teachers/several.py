"""Several teachers of one student: each of them answers for its share of the environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.openpi.description import CameraNeed, PolicyDescription, mismatches
from gantry_policies.teachers.teacher import ActionTeacher, TeacherError, TeacherQuestion

FloatArray = NDArray[np.float32]


class SeveralTeachers:
    """Teachers that take turns over the rows of a question: row i is answered by teacher i modulo their number.

    A student of several specialists hears each of them in environments of its own, on the states that it gets into.

    Args:
        teachers: Two or more, with the same state and actions; cameras may differ.

    Raises:
        TeacherError: If there are fewer than two, or they do not fit each other, with the first reason.
    """

    def __init__(self, teachers: Sequence[ActionTeacher]) -> None:
        if len(teachers) < 2:
            raise TeacherError(f"There is {len(teachers)} teacher, expected two or more.")
        self.teachers = tuple(teachers)
        first, cameras = self.teachers[0].description, dict[str, CameraNeed]()
        for number, teacher in enumerate(self.teachers):
            told = teacher.description
            if reasons := mismatches(replace(told, cameras=()), replace(first, cameras=())):
                raise TeacherError(f"Teacher {number + 1} does not fit the first one. {reasons[0]}")
            for camera in told.cameras or ():
                if (other := cameras.setdefault(camera.name, camera)) != camera:
                    raise TeacherError(
                        f"Teacher {number + 1} sees camera '{camera.name}' with {camera.height} x {camera.width} "
                        f"pixels, another one with {other.height} x {other.width}."
                    )
        told_all = [teacher.description for teacher in self.teachers]
        self._description = replace(
            first,
            cameras=None if any(told.cameras is None for told in told_all) else tuple(cameras.values()),
            instruction=any(told.instruction for told in told_all),
            horizon=min((told.horizon for told in told_all if told.horizon), default=None),
            max_rows=None,
        )

    @property
    def description(self) -> PolicyDescription:
        """Cameras of all of them, and the shortest horizon; the rest is the first one's."""
        return self._description

    def plan(self, question: TeacherQuestion) -> FloatArray:
        """Plans (N, T, n), T the shortest horizon, in the teachers' units.

        Raises:
            GantryError: If a teacher refuses its rows, or does not answer.
        """
        parts: list[tuple[FloatArray, slice]] = []
        for number, teacher in enumerate(self.teachers):
            rows = slice(number, None, len(self.teachers))
            if not len(question.state[rows]):
                continue
            images = {name: pictures[rows] for name, pictures in question.images.items()}
            own = TeacherQuestion(images, question.state[rows], list(question.instructions)[rows])
            parts.append((teacher.plan(own), rows))
        steps = min(plan.shape[1] for plan, _ in parts)
        result = np.zeros((question.rows, steps, parts[0][0].shape[2]), np.float32)
        for plan, rows in parts:
            result[rows] = plan[:, :steps]
        return result

    def close(self) -> None:
        """Release all of them."""
        for teacher in self.teachers:
            teacher.close()
