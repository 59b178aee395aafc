"""Texts from files, messages and command lines, made fit for a terminal, a log line and a file name of one line."""

from __future__ import annotations

import unicodedata

NAME_LIMIT = 60
"""Characters of a name or a short text that are shown."""
MOST_NAMES = 64
"""Names that a message lists; no robot has as many joints."""
LINE_LIMIT = 1000
"""Characters of a whole message that are shown."""
PATH_LIMIT = 300
"""Characters of a path that are shown."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Controls (ESC, newline, C1), formats (bidirectional overrides, zero width), lone surrogates, private and unassigned
# code points, line and paragraph separators: what a terminal obeys, hides or cannot encode.


def printable(text: str, limit: int = NAME_LIMIT) -> str:
    r"""A text on one line: what is no plain character is escaped as in Python, what is too long is cut.

    Args:
        text: From a file, a message or a command line.
        limit: Characters of it that are shown at most; escapes count as what they become.

    Returns:
        The text itself where nothing is to be escaped or cut; ``\x1b[2J`` for an escape sequence, ``\ud800`` for a lone
        surrogate, and ``'abc… (1048576 characters)'`` where it was cut.
    """
    parts: list[str] = []
    length = 0
    for character in text[: limit + 1]:
        shown = _escaped(character)
        length += len(shown)
        if length > limit:
            return f"{''.join(parts)}… ({len(text)} characters)"
        parts.append(shown)
    return "".join(parts)


def plain_text(value: object, limit: int = NAME_LIMIT) -> str:
    """A value of any type in a message: a text as :func:`printable` shows it in quotes, another value's repr likewise.

    Args:
        value: What was given; a huge list or number is cut like a text.
        limit: Characters that are shown at most.
    """
    if isinstance(value, str):
        return f"'{printable(value, limit)}'"
    try:
        return printable(repr(value), limit)
    except Exception as error:  # A foreign object's repr, or an integer beyond the limit of digits.
        return f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"


def path_text(path: object) -> str:
    """A path in a message: one line, whatever the names in it hold."""
    return printable(str(path), PATH_LIMIT)


def printable_lines(text: str, limit: int = 10 * LINE_LIMIT) -> str:
    """A message of several lines as a terminal may get it: each line is made printable and cut."""
    return "\n".join(printable(line, limit) for line in text.split("\n"))


def names_text(names: object, limit: int = NAME_LIMIT, most: int = MOST_NAMES) -> str:
    """Names in a message, comma between them, each cut, and only so many of them.

    Args:
        names: Any iterable of texts.
        limit: Characters of each.
        most: Names that are shown; the rest is counted.
    """
    items = [str(name) for name in names]  # type: ignore[attr-defined]
    shown = [printable(name, limit) for name in items[:most]]
    rest = len(items) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def _escaped(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape").decode("ascii")
