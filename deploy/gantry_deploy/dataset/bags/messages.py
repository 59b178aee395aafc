"""Topics and messages of a bag, whatever its storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gantry_hardware.errors import GantryError

LARGEST_MESSAGE_BYTES = 128 * 2**20
"""A message that says that it is larger is damaged; a picture of 4K has 25 MB."""
LATEST_NS = 2**62
"""No clock shows a later time."""


class BagError(GantryError):
    """A bag, or the mapping of its topics, cannot be used."""


@dataclass(frozen=True)
class Topic:
    """A topic of a bag."""

    name: str
    """Name."""
    type: str
    """Message type, for example ``sensor_msgs/msg/JointState``."""
    definition: str = ""
    """Definition of the type with those of its parts, as far as the bag holds it."""
    obstacle: str = ""
    """Reason why its messages cannot be read; empty if they can."""


@dataclass(frozen=True)
class BagMessage:
    """A message as it was recorded."""

    topic: str
    """Name of its topic."""
    log_ns: int
    """Time at which it was recorded, ns since 1970."""
    data: bytes
    """CDR."""


class BagFile(Protocol):
    """One file of a bag."""

    path: Path
    """The file."""
    damage: str
    """First damage, after its messages have been read; empty if there was none."""

    def topics(self) -> dict[str, Topic]:
        """Topics by name.

        Raises:
            BagError: If the file holds nothing that can be read.
        """
        ...

    def messages(self) -> Iterator[BagMessage]:
        """Messages in the order of the file, up to its first damage."""
        ...
