"""Search for everything that can be wrong with a dataset from any writer; never stops at the first."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from gantry_deploy.dataset.checks.findings import RECORD_AGAIN, REPAIR, Finding, Findings
from gantry_deploy.dataset.checks.frames import FrameChecker
from gantry_deploy.dataset.checks.videos import check_videos
from gantry_deploy.dataset.notes import NOTES, read_notes, recorded_contract
from gantry_deploy.dataset.stats import Stats, from_columns
from gantry_deploy.dataset.storage.checksums import CHANGED, CHECKSUMS, Checksums, compare_checksums
from gantry_deploy.dataset.storage.files import TEMPORARY, FolderLock
from gantry_deploy.dataset.storage.layout import (
    EPISODES,
    INFO,
    TASKS,
    EpisodeRow,
    Info,
    OtherVersionError,
    read_parquet,
    read_tasks,
)
from gantry_deploy.dataset.storage.resume import load_tails
from gantry_deploy.errors import DatasetError

_FOLDERS = ("meta", "data")
_FIX_INFO = "correct the file by hand, or take it from a backup"
_CONVERT = "convert it with the script that the message names, from the lerobot package; nothing in it is broken"


def check_dataset(folder: str | Path, *, decode: bool = False) -> list[Finding]:
    """Check a dataset: files, rows, timestamps, videos, numbers, statistics, tasks.

    Args:
        folder: Of the dataset.
        decode: Also decode every picture, and compare the cameras' statistics with what they show. Takes long.

    Returns:
        What is wrong; empty if nothing is.

    Raises:
        DatasetError: If nothing in the folder is of a dataset.
    """
    folder = Path(folder)
    found = Findings()
    try:
        info = Info.read(folder)
    except OtherVersionError as error:
        found.add(INFO, str(error), _CONVERT)
        return found.all()
    except DatasetError as error:
        if not any((folder / name).is_dir() for name in _FOLDERS):
            raise
        found.add(INFO, str(error), _FIX_INFO)
        return found.all()
    _check_checksums(folder, found)
    _check_notes(folder, found)
    for path in sorted(folder.rglob(f"*{TEMPORARY}")):
        found.add(str(path.relative_to(folder)), "is left over from a writer that was killed", REPAIR)
    tasks = _check_tasks(folder, info, found)
    episodes = _check_episodes(folder, info, tasks, found)
    FrameChecker(folder, info, tasks, found).check(episodes, decode=decode)
    check_videos(folder, info, [row for row, _ in episodes], found)
    _check_strays(folder, info, [row for row, _ in episodes], found)
    return found.all()


def repair_dataset(folder: str | Path) -> None:
    """Remove what belongs to no whole episode: files and rows that a killed writer left behind.

    Raises:
        DatasetError: If something that does belong to an episode is missing, or another process writes into the folder.
    """
    folder = Path(folder)
    info = Info.read(folder)
    lock = FolderLock(folder)
    try:
        load_tails(folder, info)
    finally:
        lock.release()


def has_checksums(folder: str | Path) -> bool:
    """Whether a dataset has checksums; without them numbers that fit their statistics may have been changed."""
    return (Path(folder) / CHECKSUMS).is_file()


def _check_checksums(folder: Path, found: Findings) -> None:
    """Every file is as it was written."""
    try:
        checksums = Checksums.read(folder)
    except DatasetError as error:
        found.add(CHECKSUMS, str(error), CHANGED)
        return
    for finding in [] if checksums is None else compare_checksums(folder, checksums):
        found.add(finding.place, finding.problem, finding.advice)


def _check_notes(folder: Path, found: Findings) -> None:
    """Check that Gantry's notes beside the dataset can be read."""
    try:
        notes = read_notes(folder)
        if notes is not None:
            recorded_contract(notes, folder)
    except DatasetError as error:
        found.add(NOTES, str(error), "take the file from a backup, or collect the dataset anew")


