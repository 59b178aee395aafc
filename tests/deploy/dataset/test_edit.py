"""Datasets made of others: every frame, number and picture is where it should be, and the others stay as they were."""

import hashlib
import shutil

import numpy as np
import pytest

from gantry_deploy.dataset import LOSSLESS, Dataset, DatasetWriter, VideoCodec, camera, scalar, vector
from gantry_deploy.dataset.checks.check import check_dataset
from gantry_deploy.dataset.edit.arrange import (
    merge_datasets,
    parts_by,
    select_episodes,
    shares_of,
    split_dataset,
)
from gantry_deploy.dataset.edit.relabel import EpisodeLabels, Relabel, RewardRule, read_labels, relabel_dataset
from gantry_deploy.dataset.edit.selection import Acting, Selection, episode_numbers
from gantry_deploy.dataset.edit.videos import cut_video
from gantry_deploy.dataset.features import IS_INTERVENTION
from gantry_deploy.dataset.testing import FEATURES, FRONT, LENGTHS, TASKS, assert_holds, write_episodes
from gantry_deploy.dataset.video import video_facts
from gantry_deploy.errors import DatasetError
from gantry_deploy.session.records.dataset import SessionDataset, SessionReader
from gantry_deploy.testing.sessions import SIZES, attempt
from gantry_hardware.errors import UnknownNameError


def digest_of(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in files)).hexdigest()


def assert_intact(folder):
    assert check_dataset(folder, decode=True) == []


def assert_same_episode(one, index, other, number, frames=slice(None)):
    here, there = one.frames(index), other.frames(number)
    for name in one.features:
        np.testing.assert_array_equal(here[name], there[name][frames], err_msg=name)


def labelled(folder, success=(True, False, True, False), person=((0, 0, 0), (1, 1, 1), (0, 1, 0), (0, 0, 0)), **other):
    """A dataset without cameras whose episodes have three frames."""
    features = {"action": vector(["x"]), "next.success": scalar("bool"), IS_INTERVENTION: scalar("bool")}
    with DatasetWriter(folder, 10, {**features, **other}, "arm") as writer:
        for number, (won, flags) in enumerate(zip(success, person, strict=True)):
            for index, flag in enumerate(flags):
                extra = {name: np.zeros(item.shape, item.dtype) for name, item in other.items()}
                writer.add_frame(
                    {
                        "action": np.float32([10 * number + index]),
                        "next.success": won and index == 2,
                        IS_INTERVENTION: bool(flag),
                        **extra,
                    }
                )
            writer.end_episode(("push", "lift")[number % 2])
    return folder


def test_merged_datasets_hold_every_frame_of_each(stored, tmp_path):
    second = tmp_path / "second"
    with DatasetWriter(second, 20, FEATURES, "tiny", codec=LOSSLESS) as writer:
        write_episodes(writer, (4, 2), first=9)
    before = digest_of(stored)
    done = merge_datasets([stored, second], tmp_path / "both")
    assert (done.episodes, done.frames, done.encoded) == (6, sum(LENGTHS) + 6, 0)
    both = Dataset(tmp_path / "both")
    for index in range(4):
        assert_same_episode(both, index, Dataset(stored), index)
    for index in range(2):
        assert_same_episode(both, 4 + index, Dataset(second), index)
    assert both.tasks == list(TASKS)
    assert both.episodes[4].tasks == (TASKS[1],)
    assert_intact(tmp_path / "both")
    assert digest_of(stored) == before


def test_differently_encoded_videos_are_copied_into_files_of_their_own(stored, tmp_path):
    second = tmp_path / "second"
    with DatasetWriter(second, 20, FEATURES, "tiny") as writer:  # Lossy, other colours.
        write_episodes(writer, (4, 2), first=9)
    done = merge_datasets([stored, second, stored], tmp_path / "both")
    assert done.encoded == 0
    both = Dataset(tmp_path / "both")
    assert [row.videos[FRONT].file for row in both.episodes] == [(0, 0)] * 4 + [(0, 1)] * 2 + [(0, 2)] * 4
    assert_same_episode(both, 5, Dataset(second), 1)
    assert_same_episode(both, 8, Dataset(stored), 2)
    assert_intact(tmp_path / "both")


