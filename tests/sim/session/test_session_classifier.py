"""A reward classifier judges the attempts of a session, and a person overrules it."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gantry_deploy.policy.onnx_policy import OBSERVATION
from gantry_deploy.session.classifier import PROBABILITY, SuccessClassifier
from gantry_deploy.session.states import SessionState
from gantry_deploy.teleop.operator import TeleopEvent
from gantry_fixtures.sessions import Bench, hand


def sure(size: int) -> bytes:
    """A classifier that sees success in everything."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in ((OBSERVATION, [1, size]), (PROBABILITY, [1]))
    ]
    weight, bias = np.zeros((size, 1), np.float32), np.full(1, 5.0, np.float32)
    nodes = [
        helper.make_node("MatMul", [OBSERVATION, "weight"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["sum"]),
        helper.make_node("Sigmoid", ["sum"], ["wide"]),
        helper.make_node("Reshape", ["wide", "shape"], [PROBABILITY]),
    ]
    kept = [
        onnx.numpy_helper.from_array(value, name)
        for name, value in (("weight", weight), ("bias", bias), ("shape", np.array([1], np.int64)))
    ]
    graph = helper.make_graph(nodes, "sure", ends[:1], ends[1:], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


@pytest.fixture
def bench():
    size = Bench("yam-pick-place").session.parts.contract.observation_size
    judge = SuccessClassifier(sure(size), threshold=0.9, confirmations=4)
    made = Bench("yam-pick-place", classifier=judge, episode_s=4.0)
    made.start()
    yield made
    made.robot.close()


def test_an_attempt_ends_when_enough_steps_in_a_row_are_a_success(bench: Bench):
    bench.run_ticks(12)
    first = bench.kept.attempt(0)
    assert len(first) == 4
    assert first[-1].success
    assert first[-1].reward == 1.0
    assert bench.session.snapshot().classifier == pytest.approx(0.9933, abs=1e-3)
    # The simulator's goal still reaches the policy.
    assert np.abs(bench.session.parts.judge.command()).max() > 0.0


def test_a_person_takes_a_success_back(bench: Bench):
    bench.device.script = {1: hand(TeleopEvent.VETO, engaged=False)}
    bench.run_ticks(30)
    assert bench.session.state is SessionState.AUTONOMOUS
    assert len(bench.kept.attempt(0)) > 20, "nothing counts until the classifier has seen something else"
