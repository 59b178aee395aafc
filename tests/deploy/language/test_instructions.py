"""Instructions: tokens by hand, contracts that name a vocabulary, and a policy that is told what to do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.contract.parts import MAX_WORDS, InstructionSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.control.policy_inputs import PolicyInputs
from gantry_deploy.errors import ContractError, InstructionError
from gantry_deploy.language.instructions import tokens_of, unknown_words, vocabulary_of
from gantry_deploy.observations.builder import make_term
from gantry_deploy.policy.policy import PolicyAction
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, tiny_bundle, tiny_robot
from gantry_hardware.backends.mock import MockRobot

SPEC = InstructionSpec(("blue", "cube", "push", "red", "the"), ("Push the red cube.",))


def test_tokens_by_hand():
    expected = [4.0, 6.0, 5.0, 3.0]
    assert tokens_of(SPEC, "Push the RED cube!").tolist() == expected + [0.0] * (MAX_WORDS - 4)
    assert tokens_of(SPEC, "push, the: shiny cube").tolist()[:4] == [4.0, 6.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no word. For example: 'Push the red cube.'"),
        ("?!", "has no word"),
        ("fetch a beer", "knows no word of the instruction 'fetch a beer'"),
        ("push " * 17, "has 17 words"),
        ("push " + "x" * 500, "501 characters|in 505 characters"),
    ],
)
def test_what_is_no_instruction(text, message):
    with pytest.raises(InstructionError, match=message):
        tokens_of(SPEC, text)


def test_unknown_words_with_the_nearest_known_one():
    assert unknown_words(SPEC, "Push the blu cube slowly") == ["'blu' (did you mean 'blue'?)", "'slowly'"]


def test_a_vocabulary_is_every_word_once_in_order():
    assert vocabulary_of(["Push the red cube.", "push the BLUE cube"]) == SPEC.vocabulary


@pytest.mark.parametrize("words", [(), ("a", "a"), ("Red",), ("two words",), ("é",)])
def test_vocabularies_that_are_none(words):
    with pytest.raises(ContractError, match="vocabulary"):
        InstructionSpec(words)


def told_contract() -> PolicyContract:
    contract = contract_for(tiny_robot())
    terms = (*contract.observations, make_term("instruction", MAX_WORDS))
    return replace(contract, observations=terms, instruction=SPEC)


def test_a_contract_has_both_term_and_vocabulary_or_neither():
    contract = told_contract()
    assert PolicyContract.from_json(contract.to_json()) == contract
    with pytest.raises(ContractError, match="has the term 'instruction', and the contract has no"):
        replace(contract, instruction=None)
    with pytest.raises(ContractError, match="lacks the term 'instruction', and the contract has an"):
        replace(contract_for(tiny_robot()), instruction=SPEC)


class Kept:
    """Policy that keeps what it is shown."""

    def __init__(self):
        self.seen, self.resets = [], 0

    def reset(self):
        self.resets += 1

    def __call__(self, observation, images=None):
        self.seen.append(observation[0])
        return PolicyAction(np.zeros((1, contract_for(tiny_robot()).action_size), np.float32))


def test_the_tokens_reach_the_observation_and_a_policy_without_one_does_not_start(tmp_path):
    spec, kept = tiny_robot(), Kept()
    runner = PolicyRunner(tiny_bundle(tmp_path / "told", told_contract()), spec, policy=kept)
    robot = MockRobot(spec)
    robot.connect()
    inputs = PolicyInputs(runner, robot, None, None, 1.0)
    assert inputs.refusal(0.0, None) == "the policy waits for an instruction, and none has been given."
    with pytest.raises(InstructionError, match="knows no word"):
        runner.instruct("fetch")
    assert inputs.refusal(0.0, None) is not None
    runner.instruct("push the red cube")
    assert inputs.refusal(0.0, None) is None
    resets = kept.resets
    runner.step(robot.read(), np.zeros(3))
    runner.step(robot.read(), np.zeros(3))
    assert kept.resets == resets + 1  # A plan for the last instruction is dropped once.
    assert kept.seen[-1][-MAX_WORDS:].tolist() == tokens_of(SPEC, "push the red cube").tolist()
    robot.close()


def test_a_policy_that_takes_none_says_so(tmp_path):
    runner = PolicyRunner(tiny_bundle(tmp_path / "deaf"), tiny_robot())
    with pytest.raises(InstructionError, match="takes no instructions"):
        runner.instruct("push the red cube")
