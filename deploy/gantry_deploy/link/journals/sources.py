"""Learner's table of actors: which process has which identity, and the highest number that each has brought."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gantry_deploy.errors import LinkError
from gantry_deploy.link.protocol import corrections_pb2 as pb

MOST_SOURCES = 10_000
"""Processes that a journal knows; their table begins each segment."""


@dataclass
class Source:
    """Process of an actor that has brought steps, or whose steps were brought by a later one."""

    identity: str
    """Name of the actor."""
    highest: int = 0
    """Highest number of its steps on the disk."""
    steps: int = 0
    """Number of its steps on the disk."""
    is_replaced: bool = False
    """Whether it may bring no more steps by itself."""
    joined: int = 0
    """Order in which sources have joined; 0 for one that never has."""

    @property
    def missing(self) -> int:
        """Numbers that never came: dropped by the actor for lack of space, refused, or lost with its spool."""
        return self.highest - self.steps


class SourceTable:
    """Sources by name; not for several threads at once."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}

    def load(self, states: Iterable[pb.SourceState]) -> None:
        """Take over the table of a segment's header."""
        self.sources = {
            item.source: Source(item.identity, item.highest, item.steps, item.replaced, item.joined) for item in states
        }

    def states(self) -> list[pb.SourceState]:
        """The table for a segment's header."""
        return [
            pb.SourceState(
                source=name,
                identity=item.identity,
                highest=item.highest,
                steps=item.steps,
                replaced=item.is_replaced,
                joined=item.joined,
            )
            for name, item in self.sources.items()
        ]

    def owner(self, identity: str) -> str:
        """Source that has an identity now; empty without one."""
        owners = [name for name, item in self.sources.items() if item.identity == identity and _is_present(item)]
        return max(owners, key=lambda name: self.sources[name].joined, default="")

    def identities(self) -> list[str]:
        """Names of all actors, sorted."""
        return sorted({item.identity for item in self.sources.values()})

    def apply(self, record: pb.JournalRecord) -> None:
        """Take note of a record of the journal: a source that has joined, or steps."""
        source = self.sources.get(record.source)
        if source is None:
            source = self.sources[record.source] = Source(record.identity)
        if not record.steps:
            for other in self.sources.values():
                other.is_replaced |= other.identity == record.identity and other is not source
            source.is_replaced = False
            source.joined = 1 + max(item.joined for item in self.sources.values())
        for step in record.steps:
            if step.number > source.highest:
                source.highest, source.steps = step.number, source.steps + 1

    def check_new(self, source: str, identity: str, most_identities: int) -> None:
        """Refuse a source that cannot be added, or that belongs to another identity.

        Raises:
            LinkError: With what is there.
        """
        known = self.sources.get(source)
        if known is not None:
            if known.identity != identity:
                raise LinkError(f"The source {source} belongs to actor '{known.identity}', not to '{identity}'.")
            return
        identities = self.identities()
        if len(self.sources) >= MOST_SOURCES:
            raise LinkError(f"The learner knows {MOST_SOURCES} processes of actors; begin a new journal.")
        if identity not in identities and len(identities) >= most_identities:
            raise LinkError(f"The learner knows {len(identities)} actors, at most {most_identities}.")

    def new_steps(self, source: str, steps: Iterable[pb.NumberedStep]) -> list[pb.NumberedStep]:
        """Steps above the highest number of a source."""
        highest = self.highest(source)
        return [step for step in steps if step.number > highest]

    def highest(self, source: str) -> int:
        """Highest number of a source; 0 for one that is not known."""
        known = self.sources.get(source)
        return known.highest if known else 0


def _is_present(source: Source) -> bool:
    return source.joined > 0 and not source.is_replaced
