"""What the rules know of a moment: the robot's exact state in all environments."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_sim.tasks.goal.rules.legs import Legs
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.tasks.locomotion.state import rotation_matrix


@dataclass(frozen=True)
class Moment:
    """N environments, f feet."""

    time_s: Tensor
    """(N,) since the rules began, which is when an episode does."""
    clock_s: Tensor
    """(N,) of the policy's clock, which may have begun earlier: a training's first episodes begin late."""
    new: Tensor
    """(N,) bool, whether they have only just begun, so that nothing remembered counts."""
    rotation: Tensor
    """(N, 3, 3) base to world."""
    pos_w: Tensor
    """(N, 3) base, m."""
    vel_w: Tensor
    """(N, 3) of the base in the world, m/s."""
    ang_vel_b: Tensor
    """(N, 3) rad/s."""
    yaw: Tensor
    """(N,) rad."""
    joint_pos: Tensor
    """(N, 3 f) rad."""
    joint_vel: Tensor
    """(N, 3 f) rad/s."""
    feet_w: Tensor
    """(N, f, 3) m."""
    jacobian_b: Tensor
    """(N, f, 3, 3) of the feet in the base frame, m/rad."""
    contact: Tensor
    """(N, f) bool."""

    @classmethod
    def of(cls, state: GoalState, legs: Legs, time_s: Tensor, new: Tensor) -> Moment:
        """The state as it is; see the fields for ``time_s`` and ``new``."""
        rotation = rotation_matrix(state.quat)
        feet_b, jacobian = legs.feet(state.joint_pos)
        return cls(
            time_s=time_s,
            clock_s=state.time_s,
            new=new,
            rotation=rotation,
            pos_w=state.pos_w.clone(),
            vel_w=torch.einsum("nij,nj->ni", rotation, state.lin_vel_b),
            ang_vel_b=state.ang_vel_b,
            yaw=torch.atan2(rotation[:, 1, 0], rotation[:, 0, 0]),
            joint_pos=state.joint_pos,
            joint_vel=state.joint_vel,
            feet_w=torch.einsum("nij,nkj->nki", rotation, feet_b) + state.pos_w[:, None],
            jacobian_b=jacobian,
            contact=state.foot_contact > 0,
        )

    @property
    def ahead(self) -> Tensor:
        """(N, 2) horizontal unit vector to the front, in the world."""
        return torch.stack((torch.cos(self.yaw), torch.sin(self.yaw)), -1)

    @property
    def aside(self) -> Tensor:
        """(N, 2) horizontal unit vector to the left, in the world."""
        return torch.stack((-torch.sin(self.yaw), torch.cos(self.yaw)), -1)

    def kept(self, old: Tensor, fresh: Tensor) -> Tensor:
        """What was remembered, (N, ...); where the rules have only just begun, ``fresh``."""
        return torch.where(self.new.view(-1, *[1] * (old.dim() - 1)), fresh, old)
