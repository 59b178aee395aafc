"""An arm in the control loop: left alone, moved slowly, held instead of damped; every fault on the simulated YAM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.actions.arm import BOUND_TOLERANCE_M, ArmDecoder
from gantry_deploy.contract.policy_contract import OBJECT_GOAL, OBJECT_GOAL_NAMES, ChunkSpec, CommandSpec
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Mode, SafetyConfig, SafetyMachine
from gantry_deploy.errors import ContractError, SafetyError
from gantry_deploy.observations.builder import make_term
from gantry_deploy.perception.images import Picture
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.recorder import Recorder, read_recording
from gantry_fixtures.arm import arm_bundle, arm_contract_for, with_cameras
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.robots import robot_spec

YAM = robot_spec("yam")
HOME = YAM.array("default_rad")
GRIPPER = YAM.num_joints - 1
CONTRACT = arm_contract_for(YAM)
OBS, N = CONTRACT.observation_size, CONTRACT.action_size
GOAL = CommandSpec(OBJECT_GOAL, OBJECT_GOAL_NAMES, (0.2, -0.2, 0.0), (0.45, 0.2, 0.25), (0.0,) * 3)
ASIDE = (0.0, 1.0, 0.0, -1.0)
"""An action: as fast as allowed to the left, gripper closed."""


def constant(folder, action=ASIDE, contract=CONTRACT):
    """A policy that always does the same."""
    return PolicyRunner(
        arm_bundle(folder / "bundle", contract, steps=2, weight=np.zeros((OBS, N)), bias=np.array(action)), YAM
    )


def controller(runner, robot=None, recorder=None, **config):
    robot = robot or MockRobot(YAM)
    robot.connect()
    return Controller(robot, runner, SafetyMachine(YAM, SafetyConfig(**config)), recorder)


def bring_to_policy(loop):
    loop.tick()
    loop.request("stand")
    loop.tick()
    loop.run(loop.stand_duration_s + 0.1)
    loop.request("start")
    return loop


def simulated():
    """The YAM in MuJoCo, whose model is mjlab's."""
    pytest.importorskip("mjlab")
    return make_backend("mujoco", YAM, visuals=False)


@pytest.fixture
def moving(tmp_path):
    """The simulated YAM half a second under a policy that moves it to the left and closes the gripper."""
    loop = bring_to_policy(controller(constant(tmp_path), simulated()))
    loop.run(0.5)
    assert loop.safety.mode is Mode.POLICY
    assert loop.robot.read().joint_pos_rad[0] > 0.1
    return loop


def run(loop, seconds):
    reports = []
    loop.run(seconds, on_tick=reports.append)
    return reports


def assert_held(loop, reports, pose):
    """Whether all that is sent is one pose with the arm's gains, and the arm is there."""
    for report in reports:
        np.testing.assert_array_equal(report.sent.pos_rad, reports[0].sent.pos_rad)
        np.testing.assert_array_equal(report.sent.stiffness_nm_rad, YAM.hold_stiffness_nm_rad)
    np.testing.assert_allclose(reports[0].sent.pos_rad[:GRIPPER], pose[:GRIPPER], atol=1e-9)
    np.testing.assert_allclose(loop.robot.read().joint_pos_rad[:GRIPPER], pose[:GRIPPER], atol=0.02)


def test_a_passive_arm_is_left_alone():
    loop = controller(None)
    report = loop.tick()
    assert report.mode is Mode.PASSIVE
    assert report.sent is None
    loop.request("estop")
    # Nobody has commanded it, so there is nothing to hold.
    assert loop.tick().sent is None
    assert loop.robot.commands == []


def test_an_arm_goes_to_its_start_as_slowly_as_asked_however_long_it_takes():
    away = HOME.copy()
    away[0] += 2.0
    loop = controller(None, MockRobot(YAM, joint_pos_rad=away), arm_speed_rad_s=0.5)
    loop.tick()
    loop.request("stand")
    reports = run(loop, 7.0)
    # A cosine ramp over 2 rad that never exceeds 0.5 rad/s takes pi seconds times 2.
    assert loop.stand_duration_s == pytest.approx(2.0 * np.pi)
    poses = np.array([report.sent.pos_rad for report in reports])
    np.testing.assert_allclose(poses[0], away, atol=1e-9)
    np.testing.assert_allclose(poses[-1], HOME, atol=1e-9)
    assert np.abs(np.diff(poses[:, 0])).max() * loop.rate_hz <= 0.5 + 1e-6


def test_neither_tilt_nor_imu_are_asked_of_an_arm():
    robot = MockRobot(YAM)
    robot.connect()
    robot.override(quat_base_to_world_wxyz=np.zeros(4), lin_acc_base_in_base_m_s2=np.zeros(3))
    loop = controller(None, robot)
    assert loop.tick().fault is None
    loop.request("stand")
    assert loop.tick().mode is Mode.STAND


