"""``gantry calibrate camera``: print a board, calibrate a lens, find a camera's pose on the robot."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.calibration.boards import BoardCfg, CalibrationError, cv, parse_board, picture_of
from gantry_deploy.calibration.extrinsics import PLACES, PoseFound, calibrate_hand_eye, calibrate_mounted
from gantry_deploy.calibration.intrinsics import LENSES, calibrate_intrinsics
from gantry_deploy.calibration.pose_file import read_poses
from gantry_deploy.calibration.poses import pose_of_rpy
from gantry_deploy.calibration.views import Views, find_views, image_paths
from gantry_deploy.cli.command import UsageError, add_json_option, choose, counted, emit_result, output_file
from gantry_deploy.cli.parser import GantryParser
from gantry_deploy.depth.site import CameraSite, Intrinsics, load_site, quat_of_matrix, save_site
from gantry_hardware.files.bounds import finite
from gantry_hardware.files.whole_files import write_whole
from gantry_hardware.robots import robot_names, robot_spec

BOARD_HELP = (
    "the printed board, for example charuco,cols=11,rows=8,square_m=0.03,marker_m=0.022,dictionary=5x5_100 or "
    "aprilgrid,cols=6,rows=6,square_m=0.0715,marker_m=0.055; measure square_m on the paper"
)
_BOARD_TEXT = "Write a board as a PNG to print, at its true size. Glue it to something flat and measure a square."
_INTRINSICS_TEXT = (
    "Calibrate a lens from 8 or more images of a board: near, tilted to all sides, and in every corner of the image. "
    "Images of the imager that depth is aligned with; that of a RealSense is the left infrared one."
)
_MOUNTED_TEXT = (
    "Find a camera's pose on the robot from 3 or more images of a board. Give the board's pose in the base frame: one "
    "measured pose (--board-pose), or one per image (--poses). A board's origin is its picture's top left corner, x "
    "along the top edge, y down, z into the paper."
)
_HAND_EYE_TEXT = (
    "Find a camera's pose from 8 or more images and one pose per image: of an arm's tool that carries the camera "
    "(--camera moving) or the board (--camera fixed), or of a mobile base from motion capture. Turn about two axes or "
    "more."
)
_EPILOG = (
    "examples:\n"
    "  gantry calibrate camera board --output board.png\n"
    "  gantry calibrate camera intrinsics --images lens/ --output front.yaml\n"
    "  gantry calibrate camera mounted --images floor/ --site front.yaml --board-pose '1.2 0.15 -0.32 3.1416 0 "
    "-1.5708'\n  gantry calibrate camera hand-eye --images wrist/ --site wrist.yaml --poses poses.yaml --robot yam"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", title="what", required=True, parser_class=GantryParser)
    camera = what.add_parser("camera", help="a depth or colour camera", description=_MOUNTED_TEXT, epilog=_EPILOG)
    steps = camera.add_subparsers(dest="step", metavar="STEP", title="step", required=True, parser_class=GantryParser)
    board = steps.add_parser("board", help="write a board to print", description=_BOARD_TEXT)
    lens = steps.add_parser("intrinsics", help="calibrate a lens", description=_INTRINSICS_TEXT)
    mounted = steps.add_parser("mounted", help="find a camera on a robot's base", description=_MOUNTED_TEXT)
    hand_eye = steps.add_parser("hand-eye", help="find a camera by motions", description=_HAND_EYE_TEXT)
    for own, run in ((board, _board), (lens, _intrinsics), (mounted, _mounted), (hand_eye, _hand_eye)):
        own.add_argument(
            "--board", metavar="BOARD", default=BoardCfg().text, help=f"{BOARD_HELP}; the first by default"
        )
        own.set_defaults(run_step=run)
        add_json_option(own)
    for own in (lens, mounted, hand_eye):
        own.add_argument("--images", metavar="FOLDER", type=Path, required=True, help="folder of images of the board")
    board.add_argument("--output", metavar="FILE", type=output_file(".png"), required=True, help="picture to write")
    board.add_argument("--dpi", type=float, default=300.0, metavar="N", help="dots per inch")
    lens.add_argument("--output", metavar="FILE", type=output_file(".yaml"), required=True, help="camera file to write")
    lens.add_argument("--lens", default=LENSES[0], metavar="KIND", help=f"{' or '.join(LENSES)} images")
    lens.add_argument("--name", default="camera", metavar="NAME", help="name of the camera on the robot")
    lens.add_argument("--serial", default="", metavar="NUMBER", help="serial number; another camera is then refused")
    for own in (mounted, hand_eye):
        own.add_argument("--site", metavar="FILE", required=True, help="camera file with intrinsics")
        own.add_argument(
            "--output", metavar="FILE", type=output_file(".yaml"), help="camera file to write; --site else"
        )
        own.add_argument(
            "--poses", metavar="FILE", type=Path, help="YAML file: image -> pose or joints; see docs/depth.md"
        )
        own.add_argument("--robot", metavar="ROBOT", help="robot of the joints in --poses")
    mounted.add_argument("--board-pose", metavar="'X Y Z R P Y'", help="the board in the base, m and rad")
    hand_eye.add_argument(
        "--camera", default=PLACES[0], metavar="PLACE", help=f"what the camera is: {', '.join(PLACES)}"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for."""
    emit_result(args, args.run_step(args, parse_board(args.board)))
    return 0


