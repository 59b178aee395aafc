"""Pictures in and out of MP4 and PNG, through PyAV."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.error import FFmpegError
from numpy.typing import NDArray

from gantry_deploy.errors import DatasetError

Image = NDArray[np.uint8]
"""Shape (height, width, 3), RGB."""

TOLERANCE_S = 1e-4
"""Largest difference of a picture's time in its file from the expected one; LeRobot's own default."""


@dataclass(frozen=True)
class VideoCodec:
    """Encoding of cameras."""

    encoder: str = "libx264"
    """Encoder of FFmpeg; LeRobot's own default is ``libsvtav1``, which is smaller and slower."""
    pix_fmt: str = "yuv420p"
    """Pixel format; this one halves the resolution of colour and needs an even height and width."""
    options: tuple[tuple[str, str], ...] = field(
        # A key frame every second frame, as LeRobot does, so that single frames are found quickly. Without lookahead
        # the encoder keeps next to nothing in memory, of which there is one per camera and environment.
        default=(("g", "2"), ("crf", "20"), ("preset", "veryfast"), ("tune", "zerolatency"), ("threads", "1"))
    )
    """The encoder's own settings."""


LOSSLESS = VideoCodec(encoder="libx264rgb", pix_fmt="rgb24", options=(("g", "2"), ("qp", "0"), ("threads", "1")))
"""Every pixel as it was, at several times the size. FFmpeg's players show it; browsers do not."""


class VideoEncoder:
    """Encodes pictures into an MP4 in memory, one after the other.

    Args:
        shape: (height, width, 3) of every picture.
        fps: Frames per second.
        codec: How.

    Raises:
        DatasetError: If the codec does not exist here or does not take pictures of this size.
    """

    def __init__(self, shape: Sequence[int], fps: int, codec: VideoCodec) -> None:
        height, width = shape[0], shape[1]
        if codec.pix_fmt == "yuv420p" and (height % 2 or width % 2):
            raise DatasetError(
                f"A camera of {height} x {width} pixels cannot be stored as {codec.pix_fmt}, which needs even numbers; "
                "crop a row or column, or use gantry_deploy.dataset.LOSSLESS or camera(..., video=False)."
            )
        self._fps = fps
        self._frames = 0
        self._buffer = io.BytesIO()
        self._container = av.open(self._buffer, "w", format="mp4")
        try:
            stream: Any = self._container.add_stream(codec.encoder, rate=fps, options=dict(codec.options))
            stream.width, stream.height, stream.pix_fmt = width, height, codec.pix_fmt
            stream.time_base = Fraction(1, fps)
            stream.codec_context.open()
        except (ValueError, OSError) as error:
            raise DatasetError(
                f"Encoder '{codec.encoder}' ({codec.pix_fmt}) cannot be used: {_reason(error)}."
            ) from error
        self._stream = stream

    def add(self, image: Image) -> None:
        """Take the next picture."""
        frame: Any = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
        frame.pts, frame.time_base = self._frames, Fraction(1, self._fps)
        self._frames += 1
        self._container.mux(self._stream.encode(frame))

    def finish(self) -> bytes:
        """The finished file."""
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._buffer.getvalue()


@dataclass(frozen=True)
class VideoFacts:
    """Facts in a video's header."""

    width: int
    """Pixels."""
    height: int
    """Pixels."""
    codec: str
    """Name of the codec, for example ``h264``."""
    pix_fmt: str
    """Pixel format."""
    fps: float
    """Frames per second."""
    frame_times_s: NDArray[np.float64]
    """Shape (frames,), when each picture is shown, sorted."""

    def to_json(self) -> dict[str, Any]:
        """The ``info`` that LeRobot keeps beside a camera's feature."""
        return {
            "video.height": self.height,
            "video.width": self.width,
            "video.codec": self.codec,
            "video.pix_fmt": self.pix_fmt,
            "video.is_depth_map": False,
            "video.fps": round(self.fps),
            "video.channels": 3,
            "has_audio": False,
        }


def video_facts(source: Path | bytes) -> VideoFacts:
    """Read a video's header and the times of its pictures, without decoding any.

    Raises:
        DatasetError: If it is no video.
    """
    with OpenedVideo(source) as container:
        stream = container.streams.video[0]
        base = float(stream.time_base)
        times = sorted(packet.pts for packet in container.demux(stream) if packet.pts is not None)
        return VideoFacts(
            width=stream.width,
            height=stream.height,
            codec=stream.codec_context.codec.canonical_name,
            pix_fmt=stream.pix_fmt or "",
            fps=float(stream.average_rate or 0),
            frame_times_s=np.array(times, dtype=np.float64) * base,
        )


