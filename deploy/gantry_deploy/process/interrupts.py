"""Ctrl-C that always ends the process: while modules are imported, and where the code that it hits swallows it.

Nothing here imports more than the interpreter's own small modules: the first line of a process can use it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

EXIT_INTERRUPTED = 130
"""Exit code of a command that Ctrl-C stopped, as shells count it."""
INSIST_S = 0.5
"""An interruption that an import has swallowed is sent again after this time, s."""
IMPORT_S = 30.0
"""Longest time for which an interruption waits for the end of an import, s."""
LOOK_S = 0.02
"""Period at which an import is polled that an interruption waits for, s."""
LEAVE_S = 0.5
"""Time that the functions registered for the end of the process may take once it is interrupted, s."""


class EndAtOnce:
    """A handler of Ctrl-C for as long as nothing has begun: says one line and ends the process.

    Args:
        text: The line.
        code: Exit code.
    """

    def __init__(self, text: str, code: int) -> None:
        self._line = f"{text}\n".encode() if text else b""
        self._code = code

    def __call__(self, number: int, frame: FrameType | None) -> NoReturn:
        """End."""
        with contextlib.suppress(OSError):
            os.write(2, self._line)
        os._exit(self._code)


def end_on_interrupt(text: str = "Interrupted.", code: int = EXIT_INTERRUPTED) -> None:
    """Let Ctrl-C end this process at once, with one line on standard error, until something is at stake.

    For the time in which modules are imported. :func:`remembering_interrupts` takes over. A handler that is another
    one than Python's is left alone, and SIGINT that is ignored stays ignored.
    """
    if _is_ours(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, EndAtOnce(text, code))
    # What came while Python itself started, which :func:`starting_uninterrupted` has held back, comes now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def ignore_interrupts() -> None:
    """Let the interpreter end by itself: it takes handlers away first, and Ctrl-C would then look like a crash."""
    if _is_ours(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def starting_uninterrupted() -> Iterator[None]:
    """Hold SIGINT back from processes that are started in this block, until they call :func:`end_on_interrupt`.

    Python reads its own modules before the first line of a program, and a Ctrl-C in that time is a traceback. Only
    for programs that begin with :func:`end_on_interrupt`: in any other, Ctrl-C would never arrive.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave(code: int) -> NoReturn:
    """End an interrupted process now: what is printed is flushed, what is registered for the end is done.

    The interpreter's own way out takes seconds once the learning libraries are loaded, and waits for threads.

    Args:
        code: Exit code.
    """
    end_on_interrupt("", code)
    late = threading.Timer(LEAVE_S, os._exit, (code,))
    late.daemon = True
    late.start()
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    os._exit(code)


class Interrupts:
    """State of Ctrl-C while something runs."""

    def __init__(self) -> None:
        self._seen, self._begun = threading.Event(), False

    def is_set(self) -> bool:
        """Whether it was pressed."""
        return self._seen.is_set()

    def begin(self) -> None:
        """Something is at stake from now on: it is interrupted by an exception, and clears up."""
        self._begun = True

    def _note(self) -> bool:
        """Note one; whether it is the first."""
        first = not self._seen.is_set()
        self._seen.set()
        return first


@contextlib.contextmanager
def remembering_interrupts() -> Iterator[Interrupts]:
    """Raise KeyboardInterrupt at Ctrl-C, and know of it where the code that it hits swallows it or changes it.

    What runs while modules are imported may do so: callbacks of ctypes, imports that fail softly, functions that are
    called when an object dies. In the middle of an import nothing is raised until it is over, has taken
    :data:`IMPORT_S`, or Ctrl-C comes again: an exception can abort an extension module in C++, and the process with
    it. An interruption that was swallowed during an import is sent again. After :func:`end_on_interrupt` the process
    still ends at once until :meth:`Interrupts.begin` is called. A command's own handler, for as long as it needs one,
    is not affected, and nothing is put in the place of a foreign handler, or where SIGINT is ignored.
    """
    interrupts = Interrupts()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not _is_ours(before):
        yield interrupts
        return
    done = threading.Event()

    def remember(number: int, frame: FrameType | None) -> None:
        if isinstance(before, EndAtOnce) and not interrupts._begun:
            before(number, frame)
        if interrupts._note():
            waits = _is_import(frame)
            threading.Thread(target=_insist, args=(threading.get_ident(), done, waits), daemon=True).start()
            if waits:
                return
        signal.default_int_handler(number, frame)

    hook = sys.unraisablehook

    def quietly(report: Any) -> None:
        if not issubclass(report.exc_type, KeyboardInterrupt):
            hook(report)

    signal.signal(signal.SIGINT, remember)
    sys.unraisablehook = quietly
    try:
        yield interrupts
    finally:
        done.set()
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def interrupt_on_terminate() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, and SIGHUP of a terminal that was closed: a robot is damped and a recording closed.

    SIGHUP that is ignored, as ``nohup`` has it, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    numbers = (signal.SIGTERM, signal.SIGHUP) if hangs_up else (signal.SIGTERM,)
    previous = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_ours(handler: Any) -> bool:
    return handler is signal.default_int_handler or isinstance(handler, EndAtOnce)


def _insist(thread: int, done: threading.Event, waits: bool) -> None:
    """Interrupt a thread after the import that it is in, and again for as long as it imports, until it is done."""
    if waits:
        end_s = time.monotonic() + IMPORT_S
        while _is_import(sys._current_frames().get(thread)) and time.monotonic() < end_s:
            if done.wait(LOOK_S):
                return
        if not done.is_set():
            signal.raise_signal(signal.SIGINT)
    while not done.wait(INSIST_S):
        if _is_import(sys._current_frames().get(thread)):
            signal.raise_signal(signal.SIGINT)


def _is_import(frame: FrameType | None) -> bool:
    """Whether a frame is in the middle of an import."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
