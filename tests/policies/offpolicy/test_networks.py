"""Critics, actors, encoders and shifts against plain single networks and numbers by hand."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from gantry_policies.off_policy.actors import DeterministicActor, GaussianActor, Noise, clamp
from gantry_policies.off_policy.augment import random_shift, shifted
from gantry_policies.off_policy.config import ActorCfg, CriticCfg, EncoderCfg
from gantry_policies.off_policy.critics import (
    Critic,
    EnsembleMlp,
    critic_loss,
    heads_for_policy_loss,
    reduced,
    subset_of_heads,
)
from gantry_policies.off_policy.encoders import Encoder, Features


def one_network(mlp, head):
    """A head of the ensemble as torch's own layers."""
    layers = []
    for index, layer in enumerate(mlp.layers):
        linear = nn.Linear(layer.weight.shape[1], layer.weight.shape[2])
        linear.weight.data, linear.bias.data = layer.weight[head].T.clone(), layer.bias[head, 0].clone()
        layers.append(linear)
        if mlp.norms is not None:
            norm = nn.LayerNorm(layer.weight.shape[2])
            norm.bias.data = mlp.norms[index].bias[head, 0].clone()
            layers.append(norm)
        layers.append(nn.ReLU())
    last = nn.Linear(mlp.last.weight.shape[1], 1)
    last.weight.data, last.bias.data = mlp.last.weight[head].T.clone(), mlp.last.bias[head, 0].clone()
    return nn.Sequential(*layers, last)


@pytest.mark.parametrize("layer_norm", [True, False])
def test_an_ensemble_is_its_heads_one_by_one_in_values_and_gradients(layer_norm):
    torch.manual_seed(0)
    mlp = EnsembleMlp(3, 4, (8, 6), layer_norm)
    if mlp.norms is not None:
        for norm in mlp.norms:
            norm.bias.data.normal_()
    x = torch.randn(5, 4, requires_grad=True)
    values = mlp(x)
    for head in range(3):
        alone = one_network(mlp, head)
        assert torch.allclose(values[head], alone(x).squeeze(1), atol=1e-6)
        ours = torch.autograd.grad(values[head].sum(), [x, mlp.layers[0].weight], retain_graph=True)
        theirs = torch.autograd.grad(alone(x).sum(), [x, alone[0].weight])
        assert torch.allclose(ours[0], theirs[0], atol=1e-6)
        assert torch.allclose(ours[1][head], theirs[1].T, atol=1e-6)
        assert ours[1][[i for i in range(3) if i != head]].abs().max() == 0.0
    assert torch.equal(mlp(x, torch.tensor([2, 0])), values[[2, 0]])


def test_trap_12_heads_begin_different():
    mlp = EnsembleMlp(10, 4, (8,), True)
    values = mlp(torch.randn(1, 4)).squeeze(1)
    assert len(set(values.tolist())) == 10


def test_trap_3_the_mean_of_squares_and_the_square_of_the_mean_by_hand():
    values, target = torch.tensor([[1.0, 2.0], [5.0, 2.0]], requires_grad=True), torch.tensor([2.0, 1.0])
    # Errors -1 and 3 at the first sample, 1 and 1 at the second.
    square = critic_loss(values, target, "mean_square")
    assert square.item() == pytest.approx((1 + 9 + 1 + 1) / 4)
    assert torch.autograd.grad(square, values)[0][:, 0].tolist() == pytest.approx([-0.5, 1.5])
    paper = critic_loss(values, target, "squared_mean")
    assert paper.item() == pytest.approx((2**2 + 1**2) / 2)
    # Every head's gradient is the sign of its own error times the shared mean error.
    assert torch.autograd.grad(paper, values)[0][:, 0].tolist() == pytest.approx([-1.0, 1.0])


def test_what_the_actor_climbs():
    values, draw = torch.tensor([[1.0, 4.0], [3.0, 2.0]]), torch.Generator().manual_seed(0)
    assert reduced(values, "ensemble_mean").tolist() == [2.0, 3.0]
    assert reduced(values, "min_random_pair").tolist() == [1.0, 2.0]
    assert heads_for_policy_loss("ensemble_mean", 10, draw) is None
    assert heads_for_policy_loss("q1", 10, draw).tolist() == [0]
    pairs = {tuple(sorted(heads_for_policy_loss("min_random_pair", 4, draw).tolist())) for _ in range(100)}
    assert pairs == {(a, b) for a in range(4) for b in range(a + 1, 4)}
    assert subset_of_heads(2, 2, draw) is None


def actor_of(kind, **options):
    torch.manual_seed(0)
    scale = options.get("action_scale", 1.0)
    return kind(ActorCfg(hidden=(16,), residual=scale != 1.0, **options), 3, 2)


@pytest.mark.parametrize("kind", [DeterministicActor, GaussianActor])
def test_a_residual_begins_at_exactly_zero(kind):
    actor = actor_of(kind, action_scale=0.2)
    base = torch.rand(50, 2) * 2 - 1
    chosen = actor.act_deterministic(Features(torch.randn(50, 3) * 100), base, 0.2)
    assert chosen.correction.abs().max() == 0.0
    assert torch.equal(chosen.action, base)


