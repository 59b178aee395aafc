"""Demonstrations in memory: read from a LeRobot dataset once, kept in the run folder, handed to every learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gantry_deploy.dataset.features import ACTION, DONE, IMAGES, REWARD, STATE, SUCCESS
from gantry_deploy.dataset.reader import Dataset
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.whole_files import whole_file
from gantry_policies.imitation.data import ChunkData
from gantry_policies.offpolicy.demos import Demo
from gantry_policies.offpolicy.env import IMAGE_PREFIX, Observation
from gantry_policies.offpolicy.env import STATE as STATE_KEY
from gantry_sim.arm.run_cfg import DEMOS_FILE, Spaces
from gantry_sim.run_place import RunError


@dataclass(frozen=True)
class DemoSet:
    """Whole episodes, one after the other; M frames."""

    obs: Observation
    """``(M, ...)`` by key: what was seen before each step."""
    action: Tensor
    """``(M, n)`` in the environment's range."""
    reward: Tensor
    """``(M,)``."""
    lengths: tuple[int, ...]
    """Frames of each episode."""
    terminated: tuple[bool, ...]
    """Whether each ended for good, as success does; out of time otherwise."""
    succeeded: tuple[bool, ...]
    """Whether each succeeded."""

    def require(self, spaces: Spaces, source: object) -> None:
        """Refuse demonstrations of something else.

        Args:
            spaces: Of the environment.
            source: Where they come from, for the message.

        Raises:
            GantryError: With both sides.
        """
        mine = {key: tuple(value.shape[1:]) for key, value in self.obs.items()}
        if Spaces(mine, self.action.shape[1]) != spaces:
            raise GantryError(
                f"The demonstrations in '{source}' observe {mine} and act with {self.action.shape[1]} numbers; the "
                f"task observes {spaces.obs_shapes} and acts with {spaces.action_size}."
            )

    def chunks(self, episodes: Sequence[int] | None = None) -> ChunkData:
        """Some episodes, or all, for cloning."""
        chosen = range(len(self.lengths)) if episodes is None else episodes
        starts = np.cumsum([0, *self.lengths])
        rows = torch.cat([torch.arange(starts[i], starts[i + 1]) for i in chosen])
        obs = {key: value[rows] for key, value in self.obs.items()}
        return ChunkData(obs, self.action[rows], [self.lengths[i] for i in chosen])

    def demos(self) -> list[Demo]:
        """All episodes, for learning by trying.

        What followed the last step of an episode is not in a dataset. Of an episode that ended for good nobody asks; of
        one that ran out of time the last step is left out, and its observation is what the step before led to.
        """
        found, begin = [], 0
        for length, terminated in zip(self.lengths, self.terminated, strict=True):
            steps = length if terminated else length - 1
            if steps:
                obs = {key: value[begin : begin + length] for key, value in self.obs.items()}
                rows = slice(begin, begin + steps)
                found.append(Demo(obs, self.action[rows], self.reward[rows], terminated))
            begin += length
        return found

    def save(self, folder: Path) -> None:
        """Write the copy of a run folder, whole or not at all.

        Raises:
            RunError: If it cannot be written.
        """
        arrays = {f"obs:{key}": value.numpy() for key, value in self.obs.items()}
        arrays |= {"action": self.action.numpy(), "reward": self.reward.numpy()}
        arrays |= {name: np.array(getattr(self, name)) for name in ("lengths", "terminated", "succeeded")}
        path = folder / DEMOS_FILE
        try:
            with whole_file(path) as file:
                np.savez(file, allow_pickle=False, **arrays)
        except OSError as error:
            raise RunError(f"Cannot write '{path}': {error.strerror or error}.") from error


def load_demos(folder: Path) -> DemoSet | None:
    """The copy in a run folder; None if it has none.

    Raises:
        RunError: If it is damaged.
    """
    path = folder / DEMOS_FILE
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return DemoSet(
            obs={name[4:]: torch.from_numpy(values) for name, values in arrays.items() if name.startswith("obs:")},
            action=torch.from_numpy(arrays["action"]),
            reward=torch.from_numpy(arrays["reward"]),
            lengths=tuple(arrays["lengths"].tolist()),
            terminated=tuple(arrays["terminated"].tolist()),
            succeeded=tuple(arrays["succeeded"].tolist()),
        )
    except Exception as error:  # numpy and zipfile raise many kinds for damaged files
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RunError(f"Cannot read '{path}': {reason}.") from error


def read_dataset(folder: Path, cameras: Sequence[str]) -> DemoSet:
    """Every episode of a LeRobot dataset.

    One that does not say what its steps earned is taken for successful demonstrations: its last steps earn 1 and end
    the episodes for good.

    Args:
        folder: Of the dataset.
        cameras: Names of the cameras to read, ``front`` for ``observation.images.front``.

    Raises:
        DatasetError: If it is no dataset.
        UnknownNameError: If it lacks a feature that learning needs, or a camera.
        GantryError: If it holds no episode.
    """
    data = Dataset(folder)
    if not data.num_episodes:
        raise GantryError(f"The dataset '{folder}' holds no episode.")
    for key in (STATE, ACTION, *(IMAGES + name for name in cameras)):
        if key not in data.features:
            raise UnknownNameError(f"feature in '{folder}'", key, data.features)
    columns: dict[str, list[np.ndarray]] = {key: [] for key in (STATE, ACTION, REWARD, *cameras)}
    terminated, succeeded = [], []
    for row in data.episodes:
        frames = data.frames(row.index, [key for key in (STATE, ACTION, REWARD, SUCCESS) if key in data.features])
        ended = bool(data.terminations(row.index)[-1]) if DONE in data.features else True
        frames.setdefault(REWARD, np.arange(row.length) == row.length - 1)
        for key in (STATE, ACTION, REWARD):
            columns[key].append(frames[key].reshape(row.length, -1))
        for name in cameras:
            columns[name].append(data.images(row.index, IMAGES + name).transpose(0, 3, 1, 2))
        terminated.append(ended)
        succeeded.append(bool(np.any(frames[SUCCESS])) if SUCCESS in frames else ended)
    obs = {STATE_KEY: _numbers(columns[STATE])}
    obs |= {IMAGE_PREFIX + name: torch.from_numpy(np.concatenate(columns[name])) for name in cameras}
    return DemoSet(
        obs=obs,
        action=_numbers(columns[ACTION]),
        reward=_numbers(columns[REWARD])[:, 0],
        lengths=tuple(row.length for row in data.episodes),
        terminated=tuple(terminated),
        succeeded=tuple(succeeded),
    )


def _numbers(parts: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(np.float32))
