"""Targets, steps and resumes of the learner, against numbers by hand."""

from dataclasses import replace

import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_policies.imitation.config import BcCfg
from gantry_policies.imitation.policy import BcPolicy
from gantry_policies.off_policy.config import ActorCfg, CriticCfg, EncoderCfg, LearnerCfg, OffPolicyCfg, TemperatureCfg
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.policy import LearnedPolicy, PolicyModule
from gantry_policies.off_policy.presets import PRESETS
from gantry_policies.off_policy.replay.batches import Batch
from gantry_policies.off_policy.replay.buffer import ReplayBuffer

SHAPES = {"state": (3,)}
ACTOR = ActorCfg(kind="td3", hidden=(16,))
RESIDUAL = replace(ACTOR, residual=True, action_scale=0.2)
CFG = LearnerCfg(actor=ACTOR, critic=CriticCfg(heads=4, hidden=(16,)), batch_size=16, demo_fraction=0.0)


def learner_of(actor=ACTOR, seed=0, critic=None, shapes=SHAPES, **options):
    cfg = replace(CFG, actor=actor, critic=critic or CFG.critic, **options)
    return Learner(cfg, shapes, 2, seed=seed)


def filled(with_base=False, shapes=SHAPES, seed=0):
    draw = torch.Generator().manual_seed(seed)
    buffer = ReplayBuffer(400, 1, shapes, 2, with_base)
    for _ in range(10):
        obs = {
            key: torch.rand(21, *shape, generator=draw) * (1 if key == "state" else 255)
            for key, shape in shapes.items()
        }
        action, base = (torch.rand(n, 2, generator=draw) * 2 - 1 for n in (20, 21))
        reward = torch.rand(20, generator=draw)
        buffer.add_episode(obs, action, reward, True, base_action=base if with_base else None)
    return buffer


def batch_of(count=3, returns=0.0, discount=1.0, base=None, action=None):
    obs = {"state": torch.zeros(count, 3)}
    flags = torch.zeros(count, dtype=torch.bool)
    action = torch.zeros(count, 2) if action is None else action
    numbers = torch.full((count,), float(returns)), torch.full((count,), float(discount))
    return Batch(obs, action, *numbers, obs, flags, flags, base, base)


def constant(critic, values):
    """Heads that say the same of everything."""
    with torch.no_grad():
        critic.ensemble.last.weight.zero_()
        critic.ensemble.last.bias.copy_(torch.tensor(values)[:, None, None])


def test_a_target_is_the_return_and_the_discounted_smallest_of_a_random_pair():
    learner = learner_of()
    constant(learner.critic_target, [1.0, 2.0, 4.0, 8.0])
    seen = {round(learner.targets(batch_of(1, returns=0.5, discount=0.25)).item(), 6) for _ in range(200)}
    assert seen == {0.5 + 0.25, 0.5 + 0.5, 0.5 + 1.0}  # 8 is never the smallest
    assert learner.targets(batch_of(2, returns=0.5, discount=0.0)).tolist() == [0.5, 0.5]
    bounded = learner_of(critic=replace(CFG.critic, target_range=(0.0, 1.0)))
    constant(bounded.critic_target, [8.0] * 4)
    assert bounded.targets(batch_of(1)).item() == 1.0


def test_target_noise_is_clipped_and_there_is_none_while_the_critic_warms_up():
    learner = learner_of(replace(RESIDUAL, target_std=0.5, target_std_clip=0.1))
    asked = []
    learner.critic_target.forward = lambda features, action, heads: asked.append(action) or torch.zeros(2, len(action))
    base = torch.tensor([[0.3, -0.95]]).expand(500, 2)
    learner.targets(batch_of(500, base=base))
    assert (asked[0] - base).abs().amax(0).tolist() == pytest.approx([0.1, 0.1])
    assert asked[0].min() == -1.0  # and what is executed is clamped
    learner.targets(batch_of(500, base=base), smooth=False)
    assert torch.equal(asked[1], base)


