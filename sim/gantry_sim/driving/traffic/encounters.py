"""Leader search and right of way at junctions, for all road users of all environments at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_sim.driving.maps.bank import NO_STOP_M
from gantry_sim.driving.traffic.paths import STRIDE, TrafficMaps
from gantry_sim.process.device_work import entries

_ASIDE_M = 0.3
_WALKER_ASIDE_M = 1.5


@dataclass(frozen=True)
class Users:
    """E road users in each of N environments, all tensors ``(N, E)``."""

    row: Tensor
    """Path, int64."""
    s_m: Tensor
    """Arc length of the middle of the box on it."""
    aim_m: Tensor
    """Offset from the path that is wanted, left positive; a lane change claims all between here and there."""
    x: Tensor
    """Middle of the box in the world."""
    y: Tensor
    """Likewise."""
    cos: Tensor
    """Of the heading in the world."""
    sin: Tensor
    """Of the heading in the world."""
    speed_m_s: Tensor
    """Along the heading."""
    half_length_m: Tensor
    """Of the box."""
    half_width_m: Tensor
    """Of the box."""
    taken: Tensor
    """Bool, whether it exists."""
    walks: Tensor
    """Bool, a pedestrian on the move."""
    drives: Tensor
    """Bool, a vehicle that drives or will."""
    lateral_m: Tensor
    """Offset from the path."""


@dataclass(frozen=True)
class Relations:
    """Relative places of all road users on each one's path: the user that looks is axis 1, the one seen is axis 2."""

    ahead_m: Tensor
    """``(N, A, E)`` arc length from the middle of one to the middle of the other."""
    gap_m: Tensor
    """``(N, A, E)`` bumper to bumper."""
    across_m: Tensor
    """``(N, A, E)`` offset of the other from the path."""
    reach_m: Tensor
    """``(N, A, E)`` half widths of both across the path, and what is kept between."""
    along_m_s: Tensor
    """``(N, A, E)`` speed of the other along the path."""
    seen: Tensor
    """``(N, A, E)`` bool, near the path at all, and not oneself."""


def relations(maps: TrafficMaps, users: Users, others: Users) -> Relations:
    """Project others ``(N, E)`` onto the paths of users ``(N, A)``, by table and the rest exactly."""
    lines, own = maps.lines, users.row % maps.per_map
    longest, step = lines.table.shape[1], lines.step_m[users.row]
    columns = maps.near.shape[2]
    spot = ((others.s_m / lines.step_m[others.row] + 0.5 * STRIDE) / STRIDE).long().clamp(0, columns - 1)
    # 32-bit indices halve what these largest tensors of a step move.
    flat = (others.row * (maps.per_map * columns) + spot).int()[:, None, :] + (own * columns).int()[:, :, None]
    foot = maps.near.view(-1).index_select(0, flat.view(-1)).view(flat.shape).int()
    valid = foot >= 0
    at = (foot.clamp(min=0) + (users.row * longest).int()[:, :, None]).view(-1)
    px, py, cos, sin = maps.frames.index_select(0, at).view(*foot.shape, 4).unbind(-1)
    dx, dy = others.x[:, None] - px, others.y[:, None] - py
    cos_other, sin_other = others.cos[:, None], others.sin[:, None]
    turn_cos = cos_other * cos + sin_other * sin
    turn_sin = (sin_other * cos - cos_other * sin).abs()
    share = turn_cos.abs()
    half_length, half_width = others.half_length_m[:, None], others.half_width_m[:, None]
    ahead = foot * step[:, :, None] + cos * dx + sin * dy - users.s_m[:, :, None]
    room = _ASIDE_M + _WALKER_ASIDE_M * others.walks.to(dx.dtype)
    seen = valid & others.taken[:, None]
    if others is users:
        seen &= ~torch.eye(users.row.shape[1], dtype=torch.bool, device=dx.device)
    return Relations(
        ahead_m=ahead,
        gap_m=ahead - share * half_length - turn_sin * half_width - users.half_length_m[:, :, None],
        across_m=cos * dy - sin * dx,
        reach_m=turn_sin * half_length + share * half_width + users.half_width_m[:, :, None] + room[:, None],
        along_m_s=others.speed_m_s[:, None] * turn_cos,
        seen=seen,
    )


def beside_m(users: Users, found: Relations) -> Tensor:
    """``(N, A, E)`` how far others are from the strip that users drive on or change to, 0 or less within it."""
    low, high = torch.minimum(users.lateral_m, users.aim_m), torch.maximum(users.lateral_m, users.aim_m)
    return torch.maximum(found.across_m - high[:, :, None], low[:, :, None] - found.across_m)


