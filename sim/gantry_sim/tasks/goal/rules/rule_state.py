"""State of the scripted walker: the robot's exact state in all environments."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_deploy.footsteps.controller import Body
from gantry_mapping.frames import yaw_of
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.tasks.locomotion.state import rotation_matrix


@dataclass(frozen=True)
class RuleState:
    """N environments, f feet."""

    new: Tensor
    """(N,) bool, whether the rules have only just begun, so that nothing remembered counts."""
    pos_w: Tensor
    """(N, 3) base, m."""
    yaw: Tensor
    """(N,) rad."""
    feet_w: Tensor
    """(N, f, 3) m."""
    body: Body
    """State of the body for the decoder of the policy's actions."""

    @classmethod
    def of(cls, state: GoalState, body: Body, new: Tensor) -> RuleState:
        """The state as it is; see the fields for ``body`` and ``new``."""
        rotation = rotation_matrix(state.quat)
        feet_w = torch.einsum("nij,nkj->nki", rotation, body.feet_b) + state.pos_w[:, None]
        return cls(new, state.pos_w.clone(), yaw_of(state.quat), feet_w, body)

    @property
    def ahead(self) -> Tensor:
        """(N, 2) horizontal unit vector to the front, in the world."""
        return torch.stack((torch.cos(self.yaw), torch.sin(self.yaw)), -1)

    @property
    def aside(self) -> Tensor:
        """(N, 2) horizontal unit vector to the left, in the world."""
        return torch.stack((-torch.sin(self.yaw), torch.cos(self.yaw)), -1)

    def to_world(self, vector: Tensor) -> Tensor:
        """Horizontal vectors (N, ..., 2) of the level frame, in the world."""
        ahead, aside = (axis.view(-1, *[1] * (vector.dim() - 2), 2) for axis in (self.ahead, self.aside))
        return vector[..., :1] * ahead + vector[..., 1:] * aside

    def to_level(self, vector_w: Tensor) -> Tensor:
        """Horizontal vectors (N, ..., 2) of the world, in the level frame."""
        ahead, aside = (axis.view(-1, *[1] * (vector_w.dim() - 2), 2) for axis in (self.ahead, self.aside))
        return torch.stack(((vector_w * ahead).sum(-1), (vector_w * aside).sum(-1)), -1)

    def kept(self, old: Tensor, fresh: Tensor) -> Tensor:
        """Keep what was remembered, (N, ...); where the rules have only just begun, ``fresh``."""
        return torch.where(self.new.view(-1, *[1] * (old.dim() - 1)), fresh, old)
