"""Full disks, Ctrl-C and killed processes cost at most the episode that was not finished."""

import os
import resource
import signal
import subprocess
import sys

import pytest

from gantry_deploy.dataset import LOSSLESS, Dataset, DatasetWriter
from gantry_deploy.dataset.checks.check import check_dataset, repair_dataset
from gantry_deploy.dataset.storage import files as storage
from gantry_deploy.dataset.storage.checksums import accept_changes
from gantry_deploy.dataset.testing import FEATURES, FRONT, assert_holds, make_frames, write_episodes
from gantry_deploy.dataset.video import VideoEncoder
from gantry_deploy.errors import DatasetError

FEW = {key: FEATURES[key] for key in ("observation.state", "action", "next.success", FRONT)}


def writer_in(folder, **options):
    return DatasetWriter(folder, 20, FEW, "tiny", codec=LOSSLESS, **options)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_faults import writer_in
from gantry_deploy.dataset import storage
from gantry_deploy.dataset.checks.check import repair_dataset
from gantry_deploy.dataset.testing import write_episodes

def killed_at(moment, act):
    # A child that dies before its n-th change of the disk; whether it came to its end.
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    steps = iter(range(1000))
    def counted(real):
        def step(*arguments, **options):
            if next(steps) == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)
        return step
    for name in ("fsync", "replace", "unlink", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))
    act()
    os._exit(0)

def killed_again_and_again(name, prepare, act):
    for moment in range(1000):
        folder = f"{sys.argv[2]}/{name}-{moment}"
        prepare(folder)
        if killed_at(moment, lambda: act(folder)):
            return moment

def second_episode(folder):
    with writer_in(folder, resume=True) as writer:
        write_episodes(writer, (3,), 1)

def first_episode(folder):
    with writer_in(folder) as writer:
        write_episodes(writer, (4,))

if sys.argv[3] == "write":
    print("begin", killed_again_and_again("begin", lambda folder: None, first_episode))
    print("append", killed_again_and_again("append", first_episode, second_episode))
else:
    # Just before the description, which makes the second episode count, is put into its place and flushed.
    last = killed_again_and_again("append", first_episode, second_episode) - 2
    def prepare(folder):
        first_episode(folder)
        killed_at(last, lambda: second_episode(folder))
    print("repair", killed_again_and_again("repair", prepare, repair_dataset))
