"""Pictures of cameras as files that a browser knows; one at a time per camera, none older than needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.report.maps import encode_png

PERIOD_S = 0.08
"""A picture is asked for again after so long, however many browsers want it."""
MOST_BYTES = 8 * 1024 * 1024
"""Largest picture."""
WIDTH = 960
"""Widest raw picture that is sent; a wider one loses every second row and column, or more."""
JPEG_QUALITY = 80
FAST = 1
"""Compression of a PNG that is looked at once."""

Picture = bytes | NDArray[np.uint8]


@dataclass
class _Camera:
    lock: threading.Lock = field(default_factory=threading.Lock)
    data: bytes | None = None
    taken_s: float = float("-inf")


class Pictures:
    """Newest picture of each camera.

    Args:
        picture: Gives a camera's newest picture: a PNG, a JPEG, or uint8 (height, width, 3); None without one.
    """

    def __init__(self, picture: Callable[[str], Picture | None]) -> None:
        self._ask = picture
        self._cameras: dict[str, _Camera] = {}

    def newest(self, camera: str) -> bytes | None:
        """The picture of a camera as a PNG or JPEG; None if there is none, or another request is being answered.

        Args:
            camera: A name that the session has named.
        """
        place = self._cameras.setdefault(camera, _Camera())
        if not place.lock.acquire(blocking=False):
            return place.data
        try:
            if time.monotonic() - place.taken_s >= PERIOD_S:
                found = self._ask(camera)
                place.data = None if found is None else as_file(found)
                place.taken_s = time.monotonic()
            return place.data
        finally:
            place.lock.release()


def as_file(picture: Picture) -> bytes | None:
    """A picture as the bytes of a file: bytes as they are if they are a PNG or JPEG, pixels encoded.

    Args:
        picture: A file, or uint8 (height, width, 3), red, green and blue from 0 to 255.

    Returns:
        None for bytes of another kind, for too many of them, and for arrays of another shape.
    """
    if isinstance(picture, bytes):
        return picture if media_type(picture) and len(picture) <= MOST_BYTES else None
    pixels = np.asarray(picture)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
        return None
    step = -(-pixels.shape[1] // WIDTH)
    pixels = np.ascontiguousarray(pixels[::step, ::step])
    return _jpeg(pixels) or encode_png(pixels, FAST)


def media_type(data: bytes) -> str:
    """Content type of a picture by its first bytes; empty for another kind."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    return "image/jpeg" if data.startswith(b"\xff\xd8\xff") else ""


def _jpeg(pixels: NDArray[np.uint8]) -> bytes | None:
    """Smaller by ten times than a PNG, where OpenCV is installed (extra ``robot``)."""
    try:
        import cv2
    except ImportError:
        return None
    done, data = cv2.imencode(".jpg", pixels[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    return data.tobytes() if done else None
