"""A bundle behind the protocol: observations of every kind against the runtime itself, and refusals in words."""

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.contract.parts import MAX_WORDS, ChunkSpec
from gantry_deploy.embodiments.legs import LEGS
from gantry_deploy.errors import InstructionError, PolicyError
from gantry_deploy.language.instructions import tokens_of
from gantry_deploy.openpi.measured import MeasuredState
from gantry_deploy.openpi.served import MAX_ROWS, ServedPolicy
from gantry_deploy.policy.policy import open_policy
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, tiny_bundle
from gantry_fixtures.arm import arm_bundle
from gantry_hardware.robots.go2 import SPEC as GO2
from gantry_hardware.robots.yam import SPEC

STATE, WRIST, FRONT = "observation/state", "observation/images/wrist", "observation/images/front"
JOINTS, TARGET = "observation/joint_position", "observation/joint_target"


def seen(seed, rows=()):
    """An observation of the bundle that plans."""
    rng = np.random.default_rng(seed)
    pictures = {name: rng.integers(0, 256, (*rows, 6, 6, 3), np.uint8) for name in (WRIST, FRONT)}
    return {STATE: rng.normal(0.0, 0.2, (*rows, 14)).astype(np.float32), **pictures}


def test_a_plan_is_that_of_the_network_clipped(plan_bundle):
    served, network = ServedPolicy(plan_bundle), open_policy(plan_bundle).network
    observation = seen(0)
    observation[STATE] *= 50
    found = served.client().infer(observation)
    images = {name.rpartition("/")[2]: observation[name].transpose(2, 0, 1).copy() for name in (WRIST, FRONT)}
    plan = network(observation[STATE][None], images)[0]
    assert found.keys() == {"actions"}
    assert found["actions"].dtype == np.float32
    assert np.abs(plan).max() > 1.0
    np.testing.assert_array_equal(found["actions"], np.clip(plan, -1.0, 1.0))


def test_each_picture_and_the_state_change_the_answer(plan_bundle):
    client, base = ServedPolicy(plan_bundle).client(), seen(0)
    first = client.infer(base)["actions"]
    for key in (STATE, WRIST, FRONT):
        assert not np.array_equal(client.infer({**base, key: seen(1)[key]})["actions"], first), key


def test_several_questions_at_once_are_answered_as_one_by_one(plan_bundle):
    client, batch = ServedPolicy(plan_bundle).client(), seen(3, (4,))
    single = [client.infer({key: value[i] for key, value in batch.items()})["actions"] for i in range(4)]
    np.testing.assert_array_equal(client.infer({**batch, "gantry/rows": 4})["actions"], single)


def test_a_step_policy_on_measured_joints_does_as_the_runtime(step_bundle):
    """Last action and targets are remembered for each client."""
    served, runner = ServedPolicy(step_bundle), PolicyRunner(step_bundle, SPEC)
    rng, client, other = np.random.default_rng(0), served.client(), served.client()
    states = [np.array(SPEC.array("default_rad")) + rng.normal(0.0, 0.02, 7) for _ in range(4)]
    first = None
    for joints in states:
        found = client.infer({JOINTS: joints, "observation/joint_velocity": np.zeros(7)})
        wanted = runner.step(MeasuredState(step_bundle.contract).state({"joint_position": joints}, 0.0), np.zeros(0))
        np.testing.assert_allclose(found["actions"], np.clip(wanted.action, -1, 1)[None], rtol=1e-6)
        np.testing.assert_allclose(found["joint_targets"], wanted.target.pos_rad[None], rtol=1e-6)
        first = found if first is None else first
    # Another client, and an episode that begins, know nothing of it.
    np.testing.assert_array_equal(other.infer({JOINTS: states[0]})["actions"], first["actions"])
    assert not np.array_equal(client.infer({JOINTS: states[0]})["actions"], first["actions"])
    again = client.infer({JOINTS: states[0], "gantry/reset": True})
    np.testing.assert_array_equal(again["actions"], first["actions"])


def test_a_plan_on_measured_joints_goes_on_from_the_targets_that_were_sent(plan_bundle):
    client, network = ServedPolicy(plan_bundle).client(), open_policy(plan_bundle).network
    pictures = {name: np.full((6, 6, 3), shade, np.uint8) for name, shade in ((WRIST, 10), (FRONT, 20))}
    images = {name.rpartition("/")[2]: value.transpose(2, 0, 1).copy() for name, value in pictures.items()}
    default = np.array(plan_bundle.contract.default_pos_rad)
    joints = default - 0.005
    begun = client.infer({JOINTS: joints, TARGET: joints, **pictures})["actions"]
    later = client.infer({JOINTS: joints, TARGET: joints + 0.004, **pictures})["actions"]
    for found, lead in ((begun, 0.0), (later, 0.004)):
        observation = np.concatenate((joints - default, np.full(7, lead))).astype(np.float32)
        np.testing.assert_allclose(found, network(observation[None], images)[0], atol=1e-5)
    with pytest.raises(PolicyError, match=r"'observation/joint_target' is missing: \(7,\) numbers"):
        client.infer({JOINTS: joints, **pictures})


