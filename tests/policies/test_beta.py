"""A Beta policy: the distribution against torch's and integrals, what is learned, exported, resumed and refused."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rsl_rl.models import MLPModel
from tensordict import TensorDict
from torch.distributions import AffineTransform, Beta, TransformedDistribution

from gantry_deploy.actions.joints import JointDecoder
from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.observations.mirrors import MirrorMap
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_deploy.testing.legs import contract_for, golden_data, signals_for, tiny_robot
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.common.checkpoint import load_newest
from gantry_policies.common.export import export_bundle
from gantry_policies.on_policy.beta import BetaActions
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.guidance import ImitationCfg
from gantry_policies.on_policy.ppo import FewSamplePPO
from gantry_policies.on_policy.symmetry import RandomMirror
from gantry_policies.on_policy.teacher_protocol import Guidance
from gantry_policies.on_policy.trainer import PpoTrainer

MIRROR = {
    "actor": MirrorMap.signs(1, -1),
    "critic": MirrorMap.signs(1, -1, 1),
    "action": MirrorMap.signs(1, -1),
}


def of_shapes(alpha, beta):
    """Our distribution of one action with shapes above 1, and torch's on [-1, 1] in float64."""
    raw = torch.tensor([alpha, beta], dtype=torch.float64) - 1.0
    ours = BetaActions(1)
    ours.update((raw + torch.log(-torch.expm1(-raw))).float())
    exact = Beta(torch.tensor(float(alpha)).double(), torch.tensor(float(beta)).double())
    return ours, TransformedDistribution(exact, AffineTransform(-1.0, 2.0))


SHAPES = [(1.0001, 1.0001), (1.7, 1.2), (3.0, 40.0), (900.0, 1100.0)]
GRID = (torch.arange(200_000).double() + 0.5) / 100_000 - 1.0
"""Midpoints of a grid on [-1, 1]."""


def integral(values):
    return float(values.sum() / 100_000)


@pytest.mark.parametrize("shapes", SHAPES)
def test_densities_moments_and_entropy_are_integrals(shapes):
    ours, theirs = of_shapes(*shapes)
    log_density = theirs.log_prob(GRID)
    found = ours.log_prob(GRID[:, None]).double()
    torch.testing.assert_close(found, log_density, atol=1e-4, rtol=1e-4)
    density = found.exp()
    assert integral(density) == pytest.approx(1.0, abs=1e-4)
    mean = integral(GRID * density)
    assert float(ours.mean) == pytest.approx(mean, abs=1e-4)
    assert float(ours.std) == pytest.approx(integral((GRID - mean).square() * density) ** 0.5, rel=1e-3)
    assert float(ours.entropy) == pytest.approx(-integral(log_density.exp() * log_density), abs=2e-4)


def test_divergences_are_integrals():
    for old in SHAPES:
        for new in SHAPES:
            (ours, theirs), (mine, others) = of_shapes(*old), of_shapes(*new)
            log_density = theirs.log_prob(GRID)
            wanted = integral(log_density.exp() * (log_density - others.log_prob(GRID)))
            assert float(ours.kl_divergence(ours.params, mine.params)) == pytest.approx(wanted, abs=1e-3, rel=1e-3)


def test_several_actions_add_up():
    torch.manual_seed(0)
    raw, actions = torch.randn(5, 6), torch.rand(5, 3) * 2 - 1
    whole = BetaActions(3)
    whole.update(raw)
    parts = [BetaActions(1) for _ in range(3)]
    for i, part in enumerate(parts):
        part.update(raw[:, [i, 3 + i]])
    torch.testing.assert_close(
        whole.log_prob(actions), sum(part.log_prob(actions[:, [i]]) for i, part in enumerate(parts))
    )
    torch.testing.assert_close(whole.entropy, sum(part.entropy for part in parts))
    torch.testing.assert_close(whole.mean, torch.cat([part.mean for part in parts], dim=-1))
    torch.testing.assert_close(whole.deterministic_output(raw), whole.mean)


def test_a_narrow_policys_probabilities_are_exact():
    """At a deviation of 0.01, single precision would be wrong by several hundredths."""
    torch.manual_seed(0)
    shapes = 5000.0 + 1000.0 * torch.rand(500, 2)
    ours = BetaActions(1)
    ours.update(shapes - 1.0)  # softplus changes nothing here
    exact = Beta(*(values.double() for values in shapes.split(1, dim=-1)))
    actions = ours.sample()
    wanted = exact.log_prob((actions.double() + 1) / 2).sum(-1) - np.log(2)
    torch.testing.assert_close(ours.log_prob(actions).double(), wanted, atol=2e-6, rtol=1e-6)
    torch.testing.assert_close(ours.entropy.double(), exact.entropy().sum(-1) + np.log(2), atol=2e-6, rtol=1e-6)


