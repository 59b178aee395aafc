"""Printed boards: ChArUco chessboards and grids of AprilTags, told by one line of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.depth.registry import parse_choice
from gantry_hardware.errors import GantryError, UnknownNameError, unknown_name_text
from gantry_hardware.files.bounds import Range, check_fields

KINDS = ("charuco", "aprilgrid")
"""Kinds of boards."""
DICTIONARIES = (
    "4x4_50", "4x4_100", "4x4_250", "4x4_1000", "5x5_50", "5x5_100", "5x5_250", "5x5_1000", "6x6_50", "6x6_100",
    "6x6_250", "6x6_1000", "7x7_50", "7x7_100", "7x7_250", "7x7_1000", "apriltag_16h5", "apriltag_25h9",
    "apriltag_36h10", "apriltag_36h11",
)  # fmt: skip
"""Families of markers, as OpenCV has them."""


class CalibrationError(GantryError):
    """A calibration cannot be made from what there is; the text says what is missing."""


@dataclass(frozen=True)
class BoardCfg:
    """A printed board. Its origin is the picture's top left corner, x along the top edge, y down, z into the paper."""

    kind: str = "charuco"
    """``charuco`` (chessboard with markers in its white squares) or ``aprilgrid`` (rows of markers with gaps)."""
    cols: int = 11
    """Squares, or markers, per row."""
    rows: int = 8
    """Rows of them."""
    square_m: float = 0.03
    """Edge of a square; of an aprilgrid, of a marker with the gap after it."""
    marker_m: float = 0.022
    """Edge of a marker's black part."""
    dictionary: str = ""
    """Family of the markers; empty for ``5x5_100``, of an aprilgrid ``apriltag_36h11``."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("kind of board", self.kind, KINDS)
        ranges = {
            "cols": Range(2, 100),
            "rows": Range(2, 100),
            "square_m": Range(0.001, 2.0),
            "marker_m": Range(0.001, 2.0),
        }
        check_fields(self, ranges, "A board's ", CalibrationError)
        if self.family not in DICTIONARIES:
            raise UnknownNameError("family of markers", self.family, DICTIONARIES)
        if not self.marker_m < self.square_m:
            raise CalibrationError(
                f"A board's marker_m is {self.marker_m:g} and its square_m {self.square_m:g}, expected marker < square."
            )
        if self.markers > (most := int(cv().aruco.getPredefinedDictionary(_number(self.family)).bytesList.shape[0])):
            raise CalibrationError(
                f"A board of {self.cols} x {self.rows} has {self.markers} markers, the family {self.family} only "
                f"{most}."
            )

    @property
    def family(self) -> str:
        """Family of the markers."""
        return self.dictionary or ("5x5_100" if self.kind == "charuco" else "apriltag_36h11")

    @property
    def markers(self) -> int:
        """Number of markers."""
        return self.cols * self.rows // 2 if self.kind == "charuco" else self.cols * self.rows

    @property
    def size_m(self) -> tuple[float, float]:
        """Width and height of the printed pattern."""
        gap_m = 0.0 if self.kind == "charuco" else self.square_m - self.marker_m
        return self.cols * self.square_m - gap_m, self.rows * self.square_m - gap_m

    @property
    def text(self) -> str:
        """The board in one line, as :func:`parse_board` reads it."""
        return (
            f"{self.kind},cols={self.cols},rows={self.rows},square_m={self.square_m:g},marker_m={self.marker_m:g},"
            f"dictionary={self.family}"
        )


def parse_board(text: str) -> BoardCfg:
    """A board from ``KIND,KEY=VALUE,...``.

    Raises:
        GantryError: If it is not of that form, or no board.
    """
    kind, options = parse_choice(text)
    known = ("cols", "rows", "square_m", "marker_m", "dictionary")
    for key, value in options.items():
        if key not in known:
            raise CalibrationError(unknown_name_text("property of a board", key, known))
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if (key == "dictionary" and not isinstance(value, str)) or (key != "dictionary" and not number):
            raise CalibrationError(f"A board's {key} is {value!r}; expected for example {BoardCfg().text}.")
        if key in ("cols", "rows") and not isinstance(value, int):
            raise CalibrationError(f"A board's {key} is {value!r}, expected a whole number.")
    return BoardCfg(kind, **options)


def cv() -> Any:
    """OpenCV.

    Raises:
        CalibrationError: If it is not installed, or has no markers.
    """
    try:
        import cv2
    except ImportError as error:
        raise CalibrationError(f"Calibration needs OpenCV ({error}): pip install 'gantry-rl[robot]'.") from error
    if not hasattr(getattr(cv2, "aruco", None), "CharucoDetector"):
        raise CalibrationError(f"OpenCV {cv2.__version__} has no cv2.aruco.CharucoDetector, expected 4.7 or later.")
    return cv2


def dictionary_of(family: str) -> Any:
    """OpenCV's dictionary of a family."""
    return cv().aruco.getPredefinedDictionary(_number(family))


def board_of(cfg: BoardCfg) -> Any:
    """OpenCV's board."""
    aruco, dictionary = cv().aruco, dictionary_of(cfg.family)
    if cfg.kind == "charuco":
        return aruco.CharucoBoard((cfg.cols, cfg.rows), cfg.square_m, cfg.marker_m, dictionary)
    return aruco.GridBoard((cfg.cols, cfg.rows), cfg.marker_m, cfg.square_m - cfg.marker_m, dictionary)


def picture_of(cfg: BoardCfg, pixels_per_m: float, margin_m: float = 0.0) -> NDArray[np.uint8]:
    """The board as a picture (height, width) of grey values 0 to 255, a white margin around it [m]."""
    width, height = (round(size * pixels_per_m) for size in cfg.size_m)
    picture = np.asarray(board_of(cfg).generateImage((width, height), marginSize=0, borderBits=1), dtype=np.uint8)
    margin = round(margin_m * pixels_per_m)
    return np.pad(picture, margin, constant_values=255)


def _number(family: str) -> int:
    return int(getattr(cv().aruco, f"DICT_{family.upper()}"))
