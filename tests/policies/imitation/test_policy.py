"""Networks and losses against independent ones, what a policy learns and plans, and what is left of it in a file."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from gantry_deploy.policy.action_queue import ActionQueue
from gantry_hardware.errors import GantryError
from gantry_policies.common.checkpoint import CheckpointError
from gantry_policies.imitation.config import PRESETS, BcCfg, ImageEncoderCfg, NetworkCfg
from gantry_policies.imitation.data import ChunkData
from gantry_policies.imitation.image_encoder import ImageEncoder
from gantry_policies.imitation.networks import Style, StyleEncoder
from gantry_policies.imitation.policy import BcPolicy, list_policies, load_policy, make_base, masked_l1, save_policy
from gantry_policies.networks.language.token_layers import Attention

SMALL = NetworkCfg(hidden=(32,), width=16, heads=2, feedforward=32, encoder_layers=1, decoder_layers=1)


def small_policy(obs_shapes, action_size, **changes):
    torch.manual_seed(0)
    return BcPolicy(replace(BcCfg(network=SMALL, chunk_steps=4, execute_steps=2), **changes), obs_shapes, action_size)


def test_the_loss_counts_real_steps_alone():
    """Errors 1, 2 | 3, 4 of two chunks of two steps with two numbers each; the last step of the second is padding."""
    planned = torch.tensor([[[1.0, 1.0], [2.0, 2.0]], [[3.0, 3.0], [4.0, 4.0]]], requires_grad=True)
    real = torch.tensor([[True, True], [True, False]])
    loss = masked_l1(planned, torch.zeros(2, 2, 2), real)
    assert loss.item() == pytest.approx((1 + 1 + 2 + 2 + 3 + 3) / 6)
    loss.backward()
    assert planned.grad is not None
    assert planned.grad[1, 1].tolist() == [0, 0]


def test_attention_is_that_of_torch():
    ours, theirs = Attention(8, 2, 0.0), torch.nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        layers = (ours.query, ours.key, ours.value)
        theirs.in_proj_weight.copy_(torch.cat([layer.weight for layer in layers]))
        theirs.in_proj_bias.copy_(torch.cat([layer.bias for layer in layers]))
        theirs.out_proj.weight.copy_(ours.out.weight)
        theirs.out_proj.bias.copy_(ours.out.bias)
    query, key, value = torch.randn(3, 4, 8), torch.randn(3, 5, 8), torch.randn(3, 5, 8)
    seen = torch.arange(5) < torch.tensor([[5], [3], [1]])
    expected = theirs(query, key, value, key_padding_mask=~seen)[0]
    torch.testing.assert_close(ours(query, key, value, seen), expected)


def test_styles_diverge_as_torch_says_and_ignore_padding():
    style = Style(torch.randn(5, 3), torch.randn(5, 3))
    theirs = kl_divergence(Normal(style.mean, (0.5 * style.log_variance).exp()), Normal(0.0, 1.0)).sum(-1)
    torch.testing.assert_close(style.divergence(), theirs)
    encoder = StyleEncoder(2, 1, 4, replace(SMALL, kind="transformer", latent=3))
    state, action, real = (
        torch.randn(2, 2),
        torch.randn(2, 4, 1),
        torch.tensor([[True] * 4, [True, True, False, False]]),
    )
    other = action.clone()
    other[1, 2:] += 5.0
    assert torch.equal(encoder(state, action, real).mean, encoder(state, other, real).mean)
    other[1, 1] += 5.0
    assert not torch.equal(encoder(state, action, real).mean[1], encoder(state, other, real).mean[1])


@pytest.mark.parametrize("network", [SMALL, replace(SMALL, kind="transformer", latent=2)], ids=["mlp", "transformer"])
def test_each_network_learns_a_toy_by_heart(network):
    """The state says where the first action is, an image the way it goes from there."""
    start, bright = torch.rand(12, generator=torch.Generator().manual_seed(0)) - 0.5, torch.arange(12) % 2
    images = (200 * bright[:, None, None, None]).expand(12, 3, 20, 20).to(torch.uint8)
    ways = torch.stack([start + 0.1 * step * (2 * bright - 1) for step in range(4)], dim=1)
    obs = {"state": start.repeat_interleave(4)[:, None], "image/front": images.repeat_interleave(4, 0)}
    data = ChunkData(obs, ways.flatten()[:, None], [4] * 12)
    network = replace(network, image_encoder=ImageEncoderCfg(stem_width=2, width=4))
    policy = small_policy(data.obs_shapes, 1, network=network, latent_weight=0.1)
    policy.fit(data)
    chunks = data.chunks(torch.arange(0, 48, 4), 4)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(60):
        loss = policy.train().losses(chunks)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        planned = policy.eval()(chunks.obs)
    assert (planned[..., 0] - ways).abs().mean() < 0.05  # The mean of all ways is off by 0.25 on average.


def test_steps_are_told_apart_where_nothing_is_seen_but_a_state():
    """Attention to a single token gives the same to everyone who asks."""
    network = replace(SMALL, kind="transformer")
    data = ChunkData({"state": torch.ones(8, 1)}, torch.tensor([0.0, 1.0, -1.0, 0.5] * 2)[:, None], [4, 4])
    policy = small_policy(data.obs_shapes, 1, network=network)
    optimizer, chunks = torch.optim.Adam(policy.parameters(), lr=1e-2), data.chunks(torch.tensor([0, 4]), 4)
    for _ in range(60):
        optimizer.zero_grad()
        policy.losses(chunks)["loss"].backward()
        optimizer.step()
    assert policy.losses(chunks)["l1"] < 0.1


@pytest.mark.parametrize("kind", ["conv", "vit", "deep", "resnet18", "keypoints"])
def test_eyes_give_tokens_of_every_camera(kind):
    shapes = {"state": (2,), "image/b": (3, 36, 44), "image/a.x": (3, 40, 40)}
    image_encoder = ImageEncoder(shapes, ImageEncoderCfg(kind=kind, stem_width=4, width=8, keypoints=4))
    images = {key: torch.randint(0, 256, (2, *shapes[key]), dtype=torch.uint8) for key in shapes if key != "state"}
    tokens = image_encoder(images)
    assert tokens.shape == (2, image_encoder.tokens, 512 if kind == "resnet18" else 8)
    changed = {**images, "image/b": 255 - images["image/b"]}
    differs = (image_encoder(changed) != tokens).any(-1)
    assert differs.any()
    assert not differs.all()


def test_plans_are_in_the_data_s_units_and_within_the_limit():
    data = ChunkData({"state": torch.randn(50, 3)}, torch.full((50, 1), 0.9) + 0.1 * torch.rand(50, 1), [50])
    policy = small_policy(data.obs_shapes, 1)
    policy.fit(data)
    assert policy.action_scaler.mean.item() == pytest.approx(0.95, abs=0.02)
    planned = policy(data.obs)
    assert planned.shape == (50, 4, 1)
    assert planned.max() == 1.0  # An untrained network leaves the narrow range of the data on both sides.
    assert planned.min() < 0.9
    free = small_policy(data.obs_shapes, 1, action_limit=None)
    free.load_state_dict(policy.state_dict())
    assert free(data.obs).max() > 1.0
    with pytest.raises(GantryError, match=r"go up to 2.*action_limit is 1\.0"):
        policy.fit(ChunkData(data.obs, 2 * torch.ones(50, 1), [50]))


def test_a_file_gives_back_the_same_policy(tmp_path, demos):
    policy = small_policy({"state": (2,)}, 1, network=replace(SMALL, kind="transformer", latent=2))
    policy.fit(demos(3))
    for step in (20, 9):
        save_policy(policy, tmp_path, step, {"episodes": 3})
    assert list(list_policies(tmp_path)) == [9, 20]
    loaded = load_policy(tmp_path)
    assert (loaded.step, loaded.provenance, loaded.policy.cfg) == (20, {"episodes": 3}, policy.cfg)
    obs = {"state": torch.randn(5, 2)}
    assert torch.equal(loaded.policy(obs), policy.eval()(obs))
    with pytest.raises(CheckpointError, match=r"no policy of step 10 .* \[9, 20\]"):
        load_policy(tmp_path, 10)
    torch.save({"format": 1, "cfg": "{}"}, tmp_path / "policies" / "policy_9.pt")
    with pytest.raises(CheckpointError, match="no cloned policy"):
        load_policy(tmp_path, 9)


def test_environments_and_the_runtime_s_queue_do_the_same():
    policy, obs = small_policy({"state": (3,)}, 2), torch.randn(7, 3, 3)
    base, queues = make_base(policy, 3), [ActionQueue(2) for _ in range(3)]
    for step in range(7):
        if step == 3:  # In the middle of a plan.
            base.reset(torch.tensor([1]))
            queues[1].reset()
        acted = base.act({"state": obs[step], "image/unseen": torch.zeros(3, 1)}).numpy()
        for env, queue in enumerate(queues):
            if queue.wants_chunk:
                queue.push(policy({"state": obs[step, env : env + 1]})[0].detach().numpy())
            np.testing.assert_allclose(queue.pop(), acted[env], atol=1e-6)
    with pytest.raises(GantryError, match=r"trained on 'state' of shape \(3,\)"):
        base.peek({"state": torch.zeros(3, 4)})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"execute_steps": 5}, r"execute_steps is 5, expected at most learner\.chunk_steps 4"),
        ({"validation_share": 1.0}, r"validation_share is 1\.0"),
        ({"action_limit": 0.0}, r"action_limit is 0\.0"),
    ],
)
def test_configurations_that_cannot_be_are_refused(changes, expected):
    with pytest.raises(GantryError, match=expected):
        replace(BcCfg(chunk_steps=4, execute_steps=2), **changes)
    with pytest.raises(GantryError, match=r"'transformr'.*Did you mean 'transformer'"):
        NetworkCfg(kind="transformr")
    with pytest.raises(GantryError, match="multiple of"):
        NetworkCfg(width=10, heads=4)


def test_presets_are_fresh_and_plan_within_their_chunk():
    for name, preset in PRESETS.items():
        cfg = preset()
        assert cfg == preset(), name
        assert cfg.execute_steps <= cfg.chunk_steps
