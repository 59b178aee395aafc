"""Which forces feet must push with to give the base a wrench."""

from __future__ import annotations

import torch
from torch import Tensor

WEIGHTS = (1.0, 1.0, 2.0, 20.0, 10.0, 5.0)
"""What a newton of the force and a newton metre of the torque, x, y and z each, count where not all can be given."""
REGULAR = 0.01
"""What the forces themselves count."""
STRONGEST_N = 220.0
"""Most that a foot pushes with along z."""


def skew(vector: Tensor) -> Tensor:
    """Matrices (..., 3, 3) of the cross product with vectors (..., 3)."""
    x, y, z = vector.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), -1).unflatten(-1, (3, 3))


def foot_forces(force_n: Tensor, torque_nm: Tensor, arms_m: Tensor, on: Tensor, friction: float) -> Tensor:
    """Forces of the ground on each foot, (N, f, 3), N, in the world.

    Regularised least squares, after which each foot is limited by itself: it pushes and does not pull, and slides not.

    Args:
        force_n: (N, 3) wanted on the base.
        torque_nm: (N, 3) wanted about its centre of mass.
        arms_m: (N, f, 3) from there to the feet.
        on: (N, f) bool, which feet are on the ground; the others carry nothing.
        friction: Greatest horizontal force, as a share of the vertical one.
    """
    count, feet = on.shape
    carries = on.to(force_n.dtype)
    weights = torch.tensor(WEIGHTS, dtype=force_n.dtype, device=force_n.device)
    unit = torch.eye(3, dtype=force_n.dtype, device=force_n.device).expand(count, feet, 3, 3)
    gives = torch.cat((unit, skew(arms_m)), 2) * carries[..., None, None] * weights[:, None]
    gives = gives.transpose(1, 2).reshape(count, 6, 3 * feet)
    wanted = torch.cat((force_n, torque_nm), -1) * weights
    normal = gives @ gives.transpose(1, 2) + REGULAR * torch.eye(6, dtype=force_n.dtype, device=force_n.device)
    forces = (gives.transpose(1, 2) @ torch.linalg.solve(normal, wanted[..., None])).view(count, feet, 3)
    up = forces[..., 2].clamp(0.0, STRONGEST_N) * carries
    flat = forces[..., :2]
    limit = friction * up / flat.norm(dim=-1).clamp(min=1e-6)
    return torch.cat((flat * limit.clamp(max=1.0)[..., None], up[..., None]), -1)
