"""One run of the ``gantry`` command: finds sub-commands, parses, runs one, and turns errors into one message.

Exit codes: 0 done; 1 the work was done and the answer is no (a check failed, a robot damped); 2 a mistake on the
command line or in a file, explained in one message; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import EntryPoint, PackageNotFoundError, version

from gantry_deploy.cli.command import STDOUT, Command, UsageError, emit_result
from gantry_deploy.cli.discovery import (
    DISTRIBUTION,
    Unavailable,
    command_entries,
    extra_of_module,
    load_command,
    load_commands,
    missing_module_text,
)
from gantry_deploy.cli.failures import explained
from gantry_deploy.cli.parser import GantryParser
from gantry_deploy.process.interrupts import EXIT_INTERRUPTED, Interrupts, remembering_interrupts
from gantry_hardware.errors import GantryError, unknown_name_text
from gantry_hardware.files.text import path_text, printable_lines

EXIT_OK = 0
"""Done."""
EXIT_NO = 1
"""Done, and the answer is no."""
EXIT_ERROR = 2
"""Refused, with one message."""

DESCRIPTION = "Train robot policies in massively parallel simulation and run the very same policy on the robot."


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``gantry`` with ``argv`` (default: the process's own arguments) and return its exit code.

    Inside another program; a process of its own begins with :func:`gantry_deploy.cli.entry.main`.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    show_traceback = "--traceback" in arguments[:1]
    with remembering_interrupts() as interrupts:
        _show_every_text(sys.stdout)
        try:
            code = _dispatch(arguments[1:] if show_traceback else arguments, interrupts)
            sys.stdout.flush()
            return code
        except KeyboardInterrupt:
            return _stop()
        except Exception as error:
            if interrupts.is_set():
                return _stop(error, show_traceback)
            return _explain(error, show_traceback)


def whole_parser() -> tuple[GantryParser, list[Unavailable]]:
    """A parser that knows every option of every installed command, and the commands that cannot be loaded.

    For whatever looks at command lines without running them; ``main`` loads only the command that was asked for.
    """
    commands, broken = load_commands(command_entries().values())
    parser, sub = _build_parser()
    for command in commands:
        _add_command(sub, command)
    return parser, broken


def _show_every_text(stream: object) -> None:
    """Escape what the output cannot encode, such as half of a surrogate pair in a file's name, instead of failing."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="backslashreplace")


def _stop(error: Exception | None = None, show_traceback: bool = False) -> int:
    """Say that Ctrl-C ended it, and what went wrong while it did, where that says so itself."""
    if error is not None and show_traceback:
        traceback.print_exc()
    if isinstance(error, GantryError) and _follows_interrupt(error):
        _say(f"Error: {error}")
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # Ctrl-C ended the reader, too.
        _drop_output()
    _say("Interrupted.")
    return EXIT_INTERRUPTED


def _follows_interrupt(error: BaseException) -> bool:
    """Whether an error came up while an interruption was being dealt with: a file that could not be closed, say."""
    context = error.__context__
    while context is not None and not isinstance(context, KeyboardInterrupt):
        context = context.__context__
    return context is not None


def _explain(error: Exception, show_traceback: bool) -> int:
    """The exit code of what ended the command; a fault of the program is raised again, for its traceback."""
    if isinstance(error, BrokenPipeError):
        _drop_output()  # The reader (head, less) has left.
        return EXIT_OK
    if isinstance(error, GantryError):
        return _refuse(str(error), show_traceback)
    if (
        isinstance(error, OSError) and error.errno is not None
    ):  # A full disk, a folder that may not be read, a bad path.
        place = "" if error.filename is None else f": '{path_text(os.fsdecode(error.filename))}'"
        return _refuse(f"{error.strerror}{place}.", show_traceback)
    if isinstance(error, ModuleNotFoundError) and extra_of_module(error.name or "") is not None:
        return _refuse(f"{missing_module_text(error)}.", show_traceback)
    if text := explained(error):
        return _refuse(text, show_traceback)
    raise error


def _dispatch(arguments: list[str], interrupts: Interrupts) -> int:
    entries = command_entries()
    word = arguments[0] if arguments else "--help"
    if word.startswith("-"):
        return _top_level(entries, arguments)
    if word not in entries:
        raise UsageError(f"{unknown_name_text('command', word, entries)} See 'gantry --help'.")
    command = load_command(entries[word])
    if isinstance(command, Unavailable):
        raise GantryError(f"Command '{word}' is not available: {command.reason}.")
    parser, sub = _build_parser()
    _add_command(sub, command)
    args = _parse(parser, arguments)
    if args is None:
        return EXIT_OK
    interrupts.begin()
    return _run(command, args)


def _top_level(entries: dict[str, EntryPoint], arguments: list[str]) -> int:
    commands, broken = load_commands(entries.values())
    parser, sub = _build_parser(_epilog(broken))
    for command in commands:
        # Only the one-line help is needed here; the options of a command are its own --help.
        sub.add_parser(command.name, help=command.help)
    if _parse(parser, arguments) is not None:
        parser.print_help()
    return EXIT_OK


def _parse(parser: GantryParser, arguments: list[str]) -> argparse.Namespace | None:
    """The arguments, or None where ``--help`` or ``--version`` was all that was asked for."""
    try:
        return parser.parse_all(arguments)
    except SystemExit:  # The way in which argparse leaves after printing; real mistakes raise UsageError.
        return None


def _run(command: Command, args: argparse.Namespace) -> int:
    stack = contextlib.ExitStack()
    with stack:
        if getattr(args, "json", None) == STDOUT:
            # Whatever a command prints for people must not end up between the braces.
            args.result_stream = sys.stdout
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        outcome = command.run(args)
        if isinstance(outcome, dict):
            emit_result(args, outcome)
            return EXIT_OK
        return int(outcome)


def _build_parser(epilog: str | None = None) -> tuple[GantryParser, argparse._SubParsersAction[GantryParser]]:
    parser = GantryParser(prog="gantry", description=DESCRIPTION, epilog=epilog)
    parser.add_argument("--version", action="version", version=_version_text())
    parser.add_argument("--traceback", action="store_true", help="show where an error came from; stands first")
    sub = parser.add_subparsers(dest="gantry_command", metavar="COMMAND", title="commands", parser_class=GantryParser)
    return parser, sub


def _add_command(sub: argparse._SubParsersAction[GantryParser], command: Command) -> None:
    description = command.description or command.help
    own = sub.add_parser(command.name, help=command.help, description=description, epilog=command.epilog or None)
    command.add_arguments(own)


def _epilog(broken: list[Unavailable]) -> str:
    lines = []
    if broken:
        width = max(len(item.name) for item in broken)
        lines += ["not available:", *(f"  {item.name:<{width}}  {item.reason}" for item in broken), ""]
    lines.append("'gantry COMMAND --help' explains one command.")
    return "\n".join(lines)


def _version_text() -> str:
    try:
        number = version(DISTRIBUTION)
    except PackageNotFoundError:
        number = "(not installed)"
    return f"gantry {number} (Python {sys.version.split()[0]})"


def _drop_output() -> None:
    """Write what is left to nowhere: Python would complain of the closed pipe again while flushing at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(text: str, show_traceback: bool) -> int:
    if show_traceback:
        traceback.print_exc()
    _say(f"Error: {text}")
    return EXIT_ERROR


def _say(text: str) -> None:
    # What a file or a command line says must not reach the terminal as a command to it.
    print(printable_lines(text), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
