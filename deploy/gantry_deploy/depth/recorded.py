"""Depth images that were recorded: from a bag of ROS 2 (MCAP or SQLite), or from a folder of ``.npz`` files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gantry_deploy.bundle.locate import near_miss
from gantry_deploy.depth.messages import depth_image, intrinsics
from gantry_deploy.depth.site import CameraSite, Intrinsics, load_site, mount_of, save_site
from gantry_deploy.depth.source import CameraMount, DepthArray, DepthError, DepthImage
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.files.npz import ZIP_ERRORS, read_npz
from gantry_hardware.files.whole_files import whole_file
from gantry_mapping.sensing.camera import DepthCamera
from gantry_mapping.sensing.units import require_metres

SITE_FILE = "camera.yaml"
"""Of a folder of images: the camera, with intrinsics and pose."""
LARGEST_BYTES = 2**30
"""Of all arrays of one file."""
IMAGE, INFO = "sensor_msgs/msg/Image", "sensor_msgs/msg/CameraInfo"
SEARCHED = 100_000
"""Messages of a bag among which the first calibration is looked for."""
LONGEST_GAP_S = 0.5
"""A recording without an image for longer is said to be silent there."""


class Recorded(NamedTuple):
    """One recorded image."""

    stamp_s: float
    """On the clock of the recording."""
    depth_m: DepthArray
    """Shape (height, width), m."""


@dataclass(frozen=True)
class _Frames:
    """A camera, and its images in the order of their stamps."""

    camera: DepthCamera
    images: Any
    """A callable that begins anew: () -> Iterator[Recorded]."""


class RecordedSource:
    """Hands recorded images out by their stamps: the first one at the first :meth:`read`, the others as much later as
    they were taken later, on the reader's clock, whatever its speed.

    Args:
        path: Bag, or folder of ``.npz`` files with a ``camera.yaml``.
        mount: Pose of the camera; None for the one in ``camera.yaml``.
        topic: Of the images in a bag; empty for the only one.
        info_topic: Of their calibration; empty for ``camera_info`` beside the images.
        start_s: How far into the recording to begin.
        repeat: Whether to begin anew at its end.
    """

    live = False

    def __init__(
        self,
        path: str | Path,
        mount: CameraMount | None = None,
        topic: str = "",
        info_topic: str = "",
        start_s: float = 0.0,
        repeat: bool = False,
    ) -> None:
        self.name = f"recorded {Path(path).name}"
        """For messages."""
        self._path, self._mount, self._topics = Path(path), mount, (topic, info_topic)
        self._start_s, self._repeat = start_s, repeat
        self._frames: _Frames | None = None
        self._coming: Iterator[Recorded] = iter(())
        self._next: Recorded | None = None
        self._offset_s: float | None = None
        self._last_s = -math.inf
        self._now_s = -math.inf
        self._failure = ""
        self._counts = {"taken": 0, "refused": 0, "out of order": 0}

    @property
    def cameras(self) -> tuple[DepthCamera, ...]:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        return () if self._frames is None else (self._frames.camera,)

    def open(self) -> None:
        """Look for camera and first image.

        Raises:
            DepthError: If there is no recording, no camera in it, or no image.
        """
        if not self._path.exists():
            raise DepthError(f"There is no recording {self._path}.{near_miss(self._path)}")
        is_folder = self._path.is_dir() and not any(self._path.glob("*.mcap")) and not any(self._path.glob("*.db3"))
        self._frames = (
            _of_folder(self._path, self._mount) if is_folder else _of_bag(self._path, self._mount, *self._topics)
        )
        self._begin()
        if self._next is None:
            why = f": {self._failure}" if self._failure else f" from {self._start_s:g} s on" if self._start_s else ""
            raise DepthError(f"{self._path} holds no depth image{why}.")

    def read(self, now_s: float) -> list[DepthImage]:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        if now_s < self._now_s - 1.0 and self._next is not None:
            self._begin()  # The reader's clock has begun anew.
        self._now_s = now_s
        found: list[DepthImage] = []
        while self._next is not None:
            if self._offset_s is None:
                self._offset_s = now_s - self._next.stamp_s
            due_s = self._next.stamp_s + self._offset_s
            if due_s > now_s + 5e-7:
                break
            found.append(DepthImage(due_s, self._next.depth_m))
            self._last_s = due_s
            self._counts["taken"] += 1
            self._advance()
            if self._next is None and self._repeat and not self._failure:
                self._begin()
                if self._next is not None:
                    self._offset_s = due_s + 1.0 / 30.0 - self._next.stamp_s
        return found

    def trouble(self) -> str:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        silent_s = self._now_s - self._last_s
        if silent_s <= LONGEST_GAP_S or math.isinf(self._now_s):
            return ""
        if self._next is not None:
            return f"{self.name} holds no image for {silent_s:.1f} s here"
        return f"{self.name} has ended" + (f": {self._failure}" if self._failure else "")

    def statistics(self) -> dict[str, object]:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        return {f"{self.name}: {what}": count for what, count in self._counts.items() if count}

    def close(self) -> None:
        """See :class:`gantry_deploy.depth.source.DepthSource`."""
        self._coming, self._next = iter(()), None

    def _begin(self) -> None:
        assert self._frames is not None
        self._coming, self._next, self._offset_s, self._failure = self._frames.images(), None, None, ""
        self._last_s = self._now_s
        first_s: float | None = None
        while True:
            self._advance()
            if self._next is None:
                return
            first_s = self._next.stamp_s if first_s is None else first_s
            if self._next.stamp_s >= first_s + self._start_s:
                return

    def _advance(self) -> None:
        """To the next image that can be used and is not before the present one."""
        before = self._next
        while True:
            try:
                found = next(self._coming, None)
            except GantryError as error:
                self._next, self._failure = None, str(error)
                return
            if found is None:
                self._next = None
                return
            if before is not None and found.stamp_s <= before.stamp_s:
                self._counts["out of order"] += 1
                continue
            assert self._frames is not None
            camera = self._frames.camera
            try:
                if found.depth_m.shape != (camera.height, camera.width):
                    raise DepthError("of another size")
                require_metres(found.depth_m)
            except GantryError:
                self._counts["refused"] += 1
                continue
            self._next = found
            return


def make_recorded(
    mount: CameraMount | None,
    path: str = "",
    topic: str = "",
    info_topic: str = "",
    start_s: float = 0.0,
    repeat: bool = False,
) -> RecordedSource:
    """A source of recorded images, from the entry-point group ``gantry.depth_sources``; see :class:`RecordedSource`.

    Raises:
        DepthError: If no path is given.
    """
    if not path:
        raise DepthError("Depth source 'recorded' needs path=BAG or path=FOLDER.")
    return RecordedSource(path, mount, topic, info_topic, start_s, repeat)


def save_images(folder: str | Path, camera: DepthCamera, images: list[Recorded], name: str = "camera") -> None:
    """Write images (height, width), m, with their stamps as a folder that :class:`RecordedSource` reads.

    Args:
        folder: Made if it does not exist.
        camera: What took them, with its pose in the base.
        images: In the order of their stamps.
        name: Of the camera.

    Raises:
        DepthError: If the folder cannot be written.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / f"{images[0].stamp_s:020.6f}.npz") as file:
            np.savez_compressed(
                file,
                stamp_s=np.array([image.stamp_s for image in images]),
                depth_m=np.stack([image.depth_m for image in images]).astype(np.float32),
            )
    except OSError as error:
        raise DepthError(f"Images cannot be written to {folder}: {error.strerror}.") from error
    own = Intrinsics(camera.width, camera.height, camera.fx, camera.fy, camera.cx, camera.cy)
    site = CameraSite(
        name,
        "",
        own,
        camera.pos_camera_in_base_m,
        camera.quat_camera_to_base_wxyz,
        min_range_m=camera.min_range_m,
        max_range_m=camera.max_range_m,
    )
    save_site(folder / SITE_FILE, site)


