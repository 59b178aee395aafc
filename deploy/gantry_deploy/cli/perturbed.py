"""Perturbations on the command line of ``gantry check``: which ones, their episodes, and the table."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gantry_deploy.cli.command import UsageError, counted
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.evaluation.gate import Stage
from gantry_deploy.evaluation.perturbations.perturbation import Perturbation
from gantry_deploy.evaluation.perturbations.suite import (
    ALL,
    NONE,
    REFERENCE,
    PerturbedResult,
    chosen,
    judge_perturbed,
    perturbations_of,
    perturbed_config,
    run_perturbed,
    run_reference,
    table,
    worst,
)
from gantry_deploy.evaluation.scenario import ROLLOUT_RANGES, RolloutConfig
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.files.bounds import finite
from gantry_hardware.robots import robot_spec


def add_perturbation_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--perturbations`` and ``--perturbed-episodes``."""
    parser.add_argument(
        "--perturbations",
        default=ALL,
        metavar=f"{ALL}|{NONE}|A,B",
        help=f"conditions under which the policy is tried as well, '{ALL}' if not given; they count where the "
        "contract's acceptance says so",
    )
    parser.add_argument(
        "--perturbed-episodes",
        type=int,
        metavar="N",
        help="episodes under each of them; if not given a few, fewer than --episodes",
    )


def check_perturbations(args: argparse.Namespace, contract: PolicyContract | None) -> None:
    """Refuse a name that is no perturbation of a contract's robot, and a number that makes no sense.

    Raises:
        GantryError: With the near miss, or the range.
    """
    if args.perturbed_episodes is not None:
        finite("--perturbed-episodes", args.perturbed_episodes, *ROLLOUT_RANGES["episodes"], UsageError)
    if contract is not None:
        chosen(args.perturbations, perturbations_of(contract, robot_spec(contract.robot)))


def try_perturbations(
    args: argparse.Namespace, runner: PolicyRunner, nominal: RolloutConfig
) -> tuple[list[Stage], dict[str, Any]]:
    """Run and print what the command line asks for.

    Returns:
        The contract's thresholds on it, and the table for the report; empty without perturbations.
    """
    contract = runner.contract
    asked = chosen(args.perturbations, perturbations_of(contract, runner.spec))
    perturbations = _possible(asked, nominal.backend)
    if not perturbations:
        return _left_out(contract), {}
    config, begin = perturbed_config(nominal, contract, args.perturbed_episodes), time.monotonic()
    compares = config.seconds < nominal.seconds
    number = counted(len(perturbations), "perturbation")
    print(f"{number}, {counted(config.episodes, 'episode')} of {config.seconds:g} s each:", flush=True)
    width, reference = max(len(name) for name in (REFERENCE, *(item.name for item in perturbations))), None
    with _display((len(perturbations) + compares) * config.episodes) as (say, advance):
        if compares:
            reference = run_reference(runner, config, lambda index, episode: advance())
            say(_line(reference, width))
        results = run_perturbed(
            runner,
            config,
            perturbations,
            lambda result: say(_line(result, width)),
            lambda index, episode: advance(),
        )
    last = worst(results)
    assert last is not None
    print(f"worst: {last.name} ({last.text}): {last.scores.line}")
    print(f"perturbed in {time.monotonic() - begin:.0f} s")
    return judge_perturbed(contract.acceptance, results), table(results, config, reference)


def _possible(asked: Sequence[Perturbation], backend: str) -> list[Perturbation]:
    """Perturbations that a backend can have; says which others are left out."""
    found = []
    for item in asked:
        if lacking := item.lacking(backend):
            print(f"left out: {item.name}, since backend '{backend}' has no {', '.join(lacking)}")
        else:
            found.append(item)
    return found


def _left_out(contract: PolicyContract) -> list[Stage]:
    """A skipped stage where the contract asks for something under perturbations."""
    acceptance = contract.acceptance
    limits = (
        acceptance.max_perturbed_fall_rate,
        acceptance.max_perturbed_lin_vel_error_m_s,
        acceptance.min_perturbed_success_rate,
    )
    if all(limit is None for limit in limits):
        return []
    return [Stage("perturbed", True, "the contract's acceptance asks for it, and nothing was perturbed", skipped=True)]


def _line(result: PerturbedResult, width: int) -> str:
    faults = "".join(f"  {code} {count}" for code, count in result.faults.items())
    return f"  {result.name:<{width}}  {result.scores.line}{faults}"


@contextlib.contextmanager
def _display(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """Shows a line of each perturbation, below them a bar of all episodes where someone watches."""
    if not sys.stdout.isatty():
        yield lambda text: print(text, flush=True), lambda: None
        return
    from rich import progress as bars  # Not needed for a refusal.
    from rich.console import Console

    columns = (bars.TextColumn("perturbed"), bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeRemainingColumn())
    with bars.Progress(*columns, console=Console(file=sys.stdout), transient=True) as progress:
        task = progress.add_task("perturbed", total=total)
        yield (
            lambda text: progress.console.print(text, markup=False, highlight=False),
            lambda: progress.advance(task),
        )
