"""``gantry check``: the sim-to-sim gate of a bundle."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from gantry_deploy.bundle.bundle import Bundle, load_bundle, update_card
from gantry_deploy.bundle.locate import find_bundle, is_pretrained
from gantry_deploy.cli.bundles import add_bundle_arguments, is_leapp, open_bundle
from gantry_deploy.cli.command import (
    UsageError,
    add_json_option,
    choose,
    counted,
    emit_result,
    jsonable,
    parse_key_value,
    seed_number,
)
from gantry_deploy.cli.machine import add_dynamics_argument, dynamics_option, warn_beyond_training
from gantry_deploy.cli.perturbed import add_perturbation_arguments, check_perturbations, try_perturbations
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of, simulated_backends
from gantry_deploy.evaluation.gate import (
    Report,
    Stage,
    check_static,
    judge_rollout,
    make_card,
    make_report,
)
from gantry_deploy.evaluation.rollout import run_episodes
from gantry_deploy.evaluation.scenario import ROLLOUT_RANGES, Episode, RolloutConfig, RolloutResult, scenario_class
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.registry import backend_names, check_options, require_options
from gantry_hardware.errors import GantryError
from gantry_hardware.files.bounds import finite
from gantry_hardware.files.text import path_text, printable

_WORD = 28
"""Width of the column with a stage's name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    defaults, usual = RolloutConfig(), simulated_backends()
    add_bundle_arguments(parser, leapp=True)
    parser.add_argument("--episodes", type=int, default=defaults.episodes, metavar="N", help="episodes to run")
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help=f"length of an episode, {defaults.seconds:g} if not given, or for a car that of its task; shorter ones "
        "end before their routes do",
    )
    parser.add_argument(
        "--seed", type=seed_number, default=defaults.seed, metavar="N", help="of everything that is drawn"
    )
    parser.add_argument(
        "--backend",
        metavar="NAME",
        help=f"simulated robot that knows its ground truth; if not given {usual}",
    )
    parser.add_argument(
        "--noise", type=float, default=defaults.noise, metavar="X", help="sensor noise in units of the usual one"
    )
    parser.add_argument(
        "--option",
        type=parse_key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the backend in all episodes, for example delay_s=0.01; may be given several times",
    )
    add_perturbation_arguments(parser)
    add_dynamics_argument(parser, "simulate that machine in all episodes")
    parser.add_argument("--no-card", action="store_true", help="leave the bundle's card.json as it is")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for."""
    config = _config(args)
    stages: list[Stage] = []

    def note(stage: Stage) -> None:
        stages.append(stage)
        # The reason for a refusal is the one message on standard error.
        print(_line(stage) if stage.passed else f"FAIL  {stage.name}", flush=True)

    try:
        bundle, runner = check_static(lambda: open_bundle(args), note)
        warnings = warn_beyond_training(args.dynamics, bundle.contract)
        result = _rollout(runner, config)
        perturbed_stages, perturbed = try_perturbations(args, runner, config)
    except GantryError as error:
        print("REFUSED", flush=True)
        emit_result(args, {"bundle": args.bundle, "verdict": "refused", "reason": str(error), "stages": stages})
        raise
    verdicts = judge_rollout(bundle.contract, result) + perturbed_stages
    stages += verdicts
    print("\n".join(_line(stage) for stage in verdicts))
    if result.faults:
        print("faults: " + ", ".join(f"{code} {count}" for code, count in result.faults.items()))
    report = {**make_report(bundle, stages, config, result, perturbed), "beyond_training": warnings}
    if report["weights_sha256"]:
        print(f"weights {report['weights_sha256']}")
    print(report["verdict"].upper())
    if result.short_of_s is not None:
        print(
            f"card not written: episodes of {config.seconds:g} s are too short; the task's are {result.short_of_s:g} s"
        )
    elif not args.no_card:
        _write_card(args, bundle, report)
    emit_result(args, {"bundle": args.bundle, **report})
    return 0 if report["verdict"] == "passed" else 1


def _config(args: argparse.Namespace) -> RolloutConfig:
    if args.backend is not None:
        choose("robot backend", args.backend, backend_names())  # A mistyped name is answered before anything is loaded.
    contract = _contract(args)
    backend, options, seconds = _usual(contract)
    if args.backend is None:
        args.backend = backend
    if args.seconds is None:
        args.seconds = seconds
    choose("robot backend", args.backend, backend_names())
    for name in ("episodes", "seconds", "noise"):
        finite(f"--{name}", getattr(args, name), *ROLLOUT_RANGES[name], UsageError)
    find_bundle(args.bundle)  # A mistyped path is answered before a simulator is loaded.
    machine = dynamics_option(args.dynamics, args.backend, dict(args.option))
    require_options(args.backend, (*options, *machine), "gantry check")
    check_options(args.backend, {**dict(args.option), **machine})
    check_perturbations(args, contract)
    return RolloutConfig(
        backend=args.backend,
        episodes=args.episodes,
        seconds=args.seconds,
        seed=args.seed,
        noise=args.noise,
        options={**dict(args.option), **machine},
    )


def _contract(args: argparse.Namespace) -> PolicyContract | None:
    """A bundle's contract; None for one that cannot be loaded, which is refused later, stage by stage."""
    try:
        return open_bundle(args).contract if is_leapp(args) else load_bundle(find_bundle(args.bundle)).contract
    except GantryError:
        return None


