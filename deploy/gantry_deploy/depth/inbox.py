"""Images on their way from a camera's thread to a control loop: stamps, sizes and units are judged here, once."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque

import numpy as np

from gantry_deploy.depth.source import DepthArray, DepthImage
from gantry_deploy.repeated_log import Repeated
from gantry_hardware.compat import StrEnum
from gantry_mapping.errors import MappingError
from gantry_mapping.sensing.camera import DepthCamera
from gantry_mapping.sensing.units import require_metres

_LOG = logging.getLogger("gantry.depth")

SILENT_S = 0.5
"""A camera that gave nothing for longer is said to be silent."""
KEPT = 4
"""Images that wait for the reader; older ones are dropped."""
JUMP_S = 0.5
"""A stamp that runs ahead of the best offset by more than this is of a clock that was set."""
WINDOW_S = 10.0
"""The least delay is looked for among the arrivals of so long."""


class ImageOutcome(StrEnum):
    """Outcome of an image that a camera gave."""

    TAKEN = "taken"
    DROPPED = "dropped: the reader was slower"
    REPEATED = "with the stamp of the one before"
    CLOCK_SET = "taken: the camera's clock was set"
    WRONG_SIZE = "of another size"
    WRONG_UNIT = "in another unit"
    NO_TIME = "without a stamp"


class ClockMatch:
    """Capture times on this machine's steady clock from stamps on a camera's own.

    The offset is the least one between arrival and stamp of the last ten seconds: an image may come late, never early.
    What a camera needs at the least between capture and arrival cannot be told from stamps; ``delay_s`` says it. A
    stamp that goes back, or that jumps ahead, is of a clock that was set, and the offset begins anew.

    Args:
        delay_s: From a capture to its earliest arrival.
    """

    def __init__(self, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        self._last_s = -math.inf
        self._best = [math.inf, math.inf]
        self._begun_s = -math.inf

    def forget(self) -> None:
        """Take the next stamp for the first one."""
        self._last_s = -math.inf

    def capture_s(self, stamp_s: float, arrival_s: float) -> tuple[float, ImageOutcome]:
        """Capture time on the clock of ``arrival_s``, and whether the stamp is a new one, or the clock was set."""
        if stamp_s == self._last_s:
            return arrival_s, ImageOutcome.REPEATED
        offset_s, outcome = arrival_s - stamp_s, ImageOutcome.TAKEN
        first = math.isinf(self._last_s)
        if first or stamp_s < self._last_s or offset_s < min(self._best) - JUMP_S:
            outcome = ImageOutcome.TAKEN if first else ImageOutcome.CLOCK_SET
            self._best, self._begun_s = [offset_s, math.inf], arrival_s
        elif arrival_s - self._begun_s > 0.5 * WINDOW_S:
            self._best, self._begun_s = [offset_s, self._best[0]], arrival_s
        self._best[0] = min(self._best[0], offset_s)
        self._last_s = stamp_s
        return stamp_s + min(self._best) - self._delay_s, outcome


class ImageInbox:
    """Takes images of one camera from any thread, and hands them out on the reader's clock.

    Args:
        name: Of the camera, for messages.
        delay_s: See :class:`ClockMatch`.
    """

    def __init__(self, name: str, delay_s: float = 0.0) -> None:
        self.name = name
        """For messages."""
        self.counts = dict.fromkeys(ImageOutcome, 0)
        """Images by what became of them."""
        self.camera: DepthCamera | None = None
        """What images must look like; None for whatever comes."""
        self._clock = ClockMatch(delay_s)
        self._lock = threading.Lock()
        self._waiting: deque[tuple[float, DepthArray]] = deque()
        self._heard_s = time.monotonic()
        self._ages_s: deque[float] = deque(maxlen=200)
        self._refusal = ""
        self._log = Repeated(_LOG)

    def restarted(self) -> None:
        """The camera was opened anew: its stamps may be on another clock."""
        with self._lock:
            self._clock.forget()
            self._heard_s = time.monotonic()

    def put(self, depth_m: DepthArray, stamp_s: float, arrival_s: float, *, steady: bool = False) -> ImageOutcome:
        """Take an image.

        Args:
            depth_m: Shape (height, width), m.
            stamp_s: When it was taken, on the camera's clock.
            arrival_s: When it arrived, on this machine's steady clock (``time.monotonic``).
            steady: Whether the stamp is on this machine's steady clock already.

        Returns:
            What became of it.
        """
        outcome, capture_s, why = self._judge(depth_m, stamp_s, arrival_s, steady)
        with self._lock:
            self.counts[outcome] += 1
            if outcome in (ImageOutcome.TAKEN, ImageOutcome.CLOCK_SET):
                self._waiting.append((capture_s, depth_m))
                self._heard_s, self._refusal = time.monotonic(), ""
                if len(self._waiting) > KEPT:
                    self._waiting.popleft()
                    self.counts[ImageOutcome.DROPPED] += 1
            else:
                self._refusal = f"images are {outcome}{why}"
        if outcome is ImageOutcome.CLOCK_SET:
            _LOG.warning("The clock of %s was set; its images are followed from now on.", self.name)
        if outcome is ImageOutcome.TAKEN:
            self._log.over()
        elif outcome is not ImageOutcome.CLOCK_SET:
            self._log.error(f"An image of {self.name} was refused: {outcome}{why}")
        return outcome

    def take(self, now_s: float, camera: int = 0) -> list[DepthImage]:
        """The images since the last call, oldest first; stamps on the clock that is ``now_s`` now."""
        steady_s = time.monotonic()
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
        self._ages_s.extend(steady_s - capture_s for capture_s, _ in waiting)
        return [DepthImage(now_s + capture_s - steady_s, depth_m, camera) for capture_s, depth_m in waiting]

    def silent_s(self) -> float:
        """Time since the last image that was taken, or since the camera was opened."""
        with self._lock:
            return time.monotonic() - self._heard_s

    def trouble(self) -> str:
        """Reason for which no images come; empty while they do."""
        silent_s = self.silent_s()
        if silent_s <= SILENT_S:
            return ""
        return f"no image of {self.name} for {silent_s:.1f} s" + (f": {self._refusal}" if self._refusal else "")

    def statistics(self) -> dict[str, object]:
        """Counts, and the median age of the images that were handed out, s."""
        counts: dict[str, object] = {f"{self.name}: {outcome}": n for outcome, n in self.counts.items() if n}
        if self._ages_s:
            counts[f"{self.name}: median age s"] = round(float(np.median(list(self._ages_s))), 4)
        return counts

    def _judge(
        self, depth_m: DepthArray, stamp_s: float, arrival_s: float, steady: bool
    ) -> tuple[ImageOutcome, float, str]:
        """Outcome, capture time on the steady clock, and the numbers."""
        camera = self.camera
        if depth_m.ndim != 2 or (camera is not None and depth_m.shape != (camera.height, camera.width)):
            known = "" if camera is None else f", expected {camera.width} x {camera.height}"
            found = " x ".join(str(size) for size in reversed(depth_m.shape))
            return ImageOutcome.WRONG_SIZE, 0.0, f" ({found} pixels{known})"
        try:
            require_metres(depth_m)
        except MappingError as error:
            return ImageOutcome.WRONG_UNIT, 0.0, f": {error}"
        if not math.isfinite(stamp_s):
            return ImageOutcome.NO_TIME, 0.0, ""
        if steady:
            return ImageOutcome.TAKEN, stamp_s, ""
        with self._lock:
            capture_s, outcome = self._clock.capture_s(stamp_s, arrival_s)
        return outcome, capture_s, ""
