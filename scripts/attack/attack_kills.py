"""Killed writers: SIGKILL at the n-th operation on files, or after a random time, while results are written.

What lies on the disk afterwards must open: the old result or the new one, of a dataset whole episodes, of a recording
its beginning, of a training its newest checkpoint; and the next writer must go on from it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cases import WrongError, wait_for

from gantry_deploy.bundle.bundle import load_bundle, update_card, write_bundle, write_zip
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.recording.reader import read_recording
from gantry_hardware.errors import GantryError

EVENTS = (
    "open",
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.truncate",
    "os.link",
    "os.symlink",
    "ctypes.call_function",
)
"""Audit events of Python at which a file system changes."""
TRAININGS = 0.12
"""Share of the cases that kill a real training; each takes as long as all the others together."""


class Attack:
    """Kills while bundles, zips, cards, recordings, datasets and trainings are written."""

    max_cpu_s = 600
    """A training and its resumption."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.source = find_bundle("pretrained:go2-walk")

    def case(self, number: int, rng: np.random.Generator, folder: Path) -> tuple[str, Callable[[], str]]:
        """One kill, and what looks at the remains."""
        if rng.random() < TRAININGS:
            preset = ("ppo", "sac")[int(rng.integers(2))]
            delay_s = float(rng.uniform(0.0, 2.0))
            what = f"training {preset} after {delay_s:.2f} s"
            return what, lambda: must_open(lambda: attempt_training(folder, preset, delay_s))
        kind = (card, bundle, zipped, recording, dataset)[int(rng.integers(5))]
        nth = int(rng.integers(1, 60 if kind is dataset else 25))
        return f"{kind.__name__} at operation {nth}", lambda: must_open(lambda: kind(self.source, folder, nth))


def must_open(attempt: Callable[[], str]) -> str:
    """Take a refusal for wrong: what a killed writer leaves must open."""
    try:
        return attempt()
    except GantryError as error:
        raise WrongError(f"refused: {error}") from error


def killed_at(nth: int, work: Callable[[], Any]) -> bool:
    """Do ``work`` in a forked process that kills itself at its n-th operation on files; whether it was killed."""
    child = os.fork()
    if child == 0:
        count = 0

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal count
            if event not in EVENTS or (event == "open" and not writes(arguments)):
                return
            count += 1
            if count == nth:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(watch)
            work()
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise WrongError(f"the writer itself failed with exit code {os.WEXITSTATUS(status)}")
    return os.WIFSIGNALED(status)


def writes(arguments: tuple[Any, ...]) -> bool:
    """Whether an ``open`` is one for writing."""
    _, mode, flags = arguments
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def card(source: Path, folder: Path, nth: int) -> str:
    """A card is replaced in a folder."""
    target = Path(shutil.copytree(source, folder / "bundle"))
    before = load_bundle(target).card
    after = {"note": "new"}
    killed = killed_at(nth, lambda: update_card(target, after))
    found = load_bundle(target).card
    if found not in (before, after) or (not killed and found != after):
        raise WrongError("the card is neither the old one nor the new one")
    update_card(target, after)
    return tidy(folder, {"bundle"}, load_bundle(target).card == after)


def bundle(source: Path, folder: Path, nth: int) -> str:
    """A bundle is written over another one, or where none was."""
    target = folder / "bundle"
    old = load_bundle(find_bundle("pretrained:yam-pick-place"))
    new = load_bundle(source)
    if nth % 2:
        shutil.copytree(old.path, target)

    def write() -> None:
        write_bundle(target, contract=new.contract, model_bytes=new.model_bytes, golden=new.golden, card=new.card)

    killed = killed_at(nth, write)
    if nth % 2 or not killed:
        found = load_bundle(target).contract
        if found not in (old.contract, new.contract) or (not killed and found != new.contract):
            raise WrongError("the bundle is neither the old one nor the new one")
    write()
    return tidy(folder, {"bundle"}, load_bundle(target).contract == new.contract)


def zipped(source: Path, folder: Path, nth: int) -> str:
    """A zip is written over another one."""
    target = folder / "bundle.zip"
    old = find_bundle("pretrained:yam-pick-place")
    write_zip(old, target)
    killed = killed_at(nth, lambda: write_zip(source, target))
    robot = load_bundle(target).contract.robot
    if robot not in ("yam", "go2") or (not killed and robot != "go2"):
        raise WrongError(f"the zip holds a bundle for {robot}")
    write_zip(source, target)
    return tidy(folder, {"bundle.zip"}, load_bundle(target).contract.robot == "go2")


