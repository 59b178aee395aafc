"""Steps of a fleet of actors: columns of the buffer, weights that act, episodes, and continuation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gantry_policies.common.batched_env import EnvStep
from gantry_policies.common.checkpoint import UnusableCheckpointError
from gantry_policies.off_policy.bases import ChunkedBase
from gantry_policies.off_policy.collecting.fleet import (
    FleetActor,
    FleetCollector,
    Order,
    acting_weights,
    load_acting_weights,
)
from gantry_policies.off_policy.config import ActorCfg, CriticCfg, GripperCfg, LearnerCfg, OffPolicyCfg
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.replay.batches import Lookahead
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.trainer import OffPolicyTrainer

SAC = LearnerCfg(actor=ActorCfg(hidden=(8,)), critic=CriticCfg(heads=2, hidden=(8,)), batch_size=4)
RESIDUAL = replace(SAC, actor=ActorCfg(residual=True, action_scale=0.2, hidden=(8,), explore_std=0.0))
PLANS = [[(3, True), (2, False)], [(4, False)]], [[(2, True)], [(5, True)]]
"""Episodes of both environments of two actors: steps, and whether they succeed."""


class Counting:
    """Environments with an observation of 100 times the episode plus the step; plans are (steps, succeeds) of each."""

    action_size, dt_s, device, max_episode_steps = 1, 0.5, "cpu", 9
    obs_shapes = {"state": (1,)}  # noqa: RUF012

    def __init__(self, plans):
        self.plans, self.num_envs = plans, len(plans)
        self.episode, self.time = [0] * len(plans), [0] * len(plans)

    def reset(self):
        return {"state": torch.tensor([[100.0 * e + t] for e, t in zip(self.episode, self.time, strict=True)])}

    def step(self, action):
        assert action.shape == (self.num_envs, 1)
        self.time = [time + 1 for time in self.time]
        next_obs, won, late = self.reset(), [], []
        for env, plans in enumerate(self.plans):
            steps, succeeds = plans[self.episode[env] % len(plans)]
            ended = self.time[env] == steps
            won.append(ended and succeeds)
            late.append(ended and not succeeds)
            if ended:
                self.episode[env], self.time[env] = self.episode[env] + 1, 0
        success = torch.tensor(won)
        return EnvStep(self.reset(), next_obs, success.float(), success, torch.tensor(late), success)


class Constant(Counting):
    """Environments that show nothing but 0."""

    def reset(self):
        return {"state": torch.zeros(self.num_envs, 1)}


def chunk(obs):
    """Plan of four steps; observation 203 gives 0.2030, 0.2031, ..."""
    return obs["state"][:, None] / 1000 + torch.arange(4.0)[:, None] / 10000


class HereFleet:
    """Actors in this process, which answer in the order that they were asked in."""

    def __init__(self, cfg=SAC, plans=PLANS, steps=3, seed=5, kind=Counting):
        self.actors, self.envs, self.steps = len(plans), len(plans[0]), steps
        self.cfg, self.plans, self.seed, self.kind = cfg, plans, seed, kind
        self.members = [self.begin(place) for place in range(self.actors)]
        self.waiting, self.orders, self.silent, self.dying = [], [], False, []

    def begin(self, place):
        env = self.kind(self.plans[place])
        learner = Learner(self.cfg, env.obs_shapes, env.action_size, seed=self.seed + place)
        base = ChunkedBase(chunk, env.num_envs) if self.cfg.actor.residual else None
        return FleetActor(env, learner, base, torch.Generator().manual_seed(place))

    def ask(self, actor, order):
        assert actor not in [place for place, _ in self.waiting], "an actor has one order at a time"
        self.waiting.append((actor, replace(order, steps=self.steps)))
        self.orders.append(order)

    def next(self, patience_s):
        if self.silent:
            return None
        actor, order = self.waiting.pop(0)
        if actor in self.dying:
            self.dying.remove(actor)
            self.members[actor] = self.begin(actor)
            return actor, None
        return actor, self.members[actor].collect(order)


def collector_of(fleet, cfg=SAC, seed=0, warmup_steps=1000):
    env = Counting([[(3, True)]])
    learner = Learner(cfg, env.obs_shapes, env.action_size, seed=seed)
    count = fleet.actors * fleet.envs
    replay = ReplayBuffer(100 * count, count, env.obs_shapes, env.action_size, cfg.actor.residual)
    return FleetCollector(fleet, learner, replay, warmup_steps), learner, replay


def column(replay, env):
    """Observation, next observation and reward of an environment's transitions."""
    first = replay.transitions()
    batch = replay.gather(first[first % replay.num_envs == env], Lookahead(1, 0.9))
    return [
        (int(before), int(after), float(reward))
        for before, after, reward in zip(batch.obs["state"], batch.next_obs["state"], batch.returns, strict=True)
    ]


