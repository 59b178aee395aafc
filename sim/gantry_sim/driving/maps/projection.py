"""Positions of cars along their lines: arc length, lateral offset, heading error, and the stretch of line around
them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_sim.driving.maps.bank import LineBank
from gantry_sim.driving.maps.graph import (
    CURVATURE,
    IN_JUNCTION,
    LEFT,
    LIMIT,
    RIGHT,
    ROAD_LEFT,
    ROAD_RIGHT,
    YAW,
)


@dataclass(frozen=True)
class Projection:
    """Feet of N points on their lines; every field has shape (N,)."""

    index: Tensor
    """Segment that the foot lies on, from point ``index`` to the next; pass it to the next call as ``last``."""

    s_m: Tensor
    """Arc length. Before the beginning of an open line it is negative, behind its end larger than its length."""

    lateral_m: Tensor
    """Offset from the line, left positive."""

    yaw_rad: Tensor
    """Heading of the line in the world, not wrapped."""

    curvature: Tensor
    """Curvature of the line, 1/m."""

    left_m: Tensor
    """From the line to the lane's left edge."""

    right_m: Tensor
    """From the line to the lane's right edge."""

    road_left_m: Tensor
    """From the line to the pavement's left edge."""

    road_right_m: Tensor
    """From the line to the pavement's right edge."""

    speed_limit_m_s: Tensor
    """Speed limit."""

    in_junction: Tensor
    """Bool, whether inside a junction."""

    def heading_error(self, yaw_rad: Tensor) -> Tensor:
        """Angle by which a heading (N,) in the world is turned left of the line's, in [-pi, pi), rad."""
        return wrapped(yaw_rad - self.yaw_rad)


@dataclass(frozen=True)
class Window:
    """Stretches of P points of N lines around cars."""

    points: Tensor
    """Shape (N, P, 2), world, m."""

    yaw_rad: Tensor
    """Shape (N, P), not wrapped."""

    curvature: Tensor
    """Shape (N, P), 1/m."""

    speed_limit_m_s: Tensor
    """Shape (N, P)."""

    left_m: Tensor
    """Shape (N, P), from the line to the lane's left edge."""

    right_m: Tensor
    """Shape (N, P), from the line to the lane's right edge."""

    in_junction: Tensor
    """Shape (N, P), bool."""


def wrapped(angle_rad: Tensor) -> Tensor:
    """The same angle in [-pi, pi)."""
    return torch.remainder(angle_rad + math.pi, 2 * math.pi) - math.pi


def _on_line(bank: LineBank, line: Tensor, index: Tensor, highest: Tensor) -> Tensor:
    """Indices (N, ...) brought onto their lines: round and round on closed ones, held at the ends of open ones."""
    shape = (-1, *([1] * (index.dim() - 1)))
    around = (bank.count[line] - 1).view(shape)
    top = highest.view(shape)
    held = torch.minimum(index.clamp(min=0), top)
    return torch.where(bank.closed[line].view(shape), torch.remainder(index, around), held)


def project(
    bank: LineBank, line: Tensor, last: Tensor, position_m: Tensor, *, behind: int = 4, ahead: int = 12
) -> Projection:
    """Nearest point of each line within a few segments of where it was last.

    Args:
        bank: The lines.
        line: Shape (N,), which line.
        last: Shape (N,), segment of the last call (or of :func:`pose_at`).
        position_m: Shape (N, 2), world.
        behind: Segments before ``last`` to look at.
        ahead: Segments after it to look at.
    """
    index = _around(bank, line, last, behind, ahead)
    best = _squared_distance(bank, line, index, position_m[:, None]).argmin(-1)
    return _feet(bank, line, index.gather(1, best)[:, 0], position_m)


def _around(bank: LineBank, line: Tensor, last: Tensor, behind: int, ahead: int) -> Tensor:
    """Segments (N, behind + ahead + 1) around the last ones (N,)."""
    reach = torch.arange(-behind, ahead + 1, device=bank.device)
    return _on_line(bank, line, last[:, None] + reach, bank.count[line] - 2)


def _squared_distance(bank: LineBank, line: Tensor, index: Tensor, points_m: Tensor) -> Tensor:
    """Squared distances (N, C, W) of points (N, C, 2) to segments (N, W) of their lines."""
    x, y, way_x, way_y, inverse = bank.segments[line[:, None] * bank.table.shape[1] + index].unbind(-1)
    gap_x, gap_y = points_m[..., :1] - x[:, None], points_m[..., 1:] - y[:, None]
    way_x, way_y = way_x[:, None], way_y[:, None]
    t = ((gap_x * way_x + gap_y * way_y) * inverse[:, None]).clamp_(0.0, 1.0)
    return (gap_x - t * way_x).square_() + (gap_y - t * way_y).square_()


