"""Chunks of actions as one action: windows by hand, a bandit of chunks with a known answer, resumes, and the bundle."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.contract.policy_contract import ChunkSpec
from gantry_deploy.policy.policy import open_policy
from gantry_fixtures.arm import arm_contract_for, arm_golden, arm_model, with_cameras
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_policies.common.checkpoint import load_newest
from gantry_policies.imitation.config import BcCfg, ImageEncoderCfg, NetworkCfg
from gantry_policies.imitation.export import export_chunks
from gantry_policies.imitation.policy import BcPolicy, make_base
from gantry_policies.off_policy import presets
from gantry_policies.off_policy.actors import PlanActor
from gantry_policies.off_policy.config import ActorCfg, CriticCfg, LearnerCfg
from gantry_policies.off_policy.critics import conservative_loss
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.replay.batches import Batch, Lookahead
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.replay.demos import Demo, demo_buffer
from gantry_policies.off_policy.replay.windows import to_go
from gantry_policies.off_policy.scalers import ActionScaler
from gantry_policies.off_policy.trainer import OffPolicyTrainer

AGENT = LearnerCfg(
    actor=ActorCfg(kind="td3", learning_rate=3e-3),
    critic=CriticCfg(heads=3, hidden=(32,), learning_rate=3e-3, conservative_weight=0.1),
    gamma=0.5,
    n_step=2,
    chunk_steps=3,
    batch_size=32,
    demo_fraction=0.0,
    critic_updates=1,
)
SHAPES = {"state": (2,)}


def episode(rewards, terminated=True, first=0.0):
    """An episode whose actions are 0.1, 0.2, ... and whose observations are numbered from ``first``."""
    steps = len(rewards)
    seen = first + torch.arange(steps + 1.0)[:, None].expand(-1, 2)
    return Demo({"state": seen}, 0.1 * torch.arange(1, steps + 1)[:, None], torch.tensor(rewards), terminated)


def chunks_of(*demos, gamma=0.5, n_step=2, chunk_steps=3, at=None):
    buffer = demo_buffer(demos, ActionScaler(1), gamma=gamma)
    first = buffer.transitions() if at is None else at
    return buffer.gather(first, Lookahead(n_step, gamma, chunk_steps=chunk_steps))


def clone_of(kind="mlp", shapes=SHAPES, size=1, seed=0, steps=3, **network):
    torch.manual_seed(seed)
    sizes = {"hidden": (32,), "width": 8, "heads": 2, "feedforward": 8, "encoder_layers": 1, "decoder_layers": 1}
    cfg = NetworkCfg(kind=kind, **(sizes | network))
    return BcPolicy(BcCfg(network=cfg, chunk_steps=steps, execute_steps=2), shapes, size)


def test_returns_of_a_chunk_that_ends_inside_an_episode_and_of_one_that_ends_with_it():
    batch = chunks_of(episode([1.0, 2.0, 4.0, 8.0]))
    # 1 + 2 / 2; 2 + 4 / 2; 4 + 8 / 2; 8: the value after two steps counts a quarter, after the end nothing.
    assert batch.returns.tolist() == [2.0, 4.0, 8.0, 8.0]
    assert batch.discount.tolist() == [0.25, 0.25, 0.0, 0.0]
    assert batch.next_obs["state"][:, 0].tolist() == [2.0, 3.0, 4.0, 4.0]
    assert batch.action.tolist() == [
        pytest.approx(row) for row in ([0.1, 0.2, 0.3], [0.2, 0.3, 0.4], [0.3, 0.4, 0.4], [0.4, 0.4, 0.4])
    ]
    assert batch.is_real.tolist() == [[True] * 3, [True] * 3, [True, True, False], [True, False, False]]
    # 8 / 8 + 4 / 4 + 2 / 2 + 1, and so on to the end.
    assert batch.to_go.tolist() == [4.0, 6.0, 8.0, 8.0]
    assert to_go(torch.tensor([0.0, 0.0, 1.0]), 0.9).tolist() == pytest.approx([0.81, 0.9, 1.0])


def test_out_of_time_inside_a_chunk_the_value_after_the_steps_that_there_were_counts():
    batch = chunks_of(episode([1.0, 1.0, 1.0], terminated=False), n_step=3)
    assert batch.returns.tolist() == [1.75, 1.5, 1.0]
    assert batch.discount.tolist() == [0.125, 0.25, 0.5]
    assert batch.next_obs["state"][:, 0].tolist() == [3.0, 3.0, 3.0]


@pytest.mark.parametrize("terminated", [True, False])
def test_no_chunk_takes_an_action_or_a_reward_of_another_episode(terminated):
    draw = np.random.default_rng(5)
    demos = [episode(draw.random(n).tolist(), terminated, first=100.0 * i) for i, n in enumerate((1, 4, 2, 7))]
    batch = chunks_of(*demos, n_step=4, chunk_steps=5)
    row = 0
    for demo in demos:
        length = len(demo.action)
        for begin in range(length):
            known = min(4, length - begin)
            earned = sum(0.5**i * float(demo.reward[begin + i]) for i in range(known))
            assert batch.returns[row].item() == pytest.approx(earned)
            assert batch.discount[row].item() == (0.0 if terminated and begin + 4 >= length else 0.5**known)
            acted = [float(demo.action[min(begin + i, length - 1)]) for i in range(5)]
            assert batch.action[row].tolist() == pytest.approx(acted)
            assert int(batch.is_real[row].sum()) == min(5, length - begin)
            assert batch.next_obs["state"][row].equal(demo.obs["state"][begin + known])
            row += 1
    assert row == len(batch.action) == 14


def test_single_actions_are_given_as_before_and_steps_of_environments_have_no_rewards_to_go(tmp_path):
    buffer = ReplayBuffer(20, 1, SHAPES, 1)
    see = {"state": torch.ones(1, 2)}
    no = torch.tensor([False])
    buffer.add(see, torch.full((1, 1), 0.3), torch.ones(1), {"state": torch.zeros(1, 2)}, no, ~no)
    single = buffer.gather(torch.tensor([0]), Lookahead(2, 0.5))
    assert (single.is_real, single.to_go) == (None, None)
    assert single.action.shape == (1, 1)
    buffer.save(tmp_path / "replay.npz")
    again = ReplayBuffer.loaded(tmp_path / "replay.npz").gather(torch.tensor([0]), Lookahead(2, 0.5, chunk_steps=2))
    assert again.to_go.tolist() == [-torch.inf]
    assert again.action.tolist() == [pytest.approx([0.3, 0.3])]


def test_targets_stop_at_terminations_and_count_the_executed_steps():
    learner = Learner(AGENT, SHAPES, 1, clone=clone_of())
    with torch.no_grad():
        learner.critic_target.ensemble.last.weight.zero_()
        learner.critic_target.ensemble.last.bias.fill_(10.0)
    batch = chunks_of(episode([1.0, 2.0, 4.0, 8.0]))
    assert learner.targets(batch).tolist() == pytest.approx([2.0 + 2.5, 4.0 + 2.5, 8.0, 8.0])
    assert learner.critic.ensemble.layers[0].weight.shape[1] == 2 + 2  # The state, and two executed steps of three.


def test_the_conservative_term_by_hand():
    recorded, own = torch.tensor([[1.0, 3.0]]), torch.tensor([[5.0, 0.0]])
    own.requires_grad_()
    # The second is below what was earned there, and is not pressed further: (5 + 2) / 2 - (1 + 3) / 2.
    loss = conservative_loss(recorded, own, torch.tensor([-torch.inf, 2.0]))
    assert loss.item() == pytest.approx(1.5)
    loss.backward()
    assert own.grad.tolist() == [[0.5, 0.0]]


WAYS = ((0.8, -0.8, 1.0), (-0.8, 0.8, 0.0), (0.8, 0.8, 0.0), (-0.8, -0.8, 0.0))
"""Chunks of a bandit, and their rewards: only the first one wins, which no single action tells."""


def bandit(seed=3, episodes=120):
    """Episodes of two steps that begin alike, each with one of the four chunks at random, and a little noise."""
    draw = np.random.default_rng(seed)
    demos = []
    for _ in range(episodes):
        first, second, reward = WAYS[draw.integers(4)]
        action = torch.tensor([[first], [second]]) + 0.05 * torch.from_numpy(draw.standard_normal((2, 1))).float()
        demos.append(
            Demo({"state": torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])}, action, torch.tensor([0, reward]))
        )
    return demos


def begin(policy):
    with torch.no_grad():
        return policy({"state": torch.zeros(1, 2)})[0, :2, 0].tolist()


@pytest.mark.parametrize("kind", ["mlp", pytest.param("flow", marks=pytest.mark.soak)])
def test_of_good_and_bad_chunks_the_policy_comes_to_prefer_the_good(kind):
    demos = bandit()
    agent = replace(AGENT, n_step=2, chunk_steps=2, gamma=0.9)
    clone = clone_of(kind, steps=2, flow_steps=4)
    clone.state_scaler.fit(torch.cat([demo.obs["state"] for demo in demos]))
    learner = Learner(agent, SHAPES, 1, clone=clone)
    buffer = demo_buffer(demos, learner.action_scaler, gamma=agent.gamma)
    everything = buffer.gather(buffer.transitions(), learner.ahead)
    before = critic_error(learner, everything)
    first = learner.update_critic(buffer)["critic_loss"].item()
    assert np.isfinite(first)
    for _ in range(200):
        learner.update_critic(buffer)
    assert critic_error(learner, everything) < 0.5 * before
    for _ in range(400):
        metrics = learner.pretrain(buffer, 0.3)
    assert all(torch.isfinite(value) for value in metrics.values())
    one, two = begin(learner.actor.policy)
    assert one > 0.4
    assert two < -0.4
    assert begin(clone) != begin(learner.actor.policy)  # The clone itself stays as it was.


def critic_error(learner, batch):
    with torch.no_grad():
        seen = learner.encoder.features({"state": learner.state_scaler(batch.obs["state"])})
        values = learner.critic(seen, batch.action[:, : learner.valued_size])
        known = batch.discount == 0.0
        return float((values - batch.returns).square()[:, known].mean())


def test_one_step_of_the_critic_goes_down_its_loss():
    """On one batch drawn twice, with the same targets: nothing comes after any of its chunks."""
    learner = Learner(replace(AGENT, critic=replace(AGENT.critic, learning_rate=1e-3)), SHAPES, 1, clone=clone_of())
    batch = chunks_of(*[episode([1.0, float(i % 2)], first=float(i)) for i in range(6)])
    batch = Batch(**{**vars(batch), "discount": torch.zeros_like(batch.discount)})
    before = critic_error(learner, batch)
    learner._update_critic(batch, smooth=False)
    assert critic_error(learner, batch) < before


def test_without_rewards_the_policy_stays_a_clone_and_its_unexecuted_steps_are_learned_too():
    walk = [
        Demo({"state": torch.rand(5, 2)}, torch.tensor([[0.5], [-0.5], [0.5], [-0.5]]), torch.zeros(4)) for _ in "12"
    ]
    walk = [replace(demo, obs={"state": torch.arange(5.0)[:, None].expand(-1, 2)}) for demo in walk]
    learner = Learner(
        replace(AGENT, critic=replace(AGENT.critic, conservative_weight=0.0)), SHAPES, 1, clone=clone_of()
    )
    buffer = demo_buffer(walk, learner.action_scaler, gamma=0.5)
    for _ in range(300):
        learner.pretrain(buffer, 10.0)
    with torch.no_grad():
        plan = learner.actor.policy({"state": torch.zeros(1, 2)})[0, :, 0]
    assert plan.tolist() == pytest.approx([0.5, -0.5, 0.5], abs=0.15)


@pytest.mark.parametrize(
    ("clone", "changes", "text"),
    [
        (None, {}, "needs a clone to begin with"),
        ({"steps": 4}, {}, r"set learner\.agent\.chunk_steps=4"),
        ({"kind": "transformer", "latent": 2}, {}, r"network\.latent is 2, expected 0"),
        ({}, {"chunk_steps": 0, "critic": CriticCfg()}, "there is a clone that plans chunks; expected none"),
    ],
)
def test_a_clone_that_does_not_fit_is_refused(clone, changes, text):
    with pytest.raises(GantryError, match=text):
        Learner(replace(AGENT, **changes), SHAPES, 1, clone=None if clone is None else clone_of(**clone))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: replace(AGENT, n_step=4), "n_step is 4, expected at most learner.agent.chunk_steps 3"),
        (lambda: replace(AGENT, actor=ActorCfg(kind="sac")), "actor.kind is 'sac', expected 'td3'"),
        (lambda: replace(AGENT, chunk_steps=0), "conservative_weight is 0.1, expected 0 with"),
        (lambda: replace(presets.co_rft(), total_steps=5), "total_steps is 5 and learner.scale_actions False"),
        (lambda: replace(presets.co_rft(), pretrain_updates=0), "pretrain_updates are 0, expected one of them above"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, text):
    with pytest.raises(GantryError, match=text.replace(".", r"\.")):
        make()


def small_run(reach, demos, folder, clone, **options):
    cfg = presets.co_rft()
    critic = replace(cfg.agent.critic, heads=2, hidden=(16,))
    agent = replace(cfg.agent, critic=critic, batch_size=16, n_step=2, chunk_steps=3)
    sizes = {"critic_warmup_updates": 6, "pretrain_updates": 12, "log_every_steps": 3, "save_every_s": 1e9}
    cfg = replace(cfg, agent=agent, **(sizes | {"eval_every_steps": 6, "eval_episodes": 4} | options))
    return OffPolicyTrainer(reach(2, 1), cfg, folder, demos=demos, eval_env=reach(2, 2), clone=clone)


def test_a_training_from_recorded_episodes_alone_can_be_stopped_anywhere(reach, demos, tmp_path):
    shapes, shown = {"state": (4,)}, demos(6)
    clone = clone_of(shapes=shapes, size=2)
    clone.state_scaler.fit(torch.cat([demo.obs["state"] for demo in shown]))
    whole = small_run(reach, shown, tmp_path / "whole", clone)
    rows = []
    assert whole.train(rows.append)
    assert (whole.done, whole.total, whole.env_steps, whole.unit) == (18, 18, 0, "update")
    looks = [(row.phase, row.done) for row in rows if row.evaluation is not None]
    assert looks == [("pretrain", 6), ("pretrain", 12), ("pretrain", 18)]  # The first one is of the clone.
    parts = small_run(reach, shown, tmp_path / "parts", clone)
    assert not parts.train(lambda row: parts.stop() if row.done == 9 else None)
    again = small_run(reach, shown, tmp_path / "parts", clone_of(shapes=shapes, size=2, seed=4))
    again.resume()
    assert again.done == 9
    assert again.train()
    for name, value in whole.learner.state_dict()["networks"]["actor"].items():
        assert torch.equal(value, again.learner.state_dict()["networks"]["actor"][name]), name
    assert (
        load_newest(tmp_path / "parts" / "checkpoints")[0].name
        == load_newest(tmp_path / "whole" / "checkpoints")[0].name
    )


@pytest.mark.parametrize("kind", ["mlp", "transformer"])
def test_a_bundle_runs_its_plans_as_torch_does(kind, tmp_path):
    spec = ChunkSpec(steps=4, execute=3)
    contract = with_cameras(replace(arm_contract_for(robot_spec("yam")), chunk=spec), "front", size_px=20)
    golden = arm_golden(contract, arm_model(contract))
    shapes = {"state": (contract.observation_size,), "image/front": (3, 20, 20)}
    eyes = ImageEncoderCfg(stem_width=2, width=4)
    clone = clone_of(kind, shapes, contract.action_size, steps=4, image_encoder=eyes)
    clone.state_scaler.fit(torch.from_numpy(golden["observation"]))
    agent = replace(AGENT, n_step=3, chunk_steps=4, batch_size=8)
    learner = Learner(agent, shapes, contract.action_size, clone=clone)
    obs = {
        "state": torch.from_numpy(golden["observation"][:21]),
        "image/front": torch.from_numpy(golden["image/front"][:21]),
    }
    demo = Demo(obs, torch.rand(20, contract.action_size) * 2 - 1, torch.rand(20))
    buffer = demo_buffer([demo], learner.action_scaler, gamma=agent.gamma)
    for _ in range(3):
        learner.pretrain(buffer, 1.0)
    assert isinstance(learner.actor, PlanActor)
    policy = learner.actor.policy.requires_grad_(False)
    bundle = load_bundle(export_chunks(policy, contract, golden, tmp_path / "bundle"))
    assert bundle.contract.chunk == spec
    runtime, base = open_policy(bundle), make_base(policy, 1, execute=spec.execute)
    for row, begins in enumerate(golden["episode_start"]):
        if begins:
            runtime.reset()
            base.reset()
        seen = {
            key: torch.from_numpy(golden[name][row : row + 1])
            for key, name in (("state", "observation"), ("image/front", "image/front"))
        }
        wanted = base.act(seen)
        found = runtime(golden["observation"][row : row + 1], {"front": golden["image/front"][row]})
        np.testing.assert_allclose(found.action, wanted, atol=1e-5)
    with torch.no_grad():
        moved = (policy(seen) - clone(seen)).abs().max()
    assert moved > 1e-4
