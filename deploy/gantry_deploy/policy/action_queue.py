"""The queue between a policy that plans chunks of actions and a loop that wants one action per step.

The network is asked once every few steps and has no state; what was planned and not yet done lives here. The queue of
the learning side, :class:`gantry_policies.off_policy.bases.ChunkedBase`, does the same for many environments at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.errors import PolicyError

FloatArray = NDArray[np.float32]


@dataclass
class _Planned:
    """A chunk and how much of it has gone by."""

    actions: FloatArray
    """(T, n)."""
    age: int = 0
    """Steps since it was planned: the place of the next action in it."""


class ActionQueue:
    """Hands out the first ``execute`` actions of a chunk, then wants the next chunk.

    With ``ensemble_decay`` an action is the mean of what all chunks so far say about this very step, the i-th oldest
    of them weighted by exp(-decay i) (temporal ensembling, arXiv 2304.13705, section IV-A). There chunks overlap as
    far as they are longer than ``execute``; the paper asks for a new one in every step.

    Args:
        execute: Actions of a chunk that are done before the next chunk is asked for, at least 1.
        ensemble_decay: Not negative; 0 weighs all chunks alike. None follows the newest chunk alone.

    Raises:
        PolicyError: If a number is out of range.
    """

    def __init__(self, execute: int, ensemble_decay: float | None = None) -> None:
        if execute < 1:
            raise PolicyError(f"A queue executes {execute} actions of a chunk, expected at least 1.")
        if ensemble_decay is not None and not ensemble_decay >= 0.0:
            raise PolicyError(f"The decay of a queue's ensemble is {ensemble_decay}, expected a number >= 0 or None.")
        self.execute = execute
        self.ensemble_decay = ensemble_decay
        self._chunks: list[_Planned] = []
        """Oldest first; those that still say something about the next step."""

    @property
    def wants_chunk(self) -> bool:
        """Whether a chunk must be pushed before the next action can be taken."""
        return not self._chunks or self._chunks[-1].age >= self.execute

    def push(self, chunk: FloatArray) -> None:
        """Take a chunk that begins with the next action.

        Args:
            chunk: (T, n) with T >= ``execute``, in the unit of the actions; is copied. What is left of the one before
                is dropped, except from an ensemble.

        Raises:
            PolicyError: If it has another shape than that, or other actions than the one before.
        """
        chunk = np.array(chunk, dtype=np.float32)
        size = self._chunks[-1].actions.shape[1] if self._chunks else None
        if chunk.ndim != 2 or len(chunk) < self.execute or (size is not None and chunk.shape[1] != size):
            expected = f"({self.execute} or more, {size or 'numbers of an action'})"
            raise PolicyError(f"A chunk of actions has shape {chunk.shape}, expected {expected}.")
        ensemble = self.ensemble_decay is not None
        self._chunks = [item for item in self._chunks if ensemble and item.age < len(item.actions)]
        self._chunks.append(_Planned(chunk))

    def peek(self) -> FloatArray:
        """The next action (n,), in the chunk's units, which stays in the queue.

        Raises:
            PolicyError: If a chunk is wanted first.
        """
        if self.wants_chunk:
            raise PolicyError("The queue has no action left; push a chunk before the next one is taken.")
        said = np.stack([chunk.actions[chunk.age] for chunk in self._chunks])
        if len(said) == 1:
            return said[0]
        assert self.ensemble_decay is not None
        weights = np.exp(-self.ensemble_decay * np.arange(len(said)))
        return (weights @ said.astype(np.float64) / weights.sum()).astype(np.float32)

    def pop(self) -> FloatArray:
        """Take the next action (n,), in the chunk's units.

        Raises:
            PolicyError: If a chunk is wanted first.
        """
        action = self.peek()
        for chunk in self._chunks:
            chunk.age += 1
        # The newest one stays even at its end, for its age says that the next is wanted.
        self._chunks = [chunk for chunk in self._chunks[:-1] if chunk.age < len(chunk.actions)] + self._chunks[-1:]
        return action

    def reset(self) -> None:
        """Forget everything that was planned: an episode begins, or something else was in control meanwhile."""
        self._chunks.clear()