@pytest.mark.parametrize("loss", ["mean_square", "squared_mean"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_trap_5_every_loss_learns_the_value_with_the_discount_and_the_steps_that_it_was_told(loss, n_step):
    """A corridor of four states whose end is worth 1: the value k steps before it is gamma to the k."""
    critic = CriticCfg(heads=2, hidden=(16,), loss=loss, tau=0.2, learning_rate=1e-2)
    learner = learner_of(critic=critic, gamma=0.7, n_step=n_step)
    buffer = ReplayBuffer(10, 1, SHAPES, 2)
    states = torch.eye(5)[:, :3] + torch.arange(5.0)[:, None] / 4
    buffer.add_episode({"state": states}, torch.zeros(4, 2), torch.tensor([0.0, 0.0, 0.0, 1.0]), True)
    learner.actor_target.last.weight.data.zero_(), learner.actor_target.last.bias.data.zero_()
    for _ in range(250):
        learner.update_critic(buffer)
    with torch.no_grad():
        features = learner.encoder.features({"state": states[:4]})
        values = learner.critic(features, torch.zeros(4, 2))
    for head in values:
        assert head.tolist() == pytest.approx([0.343, 0.49, 0.7, 1.0], abs=0.05)


def changed(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


def weights(learner):
    networks = learner.state_dict()["networks"]
    return {f"{n}.{key}": value.clone() for n, state in networks.items() for key, value in state.items()}


def groups(names):
    return {name.split(".")[0] for name in names}


def test_trap_11_the_target_actor_moves_with_the_actor_and_only_then():
    learner, buffer = learner_of(critic_updates=3), filled()
    start = weights(learner)
    learner.update_critic(buffer)
    after = weights(learner)
    assert groups(changed(start, after)) == {"critic", "critic_target"}
    learner.update(buffer)
    assert (learner.critic_updates, learner.actor_updates) == (1 + 3, 1)
    moved = weights(learner)
    assert groups(changed(after, moved)) == {"critic", "critic_target", "actor", "actor_target"}
    tau = ACTOR.tau
    name = "last.weight"
    expected = (1 - tau) * after[f"actor_target.{name}"] + tau * moved[f"actor.{name}"]
    assert torch.allclose(moved[f"actor_target.{name}"], expected, atol=1e-7)
    # Nothing in the networks behaves otherwise in evaluation, so that the mode of a target is of no effect.
    kinds = {type(module) for network in (learner.actor, learner.critic) for module in network.modules()}
    assert not {kind for kind in kinds if "Dropout" in kind.__name__ or "BatchNorm" in kind.__name__}


def test_a_critic_target_goes_its_share_of_the_way_after_every_update():
    learner, buffer = learner_of(), filled()
    before = learner.critic_target.ensemble.last.weight.clone()
    learner.update_critic(buffer)
    expected = before + 0.005 * (learner.critic.ensemble.last.weight - before)
    assert torch.allclose(learner.critic_target.ensemble.last.weight, expected, atol=1e-8)


def test_gradients_are_scaled_down_to_the_largest_norm():
    learner = learner_of(max_grad_norm=0.01)
    constant(learner.critic, [100.0] * 4)
    norm = learner.update_critic(filled())["critic_grad_norm"]
    assert norm > 1.0
    left = torch.stack([p.grad.norm() for p in learner.critic.parameters()]).norm()
    assert left.item() == pytest.approx(0.01, rel=1e-3)


def test_an_actor_climbs_what_it_is_told_to():
    """Heads that want different numbers of the action, without a hidden layer's detour: the last layer follows."""
    for gradient, better in (("ensemble_mean", 0.0), ("q1", 1.0)):
        learner = learner_of(replace(ACTOR, gradient=gradient, learning_rate=1e-2))
        learner.critic.forward = lambda features, action, heads: torch.stack((action[:, 0], -action[:, 0]))[
            slice(None) if heads is None else heads
        ]
        begin = learner.act({"state": torch.zeros(1, 3)})[0, 0].item()
        for _ in range(20):
            learner._update_actor(batch_of(8), learner.encoder.features({"state": torch.zeros(8, 3)}))
        gained = learner.act({"state": torch.zeros(1, 3)})[0, 0].item() - begin
        assert (gained > 0.3) if better else (abs(gained) < 1e-6)


def test_a_progressive_residual_is_given_its_reach_bit_by_bit():
    learner, buffer = learner_of(replace(RESIDUAL, progressive_updates=4)), filled(with_base=True)
    reaches = [learner.correction_scale]
    for _ in range(5):
        learner.update(buffer)
        reaches.append(learner.correction_scale)
    assert reaches == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2, 0.2])


@pytest.mark.parametrize(("entropy", "rises"), [(-50.0, False), (50.0, True)])
def test_temperature_seeks_the_entropy_that_is_wanted(entropy, rises):
    heat = TemperatureCfg(initial=0.2, entropy_per_action=entropy, learning_rate=0.1)
    learner = learner_of(replace(ACTOR, kind="sac", temperature=heat))
    learner.update(filled())
    assert (learner.temperature > 0.2) == rises
    assert learner.temperature == pytest.approx(0.2 * (1.1052 if rises else 0.9048), rel=1e-3)


def test_the_entropy_is_in_targets_if_it_is_wanted():
    plain = ActorCfg(kind="sac", hidden=(16,), temperature=TemperatureCfg(initial=0.5))
    targets = []
    for backup in (False, True):
        learner = learner_of(replace(plain, temperature=replace(plain.temperature, backup=backup)))
        constant(learner.critic_target, [3.0] * 4)
        targets.append(learner.targets(batch_of(4000)).mean().item())
        entropy = learner.update(filled())["entropy"].item()
    assert targets[0] == pytest.approx(3.0)
    assert targets[1] == pytest.approx(3.0 + 0.5 * entropy, abs=0.2)
    assert targets[1] > 3.1


def test_pretraining_holds_the_actor_to_what_was_shown():
    learner, buffer = learner_of(replace(ACTOR, learning_rate=1e-2)), ReplayBuffer(30, 1, SHAPES, 2)
    shown = torch.tensor([[0.6, -0.4]]).expand(20, 2)
    buffer.add_episode({"state": torch.rand(21, 3)}, shown, torch.zeros(20), True)
    for _ in range(60):
        learner.pretrain(buffer, clone_weight=50.0)
    assert learner.act({"state": torch.rand(5, 3)}).mean(0).tolist() == pytest.approx([0.6, -0.4], abs=0.1)


@pytest.mark.parametrize("kind", ["td3", "sac", "images"])
def test_a_learner_goes_on_exactly_where_it_was_saved(kind, tmp_path):
    shapes = SHAPES if kind != "images" else {"state": (3,), "image/front": (3, 40, 40)}
    actor = replace(ACTOR, kind="sac") if kind == "sac" else RESIDUAL
    options = {"shapes": shapes, "encoder": EncoderCfg(stem_width=4, width=4), "batch_size": 4, "critic_updates": 2}
    learner, buffer = learner_of(actor, **options), filled(kind != "sac", shapes)
    learner.state_scaler.fit(buffer.stored("state"))
    learner.update(buffer)
    torch.save(learner.state_dict(), tmp_path / "learner.pt")
    other = learner_of(actor, seed=5, **options)
    other.load_state_dict(torch.load(tmp_path / "learner.pt", weights_only=True))
    for _ in range(2):
        one, two = learner.update(buffer), other.update(buffer)
        assert all(torch.equal(one[name], two[name]) for name in one)
    assert not changed(weights(learner), weights(other))
    obs = {key: value[:2] for key, value in buffer.sample(2, learner.ahead, learner.generator).obs.items()}
    other.generator.set_state(learner.generator.get_state())
    base = torch.zeros(2, 2)
    assert torch.equal(learner.act(obs, base, explore=True), other.act(obs, base, explore=True))


def test_trap_14_scalers_are_saved_with_the_policy_and_run_inside_it():
    learner, other = learner_of(RESIDUAL), learner_of(RESIDUAL, seed=1)
    torch.nn.init.normal_(learner.actor.last.weight)
    learner.action_scaler.fit(torch.tensor([[-0.5, 0.0], [0.5, 0.8]]), 0.2)
    learner.state_scaler.fit(torch.rand(50, 3) * 9)
    other.load_state_dict(learner.state_dict())

    class Still:
        num_envs = 4
        wanted = torch.tensor([[0.4, 0.4], [-0.5, 0.0], [0.0, 0.8], [0.1, 0.1]])

        def reset(self, env_ids=None):
            pass

        def act(self, obs):
            return self.wanted

        def peek(self, obs, env_ids=None):
            return self.wanted

    obs = {"state": torch.rand(4, 3) * 9}
    action = LearnedPolicy(learner, Still()).act(obs)
    assert torch.equal(LearnedPolicy(other, Still()).act(obs), action)
    assert torch.equal(PolicyModule(other)(obs, Still.wanted), action)
    # Corrections are bounded in scaled units: 0.2 of half ranges 0.6 and 0.48.
    assert ((action - Still.wanted).abs() <= torch.tensor([0.12, 0.096]) + 1e-6).all()
    assert (action - Still.wanted).abs().max() > 0.05
    assert "action_scaler" in learner.state_dict()["networks"]


def test_trap_10_residual_presets_learn_slowly_behind_a_critic_that_was_warmed_up():
    for name in ("resfit", "resfit_paper"):
        cfg = PRESETS[name]()
        assert cfg.agent.actor.learning_rate < 0.34 * cfg.agent.critic.learning_rate
        assert cfg.critic_warmup_updates >= 1000
    paper = PRESETS["resfit_paper"]()
    assert (paper.agent.actor.learning_rate, paper.agent.critic.learning_rate) == (1e-6, 1e-4)
    assert (paper.agent.critic.loss, paper.agent.timeout_is_terminal) == ("squared_mean", True)


def test_every_preset_makes_a_learner_that_updates():
    for name, preset in PRESETS.items():
        cfg = preset()
        assert isinstance(cfg, OffPolicyCfg)
        if name == "resfit_paper":  # its networks take minutes on a CPU
            narrow = replace(cfg.agent.critic, hidden=(8,), trunk_size=8)
            cfg = replace(cfg, agent=replace(cfg.agent, critic=narrow, batch_size=4))
        cfg = replace(cfg, agent=replace(cfg.agent, batch_size=4))
        clone = BcPolicy(BcCfg(), SHAPES, 2) if cfg.agent.chunk_steps else None
        learner = Learner(cfg.agent, SHAPES, 2, clone=clone)
        residual = cfg.agent.actor.residual
        metrics = learner.update(filled(residual), filled(residual, seed=1))
        assert all(torch.isfinite(value) for value in metrics.values())


def test_errors_say_what_is_wrong():
    with pytest.raises(GantryError, match=r"\['image/front'\], expected one called 'state'"):
        learner_of(shapes={"image/front": (3, 84, 84)})
    with pytest.raises(GantryError, match="needs the base's action"):
        learner_of(RESIDUAL).act({"state": torch.zeros(1, 3)})
    with pytest.raises(GantryError, match="does not fit this learner's configuration"):
        learner_of().load_state_dict(learner_of(replace(ACTOR, hidden=(17,))).state_dict())
    with pytest.raises(
        GantryError, match=r"critic\.target_heads is 5, expected at most learner\.agent\.critic\.heads 4"
    ):
        CriticCfg(heads=4, target_heads=5)
    with pytest.raises(GantryError, match=r"Unknown learner\.agent\.actor\.kind 'tdd3'. Did you mean 'td3'"):
        ActorCfg(kind="tdd3")
    with pytest.raises(GantryError, match=r"action_scale is 0\.5, expected 1 for an actor without a base"):
        ActorCfg(action_scale=0.5)
    with pytest.raises(GantryError, match=r"learner\.agent\.gamma is 1\.5"):
        LearnerCfg(gamma=1.5)
    with pytest.raises(GantryError, match=r"actor\.hidden is \[\]"):
        ActorCfg(hidden=())
