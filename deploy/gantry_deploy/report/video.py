"""Frames to MP4 with the ffmpeg that comes in a wheel."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError

Frame = NDArray[np.uint8]


def encode_mp4(frames: Iterable[Frame], fps: float, *, quality: int = 26) -> bytes:
    """H.264 in MP4 as every browser plays it (yuv420p, index in front).

    Args:
        frames: Images of one shape (height, width, 3), uint8 RGB; an odd last row or column is cut off. May be a
            generator, so that a long video need not fit into memory.
        fps: Frames per second.
        quality: Constant rate factor of x264: lower is better and larger; 18 to 30 is sensible.

    Returns:
        The file's bytes.

    Raises:
        GantryError: If there is no frame, or one of another shape or type.
    """
    import imageio_ffmpeg  # An extra of training.

    iterator = iter(frames)
    first = next(iterator, None)
    if first is None:
        raise GantryError("A video needs at least one frame; there is none.")
    if not fps > 0:
        raise GantryError(f"fps is {fps}, expected a positive number.")
    shape = np.shape(first)
    height, width = (shape[0] // 2 * 2, shape[1] // 2 * 2) if len(shape) == 3 else (0, 0)
    if not height or not width:
        raise GantryError(f"A frame has shape {shape}, expected (height, width, 3) of at least 2 x 2 pixels.")
    with tempfile.TemporaryDirectory(prefix="gantry-video-") as folder:
        path = Path(folder) / "video.mp4"
        writer = imageio_ffmpeg.write_frames(
            str(path),
            (width, height),
            fps=fps,  # type: ignore[arg-type]  # It goes to ffmpeg as text, so fractions are fine.
            codec="libx264",
            pix_fmt_out="yuv420p",
            macro_block_size=2,
            quality=None,  # type: ignore[arg-type]  # Off: the constant rate factor below takes its place.
            ffmpeg_log_level="error",
            output_params=["-crf", str(quality), "-movflags", "+faststart", "-threads", "2"],
        )
        writer.send(None)
        try:
            for frame in _checked(chain([first], iterator), shape):
                writer.send(np.ascontiguousarray(frame[:height, :width]))
        finally:
            writer.close()
        return path.read_bytes()


def _checked(frames: Iterable[Frame], shape: tuple[int, ...]) -> Iterator[Frame]:
    for index, frame in enumerate(frames):
        if frame.dtype != np.uint8 or frame.shape != shape or shape[2] != 3:
            raise GantryError(
                f"Frame {index} is {frame.dtype} of shape {frame.shape}, expected uint8 of shape {(*shape[:2], 3)}."
            )
        yield frame
