"""Many environments that step together fill one dataset: one open episode each, stored whole when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.dataset.features import SUCCESS
from gantry_deploy.dataset.writer import DatasetWriter
from gantry_deploy.errors import DatasetError
from gantry_hardware.errors import UnknownNameError


class StepRecorder:
    """Turns steps of ``num_envs`` environments into episodes of a dataset.

    Args:
        writer: Of the dataset; finalizing it stays with the caller.
        num_envs: Environments.
        task: What is to be done, in words; one text for all or one per environment.
        only_successes: Leave out episodes in which ``next.success`` was never true.
        max_episodes: Stop storing when the dataset has this many episodes; None goes on for ever.
    """

    def __init__(
        self,
        writer: DatasetWriter,
        num_envs: int,
        task: str | list[str],
        *,
        only_successes: bool = False,
        max_episodes: int | None = None,
    ) -> None:
        self.writer = writer
        self.num_envs = num_envs
        self.left_out = 0
        """Episodes that ended and were not stored."""
        self._tasks: list[str] = []
        self.set_tasks([task] * num_envs if isinstance(task, str) else task)
        if only_successes and SUCCESS not in writer.features:
            raise UnknownNameError("feature to tell successes by", SUCCESS, writer.features)
        self._only_successes = only_successes
        self._max_episodes = max_episodes
        self._open = [writer.new_episode() for _ in range(num_envs)]
        self._succeeded = np.zeros(num_envs, dtype=bool)
        self._ended = np.zeros(num_envs, dtype=bool)

    def set_tasks(self, tasks: list[str]) -> None:
        """Set what is to be done in the running episode of each environment, in words.

        Raises:
            DatasetError: If there is not one text for each.
        """
        if len(tasks) != self.num_envs:
            raise DatasetError(f"There are {len(tasks)} tasks for {self.num_envs} environments, expected one each.")
        self._tasks = list(tasks)

    @property
    def done(self) -> bool:
        """Whether the dataset has as many episodes as were asked for."""
        return self._max_episodes is not None and self.writer.num_episodes >= self._max_episodes

    def record_steps(
        self,
        frames: Mapping[str, Any],
        ended: NDArray[np.bool_],
        recorded: NDArray[np.bool_] | None = None,
    ) -> list[int]:
        """Add one step of every environment, and store the episodes that ended with it.

        Args:
            frames: By feature, an array of shape (num_envs, \\*shape), or (num_envs,) for single values: the
                observation before the step, the action, and what the step earned. Torch tensors on the CPU will do.
            ended: Shape (num_envs,), whether the episode ended with this step.
            recorded: Shape (num_envs,), environments whose step counts; all if not given.

        Returns:
            Numbers of the episodes that were stored.

        Raises:
            UnknownNameError: If a key is no feature.
            DatasetError: If an array does not fit, or the disk is full; the episodes that ended are then still there,
                and :meth:`store_ended` may be tried again.
        """
        arrays = {name: self._checked(name, values) for name, values in frames.items()}
        over = self._flags("ended", ended)
        counts = np.ones(self.num_envs, dtype=bool) if recorded is None else self._flags("recorded", recorded)
        if self.done:
            return []
        for env in np.flatnonzero(counts):
            self._open[env].add_frame({name: values[env] for name, values in arrays.items()})
        if SUCCESS in arrays:
            self._succeeded |= arrays[SUCCESS].reshape(self.num_envs).astype(bool) & counts
        self._ended = over & counts
        return self.store_ended()

    def store_ended(self) -> list[int]:
        """Store the episodes that ended with the last step; returns their numbers."""
        wanted, dropped = [], []
        for env in np.flatnonzero(self._ended):
            (wanted if self._succeeded[env] or not self._only_successes else dropped).append(env)
        if self._max_episodes is not None:
            room = max(0, self._max_episodes - self.writer.num_episodes)
            wanted, dropped = wanted[:room], [*dropped, *wanted[room:]]
        numbers = self.writer.save([(self._open[env], self._tasks[env]) for env in wanted])
        for env in dropped:
            self._open[env].clear()
        self.left_out += len(dropped)
        self._succeeded[self._ended] = False
        self._ended = np.zeros(self.num_envs, dtype=bool)
        return numbers

    def discard(self, envs: NDArray[np.bool_] | None = None) -> None:
        """Forget the open episodes of some environments, (num_envs,) bool, or of all: they were reset from outside."""
        chosen = np.ones(self.num_envs, dtype=bool) if envs is None else self._flags("envs", envs)
        for env in np.flatnonzero(chosen):
            self._open[env].clear()
        self._succeeded[chosen] = False

    def _checked(self, name: str, values: Any) -> NDArray[Any]:
        array = np.asarray(values)
        if not array.ndim or len(array) != self.num_envs:
            raise DatasetError(f"'{name}' has shape {array.shape}, expected {self.num_envs} environments first.")
        return array

    def _flags(self, name: str, values: Any) -> NDArray[np.bool_]:
        array = np.asarray(values)
        if array.shape != (self.num_envs,) or array.dtype != bool:
            raise DatasetError(
                f"'{name}' is {array.dtype} of shape {array.shape}, expected bool of shape ({self.num_envs},)."
            )
        return array
