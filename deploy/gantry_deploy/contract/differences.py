"""Differences between two contracts, number by number: the one comparison, whatever it is for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_hardware.files.text import printable

NOT_MEANING = ("version", "provenance", "acceptance", "trained_for")
"""Fields that say nothing of what a policy sees, does, or is run with."""
NOT_OF_A_TASK = (*NOT_MEANING, "chunk")
"""Fields that may differ between a policy and the task that it acts in, or that another one learns from it."""
MOST = 8
"""Differences that a message names."""
_SHOWN = 200
"""Characters of a value that are shown."""


@dataclass(frozen=True)
class Difference:
    """A place where two contracts differ."""

    name: str
    """Path of the field, for example ``command.goal_velocity.near_m`` or ``observations[joint_vel].scale``."""
    theirs: Any
    """Value of the first one."""
    mine: Any
    """Value of the second one."""

    def text(self, theirs: str = "there", mine: str = "here") -> str:
        """``rate_hz is 50.0 there, 25.0 here``, with words for the two sides."""
        return f"{self.name} is {_shown(self.theirs)} {theirs}, {_shown(self.mine)} {mine}"


def contract_differences(
    theirs: PolicyContract, mine: PolicyContract, *, ignoring: Collection[str] = NOT_MEANING
) -> list[Difference]:
    """List the differences between two contracts.

    Args:
        theirs: One of them.
        mine: The other one.
        ignoring: Fields that are left out, by name or by path (``map_window.mapper_sha256``).
    """
    found = differences(theirs, mine)
    parts = tuple(f"{name}{after}" for name in ignoring for after in (".", "["))
    return [item for item in found if item.name not in ignoring and not item.name.startswith(parts)]


def differences(theirs: Any, mine: Any, name: str = "") -> list[Difference]:
    """List the differences between two values: dataclasses field by field, tuples of them entry by entry, all else as a
    whole.
    """
    if theirs == mine:
        return []
    if is_dataclass(theirs) and type(theirs) is type(mine):
        dot = f"{name}." if name else ""
        triples = [(getattr(theirs, item.name), getattr(mine, item.name), dot + item.name) for item in fields(theirs)]
        return [item for triple in triples for item in differences(*triple)]
    if isinstance(theirs, tuple) and isinstance(mine, tuple) and any(map(is_dataclass, theirs)):
        if _names(theirs) != _names(mine):
            return [Difference(name, _names(theirs), _names(mine))]
        labels = [getattr(item, "name", i) for i, item in enumerate(mine)]
        entries = zip(theirs, mine, labels, strict=True)
        return [item for a, b, label in entries for item in differences(a, b, f"{name}[{label}]")]
    return [Difference(name, theirs, mine)]


def listed(found: list[Difference], theirs: str = "there", mine: str = "here") -> str:
    """The first :data:`MOST` of some differences, a line each, and how many more there are."""
    lines = [f"\n  {item.text(theirs, mine)}" for item in found[:MOST]]
    more = len(found) - len(lines)
    return "".join(lines) + (f"\n  and {more} more" if more else "")


def _names(items: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(str(getattr(item, "name", type(item).__name__)) for item in items)


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and value and all(isinstance(item, str) for item in value):
        return printable(", ".join(value), _SHOWN)
    return printable(str(value), _SHOWN)
