"""Advice to step in: where the critic's heads disagree more than usual, or nothing moves any more."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

MEMORY = 500
"""Steps over which the usual disagreement is taken."""
FEW = 50
"""Steps before which nothing is usual yet."""
STILL = 1e-3
"""Largest change of a joint in a step that counts as standing still, rad or m."""


class Advisor:
    """Watches one attempt after the other.

    Args:
        dt_s: Length of a control step, s.
        ratio: Disagreement relative to its median from which stepping in is advised.
        stall_s: Time without motion after which it is advised, s.
    """

    def __init__(self, dt_s: float, ratio: float, stall_s: float) -> None:
        self._dt_s, self._ratio, self._stall_s = dt_s, ratio, stall_s
        self._seen: deque[float] = deque(maxlen=MEMORY)
        self._last: NDArray[np.floating] | None = None
        self._still_s = 0.0
        self.disagreement: float | None = None
        """Disagreement relative to its median; None where it is not known."""
        self.text = ""
        """Advice in words; empty for none."""

    def begin(self) -> None:
        """An attempt begins."""
        self._last, self._still_s, self.text = None, 0.0, ""

    def watch(self, joint_pos: NDArray[np.floating], disagreement: float | None) -> None:
        """Look at a step: joint positions (n,), rad or m, and the spread of the critic's heads, if there is one."""
        moved = self._last is None or float(np.abs(joint_pos - self._last).max()) > STILL
        self._last, self._still_s = joint_pos.copy(), 0.0 if moved else self._still_s + self._dt_s
        self.disagreement = None
        if disagreement is not None and np.isfinite(disagreement):
            self._seen.append(disagreement)
            usual = float(np.median(self._seen)) if len(self._seen) >= FEW else 0.0
            self.disagreement = disagreement / usual if usual > 0.0 else None
        if self._stall_s and self._still_s >= self._stall_s:
            self.text = f"Step in: nothing has moved for {self._still_s:.0f} s."
        elif self.disagreement is not None and self.disagreement >= self._ratio:
            self.text = f"Step in: the critic disagrees {self.disagreement:.1f} times as much as usual."
        else:
            self.text = ""
