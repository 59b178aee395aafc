"""A critic that moves the gripper: its choice, its penalties, and who does not see them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.policy.live_policy import LivePolicy
from gantry_hardware.errors import GantryError
from gantry_hardware.files.checked_files import write_checked
from gantry_policies.corrections.live import live_graph, live_weights
from gantry_policies.off_policy.config import ActorCfg, CriticCfg, GripperCfg, LearnerCfg
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.policy import PolicyModule
from gantry_policies.off_policy.replay.batches import Lookahead
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.replay.penalties import GripperPenalties, episode_penalties

PLACES = (-1.0, 0.2, 1.0)
CFG = LearnerCfg(
    actor=ActorCfg(kind="sac", hidden=(16,)),
    critic=CriticCfg(heads=2, hidden=(16,)),
    gripper=GripperCfg(places=PLACES, hidden=(16,), learning_rate=3e-3, tau=0.05),
    n_step=1,
    critic_updates=1,
    batch_size=32,
    demo_fraction=0.0,
)


def learner_of(seed=0, **options):
    return Learner(replace(CFG, **options), {"state": (2,)}, 3, seed=seed)


def filled(penalty, steps=200):
    """Episodes of one step: right is to open at a positive state and to close at a negative one."""
    draw = torch.Generator().manual_seed(5)
    buffer = ReplayBuffer(3 * steps, 1, {"state": (2,)}, 3)
    for index in range(steps):
        state = torch.tensor([[1.0 if index % 2 else -1.0, 0.0]])
        action = 2.0 * torch.rand(1, 3, generator=draw) - 1.0
        action[0, 2] = (1.0, -1.0)[int(torch.randint(2, (), generator=draw))]
        reward = (action[:, 2] * state[:, 0] > 0.0).float()
        opens = torch.where(action[:, 2] > 0.0, penalty, 0.0)
        parts = ({"state": state}, action, reward, {"state": state}, torch.tensor([True]), torch.tensor([False]))
        buffer.add(*parts, penalty=opens)
    return buffer


def grips(learner):
    return learner.act({"state": torch.tensor([[1.0, 0.0], [-1.0, 0.0]])})[:, 2].tolist()


def test_it_takes_the_place_that_earned_most():
    learner, buffer = learner_of(), filled(0.0)
    for _ in range(150):
        metrics = learner.update(buffer)
    assert grips(learner) == [1.0, -1.0]
    assert float(metrics["gripper_loss"]) < 0.05
    assert learner.act({"state": torch.ones(4, 2)}, explore=True)[:, 2].tolist() == [1.0] * 4


def test_a_penalty_counts_for_the_gripper_and_for_no_other_critic():
    learners = []
    for penalty in (0.0, -2.0):
        learner, buffer = learner_of(), filled(penalty)
        batch = buffer.gather(buffer.transitions(), Lookahead(1, 0.9, False))
        learners.append((learner, learner.targets(batch), batch.returns))
        for _ in range(150):
            learner.update_critic(buffer)
    (free, targets, returns), (charged, same_targets, same_returns) = learners
    torch.testing.assert_close(targets, same_targets, rtol=0, atol=0)
    torch.testing.assert_close(returns, same_returns, rtol=0, atol=0)
    for name, value in free.critic.state_dict().items():
        torch.testing.assert_close(charged.critic.state_dict()[name], value, rtol=0, atol=0, msg=name)
    assert grips(free) == [1.0, -1.0]
    assert grips(charged) != [1.0, -1.0], "opening costs more than it earns"


def test_the_executed_command_counts_by_its_nearest_place():
    gripper = learner_of().gripper
    features = learner_of().encoder.features({"state": torch.zeros(4, 2)})
    action = torch.zeros(4, 3)
    action[:, 2] = torch.tensor([-0.7, 0.0, 0.59, 0.8])
    with torch.no_grad():
        values = gripper(features)
        taken = torch.tensor([0, 1, 1, 2])
        expected = (values[torch.arange(4), taken] - 0.5).square().mean()
        torch.testing.assert_close(gripper.loss(features, action, torch.full((4,), 0.5)), expected)


def test_penalties_are_summed_over_several_steps_as_rewards_are():
    buffer = ReplayBuffer(20, 1, {"state": (1,)}, 1)
    frames, penalty = torch.arange(5.0)[:, None], torch.tensor([0.0, -1.0, 0.0, -1.0])
    buffer.add_episode({"state": frames}, torch.zeros(4, 1), torch.ones(4), True, penalty=penalty)
    batch = buffer.gather(torch.tensor([0, 1, 3]), Lookahead(3, 0.5, False))
    assert batch.returns.tolist() == [1.75, 1.75, 1.0]
    assert batch.penalties.tolist() == [-0.5, -1.25, -1.0]


def test_a_switch_is_penalised_once_and_never_at_the_beginning():
    gripper = GripperPenalties(2, -0.1)
    told = [(1.0, 0.0), (1.0, -1.0), (0.2, -1.0), (-1.0, 1.0), (-0.6, 1.0)]
    found = [gripper.of(torch.tensor([[0.3, one], [0.3, two]])).tolist() for one, two in told]
    np.testing.assert_allclose(found, [[0, 0], [0, 0], [0, 0], [-0.1, -0.1], [0, 0]], atol=1e-7)
    gripper.reset(torch.tensor([True, False]))
    np.testing.assert_allclose(gripper.of(torch.tensor([[0.0, 1.0], [0.0, -1.0]])).tolist(), [0, -0.1], atol=1e-7)
    assert episode_penalties(torch.tensor([[1.0], [-1.0], [-1.0], [1.0]]), -1.0).tolist() == [0, -1, 0, -1]


def test_the_policy_and_the_robot_side_choose_alike():
    learner, rng = learner_of(seed=3), np.random.default_rng(3)
    live = LivePolicy(live_graph(learner))
    live.load(live_weights(learner))
    states = rng.normal(size=(40, 2)).astype(np.float32)
    expected = learner.act({"state": torch.from_numpy(states)})
    whole = PolicyModule(learner)({"state": torch.from_numpy(states)})
    torch.testing.assert_close(whole, expected)
    found = np.concatenate([live.act(state[None])[0] for state in states])
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    noisy, _ = live.act(states[:1], noise=np.ones((1, 3), np.float32))
    assert noisy[0, 2] == found[0, 2]
    assert np.abs(noisy[0, :2] - found[0, :2]).min() > 1e-4


def test_the_entropy_aimed_at_is_that_of_the_actor_alone():
    learner = learner_of()
    assert learner.actor.last.out_features == 2 * 2
    assert learner.critic.ensemble.layers[0].weight.shape[1] == 2 + 3


def test_a_learner_goes_on_where_it_was_and_odd_settings_are_refused():
    learner, buffer = learner_of(), filled(-0.02)
    learner.update(buffer)
    other = learner_of(seed=9)
    other.load_state_dict(learner.state_dict())
    assert float(other.update(buffer)["gripper_loss"]) == float(learner.update(buffer)["gripper_loss"])
    with pytest.raises(GantryError, match="two or more different numbers"):
        GripperCfg(places=(1.0,))
    with pytest.raises(GantryError, match="where a base moves the gripper"):
        LearnerCfg(actor=ActorCfg(residual=True), gripper=GripperCfg(places=(-1.0, 1.0)))


def test_a_buffer_from_before_there_were_penalties_can_be_read(tmp_path):
    buffer = filled(-1.0, steps=5)
    path = tmp_path / "buffer.npz"
    buffer.save(path)
    with np.load(path) as file:
        kept = {key: file[key] for key in file.files if key != "row:penalty"}
    write_checked(path, lambda file: np.savez(file, **kept))
    found = ReplayBuffer.loaded(path)
    assert len(found) == len(buffer)
    assert found.gather(found.transitions(), Lookahead(1, 0.9, False)).penalties.abs().sum() == 0
