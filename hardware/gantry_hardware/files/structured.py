"""Frozen dataclasses from plain data, strictly: unknown, missing and ill-typed fields are errors with a hint."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from gantry_hardware.errors import GantryError, unknown_name_text
from gantry_hardware.files.json_file import JsonError, JsonSyntaxError, parse_json
from gantry_hardware.files.text import plain_text

T = TypeVar("T")


class ConfigError(GantryError):
    """A configuration value does not fit its field."""


def from_plain(cls: type[T], data: Any, where: str, error: type[GantryError] = ConfigError) -> T:
    """Build a dataclass from what JSON gives.

    Args:
        cls: The dataclass; its fields may be dataclasses, tuples, dictionaries of plain values, and optional.
        data: Plain data.
        where: Name of the thing, for messages.
        error: Class of the errors to raise.

    Raises:
        GantryError: Of class ``error``: unknown field (with the near miss), missing field, or wrong type.
    """
    if not isinstance(data, dict):
        raise error(f"{where} is {plain_text(data)}, expected an object.")
    known = {item.name for item in fields(cls)}  # type: ignore[arg-type]
    for key in data:
        if key not in known:
            raise error(unknown_name_text(f"field in {where}", key, known))
    hints = _hints(cls)
    values = {key: _convert(hints[key], value, f"{where}.{key}", error) for key, value in data.items()}
    try:
        return cls(**values)
    except TypeError as problem:
        missing = ", ".join(sorted(known - set(data)))
        raise error(f"{where} lacks fields; absent: {missing} ({problem}).") from problem


def set_field(config: T, path: str, text: str) -> T:
    """The same configuration with one field changed.

    Args:
        config: A frozen dataclass.
        path: Field names joined by dots, for example ``env.num_envs``.
        text: The new value as JSON, or a bare word for a string.

    Raises:
        ConfigError: If there is no such field (with the near miss) or the value does not fit.
    """
    return set_fields(config, [(path, text)])


def set_fields(config: T, changes: Sequence[tuple[str, str]]) -> T:
    """The same configuration with several fields changed, whose order matters only where one changes another's place.

    Each dataclass is built once, with all its changes: what a class checks of its fields together holds for the
    outcome, and need not hold on the way there.

    Args:
        config: A frozen dataclass.
        changes: Path and text of each change, as :func:`set_field` takes them; of two of a field the last one counts.

    Raises:
        ConfigError: If there is no such field (with the near miss) or the value does not fit.
    """
    draft = _Draft(config)
    for path, text in changes:
        draft.set(path.split("."), path, text)
    return draft.build()


class _Draft:
    """A dataclass that is being changed: a copy of it with other values, which are drafts or values of fields."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._values: dict[str, Any] = {}

    def build(self) -> Any:
        """The changed dataclass, which checks itself now."""
        made = {name: item.build() if isinstance(item, _Draft) else item for name, item in self._values.items()}
        return replace(self._config, **made)

    def set(self, parts: Sequence[str], path: str, text: str) -> None:
        """Change the field that the rest of a path leads to."""
        name = parts[0]
        self._require(name, path)
        hint = _hints(type(self._config))[name]
        if len(parts) == 1:
            value = _parse(text)
            if hint is int and isinstance(value, float) and value.is_integer():
                value = int(value)  # 3e6 steps are meant as a whole number
            self._values[name] = _convert(hint, value, path, ConfigError)
            return
        inner = self._values.get(name, getattr(self._config, name))
        if isinstance(inner, dict):
            changed = inner | {".".join(parts[1:]): _parse(text)}
            self._values[name] = _convert(hint, changed, name, ConfigError)
            return
        if is_dataclass(inner):
            inner = self._values[name] = _Draft(inner)
        if not isinstance(inner, _Draft):
            raise ConfigError(f"'{name}' in '{path}' has no fields of its own; it is {plain_text(inner)}.")
        inner.set(parts[1:], path, text)

    def _require(self, name: str, path: str) -> None:
        known = _field_names(self._config)
        if name not in known:
            inside = [f"{item}.{name}" for item in known if name in _field_names(getattr(self._config, item))]
            hint = f" Did you mean '{inside[0]}'?" if inside else ""
            where = f" (in '{path}')" if "." in path else ""
            raise ConfigError(f"{unknown_name_text('field', name, known)}{hint}{where}")


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """Field to its type; finding them out takes most of the time of reading, so it is done once per class."""
    return get_type_hints(cls)


def _field_names(value: Any) -> list[str]:
    return [item.name for item in fields(value)] if is_dataclass(value) else []


def _parse(text: str) -> Any:
    try:
        value = parse_json(text, "the value", allow_nan=True)
    except JsonSyntaxError:
        return text
    except JsonError as problem:
        raise ConfigError(str(problem)) from problem
    # What JSON calls NaN and Infinity, or a number too large, is nothing to train with.
    return text if isinstance(value, float) and not math.isfinite(value) else value


_WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}
"""Types of fields in words."""


def _convert(hint: Any, value: Any, where: str, error: type[GantryError]) -> Any:
    origin = get_origin(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in get_args(hint):
            return None
        return _convert(next(arg for arg in get_args(hint) if arg is not type(None)), value, where, error)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise error(f"{where} is {plain_text(value)}, expected a list.")
        kinds = get_args(hint)
        if len(kinds) != 2 or kinds[1] is not Ellipsis:
            if len(kinds) != len(value):
                raise error(f"{where} has {len(value)} entries, expected {len(kinds)}.")
        else:
            kinds = (kinds[0],) * len(value)
        pairs = zip(kinds, value, strict=True)
        return tuple(_convert(kind, item, f"{where}[{i}]", error) for i, (kind, item) in enumerate(pairs))
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise error(f"{where} is {plain_text(value)}, expected an object.")
        return {key: _convert(get_args(hint)[1], item, f"{where}.{key}", error) for key, item in value.items()}
    if is_dataclass(hint):
        return from_plain(hint, value, where, error)  # type: ignore[arg-type]
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as problem:
            raise error(f"{where} is a number beyond what fits a float.") from problem
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        expected = "a finite number" if hint is float and _is_no_number(value) else _WORDS.get(hint, hint.__name__)
        raise error(f"{where} is {plain_text(value)}, expected {expected}.")
    return value


def _is_no_number(value: Any) -> bool:
    """Whether a text stands for infinity, a number beyond what fits a float, or none at all (``nan``)."""
    try:
        return isinstance(value, str) and not math.isfinite(float(value))
    except ValueError:
        return False
