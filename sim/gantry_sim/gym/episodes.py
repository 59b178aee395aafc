"""Episodes of some environments, one after the other without end; this is what runs in a worker process.

Gymnasium's vectors restart ended environments in three ways, and each hides something: a step is spent on it, or what
the episode ended in travels apart, or the caller does it in a second round. So environments restart here, where seeds
are known as well, and a vector never sees an end: a step gives what it led to and what is seen now, side by side.
"""

from __future__ import annotations

import os
import random
import signal
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from gantry_sim.gym import border
from gantry_sim.gym.border import GymEnvError
from gantry_sim.gym.cfg import GymCfg, GymPlan, make_gym
from gantry_sim.gym.layout import STATE

SUCCESS_KEYS = ("is_success", "success", "succeed")
"""Names under which environments say in info that a step succeeded; the first that is there counts."""
NOW, LAST = "now/", "last/"
"""Prefixes of what is seen now, and of what the step led to."""
REWARD, ENDED = "reward", "ended"
"""Keys of the rewards, and of flags: terminated, truncated, success, and whether the environment knows of success."""
FAILURE, TRACE = "failure", "trace"
"""Keys in info of one line on what went wrong, and of the whole traceback."""


def episode_seed(seed: int, row: int, episode: int) -> int:
    """Of an environment's episode: below 2**31, which all libraries take; unrelated to those of all others.

    Args:
        seed: Of all environments.
        row: Which environment.
        episode: Which episode; 0 for making the environment.
    """
    return int(np.random.SeedSequence((seed, row, episode)).generate_state(1)[0] >> 1)


class EndlessEpisodes:
    """One environment whose episodes follow each other.

    Some environments draw from the global generators of Python and numpy, which others use as well. Each gets a state
    of its own for its calls, so that an episode depends on its seed and actions alone.

    Args:
        cfg: The environment.
        plan: What it has to offer.
        seed: Of all environments.
        row: Which of them this is.
    """

    def __init__(self, cfg: GymCfg, plan: GymPlan, seed: int, row: int) -> None:
        self.row = row
        self.episode = 0
        """Number of the running episode, from 1."""
        self.steps = 0
        """Steps of the running episode."""
        self._cfg, self._plan, self._seed = cfg, plan, seed
        self._chance: tuple[Any, Any] | None = None
        with self._own_chance():
            self._sow()
            self._env = make_gym(cfg)

    def begin(self) -> dict[str, np.ndarray]:
        """Begin the next episode; returns its first observation."""
        self.episode += 1
        self.steps = 0
        with self._own_chance():
            obs = border.reset(self._env, self._sow())
        return self._plan.observation.arrays(obs)

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, tuple[bool, bool, bool, bool]]:
        """Apply an action, (n,) in [-1, 1].

        Returns:
            What it led to, the reward, and flags: terminated, truncated, success, and whether success was spoken of.
        """
        with self._own_chance():
            obs, reward, terminated, truncated, info = border.step(self._env, self._plan.action.scaled(action))
        self.steps += 1
        success, known = self._success(reward, info)
        terminated = terminated or (success and self._cfg.end_on_success)
        truncated = not terminated and (truncated or self.steps >= self._plan.max_episode_steps)
        return self._plan.observation.arrays(obs), reward, (terminated, truncated, success, known)

    def close(self) -> None:
        """Release what the environment holds."""
        with self._own_chance():
            self._env.close()

    def _success(self, reward: float, info: Mapping[str, Any]) -> tuple[bool, bool]:
        if self._cfg.success_reward is not None:
            return reward >= self._cfg.success_reward, True
        said = border.success(info, SUCCESS_KEYS)
        return bool(said), said is not None

    def _sow(self) -> int:
        seed = episode_seed(self._seed, self.row, self.episode)
        random.seed(seed)
        np.random.seed(seed)
        return seed

    @contextmanager
    def _own_chance(self) -> Iterator[None]:
        others = random.getstate(), np.random.get_state()
        if self._chance is not None:
            random.setstate(self._chance[0])
            np.random.set_state(self._chance[1])
        try:
            yield
        finally:
            self._chance = random.getstate(), np.random.get_state()
            random.setstate(others[0])
            np.random.set_state(others[1])


