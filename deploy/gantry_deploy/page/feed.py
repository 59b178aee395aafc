"""Snapshots on their way to browsers: asked for in one thread, kept as JSON, waited for by any number of streams."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gantry_deploy.page.connections import LOG
from gantry_deploy.page.facts import finite, view_of
from gantry_deploy.session.snapshot import SessionSnapshot
from gantry_deploy.session.states import SessionState

FEED_HZ = 10.0
"""Rate at which the session is asked."""
HISTORY = 300
"""Points of a curve; of a longer session every second one is left out, again and again."""


class Feed:
    """Newest snapshot as JSON. A session that does not answer holds up this thread alone.

    Args:
        snapshot: Gives the newest snapshot; may block.
    """

    def __init__(self, snapshot: Callable[[], SessionSnapshot]) -> None:
        self._ask = snapshot
        self._changed = threading.Condition()
        self._view = b"null"
        self._cameras: tuple[str, ...] = ()
        self._version = 0
        self._heard_s: float | None = None
        self._begun_s = time.monotonic()
        self._error, self._is_over = "", False
        self._history: list[tuple[int, float | None, float | None]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gantry-page-feed", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """Stop; a session that does not answer is not waited for."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether no more snapshots come."""
        return self._stop.is_set()

    @property
    def cameras(self) -> tuple[str, ...]:
        """Cameras of the newest snapshot."""
        return self._cameras

    def age_s(self) -> float:
        """Time since the session last gave a new snapshot, or, before the first one, since the beginning; 0 at its end.

        A running session makes a new one in every tick, so that one that only repeats itself hangs.
        """
        return 0.0 if self._is_over else time.monotonic() - (self._begun_s if self._heard_s is None else self._heard_s)

    @property
    def error(self) -> str:
        """Text of the last error of the session's answer; empty without one."""
        return self._error

    def wait(self, version: int, timeout_s: float) -> tuple[int, bytes | None]:
        """Wait for another version than a known one.

        Args:
            version: The known one; 0 for none.
            timeout_s: Longest wait.

        Returns:
            Newest version, and its JSON or None where it is the known one.
        """
        with self._changed:
            if self._version == version and not self._stop.is_set():
                self._changed.wait(timeout_s)
            return self._version, None if self._version == version else self._view

    def _run(self) -> None:
        last: SessionSnapshot | None = None
        while not self._stop.wait(1.0 / FEED_HZ):
            try:
                found = self._ask()
                data = None if found is last else self._encoded(found)
            except Exception as error:  # The session's own trouble is shown, and asked for again.
                if not self._error:
                    LOG.warning("The session gives no snapshot: %s", error)
                self._error = f"{type(error).__name__}: {error}"[:200]
                continue
            last = found
            with self._changed:
                self._error = ""
                if data is not None:
                    self._heard_s, self._is_over = time.monotonic(), found.state == SessionState.CLOSED
                    self._view, self._cameras = data, found.cameras
                    self._version += 1
                    self._changed.notify_all()

    def _encoded(self, snapshot: SessionSnapshot) -> bytes:
        rates = (finite(snapshot.success_rate), finite(snapshot.intervention_rate))
        if snapshot.attempts and (not self._history or self._history[-1][0] != snapshot.attempts):
            self._history.append((snapshot.attempts, *rates))
            if len(self._history) > HISTORY:
                del self._history[-2:0:-2]
        return to_json({**asdict(view_of(snapshot)), "curves": self._history})


def to_json(value: Any) -> bytes:
    """JSON on one line; without numbers that browsers do not know."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
