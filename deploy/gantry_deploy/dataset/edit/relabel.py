"""A dataset with other labels: task, success, reward, ends, corrections; episodes deleted or trimmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.dataset.edit.arrange import Written
from gantry_deploy.dataset.edit.episodes import (
    EpisodeCopier,
    EpisodeEdit,
    ends_of,
    notes_of,
    open_source,
    output_features,
    with_features,
)
from gantry_deploy.dataset.edit.outputs import require_new, whole_output
from gantry_deploy.dataset.features import (
    DONE,
    IS_INTERVENTION,
    REWARD,
    SUCCESS,
    TRUNCATED,
    Feature,
    rl_features,
    scalar,
)
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.dataset.writer import DatasetWriter
from gantry_deploy.errors import DatasetError
from gantry_hardware.compat import StrEnum
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.yaml_file import YamlFileError, read_yaml


class RewardRule(StrEnum):
    """Rule from the outcome of an episode to its rewards."""

    SPARSE = "sparse"
    """1 in the first frame that succeeds, 0 in every other."""
    TIME = "time"
    """-1 in every frame before the first one that succeeds, 0 from it on."""


@dataclass(frozen=True)
class EpisodeLabels:
    """Labels of one episode; what is not given stays as it is. Frames are those of the dataset that is read."""

    task: str | None = None
    """Task in words."""
    success: bool | None = None
    """Outcome, which is that of the last frame."""
    reward: tuple[float, ...] | None = None
    """Rewards of the kept frames, or one number for the last frame alone with 0 in the others."""
    start: int | None = None
    """First frame that is kept."""
    stop: int | None = None
    """Frame after the last one that is kept."""
    person: tuple[tuple[int, int], ...] | None = None
    """Stretches in which a person acted: first frame, and the frame after the last; all others are the policy's."""
    delete: bool = False
    """Leave the episode out."""


@dataclass(frozen=True)
class Relabel:
    """Changes to the labels of a dataset."""

    task: str | None = None
    """Task of every episode, in words."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """New text by old text of a task."""
    reward: RewardRule | None = None
    """Rule that sets every reward."""
    trim_start_s: float = 0.0
    """Time that is cut off every episode's beginning, s."""
    trim_end_s: float = 0.0
    """Likewise off its end, s."""
    recompute_ends: bool = False
    """Set ``next.done`` and ``next.truncated`` from length and outcome; done anyway where those change."""
    episodes: Mapping[int, EpisodeLabels] = field(default_factory=dict)
    """Labels of single episodes, which go before the others."""


def read_labels(path: Path) -> dict[int, EpisodeLabels]:
    """Labels of single episodes from a YAML file: ``episodes: {0: {success: true, stop: 120}, 3: {delete: true}}``.

    Raises:
        DatasetError: If a field does not exist, with the near miss, or a value does not fit.
        YamlFileError: If the file is no YAML.
    """
    data = read_yaml(path)
    if not isinstance(data, dict) or set(data) != {"episodes"} or not isinstance(data["episodes"], dict):
        raise YamlFileError(path, "expected one entry 'episodes' with labels by number of the episode.")
    labels = {}
    for number, item in data["episodes"].items():
        if not isinstance(number, int) or isinstance(number, bool):
            raise YamlFileError(path, f"an episode is called {number!r}, expected its number.")
        if isinstance(item, dict) and isinstance(item.get("reward"), (int, float)):
            item = {**item, "reward": [item["reward"]]}
        labels[number] = from_plain(EpisodeLabels, item, f"episodes.{number}", DatasetError)
    return labels


def relabel_dataset(source: Path, output: Path, changes: Relabel) -> Written:
    """Write a dataset with other labels; the source stays as it is.

    Raises:
        DatasetError: If an episode does not exist, a stretch leaves it, or nothing would be left.
        UnknownNameError: If a feature that labels need has another type.
    """
    require_new(output)
    dataset = open_source(source)
    for number in changes.episodes:
        if not 0 <= number < dataset.num_episodes:
            raise DatasetError(f"There is no episode {number}; '{source}' has {dataset.num_episodes}, from 0 on.")
    for old in changes.tasks:
        if old not in dataset.tasks:
            raise DatasetError(f"No frame is of the task '{old}'; the tasks are: {'; '.join(dataset.tasks)}.")
    kept = [row.index for row in dataset.episodes if not _labels(changes, row.index).delete]
    if not kept:
        raise DatasetError("Every episode would be deleted.")
    features = with_features(output_features(dataset), _needed(changes, dataset))
    beside = notes_of([dataset])
    with (
        whole_output(output) as scratch,
        DatasetWriter(scratch, dataset.fps, features, dataset.robot_type, beside=beside) as writer,
    ):
        copier = EpisodeCopier(writer)
        for index in kept:
            copier.copy(dataset, index, _edit(dataset, index, changes, features))
        return Written(output, writer.num_episodes, writer.num_frames, copier.encoded)


def _labels(changes: Relabel, index: int) -> EpisodeLabels:
    return changes.episodes.get(index, EpisodeLabels())


