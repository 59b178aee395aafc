"""Calibration by rendered boards: lenses and poses that are known, and images that do not tell them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

cv2 = pytest.importorskip("cv2")

from gantry_deploy.actions.kinematics import ArmKinematics  # noqa: E402
from gantry_deploy.calibration.boards import BoardCfg, CalibrationError, parse_board, picture_of  # noqa: E402
from gantry_deploy.calibration.extrinsics import (  # noqa: E402
    board_in_camera,
    calibrate_hand_eye,
    calibrate_mounted,
    closed_form,
)
from gantry_deploy.calibration.intrinsics import calibrate_intrinsics  # noqa: E402
from gantry_deploy.calibration.pose_file import read_poses  # noqa: E402
from gantry_deploy.calibration.poses import Pose, angle_between, pose_of_rpy, turn_of  # noqa: E402
from gantry_deploy.calibration.views import Detector, View, Views, find_views, image_paths  # noqa: E402
from gantry_deploy.cli.main import main  # noqa: E402
from gantry_deploy.depth.site import (  # noqa: E402
    CameraSite,
    load_site,
    mount_of,
    mount_of_pose,
    quat_of_matrix,
    save_site,
)
from gantry_fixtures.boards import BOARD, LENS, facing, lens_poses, render, save  # noqa: E402
from gantry_hardware.errors import UnknownNameError  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_mapping.sensing.frames import rotation_matrix  # noqa: E402

MOUNT = mount_of_pose((0.32, 0.02, 0.06, 0.01, 0.52, -0.03))
CAMERA_IN_BASE = Pose(rotation_matrix(np.array([MOUNT.quat_camera_to_base_wxyz]))[0], np.array([0.32, 0.02, 0.06]))


def views_of(images, board=BOARD):
    detector = Detector(board)
    found = [detector.view(image, name) for name, image in images.items()]
    return Views((LENS.width, LENS.height), tuple(view for view in found if view), ())


@pytest.fixture(scope="module")
def lens_images():
    return {f"{i:02d}.png": render(BOARD, LENS, pose, seed=i) for i, pose in enumerate(lens_poses(BOARD))}


def ideal_views(poses, scatter_px=0.0, seed=0):
    """Views without rendering: where the corners of a board are seen exactly."""
    cols, rows = np.meshgrid(np.arange(1, BOARD.cols), np.arange(1, BOARD.rows))
    points = np.stack([BOARD.square_m * cols.ravel(), BOARD.square_m * rows.ravel(), np.zeros(cols.size)], axis=1)
    rng = np.random.default_rng(seed)
    views = []
    for name, pose in poses.items():
        seen = pose.apply(points)
        pixels = np.array([LENS.fx, LENS.fy]) * seen[:, :2] / seen[:, 2:] + np.array([LENS.cx, LENS.cy])
        views.append(View(name, points, pixels + scatter_px * rng.standard_normal(pixels.shape)))
    return Views((LENS.width, LENS.height), tuple(views), ())


# -- boards ------------------------------------------------------------------------------------------------------------


def test_a_board_is_one_line_of_text_both_ways():
    assert parse_board(BOARD.text) == BOARD
    assert parse_board("aprilgrid,cols=6,rows=5,square_m=0.0715,marker_m=0.055").family == "apriltag_36h11"
    for text, what in (
        ("charucco", "Did you mean 'charuco'"),
        ("charuco,colls=8", "Did you mean 'cols'"),
        ("charuco,dictionary=5x5_10", "Unknown family of markers '5x5_10'"),
        ("charuco,cols=8.5", "expected a whole number"),
        ("charuco,square_m=0.02,marker_m=0.03", "expected marker < square"),
        ("charuco,cols=20,rows=20,dictionary=4x4_50", "has 200 markers, the family 4x4_50 only 50"),
    ):
        with pytest.raises((CalibrationError, UnknownNameError), match=what):
            parse_board(text)


def test_a_printed_board_has_its_size(tmp_path, capsys):
    assert main(["calibrate", "camera", "board", "--output", str(tmp_path / "b.png"), "--board", BOARD.text]) == 0
    picture = cv2.imread(str(tmp_path / "b.png"), cv2.IMREAD_GRAYSCALE)
    margin = round(0.02 * 300 / 0.0254)
    assert picture.shape == (round(0.24 * 300 / 0.0254) + 2 * margin, round(0.32 * 300 / 0.0254) + 2 * margin)
    assert "320.0 x 240.0 mm" in capsys.readouterr().out


def test_corners_are_found_where_they_are_rendered():
    pose = facing(BOARD, (0.03, -0.02, 0.5), 0.4, 0.8, 0.2)
    for board in (BOARD, BoardCfg("aprilgrid", 6, 4, 0.05, 0.038)):
        view = Detector(board).view(render(board, LENS, pose), "a")
        seen = pose.apply(view.points_in_board_m)
        pixels = np.array([LENS.fx, LENS.fy]) * seen[:, :2] / seen[:, 2:] + np.array([LENS.cx, LENS.cy])
        missed = np.sqrt(np.mean(np.sum((pixels - view.pixels) ** 2, axis=1)))
        rays = (view.pixels - np.array([LENS.cx, LENS.cy])) / np.array([LENS.fx, LENS.fy])
        found = board_in_camera(view, rays)
        error_m, error_rad = np.linalg.norm(found.pos_m - pose.pos_m), angle_between(found.rotation, pose.rotation)
        print(f"{board.kind}: {missed:.3f} px, {1e3 * error_m:.2f} mm, {np.degrees(error_rad):.3f} degrees")
        assert len(view.pixels) >= 30
        # Blur moves the free corners of a tag to its middle; those of a chessboard stay.
        assert missed < (0.2 if board.kind == "charuco" else 1.0)
        assert error_m < 0.002
        assert error_rad < np.radians(0.3)


# -- lenses ------------------------------------------------------------------------------------------------------------


def test_a_lens_is_found_from_rendered_images(lens_images):
    found = calibrate_intrinsics(views_of(lens_images))
    own = found.intrinsics
    errors = [own.fx / LENS.fx - 1, own.fy / LENS.fy - 1, own.cx - LENS.cx, own.cy - LENS.cy]
    print("relative focal errors, principal point errors px, rms px:", errors, found.rms_px)
    assert max(abs(errors[0]), abs(errors[1])) < 0.003
    assert max(abs(errors[2]), abs(errors[3])) < 1.0
    assert found.rms_px < 0.3
    assert own.distortion == ()


def test_a_distorting_lens_is_found_and_no_depth_camera_may_have_it(tmp_path):
    poses = {str(i): pose for i, pose in enumerate(lens_poses(BOARD))}
    views = ideal_views(poses)
    matrix = np.array([[LENS.fx, 0, LENS.cx], [0, LENS.fy, LENS.cy], [0, 0, 1.0]])
    bent = (-0.28, 0.09, 0.001, -0.0005, 0.0)
    seen = [
        replace(view, pixels=cv2.projectPoints(poses[view.name].apply(view.points_in_board_m), np.zeros(3), np.zeros(3),
                                               matrix, np.array(bent))[0].reshape(-1, 2))
        for view in views.views
    ]  # fmt: skip
    views = replace(views, views=tuple(seen))
    found = calibrate_intrinsics(views, "distorted").intrinsics
    assert abs(found.fx / LENS.fx - 1.0) < 1e-3
    np.testing.assert_allclose(found.distortion[:4], bent[:4], atol=5e-3)
    with pytest.raises(CalibrationError, match=r"misses the corners by .* Raw images of a lens need --lens distorted"):
        calibrate_intrinsics(views, "rectified")
    save_site(tmp_path / "c.yaml", CameraSite("c", "", found, (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)))
    with pytest.raises(Exception, match="a lens that distorts"):
        mount_of(load_site(tmp_path / "c.yaml"), "c.yaml")


def test_views_that_do_not_tell_a_lens_are_refused_with_what_is_missing():
    poses = lens_poses(BOARD)
    few = ideal_views({str(i): pose for i, pose in enumerate(poses[:5])})
    with pytest.raises(CalibrationError, match=r"5 images show the board, expected at least 8"):
        calibrate_intrinsics(few)
    middle = {str(i): facing(BOARD, (0.0, 0.0, 1.5), 0.5, float(i)) for i in range(9)}
    with pytest.raises(CalibrationError, match=r"hold the board also to the top left, top right, bottom left"):
        calibrate_intrinsics(ideal_views(middle))
    flat = {str(i): facing(BOARD, pose.pos_m * [0.7, 0.7, 1.0] + [0.1, 0.1, 0.0]) for i, pose in enumerate(poses)}
    with pytest.raises(CalibrationError, match=r"tilted by 0 degrees at most, expected 20"):
        calibrate_intrinsics(ideal_views(flat))
    shaken = ideal_views({str(i): pose for i, pose in enumerate(poses)}, scatter_px=4.0)
    with pytest.raises(CalibrationError, match=r"misses the corners by .* the worst image is"):
        calibrate_intrinsics(shaken)


def test_a_wrong_board_is_named(lens_images, tmp_path):
    folder = save(tmp_path / "i", {name: lens_images[name] for name in ("00.png", "06.png")})
    for board, what in (
        (replace(BOARD, dictionary="4x4_100"), "of another family: dictionary=5x5_50"),
        (replace(BOARD, cols=4, rows=3), "It shows markers 0 to 23, the board has 0 to 5: check cols and rows"),
    ):
        with pytest.raises(CalibrationError, match=what):
            find_views(image_paths(folder), board)
    save(folder, {"07.png": np.full((480, 640), 128, np.uint8)})
    assert find_views(image_paths(folder), BOARD).unusable == ("07.png",)
    empty = save(tmp_path / "e", {"a.png": np.full((480, 640), 128, np.uint8)})
    with pytest.raises(CalibrationError, match="no markers of any known family"):
        find_views(image_paths(empty), BOARD)
    save(folder, {"08.png": np.zeros((100, 200), np.uint8)})
    with pytest.raises(CalibrationError, match=r"08.png has 200 x 100 pixels, the images before it 640 x 480"):
        find_views(image_paths(folder), BOARD)
    (folder / "09.png").write_text("no picture")
    (folder / "08.png").unlink()
    with pytest.raises(CalibrationError, match="is no image that OpenCV reads"):
        find_views(image_paths(folder), BOARD)
    with pytest.raises(CalibrationError, match="There is no folder of images"):
        image_paths(tmp_path / "x")


# -- cameras on the base -----------------------------------------------------------------------------------------------

FLOOR = [pose_of_rpy((0.7 + 0.05 * i, 0.16 - 0.03 * i, -0.3, np.pi, 0.0, -np.pi / 2 + 0.2 * i)) for i in range(4)]
"""Boards on the floor in front of a robot, their top edges far from it."""


def floor_images():
    return {
        f"{i}.png": render(BOARD, LENS, CAMERA_IN_BASE.inverse() @ pose, seed=40 + i) for i, pose in enumerate(FLOOR)
    }


def test_a_camera_is_found_on_the_base_from_boards_on_the_floor(tmp_path, capsys):
    save_site(tmp_path / "front.yaml", CameraSite("front", "0042", LENS))
    folder = save(tmp_path / "floor", floor_images())
    entries = {}
    for i, pose in enumerate(FLOOR):
        entries[f"{i}.png"] = {"quat_pose": [*pose.pos_m.tolist(), *quat_of_matrix(pose.rotation)]}
    (tmp_path / "poses.yaml").write_text(json.dumps({"images": entries}))
    arguments = ["calibrate", "camera", "mounted", "--images", str(folder), "--site", str(tmp_path / "front.yaml")]
    board = ["--board", BOARD.text, "--json", str(tmp_path / "r.json")]
    assert main([*arguments, "--poses", str(tmp_path / "poses.yaml"), *board]) == 0
    assert "degrees down" in capsys.readouterr().out
    site = load_site(tmp_path / "front.yaml")
    error_m = np.linalg.norm(np.array(site.pos_camera_in_base_m) - CAMERA_IN_BASE.pos_m)
    error_rad = angle_between(rotation_matrix(np.array([site.quat_camera_to_base_wxyz]))[0], CAMERA_IN_BASE.rotation)
    print(f"position error {1e3 * error_m:.2f} mm, angle error {np.degrees(error_rad):.3f} degrees")
    assert error_m < 0.002
    assert error_rad < np.radians(0.15)
    assert json.loads((tmp_path / "r.json").read_text())["views"] == 4
    mount = mount_of(site, "front.yaml")  # What a depth source reads.
    assert mount.serial == "0042"
    assert mount.calibrated.fx == LENS.fx
    # One pose for all images, where each shows another: refused, with the image that is furthest off.
    one = "0.7 0.16 -0.3 3.14159265 0 -1.57079633"
    assert main([*arguments, "--board-pose", one, *board]) == 2
    assert "The views do not agree" in (text := capsys.readouterr().err)
    assert "Wrong poses" in text
    assert main([*arguments, "--board-pose", "1 2 3", *board]) == 2
    assert "expected six numbers" in capsys.readouterr().err
    assert main([*arguments, *board]) == 2
    assert "Give --board-pose" in capsys.readouterr().err


def test_mounted_refuses_too_few_views_and_images_of_another_size():
    inside = CAMERA_IN_BASE.inverse()
    views = ideal_views({str(i): inside @ pose for i, pose in enumerate(FLOOR)})
    known = {str(i): pose for i, pose in enumerate(FLOOR)}
    with pytest.raises(CalibrationError, match=r"2 images show the board at a known pose.* No pose is given for: 2, 3"):
        calibrate_mounted(views, LENS, {"0": known["0"], "1": known["1"]})
    with pytest.raises(CalibrationError, match="have 640 x 480 pixels, the camera's intrinsics are of 848 x 480"):
        calibrate_mounted(views, replace(LENS, width=848), known)


# -- hand-eye ----------------------------------------------------------------------------------------------------------


def hands(count=12, seed=3, axes=3):
    """Poses of an arm's tool that turn about all axes, or about one."""
    rng = np.random.default_rng(seed)
    turns = rng.uniform(-0.5, 0.5, (count, 3)) * ([1, 1, 1] if axes == 3 else [0, 0, 2])
    base = pose_of_rpy((0.3, 0.0, 0.35, 0.0, np.pi, 0.0))
    return [Pose(base.rotation @ turn_of(turn), base.pos_m + rng.uniform(-0.06, 0.06, 3)) for turn in turns]


