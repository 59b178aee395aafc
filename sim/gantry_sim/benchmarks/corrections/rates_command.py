"""``gantry bench corrections``: latency of hand-overs, rates of learning, and cost of steps on their way."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from gantry_deploy.cli.command import Command, UsageError, add_json_option
from gantry_sim.cli.common import ProgressBar, whole

BUNDLES = ("pretrained:drive-traffic", "pretrained:yam-pick-place", "pretrained:go2-walk")
"""A car at 10 Hz, an arm at 20 Hz, legs at 50 Hz."""
PARTS = ("hand-over", "learning", "link")
"""Names of the parts."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", default=",".join(PARTS), metavar="NAME,NAME", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--count", type=whole, default=100, metavar="N", help="take-overs of each robot")
    parser.add_argument("--seconds", type=float, default=45.0, metavar="S", help="of each rate (default: 45)")
    parser.add_argument("--steps", type=whole, default=1000, metavar="N", help="steps of each actor at full speed")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="keep what the processes write")
    add_json_option(parser)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    parts = args.parts.split(",")
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise UsageError(f"--parts: there is no part '{unknown[0]}'; there are {', '.join(PARTS)}.")
    if not 10.0 <= args.seconds <= 3600.0:
        raise UsageError(f"--seconds is {args.seconds:g}, expected a number from 10 to 3600.")
    found: dict[str, Any] = {}
    if "hand-over" in parts:
        found["hand_over"] = _hand_over(args.count)
    if "learning" in parts:
        found["learning"] = _learning(args.output, args.seconds)
    if "link" in parts:
        found["link"] = _link(args.steps)
    return found


def _hand_over(count: int) -> dict[str, Any]:
    from gantry_deploy.benchmarks.hand_over import measure_hand_overs

    print(f"Hand-overs, {count} each way in real time: from the hand to the first command that follows it")
    print(f"{'policy':28} {'Hz':>4} {'take p50 ms':>12} {'p99 ms':>8} {'give p50 ms':>12} {'p99 ms':>8} {'missed':>7}")
    found: dict[str, Any] = {}
    for name in BUNDLES:
        row = found[name] = measure_hand_overs(name, count, on_progress=ProgressBar(name).share).summary()
        cells = [1e3 * row[f"{way}_{share}_s"] for way in ("take", "give") for share in ("p50", "p99")]
        print(
            f"{name:28} {row['rate_hz']:>4.0f} {cells[0]:>12.1f} {cells[1]:>8.1f} {cells[2]:>12.1f} {cells[3]:>8.1f}"
            f" {row['missed']:>7}",
            flush=True,
        )
    return found


def _learning(output: Path | None, seconds: float) -> dict[str, Any]:
    from gantry_sim.benchmarks.corrections.rates import measure_rates

    print("Learning, yam-lift, preset hil-serl, scripted person, actors as fast as they can")
    with contextlib.ExitStack() as stack:
        folder = output or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gantry-bench-")))
        found = measure_rates(folder, seconds, lambda line: print(f"  {line}", flush=True))
    print(f"{'robots':>6} {'way':>13} {'steps/s':>8} {'updates/s':>10} {'bytes/step':>11}")
    for one, turns in zip(found["asynchronous"], found["synchronous"], strict=True):
        for way, row in (("asynchronous", one), ("synchronous", turns)):
            size = f"{row['bytes_per_step']:.0f}" if "bytes_per_step" in row else "-"
            print(f"{row['actors']:>6} {way:>13} {row['steps_per_s']:>8.1f} {row['updates_per_s']:>10.1f} {size:>11}")
        print(
            f"{'':>6} updates/s, asynchronous against synchronous: {one['updates_per_s'] / turns['updates_per_s']:.2f}"
        )
    return found


def _link(steps: int) -> dict[str, Any]:
    from gantry_deploy.benchmarks.link_rate import PACED_HZ, measure_link

    result = measure_link(steps)
    size = result["step_bytes"]
    print(f"Link, steps with two images of 84x84: {size} bytes each, on the wire and in the journal alike")
    print(f"{'actors':>6} {'steps/s':>9} {'MB/s':>7} {'journal bytes/step':>19} {'p50 ms':>8} {'p99 ms':>8}")
    for row in result["rows"]:
        print(
            f"{row['actors']:>6} {row['steps_per_s']:>9.0f} {row['steps_per_s'] * size / 1e6:>7.1f}"
            f" {row['journal_bytes_per_step']:>19.0f} {1e3 * row['p50_s']:>8.1f} {1e3 * row['p99_s']:>8.1f}"
        )
    print(f"p50, p99: from offering a step to knowing that it is on the learner's disk, at {PACED_HZ:g} steps/s each")
    return result


COMMAND = Command(
    name="corrections",
    help="latency of hand-overs, rates of learning from corrections, cost of steps on their way",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Measure a correction session on this machine: the time from a person's hand to the first command that follows "
        "it, updates and steps per second with actors beside the learner and with both in one process, and rate, size "
        "and delay of steps on their way to a learner."
    ),
    epilog="example:\n  gantry bench corrections --parts hand-over --count 30",
)
