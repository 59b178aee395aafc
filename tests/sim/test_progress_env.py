"""The reward of an episode's progress: by hand, on environments whose ways are known."""

from __future__ import annotations

import math

import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import EnvStep
from gantry_sim.envs.progress_env import FEATURES, KIND, ProgressCfg, ProgressEnv

LENGTH = 4


class Lines:
    """Environments that move by their action; an episode of four steps succeeds at 1, whatever the way."""

    num_envs, device, action_size, max_episode_steps, dt_s = 3, "cpu", 1, LENGTH, 0.1
    obs_shapes = {"state": (1,)}  # noqa: RUF012
    keep_final_obs = True
    kinds = torch.zeros(3, dtype=torch.int64)

    def reset(self):
        self.place, self.count = torch.zeros(3, 1), 0
        return {"state": self.place.clone()}

    def step(self, action):
        self.place, self.count = self.place + action, self.count + 1
        over = torch.full((3,), self.count == LENGTH)
        success = over & ((self.place[:, 0] - 1.0).abs() < 1e-6)
        last = {"state": self.place.clone()}
        extras = {FEATURES: self.place.clone(), KIND: self.kinds}
        obs = self.reset() if self.count == LENGTH else last
        return EnvStep(obs, last, torch.full((3,), 7.0), over & success, over & ~success, success, extras)

    def close(self):
        pass


def episode(env, speeds):
    """Rewards of all steps of an episode, (4, 3)."""
    return torch.stack([env.step(torch.tensor(speeds)[:, None]).reward for _ in range(LENGTH)])


def test_before_a_success_a_failure_is_worth_nothing():
    env = ProgressEnv(Lines())
    env.reset()
    assert torch.equal(episode(env, [0.0, 0.1, 0.5]), torch.zeros(4, 3))


def test_the_nearer_a_failure_comes_the_more_it_is_worth():
    env = ProgressEnv(Lines())
    env.reset()
    assert episode(env, [0.25, 0.0, 0.0])[-1, 0] == 1.0
    rewards = episode(env, [0.24, 0.1, -0.5])
    assert torch.equal(rewards[:-1], torch.zeros(3, 3))
    near, middle, far = rewards[-1].tolist()
    assert near > middle > far
    # Alone among the failures so far, the first two of them lie between each other; the last one is the farthest.
    assert far == pytest.approx(0.6 / (1.0 + math.exp(5.0)), abs=1e-6)
    assert episode(env, [0.25, 0.25, 0.25])[-1].tolist() == [1.0, 1.0, 1.0]


def test_kinds_are_compared_with_their_own_alone():
    inner = Lines()
    inner.kinds = torch.tensor([0, 1, 1])
    env = ProgressEnv(inner)
    env.reset()
    episode(env, [0.25, 0.0, 0.0])
    assert episode(env, [0.2, 0.2, 0.2])[-1].tolist()[1:] == [0.0, 0.0]


def test_what_was_achieved_survives_a_restart():
    env, again = ProgressEnv(Lines()), ProgressEnv(Lines())
    env.reset()
    episode(env, [0.25, 0.0, 0.1])
    again.reset()
    again.restore_training_state(env.training_state())
    assert torch.equal(episode(env, [0.2, 0.1, 0.0]), episode(again, [0.2, 0.1, 0.0]))


@pytest.mark.parametrize("changes", [{"points": 0}, {"most": 1.0}, {"slope": 0.0}, {"successes": 0}])
def test_settings_that_make_no_sense_are_refused(changes):
    with pytest.raises(GantryError, match="progress"):
        ProgressCfg(**changes)