def _of_folder(folder: Path, mount: CameraMount | None) -> _Frames:
    site = load_site(folder / SITE_FILE)
    own = site.intrinsics
    if own is None:
        raise DepthError(f"{folder / SITE_FILE} holds no intrinsics; images without them have no rays.")
    told = DepthCamera(own.width, own.height, own.fx, own.fy, own.cx, own.cy)
    mount = mount or mount_of(site, str(folder / SITE_FILE))
    paths = sorted(folder.glob("*.npz"))

    def images() -> Iterator[Recorded]:
        for path in paths:
            yield from _of_file(path)

    return _Frames(mount.camera(told, str(folder)), images)


def _of_file(path: Path) -> Iterator[Recorded]:
    try:
        arrays = read_npz(path.read_bytes(), LARGEST_BYTES)
    except (ValueError, *ZIP_ERRORS) as error:
        raise DepthError(f"{path} cannot be read: {error}.") from error
    lacking = [name for name in ("stamp_s", "depth_m") if name not in arrays]
    if lacking:
        raise DepthError(
            f"{path} has no array {' or '.join(lacking)}; it has: {', '.join(sorted(arrays)) or '(none)'}."
        )
    stamps, depth = np.atleast_1d(arrays["stamp_s"]), arrays["depth_m"]
    depth = depth[None] if depth.ndim == 2 else depth
    if depth.ndim != 3 or stamps.shape != (len(depth),):
        raise DepthError(
            f"{path}: depth_m has shape {arrays['depth_m'].shape} and stamp_s {arrays['stamp_s'].shape}, expected (N, "
            "height, width) and (N,)."
        )
    for stamp_s, image in zip(stamps, depth, strict=True):
        yield Recorded(float(stamp_s), np.asarray(image, dtype=np.float32))