def test_each_environment_of_each_actor_has_a_column_of_its_own():
    collector, _, replay = collector_of(HereFleet())
    for _ in range(4):
        collector.step()
    assert collector.env_steps == 4 * 3 * 2
    assert column(replay, 0) == [(0, 1, 0), (1, 2, 0), (2, 3, 1), (100, 101, 0), (101, 102, 0), (200, 201, 0)]
    assert column(replay, 1) == [(0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 4, 0), (100, 101, 0), (101, 102, 0)]
    assert column(replay, 2) == [(0, 1, 0), (1, 2, 1), (100, 101, 0), (101, 102, 1), (200, 201, 0), (201, 202, 1)]
    assert [ends for *_, ends in column(replay, 3)] == [0, 0, 0, 0, 1, 0]


def test_finished_episodes_of_all_actors_are_tallied():
    collector, *_ = collector_of(HereFleet())
    collector.step()
    assert collector.episodes.success_rate == 1.0, "one of three steps, which succeeded"
    for _ in range(3):
        collector.step()
    # In six steps: one success and one end of time, one end of time, three successes, one success.
    assert collector.episodes.success_rate == pytest.approx(5 / 7)
    assert collector.episodes.mean_return == pytest.approx(5 / 7)


def test_actors_act_with_the_weights_of_their_order():
    fleet = HereFleet()
    collector, learner, _ = collector_of(fleet)
    obs = {"state": torch.tensor([[3.0]])}
    before = learner.act(obs)
    collector.step()
    with torch.no_grad():
        for value in learner.actor.parameters():
            value.fill_(0.25)
    learner.state_scaler.fit(torch.arange(10.0)[:, None])
    collector.step()
    assert not torch.equal(learner.act(obs), before)
    # Two first orders, one after the first answer, one after the second, when the learner had changed.
    for order, expected in zip(fleet.orders, [before, before, before, learner.act(obs)], strict=True):
        member = HereFleet().members[0]
        member.collect(replace(order, steps=1))
        assert torch.equal(member._learner.act(obs), expected)


def test_a_warm_up_has_the_steps_that_were_asked_for():
    """Orders of 40 steps; actors that still work count, so that the fourth order is the learner's."""
    fleet = HereFleet(plans=PLANS * 4, steps=20)
    collector, *_ = collector_of(fleet, warmup_steps=120)
    for _ in range(3):
        collector.step("uniform")
    assert [order.warmup for order in fleet.orders] == ["uniform"] * 3 + [None] * 8


def test_what_environments_write_over_is_kept():
    """An engine hands out the same arrays in every step."""

    class InPlace(Counting):
        def __init__(self, plans):
            super().__init__(plans)
            self.shown = torch.zeros(len(plans), 1)

        def reset(self):
            self.shown.copy_(super().reset()["state"])
            return {"state": self.shown}

    learner = Learner(SAC, {"state": (1,)}, 1)
    actor = FleetActor(InPlace([[(9, True)]]), learner, None, torch.Generator())
    found = actor.collect(Order(acting_weights(learner), None, 0.0, 3))
    assert [int(item["next_obs"]["state"]) for item in found.transitions] == [1, 2, 3]


def test_an_actor_that_begins_again_does_not_continue_an_episode():
    """Also where its first observation is the last one of the actor that was lost: here every observation is 0."""
    fleet = HereFleet(plans=([[(9, True)]],), kind=Constant)
    collector, _, replay = collector_of(fleet)
    collector.step()
    fleet.dying.append(0)
    collector.step()
    assert collector.env_steps == 3, "what a lost actor has not sent is not there"
    collector.step()
    first = replay.transitions()
    assert len(first) == 6
    # A window of three steps from the lost actor's last one ends with it; from its first one it holds all three.
    windows = replay.gather(first[[0, 2, 3]], Lookahead(3, 0.5))
    assert windows.discount.flatten().tolist() == [0.125, 0.5, 0.125]


def test_a_base_acts_in_the_actors():
    collector, _, replay = collector_of(HereFleet(cfg=RESIDUAL), cfg=RESIDUAL)
    collector.step()
    batch = replay.gather(replay.transitions(), Lookahead(1, 0.9))
    planned = {round(float(value) * 10000) for value in batch.base_action}
    assert planned <= {0, 1, 2, 3}
    assert len(planned) == 3


def test_nothing_is_stored_while_no_actor_has_answered():
    fleet = HereFleet()
    fleet.silent = True
    collector, _, replay = collector_of(fleet)
    collector.step()
    assert (collector.env_steps, len(replay)) == (0, 0)
    assert len(fleet.waiting) == fleet.actors


