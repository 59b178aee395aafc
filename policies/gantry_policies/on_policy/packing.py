"""Rollouts that keep rasters as bytes: a quarter of the memory of floats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from gantry_policies.networks.layout import RASTER_STEPS

RASTER = "raster"
"""Name under which a rollout keeps the raster of the actor's observation."""


@dataclass(frozen=True)
class RasterPacking:
    """Place of the raster in the actor's flat observation."""

    group: str
    """Observation group that holds it."""
    start: int
    """First column."""
    stop: int
    """Column after the last one."""

    def pack(self, observations: TensorDict) -> TensorDict:
        """Groups (..., size) with the raster apart, as bytes."""
        flat = observations[self.group]
        rest = torch.cat((flat[..., : self.start], flat[..., self.stop :]), dim=-1)
        raster = (flat[..., self.start : self.stop] * RASTER_STEPS).round().to(torch.uint8)
        kept = {**dict(observations.items()), self.group: rest, RASTER: raster}
        return TensorDict(kept, batch_size=observations.batch_size, device=observations.device)

    def allocate(self, observations: TensorDict) -> TensorDict:
        """Packed zeros for as many observations (steps, N, size)."""
        kept = {
            name: torch.zeros(*observations.batch_size, *row.shape[2:], dtype=row.dtype, device=row.device)
            for name, row in self.pack(observations[:1]).items()
        }
        return TensorDict(kept, batch_size=observations.batch_size, device=observations.device)

    def groups(self, groups: Iterable[str]) -> list[str]:
        """Names under which a rollout keeps what some observation groups hold."""
        return [part for group in groups for part in ((group, RASTER) if group == self.group else (group,))]

    def unpack(self, observations: dict[str, Tensor]) -> dict[str, Tensor]:
        """The same numbers (N, ...), scaled as before; without the packed group, what there is stays as it is."""
        if RASTER not in observations:
            return dict(observations)
        found = dict(observations)
        rest, raster = found.pop(self.group), found.pop(RASTER)
        picture = raster.to(rest.dtype) * (1.0 / RASTER_STEPS)
        parts = (rest[..., : self.start], picture, rest[..., self.start :])
        return {**found, self.group: torch.cat(parts, dim=-1)}
