"""Demonstrations as chunks: every frame with the actions that follow it, none of them from another episode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gantry_deploy.dataset.features import ACTION, IMAGES
from gantry_deploy.dataset.features import STATE as STATE_FEATURE
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.dataset.storage.checksums import require_checksums
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.common.batched_env import IMAGE_PREFIX, STATE, Observation


@dataclass(frozen=True)
class Chunks:
    """Some frames and what was done from each on."""

    obs: Observation
    """``(B, ...)`` by key."""
    action: Tensor
    """``(B, T, n)``: the actions from the frame on; after the episode's end its last one is repeated."""
    real: Tensor
    """``(B, T)`` bool: whether the step is one of the episode."""
    labels: Tensor | None = None
    """``(B, p)``: what demonstrations tell of the surroundings and the policy does not see; None without any."""


class ChunkData:
    """Whole episodes in memory, one after the other; every frame of them begins a chunk.

    Args:
        obs: ``(M, ...)`` by key, M frames of all episodes: ``state`` float32 and ``image/<camera>`` uint8 (C, H, W).
        action: ``(M, n)``.
        lengths: Frames of each episode.
        labels: ``(M, p)``: what demonstrations tell of the surroundings and the policy does not see; None without any.

    Raises:
        GantryError: If the sizes contradict each other, there is no frame, or a number is not finite.
    """

    def __init__(
        self, obs: Mapping[str, Tensor], action: Tensor, lengths: Sequence[int], labels: Tensor | None = None
    ) -> None:
        more = {} if labels is None else {"labels": labels}
        frames = {key: len(value) for key, value in {**obs, "action": action, **more}.items()}
        if not lengths or min(lengths) < 1 or set(frames.values()) != {sum(lengths)}:
            raise GantryError(f"Episodes of {list(lengths)} frames hold {frames}, expected {sum(lengths)} of each.")
        if STATE not in obs:
            raise UnknownNameError("key of the observations", STATE, obs)
        for name, numbers in {STATE: obs[STATE], "action": action, **more}.items():
            if numbers.ndim != 2 or not bool(torch.isfinite(numbers).all()):
                raise GantryError(f"'{name}' has shape {tuple(numbers.shape)}, expected finite numbers of (M, size).")
        self.obs, self.action, self.labels = dict(obs), action, labels
        self.lengths = list(lengths)
        """Frames of each episode."""
        counts = torch.tensor(self.lengths)
        self._last = (counts.cumsum(0) - 1).repeat_interleave(counts).to(action.device)
        """``(M,)``: the last frame of each frame's episode."""

    def __len__(self) -> int:
        return len(self.action)

    @property
    def obs_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of one observation, by key."""
        return {key: tuple(value.shape[1:]) for key, value in self.obs.items()}

    @property
    def action_size(self) -> int:
        """n."""
        return self.action.shape[1]

    def chunks(self, frames: Tensor, steps: int) -> Chunks:
        """Chunks of ``steps`` actions that begin at frames ``(B,)``."""
        frames = frames.to(self.action.device)
        wanted = frames[:, None] + torch.arange(steps, device=self.action.device)
        last = self._last[frames][:, None]
        obs = {key: value[frames] for key, value in self.obs.items()}
        labels = None if self.labels is None else self.labels[frames]
        return Chunks(obs, self.action[torch.minimum(wanted, last)], wanted <= last, labels)

    def to(self, device: str) -> ChunkData:
        """The same elsewhere."""
        obs = {key: value.to(device) for key, value in self.obs.items()}
        return ChunkData(
            obs, self.action.to(device), self.lengths, None if self.labels is None else self.labels.to(device)
        )


class Shuffle:
    """An endless stream of the numbers 0 to count - 1, in rounds each of which holds all of them in another order.

    Which number is where depends on the seed alone, so that a place in the stream is all that a continuation needs.
    """

    def __init__(self, count: int, seed: int) -> None:
        self._count, self._seed = count, seed
        self._rounds: dict[int, Tensor] = {}

    def numbers(self, begin: int, end: int) -> Tensor:
        """``(end - begin,)`` int64: the numbers at these places."""
        first, last = begin // self._count, (end - 1) // self._count
        self._rounds = {turn: self._rounds.get(turn, self._round(turn)) for turn in range(first, last + 1)}
        start = first * self._count
        return torch.cat([self._rounds[turn] for turn in range(first, last + 1)])[begin - start : end - start]

    def _round(self, turn: int) -> Tensor:
        return torch.from_numpy(np.random.default_rng((self._seed, turn)).permutation(self._count))


def split_episodes(count: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Episodes to learn from, and those to see how well others are predicted, drawn from a seed.

    Args:
        count: All episodes.
        share: Of the others, which are at least one if the share is not zero, and never all.
        seed: Of the draw.
    """
    others = min(max(1, round(share * count)), count - 1) if share else 0
    drawn = np.random.default_rng((seed, 1)).permutation(count)
    return sorted(drawn[others:].tolist()), sorted(drawn[:others].tolist())


