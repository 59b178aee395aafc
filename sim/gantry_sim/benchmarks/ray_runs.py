"""Runs of a comparison on Ray: as many at once as a cluster has room for, begun again where a worker is lost.

Every run is a Ray task that trains and scores in a process of its own, in a folder that all machines share. After a
worker's death its task goes on from the last checkpoint. Ray itself moves tasks as pickles between its own processes,
so a cluster is for machines that trust each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gantry_hardware.errors import GantryError
from gantry_sim.benchmarks.comparison import SCORED, TRAINED, PlannedRun, settle
from gantry_sim.process.ray_cluster import LOCAL, connected, reason_of


@dataclass(frozen=True)
class RayCfg:
    """Place and size of runs on Ray."""

    address: str = LOCAL
    """Address of a cluster such as ``auto`` or ``ray://HOST:10001``, or ``local``."""
    cpus: float = 1.0
    """Cores of a run."""
    gpus: float = 0.0
    """GPUs of a run."""
    retries: int = 3
    """Times that a run is begun again after its worker was lost."""


def train_and_score_on_ray(
    runs: Sequence[PlannedRun], score: Sequence[str], cfg: RayCfg, say: Callable[[str], None] = print
) -> None:
    """Train and score what is missing, side by side.

    Args:
        runs: All runs; their folders are on a file system that every machine of the cluster sees.
        score: Options of ``gantry eval`` for each of them.
        cfg: Place and size.
        say: Called with a line when a run has ended.

    Raises:
        GantryError: If Ray is missing or cannot be reached, or a run fails; the others are done first, and what was
            done is kept.
    """
    missing = [run for run in runs if not (run.folder / SCORED).is_file()]
    if not missing:
        return
    with connected(cfg.address) as ray:
        task = ray.remote(num_cpus=cfg.cpus, num_gpus=cfg.gpus, max_retries=cfg.retries, max_calls=1)(work_off)
        said = {task.remote(run, tuple(score)): f"{run.variant}, seed {run.seed}" for run in missing}
        say(f"{len(missing)} runs of {cfg.cpus:g} cores on {ray.cluster_resources().get('CPU', 0.0):g}")
        failed = _await(ray, said, say)
    if failed:
        raise GantryError(f"{len(failed)} of {len(missing)} runs failed: {'; '.join(failed)}. What was done is kept.")


def work_off(run: PlannedRun, score: tuple[str, ...]) -> None:
    """Train and score one run in this process, as far as that is missing.

    Raises:
        GantryError: If a command fails.
    """
    from gantry_deploy.cli.main import main

    for words, mark in (
        (run.train_words(), TRAINED),
        (("eval", str(run.folder), *score, "--json", str(run.folder / SCORED)), SCORED),
    ):
        if not (run.folder / mark).is_file():
            settle(words, main(list(words)))


def _await(ray: Any, said: dict[Any, str], say: Callable[[str], None]) -> list[str]:
    """Tell of every run that ends; returns what failed, and why."""
    failed, waiting = [], list(said)
    while waiting:
        (ended, *_), waiting = ray.wait(waiting)
        try:
            ray.get(ended)
            say(f"[{len(said) - len(waiting)}/{len(said)}] {said[ended]}: done")
        except ray.exceptions.RayError as error:
            reason = reason_of(error)
            failed.append(f"{said[ended]}: {reason}")
            say(f"[{len(said) - len(waiting)}/{len(said)}] {said[ended]}: failed: {reason}")
    return failed
