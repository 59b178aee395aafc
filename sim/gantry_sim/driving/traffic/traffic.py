"""Other road users around N cars, each of which is alone with them on its map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_sim.driving.traffic import motion
from gantry_sim.driving.traffic.encounters import StopLines, Users, leaders, must_give_way, relations, stop_lines
from gantry_sim.driving.traffic.idm import safe_speed_m_s
from gantry_sim.driving.traffic.lights import Lights
from gantry_sim.driving.traffic.paths import TrafficMaps
from gantry_sim.driving.traffic.placing import Around, find_places
from gantry_sim.driving.traffic.slots import BEHAVIOUR as KIND
from gantry_sim.driving.traffic.slots import (
    BLIND,
    FIELDS,
    GAP,
    HEADING,
    LATERAL,
    LENGTH,
    ROW,
    SPEED,
    TAKEN,
    TIMER,
    WAIT,
    WIDTH,
    S,
    kinds_of,
    path_points,
    placed,
    users_of,
)
from gantry_sim.driving.traffic.traffic_cfg import BROKEN, TrafficCfg

PLACE_EVERY = 3
"""Steps between two draws of new road users; it is cheaper for many at once."""
_CAR_GAP_S = 4.0


@dataclass
class CarView:
    """Traffic as the controlled car meets it, all tensors ``(N,)``."""

    gap_m: Tensor
    """Bumper to bumper to the next user on the route, inf if there is none."""
    leader_m_s: Tensor
    """Its speed along the route."""
    stop_m: Tensor
    """From the nose to the next stop line, ``NO_STOP_M`` if there is none."""
    light: Tensor
    """State of the light: 0 green or no light, 0.5 yellow, 1 red."""
    give_way: Tensor
    """Bool, a user with priority comes or is in the way beyond it."""
    speed_m_s: Tensor
    """Speed that limit and bends of the route allow here."""


class Traffic:
    """K other road users around each of N cars.

    Call ``step`` once the cars have moved: the others move on by what they decided before, and decide anew from where
    everybody is now. After that and after ``reset``, ``objects``, ``kinds`` and ``car`` are up to date.

    Args:
        cfg: What traffic is like.
        maps: Paths, from ``traffic_maps``.
        num_envs: N.
        dt_s: Time of a step.
        seed: Of all that is drawn.
    """

    def __init__(self, cfg: TrafficCfg, maps: TrafficMaps, num_envs: int, dt_s: float = 0.1, seed: int = 0) -> None:
        self.cfg, self.maps, self.dt_s = cfg, maps, dt_s
        device = maps.device
        self.generator = torch.Generator(device=device).manual_seed(seed)
        """Of placements, drivers and what they do unasked."""
        self.lights = Lights(maps.plan, num_envs, cfg.lights, seed)
        """Traffic lights."""
        self.state = torch.zeros(len(FIELDS), num_envs, cfg.slots, device=device)
        """``(F, N, K)``, see ``slots.FIELDS``."""
        self._box = torch.zeros(num_envs, 5, device=device)
        self._own = torch.zeros(4, num_envs, device=device)  # Path, arc length, speed and time of the cars.
        self._count = 0
        self._episode = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self._points = torch.zeros(num_envs, cfg.slots, 8, device=device)
        self._pose = torch.zeros(3, num_envs, cfg.slots, device=device)
        self.car = CarView(*(torch.zeros(num_envs, device=device) for _ in fields(CarView)))
        """What is left to the cars."""
        self.car.give_way = self.car.give_way > 0.0

    @property
    def num_envs(self) -> int:
        """N."""
        return self.state.shape[1]

    @property
    def objects(self) -> Tensor:
        """``(N, K, 7)``: x, y, yaw in the world, speed along yaw, length, width, 1 if taken; 0 where not taken."""
        state, (x, y, yaw) = self.state, self._pose
        yaw = yaw - 2.0 * torch.pi * torch.round(yaw / (2.0 * torch.pi))
        every = torch.stack((x, y, yaw, state[SPEED], state[LENGTH], state[WIDTH], state[TAKEN]), dim=-1)
        return every * state[TAKEN][..., None]

    @property
    def kinds(self) -> Tensor:
        """``(N, K)`` int64: ``VEHICLE``, ``PEDESTRIAN`` or ``STATIC`` of ``observations.surroundings``."""
        return kinds_of(self.state)

    def reset(
        self, env_ids: Tensor, route_row: Tensor, route_s_m: Tensor, box: Tensor, speed_m_s: Tensor, time_s: Tensor
    ) -> None:
        """Begin new episodes: new lights, and traffic around the cars.

        Args:
            env_ids: ``(m,)`` which environments.
            route_row: ``(m,)`` row of ``maps.lines`` that each car drives along.
            route_s_m: ``(m,)`` arc length of the middle of the car's box on it.
            box: ``(m, 5)`` box of the car: middle, yaw, length and width in the world.
            speed_m_s: ``(m,)``.
            time_s: ``(m,)`` time of the episode.

        Raises:
            GantryError: A row is not a route.
        """
        place = route_row % self.maps.per_map
        if bool((place >= self.maps.routes).any()):
            raise GantryError(
                f"Rows {sorted(set(route_row[place >= self.maps.routes].tolist()))} are paths of others; the first "
                f"{self.maps.routes} of each {self.maps.per_map} rows are routes of cars."
            )
        self._episode[env_ids] += 1
        self.lights.reset(env_ids, route_row // self.maps.per_map, self._episode[env_ids])
        whole = self.maps.longer[route_row]
        self._own[0, env_ids] = whole.to(self._own.dtype)
        self._own[1, env_ids] = route_s_m + self.maps.shift_m[route_row]
        self._own[2, env_ids], self._own[3, env_ids] = speed_m_s, time_s
        self._box[env_ids] = box
        self.state[:, env_ids] = 0.0
        self.state[ROW, env_ids] = whole.to(self.state.dtype)[:, None]
        for slot in range(self.cfg.slots):
            self._place(env_ids, torch.full_like(env_ids, slot), hidden=False)
        self._decide(env_ids)

    def adopt(self, env_ids: Tensor, other: Traffic, rows: Tensor) -> None:
        """Begin new episodes as they were prepared elsewhere, with lights of one's own.

        Args:
            env_ids: ``(m,)`` which environments.
            other: Where they were, with the same maps and configuration.
            rows: ``(m,)`` which environments there.
        """
        for name in ("state", "_own", "_pose"):
            getattr(self, name)[:, env_ids] = getattr(other, name)[:, rows]
        self._box[env_ids], self._points[env_ids] = other._box[rows], other._points[rows]
        self._episode[env_ids] += 1
        self.lights.reset(env_ids, self._own[0, env_ids].long() // self.maps.per_map, self._episode[env_ids])
        self._decide(env_ids)

    def step(self, box: Tensor, speed_m_s: Tensor, time_s: Tensor) -> None:
        """Move traffic on by one step.

        Args:
            box: ``(N, 5)`` boxes of the cars in the world after the step.
            speed_m_s: ``(N,)`` speeds of the cars after it.
            time_s: ``(N,)`` time of the episodes after it.
        """
        self._box, self._own[2], self._own[3] = box.clone(), speed_m_s, time_s
        self._follow_cars()
        motion.advance(self.state, self._points, self.dt_s)
        self._locate()
        self._clear()
        self._count = (self._count + 1) % PLACE_EVERY
        if self._count == 0:
            idle = (self.state[TAKEN] < 0.5) & (self.state[TIMER] <= 0.0)
            env_ids = idle.any(1).nonzero()[:, 0]
            if len(env_ids):
                self._place(env_ids, idle[env_ids].to(torch.uint8).argmax(1), hidden=True)
        self._decide(None)

    def safe_speed(self, speed_limit_m_s: Tensor, brake_m_s2: float = 3.0, headway_s: float = 1.2) -> Tensor:
        """``(N,)`` speed that the user ahead on the route and the next stop line leave to the cars.

        The smallest of the limit, the speed that still stops behind the user ahead (2 m are left), and the speed that
        stops 1 m before a red line; a yellow one counts where the car can stop with ``brake_m_s2``.

        Args:
            speed_limit_m_s: ``(N,)``.
            brake_m_s2: Braking that is counted on.
            headway_s: Time that passes before.
        """
        car, speed = self.car, self._own[2]
        behind = safe_speed_m_s(car.gap_m - self.cfg.standstill_m, car.leader_m_s, brake_m_s2, headway_s)
        needed = speed * speed / (2.0 * car.stop_m.clamp(min=0.1))
        stops = (car.light > 0.75) | ((car.light > 0.25) & (needed < brake_m_s2))
        line = safe_speed_m_s(car.stop_m - 1.0, torch.zeros_like(speed), brake_m_s2, headway_s)
        return torch.minimum(torch.minimum(speed_limit_m_s, behind), torch.where(stops, line, torch.inf))

    def state_dict(self) -> dict[str, Any]:
        """For an exact continuation."""
        kept: dict[str, Any] = {name: value.clone() for name, value in self._tensors().items()}
        kept |= {f"car.{item.name}": getattr(self.car, item.name).clone() for item in fields(CarView)}
        return kept | {
            "count": self._count,
            "lights": self.lights.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on where it was, with the same configuration and maps.

        Raises:
            GantryError: Other numbers of environments or slots.
        """
        for name, value in self._tensors().items():
            if saved[name].shape != value.shape:
                raise GantryError(
                    f"Saved traffic: '{name}' has shape {tuple(saved[name].shape)}, expected {tuple(value.shape)}."
                )
            value.copy_(saved[name])
        for item in fields(CarView):
            setattr(self.car, item.name, saved[f"car.{item.name}"].to(self.state.device, copy=True))
        self._count = saved["count"]
        self.lights.load_state_dict(saved["lights"])
        self.generator.set_state(saved["generator"].cpu())

    def _tensors(self) -> dict[str, Tensor]:
        return {
            "state": self.state,
            "box": self._box,
            "own": self._own,
            "episode": self._episode,
            "points": self._points,
            "pose": self._pose,
        }

    def _follow_cars(self) -> None:
        """Arc length of the cars by two Newton steps from where they were."""
        row, lines = self._own[0].long(), self.maps.lines
        step, last = lines.step_m[row], lines.count[row] - 1
        for _ in range(2):
            index = torch.minimum((self._own[1] / step).round().long().clamp(min=0), last)
            x, y, cos, sin = self.maps.frames[row * lines.table.shape[1] + index].unbind(-1)
            self._own[1] = index * step + cos * (self._box[:, 0] - x) + sin * (self._box[:, 1] - y)

    def _locate(self) -> None:
        state = self.state
        self._points = path_points(self.maps, state[ROW].long(), state[S])
        self._pose = torch.stack(placed(self._points, state[LATERAL], state[HEADING]))

    def _clear(self) -> None:
        """Free the slots of users that left, reached the end of their path, are stuck, or stand far behind."""
        state, (x, y, _) = self.state, self._pose
        away = torch.hypot(x - self._box[:, :1], y - self._box[:, 1:2])
        ends = self.maps.lines.length_m[state[ROW].long()] - 0.5 * state[LENGTH] - 0.5
        stuck = (state[WAIT] > self.cfg.jam_s) & (self._points[..., 7] > 0.5)
        # Things and pedestrians stand on the car's own path.
        passed = (state[KIND] >= BROKEN) & (state[S] < self._own[1][:, None] - 40.0)
        leaves = (state[TAKEN] > 0.5) & ((away > self.cfg.horizon_m) | (state[S] > ends) | stuck | passed)
        state[TAKEN] = torch.where(leaves, 0.0, state[TAKEN])
        state[TIMER] = torch.where(state[TAKEN] < 0.5, (state[TIMER] - self.dt_s).clamp(min=0.0), state[TIMER])
        state[TIMER] = torch.where(leaves, 0.0, state[TIMER])
        state[SPEED] = torch.where(leaves, 0.0, state[SPEED])

    def _place(self, env_ids: Tensor, slot: Tensor, *, hidden: bool) -> None:
        """Draw one slot of each of some environments anew."""
        state = self.state[:, env_ids]
        others = self._everybody(state, self._pose[:, env_ids], env_ids)
        car = Around(others.row[:, -1], others.s_m[:, -1], others.speed_m_s[:, -1], others.x[:, -1], others.y[:, -1])
        found = find_places(self.cfg, self.maps, car, others, self.generator, hidden=hidden)
        self.state[:, env_ids, slot] = found
        points = path_points(self.maps, found[ROW].long(), found[S])
        self._points[env_ids, slot] = points
        self._pose[:, env_ids, slot] = torch.stack(placed(points, found[LATERAL], found[HEADING]))

    def _everybody(self, state: Tensor, pose: Tensor, rows: Tensor | slice) -> Users:
        """Slots and, last, the car."""
        slots = users_of(state, pose[0], pose[1], pose[2])
        box, own = self._box[rows], self._own[:, rows]
        lateral = torch.zeros_like(own[0])
        yes = torch.ones_like(own[0], dtype=torch.bool)
        car = {
            "row": own[0].long(),
            "s_m": own[1],
            "aim_m": lateral,
            "x": box[:, 0],
            "y": box[:, 1],
            "cos": torch.cos(box[:, 2]),
            "sin": torch.sin(box[:, 2]),
            "speed_m_s": own[2],
            "half_length_m": 0.5 * box[:, 3],
            "half_width_m": 0.5 * box[:, 4],
            "taken": yes,
            "walks": ~yes,
            "drives": yes,
            "lateral_m": lateral,
        }
        return Users(**{name: torch.cat((getattr(slots, name), car[name][:, None]), dim=1) for name in car})

    def _decide(self, env_ids: Tensor | None) -> None:
        """Look around and decide; for all environments, or for some after their reset."""
        rows: Tensor | slice = slice(None) if env_ids is None else env_ids
        state, count = self.state[:, rows], self.cfg.slots
        pose = self._pose[:, rows]
        users = self._everybody(state, pose, rows)
        found = relations(self.maps, users, users)
        blind = torch.nn.functional.pad(state[BLIND] > 0.5, (0, 1))
        gap, speed = leaders(users, found, blind)
        stops = stop_lines(self.maps, users, self.lights.state(self._own[3, rows], env_ids))
        gap_s = torch.nn.functional.pad(state[GAP], (0, 1), value=_CAR_GAP_S)
        comes, inside = must_give_way(self.maps, users, stops, gap_s, blind)
        away = torch.hypot(pose[0] - users.x[:, -1:], pose[1] - users.y[:, -1:])
        uniform = torch.rand(state.shape[1:], generator=self.generator, device=state.device)
        leader, way = (gap[:, :count], speed[:, :count]), (comes[:, :count], inside[:, :count])
        motion.decide(self.cfg, state, self._points[rows], leader, stops, way, away, self.dt_s, uniform)
        motion.start_cut_ins(self.cfg, state, users, found, stops.distance_m)
        motion.walk(state, users, found)
        if env_ids is not None:
            self.state[:, env_ids] = state
        here = path_points(self.maps, users.row[:, -1], users.s_m[:, -1])[:, 4]
        self._show(rows, CarView(gap[:, -1], speed[:, -1], *self._line(stops), (comes | inside)[:, -1], here))

    @staticmethod
    def _line(stops: StopLines) -> tuple[Tensor, Tensor]:
        return stops.distance_m[:, -1], stops.light[:, -1]

    def _show(self, rows: Tensor | slice, seen: CarView) -> None:
        for item in fields(CarView):
            kept = getattr(self.car, item.name).clone()
            kept[rows] = getattr(seen, item.name)
            setattr(self.car, item.name, kept)
