"""Pose of a camera on a robot: from boards at a known pose, or from known poses of what moves (hand-eye)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.calibration.boards import CalibrationError, cv
from gantry_deploy.calibration.poses import Pose, angle_between, least_squares, rotvec_of
from gantry_deploy.calibration.views import View, Views
from gantry_deploy.depth.site import Intrinsics
from gantry_hardware.errors import UnknownNameError

FloatArray = NDArray[np.float64]

LEAST_MOUNTED = 3
"""Views for a camera that sees a board at a known pose."""
LEAST_HAND_EYE = 8
"""Views for a camera that moves, or sees a board that moves."""
LEAST_TURN_RAD = np.radians(15.0)
"""Least turn between two poses that tells something."""
LEAST_AXES = 0.15
"""Second of the singular values of the turns' axes, of the first: turns about one axis alone leave a free shift."""
WORST_RMS_PX = 2.0
"""Largest root mean square of the distances between corners and where the camera would show them."""
WORST_SPREAD = (0.02, np.radians(2.0))
"""Largest distance [m] and angle [rad] between the pose from one view and from all."""
PLACES = ("moving", "fixed")
"""Places of the camera: on what moves, with the board fixed; or fixed, with the board on what moves."""


@dataclass(frozen=True)
class PoseFound:
    """A camera's pose, and how good it is."""

    pose: Pose
    """The camera's optical frame in the base, or in the frame of what carries it."""
    views: int
    """Views used."""
    rms_px: float
    """Root mean square of the distances between corners and where this camera would show them."""
    std_pos_m: float
    """Standard deviation of the position, along its worst axis, as the scatter of the corners tells it."""
    std_angle_rad: float
    """Likewise of the orientation."""
    spread_m: float
    """Largest distance between the position from one view and from all."""
    spread_rad: float
    """Likewise of the orientation."""


def calibrate_mounted(views: Views, lens: Intrinsics, boards_in_base: Mapping[str, Pose]) -> PoseFound:
    """The pose of a camera that does not move, from boards at known poses.

    Args:
        views: Views of the board.
        lens: The camera.
        boards_in_base: The board's pose in the base, by the image's name.

    Raises:
        CalibrationError: If there are too few views, or they do not agree.
    """
    known = _known(views, boards_in_base, LEAST_MOUNTED)
    rays = {view.name: _rays(view, views.size, lens) for view in known}
    singles = {
        view.name: boards_in_base[view.name] @ board_in_camera(view, rays[view.name]).inverse() for view in known
    }

    def residuals(poses: list[Pose]) -> FloatArray:
        back = poses[0].inverse()
        parts = [
            _missed(back.apply(boards_in_base[view.name].apply(view.points_in_board_m)), rays[view.name], lens)
            for view in known
        ]
        return np.concatenate(parts)

    start = min(singles.values(), key=lambda pose: float(np.sum(residuals([pose]) ** 2)))
    poses, covariance = least_squares([start], residuals)
    return _judged(poses[0], residuals(poses), covariance, singles)


def calibrate_hand_eye(
    views: Views, lens: Intrinsics, hands_in_base: Mapping[str, Pose], camera: str = "moving"
) -> tuple[PoseFound, Pose]:
    """The pose of a camera from known poses of what moves: an arm's tool, or a robot's base in the world.

    Args:
        views: Views of the board, which is fixed if the camera moves, and moves if the camera is fixed.
        lens: The camera.
        hands_in_base: Pose of what moves, in the frame that does not, by the image's name.
        camera: One of :data:`PLACES`.

    Returns:
        The camera in the moving frame, or in the fixed one; and the board in the other of the two.

    Raises:
        UnknownNameError: If there is no such place.
        CalibrationError: If there are too few views, they turn too little, or do not agree.
    """
    if camera not in PLACES:
        raise UnknownNameError("place of the camera", camera, PLACES)
    known = _known(views, hands_in_base, LEAST_HAND_EYE)
    rays = {view.name: _rays(view, views.size, lens) for view in known}
    # Seen from the carrier of the camera, the carrier of the board moves; both cases are one.
    hands = {
        view.name: hands_in_base[view.name] if camera == "moving" else hands_in_base[view.name].inverse()
        for view in known
    }
    boards = {view.name: board_in_camera(view, rays[view.name]) for view in known}
    names = [view.name for view in known]
    start = closed_form([hands[name] for name in names], [boards[name] for name in names])
    board = hands[names[0]] @ start @ boards[names[0]]

    def residuals(poses: list[Pose]) -> FloatArray:
        parts = []
        for view in known:
            into_camera = (hands[view.name] @ poses[0]).inverse() @ poses[1]
            parts.append(_missed(into_camera.apply(view.points_in_board_m), rays[view.name], lens))
        return np.concatenate(parts)

    poses, covariance = least_squares([start, board], residuals)
    singles = {name: hands[name].inverse() @ poses[1] @ boards[name].inverse() for name in names}
    return _judged(poses[0], residuals(poses), covariance, singles), poses[1]


