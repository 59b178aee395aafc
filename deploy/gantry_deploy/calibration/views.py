"""Boards in images: which corners are seen where, and why a board is not found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.locate import near_miss
from gantry_deploy.calibration.boards import DICTIONARIES, BoardCfg, CalibrationError, board_of, cv, dictionary_of

FloatArray = NDArray[np.float64]

LEAST_CORNERS = 8
"""Corners of a view that counts."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".pgm")
"""Images that are read."""


TRIED = ("4x4_250", "5x5_250", "6x6_250", "7x7_250", "apriltag_16h5", "apriltag_25h9", "apriltag_36h11")
"""Families that are tried where a board's own is not seen; they hold the smaller ones of their kind."""


@dataclass(frozen=True)
class View:
    """A board in one image."""

    name: str
    """Of the image's file."""
    points_in_board_m: FloatArray
    """Shape (N, 3), corners in the board's frame."""
    pixels: FloatArray
    """Shape (N, 2), where they are seen: x, y; the first pixel's centre is 0."""


@dataclass(frozen=True)
class Views:
    """Views of one board by one camera."""

    size: tuple[int, int]
    """Pixels per row and rows of the images."""
    views: tuple[View, ...]
    """The usable ones, in the order of their names."""
    unusable: tuple[str, ...]
    """Images without enough of the board, by name."""


def image_paths(folder: Path) -> list[Path]:
    """The images in a folder, sorted by name.

    Raises:
        CalibrationError: If there is no such folder, or no image in it.
    """
    if not folder.is_dir():
        raise CalibrationError(f"There is no folder of images {folder}.{near_miss(folder)}")
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
    if not paths:
        raise CalibrationError(f"{folder} holds no image ({', '.join(SUFFIXES)}).")
    return paths


def find_views(paths: Sequence[Path], board: BoardCfg) -> Views:
    """Look for the board in images.

    Raises:
        CalibrationError: If an image cannot be read, they differ in size, or the board is in none of them, with the
            board that probably was printed.
    """
    cv2 = cv()
    detector = Detector(board)
    size: tuple[int, int] | None = None
    found, unusable, newest = [], [], None
    for path in paths:
        image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        if image is None:
            raise CalibrationError(f"{path} is no image that OpenCV reads.")
        here = (image.shape[1], image.shape[0])
        if size is not None and here != size:
            raise CalibrationError(
                f"{path.name} has {here[0]} x {here[1]} pixels, the images before it {size[0]} x {size[1]}: one "
                "calibration is of one camera and one profile."
            )
        size, newest = here, image
        view = detector.view(image, path.name)
        if view is None:
            unusable.append(path.name)
        else:
            found.append(view)
    assert size is not None
    assert newest is not None
    if not found:
        raise CalibrationError(
            f"None of {len(paths)} images shows {LEAST_CORNERS} corners of the board {board.text}. "
            f"{detector.why_not(newest)}"
        )
    return Views(size, tuple(found), tuple(unusable))


class Detector:
    """Finds one board.

    Args:
        board: The board.
    """

    def __init__(self, board: BoardCfg) -> None:
        aruco = cv().aruco
        self._cfg, self._board = board, board_of(board)
        parameters = aruco.DetectorParameters()
        parameters.cornerRefinementMethod = aruco.CORNER_REFINE_SUBPIX
        self._markers = aruco.ArucoDetector(dictionary_of(board.family), parameters)
        self._charuco = aruco.CharucoDetector(self._board) if board.kind == "charuco" else None

    def view(self, image: NDArray[np.uint8], name: str) -> View | None:
        """The board in an image (height, width) of grey values 0 to 255; None without enough of it."""
        if self._charuco is not None:
            corners, ids, _, _ = self._charuco.detectBoard(image)
        else:
            corners, ids, _ = self._markers.detectMarkers(image)
        if ids is None or not len(ids):
            return None
        if self._charuco is None:
            known = [i for i, number in enumerate(np.ravel(ids)) if number < self._cfg.markers]
            corners, ids = [corners[i] for i in known], np.asarray(ids)[known]
            if not known:
                return None
        points, pixels = self._board.matchImagePoints(corners, ids)
        if points is None or len(points) < LEAST_CORNERS:
            return None
        points = np.asarray(points, np.float64).reshape(-1, 3)
        if np.linalg.matrix_rank(points[:, :2] - points[0, :2], tol=1e-6) < 2:  # All in one line.
            return None
        return View(name, points, np.asarray(pixels, np.float64).reshape(-1, 2))

    def why_not(self, image: NDArray[np.uint8]) -> str:
        """Words for what an image (height, width) of grey values 0 to 255 shows instead of the board."""
        seen = self._ids(image, self._cfg.family)
        if seen:
            if max(seen) >= self._cfg.markers:
                return (
                    f"It shows markers {min(seen)} to {max(seen)}, the board has 0 to {self._cfg.markers - 1}: check "
                    "cols and rows."
                )
            return (
                f"It shows {len(seen)} markers of {self._cfg.markers}, but not as this board has them: check kind, "
                "cols and rows, and that the whole board is sharp and lit."
            )
        families = [family for family in TRIED if not self._cfg.family.startswith(family.rpartition("_")[0])]
        others = {family: self._ids(image, family) for family in families}
        best = max(others, key=lambda family: len(others[family]))
        if len(others[best]) >= 4:
            stem = best.rpartition("_")[0] if best[0].isdigit() else best
            fitting = [name for name in DICTIONARIES if name.startswith(stem) and _count(name) > max(others[best])]
            return f"It shows {len(others[best])} markers of another family: dictionary={fitting[0]}?"
        return "It shows no markers of any known family: is the board in the picture, sharp, lit and not mirrored?"

    def _ids(self, image: NDArray[np.uint8], family: str) -> list[int]:
        """Numbers of a family's markers in an image."""
        _, ids, _ = cv().aruco.ArucoDetector(dictionary_of(family)).detectMarkers(image)
        return [] if ids is None else [int(number) for number in np.ravel(ids)]


def _count(family: str) -> int:
    """Markers of a family."""
    return int(dictionary_of(family).bytesList.shape[0])