CAMERA_IN_TOOL = pose_of_rpy((0.05, -0.01, 0.04, 0.1, -0.2, 1.5))


def seen_from(hand, board_in_base):
    return (hand @ CAMERA_IN_TOOL).inverse() @ board_in_base


@pytest.mark.parametrize("camera", ["moving", "fixed"])
def test_hand_eye_finds_the_camera_exactly_and_within_the_scatter(camera):
    tool_poses = hands()
    middle = seen_from(tool_poses[0], Pose(np.eye(3), np.zeros(3)))
    board_in_base = middle.inverse() @ facing(BOARD, (0.0, 0.0, 0.4), 0.3)
    boards = {str(i): seen_from(hand, board_in_base) for i, hand in enumerate(tool_poses)}
    told = {str(i): hand if camera == "moving" else hand.inverse() for i, hand in enumerate(tool_poses)}
    start = closed_form(tool_poses, list(boards.values()))
    assert np.linalg.norm(start.pos_m - CAMERA_IN_TOOL.pos_m) < 1e-9
    for scatter_px, bound_m, bound_rad in ((0.0, 1e-6, 1e-6), (0.3, 1.5e-3, 2e-3)):
        found, board = calibrate_hand_eye(ideal_views(boards, scatter_px), LENS, told, camera)
        error_m = np.linalg.norm(found.pose.pos_m - CAMERA_IN_TOOL.pos_m)
        error_rad = angle_between(found.pose.rotation, CAMERA_IN_TOOL.rotation)
        print(f"{scatter_px} px: {1e3 * error_m:.4f} mm, {np.degrees(error_rad):.4f} degrees")
        assert error_m < bound_m
        assert error_rad < bound_rad
        assert np.linalg.norm(board.pos_m - board_in_base.pos_m) < 2.0 * bound_m


