"""Oriented boxes in the plane, in batches: overlap, clearance, and contact with walls.

A box is centre x, y, yaw, length, width in m and rad, all in one frame.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_sim.process.device_work import entries


def corners(boxes: Tensor) -> Tensor:
    """Corners (..., 4, 2) of boxes (..., 5): front left, rear left, rear right, front right."""
    cos, sin = torch.cos(boxes[..., 2]), torch.sin(boxes[..., 2])
    along = torch.stack([cos, sin], dim=-1) * (0.5 * boxes[..., 3:4])
    across = torch.stack([-sin, cos], dim=-1) * (0.5 * boxes[..., 4:5])
    centre = boxes[..., :2]
    return torch.stack(
        [centre + along + across, centre - along + across, centre - along - across, centre + along - across], dim=-2
    )


def _between(one: Tensor, many: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gaps between boxes along the axes of each, and the shared terms.

    Along an axis the gap is the distance of the centres less both half extents; two rectangles are disjoint exactly if
    one of the four gaps is positive (separating axis theorem).

    Returns:
        Gaps (N, K, 4): along one's length and width, along the other's length and width; cosine and sine of the turn
        from one to the other (N, K).
    """
    delta = many[..., :2] - one[:, None, :2]
    turn = many[..., 2] - one[:, None, 2]
    cos, sin = torch.cos(turn), torch.sin(turn)
    half_one, half_many = 0.5 * one[:, None, 3:5], 0.5 * many[..., 3:5]
    share_cos, share_sin = cos.abs(), sin.abs()
    yaws = (one[:, 2:3].expand_as(turn), many[..., 2])
    gaps: list[Tensor] = []
    for yaw, own, other in ((yaws[0], half_one, half_many), (yaws[1], half_many, half_one)):
        c, s = torch.cos(yaw), torch.sin(yaw)
        forward = (c * delta[..., 0] + s * delta[..., 1]).abs()
        sideways = (c * delta[..., 1] - s * delta[..., 0]).abs()
        gaps.append(forward - own[..., 0] - other[..., 0] * share_cos - other[..., 1] * share_sin)
        gaps.append(sideways - own[..., 1] - other[..., 0] * share_sin - other[..., 1] * share_cos)
    return torch.stack(gaps, dim=-1), cos, sin


def overlap(one: Tensor, many: Tensor, taken: Tensor | None = None) -> Tensor:
    """Whether each of N boxes overlaps each of its K others.

    Args:
        one: Shape (N, 5).
        many: Shape (N, K, 5).
        taken: Shape (N, K), bool, which of them exist; None for all.

    Returns:
        Shape (N, K), bool. Touching counts as overlap.
    """
    hit = _between(one, many)[0].amax(-1) <= 0.0
    return hit if taken is None else hit & taken


def meets(one: Tensor, many: Tensor, velocity_m_s: Tensor, horizon_s: float, taken: Tensor) -> tuple[Tensor, Tensor]:
    """Whether each of N boxes overlaps its K others now, and whether it would within a time if all went straight on.

    Boxes that turn no more part along four axes whose gaps change linearly, so that each axis leaves an interval of
    time; they meet if the intervals have a time in common (exact, where CaRL looks at a few moments).

    Args:
        one: Shape (N, 5).
        many: Shape (N, K, 5).
        velocity_m_s: Shape (N, K, 2), of the others seen from each box, along the world's axes.
        horizon_s: How far to look ahead.
        taken: Shape (N, K), bool, which of them exist.

    Returns:
        Now and soon, each (N, K) bool; a box that overlaps now does so soon.
    """
    way = torch.linalg.vector_norm(velocity_m_s, dim=-1) * horizon_s
    apart = torch.linalg.vector_norm(many[..., :2] - one[:, None, :2], dim=-1)
    around = 0.5 * (
        torch.linalg.vector_norm(one[:, None, 3:5], dim=-1) + torch.linalg.vector_norm(many[..., 3:5], dim=-1)
    )
    close = taken & (apart <= around + way)
    env, other = entries(close)
    first, second, velocity = one[env], many[env, other], velocity_m_s[env, other]
    delta = second[:, :2] - first[:, :2]
    turn = second[:, 2] - first[:, 2]
    share_cos, share_sin = torch.cos(turn).abs(), torch.sin(turn).abs()
    enter, leave = torch.zeros_like(turn), torch.full_like(turn, horizon_s)
    for yaw, own, theirs in ((first[:, 2], first, second), (second[:, 2], second, first)):
        half, half2 = 0.5 * own[:, 3:5], 0.5 * theirs[:, 3:5]
        c, s = torch.cos(yaw), torch.sin(yaw)
        reach = half[:, 0] + half2[:, 0] * share_cos + half2[:, 1] * share_sin
        begin, end = slab(c * delta[:, 0] + s * delta[:, 1], c * velocity[:, 0] + s * velocity[:, 1], reach)
        enter, leave = torch.maximum(enter, begin), torch.minimum(leave, end)
        reach = half[:, 1] + half2[:, 0] * share_sin + half2[:, 1] * share_cos
        begin, end = slab(c * delta[:, 1] - s * delta[:, 0], c * velocity[:, 1] - s * velocity[:, 0], reach)
        enter, leave = torch.maximum(enter, begin), torch.minimum(leave, end)
    now, soon = torch.zeros_like(taken), torch.zeros_like(taken)
    both = (enter <= leave) & close[env, other]
    soon[env, other] = both
    now[env, other] = both & (enter <= 0.0)
    return now, soon


