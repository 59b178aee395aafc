"""``gantry excite``: a hanging robot moved so that ``gantry identify`` can tell its dynamics, and recorded."""

from __future__ import annotations

import argparse
import contextlib
from datetime import datetime
from pathlib import Path

from gantry_deploy.cli.command import Command, UsageError, add_json_option, choose, emit_result, output_file
from gantry_deploy.cli.command import parse_key_value as key_value
from gantry_deploy.process.interrupts import interrupt_on_terminate
from gantry_hardware.backends.registry import backend_names, make_backend, moves_metal
from gantry_hardware.robots import robot_names, robot_spec


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--robot", required=True, metavar="NAME", help="a robot's name")
    parser.add_argument("--backend", default="mujoco", help=f"how to reach it: {', '.join(backend_names())}")
    parser.add_argument(
        "--option",
        "--backend-option",
        type=key_value,
        action="append",
        default=[],
        dest="option",
        metavar="KEY=VALUE",
        help="option of the backend; may be given several times",
    )
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="length of the motion")
    parser.add_argument("--amplitude", type=float, default=0.3, metavar="RAD", help="largest excursion of a target")
    parser.add_argument("--gain", type=float, default=0.6, metavar="X", help="share of the robot's own gains")
    parser.add_argument("--rate", type=float, default=250.0, metavar="HZ", help="commands and readings per second")
    parser.add_argument("--seed", type=int, default=0, help="of the motion")
    parser.add_argument("--by-leg", action="store_true", help="move legs one after the other instead of all at once")
    parser.add_argument("--output", type=output_file(".mcap"), metavar="FILE", help="recording; excite-NAME-TIME.mcap")
    parser.add_argument("--yes", action="store_true", help="confirm that a real robot may move")
    add_json_option(parser)


def _run(args: argparse.Namespace) -> int:
    from gantry_deploy.embodiments.registry import embodiment_of_robot

    spec = robot_spec(choose("robot", args.robot, robot_names()))
    embodiment_of_robot(spec).require("excite")
    backend = choose("robot backend", args.backend, backend_names())
    metal = moves_metal(backend)
    if metal and not args.yes:
        raise UsageError(
            f"Backend '{backend}' may move a real robot. Give --yes if its base is held fixed, its legs hang free and "
            "a hand is at its emergency stop."
        )
    path = args.output or Path(f"excite-{spec.name}-{datetime.now():%Y%m%d-%H%M%S}.mcap")
    if path.exists():
        raise UsageError(f"--output: {path} exists already; a recording is kept, not overwritten.")
    from gantry_deploy.commission.operator import ConsoleOperator
    from gantry_sim.identification.excitation import ExcitationCfg, excite

    cfg = ExcitationCfg(args.seconds, args.amplitude, gain_share=args.gain, rate_hz=args.rate, seed=args.seed)
    options = dict(args.option)
    if backend == "mujoco":
        options = {"fixed_base": True, "visuals": False, **options}
    robot = make_backend(backend, spec, **options)
    operator = ConsoleOperator() if metal or options.get("realtime") else SilentOperator()
    with contextlib.ExitStack() as stack:
        stack.enter_context(interrupt_on_terminate())
        stack.callback(robot.close)
        robot.connect()
        patient = not (metal or options.get("realtime"))
        moved = excite(robot, operator, cfg, path, by_branch=args.by_leg, patient=patient)
    print(f"recording: {path}" if moved else "not wanted; nothing has moved")
    emit_result(args, {"robot": spec.name, "backend": backend, "recording": str(path) if moved else None})
    return 0 if moved else 1


class SilentOperator:
    """Stands in for a person where nothing of metal moves and no clock waits: says yes."""

    def tell(self, text: str) -> None:
        """Print a line."""
        print(text, flush=True)

    def ask(self, question: str, answers: tuple[str, ...] = ("y", "n")) -> str:
        """The first answer."""
        return answers[0]

    def pressed(self) -> bool:
        """Whether the motion is to stop."""
        return False


COMMAND = Command(
    name="excite",
    help="move a hanging robot so that its dynamics show, and record it for `gantry identify`",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Move a robot with its base held fixed and its legs hanging free: sines of many frequencies, slow ramps and "
        "steps, within its limits, at part of its gains. An operator confirms; Enter stops it, and it is damped at any "
        "fault. Exit code 1 if the operator did not want it."
    ),
    epilog=(
        "examples:\n"
        "  gantry excite --robot go2 --output hang.mcap\n"
        "  gantry excite --robot go2 --backend unitree --option interface=eth0 --seconds 60 --output hang.mcap --yes"
    ),
)
