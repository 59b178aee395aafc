"""Checkpoints: whole or absent, the newest good one is found, nothing but data is ever read."""

import os
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from gantry_policies.common.checkpoint import (
    CheckpointError,
    UnusableCheckpointError,
    list_checkpoints,
    load_checkpoint,
    load_newest,
    random_state,
    restore_random_state,
    save_checkpoint,
    weights_difference,
)


def state(number):
    return {"iteration": number, "weights": torch.full((1000,), float(number)), "nested": {"list": [1, "two", None]}}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_is_what_is_loaded(tmp_path):
    path = save_checkpoint(tmp_path / "new" / "folder", 7, state(7))
    assert path.name == "model_7.pt"
    loaded = load_checkpoint(path)
    assert torch.equal(loaded.pop("weights"), torch.full((1000,), 7.0))
    assert loaded == {"iteration": 7, "nested": {"list": [1, "two", None]}}


def test_the_newest_few_are_kept_by_number_and_not_by_name(tmp_path):
    for number in (8, 9, 10, 100, 11):
        save_checkpoint(tmp_path, number, state(number), keep=3)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["model_10.pt", "model_11.pt", "model_100.pt"]
    path, loaded = load_newest(tmp_path)
    assert (path.name, loaded["iteration"]) == ("model_100.pt", 100)


def test_what_a_kill_left_behind_is_cleared_away_and_other_files_are_not(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    (tmp_path / f".model_3.pt.{dead.pid}.tmp").write_bytes(b"half")
    (tmp_path / "model_best.pt").write_bytes(b"somebody else's")
    save_checkpoint(tmp_path, 4, state(4))
    assert names(tmp_path) == ["model_4.pt", "model_best.pt"]


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    data = bytearray(path.read_bytes())
    data[: len(data) // 2] = bytes(len(data) // 2)
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, empty])
def test_a_damaged_newest_one_falls_back_to_the_one_before(tmp_path, damage):
    save_checkpoint(tmp_path, 1, state(1))
    damage(save_checkpoint(tmp_path, 2, state(2)))
    with pytest.raises(CheckpointError, match=r"Cannot read checkpoint .*model_2\.pt"):
        load_checkpoint(tmp_path / "model_2.pt")
    path, loaded = load_newest(tmp_path)
    assert (path.name, loaded["iteration"]) == ("model_1.pt", 1)


def test_where_nothing_is_usable_every_reason_is_given(tmp_path):
    with pytest.raises(CheckpointError, match=r"There are no model_\*\.pt files"):
        load_newest(tmp_path)
    for number in (1, 2):
        empty(save_checkpoint(tmp_path, number, state(number)))
    reason = "cut short, or no such file: 0 bytes without the end that one has"
    with pytest.raises(UnusableCheckpointError) as refusal:
        load_newest(tmp_path)
    text = f"No usable checkpoint in {tmp_path}: model_2.pt ({reason}), model_1.pt ({reason})."
    assert str(refusal.value) == text
    with pytest.raises(CheckpointError, match=r"There is no checkpoint .*model_3\.pt"):
        load_checkpoint(tmp_path / "model_3.pt")


class Exploit:
    """Runs a command when it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("write", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value, protocol=2))])
def test_a_pickle_with_code_is_refused_and_not_run(tmp_path, write):
    witness = tmp_path / "witness"
    path = tmp_path / "model_5.pt"
    write({"iteration": 5, "evil": Exploit(f"touch {witness}")}, path)
    with pytest.raises(CheckpointError, match="Cannot read checkpoint"):
        load_checkpoint(path)
    assert not witness.exists()
    torch.load(path, weights_only=False) if write is torch.save else pickle.loads(path.read_bytes())
    assert witness.exists()  # the file was as dangerous as it was meant to be


def test_how_weights_differ_is_said_by_name_and_size():
    own = {"first": torch.zeros(3, 4), "bias": torch.zeros(3), "scale": torch.tensor(1.0)}
    assert weights_difference(own, own) == ""
    assert weights_difference(own, own | {"first": torch.zeros(3, 5)}) == "'first' is 3 x 5 there and 3 x 4 here"
    other = {"first": torch.zeros(3, 4), "scale": torch.zeros(2), "extra": torch.zeros(1)}
    assert weights_difference(own, other) == "'bias' is missing there and 3 here, and 2 more"
    assert weights_difference({}, {"scale": torch.tensor(1.0)}) == "'scale' is a number there and missing here"


def test_a_file_that_holds_no_dictionary_is_refused(tmp_path):
    torch.save([1, 2], tmp_path / "model_1.pt")
    with pytest.raises(CheckpointError, match="holds a list, expected a dictionary"):
        load_checkpoint(tmp_path / "model_1.pt")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_named_and_the_older_checkpoint_stays(tmp_path):
    save_checkpoint(tmp_path, 1, state(1))
    (tmp_path / f".model_2.pt.{os.getpid()}.tmp").symlink_to("/dev/full")  # every write there fails as on a full disk
    with pytest.raises(CheckpointError, match=r"model_2\.pt: No space left on device\. Older checkpoints are kept"):
        save_checkpoint(tmp_path, 2, state(2))
    assert names(tmp_path) == ["model_1.pt"]
    assert load_newest(tmp_path)[1]["iteration"] == 1
    save_checkpoint(tmp_path, 2, state(2))  # and once there is room again, it goes on
    assert load_newest(tmp_path)[1]["iteration"] == 2


def test_a_disk_that_fills_while_a_checkpoint_is_written(tmp_path):
    """The system refuses to let a file grow beyond a limit, in the middle of the write."""
    resource = pytest.importorskip("resource")
    save_checkpoint(tmp_path, 1, state(1))
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(CheckpointError, match=r"model_2\.pt: File too large"):
            save_checkpoint(tmp_path, 2, state(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
    assert names(tmp_path) == ["model_1.pt"]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(CheckpointError, match="Not a directory"):
        save_checkpoint(tmp_path / "file" / "checkpoints", 1, state(1))


def draw():
    return torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random(), np.random.randn(), random.gauss(0, 1)


@pytest.mark.slow
def test_random_generators_go_on_where_they_were_in_another_process_too(tmp_path):
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    draw()  # leaves a second Gaussian in store in numpy and in Python, which is state as well
    path = save_checkpoint(tmp_path, 1, {"random": random_state()})
    expected = draw()
    assert draw() != expected
    restore_random_state(load_checkpoint(path)["random"])
    assert draw() == expected
    code = (
        "import random, sys, numpy as np, torch\n"
        "from pathlib import Path\n"
        "from gantry_policies.common.checkpoint import load_checkpoint, restore_random_state\n"
        "restore_random_state(load_checkpoint(Path(sys.argv[1]))['random'])\n"
        "print((torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random(), np.random.randn(), "
        "random.gauss(0, 1)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(expected)


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_a_run_goes_on_with_another_number_of_gpus(monkeypatch, devices):
    """Stands in for machines with several GPUs, by what torch would be asked to do there."""
    state, restored = random_state() | {"cuda": ["first", "second"]}, {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda value, device: restored.update({device: value}))
    restore_random_state(state)
    assert restored == dict(list(enumerate(["first", "second"]))[:devices])
