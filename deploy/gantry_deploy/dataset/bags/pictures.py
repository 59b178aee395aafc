"""Pictures of ``sensor_msgs`` (``Image``, ``CompressedImage``) as RGB; sizes are checked before decoding."""

from __future__ import annotations

from typing import Any

import av
import numpy as np

from gantry_deploy.dataset.bags.config import SourceCfg
from gantry_deploy.dataset.bags.messages import BagError
from gantry_deploy.dataset.video import Image, OpenedVideo, decode_image
from gantry_deploy.errors import DatasetError
from gantry_hardware.files.text import plain_text

IMAGE, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
TYPES = (IMAGE, COMPRESSED)
MOST_PIXELS = 64_000_000
"""Pixels of a picture that is decoded."""

_FIELDS = {IMAGE: ("height", "width", "encoding", "step", "data"), COMPRESSED: ("format", "data")}
_CHANNELS = {
    "rgb8": ("rgb24", 3),
    "8UC3": ("bgr24", 3),  # As OpenCV has it.
    "bgr8": ("bgr24", 3),
    "rgba8": ("rgba", 4),
    "bgra8": ("bgra", 4),
    "8UC4": ("bgra", 4),
    "mono8": ("gray", 1),
    "8UC1": ("gray", 1),
    "yuv422": ("uyvy422", 2),
    "uyvy": ("uyvy422", 2),
    "yuv422_yuy2": ("yuyv422", 2),
    "yuyv": ("yuyv422", 2),
}
"""FFmpeg's pixel format and bytes per pixel by encoding."""


def picture_size(message: Any, kind: str, topic: str) -> tuple[int, int]:
    """Height and width of a message's picture, in pixels.

    Raises:
        BagError: If it is no picture, or too large.
    """
    if missing := [name for name in _FIELDS[kind] if not hasattr(message, name)]:
        raise BagError(f"A picture of '{topic}' has no {', '.join(missing)}: its definition is damaged.")
    if kind == IMAGE:
        size = int(message.height), int(message.width)
    else:
        try:
            with OpenedVideo(bytes(message.data)) as container:
                stream = container.streams.video[0]
                size = int(stream.height), int(stream.width)
        except DatasetError as error:
            raise BagError(
                f"A picture of '{topic}' ({plain_text(message.format)}) cannot be decoded: {error}"
            ) from error
    if min(size) < 1 or size[0] * size[1] > MOST_PIXELS:
        raise BagError(f"A picture of '{topic}' has {size[0]} x {size[1]} pixels, expected {MOST_PIXELS} at most.")
    return size


def picture_of(message: Any, kind: str, source: SourceCfg, size: tuple[int, int]) -> Image:
    """The picture of a message, (height, width, 3) uint8 RGB, scaled if the source asks for it.

    Args:
        message: The decoded message.
        kind: Its type.
        source: The source.
        size: Height and width of the feature, in pixels.

    Raises:
        BagError: If it cannot be decoded, or its size differs from that of the pictures before.
    """
    own = picture_size(message, kind, source.topic)
    if source.height is None and own != size:
        raise BagError(
            f"A picture of '{source.topic}' has {own[0]} x {own[1]} pixels, those before had {size[0]} x {size[1]}; "
            "give height and width to scale them."
        )
    if kind == IMAGE:
        frame = _raw_frame(message, source.topic, own)
    else:
        try:
            frame = av.VideoFrame.from_ndarray(decode_image(bytes(message.data), own), format="rgb24")
        except DatasetError as error:
            raise BagError(f"A picture of '{source.topic}' cannot be decoded: {error}") from error
    if own != size:
        frame = frame.reformat(width=size[1], height=size[0])
    return np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)


def _raw_frame(message: Any, topic: str, size: tuple[int, int]) -> Any:
    """An uncompressed picture as FFmpeg has it."""
    known = _CHANNELS.get(message.encoding)
    if known is None:
        raise BagError(
            f"A picture of '{topic}' is encoded as {plain_text(message.encoding)}, expected one of: "
            f"{', '.join(_CHANNELS)}. Depth and raw sensor pictures are no colour pictures."
        )
    (height, width), (pix_fmt, channels) = size, known
    row, step = width * channels, int(message.step)
    if step < row or len(message.data) < step * (height - 1) + row:
        raise BagError(
            f"A picture of '{topic}' of {height} x {width} pixels ({message.encoding}) has {len(message.data)} bytes "
            f"and rows of {step}, expected at least {height} rows of {row}."
        )
    data = np.frombuffer(bytes(message.data), np.uint8)
    data = np.concatenate((data, np.zeros(max(0, step * height - len(data)), np.uint8)))[: step * height]
    pixels = np.ascontiguousarray(data.reshape(height, step)[:, :row])
    if channels == 1:
        return av.VideoFrame.from_ndarray(pixels, format="gray")
    if channels == 2 and width % 2:
        raise BagError(f"A picture of '{topic}' ({message.encoding}) has an odd width of {width} pixels.")
    return av.VideoFrame.from_ndarray(pixels.reshape(height, width, channels), format=pix_fmt)
