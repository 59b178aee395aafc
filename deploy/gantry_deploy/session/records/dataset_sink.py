"""Steps of a running session into its dataset, in the background: a slow disk never holds up the control loop."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from gantry_deploy.session.records.dataset import SessionDataset
from gantry_deploy.session.steps import SessionStep
from gantry_hardware.errors import GantryError

_LOG = logging.getLogger("gantry.session")
QUEUE_STEPS = 2000
"""Steps that may wait; a minute and a half at 20 Hz."""

SETTLE_S = 0.5
"""Time for which a finished attempt waits for being discarded, which is told right after its last step."""

_Job = Callable[[], None]


class DatasetSink:
    """A :class:`gantry_deploy.session.parts.StepSink` that writes a dataset in a thread of its own.

    Args:
        dataset: To write to; closed by :meth:`close`.
        queue_steps: Steps that may wait for the disk.
    """

    def __init__(self, dataset: SessionDataset, queue_steps: int = QUEUE_STEPS) -> None:
        self.dataset = dataset
        self.dropped = 0
        """Steps that were lost because the disk was too slow, or after it had failed; their attempts are left out."""
        self.failure: str | None = None
        """Reason for which recording ended, or None."""
        self._holes: set[int] = set()
        self._closing = threading.Event()
        self._jobs: queue.Queue[_Job | None] = queue.Queue(queue_steps)
        self._thread = threading.Thread(target=self._work, name="gantry-session-dataset", daemon=True)
        self._thread.start()

    def take(self, step: SessionStep) -> None:
        """Take a step; neither blocks nor raises."""
        if self.failure is not None or step.episode in self._holes:
            self.dropped += 1
            return
        try:
            self._jobs.put_nowait(lambda: self._add(step))
        except queue.Full:
            self.dropped += 1
            self._holes.add(step.episode)
            _LOG.error("The disk is too slow: attempt %d is left out of '%s'.", step.episode, self.dataset.folder)

    def discard(self, episode: int) -> None:
        """Forget an attempt that will be recorded again, if it is not stored yet."""
        self._holes.add(episode)  # Seen by the thread at once, also where its queue is full.

    def close(self) -> None:
        """Write what waits and close the dataset; may be called twice."""
        self._closing.set()
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()
        self.dataset.close()

    def _add(self, step: SessionStep) -> None:
        if step.is_last:
            self._closing.wait(SETTLE_S)
        if step.episode in self._holes:
            self.dataset.discard_episode()
        else:
            self.dataset.add(step)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self.failure is not None:
                self.dropped += 1
                continue
            try:
                job()
            except (GantryError, OSError) as error:
                self.failure = f"The dataset '{self.dataset.folder}' ended early: {error}"
                _LOG.error(self.failure)
