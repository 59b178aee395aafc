"""Who is asked what and when around the end of an episode, and what is stored of it."""

from dataclasses import replace

import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import EnvStep
from gantry_policies.common.evaluation import evaluate
from gantry_policies.off_policy.bases import ChunkedBase
from gantry_policies.off_policy.collecting.collector import Collector
from gantry_policies.off_policy.config import ActorCfg, CriticCfg, LearnerCfg
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.replay.batches import Lookahead
from gantry_policies.off_policy.replay.buffer import ReplayBuffer


class Script:
    """Episodes of given lengths that end in success or in time; an observation is ``100 * episode + step``."""

    action_size, dt_s, device, max_episode_steps = 1, 0.5, "cpu", 9
    obs_shapes = {"state": (1,)}  # noqa: RUF012

    def __init__(self, *plans):
        """Of each environment a list of (steps, succeeds)."""
        self.plans, self.num_envs = plans, len(plans)
        self.episode, self.time, self.actions = [0] * len(plans), [0] * len(plans), []

    def _observe(self):
        seen = [100.0 * episode + time for episode, time in zip(self.episode, self.time, strict=True)]
        return {"state": torch.tensor(seen)[:, None]}

    def reset(self):
        self.episode, self.time = (
            [number + (time > 0) for number, time in zip(self.episode, self.time, strict=True)],
            [0] * self.num_envs,
        )
        return self._observe()

    def step(self, action):
        self.actions.append(action.clone())
        self.time = [time + 1 for time in self.time]
        next_obs, terminated, truncated = self._observe(), [], []
        for env, plans in enumerate(self.plans):
            steps, succeeds = plans[self.episode[env] % len(plans)]
            ended = self.time[env] >= steps
            terminated.append(ended and succeeds)
            truncated.append(ended and not succeeds)
            if ended:
                self.episode[env], self.time[env] = self.episode[env] + 1, 0
        success = torch.tensor(terminated)
        return EnvStep(self._observe(), next_obs, success.float(), success, torch.tensor(truncated), success)

    def close(self):
        pass


def chunk(obs):
    """Four steps that say for what they were planned: observation 203 gives 0.2030, 0.2031, ..."""
    return obs["state"][:, None] / 1000 + torch.arange(4.0)[:, None] / 10000


