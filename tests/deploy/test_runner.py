"""The network and the runner: numbers by hand through a linear network, and refusal of whatever does not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from gantry_deploy.contract.policy_contract import METADATA_KEY
from gantry_deploy.errors import ContractError, PolicyError
from gantry_deploy.observations.builder import make_term
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, linear_model, overflowing_model, tiny_bundle, tiny_robot
from gantry_hardware.backends.mock import MockRobot

SPEC = tiny_robot()
CONTRACT = contract_for(SPEC)
# Observes joint positions, the last action and the command: 4 + 4 + 3 numbers.
SMALL = replace(
    CONTRACT,
    gait=None,
    observations=(make_term("joint_pos", 4), make_term("last_action", 4), make_term("velocity_command", 3)),
)


def state(**fields):
    robot = MockRobot(SPEC)
    robot.connect()
    robot.override(**fields)
    return robot.read()


def runner(tmp_path, contract=SMALL, **model):
    return PolicyRunner(tiny_bundle(tmp_path / "bundle", contract, **model), SPEC)


def test_the_network_is_run_as_it_is():
    weight = np.arange(44).reshape(11, 4) / 10
    policy = OnnxPolicy(linear_model(SMALL, weight=weight, bias=np.array([1, 2, 3, 4])), SMALL)
    observation = np.linspace(-1, 1, 11, dtype=np.float32)[None]
    np.testing.assert_allclose(policy(observation), observation @ weight + [1, 2, 3, 4], rtol=1e-5)


def test_a_network_with_another_contract_is_refused_with_both_sides():
    other = replace(SMALL, rate_hz=100.0)
    with pytest.raises(PolicyError) as refusal:
        OnnxPolicy(linear_model(SMALL), other)
    assert str(refusal.value) == (
        "policy.onnx carries another contract than contract.json; they differ in 'rate_hz'."
        "\n  rate_hz is 50.0 in policy.onnx, 100.0 in contract.json"
    )


def test_a_network_that_contradicts_its_own_metadata_is_refused():
    shorter = replace(SMALL, observations=SMALL.observations[:2])
    model = onnx.load_from_string(linear_model(shorter))
    del model.metadata_props[:]
    with pytest.raises(PolicyError, match="carries no contract"):
        OnnxPolicy(model.SerializeToString(), SMALL)
    helper.set_model_props(model, {METADATA_KEY: SMALL.to_json()})
    with pytest.raises(PolicyError, match=r"input 'observation' is .* \('batch', 8\), the contract says .* \(1, 11\)"):
        OnnxPolicy(model.SerializeToString(), SMALL)
    del model.graph.output[:]
    for name in ("action", "weight0"):
        model.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    helper.set_model_props(model, {METADATA_KEY: shorter.to_json()})
    with pytest.raises(PolicyError, match="has 2 outputs"):
        OnnxPolicy(model.SerializeToString(), shorter)


def test_what_is_no_network_is_refused():
    for data in (b"", b"not a network", linear_model(SMALL)[:-100]):
        with pytest.raises(PolicyError, match=r"policy\.onnx"):
            OnnxPolicy(data, SMALL)


def test_a_network_with_its_weights_in_another_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = onnx.load_from_string(linear_model(SMALL))
    onnx.save(model, "policy.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    with pytest.raises(PolicyError, match="cannot be loaded"):
        OnnxPolicy((tmp_path / "policy.onnx").read_bytes(), SMALL)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"recurrent": ("hidden",)}, "recurrent state"),
        ({"action": replace(SMALL.action, kind="target/joint/torques")}, "'target/joint/torques'"),
    ],
)
def test_policies_that_this_runtime_cannot_run_are_refused(tmp_path, change, text):
    with pytest.raises((PolicyError, ContractError), match=text):
        runner(tmp_path, replace(SMALL, **change))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"default_pos_rad": (0.0, np.nan, 0.0, 0.0)}, r"default_pos_rad\[1\] is nan, expected a number from"),
        ({"joint_upper_rad": (2.0, 2.0, np.nan, 2.0)}, r"joint_upper_rad\[2\] is nan"),
        ({"stiffness_nm_rad": (30.0, np.inf, 30.0, 30.0)}, r"stiffness_nm_rad\[1\] is inf"),
        ({"stiffness_nm_rad": (30.0, -1.0, 30.0, 30.0)}, r"stiffness_nm_rad\[1\] is -1.0, expected a number from 0"),
        ({"default_pos_rad": (0.0, 2.5, 0.0, 0.0)}, r"'left_knee_joint' is 2.5, expected -1.0 to 2.0"),
        ({"joint_lower_rad": (1.5,) * 4, "joint_upper_rad": (-0.5,) * 4}, r"expected 1.5 to -0.5"),
        ({"action": replace(SMALL.action, scale=(np.inf,) * 4)}, r"action\.scale\[0\] is inf"),
        ({"action": replace(SMALL.action, clip=-4.0)}, r"action.clip is -4.0, expected a number from 1e-06"),
        ({"command": replace(SMALL.command, lower=(0.3, -0.5, -1.0))}, r"0.3 to 1.0, expected a range with 0 in it"),
        (
            {"command": replace(SMALL.command, names=(*SMALL.command.names[1::-1], SMALL.command.names[2]))},
            r"command.names is \('lin_vel_y_base_m_s', 'lin_vel_x.*expected \('lin_vel_x_base_m_s', 'lin_vel_y",
        ),
        ({"gait": replace(CONTRACT.gait, joint_foot=(0, 0, 1, 2))}, r"'right_knee_joint' is 2, expected 0 to 1"),
        (
            {"gait": replace(CONTRACT.gait, joint_foot=(-1, 0, 1, 1))},
            r"joint_foot\[0\] is -1, expected a number from 0",
        ),
        (
            {"gait": replace(CONTRACT.gait, frequency_hz=0.0)},
            r"gait.frequency_hz is 0.0, expected a number from 0.05 to 20",
        ),
        ({"gait": replace(CONTRACT.gait, duty=1.0)}, r"gait.duty is 1.0, expected a number from 0.01 to 0.99"),
        ({"rate_hz": np.inf}, r"rate_hz is inf"),
        ({"normalization": "outside"}, r"normalised 'outside'; this runtime knows only 'inside the graph'"),
    ],
)
def test_nonsense_in_the_contract_is_refused_before_anything_moves(tmp_path, change, text):
    bundle = tiny_bundle(tmp_path / "bundle", SMALL)
    contract = replace(SMALL, **change)
    broken = replace(bundle, contract=contract, model_bytes=linear_model(contract))
    with pytest.raises((PolicyError, ContractError), match=text):
        PolicyRunner(broken, SPEC)


def test_weights_outside_the_network_s_own_file_are_refused(tmp_path, monkeypatch):
    from onnx import TensorProto, load_from_string
    from onnx.external_data_helper import set_external_data

    model = load_from_string(linear_model(SMALL))
    weight = model.graph.initializer[0]
    (tmp_path / "outside.bin").write_bytes(weight.raw_data)
    set_external_data(weight, "outside.bin", offset=0, length=len(weight.raw_data))
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    # Where onnxruntime would look for it.
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyError, match="cannot be loaded"):
        OnnxPolicy(model.SerializeToString(), SMALL)


def test_another_robot_is_refused(tmp_path):
    joints = SPEC.joints
    other = replace(SPEC, joints=(joints[2], joints[3], joints[0], joints[1]))
    with pytest.raises(ContractError, match="Same joints, other order"):
        PolicyRunner(tiny_bundle(tmp_path / "bundle", SMALL), other)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_network_that_is_broken_at_rest_is_refused_before_anything_moves(tmp_path, value):
    with pytest.raises(PolicyError, match=r"not finite: right_hip_joint = (nan|inf)\."):
        runner(tmp_path, bias=np.array([0, 0, value, 0]))


def test_an_action_that_is_not_finite_is_refused_by_joint(tmp_path):
    policy = PolicyRunner(replace(tiny_bundle(tmp_path / "b", SMALL), model_bytes=overflowing_model(SMALL)), SPEC)
    policy.step(state(), np.zeros(3))
    with pytest.raises(PolicyError, match=r"not finite: left_hip_joint = inf\."):
        policy.step(state(), np.array([1.0, 0.0, 0.0]))


def test_an_observation_that_is_not_finite_is_blamed(tmp_path):
    with pytest.raises(PolicyError, match="the observation is not finite either"):
        runner(tmp_path).step(state(joint_pos_rad=np.array([np.nan, 0, 0, 0])), np.zeros(3))


def test_one_step_by_hand(tmp_path):
    weight = np.zeros((11, 4))
    weight[0, 0] = 10.0  # the left hip's action is ten times its position
    weight[8, 1] = 2.0  # the left knee's is twice the forward command
    step = runner(tmp_path, weight=weight, bias=np.array([0, 0, 9, 0])).step(
        state(joint_pos_rad=np.array([0.35, 0.5, 0.25, 1.0])), np.array([3.0, 0.1, 0.0])
    )
    np.testing.assert_allclose(step.observation, [0.1, 0, 0, 0.5, 0, 0, 0, 0, 1.0, 0.1, 0.0], atol=1e-6)
    np.testing.assert_allclose(step.command, [1.0, 0.1, 0.0], atol=1e-7)
    np.testing.assert_allclose(step.action, [1.0, 2.0, 9.0, 0.0], atol=1e-5)
    # default + 0.25 * clip(action, 4)
    np.testing.assert_allclose(step.target.pos_rad, [0.5, 1.0, 1.25, 0.5], atol=1e-5)
    np.testing.assert_array_equal(step.target.stiffness_nm_rad, np.full(4, 30.0))
    np.testing.assert_array_equal(step.target.damping_nm_s_rad, np.full(4, 1.0))
    np.testing.assert_array_equal(step.target.vel_rad_s, np.zeros(4))
    np.testing.assert_array_equal(step.target.effort_nm, np.zeros(4))
    assert step.target.pos_rad.dtype == np.float64


def test_gains_come_from_the_contract(tmp_path):
    contract = replace(SMALL, stiffness_nm_rad=(1.0, 2.0, 3.0, 4.0), damping_nm_s_rad=(0.1, 0.2, 0.3, 0.4))
    step = runner(tmp_path, contract).step(state(), np.zeros(3))
    np.testing.assert_array_equal(step.target.stiffness_nm_rad, [1, 2, 3, 4])
    np.testing.assert_array_equal(step.target.damping_nm_s_rad, [0.1, 0.2, 0.3, 0.4])


def test_the_last_action_is_the_clipped_one_and_a_reset_forgets_it(tmp_path):
    policy = runner(tmp_path, weight=np.zeros((11, 4)), bias=np.array([1, -9, 9, 0]))
    seen = [policy.step(state(), np.zeros(3)).observation[4:8] for _ in range(2)]
    policy.reset()
    seen.append(policy.step(state(), np.zeros(3)).observation[4:8])
    np.testing.assert_array_equal(seen, [[0, 0, 0, 0], [1, -4, 4, 0], [0, 0, 0, 0]])


def test_the_command_changes_no_faster_than_its_rate_from_rest(tmp_path):
    contract = replace(SMALL, command=replace(SMALL.command, max_rate=(5.0, 0.0, 0.0)))
    policy = runner(tmp_path, contract)
    seen = [policy.step(state(), np.array([0.25, 0.25, 0.0])).command for _ in range(4)]
    np.testing.assert_allclose(seen, [[0.1, 0.25, 0], [0.2, 0.25, 0], [0.25, 0.25, 0], [0.25, 0.25, 0]], atol=1e-6)
    policy.reset()
    np.testing.assert_allclose(policy.step(state(), np.array([0.25, 0.0, 0.0])).command, [0.1, 0, 0], atol=1e-6)


def test_time_counts_ticks_and_drives_the_gait(tmp_path):
    contract = replace(CONTRACT, observations=(make_term("gait_clock", 2),))
    policy = runner(tmp_path, contract, weight=np.zeros((2, 4)))
    steps = [policy.step(state(), np.array([1.0, 0.0, 0.0])) for _ in range(26)]
    for i, step in enumerate(steps):
        angle = 2 * np.pi * 2.0 * i * 0.02
        np.testing.assert_allclose(step.observation, [np.sin(angle), np.cos(angle)], atol=1e-5)
    # 2 Hz, half on the ground: at 0.38 s the left foot is at sin(pi (0.76 - 0.5) / 0.5) of its swing of 0.2 rad.
    np.testing.assert_allclose(steps[19].target.pos_rad[1], 0.5 + 0.2 * np.sin(np.pi * 0.52), atol=1e-5)
    assert policy.time_s == pytest.approx(0.52)
    policy.reset()
    assert policy.time_s == 0.0


def test_time_wraps_at_a_whole_gait_period(tmp_path):
    contract = replace(CONTRACT, gait=replace(CONTRACT.gait, frequency_hz=1.7))
    policy = runner(tmp_path, contract)
    policy._ticks = 50 * 3600 * 24
    phase, exact = policy.time_s * 1.7 % 1.0, 3600 * 24 * 1.7 % 1.0
    assert policy.time_s < 1024 / 1.7
    assert min(abs(phase - exact), 1 - abs(phase - exact)) < 1e-6


@pytest.mark.parametrize("command", [np.zeros(2), np.zeros(4), np.zeros((1, 3))])
def test_a_command_of_another_size_is_refused(tmp_path, command):
    with pytest.raises(PolicyError, match=r"expected \(3,\): lin_vel_x_base_m_s"):
        runner(tmp_path).step(state(), command)


def test_the_runtime_sees_what_was_recorded(tmp_path):
    bundle = tiny_bundle(tmp_path / "bundle", CONTRACT)
    golden = bundle.golden
    assert len(golden["observation"]) == 20
    policy = PolicyRunner(bundle, SPEC)
    fields = ("joint_pos_rad", "joint_vel_rad_s", "quat_base_to_world_wxyz", "ang_vel_base_in_base_rad_s")
    last_action = slice(14, 18)
    for i, expected in enumerate(golden["observation"]):
        step = policy.step(state(**{name: golden[name][i].astype(float) for name in fields}), golden["command"][i])
        np.testing.assert_allclose(
            np.delete(step.observation, last_action), np.delete(expected, last_action), atol=1e-5
        )


def spoilt(change):
    """The small policy with its graph changed; sizes, contract and hash fit."""
    model = onnx.load_from_string(linear_model(SMALL))
    change(model.graph)
    return model.SerializeToString()


def endless(graph):
    """The action goes through a loop of 2^62 turns."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", [name], [name + "2"]) for name in ("go", "value")],
        "body",
        [info("i", 7, []), info("go", 9, []), info("value", 1, None)],
        [info("go2", 9, []), info("value2", 1, None)],
    )
    constants = (helper.make_tensor("trips", 7, [], [2**62]), helper.make_tensor("yes", 9, [], [True]))
    graph.initializer.extend(constants)
    graph.node[-1].output[0] = "early"
    graph.node.append(helper.make_node("Loop", ["trips", "yes", "early"], [graph.output[0].name], body=body))


def grows(graph):
    """What is added to the action is as large as the observation says."""
    nodes = [
        helper.make_node("ReduceMax", ["observation"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["whole"], to=7),
        helper.make_node("Reshape", ["whole", "one"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["nothing"], keepdims=0),
        helper.make_node("Add", ["early", "nothing"], [graph.output[0].name]),
    ]
    graph.initializer.append(helper.make_tensor("one", 7, [1], [1]))
    graph.node[-1].output[0] = "early"
    graph.node.extend(nodes)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (endless, r"policy\.onnx has a node 'Loop' with a graph inside, expected none that repeats"),
        (grows, r"policy\.onnx has a node ConstantOfShape whose output's shape follows from what the network is given"),
    ],
)
def test_a_policy_that_could_hold_up_the_loop_is_refused(tmp_path, change, text):
    bundle = tiny_bundle(tmp_path / "bundle", SMALL)
    with pytest.raises(PolicyError, match=text):
        PolicyRunner(replace(bundle, model_bytes=spoilt(change)), SPEC)
