"""A camera in a thread of its own, opened again within bounds when it falls silent."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gantry_deploy.depth.inbox import ImageInbox
from gantry_deploy.depth.source import DepthArray, DepthError, DepthImage
from gantry_hardware.errors import GantryError
from gantry_hardware.files.bounds import Range, check_fields
from gantry_mapping.sensing.camera import DepthCamera

_LOG = logging.getLogger("gantry.depth")


class Grab(NamedTuple):
    """One image as a driver gives it."""

    depth_m: DepthArray
    """Shape (height, width), m."""
    stamp_s: float
    """Capture time."""
    arrival_s: float
    """Arrival on this machine's steady clock."""
    steady: bool = False
    """Whether the stamp is on that clock, too."""


class CameraDriver(Protocol):
    """Driver of a make of cameras; all calls come from one thread at a time."""

    def start(self) -> DepthCamera:
        """Open the camera; intrinsics and mounting of its images.

        Raises:
            DepthError: If it cannot be opened; it is not open then.
        """
        ...

    def grab(self, timeout_s: float) -> Grab | None:
        """The next image; None if none came in time.

        Raises:
            DepthError: If the camera is gone.
        """
        ...

    def stop(self) -> None:
        """Release the camera; raises nothing, may be called twice."""
        ...


@dataclass(frozen=True)
class ReconnectCfg:
    """Bounds of opening a silent camera again."""

    silence_s: float = 2.0
    """A camera without an image for so long is closed and opened again."""
    attempts: int = 20
    """So often in a row; then it is given up. An image sets the count back."""
    first_wait_s: float = 0.5
    """Before the second attempt; every further one waits twice as long..."""
    longest_wait_s: float = 5.0
    """... but no longer than this."""

    def __post_init__(self) -> None:
        ranges = {
            "silence_s": Range(0.05, 60.0),
            "attempts": Range(0, 1000),
            "first_wait_s": Range(0.01, 60.0),
            "longest_wait_s": Range(0.01, 600.0),
        }
        check_fields(self, ranges, "Reconnecting: ", DepthError)


GRAB_TIMEOUT_S = 0.1
"""Longest wait of the thread for one image, so that it ends soon after :meth:`SupervisedSource.close`."""
JOIN_TIMEOUT_S = 5.0
"""Time that the thread may take to end."""
FIRST_IMAGE_S = 5.0
"""Time that a camera may take from being opened to its first image, while the program starts."""


class SupervisedSource:
    """A :class:`gantry_deploy.depth.source.DepthSource` of one camera, whatever its make.

    Args:
        name: For messages.
        driver: Opens the camera and gets its images.
        delay_s: From a capture to its earliest arrival.
        reconnect: Bounds of opening it again.
        first_image_s: Time that the first image may take.
    """

    live = True

    def __init__(
        self,
        name: str,
        driver: CameraDriver,
        delay_s: float = 0.0,
        reconnect: ReconnectCfg | None = None,
        first_image_s: float = FIRST_IMAGE_S,
    ) -> None:
        self._driver = driver
        self._cfg = reconnect or ReconnectCfg()
        self._first_image_s = first_image_s
        self._inbox = ImageInbox(name, delay_s)
        self._camera: DepthCamera | None = None
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = 0
        self._reopened = 0
        self._gone = ""

    @property
    def name(self) -> str:
        """For messages."""
        return self._inbox.name

    @property
    def cameras(self) -> tuple[DepthCamera, ...]:
        """The one camera; none before :meth:`open`."""
        return () if self._camera is None else (self._camera,)

    def open(self) -> None:
        """Open the camera and wait for a first image.

        Raises:
            DepthError: If it cannot be opened, or gives no image.
        """
        if self._thread is not None:
            return
        self._end.clear()
        self._camera = self._inbox.camera = self._driver.start()
        self._inbox.restarted()
        try:
            self._await_first()
        except BaseException:
            self._driver.stop()
            raise
        self._thread = threading.Thread(target=self._run, name=f"{self.name} depth", daemon=True)
        self._thread.start()

    def read(self, now_s: float) -> list[DepthImage]:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        return self._inbox.take(now_s)

    def trouble(self) -> str:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        found = self._inbox.trouble()
        return f"{found} ({self._gone})" if found and self._gone else found

    def statistics(self) -> dict[str, object]:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        return {
            **self._inbox.statistics(),
            **({f"{self.name}: opened again": self._reopened} if self._reopened else {}),
        }

    def close(self) -> None:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        self._end.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(JOIN_TIMEOUT_S)
            if thread.is_alive():
                _LOG.error("The thread of %s did not end within %g s.", self.name, JOIN_TIMEOUT_S)
                return
        self._driver.stop()

    def _await_first(self) -> None:
        until_s = time.monotonic() + self._first_image_s
        while time.monotonic() < until_s:
            grab = self._driver.grab(GRAB_TIMEOUT_S)
            if grab is not None:
                self._inbox.put(*grab[:3], steady=grab.steady)
                return
        raise DepthError(
            f"{self.name} was opened, and gave no image within {self._first_image_s:g} s. Unplug it and plug it in "
            "again; a cable or hub of USB 2 is too slow for most profiles."
        )

    def _run(self) -> None:
        open_now = True
        while not self._end.is_set():
            if not open_now:
                open_now = self._open_again()
                if not open_now and self._failed >= self._cfg.attempts:
                    self._gone = f"given up after {self._failed} attempts: {self._gone}"
                    _LOG.error("%s is %s.", self.name, self._gone)
                    return
                continue
            try:
                grab = self._driver.grab(GRAB_TIMEOUT_S)
                if grab is not None:
                    self._inbox.put(*grab[:3], steady=grab.steady)
                    self._failed, self._gone = 0, ""
                elif self._inbox.silent_s() > self._cfg.silence_s:
                    raise DepthError(f"no image for {self._inbox.silent_s():.1f} s")
            except (
                Exception
            ) as error:  # Whatever a driver's library raises, the loop must go on seeing that it is blind.
                self._say_gone(error)
                self._driver.stop()
                open_now = False

    def _say_gone(self, error: Exception) -> None:
        self._gone = str(error) if isinstance(error, GantryError) else f"{type(error).__name__}: {error}"
        _LOG.warning("%s: %s; it is opened again, up to %d times.", self.name, self._gone, self._cfg.attempts)

    def _open_again(self) -> bool:
        """Try once, after a wait that grows with the number of failures; whether it is open."""
        if self._failed >= self._cfg.attempts:
            return False
        wait_s = (
            0.0
            if not self._failed
            else min(self._cfg.first_wait_s * 2.0 ** (self._failed - 1), self._cfg.longest_wait_s)
        )
        if self._end.wait(wait_s):
            return False
        self._failed += 1
        try:
            camera = self._driver.start()
            if camera != self._camera:
                self._driver.stop()
                raise DepthError(_other_camera(camera, self._camera))
        except Exception as error:
            self._gone = str(error) if isinstance(error, GantryError) else f"{type(error).__name__}: {error}"
            _LOG.warning(
                "%s could not be opened, attempt %d of %d: %s", self.name, self._failed, self._cfg.attempts, self._gone
            )
            return False
        self._reopened += 1
        self._inbox.restarted()
        _LOG.warning("%s was opened again, attempt %d.", self.name, self._failed)
        return True


def _other_camera(found: DepthCamera, known: DepthCamera | None) -> str:
    if known is None:
        return "it was not open before"
    return (
        f"it came back as {found.width} x {found.height} pixels with focal length {found.fx:.1f}, expected "
        f"{known.width} x {known.height} with {known.fx:.1f}"
    )