def test_samples_lie_in_the_bounds_and_have_the_moments():
    torch.manual_seed(0)
    ours, _ = of_shapes(1.5, 4.0)
    ours.update(torch.cat([values.expand(50_000, 1) - 1 for values in ours.params], dim=-1).expm1().log())
    samples = ours.sample()
    assert samples.shape == (50_000, 1)
    assert -1.0 <= samples.min() < -0.95
    assert 0.6 < samples.max() <= 1.0
    assert float(samples.mean()) == pytest.approx(float(ours.mean[0]), abs=0.01)
    assert float(samples.std()) == pytest.approx(float(ours.std[0]), abs=0.01)


@pytest.mark.parametrize("action", [-1.0, -1.0 + 2e-7, 0.0, 1.0])
def test_numbers_and_gradients_stay_finite_at_extreme_logits(action):
    levels = torch.tensor([-1e30, -1e4, -30.0, 0.0, 30.0, 1e4, 1e30])
    raw = torch.cartesian_prod(levels, levels).requires_grad_()
    ours, old = BetaActions(1), BetaActions(1)
    ours.update(raw)
    old.update(torch.zeros(len(raw), 2))
    log_prob = ours.log_prob(torch.full((len(raw), 1), action))
    for value in (log_prob, ours.entropy, ours.kl_divergence(old.params, ours.params), ours.mean, ours.std):
        assert torch.isfinite(value).all()
        (gradient,) = torch.autograd.grad(value.sum(), raw, retain_graph=True)
        assert torch.isfinite(gradient).all()
    assert ours.sample().abs().max() <= 1.0
    assert ours.mean.min() < -0.99
    assert ours.mean.max() > 0.99


@pytest.mark.parametrize("network", ["mlp", "moe"])
@pytest.mark.parametrize("std", [0.05, 0.5])
def test_it_starts_quietly(make_runner, network, std):
    runner = make_runner(distribution="beta", init_std=std, network=network, experts=3)
    actor = runner.alg.actor
    actor(runner.env.get_observations(), stochastic_output=True)
    torch.testing.assert_close(actor.output_std, torch.full((8, 2), std), atol=2e-3, rtol=0)
    assert actor.output_mean.abs().max() < 0.01


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mirror": MIRROR, "desired_kl": 0.02},
        {"threads": 2, "clip_value_loss": True, "final_clip_factor": 0.5, "minibatch_samples": 320},
        {"network": "moe", "experts": 2},
    ],
    ids=["plain", "mirrored", "two cores", "mixture"],
)
def test_it_learns(make_runner, options):
    runner = make_runner(num_envs=64, total_steps=25 * 64 * 10, distribution="beta", **options)
    history = []
    assert runner.train(history.append)
    first, last = history[0].metrics, history[-1].metrics
    assert last["reward"] > 0.6 * first["reward"]
    assert last["loss_value"] < 0.5 * first["loss_value"]
    assert last["distance_m"] < 0.8 * first["distance_m"]


def test_six_iterations_are_three_and_three(make_runner, tmp_path):
    options = {
        "distribution": "beta",
        "mirror": MIRROR,
        "normalize": True,
        "desired_kl": 0.01,
        "final_clip_factor": 0.2,
        "minibatch_samples": 30,
    }
    assert make_runner(tmp_path / "straight", **options).train()
    first = make_runner(tmp_path / "halves", **options)
    first.train(lambda progress: first.stop() if progress.done == 3 else None)
    second = make_runner(tmp_path / "halves", seed=99, **options)
    second.resume()
    assert second.iteration == 3
    assert second.train()
    one, other = (load_newest(tmp_path / name / "checkpoints")[1] for name in ("straight", "halves"))
    for part in ("actor_state_dict", "critic_state_dict", "environment"):
        for name, value in one[part].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other[part][name])), name
    for name, moments in one["optimizer_state_dict"]["state"].items():
        for key, value in moments.items():
            assert torch.equal(value, other["optimizer_state_dict"]["state"][name][key]), key
    assert "distribution.std_param" not in one["actor_state_dict"]


CONTRACT = contract_for(tiny_robot())


