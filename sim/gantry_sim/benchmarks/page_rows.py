"""Rows of the page of numbers: a measured quantity, its peer, its aim, and the table they make."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from gantry_hardware.errors import GantryError

ONE_RUN = "one run"
"""Remark beside a value without repeats."""


@dataclass(frozen=True)
class Row:
    """A number of the page."""

    part: str
    """Part that it belongs to."""
    what: str
    """Quantity in words."""
    unit: str
    """Its unit."""
    better: Literal["higher", "lower"]
    """Direction in which the quantity improves."""
    value: float | None
    """Median of the runs, or the percentile that the words name; None for one that was not measured or not kept."""
    low: float | None = None
    """Smallest of the runs; None without repeats."""
    high: float | None = None
    """Largest of the runs; None without repeats."""
    runs: int = 1
    """Number of runs that the value is the median of."""
    environments: int | None = None
    """Number of environments that are stepped together; None where there are none."""
    peer: str = ""
    """Name of the peer that it is compared with; empty for none."""
    peer_value: float | None = None
    """The peer's, in the same unit."""
    peer_environments: int | None = None
    """The peer's number of environments."""
    ratio: float | None = None
    """Ours divided by the peer's: the median of the pairs."""
    ratio_low: float | None = None
    """Least ratio of the pairs; None without repeats."""
    ratio_high: float | None = None
    """Largest ratio of the pairs; None without repeats."""
    aim: float | None = None
    """Wanted value on two cores that do nothing else; None without one."""
    aim_ratio: float | None = None
    """Wanted number of times that it is better than the peer; None without one."""
    note: str = ""
    """Reason of a miss, or other remark."""

    def __post_init__(self) -> None:
        """Refuse a direction that is none.

        Raises:
            ValueError: If ``better`` is neither word.
        """
        if self.better not in ("higher", "lower"):
            raise ValueError(f"'{self.what}' is better when '{self.better}', expected 'higher' or 'lower'.")

    @property
    def has_aim(self) -> bool:
        """Whether there is something to meet or to miss."""
        return self.aim is not None or self.aim_ratio is not None

    @property
    def times_better(self) -> float | None:
        """Ratio turned so that more than 1 is better than the peer."""
        return self._times_better(self.ratio)

    def _times_better(self, ratio: float | None) -> float | None:
        return ratio if ratio is None or self.better == "higher" else 1.0 / ratio


