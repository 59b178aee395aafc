"""The same task trained several ways on the same samples: one run per variant and seed, scored by one suite.

Runs are made by the ordinary commands, one after the other, each in a process of its own. Whatever is there already
is not done again, so a sweep that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import csv
import itertools
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantry_deploy.evaluation.metrics import rate_interval
from gantry_deploy.process.interrupts import starting_uninterrupted
from gantry_hardware.errors import GantryError
from gantry_hardware.json_file import as_plain
from gantry_hardware.training.one_process import require_one_process
from gantry_policies.on_policy.trainer import CHECKPOINTS
from gantry_sim.training.run_config import require_seeds, write_json
from gantry_sim.training.run_validation import read_run_file

TRAINED, SCORED, PLAN = "trained.json", "scored.json", "sweep.json"
"""Files in a run's folder when it is trained and when it is scored, and in the sweep's when it is begun."""
GANTRY = (sys.executable, "-m", "gantry_deploy.cli.entry")
"""Command of this installation."""


@dataclass(frozen=True)
class SweepCfg:
    """Settings of a comparison."""

    task: str
    """Task name."""
    vary: tuple[tuple[str, tuple[str, ...]], ...]
    """Fields and the values that each takes, every combination a variant."""
    seeds: tuple[int, ...]
    """Seeds of every variant."""
    changes: tuple[str, ...] = ()
    """``--set`` of all runs."""
    suite: str = ""
    """Suite of the task that scores; empty for its ordinary evaluation."""
    episodes: int = 200
    """Episodes of the evaluation, of each part of a suite."""
    teacher: str = ""
    """Run folder of the teacher, for tasks that need one."""

    def __post_init__(self) -> None:
        require_seeds(self.seeds)
        if not all(values for _, values in self.vary):
            raise GantryError("A field that varies has no values; expected FIELD=VALUE,VALUE.")


@dataclass(frozen=True)
class Planned:
    """One run of a sweep."""

    variant: str
    """Difference from the others, for people."""
    seed: int
    """Its seed."""
    changes: tuple[str, ...]
    """Its ``--set``."""
    folder: Path
    """Its run folder."""


def planned_runs(cfg: SweepCfg, output: Path) -> list[Planned]:
    """All runs, seed by seed, so that an unfinished sweep has compared every variant as often as any other."""
    fields = [field for field, _ in cfg.vary]
    combinations = list(itertools.product(*(values for _, values in cfg.vary)))
    runs = []
    for seed in cfg.seeds:
        for values in combinations:
            name = "-".join(values) or "default"
            changes = (*cfg.changes, *(f"{field}={value}" for field, value in zip(fields, values, strict=True)))
            folder = output / f"{name.replace('/', '_')}-s{seed}"
            runs.append(Planned(", ".join(values) or "default", seed, changes, folder))
    return runs


def hold_plan(cfg: object, output: Path) -> None:
    """Begin a sweep in a folder, or make sure that the one begun there is this one.

    Args:
        cfg: A dataclass of plain values; a later call may differ in ``seeds`` alone.
        output: Folder of all runs.

    Raises:
        GantryError: If the folder holds another sweep, or something else.
    """
    plan = as_plain(vars(cfg))
    held = output / PLAN
    if held.is_file():
        before = read_run_file(held)
        for name, value in plan.items():
            # More seeds may be asked of a sweep later; all else would make its runs no equals.
            if name != "seeds" and before.get(name) != value:
                raise GantryError(
                    f"'{output}' holds a sweep with {name} {before.get(name)}, not {value}; name another folder."
                )
    elif output.exists() and any(output.iterdir()):
        raise GantryError(f"'{output}' is in use already and holds no sweep; name another folder.")
    output.mkdir(parents=True, exist_ok=True)
    write_json(held, plan)


def run_sweep(cfg: SweepCfg, output: Path, say: Callable[[str], None] = print) -> None:
    """Train and score what is missing.

    Args:
        cfg: What is compared.
        output: Folder of all runs.
        say: Called with a line before each step.

    Raises:
        GantryError: If a run fails; what was done is kept.
        KeyboardInterrupt: If a run was interrupted.
    """
    require_one_process()
    hold_plan(cfg, output)
    runs = planned_runs(cfg, output)
    for number, run in enumerate(runs, start=1):
        title = f"[{number}/{len(runs)}] {run.variant}, seed {run.seed}"
        if not (run.folder / TRAINED).is_file():
            say(f"{title}: training")
            call_gantry(_train_words(cfg, run))
        if not (run.folder / SCORED).is_file():
            say(f"{title}: scoring")
            suite = ("--suite", cfg.suite) if cfg.suite else ()
            words = ("eval", str(run.folder), "--episodes", str(cfg.episodes), *suite)
            call_gantry((*words, "--json", str(run.folder / SCORED)))


def _train_words(cfg: SweepCfg, run: Planned) -> tuple[str, ...]:
    if (run.folder / CHECKPOINTS).is_dir():
        words: tuple[str, ...] = ("train", "--resume", str(run.folder))
    else:
        sets = tuple(itertools.chain.from_iterable(("--set", change) for change in run.changes))
        teacher = ("--teacher", cfg.teacher) if cfg.teacher else ()
        words = ("train", cfg.task, "--seed", str(run.seed), "--run-dir", str(run.folder), *teacher, *sets)
    return (*words, "--no-export", "--episodes", "0", "--json", str(run.folder.parent / f".{run.folder.name}.json"))


def call_gantry(words: Sequence[str]) -> None:
    """Run a sub-command to its end; its own output shows what goes on.

    Args:
        words: The command line; the last word is the file of ``--json``. One that is called ``.NAME.json`` becomes
            ``NAME/trained.json`` beside it, since a run folder must not be begun by another process.

    Raises:
        GantryError: If it fails.
        KeyboardInterrupt: If it was interrupted.
    """
    asked = Path(words[-1])
    with starting_uninterrupted():
        process = subprocess.Popen((*GANTRY, *words))
    with process:
        try:
            code = process.wait()
        except KeyboardInterrupt:  # the child was told so too, and saves
            process.wait()
            raise
    if code == 130:
        raise KeyboardInterrupt
    if code not in (0, 1) or not asked.is_file():  # 1: done, and short of what was asked for
        raise GantryError(f"'gantry {' '.join(words)}' ended with {code}; what was done is kept.")
    if asked.name.startswith("."):
        asked.replace(asked.parent / asked.name.removeprefix(".").removesuffix(".json") / TRAINED)


def read_curve(folder: Path) -> dict[str, list[float]]:
    """A run's learning curve by column; entries that are empty are NaN."""
    with (folder / "curve.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name] or "nan") for row in rows] for name in (rows[0] if rows else {})}


def collect(cfg: SweepCfg, output: Path) -> dict[str, Any]:
    """Results of the runs that are scored, pooled over seeds: ``variants``, by name.

    Each has ``seeds``, ``env_steps``, ``train_wall_s`` (per seed), and ``scores``: by label the mean over seeds, each
    seed's own, and for shares of episodes the 95 % interval over all of them. A variant that no run has scored is left
    out.
    """
    variants: dict[str, Any] = {}
    for run in planned_runs(cfg, output):
        if not (run.folder / SCORED).is_file():
            continue
        entry = variants.setdefault(run.variant, {"seeds": [], "env_steps": [], "train_wall_s": [], "scores": {}})
        trained = read_run_file(run.folder / TRAINED)
        entry["seeds"].append(run.seed)
        for name in ("env_steps", "train_wall_s"):
            entry[name].append(trained[name])
        for label, score in scores_of(read_run_file(run.folder / SCORED)).items():
            entry["scores"].setdefault(label, []).append(score)
    for entry in variants.values():
        entry["scores"] = {label: _pooled(pairs) for label, pairs in entry["scores"].items()}
    return {**cfg.__dict__, "variants": variants}


def scores_of(scored: dict[str, Any]) -> dict[str, tuple[float, int]]:
    """An evaluation's numbers by label, each with the number of episodes that it is a share of, 0 for other numbers.

    Of goals the success of every part, and by group of training terrain or by held-out terrain, such as
    ``easier_half sparse``; of velocities every score of both models.
    """
    found: dict[str, tuple[float, int]] = {}
    for part, scores in scored.items():
        if not isinstance(scores, dict):
            continue
        if "success_rate" in scores:
            inner = "kind" if part == "held_out" else "group"
            parts = {part: scores} | {f"{part} {name}": value for name, value in scores.get(inner, {}).items()}
            found.update({name: (item["success_rate"]["mean"], item["episodes"]) for name, item in parts.items()})
        else:
            means = {
                name: score["mean"] for name, score in scores.items() if isinstance(score, dict) and "mean" in score
            }
            found.update({f"{part} {name}": (mean, 0) for name, mean in means.items()})
    return found


def _pooled(pairs: Sequence[tuple[float, int]]) -> dict[str, Any]:
    each = [value for value, _ in pairs]
    trials = sum(episodes for _, episodes in pairs)
    if not trials:
        return {"mean": sum(each) / len(each), "by_seed": each}
    score = rate_interval(round(sum(rate * episodes for rate, episodes in pairs)), trials)
    return {"mean": score.mean, "low": score.low, "high": score.high, "trials": trials, "by_seed": each}
