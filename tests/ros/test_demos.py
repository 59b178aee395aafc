"""The whole of a demo over real nodes, a walk on a profile and one to a goal over a map; and the bench of a loop."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.ros, pytest.mark.timed, pytest.mark.slow]
pytest.importorskip("rclpy")

from gantry_deploy.benchmarks.ros import measure_ros_loop  # noqa: E402
from gantry_deploy.contract.policy_contract import GoalVelocitySpec  # noqa: E402
from gantry_deploy.recording.explained import explained_windows  # noqa: E402
from gantry_deploy.recording.reader import read_recording  # noqa: E402
from gantry_deploy.testing.legs import contract_for, map_contract_for, tiny_bundle  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.runtime.availability import child_environment  # noqa: E402

GO2 = robot_spec("go2")

QUICK = ("--seconds", "4", "--check-episodes", "1", "--episodes", "0")


def demo(folder, *arguments):
    """A demo of a policy that only stands, as a process of its own."""
    tiny_bundle(folder / "given", contract_for(GO2))
    command = [sys.executable, "-m", "gantry_deploy.cli.main", "demo", "--bundle", str(folder / "given")]
    command += ["--output", str(folder / "out"), "--json", str(folder / "result.json"), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=child_environment()
    )


def processes_of(folder):
    """Command lines of living processes that name ``folder``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in words and int(path.parent.name) != os.getpid():
                found.append(words)
    return found


def test_demo_over_real_nodes_leaves_a_report_and_no_process(tmp_path):
    process = demo(tmp_path, *QUICK, "--no-video")
    said, _ = process.communicate(timeout=280)
    assert process.returncode == 1, said
    result = json.loads((tmp_path / "result.json").read_text())
    # A machine that is too busy for the robot's clock says so, and walks once more without ROS 2.
    (walk,) = result["rollouts"]
    assert walk["over_ros"] or walk["earlier_attempts"]
    assert walk["ticks"] > 50
    assert Path(result["report"]).read_text().count("<svg") >= 4
    card = json.loads((tmp_path / "out" / "bundle" / "card.json").read_text())
    assert card["check"]["verdict"] == "failed"
    assert not (tmp_path / "given" / "card.json").exists(), "what was given stays as it was"
    assert processes_of(tmp_path) == []


def test_ctrl_c_ends_every_process_and_says_where_things_lie(tmp_path):
    process = demo(tmp_path, "--seconds", "60", "--check-episodes", "1", "--episodes", "0")
    said = ""
    for line in process.stdout:
        said += line
        if "Mode STAND." in line or process.poll() is not None:
            break
    assert len(processes_of(tmp_path)) >= 3, said
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=600)
    assert process.returncode == 130, said + rest
    assert str(tmp_path / "out") in rest
    deadline_s = time.monotonic() + 10.0
    while processes_of(tmp_path) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert processes_of(tmp_path) == []


def test_camera_mapping_policy_and_operator_cross_and_the_recording_explains_what_was_seen(tmp_path):
    """The policy is its gait alone, which walks where the ground is flat."""
    from gantry_sim.tasks.locomotion.robots import legged_robot_cfg

    body = legged_robot_cfg("go2")
    gains = {"stiffness_nm_rad": body.stiffness_nm_rad, "damping_nm_s_rad": body.damping_nm_s_rad}
    # Briskly, and close: the gait alone hardly moves when little is asked of it.
    command = replace(map_contract_for(GO2).command, goal_velocity=GoalVelocitySpec(speed_gain_s=4.0, stop_m=0.1))
    contract = map_contract_for(GO2, gait=body.gait, command=command, **gains)
    weight = np.zeros((contract.observation_size, contract.action_size))
    given = tiny_bundle(tmp_path / "given", contract, weight=weight)
    command = [sys.executable, "-m", "gantry_deploy.cli.main", "demo", "--bundle", str(given.path)]
    command += ["--terrain", "flat", "--goal", "1.2,0,0", "--seconds", "13", "--no-video"]
    command += ["--output", str(tmp_path / "out"), "--json", str(tmp_path / "result.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=child_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    (walk,) = json.loads((tmp_path / "result.json").read_text())["rollouts"]
    assert walk["crossed"]
    assert walk["distance_m"] < 0.5
    assert walk["seconds"] >= 13.0  # It is judged at the end of the time, not on arrival.
    assert walk["map_rate_hz"] > 1.0
    assert walk["rerun_difference"] == 0.0
    print("over ROS 2" if walk["over_ros"] else "in one process, as this machine was too busy for the robot's clock")
    if walk["over_ros"]:
        assert walk["mapping_frames"]["fused"] == walk["timing"]["mapping"]["count"] > 10
        assert 0.0 < walk["real_time"] < 1.1
    page = Path(tmp_path / "out" / "report.html").read_text()
    assert page.count("data:image/png") == 3
    recording = read_recording(walk["recording"])
    explained = explained_windows(recording)
    assert len(explained.time_s) == len(recording["/policy/observation"]["time_s"]) > 50
    assert explained.news.sum() > 10
    assert explained.worst < 1e-5
    assert (walk["explained_windows"], walk["explained_difference"]) == (len(explained.time_s), explained.worst)


def test_the_loop_on_ros_leaves_its_statistics(tmp_path):
    bundle = tiny_bundle(tmp_path / "bundle", contract_for(GO2), hidden=(8,))
    loop = measure_ros_loop(bundle.path, 50.0, 1.0, "sim_walk", {"backend": "mock"}, tmp_path)
    assert loop["timing"]["period"]["count"] > 0
    assert loop["timing"]["infer"]["count"] > 0
