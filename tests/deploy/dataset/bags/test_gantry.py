"""Recordings of Gantry become datasets without a mapping, and the numbers are those of the robot."""

import numpy as np
import pytest

from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import SafetyMachine
from gantry_deploy.dataset import Dataset
from gantry_deploy.dataset.bags.convert import convert_bags
from gantry_deploy.dataset.checks.check import check_dataset
from gantry_deploy.dataset.features import JOINT_POSITION_TARGET
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.recorder import Recorder, read_recording
from gantry_deploy.testing.legs import contract_for, tiny_bundle, tiny_robot
from gantry_hardware.backends.mock import MockRobot

SPEC = tiny_robot()


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    robot = MockRobot(SPEC, joint_pos_rad=np.array([0.0, 0.1, 0.2, 0.3]))
    robot.connect()
    with Recorder(folder / "run.mcap", contract_for(SPEC), SPEC, lossless=True) as recorder:
        loop = Controller(robot, PolicyRunner(tiny_bundle(folder / "bundle"), SPEC), SafetyMachine(SPEC), recorder)
        loop.run(0.1)
        loop.request("stand")
        loop.run(2.1)
        loop.request("start")
        loop.run(1.0, lambda t: (0.5, 0.0, t))
    return folder / "run.mcap"


def test_a_recording_needs_no_mapping(recording, tmp_path):
    done = convert_bags([recording], tmp_path / "d")
    assert done.episodes == 1
    dataset, told = Dataset(tmp_path / "d"), read_recording(recording)
    assert (dataset.robot_type, dataset.fps) == ("tiny", round(told.contract.rate_hz))
    assert dataset.features["action"].kind == JOINT_POSITION_TARGET
    assert dataset.features["action"].names == SPEC.joint_names
    frames = dataset.frames(0)
    count = len(frames["action"])
    assert count >= told.contract.rate_hz * 0.9
    policy, sent, seen = (told[name] for name in ("/policy/action", "/joint_command", "/joint_states"))
    first = int(np.searchsorted(sent["time_s"], policy["time_s"][0]))
    rows = slice(first, first + count)
    np.testing.assert_allclose(frames["action"], sent["pos_rad"][rows], rtol=1e-6)
    np.testing.assert_allclose(frames["observation.state"], seen["joint_pos_rad"][rows], rtol=1e-6)
    np.testing.assert_allclose(frames["complementary_info.policy_output"], policy["data"][:count], rtol=1e-6)
    assert check_dataset(tmp_path / "d") == []
