"""Against the real ``lerobot`` package, where it is installed: it reads what is written here, and the other way round.

Nothing of Gantry needs ``lerobot``; its pins are older than Gantry's, so that it lives in an environment of its own:
install it there, then ``pip install --no-deps -e .`` and ``pytest tests/deploy/dataset/test_lerobot.py``.
"""

import os
from importlib.metadata import version

import numpy as np
import pytest

pytest.importorskip("lerobot")
os.environ["HF_HUB_OFFLINE"] = "1"

from lerobot.datasets.compute_stats import aggregate_stats, compute_episode_stats
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from gantry_deploy.dataset import Dataset, DatasetWriter, camera
from gantry_deploy.dataset.checks.check import check_dataset
from gantry_deploy.dataset.features import DEFAULT_FEATURES
from gantry_deploy.dataset.stats import QUANTILES
from gantry_deploy.dataset.testing import FEATURES, FRONT, TASKS, WRIST, make_frames, write_episodes

LENGTHS = (5, 3, 8)
BINS = 5000
OVERFLOWS = version("lerobot").startswith("0.4")
"""LeRobot 0.4 squares bytes as bytes, so that its deviations of pictures are wrong; 0.6 does not."""


@pytest.fixture(autouse=True)
def no_cache(tmp_path, monkeypatch):
    """What the datasets package remembers of a folder stays in the test."""
    config = pytest.importorskip("datasets.config")
    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")


def opened(folder):
    return LeRobotDataset("someone/something", root=folder, video_backend="pyav")


def smooth(frames):
    """Pictures that survive a lossy video."""
    rows, cols = np.meshgrid(np.linspace(0, 200, 64), np.linspace(0, 250, 96), indexing="ij")
    for step, frame in enumerate(frames):
        if FRONT in frame:
            frame[FRONT] = np.stack([rows, cols, np.full_like(rows, 5 * step)], axis=-1).astype(np.uint8)
    return frames


def record(theirs, frames, task):
    """An episode through LeRobot, which wants single values as arrays."""
    for frame in frames:
        for key, item in FEATURES.items():
            if item.shape == (1,) and item.is_number:
                frame[key] = np.array([frame[key]], dtype=item.dtype)
        theirs.add_frame({**frame, "task": task})
    theirs.save_episode(parallel_encoding=False)


def test_lerobot_reads_ours_with_equal_frames_and_statistics(stored):
    ours, theirs = Dataset(stored), opened(stored)
    assert (theirs.num_episodes, len(theirs), theirs.fps) == (ours.num_episodes, ours.num_frames, ours.fps)
    assert theirs.meta.robot_type == "tiny"
    frames = [frame for row in ours.episodes for frame in ours.iter_frames(row.index)]
    for index, frame in enumerate(frames):
        item = theirs[index]
        for key, value in frame.items():
            if key == "note":
                assert item[key] == value
            elif ours.features[key].is_image:
                seen = np.round(255 * item[key].numpy().transpose(1, 2, 0)).astype(np.uint8)
                np.testing.assert_array_equal(seen, value, err_msg=key)
            else:
                seen = item[key].numpy()  # In single precision, whatever was stored.
                np.testing.assert_array_equal(np.squeeze(seen), np.squeeze(value).astype(seen.dtype), err_msg=key)
        assert item["task"] == TASKS[int(item["episode_index"]) % 2]
    for key, stats in ours.stats.items():
        for name, values in stats.items():
            np.testing.assert_array_equal(theirs.meta.stats[key][name], values, err_msg=f"{key} {name}")


def test_lerobot_computes_the_same_statistics(tmp_path):
    features = {key: item for key, item in FEATURES.items() if item.is_number}
    with DatasetWriter(tmp_path / "d", 20, features, "tiny") as writer:
        write_episodes(writer, LENGTHS)
    ours = Dataset(tmp_path / "d")
    described = {name: item.to_json() for name, item in ours.info.features.items()}
    parts = [compute_episode_stats(ours.frames(row.index), described) for row in ours.episodes]
    theirs = aggregate_stats(parts)
    for key, stats in ours.stats.items():
        for name, values in stats.items():
            # Quantiles are read off a histogram there: a bin of the widest episode.
            widest = max(float(np.max(part[key]["max"].astype(float) - part[key]["min"])) for part in parts)
            slack = widest / BINS + 1e-9 if name in QUANTILES else 0.0
            scale = 1e-3 if name == "std" else 1e-5  # They add up squares in single precision.
            expected = theirs[key][name]
            np.testing.assert_allclose(values, expected, rtol=scale, atol=scale + slack, err_msg=f"{key} {name}")


