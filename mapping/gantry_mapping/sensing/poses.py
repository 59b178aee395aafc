"""Pose of the robot when a picture was taken: odometry kept for a while and read between its samples."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gantry_hardware.compat import StrEnum
from gantry_hardware.stamps import MAX_AHEAD_S, RESTART_S

FloatArray = NDArray[np.float64]
Pose = tuple[FloatArray, FloatArray]
"""Position (3,) in the world, m, and orientation (4,), unit quaternion w first."""
POSE_JUMP_M = 1.0
"""A robot that is further from its last pose than this, and than it can have gone since, was put somewhere else, or its
odometry has started over."""
POSE_SPEED_M_S = 4.0
"""Highest plausible speed of the robot since its last pose."""


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

    @property
    def max_gap_s(self) -> float:
        """Samples further apart than this tell nothing of the time between them."""
        return self._max_gap_s

    def clear(self) -> None:
        """Forget all."""
        self._samples.clear()

    def add(self, stamp_s: float, pos_base_in_world_m: ArrayLike, quat_base_to_world_wxyz: ArrayLike) -> bool:
        """Take a pose; what is not later than the newest one, or not finite, is left out.

        Returns:
            Whether it was taken.
        """
        pose = pose_of(pos_base_in_world_m, quat_base_to_world_wxyz)
        if pose is None or not stamp_s > self.newest_s:
            return False
        self._samples.append((stamp_s, *pose))
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


class PoseNews(StrEnum):
    """Outcome of a pose."""

    TAKEN = "taken"
    HELD = "held until the next one tells whether it was a stray"
    STARTED_OVER = "taken: the robot or its clock has started over"
    AHEAD = "stamped ahead of the clock"
    NOT_NEWER = "not newer than the one before"
    NO_POSE = "no finite pose with a time"
    STRAY = "a stray: the next one went on as before"


class PoseTrack:
    """Poses in order, of which a single wrong one changes nothing.

    A pose whose stamp goes back by more than a second, that lies further away than the robot can have gone, or that
    leaps ahead where no clock bounds stamps, is held. If the next one goes on from it, the robot, its odometry or its
    clock has started over, and is followed from the held pose on; if the next one goes on from where the robot was,
    the held one was a stray.

    Args:
        max_ahead_s: How far a stamp may lie ahead of the clock; without one, ahead of the newest pose.
        farthest_m: A robot that is further away than this was put there, however long it has not been heard.
    """

    def __init__(self, max_ahead_s: float = MAX_AHEAD_S, farthest_m: float = math.inf) -> None:
        self.poses = PoseBuffer()
        """What is believed."""
        self.counts = dict.fromkeys(PoseNews, 0)
        """Poses by what became of them; one that was held counts again when that is known."""
        self.max_ahead_s = max_ahead_s
        """How far a stamp may lie ahead."""
        self._farthest_m = farthest_m
        self._held: tuple[float, Pose] | None = None

    @property
    def held_s(self) -> float | None:
        """Stamp of the pose that is held, if one is."""
        return None if self._held is None else self._held[0]

    @property
    def now_s(self) -> float | None:
        """The newest stamp that a pose told, as the clock of the sources where no other is known; None without any."""
        newest_s = max(self.poses.newest_s, -math.inf if self._held is None else self._held[0])
        return None if math.isinf(newest_s) else newest_s

    def clear(self) -> None:
        """Forget all poses; counts stay."""
        self.poses.clear()
        self._held = None

    def add(
        self,
        stamp_s: float,
        pos_base_in_world_m: ArrayLike,
        quat_base_to_world_wxyz: ArrayLike,
        now_s: float | None = None,
    ) -> PoseNews:
        """Take the next pose, (3,) in m and (4,); ``now_s`` is the clock of the stamps, where it is known."""
        pose = pose_of(pos_base_in_world_m, quat_base_to_world_wxyz)
        if pose is None or not math.isfinite(stamp_s):
            return self._note(PoseNews.NO_POSE)
        if now_s is not None and stamp_s > now_s + self.max_ahead_s:
            return self._note(PoseNews.AHEAD)
        latest_s = math.inf if now_s is not None else self.poses.newest_s + self.max_ahead_s
        before = self.poses.newest
        if before is None or (
            self.poses.newest_s < stamp_s <= latest_s and self._near(before, pose, stamp_s - self.poses.newest_s)
        ):
            if self._held is not None:
                self._held = None
                self._note(PoseNews.STRAY)
            self.poses.add(stamp_s, *pose)
            return self._note(PoseNews.TAKEN)
        if self._held is not None:
            held_s, held = self._held
            # What comes again from where the robot was, late, is nothing that goes on from the held pose.
            late = not held_s < stamp_s <= held_s + self.max_ahead_s and self._is_late(stamp_s)
            if stamp_s > held_s and not late and self._near(held, pose, stamp_s - held_s):
                news = self._follow()
                self.poses.add(stamp_s, *pose)
                return self._note(news)
            if late or held_s - RESTART_S <= stamp_s <= held_s:
                return self._note(PoseNews.NOT_NEWER)
        elif self._is_late(stamp_s):
            return self._note(PoseNews.NOT_NEWER)
        self._held = (stamp_s, pose)
        return self._note(PoseNews.HELD)

    def agree(self, stamp_s: float) -> PoseNews | None:
        """A frame of the same moment bears a held pose out; None if there is none of that moment."""
        if self._held is None or self._held[0] != stamp_s:
            return None
        return self._note(self._follow())

    def may_come(self, stamp_s: float) -> bool:
        """Whether the pose of a moment may still become known."""
        held = self._held is not None and stamp_s > self._held[0] - self.poses.max_gap_s
        return held or stamp_s > self.poses.newest_s

    def _follow(self) -> PoseNews:
        """Go on from the held pose."""
        assert self._held is not None
        (held_s, held), self._held = self._held, None
        before, dt_s = self.poses.newest, held_s - self.poses.newest_s
        news = PoseNews.TAKEN
        if before is None or dt_s <= 0.0 or not self._near(before, held, dt_s):
            news = PoseNews.STARTED_OVER
            self.poses.clear()
        self.poses.add(held_s, *held)
        return news

    def _is_late(self, stamp_s: float) -> bool:
        return self.poses.newest_s - RESTART_S <= stamp_s <= self.poses.newest_s

    def _near(self, before: Pose, pose: Pose, dt_s: float) -> bool:
        """Whether a robot can have gone from one pose to another in a time."""
        reach_m = min(POSE_JUMP_M + POSE_SPEED_M_S * dt_s, max(POSE_JUMP_M, self._farthest_m))
        return float(np.linalg.norm(pose[0] - before[0])) <= reach_m

    def _note(self, news: PoseNews) -> PoseNews:
        self.counts[news] += 1
        return news


def pose_of(pos_base_in_world_m: ArrayLike, quat_base_to_world_wxyz: ArrayLike) -> Pose | None:
    """A pose with a unit quaternion; None where a number is not finite or there is no orientation."""
    quat = np.asarray(quat_base_to_world_wxyz, dtype=np.float64)
    pos = np.asarray(pos_base_in_world_m, dtype=np.float64)
    norm = float(np.linalg.norm(quat))
    if not (np.isfinite(pos).all() and np.isfinite(norm) and norm > 1e-6):
        return None
    return pos, quat / norm


def _between(
    before: tuple[float, FloatArray, FloatArray], after: tuple[float, FloatArray, FloatArray], stamp_s: float
) -> Pose:
    share = (stamp_s - before[0]) / (after[0] - before[0])
    # A quaternion and its negative are the same orientation; the chord between the nearer two is the right one.
    sign = -1.0 if before[2] @ after[2] < 0.0 else 1.0
    quat = (1.0 - share) * before[2] + share * sign * after[2]
    return (1.0 - share) * before[1] + share * after[1], quat / np.linalg.norm(quat)