def _of_bag(path: Path, mount: CameraMount | None, topic: str, info_topic: str) -> _Frames:
    from gantry_deploy.dataset.bags.bag import Bag
    from gantry_deploy.dataset.bags.definitions import Decoders

    if mount is None:
        raise DepthError(
            "A bag does not say where the camera is on the robot: give site=FILE or pose='x y z roll pitch yaw' "
            f"beside path={path.name}."
        )
    topics = Bag(path).topics()
    topic = _chosen(topic, [name for name, item in topics.items() if item.type == IMAGE and "depth" in name], topics)
    info_topic = _chosen(
        info_topic or f"{topic.rpartition('/')[0]}/camera_info",
        [name for name, item in topics.items() if item.type == INFO],
        topics,
    )
    decoders = Decoders()
    decode, decode_info = decoders.of(topics[topic]), decoders.of(topics[info_topic])
    told: DepthCamera | None = None
    for count, message in enumerate(Bag(path).messages()):
        if message.topic == info_topic:
            told = DepthCamera(*intrinsics(decode_info(message.data)))
            break
        if count >= SEARCHED:
            break
    if told is None:
        raise DepthError(f"'{info_topic}' in {path} holds no calibration.")

    def images() -> Iterator[Recorded]:
        for message in Bag(path).messages():
            if message.topic == topic:
                image = decode(message.data)
                stamp = image.header.stamp
                yield Recorded(stamp.sec + 1e-9 * stamp.nanosec, np.asarray(depth_image(image), dtype=np.float32))

    return _Frames(mount.camera(told, f"'{topic}'"), images)


def _chosen(name: str, fitting: list[str], topics: Any) -> str:
    """The topic by name, or the only one that fits.

    Raises:
        UnknownNameError: If there is no such topic.
        DepthError: If none or several fit.
    """
    if name in topics:
        return name
    if name and not name.endswith("/camera_info"):
        raise UnknownNameError("topic of the bag", name, topics)
    if len(fitting) != 1:
        found = ", ".join(sorted(fitting)) or "none"
        raise DepthError(
            f"Which topic of the bag holds it? Fitting: {found}; say so by topic=NAME and info_topic=NAME."
        )
    return fitting[0]
