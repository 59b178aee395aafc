"""Reference of the ``gantry`` command, written from its argument parser: one page per command."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gantry_deploy.cli.main import whole_parser

FOLDER = "commands"
"""Folder of the pages in the site's source."""
USAGE_WIDTH = 90
"""Columns of a usage line."""

_CODE = re.compile(r"(`[^`]*`)")
_MARKUP = re.compile(r"([\\*_<>\[\]{}|$~#])")


def write_commands(folder: Path) -> list[str]:
    """Write the reference into a folder and return the full names of the commands in it, such as ``gantry data info``.

    Raises:
        SystemExit: If an installed command cannot be loaded, with its reason.
    """
    os.environ["COLUMNS"] = str(USAGE_WIDTH + 2)  # argparse breaks lines for the terminal that it finds.
    parser, broken = whole_parser()
    if broken:
        raise SystemExit("\n".join(f"Command '{item.name}' is not available: {item.reason}" for item in broken))
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for name, sub, _ in sub_commands(parser):
        lines = [*_label(sub), *_command(sub, 1)]
        names += [own.prog for own in _family(sub)]
        (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "index.md").write_text(_index(parser), encoding="utf-8")
    return names


def sub_commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Sub-commands of a parser: name, parser, and one line of help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, sub in action.choices.items():
                yield name, sub, texts.get(name, "")


def _family(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for _, sub, _ in sub_commands(parser):
        yield from _family(sub)


def _index(parser: argparse.ArgumentParser) -> str:
    commands = list(sub_commands(parser))
    lines = ["# Commands", "", escaped(parser.description or ""), ""]
    lines += ["Written from the program itself; `gantry COMMAND --help` prints the same.", ""]
    lines += ["| command | what it does |", "|---|---|"]
    lines += [f"| [`gantry {name}`]({name}.md) | {escaped(text)} |" for name, _, text in commands]
    lines += ["", *_usage(parser), *_arguments(parser)]
    lines += [
        "Exit codes: 0 done; 1 done, and the answer is no (a check failed, a fault damped the robot); 2 refused, "
    ]
    lines += ["with one message; 130 stopped by Ctrl-C.", ""]
    lines += ["```{toctree}", ":hidden:", "", *(f"gantry {name} <{name}>" for name, _, _ in commands), "```", ""]
    return "\n".join(lines)


def _label(parser: argparse.ArgumentParser) -> list[str]:
    return [f"({parser.prog.replace(' ', '-')})="]


def _command(parser: argparse.ArgumentParser, level: int) -> list[str]:
    """A section: description, usage, arguments, sub-commands, examples."""
    lines = [f"{'#' * level} {parser.prog}", "", escaped(parser.description or ""), ""]
    lines += [*_usage(parser), *_arguments(parser)]
    if parser.epilog:
        lines += [*_fenced("text", parser.epilog.strip("\n")), ""]
    for _, sub, _ in sub_commands(parser):
        lines += [*_label(sub), *_command(sub, level + 1)]
    return lines


def _usage(parser: argparse.ArgumentParser) -> list[str]:
    return [*_fenced("text", parser.format_usage().removeprefix("usage: ").strip()), ""]


def _arguments(parser: argparse.ArgumentParser) -> list[str]:
    lines = [f"```{{program}} {parser.prog}", "```", ""]
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if _shown(action)]
        if not actions:
            continue
        lines += [f"**{escaped((group.title or 'options').capitalize())}**", ""]
        if group.description:
            lines += [escaped(group.description), ""]
        for action in actions:
            lines += _argument(parser, action)
    return lines


def _shown(action: argparse.Action) -> bool:
    hidden = isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
    return not hidden and action.help is not argparse.SUPPRESS


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    formatter: Any = parser._get_formatter()
    text = formatter._expand_help(action) if action.help else ""
    if action.choices is not None and action.metavar is not None:
        text += f" ({', '.join(map(str, action.choices))})"
    value = "" if action.nargs == 0 else formatter._format_args(action, _metavar(action))
    name = ", ".join(f"{option} {value}".strip() for option in action.option_strings) or value
    required = ["**Required.**", ""] if action.option_strings and action.required else []
    return [f"````{{option}} {name}", *required, escaped(text), "````", ""]


def _metavar(action: argparse.Action) -> str:
    if action.choices is not None and action.metavar is None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def _fenced(language: str, text: str) -> list[str]:
    return [f"````{language}", text, "````"]


def escaped(text: str) -> str:
    """Plain text as Markdown that looks the same; what stands between backticks stays code."""
    parts = _CODE.split(text)
    return "".join(part if index % 2 else _MARKUP.sub(r"\\\1", part) for index, part in enumerate(parts))
