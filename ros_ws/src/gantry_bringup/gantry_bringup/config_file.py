"""A ROS parameter file is read before any node starts: what is wrong with it is one line, not one from every node.

ROS itself says nothing of a section whose node does not exist, so that a misspelt name leaves a robot with the
defaults of its limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import yaml

from gantry_hardware.errors import GantryError, near_name, unknown_name_text
from gantry_hardware.files.yaml_file import YamlFileError, compose_yaml, line_of, scalar_value
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
class ParameterValue:
    """One value in a file."""

    plain: Any
    """What YAML makes of it; a list is a list of nodes."""
    kind: str
    """What it is, for messages."""
    line: int
    """Where its name stands, from 1."""


@dataclass(frozen=True)
class Section:
    """Some parameters and for whom they are."""

    name: str
    """Full name of its nodes, with a leading slash; ``**`` stands for any namespaces, or none, ``*`` for one part."""
    line: int
    """Where it begins in its file, from 1."""
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict, compare=False)
    """By name, groups joined by dots."""

    def applies(self, full_name: str) -> bool:
        """Whether ROS gives its parameters to the node of that full name, for example ``/left/policy_node``."""
        parts = (_PATTERNS.get(part, f"/{re.escape(part)}") for part in self.name.split("/")[1:])
        return re.fullmatch("".join(parts), full_name) is not None


_PATTERNS = {"**": "(/[^/]+)*", "*": "/[^/]+"}


def check_config(path: str, full_names: Sequence[str]) -> None:
    """Refuse a parameter file that ROS would refuse, or ignore in silence.

    Sections for nodes that are not started, ours or others', are
    none of its mistakes, so that one file serves several launches; that none is for a started one is.

    Args:
        path: Of the file.
        full_names: Of the nodes that are started, with their namespaces.

    Raises:
        ConfigFileError: With the line, and what was expected there.
    """
    sections = read_sections(path)
    if not sections:
        raise ConfigFileError(path, "the file is empty, expected sections 'NODE:'; without 'config' all is as usual.")
    for section in sections:
        node = section.name.rpartition("/")[2]
        # Others may keep their own nodes in the same file; a slip of one of ours is none of theirs.
        if node not in (*WILDCARDS, *EXECUTABLES) and near_name(node, EXECUTABLES):
            raise ConfigFileError(path, unknown_name_text("node", node, EXECUTABLES), section.line)
    if not any(section.applies(name) for section in sections for name in full_names):
        told = ", ".join(dict.fromkeys(section.name for section in sections))
        raise ConfigFileError(path, f"nothing in it is for what is started ({', '.join(full_names)}), but for {told}.")


def check_parameters(path: str, full_names: Mapping[str, str]) -> None:
    """Refuse parameters that the started nodes would refuse when they run at last: unknown ones, or of another type.

    Args:
        path: Of the file, which :func:`check_config` has passed.
        full_names: Executable of every node by its full name; ROS 2 must be installed, and those nodes are imported.

    Raises:
        ConfigFileError: With the line.
    """
    from gantry_ros.runtime.host import FOREIGN_PARAMETERS, GROUP_END  # It needs ROS 2, which a dry run does not.

    for full_name, executable in full_names.items():
        known = {item.name: item.default for item in import_module(f"gantry_ros.nodes.{executable}").PARAMETERS}
        groups = tuple(name for name in known if name.endswith(GROUP_END))
        for section in read_sections(path):
            for name, value in section.parameters.items() if section.applies(full_name) else ():
                if name.startswith((*FOREIGN_PARAMETERS, *groups)):
                    continue
                if name not in known:
                    raise ConfigFileError(
                        path, unknown_name_text(f"parameter of {executable}", name, known), value.line
                    )
                if not _fits(value.plain, known[name]):
                    wanted = _TYPES[type(known[name])]
                    raise ConfigFileError(path, f"parameter '{name}' is {value.kind}, expected {wanted}.", value.line)


def node_parameters(paths: Sequence[str], full_name: str) -> dict[str, Any]:
    """Parameters that files give to the node of a full name; later files and sections win.

    Raises:
        ConfigFileError: If a file cannot be used.
    """
    sections = [section for path in paths for section in read_sections(path) if section.applies(full_name)]
    return {name: value.plain for section in sections for name, value in section.parameters.items()}


_TYPES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text (in quotes if it looks like none)",
}


def _fits(value: Any, default: bool | int | float | str) -> bool:
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is type(default)


def read_sections(path: str) -> list[Section]:
    """The sections of a parameter file, in their order.

    Raises:
        ConfigFileError: If it is no YAML, or not of the form ``NODE: {ros__parameters: {NAME: VALUE}}``.
    """
    try:
        documents = compose_yaml(path, aliases=False)
    except YamlFileError as error:
        raise ConfigFileError(path, error.text, error.line) from error
    sections = [section for document in documents for section in _sections(path, document, "", 1)]
    seen: dict[str, int] = {}
    for section in sections:
        if section.name in seen:
            raise ConfigFileError(
                path, f"section '{section.name}' begins again, first in line {seen[section.name]}.", section.line
            )
        seen[section.name] = section.line
    return sections


def _sections(path: str, node: yaml.Node, name: str, line: int) -> Iterator[Section]:
    """Those below ``name``, whose line is ``line``; namespaces may be written with slashes or one inside the other."""
    what = f"section '{name}'" if name else "the file"
    if not isinstance(node, yaml.MappingNode):
        missing = f"has no {PARAMETERS_KEY}" if name else f"is {_kind(node)}, expected sections 'NODE:'"
        raise ConfigFileError(path, f"{what} {missing}.", line_of(node))
    keys = [str(key.value) for key, _ in node.value]
    if name and not keys:
        raise ConfigFileError(path, f"{what} has no {PARAMETERS_KEY}.", line_of(node))
    full = PARAMETERS_KEY in keys or near_name(PARAMETERS_KEY, keys) != ""
    for (key, value), text in zip(node.value, keys, strict=True):
        if text == PARAMETERS_KEY and not name:
            raise ConfigFileError(path, f"{text} is in no section, expected 'NODE:' above it.", line_of(key))
        if text == PARAMETERS_KEY:
            yield _section(path, name, line, value, what)
        elif name and (full or not isinstance(value, yaml.MappingNode)):
            found = f"'{text}' in {what} is not below {PARAMETERS_KEY}"
            raise ConfigFileError(path, f"{found}, where parameters belong.", line_of(key))
        else:
            yield from _sections(path, value, f"{name}/{text.strip('/')}", line_of(key))


def _parameters(path: str, node: yaml.Node, what: str, prefix: str = "") -> Iterator[tuple[str, ParameterValue]]:
    """Names with their prefixes, and values with their lines."""
    if not isinstance(node, yaml.MappingNode):
        raise ConfigFileError(
            path, f"{PARAMETERS_KEY} of {what} is {_kind(node)}, expected 'NAME: VALUE'.", line_of(node)
        )
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode):
            yield from _parameters(path, value, what, f"{name}.")
        elif _is_empty(value):
            raise ConfigFileError(path, f"parameter '{name}' has no value.", line_of(key))
        elif isinstance(value, yaml.SequenceNode) and len({item.tag for item in value.value}) > 1:
            raise ConfigFileError(path, f"parameter '{name}' is a list of values of several types.", line_of(key))
        else:
            plain = scalar_value(value) if isinstance(value, yaml.ScalarNode) else value.value
            yield name, ParameterValue(plain, _kind(value), line_of(key))


def _section(path: str, name: str, line: int, node: yaml.Node, what: str) -> Section:
    parameters: dict[str, ParameterValue] = {}
    for key, value in _parameters(path, node, what):
        if key in parameters:
            first = parameters[key].line
            raise ConfigFileError(
                path, f"parameter '{key}' of {what} is there twice, first in line {first}.", value.line
            )
        parameters[key] = value
    return Section(name, line, parameters)


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and not node.value


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return "empty" if _is_empty(node) else f"'{node.value}'"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
