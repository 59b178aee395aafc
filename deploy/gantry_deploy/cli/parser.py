"""An ``argparse`` parser whose mistakes are answered in one message, with the near miss."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from gantry_deploy.cli.command import UsageError
from gantry_hardware.errors import unknown_name_text

_PATHS = ("FILE", "FOLDER", "PATH", "RUN")
"""Metavars of options that take a path."""
_NUMBERS: dict[Any, str] = {float: "a number", int: "a whole number"}
"""Types of options in words."""
_NEGATIVE_LIST = re.compile(r"-\.?\d[^=]*,")


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps sentences to the terminal, keeps examples (indented) as they are written, and shows defaults that say
    something.
    """

    def __init__(self, prog: str, **kwargs: Any) -> None:
        super().__init__(prog, **{"max_help_position": 30, **kwargs})

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = []
        for line in text.splitlines():
            is_kept = not line or line[0].isspace()
            lines += [line] if is_kept else textwrap.wrap(line, width, break_on_hyphens=False, break_long_words=False)
        return "\n".join(f"{indent}{line}" if line else "" for line in lines)

    def _format_action(self, action: argparse.Action) -> str:
        text = super()._format_action(action)
        # The line of the group of sub-commands itself says nothing beside its title.
        return text.partition("\n")[2] if isinstance(action, argparse._SubParsersAction) else text

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        telling = action.default not in (None, False, "", argparse.SUPPRESS, [], ())
        if text and telling and action.option_strings and "%(default)" not in text:
            text += " (default: %(default)s)"
        return text


class GantryParser(argparse.ArgumentParser):
    """Raises :class:`UsageError` where ``argparse`` would print its usage and leave."""

    def __init__(self, **kwargs: Any) -> None:
        # Abbreviated options would break scripts on the day a longer one is added.
        super().__init__(**{"allow_abbrev": False, "formatter_class": HelpFormatter, **kwargs})

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting.

        Raises:
            UsageError: Always.
        """
        text = message[:1].upper() + message[1:].rstrip(".")
        raise UsageError(f"{text}. See '{self.prog} --help'.")

    def parse_all(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse everything or say which option is unknown and which one it resembles.

        Raises:
            UsageError: If the arguments do not fit.
        """
        return self.parse_args(join_negative_lists(arguments))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:
        """As ``argparse`` does, but what is left over is refused here, by the innermost command that does not know it.

        Raises:
            UsageError: If the arguments do not fit.
        """
        namespace, extra = super().parse_known_args(args, namespace)
        if extra:
            name = extra[0].partition("=")[0]
            if not name.startswith("-"):
                is_change = "=" in extra[0] and "--set" in option_names(self)
                hint = f" Say --set before each change: --set {extra[0]}." if is_change else ""
                raise UsageError(f"Unexpected argument '{extra[0]}'.{hint} See '{self.prog} --help'.")
            raise UsageError(unknown_name_text(f"option of '{self.prog}'", name, option_names(self)))
        return namespace, extra

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # An empty path would mean the current folder. Unlike _get_value, this is not called for defaults.
        others = action.nargs in (argparse.PARSER, argparse.REMAINDER)  # The words of a sub-command.
        is_path = not action.option_strings or action.type is Path or action.metavar in _PATHS
        if is_path and "" in arg_strings and not others:
            raise argparse.ArgumentError(action, "is empty, as a shell variable is that was not set")
        return super()._get_values(action, arg_strings)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError:
            if action.type not in _NUMBERS:
                raise
            name = action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)
            raise UsageError(
                f"{name} is '{arg_string}', expected {_NUMBERS[action.type]}. See '{self.prog} --help'."
            ) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = action.option_strings[-1] if action.option_strings else (action.metavar or action.dest)
            text = unknown_name_text(str(kind).lower(), str(value), [str(choice) for choice in action.choices])
            raise UsageError(text)


def option_names(parser: argparse.ArgumentParser) -> list[str]:
    """The long options of a parser, short ones where there is no long one."""
    names = []
    for action in parser._actions:
        long = [name for name in action.option_strings if name.startswith("--")]
        names.extend(long or action.option_strings)
    return names


def join_negative_lists(arguments: Sequence[str]) -> list[str]:
    """Turn ``--command -0.5,0,0`` into ``--command=-0.5,0,0``; ``argparse`` would take the list for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and _NEGATIVE_LIST.match(argument):
            joined[-1] = f"{joined[-1]}={argument}"
        else:
            joined.append(argument)
    return joined
