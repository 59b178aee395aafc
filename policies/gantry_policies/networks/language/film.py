"""Words scale and shift features (FiLM, arXiv 1709.07871)."""

from __future__ import annotations

from torch import Tensor


def scale_and_shift(features: Tensor, both: Tensor) -> Tensor:
    """Features (N, c, ...) times one plus a scale, plus a shift.

    Args:
        features: ``(N, c, ...)``, dimensionless.
        both: ``(N, 2 c)``, the scale of each channel, then its shift.
    """
    scale, shift = both.reshape(*both.shape, *(1,) * (features.dim() - 2)).chunk(2, dim=1)
    return features * (1.0 + scale) + shift
