"""Ctrl-C that ends long work at its next good moment, everything saved."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stop_on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM asks for a stop, the second one interrupts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, frame: object) -> None:
        stop()
        signal.signal(number, previous[number])

    for number in previous:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