def join_videos(first: bytes | Path, frames: int, others: Sequence[bytes], fps: int) -> bytes | None:
    """Append videos to the first ``frames`` pictures of another without encoding anything again.

    Returns:
        The joined file; None if they are encoded differently, or so that their pictures are out of order.
    """
    output = io.BytesIO()
    with av.open(output, "w", format="mp4") as joined:
        target: Any = None
        extradata: bytes | None = None
        count = 0
        for number, source in enumerate([first, *others]):
            with OpenedVideo(source) as container:
                stream = container.streams.video[0]
                ticks = 1 / (fps * stream.time_base)
                if target is None:
                    target = joined.add_stream_from_template(stream, opaque=True)
                    target.time_base, extradata = stream.time_base, stream.codec_context.extradata
                elif (stream.codec_context.extradata, stream.time_base) != (extradata, target.time_base):
                    return None
                if ticks.denominator != 1:
                    return None
                for index, packet in enumerate(_packets(container, stream)):
                    if number == 0 and index == frames:
                        break
                    if packet.pts != index * ticks or packet.dts != packet.pts:
                        return None
                    packet.pts = packet.dts = int(count * ticks)
                    packet.duration = int(ticks)
                    packet.stream = target
                    joined.mux(packet)
                    count += 1
                if number == 0 and count != frames:
                    return None
    return output.getvalue()


def decode_video(path: Path, from_s: float, count: int, fps: float, size: tuple[int, int]) -> Iterator[Image]:
    """Pictures of a video from a time on.

    Args:
        path: The file.
        from_s: Time of the first picture in the file.
        count: How many pictures, at 1 / fps from each other.
        fps: Of the dataset.
        size: Height and width that are expected.

    Raises:
        DatasetError: If it is no video, its pictures are of another size, or one is not where it should be.
    """
    done = 0
    with OpenedVideo(path) as container:
        stream = container.streams.video[0]
        _check_size(str(path), stream, size)
        stream.thread_type = "AUTO" if count > 64 else "SLICE"
        base = stream.time_base
        # A key frame before the time that is wanted; seeking exactly to a frame may end behind it by rounding.
        container.seek(max(0, int((from_s - 0.5 / fps) / base)), stream=stream, backward=True)
        for frame in container.decode(stream):
            expected_s = from_s + done / fps
            time_s = float(frame.pts * base)
            if time_s < expected_s - TOLERANCE_S:
                continue
            if time_s > expected_s + TOLERANCE_S:
                raise DatasetError(
                    f"{path}: the picture expected at {expected_s:.4f} s is missing; the next one is at {time_s:.4f} s."
                )
            yield frame.to_ndarray(format="rgb24")
            done += 1
            if done == count:
                return
    raise DatasetError(
        f"{path}: the picture expected at {from_s + done / fps:.4f} s is missing; the video ends before."
    )


def encode_png(image: Image) -> bytes:
    """A picture as PNG."""
    context: Any = av.CodecContext.create("png", "w")
    context.width, context.height, context.pix_fmt = image.shape[1], image.shape[0], "rgb24"
    context.time_base = Fraction(1, 1)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
    frame.pts = 0
    return b"".join(bytes(packet) for packet in [*context.encode(frame), *context.encode(None)])


def decode_image(data: bytes, size: tuple[int, int]) -> Image:
    """A picture of a height and width from PNG, JPEG or whatever else FFmpeg knows.

    Raises:
        DatasetError: If it is none, or one of another size.
    """
    try:
        with av.open(io.BytesIO(data), "r") as container:
            _check_size(f"A picture of {len(data)} bytes", container.streams.video[0], size)
            for frame in container.decode(video=0):
                return np.asarray(frame.to_ndarray(format="rgb24"), dtype=np.uint8)
    except _DAMAGE as error:
        raise DatasetError(f"A picture of {len(data)} bytes cannot be decoded: {_reason(error)}.") from error
    raise DatasetError(f"A picture of {len(data)} bytes holds nothing.")


def _check_size(name: str, stream: Any, size: tuple[int, int]) -> None:
    """Look at the header before anything is decoded: a few bytes may promise gigabytes."""
    if (stream.height, stream.width) != size:
        found, expected = f"{stream.height} x {stream.width}", f"{size[0]} x {size[1]}"
        raise DatasetError(f"{name} has {found} pixels, expected {expected}.")


_DAMAGE = (FFmpegError, OSError, ValueError, LookupError, ArithmeticError, TypeError, AttributeError)
"""Errors that FFmpeg, and PyAV where a header leaves something out, raise over damaged files."""


class OpenedVideo:
    """Opens a video from a file or from memory; what FFmpeg has to say against it becomes one message."""

    def __init__(self, source: Path | bytes) -> None:
        self._source = source
        self._name = "A video in memory" if isinstance(source, bytes) else str(source)

    def __enter__(self) -> Any:
        name = self._name
        try:
            self._container: Any = av.open(io.BytesIO(self._source) if isinstance(self._source, bytes) else name, "r")
        except FileNotFoundError as error:
            raise DatasetError(f"{name} does not exist.") from error
        except _DAMAGE as error:
            raise DatasetError(f"{name} is no video: {_reason(error)}.") from error
        if not self._container.streams.video:
            self._container.close()
            raise DatasetError(f"{name} holds no video.")
        return self._container

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._container.close()
        if error is not None and isinstance(error, _DAMAGE):
            raise DatasetError(f"{self._name} is damaged: {_reason(error)}.") from error


def _packets(container: Any, stream: Any) -> Iterator[Any]:
    """Packets with a time; the last one that the demuxer gives has none and means the end."""
    for packet in container.demux(stream):
        if packet.pts is not None:
            yield packet


def _reason(error: BaseException) -> str:
    """Message of FFmpeg, without its error number and the name of a file in memory."""
    return str(getattr(error, "strerror", None) or error)
