"""Random draws of an episode: they depend on seed, environment and episode, and on nothing else.

So the same seed gives the same episodes whatever the policy does, however long its episodes are, and however many
random numbers a learner draws meanwhile; two policies can be compared episode by episode.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

DRAWS = 32
"""Numbers that an episode may use."""


class Draws:
    """Uniform numbers for k episodes, handed out in the order in which they are asked for.

    Args:
        seed: Of the whole sequence.
        env_ids: Environments, k of them.
        episodes: How many episodes each of them had before.
        device: Where the tensors live.
    """

    def __init__(self, seed: int, env_ids: list[int], episodes: list[int], device: str) -> None:
        rows = [
            np.random.default_rng((seed, env, episode)).random(DRAWS)
            for env, episode in zip(env_ids, episodes, strict=True)
        ]
        self._numbers = torch.as_tensor(np.stack(rows), dtype=torch.float32, device=device)
        self._used = 0
        self._keys = [(seed, env, episode) for env, episode in zip(env_ids, episodes, strict=True)]

    def __len__(self) -> int:
        return len(self._numbers)

    def generators(self) -> list[np.random.Generator]:
        """A generator for each of the k episodes, where it is not known how many numbers are needed."""
        return [np.random.default_rng((*key, DRAWS)) for key in self._keys]

    def uniform(self, low: float, high: float) -> Tensor:
        """(k,) numbers in [low, high)."""
        number = self._numbers[:, self._used]
        self._used += 1
        return low + (high - low) * number

    def within(self, half_width: float) -> Tensor:
        """(k,) numbers in [-half_width, half_width)."""
        return self.uniform(-half_width, half_width)

    def each(self, stream: int, columns: int, low: float, high: float) -> Tensor:
        """(k, columns) numbers in [low, high), which take none of those of :meth:`uniform` or of another stream."""
        rows = [np.random.default_rng((*key, DRAWS, stream)).random(columns) for key in self._keys]
        return low + (high - low) * torch.as_tensor(
            np.stack(rows), dtype=self._numbers.dtype, device=self._numbers.device
        )

    def index(self, count: int) -> Tensor:
        """(k,) whole numbers from 0 to count - 1."""
        return (self.uniform(0.0, 1.0) * count).long().clamp(max=count - 1)


def turn_about(axis: int, angle_rad: Tensor) -> Tensor:
    """(k, 4) unit quaternions, w first, of turns (k,) about an axis: 0, 1, 2 for x, y, z."""
    quat = torch.zeros(len(angle_rad), 4, device=angle_rad.device)
    quat[:, 0], quat[:, 1 + axis] = torch.cos(0.5 * angle_rad), torch.sin(0.5 * angle_rad)
    return quat
