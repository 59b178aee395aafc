"""Walk state of the scripted policy: the robot's exact state in all environments."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_deploy.footsteps.state import StepState
from gantry_mapping.sensing.frames import rotation_matrix, yaw_of
from gantry_sim.tasks.goal.state import GoalState


@dataclass(frozen=True)
class WalkState:
    """N environments, f feet."""

    new: Tensor
    """(N,) bool, whether the policy has only just begun, so that nothing remembered counts."""
    pos_w: Tensor
    """(N, 3) base, m."""
    yaw: Tensor
    """(N,) rad."""
    feet_w: Tensor
    """(N, f, 3) m."""
    body: StepState
    """State of the body for the decoder of the policy's actions."""

    @classmethod
    def of(cls, state: GoalState, body: StepState, new: Tensor) -> WalkState:
        """The state as it is; see the fields for ``body`` and ``new``."""
        rotation = rotation_matrix(state.quat)
        feet_w = torch.einsum("nij,nkj->nki", rotation, body.feet_b) + state.pos_w[:, None]
        return cls(new, state.pos_w.clone(), yaw_of(state.quat), feet_w, body)

    def to_world(self, vector: Tensor) -> Tensor:
        """Horizontal vectors (N, ..., 2) of the level frame, in the world."""
        return self._turned(vector, torch.sin(self.yaw))

    def to_level(self, vector_w: Tensor) -> Tensor:
        """Horizontal vectors (N, ..., 2) of the world, in the level frame."""
        return self._turned(vector_w, -torch.sin(self.yaw))

    def _turned(self, vector: Tensor, sin: Tensor) -> Tensor:
        shape = (-1, *[1] * (vector.dim() - 2))
        cos, sin = torch.cos(self.yaw).view(shape), sin.view(shape)
        x, y = vector.unbind(-1)
        return torch.stack((cos * x - sin * y, sin * x + cos * y), -1)

    def kept(self, old: Tensor, fresh: Tensor) -> Tensor:
        """Keep what was remembered, (N, ...); where the policy has only just begun, ``fresh``."""
        return torch.where(self.new.view(-1, *[1] * (old.dim() - 1)), fresh, old)