def test_what_only_learning_reads_is_not_sent():
    actor = HereFleet().members[0]
    step = actor._collector.env.step

    def with_more(action):
        found = step(action)
        return replace(
            found,
            obs={**found.obs, "critic": torch.zeros(2, 5)},
            next_obs={**found.next_obs, "critic": torch.ones(2, 5)},
        )

    actor._collector.env.step = with_more
    learner = Learner(SAC, {"state": (1,)}, 1)
    found = actor.collect(Order(acting_weights(learner), None, 0.0, 2))
    assert all(set(item["obs"]) == set(item["next_obs"]) == {"state"} for item in found.transitions)


def test_corrections_grow_in_the_actors_as_in_the_learner():
    cfg = replace(RESIDUAL, actor=replace(RESIDUAL.actor, progressive_updates=100))
    fleet = HereFleet(cfg=cfg)
    learner = Learner(cfg, {"state": (1,)}, 1)
    learner.actor_updates = 50
    fleet.members[0].collect(Order(acting_weights(learner), None, 0.0, 1))
    assert fleet.members[0]._learner.correction_scale == learner.correction_scale == 0.1


def test_a_critic_that_moves_the_gripper_acts_in_the_actors():
    cfg = replace(SAC, gripper=GripperCfg(places=(-1.0, 1.0)))
    mine, theirs = (Learner(cfg, {"state": (2,)}, 2, seed=seed) for seed in (1, 2))
    obs = {"state": torch.randn(32, 2, generator=torch.Generator().manual_seed(0))}
    assert not torch.equal(mine.act(obs)[:, -1], theirs.act(obs)[:, -1])
    load_acting_weights(theirs, acting_weights(mine))
    assert torch.equal(mine.act(obs), theirs.act(obs))


def trained(tmp_path, plans=PLANS, total=48, **more):
    cfg = OffPolicyCfg(
        **{"agent": SAC, "total_steps": total, "warmup_steps": 12, "warmup": "uniform", "eval_every_steps": 0, **more},
        capacity=4000,
        seed=1,
    )
    if plans is None:
        return OffPolicyTrainer(Counting([[(3, True)]]), cfg, tmp_path)
    return OffPolicyTrainer(Counting([[(3, True)]]), cfg, tmp_path, fleet=HereFleet(plans=plans))


def test_a_training_of_a_fleet_ends_and_goes_on(tmp_path):
    trainer = trained(tmp_path)
    assert trainer.train()
    assert trainer.env_steps >= 48
    assert trainer.learner.critic_updates > 0
    again = trained(tmp_path, total=96)
    again.resume()
    assert (again.env_steps, len(again.replay)) == (trainer.env_steps, len(trainer.replay))
    last = int(again.replay.transitions()[-1])
    assert again.train()
    assert again.env_steps >= 96
    # A window of three steps from the last one before the continuation holds that one alone.
    window = again.replay.gather(torch.tensor([last]), Lookahead(3, 0.5))
    assert float(window.next_obs["state"] - window.obs["state"]) == 1.0


def test_a_stop_is_heeded_between_the_updates_of_a_stretch(tmp_path):
    trainer = trained(tmp_path, total=480, updates_per_step=8.0)
    update = trainer.learner.update

    def stopping(*args):
        trainer.stop()
        return update(*args)

    trainer.learner.update = stopping
    assert not trainer.train()
    assert trainer.learner.critic_updates == SAC.critic_updates
    assert trainer.counters.updates_due >= 1.0
    again = trained(tmp_path, total=480, updates_per_step=8.0)
    again.resume()
    assert again.counters.updates_due == trainer.counters.updates_due


def test_the_updates_of_the_last_stretch_are_made_after_a_stop_among_them(tmp_path):
    def made(folder):
        return trained(folder, total=48, updates_per_step=8.0)

    straight, stopped = made(tmp_path / "straight"), made(tmp_path / "stopped")
    assert straight.train()
    update = stopped.learner.update

    def stopping(*args):
        if stopped.env_steps >= 48:
            stopped.stop()
        return update(*args)

    stopped.learner.update = stopping
    assert not stopped.train()
    assert stopped.learner.critic_updates < straight.learner.critic_updates
    again = made(tmp_path / "stopped")
    again.resume()
    assert not again.is_complete
    assert again.train()
    assert again.learner.critic_updates == straight.learner.critic_updates


def test_it_is_evaluated_in_an_environment_of_its_own(tmp_path):
    trainer = trained(tmp_path, eval_every_steps=24)
    rows = []
    assert trainer.train(rows.append)
    assert [row.evaluation.success_once.mean for row in rows if row.evaluation] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("begun", "plans", "answer"),
    [
        (PLANS, PLANS[:1], "collects with 2 actors; give --actors 2"),
        (PLANS, None, "collects with 2 actors; give --actors 2"),
        (None, PLANS, "begun without actors; leave out --actors"),
    ],
)
def test_another_number_of_actors_cannot_go_on(tmp_path, begun, plans, answer):
    trained(tmp_path, plans=begun).train()
    with pytest.raises(UnusableCheckpointError, match=answer):
        trained(tmp_path, plans=plans, total=96).resume()