def _check_tasks(folder: Path, info: Info, found: Findings) -> list[str]:
    """The tasks by their index; empty if they cannot be read."""
    if not info.total_episodes and not (folder / TASKS).is_file():
        return []
    try:
        tasks = read_tasks(folder / TASKS)
    except DatasetError as error:
        found.add(TASKS, str(error), _FIX_INFO)
        return []
    if len(tasks) != info.total_tasks:
        found.add(INFO, f"total_tasks is {info.total_tasks}, and {TASKS} holds {len(tasks)}", REPAIR)
    for task in sorted({task for task in tasks if tasks.count(task) > 1}):
        found.add(TASKS, f"the task '{task}' stands there {tasks.count(task)} times, expected once", _FIX_INFO)
    return tasks


def _check_episodes(folder: Path, info: Info, tasks: list[str], found: Findings) -> list[tuple[EpisodeRow, Stats]]:
    """Rows of ``meta/episodes`` that can be used, with their statistics."""
    rows: list[tuple[EpisodeRow, Stats]] = []
    paths = sorted((folder / EPISODES).glob("*/*.parquet"))
    if not paths and info.total_episodes:
        found.add(EPISODES, f"there is no file, and {INFO} counts {info.total_episodes} episodes", _FIX_INFO)
    for path in paths:
        place = str(path.relative_to(folder))
        try:
            table = read_parquet(path)
        except DatasetError as error:
            found.add(place, str(error), "take the file from a backup; a writer that never finished it lost its end")
            continue
        rows += _rows_of(table, place, info, found)
    _check_order(info, rows, found)
    for row, _ in rows:
        for task in row.tasks:
            if tasks and task not in tasks:
                found.add(f"{EPISODES}: episode {row.index}", f"its task '{task}' is not in {TASKS}", _FIX_INFO)
    return rows


def _rows_of(table: pa.Table, place: str, info: Info, found: Findings) -> list[tuple[EpisodeRow, Stats]]:
    rows, left_over = [], 0
    for data in table.to_pylist():
        try:
            row = EpisodeRow.from_columns(data, info.video_keys)
        except DatasetError as error:
            found.add(place, str(error), RECORD_AGAIN)
            continue
        if row.index >= info.total_episodes:
            left_over += 1
        else:
            rows.append((row, from_columns(data)))
    if left_over:
        found.add(place, f"{left_over} rows of episodes that {INFO} does not count", REPAIR)
    return rows


def _check_order(info: Info, rows: list[tuple[EpisodeRow, Stats]], found: Findings) -> None:
    """Episodes are numbered without gaps, and so are their frames."""
    numbers = [row.index for row, _ in rows]
    if numbers != list(range(info.total_episodes)):
        missing = sorted(set(range(info.total_episodes)) - set(numbers))
        said = f"episodes {missing[:10]} are missing" if missing else "episodes are out of order or there twice"
        found.add(EPISODES, f"{said}; expected 0 to {info.total_episodes - 1}", _FIX_INFO)
    start = 0
    for row, _ in rows:
        if row.start != start or row.stop - row.start != row.length or row.length < 1:
            found.add(
                f"{EPISODES}: episode {row.index}",
                f"has frames {row.start} to {row.stop} and length {row.length}, expected to begin at {start}",
                _FIX_INFO,
            )
        start = row.stop
    total = sum(row.length for row, _ in rows)
    if total != info.total_frames:
        found.add(INFO, f"total_frames is {info.total_frames}, and the episodes have {total}", _FIX_INFO)


def _check_strays(folder: Path, info: Info, episodes: list[EpisodeRow], found: Findings) -> None:
    """Files that no episode refers to; LeRobot reads every data file that it finds, and counts on."""
    used = {info.data_file(row.data_file) for row in episodes}
    for path in sorted((folder / "data").glob("*/*.parquet")):
        name = str(path.relative_to(folder))
        if name not in used:
            found.add(name, "belongs to no episode, and LeRobot would read it all the same", REPAIR)
    videos = {info.video_file(key, span.file) for row in episodes for key, span in row.videos.items()}
    for path in sorted((folder / "videos").glob("*/*/*.mp4")):
        name = str(path.relative_to(folder))
        if name not in videos:
            found.add(name, "belongs to no episode", REPAIR)
