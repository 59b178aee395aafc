"""The figures of a locomotion report, drawn from plain numpy arrays. Matplotlib is imported when one is drawn."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gantry_deploy.report.svg import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, RED, STYLE
from gantry_hardware.errors import GantryError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]
Arguments = ParamSpec("Arguments")

WIDTH_IN = 6.2
"""Width of every figure; heights follow the content."""

MAX_POINTS = 1500
"""Points that a line keeps; more than a screen shows only makes the file larger."""


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Draw in the report's style, whatever the caller's matplotlib settings are; decorates what makes a figure."""

    @functools.wraps(draw)
    def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        import matplotlib

        settings: Any = {**matplotlib.rcParamsDefault, **STYLE}
        with matplotlib.rc_context(settings):
            return draw(*args, **kwargs)

    return wrapper


@styled
def learning_curve(
    progress: ArrayLike,
    series: Mapping[str, ArrayLike],
    *,
    progress_label: str = "training time [s]",
    limits: Mapping[str, float] | None = None,
) -> Figure:
    """Plot the course of a training: one panel per series, the raw values faint under their running mean.

    Args:
        progress: Shape (k,), time or environment steps of each iteration.
        series: Label with unit -> values (k,), for example "mean reward".
        progress_label: Label of the horizontal axis, with unit.
        limits: Label -> threshold to draw into that series' panel.

    Returns:
        The figure.
    """
    x = _vector("progress", progress)
    fig, axes = panels(len(series), 1.75)
    for axis, (label, values), color in zip(axes, series.items(), _cycle(len(series)), strict=True):
        y = _vector(label, values, len(x))
        keep = _thin(len(x))
        axis.plot(x[keep], y[keep], color=color, alpha=0.3, linewidth=0.9)
        axis.plot(x[keep], _running_mean(y, max(1, len(y) // 40))[keep], color=color)
        limit = (limits or {}).get(label)
        if limit is not None:
            axis.axhline(limit, color=RED, linestyle=(0, (4, 3)), linewidth=1.0)
        axis.set_title(label)
    axes[-1].set_xlabel(progress_label)
    return fig


@styled
def compared_curves(
    series: Mapping[str, Mapping[str, Sequence[tuple[ArrayLike, ArrayLike]]]], *, progress_label: str
) -> Figure:
    """Several trainings of several kinds in the same panels: each faint, and their mean.

    Args:
        series: Panel -> kind -> (x, y) of each training, equally many points each where they are to be averaged.
        progress_label: Label of the horizontal axis, with unit.

    Returns:
        The figure.
    """
    fig, axes = panels(len(series), 1.75)
    for axis, (label, kinds) in zip(axes, series.items(), strict=True):
        for (kind, curves), color in zip(kinds.items(), _cycle(len(kinds)), strict=True):
            for x, y in curves:
                axis.plot(x, y, color=color, alpha=0.35, linewidth=0.9)
            if len({len(_vector(kind, x)) for x, _ in curves}) == 1:
                mean = [np.mean([_vector(kind, curve[part]) for curve in curves], axis=0) for part in (0, 1)]
                axis.plot(*mean, color=color, label=kind)
        axis.set_title(label)
    axes[-1].set_xlabel(progress_label)
    legend(fig, axes[0])
    return fig


@styled
def velocity_tracking(
    time_s: ArrayLike,
    commanded: ArrayLike,
    measured: ArrayLike,
    *,
    names: Sequence[str] = ("forward [m/s]", "left [m/s]", "yaw rate [rad/s]"),
) -> Figure:
    """Commanded and measured velocity of the base in its own frame, one panel per component.

    Args:
        time_s: Shape (t,).
        commanded: Shape (t, c), m/s, m/s and rad/s.
        measured: Shape (t, c), likewise.
        names: A title for each component.

    Returns:
        The figure.
    """
    t = _vector("time_s", time_s)
    asked = _matrix("commanded", commanded, len(t), len(names))
    got = _matrix("measured", measured, len(t), len(names))
    fig, axes = panels(len(names), 1.6)
    keep = _thin(len(t))
    for index, (axis, name) in enumerate(zip(axes, names, strict=True)):
        axis.plot(t[keep], got[keep, index], color=BLUE, label="measured")
        axis.plot(t[keep], asked[keep, index], color=ORANGE, label="commanded", drawstyle="steps-post")
        axis.set_title(name)
        _widen(axis, 0.2)
    legend(fig, axes[0])
    axes[-1].set_xlabel("time [s]")
    return fig


@styled
def joint_positions(
    time_s: ArrayLike,
    joint_pos_rad: ArrayLike,
    lower_rad: ArrayLike,
    upper_rad: ArrayLike,
    names: Sequence[str],
    *,
    target_rad: ArrayLike | None = None,
    columns: int = 3,
) -> Figure:
    """Joint positions between their limits, one small panel per joint.

    Args:
        time_s: Shape (t,).
        joint_pos_rad: Shape (t, n), rad.
        lower_rad: Shape (n,), rad.
        upper_rad: Shape (n,), rad.
        names: Names of the n joints.
        target_rad: Shape (t, n), rad, what was commanded; None to leave it out.
        columns: Panels in a row.

    Returns:
        The figure.
    """
    n = len(names)
    t = _vector("time_s", time_s)
    position = _matrix("joint_pos_rad", joint_pos_rad, len(t), n)
    target = None if target_rad is None else _matrix("target_rad", target_rad, len(t), n)
    lower, upper = _vector("lower_rad", lower_rad, n), _vector("upper_rad", upper_rad, n)
    fig, axes = panels(n, 1.25, columns)
    keep = _thin(len(t), 500)
    for index, (axis, name) in enumerate(zip(axes, names, strict=True)):
        if target is not None:
            axis.plot(t[keep], target[keep, index], color=ORANGE, linewidth=0.9, label="target")
        axis.plot(t[keep], position[keep, index], color=BLUE, linewidth=1.1, label="measured")
        margin = 0.08 * (upper[index] - lower[index])
        for limit, side in ((lower[index], -1.0), (upper[index], 1.0)):
            axis.axhspan(limit, limit + side * 4 * margin, color=RED, alpha=0.12, linewidth=0)
            axis.axhline(limit, color=RED, linewidth=0.9, label="limit" if side < 0 else None)
        axis.set_ylim(lower[index] - margin, upper[index] + margin)
        axis.set_title(name.removesuffix("_joint"), fontsize=9)
        axis.tick_params(labelsize=8)
        if index < n - columns:
            axis.tick_params(labelbottom=False)
    legend(fig, axes[0])
    fig.supxlabel("time [s], positions in rad", fontsize=10, color=MUTED)
    return fig


@styled
def foot_contacts(
    time_s: ArrayLike,
    contact: ArrayLike,
    names: Sequence[str],
    *,
    window_s: float | None = None,
    end_s: float | None = None,
) -> Figure:
    """Gait diagram: a bar while a foot is on the ground.

    Args:
        time_s: Shape (t,), evenly spaced.
        contact: Shape (t, feet), true on the ground.
        names: Names of the feet.
        window_s: Show only this many seconds, in which single steps can be told apart; None for all.
        end_s: Where they end, on the clock of ``time_s``; at the end of all if not given.

    Returns:
        The figure.
    """
    t = _vector("time_s", time_s)
    down = _matrix("contact", contact, len(t), len(names)) > 0.5
    share = down.mean(axis=0) if len(t) else np.zeros(len(names))
    if window_s is not None and len(t):
        end = t[-1] if end_s is None else end_s
        shown = (t >= end - window_s) & (t <= end)
        t, down = t[shown], down[shown]
    fig, (axis,) = panels(1, 0.55 + 0.34 * len(names))
    for row in range(len(names)):
        color = (BLUE, ORANGE, GREEN, PURPLE)[row % 4]
        axis.broken_barh(_spans(t, down[:, row]), (row - 0.32, 0.64), facecolors=color, linewidth=0)
        axis.text(
            1.01, row, f"{100 * share[row]:.0f} %", transform=axis.get_yaxis_transform(), va="center", color=MUTED
        )
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(axis="y", labelcolor=INK, length=0)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.set_xlabel("time [s]; at the right, share of all time on the ground")
    if len(t) > 1:
        axis.set_xlim(t[0], t[-1])
    return fig


@styled
def timing_histograms(period_s: ArrayLike, infer_s: ArrayLike, *, rate_hz: float) -> Figure:
    """Histograms of the loop's period and of the network's inference time, with their percentiles.

    Args:
        period_s: Shape (k,), time between successive starts of the loop.
        infer_s: Shape (m,), time inside the network.
        rate_hz: Asked rate, drawn as a line into the first panel.

    Returns:
        The figure.
    """
    fig, axes = panels(2, 1.9, share_x=False)
    _histogram(axes[0], 1e3 * _vector("period_s", period_s), "loop period", "ms")
    _histogram(axes[1], 1e6 * _vector("infer_s", infer_s), "inference", "µs")
    axes[0].axvline(1e3 / rate_hz, color=RED, linestyle=(0, (4, 3)), linewidth=1.0)
    return fig


@styled
def duration_histograms(durations_s: Mapping[str, tuple[ArrayLike, str]]) -> Figure:
    """Histograms of how long things took, in ms, with their percentiles.

    Args:
        durations_s: Title -> durations (k,) in s, and what each of them is of, for example "frames".

    Returns:
        The figure.
    """
    fig, axes = panels(len(durations_s), 1.9, share_x=False)
    for axis, (title, (values, counted)) in zip(axes, durations_s.items(), strict=True):
        _histogram(axis, 1e3 * _vector(title, values), title, "ms", counted)
    return fig


def _histogram(axis: Axes, values: FloatArray, title: str, unit: str, counted: str = "ticks") -> None:
    """One panel; its outermost bars hold whatever lies beyond, so that one late tick does not squeeze all others."""
    axis.set_xlabel(unit)
    axis.set_ylabel(counted)
    axis.grid(visible=False, axis="x")
    if not len(values):
        axis.set_title(title)
        axis.text(0.5, 0.5, "nothing recorded", transform=axis.transAxes, ha="center", color=MUTED)
        return
    p50, p99 = np.percentile(values, (50, 99))
    reach = max(3.0 * float(p99 - p50), 0.02 * abs(float(p50)), 1e-6)
    low, high = max(float(values.min()), p50 - reach), min(max(float(values.max()), p50 + 1e-6), p50 + reach)
    counts, _, _ = axis.hist(np.clip(values, low, high), bins=48, range=(low, high), color=BLUE)
    axis.set_yscale("symlog", linthresh=1.0)
    axis.set_ylim(0, 3.0 * float(np.max(counts)))
    axis.axvline(float(p99), color=ORANGE, linewidth=1.2)
    axis.set_title(title, pad=18)
    numbers = f"p50 {p50:.4g} · p99 {p99:.4g} · max {values.max():.4g} {unit}"
    axis.text(0, 1.03, numbers, transform=axis.transAxes, color=MUTED, fontsize=9)


def panels(count: int, height_in: float, columns: int = 1, *, share_x: bool = True) -> tuple[Figure, list[Axes]]:
    """A figure of ``count`` panels, filled row by row; to be called inside :func:`styled`.

    Args:
        count: At least one.
        height_in: Of a row.
        columns: Panels in a row.
        share_x: Whether panels below each other have the same horizontal axis.

    Raises:
        GantryError: If there is none.
    """
    from matplotlib.figure import Figure

    if count < 1:
        raise GantryError("A figure needs at least one series; there is none.")
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    fig = Figure(figsize=(WIDTH_IN, rows * height_in + 0.45), layout="constrained")
    grid = fig.subplots(rows, columns, sharex=share_x and columns == 1, squeeze=False)
    axes = list(grid.flat)
    for unused in axes[count:]:
        unused.set_axis_off()
    for axis in axes:
        axis.margins(x=0)
    return fig, axes[:count]


def legend(fig: Figure, axis: Axes) -> None:
    """The labels of one panel, in a row above all of them."""
    handles, labels = axis.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper left", ncols=len(labels), labelcolor=MUTED, fontsize=9)


def _widen(axis: Axes, least: float) -> None:
    """Keep a panel of a nearly constant signal from showing its noise at full height."""
    low, high = axis.get_ylim()
    missing = least - (high - low)
    if missing > 0:
        axis.set_ylim(low - missing / 2, high + missing / 2)


def _spans(t: FloatArray, active: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """(start, length) of every run of true; a sample lasts until the next one."""
    if len(t) < 2:
        return []
    step = float(np.median(np.diff(t)))
    edges = np.diff(np.concatenate(([0], active.astype(np.int8), [0])))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    return [(float(t[a]), float(t[b] - t[a]) + step) for a, b in zip(starts, ends, strict=True)]


def _running_mean(values: FloatArray, half: int) -> FloatArray:
    total = np.concatenate(([0.0], np.cumsum(values)))
    index = np.arange(len(values))
    low, high = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    return (total[high] - total[low]) / (high - low)


def _thin(count: int, limit: int = MAX_POINTS) -> slice:
    return slice(None, None, max(1, math.ceil(count / limit)))


def _cycle(count: int) -> list[str]:
    colors = (BLUE, GREEN, ORANGE, PURPLE)
    return [colors[index % len(colors)] for index in range(count)]


def _vector(name: str, values: Any, length: int | None = None) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or (length is not None and len(array) != length):
        raise GantryError(f"{name} has shape {array.shape}, expected ({'any' if length is None else length},).")
    return array


def _matrix(name: str, values: Any, rows: int, columns: int) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (rows, columns):
        raise GantryError(f"{name} has shape {array.shape}, expected ({rows}, {columns}).")
    return array
