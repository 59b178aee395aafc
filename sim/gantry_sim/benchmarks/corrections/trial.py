"""A learner and actors with scripted persons, in processes of their own, for a while."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import read_json
from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_sim.benchmarks.comparison import GANTRY

START_S = 180.0
"""Longest wait for a learner to listen, s."""
LOOK_S = 0.5
"""Time between two looks at the processes, s."""
TELL_S = 20.0
"""Time between two lines about what they do, s."""
_ADDRESS = re.compile(r"Waiting for actors at (\S+):")


def run_trial(
    folder: Path,
    learner: Sequence[str],
    actors: Sequence[Sequence[str]],
    seconds: float,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Let actors and a learner work at the same time.

    Args:
        folder: A new folder for everything: the run in ``run``, logs, spools.
        learner: Words of ``gantry train`` beside address and folder.
        actors: Words of ``gantry session start`` beside address, identity, spool and result, one list for each.
        seconds: Time from the actors' start on, s.
        say: Called with the newest line of the processes every :data:`TELL_S`.

    Returns:
        Plain data: ``sessions``, the result of each actor, and ``metrics``, the rows of the learner's log.

    Raises:
        GantryError: If a process fails; its log is named.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "processes.log"
    results = [folder / f"actor-{index}.json" for index in range(len(actors))]
    with log.open("w") as said, contextlib.ExitStack() as stack:
        words = ("train", *learner, "--listen", "127.0.0.1:0", "--run-dir", str(folder / "run"))
        teacher = _started(words, said, stack)
        address = _address(teacher, log)
        processes = []
        for index, (own, result) in enumerate(zip(actors, results, strict=True)):
            link = ("--learner", address, "--identity", f"robot-{index}", "--spool", str(folder / f"spool-{index}"))
            processes.append(_started(("session", "start", *link, "--json", str(result), *own), said, stack))
        _watch([teacher, *processes], seconds, log, say)
        for process in (*processes, teacher):
            _end(process)
    missing = [result for result in results if not result.is_file()]
    if missing:
        raise GantryError(f"{len(missing)} of {len(actors)} actors wrote no result; see {log}.")
    return {
        "sessions": [read_json(result) for result in results],
        "metrics": read_metrics(folder / "run" / METRICS_FILE),
    }


def _watch(processes: list[subprocess.Popen[bytes]], seconds: float, log: Path, say: Callable[[str], None]) -> None:
    until_s = time.monotonic() + seconds
    tell_s = time.monotonic() + TELL_S
    while (now_s := time.monotonic()) < until_s:
        if now_s > tell_s:
            tell_s += TELL_S
            say(f"  {log.read_text(errors='replace').rstrip().rpartition(chr(10))[2].strip()}")
        for process in processes:
            if process.poll() is not None:
                raise GantryError(f"A process ended early, with {process.returncode}; see {log}.")
        time.sleep(LOOK_S)


def _started(words: Sequence[str], said: Any, stack: contextlib.ExitStack) -> subprocess.Popen[bytes]:
    process = subprocess.Popen((*GANTRY, *words), stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, which saves like Ctrl-C; a process that does not listen is killed."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(60.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(learner: subprocess.Popen[bytes], log: Path) -> str:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        found = _ADDRESS.search(log.read_text())
        if found is not None:
            return found[1]
        if learner.poll() is not None:
            raise GantryError(f"The learner ended with {learner.returncode}; see {log}.")
        time.sleep(0.2)
    raise GantryError(f"The learner did not listen within {START_S:g} s; see {log}.")
