"""A small dataset with every kind of feature, for tests of whatever writes, reads or breaks one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gantry_deploy.dataset.features import (
    BASE_ACTION,
    IS_DEMO,
    IS_INTERVENTION,
    Feature,
    camera,
    rl_features,
    scalar,
    vector,
)
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.dataset.writer import DatasetWriter

FRONT, WRIST = "observation.images.front", "observation.images.wrist"
FEATURES: dict[str, Feature] = {
    "observation.state": vector(["a", "b", "c"], unit="rad"),
    "observation.grid": Feature("float64", (2, 3)),
    "action": vector(["x", "y"]),
    **rl_features(),
    IS_INTERVENTION: scalar("bool"),
    IS_DEMO: scalar("bool"),
    BASE_ACTION: vector(["x", "y"]),
    "level": scalar("int64"),
    "note": Feature("string", (1,)),
    FRONT: camera(16, 24),
    WRIST: camera(7, 9, video=False),
}
LENGTHS = (5, 1, 8, 3)
"""Frames of the episodes that :func:`write_episodes` makes."""
TASKS = ("push", "lift the cube")


def make_frames(length: int, seed: int = 0, keys: Iterable[str] = FEATURES) -> list[dict[str, Any]]:
    """Frames of an episode that succeeds at its end, drawn from a seed."""
    rng = np.random.default_rng(seed)
    frames = []
    for step in range(length):
        last = step == length - 1
        frame = {
            "observation.state": rng.normal(size=3).astype(np.float32),
            "observation.grid": rng.normal(size=(2, 3)),
            "action": rng.normal(size=2).astype(np.float32),
            "next.reward": np.float32(last),
            "next.done": last,
            "next.truncated": False,
            "next.success": last,
            IS_INTERVENTION: step % 2 == 0,
            IS_DEMO: True,
            BASE_ACTION: rng.normal(size=2).astype(np.float32),
            "level": seed,
            "note": f"step {step}",
            FRONT: rng.integers(0, 256, (16, 24, 3), dtype=np.uint8),
            WRIST: rng.integers(0, 256, (7, 9, 3), dtype=np.uint8),
        }
        frames.append({key: frame[key] for key in keys})
    return frames


def write_episodes(writer: DatasetWriter, lengths: Sequence[int] = LENGTHS, first: int = 0) -> None:
    """Write episodes of these lengths, alternately of two tasks; each is drawn from its number."""
    for number, length in enumerate(lengths, first):
        for frame in make_frames(length, number, writer.features):
            writer.add_frame(frame)
        writer.end_episode(TASKS[number % 2])


def assert_holds(dataset: Dataset, lengths: Sequence[int] = LENGTHS) -> None:
    """The dataset has exactly the episodes that :func:`write_episodes` makes; its video must be without loss."""
    assert [row.length for row in dataset.episodes] == list(lengths)
    for number, length in enumerate(lengths):
        expected = make_frames(length, number, dataset.features)
        for frame, wanted in zip(dataset.iter_frames(number), expected, strict=True):
            for key, value in wanted.items():
                np.testing.assert_array_equal(np.squeeze(frame[key]), value, err_msg=f"episode {number}, {key}")
