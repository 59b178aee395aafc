"""YAML files of people, read strictly: what YAML itself would take in silence is refused with its line.

Of two equal keys YAML keeps the last, a limit of ``.inf`` is none, brackets without an end keep a parser busy for ever,
and a few lines of aliases unfold to gigabytes.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import yaml

from gantry_hardware.errors import GantryError

LARGEST_BYTES = 2**20
"""Of a file; ours have a few thousand."""
DEEPEST = 32
"""Lists and mappings inside one another."""


MOST_VALUES = 100_000
"""Lists, mappings and scalars once every alias is unfolded."""


class _Loader(yaml.SafeLoader):
    """Reads ``1e-3`` as a number, as ROS and people do; YAML 1.1 wants a point in it."""


_POWER = re.compile(r"[-+]?\d+[eE][-+]?\d+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _POWER, list("-+0123456789"))


class YamlFileError(GantryError):
    """A YAML file cannot be used.

    Args:
        path: Of the file.
        text: What is wrong.
        line: Where, from 1; None for nowhere in particular.
    """

    def __init__(self, path: str | Path, text: str, line: int | None = None) -> None:
        self.text, self.line = text, line
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {text}")


def read_yaml(path: str | Path) -> Any:
    """Plain data of a file with one document; None of an empty one.

    Raises:
        YamlFileError: If it cannot be read, or something in it is refused.
    """
    documents = compose_yaml(path)
    if len(documents) > 1:
        raise YamlFileError(path, "a second document begins, expected one.", line_of(documents[1]))
    if not documents:
        return None
    try:
        return _Loader("").construct_document(documents[0])
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise YamlFileError(path, f"no YAML: {_one_line(error)}.") from error


def compose_yaml(path: str | Path, *, aliases: bool = True) -> list[yaml.Node]:
    """The documents of a file as nodes, which know their lines.

    Args:
        path: Of the file.
        aliases: Whether it may have some; ROS knows none.

    Raises:
        YamlFileError: If it cannot be read, or something in it is refused: no YAML, equal keys, numbers that are not
            finite, too deep, too long.
    """
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(LARGEST_BYTES + 1)
        if len(content) > LARGEST_BYTES:
            raise YamlFileError(path, f"it has more than {LARGEST_BYTES} bytes, which no such file needs.")
        _refuse_events(path, content, aliases)
        documents = list(yaml.compose_all(content, _Loader))
    except OSError as error:
        raise YamlFileError(path, f"it cannot be read: {error.strerror}.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        told = ", ".join(part for part in (error.context, error.problem) if part)
        raise YamlFileError(path, f"no YAML: {told}.", None if mark is None else mark.line + 1) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YamlFileError(path, f"no YAML: {_one_line(error)}.") from error
    for document in documents:
        _Judge(path).look(document, "", 0)
    return documents


def line_of(node: yaml.Node) -> int:
    """Line on which a node begins, from 1."""
    return node.start_mark.line + 1


def scalar_value(node: yaml.ScalarNode) -> Any:
    """Value of a scalar; ``inf`` and ``nan`` without quotes and point are numbers, as they are to ROS."""
    try:
        value = _Loader("").construct_object(node)
    except (yaml.YAMLError, ValueError):
        return node.value
    bare = isinstance(value, str) and node.style is None
    return float(value) if bare and value.lower().lstrip("+-") in ("inf", "infinity", "nan") else value


def _refuse_events(path: str | Path, content: bytes, aliases: bool) -> None:
    """Before anything is built, which would recurse."""
    depth = 0
    for event in yaml.parse(content, _Loader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) and not aliases:
            raise YamlFileError(path, f"ROS knows no aliases such as *{event.anchor}.", line)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise YamlFileError(path, _TOO_DEEP, line)


class _Judge:
    """Finds equal keys and numbers that are not finite, as often as an alias stands for them."""

    def __init__(self, path: str | Path) -> None:
        self._path, self._looked_at = path, 0

    def look(self, node: yaml.Node, name: str, depth: int) -> None:
        """Look at a node of that name, and below it."""
        self._looked_at += 1
        if depth > DEEPEST:  # An alias may stand for what it is in.
            raise YamlFileError(self._path, _TOO_DEEP, line_of(node))
        if self._looked_at > MOST_VALUES:
            raise YamlFileError(self._path, f"more than {MOST_VALUES} values, aliases unfolded.", line_of(node))
        if isinstance(node, yaml.MappingNode):
            self._look_into(node, name, depth)
        elif isinstance(node, yaml.SequenceNode):
            for i, value in enumerate(node.value):
                self.look(value, f"{name}[{i}]", depth + 1)
        elif isinstance(node, yaml.ScalarNode):
            value = scalar_value(node)
            if isinstance(value, float) and not math.isfinite(value):
                what = f"'{name}' is {node.value}" if name else f"it is {node.value}"
                raise YamlFileError(self._path, f"{what}, expected a finite number (a text in quotes).", line_of(node))

    def _look_into(self, node: yaml.MappingNode, name: str, depth: int) -> None:
        seen: dict[Any, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise YamlFileError(self._path, "a key is a list or a mapping, expected a name.", line_of(key))
            text, known = f"{name}.{key.value}" if name else str(key.value), scalar_value(key)
            if known in seen:
                first = f"first in line {seen[known]}"
                raise YamlFileError(self._path, f"'{text}' is there twice, {first}; which one counts?", line_of(key))
            seen[known] = line_of(key)
            self.look(value, text, depth + 1)


_TOO_DEEP = f"more than {DEEPEST} lists and mappings inside one another."


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
