"""A scripted hand that puts one thing on or into another, by places that only the simulator knows.

It takes things at their middle and does not turn its hand, so that it is no expert of every task; it shows that success
is reached and counted, and records demonstrations of the tasks that it can do.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gantry_libero.env import AIM_SIZE
from gantry_libero.simulation import NUM_ACTIONS
from gantry_policies.common.batched_env import STATE, Observation

ABOVE_M, CARRIED_M = 0.13, 0.30
"""Height of the hand over a thing before it goes down, and over the place while it carries one there."""
LET_GO_M = 0.16
"""Height of the hand over the place where it lets go."""
NEAR_M = 0.012
"""Distance at which the hand has arrived."""
GAIN = 12.0
"""Action per metre of distance; 1 is a step of 5 cm."""
CLOSING_STEPS = 14
"""Steps for which the hand waits while it closes."""
_OVER, _DOWN, _CLOSE, _LIFT, _CARRY, _LOWER, _OPEN = range(7)


class ScriptedHand:
    """Implements :class:`gantry_policies.common.evaluation.ActingPolicy`, for states that begin with ``aim``.

    Args:
        num_envs: N.
    """

    def __init__(self, num_envs: int) -> None:
        self._phase = np.zeros(num_envs, np.int64)
        self._waited = np.zeros(num_envs, np.int64)

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Episodes begin, in the given environments (m,) or in all."""
        rows = slice(None) if env_ids is None else env_ids.cpu().numpy()
        self._phase[rows], self._waited[rows] = _OVER, 0

    def act(self, obs: Observation) -> Tensor:
        """``(N, 7)`` in [-1, 1]."""
        state = obs[STATE].cpu().numpy().astype(np.float64)
        return torch.from_numpy(np.stack([self._one(row, values) for row, values in enumerate(state)])).float()

    def _one(self, row: int, state: NDArray[np.float64]) -> NDArray[np.float64]:
        thing, place, hand = state[:3], state[3:AIM_SIZE], state[AIM_SIZE : AIM_SIZE + 3]
        aim, holds = _target(int(self._phase[row]), thing, place, hand)
        away = aim - hand
        action = np.zeros(NUM_ACTIONS)
        action[:3] = np.clip(GAIN * away, -1.0, 1.0)
        action[6] = 1.0 if holds else -1.0
        self._advance(row, float(np.linalg.norm(away)))
        return action

    def _advance(self, row: int, distance_m: float) -> None:
        phase = self._phase[row]
        if phase == _OPEN:
            return
        self._waited[row] += 1
        waits = phase == _CLOSE
        # A hand that something keeps from arriving goes on after a while.
        if (self._waited[row] >= CLOSING_STEPS) if waits else (distance_m < NEAR_M or self._waited[row] > 60):
            self._phase[row] += 1
            self._waited[row] = 0


def _target(
    phase: int, thing: NDArray[np.float64], place: NDArray[np.float64], hand: NDArray[np.float64]
) -> tuple[NDArray[np.float64], bool]:
    """Where the hand shall be (3,), m, world frame, and whether it is closed."""
    up = np.array([0.0, 0.0, 1.0])
    if phase == _OVER:
        return thing + ABOVE_M * up, False
    if phase in (_DOWN, _CLOSE):
        return thing.copy(), phase == _CLOSE
    if phase == _LIFT:
        return np.array([hand[0], hand[1], place[2] + CARRIED_M]), True
    # The thing itself is to be over the place, wherever the hand has it.
    over = hand + (place - thing)
    height = CARRIED_M if phase == _CARRY else LET_GO_M
    return np.array([over[0], over[1], place[2] + height]), phase != _OPEN
