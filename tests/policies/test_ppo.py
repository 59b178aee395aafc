"""The learner: it starts quietly, learns, keeps to its schedule, and shares minibatches out without changing them."""

from itertools import pairwise

import pytest
import torch

from gantry_deploy.observations.mirrors import MirrorMap
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.training.trainer import TrainingError
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.ppo import FewSamplePPO

POINT_MIRROR = {
    "actor": MirrorMap.signs(1, -1),
    "critic": MirrorMap.signs(1, -1, 1),
    "action": MirrorMap.signs(1, -1),
}


def weights(runner):
    return torch.cat([values.detach().flatten().clone() for values in runner.alg._parameters])


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_the_last_layer_starts_scaled(make_runner, scale):
    plain, quiet = make_runner(last_layer_scale=1.0), make_runner(last_layer_scale=scale)
    layers = [[part for part in runner.alg.actor.mlp if hasattr(part, "weight")] for runner in (plain, quiet)]
    assert torch.equal(layers[1][0].weight, layers[0][0].weight)
    for name in ("weight", "bias"):
        torch.testing.assert_close(getattr(layers[1][-1], name), scale * getattr(layers[0][-1], name))


def test_the_optimiser_is_fused_and_holds_every_parameter(make_runner):
    alg = make_runner().alg
    assert isinstance(alg.optimizer, torch.optim.Adam)
    (group,) = alg.optimizer.param_groups
    assert group["fused"] is True
    found = {id(parameter) for parameter in group["params"]}
    assert found == {id(parameter) for model in (alg.actor, alg.critic) for parameter in model.parameters()}


@pytest.mark.parametrize(("threads", "mirror"), [(1, None), (1, POINT_MIRROR), (2, POINT_MIRROR)])
def test_it_learns(make_runner, threads, mirror):
    runner = make_runner(mirror=mirror, threads=threads, num_envs=64, total_steps=25 * 64 * 10)
    before, history = weights(runner), []
    assert runner.train(history.append)
    assert not torch.equal(weights(runner), before)
    first, last = history[0].metrics, history[-1].metrics
    assert last["reward"] > 0.6 * first["reward"]  # a loss of at most 60 % of the one at the start
    assert last["loss_value"] < 0.5 * first["loss_value"]
    assert last["distance_m"] < 0.8 * first["distance_m"]


def test_how_much_of_returns_the_critic_foresees_is_a_share_of_their_variance(make_runner):
    """All of them, their mean alone (off by a constant), and worse than that: minus themselves leave four times it."""
    runner, history = make_runner(total_steps=2 * 8 * 10), []
    runner.train(history.append)
    assert all(-10.0 < progress.metrics["value_explained"] <= 1.0 for progress in history)
    storage = runner.alg.storage
    storage.returns = torch.linspace(-1.0, 1.0, storage.returns.numel()).view_as(storage.returns)
    for values, share in ((storage.returns + 3.0, 1.0), (0.0 * storage.returns + 3.0, 0.0), (-storage.returns, -3.0)):
        storage.values = values
        assert runner._explained() == pytest.approx(share, abs=1e-5)


def test_without_a_learning_rate_worth_the_name_nothing_is_learned(make_runner):
    """The counterpart of the test above: its bounds are not met by chance."""
    runner, history = make_runner(num_envs=64, total_steps=25 * 64 * 10, learning_rate=1e-9), []
    runner.train(history.append)
    assert history[-1].metrics["distance_m"] > 0.95 * history[0].metrics["distance_m"]


def rollout(runner):
    """Fill the storage and compute returns, as the first half of an iteration does."""
    obs, _ = runner._collect(runner.env.get_observations())
    return obs


@pytest.mark.parametrize("clip_value_loss", [False, True])
@pytest.mark.parametrize("threads", [2, 3, 7])
def test_a_shared_out_update_is_the_update(make_runner, threads, clip_value_loss):
    """One minibatch of 50 rows, which neither 3 nor 7 divides: each part weighs as many rows as it has."""
    options = {"num_envs": 5, "minibatches": 1, "epochs": 1, "clip_value_loss": clip_value_loss}
    alone, together = make_runner(**options), make_runner(threads=threads, **options)
    assert together.alg._pool is not None
    assert alone.alg._pool is None
    losses = []
    for runner in (alone, together):
        torch.manual_seed(3)
        rollout(runner)
        # Returns unlike the values, so that both loss terms have gradients.
        runner.alg.storage.returns += torch.linspace(-1, 1, 50).reshape(runner.alg.storage.returns.shape)
        before = weights(runner)
        losses.append(runner.alg.update())
    assert (weights(together) - before).abs().max() > 1e-3
    torch.testing.assert_close(weights(alone), weights(together), atol=2e-5, rtol=0)
    for name, value in losses[0].items():
        assert value == pytest.approx(losses[1][name], abs=1e-4), name


def test_more_threads_than_rows(make_runner):
    runner = make_runner(threads=5, num_envs=2, steps_per_env=4, minibatches=4, total_steps=16)
    assert runner.train()
    assert torch.isfinite(weights(runner)).all()


def test_the_linear_schedule(make_runner):
    history = []
    make_runner(learning_rate=1e-3, final_learning_rate_factor=0.4).train(history.append)
    rates = [progress.metrics["learning_rate"] for progress in history]
    assert rates == pytest.approx([1e-3, 0.9e-3, 0.8e-3, 0.7e-3, 0.6e-3, 0.5e-3])


