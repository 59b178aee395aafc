"""A learner that is told in words which of two numbers counts."""

from dataclasses import replace

import torch

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_policies.off_policy.config import ActorCfg, CriticCfg, EncoderCfg, LearnerCfg
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.policy import PolicyModule
from gantry_policies.off_policy.replay.buffer import ReplayBuffer

SHAPES = {"state": (2 + MAX_WORDS,)}
CFG = LearnerCfg(
    encoder=EncoderCfg(vocabulary=3, learning_rate=1e-3),
    actor=ActorCfg(kind="td3", hidden=(64,), learning_rate=1e-3),
    critic=CriticCfg(heads=2, hidden=(64,), learning_rate=1e-3),
    batch_size=256,
    demo_fraction=0.0,
)


def told(rows, generator):
    """States of two numbers and a sentence of two words, the second of which says which number is meant."""
    which = torch.randint(0, 2, (rows,), generator=generator)
    state = torch.zeros(rows, 2 + MAX_WORDS)
    state[:, :2] = torch.rand(rows, 2, generator=generator) * 1.6 - 0.8
    state[:, 2], state[:, 3] = 2.0, 3.0 + which
    return state, state[:, :2].gather(1, which[:, None])[:, 0]


def filled(generator):
    """Episodes of one random action that earn the more, the nearer it is to the number that is meant."""
    buffer = ReplayBuffer(4000, 1, SHAPES, 1)
    state, meant = told(2000, generator)
    for row in range(len(state)):
        action = torch.rand(1, 1, generator=generator) * 2.0 - 1.0
        reward = 1.0 - (action[:, 0] - meant[row]).square()
        buffer.add_episode({"state": state[row].expand(2, -1)}, action, reward, True)
    return buffer


def test_words_say_which_number_counts():
    generator = torch.Generator().manual_seed(0)
    replay, learner = filled(generator), Learner(CFG, SHAPES, 1)
    learner.state_scaler.fit(replay.stored("state"))
    assert learner.state_scaler.mean[2:].abs().max() == 0.0  # tokens stay what they are
    assert (learner.state_scaler.std[2:] == 1.0).all()
    for _ in range(250):
        learner.update(replay)
    state, meant = told(500, generator)
    error = (learner.act({"state": state})[:, 0] - meant).square().mean()
    assert error < 0.1 * meant.square().mean()
    state[:, 3] = 7.0 - state[:, 3]  # the other word
    wrong = (learner.act({"state": state})[:, 0] - meant).square().mean()
    assert wrong > meant.square().mean()

    again = Learner(CFG, SHAPES, 1, seed=5)
    again.load_state_dict(learner.state_dict())
    assert torch.equal(again.act({"state": state}), learner.act({"state": state}))
    with torch.no_grad():
        exported = PolicyModule(learner)({"state": state})
    torch.testing.assert_close(exported, learner.act({"state": state}))


def test_without_a_vocabulary_tokens_are_numbers_as_before():
    learner = Learner(replace(CFG, encoder=EncoderCfg()), SHAPES, 1)
    assert not learner.encoder.learns
    assert learner.encoder.state_size == SHAPES["state"][0]
    features = learner.encoder.features({"state": torch.ones(2, SHAPES["state"][0])})
    assert torch.equal(features.state, torch.ones(2, SHAPES["state"][0]))
