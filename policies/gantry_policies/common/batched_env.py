"""Batched environments, which every algorithm trains in: they say how an episode ended and with which observation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from torch import Tensor

Observation: TypeAlias = dict[str, Tensor]
"""Observations by key, each ``(N, ...)``: ``state`` is flat float32, ``image/<camera>`` is uint8 ``(N, C, H, W)``.
Other keys are for learning alone, for example ``critic``, which only a simulator can tell."""

STATE = "state"
"""Key of the flat numbers of an observation."""
IMAGE_PREFIX = "image/"
"""Keys of camera images begin with it."""


def on_device(obs: Observation, device: str) -> Observation:
    """The observation on a device; itself if it is there."""
    return {key: value.to(device) for key, value in obs.items()}


@dataclass(frozen=True)
class EnvStep:
    """Result of one step of N environments; environments whose episode ended have begun their next one already."""

    obs: Observation
    """``(N, ...)``: what is seen now; of environments whose episode ended, the first of the next episode."""
    next_obs: Observation
    """``(N, ...)``: what followed the action; of environments whose episode ended, the episode's last observation."""
    reward: Tensor
    """``(N,)`` float32."""
    terminated: Tensor
    """``(N,)`` bool: ended for good, by success or failure; nothing of value comes after it."""
    truncated: Tensor
    """``(N,)`` bool: out of time; the value of ``next_obs`` is bootstrapped by default."""
    success: Tensor
    """``(N,)`` bool: the task's own verdict at this step."""
    extras: dict[str, Any] = field(default_factory=dict)
    """Further information on the step, for example ``expert_action``, ``(N, action_size)``."""


class BatchedEnv(Protocol):
    """N environments that are stepped together and restart by themselves."""

    num_envs: int
    """N."""
    device: str
    """Device of the tensors."""
    action_size: int
    """Numbers of an action."""
    max_episode_steps: int
    """Steps after which an episode is truncated."""
    dt_s: float
    """Time of a step, in s."""
    obs_shapes: dict[str, tuple[int, ...]]
    """Shape of one environment's observation, by key, of what the policy reads; see :data:`Observation`."""
    keep_final_obs: bool
    """Whether ``next_obs`` of ended episodes is their last observation, which may cost a second look; algorithms that
    do not read it switch it off before the first step."""

    def reset(self) -> Observation:
        """Begin new episodes everywhere; returns their first observations."""
        ...

    def step(self, action: Tensor) -> EnvStep:
        """Apply actions, ``(N, action_size)`` in [-1, 1], without unit."""
        ...

    def close(self) -> None:
        """Release what the environments hold."""
        ...
