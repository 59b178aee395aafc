"""Batches from two buffers: what the robot experienced, and what it was shown."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_policies.off_policy.replay.batches import Batch, Lookahead
from gantry_policies.off_policy.replay.buffer import ReplayBuffer


def sample_two(
    online: ReplayBuffer,
    demos: ReplayBuffer | None,
    count: int,
    demo_fraction: float,
    ahead: Lookahead,
    generator: torch.Generator,
) -> Batch:
    """Symmetric sampling (RLPD, arXiv 2302.02948): a fixed share of a batch comes from the demonstrations.

    Args:
        online: What the robot experienced.
        demos: What it was shown; None for none.
        count: B.
        demo_fraction: Share of demonstrations, rounded to whole transitions.
        ahead: Of both buffers, each on its own episodes.
        generator: Of the draws, on the buffers' device.

    Returns:
        A batch whose last rows are the demonstrations.

    Raises:
        ReplayError: If a buffer that is to be drawn from is empty.
    """
    shown = 0 if demos is None else round(count * demo_fraction)
    parts = []
    if shown < count:
        parts.append(online.sample(count - shown, ahead, generator))
    if shown and demos is not None:
        parts.append(demos.sample(shown, ahead, generator))
    return parts[0] if len(parts) == 1 else _joined(*parts)


def _joined(first: Batch, second: Batch) -> Batch:
    def both(one: Tensor | None, other: Tensor | None) -> Tensor | None:
        return None if one is None or other is None else torch.cat((one, other))

    return Batch(
        obs={key: torch.cat((value, second.obs[key])) for key, value in first.obs.items()},
        action=torch.cat((first.action, second.action)),
        returns=torch.cat((first.returns, second.returns)),
        discount=torch.cat((first.discount, second.discount)),
        next_obs={key: torch.cat((value, second.next_obs[key])) for key, value in first.next_obs.items()},
        is_demo=torch.cat((first.is_demo, second.is_demo)),
        is_intervention=torch.cat((first.is_intervention, second.is_intervention)),
        base_action=both(first.base_action, second.base_action),
        next_base_action=both(first.next_base_action, second.next_base_action),
        penalties=both(first.penalties, second.penalties),
        is_real=both(first.is_real, second.is_real),
        to_go=both(first.to_go, second.to_go),
    )
