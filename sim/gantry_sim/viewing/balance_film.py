"""Episodes of a mechanism as a film: what `gantry check` judges, drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.control.loop import Controller
from gantry_deploy.evaluation.balancing import BalanceScenario
from gantry_deploy.evaluation.rollout import run_episodes
from gantry_deploy.evaluation.scenario import End, FloatArray, RolloutConfig
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.report import encode_mp4
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec

FPS = 30.0
"""Frames per second."""


@dataclass(frozen=True)
class Balanced:
    """Content of a film."""

    episodes: int
    """Episodes."""
    succeeded: int
    """Of those, with the pose kept at the end."""
    trouble: str = ""
    """Reason for which one ended early; empty if none did."""


class _Filmed(BalanceScenario):
    """The same episodes, with a picture now and then.

    Args:
        runner: The policy.
        config: Conditions.
        on_step: Called with the number of control steps so far.
    """

    def __init__(self, runner: PolicyRunner, config: RolloutConfig, on_step: Callable[[int], None]) -> None:
        super().__init__(runner, config)
        self.frames: list[NDArray[np.uint8]] = []
        self._on_step, self._steps, self._due_s = on_step, 0, 0.0

    def begin(self, controller: Controller) -> None:
        """The first picture is taken as the policy starts."""
        super().begin(controller)
        self._due_s = 0.0

    def judge(self, command: FloatArray) -> End | None:
        """Draw, if it is time to; ``command`` is (0,)."""
        end = super().judge(command)
        self._steps += 1
        self._on_step(self._steps)
        if self._robot.now_s() >= self._due_s:
            self._due_s = max(self._due_s, self._robot.now_s() - 1.0 / FPS) + 1.0 / FPS
            self.frames.append(self._robot.render())
        return end


def film_balance(
    bundle: Bundle, seconds: float, options: Mapping[str, Any], on_progress: Callable[[float], None]
) -> tuple[bytes, Balanced]:
    """Run episodes one after the other, as `gantry check` does, and draw them.

    Args:
        bundle: Of a mechanism's policy.
        seconds: Length of the film.
        options: Of :class:`gantry_sim.backends.mujoco_robot.MujocoRobot`.
        on_progress: Called with the share that is done.

    Returns:
        The film as MP4 in real time, and what it shows.

    Raises:
        GantryError: If this machine cannot draw, an option is none, or no episode could start.
    """
    runner = PolicyRunner(bundle, robot_spec(bundle.contract.robot))
    count = max(1, math.ceil(seconds / BalanceScenario.seconds))
    total = max(1.0, seconds * bundle.contract.rate_hz)
    config = RolloutConfig(episodes=count, seconds=seconds / count, options=dict(options))
    scenario = _Filmed(runner, config, lambda steps: on_progress(min(1.0, steps / total)))
    result = run_episodes(runner, config, scenario=scenario)
    kept = sum(episode.scores["balanced"] and not episode.failed for episode in result.episodes)
    trouble = next((episode.reason for episode in result.episodes if episode.reason), "")
    if not scenario.frames:
        raise GantryError(f"There is nothing to show: {trouble}")
    return encode_mp4(scenario.frames, FPS), Balanced(count, kept, trouble)
