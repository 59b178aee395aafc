"""Audit of recordings: nothing is said of a sound one, and what a runtime does wrongly is named."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import SafetyConfig, SafetyMachine
from gantry_deploy.diagnosis.audit import audit
from gantry_deploy.diagnosis.findings import FindingKind
from gantry_deploy.errors import RecordingError
from gantry_deploy.observations.builder import make_term
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.recorder import Recorder, read_recording
from gantry_deploy.testing.legs import contract_for, tiny_bundle, tiny_robot
from gantry_hardware.backends.mock import MockRobot

SPEC = tiny_robot()
HIPS = ("left_hip_joint", "right_hip_joint")


class Shaken(MockRobot):
    """A robot whose readings all change in their own way."""

    def read(self):
        state, time_s = super().read(), self.now_s()
        waves = np.sin(np.outer([1.0, 1.7], np.arange(1, 12)) * time_s + np.arange(11))
        roll, yaw = 0.1 * waves[0, 8], 0.5 * math.sin(0.8 * time_s)
        return replace(
            state,
            joint_pos_rad=self.spec.array("default_rad") + 0.1 * waves[0, :4],
            joint_vel_rad_s=waves[1, :4],
            ang_vel_base_in_base_rad_s=waves[0, 4:7],
            quat_base_to_world_wxyz=product(half_turn(2, yaw), half_turn(0, roll)),
        )


def half_turn(axis, angle_rad):
    quat = np.zeros(4)
    quat[0], quat[1 + axis] = math.cos(angle_rad / 2), math.sin(angle_rad / 2)
    return quat


def product(a, b):
    """Hamilton's product of two quaternions, w first."""
    w = a[0] * b[0] - a[1:] @ b[1:]
    return np.array([w, *(a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))])


def recorded(folder, runner, *, stops=False):
    """A second and a half under a policy, in two runs if it is stopped once."""
    path = folder / "run.mcap"
    with Recorder(path, runner.contract, SPEC, lossless=True) as recorder:
        robot = Shaken(SPEC)
        robot.connect()
        loop = Controller(robot, runner, SafetyMachine(SPEC, SafetyConfig(stand_duration_s=0.1)), recorder)
        loop.request("stand")
        loop.run(0.2)
        for part in range(2 if stops else 1):
            loop.request("start")
            loop.run(1.5, lambda t: (0.4 + 0.1 * math.sin(3 * t), 0.2 * math.sin(t + 1), 0.3 - 0.1 * t))
            if stops and part == 0:
                loop.request("stop")
                loop.run(0.2)
    return read_recording(path)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return tiny_bundle(tmp_path_factory.mktemp("bundle") / "bundle")


def broken_by(runner, signals=lambda signals: signals, numbers=lambda seen: seen):
    """Let a runner read its signals, or put its observation together, wrongly."""
    builder = runner._builder

    class Broken:
        reset = builder.reset

        def __call__(self, given):
            return numbers(builder(signals(given)).copy())

    runner._builder = Broken()
    return runner


def findings(diagnosis):
    return {(finding.kind, finding.subject): finding for finding in diagnosis.findings}


@pytest.mark.parametrize("stops", [False, True])
def test_a_sound_recording_is_in_order(bundle, tmp_path, stops):
    found = audit(recorded(tmp_path, PolicyRunner(bundle, SPEC), stops=stops), bundle)
    assert found.findings == []
    assert all(item.judged for item in found.checked)
    assert {item.subject for item in found.checked} >= {"joint_pos", "gait_clock", "last_action", "action", "stiffness"}


@pytest.mark.parametrize("order", ["newest first", "number by number"])
def test_a_history_in_another_order(tmp_path, order):
    terms = (make_term("joint_pos", 4, history=3), make_term("joint_vel", 4), make_term("velocity_command", 3))
    contract = contract_for(SPEC, observations=terms, gait=None)
    bundle = tiny_bundle(tmp_path / "bundle", contract)
    assert audit(recorded(tmp_path, PolicyRunner(bundle, SPEC)), bundle).findings == []
    (tmp_path / "run.mcap").unlink()

    def shuffle(seen):
        frames = seen[:, :12].reshape(1, 3, 4)
        seen[:, :12] = (frames[:, ::-1] if order == "newest first" else frames.transpose(0, 2, 1)).reshape(1, 12)
        return seen

    found = audit(recorded(tmp_path, broken_by(PolicyRunner(bundle, SPEC), numbers=shuffle)), bundle)
    assert [finding.kind for finding in found.findings] == [FindingKind.ORDER]
    words = {"newest first": "newest frame of the history comes first", "number by number": "number by number"}
    assert words[order] in found.findings[0].text


