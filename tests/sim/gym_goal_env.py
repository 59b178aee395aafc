"""A point on a line that is to reach a goal: an environment of gymnasium with all that the adapter must get right.

Worker processes import this module by its name, so it is no part of a test file.
"""

import random

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 5


class Goal(gymnasium.Env):
    """Moves by the action, -2 to 4; the goal is 3 away. At it, the episode ends for good."""

    metadata = {"render_modes": [], "render_fps": 20}  # noqa: RUF012

    def __init__(self, noise=0.0, raise_at=None, key="is_success", action=(-2.0, 4.0), ends=True):
        self.noise, self.raise_at, self.key, self.ends = noise, raise_at, key, ends
        self.observation_space = spaces.Dict(
            {
                "robot": spaces.Dict({"pos": spaces.Box(-np.inf, np.inf, (1,), np.float64)}),
                "mode": spaces.Discrete(3),
                "cameras": spaces.Dict(
                    {
                        "front": spaces.Box(0, 255, (4, 6, 3), np.uint8),
                        "map": spaces.Box(0, 255, (1, 2, 2), np.uint8),
                    }
                ),
            }
        )
        self.action_space = spaces.Box(*action, (1,), np.float32)

    def _observe(self):
        front = np.zeros((4, 6, 3), np.uint8)
        front[:2, :3, 0], front[2:, 3:, 2] = 200, 100
        front[0, 0, 1] = 6
        return {
            "robot": {"pos": np.array([self.pos])},
            "mode": 1,
            "cameras": {"front": front, "map": np.full((1, 2, 2), self.time, np.uint8)},
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        # All three sources of chance that environments use.
        self.pos = self.noise * (self.np_random.random() + np.random.random() + random.random())
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        self.time += 1
        if self.time == self.raise_at:
            raise ValueError("the arm fell off")
        self.pos += float(action[0]) + self.noise * np.random.random()
        success = abs(self.pos - 3.0) < 0.5
        info = {self.key: np.array([success]), "junk": object()} if self.key else {}
        return self._observe(), -abs(self.pos - 3.0), bool(success and self.ends), False, info


gymnasium.register("gantry_test/Goal-v0", Goal, max_episode_steps=STEPS)
gymnasium.register("gantry_test/Endless-v0", Goal)


class Timeless(Goal):
    """Keeps no time."""

    metadata = None


class Half(gymnasium.ActionWrapper):
    """Goes half as far."""

    def action(self, action):
        return action / 2
