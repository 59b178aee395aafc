"""What is written is read back, frame by frame and number by number; what does not fit is refused by its name."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from gantry_deploy.dataset import LOSSLESS, Dataset, DatasetWriter, StepRecorder, camera, rl_features, scalar, vector
from gantry_deploy.dataset import stats as statistics
from gantry_deploy.dataset.features import Feature
from gantry_deploy.dataset.storage import tails
from gantry_deploy.dataset.testing import FEATURES, FRONT, LENGTHS, WRIST, assert_holds, make_frames, write_episodes
from gantry_deploy.errors import DatasetError
from gantry_hardware.errors import GantryError, UnknownNameError

STATE_ONLY = {key: FEATURES[key] for key in ("observation.state", "action", "next.reward", "next.success")}


def test_every_frame_comes_back(stored):
    dataset = Dataset(stored)
    assert_holds(dataset)
    assert (dataset.fps, dataset.robot_type, dataset.tasks) == (20, "tiny", ["push", "lift the cube"])
    assert dataset.features == FEATURES
    frames = dataset.frames(2)
    np.testing.assert_array_equal(frames["timestamp"], np.arange(8, dtype=np.float32) / 20)
    np.testing.assert_array_equal(frames["index"], np.arange(6, 14))
    assert (set(frames["episode_index"]), set(frames["task_index"])) == ({2}, {0})
    assert frames["observation.grid"].dtype == np.float64
    np.testing.assert_array_equal(
        dataset.images(2, "observation.images.front", 3, 6), frames["observation.images.front"][3:6]
    )
    assert dataset.columns(["action"])["action"].shape == (sum(LENGTHS), 2)
    assert "observation.images.front" not in dataset.frames(0, images=False)
    with pytest.raises(UnknownNameError, match="Did you mean 'action'"):
        dataset.frames(0, ["acton"])
    with pytest.raises(DatasetError, match=r"no episode 4; .* has 4"):
        dataset.frames(4)


def test_files_are_laid_out_as_lerobot_does(stored):
    paths = sorted(str(path.relative_to(stored)) for path in stored.rglob("*") if path.is_file())
    assert paths == [
        "data/chunk-000/file-000.parquet",
        "meta/checksums.json",
        "meta/episodes/chunk-000/file-000.parquet",
        "meta/info.json",
        "meta/stats.json",
        "meta/tasks.parquet",
        "videos/observation.images.front/chunk-000/file-000.mp4",
    ]
    info = json.loads((stored / "meta/info.json").read_text())
    assert (info["codebase_version"], info["splits"]) == ("v3.0", {"train": "0:4"})
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (4, 17, 2)
    assert info["features"]["observation.state"] == {
        "dtype": "float32",
        "shape": [3],
        "names": ["a", "b", "c"],
        "unit": "rad",
    }
    assert info["features"]["observation.images.front"]["info"]["video.width"] == 24
    data = pq.ParquetFile(stored / "data/chunk-000/file-000.parquet")
    assert data.num_row_groups == len(LENGTHS), "LeRobot streams a row group per episode"
    assert str(data.schema_arrow.field("observation.state").type) == "fixed_size_list<element: float>[3]"
    row = pq.read_table(stored / "meta/episodes/chunk-000/file-000.parquet").to_pylist()[2]
    assert (row["dataset_from_index"], row["dataset_to_index"], row["tasks"]) == (6, 14, ["push"])
    span = [row[f"videos/observation.images.front/{edge}_timestamp"] for edge in ("from", "to")]
    assert span == pytest.approx([0.3, 0.7]), "six frames at 20 Hz come before, eight are its own"


def test_statistics_by_hand(tmp_path):
    features = {"x": vector(["one", "ten"]), "flag": scalar("bool"), "grid": Feature("float32", (2, 2))}
    with DatasetWriter(tmp_path / "d", 10, features) as writer:
        for values in ([1, 2, 3, 4], [9]):
            for value in values:
                grid = np.array([[value, 0], [value + 2, 0]], np.float32)
                writer.add_frame({"x": np.array([value, 10 * value], np.float32), "flag": value > 2, "grid": grid})
            writer.end_episode("count")
    dataset = Dataset(tmp_path / "d")
    first = dataset.episode_stats(0)["x"]
    assert {key: first[key][0] for key in ("min", "max", "mean", "count")} == {
        "min": 1,
        "max": 4,
        "mean": 2.5,
        "count": 4,
    }
    assert first["std"] == pytest.approx([1.25**0.5, 10 * 1.25**0.5])
    assert [first[key][0] for key in statistics.QUANTILES] == [1, 1, 2, 4, 4], (
        "the first value not exceeded by q of all"
    )
    total = dataset.stats["x"]
    assert total["mean"] == pytest.approx([3.8, 38.0])
    assert total["std"][0] == pytest.approx(np.std([1, 2, 3, 4, 9]))
    assert total["q50"][0] == pytest.approx((4 * 2 + 1 * 9) / 5), "LeRobot averages episodes' quantiles by their counts"
    assert (dataset.stats["flag"]["min"].tolist(), dataset.stats["flag"]["mean"].tolist()) == ([False], [0.6])
    assert dataset.episode_stats(0)["grid"]["mean"].tolist() == [3.5, 0.0], "over all but the last dimension"
    assert dataset.stats["timestamp"]["max"] == pytest.approx([0.3])


def test_statistics_of_pictures_are_those_of_their_pixels(stored):
    dataset = Dataset(stored)
    for key in ("observation.images.front", "observation.images.wrist"):
        pixels = dataset.frames(2, [key])[key].reshape(-1, 3) / 255.0
        stats = dataset.episode_stats(2)[key]
        assert stats["mean"].shape == (3, 1, 1)
        np.testing.assert_allclose(stats["mean"].ravel(), pixels.mean(axis=0))
        np.testing.assert_allclose(stats["std"].ravel(), pixels.std(axis=0))
        np.testing.assert_allclose(stats["max"].ravel(), pixels.max(axis=0))
        np.testing.assert_allclose(stats["q10"].ravel(), np.quantile(pixels, 0.1, axis=0, method="inverted_cdf"))
        assert stats["count"].tolist() == [8]


def test_large_pictures_are_looked_at_coarsely():
    picture = np.zeros((300, 200, 3), np.uint8)
    picture[::2, ::2] = 51
    seen = statistics.ImageStats()
    seen.add(picture)
    assert seen.result()["mean"].ravel() == pytest.approx([0.2] * 3), "every second row and column, which are bright"


def test_small_files_roll_over_and_appending_goes_on_in_the_newest(tmp_path, monkeypatch):
    monkeypatch.setattr(tails, "TABLE_BYTES", 7000)
    monkeypatch.setattr(tails, "VIDEO_BYTES", 9000)
    lengths = (5, 1, 8, 3, 6, 2)
    for begin in (0, 2, 4):
        with DatasetWriter(tmp_path / "d", 20, FEATURES, "tiny", resume=True, codec=LOSSLESS) as writer:
            assert writer.num_episodes == begin
            write_episodes(writer, lengths[begin : begin + 2], begin)
    dataset = Dataset(tmp_path / "d")
    assert_holds(dataset, lengths)
    files = {row.data_file for row in dataset.episodes}
    videos = {row.videos["observation.images.front"].file for row in dataset.episodes}
    assert 1 < len(files) < len(lengths)
    assert 1 < len(videos) < len(lengths)
    assert dataset.stats["action"]["count"].tolist() == [25]
    np.testing.assert_allclose(
        dataset.stats["action"]["mean"], dataset.columns(["action"])["action"].mean(axis=0), rtol=1e-5
    )


def test_a_video_of_another_encoding_gets_a_file_of_its_own(tmp_path, stored):
    shutil.copytree(stored, tmp_path / "d")
    with DatasetWriter(tmp_path / "d", 20, FEATURES, "tiny", resume=True) as writer:  # Lossy, not as before.
        write_episodes(writer, (4, 2), 4)
    dataset = Dataset(tmp_path / "d")
    key = "observation.images.front"
    assert [row.videos[key].file[1] for row in dataset.episodes] == [0, 0, 0, 0, 1, 1]
    assert dataset.images(5, key).shape == (2, 16, 24, 3)


def test_lossy_video_is_close_for_smooth_pictures(tmp_path):
    rows, cols = np.meshgrid(np.linspace(0, 200, 48), np.linspace(0, 250, 64), indexing="ij")
    pictures = [np.stack([rows, cols, np.full_like(rows, 5 * t)], axis=-1).astype(np.uint8) for t in range(6)]
    with DatasetWriter(tmp_path / "d", 30, {"cam": camera(48, 64)}) as writer:
        for picture in pictures:
            writer.add_frame({"cam": picture})
        writer.end_episode("look")
    assert np.abs(Dataset(tmp_path / "d").images(0, "cam").astype(int) - pictures).max() <= 12


def test_ends_by_itself_and_ends_that_were_cut_off_are_told_apart(tmp_path):
    with DatasetWriter(tmp_path / "d", 10, rl_features()) as writer:
        for truncated in (False, True):
            for step in range(2):
                last = step == 1
                flags = {
                    "next.done": last,
                    "next.truncated": last and truncated,
                    "next.success": last and not truncated,
                }
                writer.add_frame({"next.reward": 0.0, **flags})
            writer.end_episode("end")
    dataset = Dataset(tmp_path / "d")
    assert dataset.terminations(0).tolist() == [False, True]
    assert dataset.terminations(1).tolist() == [False, False]
    assert dataset.successes().tolist() == [True, False]


NAN = np.array([0.0, np.nan, 1.0], np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation.state": NAN}, r"Frame 1: 'observation.state' is not finite: b = nan"),
        ({"observation.state": np.zeros(3)}, r"is float64 of shape \(3,\), expected float32 of shape \(3,\)"),
        ({"observation.state": np.zeros(4, np.float32)}, r"shape \(4,\), expected float32 of shape \(3,\)"),
        ({"observation.grid": np.full((2, 3), np.inf)}, r"\[0, 0\] = inf, .* and 1 more"),
        ({"next.done": 1}, "'next.done' is 1, expected bool"),
        ({"level": 1.0}, "'level' is 1.0, expected int64"),
        ({"level": 2**63}, "expected int64"),
        ({"note": 3}, "'note' is 3, expected text"),
        ({"observation.images.front": np.zeros((16, 24, 3))}, "is float64 .*, expected uint8"),
        ({"observation.images.front": np.zeros((24, 16, 3), np.uint8)}, r"expected uint8 of shape \(16, 24, 3\)"),
        ({"acton": 1.0}, "Unknown feature in frame 1 'acton'. Did you mean 'action'"),
        ({"action": None}, r"'action' is object of shape \(\), expected float32 of shape \(2,\)"),
    ],
)
def test_frames_that_do_not_fit_are_refused_and_change_nothing(tmp_path, change, message):
    good = make_frames(2)
    with DatasetWriter(tmp_path / "d", 20, FEATURES, "tiny", codec=LOSSLESS) as writer:
        writer.add_frame(good[0])
        with pytest.raises(GantryError, match=message):
            writer.add_frame(good[1] | change)
        with pytest.raises(DatasetError, match="Frame 1 lacks action; expected all of"):
            writer.add_frame({key: value for key, value in good[1].items() if key != "action"})
        writer.add_frame(good[1])
        writer.end_episode("push")
    assert_holds(Dataset(tmp_path / "d"), (2,))


def test_arrays_are_copied(tmp_path):
    state = np.zeros(3, np.float32)
    with DatasetWriter(tmp_path / "d", 20, {"x": vector(3)}) as writer:
        for value in (1.0, 2.0):
            state[:] = value
            writer.add_frame({"x": state})
        writer.end_episode("t")
    assert Dataset(tmp_path / "d").frames(0)["x"][:, 0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fps": 12.5}, "fps is 12.5, expected a whole number"),
        ({"features": {}}, "at least one feature"),
        ({"features": {"timestamp": scalar()}}, "'timestamp' is added by the dataset itself"),
        ({"features": {"../x": scalar()}}, r"Feature name '\.\./x' is not allowed"),
        ({"features": {"x": Feature("float33", (1,))}}, "Did you mean 'float32'"),
        ({"features": {"x": Feature("float32", ())}}, r"shape \(\), expected .* a single value has shape \(1,\)"),
        ({"features": {"x": Feature("float32", (3,), ("a", "b"))}}, "2 names for a last dimension of 3: a, b"),
        ({"features": {"cam": Feature("video", (8, 8))}}, r"Camera 'cam' has shape \(8, 8\)"),
        ({"features": {"cam": camera(15, 16)}}, "15 x 16 pixels .* needs even numbers"),
    ],
)
def test_datasets_that_cannot_be_are_refused_before_a_folder_is_made(tmp_path, arguments, message):
    with pytest.raises(GantryError, match=message):
        DatasetWriter(tmp_path / "d", **{"fps": 10, "features": {"x": scalar()}, **arguments})
    assert not (tmp_path / "d").exists()


def test_folders_that_hold_something_else_are_refused(tmp_path, stored):
    (tmp_path / "file.txt").write_text("mine")
    with pytest.raises(DatasetError, match="is not empty and holds no dataset"):
        DatasetWriter(tmp_path, 10, {"x": scalar()})
    with pytest.raises(DatasetError, match="holds a dataset already; resume=True"):
        DatasetWriter(stored, 20, FEATURES, "tiny")
    other = {**FEATURES, "action": vector(["x", "z"]), "more": scalar()}
    with pytest.raises(DatasetError) as error:
        DatasetWriter(stored, 30, other, "go2", resume=True)
    for part in (
        "fps is 20 there and 30 here",
        "robot_type is 'tiny' there and 'go2' here",
        "'more' is missing there",
        "('x', 'z')",
    ):
        assert part in str(error.value)
    with pytest.raises(DatasetError, match=r"is no dataset: there is no meta/info\.json"):
        Dataset(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data_path": "../{chunk_index}.parquet"}, "data_path is .*expected a path within the dataset"),
        ({"video_path": "/etc/{file_index}"}, "video_path is"),
        ({"data_path": "data/{chunk_index.__class__}.parquet"}, "data_path is"),
        ({"codebase_version": "v2.1"}, "codebase_version is 'v2.1', expected 'v3.0'.*convert_dataset_v21_to_v30"),
        ({"fps": 0}, "fps is 0, expected a whole number of at least 1"),
        ({"total_episodes": 5}, "counts 5 episodes, and meta/episodes describes"),
        ({"features": {"x": {"dtype": "float32", "shape": [10**9]}}}, "at most 10000000 numbers"),
        ({"features": {"x": {"dtype": "float32", "shape": [1]}}}, "features lack timestamp"),
    ],
)
def test_descriptions_from_anywhere_are_not_trusted(tmp_path, stored, change, message):
    shutil.copytree(stored, tmp_path / "d")
    path = tmp_path / "d/meta/info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DatasetError, match=message):
        Dataset(tmp_path / "d")


def test_pictures_of_another_size_are_not_decoded(tmp_path, stored):
    shutil.copytree(stored, tmp_path / "d")
    path = tmp_path / "d/meta/info.json"
    info = json.loads(path.read_text())
    for key, shape in ((FRONT, [8, 24, 3]), (WRIST, [7, 7, 3])):
        info["features"][key]["shape"] = shape
    path.write_text(json.dumps(info))
    for key, message in ((FRONT, "has 16 x 24 pixels, expected 8 x 24"), (WRIST, "has 7 x 9 pixels, expected 7 x 7")):
        with pytest.raises(DatasetError, match=message):
            Dataset(tmp_path / "d").images(0, key)


def test_environments_fill_one_dataset_with_whole_episodes(tmp_path):
    ends = {0: (2, 5), 1: (3,), 2: ()}  # Steps after which each environment's episodes end.
    with DatasetWriter(tmp_path / "d", 10, STATE_ONLY) as writer:
        recorder = StepRecorder(writer, 3, ["push", "lift", "pull"], only_successes=True)
        numbers = []
        for step in range(1, 7):
            ended = np.array([step in ends[env] for env in range(3)])
            frames = {
                "observation.state": np.array([[env, step, 0] for env in range(3)], np.float32),
                "action": np.zeros((3, 2), np.float32),
                "next.reward": np.arange(3, dtype=np.float32),
                "next.success": ended & (np.arange(3) == 0),  # The episode of environment 1 fails.
            }
            numbers += recorder.record_steps(frames, ended)
        assert (numbers, recorder.left_out) == ([0, 1], 1)
        with pytest.raises(DatasetError, match=r"'action' has shape \(2, 2\), expected 3 environments first"):
            recorder.record_steps(frames | {"action": np.zeros((2, 2), np.float32)}, ended)
    dataset = Dataset(tmp_path / "d")
    states = [dataset.frames(number)["observation.state"][:, :2].tolist() for number in range(2)]
    assert states == [[[0, 1], [0, 2]], [[0, 3], [0, 4], [0, 5]]]
    assert dataset.tasks == ["push"]


def test_a_recorder_stops_at_the_number_that_was_asked_for(tmp_path):
    with DatasetWriter(tmp_path / "d", 10, {"x": scalar()}) as writer:
        recorder = StepRecorder(writer, 4, "t", max_episodes=6)
        for _ in range(3):
            recorder.record_steps({"x": np.zeros(4, np.float32)}, np.ones(4, bool))
        assert (recorder.done, writer.num_episodes, recorder.left_out) == (True, 6, 2)
