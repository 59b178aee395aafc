"""Everything that can be wrong with a dataset is provoked once and found where it is."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gantry_deploy.dataset import LOSSLESS, DatasetWriter, camera
from gantry_deploy.dataset.checks.check import check_dataset
from gantry_deploy.dataset.checks.findings import Finding
from gantry_deploy.dataset.stats import from_plain
from gantry_deploy.dataset.storage.checksums import accept_changes
from gantry_deploy.dataset.testing import FRONT, WRIST
from gantry_deploy.dataset.video import VideoEncoder, encode_png, join_videos
from gantry_deploy.errors import DatasetError

INFO, STATS, TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
DATA = "data/chunk-000/file-000.parquet"
VIDEO = f"videos/{FRONT}/chunk-000/file-000.mp4"


def info(**changes):
    return lambda folder: _json(folder / INFO, lambda data: data.update(changes))


def stats(key, name, value):
    return lambda folder: _json(folder / STATS, lambda data: data[key].update({name: value}))


def cell(file, column, row, value):
    """One value of a table replaced."""

    def change(table):
        values = table[column].to_pylist()
        values[row] = value
        index = table.column_names.index(column)
        kind = table.schema.field(index).type
        if value is None:  # Arrow could long not write a missing list of fixed length.
            kind = pa.list_(kind.value_type)
        return table.set_column(index, pa.field(column, kind), pa.array(values, kind))

    return table(file, change)


def table(file, change):
    return lambda folder: pq.write_table(change(pq.read_table(folder / file)), folder / file)


def missing(file):
    return lambda folder: (folder / file).unlink()


def spoilt(file):
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:-200])


def copied(source, target):
    return lambda folder: shutil.copy(folder / source, folder / target)


def shorter_video(folder):
    (folder / VIDEO).write_bytes(join_videos(folder / VIDEO, 15, [], 20))


def other_video(height, width, fps):
    def change(folder):
        encoder = VideoEncoder((height, width, 3), fps, LOSSLESS)
        for _ in range(17):
            encoder.add(np.zeros((height, width, 3), np.uint8))
        (folder / VIDEO).write_bytes(encoder.finish())

    return change


def _json(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


SMALL = {"bytes": encode_png(np.zeros((4, 4, 3), np.uint8)), "path": ""}
NAN = [float("nan"), 0.0, 0.0]
CASES = {
    "no description": (missing(INFO), INFO, "is no dataset", "backup"),
    "other version": (info(codebase_version="v2.1"), INFO, "codebase_version is 'v2.1'", "convert it"),
    "frames miscounted": (info(total_frames=18), INFO, "total_frames is 18, and the episodes have 17", "by hand"),
    "tasks miscounted": (info(total_tasks=3), INFO, "total_tasks is 3, and meta/tasks.parquet holds 2", "--repair"),
    "episode too many": (info(total_episodes=3), EPISODES, "1 rows of episodes that meta/info.json", "--repair"),
    "episode too few": (info(total_episodes=5), "meta/episodes", "episodes [4] are missing", "by hand"),
    "no tasks": (missing(TASKS), TASKS, "does not exist", "backup"),
    "task numbers": (cell(TASKS, "task_index", 1, 0), TASKS, "task_index holds [0, 0]", "by hand"),
    "task twice": (cell(TASKS, "__index_level_0__", 1, "push"), TASKS, "'push' stands there 2 times", "by hand"),
    "task unknown": (cell(EPISODES, "tasks", 2, ["pull"]), "episode 2", "'pull' is not in", "by hand"),
    "no episodes": (missing(EPISODES), "meta/episodes", "there is no file", "backup"),
    "episodes cut off": (spoilt(EPISODES), EPISODES, "cannot be read as Parquet", "never finished"),
    "episode missing": (table(EPISODES, lambda t: t.slice(1)), "meta/episodes", "episodes [0] are missing", "by hand"),
    "wrong length": (cell(EPISODES, "length", 0, 4), "episode 0", "has frames 0 to 5 and length 4", "by hand"),
    "no data": (missing(DATA), DATA, "does not exist", "backup"),
    "data cut off": (spoilt(DATA), DATA, "cannot be read as Parquet", "backup"),
    "column missing": (table(DATA, lambda t: t.drop_columns(["action"])), DATA, "lacks the columns action", "backup"),
    "row missing": (table(DATA, lambda t: t.slice(0, 16)), DATA, "has 16 rows, and its episodes 17", "backup"),
    "rows left over": (table(DATA, lambda t: pa.concat_tables([t, t])), DATA, "has 34 rows", "--repair"),
    "timestamp": (cell(DATA, "timestamp", 7, 0.07), "episode 2", "is 0.0700 s in frame 1, expected 0.0500", "again"),
    "rate": (info(fps=30), DATA, "expected 0.0333 s at 30 Hz", "again"),
    "not a number": (cell(DATA, "observation.state", 8, NAN), "episode 2", "is not finite in frames 2", "again"),
    "nothing": (cell(DATA, "action", 8, None), "episode 2", "'action' has 1 empty rows", "again"),
    "frame number": (
        cell(DATA, "frame_index", 8, 7),
        "episode 2",
        "'frame_index' is 7 in frame 2, expected 2",
        "again",
    ),
    "task index": (cell(DATA, "task_index", 8, 5), "episode 2", "task_index 5 is none, expected one of: push", "again"),
    "other task": (cell(DATA, "task_index", 8, 1), "episode 2", "task_index 1 is 'lift the cube'", "again"),
    "end in the middle": (cell(DATA, "next.done", 8, True), "episode 2", "true in frames 2, before the last", "again"),
    "cut off, not ended": (cell(DATA, "next.truncated", 8, True), "episode 2", "is true where 'next.done'", "again"),
    "no picture": (cell(DATA, WRIST, 6, {"bytes": b"PNG", "path": ""}), "episode 2", "cannot be decoded", "again"),
    "picture size": (*(cell(DATA, WRIST, 6, SMALL), "episode 2", "has 4 x 4 pixels, expected 7 x 9"), "again"),
    "no video": (missing(VIDEO), VIDEO, "does not exist", "backup"),
    "video cut off": (spoilt(VIDEO), VIDEO, "is no video", "backup"),
    "pictures missing": (shorter_video, VIDEO, "has 15 pictures, and its episodes 17", "backup"),
    "pictures of an episode": (shorter_video, "episode 3", "2 pictures are not where they should be", "again"),
    "video size": (other_video(16, 32, 20), VIDEO, "is 16 x 32 pixels, expected 16 x 24", "again"),
    "video rate": (other_video(16, 24, 25), VIDEO, "has 25 pictures per second, expected 20", "again"),
    "video span": (
        *(cell(EPISODES, f"videos/{FRONT}/to_timestamp", 2, 0.9), "episode 2"),
        *("lasts from 0.3000 to 0.9000 s, expected 0.4000 s", "again"),
    ),
    "video overlap": (
        *(cell(EPISODES, f"videos/{FRONT}/from_timestamp", 2, 0.25), "episode 2"),
        *("begins at 0.2500 s, within the episode before", "again"),
    ),
    "no statistics": (missing(STATS), STATS, "cannot be read: No such file", "anew"),
    "mean": (stats("action", "mean", [9.0, 0.0]), STATS, "mean of 'action' is 9.0 at 0, and the frames give", "anew"),
    "count": (stats("action", "count", [16]), STATS, "count of 'action' is 16", "anew"),
    "shape": (stats("action", "std", [1.0]), STATS, "std of 'action' has shape (1,), expected (2,)", "anew"),
    "quantiles": (stats("action", "q10", [9.0, 9.0]), STATS, "quantiles of 'action' do not rise", "anew"),
    "feature": (lambda f: _json(f / STATS, lambda d: d.pop("level")), STATS, "'level' are missing", "anew"),
    "picture stats": (stats(FRONT, "mean", [[[99.0]]] * 3), STATS, "not of shape (3, 1, 1) within 0 and 1", "anew"),
    "no picture stats": (lambda f: _json(f / STATS, lambda d: d.pop(WRIST)), STATS, f"lacks '{WRIST}'", "anew"),
    "episode's mean": (cell(EPISODES, "stats/action/mean", 1, [9.0, 0.0]), "episode 1", "mean of 'action'", "anew"),
    "stray data": (copied(DATA, "data/chunk-000/file-001.parquet"), "file-001", "belongs to no episode", "--repair"),
    "stray video": (copied(VIDEO, f"videos/{FRONT}/chunk-000/file-001.mp4"), "file-001", "belongs to no", "--repair"),
    "unfinished": (copied(DATA, f"{DATA}.unfinished"), f"{DATA}.unfinished", "was killed", "--repair"),
}


def test_a_good_dataset_has_no_findings(stored):
    assert check_dataset(stored, decode=True) == []


def test_a_folder_without_anything_of_a_dataset_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DatasetError, match=r"is no dataset: there is no meta/info\.json in it"):
        check_dataset(tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_found(stored, tmp_path, name):
    spoil, place, problem, advice = CASES[name]
    shutil.copytree(stored, tmp_path / "d")
    spoil(tmp_path / "d")
    findings = check_dataset(tmp_path / "d")
    fitting = [item for item in findings if place in item.place and problem in item.problem and advice in item.advice]
    assert fitting, "\n".join(map(str, findings))


def test_decoding_compares_cameras_with_their_statistics(tmp_path):
    with DatasetWriter(tmp_path / "d", 10, {"cam": camera(8, 8)}, codec=LOSSLESS) as writer:
        for level in (0, 255):
            writer.add_frame({"cam": np.full((8, 8, 3), level, np.uint8)})
        writer.end_episode("blink")
    assert check_dataset(tmp_path / "d", decode=True) == []
    stats("cam", "std", [[[0.001]]] * 3)(tmp_path / "d")
    accept_changes(tmp_path / "d")  # As LeRobot 0.4 computes it: squares of bytes overflow.
    assert check_dataset(tmp_path / "d") == []
    (finding,) = check_dataset(tmp_path / "d", decode=True)
    assert "std of 'cam' is 0.001 in channel 0, and its pictures have 0.5" in finding.problem


def test_one_cause_in_many_episodes_is_not_said_a_thousand_times(tmp_path):
    from gantry_deploy.dataset.checks.findings import Findings

    found = Findings(limit=2)
    for episode in range(5):
        found.add(f"data: episode {episode}", "is broken", "mend it")
    assert [item.problem for item in found.all()] == ["is broken", "is broken", "3 more findings of this kind"]


def test_a_finding_holds_no_control_characters_whatever_a_file_or_a_library_says():
    finding = Finding("a\x1b[2J", "unknown type: \x0f", "line\nline")
    assert (finding.place, finding.problem, finding.advice) == ("a\\x1b[2J", "unknown type: \\x0f", "line\\nline")


def test_statistics_without_numbers_are_none():
    assert from_plain({"level": {"max": [], "min": [0.0], "mean": [[]]}}) == {"level": {"min": np.array([0.0])}}