def test_the_rate_follows_the_divergence_and_mirroring_does_not_derail_it(make_runner):
    """A symmetric policy is its own mirror image, so that mirroring must not look like a change of the policy.

    The policy here answers (x, y) with (0, -5 y), far from zero, which mirrors (1, -1) exactly; its standard deviation
    is small. If the old policy were left as it was, the divergence would be huge and the rate would sink to its floor.
    """
    runner = make_runner(mirror=POINT_MIRROR, desired_kl=0.01, learning_rate=1e-4, init_std=0.2, hidden=(8,), epochs=1)
    layers = [part for part in runner.alg.actor.mlp if hasattr(part, "weight")]
    with torch.no_grad():
        for layer in layers:
            layer.weight.zero_()
            layer.bias.zero_()
        # elu(y + 4) - 4 = y for y > -4
        layers[0].weight[0, 1], layers[0].bias[0] = 1.0, 4.0
        layers[1].weight[1, 0], layers[1].bias[1] = -5.0, 20.0
    rollout(runner)
    runner.alg.update()
    assert runner.alg.learning_rate > 1e-4


@pytest.mark.parametrize("threads", [1, 2])
def test_every_sample_is_mirrored_in_some_epochs_and_not_in_others(make_runner, threads):
    """Both ways to update; a sample of the toy is known by x and |y|, and its mirror image by the sign of y."""
    epochs = 16
    runner = make_runner(mirror=POINT_MIRROR, threads=threads, epochs=epochs)
    rollout(runner)
    plain = runner.alg.storage.observations["actor"].flatten(0, 1).clone()
    seen = []
    for model in (runner.alg.actor, *(replica.actor for replica in runner.alg._replicas)):
        model.mlp.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach().clone()))
    runner.alg.update()
    seen = torch.cat(seen)
    assert len(seen) == epochs * len(plain)
    shares = []
    for sample in plain[plain[:, 1].abs() > 1e-3]:
        mine = seen[torch.isclose(seen.abs(), sample.abs(), atol=1e-7, rtol=0).all(dim=-1)]
        assert len(mine) % epochs == 0
        shares.append(float((mine[:, 1].sign() != sample[1].sign()).float().mean()))
    assert 0.0 < min(shares) < 0.5 < max(shares) < 1.0
    assert sum(shares) / len(shares) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"normalize_advantage_per_mini_batch": True}, "2 threads know no advantage normalisation per minibatch"),
        (
            {
                "rnd_cfg": {
                    "num_states": 2,
                    "obs_groups": {"rnd_state": ["actor"]},
                    "num_outputs": 1,
                    "predictor_hidden_dims": [4],
                    "target_hidden_dims": [4],
                }
            },
            "know no random network distillation",
        ),
    ],
)
def test_what_a_shared_out_update_does_not_know_is_refused(make_runner, options, text):
    alg = make_runner().alg
    with pytest.raises(GantryError, match=text):
        FewSamplePPO(alg.actor, alg.critic, alg.storage, learn_threads=2, schedule="fixed", **options)
    FewSamplePPO(alg.actor, alg.critic, alg.storage, learn_threads=2, schedule="fixed")
    if "rnd_cfg" not in options:
        FewSamplePPO(alg.actor, alg.critic, alg.storage, learn_threads=1, schedule="fixed", **options)


def test_progress_counts(make_runner):
    history = []
    runner = make_runner(total_steps=6 * 80 - 40)  # the last iteration is begun, so it is finished
    assert runner.iterations == 6
    runner.train(history.append)
    assert [progress.done for progress in history] == [1, 2, 3, 4, 5, 6]
    assert [progress.env_steps for progress in history] == [80, 160, 240, 320, 400, 480]
    assert history[-1].remaining_s == 0.0
    assert all(later.wall_s > earlier.wall_s for earlier, later in pairwise(history))


def test_a_reward_that_is_not_finite_ends_training_and_the_checkpoint_stays_good(make_runner, tmp_path):
    runner = make_runner(tmp_path, save_every_s=0.0)
    runner.env.poison = 25
    with pytest.raises(TrainingError, match=r"gave a reward of nan in step 5 of iteration 3 of 6"):
        runner.train()
    resumed = make_runner(tmp_path)
    resumed.resume()
    assert resumed.iteration == 2
    assert torch.isfinite(weights(resumed)).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_policy_of_nan_is_never_saved(make_runner, tmp_path, threads):
    runner = make_runner(tmp_path, threads=threads)

    def break_it(progress):
        if progress.done == 3:
            with torch.no_grad():
                next(runner.alg.critic.parameters()).fill_(torch.nan)

    with pytest.raises(TrainingError, match=r"stopped being finite in iteration 4 of 6"):
        runner.train(break_it)
    assert not list(tmp_path.glob("checkpoints/*"))


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("steps_per_env", 0, "learner.steps_per_env is 0, expected at least 1"),
        ("learning_rate", 0.0, "learner.learning_rate is 0.0, expected a number > 0"),
        ("hidden", (), r"learner.hidden is \[\], expected widths"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(field, value, text):
    with pytest.raises(GantryError, match=text):
        PpoCfg(**{"total_steps": 1, field: value})


def test_an_unknown_activation_is_answered_with_the_near_miss():
    with pytest.raises(UnknownNameError, match="Did you mean 'relu'"):
        PpoCfg(total_steps=1, activation="relo")