def told(actions):
    """What :func:`chunk` was asked about, and the step in it."""
    return [(round(a * 10000) // 10, round(a * 10000) % 10) for a in actions.flatten().tolist()]


CFG = LearnerCfg(
    actor=ActorCfg(residual=True, action_scale=0.2, hidden=(8,), explore_std=0.0),
    critic=CriticCfg(heads=2, hidden=(8,)),
    batch_size=4,
)


def collector_of(env, base=True, actor=None):
    cfg = CFG if actor is None else replace(CFG, actor=actor)
    learner = Learner(cfg, env.obs_shapes, env.action_size)
    replay = ReplayBuffer(100 * env.num_envs, env.num_envs, env.obs_shapes, env.action_size, cfg.actor.residual)
    draw = torch.Generator().manual_seed(0)
    return Collector(env, learner, replay, ChunkedBase(chunk, env.num_envs) if base else None, draw)


def run(collector, steps, **options):
    for _ in range(steps):
        collector.step(**options)
    replay = collector.replay
    return replay.gather(replay.transitions(), Lookahead(1, 0.9))


@pytest.mark.parametrize("succeeds", [True, False])
def test_trap_1_after_any_end_the_first_base_action_is_planned_for_the_new_episode(succeeds):
    batch = run(collector_of(Script([(3, succeeds), (6, succeeds)])), 9)
    assert batch.obs["state"].flatten().tolist() == [0, 1, 2, 100, 101, 102, 103, 104, 105]
    begun = [(0, 0), (0, 1), (0, 2)]
    assert told(batch.base_action) == [*begun, (100, 0), (100, 1), (100, 2), (100, 3), (104, 0), (104, 1)]


def test_trap_8_out_of_time_the_last_observation_has_its_real_base_action_and_nothing_is_used_up():
    env = Script([(3, False)], [(4, False)])
    batch = run(collector_of(env), 5)
    late = {
        float(obs): (answer, float(discount))
        for obs, answer, discount in zip(
            batch.next_obs["state"].flatten(), told(batch.next_base_action), batch.discount, strict=True
        )
    }
    # The first one's queue still held a step; the second one's was empty, and a chunk was planned for the look.
    assert late[3.0] == ((0, 3), pytest.approx(0.9))
    assert late[4.0] == ((4, 0), pytest.approx(0.9))
    assert told(batch.base_action[batch.obs["state"].flatten() == 100.0]) == [(100, 0), (100, 0)]


def test_what_the_next_transition_begins_with_is_what_the_last_one_ended_with():
    batch = run(collector_of(Script([(9, True)])), 7)
    assert torch.equal(batch.next_base_action[:-1], batch.base_action[1:])


def test_trap_4_what_is_stored_is_what_was_executed_and_not_the_sum_before_the_clamp():
    env = Script([(9, True)])
    collector = collector_of(env, actor=replace(CFG.actor, explore_std=3.0))
    collector.learner.action_scaler.fit(torch.tensor([[-0.5], [0.5]]), 0.2)
    batch = run(collector, 8)
    executed = torch.cat(env.actions)
    assert batch.action.abs().max() == 1.0  # the noise is large, so that many are clamped
    assert torch.allclose(collector.learner.action_scaler.unscale(batch.action), executed, atol=1e-7)
    assert executed.abs().max().item() == pytest.approx(0.6)
    assert not torch.equal(batch.action, batch.base_action)


def test_trap_7_a_reset_between_phases_begins_an_episode_for_base_and_buffer():
    collector = collector_of(Script([(9, True)]))
    run(collector, 3, warmup="base_noise", noise=0.1)
    collector.reset()
    collector.step()
    batch = collector.replay.gather(collector.replay.transitions(), Lookahead(4, 0.5))
    assert batch.next_obs["state"].flatten().tolist() == [3, 3, 3, 101]
    assert batch.discount.tolist() == [0.125, 0.25, 0.5, 0.5]
    assert told(batch.base_action)[-1] == (100, 0)


def test_trap_7_also_where_the_new_episode_looks_like_the_old_one():
    class Blind(Script):
        def _observe(self):
            return {"state": torch.zeros(self.num_envs, 1)}

    collector = collector_of(Blind([(9, True)]), base=False, actor=ActorCfg(hidden=(8,)))
    run(collector, 2)
    collector.reset()
    run(collector, 2)
    batch = collector.replay.gather(collector.replay.transitions(), Lookahead(4, 0.5))
    assert batch.discount.tolist() == [0.25, 0.5, 0.25, 0.5]


def test_warm_up_by_the_base_by_chance_and_by_the_policy():
    batch = run(collector_of(Script([(9, True)])), 80, warmup="base_noise", noise=0.2)
    off = batch.action - batch.base_action
    assert off.abs().max() <= 0.2 + 1e-6
    assert off.std().item() == pytest.approx(0.4 / 12**0.5, rel=0.2)
    batch = run(collector_of(Script([(9, True)])), 80, warmup="uniform")
    assert batch.action.std().item() == pytest.approx(2 / 12**0.5, rel=0.2)
    batch = run(collector_of(Script([(9, True)])), 10, warmup="policy")
    assert torch.equal(batch.action, batch.base_action)  # a fresh residual corrects nothing
    alone = collector_of(Script([(9, True)]), base=False, actor=ActorCfg(hidden=(8,)))
    assert run(alone, 3).base_action is None
    with pytest.raises(GantryError, match="no base; expected 'uniform' or 'policy'"):
        alone.step("base_noise", 0.1)


def test_success_in_training_is_of_whole_episodes():
    collector = collector_of(Script([(2, True), (3, False), (2, True), (2, True)]))
    run(collector, 1)
    assert collector.episodes.success_rate is None
    run(collector, 8)
    assert collector.episodes.success_rate == 0.75


class Idle:
    """Does nothing, and remembers who was reset."""

    def __init__(self):
        self.resets = []

    def reset(self, env_ids=None):
        self.resets.append(None if env_ids is None else env_ids.tolist())

    def act(self, obs):
        return torch.zeros(len(obs["state"]), 1)


def test_an_evaluation_counts_whole_episodes_and_does_not_favour_quick_ones():
    # The first one to succeed in 1 step would fill all six places while the other one is in its first episode.
    policy = Idle()
    result = evaluate(Script([(1, True)], [(6, False), (4, True)]), policy, 6)
    assert result.episodes == 6
    assert result.success_at_end.mean == result.success_once.mean == pytest.approx(4 / 6)
    assert result.mean_steps == pytest.approx((1 + 1 + 1 + 6 + 4 + 6) / 6)
    assert result.steps_to_success == pytest.approx((1 + 1 + 1 + 4) / 4)
    assert result.time_to_success_s == pytest.approx(0.5 * 7 / 4)
    assert result.mean_return == pytest.approx(4 / 6)
    # Wilson by hand: centre (4/6 + z2/12) / (1 + z2/6), z = 1.96.
    assert result.success_at_end.low == pytest.approx(0.300, abs=2e-3)
    assert result.success_at_end.high == pytest.approx(0.903, abs=2e-3)
    assert policy.resets[0] is None
    assert policy.resets[1] == [0]
    never = Script([(50, True)])
    with pytest.raises(GantryError, match="Only 0 of 1 episodes ended; the environment says they last 9 steps"):
        evaluate(never, Idle(), 1)


def test_success_once_and_success_at_the_end_are_told_apart():
    class Slips(Script):
        def step(self, action):
            step = super().step(action)
            # Succeeds in its second step, and has lost it again when time is up.
            return replace(step, success=step.next_obs["state"][:, 0] % 100 == 2)

    result = evaluate(Slips([(5, False)]), Idle(), 2)
    assert (result.success_at_end.mean, result.success_once.mean, result.steps_to_success) == (0.0, 1.0, 2.0)
