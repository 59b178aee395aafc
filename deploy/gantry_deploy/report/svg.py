"""Matplotlib figures as inline SVG whose colours follow the page's light or dark scheme."""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, LINE = "#1d2733", "#5d6875", "#d9dee4"
"""Text, secondary text, and rules: the page's light colours, replaced by its variables."""
BLUE, ORANGE, GREEN, RED, PURPLE = "#2f6fde", "#d9730d", "#1f8f63", "#c9372c", "#8250c4"
"""Series colours, likewise."""

_VARIABLES = {
    INK: "currentColor",
    "#000000": "currentColor",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    BLUE: "var(--c1)",
    ORANGE: "var(--c2)",
    GREEN: "var(--c3)",
    RED: "var(--c4)",
    PURPLE: "var(--c5)",
}

STYLE = {
    "svg.fonttype": "none",  # Text stays text: selectable, small, and in the page's own font.
    "font.size": 10.0,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": LINE,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "path.simplify_threshold": 0.3,
}
"""Matplotlib settings that :mod:`gantry_deploy.report.figures` draws with."""


def inline_svg(fig: Figure, prefix: str, label: str) -> str:
    """A figure as an ``<svg>`` element.

    Args:
        fig: Drawn with any colours; those above and black follow the page.
        prefix: Starts every id, so that figures on one page do not refer into each other.
        label: What a screen reader says.
    """
    import matplotlib  # An extra of training; only drawing needs it.

    buffer = io.StringIO()
    # A fixed salt and no date make equal figures equal bytes.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gantry"}):
        fig.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'href="#', f'href="#{prefix}-', text)
    text = re.sub(r"url\(#", f"url(#{prefix}-", text)
    text = re.sub(r"font: ([^;\"]*?)'[^\"]*?sans-serif", r"font: \1sans-serif", text)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, variable)
    view = re.search(r'viewBox="[^"]*"', text)
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {view[0] if view else ""}'
    )
    return f'{opening} role="img" aria-label="{html.escape(label, quote=True)}">' + text[text.index(">") + 1 :].strip()