@pytest.mark.parametrize("normalize", [False, True])
def test_the_exported_graph_answers_the_mean(tmp_path, normalize):
    """Against the formula in numpy; numbers far from zero are among them."""
    torch.manual_seed(0)
    size, actions = CONTRACT.observation_size, CONTRACT.action_size
    groups = TensorDict({"actor": torch.zeros(4, size)}, batch_size=[4])
    noise = {"class_name": "gantry_policies.on_policy.beta:BetaActions", "init_std": 0.5}
    actor = MLPModel(
        groups, {"actor": ["actor"]}, "actor", actions, (32,), obs_normalization=normalize, distribution_cfg=noise
    )
    assert [layer for layer in actor.mlp.modules() if hasattr(layer, "weight")][-1].out_features == 2 * actions
    with torch.no_grad():
        for layer in actor.mlp:
            if hasattr(layer, "weight"):
                layer.weight *= 5.0
    actor.update_normalization(TensorDict({"actor": 2.0 + 3.0 * torch.randn(256, size)}, batch_size=[256]))
    data = golden_data(CONTRACT, 1000)
    still = np.zeros((1000, actions), dtype=np.float32)
    signals = signals_for(CONTRACT, still, len(still), time_s=data["time_s"], command=data["command"])
    target = JointDecoder(CONTRACT, still)(still, signals).pos_rad
    data |= {"joint_target_rad": target, "episode_start": np.arange(1000) % 50 == 0}
    data["observation"] = np.random.default_rng(0).normal(0, 3, (1000, size)).astype(np.float32)
    bundle = load_bundle(export_bundle(actor.as_onnx(verbose=False), CONTRACT, data, tmp_path / "bundle"))
    with torch.no_grad():
        raw = actor.mlp(actor.obs_normalizer(torch.from_numpy(data["observation"]))).double().numpy()
    assert raw.max() > 20
    assert raw.min() < -20
    alpha, beta = np.split(1.0 + np.logaddexp(0.0, raw), 2, axis=-1)
    wanted = alpha / (alpha + beta) * 2.0 - 1.0
    assert wanted.max() > 0.9
    assert wanted.min() < -0.9
    np.testing.assert_allclose(bundle.golden["action"], wanted, atol=1e-5, rtol=0)
    policy = OnnxPolicy(bundle.model_bytes, bundle.contract)
    found = np.concatenate([policy(row[None]) for row in data["observation"][:50]])
    np.testing.assert_allclose(found, wanted[:50], atol=1e-5, rtol=0)