"""


def killed(tmp_path, *words):
    here = os.path.dirname(__file__)
    command = [sys.executable, "-c", KILLED, here, str(tmp_path), *map(str, words)]
    done = subprocess.run(command, check=True, timeout=800, capture_output=True, text=True)
    return {line.split()[0]: int(line.split()[1]) for line in done.stdout.splitlines()}


def assert_whole(folder):
    """Readable, repaired to nothing wrong, and continued, whatever happened to its writer; returns its episodes."""
    findings = check_dataset(folder)
    assert [item for item in findings if "--repair" not in item.advice and "anew" not in item.advice] == [], findings
    count = Dataset(folder).num_episodes
    assert_holds(Dataset(folder), (4, 3)[:count])
    repair_dataset(folder)
    assert check_dataset(folder) == [], folder
    with writer_in(folder, resume=True) as writer:
        write_episodes(writer, (4, 3, 2)[count:], count)
    assert_holds(Dataset(folder), (4, 3, 2))
    assert check_dataset(folder) == []
    return count


@pytest.mark.soak
@pytest.mark.slow
def test_a_writer_killed_before_any_change_of_the_disk_leaves_every_whole_episode(tmp_path):
    moments = killed(tmp_path, "write")
    assert moments["begin"] > 20
    assert moments["append"] > 15
    counts = []
    for moment in range(moments["begin"]):
        folder = tmp_path / f"begin-{moment}"
        if not (folder / "meta/info.json").exists():
            with writer_in(folder, resume=True) as writer:  # Nothing counts yet, and nothing stands in the way.
                write_episodes(writer, (4,))
        counts.append(assert_whole(folder))
    assert sorted(counts) == [0] * counts.count(0) + [1] * counts.count(1)
    counts = [assert_whole(tmp_path / f"append-{moment}") for moment in range(moments["append"])]
    assert sorted(set(counts)) == [1, 2]
    assert counts == sorted(counts), "later means more"


@pytest.mark.soak
@pytest.mark.slow
def test_a_repair_killed_before_any_change_of_the_disk_is_repaired_again(tmp_path):
    moments = killed(tmp_path, "repair")
    assert moments["repair"] > 8
    for moment in range(moments["repair"]):
        assert assert_whole(tmp_path / f"repair-{moment}") == 1


def test_a_full_disk_changes_nothing_and_the_episode_can_be_stored_later(tmp_path):
    folder = tmp_path / "d"
    with writer_in(folder) as writer:
        write_episodes(writer, (5, 1))
        before = contents(folder)
        for frame in make_frames(8, 2, FEW):
            writer.add_frame(frame)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            # A limit on the size of files stands in for a full disk; Python turns it into an OSError.
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limit[1]))
            with pytest.raises(DatasetError, match=r"could not be written: File too large. Nothing in it has changed"):
                writer.end_episode("push")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert contents(folder) == before
        assert writer.end_episode("push") == 2
    assert_holds(Dataset(folder), (5, 1, 8))


def test_ctrl_c_in_mid_episode_loses_that_episode_alone(tmp_path, caplog):
    def record():
        with writer_in(tmp_path / "d") as writer:
            write_episodes(writer, (4, 2))
            writer.add_frame(make_frames(3, 2, FEW)[0])
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        record()
    assert "unfinished episode of 1 frames was left out" in caplog.text
    assert_holds(Dataset(tmp_path / "d"), (4, 2))
    assert check_dataset(tmp_path / "d") == []


def test_ctrl_c_while_an_episode_is_stored_waits_until_it_is(tmp_path, monkeypatch):
    real = os.replace

    def interrupted(*arguments):
        monkeypatch.setattr(storage.os, "replace", real)
        signal.raise_signal(signal.SIGINT)
        real(*arguments)

    with writer_in(tmp_path / "d") as writer:
        write_episodes(writer, (4,))
        monkeypatch.setattr(storage.os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_episodes(writer, (2, 3), 1)
    assert_holds(Dataset(tmp_path / "d"), (4, 2))
    assert check_dataset(tmp_path / "d") == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_between_two_cameras_leaves_no_crooked_episode(tmp_path, monkeypatch):
    def interrupted(self, image):
        raise KeyboardInterrupt

    frames = make_frames(2, 0, FEW)
    with writer_in(tmp_path / "d") as writer:
        writer.add_frame(frames[0])
        monkeypatch.setattr(VideoEncoder, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.add_frame(frames[1])
        monkeypatch.undo()
        with pytest.raises(DatasetError, match="interrupted; the episode cannot be stored"):
            writer.end_episode("push")
        writer.discard_episode()
        write_episodes(writer, (2,))
    assert_holds(Dataset(tmp_path / "d"), (2,))


def test_one_writer_at_a_time(tmp_path):
    with writer_in(tmp_path / "d"), pytest.raises(DatasetError, match="is being written by another process"):
        writer_in(tmp_path / "d", resume=True)
    writer_in(tmp_path / "d", resume=True).finalize()


def test_nothing_is_lost_silently_at_the_end(tmp_path):
    writer = writer_in(tmp_path / "d")
    with pytest.raises(DatasetError, match="has no frame"):
        writer.end_episode("push")
    writer.add_frame(make_frames(1, 0, FEW)[0])
    with pytest.raises(DatasetError, match="The task is '', expected"):
        writer.end_episode("")
    with pytest.raises(DatasetError, match="An episode of 1 frames is open"):
        writer.finalize()
    writer.end_episode("push")
    writer.finalize()
    with pytest.raises(DatasetError, match="was finalized; open it again with resume=True"):
        writer.add_frame(make_frames(1, 0, FEW)[0])


def test_a_dataset_whose_episodes_are_gone_is_not_continued(tmp_path):
    with writer_in(tmp_path / "d") as writer:
        write_episodes(writer, (2, 2))
    (tmp_path / "d/meta/episodes/chunk-000/file-000.parquet").unlink()
    with pytest.raises(DatasetError, match="does not exist, and its checksum does"):
        writer_in(tmp_path / "d", resume=True)
    accept_changes(tmp_path / "d")
    with pytest.raises(DatasetError, match="counts 2 episodes, and meta/episodes describes 0"):
        writer_in(tmp_path / "d", resume=True)


def test_a_folder_with_somebody_elses_card_is_not_taken(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/README.md").write_text("mine")
    with pytest.raises(DatasetError, match="is not empty and holds no dataset"):
        writer_in(tmp_path / "d", beside={"README.md": b"theirs"})
    assert (tmp_path / "d/README.md").read_text() == "mine"