def test_what_lerobot_wrote_is_read_continued_and_checked(tmp_path):
    folder = tmp_path / "d"
    features = {**FEATURES, FRONT: camera(64, 96)}  # The encoder that LeRobot uses crashes with tiny pictures.
    described = {name: {**item.to_json(), "shape": item.shape} for name, item in features.items()}
    theirs = LeRobotDataset.create("someone/something", fps=20, features=described, root=folder, robot_type="tiny")
    for number, length in enumerate(LENGTHS):
        record(theirs, smooth(make_frames(length, number)), TASKS[number % 2])
    theirs.finalize()

    ours = Dataset(folder)
    assert [row.length for row in ours.episodes] == list(LENGTHS)
    numbers = [key for key, item in FEATURES.items() if not item.is_image and key != "note"]
    for number, length in enumerate(LENGTHS):
        frames = ours.frames(number)
        expected = smooth(make_frames(length, number))
        assert frames["note"] == [frame["note"] for frame in expected]
        for key in numbers:
            np.testing.assert_array_equal(
                np.squeeze(frames[key]), np.squeeze([frame[key] for frame in expected]), err_msg=key
            )
        np.testing.assert_array_equal(frames[WRIST], [frame[WRIST] for frame in expected])
        assert np.abs(frames[FRONT].astype(int) - [frame[FRONT] for frame in expected]).max() < 25
    assert check_dataset(folder) == []
    wrong = {item.problem.split(" is ")[0] for item in check_dataset(folder, decode=True)}
    assert wrong == ({f"std of '{FRONT}'", f"std of '{WRIST}'"} if OVERFLOWS else set())

    with DatasetWriter(folder, 20, features, "tiny", resume=True) as writer:
        for frame in smooth(make_frames(4, len(LENGTHS))):
            writer.add_frame(frame)
        writer.end_episode("pull")
    assert check_dataset(folder) == []
    again = opened(folder)
    assert (again.num_episodes, len(again)) == (4, 20)
    np.testing.assert_array_equal(again[19]["action"].numpy(), make_frames(4, 3)[-1]["action"])
    assert again[19][FRONT].shape == (3, 64, 96)
    assert [again[index]["task"] for index in (0, 5, 19)] == ["push", "lift the cube", "pull"]


def test_lerobot_continues_ours(tmp_path):
    folder = tmp_path / "d"
    with DatasetWriter(folder, 20, {**FEATURES, FRONT: camera(64, 96)}, "tiny") as writer:
        for frame in smooth(make_frames(4)):
            writer.add_frame(frame)
        writer.end_episode("push")
    if hasattr(LeRobotDataset, "resume"):
        theirs = LeRobotDataset.resume("someone/something", root=folder)
    else:
        theirs = opened(folder)
        theirs.episode_buffer = theirs.create_episode_buffer()
    record(theirs, smooth(make_frames(3, 1)), "pull")
    theirs.finalize()
    ours = Dataset(folder)
    assert ([row.length for row in ours.episodes], ours.tasks) == ([4, 3], ["push", "pull"])
    np.testing.assert_array_equal(ours.frames(1)["action"], [frame["action"] for frame in make_frames(3, 1)])
    assert check_dataset(folder) == []


def test_lerobot_reads_what_a_killed_writer_left_behind(tmp_path):
    """Every file but the description is that of one more episode; it must not show."""
    features = {key: FEATURES[key] for key in ("observation.state", "action", FRONT)}
    with DatasetWriter(tmp_path / "d", 20, features, "tiny") as writer:
        write_episodes(writer, (4,))
        before = (tmp_path / "d/meta/info.json").read_bytes()
        write_episodes(writer, (3,), first=1)
    (tmp_path / "d/meta/info.json").write_bytes(before)
    theirs = opened(tmp_path / "d")
    assert (theirs.num_episodes, len(theirs)) == (1, 4)
    np.testing.assert_array_equal(theirs[3]["action"].numpy(), make_frames(4)[-1]["action"])
    assert Dataset(tmp_path / "d").num_episodes == 1


def test_the_columns_that_a_dataset_adds_are_those_of_lerobot():
    names = pytest.importorskip("lerobot.datasets.utils")
    theirs = getattr(names, "DEFAULT_FEATURES", None)
    if theirs is None:
        from lerobot.utils.constants import DEFAULT_FEATURES as theirs  # Where 0.6 has them.
    assert {key: item["dtype"] for key, item in theirs.items()} == {
        key: item.dtype for key, item in DEFAULT_FEATURES.items()
    }
