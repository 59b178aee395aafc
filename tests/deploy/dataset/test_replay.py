"""An episode once more: on a robot, as curves of text, as a film, and through ``gantry data``."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from gantry_deploy.cli import main as cli
from gantry_deploy.dataset import Dataset, DatasetWriter, joint_targets_of, vector
from gantry_deploy.dataset.features import JOINT_POSITION_TARGET
from gantry_deploy.dataset.film import film, text_curve
from gantry_deploy.dataset.replay import APPROACH_S, APPROACH_SPEED, replay_episode
from gantry_deploy.dataset.video import video_facts
from gantry_deploy.errors import DatasetError
from gantry_deploy.testing.legs import tiny_robot
from gantry_fixtures.training import needs
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.errors import RobotError
from gantry_hardware.robots import robot_spec

SPEC = tiny_robot()
FPS = 25
TARGETS = 0.1 * np.arange(28, dtype=np.float32).reshape(7, 4) - 0.5  # Up to 2.2 rad; the limit is 2.


def recorded(folder, spec, targets, **changes):
    """An episode of joint positions, its joints in another order than the robot's."""
    order = list(reversed(range(spec.num_joints)))
    feature = {"kind": JOINT_POSITION_TARGET, "unit": "rad", **changes}
    names = [spec.joint_names[index] for index in order]
    with DatasetWriter(folder, FPS, {"action": vector(names, **feature)}, spec.name) as writer:
        for target in targets:
            writer.add_frame({"action": target[order]})
        writer.end_episode("wave")
    return Dataset(folder)


@pytest.fixture
def robot():
    robot = MockRobot(SPEC)
    robot.connect()
    return robot


def test_actions_are_sent_at_the_rate_of_the_dataset_after_a_slow_approach(tmp_path, robot):
    dataset = recorded(tmp_path / "d", SPEC, TARGETS)
    start = robot.read().joint_pos_rad
    replayed = replay_episode(dataset, 0, robot)
    np.testing.assert_allclose(replayed.times_s, np.arange(7) / FPS, atol=1e-9)
    np.testing.assert_allclose(replayed.asked_rad, TARGETS, err_msg="in the robot's order of joints")
    np.testing.assert_allclose(replayed.sent_rad, np.minimum(TARGETS, 2.0))
    assert replayed.limited_frames == 1
    np.testing.assert_allclose(replayed.measured_rad[1:], replayed.sent_rad[:-1])
    poses = np.array([start, *(command.pos_rad for command in robot.commands[:-8])])
    assert len(poses) == 1 + APPROACH_S * FPS
    np.testing.assert_allclose(poses[-1], TARGETS[0])
    assert np.abs(np.diff(poses, axis=0)).max() * FPS <= APPROACH_SPEED * 10.0
    assert robot.now_s() == pytest.approx(APPROACH_S + 7 / FPS)
    last = robot.commands[-1]
    assert (last.stiffness_nm_rad.max(), last.damping_nm_s_rad.min()) == (0.0, 1.0), "damped at the end"


@pytest.mark.parametrize("fault", [lambda robot: robot.freeze(), lambda robot: robot.set_nan()])
def test_a_robot_that_falls_silent_is_damped(tmp_path, robot, fault):
    dataset = recorded(tmp_path / "d", SPEC, np.tile(TARGETS, (2, 1)))

    def at_frame(frame, state):
        if frame == 3:
            fault(robot)

    with pytest.raises(RobotError, match=r"reading is|are not numbers"):
        replay_episode(dataset, 0, robot, on_frame=at_frame)
    assert robot.commands[-1].stiffness_nm_rad.max() == 0.0
    assert len(robot.commands) < APPROACH_S * FPS + 14


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": ""}, "is of kind 'unknown' in 'rad'; only 'target/joint/position' in 'rad'"),
        ({"unit": "deg"}, "in 'deg'"),
    ],
)
def test_actions_that_are_no_joint_positions_are_not_sent(tmp_path, robot, changes, message):
    with pytest.raises(DatasetError, match=message):
        replay_episode(recorded(tmp_path / "d", SPEC, TARGETS, **changes), 0, robot)
    assert robot.commands == []


def test_actions_of_another_robot_are_not_sent(tmp_path):
    robot = MockRobot(robot_spec("go2"))
    robot.connect()
    with pytest.raises(DatasetError, match="The dataset is of robot 'tiny', and this is 'go2'"):
        replay_episode(recorded(tmp_path / "d", SPEC, TARGETS), 0, robot)
    assert robot.commands == []


def test_curves_of_text():
    assert text_curve(np.arange(8.0)) == "▁▂▃▄▅▆▇█"
    assert text_curve(np.array([3.0, 3.0])) == "▁▁"
    assert text_curve(np.repeat([0.0, 7.0, 1.0], 40), width=3) == "▁█▂"