def test_an_emergency_stop_holds_the_arm_where_it_is_and_what_it_grips(moving):
    before = moving.robot.read().joint_pos_rad
    grips = moving.tick().sent.pos_rad[GRIPPER]
    here = moving.robot.read().joint_pos_rad
    moving.request("estop")
    reports = run(moving, 1.0)
    assert {report.mode for report in reports} == {Mode.DAMP}
    assert reports[0].sent.pos_rad[GRIPPER] == grips
    assert_held(moving, reports, reports[0].state.joint_pos_rad)
    assert np.abs(here - before).max() < 0.1


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (lambda robot: robot.freeze(), "stale_state"),
        (lambda robot: robot.set_nan("joint_vel_rad_s"), "nan_state"),
        (lambda robot: robot.set_nan("joint_pos_rad"), "nan_state"),
    ],
)
def test_an_arm_that_cannot_be_seen_is_held_at_its_last_target(tmp_path, fault, code):
    loop = bring_to_policy(controller(constant(tmp_path)))
    reports = run(loop, 0.3)
    fault(loop.robot)
    reports += run(loop, 0.5)
    held = [report for report in reports if report.mode is Mode.DAMP]
    assert held[0].fault.code == code
    assert len(held) >= 8
    last = reports[-len(held) - 1].sent.pos_rad
    for report in held:
        np.testing.assert_array_equal(report.sent.pos_rad, last)


def test_a_joint_beyond_its_limit_holds_the_arm(moving):
    # Its stop is broken, and its motor too weak to bring it back at once.
    moving.robot.model.jnt_range[0], moving.robot.model.actuator_forcerange[0] = (-9.0, 9.0), (-0.5, 0.5)

    def push(report):
        if report.mode is Mode.POLICY:
            moving.robot.data.qpos[0] = 3.4

    moving.run(0.5, on_tick=push)
    reports = run(moving, 0.2)
    assert moving.safety.fault.code == "joint_position"
    # The limits of the last gate apply to the brake as well.
    assert reports[-1].sent.pos_rad[0] == pytest.approx(YAM.array("upper_rad")[0])


def test_a_lost_heartbeat_holds_the_arm(tmp_path):
    loop = controller(constant(tmp_path), simulated(), require_heartbeat=True)
    loop.heartbeat(1e9)  # From the future, which counts as there.
    bring_to_policy(loop)
    run(loop, 0.3)
    loop.heartbeat(loop.robot.now_s())
    reports = [report for report in run(loop, 1.5) if report.mode is Mode.DAMP]
    assert loop.safety.fault.code == "heartbeat"
    assert_held(loop, reports, reports[0].state.joint_pos_rad)


def test_a_policy_that_breaks_leaves_the_arm_held(tmp_path):
    """The network overflows in its second step: single precision ends at 3.4e38, and its last action is 1 and -1."""
    weight = np.zeros((OBS, N))
    weight[OBS - N + 1, 0], weight[OBS - 1, 0] = 3e38, -3e38
    bundle = arm_bundle(tmp_path / "bundle", CONTRACT, steps=1, weight=weight, bias=np.array(ASIDE))
    loop = bring_to_policy(controller(PolicyRunner(bundle, YAM), simulated()))
    reports = [report for report in run(loop, 1.0) if report.mode is Mode.DAMP]
    assert loop.safety.fault.code == "policy"
    assert_held(loop, reports, reports[0].state.joint_pos_rad)


def test_the_wildest_actions_stay_within_workspace_step_and_joint_limits(tmp_path):
    """Actions of random sign and full size for ten seconds: what is sent, and where the arm of MuJoCo really is."""
    contract = replace(CONTRACT, chunk=ChunkSpec(steps=200, execute=200))
    plan = np.random.default_rng(4).choice([-9.0, 9.0], (200, N)) * np.repeat([1.0, 1.0, -1.0, 1.0], 50)[:, None]
    bundle = arm_bundle(tmp_path / "b", contract, steps=1, weight=np.zeros((OBS, 200 * N)), bias=plan.ravel())
    loop = bring_to_policy(controller(PolicyRunner(bundle, YAM), simulated()))
    reports = run(loop, 10.0)
    assert {report.mode for report in reports} == {Mode.POLICY}
    arm, decoder = contract.body, ArmDecoder(contract, np.zeros((1, 1)))
    sent = np.array([report.sent.pos_rad for report in reports])
    assert (sent >= YAM.array("lower_rad")).all()
    assert (sent <= YAM.array("upper_rad")).all()
    steps = np.abs(np.diff(sent, axis=0))
    assert steps[:, :GRIPPER].max() <= arm.max_step_rad + 1e-6
    assert steps[:, GRIPPER].max() <= arm.gripper_step_m + 1e-6
    assert steps[:, :GRIPPER].max() > 0.02  # It did move.
    lower, upper = np.array(arm.lower_ee_in_base_m), np.array(arm.upper_ee_in_base_m)
    targets, _ = decoder.ee_pose(sent)
    assert (targets >= lower - BOUND_TOLERANCE_M - 1e-4).all()
    assert (targets <= upper + BOUND_TOLERANCE_M + 1e-4).all()
    places, _ = decoder.ee_pose(np.array([report.state.joint_pos_rad for report in reports]))
    assert (places >= lower - 0.02).all()
    assert (places <= upper + 0.02).all()


