"""JSON from files of unknown origin, read strictly: what two readers could take for two things is refused.

The only place that parses JSON. Refused are duplicate keys, text that is not UTF-8 or holds half of a surrogate pair,
nesting beyond :data:`MAX_DEPTH`, whole numbers beyond 64 bits, numbers that no float holds, ``NaN`` and ``Infinity``
unless they are asked for, and whatever is larger than a limit, before it is parsed.
"""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import path_text

MAX_BYTES = 2**20
"""Largest JSON unless a reader allows more: a contract has some 10 kB."""
MAX_DEPTH = 64
"""Deepest nesting of lists and objects."""
_SHOWN = 60
"""Characters of a key or a number that a message shows."""


class JsonError(GantryError, ValueError):
    """A text is no JSON, or JSON that a strict reader refuses."""


class JsonSyntaxError(JsonError):
    """A text is no JSON at all."""


def read_json(
    path: str | Path,
    *,
    what: str | None = None,
    max_bytes: int = MAX_BYTES,
    allow_nan: bool = False,
    max_text: int | None = None,
    error: type[GantryError] = JsonError,
) -> Any:
    """The value in a JSON file.

    Args:
        path: The file.
        what: Its name in messages; the quoted path if None.
        max_bytes: Largest file that is read.
        allow_nan: Take ``NaN`` and ``Infinity``, which are no JSON but which Python writes, for numbers.
        max_text: Longest text and key, which must then be printable, too; None for texts of any kind.
        error: Class of the errors about what the file holds.

    Raises:
        OSError: If it cannot be read.
        GantryError: Of class ``error``, if it is no plain file, too large, or no strict JSON.
    """
    what = f"'{path_text(path)}'" if what is None else what
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise error(f"{what} is no plain file.")
        data = file.read(max_bytes + 1)
    return parse_json(data, what, max_bytes=max_bytes, allow_nan=allow_nan, max_text=max_text, error=error)


def read_json_object(
    path: str | Path,
    *,
    what: str | None = None,
    max_bytes: int = MAX_BYTES,
    allow_nan: bool = False,
    max_text: int | None = None,
    error: type[GantryError] = JsonError,
) -> dict[str, Any]:
    """The same, refusing anything but an object."""
    what = f"'{path_text(path)}'" if what is None else what
    return _object(
        read_json(path, what=what, max_bytes=max_bytes, allow_nan=allow_nan, max_text=max_text, error=error),
        what,
        error,
    )


def parse_json(
    data: bytes | str,
    what: str,
    *,
    max_bytes: int = MAX_BYTES,
    allow_nan: bool = False,
    max_text: int | None = None,
    error: type[GantryError] = JsonError,
) -> Any:
    """The value of a JSON text.

    Args:
        data: The text, or its UTF-8 bytes.
        what: Its name in messages.
        max_bytes: Largest text that is parsed.
        allow_nan: Take ``NaN`` and ``Infinity`` for numbers.
        max_text: Longest text and key, which must then be printable, too; None for texts of any kind.
        error: Class of the errors; :class:`JsonSyntaxError` is raised for what is no JSON if it is left alone.

    Raises:
        GantryError: Of class ``error``, saying what is wrong and where.
    """
    try:
        return _parsed(data, what, max_bytes, allow_nan, max_text)
    except JsonError as problem:
        if error is JsonError:
            raise
        raise error(str(problem)) from problem


def parse_json_object(
    data: bytes | str,
    what: str,
    *,
    max_bytes: int = MAX_BYTES,
    allow_nan: bool = False,
    max_text: int | None = None,
    error: type[GantryError] = JsonError,
) -> dict[str, Any]:
    """The same, refusing anything but an object."""
    return _object(
        parse_json(data, what, max_bytes=max_bytes, allow_nan=allow_nan, max_text=max_text, error=error), what, error
    )


def as_plain(value: Any) -> Any:
    """Plain data as it comes back from a JSON file: tuples as lists, keys as texts.

    Raises:
        TypeError: If the value holds what JSON does not know.
    """
    text = json.dumps(value)
    return parse_json(text, "the value", max_bytes=len(text), allow_nan=True)


def _parsed(data: bytes | str, what: str, max_bytes: int, allow_nan: bool, max_text: int | None) -> Any:
    if len(data) > max_bytes:
        raise JsonError(f"{what} is larger than {max_bytes} bytes, the most that is read as JSON.")
    try:
        text = data.decode() if isinstance(data, bytes) else data
        text.encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as problem:
        raise JsonError(f"{what} is no UTF-8 text: {problem.reason} at {problem.start}.") from problem
    hooks = _Hooks(what, allow_nan)
    try:
        value = json.loads(
            text,
            object_pairs_hook=hooks.pairs,
            parse_int=hooks.whole_number,
            parse_float=hooks.number,
            parse_constant=hooks.constant,
        )
    except JsonError:
        raise
    except RecursionError as problem:
        raise JsonError(f"{what} is nested deeper than {MAX_DEPTH} lists and objects.") from problem
    except ValueError as problem:
        raise JsonSyntaxError(f"{what} is no JSON: {problem}.") from problem
    _check_values(value, what, max_text)
    return value


class _Hooks:
    """Callbacks of the parser at each object and number."""

    def __init__(self, what: str, allow_nan: bool) -> None:
        self.what = what
        self.allow_nan = allow_nan

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise JsonError(f"{self.what} has the key {twice[:_SHOWN]!a} twice in one object.")
        return found

    def whole_number(self, text: str) -> int:
        # A longer text is beyond 64 bits, and takes Python long to read.
        if len(text) > 20 or not -(2**63) <= (value := int(text)) < 2**64:
            raise JsonError(f"{self.what} has the whole number {text[:_SHOWN]}, which does not fit 64 bits.")
        return value

    def number(self, text: str) -> float:
        value = float(text)
        if not self.allow_nan and math.isinf(value):
            raise JsonError(f"{self.what} has the number {text[:_SHOWN]}, which no float holds.")
        return value

    def constant(self, text: str) -> float:
        if not self.allow_nan:
            raise JsonError(f"{self.what} has {text} in it, expected a finite number.")
        return float(text)


def _check_values(value: Any, what: str, max_text: int | None) -> None:
    """Refuse deep nesting, over which readers of the value would stumble, and texts that cannot be shown."""
    level, depth = [value], 0
    while level:
        for item in level:
            if isinstance(item, str):
                _check_text(item, what, max_text)
            elif isinstance(item, dict):
                for key in item:
                    _check_text(key, what, max_text)
        inner = [item for item in level if isinstance(item, (dict, list))]
        level = [part for item in inner for part in (item.values() if isinstance(item, dict) else item)]
        depth += bool(inner)
        if depth > MAX_DEPTH:
            raise JsonError(f"{what} is nested deeper than {MAX_DEPTH} lists and objects.")


def _check_text(text: str, what: str, max_text: int | None) -> None:
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise JsonError(f"{what} has the text {text[:_SHOWN]!a}, which holds half of a surrogate pair.")
    if max_text is None:
        return
    if len(text) > max_text:
        raise JsonError(f"{what} has a text of {len(text)} characters, {text[:_SHOWN]!a}..., allowed are {max_text}.")
    if not text.isprintable():
        raise JsonError(f"{what} has the text {text[:_SHOWN]!a}, expected printable characters.")


def _object(value: Any, what: str, error: type[GantryError]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise error(f"{what} is a JSON {type(value).__name__}, expected an object.")
    return value


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