def leaders(users: Users, found: Relations, blind: Tensor) -> tuple[Tensor, Tensor]:
    """Gap to the next user ahead on one's own path, and its speed along it, each ``(N, E)``; inf and 0 if there is
    none.

    Args:
        users: All road users, the car last.
        found: From ``relations``.
        blind: ``(N, E)`` bool, users that do not see the car.
    """
    mask = found.seen & (found.ahead_m > 0.0) & (beside_m(users, found) < found.reach_m)
    mask[:, :, -1] &= ~blind
    gap, which = found.gap_m.masked_fill(~mask, torch.inf).min(-1)
    speed = found.along_m_s.gather(-1, which[..., None])[..., 0]
    return gap, torch.where(torch.isfinite(gap), speed, 0.0)


@dataclass(frozen=True)
class StopLines:
    """The next stop line of everybody, all tensors ``(N, E)``."""

    distance_m: Tensor
    """From the nose to it, ``NO_STOP_M`` if there is none."""
    place: Tensor
    """Index on its path, int64."""
    light: Tensor
    """0 green or none, 0.5 yellow, 1 red."""


def stop_lines(maps: TrafficMaps, users: Users, lights: Tensor) -> StopLines:
    """Find the next stop lines and what they show.

    Args:
        maps: Paths.
        users: Everybody.
        lights: ``(N, J, G)`` from ``Lights.state``.
    """
    stops = maps.lines.stops
    nose = users.s_m + users.half_length_m
    gap = stops[..., 0][users.row] - nose[..., None]
    distance, place = gap.masked_fill(gap < 0.0, torch.inf).min(-1)
    there = torch.isfinite(distance)
    found = stops.view(-1, 4)[users.row * stops.shape[1] + place]
    junction, group = found[..., 1].long(), found[..., 2].long()
    groups = lights.shape[2]
    number = (junction * groups + group).clamp(min=0)
    shown = lights.flatten(1).gather(1, number)
    shown = torch.where(there & (group >= 0), shown, 0.0)
    return StopLines(distance.clamp(max=NO_STOP_M), place, shown)


def must_give_way(
    maps: TrafficMaps, users: Users, stops: StopLines, gap_s: Tensor, blind: Tensor, reach_m: float = 25.0
) -> tuple[Tensor, Tensor]:
    """Whether a user with priority comes, and whether one is in the way inside the junction, each ``(N, E)``.

    A user that stands at a red light does not come. Of two that may both go, the one with the smaller number does.

    Args:
        maps: Paths.
        users: All road users, the car last.
        stops: From ``stop_lines``.
        gap_s: ``(N, E)`` time gap that is wanted.
        blind: ``(N, E)`` bool, users that do not see the car.
        reach_m: A user farther from the stop line does not look yet.
    """
    come, block = torch.zeros_like(users.taken), torch.zeros_like(users.taken)
    looks = users.taken & users.drives & (stops.distance_m < reach_m)
    env, one = entries(looks)
    if not len(env):
        return come, block
    places, own = maps.yields.shape[1], (users.row % maps.per_map)[env]
    flat = ((users.row * places + stops.place) * maps.per_map)[env, one][:, None] + own
    begin, end, first = maps.yields.view(-1, 3).index_select(0, flat.view(-1)).view(*flat.shape, 3).unbind(-1)
    held = (stops.light > 0.75) | ((stops.light > 0.25) & (users.speed_m_s < 3.0))
    drives = users.taken & users.drives
    nose, tail = (users.s_m + users.half_length_m)[env], (users.s_m - users.half_length_m)[env]
    sees = torch.ones_like(begin, dtype=torch.bool)
    sees[:, -1] = ~blind[env, one]
    inside = (nose > begin + 0.3) & (tail < end) & drives[env] & sees
    way, speed = (begin - nose).clamp(min=0.0), users.speed_m_s[env].clamp(min=0.0)
    # The user that comes may speed up by 1.5 m/s^2 from now on.
    arrival = ((speed * speed + 3.0 * way).sqrt() - speed) / 1.5
    near = (nose <= begin + 0.3) & (drives & ~held)[env] & torch.isfinite(begin) & sees
    number = torch.arange(users.row.shape[1], device=users.row.device)
    tie = (arrival < 1.5) & (number < one[:, None]) & (stops.distance_m[env, one] < 3.0)[:, None]
    near &= torch.where(first > 0.5, arrival < gap_s[env, one][:, None], tie & (first > -0.5))
    asked = looks[env, one]
    come[env, one], block[env, one] = near.any(1) & asked, inside.any(1) & asked
    return come, block
