"""MCAP files of any writer as files of a bag."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mcap.records import Channel, Message, Metadata, Schema

from gantry_deploy.dataset.bags.messages import LATEST_NS, BagError, BagMessage, Topic
from gantry_deploy.recording.mcap_records import McapRecords
from gantry_deploy.recording.reader import METADATA
from gantry_hardware.files.text import plain_text

_CDR, _ROS2MSG = "cdr", "ros2msg"


class McapFile:
    """An MCAP file; it is walked through in its order, which needs no index.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        self.is_gantry = False
        """Whether it is a recording of Gantry; known after :meth:`topics`."""
        self._topics: dict[str, Topic] | None = None

    def topics(self) -> dict[str, Topic]:
        """Topics by name, each as its first channel describes it."""
        if self._topics is None:
            for _ in self.messages():
                pass
        return self._topics or {}

    def messages(self) -> Iterator[BagMessage]:
        """Messages in the order of the file, up to its first damage."""
        schemas: dict[int, Schema] = {}
        channels: dict[int, Channel] = {}
        found: dict[str, Topic] = {}
        try:
            with self.path.open("rb") as stream:
                records = McapRecords(stream, chunks_only=False)
                for record in records:
                    if isinstance(record, Schema):
                        schemas[record.id] = record
                    elif isinstance(record, Channel):
                        channels[record.id] = record
                        found.setdefault(record.topic, _topic(record, schemas.get(record.schema_id)))
                    elif isinstance(record, Metadata):
                        self.is_gantry = self.is_gantry or record.name == METADATA
                    elif isinstance(record, Message):
                        channel = channels.get(record.channel_id)
                        if channel is None or record.log_time > LATEST_NS:
                            records.note(f"a message of channel {record.channel_id} at {record.log_time} ns")
                            break
                        yield BagMessage(channel.topic, record.log_time, record.data)
                self.damage = records.damage
        except OSError as error:
            raise BagError(f"{self.path} cannot be read: {error.strerror}.") from error
        self._topics = found


def _topic(channel: Channel, schema: Schema | None) -> Topic:
    """A channel as a topic, with what is against reading it."""
    kind = "" if schema is None else schema.name
    if channel.message_encoding != _CDR:
        return Topic(channel.topic, kind, obstacle=f"encoded as {plain_text(channel.message_encoding)}, expected 'cdr'")
    if schema is None:
        return Topic(channel.topic, kind, obstacle="the file does not describe its messages")
    if schema.encoding != _ROS2MSG:
        return Topic(channel.topic, kind)  # An IDL; the type may be a common one.
    return Topic(channel.topic, kind, schema.data.decode("utf-8", "replace"))
