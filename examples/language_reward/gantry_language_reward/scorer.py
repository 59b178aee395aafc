"""Comparison of pictures with sentences, and the speed that a car shall have after that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from gantry_language_reward.cfg import LanguageCfg


class Scorer(Protocol):
    """A frozen model that knows G sentences, the bad goal first and the good one second."""

    margin: float
    """Lead of the bad goal over the good one at which a car shall stand, in cosines."""

    def __call__(self, frames: Tensor) -> Tensor:
        """Cosines ``(N, G)`` in [-1, 1] of pictures uint8 ``(N, 3, H, W)`` and the sentences; without gradients."""
        ...


def clear_share(similarity: Tensor, margin: float) -> Tensor:
    """VLM-RL's reward of contrasting language goals (arXiv 2412.15544).

    ``(N,)`` from 0, an accident, to 1, a clear road.

    Args:
        similarity: ``(N, 2)`` cosines to the bad and to the good goal.
        margin: Their difference at which a picture is all bad.
    """
    lead = similarity[:, 0] - similarity[:, 1]
    return 1.0 - lead.clamp(0.0, margin) / margin


def make_scorer(cfg: LanguageCfg, device: str = "cpu") -> Scorer:
    """The scorer that is asked for, with the weights that it needs.

    Args:
        cfg: Which one, and the goals.
        device: Where it computes.

    Raises:
        GantryError: If weights or packages are missing, or it does not know the goals.
    """
    goals = (cfg.bad, cfg.good)
    if cfg.scorer == "clip":
        from gantry_language_reward.clip import ClipScorer

        return ClipScorer(cfg.path, goals, device)
    from gantry_language_reward.small import load_small

    return load_small(cfg.path, goals, device, cfg.picture)


def require_scorer(cfg: LanguageCfg) -> None:
    """See that the scorer that is asked for can be made, as far as that shows without loading large weights.

    Raises:
        GantryError: If weights or packages are missing, or a small one does not know the goals.
    """
    if cfg.scorer == "clip":
        from gantry_language_reward.clip import require_clip

        require_clip(cfg.path)
    else:
        make_scorer(cfg)