def test_a_residual_corrects_its_own_plan_for_each_client(residual_bundle):
    served, policy = ServedPolicy(residual_bundle), open_policy(residual_bundle)
    client, other = served.client(), served.client()
    size = residual_bundle.contract.observation_size
    rng = np.random.default_rng(0)
    for _ in range(3):
        state = rng.normal(0.0, 0.2, size).astype(np.float32)
        other.infer({STATE: rng.normal(0.0, 0.2, size).astype(np.float32)})
        wanted = policy(state[None]).action
        np.testing.assert_allclose(client.infer({STATE: state})["actions"], wanted, rtol=1e-5, atol=1e-6)
    assert "max_rows" not in served.metadata["gantry"]
    runner = PolicyRunner(residual_bundle, SPEC)
    arm, default = served.client(), np.array(residual_bundle.contract.default_pos_rad)
    for step in range(5):
        joints = default + 0.01 * step
        wanted = runner.step(served.measured.state({"joint_position": joints}, 0.0), np.zeros(0))
        found = arm.infer({JOINTS: joints})
        np.testing.assert_allclose(found["actions"], wanted.action[None], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["joint_targets"], wanted.target.pos_rad[None], rtol=1e-6)
    with pytest.raises(PolicyError, match="one question at a time"):
        client.infer({STATE: np.zeros((2, size)), "gantry/rows": 2})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({STATE: np.zeros(13)}, "'observation/state' has shape (13,), expected (14,)"),
        ({STATE: np.full(14, np.nan)}, "'observation/state' is not finite: nan at (0,)"),
        ({STATE: "x"}, "'observation/state' is 'x', expected an array"),
        ({STATE: None}, "'observation/state' is None"),
        ({WRIST: None}, "'observation/images/wrist' is missing"),
        ({WRIST: np.zeros((3, 6, 6), np.uint8)}, "Its channels come first; they belong last."),
        ({WRIST: np.zeros((6, 6, 3))}, "is float64 of shape (6, 6, 3), expected uint8"),
        ({WRIST: np.zeros((8, 8, 3), np.uint8)}, "of shape (8, 8, 3), expected uint8 of shape (6, 6, 3)"),
        ({"observation/image": np.zeros(1)}, "Unknown key of an observation 'observation/image'"),
        ({"observation/images/wrsit": np.zeros(1)}, "Did you mean 'observation/images/wrist'?"),
        ({JOINTS: np.zeros(7)}, "already holds all of the robot's state; leave out: observation/joint_position"),
        ({"prompt": 3}, "'prompt' is 3, expected a text"),
        ({"gantry/rows": 0}, f"'gantry/rows' is 0, expected 1 to {MAX_ROWS}"),
        ({"gantry/rows": MAX_ROWS + 1}, "expected 1 to"),
        ({"gantry/rows": 2}, "'observation/state' has shape (14,), expected (2, 14)"),
    ],
)
def test_wrong_observations_are_refused_in_words(plan_bundle, changes, words):
    with pytest.raises(PolicyError) as caught:
        ServedPolicy(plan_bundle).client().infer({**seen(0), **changes})
    assert words in str(caught.value)


def test_an_empty_observation_names_what_is_missing(plan_bundle):
    with pytest.raises(PolicyError, match="neither 'observation/state' nor 'observation/joint_position'"):
        ServedPolicy(plan_bundle).client().infer({"state": np.zeros(8)})


def test_an_instruction_is_the_only_one_that_is_done(plan_bundle):
    client = ServedPolicy(plan_bundle, "pick it up").client()
    assert client.infer({**seen(0), "prompt": "pick it up"})["actions"].shape == (5, 4)
    with pytest.raises(PolicyError, match="'prompt' is 'wipe'; this policy does one task: 'pick it up'"):
        client.infer({**seen(0), "prompt": "wipe"})
    with pytest.raises(PolicyError, match="'prompt' is missing"):
        client.infer(seen(0))


def test_a_plan_that_sees_its_last_action_is_asked_by_the_contract_alone(tmp_path, step_bundle):
    bundle = arm_bundle(tmp_path / "b", replace(step_bundle.contract, chunk=ChunkSpec(3, 2)))
    with pytest.raises(PolicyError, match=r"sees what happened in each \(last_action\)"):
        ServedPolicy(bundle).client().infer({JOINTS: np.zeros(7)})


