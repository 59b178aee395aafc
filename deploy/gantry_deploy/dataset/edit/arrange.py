"""Datasets with the episodes of others: merged into one, split into parts, or a selection of them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gantry_deploy.dataset.edit.episodes import EpisodeCopier, notes_of, open_source, output_features
from gantry_deploy.dataset.edit.outputs import require_new, whole_output
from gantry_deploy.dataset.edit.selection import Acting, episode_facts, kept_features, require_facts
from gantry_deploy.dataset.features import Feature
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.dataset.storage.resume import info_differences
from gantry_deploy.dataset.writer import DatasetWriter
from gantry_deploy.errors import DatasetError


@dataclass(frozen=True)
class Written:
    """A dataset that was made."""

    folder: Path
    """Folder of it."""
    episodes: int
    """Episodes."""
    frames: int
    """Frames in them."""
    encoded: int
    """Videos that had to be encoded again; all others were copied as they are."""


def merge_datasets(sources: Sequence[Path], output: Path, *, common: bool = False) -> Written:
    """Write the episodes of several datasets, one after the other, into a new one.

    Args:
        sources: Folders of the datasets.
        output: Folder of the new one.
        common: Leave out the features that some of them lack, instead of refusing.

    Raises:
        DatasetError: If they differ in rate, robot or features, with both sides of every difference.
    """
    if len(sources) < 2:
        raise DatasetError(f"{len(sources)} dataset is given, expected at least two to merge.")
    require_new(output)
    datasets = [open_source(folder) for folder in sources]
    names = list(datasets[0].features)
    if common:
        names = [name for name in names if all(name in dataset.features for dataset in datasets)]
    require_alike(datasets, common=common)
    features = {name: feature for name, feature in output_features(datasets[0]).items() if name in names}
    episodes = [(dataset, row.index) for dataset in datasets for row in dataset.episodes]
    return _write(output, features, episodes, datasets)


def require_alike(datasets: Sequence[Dataset], *, common: bool) -> None:
    """Refuse datasets whose frames differ.

    Args:
        datasets: To compare with the first of them.
        common: Pass over features that some of them lack.

    Raises:
        DatasetError: With every difference.
    """
    lines = []
    for other in datasets[1:]:
        told = info_differences(other.info, datasets[0].info)
        if common:
            told = [text for text in told if not text.endswith(("is missing there", "is missing here"))]
        lines += [f"\n  {other.folder}: {text}" for text in told]
    if lines:
        hint = "" if common else " --common leaves out features that are missing."
        raise DatasetError(f"The datasets cannot be merged; 'here' is {datasets[0].folder}.{hint}{''.join(lines)}")


def select_episodes(
    source: Path, output: Path, episodes: Sequence[int], keep: Sequence[str] = (), drop: Sequence[str] = ()
) -> Written:
    """Write some episodes of a dataset, in the order given, into a new one.

    Args:
        source: Folder of the dataset.
        output: Folder of the new one.
        episodes: Their numbers.
        keep: The only features to keep; empty for all.
        drop: Features to leave out.

    Raises:
        DatasetError: If nothing would be left.
        UnknownNameError: If there is no such feature.
    """
    require_new(output)
    dataset = open_source(source)
    names = kept_features(dataset.features, keep, drop)
    features = {name: feature for name, feature in output_features(dataset).items() if name in names}
    return _write(output, features, [(dataset, index) for index in episodes], [dataset])


def split_dataset(source: Path, parts: Mapping[Path, Sequence[int]]) -> list[Written]:
    """Write parts of a dataset, which may share episodes; all of them appear at the end, or none.

    Args:
        source: Folder of the dataset.
        parts: Numbers of the episodes by folder of the new dataset; a part without episodes is left out.

    Raises:
        DatasetError: If a place is taken, or no part has an episode.
    """
    dataset = open_source(source)
    chosen = {output: numbers for output, numbers in parts.items() if numbers}
    if not chosen:
        raise DatasetError(f"'{source}' has no episode for any part.")
    for output in chosen:
        require_new(output)
    with contextlib.ExitStack() as stack:
        written = []
        for output, numbers in chosen.items():
            scratch = stack.enter_context(whole_output(output))
            episodes = [(dataset, index) for index in numbers]
            done = _fill(scratch, output_features(dataset), episodes, [dataset])
            written.append(Written(output, done.episodes, done.frames, done.encoded))
    return written


def shares_of(count: int, shares: Mapping[str, float], seed: int | None = 0) -> dict[str, list[int]]:
    """Numbers of the episodes of parts with given shares.

    Args:
        count: Episodes.
        shares: Share by name of the part, in (0, 1], at most 1 together; every part gets at least one episode.
        seed: Draws the episodes; None takes them in their order.

    Raises:
        DatasetError: If the shares make no sense, or there are fewer episodes than parts.
    """
    total = sum(shares.values())
    if not shares or any(not 0.0 < share <= 1.0 for share in shares.values()) or total > 1.0 + 1e-9:
        told = ", ".join(f"{name}={share:g}" for name, share in shares.items()) or "none"
        raise DatasetError(f"The shares are {told}; expected numbers above 0, together at most 1.")
    if count < len(shares):
        raise DatasetError(f"{count} episodes cannot be split into {len(shares)} parts.")
    order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
    edges = np.round(np.cumsum([0.0, *shares.values()]) * count).astype(int)
    for index in range(1, len(edges)):  # Every part gets one, and leaves one for each that follows.
        edges[index] = min(max(edges[index], edges[index - 1] + 1), count - (len(edges) - 1 - index))
    return {name: sorted(order[edges[i] : edges[i + 1]].tolist()) for i, name in enumerate(shares)}


def parts_by(dataset: Dataset, what: str) -> dict[str, list[int]]:
    """Numbers of the episodes by outcome, share of a person, or task.

    Args:
        dataset: To be split.
        what: ``success``, ``actor`` or ``task``.

    Raises:
        DatasetError: If the dataset does not say.
    """
    require_facts(dataset, success=what == "success", acting=what == "actor")
    facts = episode_facts(dataset)
    if what == "success":
        return {
            name: [f.index for f in facts if f.success is flag]
            for name, flag in (("success", True), ("failure", False))
        }
    if what == "actor":
        return {acting.value: [f.index for f in facts if f.acting is acting] for acting in Acting}
    return {f"task{i}": [f.index for f in facts if f.tasks[:1] == (task,)] for i, task in enumerate(dataset.tasks)}


def _write(
    output: Path, features: Mapping[str, Feature], episodes: Sequence[tuple[Dataset, int]], sources: Sequence[Dataset]
) -> Written:
    with whole_output(output) as scratch:
        done = _fill(scratch, features, episodes, sources)
    return Written(output, done.episodes, done.frames, done.encoded)


def _fill(
    folder: Path, features: Mapping[str, Feature], episodes: Sequence[tuple[Dataset, int]], sources: Sequence[Dataset]
) -> Written:
    """Write episodes into a new folder."""
    first = sources[0]
    with DatasetWriter(folder, first.fps, features, first.robot_type, beside=notes_of(sources)) as writer:
        copier = EpisodeCopier(writer)
        for dataset, index in episodes:
            copier.copy(dataset, index)
        return Written(folder, writer.num_episodes, writer.num_frames, copier.encoded)
