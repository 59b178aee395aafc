"""Streams of steps to transitions in buffers: experience in one, corrections in both."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gantry_deploy.session.steps import Observation, SessionStep
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.scalers import ActionScaler


class StepStream:
    """Queue between the link's threads, which bring steps, and the learner's."""

    def __init__(self) -> None:
        # Not a SimpleQueue: before Python 3.13 its get() waits forever once a signal outlasts the timeout.
        self._steps: queue.Queue[tuple[str, SessionStep]] = queue.Queue()

    def take(self, actor: str, steps: Sequence[SessionStep]) -> None:
        """Take steps of an actor, in order; any thread."""
        for step in steps:
            self._steps.put((actor, step))

    def drain(self, wait_s: float, most: int) -> list[tuple[str, SessionStep]]:
        """Steps that have come, with their actors, oldest first.

        Args:
            wait_s: Longest time to wait for the first one.
            most: Largest number to take.
        """
        found: list[tuple[str, SessionStep]] = []
        deadline_s = time.monotonic() + wait_s
        while len(found) < most:
            try:
                left_s = 0.0 if found else max(0.0, deadline_s - time.monotonic())
                found.append(self._steps.get(timeout=left_s) if left_s > 0.0 else self._steps.get_nowait())
            except queue.Empty:
                break
        return found


class BufferFeed:
    """Builds transitions of consecutive steps; a step whose outcome never came is left out.

    A step of the policy goes into ``replay``, a step of a person into ``replay`` and ``taught``, as HIL-SERL has it
    (arXiv 2410.21845). Next observations are explicit, so that a correction of two steps inside an attempt comes out
    right in both.

    Args:
        replay: Buffer of all experience; each of its environments takes one actor.
        taught: Buffer of demonstrations and corrections, with as many.
        scaler: To the learner's actions.
    """

    def __init__(self, replay: ReplayBuffer, taught: ReplayBuffer, scaler: ActionScaler) -> None:
        self._replay, self._taught, self._scaler = replay, taught, scaler
        self._rings: dict[str, int] = {}
        self._held: dict[str, SessionStep] = {}
        self.steps = 0
        """Steps that have come."""
        self.corrections = 0
        """Those of a person."""
        self.left_out = 0
        """Steps whose outcome never came."""

    def take(self, actor: str, step: SessionStep) -> None:
        """Take the next step of an actor."""
        self.steps += 1
        self.corrections += step.is_intervention
        ring, held = self._ring_of(actor), self._held.pop(actor, None)
        if held is not None:
            if (held.episode, held.index + 1) == (step.episode, step.index):
                self._store(ring, held, step.obs, step.base_action)
            else:
                self.left_out += 1
        if not step.is_last:
            self._held[actor] = step
        elif step.last_obs is not None:
            self._store(ring, step, step.last_obs, step.last_base_action)

    def _store(self, ring: int, step: SessionStep, following: Observation, base: object) -> None:
        scaled = self._scaler.scale
        action = scaled(_row(step.action))
        by_person = torch.tensor([step.is_intervention])
        options: dict[str, Any] = {"is_intervention": by_person, "env_ids": torch.tensor([ring])}
        options["penalty"] = torch.tensor([step.penalty])
        if self._replay.with_base:
            now = step.base_action if step.base_action is not None else step.policy_action
            options["base_action"] = scaled(_row(now))
            options["next_base_action"] = scaled(_row(now if base is None else base))
        parts = (
            {key: _row(value) for key, value in step.obs.items()},
            action,
            torch.tensor([step.reward]),
            {key: _row(value) for key, value in following.items()},
            torch.tensor([step.terminated]),
            torch.tensor([step.truncated]),
        )
        self._replay.add(*parts, **options)
        if step.is_intervention:
            self._taught.add(*parts, **options)

    def _ring_of(self, actor: str) -> int:
        """Environment of the buffers that an actor's steps go to; a further actor shares that of an earlier one."""
        if actor not in self._rings:
            self._rings[actor] = len(self._rings) % self._replay.num_envs
            ids = torch.tensor([self._rings[actor]])
            self._replay.end_episodes(ids)
            self._taught.end_episodes(ids)
        return self._rings[actor]


def _row(values: object) -> Tensor:
    """One row (1, ...) of an array of any shape and unit."""
    return torch.as_tensor(values)[None]
