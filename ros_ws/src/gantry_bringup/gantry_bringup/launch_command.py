"""``gantry launch``: the same nodes as the launch files start, where ROS 2's ``launch`` is not installed."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from typing import Any

from gantry_bringup.description import LAUNCHES, Launch, NodeSpec, find_launch
from gantry_deploy.cli.command import UsageError, add_json_option, emit_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``gantry launch``."""
    parser.add_argument("name", metavar="NAME", help=f"what to start: {', '.join(LAUNCHES)}")
    parser.add_argument("assignments", metavar="KEY:=VALUE", nargs="*", help="its arguments; --show-args lists them")
    parser.add_argument("-s", "--show-args", action="store_true", help="list the arguments of NAME and start nothing")
    parser.add_argument("--dry-run", action="store_true", help="print the command lines and start nothing")
    parser.epilog = _epilog()
    add_json_option(parser)


def run(args: argparse.Namespace) -> int | dict[str, Any]:
    """Start the nodes and stay until one of them ends.

    Raises:
        GantryError: If name, arguments, parameter file or bundle are refused, if ROS 2 is missing, or if the nodes
            could not hear one another; nothing has been started.
    """
    from gantry_bringup.loopback import require_loopback  # None of these is needed for `gantry --help`.
    from gantry_bringup.parts import require_parameters
    from gantry_bringup.processes import NodeGroup, node_command
    from gantry_ros.runtime.availability import require_ros

    launch = find_launch(args.name)
    if args.show_args:
        print("\n".join(_listed(launch)))
        return {"arguments": {item.name: item.default for item in launch.arguments}}
    given = _assignments(args.assignments)
    specs = launch.nodes(given)
    if args.dry_run:
        for spec in specs:
            print(_shell_line(spec, node_command(spec)))
        return {"nodes": [{"name": spec.name, "command": node_command(spec)} for spec in specs]}
    require_ros()
    require_parameters(specs)
    require_loopback(specs)
    group = NodeGroup(specs)
    begin_s = time.time()
    try:
        code = group.run()
    finally:
        if _written_since(given.get("record", ""), begin_s):
            print(f"Recording: {given['record']}", flush=True)
    if code == 0:
        print("Done: every node ended well.", flush=True)
    emit_result(args, {"launch": args.name, "exit_code": code, "nodes": group.exit_codes()})
    return code


def _written_since(path: str, time_s: float) -> bool:
    """Whether there is such a file, and not one from before; a second of slack for coarse clocks of file systems."""
    try:
        return bool(path) and os.stat(path).st_mtime >= time_s - 1.0
    except OSError:
        return False


def _assignments(texts: list[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition(":=")
        if not separator or not key:
            raise UsageError(f"'{text}' is not of the form key:=value. See 'gantry launch --help'.")
        given[key] = value
    return given


def _shell_line(spec: NodeSpec, command: list[str]) -> str:
    settings = [f"{name}={shlex.quote(value)}" for name, value in spec.environment.items()]
    return " ".join([*settings, shlex.join(command)])


def _epilog() -> str:
    width = max(len(name) for name in LAUNCHES)
    lines = ["what can be started; its arguments: gantry launch NAME --show-args", ""]
    lines += [f"  {launch.name:<{width}}  {launch.text}" for launch in LAUNCHES.values()]
    lines += ["", "example: gantry launch sim_walk bundle:=runs/walk/bundle drive:=true record:=walk.mcap"]
    return "\n".join(lines)


def _listed(launch: Launch) -> list[str]:
    """Name, purpose and arguments of a description, one per line."""
    lines, width = [f"{launch.name}: {launch.text}"], max(len(argument.name) for argument in launch.arguments)
    for argument in launch.arguments:
        default = f" (default: {argument.default})" if argument.default else ""
        lines.append(f"  {argument.name:<{width}}  {argument.text}{default}")
    return lines
