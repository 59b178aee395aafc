"""Stretches of videos: cut out without encoding anything again where the encoding allows it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import av

from gantry_deploy.dataset.video import OpenedVideo, VideoCodec, VideoEncoder, decode_video


def cut_video(path: Path, from_s: float, count: int, fps: int) -> bytes | None:
    """A stretch of a video as a file of its own, its pictures as they are encoded.

    Args:
        path: The file.
        from_s: Time of the first picture in the file, s.
        count: Pictures, at 1 / fps from each other.
        fps: Of the dataset.

    Returns:
        The file; None if the stretch begins with no key frame, or pictures are stored out of order.

    Raises:
        DatasetError: If it is no video.
    """
    output = io.BytesIO()
    with OpenedVideo(path) as container, av.open(output, "w", format="mp4") as cut:
        source = container.streams.video[0]
        ticks = 1 / (fps * source.time_base)
        if ticks.denominator != 1:
            return None
        target: Any = cut.add_stream_from_template(source, opaque=True)
        target.time_base = source.time_base
        first, done = round(from_s / float(source.time_base)), 0
        container.seek(first, stream=source, backward=True)
        for packet in container.demux(source):
            if packet.pts is None or packet.pts < first:
                continue
            wanted = first + int(done * ticks)
            if packet.pts != wanted or packet.dts != packet.pts or (done == 0 and not packet.is_keyframe):
                return None
            packet.pts = packet.dts = int(done * ticks)
            packet.duration = int(ticks)
            packet.stream = target
            cut.mux(packet)
            done += 1
            if done == count:
                break
        if done != count:
            return None
    return output.getvalue()


def encoded_again(path: Path, from_s: float, count: int, fps: int, size: tuple[int, int], codec: VideoCodec) -> bytes:
    """A stretch of a video, decoded and encoded again; one picture is in memory at a time.

    Args:
        path: The file.
        from_s: Time of the first picture in the file, s.
        count: Pictures.
        fps: Of the dataset.
        size: Height and width of the pictures, in pixels.
        codec: Encoding.

    Raises:
        DatasetError: If pictures are missing or of another size.
    """
    encoder = VideoEncoder((*size, 3), fps, codec)
    for picture in decode_video(path, from_s, count, fps, size):
        encoder.add(picture)
    return encoder.finish()
