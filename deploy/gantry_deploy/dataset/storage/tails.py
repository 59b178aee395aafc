"""The newest files of a dataset, which the next episode is appended to until they are large enough.

Appending means writing the file anew and putting it in the old one's place. So that this stays cheap, files end far
below the size that LeRobot allows.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gantry_deploy.dataset.storage.layout import FileIndex, Info, VideoSpan, next_file
from gantry_deploy.dataset.video import join_videos
from gantry_deploy.errors import DatasetError

TABLE_BYTES = 1024 * 1024
"""A table (in memory) that is at least this large is not appended to."""
VIDEO_BYTES = 8 * 1024 * 1024
"""Likewise a video."""


@dataclass(frozen=True)
class TableTail:
    """The newest file of a sort of table, one part per episode."""

    file: FileIndex = (0, 0)
    """Chunk and file."""
    parts: tuple[pa.Table, ...] = ()
    """Its rows, one table (and one row group) per episode; empty if there is no file yet."""
    size: int = 0
    """Bytes of the rows in memory, added up when they are appended, because asking for it anew takes long."""

    def room_for(self, schema: pa.Schema, chunks_size: int) -> TableTail:
        """This file if it may grow and has these columns, else the next one, empty."""
        fits = not self.parts or self.parts[0].schema.equals(schema)
        if fits and self.size < TABLE_BYTES:
            return self
        return TableTail(next_file(self.file, chunks_size))

    def appended(self, part: pa.Table) -> TableTail:
        """With the rows of one more episode."""
        return TableTail(self.file, (*self.parts, part), self.size + part.nbytes)

    def merged(self, part: pa.Table) -> TableTail:
        """The same as one part, for tables that are never read episode by episode."""
        both = pa.concat_tables([*self.parts, part]).combine_chunks()
        return TableTail(self.file, (both,), self.size + part.nbytes)

    def content(self) -> bytes:
        """The file."""
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, self.parts[0].schema, compression="snappy", write_page_checksum=True) as writer:
            for part in self.parts:
                writer.write_table(part)
        return sink.getvalue()


@dataclass(frozen=True)
class VideoTail:
    """The newest file of one camera."""

    file: FileIndex = (0, 0)
    """Chunk and file."""
    frames: int = 0
    """Pictures in it that belong to an episode; 0 if there is no file yet."""
    size: int = 0
    """Its bytes, roughly."""
    joins: bool = False
    """Whether it is known to be encoded like what comes."""


@dataclass
class VideoPlan:
    """Changes to one camera's files when some episodes are added."""

    tail: VideoTail
    """The newest file afterwards."""
    spans: list[VideoSpan] = field(default_factory=list)
    """Place of each episode."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Content by path within the dataset."""


def plan_videos(
    folder: Path, info: Info, key: str, tail: VideoTail, episodes: Sequence[tuple[int, Mapping[str, bytes]]]
) -> VideoPlan:
    """Append episodes to the newest video of a camera, or to new ones.

    Args:
        folder: Of the dataset.
        info: Its description.
        key: The camera.
        tail: Its newest file.
        episodes: Number of frames and videos by camera of each.

    Raises:
        DatasetError: If the newest file cannot be read.
    """
    plan = VideoPlan(tail)
    old: Path | None = folder / info.video_file(key, tail.file) if tail.frames else None
    if old is not None and not tail.joins and join_videos(old, tail.frames, [episodes[0][1][key]], info.fps) is None:
        plan.tail = VideoTail(next_file(tail.file, info.chunks_size))
        old = None
    grown: list[bytes] = []
    for length, videos in episodes:
        if plan.tail.frames and plan.tail.size >= VIDEO_BYTES:
            _close(plan, info, key, old, tail.frames, grown)
            plan.tail, old, grown = VideoTail(next_file(plan.tail.file, info.chunks_size)), None, []
        now = plan.tail
        plan.spans.append(VideoSpan(now.file, now.frames / info.fps, (now.frames + length) / info.fps))
        plan.tail = VideoTail(now.file, now.frames + length, now.size + len(videos[key]), joins=True)
        grown.append(videos[key])
    _close(plan, info, key, old, tail.frames, grown)
    return plan


def _close(plan: VideoPlan, info: Info, key: str, old: Path | None, old_frames: int, grown: list[bytes]) -> None:
    """Put the content of a finished or newest file into the plan."""
    if not grown:
        return
    sources: list[bytes | Path] = [*([] if old is None else [old]), *grown]
    content: bytes | None = grown[0]
    if len(sources) > 1:
        first_frames = old_frames if old is not None else plan.spans[-len(grown)].to_s * info.fps
        content = join_videos(sources[0], round(first_frames), grown if old is not None else grown[1:], info.fps)
    if content is None:
        raise DatasetError(f"The videos of '{key}' are encoded differently and cannot share a file.")
    plan.files[info.video_file(key, plan.tail.file)] = content
