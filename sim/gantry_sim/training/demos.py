"""Demonstrations in memory: read from a LeRobot dataset once, kept in the run folder, handed to every learner."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.dataset.checks.agreement import (
    Agreement,
    Expected,
    first_difference,
    policy_numbers,
    require_agreement,
)
from gantry_deploy.dataset.features import ACTION, DONE, ENVIRONMENT_STATE, IMAGES, REWARD, STATE, SUCCESS
from gantry_deploy.dataset.physical import Numbers, out_of_range, policy_action, policy_observation
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.dataset.storage.checksums import require_checksums
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import parse_json_object
from gantry_hardware.files.npz import plain_arrays
from gantry_hardware.files.whole_files import whole_file
from gantry_policies.common.batched_env import IMAGE_PREFIX, Observation
from gantry_policies.common.batched_env import STATE as STATE_KEY
from gantry_policies.imitation.data import ChunkData
from gantry_policies.off_policy.replay.demos import Demo
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_files import DEMOS_FILE
from gantry_sim.training.run_validation import RunError

SESSION = "session"
"""Key, in :attr:`DemoSet.described`, of the meaning of a session's numbers."""
_LOG = logging.getLogger("gantry.dataset")


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
    labels: Tensor | None = None
    """``(M, p)``: what was known of the surroundings, which no policy sees; None if nothing was recorded."""
    described: dict[str, Any] | None = None
    """Task, robot, rate and numbers that they are of, by :meth:`Expected.described`; of a session those of its policy,
    under :data:`SESSION`; None if that is not known."""

    def require(self, expected: Expected, source: object) -> None:
        """Refuse demonstrations of something else.

        Args:
            expected: By the task.
            source: Where they come from, for the message.

        Raises:
            GantryError: With both sides.
        """
        if self.described is None:
            _LOG.warning("'%s' does not say of which task its demonstrations are; only sizes were compared.", source)
        elif found := first_difference(self.described, expected.described()):
            raise GantryError(f"The demonstrations in '{source}' do not fit the task '{expected.task}': {found}.")
        mine = {key: tuple(value.shape[1:]) for key, value in self.obs.items()}
        images = {IMAGE_PREFIX + name: (3, *size) for name, size in expected.cameras.items()}
        wanted = {STATE_KEY: (sum(part.size for part in expected.observation),), **images}
        if mine != wanted or self.action.shape[1] != expected.action.size:
            raise GantryError(
                f"The demonstrations in '{source}' observe {mine} and act with {self.action.shape[1]} numbers; the "
                f"task observes {wanted} and acts with {expected.action.size}."
            )

    def chunks(self, episodes: Sequence[int] | None = None) -> ChunkData:
        """Some episodes, or all, for cloning."""
        chosen = range(len(self.lengths)) if episodes is None else episodes
        starts = np.cumsum([0, *self.lengths])
        rows = torch.cat([torch.arange(starts[i], starts[i + 1]) for i in chosen])
        obs = {key: value[rows] for key, value in self.obs.items()}
        labels = None if self.labels is None else self.labels[rows]
        return ChunkData(obs, self.action[rows], [self.lengths[i] for i in chosen], labels)

    def demos(self) -> list[Demo]:
        """All episodes, for learning by trying.

        What followed the last step of an episode is not in a dataset. Of an episode that ended for good it is not
        needed; of one that ran out of time the last step is left out, and its observation is what the step before led
        to.
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
        if self.labels is not None:
            arrays["labels"] = self.labels.numpy()
        if self.described is not None:
            arrays["described"] = np.array(json.dumps(self.described))
        path = folder / DEMOS_FILE
        try:
            with whole_file(path) as file:
                np.savez(file, **plain_arrays(arrays))
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
            labels=torch.from_numpy(arrays["labels"]) if "labels" in arrays else None,
            described=_described(arrays),
        )
    except Exception as error:  # numpy and zipfile raise many kinds for damaged files
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RunError(f"Cannot read '{path}': {reason}.") from error


def _described(arrays: dict[str, np.ndarray]) -> dict[str, Any] | None:
    """Notes on demonstrations in their copy."""
    return parse_json_object(str(arrays["described"]), "described") if "described" in arrays else None


def demos_of(run: RunCfg, folder: Path | None) -> DemoSet | None:
    """The demonstrations of a run; None if it has none.

    Raises:
        GantryError: If they are not of the run's task.
    """
    demos = None if folder is None else load_demos(folder)
    if demos is not None and folder is not None:
        require_demos(demos, run, folder / DEMOS_FILE)
    return demos


def require_demos(demos: DemoSet, run: RunCfg, source: object) -> None:
    """Refuse demonstrations of something else than a run's task.

    Args:
        demos: From a dataset, or a run's copy of one.
        run: What is trained.
        source: Where they come from, for the message.

    Raises:
        GantryError: With both sides.
    """
    told = demos.described or {}
    if SESSION not in told:
        demos.require(expected_demos(run), source)
    else:
        require_session(told[SESSION], run, source)


def require_session(told: dict[str, Any], run: RunCfg, source: object) -> None:
    """Refuse a session of another task or policy; arguments as of :func:`require_demos`.

    Args:
        told: Meaning of the session's numbers, see :func:`session_numbers`.
        run: What is trained.
        source: Where they come from.

    Raises:
        GantryError: With both sides.
    """
    if found := first_difference(told, session_numbers(run.task.name, run.contract())):
        raise GantryError(f"The session in '{source}' does not fit the task '{run.task.name}': {found}.")


def session_numbers(task: str, contract: PolicyContract) -> dict[str, Any]:
    """Meaning of a session's numbers, as plain data to compare: the task, and what its policies see and do."""
    return {"task": task, **policy_numbers(contract)}


