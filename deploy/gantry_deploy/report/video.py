"""Frames to MP4, through PyAV."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError

Frame = NDArray[np.uint8]
LEAST_FPS, MOST_FPS = 0.01, 1000.0
"""Frames per second that a video may have."""


def encode_mp4(frames: Iterable[Frame], fps: float, *, quality: int = 26) -> bytes:
    """H.264 in MP4 as every browser plays it (yuv420p, index in front).

    Args:
        frames: Images of one shape (height, width, 3), uint8 RGB; an odd last row or column is cut off. May be a
            generator, so that a long video need not fit into memory.
        fps: Frames per second, 0.01 to 1000.
        quality: Constant rate factor of x264: lower is better and larger; 18 to 30 is sensible.

    Returns:
        The file's bytes.

    Raises:
        GantryError: If there is no frame, or one of another shape or type, or if the encoder fails.
    """
    from av.codec.codec import UnknownCodecError  # An extra of datasets and training.
    from av.error import FFmpegError

    iterator = iter(frames)
    first = next(iterator, None)
    if first is None:
        raise GantryError("A video needs at least one frame; there is none.")
    if not LEAST_FPS <= fps <= MOST_FPS:
        raise GantryError(f"fps is {fps:g}, expected {LEAST_FPS:g} to {MOST_FPS:g}.")
    shape = np.shape(first)
    height, width = (shape[0] // 2 * 2, shape[1] // 2 * 2) if len(shape) == 3 else (0, 0)
    if not height or not width:
        raise GantryError(f"A frame has shape {shape}, expected (height, width, 3) of at least 2 x 2 pixels.")
    cut = (np.ascontiguousarray(frame[:height, :width]) for frame in _checked(chain([first], iterator), shape))
    # The index moves to the front in a second pass, which FFmpeg takes over files alone.
    with tempfile.TemporaryDirectory(prefix="gantry-video-") as folder:
        path = Path(folder) / "video.mp4"
        try:
            _encode(path, cut, (width, height), Fraction(fps).limit_denominator(1000), quality)
        except (FFmpegError, UnknownCodecError) as error:
            raise GantryError(f"A video of {width} x {height} pixels cannot be encoded: {error}.") from error
        return path.read_bytes()


def _encode(path: Path, frames: Iterator[Frame], size: tuple[int, int], fps: Fraction, quality: int) -> None:
    import av

    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        stream: Any = container.add_stream("libx264", rate=fps, options={"crf": str(quality), "threads": "2"})
        (stream.width, stream.height), stream.pix_fmt = size, "yuv420p"
        for index, pixels in enumerate(frames):
            frame: Any = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = index, 1 / fps
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _checked(frames: Iterable[Frame], shape: tuple[int, ...]) -> Iterator[Frame]:
    for index, frame in enumerate(frames):
        if frame.dtype != np.uint8 or frame.shape != shape or shape[2] != 3:
            raise GantryError(
                f"Frame {index} is {frame.dtype} of shape {frame.shape}, expected uint8 of shape {(*shape[:2], 3)}."
            )
        yield frame
