"""A bag: a rosbag2 folder with its ``metadata.yaml``, or a single MCAP or SQLite file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

from gantry_deploy.bundle.locate import near_miss
from gantry_deploy.dataset.bags.mcap_file import McapFile
from gantry_deploy.dataset.bags.messages import LARGEST_MESSAGE_BYTES, BagError, BagFile, BagMessage, Topic
from gantry_deploy.dataset.bags.sqlite_file import SqliteFile
from gantry_hardware.files.text import path_text
from gantry_hardware.files.yaml_file import YamlFileError, read_yaml

METADATA = "metadata.yaml"
_READERS = {".mcap": McapFile, ".db3": SqliteFile}


class Bag:
    """A bag of one or several files. What lies behind its first damage is left out.

    Args:
        path: Folder, or a single file.

    Raises:
        BagError: If there is none, or its files cannot be told.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        """What is wrong with it, in words."""
        self._files, self._compressed = self._find()

    @property
    def is_gantry(self) -> bool:
        """Whether it is a recording of Gantry; known after :meth:`topics`."""
        return any(isinstance(file, McapFile) and file.is_gantry for file in self._files)

    def topics(self) -> dict[str, Topic]:
        """Topics of all files by name.

        Raises:
            BagError: If no file can be read, or none has a topic.
        """
        found: dict[str, Topic] = {}
        for file in self._files:
            for name, topic in file.topics().items():
                if not (known := found.get(name)) or not known.definition:
                    found[name] = topic
        if not found:
            damage = next((file.damage for file in self._files if file.damage), "")
            raise BagError(f"{path_text(self.path)} holds no messages{f': {damage}' if damage else ''}.")
        return found

    def messages(self) -> Iterator[BagMessage]:
        """Messages of all files, in their order, up to the first damage, which is noted."""
        self.notes = [note for note in self.notes if not note.startswith(_DAMAGED)]
        for number, file in enumerate(self._files):
            for message in file.messages():
                yield self._unpacked(message) if self._compressed else message
            if file.damage:
                rest = len(self._files) - number - 1
                left = f"; {rest} later files are left out" if rest else ""
                self.notes.append(f"{_DAMAGED} {file.path.name}, {file.damage}{left}")
                return

    def _unpacked(self, message: BagMessage) -> BagMessage:
        try:
            data = zstandard.ZstdDecompressor().decompress(message.data, max_output_size=LARGEST_MESSAGE_BYTES)
        except zstandard.ZstdError as error:
            raise BagError(f"A message of '{message.topic}' cannot be unpacked: {error}.") from error
        if len(data) > LARGEST_MESSAGE_BYTES:
            raise BagError(f"A message of '{message.topic}' unpacks to {len(data)} bytes.")
        return BagMessage(message.topic, message.log_ns, data)

    def _find(self) -> tuple[list[BagFile], bool]:
        """Files of the bag in their order, and whether each message is compressed by itself."""
        if not self.path.exists():
            raise BagError(f"There is no bag {path_text(self.path)}.{near_miss(self.path)}")
        if self.path.is_file():
            return [_reader(self.path)], False
        facts = self._metadata()
        mode = str(facts.get("compression_mode") or "").lower()
        kind = str(facts.get("compression_format") or "")
        if mode == "file":
            raise BagError(
                f"The files of {path_text(self.path)} are compressed as a whole ({kind}); unpack them first, "
                f"for example with 'zstd -d', and set compression_mode to '' in {METADATA}."
            )
        if mode == "message" and kind != "zstd":
            raise BagError(f"The messages of {path_text(self.path)} are compressed by '{kind}', expected zstd.")
        told = facts.get("relative_file_paths")
        names = [str(name) for name in told] if isinstance(told, list) else []
        for name in names:
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise BagError(f"{METADATA} names the file '{name}', expected one in the bag's folder.")
        missing = [name for name in names if not (self.path / name).is_file()]
        if missing:
            self.notes.append(f"{METADATA} names {', '.join(missing)}, which are not there")
        paths = [self.path / name for name in names if name not in missing] or _by_number(self.path)
        if not paths:
            raise BagError(f"{path_text(self.path)} holds no file of a bag ({', '.join(_READERS)}).")
        return [_reader(path) for path in paths], mode == "message"

    def _metadata(self) -> dict[str, Any]:
        path = self.path / METADATA
        if not path.is_file():
            self.notes.append(f"there is no {METADATA}: the recorder was killed; files are taken by their numbers")
            return {}
        try:
            data = read_yaml(path)
        except YamlFileError as error:
            self.notes.append(f"{METADATA} cannot be read ({error.text}); files are taken by their numbers")
            return {}
        facts = data.get("rosbag2_bagfile_information") if isinstance(data, dict) else None
        return facts if isinstance(facts, dict) else {}


_DAMAGED = "ends at its first damage:"


def _by_number(folder: Path) -> list[Path]:
    """Files of a bag without metadata, ``NAME_0.mcap`` before ``NAME_10.mcap``."""
    paths = [path for path in folder.iterdir() if path.suffix in _READERS and path.is_file()]
    return sorted(
        paths, key=lambda path: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]
    )


def _reader(path: Path) -> BagFile:
    if path.suffix not in _READERS:
        raise BagError(f"{path_text(path)} is no file of a bag; expected one of: {', '.join(_READERS)}.")
    return _READERS[path.suffix](path)