def test_a_residual_looks_at_the_base_and_is_bounded():
    actor = actor_of(DeterministicActor, action_scale=0.2)
    nn.init.normal_(actor.last.weight, std=30.0)
    state, base = Features(torch.randn(200, 3)), torch.rand(200, 2) * 2 - 1
    chosen = actor.act_deterministic(state, base, 0.2)
    assert chosen.correction.abs().max() <= 0.2
    assert chosen.correction.abs().mean() > 0.15
    assert torch.allclose(chosen.action, (base + chosen.correction).clamp(-1, 1), atol=1e-7)
    assert not torch.equal(actor.act_deterministic(state, -base, 0.2).correction, chosen.correction)


@pytest.mark.parametrize("scale", [0.05, 0.5])
def test_trap_9_noise_is_in_units_of_the_action_whatever_the_largest_correction(scale):
    actor = actor_of(DeterministicActor, action_scale=scale)
    noise = Noise(0.05, generator=torch.Generator().manual_seed(1))
    base = torch.zeros(4000, 2)
    chosen = actor.sample(Features(torch.zeros(4000, 3)), base, scale, noise)
    assert chosen.correction.std().item() == pytest.approx(0.05, rel=0.03)
    assert torch.equal(chosen.action, chosen.correction)
    clipped = actor.sample(Features(torch.zeros(4000, 3)), base, scale, Noise(0.05, 0.02, noise.generator))
    assert clipped.correction.abs().max().item() == pytest.approx(0.02)


def test_the_density_of_a_squashed_gaussian_is_that_of_its_samples():
    actor = actor_of(GaussianActor)
    state = Features(torch.randn(1, 3).expand(20000, 3))
    with torch.no_grad():
        chosen = actor.sample(state, None, 1.0, Noise(0.0, generator=torch.Generator().manual_seed(0)))
        mean, log_std = actor.outputs(state, None)[0].chunk(2)
    normal = torch.distributions.Normal(mean, log_std.exp())
    raw = torch.atanh(chosen.action.clamp(-1 + 1e-6, 1 - 1e-6))
    expected = (normal.log_prob(raw) - torch.log(1 - chosen.action.square() + 1e-12)).sum(-1)
    inside = chosen.action.abs().amax(-1) < 0.99
    assert torch.allclose(chosen.log_prob[inside], expected[inside], atol=1e-3)
    # The mean of 1 / density over samples is the area of the square.
    assert (-chosen.log_prob).exp().mean().item() == pytest.approx(4.0, rel=0.1)
    assert torch.equal(actor.act_deterministic(state, None, 1.0).action[0], torch.tanh(mean))


def test_gradients_pass_the_clamp_of_an_action():
    action = torch.tensor([1.7, -0.3], requires_grad=True)
    clamped = clamp(action)
    assert clamped.tolist() == pytest.approx([1.0, -0.3])
    assert torch.autograd.grad(clamped.sum(), action)[0].tolist() == [1.0, 1.0]


def test_a_random_shift_is_padding_and_cropping_by_its_own_draw():
    image = torch.randint(0, 256, (40, 3, 6, 8), dtype=torch.uint8)
    moved = random_shift(image, 2, torch.Generator().manual_seed(0))
    assert moved.dtype == torch.uint8
    padded = functional.pad(image.float(), (2, 2, 2, 2), mode="replicate").byte()
    places = set()
    for before, after in zip(padded, moved, strict=True):
        found = [(y, x) for y in range(5) for x in range(5) if torch.equal(before[:, y : y + 6, x : x + 8], after)]
        assert len(found) == 1
        places.add(found[0])
    assert len(places) > 15
    state = torch.randn(40, 2)
    assert shifted({"state": state, "image/a": image}, 0, torch.Generator())["image/a"] is image
    assert shifted({"state": state, "image/a": image}, 2, torch.Generator())["state"] is state


@pytest.mark.parametrize(("kind", "trunk"), [("conv", "summary"), ("vit", "spatial")])
def test_images_are_read_and_train_the_encoder_through_the_critic_alone(kind, trunk):
    torch.manual_seed(0)
    shapes = {"state": (3,), "image/front": (3, 84, 84), "image/wrist": (3, 84, 84)}
    encoder = Encoder(shapes, EncoderCfg(kind=kind, stem_width=4, width=8, attention_heads=2))
    assert (encoder.tokens, encoder.width) == (2 * 81, 8)
    obs = {key: torch.randint(0, 256, (2, *shape)).byte() for key, shape in shapes.items() if key != "state"}
    features = encoder.features({**obs, "state": torch.zeros(2, 3)})
    critic = Critic(CriticCfg(heads=2, hidden=(8,), trunk=trunk, trunk_size=8), 3, 2, encoder.tokens, encoder.width)
    actor = DeterministicActor(ActorCfg(hidden=(8,), image_size=8), 3, 2, encoder.tokens, encoder.width)
    action = actor.act_deterministic(features.detached(), None, 1.0).action
    value = critic(features, action.detach()).mean()
    gradients = torch.autograd.grad(value, list(encoder.parameters()))
    assert all(gradient.abs().max() > 0.0 for gradient in gradients)
    through_actor = torch.autograd.grad(critic(features.detached(), action).mean(), actor.parameters())
    assert all(torch.isfinite(gradient).all() for gradient in through_actor)
    with pytest.raises(RuntimeError, match=r"unused in the graph|not have been used|does not require grad"):
        torch.autograd.grad(critic(features.detached(), action).mean(), list(encoder.parameters()))
    dark = encoder.features({**obs, "image/wrist": obs["image/wrist"] * 0, "state": torch.zeros(2, 3)})
    assert not torch.allclose(critic(dark, action), critic(features, action))
    assert math.isfinite(value.item())