def recording(source: Path, folder: Path, nth: int) -> str:
    """A run is recorded, and killed after a random number of ticks."""
    path = folder / "walk.mcap"
    command = ["run", str(source), "--backend", "mock", "--duration", "60", "--record", str(path), "--real-time"]
    child = subprocess.Popen(
        [sys.executable, "-m", "gantry_deploy.cli.main", *command],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: child.poll() is not None or (path.is_file() and path.stat().st_size > 4096), "a recording")
        begun = path.stat().st_size
        time.sleep(0.2 * nth)
    finally:
        child.kill()
        child.wait()
    found = read_recording(path)
    if path.stat().st_size == begun and not found.topics:
        return "killed before the first ticks were written"
    if found.complete:
        raise WrongError("a killed recording is called complete")
    times = found["/gantry/status"]["time_s"]
    if len(times) < 2 or (np.diff(times) <= 0).any():
        raise WrongError(f"{len(times)} ticks are left")
    return f"{len(times)} ticks"


def dataset(source: Path, folder: Path, nth: int) -> str:
    """Episodes are written one after the other."""
    from gantry_deploy.dataset import testing
    from gantry_deploy.dataset.checks.check import check_dataset
    from gantry_deploy.dataset.reader import Dataset
    from gantry_deploy.dataset.writer import DatasetWriter

    target = folder / "dataset"
    features = {name: item for name, item in testing.FEATURES.items() if item.dtype != "video"}

    def write(lengths: tuple[int, ...], first: int, resume: bool) -> None:
        with DatasetWriter(target, fps=20, features=features, robot_type="yam", resume=resume) as writer:
            testing.write_episodes(writer, lengths, first)

    killed = killed_at(nth, lambda: write(testing.LENGTHS, 0, False))
    count = Dataset(target).num_episodes if (target / "meta" / "info.json").is_file() else 0
    if not killed and count != len(testing.LENGTHS):
        raise WrongError(f"{count} episodes of {len(testing.LENGTHS)} are there")
    if count:
        testing.assert_holds(Dataset(target), testing.LENGTHS[:count])
    elif target.exists():
        shutil.rmtree(target)
    write(testing.LENGTHS[count:], count, bool(count))
    testing.assert_holds(Dataset(target), testing.LENGTHS)
    if found := check_dataset(target, decode=True):
        raise WrongError(f"after the next writer: {found[0]}")
    return f"{count} episodes were there"


def attempt_training(folder: Path, preset: str, delay_s: float) -> str:
    """A training is killed after its first checkpoint, and resumed to its end."""
    run = folder / "run"
    if preset == "ppo":
        words = ["velocity-flat-go2", "--set", "env.num_envs=64", "--set", "learner.steps_per_env=8"]
        words += ["--set", "learner.hidden=[16]", "--set", "learner.critic_hidden=[16]", "--set", "learner.epochs=1"]
        words += ["--set", "learner.save_every_s=0.1", "--steps", "40000"]
    else:
        words = ["gym:Pendulum-v1", "--preset", "sac", "--set", "learner.save_every_s=0.3", "--steps", "1500"]
    start = [sys.executable, "-m", "gantry_deploy.cli.main", "train"]
    tail = ["--episodes", "0", "--no-export"]
    log = (folder / "log").open("w")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen([*start, *words, *tail, "--run-dir", str(run)], stdout=log, stderr=log, env=environment)
    try:
        wait_for(lambda: child.poll() is not None or any(run.glob("checkpoints/*.pt")), "a checkpoint", 200.0)
        time.sleep(delay_s)
    finally:
        ended = child.poll()
        child.kill()
        child.wait()
    said = (folder / "log").read_text()
    if ended not in (None, 0):
        raise WrongError(f"the training ended with {ended}: {said[-300:]}")
    again = subprocess.run([*start, "--resume", str(run), *tail], capture_output=True, text=True, env=environment)
    output = again.stdout + again.stderr
    if ended == 0 and again.returncode == 2:
        return "was at its end"
    if again.returncode != 0 or "Traceback" in output:
        raise WrongError(f"--resume ended with {again.returncode}: {output[-500:]}")
    with contextlib.suppress(ValueError):
        json.loads((run / "config.json").read_text())
    return "resumed to its end"


def tidy(folder: Path, wanted: set[str], good: bool) -> str:
    """Refuse what is left over beside a result after the next writer."""
    if not good:
        raise WrongError("the next writer did not write")
    if left := {path.name for path in folder.iterdir()} - wanted:
        raise WrongError(f"left over: {sorted(left)}")
    return "right"