def _feet(bank: LineBank, line: Tensor, index: Tensor, position_m: Tensor) -> Projection:
    first, after = bank.table[line, index], bank.table[line, index + 1]
    along, gap = after[:, :2] - first[:, :2], position_m - first[:, :2]
    free = (gap * along).sum(-1) / (along * along).sum(-1).clamp(min=1e-12)
    t = free.clamp(0.0, 1.0)
    # An open line goes on straight at both ends, so that offset and arc length stay meaningful there.
    beyond = ((index == 0) & (free < 0.0)) | ((index == bank.count[line] - 2) & (free > 1.0))
    reach = torch.where(beyond & ~bank.closed[line], free, t)
    off = gap - reach[:, None] * along
    distance = torch.linalg.vector_norm(off, dim=-1)
    left = along[:, 0] * gap[:, 1] - along[:, 1] * gap[:, 0] >= 0.0
    mixed = torch.lerp(first, after, t[:, None])
    return Projection(
        index=index,
        s_m=(index + reach) * bank.step_m[line],
        lateral_m=torch.where(left, distance, -distance),
        yaw_rad=mixed[:, YAW],
        curvature=mixed[:, CURVATURE],
        left_m=mixed[:, LEFT],
        right_m=mixed[:, RIGHT],
        road_left_m=mixed[:, ROAD_LEFT],
        road_right_m=mixed[:, ROAD_RIGHT],
        speed_limit_m_s=first[:, LIMIT],
        in_junction=first[:, IN_JUNCTION] > 0.5,
    )


def progress(bank: LineBank, line: Tensor, before_m: Tensor, after_m: Tensor) -> Tensor:
    """Arc length gained (N,) from one to another; on closed lines the shorter way round."""
    gained, length = after_m - before_m, bank.length_m[line]
    around = torch.remainder(gained + 0.5 * length, length) - 0.5 * length
    return torch.where(bank.closed[line], around, gained)


def window(bank: LineBank, line: Tensor, index: Tensor, *, behind: int, count: int) -> Window:
    """The stretch of line around each car, from ``behind`` points before ``index``, ``count`` points in all.

    Before the beginning of an open line its first point is repeated, behind its end the last one.

    Args:
        bank: The lines.
        line: Shape (N,), which line.
        index: Shape (N,), segment of each car.
        behind: Points before it.
        count: Points in all (P).
    """
    reach = torch.arange(-behind, count - behind, device=bank.device)
    at = _on_line(bank, line, index[:, None] + reach, bank.count[line] - 1)
    rows = bank.table[line[:, None], at]
    return Window(
        points=rows[..., :2],
        yaw_rad=rows[..., YAW],
        curvature=rows[..., CURVATURE],
        speed_limit_m_s=rows[..., LIMIT],
        left_m=rows[..., LEFT],
        right_m=rows[..., RIGHT],
        in_junction=rows[..., IN_JUNCTION] > 0.5,
    )


def pose_at(bank: LineBank, line: Tensor, s_m: Tensor, lateral_m: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
    """Pose on a line at an arc length, moved sideways.

    Args:
        bank: The lines.
        line: Shape (N,), which line.
        s_m: Shape (N,), arc length; held at the ends of open lines.
        lateral_m: Shape (N,) or a number, to the left.

    Returns:
        World pose (N, 3): x, y, yaw (wrapped); and the segment (N,), to pass to ``project``.
    """
    length = bank.length_m[line]
    s = torch.where(bank.closed[line], torch.remainder(s_m, length), torch.minimum(s_m.clamp(min=0.0), length))
    place = s / bank.step_m[line]
    index = torch.minimum(place.long(), bank.count[line] - 2)
    mixed = torch.lerp(bank.table[line, index], bank.table[line, index + 1], (place - index)[:, None])
    yaw = mixed[:, YAW]
    x, y = mixed[:, 0] - lateral_m * torch.sin(yaw), mixed[:, 1] + lateral_m * torch.cos(yaw)
    return torch.stack([x, y, wrapped(yaw)], dim=-1), index


def corner_offsets(bank: LineBank, line: Tensor, index: Tensor, corners_m: Tensor) -> tuple[Tensor, Tensor]:
    """Distances of the corners of cars outside their lanes and off the pavement, positive outside.

    Corners may be up to 6 points behind ``index`` and 8 ahead of it.

    Args:
        bank: The lines.
        line: Shape (N,), which line.
        index: Shape (N,), segment of each car.
        corners_m: Shape (N, C, 2), world.

    Returns:
        Beyond the lane's edge (N, C), and beyond the pavement's (N, C), m.
    """
    corners = corners_m.shape[1]
    around = _around(bank, line, index, behind=6, ahead=8)
    best = around.gather(1, _squared_distance(bank, line, around, corners_m).argmin(-1))
    feet = _feet(bank, line.repeat_interleave(corners), best.flatten(), corners_m.reshape(-1, 2))
    lane = torch.maximum(feet.lateral_m - feet.left_m, -feet.lateral_m - feet.right_m)
    road = torch.maximum(feet.lateral_m - feet.road_left_m, -feet.lateral_m - feet.road_right_m)
    return lane.view(-1, corners), road.view(-1, corners)
