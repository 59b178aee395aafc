"""Relations between columns of numbers: which known column a seen one shows, how late, by which factor and offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.diagnosis.findings import Diagnosis, FindingKind

FloatArray = NDArray[np.float64]

DEGREES = 180.0 / np.pi


@dataclass(frozen=True)
class Relation:
    """``seen[t] = scale * known[t - lag, source] + offset`` for one seen column."""

    column: int
    """Seen column."""
    source: int
    """Known column; -1 if the seen one is constant."""
    lag: int
    """Rows by which it is late."""
    scale: float
    """Factor; 0 of a constant."""
    offset: float
    """Constant that was added, in the unit of the seen column."""
    residual: float
    """Largest difference that is left, in the unit of the seen column."""

    @property
    def is_identity(self) -> bool:
        """Whether the seen column is the known one of the same place."""
        return (self.column, self.lag) == (self.source, 0) and abs(self.scale - 1) < 1e-3 and abs(self.offset) < 1e-3


def relation_of(
    seen: FloatArray, known: FloatArray, column: int, *, segments: NDArray[np.intp], max_lag: int, tolerance: float
) -> Relation | None:
    """The simplest relation that explains a column; None if none does.

    Args:
        seen: Shape (T, m).
        known: Shape (T, k), k >= m.
        column: Of ``seen``.
        segments: Shape (T,), number of the uninterrupted stretch that a row belongs to; lags do not cross its borders.
        max_lag: Most rows by which the column may be late.
        tolerance: Largest difference that counts as explained, relative to the column's largest number.
    """
    values = seen[:, column]
    allowed = tolerance * max(1e-3, float(np.abs(values).max(initial=0.0)))
    if float(np.ptp(values)) <= allowed and float(np.ptp(known[:, column])) > 10 * allowed:
        return Relation(column, -1, 0, 0.0, float(values.mean()), 0.0)
    found: list[tuple[int, float, Relation]] = []
    for lag in range(max_lag + 1):
        rows = np.arange(lag, len(values))
        rows = rows[segments[rows] == segments[rows - lag]] if lag else rows
        if len(rows) < (8 if lag else 4):
            continue
        for source, scale, offset, residual in _fits(values[rows], known[rows - lag]):
            if residual <= allowed:
                relation = Relation(column, source, lag, scale, offset, residual)
                found.append((_complexity(relation), residual, relation))
    return min(found, key=lambda item: item[:2])[2] if found else None


def _fits(values: FloatArray, known: FloatArray) -> list[tuple[int, float, float, float]]:
    """Source, scale, offset and largest residual of each known column, with the scale free, 1 and -1."""
    result = []
    centred = values - values.mean()
    for source in range(known.shape[1]):
        other = known[:, source] - known[:, source].mean()
        power = float(other @ other)
        free = float(other @ centred) / power if power > 1e-12 * len(values) else 0.0
        for scale in dict.fromkeys((1.0, -1.0, free)):
            offset = float(values.mean() - scale * known[:, source].mean())
            for shift in dict.fromkeys((0.0, offset)):
                residual = float(np.abs(values - scale * known[:, source] - shift).max())
                result.append((source, scale, shift, residual))
    return result


def _complexity(relation: Relation) -> int:
    """Number of things that are wrong, those first that are rarer."""
    sign_only = abs(abs(relation.scale) - 1.0) < 1e-3
    return (
        3 * (relation.source != relation.column)
        + 2 * (relation.scale < 0)
        + 2 * (not sign_only)
        + 2 * (relation.offset != 0.0)
        + 2 * (relation.lag > 0)
    )


def tell_relations(
    diagnosis: Diagnosis,
    subject: str,
    relations: Sequence[Relation],
    labels: Sequence[str],
    dt_s: float,
    unit: str,
    alike: float = 0.01,
) -> None:
    """Note what relations of a quantity's columns say together.

    Args:
        diagnosis: Gets the findings.
        subject: Quantity.
        relations: One for each column that was explained and is not as it should be or is; the identity is in order.
        labels: Name of each column.
        dt_s: Time between two rows.
        unit: Of the quantity, for offsets.
        alike: Relative difference of factors that count as one: noise makes one factor many.
    """
    moved = [r for r in relations if r.source not in (-1, r.column)]
    if moved:
        shown = ", ".join(f"{labels[r.column]} shows {labels[r.source]}" for r in moved[:6])
        more = f" and {len(moved) - 6} more" if len(moved) > 6 else ""
        names = tuple(labels[r.column] for r in moved)
        diagnosis.wrong(FindingKind.PERMUTATION, subject, f"columns are permuted: {shown}{more}.", names)
    if flipped := [labels[r.column] for r in relations if r.scale < 0]:
        what = "every number has" if len(flipped) == len(labels) else f"{_list(flipped)} {_has(flipped)}"
        diagnosis.wrong(FindingKind.SIGN, subject, f"{what} the wrong sign.", tuple(flipped))
    _tell_scales(diagnosis, subject, relations, labels, alike)
    if shifted := [r for r in relations if r.source >= 0 and abs(r.offset) > 1e-3]:
        shown = ", ".join(f"{labels[r.column]} by {r.offset:+.4g}" for r in shifted[:6])
        more = f" and {len(shifted) - 6} more" if len(shifted) > 6 else ""
        unit_text = f" {unit}" if unit else ""
        names = tuple(labels[r.column] for r in shifted)
        diagnosis.wrong(FindingKind.OFFSET, subject, f"numbers are shifted: {shown}{more}{unit_text}.", names)
    if late := sorted({r.lag for r in relations if r.lag}):
        names = tuple(labels[r.column] for r in relations if r.lag)
        ticks = " or ".join(str(lag) for lag in late)
        text = f"numbers are {ticks} tick{'s' if late != [1] else ''} old ({1e3 * dt_s * late[-1]:.0f} ms)."
        diagnosis.wrong(FindingKind.DELAY, subject, text, names)
    if still := [labels[r.column] for r in relations if r.source < 0]:
        values = sorted({round(r.offset, 4) for r in relations if r.source < 0})
        at = f"at {values[0]:g}" if len(values) == 1 else "each at its own value"
        text = f"{_list(still)} {'does' if len(still) == 1 else 'do'} not change ({at})."
        diagnosis.wrong(FindingKind.CONSTANT, subject, text, tuple(still))


def _tell_scales(
    diagnosis: Diagnosis, subject: str, relations: Sequence[Relation], labels: Sequence[str], alike: float
) -> None:
    """Group columns by their factor."""
    groups: list[list[Relation]] = []
    for relation in sorted(relations, key=lambda item: abs(item.scale)):
        if relation.source < 0 or abs(abs(relation.scale) - 1.0) < 1e-3:
            continue
        if groups and abs(relation.scale) <= (1 + alike) * abs(groups[-1][0].scale):
            groups[-1].append(relation)
        else:
            groups.append([relation])
    for group in groups:
        names = [labels[relation.column] for relation in group]
        factor = float(np.median([abs(relation.scale) for relation in group]))
        what = (
            "every number is" if len(names) == len(labels) else f"{_list(names)} {'is' if len(names) == 1 else 'are'}"
        )
        text = f"{what} {factor:.4g} times what it should be{_unit_hint(factor, alike)}."
        diagnosis.wrong(FindingKind.SCALE, subject, text, tuple(names))


def _unit_hint(factor: float, alike: float) -> str:
    known = {DEGREES: "degrees in place of radians", 1 / DEGREES: "radians in place of degrees"}
    known |= {1 / 9.81: "g in place of m/s^2", 9.81: "m/s^2 in place of g", 1000.0: "thousandths", 0.001: "thousands"}
    return next(
        (f" ({words})" for value, words in known.items() if abs(factor / value - 1) < max(0.02, 0.5 * alike)), ""
    )


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _has(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"