class EpisodeGroup(gymnasium.Env[Any, Any]):
    """K environments as a single one for gymnasium's vectors, whose arrays have a leading axis K.

    Environments are made at the first reset, so that a vector may make a group just to look at its spaces. What goes
    wrong is told in info and not raised, as vectors would end the worker, warn, and lose which environment it was.

    Args:
        cfg: The environments.
        plan: What each has to offer.
        seed: Of all environments.
        rows: Which of all environments are in this group, at most K.
        slots: K, the same for all groups.
        owner: Process that the environments work for, whose own Ctrl-C must not end a worker.
    """

    metadata: dict[str, Any] = {}  # noqa: RUF012  # gymnasium's own declaration

    def __init__(self, cfg: GymCfg, plan: GymPlan, seed: int, rows: tuple[int, ...], slots: int, owner: int) -> None:
        if os.getpid() != owner:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._make = (cfg, plan, seed)
        self._rows = rows
        self._members: list[EndlessEpisodes] | None = None
        shapes = plan.observation.shapes
        boxes: dict[str, spaces.Space[Any]] = {
            f"{prefix}{key}": _bytes((slots, *shape)) if key != STATE else _floats((slots, *shape))
            for prefix in (NOW, LAST)
            for key, shape in shapes.items()
        }
        self.observation_space = spaces.Dict({**boxes, REWARD: _floats((slots,)), ENDED: _bytes((slots, 4))})
        self.action_space = spaces.Box(-1.0, 1.0, (slots, plan.action.low.size), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin the next episode everywhere; seeds are those of the group."""
        del seed, options
        told, where = self._blank(), "the making"
        try:
            if self._members is None:
                self._members = []
                for row in self._rows:
                    where = f"the making of environment {row}"
                    self._members.append(EndlessEpisodes(*self._make, row))
            for slot, member in enumerate(self._members):
                where = f"the reset of environment {member.row}"
                self._tell(told, slot, member.begin(), (NOW, LAST))
        except Exception as error:
            return told, self._failure(where, error)
        return told, {}

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Step every environment, and begin the next episode where one ended.

        Args:
            action: (K, n) in [-1, 1].
        """
        assert self._members is not None
        told, where = self._blank(), ""
        try:
            for slot, member in enumerate(self._members):
                where = f"step {member.steps + 1} of episode {member.episode} of environment {member.row}"
                seen, reward, flags = member.step(action[slot])
                told[REWARD][slot], told[ENDED][slot] = reward, flags
                self._tell(told, slot, seen, (NOW, LAST))
                if flags[0] or flags[1]:
                    where = f"the reset of environment {member.row} after episode {member.episode}"
                    self._tell(told, slot, member.begin(), (NOW,))
        except Exception as error:
            return told, 0.0, False, False, self._failure(where, error)
        return told, 0.0, False, False, {}

    def close(self) -> None:
        """Close every environment, whatever becomes of the others."""
        for member in self._members or ():
            try:
                member.close()
            except Exception:
                traceback.print_exc()

    def _blank(self) -> dict[str, np.ndarray]:
        boxes = self.observation_space
        assert isinstance(boxes, spaces.Dict)
        return {key: np.zeros(box.shape or (), box.dtype) for key, box in boxes.items()}

    def _tell(
        self, told: dict[str, np.ndarray], slot: int, seen: dict[str, np.ndarray], prefixes: tuple[str, ...]
    ) -> None:
        for prefix in prefixes:
            for key, value in seen.items():
                told[f"{prefix}{key}"][slot] = value

    def _failure(self, where: str, error: Exception) -> dict[str, Any]:
        reason = str(error) if isinstance(error, GymEnvError) else f"{type(error).__name__}: {error}"
        return {FAILURE: f"'{self._make[0].env_id}' failed in {where}: {reason}", TRACE: traceback.format_exc()}


def _floats(shape: tuple[int, ...]) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


def _bytes(shape: tuple[int, ...]) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)