def test_permuted_joints_and_a_flipped_sign_are_named(bundle, tmp_path):
    def change(signals):
        vel = signals.joint_vel_rad_s * np.array([[1, 1, -1, 1]], np.float32)
        return replace(signals, joint_pos_rad=signals.joint_pos_rad[:, [2, 1, 0, 3]], joint_vel_rad_s=vel)

    found = findings(audit(recorded(tmp_path, broken_by(PolicyRunner(bundle, SPEC), change)), bundle))
    assert found[FindingKind.PERMUTATION, "joint_pos"].names == HIPS
    assert found[FindingKind.SIGN, "joint_vel"].names == ("right_hip_joint",)
    # The hips have one default pose, so nothing is shifted by the exchange.
    assert len(found) == 2


def test_each_of_several_terms_of_one_name_is_judged(tmp_path):
    knees = tuple(name for name in SPEC.joint_names if name not in HIPS)
    terms = (
        make_term("joint_pos", 4),
        replace(make_term("joint_vel", 2), joints=HIPS),
        replace(make_term("joint_vel", 2), joints=knees),
    )
    bundle = tiny_bundle(tmp_path / "bundle", contract_for(SPEC, observations=terms, gait=None))
    sound = audit(recorded(tmp_path, PolicyRunner(bundle, SPEC)), bundle)
    assert sound.findings == []
    of_hips, of_knees = (f"joint_vel ({', '.join(joints)})" for joints in (HIPS, knees))
    assert {of_hips, of_knees} <= {item.subject for item in sound.checked}
    (tmp_path / "run.mcap").unlink()

    def turned(seen):
        seen[:, 5] *= -1.0
        return seen

    found = findings(audit(recorded(tmp_path, broken_by(PolicyRunner(bundle, SPEC), numbers=turned)), bundle))
    assert list(found) == [(FindingKind.SIGN, of_hips)]
    assert found[FindingKind.SIGN, of_hips].names == HIPS[1:]


@pytest.mark.parametrize("order", [(3, 0, 1, 2), (1, 2, 3, 0)])
def test_a_quaternion_in_another_order(bundle, tmp_path, order):
    def change(signals):
        return replace(signals, quat_base_to_world_wxyz=signals.quat_base_to_world_wxyz[:, list(order)])

    found = findings(audit(recorded(tmp_path, broken_by(PolicyRunner(bundle, SPEC), change)), bundle))
    assert "(x, y, z, w)" in found[FindingKind.FRAME, "projected_gravity"].text
    assert len(found) == 1


def test_other_weights_other_gains_and_another_contract(bundle, tmp_path):
    changed = replace(bundle.contract, stiffness_nm_rad=(15.0,) * 4)
    other = tiny_bundle(tmp_path / "other", changed, seed=5)
    found = findings(audit(recorded(tmp_path, PolicyRunner(other, SPEC)), bundle))
    assert "stiffness_nm_rad" in found[FindingKind.CONTRACT, "contract"].text
    assert "left_hip_joint 15 (expected 30)" in found[FindingKind.SCALE, "stiffness"].text
    assert found[FindingKind.NETWORK, "action"]


def test_a_recording_without_a_policy_is_refused(bundle, tmp_path):
    path = tmp_path / "stand.mcap"
    with Recorder(path, bundle.contract, SPEC, lossless=True) as recorder:
        robot = Shaken(SPEC)
        robot.connect()
        loop = Controller(robot, PolicyRunner(load_bundle(bundle.path), SPEC), SafetyMachine(SPEC), recorder)
        loop.run(0.2)
    with pytest.raises(RecordingError, match="no policy ran in this recording"):
        audit(read_recording(path), bundle)