@pytest.mark.parametrize("rows", [slice(0, 7), torch.tensor([1, 4, 5, 19])])
def test_a_mirrored_row_is_as_likely_under_the_mirrored_policy(make_runner, rows):
    """Two actions change places and one of them its sign: alpha and beta of that one change places too."""
    runner = make_runner(distribution="beta", mirror=MIRROR | {"action": MirrorMap((1, 0), (1.0, -1.0))})
    torch.manual_seed(0)
    policy, mirrored = BetaActions(2), BetaActions(2)
    policy.update(torch.randn(20, 4) * 3)
    actions = policy.sample()
    params = tuple(values.clone() for values in policy.params)
    groups = {"actor": torch.zeros(20, 2), "critic": torch.zeros(20, 3)}
    batch = SimpleNamespace(observations=groups, actions=actions.clone(), old_distribution_params=params)
    symmetry = runner.alg.symmetry
    assert isinstance(symmetry, RandomMirror)
    symmetry.mirror(batch, rows)
    assert not torch.allclose(batch.actions, actions)
    mirrored._alpha, mirrored._beta = params
    torch.testing.assert_close(mirrored.log_prob(batch.actions), policy.log_prob(actions), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(mirrored.mean[rows, 1], -policy.mean[rows, 0])
    torch.testing.assert_close(mirrored.mean[rows, 0], policy.mean[rows, 1])


def test_the_clip_falls_and_a_minibatch_has_its_samples(make_runner):
    runner, clips, rows = make_runner(clip=0.2, final_clip_factor=0.4, minibatch_samples=33, threads=2), [], []
    minibatches = runner.alg._minibatches
    runner.alg._minibatches = lambda: (rows.append(len(batch)) or batch for batch in minibatches())
    runner.train(lambda _: clips.append(runner.alg.clip_param))
    assert clips == pytest.approx([0.2, 0.18, 0.16, 0.14, 0.12, 0.10])
    assert rows == [26] * (6 * 4 * 3)  # 80 samples in as few equal ones of at most 33 as there can be
    assert [make_runner(minibatch_samples=n).alg.num_mini_batches for n in (0, 20, 79, 80, 4096)] == [2, 4, 2, 1, 1]


@pytest.mark.parametrize("distribution", ["gaussian", "beta"])
def test_an_end_is_not_bootstrapped_and_a_timeout_is(make_runner, distribution):
    """Three steps of one reward each by hand, gamma = lambda = 1/2, values 2, 4, 8 and 16 after the end.

    The first environment finishes in the second step, the second one's time is up then, the third one goes on. What
    rsl_rl takes for the value behind a timeout is that of the step before it.
    """
    runner = make_runner(distribution=distribution, num_envs=3, steps_per_env=3, gamma=0.5, lam=0.5, minibatches=1)
    alg = runner.alg
    layers = [part for part in alg.critic.mlp if hasattr(part, "weight")]
    with torch.no_grad():
        for layer in layers:
            layer.weight.zero_()
            layer.bias.zero_()
        layers[0].weight[0, 0] = layers[1].weight[0, 0] = 1.0  # elu(x) = x for x > 0

    def seen(value):
        groups = {"actor": torch.zeros(3, 2), "critic": torch.tensor([[value, 0.0, 0.0]]).repeat(3, 1)}
        return TensorDict(groups, batch_size=[3])

    with torch.inference_mode():
        for step, value in enumerate((2.0, 4.0, 8.0)):
            alg.act(seen(value))
            dones = torch.tensor([1, 1, 0]) * (step == 1)
            time_outs = torch.tensor([False, True, False]) & (step == 1)
            alg.process_env_step(seen(value), torch.ones(3), dones, {"time_outs": time_outs})
        alg.compute_returns(seen(16.0))
    # Backwards: 1 + 16/2 - 8 = 1; then 1 - 4 = -3, 1 + 4/2 - 4 = -1 and 1 + 8/2 - 4 + 1/4 = 1.25;
    # then 1 + 4/2 - 2 = 1 and a quarter of these.
    wanted = torch.tensor([[2.25, 2.75, 3.3125], [1.0, 3.0, 5.25], [9.0, 9.0, 9.0]])
    torch.testing.assert_close(alg.storage.returns.squeeze(-1), wanted)
    advantages = torch.tensor([[0.25, 0.75, 1.3125], [-3.0, -1.0, 1.25], [1.0, 1.0, 1.0]])
    normal = (advantages - advantages.mean()) / advantages.std()
    torch.testing.assert_close(alg.storage.advantages.squeeze(-1), normal)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"distribution": "betta"}, UnknownNameError, "Did you mean 'beta'"),
        ({"distribution": "gausian"}, UnknownNameError, "Did you mean 'gaussian'"),
        ({"distribution": "beta", "init_std": 0.6}, GantryError, r"init_std is 0\.6.*less than 0\.577"),
        ({"minibatch_samples": -4}, GantryError, "learner.minibatch_samples is -4, expected at least 2, or 0"),
        ({"minibatch_samples": 1}, GantryError, "learner.minibatch_samples is 1"),
        ({"final_clip_factor": 1.5}, GantryError, r"learner.final_clip_factor is 1\.5, expected 0 to 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(change, error, text):
    with pytest.raises(error, match=text):
        PpoCfg(total_steps=1, **change)


def test_what_a_beta_policy_does_not_know_is_refused(make_runner, toy_class):
    with pytest.raises(GantryError, match=r"signs \[1, -0\.5\], expected 1 and -1"):
        make_runner(distribution="beta", mirror=MIRROR | {"action": MirrorMap.signs(1, -0.5)})
    with pytest.raises(GantryError, match=r"deviation of 0\.9. Expected more than 0"):
        BetaActions(2, init_std=0.9)
    alg = make_runner(distribution="beta").alg
    with pytest.raises(GantryError, match="A Beta policy is learned with no advantage normalisation per minibatch"):
        FewSamplePPO(alg.actor, alg.critic, alg.storage, schedule="fixed", normalize_advantage_per_mini_batch=True)

    class Beyond:
        def __call__(self, observations):
            return Guidance(1.5 * torch.ones(len(observations), 2))

    cfg = PpoCfg(total_steps=80, steps_per_env=10, guide=ImitationCfg(embedding_weight=0.0), distribution="beta")
    with pytest.raises(GantryError, match=r"teacher's actions reach 1\.5, those of learner.distribution 'beta'"):
        PpoTrainer(toy_class(), cfg, None, "cpu", learn_threads=1, teacher=Beyond()).train()


@pytest.mark.parametrize(("options", "total"), [({}, 40.620029), ({"threads": 2, "mirror": MIRROR}, 40.642346)])
def test_gaussian_policies_are_learned_as_before(make_runner, options, total):
    """Sums of absolute weights after six iterations, recorded before there were Betas."""
    runner = make_runner(**options)
    assert runner.ppo_cfg.actor_model(None)["distribution_cfg"] == {
        "class_name": "GaussianDistribution",
        "init_std": 0.5,
        "std_type": "scalar",
    }
    runner.train()
    found = sum(float(values.detach().double().abs().sum()) for values in runner.alg._parameters)
    assert found == pytest.approx(total, rel=1e-5)
