"""A writer that is killed between any two steps leaves the old bundle or the new, and the next one ends its work."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gantry_deploy.bundle import files as bundle_files
from gantry_deploy.bundle.bundle import copy_bundle, load_bundle, seal_bundle, update_card, write_bundle, write_zip
from gantry_deploy.bundle.files import NEXT, SCRATCH
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.errors import BundleError
from gantry_deploy.report import Report
from gantry_deploy.testing.legs import contract_for, golden_data, linear_model, tiny_robot
from gantry_hardware.files import whole_files
from gantry_hardware.files.whole_files import write_whole

TRACED = {bundle_files.__file__, whole_files.__file__}
"""Modules between whose lines a writer is killed: nothing else writes bundles and reports."""
OLD = contract_for(tiny_robot())
STRIDE = int(os.environ.get("GANTRY_TEST_KILL_STRIDE", "5"))
"""Of the lines of a writer every fifth; 1 kills it before each of them, in four minutes."""
SEED = random.randrange(STRIDE * 1000)
NEW = replace(OLD, provenance=replace(OLD.provenance, task="another-task"))


@pytest.fixture
def place(tmp_path):
    """A folder in memory, where hundreds of writes need not wait for a disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def parts(contract, card):
    model, golden = linear_model(contract), golden_data(contract, steps=5)
    return {"contract": contract, "model_bytes": model, "golden": golden, "card": card}


OLD_PARTS, NEW_PARTS = parts(OLD, {"score": 1}), parts(NEW, None)


def kill_at(step: int, write: Callable[[], object]) -> bool:
    """Run a writer in a process of its own that kills itself before the given line; whether it came that far."""
    child = os.fork()
    if child == 0:
        count = 0

        def trace(frame, event, argument):
            nonlocal count
            if frame.f_code.co_filename not in TRACED:
                return None
            if event == "line":
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        code = 1
        try:
            sys.settrace(trace)
            write()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def kills(
    write: Callable[[], object], check: Callable[[], bool], restore: Callable[[], object], stride: int = STRIDE
) -> tuple[int, int]:
    """Kill a writer at its steps: how often the old was there afterwards, and how often the new.

    Args:
        write: The writer.
        check: Whether the new is there; fails where it is neither the old nor the new.
        restore: Puts the old there again.
        stride: Which share of the steps; the first is drawn.
    """
    counts = [0, 0]
    step = random.Random(SEED).randint(1, stride)
    print("seed", SEED)
    while kill_at(step, write):
        counts[check()] += 1
        write()
        assert check(), step
        restore()
        step += stride
    return counts[0], counts[1]


def clean(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def what_is_there(path):
    bundle = load_bundle(find_bundle(path))
    if bundle.contract == OLD:
        assert bundle.card == {"score": 1}
        return False
    assert bundle.contract == NEW
    assert bundle.card is None
    return True


def test_an_export_over_a_bundle(place):
    folder = place / "run" / "bundle"
    write_bundle(folder, **OLD_PARTS)

    def check():
        new = what_is_there(folder)
        assert {path.name for path in folder.parent.iterdir()} == {"bundle"}
        return new

    old, new = kills(
        lambda: write_bundle(folder, **NEW_PARTS), check, lambda: (clean(folder), write_bundle(folder, **OLD_PARTS))
    )
    assert old > 20 // STRIDE
    assert new > 20 // STRIDE
    write_bundle(folder, **NEW_PARTS)
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "policy.onnx", "contract.json", "golden.npz"}


@pytest.mark.slow
def test_a_first_export(place):
    folder = place / "run" / "bundle"

    def check():
        try:
            return what_is_there(folder)
        except BundleError as error:
            text = str(error)
        assert "no bundle at" in text or "has no manifest.json; it holds: (nothing)" in text
        return False

    old, new = kills(lambda: write_bundle(folder, **NEW_PARTS), check, lambda: clean(place / "run"))
    assert old > 20 // STRIDE
    assert new > 20 // STRIDE


