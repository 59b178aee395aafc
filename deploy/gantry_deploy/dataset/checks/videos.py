"""Checks of a dataset's videos against its episodes, without decoding a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gantry_deploy.dataset.checks.findings import RECORD_AGAIN, REPAIR, Findings
from gantry_deploy.dataset.storage.layout import EPISODES, EpisodeRow, FileIndex, Info
from gantry_deploy.dataset.video import TOLERANCE_S, VideoFacts, video_facts
from gantry_deploy.errors import DatasetError


def check_videos(folder: Path, info: Info, episodes: list[EpisodeRow], found: Findings) -> None:
    """Check that every episode has its pictures, of the right size, at the right times."""
    for key in info.video_keys:
        files: dict[FileIndex, list[EpisodeRow]] = {}
        for row in episodes:
            files.setdefault(row.videos[key].file, []).append(row)
        for file, inside in files.items():
            _check_file(folder, info, key, info.video_file(key, file), inside, found)


def _check_file(folder: Path, info: Info, key: str, name: str, inside: list[EpisodeRow], found: Findings) -> None:
    try:
        facts = video_facts(folder / name)
    except DatasetError as error:
        found.add(name, str(error), "take the file from a backup")
        return
    height, width = info.features[key].image_size
    if (facts.height, facts.width) != (height, width):
        found.add(name, f"is {facts.height} x {facts.width} pixels, expected {height} x {width}", RECORD_AGAIN)
    if abs(facts.fps - info.fps) > 0.01 * info.fps:
        found.add(name, f"has {facts.fps:g} pictures per second, expected {info.fps}", RECORD_AGAIN)
    expected, there = sum(row.length for row in inside), len(facts.frame_times_s)
    if there > expected:
        found.add(name, f"has {there} pictures, and its episodes {expected}", REPAIR)
    elif there < expected:
        found.add(name, f"has {there} pictures, and its episodes {expected}", "take the file from a backup")
    end_s = 0.0
    for row in sorted(inside, key=lambda row: row.videos[key].from_s):
        end_s = _check_span(info, key, name, row, facts, end_s, found)


def _check_span(
    info: Info, key: str, name: str, row: EpisodeRow, facts: VideoFacts, end_s: float, found: Findings
) -> float:
    """Check one episode's stretch of a video; returns where it ends."""
    span = row.videos[key]
    place = f"{EPISODES}: episode {row.index}"
    duration_s = row.length / info.fps
    if abs(span.to_s - span.from_s - duration_s) > 0.5 / info.fps:
        said = f"'{key}' lasts from {span.from_s:.4f} to {span.to_s:.4f} s, expected {duration_s:.4f} s"
        found.add(place, said, RECORD_AGAIN)
    if span.from_s < end_s - TOLERANCE_S:
        found.add(place, f"'{key}' begins at {span.from_s:.4f} s, within the episode before", RECORD_AGAIN)
    wanted_s = span.from_s + np.arange(row.length) / info.fps
    times = facts.frame_times_s
    nearest = np.clip(np.searchsorted(times, wanted_s - 0.5 / info.fps), 0, max(0, len(times) - 1))
    missing = np.ones(row.length, bool) if not len(times) else np.abs(times[nearest] - wanted_s) > TOLERANCE_S
    if missing.any():
        first = int(missing.argmax())
        found.add(
            f"{name}: episode {row.index}",
            f"{int(missing.sum())} pictures are not where they should be, the first at {wanted_s[first]:.4f} s",
            RECORD_AGAIN,
        )
    return span.to_s
