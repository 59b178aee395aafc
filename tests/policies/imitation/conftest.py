"""Points that walk to a goal: demonstrations that one can compute in the head, and environments to try a clone in."""

import pytest
import torch

from gantry_policies.common.batched_env import EnvStep
from gantry_policies.imitation.data import ChunkData

STEP = 0.1


class Walk:
    """A number must come to rest on another; an action is a step of a tenth. There is time for 15."""

    action_size, dt_s, device, max_episode_steps = 1, 0.1, "cpu", 15
    obs_shapes = {"state": (2,)}  # noqa: RUF012

    def __init__(self, num_envs=8, seed=0):
        self.num_envs, self.draw = num_envs, torch.Generator().manual_seed(seed)
        self.pos, self.goal, self.time = torch.zeros(num_envs), torch.zeros(num_envs), torch.zeros(num_envs)

    def reset(self):
        self._begin(torch.ones(self.num_envs, dtype=torch.bool))
        return self._see()

    def step(self, action):
        self.pos, self.time = self.pos + STEP * action[:, 0], self.time + 1
        success, next_obs = (self.pos - self.goal).abs() < 0.05, self._see()
        truncated = (self.time >= self.max_episode_steps) & ~success
        self._begin(success | truncated)
        return EnvStep(self._see(), next_obs, success.float(), success, truncated, success)

    def close(self):
        pass

    def _see(self):
        return {"state": torch.stack((self.pos, self.goal), dim=1)}

    def _begin(self, which):
        places = torch.rand(2, int(which.sum()), generator=self.draw) * 2 - 1
        self.pos[which], self.goal[which], self.time[which] = places[0], places[1], 0


def walks(count, seed=3):
    """Straight to the goal."""
    draw, states, actions, lengths = torch.Generator().manual_seed(seed), [], [], []
    for _ in range(count):
        pos, goal = (torch.rand(2, generator=draw) * 2 - 1).tolist()
        lengths.append(0)
        while abs(pos - goal) >= 0.04 or not lengths[-1]:
            action = max(-1.0, min(1.0, (goal - pos) / STEP))
            states.append([pos, goal])
            actions.append([action])
            pos, lengths[-1] = pos + STEP * action, lengths[-1] + 1
    return ChunkData({"state": torch.tensor(states)}, torch.tensor(actions), lengths)


@pytest.fixture
def walk():
    """The class of these environments."""
    return Walk


@pytest.fixture(scope="session")
def demos():
    """``demos(count)`` gives demonstrations."""
    return walks
