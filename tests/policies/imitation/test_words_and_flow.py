"""Instructions as tokens, and chunks by flow matching: against hand-made data, and as a bundle of the runtime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.contract.parts import MAX_WORDS, InstructionSpec
from gantry_deploy.contract.policy_contract import ChunkSpec
from gantry_deploy.language.instructions import tokens_of
from gantry_deploy.observations.builder import make_term
from gantry_deploy.policy.policy import open_policy
from gantry_fixtures.arm import arm_contract_for, arm_golden, arm_model, with_cameras
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_policies.imitation.config import BcCfg, ImageEncoderCfg, NetworkCfg
from gantry_policies.imitation.data import ChunkData
from gantry_policies.imitation.export import export_chunks
from gantry_policies.imitation.policy import BcPolicy, make_base
from gantry_policies.networks.language.words import WordEncoder, split_words

SPEC = InstructionSpec(("blue", "cube", "push", "red", "the"))
SMALL = NetworkCfg(hidden=(32,), width=16, heads=2, feedforward=32, encoder_layers=1, decoder_layers=1, dropout=0.0)


def learned(data, network, steps=200, rate=1e-2):
    torch.manual_seed(0)
    policy = BcPolicy(BcCfg(network=network, chunk_steps=2, execute_steps=2), data.obs_shapes, data.action_size)
    policy.fit(data)
    optimizer = torch.optim.Adam(policy.parameters(), lr=rate)
    for _ in range(steps):
        chunks = data.chunks(torch.randint(0, len(data), (128,)), 2)
        optimizer.zero_grad()
        policy.train().losses(chunks)["loss"].backward()
        optimizer.step()
    return policy.eval()


def told(texts):
    """States of one number, and the tokens of what was said."""
    words = np.stack([tokens_of(SPEC, text) for text in texts])
    return torch.cat((torch.zeros(len(texts), 1), torch.from_numpy(words)), dim=1)


@pytest.mark.parametrize("kind", ["mlp", "transformer", "flow"])
def test_only_the_words_say_where_to(kind):
    texts = ["push the red cube", "push the blue cube"] * 64
    action = torch.tensor([0.5, -0.5] * 64)[:, None]
    data = ChunkData({"state": told(texts)}, action, [1] * 128)
    policy = learned(data, replace(SMALL, kind=kind, vocabulary=len(SPEC.vocabulary)))
    with torch.no_grad():
        planned = policy({"state": told(["push the red cube", "push the blue cube"])})[:, 0, 0]
    assert planned.tolist() == pytest.approx([0.5, -0.5], abs=0.1)


def test_a_flow_goes_one_of_two_ways_where_a_mean_goes_between_them():
    action = torch.tensor([0.8, -0.8] * 200)[:, None]
    data = ChunkData({"state": torch.zeros(400, 1)}, action, [1] * 400)
    flow, drawn = learned(data, replace(SMALL, kind="flow"), steps=400), []
    with torch.no_grad():
        for seed in range(40):
            flow.network.noise.copy_(
                torch.randn(flow.network.noise.shape, generator=torch.Generator().manual_seed(seed))
            )
            drawn.append(float(flow({"state": torch.zeros(1, 1)})[0, 0, 0]))
    drawn = np.array(drawn)
    assert (np.abs(np.abs(drawn) - 0.8) < 0.25).mean() > 0.8
    assert 0.2 < (drawn > 0).mean() < 0.8


def two_blobs(count):
    """Pictures with a red and a blue square at random places, and the columns of both, from -1 to 1."""
    rng = np.random.default_rng(0)
    images, places = np.zeros((count, 3, 32, 32), np.uint8), rng.integers(2, 26, (count, 2, 2))
    for row, blobs in enumerate(places):
        for channel, (x, y) in zip((0, 2), blobs, strict=True):
            images[row, channel, y : y + 5, x : x + 5] = 255
    return torch.from_numpy(images), torch.from_numpy(places[..., 0] / 13.5 - 1.0).float()


@pytest.mark.parametrize("kind", ["mlp", "flow"])
def test_labels_teach_to_see_what_the_words_name(kind):
    """The actions are alike everywhere, so that nothing but the labels can tell where the named square is."""
    images, columns = two_blobs(256)
    red = torch.arange(256) % 2 == 0
    state = told(["push the red cube" if named else "push the blue cube" for named in red.tolist()])
    label = torch.where(red, columns[:, 0], columns[:, 1])[:, None]
    data = ChunkData({"state": state, "image/front": images}, torch.zeros(256, 1), [1] * 256, label)
    eyes = ImageEncoderCfg(kind="keypoints", stem_width=8, width=16, keypoints=8)
    network = replace(SMALL, kind=kind, vocabulary=5, labels=1, image_encoder=eyes)
    torch.manual_seed(0)
    cfg = BcCfg(network=network, chunk_steps=2, execute_steps=2, label_weight=1.0)
    policy = BcPolicy(cfg, data.obs_shapes, 1)
    policy.fit(data)
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    errors = []
    for _ in range(300):
        losses = policy.train().losses(data.chunks(torch.randint(0, 256, (64,)), 2))
        optimizer.zero_grad()
        losses["loss"].backward()
        optimizer.step()
        errors.append(float(losses["labels"].detach()))
    print(kind, errors[0], np.mean(errors[-10:]))
    assert np.mean(errors[-10:]) < 0.2  # The mean of all labels is off by 1, the other square's by 2.
    assert "labels" not in policy.eval().losses(data.chunks(torch.arange(4), 2))
    with pytest.raises(GantryError, match="'labels': 255"):
        ChunkData(data.obs, data.action, data.lengths, label[1:])


def test_padding_and_other_words_make_no_difference_to_a_mean_of_words():
    torch.manual_seed(0)
    encoder = WordEncoder(5, 8, 2, 8, 1, 0.0).eval()
    words = torch.from_numpy(np.stack([tokens_of(SPEC, "push the red cube")])).long()
    with torch.no_grad():
        tokens, seen = encoder(words)
        before = encoder.summary(words)
        encoder.embedding.weight[0] += 1.0  # of padding
        encoder.position[:, 4:] += 1.0
        assert torch.allclose(encoder.summary(words), before)
    assert seen[0].tolist() == [True] * 4 + [False] * (MAX_WORDS - 4)
    assert tokens.shape == (1, MAX_WORDS, 8)


def test_a_sentence_that_many_rows_have_is_read_once_and_means_the_same():
    torch.manual_seed(0)
    encoder = WordEncoder(5, 8, 2, 8, 1, 0.0)
    texts = ["push the red cube", "push the blue cube", "blue"]
    words = torch.from_numpy(np.stack([tokens_of(SPEC, texts[row % 3]) for row in range(90)])).long()
    torch.testing.assert_close(encoder.summary(words), torch.cat([encoder.summary(words[:30])] * 3))


def test_words_are_neither_standardised_nor_blurred():
    state = told(["push the red cube", "push the blue cube"])
    policy = BcPolicy(
        BcCfg(network=replace(SMALL, vocabulary=5), chunk_steps=2, execute_steps=2), {"state": (state.shape[1],)}, 1
    )
    policy.fit(ChunkData({"state": state}, torch.zeros(2, 1), [2]))
    assert policy.numbers == 1
    scaled = policy.state_scaler(state)
    numbers, words = split_words(scaled, 5)
    assert numbers.shape == (2, 1)
    assert torch.equal(words, state[:, 1:].long())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "eyes"), [("flow", "keypoints"), ("transformer", "conv"), ("mlp", "keypoints")])
def test_an_instructed_policy_as_a_bundle_does_what_torch_does(tmp_path, kind, eyes):
    chunk = ChunkSpec(steps=4, execute=3)
    contract = with_cameras(replace(arm_contract_for(robot_spec("yam")), chunk=chunk), "wrist", size_px=20)
    golden = arm_golden(contract, arm_model(contract))
    rows = len(golden["observation"])
    said = np.stack([tokens_of(SPEC, ["push the red cube", "blue"][row % 2]) for row in range(rows)])
    golden = {
        **golden,
        "extra/instruction": said,
        "observation": np.concatenate((golden["observation"], said), axis=1).astype(np.float32),
    }
    terms = (*contract.observations, make_term("instruction", MAX_WORDS))
    contract = replace(contract, observations=terms, instruction=SPEC)
    torch.manual_seed(0)
    network = replace(
        SMALL,
        kind=kind,
        vocabulary=5,
        labels=3,
        image_encoder=ImageEncoderCfg(kind=eyes, stem_width=2, width=4),
        flow_steps=3,
    )
    shapes = {"state": (contract.observation_size,), "image/wrist": (3, 20, 20)}
    cfg = BcCfg(network=network, chunk_steps=chunk.steps, execute_steps=chunk.execute)
    policy = BcPolicy(cfg, shapes, contract.action_size)
    policy.fit(
        ChunkData(
            {
                "state": torch.from_numpy(golden["observation"]),
                "image/wrist": torch.zeros((rows, 3, 20, 20), dtype=torch.uint8),
            },
            torch.randn(rows, contract.action_size).clamp(-1, 1),
            [rows],
        )
    )
    bundle = load_bundle(export_chunks(policy, contract, golden, tmp_path / "bundle"))
    runtime, base = open_policy(bundle), make_base(policy, 1, execute=chunk.execute)
    found, wanted = [], []
    for row in range(6):
        images = {"wrist": golden["image/wrist"][row]}
        found.append(runtime(golden["observation"][row : row + 1], images)[0])
        state = torch.from_numpy(golden["observation"][row : row + 1])
        wanted.append(base.act({"state": state, "image/wrist": torch.from_numpy(images["wrist"][None])}))
    np.testing.assert_allclose(np.concatenate(found), torch.cat(wanted), atol=1e-5)
    assert torch.cat(wanted).std() > 0.05
