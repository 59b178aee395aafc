"""A person beside the collector: what is executed, what is stored where, and what the base plans meanwhile."""

from dataclasses import replace

import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_policies.off_policy import presets
from gantry_policies.off_policy.bases import ChunkedBase
from gantry_policies.off_policy.collecting.collector import Collector
from gantry_policies.off_policy.config import ActorCfg, CriticCfg, LearnerCfg, OffPolicyCfg
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.replay.batches import Lookahead
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.trainer import OffPolicyTrainer

ONE = Lookahead(1, 0.9, False)
CFG = LearnerCfg(actor=ActorCfg(hidden=(8,), explore_std=0.0), critic=CriticCfg(heads=2, hidden=(8,)), batch_size=16)


class Hand:
    """Acts at given steps of given environments, counted over everything, with an action that is too large."""

    def __init__(self, acts, count=2, size=2):
        self.acts, self.count, self.size, self.step, self.resets = acts, count, size, -1, []

    def reset(self, env_ids=None):
        self.resets.append(None if env_ids is None else env_ids.tolist())

    def decide(self, obs, policy_action):
        assert policy_action.shape == (self.count, self.size)
        self.step += 1
        rows = torch.tensor([(self.step, env) in self.acts for env in range(self.count)])
        return rows, torch.full((self.count, self.size), 1.7)


def helped(reach, acts, steps=8, **options):
    env = reach(2, seed=4, **options)
    executed = []
    step = env.step

    def watched(action):
        executed.append(action.clone())
        return step(action)

    env.step = watched
    learner = Learner(CFG, env.obs_shapes, 2, seed=1)
    replay, taught = (ReplayBuffer(200, 2, env.obs_shapes, 2) for _ in "12")
    collector = Collector(env, learner, replay, None, torch.Generator(), Hand(acts), taught)
    for _ in range(steps):
        collector.step()
    return collector, replay, taught, executed


def rows(buffer):
    batch = buffer.gather(buffer.transitions(), ONE)
    return {key: value for key, value in vars(batch).items() if isinstance(value, torch.Tensor)} | {
        "obs": batch.obs["state"],
        "next_obs": batch.next_obs["state"],
    }


def test_a_correction_is_in_both_buffers_and_a_step_of_the_policy_in_one(reach):
    acts = {(2, 0), (3, 0), (6, 0), (3, 1)}
    collector, replay, taught, executed = helped(reach, acts)
    every, shown = rows(replay), rows(taught)
    assert len(every["action"]) == 16
    assert int(every["is_intervention"].sum()) == len(shown["action"]) == len(acts)
    assert bool(shown["is_intervention"].all())
    # What was executed is what is stored, within the environment's range.
    assert torch.equal(shown["action"], torch.ones(4, 2))
    assert all(torch.equal(executed[step][env], torch.ones(2)) for step, env in acts)
    assert not torch.equal(executed[2][1], torch.ones(2))
    # Both observations of a correction are those of the whole experience.
    for obs, following in zip(shown["obs"], shown["next_obs"], strict=True):
        at = (every["obs"] == obs).all(-1).nonzero().item()
        assert torch.equal(every["next_obs"][at], following)
    assert (collector.help.person_steps, collector.help.corrections) == (4, 3)


def test_a_window_of_several_steps_stays_inside_a_correction_of_two(reach):
    _, _, taught, _ = helped(reach, {(1, 0), (2, 0), (5, 0), (6, 0)})
    single, double = (taught.gather(taught.transitions(), replace(ONE, n_step=count)) for count in (1, 3))
    assert double.discount.tolist() == pytest.approx([0.81, 0.9, 0.81, 0.9])
    assert torch.equal(double.next_obs["state"][0], single.next_obs["state"][1])
    assert torch.equal(double.next_obs["state"][1], single.next_obs["state"][1])


def test_the_base_plans_anew_while_a_person_acts(reach):
    asked = []

    def chunk(obs):
        asked.append(len(obs["state"]))
        return torch.zeros(len(obs["state"]), 4, 2)

    env = reach(2, seed=4, max_episode_steps=50, goals=0.0)
    learner = Learner(replace(CFG, actor=replace(CFG.actor, residual=True)), env.obs_shapes, 2)
    replay, taught = (ReplayBuffer(200, 2, env.obs_shapes, 2, with_base=True) for _ in "12")
    hand = Hand({(1, 0), (2, 0)})
    collector = Collector(env, learner, replay, ChunkedBase(chunk, 2), torch.Generator(), hand, taught)
    for _ in range(4):
        collector.step()
    # Both at the start; the corrected one after each step of the person; the other when its plan is over.
    assert asked == [2, 1, 1, 1]
    assert len(taught) == 2


def test_the_person_hears_of_beginnings(reach):
    collector, _, _, _ = helped(reach, set(), steps=6, max_episode_steps=3)
    assert collector.person.resets[0] is None
    assert [0, 1] in collector.person.resets[1:]


def test_a_training_with_a_person_tells_what_it_took(reach, demos):
    env = reach(2, seed=4)
    cfg = OffPolicyCfg(presets.hil_serl().agent, total_steps=120, warmup_steps=20, warmup="policy", scale_actions=False)
    cfg = replace(cfg, agent=replace(CFG, n_step=1), eval_every_steps=0, log_every_steps=40)
    hand = Hand({(step, 0) for step in range(10, 20)})
    shown = demos(3)
    trainer, told = OffPolicyTrainer(env, cfg, demos=shown, person=hand), []
    trainer.train(told.append)
    assert trainer.taught is trainer.demos
    assert len(trainer.taught) == 10 + sum(len(demo.action) for demo in shown)
    assert told[-1].metrics["person_s"] == pytest.approx(10 * env.dt_s)
    assert told[-1].metrics["corrections"] == 1.0


def test_corrections_are_learned_from_without_any_demonstration(reach):
    cfg = replace(presets.hil_serl(), agent=CFG, total_steps=80, warmup_steps=20, eval_every_steps=0)
    trainer = OffPolicyTrainer(reach(2, seed=4), cfg, person=Hand({(step, 1) for step in range(12, 15)}))
    trainer.train()
    assert trainer.demos is trainer.taught
    assert len(trainer.taught) == 3


def test_a_person_needs_a_buffer_and_keeps_no_folder(reach, tmp_path):
    env = reach(2)
    learner = Learner(CFG, env.obs_shapes, 2)
    with pytest.raises(GantryError, match="a buffer of their own"):
        Collector(env, learner, ReplayBuffer(50, 2, env.obs_shapes, 2), None, torch.Generator(), Hand(set()))
    with pytest.raises(GantryError, match="leave out its folder"):
        OffPolicyTrainer(env, presets.hil_serl(), tmp_path, person=Hand(set()))
