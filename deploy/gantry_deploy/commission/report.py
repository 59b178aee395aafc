"""Report of a commissioning, to keep: HTML for people and JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from gantry_deploy.cli.command import jsonable
from gantry_deploy.commission.site import Site, StepResult
from gantry_deploy.report.html import Report
from gantry_hardware.compat import UTC
from gantry_hardware.files.whole_files import write_whole

_HEADS = {
    "readings": ("Verdict", "Quantity", "Result"),
    "ranges": ("Joint", "Seen, rad", "Limits, rad", "Result"),
    "joints": ("Joint", "Result", "Moved, rad"),
}


def write_report(folder: Path, site: Site, backend: str, results: Sequence[StepResult]) -> Path:
    """Write ``report.html`` and ``results.json``; returns the former.

    Raises:
        OSError: If the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    robot = site.robot.spec.name
    bundle = "" if site.bundle is None else f", policy {site.bundle.path.name}"
    report = Report(f"Commissioning of {robot}", f"{now}, backend {backend}{bundle}")
    report.tiles({result.name: result.verdict for result in results})
    for result in results:
        report.section(f"{result.name}: {result.verdict}").text(result.text)
        if result.rows:
            report.table(result.rows, _HEADS.get(result.name, ()))
    path = folder / "report.html"
    report.write(path)
    data = {"robot": robot, "backend": backend, "utc": now, "settings": site.cfg, "steps": list(results)}
    write_whole(folder / "results.json", (json.dumps(jsonable(data), indent=1) + "\n").encode())
    return path
