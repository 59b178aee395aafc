"""Figures of attempts in which a person may have corrected a policy; corrections are shaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.report.figures import legend, panels, styled
from gantry_deploy.report.svg import BLUE, GREEN, MUTED, ORANGE, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]
MOST_PANELS = 16
"""Numbers of an action that are drawn."""


@styled
def corrected_actions(
    time_s: FloatArray,
    dt_s: float,
    action: FloatArray,
    policy_action: FloatArray | None,
    spans: Sequence[tuple[int, int]],
    names: Sequence[str],
    reward: FloatArray | None = None,
) -> Figure:
    """Executed actions, those that the policy wanted, and the reward, one panel each, over an attempt.

    Args:
        time_s: Shape (n,), s.
        dt_s: Length of a step, s.
        action: Shape (n, a), executed, in the units of the dataset.
        policy_action: Shape (n, a), wanted, likewise; None to leave it out.
        spans: First step of each correction, and the step after its last.
        names: Names of the a numbers.
        reward: Shape (n,), dimensionless; None to leave it out.

    Returns:
        The figure; beyond :data:`MOST_PANELS` numbers of an action are left out.
    """
    shown = min(len(names), MOST_PANELS)
    fig, axes = panels(shown + (reward is not None), 1.2)
    for index in range(shown):
        axis = axes[index]
        _shade(axis, time_s, dt_s, spans)
        axis.plot(time_s, action[:, index], color=BLUE, label="executed", drawstyle="steps-post")
        if policy_action is not None:
            axis.plot(
                time_s,
                policy_action[:, index],
                color=ORANGE,
                linewidth=0.9,
                label="policy wanted",
                drawstyle="steps-post",
            )
        axis.set_title(names[index])
    if reward is not None:
        _shade(axes[-1], time_s, dt_s, spans)
        axes[-1].plot(time_s, reward, color=GREEN, drawstyle="steps-post")
        axes[-1].set_title("reward")
    legend(fig, axes[0])
    axes[-1].set_xlabel("time [s]")
    return fig


@styled
def attempts_over_time(person_share: FloatArray, lengths_s: FloatArray, success: Sequence[bool | None]) -> Figure:
    """Share of a person's steps and length of each attempt, coloured by its outcome.

    Args:
        person_share: Shape (k,), 0 to 1.
        lengths_s: Shape (k,), s.
        success: Outcome of each of the k attempts; None where it is not known.

    Returns:
        The figure.
    """
    fig, axes = panels(2, 1.4)
    x = np.arange(len(person_share))
    colours = [MUTED if item is None else GREEN if item else RED for item in success]
    axes[0].bar(x, 100.0 * person_share, color=ORANGE, width=0.8)
    axes[0].set_title("steps by the person [%]")
    axes[0].set_ylim(0, 100)
    axes[1].bar(x, lengths_s, color=colours, width=0.8)
    axes[1].set_title("length [s]; green succeeded, red did not")
    axes[-1].set_xlabel("attempt")
    return fig


def _shade(axis: Axes, time_s: FloatArray, dt_s: float, spans: Sequence[tuple[int, int]]) -> None:
    for number, (start, stop) in enumerate(spans):
        label = "person acts" if number == 0 else None
        axis.axvspan(time_s[start], time_s[stop - 1] + dt_s, color=ORANGE, alpha=0.15, linewidth=0, label=label)
