"""Interface of a sub-command of ``gantry``, and the helpers that keep all of them alike."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from gantry_deploy.process.interrupts import interrupt_on_terminate
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.files.bounds import MAX_SEED
from gantry_hardware.files.json_file import JsonError, JsonSyntaxError, parse_json
from gantry_hardware.files.text import plain_text
from gantry_hardware.files.whole_files import write_whole

STDOUT = "-"
"""Value of ``--json`` that means standard output."""


class UsageError(GantryError):
    """The command line itself is wrong; the text ends with how to get help."""


@dataclass(frozen=True)
class Command:
    """A sub-command. Its module is imported for ``gantry --help``, so heavy imports belong inside ``run``."""

    name: str
    """Word on the command line; equal to the name of its entry point in the group ``gantry.commands``."""
    help: str
    """One line for the list of commands."""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    """Adds options to the sub-command's parser."""
    run: Callable[[argparse.Namespace], int | dict[str, Any]]
    """Does the work. An integer is the exit code; a dict is the result, for ``--json``, of a success."""
    description: str = ""
    """Paragraph under the usage line of ``gantry NAME --help``; ``help`` where it is empty."""
    epilog: str = ""
    """Examples under the options, printed as they are."""


def later(place: str) -> Callable[..., Any]:
    """A function that is imported when it is called.

    Args:
        place: ``module:function``.
    """

    def call(*args: Any) -> Any:
        module, _, name = place.partition(":")
        return getattr(import_module(module), name)(*args)

    return call


def choose(kind: str, value: str, available: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``available``.

    Raises:
        UnknownNameError: With the near miss and the list, for example "Unknown task 'velocity-flat-go3'. ...".
    """
    names = list(available)
    if value not in names:
        raise UnknownNameError(kind, value, names)
    return value


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Offer ``--json FILE``; a folder that does not exist is refused before the work starts."""
    parser.add_argument(
        "--json",
        metavar="FILE",
        type=_json_target,
        help="write the result as JSON; '-' is standard output, and all other text then goes to standard error",
    )


def emit_result(args: argparse.Namespace, result: Mapping[str, Any]) -> None:
    """Write ``result`` where ``--json`` asks for it; nothing without the option.

    Numpy arrays and scalars, dataclasses, enums and paths become plain JSON; numbers that are not finite become null.

    Raises:
        GantryError: If the file cannot be written.
    """
    target: str | None = getattr(args, "json", None)
    if target is None:
        return
    text = json.dumps(jsonable(result), indent=2, allow_nan=False) + "\n"
    if target == STDOUT:
        stream: TextIO = getattr(args, "result_stream", None) or sys.stdout
        stream.write(text)
        stream.flush()
        return
    try:
        write_whole(target, text.encode())
    except OSError as error:
        raise GantryError(f"Cannot write the result to '{target}': {error.strerror}.") from error


@contextlib.contextmanager
def result_so_far(args: argparse.Namespace, result: Callable[[], Mapping[str, Any] | None]) -> Iterator[None]:
    """Write what there is where ``--json`` asks for it if Ctrl-C or SIGTERM stops the work in between.

    Args:
        args: The command line.
        result: What has been found so far, or None; it is marked by ``"interrupted": true``.
    """
    with interrupt_on_terminate():
        try:
            yield
        except KeyboardInterrupt:
            found = result()
            if found is not None:
                emit_result(args, {**found, "interrupted": True})
            raise


def jsonable(value: Any) -> Any:
    """``value`` in the types that JSON knows; see :func:`emit_result`."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: jsonable(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return jsonable(value.value)
    if type(value).__module__.partition(".")[0] == "numpy":  # Without importing it for a result that has none of it.
        return jsonable(getattr(value, "tolist")())  # noqa: B009 - of an array or one number of it
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)


def parse_numbers(text: str) -> tuple[float, ...]:
    """Finite numbers separated by commas, for example ``0.5,0,-0.2``; an ``argparse`` type.

    Raises:
        argparse.ArgumentTypeError: Naming the part that is no finite number.
    """
    numbers = []
    for part in text.split(","):
        try:
            numbers.append(float(part))
        except ValueError:
            numbers.append(math.nan)
        if not math.isfinite(numbers[-1]):
            raise argparse.ArgumentTypeError(f"'{part}' in '{text}' is no finite number; expected for example 0.5,0,0")
    return tuple(numbers)


def seed_number(text: str) -> int:
    """A seed, 0 to 2^32 - 1, which every random generator takes; an ``argparse`` type.

    Raises:
        argparse.ArgumentTypeError: If it is none.
    """
    try:
        seed = int(text)
    except ValueError:  # Also of thousands of digits.
        seed = -1
    if not 0 <= seed <= MAX_SEED:
        raise argparse.ArgumentTypeError(f"{plain_text(text)} is no whole number from 0 to {MAX_SEED}")
    return seed


def parse_key_value(text: str) -> tuple[str, Any]:
    """``key=value`` with the value read as JSON where it is JSON (3, 0.5, true, [1, 2]), else as text; a type.

    Raises:
        argparse.ArgumentTypeError: If there is no key.
    """
    key, equals, value = text.partition("=")
    # A name of one of several devices stands before its option: lerobot-teleop.type.
    if not equals or not all(part.replace("-", "_").isidentifier() for part in key.split(".")):
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form key=value, for example delay_s=0.01")
    try:
        return key, parse_json(value, f"the value of {key}", allow_nan=True)
    except JsonSyntaxError:
        return key, value
    except JsonError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def output_file(suffix: str = "") -> Callable[[str], Path]:
    """A file to write, as an ``argparse`` type: its folder exists, and its name ends in ``suffix``.

    What is wrong with it shows before the work starts, and no film lands in a text file.

    Raises:
        argparse.ArgumentTypeError: From what is returned, if the path does not fit.
    """

    def check(text: str) -> Path:
        if trouble := output_trouble(text, suffix):
            raise argparse.ArgumentTypeError(trouble)
        return Path(text)

    return check


def output_trouble(text: str, suffix: str = "") -> str:
    """Reason against writing to a path that has to end in ``suffix``; empty if it can be written."""
    path = Path(text)
    if not path.parent.is_dir():
        return f"folder '{path.parent}' does not exist"
    if path.is_dir():
        return f"'{text}' is a folder, expected the name of a file"
    if suffix and path.suffix.lower() != suffix:
        return f"'{text}' does not end in {suffix}"
    return ""


def counted(number: int, noun: str) -> str:
    """A number with its noun, for example ``1 episode`` and ``20 episodes``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _json_target(text: str) -> str:
    if text != STDOUT:
        output_file()(text)
    return text
