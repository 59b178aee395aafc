"""``gantry commission``: a robot's first day, guided step by step."""

from __future__ import annotations

import argparse
import contextlib
from datetime import datetime
from pathlib import Path

from gantry_deploy.bundle.locate import WHERE, find_bundle
from gantry_deploy.cli.command import UsageError, add_json_option, choose, emit_result, parse_key_value
from gantry_deploy.cli.machine import add_dynamics_argument, warn_beyond_training
from gantry_deploy.depth.attached import add_depth_argument, with_depth
from gantry_deploy.embodiments.registry import embodiment_of_robot
from gantry_deploy.process.interrupts import interrupt_on_terminate
from gantry_hardware.backends.registry import backend_names, make_backend, moves_metal
from gantry_hardware.files.bounds import finite
from gantry_hardware.robots import robot_names, robot_spec

STEP_NAMES = ("readings", "network", "ranges", "joints", "stop", "camera", "policy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("robot", metavar="ROBOT", help="a robot's name")
    parser.add_argument("--backend", required=True, help=f"how to reach it: {', '.join(backend_names())}")
    parser.add_argument("--bundle", metavar="BUNDLE", help=f"policy to try on the gantry: {WHERE}")
    parser.add_argument("--steps", metavar="A,B", help=f"steps to do, all if not given: {', '.join(STEP_NAMES)}")
    parser.add_argument("--joints", metavar="A,B", help="joints to move in the step 'joints', all if not given")
    parser.add_argument("--gain", type=float, default=0.3, metavar="X", help="share of the usual gains in all motions")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="report; commission-ROBOT-TIME if not given")
    parser.add_argument("--yes", action="store_true", help="confirm that a real robot may move")
    parser.add_argument(
        "--option",
        type=parse_key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the backend; may be given several times",
    )
    add_depth_argument(parser)
    add_dynamics_argument(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for."""
    steps = _listed("step", args.steps, STEP_NAMES)
    spec = robot_spec(choose("robot", args.robot, robot_names()))
    embodiment_of_robot(spec).require("commission")
    joints = _listed(f"joint of {spec.name}", args.joints, spec.joint_names) if args.joints else ()
    backend = choose("robot backend", args.backend, backend_names())
    finite("--gain", args.gain, 0.05, 1.0, UsageError)
    if moves_metal(backend) and not args.yes and set(steps) & {"joints", "stop", "policy"}:
        raise UsageError(
            f"Backend '{backend}' may move a real robot. Give --yes if it hangs free and a hand is at its emergency "
            "stop, or --steps readings,network,ranges,camera, which move nothing."
        )
    folder = args.output or Path(f"commission-{spec.name}-{datetime.now():%Y%m%d-%H%M%S}")
    if folder.exists():
        raise UsageError(f"--output: {folder} exists already; a report is kept, not overwritten.")
    bundle = None
    if args.bundle is not None:
        from gantry_deploy.bundle.bundle import load_bundle

        bundle = load_bundle(find_bundle(args.bundle))
        bundle.contract.check_robot(spec)
    elif args.dynamics is not None:
        raise UsageError("--dynamics is compared with what a policy was trained for; name one with --bundle.")
    warnings = [] if bundle is None else warn_beyond_training(args.dynamics, bundle.contract)
    from gantry_deploy.commission.operator import ConsoleOperator
    from gantry_deploy.commission.report import write_report
    from gantry_deploy.commission.site import CommissionCfg, Site, StepResult
    from gantry_deploy.commission.steps import commission

    robot = with_depth(make_backend(backend, spec, **dict(args.option)), args.depth, placed=False)
    site = Site(robot, ConsoleOperator(), CommissionCfg(gain_share=args.gain, joints=joints), bundle)
    results: list[StepResult] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(interrupt_on_terminate())
        stack.callback(robot.close)
        robot.connect()
        try:
            commission(site, steps, results)
        finally:
            if results:
                print(f"report: {write_report(folder, site, backend, results)}")
    told = {"robot": spec.name, "backend": backend, "folder": str(folder), "steps": results}
    emit_result(args, {**told, "beyond_training": warnings})
    failed = [result.name for result in results if result.verdict == "failed"]
    print("passed" if not failed else f"FAILED: {', '.join(failed)}")
    return 1 if failed else 0


def _listed(kind: str, text: str | None, names: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return tuple(names)
    return tuple(choose(kind, name.strip(), names) for name in text.split(","))