def clearance(one: Tensor, many: Tensor, taken: Tensor | None = None) -> Tensor:
    """Distance between each of N boxes and its K others; how deep they overlap, negative, where they do.

    Disjoint rectangles are nearest at a corner of one of them; overlapping ones part along the axis of the smallest
    overlap.

    Args:
        one: Shape (N, 5).
        many: Shape (N, K, 5).
        taken: Shape (N, K), bool, which of them exist; None for all.

    Returns:
        Shape (N, K), m; inf for those that do not exist.
    """
    deepest = _between(one, many)[0].amax(-1)
    first = one[:, None].expand_as(many)
    distance = torch.minimum(_corner_distance(first, many), _corner_distance(many, first))
    found = torch.where(deepest > 0.0, distance, deepest)
    return found if taken is None else found.masked_fill(~taken, torch.inf)


def _corner_distance(boxes: Tensor, others: Tensor) -> Tensor:
    """Distance (...) from the nearest corner of ``others`` to ``boxes``, 0 inside."""
    delta = corners(others) - boxes[..., None, :2]
    cos, sin = torch.cos(boxes[..., 2, None]), torch.sin(boxes[..., 2, None])
    along = (cos * delta[..., 0] + sin * delta[..., 1]).abs() - 0.5 * boxes[..., 3, None]
    across = (cos * delta[..., 1] - sin * delta[..., 0]).abs() - 0.5 * boxes[..., 4, None]
    return torch.hypot(along.clamp(min=0.0), across.clamp(min=0.0)).amin(-1)


def hits_segments(boxes: Tensor, segments: Tensor, exists: Tensor | None = None) -> Tensor:
    """Whether each of N boxes touches each of its S wall segments.

    A segment is clipped by the slabs of the box's length and width (Liang and Barsky 1984); what is left is inside.

    Args:
        boxes: Shape (N, 5).
        segments: Shape (N, S, 4): x, y of both ends.
        exists: Shape (N, S), bool; None for all.

    Returns:
        Shape (N, S), bool.
    """
    cos, sin = torch.cos(boxes[:, 2, None]), torch.sin(boxes[:, 2, None])
    ends: list[tuple[Tensor, Tensor]] = []
    for at in (0, 2):
        dx, dy = segments[..., at] - boxes[:, None, 0], segments[..., at + 1] - boxes[:, None, 1]
        ends.append((cos * dx + sin * dy, cos * dy - sin * dx))
    enter, leave = slab(ends[0][0], ends[1][0] - ends[0][0], 0.5 * boxes[:, None, 3])
    enter2, leave2 = slab(ends[0][1], ends[1][1] - ends[0][1], 0.5 * boxes[:, None, 4])
    hit = torch.maximum(enter, enter2).clamp(min=0.0) <= torch.minimum(leave, leave2).clamp(max=1.0)
    return hit if exists is None else hit & exists


def slab(start: Tensor, way: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
    """Times at which start + t * way enters and leaves [-half, half]; a way that never does enters at inf and leaves at
    -inf.
    """
    flat = way.abs() < 1e-9
    slope = torch.where(flat, torch.ones_like(way), way)
    one, two = (-half - start) / slope, (half - start) / slope
    inside = start.abs() <= half
    enter = torch.where(flat, torch.where(inside, -torch.inf, torch.inf), torch.minimum(one, two))
    leave = torch.where(flat, torch.where(inside, torch.inf, -torch.inf), torch.maximum(one, two))
    return enter, leave
