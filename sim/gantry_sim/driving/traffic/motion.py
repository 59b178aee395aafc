"""Decisions and motion of other road users in a step: everything works on the table of slots, in place."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_sim.driving.traffic.encounters import Relations, StopLines, Users
from gantry_sim.driving.traffic.idm import idm_accel
from gantry_sim.driving.traffic.slots import (
    ACCEL,
    AIM,
    BEGIN,
    BEHAVIOUR,
    BRAKE,
    FACTOR,
    HEADING,
    HEADWAY,
    HOLD,
    LATERAL,
    PHANTOM,
    SPAN,
    SPEED,
    TAKEN,
    TIMER,
    TOLD,
    TRIGGER,
    TURN,
    WAIT,
    WALK,
    S,
)
from gantry_sim.driving.traffic.traffic_cfg import BROKEN, CUT_IN, LEAD, STOPPED, WALKER, TrafficCfg
from gantry_sim.process.device_work import entries, worth_doing

YELLOW_BRAKE_M_S2 = 3.0
"""Deceleration beyond which a user goes on at yellow."""
RED_BRAKE_M_S2 = 6.0
"""Deceleration beyond which a user goes on at red; only those do that went on at yellow and were held up."""
_LINE_M = 1.0
_SAFE_BRAKE_M_S2 = 4.0


def advance(state: Tensor, points: Tensor, dt_s: float) -> None:
    """Move slots ``(F, N, K)`` on by what they decided; ``points`` are those of their paths at present."""
    kind = state[BEHAVIOUR]
    drives = kind < BROKEN
    speed = state[SPEED]
    after = torch.where(drives, (speed + dt_s * state[TOLD]).clamp(min=0.0), speed)
    way = torch.where(drives, 0.5 * dt_s * (speed + after), 0.0)
    bend = (1.0 - points[..., 3] * state[LATERAL]).clamp(min=0.3)
    state[S] += way * torch.cos(state[HEADING]) / bend
    state[SPEED] = after
    changing = state[SPAN] > 0.0
    if worth_doing(changing):
        _change_lanes(state, changing, way)
    walking = (kind == WALKER) & (speed > 0.0)
    if worth_doing(walking):
        left = state[AIM] - state[LATERAL]
        arrived = walking & (left.abs() <= dt_s * speed)
        state[LATERAL] = torch.where(walking, state[LATERAL] + torch.sign(left) * dt_s * speed, state[LATERAL])
        state[BEGIN] = torch.where(arrived, state[AIM], state[BEGIN])
        state[SPEED] = torch.where(arrived, 0.0, state[SPEED])


def _change_lanes(state: Tensor, changing: Tensor, way: Tensor) -> None:
    """Lateral profile 10 t^3 - 15 t^4 + 6 t^5 over the distance driven: heading and curvature have no jumps."""
    span = state[SPAN].clamp(min=1.0)
    turn = torch.where(changing, (state[TURN] + way / span).clamp(max=1.0), state[TURN])
    offset = state[AIM] - state[BEGIN]
    share = turn**3 * (10.0 - 15.0 * turn + 6.0 * turn * turn)
    slope = 30.0 * (turn * (1.0 - turn)) ** 2 * offset / span
    state[TURN] = turn
    state[LATERAL] = torch.where(changing, state[BEGIN] + offset * share, state[LATERAL])
    state[HEADING] = torch.where(changing, torch.atan(slope), state[HEADING])
    done = changing & (turn >= 1.0)
    state[BEGIN] = torch.where(done, state[AIM], state[BEGIN])
    state[SPAN] = torch.where(done, 0.0, state[SPAN])
    state[BEHAVIOUR] = torch.where(done, float(LEAD), state[BEHAVIOUR])


def hold_at_lights(hold: Tensor, light: Tensor, needed_m_s2: Tensor) -> Tensor:
    """Mask of users that stop for a light: decided once when it turns yellow, and again for red by those that went
    on.
    """
    yellow, red = light > 0.25, light > 0.75
    limit = torch.where(red, RED_BRAKE_M_S2, YELLOW_BRAKE_M_S2)
    return yellow & ((hold > 0.5) | (needed_m_s2 < limit))


def decide(
    cfg: TrafficCfg,
    state: Tensor,
    points: Tensor,
    leader: tuple[Tensor, Tensor],
    stops: StopLines,
    way: tuple[Tensor, Tensor],
    car_m: Tensor,
    dt_s: float,
    uniform: Tensor,
) -> None:
    """Write the accelerations of slots ``(F, N, K)`` and what they remember.

    Args:
        cfg: Settings of their behaviour.
        state: Slots.
        points: Of their paths, ``(N, K, 8)``.
        leader: Gap to and speed of the user ahead, ``(N, K)`` each.
        stops: Next stop lines; columns after the K-th are left alone.
        way: Whether a user comes, and whether one is in the way, ``(N, K)`` each.
        car_m: ``(N, K)`` distance from the car.
        dt_s: Time of a step.
        uniform: ``(N, K)`` draws for braking for nothing.
    """
    count = state.shape[2]
    speed, kind, line = state[SPEED], state[BEHAVIOUR], stops.distance_m[:, :count]
    needed = speed * speed / (2.0 * line.clamp(min=0.1))
    held = hold_at_lights(state[HOLD], stops.light[:, :count], needed)
    state[HOLD] = held.to(state.dtype)
    patient = state[WAIT] < cfg.patience_s
    give = (way[0] & patient) | (way[1] & (state[WAIT] < 2.0 * cfg.patience_s))
    give &= (line < 25.0) & (needed < _SAFE_BRAKE_M_S2)
    waits = (speed < 0.3) & (((line < 6.0) & ~held) | (points[..., 7] > 0.5))
    calm = torch.where((line > 10.0) & (speed > 0.3), 0.0, state[WAIT])
    state[WAIT] = torch.where(waits, state[WAIT] + dt_s, calm)
    wanted = points[..., 4] * state[FACTOR]
    numbers = {"accel_m_s2": state[ACCEL], "brake_m_s2": state[BRAKE], "headway_s": state[HEADWAY]}
    told = idm_accel(speed, wanted, leader[0], leader[1], standstill_m=cfg.standstill_m, **numbers)
    room = torch.where(held | give, line + cfg.standstill_m - _LINE_M, torch.inf)
    told = torch.minimum(told, idm_accel(speed, wanted, room, torch.zeros_like(speed), **numbers))
    timer = state[TIMER]
    dwells = (kind == STOPPED) & (timer > 0.0)
    state[TIMER] = torch.where(dwells & (car_m > 40.0), timer, (timer - dt_s).clamp(min=0.0))
    braking = (kind < STOPPED) & (timer > 0.0)
    startled = (state[PHANTOM] > 0.5) & (uniform < cfg.phantom_rate_hz * dt_s) & (speed > 3.0) & (kind < STOPPED)
    state[TIMER] = torch.where(startled & (timer <= 0.0), cfg.phantom_s, state[TIMER])
    told = torch.where(dwells, -cfg.hard_brake_m_s2, torch.where(braking, told.clamp(max=-3.5), told))
    state[TOLD] = told.clamp(min=-cfg.hard_brake_m_s2)


def start_cut_ins(cfg: TrafficCfg, state: Tensor, users: Users, found: Relations, line_m: Tensor) -> None:
    """Let those beside the car's lane change to it: when the car is close behind, if no user has to brake hard for it.

    As in MOBIL (Kesting, Treiber and Helbing 2007) a change must leave the new follower, and oneself behind the new
    leader, a safe braking. The incentive is the wish to be ahead of the car, or the junction ahead.
    """
    pending = (state[BEHAVIOUR] == CUT_IN) & (state[TAKEN] > 0.5) & (state[SPAN] <= 0.0) & (state[SPEED] > 1.0)
    env, slot = entries(pending)
    if not len(env):
        return
    ahead, gap, across = (part[env, slot] for part in (found.ahead_m, found.gap_m, found.across_m))
    along, seen, reach = (part[env, slot] for part in (found.along_m_s, found.seen, found.reach_m))
    own, speeds = state[SPEED][env, slot], users.speed_m_s[env]
    inside = seen & (across.abs() < reach)
    front, who = gap.masked_fill(~(inside & (ahead > 0.0)), torch.inf).min(1)
    leader = along.gather(1, who[:, None])[:, 0]
    mine = idm_accel(own, own.clamp(min=1.0), front, leader, headway_s=0.8)
    length = users.half_length_m[env, slot][:, None] + users.half_length_m[env]
    back = (-ahead - length).masked_fill(~(inside & (ahead <= 0.0)), torch.inf)
    theirs = idm_accel(speeds, speeds.clamp(min=1.0), back, own[:, None].expand_as(speeds), headway_s=0.8).amin(1)
    car = back[:, -1]
    trigger = state[TRIGGER][env, slot] + 0.1 * speeds[:, -1]
    wish = (car < trigger) | (line_m[env, slot] < 60.0)
    go = wish & (mine > -_SAFE_BRAKE_M_S2) & (theirs > -_SAFE_BRAKE_M_S2) & (back.amin(1) > 2.0) & (front > 2.0)
    go &= pending[env, slot]
    begun = ((BEGIN, state[LATERAL, env, slot]), (AIM, 0.0), (TURN, 0.0), (SPAN, (3.0 * own).clamp(min=15.0)))
    for field, value in begun:
        state[field, env, slot] = torch.where(go, value, state[field, env, slot])


def walk(state: Tensor, users: Users, found: Relations) -> None:
    """Let pedestrians set out, stand before vehicles that are in their way, and go on.

    They set out when the car is near but can still stop, and no other vehicle is about to pass.
    """
    under_way = (state[BEHAVIOUR] == WALKER) & (state[TAKEN] > 0.5) & (state[BEGIN] != state[AIM])
    env, slot = entries(under_way)
    if not len(env):
        return
    ahead, along, seen, across, reach = (
        part[env, slot] for part in (found.ahead_m, found.along_m_s, found.seen, found.across_m, found.reach_m)
    )
    seen = seen & users.drives[env]
    distance = -ahead[:, -1] - users.half_length_m[env, -1]
    speed = along[:, -1].clamp(min=0.1)
    fair = (distance / speed < state[TRIGGER][env, slot]) & (distance > speed * (0.7 + speed / 7.0) + 4.0)
    toward = (along * ahead) < 0.0
    soon = seen & ((ahead.abs() < 5.0) | (toward & (ahead.abs() < 4.0 + 3.0 * along.abs())))
    soon[:, -1] = False
    starts = fair & seen[:, -1] & ~soon.any(1)
    way = torch.sign(state[WALK][env, slot])[:, None] * (across - state[LATERAL][env, slot][:, None])
    blocks = seen & (ahead.abs() < users.half_length_m[env] + 0.8) & (way > 0.0) & (way < reach + 0.6)
    begun = state[LATERAL][env, slot] != state[BEGIN][env, slot]
    goes = torch.where(begun, ~blocks.any(1), starts)
    speed = torch.where(goes, state[WALK][env, slot].abs(), 0.0)
    state[SPEED, env, slot] = torch.where(under_way[env, slot], speed, state[SPEED, env, slot])
