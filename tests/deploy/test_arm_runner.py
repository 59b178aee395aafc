"""Arm policies in the runtime: plans and their queue, residuals, pictures, and targets that begin where joints are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.actions.arm import ArmDecoder
from gantry_deploy.bundle.bundle import BASE, load_bundle, seal_bundle, write_bundle
from gantry_deploy.contract.policy_contract import OBJECT_GOAL, OBJECT_GOAL_NAMES, ChunkSpec, CommandSpec
from gantry_deploy.embodiments.arm import ARM
from gantry_deploy.errors import BundleError, ContractError, PolicyError
from gantry_deploy.evaluation.gate import check_static
from gantry_deploy.observations.builder import ObservationBuilder, make_term
from gantry_deploy.policy.golden import DifferenceError
from gantry_deploy.policy.onnx_policy import OnnxBase, OnnxPolicy
from gantry_deploy.policy.runner import PolicyRunner
from gantry_fixtures.arm import arm_bundle, arm_contract_for, arm_model, with_cameras
from gantry_fixtures.training import torch
from gantry_hardware.robots import robot_spec

YAM = robot_spec("yam")
PLAIN = arm_contract_for(YAM)
OBS, N = PLAIN.observation_size, PLAIN.action_size
PLANNED = replace(PLAIN, chunk=ChunkSpec(steps=4, execute=3))
RESIDUAL = replace(PLAIN, chunk=ChunkSpec(steps=4, execute=3, residual=True))
STEPS = np.arange(4 * N, dtype=np.float32).reshape(4, N) / 40
"""A plan of four actions, each number another one."""


def still(**fields):
    """The arm at rest in its default pose."""
    return replace(ARM.rest_state(PLAIN), **fields)


def planned_runner(folder, contract=PLANNED, **model):
    """A runner whose plan is the same whatever it sees."""
    model = {"weight": np.zeros((OBS, 4 * N)), "bias": STEPS.ravel(), **model}
    return PolicyRunner(arm_bundle(folder / "bundle", contract, **model), YAM)


def residual_runner(folder):
    """A runner whose residual adds 0.1 to what its base plans."""
    base = {"weight": np.zeros((OBS, 4 * N)), "bias": STEPS.ravel()}
    model = {"weight": np.zeros((OBS, N)), "bias": np.full(N, 0.1)}
    return PolicyRunner(arm_bundle(folder / "bundle", RESIDUAL, base=base, **model), YAM)


def actions(runner, count):
    return np.stack([runner.step(still(), np.zeros(0)).action for _ in range(count)])


def test_a_plan_is_executed_step_by_step_and_made_anew_after_the_last_one(tmp_path):
    runner = planned_runner(tmp_path)
    np.testing.assert_array_equal(actions(runner, 7), STEPS[[0, 1, 2, 0, 1, 2, 0]])


def test_trap_1_nothing_of_an_old_plan_is_left_when_the_policy_starts_again(tmp_path):
    runner = planned_runner(tmp_path)
    actions(runner, 2)
    runner.reset()
    np.testing.assert_array_equal(actions(runner, 1), STEPS[:1])


def test_trap_15_a_residual_sees_what_its_base_does_in_every_step_of_the_plan(tmp_path):
    runner = residual_runner(tmp_path)
    steps = [runner.step(still(), np.zeros(0)) for _ in range(4)]
    base = np.stack([step.base_action for step in steps])
    np.testing.assert_array_equal(base, STEPS[[0, 1, 2, 0]])
    np.testing.assert_allclose([step.action for step in steps], base + np.float32(0.1), atol=1e-7)


def test_plans_that_overlap_are_averaged_where_the_contract_says_so(tmp_path):
    contract = replace(PLAIN, chunk=ChunkSpec(steps=4, execute=1, ensemble_decay=0.0))
    model = arm_model(contract, weight=np.zeros((OBS, 4 * N)), bias=STEPS.ravel())
    write_bundle(tmp_path / "b", contract=contract, model_bytes=model, golden={"time_s": np.zeros(1)})
    found = actions(PolicyRunner(load_bundle(tmp_path / "b"), YAM), 3)
    # The third step is the first of the newest plan, the second of the one before, the third of the one before that.
    np.testing.assert_allclose(found, [STEPS[0], STEPS[:2].mean(axis=0), STEPS[:3].mean(axis=0)], atol=1e-6)


def test_targets_begin_where_the_joints_are_and_never_jump(tmp_path):
    runner = planned_runner(tmp_path, bias=np.tile([1.0, 0.0, 0.0, 1.0], 4))
    pos = YAM.array("default_rad").copy()
    for _ in range(10):
        target = runner.step(still(joint_pos_rad=pos), np.zeros(0)).target.pos_rad
        assert np.abs(target - pos)[:6].max() < 0.3
        pos = target
    elsewhere = YAM.array("default_rad").copy()
    elsewhere[0] += 0.4

    def first_joint_jumps():
        target = runner.step(still(joint_pos_rad=elsewhere), np.zeros(0)).target.pos_rad
        return abs(target[0] - elsewhere[0])

    # Without a reset the targets stay where they were; after it they begin at the arm again.
    assert first_joint_jumps() > 0.15
    runner.reset()
    assert first_joint_jumps() < 0.06


def test_pictures_go_in_by_their_cameras_names(tmp_path):
    contract = with_cameras(PLANNED, "wrist", "front")
    runner = planned_runner(tmp_path, contract)
    white, black = np.full((3, 4, 4), 255, np.uint8), np.zeros((3, 4, 4), np.uint8)
    step = runner.step(still(), np.zeros(0), images={"wrist": white, "front": black})
    np.testing.assert_allclose(step.action, STEPS[0] + 1.0, atol=1e-6)
    runner.reset()
    with pytest.raises(PolicyError, match="'image/front' got nothing, expected uint8 of shape"):
        runner.step(still(), np.zeros(0), images={"wrist": white})
    with pytest.raises(PolicyError, match=r"'image/wrist' got uint8 of shape \(3, 8, 4\)"):
        runner.step(still(), np.zeros(0), images={"wrist": np.zeros((3, 8, 4), np.uint8), "front": black})


def test_an_object_that_nobody_sees_is_said(tmp_path):
    contract = replace(PLAIN, observations=(make_term("joint_pos", 7), make_term("object_from_ee", 3)))
    runner = PolicyRunner(arm_bundle(tmp_path / "bundle", contract), YAM)
    assert runner.step(still(), np.zeros(0)).observation.shape == (10,)
    with pytest.raises(ContractError, match="'object_pos' needs an object's pose; there is none"):
        runner.step(still(object_pose_in_base=None), np.zeros(0))


def test_a_base_is_sealed_and_named_by_the_contract(tmp_path):
    bundle = arm_bundle(tmp_path / "good", RESIDUAL)
    parts = {"contract": bundle.contract, "model_bytes": bundle.model_bytes, "golden": bundle.golden}
    with pytest.raises(BundleError, match=r"corrects the plans of base\.onnx, and there is no base\.onnx"):
        write_bundle(tmp_path / "none", **parts)
    assert not (tmp_path / "none").exists()
    with pytest.raises(BundleError, match=r"corrects the plans of base\.onnx, and the contract's chunk.base_sha256"):
        write_bundle(tmp_path / "unnamed", **{**parts, "contract": RESIDUAL}, base_bytes=bundle.base_bytes)
    with pytest.raises(BundleError, match=r"its contract describes no residual policy"):
        write_bundle(tmp_path / "extra", **{**parts, "contract": PLANNED}, base_bytes=bundle.base_bytes)
    other = arm_model(RESIDUAL, base=True, seed=1)
    (tmp_path / "good" / BASE).write_bytes(other)
    with pytest.raises(BundleError, match=r"'base\.onnx' was changed after the bundle was sealed"):
        load_bundle(tmp_path / "good")
    seal_bundle(tmp_path / "good")
    with pytest.raises(BundleError, match=r"was trained on base\.onnx [0-9a-f]{12}, this one is"):
        load_bundle(tmp_path / "good")


def test_networks_of_other_shapes_are_refused():
    with pytest.raises(PolicyError, match=r"output 'action' is tensor\(float\) of shape \(1, 4\), .*\(1, 4, 4\)"):
        OnnxPolicy(with_contract(arm_model(PLAIN), PLANNED), PLANNED)
    with pytest.raises(PolicyError, match=r"base\.onnx has the inputs base_action, observation"):
        OnnxBase(arm_model(RESIDUAL), with_cameras(RESIDUAL, "wrist"))
    with pytest.raises(PolicyError, match="2 inputs"):
        OnnxPolicy(with_contract(arm_model(RESIDUAL), PLAIN), PLAIN)


def with_contract(model, contract):
    import onnx
    from onnx import helper

    from gantry_deploy.contract.policy_contract import METADATA_KEY

    loaded = onnx.load_from_string(model)
    helper.set_model_props(loaded, {METADATA_KEY: contract.to_json()})
    return loaded.SerializeToString()


GOAL = CommandSpec(OBJECT_GOAL, OBJECT_GOAL_NAMES, (0.2, -0.2, 0.0), (0.45, 0.2, 0.25), (0.0,) * 3)
SEEING = replace(
    with_cameras(PLAIN, "wrist"),
    observations=(
        *(make_term(name, 7) for name in ("joint_pos", "joint_vel", "joint_lead")),
        make_term("goal_from_object", 3, history=2),
        make_term("ee_rotation", 6),
    ),
    command=GOAL,
)


@pytest.mark.parametrize("chunk", [None, PLANNED.chunk, RESIDUAL.chunk], ids=["step", "plan", "residual"])
def test_the_runtime_repeats_recorded_episodes_with_queue_and_pictures(tmp_path, chunk):
    arm_bundle(tmp_path / "bundle", replace(SEEING, chunk=chunk))
    stages = []
    check_static(lambda: load_bundle(tmp_path / "bundle"), stages.append)
    assert [stage.name for stage in stages] == [
        *("manifest", "contract", "network", "observation", "joint targets", "episodes"),
    ]
    assert all(stage.passed and not stage.skipped for stage in stages)
    assert "2 recorded episodes of 50 steps" in stages[-1].text


@pytest.mark.parametrize(
    ("array", "what", "row"),
    # What was told before shows in what is seen next.
    [("base_action", "base action", 31), ("action", "action", 31), ("joint_target_rad", "observation", 32)],
)
def test_a_recording_of_something_else_is_noticed(tmp_path, array, what, row):
    bundle = arm_bundle(tmp_path / "bundle", replace(SEEING, chunk=RESIDUAL.chunk))
    golden = {**bundle.golden, array: bundle.golden[array].copy()}
    golden[array][31, 1] += 1e-3
    parts = {"contract": bundle.contract, "model_bytes": bundle.model_bytes, "base_bytes": bundle.base_bytes}
    write_bundle(tmp_path / "bundle", golden=golden, **parts)
    with pytest.raises(DifferenceError, match=f"Recorded and computed {what} differ by 0.001.* row {row},"):
        check_static(lambda: load_bundle(tmp_path / "bundle"), lambda stage: None)


def test_torch_in_training_and_numpy_on_the_robot_decode_an_episode_alike(tmp_path):
    """The queue and the targets of 60 steps in torch, as training runs them, against the runner."""
    bundle = arm_bundle(tmp_path / "bundle", PLANNED, seed=3)
    runner, policy = PolicyRunner(bundle, YAM), OnnxPolicy(bundle.model_bytes, bundle.contract)
    like = torch.zeros(1, 1)
    builder, decoder = ObservationBuilder(PLANNED, like), ArmDecoder(PLANNED, like)
    joints = torch.tensor([PLANNED.default_pos_rad])
    decoder.reset(joints)
    action, plan = torch.zeros(1, N), []
    for i in range(60):
        measured = still(joint_pos_rad=joints[0].double().numpy())
        step = runner.step(measured, np.zeros(0))
        signals = torch_signals(joints, action, decoder.targets, i)
        seen = builder(signals)
        plan = plan or [torch.from_numpy(row) for row in policy(seen.numpy())[0][:3]]
        raw = plan.pop(0)[None]
        action, targets = decoder.clip(raw), decoder.follow(raw, joints)
        np.testing.assert_allclose(step.observation, seen[0], atol=1e-5)
        np.testing.assert_allclose(step.action, raw[0], atol=1e-5)
        np.testing.assert_allclose(step.target.pos_rad, targets[0], atol=1e-5)
        joints = joints + 0.5 * (targets - joints)


def torch_signals(joints, action, targets, step):
    from gantry_deploy.observations.builder import Signals

    return Signals(
        joint_pos_rad=joints,
        joint_vel_rad_s=torch.zeros_like(joints),
        quat_base_to_world_wxyz=torch.tensor([[1.0, 0.0, 0.0, 0.0]]),
        ang_vel_base_in_base_rad_s=torch.zeros(1, 3),
        command=torch.zeros(1, 0),
        last_action=action,
        time_s=torch.tensor([step * PLAIN.dt_s]),
        joint_target_rad=targets,
    )
