"""Windows of some steps inside an episode: returns, what they bootstrap from, and the chunk of their actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_policies.off_policy.replay.batches import Lookahead

PENALTY = "penalty"
"""Row of the gripper's penalties; buffers that were saved before there were any have none."""
TO_GO = "to_go"
"""Row of the rewards to the recorded end of an episode; older buffers have none."""


@dataclass(frozen=True)
class Window:
    """B windows of at most h steps."""

    returns: Tensor
    """``(B,)``: rewards of the steps, discounted to the first."""
    penalties: Tensor
    """``(B,)``: the same of penalties."""
    discount: Tensor
    """``(B,)``: gamma to the number of steps, or zero where nothing comes after."""
    after: Tensor
    """``(B,)`` int64: slot of what was seen after the last step."""
    action: Tensor
    """``(B, n)``, or ``(B, T n)`` of chunks."""
    is_real: Tensor | None = None
    """``(B, T)`` bool, of chunks."""
    to_go: Tensor | None = None
    """``(B,)``, of chunks."""


def look_ahead(rows: Mapping[str, Tensor], first: Tensor, stride: int, ahead: Lookahead) -> Window:
    """Windows that begin at given slots and never leave their episode.

    A window goes on while the next slot is a transition; what it bootstraps from lies in the slot after its last one.

    Args:
        rows: Memories ``(slots, ...)`` of a replay buffer by name.
        first: ``(B,)`` int64: slots that are transitions.
        stride: Slots from a step to the next one of the same environment.
        ahead: How far to look.
    """
    read = {name: memory.index_select for name, memory in rows.items()}
    total = rows["is_transition"].shape[0]
    at, last, factor = first, first, torch.full(first.shape, ahead.gamma, device=first.device)
    returns, penalties = read["reward"](0, first), read[PENALTY](0, first)
    actions, real = [read["action"](0, first)], [torch.ones_like(first, dtype=torch.bool)]
    for step in range(1, max(ahead.n_step, ahead.chunk_steps)):
        following = (at + stride) % total
        # Once false it stays so, for the last step does not move any more.
        goes_on = read["is_transition"](0, following)
        at = torch.where(goes_on, following, at)
        if step < ahead.chunk_steps:
            actions.append(read["action"](0, at))
            real.append(goes_on)
        if step < ahead.n_step:
            share = factor * goes_on
            returns = returns + read["reward"](0, following) * share
            penalties = penalties + read[PENALTY](0, following) * share
            factor = torch.where(goes_on, factor * ahead.gamma, factor)
            last = at
    over = read["terminated"](0, last)
    if ahead.timeout_is_terminal:
        over = over | read["truncated"](0, last)
    of_chunks = (torch.stack(real, dim=1), read[TO_GO](0, first)) if ahead.chunk_steps else (None, None)
    return Window(returns, penalties, factor * ~over, (last + stride) % total, torch.cat(actions, dim=1), *of_chunks)


def to_go(reward: Tensor, gamma: float) -> Tensor:
    """``(T,)``: rewards from each of T steps to the last one, discounted.

    Args:
        reward: ``(T,)``, in units of the reward, of a whole episode.
        gamma: Discount of a step.
    """
    found = reward.clone()
    for step in range(len(found) - 2, -1, -1):
        found[step] += gamma * found[step + 1]
    return found
