"""``gantry identify``: dynamics of one machine from recordings of it, with intervals."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gantry_deploy.cli.command import Command, UsageError, add_json_option, choose, counted, emit_result, output_file
from gantry_deploy.process.interrupts import interrupt_on_terminate
from gantry_hardware.robots import robot_names, robot_spec

KINDS = ("auto", "hanging", "walking", "driving")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recordings", nargs="+", metavar="RECORDING", help="MCAP, bag of ROS 2 or CSV of this robot")
    parser.add_argument("--robot", required=True, metavar="NAME", help="a robot's name")
    parser.add_argument("--kind", default="auto", help=f"what was recorded: {', '.join(KINDS)} (told by the data)")
    parser.add_argument(
        "--level", action="store_true", help="the base of the hanging robot was level, whatever its IMU says"
    )
    parser.add_argument("--output", type=output_file(".yaml"), metavar="FILE", help="dynamics; NAME-dynamics.yaml")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="write report.html into a folder")
    add_json_option(parser)


def _run(args: argparse.Namespace) -> int:
    spec = robot_spec(choose("robot", args.robot, robot_names()))
    kind = choose("kind of recording", args.kind, KINDS)
    output = args.output or Path(f"{spec.name}-dynamics.yaml")
    if args.report is not None and args.report.is_file():
        raise UsageError(f"--report: {args.report} is a file, expected a folder.")
    from gantry_deploy.embodiments.registry import embodiment_of_robot
    from gantry_hardware.model.dynamics import save_dynamics
    from gantry_hardware.plugins import load_named
    from gantry_sim.identification.legs import IdentifyCfg
    from gantry_sim.identification.reading import read_log

    embodiment_of_robot(spec).require("identify")
    with interrupt_on_terminate():
        logs = [read_log(path, spec) for path in args.recordings]
        for log in logs:
            print(f"{log.source}: {log.duration_s:.1f} s, {log.rate_hz:.0f} readings per second", flush=True)
        progress = _Progress()
        run = load_named(embodiment_of_robot(spec).identification)
        findings = run(spec, logs, IdentifyCfg(kind, args.level, progress))
        progress.end()
        for note in findings.notes:
            print(f"note: {note}")
        _print(findings.rows())
        if args.report is not None:
            from gantry_sim.identification.report import write_report

            print(f"report: {write_report(args.report, findings, [log.source for log in logs])}")
        names = ", ".join(Path(log.source).name for log in logs)
        save_dynamics(output, findings.dynamics(f"gantry identify, {' and '.join(findings.kinds)}: {names}"))
    known = sum(len(table) for table in findings.joints.values()) + len(findings.whole)
    print(f"{output}: {counted(known, 'parameter')}")
    emit_result(args, {**findings.plain(), "file": str(output)})
    return 0 if known else 1


class _Progress:
    """Shows the newest line of progress on a terminal, and lines without a count elsewhere."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self._live:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        elif " of " not in text:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _print(rows: list[tuple[str, str, str, str, str]]) -> None:
    header = ("parameter", "joint", "value", "95 % interval", "nominal")
    lines = [header, *((name, joint, value, interval, nominal) for name, joint, value, interval, nominal in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    for name, joint, value, interval, nominal in lines:
        print(f"{name:<{widths[0]}}  {joint:<{widths[1]}}  {value:>{widths[2]}}  {nominal:>{widths[4]}}  {interval}")


COMMAND = Command(
    name="identify",
    help="motors, friction, delays and mountings of one machine from recordings of it, with intervals",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Fit the dynamics of one machine to recordings of it: hanging by its base (gantry excite), walking on flat "
        "ground, or, of a car, driving. Writes a file that simulated robots and training take. Parameters that the "
        "data do not show are refused with the reason. Exit code 1 if nothing could be identified."
    ),
    epilog=(
        "examples:\n"
        "  gantry identify hang.mcap --robot go2 --report identified\n"
        "  gantry identify hang.mcap walk/ --robot go2 --output go2-dynamics.yaml --json -\n"
        "  gantry run pretrained:go2-walk --option dynamics=go2-dynamics.yaml"
    ),
)
