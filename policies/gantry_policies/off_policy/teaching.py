"""Imitation of demonstrations and corrections with a weight for each state: where they are better than the policy.

After the idea of SiLRI (arXiv 2512.24288): imitate where the person does better, learn by reward elsewhere. There a
Lagrange multiplier for each state holds the policy close to the person; here the critic compares what was shown with
what the policy would do, state by state.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_policies.common import processes
from gantry_policies.off_policy.config import TeachingCfg


def worth(value_shown: Tensor, value_own: Tensor, critic_updates: int, cfg: TeachingCfg) -> Tensor:
    """Weights ``(B,)``, dimensionless, 0 to 1, of what was shown in B states.

    Args:
        value_shown: ``(B,)``, the critic's value of the action that was shown, in units of the reward.
        value_own: ``(B,)``, likewise of the policy's own action.
        critic_updates: Of the critic so far. A young one takes actions that were never tried for good ones, so that
            what was shown counts in full at first.
        cfg: Settings.
    """
    verdict = torch.sigmoid((value_shown - value_own) / cfg.softness)
    ripe = min(1.0, critic_updates / cfg.young_updates) if cfg.young_updates else 1.0
    return 1.0 - ripe * (1.0 - verdict)


def imitation_loss(own: Tensor, shown: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean, a scalar, of squared distances between scaled actions ``(B, n)``, summed over the action.

    Args:
        own: ``(B, n)``, dimensionless, of the policy, with their gradient.
        shown: ``(B, n)``, dimensionless: demonstrations and corrections.
        weight: ``(B,)``, dimensionless; 0 for rows of the policy itself.
    """
    return ((own - shown).square().sum(-1) * weight).mean()


def equal_weight(is_taught: Tensor) -> Tensor:
    """Weights ``(B,)``, dimensionless, of rows that are imitated, ``(B,)`` bool, or not, with a mean of one
    over the batches of all processes."""
    shown = is_taught.float()
    return shown / processes.averaged(shown.mean()).clamp(min=1e-6)


def mean_size(value: Tensor) -> Tensor:
    """Mean size, a scalar, of values ``(B,)`` in units of the reward, over the batches of all processes; a loss divided
    by it has a size of one."""
    return processes.averaged(value.abs().mean()).clamp(min=1e-3)
