"""Figures of a report about driving, drawn from plain numpy arrays. Matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from gantry_deploy.report.figures import legend, panels, styled
from gantry_deploy.report.svg import BLUE, GREEN, MUTED, ORANGE, PURPLE, RED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"finished": GREEN, "time_up": MUTED, "blocked": PURPLE, "off_road": ORANGE, "wrong_way": ORANGE}
"""Of how episodes end; infractions are red."""


@styled
def endings(shares: Mapping[str, Mapping[str, float]], words: Mapping[str, str]) -> Figure:
    """Plot the ends of each driver's episodes: a bar for each of them.

    Args:
        shares: Driver -> end -> share of the episodes, 0 to 1.
        words: End -> what people call it.
    """
    names = list(dict.fromkeys(name for own in shares.values() for name, share in own.items() if share > 0.0))
    fig, axes = panels(max(1, len(names)), 0.42 + 0.24 * len(shares), 2, share_x=False)
    for axis, name in zip(axes, names, strict=False):
        values = [100.0 * own.get(name, 0.0) for own in shares.values()]
        axis.barh(range(len(values)), values, color=COLOURS.get(name, RED), height=0.62)
        for row, value in enumerate(values):
            axis.text(value + 1.0, row, f"{value:.0f} %", va="center", fontsize=8, color=MUTED)
        axis.set_yticks(range(len(values)), list(shares), fontsize=8)
        axis.invert_yaxis()
        axis.set_xlim(0.0, 112.0)
        axis.set_xticks([0, 50, 100])
        axis.set_title(words.get(name, name))
    return fig


@styled
def histograms(panels_of: Mapping[str, Mapping[str, ArrayLike]], limits: Mapping[str, Sequence[float]]) -> Figure:
    """Distributions, one panel each, and of each driver a line; the highest and lowest two in a thousand are left out.

    Args:
        panels_of: Title with unit -> driver -> values (k,), of any number.
        limits: Title -> places of lines across it.
    """
    fig, axes = panels(len(panels_of), 1.9, share_x=False)
    for axis, (title, drivers) in zip(axes, panels_of.items(), strict=True):
        values = {name: _finite(own) for name, own in drivers.items()}
        every = np.concatenate([*values.values(), np.zeros(0)])
        axis.set_title(title)
        axis.set_ylabel("share, %")
        if not len(every):
            continue
        low, high = np.quantile(every, (0.002, 0.998))
        edges = np.linspace(low, max(high, low + 1e-3), 41)
        for (name, own), colour in zip(values.items(), (BLUE, ORANGE, GREEN, PURPLE), strict=False):
            counts = np.histogram(own, edges)[0]
            axis.stairs(100.0 * counts / max(1, len(own)), edges, color=colour, label=name, fill=len(values) == 1)
        for place in limits.get(title, ()):
            axis.axvline(place, color=RED, linestyle=(0, (4, 3)), linewidth=1.0)
    if len(next(iter(panels_of.values()), {})) > 1:
        legend(fig, axes[0])
    return fig


def _finite(values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]
