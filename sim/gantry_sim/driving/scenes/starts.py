"""Beginnings of episodes on roads, drawn many at once.

Putting eight others around a car one after the other takes as long for one car as for hundreds, and among hundreds of
cars some episode ends at nearly every step: drawn one by one, beginnings would take half of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from gantry_deploy.perception.road import BEHIND_M
from gantry_hardware.model.cars import car_spec
from gantry_sim.driving.cfg import DriveCfg
from gantry_sim.driving.maps.projection import pose_at, project
from gantry_sim.driving.scenes.roads import Roads
from gantry_sim.driving.scenes.scene import boxes_at, kept, spread
from gantry_sim.driving.traffic.traffic import Traffic

STOCK = 256
"""Beginnings drawn at once."""


@dataclass
class Start:
    """Starts of S episodes."""

    route: Tensor
    """``(S,)`` row of the roads' lines."""
    index: Tensor
    """``(S,)`` segment of it."""
    pose: Tensor
    """``(S, 3)`` of ``base_link`` in the world."""
    speed_m_s: Tensor
    """``(S,)``."""


class Starts:
    """A stock of beginnings that is filled again when it is used up.

    Args:
        cfg: The task.
        roads: Where.
        generator: Of starts.
        seed: Of traffic.
    """

    def __init__(self, cfg: DriveCfg, roads: Roads, generator: torch.Generator, seed: int) -> None:
        self.cfg, self.roads, self.generator = cfg, roads, generator
        self.device = roads.lines.device
        self.size = min(STOCK, max(cfg.num_envs, 16))
        self.traffic: Traffic | None = None
        """Others around the beginnings; row s of them belongs to start s."""
        if cfg.traffic is not None:
            assert roads.traffic is not None
            self.traffic = Traffic(cfg.traffic, roads.traffic, self.size, cfg.dt_s, seed)
        self._next = self.size
        self.start = self._draw()
        """The stock."""

    def take(self, most: int) -> Tensor:
        """Rows of the stock that are used up now, at least 1 and at most ``most``; call again for more.

        What the rows hold is gone at the next call.
        """
        if self._next >= self.size:
            self.start, self._next = self._draw(), 0
        first, self._next = self._next, min(self._next + most, self.size)
        return torch.arange(first, self._next, device=self.device)

    def state_dict(self) -> dict[str, Any]:
        """For an exact continuation."""
        state: dict[str, Any] = {"next": self._next} | kept(vars(self.start))
        return state if self.traffic is None else state | {"traffic": self.traffic.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where it was."""
        self._next = state["next"]
        self.start = Start(**{item.name: state[item.name].to(self.device) for item in fields(Start)})
        if self.traffic is not None:
            self.traffic.load_state_dict(state["traffic"])

    def _draw(self) -> Start:
        cfg, lines, count = self.cfg, self.roads.lines, self.size
        choice = torch.randint(0, len(self.roads.rows), (count,), generator=self.generator, device=self.device)
        route = self.roads.rows[choice]
        # So far into the route that there is a route behind them as well.
        begin = torch.full((count,), BEHIND_M, device=self.device)
        pose, index = pose_at(lines, route, begin, spread(count, cfg.start_lateral_m, self.generator))
        turn = spread(count, cfg.start_heading_rad, self.generator)
        pose = torch.cat((pose[:, :2], pose[:, 2:] + turn[:, None]), dim=1)
        share = 0.5 * (1.0 + spread(count, 1.0, self.generator)) * cfg.start_speed_share
        speed = share * project(lines, route, index, pose[:, :2]).speed_limit_m_s
        if self.traffic is not None:
            spec, every = car_spec(cfg.robot), torch.arange(count, device=self.device)
            middle = begin + spec.center_x_in_base_m
            self.traffic.reset(every, route, middle, boxes_at(pose, spec), speed, torch.zeros_like(speed))
        return Start(route, index, pose, speed)