def closed_form(hands: list[Pose], boards: list[Pose]) -> Pose:
    """The camera in the moving frame from its poses and the board's poses in the camera, without iteration.

    Of every two views, the hand's motion A and the camera's motion B are the same motion in two frames, A X = X B: the
    axes of their turns give the rotation (Park and Martin), and then the translation is linear.

    Raises:
        CalibrationError: If the poses turn too little, or about one axis alone.
    """
    axes_a, axes_b, rows, right = [], [], [], []
    for i in range(len(hands)):
        for j in range(i):
            a, b = hands[j].inverse() @ hands[i], boards[j] @ boards[i].inverse()
            turn = rotvec_of(a.rotation)
            if LEAST_TURN_RAD <= np.linalg.norm(turn) <= np.radians(170.0):
                axes_a.append(turn)
                axes_b.append(rotvec_of(b.rotation))
                rows.append((a, b))
    if len(rows) < 3:
        raise CalibrationError(
            f"The poses turn by less than {np.degrees(LEAST_TURN_RAD):.0f} degrees between the images: turn the "
            "camera, or the board, between them."
        )
    values = np.linalg.svd(np.array(axes_a), compute_uv=False)
    if values[1] < LEAST_AXES * values[0]:
        raise CalibrationError(
            "The poses turn about one axis alone, which leaves the camera's place along it open: turn about two axes "
            "or more. A robot that only yaws and walks cannot find its camera this way; use 'mounted'."
        )
    u, _, vt = np.linalg.svd(np.array(axes_a).T @ np.array(axes_b))
    rotation = u @ np.diag([1.0, 1.0, float(np.sign(np.linalg.det(u @ vt)))]) @ vt
    left = np.concatenate([a.rotation - np.eye(3) for a, _ in rows])
    right = np.concatenate([rotation @ b.pos_m - a.pos_m for a, b in rows])
    return Pose(rotation, np.linalg.lstsq(left, right, rcond=None)[0])


def board_in_camera(view: View, rays: FloatArray) -> Pose:
    """The board's pose in the camera's optical frame, from rays (N, 2) at depth 1.

    Raises:
        CalibrationError: If there is none.
    """
    cv2 = cv()
    found, turn, place = cv2.solvePnP(
        view.points_in_board_m.reshape(-1, 1, 3), rays.reshape(-1, 1, 2), np.eye(3), None, flags=cv2.SOLVEPNP_IPPE
    )
    if not found:
        raise CalibrationError(f"The board in {view.name} has no pose: its corners lie in a line.")
    turn, place = cv2.solvePnPRefineLM(
        view.points_in_board_m.reshape(-1, 1, 3), rays.reshape(-1, 1, 2), np.eye(3), None, turn, place
    )
    return Pose(np.asarray(cv2.Rodrigues(turn)[0], np.float64), np.ravel(place).astype(np.float64))


def _rays(view: View, size: tuple[int, int], lens: Intrinsics) -> FloatArray:
    """Rays (N, 2) of a view's corners, at depth 1.

    Raises:
        CalibrationError: If the images have another size than the calibration.
    """
    if size != (lens.width, lens.height):
        raise CalibrationError(
            f"The images have {size[0]} x {size[1]} pixels, the camera's intrinsics are of {lens.width} x "
            f"{lens.height}."
        )
    matrix = np.array([[lens.fx, 0.0, lens.cx], [0.0, lens.fy, lens.cy], [0.0, 0.0, 1.0]])
    bent = np.array(lens.distortion or (0.0,) * 5)
    found = cv().undistortPoints(view.pixels.reshape(-1, 1, 2), matrix, bent)
    return np.asarray(found, np.float64).reshape(-1, 2)


def _missed(points_in_camera_m: FloatArray, rays: FloatArray, lens: Intrinsics) -> FloatArray:
    """Differences (2 N,), px, between where points would be seen and where they are."""
    depth = np.maximum(points_in_camera_m[:, 2:], 1e-3)
    return ((points_in_camera_m[:, :2] / depth - rays) * np.array([lens.fx, lens.fy])).ravel()


def _known(views: Views, poses: Mapping[str, Pose], least: int) -> list[View]:
    """The views with a pose.

    Raises:
        CalibrationError: If there are too few.
    """
    known = [view for view in views.views if view.name in poses]
    if len(known) >= least:
        return known
    missing = [view.name for view in views.views if view.name not in poses]
    more = f" No pose is given for: {', '.join(missing[:5])}." if missing else ""
    more += f" The board is not found in: {', '.join(views.unusable[:5])}." if views.unusable else ""
    raise CalibrationError(f"{len(known)} images show the board at a known pose, expected at least {least}.{more}")


def _judged(pose: Pose, missed: FloatArray, covariance: FloatArray, singles: Mapping[str, Pose]) -> PoseFound:
    """The pose with its errors.

    Raises:
        CalibrationError: If the views do not agree.
    """
    rms = float(np.sqrt(np.mean(np.sum(missed.reshape(-1, 2) ** 2, axis=1))))
    shifts = {name: float(np.linalg.norm(one.pos_m - pose.pos_m)) for name, one in singles.items()}
    turns = {name: angle_between(one.rotation, pose.rotation) for name, one in singles.items()}
    worst = max(singles, key=lambda name: shifts[name] / WORST_SPREAD[0] + turns[name] / WORST_SPREAD[1])
    if not (rms <= WORST_RMS_PX and shifts[worst] <= WORST_SPREAD[0] and turns[worst] <= WORST_SPREAD[1]):
        raise CalibrationError(
            f"The views do not agree: corners are missed by {rms:.2f} px (expected at most {WORST_RMS_PX:g}), and "
            f"{worst} puts the camera {1e3 * shifts[worst]:.0f} mm and {np.degrees(turns[worst]):.1f} degrees "
            "elsewhere "
            f"(expected at most {1e3 * WORST_SPREAD[0]:.0f} mm and {np.degrees(WORST_SPREAD[1]):.0f} degrees). Wrong "
            "poses, a wrong square_m or wrong intrinsics do this."
        )
    spread = np.sqrt(np.maximum(np.diag(covariance)[:6], 0.0))
    return PoseFound(
        pose, len(singles), rms, float(spread[3:].max()), float(spread[:3].max()), shifts[worst], turns[worst]
    )
