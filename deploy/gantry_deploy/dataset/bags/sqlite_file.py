"""SQLite files of rosbag2 (``.db3``) as files of a bag, by Python's own ``sqlite3``."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from gantry_deploy.dataset.bags.messages import LARGEST_MESSAGE_BYTES, LATEST_NS, BagError, BagMessage, Topic
from gantry_hardware.files.text import plain_text

_TABLES = ("topics", "messages")
_DEFINITIONS = "message_definitions"
_DAMAGE = (sqlite3.Error, UnicodeError, OverflowError)
MOST_TOPICS = 10_000
"""No robot has more."""


class SqliteFile:
    """A ``.db3`` file, opened to read alone. Releases before Iron store no definitions of messages in it.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""

    def topics(self) -> dict[str, Topic]:
        """Topics by name.

        Raises:
            BagError: If it is no bag.
        """
        try:
            with contextlib.closing(self._open()) as base:
                return {topic.name: topic for topic in self._described(base).values()}
        except _DAMAGE as error:
            raise BagError(f"{self.path} cannot be read as a bag: {error}.") from error

    def messages(self) -> Iterator[BagMessage]:
        """Messages in the order in which they were recorded, up to the first damage."""
        self.damage = ""
        try:
            with contextlib.closing(self._open()) as base:
                names = {number: topic.name for number, topic in self._described(base).items()}
                bounded = f"CASE WHEN length(data) <= {LARGEST_MESSAGE_BYTES} THEN data END"
                query = f"SELECT topic_id, timestamp, {bounded} FROM messages ORDER BY id"
                for topic_id, stamp_ns, data in base.execute(query):
                    if topic_id not in names or not _is_time(stamp_ns) or not isinstance(data, bytes):
                        self.damage = f"a message of topic {plain_text(topic_id)} at {plain_text(stamp_ns)} ns"
                        return
                    yield BagMessage(names[topic_id], stamp_ns, data)
        except _DAMAGE as error:
            self.damage = str(error)

    def _open(self) -> sqlite3.Connection:
        base = sqlite3.connect(f"file:{quote(str(self.path.absolute()))}?mode=ro", uri=True)
        base.text_factory = lambda raw: raw.decode("utf-8", "replace")
        if sys.version_info >= (3, 11):
            base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_MESSAGE_BYTES)
        base.execute("PRAGMA trusted_schema = OFF")
        base.execute("PRAGMA cell_size_check = ON")
        return base

    def _described(self, base: sqlite3.Connection) -> dict[int, Topic]:
        """Topics by their number in the file."""
        tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 1000")}
        if missing := [name for name in _TABLES if name not in tables]:
            raise BagError(f"{self.path} is no bag of rosbag2: it has no table {' and no table '.join(missing)}.")
        texts: dict[str, str] = {}
        if _DEFINITIONS in tables:
            query = f"SELECT topic_type, encoding, encoded_message_definition FROM {_DEFINITIONS} LIMIT {MOST_TOPICS}"
            texts = {str(kind): str(text) for kind, encoding, text in base.execute(query) if encoding == "ros2msg"}
        found: dict[int, Topic] = {}
        query = f"SELECT id, name, type, serialization_format FROM topics LIMIT {MOST_TOPICS}"
        for number, name, kind, encoding in base.execute(query):
            obstacle = "" if encoding == "cdr" else f"encoded as {plain_text(encoding)}, expected 'cdr'"
            found[number] = Topic(str(name), str(kind), texts.get(str(kind), ""), obstacle)
        return found


def _is_time(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= LATEST_NS
