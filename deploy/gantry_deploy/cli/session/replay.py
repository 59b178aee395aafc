"""``gantry session replay``: the attempts of a session that is over, and one of them step by step."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.bundle.locate import near_miss
from gantry_deploy.cli.command import UsageError, add_json_option, counted, output_file
from gantry_deploy.errors import SessionError
from gantry_hardware.files.text import path_text, printable

if TYPE_CHECKING:
    from gantry_deploy.report import Report
    from gantry_deploy.session.records.traces import AttemptTrace

MOST_COLUMNS = 8
"""Numbers of an action that a line shows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Offer the options of the command."""
    parser.description = (
        "Show the attempts of a session: length, success, share of the steps by a person, person-seconds, reward; with "
        "--episode one of them step by step. Takes the dataset of a session, another LeRobot v3 dataset, or a "
        "recording of Gantry (.mcap)."
    )
    parser.epilog = (
        "examples:\n"
        "  gantry session replay sessions/first\n"
        "  gantry session replay sessions/first --episode 3 --html attempt.html\n"
        "  gantry session replay run.mcap --json -"
    )
    parser.add_argument("path", metavar="DATASET_OR_MCAP", type=Path, help="folder of a dataset, or a recording")
    parser.add_argument("--episode", type=int, metavar="N", help="show this attempt step by step, from 0 on")
    parser.add_argument(
        "--html", type=output_file(".html"), metavar="FILE", help="write a report with plots; corrections are shaded"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print the attempts, and write what was asked for."""
    from gantry_deploy.session.records.traces import read_traces, session_summary

    if not args.path.exists():
        raise SessionError(f"There is no dataset or recording {path_text(args.path)}.{near_miss(args.path)}")
    traces = read_traces(args.path)
    total = session_summary(traces)
    chosen = _chosen(traces, args.episode)
    _print_attempts(traces, total)
    result: dict[str, Any] = {"path": str(args.path), **total, "episodes": [trace.summary() for trace in traces]}
    if chosen is not None:
        _print_steps(chosen)
        result["episode"] = {**chosen.summary(), **_steps_of(chosen)}
    if args.html is not None:
        make_report(args.path, traces, total, chosen).write(args.html)
        print(f"report: {args.html}")
        result["html"] = str(args.html)
    return result


def make_report(
    path: Path, traces: Sequence[AttemptTrace], total: dict[str, Any], chosen: AttemptTrace | None
) -> Report:
    """A report of a session; every attempt with a correction, or the chosen one alone, gets its plots."""
    import numpy as np

    from gantry_deploy.report import Report
    from gantry_deploy.report.corrections import attempts_over_time, corrected_actions

    report = Report("Corrections", path_text(path)).tiles(
        {
            "attempts": str(total["attempts"]),
            "succeeded": _count(total["successes"]),
            "without help": _count(total["successes_alone"]),
            "steps by the person": f"{total['person_share']:.0%}",
            "person-seconds": f"{total['person_s']:.1f}",
        }
    )
    report.section("Attempts").table([_cells(trace) for trace in traces], _HEADER)
    if traces:
        shares = np.array([trace.person.mean() for trace in traces])
        lengths = np.array([trace.length * trace.dt_s for trace in traces])
        figure = attempts_over_time(shares, lengths, [trace.success for trace in traces])
        report.figure(figure, "Attempts in their order.")
    shown = [chosen] if chosen is not None else [trace for trace in traces if trace.person.any()][:MOST_SHOWN]
    for trace in shown:
        report.section(f"Attempt {trace.episode}")
        report.figure(
            corrected_actions(
                trace.time_s,
                trace.dt_s,
                trace.action,
                trace.policy_action,
                trace.spans,
                trace.action_names,
                trace.reward,
            ),
            f"Attempt {trace.episode}: {_outcome(trace)}; shaded while a person acts.",
        )
    return report


