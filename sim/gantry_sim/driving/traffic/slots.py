"""The state of other road users: one table of numbers, and where they are in the world."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_deploy.observations.surroundings import PEDESTRIAN, STATIC, VEHICLE
from gantry_sim.driving.traffic.encounters import Users
from gantry_sim.driving.traffic.paths import TrafficMaps
from gantry_sim.driving.traffic.traffic_cfg import BROKEN, OBSTACLE, WALKER

FIELDS = (
    "row",
    "s",
    "lateral",
    "speed",
    "length",
    "width",
    "behaviour",
    "taken",
    "begin",
    "aim",
    "turn",
    "span",
    "timer",
    "wait",
    "hold",
    "factor",
    "headway",
    "accel",
    "brake",
    "gap",
    "blind",
    "phantom",
    "walk",
    "trigger",
    "heading",
    "told",
)
"""Columns of a slot: path, arc length of the middle, offset, speed along the heading, size, behaviour, 1 if taken;
offsets between which a lane change leads (``begin`` to ``aim``), the share of it that is done and its length; time left
(standing, braking for nothing, or until an empty slot is drawn again), time spent waiting, 1 once braking for a light;
the driver's numbers; a pedestrian's speed to the left, what sets off a crossing or a lane change, heading against the
path, and the acceleration decided on."""

(ROW, S, LATERAL, SPEED, LENGTH, WIDTH, BEHAVIOUR, TAKEN, BEGIN, AIM, TURN, SPAN, TIMER, WAIT, HOLD) = range(15)
(FACTOR, HEADWAY, ACCEL, BRAKE, GAP, BLIND, PHANTOM, WALK, TRIGGER, HEADING, TOLD) = range(15, 26)


def path_points(maps: TrafficMaps, row: Tensor, s_m: Tensor) -> Tensor:
    """Columns of ``PATH_COLUMNS`` at an arc length of paths, shape (..., 8), interpolated; held at the ends."""
    place = (s_m / maps.lines.step_m[row]).clamp(min=0.0)
    index = torch.minimum(place.long(), maps.lines.count[row] - 2)
    flat = (row * maps.lines.table.shape[1] + index).view(-1)
    share = (place - index).clamp(max=1.0).view(-1, 1)
    # Selecting rows is several times faster than indexing with a tensor of more dimensions.
    first, after = maps.points.index_select(0, flat), maps.points.index_select(0, flat + 1)
    return torch.lerp(first, after, share).view(*row.shape, 8)


def placed(points: Tensor, lateral_m: Tensor, heading_rad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """World x, y and heading beside points of paths; the heading is not wrapped."""
    yaw = points[..., 2]
    x = points[..., 0] - lateral_m * torch.sin(yaw)
    y = points[..., 1] + lateral_m * torch.cos(yaw)
    return x, y, yaw + heading_rad


def users_of(state: Tensor, x: Tensor, y: Tensor, yaw: Tensor) -> Users:
    """Slots ``(F, ...)`` as road users."""
    kind = state[BEHAVIOUR]
    walker = kind == WALKER
    return Users(
        row=state[ROW].long(),
        s_m=state[S],
        aim_m=state[AIM],
        x=x,
        y=y,
        cos=torch.cos(yaw),
        sin=torch.sin(yaw),
        speed_m_s=state[SPEED],
        half_length_m=0.5 * state[LENGTH],
        half_width_m=0.5 * state[WIDTH],
        taken=state[TAKEN] > 0.5,
        walks=walker & (state[SPEED] > 0.0),
        drives=kind < BROKEN,
        lateral_m=state[LATERAL],
    )


def kinds_of(state: Tensor) -> Tensor:
    """Kind of object of each slot: vehicle, pedestrian or static."""
    behaviour = state[BEHAVIOUR]
    rest = torch.where(behaviour == OBSTACLE, STATIC, VEHICLE)
    return torch.where(behaviour == WALKER, PEDESTRIAN, rest)
