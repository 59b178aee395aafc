"""``gantry keys``: keys of a person, and keys that a robot trusts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.keys import (
    DAYS,
    DEVELOPMENT,
    MOST_DAYS,
    ROLES,
    TrustedKey,
    TrustedKeys,
    check_name,
    key_folder,
    key_names,
    last_day_after,
    make_key,
    parse_day,
)
from gantry_deploy.bundle.signature import is_hex_key, read_public_key
from gantry_deploy.cli.command import UsageError, add_json_option, choose
from gantry_deploy.cli.flash.targets import HOST, add_target_options, target_of
from gantry_deploy.cli.parser import GantryParser
from gantry_deploy.flash.home import robot_home, this_person, utc_now
from gantry_deploy.flash.ssh import call
from gantry_hardware.files.bounds import whole
from gantry_hardware.files.text import path_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    sub = parser.add_subparsers(
        dest="subcommand", metavar="WHAT", title="what", required=True, parser_class=GantryParser
    )
    new = sub.add_parser("new", help="make a key; its private file stays on this machine")
    new.add_argument("name", metavar="NAME", help="letters, digits, '.', '_' and '-'")
    _folder(new)
    listed = sub.add_parser("list", help="show your keys, and those that a robot trusts")
    _folder(listed)
    _robot(listed)
    add_json_option(listed)
    trust = sub.add_parser("trust", help="let a robot accept what a key has signed")
    trust.add_argument("key", metavar="KEY", help="a key of yours, a public key file, or 64 hex digits")
    trust.add_argument("--name", metavar="NAME", help="name on the robot; the file's if not given")
    trust.add_argument("--role", default=DEVELOPMENT, metavar="ROLE", help=f"what it is for: {', '.join(ROLES)}")
    trust.add_argument("--days", type=int, metavar="N", help=f"days for which it counts; {_days_text()} if not given")
    _folder(trust)
    _robot(trust)
    revoke = sub.add_parser("revoke", help="withdraw a robot's trust in a key, for good")
    revoke.add_argument("name", metavar="NAME", help="of the key on the robot")
    _robot(revoke)
    expire = sub.add_parser("expire", help="change the last day on which a robot's key counts")
    expire.add_argument("name", metavar="NAME", help="of the key on the robot")
    expire.add_argument("--on", required=True, metavar="DAY", help="last day, for example 2027-06-30")
    _robot(expire)


def run(args: argparse.Namespace) -> int | dict[str, Any]:
    """Do what the command line asks for."""
    return {"new": _new, "list": _list, "trust": _trust, "revoke": _revoke, "expire": _expire}[args.subcommand](args)


def _folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="folder of your keys; ~/.config/gantry/keys")


def _robot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", metavar="HOST", help=f"{HOST}; this computer is the robot's if not given")
    add_target_options(parser)


def _days_text() -> str:
    return ", ".join(f"{days} for {role}" for role, days in DAYS.items())


def _new(args: argparse.Namespace) -> dict[str, Any]:
    private, public = make_key(args.folder or key_folder(), args.name)
    print(f"wrote {path_text(private)}, readable by you alone, and {path_text(public)}")
    print(f"let a robot accept it: gantry keys trust {args.name} --role development --host USER@HOST")
    return {"private": str(private), "public": str(public)}


def _list(args: argparse.Namespace) -> dict[str, Any]:
    if args.host is not None:
        print(call(target_of(args, args.host), ["keys", "list"]), end="")
        return {}
    folder = args.folder or key_folder()
    own = {name: read_public_key(folder / f"{name}.pub").hex() for name in key_names(folder)}
    for name, key in own.items():
        print(f"yours    {name:<16} {key[:12]}")
    home, now = robot_home(args.home or None), utc_now()
    trusted = list(TrustedKeys(home.keys_file).keys.values())
    for key in trusted:
        until = key.refusal(now, ROLES) or f"until {key.last_day}"
        print(f"trusted  {key.name:<16} {key.public_key[:12]}  {key.role:<11}  {until}")
    if not own and not trusted:
        print(f"no keys in {path_text(folder)}, and none trusted in {path_text(home.keys_file)}")
    return {"own": own, "trusted": trusted}


def _trust(args: argparse.Namespace) -> int:
    role = choose("role of a key", args.role, ROLES)
    days = whole("--days", DAYS[role] if args.days is None else args.days, 1, MOST_DAYS, UsageError)
    source = Path(args.key)
    if not source.is_file() and not is_hex_key(args.key):
        source = (args.folder or key_folder()) / f"{args.key}.pub"
        choose("key", args.key, key_names(args.folder or key_folder()))
    public = read_public_key(args.key if is_hex_key(args.key) else source).hex()
    name = args.name or ("" if is_hex_key(args.key) else source.stem)
    if not name:
        raise UsageError("A key given as hex digits needs --name NAME.")
    check_name(name)
    if args.host is not None:
        words = ["keys", "trust", public, "--name", name, "--role", role, "--days", str(days)]
        print(call(target_of(args, args.host), words), end="")
        return 0
    home = robot_home(args.home or None)
    key = TrustedKey(name, public, role, last_day_after(days).isoformat())
    TrustedKeys(home.keys_file).trust(key)
    home.note("key trusted", this_person(), key=name, role=role, last_day=key.last_day)
    print(f"key '{name}' ({public[:12]}) is trusted as a {role} key until {key.last_day}")
    return 0


def _revoke(args: argparse.Namespace) -> int:
    if args.host is not None:
        print(call(target_of(args, args.host), ["keys", "revoke", args.name]), end="")
        return 0
    home = robot_home(args.home or None)
    TrustedKeys(home.keys_file).revoke(args.name, utc_now())
    home.note("key revoked", this_person(), key=args.name)
    print(f"key '{args.name}' is revoked; releases that it signed are refused from now on")
    return 0


def _expire(args: argparse.Namespace) -> int:
    day = parse_day(args.on)
    if args.host is not None:
        print(call(target_of(args, args.host), ["keys", "expire", args.name, "--on", args.on]), end="")
        return 0
    home = robot_home(args.home or None)
    TrustedKeys(home.keys_file).expire(args.name, day)
    home.note("key's last day changed", this_person(), key=args.name, last_day=args.on)
    print(f"key '{args.name}' counts until {args.on}")
    return 0
