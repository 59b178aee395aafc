"""``gantry inspect`` and ``gantry run`` on real bundles and real backends."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import update_card
from gantry_deploy.cli import main as cli
from gantry_deploy.contract.parts import Acceptance
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.evaluation.scenario import RolloutConfig
from gantry_deploy.recording.reader import read_recording
from gantry_deploy.testing.legs import contract_for, tiny_bundle
from gantry_fixtures.drive import drive_bundle, drive_contract_for
from gantry_fixtures.training import needs
from gantry_hardware.robots import robot_spec

ACCEPTANCE = Acceptance(min_success_rate=0.8)


@pytest.fixture(scope="module")
def contract():
    gains = {"stiffness_nm_rad": (31.0,) * 12, "damping_nm_s_rad": (0.7,) * 12}
    return contract_for(robot_spec("go2"), **gains)


@pytest.fixture
def bundle(tmp_path, contract):
    """A policy that commands its default pose and swings its legs."""
    weight = np.zeros((contract.observation_size, contract.action_size))
    return tiny_bundle(tmp_path / "bundle", contract, weight=weight).path


def run(capsys, *argv):
    code = cli.main([str(word) for word in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_inspect_shows_every_part(bundle, contract, capsys):
    update_card(bundle, {"falls": 0.01, "speed": {"mean_m_s": 0.5}})
    code, out, err = run(capsys, "inspect", bundle)
    assert (code, err) == (0, "")
    words = [line.split() for line in out.splitlines()]
    thigh = next(line for line in words if line[:1] == ["FL_thigh_joint"])
    assert thigh[2:] == ["-1.571", "3.491", "31", "0.7", "23.7", "0.25", thigh[1]]
    assert float(thigh[1]) == pytest.approx(contract.default_pos_rad[contract.joint_names.index("FL_thigh_joint")])
    assert ["joint_vel", "18:30", "12", "1", "0.05", "±20", "state/joint/velocity", "rad/s"] in words
    assert ["velocity_command", "42:45", "3", "1", "1"] in [line[:5] for line in words]
    assert ["lin_vel_y_base_m_s", "-0.5", "0.5"] in words
    assert ["frequency_hz", "2"] in words
    assert ["max_fall_rate", "0.02"] in words
    assert "min_success_rate" not in out
    assert ["speed.mean_m_s", "0.5"] in words
    assert "go2 (legs), 50 Hz, fits the one installed here" in out
    assert "4 files, every SHA-256 verified; not signed" in out


def test_inspect_shows_of_a_car_what_means_something_for_one(tmp_path, capsys):
    bundle = drive_bundle(tmp_path / "bundle", drive_contract_for(robot_spec("bmw_320i"), acceptance=ACCEPTANCE))
    of_a_check = {"acceptance": asdict(ACCEPTANCE), "conditions": asdict(RolloutConfig())}
    update_card(bundle.path, {"check": of_a_check, "friction": 3})
    code, out, _ = run(capsys, "inspect", bundle.path, "--json", tmp_path / "all.json")
    assert code == 0
    words = [line.split() for line in out.splitlines()]
    assert ["min_success_rate", "0.8"] in words
    assert ["check.acceptance.min_success_rate", "0.8"] in words
    assert ["check.conditions.noise", "1"] in words
    assert ["friction", "3"] in words  # somebody else's entry
    for legged in ("max_fall_rate", "max_lin_vel_error", "conditions.friction", "added_mass_share", "resample_s"):
        assert legged not in out
    assert json.loads((tmp_path / "all.json").read_text())["contract"]["acceptance"]["max_fall_rate"] == 0.02


@pytest.mark.parametrize(("name", "sliding"), [("yam-tell", "left_finger"), ("go2-walk", None)])
def test_inspect_names_joints_that_slide(name, sliding, capsys):
    _, out, _ = run(capsys, "inspect", f"pretrained:{name}")
    named = [line.split(": ")[1].strip() for line in out.splitlines() if "Sliding joints" in line]
    assert named == ([] if sliding is None else [sliding])


def test_inspect_as_json(bundle, contract, capsys):
    code, out, _ = run(capsys, "inspect", bundle, "--json", "-")
    result = json.loads(out)
    assert code == 0
    assert PolicyContract.from_json(json.dumps(result["contract"])) == contract
    assert result["observation_layout"][2] == {"name": "joint_pos", "start": 6, "stop": 18}
    assert result["observation_layout"][-1]["stop"] == result["observation_size"] == contract.observation_size
    assert result["robot_check"] == "fits"
    assert sorted(result["files"]) == ["contract.json", "golden.npz", "policy.onnx"]


def test_inspect_warns_of_a_robot_that_does_not_fit(tmp_path, capsys):
    bundle = tiny_bundle(tmp_path / "bundle")
    code, out, _ = run(capsys, "inspect", bundle.path)
    assert code == 0
    assert "WARNING" in out
    known = "bmw_320i, cartpole, cartpole_mjlab, f1tenth, f1tenth_vesc, g1, go1, go2, rover, yam"
    assert f"Unknown robot 'tiny'. Available: {known}." in " ".join(out.split())


def test_a_changed_bundle_is_one_message(bundle, capsys):
    model = bundle / "policy.onnx"
    data = bytearray(model.read_bytes())
    data[100] ^= 1
    model.write_bytes(data)
    for command in ("inspect", "run"):
        code, out, err = run(capsys, command, bundle)
        assert (code, out) == (2, "")
        assert "policy.onnx" in err
        assert err.count("\n") == 1


def test_run_on_the_mock_goes_through_the_modes(bundle, tmp_path, capsys):
    target = tmp_path / "run.json"
    arguments = ("--backend", "mock", "--duration", "3", "--command", "-0.5,0,2", "--json", target)
    code, out, err = run(capsys, "run", bundle, *arguments)
    assert (code, err) == (0, "")
    result = json.loads(target.read_text())
    assert [step["mode"] for step in result["modes"]] == ["STAND", "POLICY", "STAND"]
    stand_s, policy_s, end_s = (step["time_s"] for step in result["modes"])
    assert policy_s - stand_s == pytest.approx(2.0, abs=0.05)
    assert end_s - policy_s == pytest.approx(3.0, abs=0.05)
    assert result["completed"] is True
    assert result["statistics"]["fault"] is None
    # The mock's base stands still, so the errors are the command itself, as limited to the trained range.
    assert result["tracking"] == pytest.approx({"lin_vel_error_m_s": 0.5, "yaw_rate_error_rad_s": 1.0})
    assert "note: ang_vel_z_base_rad_s 2 is outside the trained range [-1, 1]" in out
    # A policy without a map, on a clock that waits for the loop: nothing to say about either.
    rows = {line.split()[0] for line in out.splitlines() if len(line.split()) == 4}
    assert {"busy", "read", "infer"} <= rows
    assert not {"map", "jitter", "period"} & rows


def test_run_records_every_tick(bundle, tmp_path, contract, capsys):
    path = tmp_path / "run.mcap"
    code, out, _ = run(capsys, "run", bundle, "--backend", "mock", "--duration", "1", "--record", path, "--json", "-")
    assert code == 0
    result = json.loads(out)
    recording = read_recording(path)
    assert recording.contract == contract
    assert result["recording"]["dropped"] == 0
    assert len(recording.topics["/gantry/status"]["mode"]) == result["statistics"]["ticks"]
    assert len(recording.topics["/policy/action"]["data"]) in (50, 51)


@needs("mujoco")
def test_run_in_mujoco(bundle, capsys):
    arguments = ("--duration", "1", "--option", "visuals=false", "--option", "noise=1.0")
    code, out, _ = run(capsys, "run", bundle, *arguments)
    assert code == 0
    assert out.splitlines()[-1] == "completed"


def test_a_fault_is_told_and_is_exit_code_1(tmp_path, contract, capsys):
    # Finite at rest, infinite as soon as both components of the command are at their limits.
    weight = np.zeros((contract.observation_size, 12))
    weight[[42, 44], 4] = 3e38
    bundle = tiny_bundle(tmp_path / "overflow", contract, weight=weight)
    code, out, _ = run(capsys, "run", bundle.path, "--backend", "mock", "--command", "1,0,1")
    assert code == 1
    damp = next(line for line in out.splitlines() if "DAMP" in line)
    assert contract.joint_names[4] in damp
    assert "2.0" in damp.split()[0]
    assert "NOT completed" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--backend", "mujocco"), "Unknown robot backend 'mujocco'. Did you mean 'mujoco'?"),
        (("--backend", "mock", "--option", "realtimes=true"), "Did you mean 'realtime'?"),
        (("--safety", "max_tilt=1"), "Unknown safety setting 'max_tilt'. Did you mean 'max_tilt_rad'?"),
        (("--safety", "max_tilt_rad=steep"), "Safety setting max_tilt_rad is 'steep', expected a number from 0.05 to"),
        (("--safety", "limit_ticks=true"), "Safety setting limit_ticks is True, expected a whole number from 1 to 50."),
        (("--command", "0.5,0"), "--command 0.5,0 has 2 numbers, expected 3: lin_vel_x_base_m_s"),
        (("--duration", "0"), "--duration is 0.0, expected a number from 0.001 to 2.592e+06."),
        (("--duration", "inf"), "--duration is inf, expected a number from"),
        (("--duration", "nan"), "--duration is nan, expected a number from"),
        (("--duration", "1e308"), "--duration is 1e+308, expected a number from"),
        (("--record", "no/such.mcap"), "Argument --record: folder 'no' does not exist."),
        (("--record", "run.txt"), "Argument --record: 'run.txt' does not end in .mcap."),
        (("--backend", "mock", "--mapping", "no.yaml"), "--mapping: there is no file no.yaml."),
        (
            ("--backend", "mock", "--option", "realtime=yes"),
            "'realtime' of backend 'mock' is 'yes', expected true or",
        ),
        pytest.param(
            ("--backend", "ros"),
            "Backend 'ros' may move a real robot: it would stand up and walk 20 s by itself.",
            marks=needs("rclpy"),
        ),
    ],
)
def test_mistakes_are_refused_before_anything_moves(bundle, capsys, argv, message):
    code, out, err = run(capsys, "run", bundle, *argv)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_the_process_ends_the_run_in_order(bundle, number):
    command = [sys.executable, "-u", "-m", "gantry_deploy.cli.main", "run", str(bundle)]
    process = subprocess.Popen(
        [*command, "--backend", "mock", "--real-time", "--duration", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stdout:
        if "STAND" in line:
            break
    time.sleep(0.1)
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "Interrupted.\n")
    assert out.endswith(f"DAMP: stopped by {'Ctrl-C' if number == signal.SIGINT else 'SIGTERM'}\n")


def test_a_recording_that_is_lost_is_an_exit_code_and_the_last_line(bundle, tmp_path, capsys):
    """A full disk stops the recording, not the robot; who looks at the exit code or the end of the output sees it."""
    full = tmp_path / "full.mcap"
    full.symlink_to("/dev/full")
    report = tmp_path / "report.json"
    args = ("run", bundle, "--backend", "mock", "--duration", "1", "--json", report)
    code, out, _ = run(capsys, *args, "--record", full)
    assert code == 1
    last = out.strip().splitlines()[-1]
    assert last.startswith("completed, but the recording is NOT complete: The recording")
    assert "No space left on device" in last
    written = json.loads(report.read_text())
    assert written["completed"] is True
    assert "No space left on device" in written["recording"]["failure"]
    code, out, _ = run(capsys, *args, "--record", tmp_path / "kept.mcap")
    assert (code, out.strip().splitlines()[-1]) == (0, "completed")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", ""], "Argument BUNDLE: is empty, as a shell variable is that was not set."),
        (["inspect", "pretrained:go2-walk", "--json", ""], "Argument --json: is empty"),
        (["data", "info", ""], "Argument FOLDER: is empty"),
        (["check", "pretrained:go2-walk", "--seed", "-1"], "'-1' is no whole number from 0 to 4294967295"),
        (["check", "pretrained:go2-walk", "--seed", "9" * 5000], "is no whole number from 0 to 4294967295"),
        (["check", "pretrained:go2-walk", "--episodes", "1" + "0" * 30], "expected a number from 1 to 100000"),
        (["check", "pretrained:go2-walk", "--seconds", "1e308"], "--seconds is 1e+308, expected a number from 0.001"),
        (["check", "pretrained:go2-walk", "--noise", "nan"], "--noise is nan, expected a number from 0 to 100"),
        pytest.param(
            ["run", "pretrained:go2-walk", "--option", "seed=-1"],
            "Option 'seed' of backend 'mujoco' is -1",
            marks=needs("mujoco"),
        ),
        (
            ["run", "pretrained:go2-walk", "--backend", "mock", "--mapping", __file__],
            "--mapping: this policy looks at no map",
        ),
        (["launch", "sim_walk", "bundle:=pretrained:go2-walk", "discovery_range:=SUBNETT"], "Did you mean 'SUBNET'?"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_loaded(words, message, capsys):
    pytest.importorskip("gantry_sim")
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said) < 1000


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_process_without_standard_streams_does_its_work(tmp_path, streams):
    result = tmp_path / "result.json"
    words = f"'{sys.executable}' -m gantry_deploy.cli.entry inspect pretrained:go2-walk --json '{result}' {streams}"
    assert subprocess.run(["sh", "-c", words]).returncode == 0
    assert json.loads(result.read_text())
