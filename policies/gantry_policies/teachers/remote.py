"""Teacher behind a policy server that speaks openpi's protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.openpi.client import PolicyClient
from gantry_deploy.openpi.description import PolicyDescription
from gantry_policies.teachers.teacher import TeacherError, TeacherQuestion, check_question, checked_plan

FloatArray = NDArray[np.float32]

CALL_BYTES = 32 * 2**20
"""Bytes of pictures and states in one call, as far as a call may hold several rows."""
ROWS = "gantry/rows"
"""Key of the number of rows in a call, for servers that take several."""


@dataclass(frozen=True)
class ObservationKeys:
    """Keys of an observation as a server wants them; the defaults are those of ``gantry serve``."""

    state: str = "observation/state"
    """Key of the state; empty for a server that sees none."""
    prompt: str = "prompt"
    """Key of the instruction; empty for a server that takes none."""
    cameras: Mapping[str, str] = field(default_factory=dict)
    """Camera to its key, for example ``wrist`` to ``observation/wrist_image``; the others are
    ``observation/images/<camera>``."""
    channels_first: bool = False
    """Whether pictures are (3, H, W)."""

    def camera(self, name: str) -> str:
        """Key of a camera."""
        return self.cameras.get(name, f"observation/images/{name}")


class RemoteTeacher:
    """Teacher that a server answers for: one call for each row, or for several where the server's metadata tell that.

    Pictures of all cameras are sent that the server's description names, or that have a key in ``keys``; those of a
    question that has neither are all sent.

    Args:
        client: Connected to the server; closed with the teacher.
        keys: Keys of observations.

    Raises:
        TeacherError: If a camera has a key that the server does not see.
    """

    def __init__(self, client: PolicyClient, keys: ObservationKeys | None = None) -> None:
        self._client, self._keys = client, keys or ObservationKeys()
        self._name = f"openpi:{client.address}"
        told = client.description.cameras
        if told is not None and (unknown := sorted(set(self._keys.cameras) - {camera.name for camera in told})):
            seen = ", ".join(camera.name for camera in told) or "(none)"
            raise TeacherError(f"The teacher {self._name} sees no camera '{unknown[0]}'; it sees: {seen}.")

    @property
    def description(self) -> PolicyDescription:
        """Description in the server's metadata; what it does not tell is None."""
        return self._client.description

    def plan(self, question: TeacherQuestion) -> FloatArray:
        """Plans of shape (N, T, n) with T the horizon, in the units of the server's actions.

        Raises:
            PolicyServerError: See :meth:`gantry_deploy.openpi.client.PolicyClient.infer`.
            TeacherError: If the question does not fit the server's description.
        """
        check_question(question, self.description, self._name)
        plans: list[FloatArray] = [np.zeros((0, 0), np.float32)] * question.rows
        for rows in self._calls(question):
            single = self.description.max_rows is None
            answer = self._client.infer(self._message(question, rows, single), None if single else len(rows))
            for row, plan in zip(rows, answer["actions"][None] if single else answer["actions"], strict=True):
                plans[row] = plan
        return checked_plan(np.stack(plans), question.rows, self.description, self._name)

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def _calls(self, question: TeacherQuestion) -> Iterator[list[int]]:
        """Rows of each call; those of one call have the same instruction."""
        if (most := self.description.max_rows) is None:
            yield from ([row] for row in range(question.rows))
            return
        row_bytes = question.state[:1].nbytes + sum(
            question.images[name][:1].nbytes for name in self._cameras(question)
        )
        most = max(1, min(most, CALL_BYTES // max(row_bytes, 1)))
        for text in dict.fromkeys(question.instructions):
            rows = [row for row, other in enumerate(question.instructions) if other == text]
            yield from (rows[i : i + most] for i in range(0, len(rows), most))

    def _message(self, question: TeacherQuestion, rows: list[int], single: bool) -> dict[str, Any]:
        keys = self._keys
        pick: Any = rows[0] if single else rows
        message: dict[str, Any] = {} if single else {ROWS: len(rows)}
        if keys.state and self.description.state_size != 0:
            message[keys.state] = question.state[pick]
        for name in self._cameras(question):
            pictures = question.images[name][pick]
            message[keys.camera(name)] = np.moveaxis(pictures, -1, -3) if keys.channels_first else pictures
        if keys.prompt and (text := question.instructions[rows[0]]):
            message[keys.prompt] = text
        return message

    def _cameras(self, question: TeacherQuestion) -> list[str]:
        if (told := self.description.cameras) is not None:
            return [camera.name for camera in told]
        names = list(self._keys.cameras or question.images)
        for name in names:
            if name not in question.images:
                there = ", ".join(question.images) or "(none)"
                raise TeacherError(f"The teacher {self._name} is sent camera '{name}', the question has: {there}.")
        return names
