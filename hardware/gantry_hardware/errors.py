"""The root of every error that Gantry raises on purpose, and the wording of "no such name"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from gantry_hardware.files.text import NAME_LIMIT, printable, printable_lines

NEARNESS = 0.65
"""Share of letters in common, in order, from which on a name is taken for a slip of another: 'go3' and 'go2' have 0.67,
'drive-lane' and 'drive-traffic', which are not slips of each other, 0.61."""


class GantryError(Exception):
    """Error with a message for the user; the command line prints it without a traceback.

    The message may quote files and other libraries: ``str`` escapes control characters and cuts long lines.
    """

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class UnknownNameError(GantryError, KeyError):
    """A name that does not exist, with the near miss and everything that does exist.

    Args:
        kind: What sort of thing was asked for ("task", "joint", ...).
        name: The name that was asked for.
        available: Every name that would have been accepted.
    """

    def __init__(self, kind: str, name: str, available: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.available = sorted(available)
        super().__init__(unknown_name_text(kind, name, self.available))

    def __str__(self) -> str:  # That of KeyError puts the text into quotes.
        return printable_lines(str(self.args[0]))


class RobotError(GantryError):
    """A robot backend cannot do what was asked (not connected, no state yet, wrong joints)."""


def unknown_name_text(kind: str, name: str, available: Iterable[str]) -> str:
    """One line: what was asked for, the near miss if there is one, and the list, an empty name as two quotes.

    Names are escaped and cut as :func:`gantry_hardware.files.text.printable` does: they may come from a file or a
    message.
    """
    names = sorted(available)
    near = near_name(name, names)
    hint = f" Did you mean '{printable(near)}'?" if near else ""
    listed = ", ".join(printable(other) or "''" for other in names)
    return f"Unknown {kind} '{printable(str(name))}'.{hint} Available: {listed or '(none)'}."


def near_name(name: str, available: Iterable[str]) -> str:
    """The available name that was probably meant by an unknown one; empty if none was, or if the unknown one is too
    long to be a name, which would take long to compare.
    """
    if len(name) > 2 * NAME_LIMIT:
        return ""
    return next(iter(difflib.get_close_matches(name, list(available), n=1, cutoff=NEARNESS)), "")
