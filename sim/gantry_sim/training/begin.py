"""Beginning of a run: everything is checked and read before anything is written, then copied into its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gantry_sim.training.bases import copy_base, open_base
from gantry_sim.training.demos import DemoSet, load_demos, require_demos
from gantry_sim.training.read_demos import read_demos
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_folder import check_run, create_run, read_run
from gantry_sim.training.teachers import copy_teacher


def begin_run(
    run: RunCfg, folder: Path | None, on_read: Callable[[float], None] = lambda share: None
) -> tuple[RunCfg, Path]:
    """Make a run folder with its own copies of demonstrations, base and teacher.

    Args:
        run: What is asked for; its demonstrations are a dataset, those of its base if it names none of its own.
        folder: Where; None for ``runs/<task>-<preset>-s<seed>-<time>``.
        on_read: Told the share of the demonstrations that has been read; pictures take minutes.

    Returns:
        The run as it is written down, and its folder.

    Raises:
        RunError: If the run cannot work, or the folder is in use or cannot be written.
        GantryError: If demonstrations, base, teacher and task do not fit each other.
    """
    check_run(run)
    base = Path(run.base) if run.base else None
    if base is not None:
        open_base(base, run)
    demos = _demonstrations(run, base, on_read)
    folder = create_run(run, folder)
    if demos is not None:
        demos.save(folder)
    if base is not None:
        copy_base(base, folder)
    if run.teacher is not None:
        copy_teacher(run.teacher, folder)
    return read_run(folder), folder


def _demonstrations(run: RunCfg, base: Path | None, on_read: Callable[[float], None]) -> DemoSet | None:
    """Those of a dataset, or else the copy that the base has of its own."""
    if base is not None and run.demos == read_run(base).demos:
        demos = load_demos(base)
    else:
        demos = read_demos(Path(run.demos), run, on_read) if run.demos else None
    if demos is not None:
        require_demos(demos, run, run.demos or run.base)
    return demos