MOST_SHOWN = 20
"""Attempts with plots in a report of a whole session."""
_HEADER = ("Attempt", "Steps", "Time [s]", "Outcome", "Corrections", "By person [%]", "Person [s]", "Reward", "Weights")


def _chosen(traces: Sequence[AttemptTrace], episode: int | None) -> AttemptTrace | None:
    if episode is None:
        return None
    if not 0 <= episode < len(traces):
        raise UsageError(f"--episode: there is no attempt {episode}; there are {len(traces)}, from 0 on.")
    return traces[episode]


def _print_attempts(traces: Sequence[AttemptTrace], total: dict[str, Any]) -> None:
    _print_table(_HEADER, [_cells(trace) for trace in traces])
    outcome = ""
    if total["successes"] is not None:
        outcome = f", {total['successes']} succeeded, {total['successes_alone']} of them without help"
    print(f"{counted(total['attempts'], 'attempt')}{outcome}")
    print(
        f"{counted(total['steps'], 'step')}, {total['person_share']:.0%} by the person in "
        f"{counted(total['corrections'], 'correction')}, {total['person_s']:.1f} person-seconds"
    )


def _print_steps(trace: AttemptTrace) -> None:
    """Print one attempt step by step: actor, executed action, the policy's, and the largest difference."""
    names = [printable(name, 12) for name in trace.action_names[:MOST_COLUMNS]]
    hidden = len(trace.action_names) - len(names)
    print(
        f"\nattempt {trace.episode}: {_outcome(trace)}{f'; {hidden} numbers of the action not shown' if hidden else ''}"
    )
    wanted = [f"{name}'" for name in names] if trace.policy_action is not None else []
    gap = ["difference"] if trace.policy_action is not None else []
    _print_table(
        ("Step", "Time [s]", "Actor", *names, *wanted, *gap, *(["Reward"] if trace.reward is not None else [])),
        list(_step_rows(trace, len(names))),
    )
    if wanted:
        print("with ': what the policy wanted")


def _step_rows(trace: AttemptTrace, columns: int) -> Iterator[list[str]]:
    gap = trace.difference
    for i in range(trace.length):
        row = [str(i), f"{trace.time_s[i]:.2f}", "person" if trace.person[i] else "policy"]
        row += [f"{value:.3f}" for value in trace.action[i, :columns]]
        if trace.policy_action is not None and gap is not None:
            row += [f"{value:.3f}" for value in trace.policy_action[i, :columns]] + [f"{gap[i]:.3f}"]
        yield row + ([f"{trace.reward[i]:.4g}"] if trace.reward is not None else [])


def _steps_of(trace: AttemptTrace) -> dict[str, Any]:
    """An attempt's steps as plain data."""
    return {
        "action_names": list(trace.action_names),
        "time_s": trace.time_s,
        "actor": ["person" if flag else "policy" for flag in trace.person],
        "action": trace.action,
        "policy_action": trace.policy_action,
        "difference": trace.difference,
        "rewards": trace.reward,
    }


def _cells(trace: AttemptTrace) -> list[str]:
    item = trace.summary()
    versions = "" if trace.parameters is None else "-".join(str(v) for v in dict.fromkeys(trace.parameters))
    return [
        str(item["episode"]),
        str(item["steps"]),
        f"{item['duration_s']:.2f}",
        _outcome(trace),
        str(item["corrections"]),
        f"{100 * item['person_share']:.0f}",
        f"{item['person_s']:.2f}",
        "" if item["reward"] is None else f"{item['reward']:.4g}",
        versions,
    ]


def _outcome(trace: AttemptTrace) -> str:
    return "not recorded" if trace.success is None else "success" if trace.success else "failure"


def _count(number: int | None) -> str:
    return "not recorded" if number is None else str(number)


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns of plain text; the first is set to the left, the others to the right."""
    widths = [max(len(name), *(len(row[i]) for row in rows)) if rows else len(name) for i, name in enumerate(header)]
    for line in [header, *rows]:
        first, *rest = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join([first, *rest]).rstrip())