def _usual(contract: PolicyContract | None) -> tuple[str, tuple[str, ...], float]:
    """The backend for episodes of a policy, the options that it must take, and how long an episode is, s."""
    defaults = RolloutConfig()
    if contract is None:
        return defaults.backend, (), defaults.seconds
    scenario = scenario_class(contract)
    return embodiment_of(contract).simulated_backend, scenario.drawn, scenario.seconds


def _rollout(runner: PolicyRunner, config: RolloutConfig) -> RolloutResult:
    scenario = scenario_class(runner.contract)
    episodes = counted(config.episodes, "episode")
    print(f"{episodes} of {config.seconds:g} s on '{config.backend}', {scenario.conditions}:")
    begin = time.monotonic()
    with _episode_display(config, scenario.line) as show:
        result = run_episodes(runner, config, show)
    simulated_s = sum(episode.seconds for episode in result.episodes)
    wall_s = time.monotonic() - begin
    print(f"{simulated_s:.0f} s under the policy in {wall_s:.0f} s")
    return result


@contextlib.contextmanager
def _episode_display(
    config: RolloutConfig, words: Callable[[Episode], str]
) -> Iterator[Callable[[int, Episode], None]]:
    """Shows each episode as a line, below them a bar where someone watches."""
    width = len(str(config.episodes))

    def line(index: int, episode: Episode) -> str:
        after = f"  after {episode.seconds:.1f} s: {episode.reason}" if episode.failed else ""
        return f"  {index + 1:>{width}}/{config.episodes}  {words(episode)}{after}"

    if not sys.stdout.isatty():
        yield lambda index, episode: print(line(index, episode), flush=True)
        return
    from rich import progress as bars  # Not needed for a refusal.
    from rich.console import Console

    columns = (
        bars.TextColumn("episodes"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(file=sys.stdout), transient=True) as progress:
        task = progress.add_task("episodes", total=config.episodes)

        def show(index: int, episode: Episode) -> None:
            progress.console.print(line(index, episode), markup=False, highlight=False)
            progress.advance(task)

        yield show


def _line(stage: Stage) -> str:
    word = "skip" if stage.skipped else "pass" if stage.passed else "FAIL"
    return f"{word}  {stage.name:<{_WORD}}{stage.text}"


def _write_card(args: argparse.Namespace, bundle: Bundle, report: Report) -> None:
    if is_pretrained(args.bundle):
        # What was installed stays as it was released; a copy may be measured.
        print(f"card not written: {printable(args.bundle)} belongs to the installation")
        return
    if is_leapp(args):
        print(f"card not written: {path_text(bundle.path)} is a LEAPP folder; gantry import-leapp makes it a bundle")
        return
    if bundle.is_signed:
        # A new card is a new manifest, and only the owner of the key can sign that.
        print(f"card not written: {path_text(bundle.path)} is signed")
        return
    try:
        update_card(bundle.path, jsonable(make_card(bundle.card, report)))
    except OSError as error:
        raise GantryError(f"Cannot write the card of {path_text(bundle.path)}: {error.strerror}.") from error
    print(f"card written to {path_text(bundle.path)}")
