"""``gantry flash``: a release onto a robot, the list of its releases, and the way back."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.locate import WHERE, find_bundle
from gantry_deploy.cli.command import UsageError, add_json_option, emit_result, parse_key_value
from gantry_deploy.cli.flash.targets import HOST, add_target_options, target_of
from gantry_deploy.flash.ssh import call
from gantry_hardware.files.json_file import parse_json_object
from gantry_hardware.files.text import path_text, printable

_ACTIONS = {
    "list": "show a robot's releases and its newest log lines",
    "rollback": "return to the good release before the current one",
    "setup": "prepare a robot's computer on which gantry is installed",
}
"""Options in place of BUNDLE and HOST."""


class _Instead(argparse.Action):
    """An option that takes the robot's computer, after which BUNDLE and HOST are not asked for."""

    def __init__(self, places: list[argparse.Action], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._places = places

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, values)
        for place in self._places:
            place.required = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    places = [
        parser.add_argument("bundle", metavar="BUNDLE", help=WHERE),
        parser.add_argument("host", metavar="HOST", help=HOST),
    ]
    instead = parser.add_mutually_exclusive_group()
    for name, text in _ACTIONS.items():
        instead.add_argument(f"--{name}", action=_Instead, places=places, metavar="HOST", help=text)
    parser.add_argument("--dry-run", action="store_true", help="look at everything, copy nothing")
    parser.add_argument("--key", metavar="NAME", help="sign the release with this key of yours (gantry keys)")
    parser.add_argument(
        "--config",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="YAML file that belongs to the release; run.yaml says how it is run; may be given several times",
    )
    parser.add_argument(
        "--wheels",
        type=Path,
        metavar="FOLDER",
        help="wheels of the runtime and all that it needs, for the robot's Python",
    )
    parser.add_argument(
        "--no-return",
        action="store_true",
        help="flash although nothing could return to a good release if this one fails",
    )
    parser.add_argument("--retries", type=int, default=5, metavar="N", help="attempts after a cut connection")
    parser.add_argument("--robot", metavar="NAME", help="with --setup: name of the robot")
    parser.add_argument("--backend", metavar="NAME", help="with --setup: backend that bundles are run on")
    parser.add_argument(
        "--option",
        type=parse_key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="with --setup: option of the backend; may be given several times",
    )
    add_target_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for."""
    action = next((name for name in _ACTIONS if getattr(args, name) is not None), "")
    if not action:
        return _flash(args)
    if args.bundle is not None:
        raise UsageError(f"--{action} takes the robot's computer alone; leave '{args.bundle}' out.")
    target = target_of(args, getattr(args, action))
    if action == "setup":
        print(call(target, _setup_words(args)), end="")
    elif action == "rollback":
        from gantry_deploy.flash.home import this_person

        print(call(target, ["onboard", "rollback", "--by", this_person()]), end="")
    else:
        result = parse_json_object(call(target, ["onboard", "list", "--json", "-"]), "the robot's answer")
        print_list(result)
        emit_result(args, result)
    return 0


def _setup_words(args: argparse.Namespace) -> list[str]:
    if not args.robot:
        raise UsageError("--setup needs --robot NAME. See 'gantry flash --help'.")
    words = ["onboard", "setup", "--robot", args.robot]
    words += ["--backend", args.backend] if args.backend else []
    for key, value in args.option:
        words += ["--option", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return words


def _flash(args: argparse.Namespace) -> int:
    if args.bundle is None or args.host is None:
        raise UsageError("BUNDLE or HOST is missing: gantry flash BUNDLE USER@HOST.")
    if not 0 <= args.retries <= 1000:
        raise UsageError(f"--retries is {args.retries}, expected a whole number from 0 to 1000.")
    for path in args.config:
        if not path.is_file():
            raise UsageError(f"--config: there is no file {path_text(path)}.")
    if args.wheels is not None and not args.wheels.is_dir():
        raise UsageError(f"--wheels: there is no folder {path_text(args.wheels)}.")
    target, bundle = target_of(args, args.host), find_bundle(args.bundle)
    from gantry_deploy.bundle.keys import key_folder, private_key_named
    from gantry_deploy.flash.release import make_release
    from gantry_deploy.flash.sending import Plan, flash

    key = None if args.key is None else private_key_named(key_folder(), args.key)
    release = make_release(bundle, args.config, args.wheels, key)
    manifest = release.manifest
    files = f"{len(manifest.files)} files, {manifest.size} bytes"
    print(f"release {manifest.release[:12]}: {files}, for '{manifest.data['robot']}'")
    outcome = flash(
        Plan(release, target, args.dry_run, args.no_return, args.retries), lambda text: print(text, flush=True)
    )
    print(f"{outcome.state}: {outcome.text}")
    emit_result(args, asdict(outcome))
    return 1 if outcome.state == "returned" else 0


def print_list(result: dict[str, Any]) -> None:
    """Print the releases of a robot, and its newest log lines."""
    service = "runs" if result["service"] else "does NOT run"
    print(f"robot '{printable(str(result['robot']))}', the service {service}; {printable(str(result['note']), 300)}")
    for row in result["releases"]:
        mark = "*" if row["current"] else " "
        why = f"  ({printable(row['why'], 200)})" if row["why"] else ""
        name, runtime = printable(row["name"], 30), printable(row["runtime"], 20)
        print(f"{mark} {row['release'][:12]}  {row['state']:<8}  {name:<24}  runtime {runtime}{why}")
    if not result["releases"]:
        print("  no releases")
    for line in result["log"][-10:]:
        release = str(line.get("release", ""))[:12]
        words = (line.get("time_utc", ""), line.get("by", ""), line.get("what", ""), release, line.get("why", ""))
        print("  " + "  ".join(printable(str(word), 200) for word in words if word))