@pytest.mark.slow
@pytest.mark.parametrize("packed", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_new_card(place, packed):
    folder = write_bundle(place / "bundle", **OLD_PARTS)
    path = write_zip(folder, place / "bundle.zip") if packed else folder

    def check():
        bundle = load_bundle(path)
        assert bundle.contract == OLD
        assert bundle.card in ({"score": 1}, {"score": 2})
        return bundle.card == {"score": 2}

    old, new = kills(lambda: update_card(path, {"score": 2}), check, lambda: update_card(path, {"score": 1}))
    assert old > 5 // STRIDE
    assert packed or new > 5 // STRIDE


@pytest.mark.soak
def test_a_signature(place):
    folder = write_bundle(place / "bundle", **OLD_PARTS)
    key = bytes(range(32))
    old, new = kills(
        lambda: seal_bundle(folder, private_key=key), lambda: load_bundle(folder).is_signed, lambda: seal_bundle(folder)
    )
    assert old > 20 // STRIDE
    assert new > 20 // STRIDE


@pytest.mark.soak
def test_a_copy_over_a_bundle(place):
    source, target = (place / name for name in ("source", "target"))
    write_bundle(source, **NEW_PARTS)
    write_bundle(target, **OLD_PARTS)
    old, new = kills(
        lambda: copy_bundle(source, target),
        lambda: what_is_there(target),
        lambda: (clean(target), write_bundle(target, **OLD_PARTS)),
    )
    assert old > 20 // STRIDE
    assert new > 20 // STRIDE


def test_a_file_and_a_report(place):
    path = place / "report.html"
    old_report, new_report = Report("Old"), Report("New")
    old_text = old_report.write(path).read_bytes()
    new_text = new_report.write(place / "other.html").read_bytes()

    def check():
        found = path.read_bytes()
        assert found in (old_text, new_text)
        return found == new_text

    old, new = kills(lambda: new_report.write(path), check, lambda: write_whole(path, old_text), stride=1)
    assert old > 5
    assert new >= 1


@pytest.mark.soak
def test_a_writer_that_is_killed_again_while_it_ends_the_work_of_another(place):
    """Two kills: one after the new bundle counts, one at each step of the next writer."""
    folder = write_bundle(place / "bundle", **OLD_PARTS)

    def leave_half():
        clean(folder)
        write_bundle(folder, **OLD_PARTS)
        step = 1
        while True:
            assert kill_at(step, lambda: write_bundle(folder, **NEW_PARTS))
            if (folder / NEXT).is_dir() and (folder / SCRATCH).is_dir() and any((folder / SCRATCH).iterdir()):
                return
            step += 1

    def check():
        bundle = load_bundle(folder)
        assert bundle.contract == NEW
        return bundle.card == {"score": 3}

    leave_half()
    half = place / "half"
    shutil.copytree(folder, half)

    def again():
        clean(folder)
        shutil.copytree(half, folder)

    old, new = kills(lambda: update_card(folder, {"score": 3}), check, again)
    assert old > 20 // STRIDE
    assert new > 20 // STRIDE


def test_every_file_reaches_the_disk_before_it_counts(tmp_path, monkeypatch):
    """By the order of calls: what is renamed was synchronised before, and the folder afterwards."""
    calls = []
    real = {name: getattr(os, name) for name in ("fsync", "rename", "replace", "link")}

    def note(name):
        def call(*args):
            told = [os.readlink(f"/proc/self/fd/{item}") if isinstance(item, int) else str(item) for item in args]
            calls.append((name, *told))
            return real[name](*args)

        return call

    for name in real:
        monkeypatch.setattr(os, name, note(name))
    folder = write_bundle(tmp_path / "bundle", **OLD_PARTS)
    counts = next(i for i, call in enumerate(calls) if call[0] == "rename")
    assert calls[counts] == ("rename", str(folder / SCRATCH), str(folder / NEXT))
    names = {"manifest.json", "policy.onnx", "contract.json", "golden.npz", "card.json"}
    assert {call[1] for call in calls[:counts]} == {str(folder / SCRATCH / name) for name in names} | {
        str(folder / SCRATCH)
    }
    assert calls[counts + 1] == ("fsync", str(folder))
    rest = calls[counts + 2 :]
    gone = next(i for i, call in enumerate(rest) if call[0] == "rename")
    assert rest[gone - 1] == ("fsync", str(folder))
    assert {call[2] for call in rest[:gone] if call[0] == "replace"} == {str(folder / name) for name in names}
    calls.clear()
    write_whole(tmp_path / "file", b"new")
    assert [call[0] for call in calls] == ["fsync", "replace", "fsync"]
    assert calls[1][2] == str(tmp_path / "file")
    assert calls[2][1] == str(tmp_path)


def test_a_bundle_can_be_read_at_any_moment_of_an_export(place):
    """A reader beside a writer that writes as fast as it can, by turns two bundles."""
    folder = write_bundle(place / "bundle", **OLD_PARTS)
    child = os.fork()
    if child == 0:
        try:
            for _ in range(40):
                write_bundle(folder, **NEW_PARTS)
                write_bundle(folder, **OLD_PARTS)
        finally:
            os._exit(0)
    seen = []
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        seen.append(what_is_there(folder))
    assert len(seen) > 3
    assert np.isin(seen, [False, True]).all()
