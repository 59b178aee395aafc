"""Focal lengths, principal point and distortion from views of a board."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.calibration.boards import CalibrationError, cv
from gantry_deploy.calibration.views import Views
from gantry_deploy.depth.site import Intrinsics
from gantry_hardware.errors import UnknownNameError

FloatArray = NDArray[np.float64]

LENSES = ("rectified", "distorted")
"""Images without distortion, as depth cameras give them, or as a lens makes them."""
LEAST_VIEWS = 8
"""Views of a calibration."""
FIELDS = 4
"""The image is divided into so many fields along each axis, ..."""
LEAST_COVERED = 10
"""... of which at least so many must have shown corners."""
LEAST_TILT_RAD = np.radians(20.0)
"""The board must have been tilted by at least this in some view: head-on, focal length and distance are one."""
WORST_RMS_PX = 1.0
"""Largest root mean square of the distances between corners and where the camera would show them."""
WORST_FOCAL_SHARE = 0.01
"""Largest standard deviation of a focal length, of itself."""


@dataclass(frozen=True)
class IntrinsicsFound:
    """A calibrated lens, and how good it is."""

    intrinsics: Intrinsics
    """The lens."""
    views: int
    """Views used."""
    rms_px: float
    """Root mean square of the distances between corners and where this camera would show them."""
    std_focal_px: tuple[float, float]
    """Standard deviations of the focal lengths."""
    std_center_px: tuple[float, float]
    """Standard deviations of the principal point."""
    covered: int
    """Fields of the image with corners, of 16."""
    worst: str
    """Image with the largest error, and it."""


def calibrate_intrinsics(views: Views, lens: str = "rectified") -> IntrinsicsFound:
    """Calibrate a lens.

    Raises:
        UnknownNameError: If there is no such lens.
        CalibrationError: If there are too few views, they show too little of the image or too little tilt, or the
            camera that fits best does not fit.
    """
    if lens not in LENSES:
        raise UnknownNameError("lens", lens, LENSES)
    covered = _check_views(views)
    cv2 = cv()
    straight = cv2.CALIB_ZERO_TANGENT_DIST | cv2.CALIB_FIX_K1 | cv2.CALIB_FIX_K2 | cv2.CALIB_FIX_K3
    points = [np.asarray(view.points_in_board_m, np.float32).reshape(-1, 1, 3) for view in views.views]
    pixels = [np.asarray(view.pixels, np.float32).reshape(-1, 1, 2) for view in views.views]
    try:
        rms, matrix, bent, turns, _, deviations, _, errors = cv2.calibrateCameraExtended(
            points, pixels, views.size, np.eye(3), np.zeros(5), flags=straight if lens == "rectified" else 0
        )
    except cv2.error as error:
        raise CalibrationError(f"No camera fits the views: {_first_line(error)}.") from error
    deviations, errors = np.ravel(deviations), np.ravel(errors)
    tilts = [_tilt_rad(np.ravel(turn)) for turn in turns]
    if max(tilts) < LEAST_TILT_RAD:
        raise CalibrationError(
            f"The board was tilted by {np.degrees(max(tilts)):.0f} degrees at most, expected "
            f"{np.degrees(LEAST_TILT_RAD):.0f} or more in several images: turn it to the left, right, up and down."
        )
    worst = int(np.argmax(errors))
    named = f"{views.views[worst].name}: {errors[worst]:.2f} px"
    if not rms <= WORST_RMS_PX:
        hint = " Raw images of a lens need --lens distorted." if lens == "rectified" else ""
        raise CalibrationError(
            f"The camera that fits best misses the corners by {rms:.2f} px (root mean square), expected at most "
            f"{WORST_RMS_PX:g}; the worst image is {named}. A board that is not flat, motion blur, or wrong cols, "
            f"rows or marker_m do this.{hint}"
        )
    share = max(deviations[0] / matrix[0, 0], deviations[1] / matrix[1, 1])
    if not share <= WORST_FOCAL_SHARE:
        raise CalibrationError(
            f"The focal length is known to {100.0 * share:.1f} % only, expected {100.0 * WORST_FOCAL_SHARE:g} %: "
            "take more images, with the board nearer and more tilted."
        )
    found = Intrinsics(
        *views.size,
        *(float(matrix[i]) for i in ((0, 0), (1, 1), (0, 2), (1, 2))),
        distortion=() if lens == "rectified" else tuple(float(value) for value in np.ravel(bent)[:5]),
    )
    return IntrinsicsFound(
        found,
        len(views.views),
        float(rms),
        (float(deviations[0]), float(deviations[1])),
        (float(deviations[2]), float(deviations[3])),
        covered,
        named,
    )


def _check_views(views: Views) -> int:
    """Number of the image's fields that have shown corners.

    Raises:
        CalibrationError: If there are too few views or fields.
    """
    if len(views.views) < LEAST_VIEWS:
        left = f"; not usable: {', '.join(views.unusable[:5])}" if views.unusable else ""
        raise CalibrationError(
            f"{len(views.views)} images show the board, expected at least {LEAST_VIEWS} (20 are good){left}."
        )
    pixels = np.concatenate([view.pixels for view in views.views])
    share = np.clip(pixels / np.array(views.size), 0.0, 0.999)
    fields = {(int(x), int(y)) for x, y in FIELDS * share}
    if len(fields) < LEAST_COVERED:
        names = [
            where
            for where, x, y in (("top left", 0, 0), ("top right", 3, 0), ("bottom left", 0, 3), ("bottom right", 3, 3))
            if (x, y) not in fields
        ]
        raise CalibrationError(
            f"The corners lie in {len(fields)} of {FIELDS**2} fields of the image, expected at least "
            f"{LEAST_COVERED}: hold the board also to the {', '.join(names) or 'edges'}."
        )
    return len(fields)


def _tilt_rad(turn: FloatArray) -> float:
    """Angle between a board's normal and the optical axis, from its turn (3,)."""
    rotation, _ = cv().Rodrigues(turn)
    return float(np.arccos(np.clip(abs(rotation[2, 2]), 0.0, 1.0)))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