def _needed(changes: Relabel, dataset: Dataset) -> dict[str, Feature]:
    """Features that the new labels need."""
    needed: dict[str, Feature] = {}
    labels = list(changes.episodes.values())
    rl = rl_features()
    if any(item.success is not None for item in labels):
        needed |= {name: rl[name] for name in (SUCCESS, DONE, TRUNCATED)}
    if changes.reward is not None or any(item.reward is not None for item in labels):
        needed[REWARD] = rl[REWARD]
    if changes.recompute_ends:
        needed |= {name: rl[name] for name in (DONE, TRUNCATED)}
    if any(item.person is not None for item in labels):
        needed[IS_INTERVENTION] = scalar("bool")
    return needed


def _edit(dataset: Dataset, index: int, changes: Relabel, features: Mapping[str, Feature]) -> EpisodeEdit:
    labels, length = _labels(changes, index), dataset.episodes[index].length
    start = round(changes.trim_start_s * dataset.fps) if labels.start is None else labels.start
    stop = length - round(changes.trim_end_s * dataset.fps) if labels.stop is None else labels.stop
    if not 0 <= start < stop <= length:
        raise DatasetError(f"Frames {start} to {stop} of episode {index}: expected some of 0 to {length}.")
    old = dataset.frames(index, [name for name in (SUCCESS, IS_INTERVENTION, REWARD) if name in dataset.features])
    columns: dict[str, NDArray[Any]] = {}
    count, won = stop - start, _succeeded(old, labels, start, stop)
    if labels.success is not None or stop != length or changes.recompute_ends:
        found = ends_of(count, won[-1] > 0.5 if won is not None else None)
        columns |= {name: values for name, values in found.items() if name in features}
    if SUCCESS in features and won is None:
        columns[SUCCESS] = np.zeros((count, 1), bool)
    if won is not None and SUCCESS in features and labels.success is None:
        columns[SUCCESS] = won.reshape(count, 1) > 0.5
    columns |= _missing_ends(dataset, features, columns, count)
    if REWARD in features and (reward := _rewards(changes, labels, old, won, start, stop)) is not None:
        columns[REWARD] = reward.reshape(count, 1)
    if labels.person is not None:
        columns[IS_INTERVENTION] = _person(labels.person, length, index)[start:stop].reshape(count, 1)
    elif IS_INTERVENTION in features and IS_INTERVENTION not in dataset.features:
        columns[IS_INTERVENTION] = np.zeros((count, 1), bool)
    own = dataset.episodes[index].tasks
    task = labels.task or changes.task or (changes.tasks.get(own[0]) if len(own) == 1 else None)
    return EpisodeEdit(start, stop, task, columns)


def _succeeded(
    old: Mapping[str, NDArray[Any]], labels: EpisodeLabels, start: int, stop: int
) -> NDArray[np.float64] | None:
    """Success of each kept frame, 0 or 1; None if it is not known."""
    if labels.success is not None:
        flags = np.zeros(stop - start)
        flags[-1] = labels.success
        return flags
    return np.asarray(old[SUCCESS], np.float64).reshape(-1)[start:stop] if SUCCESS in old else None


def _missing_ends(
    dataset: Dataset, features: Mapping[str, Feature], columns: Mapping[str, Any], count: int
) -> dict[str, NDArray[np.bool_]]:
    """Ends of an episode for a dataset that gets such features by the labels of other episodes."""
    missing = [name for name in (DONE, TRUNCATED) if name in features and name not in dataset.features]
    ends = ends_of(count, False)
    return {name: ends[name] for name in missing if name not in columns}


def _rewards(
    changes: Relabel,
    labels: EpisodeLabels,
    old: Mapping[str, NDArray[Any]],
    won: NDArray[np.float64] | None,
    start: int,
    stop: int,
) -> NDArray[np.float64] | None:
    """New rewards (kept frames,); None leaves those that are there."""
    count = stop - start
    if labels.reward is not None:
        if len(labels.reward) not in (1, count):
            raise DatasetError(f"{len(labels.reward)} rewards are given, expected 1 or {count}, one per kept frame.")
        given = np.zeros(count)
        given[-len(labels.reward) :] = labels.reward
        return given
    if changes.reward is None:
        return None if REWARD in old else np.zeros(count)
    if won is None:
        raise DatasetError(f"A rule for rewards needs '{SUCCESS}'; give it in the labels of each episode.")
    first = int(np.argmax(won > 0.5)) if (won > 0.5).any() else count
    if changes.reward is RewardRule.SPARSE:
        return (np.arange(count) == first).astype(np.float64)
    return -(np.arange(count) < first).astype(np.float64)


def _person(stretches: Sequence[tuple[int, int]], length: int, index: int) -> NDArray[np.bool_]:
    """Frames (length,) in which a person acted."""
    flags = np.zeros(length, bool)
    for first, after in stretches:
        if not 0 <= first < after <= length:
            raise DatasetError(f"Frames {first} to {after} of episode {index}: expected some of 0 to {length}.")
        flags[first:after] = True
    return flags