def test_datasets_that_differ_are_not_merged(tmp_path):
    one = labelled(tmp_path / "one")
    other = labelled(tmp_path / "other", level=scalar("int64"))
    with pytest.raises(DatasetError, match="'level' is missing here"):
        merge_datasets([one, other], tmp_path / "both")
    assert not (tmp_path / "both").exists()
    assert merge_datasets([one, other], tmp_path / "both", common=True).episodes == 8
    assert "level" not in Dataset(tmp_path / "both").features
    assert_intact(tmp_path / "both")
    with DatasetWriter(tmp_path / "third", 20, {"action": vector(["x"]), "next.success": scalar("bool")}, "leg"):
        pass
    with pytest.raises(DatasetError) as caught:
        merge_datasets([one, tmp_path / "third"], tmp_path / "all")
    for text in ("fps is 20 there and 10 here", "robot_type is 'leg' there", "is_intervention' is missing there"):
        assert text in str(caught.value)
    with pytest.raises(DatasetError, match="exists already"):
        merge_datasets([one, other], tmp_path / "both")
    with pytest.raises(DatasetError, match="at least two"):
        merge_datasets([one], tmp_path / "all")


def test_a_damaged_source_leaves_nothing_behind(stored, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(stored, broken)
    video = next((broken / "videos").rglob("*.mp4"))
    data = bytearray(video.read_bytes())
    data[len(data) // 2] ^= 1
    video.write_bytes(data)
    with pytest.raises(DatasetError):
        merge_datasets([stored, broken], tmp_path / "both")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken"]


def test_what_a_killed_process_left_is_replaced(tmp_path):
    one = labelled(tmp_path / "one")
    (tmp_path / ".two.unfinished" / "meta").mkdir(parents=True)
    select_episodes(one, tmp_path / "two", [0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_selected_episodes_and_features(stored, tmp_path):
    select_episodes(stored, tmp_path / "some", [3, 1], drop=["note", "observation.grid"])
    some = Dataset(tmp_path / "some")
    assert [row.length for row in some.episodes] == [LENGTHS[3], LENGTHS[1]]
    assert_same_episode(some, 0, Dataset(stored), 3)
    assert "note" not in some.features
    assert_intact(tmp_path / "some")
    select_episodes(stored, tmp_path / "actions", [0], keep=["action"])
    assert list(Dataset(tmp_path / "actions").features) == ["action"]
    with pytest.raises(UnknownNameError, match="Did you mean 'action'"):
        select_episodes(stored, tmp_path / "none", [0], keep=["acton"])


def test_conditions(tmp_path):
    dataset = Dataset(labelled(tmp_path / "one"))
    assert Selection(success=True).of(dataset) == [0, 2]
    assert Selection(acting=Acting.CORRECTED).of(dataset) == [2]
    assert Selection(episodes="1-3", task="lift").of(dataset) == [1, 3]
    assert parts_by(dataset, "actor") == {"alone": [0, 3], "corrected": [2], "person": [1]}
    assert parts_by(dataset, "success") == {"success": [0, 2], "failure": [1, 3]}
    assert parts_by(dataset, "task") == {"task0": [0, 2], "task1": [1, 3]}
    with pytest.raises(UnknownNameError, match="Did you mean 'lift'"):
        Selection(task="lit").of(dataset)
    with pytest.raises(DatasetError, match="No episode"):
        Selection(success=True, task="lift").of(dataset)
    select_episodes(dataset.folder, tmp_path / "bare", [0], keep=["action"])
    with pytest.raises(DatasetError, match=r"has no 'next\.success'"):
        Selection(success=True).of(Dataset(tmp_path / "bare"))


def test_numbers_of_episodes():
    assert episode_numbers("0-2, 7,1", 8) == [0, 1, 2, 7]
    for text, said in (("2-1", "no episodes '2-1'"), ("8", "has 8"), ("a", "no number"), ("-1", "no number")):
        with pytest.raises(DatasetError, match=said):
            episode_numbers(text, 8)


def test_shares_are_whole_numbers_of_episodes():
    assert shares_of(10, {"train": 0.8, "val": 0.2}, None) == {"train": list(range(8)), "val": [8, 9]}
    drawn = shares_of(10, {"train": 0.8, "val": 0.2}, 3)
    assert sorted(drawn["train"] + drawn["val"]) == list(range(10))
    assert drawn == shares_of(10, {"train": 0.8, "val": 0.2}, 3)
    assert shares_of(3, {"a": 0.98, "b": 0.01, "c": 0.01}, None) == {"a": [0], "b": [1], "c": [2]}
    assert shares_of(100, {"a": 0.004, "b": 0.1}, None) == {"a": [0], "b": list(range(1, 10))}
    for shares in ({}, {"a": 0.0}, {"a": 0.7, "b": 0.4}, {"a": -1.0}):
        with pytest.raises(DatasetError, match="shares are"):
            shares_of(10, shares)
    with pytest.raises(DatasetError, match="cannot be split"):
        shares_of(1, {"a": 0.5, "b": 0.5})


def test_parts_of_a_split(tmp_path):
    one = labelled(tmp_path / "one")
    parts = {tmp_path / f"one-{name}": numbers for name, numbers in parts_by(Dataset(one), "actor").items()}
    done = split_dataset(one, {**parts, tmp_path / "one-empty": []})
    assert [(item.folder.name, item.episodes) for item in done] == [
        ("one-alone", 2),
        ("one-corrected", 1),
        ("one-person", 1),
    ]
    for item in done:
        assert_intact(item.folder)
    assert Dataset(tmp_path / "one-alone").tasks == ["push", "lift"]
    (tmp_path / "b").mkdir()
    with pytest.raises(DatasetError, match="exists already"):
        split_dataset(one, {tmp_path / "a": [0], tmp_path / "b": [1]})
    assert not (tmp_path / "a").exists()


def smooth(folder, length, codec=None):
    """A dataset of one episode whose pictures change little, so that the encoder adds no key frames of its own."""
    rows, cols = np.meshgrid(np.linspace(0, 200, 32), np.linspace(0, 220, 48), indexing="ij")
    features = {"observation.state": vector(1), "next.done": scalar("bool"), FRONT: camera(32, 48)}
    with DatasetWriter(folder, 20, features, "tiny", codec=codec) as writer:
        for index in range(length):
            image = np.stack([rows, cols, np.full_like(rows, 8 * index)], axis=-1).astype(np.uint8)
            writer.add_frame({"observation.state": np.float32([index]), "next.done": index == length - 1, FRONT: image})
        writer.end_episode("push")
    return folder


def assert_shows(dataset, index, levels):
    """Pictures of the frames with these numbers, as :func:`smooth` has drawn them."""
    blue = dataset.images(index, FRONT)[..., 2].mean(axis=(1, 2))
    np.testing.assert_allclose(blue, 8 * np.array(levels), atol=3.9)  # half of what lies between two frames is 4


def test_trimmed_episodes_keep_their_pictures(tmp_path):
    """The video has a key frame every second frame: a stretch that begins between two is encoded again."""
    one = smooth(tmp_path / "one", 9)
    done = relabel_dataset(one, tmp_path / "odd", Relabel(episodes={0: EpisodeLabels(start=3, stop=8)}))
    assert (done.episodes, done.frames, done.encoded) == (1, 5, 1)
    assert_shows(Dataset(tmp_path / "odd"), 0, [3, 4, 5, 6, 7])
    done = relabel_dataset(one, tmp_path / "even", Relabel(trim_start_s=0.1, trim_end_s=0.05))
    assert done.encoded == 0
    even = Dataset(tmp_path / "even")
    assert_shows(even, 0, [2, 3, 4, 5, 6, 7])
    assert even.frames(0)["observation.state"].ravel().tolist() == [2, 3, 4, 5, 6, 7]
    assert even.frames(0)["next.done"].ravel().tolist() == [False] * 5 + [True]
    assert_intact(tmp_path / "odd")
    assert_intact(tmp_path / "even")


def test_a_trimmed_end_is_no_success(stored, tmp_path):
    edits = {2: EpisodeLabels(start=2, stop=7), 0: EpisodeLabels(start=1), 3: EpisodeLabels(delete=True)}
    relabel_dataset(stored, tmp_path / "trimmed", Relabel(episodes=edits))
    trimmed, source = Dataset(tmp_path / "trimmed"), Dataset(stored)
    for index, number, frames in ((0, 0, slice(1, None)), (1, 1, slice(None)), (2, 2, slice(2, 7))):
        here, there = trimmed.frames(index, images=False), source.frames(number, images=False)
        for name in ("observation.grid", "note", "level", "action", "next.reward"):
            np.testing.assert_array_equal(here[name], there[name][frames], err_msg=name)
    assert trimmed.frames(2)["next.truncated"].ravel().tolist() == [False] * 4 + [True]
    assert not trimmed.frames(2)["next.success"].any()
    assert trimmed.frames(0)["next.success"].ravel().tolist() == [False] * 3 + [True]


def test_cuts_copy_packets(tmp_path):
    path = next(smooth(tmp_path / "one", 9).rglob("*.mp4"))
    assert len(video_facts(cut_video(path, 0.1, 7, 20)).frame_times_s) == 7
    assert cut_video(path, 0.05, 3, 20) is None  # No key frame.
    assert cut_video(path, 0.0, 10, 20) is None  # Fewer pictures.


def test_pictures_out_of_order_are_encoded_again(tmp_path):
    codec = VideoCodec(options=(("g", "12"), ("bf", "2"), ("preset", "veryfast"), ("threads", "1")))
    smooth(tmp_path / "one", 9, codec)
    assert select_episodes(tmp_path / "one", tmp_path / "two", [0]).encoded == 1
    assert_shows(Dataset(tmp_path / "two"), 0, range(9))
    assert_intact(tmp_path / "two")


def test_labels_are_set_by_a_table(tmp_path):
    one = labelled(tmp_path / "one")
    table = tmp_path / "labels.yaml"
    table.write_text(
        "episodes:\n"
        "  0: {success: false, task: pull}\n"
        "  1: {success: true, person: [[1, 3]]}\n"
        "  2: {reward: 0.5}\n"
        "  3: {reward: [1, 2, 3]}\n"
    )
    relabel_dataset(one, tmp_path / "two", Relabel(episodes=read_labels(table), tasks={"lift": "raise"}))
    two = Dataset(tmp_path / "two")
    assert two.successes().tolist() == [False, True, True, False]
    assert [row.tasks for row in two.episodes] == [("pull",), ("raise",), ("push",), ("raise",)]
    ends = [
        (two.frames(i)["next.done"].ravel().tolist(), bool(two.frames(i)["next.truncated"].any())) for i in range(2)
    ]
    assert ends == [([False, False, True], True), ([False, False, True], False)]
    assert two.frames(1)[IS_INTERVENTION].ravel().tolist() == [False, True, True]
    rewards = [two.frames(i)["next.reward"].ravel().tolist() for i in range(4)]
    assert rewards == [[0, 0, 0], [0, 0, 0], [0, 0, 0.5], [1, 2, 3]]
    assert_intact(tmp_path / "two")


def test_rules_of_rewards(tmp_path):
    one = labelled(tmp_path / "one")
    relabel_dataset(one, tmp_path / "sparse", Relabel(reward=RewardRule.SPARSE, recompute_ends=True, task="do it"))
    sparse = Dataset(tmp_path / "sparse")
    assert sparse.columns(["next.reward"])["next.reward"].ravel().tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert [bool(sparse.terminations(i).any()) for i in range(4)] == [True, False, True, False]
    assert sparse.tasks == ["do it"]
    relabel_dataset(one, tmp_path / "time", Relabel(reward=RewardRule.TIME, trim_start_s=0.1))
    time = Dataset(tmp_path / "time")
    assert time.columns(["next.reward"])["next.reward"].ravel().tolist() == [-1, 0, -1, -1, -1, 0, -1, -1]
    assert_intact(tmp_path / "time")


def test_wrong_labels_are_refused(tmp_path):
    one = labelled(tmp_path / "one")
    for text, said in (
        ("episodes: {0: {sucess: true}}", "Did you mean 'success'"),
        ("episodes: {0: {stop: 9}}", "expected some of 0 to 3"),
        ("episodes: {9: {delete: true}}", "no episode 9"),
        ("episodes: {0: {reward: [1, 2]}}", "expected 1 or 3"),
        ("episodes: {0: {person: [[2, 1]]}}", "Frames 2 to 1"),
        ("episodes: {a: {delete: true}}", "called 'a'"),
        ("episode: {}", "expected one entry 'episodes'"),
        ("episodes: {0: {delete: true}, 1: {delete: true}, 2: {delete: true}, 3: {delete: true}}", "Every episode"),
    ):
        path = tmp_path / "labels.yaml"
        path.write_text(text)
        with pytest.raises(Exception, match=said):
            relabel_dataset(one, tmp_path / "two", Relabel(episodes=read_labels(path)))
    with pytest.raises(DatasetError, match="the tasks are: push; lift"):
        relabel_dataset(one, tmp_path / "two", Relabel(tasks={"lit": "x"}))
    assert not (tmp_path / "two").exists()


def test_several_tasks_in_an_episode_stay(tmp_path):
    one = labelled(tmp_path / "one")
    dataset = Dataset(one)
    with DatasetWriter(tmp_path / "two", 10, dataset.features, "arm") as writer:
        from gantry_deploy.dataset.storage.episode_buffer import FinishedEpisode

        stored = dataset.stored_columns(0)
        columns = {name: stored[name] for name in dataset.features}
        stats = {name: dataset.episode_stats(0)[name] for name in dataset.features}
        writer.save_copy(FinishedEpisode(3, columns, {}, stats), ("reach", "reach", "grasp"))
    select_episodes(tmp_path / "two", tmp_path / "three", [0])
    three = Dataset(tmp_path / "three")
    assert three.episodes[0].tasks == ("reach", "grasp")
    assert [three.tasks[i] for i in three.frames(0)["task_index"]] == ["reach", "reach", "grasp"]
    assert_intact(tmp_path / "three")


def test_the_last_observation_of_an_attempt_moves_along(tmp_path):
    for name, numbers in (("one", (0, 1)), ("two", (2,))):
        with SessionDataset(tmp_path / name, SIZES, 20, "yam", "lift", codec=LOSSLESS) as dataset:
            for number in numbers:
                for step in attempt(number):
                    dataset.add(step)
    merge_datasets([tmp_path / "one", tmp_path / "two"], tmp_path / "both")
    for index in range(3):
        last = SessionReader(tmp_path / "both").steps(index)[-1]
        np.testing.assert_array_equal(last.last_obs["image/wrist"], attempt(index)[-1].last_obs["image/wrist"])
    relabel_dataset(tmp_path / "both", tmp_path / "cut", Relabel(trim_end_s=0.05))
    assert SessionReader(tmp_path / "cut").steps(2)[-1].last_obs is None
    assert_intact(tmp_path / "both")
    assert_intact(tmp_path / "cut")


def test_notes_beside_datasets_stay_if_they_are_the_same(stored, tmp_path):
    notes = {"gantry.json": b'{"version": 2, "task": "t", "env": {}, "contract": {}}', "README.md": b"# Card"}
    for name in ("one", "two", "three"):
        beside = notes if name != "three" else {"gantry.json": b"{}"}
        with DatasetWriter(tmp_path / name, 20, {"action": vector(1)}, "tiny", beside=beside) as writer:
            writer.add_frame({"action": np.zeros(1, np.float32)})
            writer.end_episode("push")
    merge_datasets([tmp_path / "one", tmp_path / "two"], tmp_path / "same")
    assert {name: (tmp_path / "same" / name).read_bytes() for name in notes} == notes
    merge_datasets([tmp_path / "one", tmp_path / "three"], tmp_path / "other")
    assert not (tmp_path / "other" / "gantry.json").exists()
    assert_holds(Dataset(select_episodes(stored, tmp_path / "all", [0, 1, 2, 3]).folder))
