"""Points in the plane that must come to rest on a goal: pure torch, sparse reward, quick to learn."""

import pytest
import torch

from gantry_policies.common.batched_env import EnvStep
from gantry_policies.off_policy.bases import ChunkedBase
from gantry_policies.off_policy.replay.demos import Demo

STEP_M = 0.12
REACH_M = 0.06


class Reach:
    """Success is to be within REACH_M of the goal at the end of a step; it ends the episode.

    Goals lie in a square of half-width ``goals``, in m.
    """

    action_size, dt_s, device = 2, 0.1, "cpu"
    obs_shapes = {"state": (4,)}  # noqa: RUF012

    def __init__(self, num_envs=8, seed=0, max_episode_steps=20, goals=1.0):
        self.num_envs, self.max_episode_steps, self.goals = num_envs, max_episode_steps, goals
        self.draw = torch.Generator().manual_seed(seed)
        self.pos, self.goal = torch.zeros(num_envs, 2), torch.zeros(num_envs, 2)
        self.time = torch.zeros(num_envs, dtype=torch.int64)

    def _observe(self):
        return {"state": torch.cat((self.pos, self.goal), dim=-1)}

    def _begin(self, which):
        count = int(which.sum())
        self.pos[which] = torch.rand(count, 2, generator=self.draw) * 2 - 1
        self.goal[which] = self.goals * (torch.rand(count, 2, generator=self.draw) * 2 - 1)
        self.time[which] = 0

    def reset(self):
        self._begin(torch.ones(self.num_envs, dtype=torch.bool))
        return self._observe()

    def step(self, action):
        assert action.shape == (self.num_envs, 2)
        assert action.abs().max() <= 1.0 + 1e-6
        self.pos = self.pos + STEP_M * action
        self.time += 1
        success = (self.pos - self.goal).norm(dim=-1) < REACH_M
        truncated = (self.time >= self.max_episode_steps) & ~success
        next_obs = self._observe()
        self._begin(success | truncated)
        return EnvStep(self._observe(), next_obs, success.float(), success, truncated, success)

    def close(self):
        pass

    def training_state(self):
        return {"pos": self.pos, "goal": self.goal, "time": self.time, "draw": self.draw.get_state()}

    def restore_training_state(self, state):
        self.pos, self.goal, self.time = (state[name].clone() for name in ("pos", "goal", "time"))
        self.draw.set_state(state["draw"])


def mediocre_chunk(obs):
    """Three steps to the goal, planned at once and dragged to one side."""
    pos, goal = obs["state"][:, :2], obs["state"][:, 2:]
    steps = []
    for _ in range(3):
        action = (4.0 * (goal - pos) + torch.tensor([0.35, -0.2])).clamp(-0.9, 0.9)
        steps.append(action)
        pos = pos + STEP_M * action
    return torch.stack(steps, dim=1)


def good_demos(count, seed=7, goals=1.0):
    """Straight to the goal, not too fast."""
    env, demos = Reach(1, seed, goals=goals), []
    while len(demos) < count:
        obs, states, actions, rewards = env.reset(), [], [], []
        while True:
            action = (3.0 * (obs["state"][:, 2:] - obs["state"][:, :2])).clamp(-0.9, 0.9)
            step = env.step(action)
            states.append(obs["state"][0])
            actions.append(action[0])
            rewards.append(float(step.reward[0]))
            obs = step.obs
            if step.terminated[0] or step.truncated[0]:
                states.append(step.next_obs["state"][0])
                break
        if step.terminated[0]:
            demos.append(Demo({"state": torch.stack(states)}, torch.stack(actions), torch.tensor(rewards)))
    return demos


@pytest.fixture
def reach():
    """The class of these environments."""
    return Reach


@pytest.fixture
def demos():
    """``demos(count, goals=...)`` gives good demonstrations."""
    return good_demos


@pytest.fixture
def make_base():
    """``make_base(num_envs)`` gives the mediocre base."""
    return lambda num_envs: ChunkedBase(mediocre_chunk, num_envs)
