"""Pictures of boards, rendered at a known pose, and the poses themselves."""

from __future__ import annotations

import cv2
import numpy as np

from gantry_deploy.calibration.boards import BoardCfg, picture_of
from gantry_deploy.calibration.poses import Pose, turn_of
from gantry_deploy.depth.site import Intrinsics

BOARD = BoardCfg("charuco", 8, 6, 0.04, 0.03, "5x5_100")
LENS = Intrinsics(640, 480, 502.0, 498.5, 322.3, 236.9)
"""A rectified camera; none of its numbers is a guess of anybody's."""
PIXELS_PER_M = 2000.0
FINER = 3


def render(board: BoardCfg, lens: Intrinsics, board_in_camera: Pose, noise: float = 2.0, seed: int = 0):
    """Grey picture (height, width) that a camera takes of a board at a pose in its optical frame."""
    margin_m = 0.5 * board.square_m
    picture = picture_of(board, PIXELS_PER_M, margin_m)
    # The picture's pixel (0, 0) has its centre half a pixel inside its corner.
    to_board = np.array(
        [
            [1.0 / PIXELS_PER_M, 0.0, 0.5 / PIXELS_PER_M - margin_m],
            [0.0, 1.0 / PIXELS_PER_M, 0.5 / PIXELS_PER_M - margin_m],
            [0.0, 0.0, 1.0],
        ]
    )
    flat = np.column_stack([board_in_camera.rotation[:, :2], board_in_camera.pos_m])
    matrix = np.array([[lens.fx, 0.0, lens.cx], [0.0, lens.fy, lens.cy], [0.0, 0.0, 1.0]])
    finer = np.array([[FINER, 0.0, 0.5 * FINER - 0.5], [0.0, FINER, 0.5 * FINER - 0.5], [0.0, 0.0, 1.0]])
    large = cv2.warpPerspective(
        picture, finer @ matrix @ flat @ to_board, (FINER * lens.width, FINER * lens.height),
        flags=cv2.INTER_AREA, borderMode=cv2.BORDER_CONSTANT, borderValue=150,
    )  # fmt: skip
    image = cv2.resize(large, (lens.width, lens.height), interpolation=cv2.INTER_AREA).astype(np.float64)
    image = 40.0 + 0.7 * cv2.GaussianBlur(image, (0, 0), 0.6)
    image += noise * np.random.default_rng(seed).standard_normal(image.shape)
    return np.clip(np.round(image), 0, 255).astype(np.uint8)


def facing(board: BoardCfg, place_m, tilt_rad=0.0, about_rad=0.0, roll_rad=0.0) -> Pose:
    """A board whose middle is at a place in the camera's optical frame, tilted about an axis in the image."""
    axis = np.array([np.cos(about_rad), np.sin(about_rad), 0.0])
    rotation = turn_of(tilt_rad * axis) @ turn_of(np.array([0.0, 0.0, roll_rad]))
    middle = np.array([0.5 * board.size_m[0], 0.5 * board.size_m[1], 0.0])
    return Pose(rotation, np.asarray(place_m, dtype=np.float64) - rotation @ middle)


def lens_poses(board: BoardCfg) -> list[Pose]:
    """Twelve poses that tell a lens well: every corner of the image, tilts to all sides."""
    places = [(x, y, 0.55) for y in (-0.12, 0.12) for x in (-0.2, 0.0, 0.2)]
    places += [
        (0.05, 0.0, 0.42),
        (-0.05, 0.03, 0.45),
        (0.1, -0.05, 0.6),
        (-0.1, 0.05, 0.6),
        (0.0, 0.0, 0.7),
        (0, 0, 0.5),
    ]
    return [
        facing(board, place, tilt_rad=0.15 + 0.09 * (i % 5), about_rad=0.7 * i, roll_rad=0.3 * (i % 3) - 0.3)
        for i, place in enumerate(places)
    ]


def save(folder, images):
    """Write pictures by name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, image in images.items():
        assert cv2.imwrite(str(folder / name), image)
    return folder
