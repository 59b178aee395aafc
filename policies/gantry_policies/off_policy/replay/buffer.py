"""A replay buffer of bounded memory in which no frame is stored twice and no sample crosses an episode's end."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_hardware.files.checked_files import verify, write_checked
from gantry_policies.common.batched_env import IMAGE_PREFIX, Observation
from gantry_policies.off_policy.replay.batches import Batch, Lookahead
from gantry_policies.off_policy.replay.room import require_replay_memory
from gantry_policies.off_policy.replay.windows import PENALTY, TO_GO, look_ahead

_BASE = "base_action"
_UNKNOWN = {PENALTY: 0.0, TO_GO: -math.inf}
"""Rows that buffers of older versions lack, and what stands in them then."""


class ReplayError(GantryError):
    """A replay buffer cannot do what was asked (nothing in it, other shapes, a damaged file)."""


class ReplayBuffer:
    """A ring of frames for each of N environments; a transition is a slot whose next slot holds what followed it.

    The next observation of a transition is explicit: it is written when the transition is, into the slot after it. If
    the episode goes on, the next transition begins with that frame, which is compared and then not stored again. If it
    does not (the episode ended, or :meth:`end_episodes` was called, or other data came), the frame keeps a slot of its
    own that is no transition. Episode ends need no extra flag: a window goes on while the next slot is a
    transition, and what it bootstraps from is always in the slot after its last one.

    Slots are laid out time first, so that the slot after ``i`` is ``(i + N) % (slots * N)``.

    Args:
        capacity: Frames of all environments together; an episode of T steps takes T + 1 of them.
        num_envs: N, environments that are written to side by side.
        obs_shapes: Shape of one observation, by key; keys ``image/...`` are stored as uint8, others as float32.
        action_size: Numbers of an action.
        with_base: Whether the actions of a base policy are stored along.
        device: Where the memory is.

    Raises:
        ReplayError: If the capacity is less than three frames an environment.
        OutOfMemoryError: If it takes more memory than there is.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        obs_shapes: Mapping[str, tuple[int, ...]],
        action_size: int,
        with_base: bool = False,
        device: str = "cpu",
    ) -> None:
        self.num_envs = num_envs
        self.slots = capacity // num_envs
        if self.slots < 3:
            raise ReplayError(f"A capacity of {capacity} frames is too little for {num_envs} environments; 3 each.")
        require_replay_memory(capacity, obs_shapes, action_size, with_base, device)
        self.with_base = with_base
        self.device = device
        total = self.slots * num_envs

        def memory(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            return torch.zeros((total, *shape), dtype=dtype, device=device)

        self._frames = {
            key: memory(tuple(shape), torch.uint8 if key.startswith(IMAGE_PREFIX) else torch.float32)
            for key, shape in obs_shapes.items()
        }
        if with_base:
            self._frames[_BASE] = memory((action_size,), torch.float32)
        self._rows = {
            "action": memory((action_size,), torch.float32),
            "reward": memory((), torch.float32),
            "terminated": memory((), torch.bool),
            "truncated": memory((), torch.bool),
            "is_intervention": memory((), torch.bool),
            "is_demo": memory((), torch.bool),
            "is_transition": memory((), torch.bool),
            **{name: memory((), torch.float32) for name in _UNKNOWN},
        }
        # Slot of each environment's newest frame while its episode is open; otherwise the slot to be written next.
        self._cursor = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self._open = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self._touched = 0
        """Slots of an environment that were ever written to, in whichever environment has most."""

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return int(self._rows["is_transition"].sum())

    @property
    def nbytes(self) -> int:
        """Memory that the buffer takes when it is full, in bytes; it never takes more."""
        return sum(memory.nbytes for memory in (*self._frames.values(), *self._rows.values()))

    def add(
        self,
        obs: Observation,
        action: Tensor,
        reward: Tensor,
        next_obs: Observation,
        terminated: Tensor,
        truncated: Tensor,
        *,
        base_action: Tensor | None = None,
        next_base_action: Tensor | None = None,
        is_intervention: Tensor | None = None,
        is_demo: bool = False,
        penalty: Tensor | None = None,
        env_ids: Tensor | None = None,
    ) -> None:
        """Store one transition of each environment.

        Args:
            obs: ``(N, ...)`` by key: observation before the step.
            action: ``(N, n)``: what was executed, after every clamp.
            reward: ``(N,)``.
            next_obs: ``(N, ...)`` by key: what followed; of ended episodes their last observation.
            terminated: ``(N,)`` bool.
            truncated: ``(N,)`` bool.
            base_action: ``(N, n)``: what the base wanted at ``obs``, if the buffer stores it.
            next_base_action: ``(N, n)``: what it wanted at ``next_obs``; of no effect where terminated.
            is_intervention: ``(N,)`` bool: a person acted; None where no person did.
            is_demo: Whether this is demonstrated data.
            penalty: ``(N,)``, at most 0: of executed gripper commands, which is no part of the reward; None for none.
            env_ids: ``(N,)`` int64: the environments that the rows belong to; None for all of them.

        Raises:
            ReplayError: If base actions are missing, or given to a buffer that does not store them.
        """
        frame = self._frame(obs, base_action)
        following = self._frame(next_obs, next_base_action)
        ids = torch.arange(self.num_envs, device=self.device) if env_ids is None else env_ids.to(self.device)
        cursor = self._cursor[ids]
        goes_on = self._open[ids]
        at = cursor * self.num_envs + ids
        same = goes_on.clone()
        for key, memory in self._frames.items():
            same &= (memory[at] == frame[key]).flatten(1).all(1)
        # A frame that this observation does not continue stays where it is, as the end of its own episode.
        cursor = (cursor + (goes_on & ~same)) % self.slots
        at = cursor * self.num_envs + ids
        after = (at + self.num_envs) % (self.slots * self.num_envs)
        new = ~same
        for key, memory in self._frames.items():
            memory[at[new]] = frame[key][new]
            memory[after] = following[key]
        self._write_rows(at, action, reward, terminated, truncated, is_intervention, is_demo, penalty, None)
        self._rows["is_transition"][after] = False
        ended = terminated.to(self.device) | truncated.to(self.device)
        self._cursor[ids] = (cursor + 1 + ended) % self.slots
        self._open[ids] = ~ended
        self._touched = max(self._touched, 1 + int(torch.maximum(at, after).max()) // self.num_envs)

    def add_episode(
        self,
        obs: Observation,
        action: Tensor,
        reward: Tensor,
        terminated: bool,
        *,
        base_action: Tensor | None = None,
        is_demo: bool = True,
        penalty: Tensor | None = None,
        to_go: Tensor | None = None,
        env_id: int = 0,
    ) -> None:
        """Store a whole episode of T steps at once.

        Args:
            obs: ``(T + 1, ...)`` by key, the last observation included.
            action: ``(T, n)``: what was executed.
            reward: ``(T,)``.
            terminated: Whether it ended for good; out of time otherwise.
            base_action: ``(T + 1, n)``: what the base wanted at each observation, if the buffer stores it.
            is_demo: Whether this is demonstrated data.
            penalty: ``(T,)``, see :meth:`add`.
            to_go: ``(T,)``: rewards to the episode's end, discounted, for learning from chunks; None for not known.
            env_id: Environment whose ring takes it.

        Raises:
            ReplayError: If it is longer than the ring, or base actions are missing or too many.
        """
        steps = action.shape[0]
        if not 1 <= steps < self.slots:
            raise ReplayError(f"An episode of {steps} steps does not fit a ring of {self.slots} frames an environment.")
        frames = self._frame(obs, base_action)
        self.end_episodes(torch.tensor([env_id], device=self.device))
        first = int(self._cursor[env_id])
        slots = (first + torch.arange(steps + 1, device=self.device)) % self.slots
        at = slots * self.num_envs + env_id
        for key, memory in self._frames.items():
            memory[at] = frames[key]
        last = torch.arange(steps, device=self.device) == steps - 1
        ends = last & terminated, last & (not terminated)
        self._write_rows(at[:-1], action, reward, *ends, None, is_demo, penalty, to_go)
        self._rows["is_transition"][at[-1]] = False
        self._cursor[env_id] = (first + steps + 1) % self.slots
        self._touched = max(self._touched, int(slots.max()) + 1)

    def end_episodes(self, env_ids: Tensor | None = None) -> None:
        """Mark that the next transition does not follow the last one: environments were reset from outside.

        The transitions stored so far keep their next observations and are bootstrapped from them.

        Args:
            env_ids: ``(m,)`` int64: environments; None for all of them.
        """
        ids = torch.arange(self.num_envs, device=self.device) if env_ids is None else env_ids
        self._cursor[ids] = (self._cursor[ids] + self._open[ids]) % self.slots
        self._open[ids] = False

    def sample(self, count: int, ahead: Lookahead, generator: torch.Generator) -> Batch:
        """Draw transitions uniformly, with replacement.

        Raises:
            ReplayError: If there is none.
        """
        return self.gather(self._draw(count, generator), ahead)

    def gather(self, first: Tensor, ahead: Lookahead) -> Batch:
        """The transitions that begin at given slots.

        Args:
            first: ``(B,)`` int64: slots that are transitions.
            ahead: How far to look.
        """
        window = look_ahead(self._rows, first, self.num_envs, ahead)
        obs = {key: memory.index_select(0, first) for key, memory in self._frames.items()}
        next_obs = {key: memory.index_select(0, window.after) for key, memory in self._frames.items()}
        return Batch(
            obs=obs,
            action=window.action,
            returns=window.returns,
            discount=window.discount,
            next_obs=next_obs,
            is_demo=self._rows["is_demo"].index_select(0, first),
            is_intervention=self._rows["is_intervention"].index_select(0, first),
            penalties=window.penalties,
            base_action=obs.pop(_BASE, None),
            next_base_action=next_obs.pop(_BASE, None),
            is_real=window.is_real,
            to_go=window.to_go,
        )

    def transitions(self) -> Tensor:
        """``(m,)`` int64: every slot that is a transition; oldest first only while the ring has not come round."""
        return self._rows["is_transition"].nonzero().squeeze(1)

    def stored(self, key: str) -> Tensor:
        """``(m, ...)``: what was observed at the beginning of every transition."""
        return self._frames[key][self.transitions()]

    def save(self, path: Path) -> str:
        """Write everything into a file with its SHA-256, whole or not at all; arrays only, nothing that could run.

        Returns:
            The SHA-256, 64 hexadecimal digits.

        Raises:
            ReplayError: If it cannot be written.
        """
        used = self._touched * self.num_envs
        arrays = {f"frame:{key}": memory[:used] for key, memory in self._frames.items()}
        arrays |= {f"row:{key}": memory[:used] for key, memory in self._rows.items()}
        arrays |= {f"shape:{key}": torch.tensor(memory.shape[1:]) for key, memory in self._frames.items()}
        arrays |= {"shape:action": torch.tensor(self._rows["action"].shape[1:])}
        arrays |= {"cursor": self._cursor, "open": self._open, "slots": torch.tensor([self.slots, self.num_envs])}
        found: dict[str, Any] = {key: value.cpu().numpy() for key, value in arrays.items()}
        try:
            return write_checked(path, lambda file: np.savez(file, **found))
        except OSError as error:
            raise ReplayError(f"Cannot write the replay buffer {path}: {error.strerror or error}.") from error

    @classmethod
    def loaded(cls, path: Path, device: str = "cpu") -> ReplayBuffer:
        """A buffer as it was saved.

        Raises:
            ReplayError: If the file is missing or damaged.
        """
        with _reading(path), np.load(path, allow_pickle=False) as file:
            slots, num_envs = (int(number) for number in file["slots"])
            shapes = {key[6:]: tuple(int(n) for n in file[key]) for key in file.files if key.startswith("shape:")}
        (action_size,) = shapes.pop("action")
        with_base = shapes.pop(_BASE, None) is not None
        buffer = cls(slots * num_envs, num_envs, shapes, action_size, with_base, device)
        buffer.load(path)
        return buffer

    def load(self, path: Path) -> None:
        """Become what was saved.

        Raises:
            ReplayError: If the file is missing or damaged, or of a buffer of another size.
        """
        with _reading(path), np.load(path, allow_pickle=False) as file:
            size = [int(number) for number in file["slots"]]
            names = {f"frame:{key}" for key in self._frames} | {
                f"row:{key}" for key in self._rows if key not in _UNKNOWN
            }
            if size != [self.slots, self.num_envs] or not names <= set(file.files):
                here = f"{self.slots} frames of {self.num_envs} environments with {sorted(names)}"
                raise ReplayError(f"{path} has {size[0]} frames of {size[1]} with {sorted(file.files)}; here: {here}.")
            for kind, memories in (("frame", self._frames), ("row", self._rows)):
                for key, memory in memories.items():
                    memory.fill_(_UNKNOWN.get(key, 0))
                    if f"{kind}:{key}" not in file.files:
                        continue
                    values = torch.from_numpy(file[f"{kind}:{key}"])
                    memory[: values.shape[0]] = values.to(self.device)
                    self._touched = values.shape[0] // self.num_envs
            self._cursor.copy_(torch.from_numpy(file["cursor"]))
            self._open.copy_(torch.from_numpy(file["open"]))

    def _frame(self, obs: Observation, base_action: Tensor | None) -> Observation:
        if self.with_base != (base_action is not None):
            have = "none were given" if self.with_base else "this one does not store any"
            raise ReplayError(f"A buffer with base actions needs those of both observations: {have}.")
        values = obs if base_action is None else {**obs, _BASE: base_action}
        return {key: values[key].to(self.device, memory.dtype) for key, memory in self._frames.items()}

    def _write_rows(
        self,
        at: Tensor,
        action: Tensor,
        reward: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        is_intervention: Tensor | None,
        is_demo: bool,
        penalty: Tensor | None,
        to_go: Tensor | None,
    ) -> None:
        rows = self._rows
        rows["action"][at] = action.to(self.device, torch.float32)
        rows["reward"][at] = reward.to(self.device, torch.float32)
        rows["terminated"][at] = terminated.to(self.device)
        rows["truncated"][at] = truncated.to(self.device)
        rows["is_intervention"][at] = False if is_intervention is None else is_intervention.to(self.device)
        rows["is_demo"][at] = is_demo
        for name, values in ((PENALTY, penalty), (TO_GO, to_go)):
            rows[name][at] = _UNKNOWN[name] if values is None else values.to(self.device, torch.float32)
        rows["is_transition"][at] = True

    def _draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Uniform over transitions: slots are drawn, and drawn again where there is none."""
        used, is_transition = self._touched * self.num_envs, self._rows["is_transition"]
        if not used:
            raise ReplayError("The replay buffer is empty; collect some steps before learning.")
        index = torch.randint(used, (count,), generator=generator, device=self.device)
        missed = (~is_transition[index]).nonzero().squeeze(1)
        while missed.numel():
            index[missed] = torch.randint(used, (missed.numel(),), generator=generator, device=self.device)
            missed = missed[~is_transition[index[missed]]]
        return index


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        verify(path)
        yield
    except (ReplayError, MemoryError):
        raise
    except Exception as error:  # numpy and zipfile raise many kinds for damaged files
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ReplayError(f"Cannot read the replay buffer {path}: {reason}") from error
