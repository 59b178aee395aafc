"""``python -m gantry_sim.unitree.fake``: a fake Go2 or G1 on the network, with faults that lines of text switch.

Every line on standard input is answered by one line of JSON on standard output; ``help`` lists them.
"""

from __future__ import annotations

import argparse
import gc
import json
import queue
import sys
import threading
from typing import Any

from gantry_deploy.process.interrupts import interrupt_on_terminate
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.unitree.models import MODELS
from gantry_sim.unitree.fake_robot import SELECT_SERVICE, FakeRobot
from gantry_sim.unitree.faults import DEFAULTS

WORDS = {
    "fault NAME [KEY=VALUE ...]": "switch a fault on; for_ms=N ends it by itself",
    "clear": "switch all faults off",
    "mode [NAME]": "let the own controller come back, or go",
    "restart": "put the robot back to its start",
    "mark NAME": "note an event from outside as a fault, whose damping is timed",
    "pose": "tell where the base really is and how it moves",
    "report": "tell everything that was noted",
    "help": "list these lines and the faults",
    "quit": "end",
}
"""Lines that are understood."""


def main(arguments: list[str] | None = None) -> int:
    """Run until ``quit``, the end of standard input, Ctrl-C or SIGTERM; prints the report at the end."""
    args = _parser().parse_args(arguments)
    try:
        robot = FakeRobot(
            args.robot,
            args.interface,
            args.domain,
            mode="" if args.mode == "none" else args.mode,
            command_timeout_ms=args.command_timeout_ms,
            noise=args.noise,
            hang=args.hang,
            terrain=args.terrain,
            terrain_difficulty=args.terrain_difficulty,
            seed=args.seed,
        )
    except GantryError as error:
        print(error, file=sys.stderr)
        return 2
    robot.report()  # The first report takes long, during which the robot would stand still.
    _say({"ready": True, "robot": args.robot, "link": robot.link.text, "seed": args.seed})
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    if not args.deaf:
        threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    gc.freeze()
    try:
        with interrupt_on_terminate():
            while _obey(robot, lines):
                robot.turn()
                robot.wait()
    except KeyboardInterrupt:
        pass
    report = robot.report()
    robot.close()
    _say({"report": report})
    if args.report:
        with open(args.report, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gantry_sim.unitree.fake", description=__doc__)
    parser.add_argument("--robot", choices=sorted(MODELS), default="go2", help="which robot")
    parser.add_argument("--domain", type=int, default=1, help="DDS domain")
    parser.add_argument("--interface", default="lo", help="network interface")
    parser.add_argument(
        "--mode", default=SELECT_SERVICE, help="own controller that is active at first; 'none' for none"
    )
    parser.add_argument("--command-timeout-ms", type=int, default=100, help="silence after which the motors damp")
    parser.add_argument("--noise", type=float, default=0.2, help="multiple of the usual sensor noise")
    parser.add_argument("--hang", action="store_true", help="hang the robot by its base")
    parser.add_argument("--terrain", default="", help="ground, as of the backend mujoco, for example stones or t1")
    parser.add_argument("--terrain-difficulty", type=float, default=0.5, help="0 to 1")
    parser.add_argument("--seed", type=int, default=0, help="of noise and faults")
    parser.add_argument("--report", metavar="FILE", help="write the report at the end to this file, too")
    parser.add_argument("--deaf", action="store_true", help="do not read standard input; end by a signal")
    return parser


def _listen(lines: queue.SimpleQueue[str | None]) -> None:
    for line in sys.stdin:
        lines.put(line)
    lines.put(None)


def _obey(robot: FakeRobot, lines: queue.SimpleQueue[str | None]) -> bool:
    """Answer the lines that have come; false to end."""
    while not lines.empty():
        line = lines.get()
        if line is None or line.strip() == "quit":
            return False
        if line.strip():
            try:
                _say({"ok": True, "at_ms": robot.now_ms, **_do(robot, line.split())})
            except (GantryError, ValueError) as error:
                _say({"ok": False, "error": str(error)})
    return True


def _do(robot: FakeRobot, words: list[str]) -> dict[str, Any]:
    word, rest = words[0], words[1:]
    if word == "fault" and rest:
        settings = dict(item.split("=", 1) for item in rest[1:])
        robot.faults.switch_on(rest[0], settings, robot.now_ms)
        robot.ledger.begin_fault(" ".join(rest), robot.now_ms)
    elif word == "mark" and rest:
        robot.ledger.begin_fault(" ".join(rest), robot.now_ms)
    elif word == "clear":
        robot.faults.clear()
    elif word == "mode":
        robot.switch_mode(rest[0] if rest else "")
    elif word == "restart":
        robot.restart_body()
    elif word == "pose":
        return {"pose": robot.pose()}
    elif word == "report":
        return {"report": robot.report()}
    elif word == "help":
        return {"lines": WORDS, "faults": DEFAULTS}
    else:
        raise UnknownNameError("line", word, (name.split()[0] for name in WORDS))
    return {}


def _say(values: dict[str, Any]) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    sys.exit(main())
