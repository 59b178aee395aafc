"""Values of topics that count only while they are repeated."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Fresh(Generic[T]):
    """Newest value of a topic, as long as it is young.

    Args:
        timeout_s: Age from which it does not count, s.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.heard_s = -float("inf")
        """Time at which it was sent, on the reader's monotonic clock."""
        self._value: T | None = None

    def hear(self, value: T | None, heard_s: float) -> None:
        """Take a value; None for one that was refused."""
        self._value, self.heard_s = value, heard_s

    def get(self, now_s: float) -> T | None:
        """Value, or None without a young one."""
        return self._value if now_s - self.heard_s <= self.timeout_s else None


class DeadMan:
    """Dead-man switch that is repeated. It counts only after it was seen open, at first and after every silence.

    Args:
        timeout_s: Silence after which it counts as open, s.
    """

    def __init__(self, timeout_s: float) -> None:
        self._pressed, self._seen_open = Fresh[bool](timeout_s), False

    @property
    def heard_s(self) -> float:
        """Time of the newest message, monotonic."""
        return self._pressed.heard_s

    def hear(self, pressed: bool, heard_s: float) -> None:
        """Take a message."""
        self._seen_open = not pressed or (self._seen_open and self._pressed.get(heard_s) is not None)
        self._pressed.hear(pressed, heard_s)

    def held(self, now_s: float) -> bool:
        """Whether it is held."""
        return self._seen_open and self._pressed.get(now_s) is True

    def stuck(self, now_s: float) -> bool:
        """Whether it is pressed, and does not count."""
        return not self._seen_open and self._pressed.get(now_s) is True
