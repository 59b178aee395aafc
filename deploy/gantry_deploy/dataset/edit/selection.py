"""Choice of episodes: by their numbers, outcome, task, and by whether a person acted in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gantry_deploy.dataset.features import IS_INTERVENTION, SUCCESS
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.errors import DatasetError
from gantry_hardware.compat import StrEnum
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.text import plain_text

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


class Acting(StrEnum):
    """Share of a person in an episode."""

    ALONE = "alone"
    """The policy acted in every frame."""
    CORRECTED = "corrected"
    """Policy and person took turns."""
    PERSON = "person"
    """A person acted in every frame."""


@dataclass(frozen=True)
class EpisodeFacts:
    """Facts about an episode by which it is chosen."""

    index: int
    """Number of it."""
    tasks: tuple[str, ...]
    """Every task that one of its frames is of."""
    success: bool | None
    """Whether it succeeded at any time; None if the dataset does not say."""
    acting: Acting | None
    """Share of a person; None if the dataset does not say."""


@dataclass(frozen=True)
class Selection:
    """Conditions that an episode has to meet, all of them."""

    episodes: str = ""
    """Numbers and ranges, for example ``0-3,7``; empty for every episode."""
    success: bool | None = None
    """Outcome."""
    acting: Acting | None = None
    """Share of a person."""
    task: str = ""
    """Task in words, as the dataset has it."""

    def of(self, dataset: Dataset) -> list[int]:
        """Numbers of the episodes that meet the conditions.

        Raises:
            DatasetError: If a number does not exist, the dataset does not say what is asked for, or none is left.
            UnknownNameError: If there is no such task.
        """
        wanted = episode_numbers(self.episodes, dataset.num_episodes) if self.episodes else range(dataset.num_episodes)
        if self.task and self.task not in dataset.tasks:
            raise UnknownNameError("task", self.task, dataset.tasks)
        require_facts(dataset, success=self.success is not None, acting=self.acting is not None)
        facts = {fact.index: fact for fact in episode_facts(dataset)}
        chosen = [
            index
            for index in wanted
            if (self.success is None or facts[index].success is self.success)
            and (self.acting is None or facts[index].acting is self.acting)
            and (not self.task or self.task in facts[index].tasks)
        ]
        if not chosen:
            raise DatasetError(f"No episode of '{dataset.folder}' meets the conditions.")
        return chosen


def episode_numbers(text: str, count: int) -> list[int]:
    """Numbers from a text such as ``0-3,7``, in its order, each once.

    Raises:
        DatasetError: If the text is something else, or names an episode that does not exist.
    """
    numbers: list[int] = []
    for part in text.replace(" ", "").split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise DatasetError(f"{plain_text(part)} in {plain_text(text)} is no number and no range; expected 0-3,7.")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last >= count:
            raise DatasetError(f"There are no episodes {plain_text(part)}: the dataset has {count}, from 0 on.")
        numbers += range(first, last + 1)
    return list(dict.fromkeys(numbers))


def require_facts(dataset: Dataset, *, success: bool = False, acting: bool = False) -> None:
    """Refuse a dataset that does not say what is asked for.

    Raises:
        DatasetError: Naming the feature that it lacks.
    """
    for asked, name in ((success, SUCCESS), (acting, IS_INTERVENTION)):
        if asked and name not in dataset.features:
            raise DatasetError(f"'{dataset.folder}' has no '{name}'; 'gantry data relabel' can add it.")


def episode_facts(dataset: Dataset) -> list[EpisodeFacts]:
    """Facts about every episode; pictures are not read."""
    keys = [name for name in (SUCCESS, IS_INTERVENTION) if name in dataset.features]
    facts = []
    for row in dataset.episodes:
        values = dataset.frames(row.index, keys) if keys else {}
        acting = None
        if IS_INTERVENTION in values:
            share = float(np.mean(np.asarray(values[IS_INTERVENTION], np.float64) > 0.5))
            acting = Acting.ALONE if share == 0.0 else Acting.PERSON if share == 1.0 else Acting.CORRECTED
        success = bool(np.any(values[SUCCESS])) if SUCCESS in values else None
        facts.append(EpisodeFacts(row.index, row.tasks, success, acting))
    return facts


def kept_features(names: Iterable[str], keep: Sequence[str], drop: Sequence[str]) -> list[str]:
    """Names that are left of a dataset's features.

    Args:
        names: All of them.
        keep: The only ones to keep; empty for all.
        drop: Those to leave out.

    Raises:
        UnknownNameError: If one to keep or to leave out does not exist.
        DatasetError: If none is left.
    """
    all_names = list(names)
    for name in (*keep, *drop):
        if name not in all_names:
            raise UnknownNameError("feature", name, all_names)
    left = [name for name in all_names if (not keep or name in keep) and name not in drop]
    if not left:
        raise DatasetError("No feature is left.")
    return left