def _board(args: argparse.Namespace, board: BoardCfg) -> dict[str, Any]:
    dpi = finite("--dpi", args.dpi, 30.0, 2400.0, UsageError)
    picture = picture_of(board, dpi / 0.0254, margin_m=0.5 * board.square_m)
    encoded, data = cv().imencode(".png", picture)
    if not encoded:
        raise CalibrationError("OpenCV could not encode the picture.")
    try:
        write_whole(args.output, data.tobytes())
    except OSError as error:
        raise CalibrationError(f"Cannot write {args.output}: {error.strerror}.") from error
    width_m, height_m = board.size_m
    print(f"{args.output}: {board.text}")
    print(
        f"Print at {dpi:g} dots per inch without scaling: the pattern is {1e3 * width_m:.1f} x {1e3 * height_m:.1f} "
        "mm. Measure a square; if it is not as long as square_m says, say in --board what it is."
    )
    return {"file": args.output, "board": board.text, "width_m": width_m, "height_m": height_m}


def _intrinsics(args: argparse.Namespace, board: BoardCfg) -> dict[str, Any]:
    choose("lens", args.lens, LENSES)
    views = _views(args, board)
    found = calibrate_intrinsics(views, args.lens)
    before = load_site(args.output) if args.output.is_file() else CameraSite(args.name, args.serial)
    record = {
        "intrinsics": {
            "date": date.today().isoformat(),
            "board": board.text,
            "views": found.views,
            "rms_px": round(found.rms_px, 4),
            "std_focal_px": list(np.round(found.std_focal_px, 4).tolist()),
            "std_center_px": list(np.round(found.std_center_px, 4).tolist()),
        }
    }
    site = replace(
        before,
        name=args.name if args.name != "camera" else before.name,
        serial=args.serial or before.serial,
        intrinsics=found.intrinsics,
        calibration={**before.calibration, **record},
    )
    save_site(args.output, site)
    lens = found.intrinsics
    print(
        f"focal lengths {lens.fx:.2f}, {lens.fy:.2f} px (standard deviation {found.std_focal_px[0]:.2f}, "
        f"{found.std_focal_px[1]:.2f}), principal point {lens.cx:.2f}, {lens.cy:.2f} px ({found.std_center_px[0]:.2f}, "
        f"{found.std_center_px[1]:.2f})"
    )
    print(f"corners are missed by {found.rms_px:.3f} px (root mean square); worst image {found.worst}")
    print(f"written: {args.output}")
    return {"file": args.output, "unusable": views.unusable, **asdict(found)}


def _mounted(args: argparse.Namespace, board: BoardCfg) -> dict[str, Any]:
    site, lens = _site(args)
    if (args.board_pose is None) == (args.poses is None):
        raise UsageError("Give --board-pose for one pose of the board in all images, or --poses for one per image.")
    fixed = None if args.board_pose is None else _six(args.board_pose)
    poses = {} if args.poses is None else read_poses(args.poses, _spec(args))
    views = _views(args, board)
    if fixed is not None:
        poses = {view.name: pose_of_rpy(fixed) for view in views.views}
    found = calibrate_mounted(views, lens, poses)
    return _written(args, site, found, "mounted", "base", board, views)


