"""A ROS parameter file is read before any node starts: what is wrong with it is one line, not one from every node.

ROS itself says nothing of a section whose node does not exist, so that a misspelt name leaves a robot with the
defaults of its limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from gantry_hardware.errors import GantryError, near_name, unknown_name_text
from gantry_ros.__main__ import EXECUTABLES

PARAMETERS_KEY = "ros__parameters"
"""Below this key of a section stand the parameters."""
WILDCARDS = ("**", "*")
"""Last part of a section's name that stands for every node."""


class ConfigFileError(GantryError):
    """A parameter file cannot be used.

    Args:
        path: Of the file.
        text: What is wrong.
        line: Where, from 1; None for nowhere in particular.
    """

    def __init__(self, path: str, text: str, line: int | None = None) -> None:
        place = path if line is None else f"{path}, line {line}"
        super().__init__(f"Argument 'config': {place}: {text}")


@dataclass(frozen=True)
class Section:
    """Some parameters and for whom they are."""

    name: str
    """Full name of its nodes, with a leading slash; ``**`` stands for any namespaces, or none, ``*`` for one part."""
    line: int
    """Where it begins in its file, from 1."""

    def applies(self, full_name: str) -> bool:
        """Whether ROS gives its parameters to the node of that full name, for example ``/left/policy_node``."""
        parts = (_PATTERNS.get(part, f"/{re.escape(part)}") for part in self.name.split("/")[1:])
        return re.fullmatch("".join(parts), full_name) is not None


_PATTERNS = {"**": "(/[^/]+)*", "*": "/[^/]+"}


def check_config(path: str, full_names: Sequence[str]) -> None:
    """Refuse a parameter file that ROS would refuse, or ignore in silence.

    A file without sections is an empty one, as for ROS. Sections for nodes that are not started, ours or others', are
    none of its mistakes, so that one file serves several launches; that none is for a started one is.

    Args:
        path: Of the file.
        full_names: Of the nodes that are started, with their namespaces.

    Raises:
        ConfigFileError: With the line, and what was expected there.
    """
    sections = read_sections(path)
    for section in sections:
        node = section.name.rpartition("/")[2]
        # Others may keep their own nodes in the same file; a slip of one of ours is none of theirs.
        if node not in (*WILDCARDS, *EXECUTABLES) and near_name(node, EXECUTABLES):
            raise ConfigFileError(path, unknown_name_text("node", node, EXECUTABLES), section.line)
    if sections and not any(section.applies(name) for section in sections for name in full_names):
        told = ", ".join(dict.fromkeys(section.name for section in sections))
        raise ConfigFileError(path, f"nothing in it is for what is started ({', '.join(full_names)}), but for {told}.")


def read_sections(path: str) -> list[Section]:
    """The sections of a parameter file, in their order.

    Raises:
        ConfigFileError: If it is no YAML, or not of the form ``NODE: {ros__parameters: {NAME: VALUE}}``.
    """
    try:
        content = Path(path).read_bytes()
        _refuse_aliases(path, content)
        documents = list(yaml.compose_all(content, yaml.SafeLoader))
    except OSError as error:
        raise ConfigFileError(path, f"it cannot be read: {error.strerror}.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        told = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigFileError(path, f"no YAML: {told}.", None if mark is None else mark.line + 1) from error
    except yaml.YAMLError as error:
        raise ConfigFileError(path, f"no YAML: {' '.join(str(error).split())}.") from error
    return [section for document in documents for section in _sections(path, document, "", 1)]


def _sections(path: str, node: yaml.Node, name: str, line: int) -> Iterator[Section]:
    """Those below ``name``, whose line is ``line``; namespaces may be written with slashes or one inside the other."""
    what = f"section '{name}'" if name else "the file"
    if not isinstance(node, yaml.MappingNode):
        missing = f"has no {PARAMETERS_KEY}" if name else f"is {_kind(node)}, expected sections 'NODE:'"
        raise ConfigFileError(path, f"{what} {missing}.", _line(node))
    keys = [str(key.value) for key, _ in node.value]
    if name and not keys:
        raise ConfigFileError(path, f"{what} has no {PARAMETERS_KEY}.", _line(node))
    full = PARAMETERS_KEY in keys or near_name(PARAMETERS_KEY, keys) != ""
    for (key, value), text in zip(node.value, keys, strict=True):
        if text == PARAMETERS_KEY and not name:
            raise ConfigFileError(path, f"{text} is in no section, expected 'NODE:' above it.", _line(key))
        if text == PARAMETERS_KEY:
            _check_parameters(path, value, what)
            yield Section(name, line)
        elif name and (full or not isinstance(value, yaml.MappingNode)):
            found = f"'{text}' in {what} is not below {PARAMETERS_KEY}"
            raise ConfigFileError(path, f"{found}, where parameters belong.", _line(key))
        else:
            yield from _sections(path, value, f"{name}/{text.strip('/')}", _line(key))


def _check_parameters(path: str, node: yaml.Node, what: str) -> None:
    if not isinstance(node, yaml.MappingNode):
        raise ConfigFileError(
            path, f"{PARAMETERS_KEY} of {what} is {_kind(node)}, expected 'NAME: VALUE'.", _line(node)
        )
    for key, value in node.value:
        if isinstance(value, yaml.MappingNode):
            _check_parameters(path, value, what)
        elif _is_empty(value):
            raise ConfigFileError(path, f"parameter '{key.value}' has no value.", _line(key))
        elif isinstance(value, yaml.SequenceNode) and len({item.tag for item in value.value}) > 1:
            raise ConfigFileError(path, f"parameter '{key.value}' is a list of values of several types.", _line(key))


def _refuse_aliases(path: str, content: bytes) -> None:
    for event in yaml.parse(content, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ConfigFileError(path, f"ROS knows no aliases such as *{event.anchor}.", event.start_mark.line + 1)


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and not node.value


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return "empty" if _is_empty(node) else f"'{node.value}'"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1
