"""Watching a policy: the keyboard, the course of a live walk, pictures with arrows, and the film."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from gantry_deploy.cli.main import main
from gantry_deploy.contract.policy_contract import CommandSpec
from gantry_deploy.control.safety import Mode
from gantry_deploy.testing.legs import contract_for, tiny_bundle
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_sim.viewing.play import BACK_KEYS, STOP_KEYS, Keyboard, LiveWalk
from gantry_sim.viewing.replay import Poses, film, frame_times

GO2 = robot_spec("go2")
UP, LEFT, RIGHT = 265, 263, 262
TRAINED = CommandSpec("command/body/velocity", ("x", "y", "yaw"), (-1.0, -0.5, -1.0), (1.0, 0.5, 1.0), (0.0,) * 3)


def poses(command=(0.0, 0.0, 0.0), rows=11):
    return Poses(
        time_s=10.0 + 0.1 * np.arange(rows),
        pos_base_in_world_m=np.tile([0.0, 0.0, GO2.base_height_m], (rows, 1)),
        quat_base_to_world_wxyz=np.tile([1.0, 0.0, 0.0, 0.0], (rows, 1)),
        joint_pos_rad=np.tile(GO2.array("default_rad"), (rows, 1)),
        command=np.tile(command, (rows, 1)),
        velocity=np.zeros((rows, 3)),
    )


def first_picture(walk):
    try:
        return next(film(GO2, walk, 10.0, (640, 360))).astype(int)
    except GantryError as error:
        pytest.skip(str(error))


def test_keys_add_up_and_stay_within_what_was_trained():
    said = []
    keyboard = Keyboard(TRAINED, said.append)
    for _ in range(3):
        keyboard.press(UP)
    keyboard.press(LEFT)
    assert keyboard.command.tolist() == [0.3, 0.0, 0.1]
    assert said[-1] == "+0.3 m/s ahead, +0.0 m/s left, +0.1 rad/s"
    for _ in range(40):
        keyboard.press(UP)
        keyboard.press(ord("9"))
        keyboard.press(RIGHT)
    assert keyboard.command.tolist() == [1.0, -0.5, -1.0]
    keyboard.press(ord("W"))  # The viewer's own.
    assert keyboard.command.tolist() == [1.0, -0.5, -1.0]
    keyboard.press(STOP_KEYS[0])
    assert keyboard.command.tolist() == [0.0, 0.0, 0.0]


def test_a_live_walk_stands_up_walks_and_is_put_back(tmp_path):
    bundle = tiny_bundle(tmp_path / "bundle", contract_for(GO2))
    live = LiveWalk(bundle, {"realtime": False, "visuals": False}, lambda text: None)
    live.robot.connect()
    live.robot.reset(pos_xy_m=(3.0, 0.0))
    modes = []

    def on_tick(report):
        modes.append(report.mode)
        live.advance(report)

    live.controller.run(duration_s=3.0, on_tick=on_tick)
    assert list(dict.fromkeys(modes)) == [Mode.PASSIVE, Mode.STAND, Mode.POLICY]
    assert live.robot.pos_base_in_world_m[0] == pytest.approx(3.0, abs=0.2)
    live.keyboard.press(BACK_KEYS[0])
    live.controller.run(duration_s=0.5, on_tick=on_tick)
    assert modes[-1] is Mode.STAND
    assert live.robot.pos_base_in_world_m[0] == pytest.approx(0.0, abs=0.2)
    assert not live.keyboard.wants_back


def test_a_fallen_robot_is_shown_lying_and_then_put_back(tmp_path):
    bundle = tiny_bundle(tmp_path / "bundle", contract_for(GO2))
    said = []
    live = LiveWalk(bundle, {"realtime": False, "visuals": False}, said.append)
    live.robot.connect()
    live.controller.run(duration_s=3.0, on_tick=live.advance)
    live.robot.set_velocity(np.array([0.0, 0.0, 3.0]), np.array([8.0, 0.0, 0.0]))
    modes = []

    def on_tick(report):
        modes.append(report.mode)
        live.advance(report)

    live.controller.run(duration_s=5.5, on_tick=on_tick)
    assert any(text.startswith("damped: ") for text in said)
    assert modes.count(Mode.DAMP) >= 100  # Two seconds.
    assert modes[-1] in (Mode.STAND, Mode.POLICY)
    assert not live.robot.has_fallen


def test_film_is_in_real_time():
    times = frame_times(poses(), 25.0)
    assert len(times) == 26  # One second, both ends.
    assert times[0] == 10.0
    assert times[-1] == pytest.approx(11.0)


def test_an_arrow_shows_what_was_asked():
    still, asked = first_picture(poses()), first_picture(poses((1.0, 0.0, 0.0)))
    assert still.shape == (360, 640, 3)
    # The words above change as well; orange is the arrow's alone.
    orange = [(image[..., 0] - image[..., 2] > 80).sum() for image in (still, asked)]
    assert orange[0] == 0
    assert orange[1] > 20


def test_without_a_display_the_way_out_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    tiny_bundle(tmp_path / "bundle", contract_for(GO2))
    assert main(["play", str(tmp_path / "bundle")]) == 2
    assert "--video FILE" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["play", str(tmp_path / "empty")]) == 2  # A place without a policy comes first.
    assert "is no bundle" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--video", "no/such/walk.mp4"], "does not exist"),
        (["--video", "walk.txt"], "'walk.txt' does not end in .mp4"),
        (["--attention", "--report", "walk.pdf"], "'walk.pdf' does not end in .html"),
        (["--video", "walk.mp4", "--seconds", "0"], "--seconds is 0"),
        (["--video", "walk.mp4", "--command", "1,2"], "expected 3"),
        (["--video", "walk.mp4", "--seconds", "1", "--option", "frictoin=1"], "friction"),
    ],
)
def test_mistakes_are_named(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    tiny_bundle(tmp_path / "bundle", contract_for(GO2))
    assert main(["play", "bundle", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "walk.mp4").exists()


@pytest.mark.slow
def test_film_of_one_command(tmp_path):
    first_picture(poses())  # Skips where nothing can be drawn.
    tiny_bundle(tmp_path / "bundle", contract_for(GO2))
    video, result = tmp_path / "walk.mp4", tmp_path / "result.json"
    arguments = ["--video", str(video), "--command", "0.1,0,0", "--seconds", "1", "--json", str(result)]
    assert main(["play", str(tmp_path / "bundle"), *arguments]) == 0
    assert video.read_bytes()[4:8] == b"ftyp"
    assert json.loads(result.read_text())["completed"] is True


def test_a_machine_that_cannot_draw_is_told_so_in_one_message(tmp_path):
    """In a process of its own, since a process settles once and for all how it draws."""
    code = """
import numpy as np
from gantry_hardware.robots import robot_spec
from gantry_sim.viewing.replay import Poses, film
row = np.zeros((2, 3))
poses = Poses(np.arange(2.0), row, np.tile([1.0, 0, 0, 0], (2, 1)), np.zeros((2, 12)), row, row)
from gantry_hardware.errors import GantryError
try:
    next(film(robot_spec("go2"), poses, 1.0))
except GantryError as error:
    print("refused:", error)
"""
    environment = {**os.environ, "__EGL_VENDOR_LIBRARY_DIRS": str(tmp_path), "MUJOCO_GL": "egl"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0
    assert done.stdout.startswith("refused: Cannot draw off screen here")
    assert done.stderr == ""
