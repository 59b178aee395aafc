"""Ctrl-C that is known of even where the code that it hits makes an error of its own of it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def remembering_interrupts() -> Iterator[threading.Event]:
    """Know of Ctrl-C also where the code that it hits turns the interruption into an error of its own.

    What runs while modules are imported may do so: callbacks of ctypes, imports that fail softly. Whoever puts a
    handler of his own in the place of this one, for as long as he needs it, is not affected, and nothing is put in the
    place of another one, or where SIGINT is ignored.
    """
    interrupted = threading.Event()
    default = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not default:
        yield interrupted
        return

    def remember(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        default(number, frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, default)
