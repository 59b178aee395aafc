"""Report of an identification: table of parameters, and courses of every joint, measured and simulated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gantry_deploy.report.figures import MAX_POINTS, legend, panels, styled
from gantry_deploy.report.html import Report
from gantry_deploy.report.svg import BLUE, ORANGE
from gantry_hardware.errors import GantryError
from gantry_sim.identification.findings import Curve, Findings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE = "report.html"
"""Name of the report in its folder."""
PER_FIGURE = 6
"""Joints of one figure."""


def write_report(folder: Path, findings: Findings, sources: list[str]) -> Path:
    """Write the report and return its path.

    Args:
        folder: Made if it does not exist.
        findings: Outcome of the identification.
        sources: Recordings that it comes from.

    Raises:
        GantryError: If it cannot be written.
    """
    known = sum(len(table) for table in findings.joints.values()) + len(findings.whole)
    refused = sum(len(table) for table in findings.refused.values())
    report = Report(f"Dynamics of {findings.spec.name}", f"identified from {', '.join(sources)}")
    report.tiles({"identified": str(known), "not excited": str(refused), "recordings": ", ".join(findings.kinds)})
    for note in findings.notes:
        report.text(note[:1].upper() + note[1:] + ".")
    report.section("Parameters")
    header = ("Parameter", "Joint", "Value", "95 % interval", "Nominal")
    report.table(findings.rows(), header, "What was identified; the interval holds the true value with 95 % confidence")
    quantities = list(dict.fromkeys(curve.quantity for curve in findings.curves))
    if quantities:
        report.section("Measured and simulated")
    for quantity in quantities:
        some = [curve for curve in findings.curves if curve.quantity == quantity]
        for first in range(0, len(some), PER_FIGURE):
            part = some[first : first + PER_FIGURE]
            names = ", ".join(curve.joint for curve in part)
            report.figure(_courses(part), f"{quantity} of {names}, with the identified dynamics")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GantryError(f"Cannot make the folder '{folder}': {error.strerror}.") from error
    return report.write(folder / FILE)


@styled
def _courses(curves: list[Curve]) -> Figure:
    fig, axes = panels(len(curves), 1.4)
    for axis, curve in zip(axes, curves, strict=True):
        keep = np.arange(0, len(curve.time_s), max(1, len(curve.time_s) // MAX_POINTS))
        axis.plot(curve.time_s[keep], curve.measured[keep], color=BLUE, label="measured")
        axis.plot(curve.time_s[keep], curve.simulated[keep], color=ORANGE, label="simulated", linewidth=0.9)
        axis.set_title(f"{curve.joint} {curve.quantity}")
    legend(fig, axes[0])
    axes[-1].set_xlabel("time [s]")
    return fig