def test_hand_eye_refuses_what_does_not_tell():
    board = Pose(np.eye(3), np.array([0.3, 0.0, 0.0]))
    for poses, what in (
        (hands(axes=1), "turn about one axis alone"),
        ([Pose(np.eye(3), np.array([0.01 * i, 0, 0.3])) for i in range(10)], "turn by less than 15 degrees"),
        (hands(count=5), "5 images show the board at a known pose, expected at least 8"),
    ):
        views = ideal_views({str(i): seen_from(hand, board) for i, hand in enumerate(poses)})
        with pytest.raises(CalibrationError, match=what):
            calibrate_hand_eye(views, LENS, {str(i): hand for i, hand in enumerate(poses)})
    poses = hands()
    views = ideal_views({str(i): seen_from(hand, facing(BOARD, (0.3, 0, 0))) for i, hand in enumerate(poses)})
    mixed = {str(i): poses[(i + 1) % len(poses)] for i in range(len(poses))}
    with pytest.raises(CalibrationError, match="The views do not agree"):
        calibrate_hand_eye(views, LENS, mixed)
    with pytest.raises(UnknownNameError, match="Did you mean 'moving'"):
        calibrate_hand_eye(views, LENS, mixed, "movin")


def test_the_command_finds_a_wrist_camera_from_an_arms_joints(tmp_path, capsys):
    """Images rendered at joint angles of the YAM, by its own kinematics."""
    spec = robot_spec("yam")
    kinematics = ArmKinematics(spec.body, np.zeros(1))
    rng = np.random.default_rng(11)
    home = np.array([0.0, 1.0, 1.2, 0.0, 0.0, 0.0])[: len(spec.body.joint_names)]
    joints = home + rng.uniform(-0.2, 0.2, (12, len(home)))
    pos, rotation = kinematics.forward(joints)
    tools = [Pose(turn, place) for turn, place in zip(rotation, pos, strict=True)]
    board_in_base = tools[0] @ CAMERA_IN_TOOL @ facing(BOARD, (0.0, 0.0, 0.55), 0.35, 0.5)
    images, entries = {}, {}
    for i, tool in enumerate(tools):
        images[f"{i}.png"] = render(BOARD, LENS, (tool @ CAMERA_IN_TOOL).inverse() @ board_in_base, seed=i)
        entries[f"{i}.png"] = {"joints": joints[i].tolist()}
    save(tmp_path / "wrist", images)
    (tmp_path / "poses.yaml").write_text(json.dumps({"images": entries}))
    save_site(tmp_path / "wrist.yaml", CameraSite("wrist", "", LENS))
    result = main(
        ["calibrate", "camera", "hand-eye", "--images", str(tmp_path / "wrist"), "--site", str(tmp_path / "wrist.yaml"),
         "--poses", str(tmp_path / "poses.yaml"), "--robot", "yam", "--board", BOARD.text, "--json", "-"]
    )  # fmt: skip
    printed = capsys.readouterr()
    assert result == 0, printed.err
    found = json.loads(printed.out)
    error_m = np.linalg.norm(np.array(found["pos_m"]) - CAMERA_IN_TOOL.pos_m)
    turn = rotation_matrix(np.array([found["quat_wxyz"]]))[0]
    error_rad = angle_between(turn, CAMERA_IN_TOOL.rotation)
    print(f"{found['views']} views: {1e3 * error_m:.2f} mm, {np.degrees(error_rad):.3f} degrees")
    assert error_m < 0.003
    assert error_rad < np.radians(0.3)
    assert found["mounted_on"] == "tool"
    with pytest.raises(Exception, match="which moves; a map needs one on the base"):
        mount_of(load_site(tmp_path / "wrist.yaml"), "wrist.yaml")


def test_files_of_poses_are_read_strictly(tmp_path):
    path = tmp_path / "p.yaml"
    for text, what in (
        ("a: 1", "holds no poses"),
        ("images: {a: {pose: [1, 2]}}", "expected 6 numbers"),
        ("images: {a: {posse: [1, 2]}}", "Did you mean 'pose'"),
        ("images: {a: {joints: [1, 2]}}", "--robot says of which arm"),
        ("images: {a: {quat_pose: [0, 0, 0, 2, 0, 0, 0]}}", "the quaternion has length 2"),
        ("images: {a: 3}", "expected one of pose"),
    ):
        path.write_text(text)
        with pytest.raises(CalibrationError, match=what):
            read_poses(path)
    with pytest.raises(CalibrationError, match="There is no file of poses"):
        read_poses(tmp_path / "q.yaml")


def test_the_picture_of_a_board_is_detected_as_itself():
    board = BoardCfg("aprilgrid", 4, 3, 0.05, 0.04)
    view = Detector(board).view(picture_of(board, 2000.0, 0.03), "a")
    assert len(view.pixels) == 4 * 12