@needs("matplotlib")
def test_a_film_shows_every_frame_of_every_camera(stored, tmp_path):
    path = tmp_path / "film.mp4"
    path.write_bytes(film(Dataset(stored), 2))
    facts = video_facts(path)
    assert (len(facts.frame_times_s), facts.fps) == (8, 20)
    # 240 rows hold 15 times the 16 rows of one camera, and 34 times the 7 of the other.
    assert (facts.height, facts.width) == (240, 15 * 24 + 34 * 9 + 480)


def run(capsys, *argv):
    code = cli.main([str(word) for word in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_info_says_what_a_dataset_holds(stored, capsys):
    code, out, err = run(capsys, "data", "info", stored)
    assert (code, err) == (0, "")
    words = [line.split() for line in out.splitlines()]
    assert ["observation.state", "float32", "3", "rad"] in [line[:4] for line in words]
    assert ["episodes", "4", "(17", "frames,", "0.8", "s)"] in words  # 0.85 s
    assert ["successes", "100.0", "%"] in words
    assert ["frames", "per", "episode", "1", "to", "8,", "median", "4"] in words
    code, out, _ = run(capsys, "data", "info", stored, "--json", "-")
    result = json.loads(out)
    assert (result["success_share"], result["episode_length"]["median"]) == (1, 4)
    assert result["tasks"] == ["push", "lift the cube"]
    assert result["features"]["level"]["max"] == [3]
    assert result["features"]["note"]["shape"] == [1]
    assert result["size_bytes"] == sum(path.stat().st_size for path in stored.rglob("*") if path.is_file())


def test_check_ends_with_1_if_there_is_a_finding_and_repairs_what_was_left_over(stored, tmp_path, capsys):
    assert run(capsys, "data", "check", stored, "--decode")[:2] == (0, f"{stored} is intact\n")
    folder = tmp_path / "d"
    shutil.copytree(stored, folder)
    shutil.copy(folder / "meta/tasks.parquet", folder / "data/chunk-000/file-001.parquet")
    code, out, _ = run(capsys, "data", "check", folder)
    assert code == 1
    assert "data/chunk-000/file-001.parquet: belongs to no episode" in out
    assert "1 finding in" in out
    code, out, _ = run(capsys, "data", "check", folder, "--json", "-")
    assert (code, json.loads(out)["findings"][0]["place"]) == (1, "data/chunk-000/file-001.parquet")
    assert run(capsys, "data", "check", folder, "--repair")[0] == 0


@needs("matplotlib")
def test_replay_shows_films_and_sends(stored, tmp_path, capsys):
    path = tmp_path / "film.mp4"
    code, out, _ = run(capsys, "data", "replay", stored, "--episode", 2, "--video", path)
    assert code == 0
    assert "episode 2: 8 frames, 0.40 s, push" in out
    success = next(line.split() for line in out.splitlines() if line.startswith("next.success"))
    assert success == ["next.success", "0", "1", "▁▁▁▁▁▁▁█"]
    assert len(video_facts(path).frame_times_s) == 8
    spec = robot_spec("go2")
    with DatasetWriter(tmp_path / "go2", FPS, {"action": joint_targets_of(spec)}, "go2") as writer:
        for _ in range(5):
            writer.add_frame({"action": spec.array("default_rad").astype(np.float32)})
        writer.end_episode("stand")
    code, out, _ = run(capsys, "data", "replay", tmp_path / "go2", "--backend", "mock", "--json", "-")
    assert (code, json.loads(out)["robot"]["actions"]) == (0, 5)
    code, _, err = run(capsys, "data", "replay", tmp_path / "go2", "--backend", "ros")
    assert (code, "Give --yes if it has room" in err) == (2, True)
    code, _, err = run(capsys, "data", "replay", tmp_path / "go2", "--backend", "mock", "--robot", "go1")
    assert (code, "The dataset is of robot 'go2', and this is 'go1'" in err) == (2, True)
    code, _, err = run(capsys, "data", "replay", stored, "--backend", "mock", "--feature", "acton")
    assert (code, "Did you mean 'action'" in err) == (2, True)


@pytest.mark.parametrize("module", ["av", "pyarrow"])
def test_a_missing_package_is_one_line_with_its_extra(stored, module):
    code = (
        f"import sys; sys.modules[{module!r}] = None; from gantry_deploy.cli.main import main; "
        f"sys.exit(main(['data', 'info', {str(stored)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert module in done.stderr
    assert "pip install 'gantry-rl[data]'" in done.stderr


def test_what_a_newcomer_gets_wrong_is_answered(tmp_path, stored, capsys):
    code, _, err = run(capsys, "data", "info", f"{stored}x")
    assert (code, "There is no folder" in err, "Did you mean" in err) == (2, True, True)
    code, _, err = run(capsys, "data", "info", tmp_path)
    assert (code, "is no dataset: there is no meta/info.json" in err) == (2, True)
    code, _, err = run(capsys, "data", "replay", stored, "--yes")
    assert (code, "need --backend" in err) == (2, True)
