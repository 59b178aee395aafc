"""Check of the pictures that scorers are given."""

from __future__ import annotations

from torch import Tensor

from gantry_hardware.errors import GantryError


def check_frames(frames: Tensor) -> None:
    """Refuse what is no batch of pictures.

    Raises:
        GantryError: Naming shape and type.
    """
    if frames.ndim != 4 or frames.shape[1] != 3 or str(frames.dtype) != "torch.uint8":
        raise GantryError(
            f"Pictures have shape {tuple(frames.shape)} and type {frames.dtype}, expected uint8 (N, 3, H, W)."
        )
