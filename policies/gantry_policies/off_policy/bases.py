"""Frozen policies to build upon: black boxes that plan chunks of actions, with a queue that can be looked into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import IMAGE_PREFIX, Observation


class BasePolicy(Protocol):
    """Policy that acts for N environments at once, in the environment's own action range [-1, 1]."""

    num_envs: int
    """N."""

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Forget what was planned: episodes begin.

        To be called whenever an episode ended, in whatever way, *before* the next :meth:`act`.

        Args:
            env_ids: ``(m,)`` int64; None for all.
        """
        ...

    def act(self, obs: Observation) -> Tensor:
        """``(N, n)``: the next actions, which are thereby used up."""
        ...

    def peek(self, obs: Observation, env_ids: Tensor | None = None) -> Tensor:
        """``(m, n)``: what :meth:`act` would answer, without using anything up.

        Args:
            obs: ``(m, ...)`` by key.
            env_ids: ``(m,)`` int64: whose queues to look into; None for all.
        """
        ...


def fingerprint(base: BasePolicy, obs_shapes: Mapping[str, tuple[int, ...]]) -> Tensor:
    """``(1, n)``: what a base plans for an observation of zeros, by which another one is told from it.

    What was labelled by one base means nothing on top of another, so buffers are held against this.

    Args:
        base: The base; its plans are forgotten.
        obs_shapes: Shape of one observation, by key.
    """
    obs = {
        key: torch.zeros((1, *shape), dtype=torch.uint8 if key.startswith(IMAGE_PREFIX) else torch.float32)
        for key, shape in obs_shapes.items()
    }
    base.reset()
    return base.peek(obs, torch.zeros(1, dtype=torch.int64)).cpu()


def is_same_base(one: Tensor | None, other: Tensor | None) -> bool:
    """Whether two fingerprints, None of no base, are alike but for rounding."""
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and torch.allclose(one, other, atol=1e-4)


class ChunkedBase:
    """Executes the first steps of each planned chunk without looking, then plans again; each environment on its own.

    Args:
        chunk: The policy: observations ``(m, ...)`` of any number m to chunks ``(m, T, n)`` in [-1, 1].
        num_envs: N.
        execute: Steps of a chunk that are executed, at most T; all of them if None.
        device: Of the actions.
    """

    def __init__(
        self, chunk: Callable[[Observation], Tensor], num_envs: int, execute: int | None = None, device: str = "cpu"
    ) -> None:
        if execute is not None and execute < 1:
            raise GantryError(f"execute is {execute}, expected at least 1 step of a chunk.")
        self.num_envs = num_envs
        self.execute = execute
        self._chunk = chunk
        self._device = device
        self._queue: Tensor | None = None
        """``(N, execute, n)``, made with the first chunk."""
        self._next = torch.zeros(num_envs, dtype=torch.int64, device=device)
        """Place in the queue of the next action; at its end or beyond, the queue is empty."""
        self.reset()

    def reset(self, env_ids: Tensor | None = None) -> None:
        """See :meth:`BasePolicy.reset`."""
        if env_ids is None:
            self._next.fill_(torch.iinfo(torch.int64).max)
        else:
            self._next[env_ids] = torch.iinfo(torch.int64).max

    def act(self, obs: Observation) -> Tensor:
        """See :meth:`BasePolicy.act`."""
        empty = self._empty().nonzero().squeeze(1)
        if empty.numel():
            planned = self._plan(obs if empty.numel() == self.num_envs else _rows(obs, empty))
            if self._queue is None:
                self._queue = torch.zeros(self.num_envs, *planned.shape[1:], device=self._device)
            self._queue[empty] = planned
            self._next[empty] = 0
        assert self._queue is not None
        action = self._queue[torch.arange(self.num_envs, device=self._device), self._next]
        self._next += 1
        return action

    def peek(self, obs: Observation, env_ids: Tensor | None = None) -> Tensor:
        """See :meth:`BasePolicy.peek`; for an empty queue a chunk is planned, and thrown away."""
        ids = torch.arange(self.num_envs, device=self._device) if env_ids is None else env_ids
        empty = self._empty()[ids]
        rows = empty.nonzero().squeeze(1)
        planned = self._plan(_rows(obs, rows))[:, 0] if rows.numel() else None
        if self._queue is None:
            assert planned is not None
            return planned
        action = self._queue[ids, self._next[ids].clamp(max=self._queue.shape[1] - 1)]
        if planned is not None:
            action[rows] = planned
        return action

    def training_state(self) -> dict[str, Any]:
        """The queues, for an exact continuation."""
        return {"queue": None if self._queue is None else self._queue.clone(), "next": self._next.clone()}

    def restore_training_state(self, state: dict[str, Any]) -> None:
        """Put them back."""
        self._queue = None if state["queue"] is None else state["queue"].to(self._device)
        self._next = state["next"].to(self._device)

    def _empty(self) -> Tensor:
        length = 0 if self._queue is None else self._queue.shape[1]
        return self._next >= length

    def _plan(self, obs: Observation) -> Tensor:
        """``(m, execute, n)``: chunks cut to what is executed."""
        with torch.no_grad():
            chunk = self._chunk(obs).to(self._device, torch.float32)
        rows = next(iter(obs.values())).shape[0]
        if chunk.ndim != 3 or chunk.shape[0] != rows or chunk.shape[1] < (self.execute or 1):
            want = f"({rows}, {f'{self.execute} or more' if self.execute else 'T'}, n)"
            raise GantryError(f"The base planned chunks of shape {tuple(chunk.shape)}, expected {want}.")
        return chunk[:, : self.execute]


def _rows(obs: Observation, rows: Tensor) -> Observation:
    return {key: value[rows] for key, value in obs.items()}