def _hand_eye(args: argparse.Namespace, board: BoardCfg) -> dict[str, Any]:
    site, lens = _site(args)
    choose("place of the camera", args.camera, PLACES)
    if args.poses is None:
        raise UsageError("--poses is missing: a YAML file with the pose of what moves in each image.")
    poses = read_poses(args.poses, _spec(args))
    views = _views(args, board)
    found, held = calibrate_hand_eye(views, lens, poses, args.camera)
    tool = args.camera == "moving" and args.robot is not None
    result = _written(args, site, found, f"hand-eye, camera {args.camera}", "tool" if tool else "base", board, views)
    place = ", ".join(f"{value:.4f}" for value in held.pos_m)
    print(f"the board in the {'fixed' if args.camera == 'moving' else 'moving'} frame: {place} m")
    return {**result, "board_pos_m": held.pos_m, "board_quat_wxyz": quat_of_matrix(held.rotation)}


def _written(
    args: argparse.Namespace,
    site: CameraSite,
    found: PoseFound,
    method: str,
    mounted_on: str,
    board: BoardCfg,
    views: Views,
) -> dict[str, Any]:
    """Write the camera's file, say what was found, and give it as the result."""
    output = args.output or Path(args.site)
    pos, quat = found.pose.pos_m, quat_of_matrix(found.pose.rotation)
    errors = {
        "rms_px": round(found.rms_px, 4),
        "std_pos_m": round(found.std_pos_m, 6),
        "std_angle_rad": round(found.std_angle_rad, 6),
        "spread_m": round(found.spread_m, 5),
        "spread_rad": round(found.spread_rad, 5),
    }
    record = {"date": date.today().isoformat(), "method": method, "board": board.text, "views": found.views, **errors}
    site = replace(
        site,
        pos_camera_in_base_m=(float(pos[0]), float(pos[1]), float(pos[2])),
        quat_camera_to_base_wxyz=quat,
        mounted_on=mounted_on,
        calibration={**site.calibration, "pose": record},
    )
    save_site(output, site)
    ahead = found.pose.rotation[:, 2]
    print(
        f"position in the {mounted_on}: {pos[0]:.4f}, {pos[1]:.4f}, {pos[2]:.4f} m (standard deviation below "
        f"{1e3 * found.std_pos_m:.2f} mm)"
    )
    print(
        f"looks {np.degrees(np.arctan2(ahead[1], ahead[0])):.2f} degrees to the left of +x and "
        f"{np.degrees(np.arcsin(-np.clip(ahead[2], -1.0, 1.0))):.2f} degrees down (standard deviation below "
        f"{np.degrees(found.std_angle_rad):.3f})"
    )
    print(
        f"{counted(found.views, 'view')}: corners are missed by {found.rms_px:.3f} px; one view alone is at most "
        f"{1e3 * found.spread_m:.1f} mm and {np.degrees(found.spread_rad):.2f} degrees off"
    )
    print(f"written: {output}")
    return {
        "file": output,
        "pos_m": pos,
        "quat_wxyz": quat,
        "mounted_on": mounted_on,
        "views": found.views,
        "unusable": views.unusable,
        **errors,
    }


def _views(args: argparse.Namespace, board: BoardCfg) -> Views:
    views = find_views(image_paths(args.images), board)
    unusable = f"; not in {', '.join(views.unusable[:5])}" if views.unusable else ""
    print(f"the board is found in {counted(len(views.views), 'image')}{unusable}")
    return views


def _site(args: argparse.Namespace) -> tuple[CameraSite, Intrinsics]:
    site = load_site(args.site)
    if site.intrinsics is None:
        raise CalibrationError(
            f"{args.site} holds no intrinsics: calibrate them first with 'gantry calibrate camera intrinsics', or "
            "enter those that the camera tells."
        )
    return site, site.intrinsics


def _spec(args: argparse.Namespace) -> Any:
    return None if args.robot is None else robot_spec(choose("robot", args.robot, robot_names()))


def _six(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.replace(",", " ").split()]
    except ValueError:
        numbers = []
    if len(numbers) != 6 or not np.isfinite(numbers).all():
        raise UsageError(
            f"--board-pose is '{text}', expected six numbers: x y z in m, roll pitch yaw in rad, for example "
            "'1.2 0.15 -0.32 3.1416 0 -1.5708' for a board that lies in front of the robot, its top edge far from it."
        )
    return numbers
