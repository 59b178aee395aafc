"""Environments of gymnasium that give odd values: what a step gives is an argument.

Worker processes import this module by its name, so it is no part of a test file.
"""

import gymnasium
import numpy as np
from gymnasium import spaces


class Odd(gymnasium.Env):
    """Three numbers to see, two to do. From step ``at`` on, what ``gives`` names takes the place of usual values."""

    metadata = {"render_fps": 20}  # noqa: RUF012

    def __init__(self, at=1, action=None, seen=None, raises=None, **gives):
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32) if seen is None else seen
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32) if action is None else action
        self.at, self.gives, self.raises, self.time = at, gives, raises, 0

    def reset(self, *, seed=None, options=None):
        self.episode_time = 0
        obs = self.gives["obs"] if self.at == 0 and "obs" in self.gives else np.zeros(3, np.float32)
        return obs, {}

    def step(self, action):
        self.time += 1
        usual = {"obs": np.zeros(3, np.float32), "reward": 0.5, "terminated": False, "truncated": False, "info": {}}
        if self.time >= self.at:
            if self.raises is not None:
                raise self.raises
            usual |= self.gives
        return tuple(usual.values())


class OldReset(Odd):
    """Resets as gym did before 0.26, and takes a seed all the same."""

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32)


class NoSeed(Odd):
    """Takes no seed."""

    def reset(self):
        return np.zeros(3, np.float32)


class OldStep(Odd):
    """Steps as gym did before 0.26."""

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, {}


class Three(Odd):
    """Forgets values."""

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False


class Silent(Odd):
    """Gives nothing back."""

    def step(self, action):
        return None


class Unpacking(gymnasium.Wrapper):
    """Takes apart what it is given, as many wrappers do."""

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, info


class Vector(Odd):
    """Several at once."""

    single_action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
