"""What the learner may be told beside its numbers: chunks, who is mirrored, the entropy's way, which critic."""

import pytest
import torch

from gantry_deploy.observations.mirrors import MirrorMap
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.networks import MixtureModel
from gantry_policies.on_policy.config import PpoCfg

MIRROR = {
    "actor": MirrorMap.signs(1, -1),
    "critic": MirrorMap.signs(1, -1, 1),
    "action": MirrorMap.signs(1, -1),
}


def weights(runner):
    return torch.cat([values.detach().flatten().clone() for values in runner.alg._parameters])


def updated(runner):
    """Losses and weights after one update on a rollout whose returns are unlike the values."""
    torch.manual_seed(3)
    runner._collect(runner.env.get_observations())
    returns = runner.alg.storage.returns
    returns += torch.linspace(-1, 1, returns.numel()).reshape(returns.shape)
    return runner.alg.update(), weights(runner), runner.alg.learning_rate


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("desired_kl", [None, 1e-4])
@pytest.mark.parametrize("chunk_rows", [7, 1000])
def test_an_update_in_chunks_is_rsl_rls(make_runner, threads, desired_kl, chunk_rows):
    """Also with an adaptive rate, which sees the divergence of the whole minibatch, and on several threads."""
    options = {"num_envs": 5, "minibatches": 1, "epochs": 2, "desired_kl": desired_kl}
    plain = updated(make_runner(**options))
    chunked = make_runner(threads=threads, chunk_rows=chunk_rows, **options)
    seen = []
    chunked.alg._replicas[0].actor.mlp.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    losses, found, rate = updated(chunked)
    assert max(seen) <= chunk_rows
    assert rate == pytest.approx(plain[2])
    assert (rate != 3e-3) == (desired_kl is not None)
    torch.testing.assert_close(found, plain[1], atol=2e-5, rtol=0)
    for name, value in losses.items():
        assert value == pytest.approx(plain[0][name], abs=1e-4), name


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("who", "mirrored"), [("both", (True, True)), ("critic", (False, True)), ("none", (False,) * 2)]
)
def test_who_learns_from_mirrored_samples(make_runner, threads, who, mirrored):
    """The sign of y tells a mirrored row; the rollout's own rows are known by their x."""
    runner = make_runner(mirror=MIRROR, learner_mirror=who, threads=threads, minibatches=1)
    runner._collect(runner.env.get_observations())
    rows = runner.alg.storage.observations["actor"].flatten(0, 1).clone()
    seen = {"actor": [], "critic": []}
    models = [(runner.alg.actor, runner.alg.critic)] + [(twin.actor, twin.critic) for twin in runner.alg._replicas]
    for actor, critic in models:
        actor.mlp.register_forward_pre_hook(lambda _, args: seen["actor"].append(args[0].detach().clone()))
        critic.mlp.register_forward_pre_hook(lambda _, args: seen["critic"].append(args[0].detach().clone()))
    runner.alg.update()
    for name, expected in zip(("actor", "critic"), mirrored, strict=True):
        values = torch.cat(seen[name])[:, :2]
        theirs = torch.stack([rows[(row[0] - rows[:, 0]).abs().argmin()] for row in values])
        assert bool((values[:, 1] * theirs[:, 1] < -1e-4).any()) == expected


def test_the_entropys_way(make_runner):
    cfg = PpoCfg(total_steps=1, entropy=0.004, entropy_decay=0.5, entropy_floor=0.001)
    assert [cfg.entropy_at(i) for i in range(4)] == pytest.approx([0.004, 0.002, 0.001, 0.001])
    runner, seen = make_runner(entropy=0.004, entropy_decay=0.5, entropy_floor=0.001), []
    runner.train(lambda _: seen.append(runner.alg.entropy_coef))
    assert seen == pytest.approx([0.004, 0.002, 0.001, 0.001, 0.001, 0.001])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_mixture_of_experts_as_actor_and_critic(make_runner, threads):
    options = {"network": "moe", "critic_network": "moe", "experts": 3, "threads": threads}
    runner, history = make_runner(num_envs=64, total_steps=25 * 640, **options), []
    assert isinstance(runner.alg.critic, MixtureModel)
    loud, quiet = make_runner(last_layer_scale=1.0, **options), make_runner(last_layer_scale=0.01, **options)
    torch.testing.assert_close(quiet.alg.actor.mlp.weights[-1], 0.01 * loud.alg.actor.mlp.weights[-1])
    runner.train(history.append)
    first, last = history[0].metrics, history[-1].metrics
    assert last["loss_value"] < 0.5 * first["loss_value"]
    assert last["distance_m"] < 0.8 * first["distance_m"]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"mirror": "critics"}, UnknownNameError, "Did you mean 'critic'"),
        ({"critic_network": "moes"}, UnknownNameError, "Did you mean 'moe'"),
        ({"entropy_decay": 0.0}, GantryError, "learner.entropy_decay is 0.0"),
        ({"chunk_rows": -1}, GantryError, "learner.chunk_rows is -1"),
        ({"experts": 0}, GantryError, "learner.experts is 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(change, error, text):
    with pytest.raises(error, match=text):
        PpoCfg(total_steps=1, **change)


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "wrong", "right", "expected"),
    [
        ("gamma", (0.0, 1.5, -0.9, NAN), (0.5, 1.0), "more than 0 and at most 1"),
        ("lam", (-0.1, 1.01, NAN), (0.0, 1.0), "0 to 1"),
        ("clip", (0.0, -0.2, NAN, INFINITY), (0.1,), "a number > 0"),
        ("entropy", (-0.1, NAN, INFINITY), (0.0,), "a number >= 0"),
        ("entropy_floor", (-0.1, NAN), (0.0, 1e-3), "a number >= 0"),
        ("learning_rate", (0.0, NAN, INFINITY), (1e-5,), "a number > 0"),
        ("final_learning_rate_factor", (-0.1, 1.1), (0.0, 1.0), "0 to 1"),
        ("desired_kl", (0.0, -0.01, NAN), (None, 0.01), "a number > 0, or none"),
        ("last_layer_scale", (-1.0,), (0.0, 1.0), "a number >= 0"),
        ("save_every_s", (-1.0,), (0.0,), "a number >= 0"),
    ],
)
def test_numbers_out_of_their_range_are_refused(name, wrong, right, expected):
    for value in wrong:
        with pytest.raises(GantryError) as refusal:
            PpoCfg(total_steps=1, **{name: value})
        assert str(refusal.value) == f"learner.{name} is {value}, expected {expected}."
    for value in right:
        assert getattr(PpoCfg(total_steps=1, **{name: value}), name) == value
