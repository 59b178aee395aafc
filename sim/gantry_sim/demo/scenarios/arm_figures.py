"""The figures of an arm's report, drawn from plain arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gantry_deploy.evaluation.metrics import Score
from gantry_deploy.report.figures import legend, panels, styled
from gantry_deploy.report.svg import BLUE, GREEN, MUTED, ORANGE, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]

GAP_S = 0.3
"""Between two episodes on one time axis."""


@styled
def success_curves(
    progress: Mapping[str, ArrayLike], success: Sequence[Score], base: Score | None, asked: float | None
) -> Figure:
    """Success of a training, a panel for each way to count its progress.

    Args:
        progress: Label with unit -> progress (k,) at each look.
        success: Share of successes at each look.
        base: What it began with; None if unknown.
        asked: Share that is asked for; None for none.

    Returns:
        The figure.
    """
    fig, axes = panels(len(progress), 2.1, share_x=False)
    numbers = 100.0 * np.array([(item.low, item.mean, item.high) for item in success]).reshape(-1, 3)
    for axis, (label, values) in zip(axes, progress.items(), strict=True):
        x = np.asarray(values, dtype=np.float64)
        if base is not None:
            axis.axhspan(100.0 * base.low, 100.0 * base.high, color=ORANGE, alpha=0.15, linewidth=0)
            axis.axhline(100.0 * base.mean, color=ORANGE, label="base, held out")
        axis.fill_between(x, numbers[:, 0], numbers[:, 2], color=BLUE, alpha=0.2, linewidth=0)
        axis.plot(x, numbers[:, 1], color=BLUE, marker="o", markersize=3.5, label="with the correction")
        if asked is not None:
            axis.axhline(100.0 * asked, color=RED, linestyle=(0, (4, 3)), linewidth=1.0, label="asked")
        low = min([*numbers[:, 0], 100.0 * (base.low if base is not None else 1.0)])
        axis.margins(x=0.015)
        axis.set_ylim(max(0.0, low - 8.0), 103.0)
        axis.set_ylabel("success [%]")
        axis.set_xlabel(label)
    legend(fig, axes[0])
    return fig


@styled
def action_sizes(
    times_s: Sequence[ArrayLike],
    base: Sequence[ArrayLike],
    correction: Sequence[ArrayLike],
    done_s: Sequence[float | None],
) -> Figure:
    """Sizes of what the base wanted and of what was added to it, over the time of all episodes.

    Args:
        times_s: Of each episode (T,), from zero.
        base: Of each episode (T, a).
        correction: Of each episode (T, a).
        done_s: When each was done; None if it was not.

    Returns:
        The figure.
    """
    fig, axes = panels(2, 1.7)
    starts = _starts(times_s)
    lines = ((base, ORANGE, "base"), (correction, GREEN, "correction"))
    for index, (axis, shown) in enumerate(zip(axes, (lines, lines[1:]), strict=True)):
        for values, color, name in shown:
            for number, (start, time_s, rows) in enumerate(zip(starts, times_s, values, strict=True)):
                size, label = np.abs(np.asarray(rows)).mean(axis=1), name if number == 0 else None
                axis.plot(start + np.asarray(time_s), size, color=color, label=label)
        axis.set_ylim(0.0, None)
        axis.set_title(("mean |base action| and |correction|, of 1", "the correction alone")[index])
        _mark_ends(axis, starts, times_s, done_s)
    legend(fig, axes[0])
    axes[-1].set_xlabel("time under the policy [s], all episodes; blue line: done, red: not done")
    return fig


@styled
def action_parts(
    time_s: ArrayLike, base: ArrayLike, done: ArrayLike, names: Sequence[str], done_s: float | None
) -> Figure:
    """Each number of the action in one episode: what the base wanted and what was done.

    Args:
        time_s: Shape (T,).
        base: Shape (T, a).
        done: Shape (T, a).
        names: Of the numbers.
        done_s: When the task was done; None if it was not.

    Returns:
        The figure.
    """
    x, wanted, sent = (np.asarray(values, dtype=np.float64) for values in (time_s, base, done))
    fig, axes = panels(len(names), 1.35, columns=2)
    for index, (axis, name) in enumerate(zip(axes, names, strict=True)):
        axis.fill_between(x, wanted[:, index], sent[:, index], color=GREEN, alpha=0.3, linewidth=0, step="post")
        axis.plot(x, wanted[:, index], color=ORANGE, linewidth=1.0, drawstyle="steps-post", label="base")
        axis.plot(x, sent[:, index], color=BLUE, linewidth=1.2, drawstyle="steps-post", label="base and correction")
        axis.axhline(0.0, color=MUTED, linewidth=0.5)
        if done_s is not None:
            axis.axvline(done_s, color=BLUE, linewidth=1.0)
        axis.set_ylim(-1.1, 1.1)
        axis.set_title(name, fontsize=9)
    legend(fig, axes[0])
    fig.supxlabel("time under the policy [s]; of 1, the largest action", fontsize=10, color=MUTED)
    return fig


def _starts(times_s: Sequence[ArrayLike]) -> list[float]:
    """Beginning of each episode on one time axis."""
    starts, end = [], 0.0
    for time_s in times_s:
        starts.append(end)
        end += float(np.asarray(time_s)[-1]) + GAP_S
    return starts


def _mark_ends(
    axis: Axes, starts: Sequence[float], times_s: Sequence[ArrayLike], done_s: Sequence[float | None]
) -> None:
    for index, (start, time_s, done) in enumerate(zip(starts, times_s, done_s, strict=True)):
        end = start + float(np.asarray(time_s)[-1])
        if index % 2 == 0:
            axis.axvspan(start, end, color=MUTED, alpha=0.08, linewidth=0)
        axis.axvline(end if done is None else start + done, color=RED if done is None else BLUE, linewidth=1.0)
    axis.set_xlim(-GAP_S, starts[-1] + float(np.asarray(times_s[-1])[-1]) + GAP_S)