def paired_row(row: Row, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """A row filled with medians, spread and ratios of measurements that were made in turns.

    Args:
        row: Its words; values are replaced.
        ours: Our measurements.
        theirs: The peer's, as many.
    """
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    low, high = _spread(ours)
    ratio_low, ratio_high = _spread(ratios)
    value, peer_value, ratio = (statistics.median(numbers) for numbers in (ours, theirs, ratios))
    return replace(
        row,
        value=value,
        low=low,
        high=high,
        runs=len(ours),
        peer_value=peer_value,
        ratio=ratio,
        ratio_low=ratio_low,
        ratio_high=ratio_high,
    )


def merged(repeats: Sequence[Sequence[Row]]) -> list[Row]:
    """Rows of several runs of a part as one row of each quantity, with the spread over the runs.

    Args:
        repeats: Rows of each run. A quantity that some runs lack says so.
    """
    if len(repeats) == 1:
        return list(repeats[0])
    found: dict[tuple[str, int | None, str], list[Row]] = {}
    for rows in repeats:
        for row in rows:
            found.setdefault((row.what, row.environments, row.peer), []).append(row)
    return [_merged(rows, len(repeats)) for rows in found.values()]


def _merged(rows: Sequence[Row], runs: int) -> Row:
    first, ours = rows[0], [row.value for row in rows if row.value is not None]
    theirs = [row.peer_value for row in rows if row.peer_value is not None]
    if not ours:
        return first
    if len(rows) < runs:
        first = replace(first, note="; ".join(filter(None, (first.note, f"in {len(rows)} of {runs} runs"))))
    if len(theirs) == len(ours):
        return paired_row(first, ours, theirs)
    low, high = _spread(ours)
    return replace(first, value=statistics.median(ours), low=low, high=high, runs=len(ours))


def _spread(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Least and largest; None of both for one value."""
    return (min(values), max(values)) if len(values) > 1 else (None, None)


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as plain data."""
    return [asdict(row) for row in rows]


def rows_from(found: Sequence[Mapping[str, Any]], source: str) -> list[Row]:
    """Rows from plain data, see :func:`plain`.

    Args:
        found: The data.
        source: Name of it, for the message.

    Raises:
        GantryError: If it is something else.
    """
    try:
        return [Row(**row) for row in found]
    except (TypeError, ValueError) as error:
        raise GantryError(f"'{source}' holds no rows of the page of numbers: {error}") from error


def table_of(rows: Sequence[Row]) -> list[list[str]]:
    """Cells of a table, the header first."""
    header = ["what", "measured", "better", "beside", "ratio", "aim", "missed by, why"]
    return [header, *([_what(row), _measured(row), row.better, _peer(row), _ratio(row), *_aim(row)] for row in rows)]


def markdown_of(rows: Sequence[Row]) -> str:
    """The table as Markdown, for a README."""
    head, *cells = table_of(rows)
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def missed_by(row: Row) -> float | None:
    """Distance from the aim in the aim's unit, 0 where it is met; None without an aim or without a number."""
    if row.aim_ratio is not None:
        return None if row.times_better is None else max(0.0, row.aim_ratio - row.times_better)
    if row.aim is None or row.value is None:
        return None
    return max(0.0, row.aim - row.value if row.better == "higher" else row.value - row.aim)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"


def _environments(count: int | None) -> str:
    return "" if count is None else f", {count:,} environments"


def _spread_text(middle: float, low: float | None, high: float | None) -> str:
    """A number with its least and largest in brackets, all with the same number of decimals."""
    if low is None or high is None:
        return _number(middle)
    numbers = (middle, low, high)
    decimals = 0 if abs(middle) >= 100.0 else max(len(_number(value).partition(".")[2]) for value in numbers)
    first, least, largest = (f"{value:,.{decimals}f}" for value in numbers)
    return f"{first} [{least}, {largest}]"


def _what(row: Row) -> str:
    return f"{row.what}{_environments(row.environments)}"


def _measured(row: Row) -> str:
    if row.value is None:
        return "not measured" if row.ratio is None else "ratio alone was kept"
    runs = f" ({ONE_RUN})" if row.runs == 1 else f" (median of {row.runs})"
    return f"{_spread_text(row.value, row.low, row.high)} {row.unit}{runs}"


def _peer(row: Row) -> str:
    if not row.peer:
        return ""
    value = "" if row.peer_value is None else f": {_number(row.peer_value)}"
    return f"{row.peer}{_environments(row.peer_environments)}{value}"


def _ratio(row: Row) -> str:
    """Times better or worse, always a number of 1 or more, and its spread in the same sense."""
    times = row.times_better
    if times is None or row.ratio is None:
        return ""
    ends = [row.ratio_low, row.ratio_high]
    better = times >= 1.0
    turned = better != (row.better == "higher")
    if turned:
        ends = [None if end is None else 1.0 / end for end in reversed(ends)]
    middle, runs = 1.0 / row.ratio if turned else row.ratio, f" ({ONE_RUN})" if row.runs == 1 else ""
    return f"{_spread_text(middle, *ends)} times {'better' if better else 'worse'}{runs}"


def _aim(row: Row) -> tuple[str, str]:
    """Cells of the aim, and of the miss with its reason."""
    if not row.has_aim:
        return "", row.note
    missed = missed_by(row)
    if row.aim_ratio is not None:
        aim, unit = f"{_number(row.aim_ratio)} times better", "times"
    else:
        aim, unit = f"{_number(row.aim or 0.0)} {row.unit}", row.unit
    told = "not measured" if missed is None else "met" if missed == 0.0 else f"missed by {_number(missed)} {unit}"
    return aim, "; ".join(filter(None, (told, row.note)))