def expected_demos(run: RunCfg) -> Expected:
    """Requirements of a run on its demonstrations."""
    if run.task.has_contract:
        return Expected.of(run.task.name, run.contract())
    shapes, size = run.spaces.obs_shapes, run.spaces.action_size
    state = math.prod(shapes.get(STATE_KEY, (0,)))
    return Expected(
        run.task.name,
        robot="",
        rate_hz=run.spaces.rate_hz,
        observation=(Numbers(STATE, (), (), (1.0,) * state, (0.0,) * state),),
        action=Numbers(ACTION, (), (), (1.0,) * size, (0.0,) * size, clip=1.0),
        cameras={
            key.removeprefix(IMAGE_PREFIX): (shape[1], shape[2])
            for key, shape in shapes.items()
            if key.startswith(IMAGE_PREFIX)
        },
    )


def read_dataset(folder: Path, expected: Expected, on_read: Callable[[float], None] = lambda share: None) -> DemoSet:
    """Every episode of a LeRobot dataset, in the numbers of the task's policies.

    One that does not say what its steps earned is taken for successful demonstrations: its last steps earn 1 and end
    the episodes for good.

    Args:
        folder: Of the dataset.
        expected: What the task takes; physical values are converted to the policy's numbers by it.
        on_read: Told the share of the episodes that has been read.

    Raises:
        DatasetError: If it is no dataset, has changed since it was written, or is of something else than the task.
        GantryError: If it holds no episode, or an action that the task does not allow.
    """
    require_checksums(folder)
    data = Dataset(folder)
    if not data.num_episodes:
        raise GantryError(f"The dataset '{folder}' holds no episode.")
    agreement = require_agreement(data, expected)
    names = [name for name, _ in agreement.observation]
    keys = list(dict.fromkeys([*names, agreement.action[0]]))
    surroundings = data.features.get(ENVIRONMENT_STATE)
    is_label = surroundings is not None and surroundings.is_number and ENVIRONMENT_STATE not in keys
    known = ENVIRONMENT_STATE if is_label else None
    optional = [key for key in (REWARD, SUCCESS, known) if key is not None and key in data.features]
    kinds = (STATE, ACTION, REWARD, ENVIRONMENT_STATE, *expected.cameras)
    columns: dict[str, list[np.ndarray]] = {key: [] for key in kinds}
    terminated, succeeded = [], []
    for row in data.episodes:
        frames = data.frames(row.index, [*keys, *optional])
        ended = bool(data.terminations(row.index)[-1]) if DONE in data.features else True
        frames.setdefault(REWARD, np.arange(row.length) == row.length - 1)
        columns[STATE].append(_observation(expected, agreement, frames, row.index, folder))
        columns[ACTION].append(_action(expected, agreement, frames, row.index, folder))
        columns[REWARD].append(frames[REWARD].reshape(row.length, -1))
        if known is not None:
            columns[known].append(frames[known].reshape(row.length, -1))
        for name in expected.cameras:
            columns[name].append(data.images(row.index, IMAGES + name).transpose(0, 3, 1, 2))
        terminated.append(ended)
        succeeded.append(bool(np.any(frames[SUCCESS])) if SUCCESS in frames else ended)
        on_read(len(succeeded) / data.num_episodes)
    obs = {STATE_KEY: _numbers(columns[STATE])}
    obs |= {IMAGE_PREFIX + name: torch.from_numpy(np.concatenate(columns[name])) for name in expected.cameras}
    return DemoSet(
        obs=obs,
        action=_numbers(columns[ACTION]),
        reward=_numbers(columns[REWARD])[:, 0],
        lengths=tuple(row.length for row in data.episodes),
        terminated=tuple(terminated),
        succeeded=tuple(succeeded),
        labels=None if known is None else _numbers(columns[known]),
        described=expected.described(),
    )


def _observation(
    expected: Expected, agreement: Agreement, frames: dict[str, np.ndarray], episode: int, folder: Path
) -> np.ndarray:
    """An episode's state as the policy sees it, (T, s)."""
    parts = []
    for part, (name, places) in zip(expected.observation, agreement.observation, strict=True):
        values = frames[name][:, places]
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            label = part.names[column] if part.names else f"number {places[column]}"
            raise GantryError(
                f"'{label}' of '{name}' is {values[row, column]} in frame {row} of episode {episode} of '{folder}', "
                "expected a finite number."
            )
        parts.append(policy_observation(part, values))
    return np.concatenate(parts, axis=1)


def _action(
    expected: Expected, agreement: Agreement, frames: dict[str, np.ndarray], episode: int, folder: Path
) -> np.ndarray:
    """An episode's actions as the policy would give them, (T, n)."""
    part, (name, places) = expected.action, agreement.action
    values = frames[name][:, places]
    if (wrong := out_of_range(part, values)) is not None:
        row, column = wrong
        lower, upper = part.range
        label, unit = (part.names[column] if part.names else f"number {places[column]}"), ""
        if part.units:
            unit = f" {part.units[column]}"
        raise GantryError(
            f"'{label}' of '{name}' is {values[row, column]:g}{unit} in frame {row} of episode {episode} of "
            f"'{folder}', and the task '{expected.task}' takes {lower[column]:g} to {upper[column]:g}{unit}."
        )
    return policy_action(part, values)


def _numbers(parts: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(np.float32))
