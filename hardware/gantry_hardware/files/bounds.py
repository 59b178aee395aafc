"""Numbers that must be finite and lie in a range: one check for what files, parameters and command lines say."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from gantry_hardware.errors import GantryError

TEXT_LENGTH = 60
"""Letters of a refused value that a message repeats."""


class Range(NamedTuple):
    """Smallest and largest value that is accepted, both inclusive and finite."""

    low: float
    """Smallest value."""
    high: float
    """Largest value."""

    def __str__(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"


MAX_SEED = 2**32 - 1
"""Largest seed; every random generator in use takes 0 to this."""


def finite(name: str, value: Any, low: float, high: float, error: type[GantryError] = GantryError) -> float:
    """The value as a float, if it is a finite number from ``low`` to ``high``.

    Args:
        name: What the number is called where it was set, for the message.
        value: What was given; booleans and texts are no numbers.
        low: Smallest value that is accepted.
        high: Largest value that is accepted.
        error: Class of the error to raise.

    Raises:
        GantryError: Of class ``error``, with name, value and range.
    """
    if not is_number(value) or not low <= value <= high:
        raise error(f"{name} is {value_text(value)}, expected {Range(low, high)}.")
    return float(value)


def ordered(
    name: str,
    pair: tuple[float, float],
    least: float | None = None,
    above: float | None = None,
    error: type[GantryError] = GantryError,
) -> None:
    """Refuse a range with the larger number first, or one that reaches too low.

    Args:
        name: What the range is called where it was set, for the message.
        pair: Its least and largest number.
        least: Smallest number that is accepted; None for any.
        above: Number that all must be greater than; None for none.
        error: Class of the error to raise.

    Raises:
        GantryError: Of class ``error``, with name, range and what was expected.
    """
    low, high = pair
    if not low <= high:
        raise error(f"{name} is {[low, high]}, expected the smaller number first.")
    if least is not None and not low >= least:
        raise error(f"{name} is {[low, high]}, expected {least:g} or more.")
    if above is not None and not low > above:
        raise error(f"{name} is {[low, high]}, expected more than {above:g}.")


def whole(name: str, value: Any, low: int, high: int, error: type[GantryError] = GantryError) -> int:
    """The value as an int, if it is a whole number from ``low`` to ``high``; see :func:`finite`.

    Raises:
        GantryError: Of class ``error``, with name, value and range.
    """
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_whole or not low <= int(value) <= high:
        raise error(f"{name} is {value_text(value)}, expected a whole number from {low} to {high}.")
    return int(value)


def check_fields(
    owner: Any, ranges: Mapping[str, Range], where: str = "", error: type[GantryError] = GantryError
) -> None:
    """Refuse fields of a dataclass that leave their ranges; of tuples, nested ones too, every number counts.

    Args:
        owner: The dataclass; None passes in a field whose annotation allows it.
        ranges: Field name to what it may be.
        where: What stands before a field's name in messages, for example ``"drive."``.
        error: Class of the error to raise.

    Raises:
        GantryError: Of class ``error``, with field, value and range.
    """
    optional = {item.name for item in fields(owner) if "None" in str(item.type)}
    for name, (low, high) in ranges.items():
        value = getattr(owner, name)
        if value is not None or name not in optional:
            _check(f"{where}{name}", value, low, high, error)


def is_number(value: Any) -> bool:
    """Whether a value is a real number and no boolean; NaN and infinity are."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def value_text(value: Any) -> str:
    """A value as a message shows it: control characters escaped, and no more than some 60 letters."""
    try:
        text = repr(value) if isinstance(value, str) or not is_number(value) else _number_text(value)
    except ValueError:  # Python does not write whole numbers of thousands of digits.
        return "a whole number of thousands of digits"
    return text if len(text) <= TEXT_LENGTH else f"{text[:TEXT_LENGTH]}... ({len(text)} letters)"


def _number_text(value: Any) -> str:
    return str(int(value)) if isinstance(value, numbers.Integral) else str(float(value))


def _check(name: str, value: Any, low: float, high: float, error: type[GantryError]) -> None:
    if isinstance(value, tuple):
        for i, item in enumerate(value):
            _check(f"{name}[{i}]", item, low, high, error)
        return
    finite(name, value, low, high, error)


def is_finite_number(value: Any) -> bool:
    """Whether a value is a number that a computation can be made with: finite, and no boolean."""
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:  # A whole number beyond what fits a float.
        return False
