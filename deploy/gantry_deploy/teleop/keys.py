"""Keys of a terminal: names of bytes and escape sequences, and key repeat told from further presses."""

from __future__ import annotations

_ESCAPE = 0x1B
_LONGEST = 32
"""Bytes of an escape sequence that are kept; what is longer has no name."""
_FINALS = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"}
_NUMBERS = {"1": "home", "2": "insert", "3": "delete", "4": "end", "5": "page_up", "6": "page_down"}
_CONTROLS = {0x0A: "enter", 0x0D: "enter", 0x20: "space", 0x09: "tab", 0x7F: "backspace", 0x08: "backspace"}


class KeyParser:
    """Names of keys from the bytes of a terminal. A sequence that is unknown gives none, and never the keys inside it.

    Letters are lower case, whatever the shift lock says.
    """

    def __init__(self) -> None:
        self._pending = bytearray()

    @property
    def waits(self) -> bool:
        """Whether a sequence has begun; call :meth:`flush` if nothing follows soon."""
        return bool(self._pending)

    def feed(self, data: bytes) -> list[str]:
        """Names of the keys that are complete, oldest first."""
        return [name for byte in data for name in self._take(byte)]

    def flush(self) -> list[str]:
        """Names once nothing has followed: the escape key itself, or none of a sequence that was cut off."""
        alone = bytes(self._pending) == bytes([_ESCAPE])
        self._pending.clear()
        return ["escape"] if alone else []

    def _take(self, byte: int) -> list[str]:
        pending = self._pending
        if not pending:
            if byte == _ESCAPE:
                pending.append(byte)
                return []
            return _plain(byte)
        if byte == _ESCAPE:
            found = self.flush()
            pending.append(byte)
            return found
        pending.append(byte)
        if len(pending) == 2 and byte in b"[O":
            return []
        if len(pending) > 2 and 0x20 <= byte < 0x40:
            del pending[_LONGEST:]
            return []
        found = _sequence(pending.decode("latin-1")) if len(pending) > 2 else []
        pending.clear()
        return found


class KeyRepeat:
    """Repetition of a key that is held, which a terminal cannot tell from pressing it again.

    Args:
        hold_s: A held key repeats within this time.
        first_hold_s: The first repetition comes within this time.
    """

    def __init__(self, hold_s: float, first_hold_s: float) -> None:
        self.hold_s, self.first_hold_s = hold_s, first_hold_s
        self._name, self._last_s, self._repeats = "", 0.0, False

    def is_repeat(self, name: str, now_s: float) -> bool:
        """Whether a key that comes at ``now_s``, monotonic, has been held since it came last."""
        longest_s = self.hold_s if self._repeats else self.first_hold_s
        self._repeats = name == self._name and now_s - self._last_s < longest_s
        self._name, self._last_s = name, now_s
        return self._repeats


def _plain(byte: int) -> list[str]:
    if byte in _CONTROLS:
        return [_CONTROLS[byte]]
    return [chr(byte).lower()] if 0x20 < byte < 0x7F else []


def _sequence(text: str) -> list[str]:
    """Name of a sequence that begins with escape and ``[`` or ``O``; modifiers such as shift are left out."""
    parameters, final = text[2:-1].split(";"), text[-1]
    name = _NUMBERS.get(parameters[0]) if final == "~" else _FINALS.get(final)
    return [] if name is None else [name]
