"""The commands ``gantry doctor`` and ``gantry audit``: exit codes, JSON, and what they refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gantry_deploy.cli.main import main
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import SafetyConfig, SafetyMachine
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.recorder import Recorder
from gantry_deploy.testing.legs import contract_for, tiny_bundle
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.robots import robot_spec

SPEC = robot_spec("go2")


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """A bundle for a Go2, and a recording of it on a robot without physics."""
    folder = tmp_path_factory.mktemp("walk")
    bundle = tiny_bundle(folder / "bundle", contract_for(SPEC))
    robot = MockRobot(SPEC)
    robot.connect()
    with Recorder(folder / "walk.mcap", bundle.contract, SPEC, lossless=True) as recorder:
        safety = SafetyMachine(SPEC, SafetyConfig(stand_duration_s=0.1))
        loop = Controller(robot, PolicyRunner(bundle, SPEC), safety, recorder)
        loop.request("stand")
        loop.run(0.2)
        loop.request("start")
        loop.run(0.5, lambda t: (0.5, 0.1 * np.sin(t), t))
    return folder


def test_a_robot_is_read_and_not_commanded(capsys):
    assert main(["doctor", "go2", "--backend", "mock", "--seconds", "0.5"]) == 0
    told = capsys.readouterr().out
    assert "nothing is commanded" in told
    assert "0 wrong" in told
    assert "cannot tell" in told


def test_a_recording_and_its_bundle(walk, tmp_path, capsys):
    out = tmp_path / "audit.json"
    assert main(["audit", str(walk / "walk.mcap"), str(walk / "bundle"), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["findings"] == []
    other = tiny_bundle(
        tmp_path / "other", contract_for(SPEC, default_pos_rad=(0.1,) * 2 + (-1.5,) + (0.1, 0.9, -1.8) * 3)
    )
    assert main(["audit", str(walk / "walk.mcap"), str(other.path)]) == 1
    told = capsys.readouterr().out
    assert "WRONG  joint_pos" in told
    assert "numbers are shifted" in told
    assert main(["doctor", str(walk / "walk.mcap")]) in (0, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["doctor", "go3"], "Unknown robot 'go3'. Did you mean 'go2'"),
        (["doctor", "go2", "--backend", "mok"], "Unknown robot backend 'mok'. Did you mean 'mock'"),
        (["doctor", "nowhere.mcap"], "There is no recording nowhere.mcap"),
        (["doctor", "go2", "--backend", "mock", "--seconds", "0"], "--seconds is 0"),
        (["audit", "nowhere.mcap", "pretrained:go2-walk"], "There is no recording nowhere.mcap"),
    ],
)
def test_what_is_refused(arguments, words, capsys):
    assert main(arguments) == 2
    assert words in capsys.readouterr().err.replace("\n", " ")


def test_a_recording_needs_no_backend(walk, capsys):
    assert main(["doctor", str(walk / "walk.mcap"), "--backend", "mock"]) == 2
    assert "a recording needs neither" in capsys.readouterr().err
