"""Batches of the learner: transitions with their n-step returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gantry_policies.common.batched_env import Observation


@dataclass(frozen=True)
class Batch:
    """B transitions that look h steps ahead, where h is n or less (an episode or the recorded data ended before)."""

    obs: Observation
    """``(B, ...)``: what was seen at the first step."""
    action: Tensor
    """``(B, n)``: what was executed at the first step; of chunks ``(B, T n)``, what was executed in T steps, one after
    the other, with the last action repeated after an episode's end."""
    returns: Tensor
    """``(B,)``: rewards of the h steps, discounted to the first."""
    discount: Tensor
    """``(B,)``: factor on the value of ``next_obs``: gamma ** h, or zero where nothing comes after."""
    next_obs: Observation
    """``(B, ...)``: what was seen after the h steps; the true last observation of an episode that ended."""
    is_demo: Tensor
    """``(B,)`` bool."""
    is_intervention: Tensor
    """``(B,)`` bool."""
    base_action: Tensor | None = None
    """``(B, n)``: what the base wanted at the first step; None without a base."""
    next_base_action: Tensor | None = None
    """``(B, n)``: what the base wanted at ``next_obs``."""
    penalties: Tensor | None = None
    """``(B,)``: penalties of gripper commands in the h steps, discounted like the rewards and no part of them; None for
    none."""
    is_real: Tensor | None = None
    """``(B, T)`` bool: which steps of a chunk belong to the episode; None for single actions."""
    to_go: Tensor | None = None
    """``(B,)``: rewards from the first step to the recorded end, discounted; minus infinity where they are not known.
    None for single actions."""


@dataclass(frozen=True)
class Lookahead:
    """Look-ahead of samples, and what ends it."""

    n_step: int
    """Most steps summed into a return."""
    gamma: float
    """Discount of a step."""
    timeout_is_terminal: bool = False
    """Treat running out of time as an end for good, as the paper's code does, instead of bootstrapping."""
    chunk_steps: int = 0
    """T, actions of a chunk, at least ``n_step``; 0 for single actions."""
