"""Comparison of trainings over seeds: planned runs, one process each, and results as a table, a page and JSON.

Runs are made by the ordinary commands, one after the other. Whatever is there already is not done again, so that a
comparison that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.process.interrupts import starting_uninterrupted
from gantry_deploy.report import Report
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import as_plain
from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_hardware.training.trainer import CHECKPOINTS
from gantry_sim.training.run_files import write_json
from gantry_sim.training.run_validation import read_run_file

TRAINED, SCORED, PLAN = "trained.json", "scored.json", "sweep.json"
"""Files in a run's folder when it is trained and when it is scored, and in the comparison's when it is begun."""
GANTRY = (sys.executable, "-m", "gantry_deploy.cli.entry")
"""Command of this installation."""

Curve = tuple[np.ndarray, np.ndarray]
"""x and y of a training, each (k,), in the units of the figure."""
Rows = Sequence[Sequence[str]]
"""Cells of a table; the first row is the header, the first column names the rows."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison."""

    variant: str
    """Name of what it tries, the same for all seeds."""
    seed: int
    """Its seed."""
    folder: Path
    """Its run folder."""
    train: tuple[str, ...]
    """Words of ``gantry train`` that begin it, without seed and folder."""

    def train_words(self) -> tuple[str, ...]:
        """Command line that trains it, or goes on with it where there is a checkpoint."""
        begun = (self.folder / CHECKPOINTS).is_dir()
        words = ("--resume", str(self.folder)) if begun else self.train
        fresh = () if begun else ("--seed", str(self.seed), "--run-dir", str(self.folder))
        told = str(self.folder.parent / f".{self.folder.name}.json")
        return ("train", *words, *fresh, "--no-export", "--episodes", "0", "--json", told)


@dataclass(frozen=True)
class Figure:
    """Learning curves of a page."""

    title: str
    """Title of its section."""
    caption: str
    """Text below it."""
    progress_label: str
    """Label of the horizontal axis, with unit."""
    series: Mapping[str, Mapping[str, Sequence[Curve]]]
    """Panel -> variant -> curves of its seeds."""


def set_words(changes: Sequence[str]) -> tuple[str, ...]:
    """``--set`` of each change, for a command line."""
    return tuple(itertools.chain.from_iterable(("--set", change) for change in changes))


def hold_plan(cfg: object, output: Path) -> None:
    """Begin a comparison in a folder, or make sure that the one begun there is this one.

    Args:
        cfg: A dataclass of plain values; a later call may differ in ``seeds`` alone.
        output: Folder of all runs.

    Raises:
        GantryError: If the folder holds another comparison, or something else.
    """
    plan = as_plain(vars(cfg))
    held = output / PLAN
    if held.is_file():
        before = read_run_file(held)
        for name, value in plan.items():
            # More seeds may be asked of a comparison later; all else would make its runs no equals.
            if name != "seeds" and before.get(name) != value:
                raise GantryError(
                    f"'{output}' holds a sweep with {name} {before.get(name)}, not {value}; name another folder."
                )
    elif output.exists() and any(output.iterdir()):
        raise GantryError(f"'{output}' is in use already and holds no sweep; name another folder.")
    output.mkdir(parents=True, exist_ok=True)
    write_json(held, plan)


def train_and_score(runs: Sequence[PlannedRun], score: Sequence[str], say: Callable[[str], None] = print) -> None:
    """Train and score what is missing.

    Args:
        runs: All runs, in order.
        score: Options of ``gantry eval`` for each of them.
        say: Called with a line before each step.

    Raises:
        GantryError: If a run fails; what was done is kept.
        KeyboardInterrupt: If a run was interrupted.
    """
    for number, run in enumerate(runs, start=1):
        title = f"[{number}/{len(runs)}] {run.variant}, seed {run.seed}"
        if not (run.folder / TRAINED).is_file():
            say(f"{title}: training")
            call_gantry(run.train_words())
        if not (run.folder / SCORED).is_file():
            say(f"{title}: scoring")
            call_gantry(("eval", str(run.folder), *score, "--json", str(run.folder / SCORED)))


def call_gantry(words: Sequence[str]) -> None:
    """Run a sub-command to its end; its own output shows what goes on.

    Args:
        words: The command line; the last word is the file of ``--json``. One that is called ``.NAME.json`` becomes
            ``NAME/trained.json`` beside it, since a run folder must not be begun by another process.

    Raises:
        GantryError: If it fails.
        KeyboardInterrupt: If it was interrupted.
    """
    with starting_uninterrupted():
        process = subprocess.Popen((*GANTRY, *words))
    with process:
        try:
            code = process.wait()
        except KeyboardInterrupt:  # the child was told so too, and saves
            process.wait()
            raise
    settle(words, code)


def settle(words: Sequence[str], code: int) -> None:
    """Take the result of a sub-command that has ended, see :func:`call_gantry`.

    Raises:
        GantryError: If it has failed.
        KeyboardInterrupt: If it was interrupted.
    """
    asked = Path(words[-1])
    if code == 130:
        raise KeyboardInterrupt
    if code not in (0, 1) or not asked.is_file():  # 1: done, and short of what was asked for
        raise GantryError(f"'gantry {' '.join(words)}' ended with {code}; what was done is kept.")
    if asked.name.startswith("."):
        asked.replace(asked.parent / asked.name.removeprefix(".").removesuffix(".json") / TRAINED)


def scored_runs(runs: Sequence[PlannedRun]) -> Iterator[tuple[PlannedRun, dict[str, Any], dict[str, Any]]]:
    """Each run that is scored, its training's result, and its scores."""
    for run in runs:
        if (run.folder / SCORED).is_file():
            yield run, read_run_file(run.folder / TRAINED), read_run_file(run.folder / SCORED)


def curves_of(runs: Sequence[PlannedRun], kind: str) -> dict[str, list[list[dict[str, Any]]]]:
    """Variant -> rows of each seed's log, of the kind ``train`` or ``eval``; variants without a row are left out."""
    found: dict[str, list[list[dict[str, Any]]]] = {}
    for run in runs:
        path = run.folder / METRICS_FILE
        if path.is_file() and (rows := read_metrics(path, kind)):
            found.setdefault(run.variant, []).append(rows)
    return found


def page(title: str, subtitle: str, rows: Rows, note: str, figures: Sequence[Figure]) -> Report:
    """Page of a comparison: table and learning curves."""
    from gantry_deploy.report.figures import compared_curves

    report = Report(title, subtitle)
    report.section("Scores")
    report.table(rows[1:], rows[0], note)
    for figure in figures:
        report.section(figure.title)
        report.figure(compared_curves(figure.series, progress_label=figure.progress_label), figure.caption)
    return report


def compare(
    output: Path,
    run: Callable[[], dict[str, Any]],
    lines: Callable[[dict[str, Any]], Sequence[str]],
    report: Callable[[dict[str, Any]], Report] | None = None,
) -> dict[str, Any]:
    """Run a comparison as a command does: print its lines, write ``result.json`` and, with a page, ``report.html``.

    Args:
        output: Folder of all runs.
        run: Trains and scores what is missing, and returns the result.
        lines: Text of a result.
        report: Page of a result.
    """
    try:
        found = run()
    except KeyboardInterrupt:
        print(f"Stopped; the same command goes on in {output}.")
        raise
    write_json(output / "result.json", found)
    print("\n".join(lines(found)))
    if report is not None:
        print(f"Report: {report(found).write(output / 'report.html')}")
    return found