def test_a_stopped_policy_keeps_its_grip_and_begins_anew_at_the_arm(moving):
    grips = moving.tick().sent.pos_rad[GRIPPER]
    moving.request("stop")
    reports = run(moving, 3.0)
    assert {report.mode for report in reports} == {Mode.STAND}
    np.testing.assert_array_equal([report.sent.pos_rad[GRIPPER] for report in reports], grips)
    moving.request("start")
    report = moving.tick()
    assert report.mode is Mode.POLICY
    # The first target is one step from where the arm is, not where the policy was stopped.
    assert np.abs(report.sent.pos_rad - report.state.joint_pos_rad)[:GRIPPER].max() < 0.12


def test_only_a_policy_opens_a_gripper(tmp_path):
    half = HOME.copy()
    half[GRIPPER] = 0.02
    for start, stays in ((HOME, HOME[GRIPPER]), (half, YAM.array("lower_rad")[GRIPPER])):
        loop = controller(constant(tmp_path), MockRobot(YAM, joint_pos_rad=start))
        loop.tick()
        loop.request("stand")
        assert run(loop, 2.5)[-1].sent.pos_rad[GRIPPER] == pytest.approx(stays)


def test_the_place_of_an_object_is_waited_for_and_never_forgotten(tmp_path):
    contract = replace(CONTRACT, command=GOAL, observations=(make_term("object_goal", 3), make_term("joint_pos", 7)))
    runner = PolicyRunner(arm_bundle(tmp_path / "bundle", contract, steps=2), YAM)
    loop = controller(runner, command_timeout_s=0.1)
    loop.tick()
    loop.request("stand")
    run(loop, 2.2)
    with pytest.raises(SafetyError, match="the place where the object belongs has not been set"):
        loop.request("start")
    loop.set_command((0.3, -0.1, 0.05), loop.robot.now_s())
    loop.request("start")
    reports = run(loop, 1.0)
    np.testing.assert_allclose(reports[-1].step.observation[:3], (0.3, -0.1, 0.05), atol=1e-6)


class SeeingMock(MockRobot):
    """A mock whose camera can be stopped."""

    camera_stamp_s = None

    def read_pictures(self):
        stamp_s = self.now_s() if self.camera_stamp_s is None else self.camera_stamp_s
        return {"wrist": Picture(stamp_s, np.full((3, 4, 4), 51, np.uint8))}


def test_pictures_come_from_the_robot_and_must_be_new(tmp_path):
    contract = with_cameras(CONTRACT, "wrist")
    runner = PolicyRunner(arm_bundle(tmp_path / "bundle", contract, steps=2, weight=np.zeros((OBS, N))), YAM)
    with pytest.raises(ContractError, match="sees the cameras wrist; a MockRobot takes no pictures"):
        controller(runner)
    loop = bring_to_policy(controller(runner, SeeingMock(YAM)))
    np.testing.assert_allclose(run(loop, 0.2)[-1].step.action, 0.2, atol=1e-6)
    loop.robot.camera_stamp_s = loop.robot.now_s()
    run(loop, 1.0)
    assert loop.safety.mode is Mode.DAMP
    assert "Camera 'wrist' has shown nothing new for 0." in loop.safety.fault.text


def test_what_an_arm_does_is_recorded_with_its_base(tmp_path):
    contract = replace(CONTRACT, chunk=ChunkSpec(4, 2, residual=True))
    bundle = arm_bundle(tmp_path / "bundle", contract, steps=4, seed=1)
    robot = MockRobot(YAM)
    robot.connect()
    robot.override(object_pose_in_base=np.array([0.3, 0.1, 0.02, 1.0, 0.0, 0.0, 0.0]))
    recorder = Recorder(tmp_path / "arm.mcap", bundle.contract, YAM, lossless=True)
    with recorder:
        loop = bring_to_policy(controller(PolicyRunner(bundle, YAM), robot, recorder))
        steps = [report.step for report in run(loop, 0.5)]
    recording = read_recording(tmp_path / "arm.mcap")
    for name in ("base_action", "action", "observation", "command"):
        expected = np.array([getattr(step, name) for step in steps])
        np.testing.assert_array_equal(recording[f"/policy/{name}"]["data"].reshape(expected.shape), expected)
    np.testing.assert_allclose(recording["/object_pose"]["data"][-1][:3], (0.3, 0.1, 0.02), atol=1e-6)
    assert recording["/gantry/status"]["mode"][-1] == "POLICY"
