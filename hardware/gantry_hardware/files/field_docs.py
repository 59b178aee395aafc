"""Meanings of the fields of dataclasses: the docstrings that stand below them in their source."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


@functools.cache
def field_meanings(cls: type) -> Mapping[str, str]:
    """First sentence below each field of a dataclass, by the field's name, inherited ones included.

    A field without a docstring is absent, and so are all fields of a class without a readable source file.
    """
    found: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if is_dataclass(owner):
            constants = vars(sys.modules[owner.__module__])
            found |= {name: _plain(text, constants) for name, text in _own_meanings(owner).items()}
    return found


def meanings_by_path(config: Any, prefix: str = "") -> dict[str, str]:
    """First sentence below each field of a dataclass and of the dataclasses in it, by paths joined by dots.

    Args:
        config: A dataclass, with values.
        prefix: Stands before every path.
    """
    found: dict[str, str] = {}
    meanings = field_meanings(type(config))
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            found |= meanings_by_path(value, f"{prefix}{item.name}.")
        elif item.name in meanings:
            found[f"{prefix}{item.name}"] = meanings[item.name]
    return found


def _own_meanings(cls: type) -> dict[str, str]:
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    found = {}
    body = node.body if isinstance(node, ast.ClassDef) else []
    for before, after in itertools.pairwise(body):
        match before, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = _first_sentence(text)
    return found


def _plain(text: str, constants: Mapping[str, Any]) -> str:
    """A text without markup; a constant of the module that lists names is followed by them."""

    def named(match: re.Match[str]) -> str:
        name = match[1].rpartition(".")[2]
        value = constants.get(name)
        names = value if isinstance(value, (tuple, list, Mapping)) and all(isinstance(x, str) for x in value) else ()
        return f"{name}: {', '.join(names)}" if names else name

    return re.sub(r":\w+:`~?\.?([\w.]+)`", named, text).replace("``", "")


def _first_sentence(text: str) -> str:
    """The text up to the first full stop that a capital letter follows, on one line, without the stop."""
    words = text.split()
    for number, word in enumerate(words[:-1]):
        if word.endswith(".") and words[number + 1][:1].isupper():
            words = words[: number + 1]
            break
    return " ".join(words).removesuffix(".")
