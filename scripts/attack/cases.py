"""Cases of an attack: each in a child process with limits, and a report of how they ended."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gantry_hardware.errors import GantryError

REFUSED, RIGHT, UGLY, WRONG = "refused", "right", "ugly", "wrong"
OUTCOMES = (REFUSED, RIGHT, UGLY, WRONG)
MAX_CPU_S = 30
"""Processor time of one case unless its attack says otherwise (``max_cpu_s``); an honest one takes less than a second,
and imports are done before."""
MAX_RSS = 1200 * 2**20
"""Memory of one case in bytes, the imported packages included."""
MAX_WAIT_S = 600.0
"""Wall-clock time after which a case is ended; only one that waits for ever gets there."""
MAX_MESSAGE = 2000
"""Characters of a message that a person still reads."""


class WrongError(Exception):
    """The oracle disagrees with what was accepted."""


class AttackOf(Protocol):
    """An attack: prepared once, then one case after the other."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Prepare intact material in ``folder``."""
        ...

    def case(self, number: int, rng: np.random.Generator, folder: Path) -> tuple[str, Callable[[], str]]:
        """Describe case ``number`` and return what tries it.

        The callable returns ``right`` or another note for accepted cases, raises a ``GantryError`` for refused ones
        and :class:`WrongError` where the oracle disagrees.
        """
        ...


@dataclass
class Report:
    """Outcome of the cases of one attack."""

    kind: str
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    bad: list[dict[str, Any]] = field(default_factory=list)
    messages: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> bool:
        """Whether a case was ugly or wrong."""
        return bool(self.counts[UGLY] or self.counts[WRONG])

    def text(self) -> str:
        """One line of counts."""
        counts = ", ".join(f"{name} {self.counts[name]}" for name in OUTCOMES)
        return f"{self.kind:10} {sum(self.counts.values()):5} cases, seed {self.seed}: {counts}"

    def plain(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"kind": self.kind, "seed": self.seed, "counts": dict(self.counts), "bad": self.bad}


def run_cases(kind: str, attack: type[AttackOf], count: int, seed: int, only: int | None = None) -> Report:
    """Run cases 0 to ``count``, or case ``only`` alone in this process, and say how each bad one ended."""
    report = Report(kind, seed)
    print(f"{kind}: seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix=f"gantry-attack-{kind}-") as place:
        prepared = attack(Path(place), seed)
        for number in range(count) if only is None else [only]:
            with tempfile.TemporaryDirectory(prefix="case-", dir=place) as case_place:
                rng = np.random.default_rng([seed, number])
                what, attempt = prepared.case(number, rng, Path(case_place))
                limit_s = getattr(attack, "max_cpu_s", MAX_CPU_S)
                outcome, text = _outcome_here(attempt) if only is not None else in_child(attempt, limit_s)
            report.counts[outcome] += 1
            if outcome in (UGLY, WRONG) or only is not None:
                report.bad.append({"case": number, "what": what, "outcome": outcome, "text": text})
                print(f"  {outcome:8} case {number}: {what}: {text[-600:]}", flush=True)
            if (number + 1) % 50 == 0:
                print(f"  {report.text()}", flush=True)
    return report


def in_child(attempt: Callable[[], str], max_cpu_s: int = MAX_CPU_S) -> tuple[str, str]:
    """Run an attempt in a forked process with limits; returns its outcome and a text."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with open(os.devnull, "w") as null:
            os.dup2(null.fileno(), 1)
            os.dup2(null.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_CPU, (max_cpu_s, max_cpu_s + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with os.fdopen(writer, "w") as stream:
            json.dump(_outcome_here(attempt), stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream, _deadline(child):
        said = stream.read()
    _, status, usage = os.wait4(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return (
            UGLY,
            f"ended by {signal.Signals(number).name} after {usage.ru_utime + usage.ru_stime:.1f} s of processor",
        )
    if not said:
        return UGLY, f"ended with {os.WEXITSTATUS(status)} and no word"
    outcome, text = json.loads(said)
    if usage.ru_maxrss * 1024 > MAX_RSS:
        return UGLY, f"took {usage.ru_maxrss / 1024:.0f} MiB; {outcome}: {text}"
    return outcome, text


@contextlib.contextmanager
def _deadline(child: int) -> Iterator[None]:
    def end(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, MAX_WAIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _outcome_here(attempt: Callable[[], str]) -> tuple[str, str]:
    try:
        return RIGHT, attempt() or ""
    except WrongError as error:
        return WRONG, str(error)
    except GantryError as error:
        return message_outcome(str(error))
    except BaseException:
        return UGLY, traceback.format_exc(limit=-6)


def message_outcome(text: str) -> tuple[str, str]:
    """Whether a person can read a message: not empty, not endless, no control characters, encodable."""
    if not text.strip():
        return UGLY, "an empty message"
    if len(text) > MAX_MESSAGE:
        return UGLY, f"a message of {len(text)} characters: {text[:200]}"
    if any((ord(letter) < 32 and letter not in "\n\t") or 0x7F <= ord(letter) < 0xA0 for letter in text):
        return UGLY, f"a message with control characters: {text[:200]!r}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return UGLY, f"a message that no terminal can show: {text[:200]!r}"
    return REFUSED, text


def wait_for(condition: Callable[[], Any], what: str, patience_s: float = 60.0) -> Any:
    """Wait until ``condition()`` is true and return its value.

    Raises:
        WrongError: If it never becomes true.
    """
    end_s = time.monotonic() + patience_s
    while not (value := condition()):
        if time.monotonic() > end_s:
            raise WrongError(f"waited {patience_s:g} s for {what}")
        time.sleep(0.01)
    return value