def load_chunks(
    dataset: Dataset | str | Path,
    *,
    episodes: Iterable[int] | None = None,
    state_keys: Sequence[str] = (STATE_FEATURE,),
    cameras: Sequence[str] | None = None,
    action_key: str = ACTION,
) -> ChunkData:
    """Episodes of a LeRobot v3 dataset from any writer, with its values as they are.

    Nothing is compared with a task, and nothing converted to a policy's numbers: `gantry train` does both.

    Args:
        dataset: The dataset or its folder.
        episodes: Which; all if not given.
        state_keys: Features that make the state, one after the other, for example with
            ``observation.environment_state`` as well.
        cameras: Names of cameras, ``front`` for ``observation.images.front``; all if not given, none if empty. All
            their pictures are held in memory.
        action_key: The feature to imitate.

    Raises:
        UnknownNameError: If there is no such feature or camera.
        DatasetError: If it is no dataset, has changed since it was written, or there is no such episode.
        GantryError: If a feature is no vector of numbers, or there is no episode.
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    require_checksums(data.folder)
    features = _camera_features(data, cameras)
    chosen = list(range(data.num_episodes)) if episodes is None else list(episodes)
    if not chosen:
        raise GantryError(f"No episode of '{data.folder}' was chosen; it has {data.num_episodes}.")
    for key in (*state_keys, action_key):
        feature = data.info.features.get(key)
        if feature is None:
            raise UnknownNameError("feature", key, data.features)
        if not feature.is_number or len(feature.shape) != 1:
            raise GantryError(f"Feature '{key}' is {feature.dtype} of shape {feature.shape}, expected some numbers.")
    states, actions = [], []
    for episode in chosen:
        frames = data.frames(episode, [*dict.fromkeys((*state_keys, action_key))])
        states.append(np.concatenate([_rows(frames[key]) for key in state_keys], axis=1))
        actions.append(_rows(frames[action_key]))
    obs = {STATE: torch.from_numpy(np.concatenate(states))}
    lengths = [len(part) for part in actions]
    obs |= {f"{IMAGE_PREFIX}{name}": _pictures(data, key, chosen, lengths) for name, key in features.items()}
    return ChunkData(obs, torch.from_numpy(np.concatenate(actions)), lengths)


def camera_name(feature: str) -> str:
    """The name of a camera by its feature: ``front`` of ``observation.images.front``."""
    return feature.removeprefix(IMAGES).removeprefix("observation.")


def _camera_features(data: Dataset, cameras: Sequence[str] | None) -> dict[str, str]:
    known = {camera_name(key): key for key in data.camera_keys}
    for name in cameras or ():
        if name not in known:
            raise UnknownNameError("camera", name, known)
    return {name: known[name] for name in (known if cameras is None else cameras)}


def _pictures(data: Dataset, key: str, episodes: Sequence[int], lengths: Sequence[int]) -> Tensor:
    """``(M, 3, height, width)`` uint8, allocated once."""
    pictures, begin = None, 0
    for episode, length in zip(episodes, lengths, strict=True):
        some = torch.from_numpy(data.images(episode, key)).permute(0, 3, 1, 2)
        if pictures is None:
            pictures = torch.empty((sum(lengths), *some.shape[1:]), dtype=torch.uint8)
        pictures[begin : begin + length] = some
        begin += length
    assert pictures is not None
    return pictures


def _rows(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1).astype(np.float32)
