"""Where the robot was when a picture was taken: odometry kept for a while and read between its samples."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
Pose = tuple[FloatArray, FloatArray]
"""Position (3,) in the world, m, and orientation (4,), unit quaternion w first."""


class PoseBuffer:
    """The newest poses.

    Args:
        keep: How many.
        max_gap_s: Samples further apart than this tell nothing of the time between them.
    """

    def __init__(self, keep: int = 400, max_gap_s: float = 0.2) -> None:
        self._max_gap_s = max_gap_s
        self._samples: deque[tuple[float, FloatArray, FloatArray]] = deque(maxlen=keep)

    @property
    def newest_s(self) -> float:
        """Stamp of the newest pose; minus infinity without any."""
        return self._samples[-1][0] if self._samples else float("-inf")

    @property
    def newest(self) -> Pose | None:
        """The newest pose."""
        return self._samples[-1][1:] if self._samples else None

    def clear(self) -> None:
        """Forget all."""
        self._samples.clear()

    def add(self, stamp_s: float, pos_base_in_world_m: ArrayLike, quat_base_to_world_wxyz: ArrayLike) -> bool:
        """Take a pose; what is not later than the newest one, or not finite, is left out.

        Returns:
            Whether it was taken.
        """
        quat = np.asarray(quat_base_to_world_wxyz, dtype=np.float64)
        pos = np.asarray(pos_base_in_world_m, dtype=np.float64)
        norm = float(np.linalg.norm(quat))
        if not (stamp_s > self.newest_s and np.isfinite(pos).all() and np.isfinite(norm) and norm > 1e-6):
            return False
        self._samples.append((stamp_s, pos, quat / norm))
        return True

    def at(self, stamp_s: float) -> Pose | None:
        """The pose at a time, between two samples that are close enough to each other; None if there are none.

        Positions are interpolated along a line, orientations along the chord, which over such times is the same as
        along the arc.
        """
        after: tuple[float, FloatArray, FloatArray] | None = None
        for sample in reversed(self._samples):
            if sample[0] == stamp_s:
                return sample[1:]
            if sample[0] < stamp_s:
                if after is None or after[0] - sample[0] > self._max_gap_s:
                    return None
                return _between(sample, after, stamp_s)
            after = sample
        return None


def _between(
    before: tuple[float, FloatArray, FloatArray], after: tuple[float, FloatArray, FloatArray], stamp_s: float
) -> Pose:
    share = (stamp_s - before[0]) / (after[0] - before[0])
    # A quaternion and its negative are the same orientation; the chord between the nearer two is the right one.
    sign = -1.0 if before[2] @ after[2] < 0.0 else 1.0
    quat = (1.0 - share) * before[2] + share * sign * after[2]
    return (1.0 - share) * before[1] + share * after[1], quat / np.linalg.norm(quat)