def test_metadata_tell_what_is_seen_and_what_actions_mean(step_bundle, plan_bundle):
    told = ServedPolicy(step_bundle, "reach").metadata
    assert told["gantry"]["max_rows"] == MAX_ROWS
    assert told["served"]["measured"] == {
        JOINTS: "(7,), rad, a gripper in m",
        "observation/joint_velocity": "(7,), rad/s, a gripper in m/s, optional",
        TARGET: "(7,), rad, a gripper in m, as sent in the last step, optional",
    }
    assert "at 20 Hz" in told["served"]["actions"]
    assert told["served"]["prompt"] == "must be 'reach'"
    other = ServedPolicy(plan_bundle).metadata
    assert other["served"]["pictures"].keys() == {WRIST, FRONT}
    assert "joint_targets" not in other["served"]
    assert told["served"]["policy_sha256"] != other["served"]["policy_sha256"]


def test_legs_walk_by_orientation_velocities_and_command(tmp_path):
    bundle = tiny_bundle(tmp_path / "b", contract_for(GO2))
    served, runner = ServedPolicy(bundle), PolicyRunner(bundle, GO2)
    rest, rng, client = LEGS.rest_state(bundle.contract), np.random.default_rng(0), served.client()
    turn = np.array([np.cos(0.1), np.sin(0.1), 0.0, 0.0])
    for _ in range(4):
        state = replace(
            rest,
            joint_pos_rad=rest.joint_pos_rad + rng.normal(0.0, 0.1, 12),
            joint_vel_rad_s=rng.normal(0.0, 0.5, 12),
            quat_base_to_world_wxyz=turn,
            ang_vel_base_in_base_rad_s=rng.normal(0.0, 0.3, 3),
        )
        message = {
            JOINTS: state.joint_pos_rad,
            "observation/joint_velocity": state.joint_vel_rad_s,
            "observation/orientation": turn,
            "observation/angular_velocity": state.ang_vel_base_in_base_rad_s,
            "observation/command": np.array([0.3, 0.0, 0.1]),
        }
        wanted, found = runner.step(state, np.array([0.3, 0.0, 0.1])), client.infer(message)
        limit = bundle.contract.action.clip
        np.testing.assert_allclose(found["actions"][0], np.clip(wanted.action, -limit, limit), rtol=1e-6)
        np.testing.assert_allclose(found["joint_targets"][0], wanted.target.pos_rad, rtol=1e-6)
    for key, value, words in (
        ("observation/orientation", 2.0 * turn, "has a quaternion of length 2, expected 1"),
        ("observation/orientation", None, "is None, expected an array of"),
        ("observation/command", np.zeros(2), r"has shape \(2,\), expected \(3,\)"),
    ):
        with pytest.raises(PolicyError, match=f"'{key}' {words}"):
            client.infer({**message, key: value})
    message.pop("observation/joint_velocity")
    with pytest.raises(PolicyError, match=r"'observation/joint_velocity' is missing: \(12,\) numbers, rad/s"):
        client.infer(message)


def test_a_prompt_is_what_the_policy_is_told(told_bundle):
    spec, size = told_bundle.contract.instruction, told_bundle.contract.observation_size
    assert spec is not None
    served = ServedPolicy(told_bundle)
    assert served.metadata["gantry"]["instruction"] is True
    assert served.metadata["served"]["prompt"] == "is followed, for example: 'push the red cube'"
    state = np.zeros(size, np.float32)
    state[-MAX_WORDS:] = tokens_of(spec, "push the red cube")
    expected = served.client().infer({"observation/state": state})["actions"]
    other = served.client().infer({"observation/state": np.zeros(size, np.float32)})["actions"]
    assert np.abs(expected - other).max() > 1e-3
    client = served.client()
    blank = {"observation/state": np.zeros(size, np.float32)}
    np.testing.assert_array_equal(client.infer({**blank, "prompt": "Push the red cube!"})["actions"], expected)
    np.testing.assert_array_equal(client.infer(blank)["actions"], expected)  # It holds until the next.
    several = {"gantry/rows": 3, "observation/state": np.zeros((3, size), np.float32)}
    np.testing.assert_array_equal(client.infer(several)["actions"], np.stack([expected] * 3))
    with pytest.raises(InstructionError, match="knows no word of the instruction 'fetch'"):
        client.infer({**blank, "prompt": "fetch"})


def test_measured_states_need_an_instruction_first(told_bundle):
    client = ServedPolicy(told_bundle).client()
    measured = {JOINTS: np.zeros(7), "observation/joint_target": np.zeros(7)}
    with pytest.raises(PolicyError, match="'prompt' is missing: the policy follows an instruction"):
        client.infer(measured)
    first = client.infer({**measured, "prompt": "push the red cube"})["actions"]
    again = client.infer({**measured, "prompt": "push the blue cube"})["actions"]
    assert np.abs(first - again).max() > 1e-3
