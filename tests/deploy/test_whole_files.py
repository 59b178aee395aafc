"""A disk that takes no more leaves what was there before; the limit on a file's size stands in for the disk."""

import contextlib
import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle, update_card, write_bundle
from gantry_deploy.errors import BundleError
from gantry_deploy.report import Report
from gantry_deploy.testing.legs import contract_for, golden_data, linear_model, tiny_robot
from gantry_hardware.errors import GantryError
from gantry_hardware.files.whole_files import write_whole

CONTRACT = contract_for(tiny_robot())
PARTS = {"contract": CONTRACT, "model_bytes": linear_model(CONTRACT)}
GOLDEN = golden_data(CONTRACT, steps=5)


@contextlib.contextmanager
def room_for(size):
    """No file may grow beyond this many bytes; Python turns the signal into an error, as a full disk gives one."""
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    compiles = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # Python would cut its own files short, too, and trip over them ever after.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
        sys.dont_write_bytecode = compiles


def entries(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_file_is_written_or_stays_as_it_was(tmp_path):
    path, link = tmp_path / "film.mp4", tmp_path / "newest.mp4"
    link.symlink_to(path)
    with room_for(100), pytest.raises(OSError, match="File too large"):
        write_whole(path, bytes(101))
    assert not path.exists()
    write_whole(link, b"old")
    with room_for(100), pytest.raises(OSError, match="File too large"):
        write_whole(link, bytes(101))
    assert entries(tmp_path) == {"film.mp4": b"old", "newest.mp4": b"old"}
    assert link.is_symlink()
    write_whole("/dev/null", bytes(101))  # a device has no place beside it


def test_no_half_of_a_bundle_is_left(tmp_path):
    folder = tmp_path / "run" / "bundle"
    noise = {"noise": np.random.default_rng(0).normal(size=4000)}  # 32 kB that do not shrink, beside a model of 2 kB
    with room_for(20_000), pytest.raises(OSError, match="File too large"):
        write_bundle(folder, **PARTS, golden=GOLDEN | noise)
    assert entries(tmp_path) == {}
    write_bundle(folder, **PARTS, golden=GOLDEN, card={"score": 1})
    before = entries(folder)
    with room_for(20_000), pytest.raises(OSError, match="File too large"):
        write_bundle(folder, **PARTS, golden=GOLDEN | noise)
    assert entries(folder) == before
    with room_for(20_000), pytest.raises(OSError, match="File too large"):
        update_card(folder, {"score": 2, "words": "x" * 20_000})
    assert load_bundle(folder).card == {"score": 1}
    assert load_bundle(write_bundle(folder, **PARTS, golden=GOLDEN)).card is None


def test_a_bundle_is_not_written_among_other_files(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"holds notes\.txt, which no bundle holds"):
        write_bundle(tmp_path, **PARTS, golden=GOLDEN)
    assert entries(tmp_path) == {"notes.txt": b"mine"}


def test_no_half_of_a_report_is_left(tmp_path):
    report = Report("Test")
    report.text("word " * 100)
    with room_for(100), pytest.raises(GantryError, match=r"Cannot write the report to .*: File too large\."):
        report.write(tmp_path / "report.html")
    assert entries(tmp_path) == {}


def test_the_next_writer_removes_what_a_killed_one_left_of_the_same_file(tmp_path):
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    gone = child.stdout.strip()
    for name in (f".a.json.{gone}.tmp", f".b.json.{gone}.tmp", f".a.json.{os.getppid()}.tmp", f".a.json.{gone}.tmp2"):
        (tmp_path / name).write_text("half")
    write_whole(tmp_path / "a.json", b"{}")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"a.json", f".b.json.{gone}.tmp", f".a.json.{os.getppid()}.tmp", f".a.json.{gone}.tmp2"}
