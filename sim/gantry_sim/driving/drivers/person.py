"""Scripted driver as an operator's device: takes over a car that leaves its route, does not brake, or does not move."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gantry_deploy.actions.drive import DriveDecoder
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError, TeleopError
from gantry_deploy.observations.route import RouteView, along_route, locate
from gantry_deploy.observations.signals import Signals
from gantry_deploy.observations.surroundings import OBJECT_FIELDS
from gantry_deploy.policy.runner import PolicyOutput
from gantry_deploy.teleop.operator import OperatorInput
from gantry_hardware.files.structured import from_plain
from gantry_hardware.model.cars import STANDSTILL_M_S, car_spec
from gantry_sim.driving.drivers.baselines import rule_based
from gantry_sim.driving.maps.projection import Window
from gantry_sim.driving.traffic.traffic import CarView

ON_ROUTE_M = 2.0
"""Objects farther from the route's line are not in the way."""
CURVATURE_REACH_M = 3.0
"""Length of the chords between which the route's curvature is measured."""


@dataclass(frozen=True)
class DriverCfg:
    """Settings of the scripted driver: when it takes over. It drives like the rule-based baseline."""

    offset_m: float = 0.8
    """Distance from the route at which it takes over,"""
    heading_rad: float = 0.5
    """or difference of headings,"""
    brake: float = 0.6
    """or braking, as an action from 0 to 1, that the policy is short of what it would do itself,"""
    stand_s: float = 4.0
    """or time at a standstill where it would drive on."""
    reaction_s: float = 0.3
    """Time from the reason to the first motion."""
    least_s: float = 1.0
    """Shortest correction; it gives back when the car is within a third of ``offset_m`` and ``heading_rad``."""

    def __post_init__(self) -> None:
        for item in fields(self):
            if not getattr(self, item.name) > 0.0:
                raise TeleopError(f"{item.name} is {getattr(self, item.name)}, expected more than 0.")


class ScriptedDriver:
    """A device that needs no hand, see :class:`gantry_deploy.teleop.operator.WatchingDevice`.

    Args:
        contract: Of a car that follows a route.
        cfg: Fields of :class:`DriverCfg`.

    Raises:
        TeleopError: If there is no such field, a value does not fit it, or the contract drives no car.
    """

    name = "scripted-driver"

    def __init__(self, contract: PolicyContract, **cfg: float) -> None:
        self.cfg, self._dt_s = from_plain(DriverCfg, cfg, f"device '{self.name}'", TeleopError), contract.dt_s
        try:
            drive = DriveDecoder(contract, np.zeros((1, 1))).drive
        except ContractError as error:
            raise TeleopError(f"Device '{self.name}' drives cars, and this policy moves '{contract.robot}'.") from error
        self._spec = replace(
            car_spec(contract.robot),
            steering_limit_rad=drive.steering_limit_rad,
            accel_limit_m_s2=drive.accel_limit_m_s2,
            brake_limit_m_s2=drive.brake_limit_m_s2,
            speed_limit_m_s=drive.speed_limit_m_s,
        )
        self.begin()

    def connect(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to release."""

    def describe(self) -> list[str]:
        """The settings."""
        return [f"{item.name}: {getattr(self.cfg, item.name):g}" for item in fields(self.cfg)]

    def begin(self) -> None:
        """An attempt begins."""
        self._acts, self._alarmed_s, self._acting_s, self._standing_s = False, 0.0, 0.0, 0.0

    def watch(self, seen: PolicyOutput, acts: bool) -> None:
        """Look at a step, and decide whether to act in the next one; ``acts`` tells whether it acts in this."""
        cfg, signals = self.cfg, seen.signals
        route, speed_m_s = _route(signals), abs(_speed(signals))
        offset_m, heading_rad = abs(float(route.lateral_m[0])), abs(float(route.heading_error_rad[0]))
        own, wanted = float(self.act(seen)[1]), float(seen.action[1])
        brakes_late = own < 0.0 and wanted - own > cfg.brake and speed_m_s > STANDSTILL_M_S
        waits = speed_m_s > STANDSTILL_M_S or own <= 0.0  # It would wait as well where it would not drive on.
        self._standing_s = 0.0 if waits else self._standing_s + self._dt_s
        if acts:
            self._acting_s += self._dt_s
            is_back = offset_m < cfg.offset_m / 3.0 and heading_rad < cfg.heading_rad / 3.0 and speed_m_s > 1.0
            is_back &= not brakes_late
            if is_back and self._acting_s >= cfg.least_s:
                self._acts, self._alarmed_s = False, 0.0
            return
        off_route = offset_m > cfg.offset_m or heading_rad > cfg.heading_rad
        alarming = off_route or brakes_late or self._standing_s > cfg.stand_s
        self._alarmed_s = self._alarmed_s + self._dt_s if alarming else 0.0
        if self._alarmed_s > cfg.reaction_s:
            self._acts, self._acting_s = True, 0.0

    def read(self, now_s: float) -> OperatorInput:
        """Whether the driver acts; the action itself is asked for when the step has been seen."""
        return OperatorInput(now_s, self._acts)

    def act(self, seen: PolicyOutput) -> NDArray[np.float32]:
        """Steering and acceleration (2,) in [-1, 1], see :func:`gantry_sim.driving.drivers.baselines.rule_based`."""
        signals = seen.signals
        route, speed = _route(signals), torch.tensor([_speed(signals)], dtype=torch.float64)
        pose = torch.from_numpy(np.asarray(signals.pose_in_world, np.float64))
        action = rule_based(pose, speed, self._window(signals, route), self._traffic(signals, route), self._spec)
        return action[0].numpy().astype(np.float32)

    def _window(self, signals: Signals, route: RouteView) -> Window:
        """The route in the world as traffic's drivers know it; without limits of its own, the car's."""
        around = signals.surroundings
        assert around is not None
        points = np.asarray(around.route_points_in_world_m, np.float64)
        along = np.asarray(route.along_m) - np.asarray(route.here_m)[:, None]
        limits = np.full(points.shape[:2], self._spec.speed_limit_m_s)
        if around.route_speed_limit_m_s is not None:
            limits = np.minimum(limits, np.asarray(around.route_speed_limit_m_s, np.float64))
        none = torch.zeros(points.shape[:2], dtype=torch.float64)
        return Window(
            points=torch.from_numpy(points),
            yaw_rad=none,
            curvature=torch.from_numpy(np.asarray(route.curvature(along, CURVATURE_REACH_M), np.float64)),
            speed_limit_m_s=torch.from_numpy(limits),
            left_m=none,
            right_m=none,
            in_junction=none > 0.0,
        )

    def _traffic(self, signals: Signals, route: RouteView) -> CarView | None:
        """The next object on the route and the stop line; None where the policy is told of neither."""
        around = signals.surroundings
        assert around is not None
        if around.objects is None and around.stop_line is None:
            return None
        gap_m, leader_m_s = np.inf, 0.0
        if around.objects is not None:
            gap_m, leader_m_s = self._leader(np.asarray(around.objects, np.float64), signals, route)
        stop_m, light = (np.inf, 0.0) if around.stop_line is None else np.asarray(around.stop_line, np.float64)[0]
        return CarView(
            gap_m=_row(gap_m),
            leader_m_s=_row(leader_m_s),
            stop_m=_row(stop_m),
            light=_row(light),
            give_way=torch.tensor([False]),
            speed_m_s=_row(self._spec.speed_limit_m_s),
        )

    def _leader(self, objects: NDArray[np.float64], signals: Signals, route: RouteView) -> tuple[float, float]:
        """Gap from bumper to bumper, m, and speed along the route, m/s, of the next object ahead; (inf, 0) for none."""
        pose = np.asarray(signals.pose_in_world, np.float64)
        places = along_route(route, objects[..., :2] - pose[:, None, :2])
        x, _, yaw, speed, length, _, taken = (objects[0, :, number] for number in range(len(OBJECT_FIELDS)))
        nose_m = self._spec.center_x_in_base_m + 0.5 * self._spec.length_m
        gaps = np.asarray(places.ahead_m)[0] - 0.5 * length - nose_m
        in_the_way = (taken > 0.5) & (np.abs(np.asarray(places.lateral_m)[0]) < ON_ROUTE_M)
        gaps = np.where(in_the_way & (np.asarray(places.ahead_m)[0] > 0.0), gaps, np.inf)
        next_one = int(gaps.argmin()) if len(x) else 0
        if not len(x) or not np.isfinite(gaps[next_one]):
            return np.inf, 0.0
        tangent = np.asarray(places.tangent)[0, next_one]
        heading = np.array([np.cos(yaw[next_one]), np.sin(yaw[next_one])])
        return max(0.0, float(gaps[next_one])), float(speed[next_one] * (heading @ tangent))


def _route(signals: Signals) -> RouteView:
    if signals.surroundings is None or signals.surroundings.route_points_in_world_m is None:
        raise TeleopError("The scripted driver follows a route, and this car's policy sees none.")
    points, pose = signals.surroundings.route_points_in_world_m, signals.pose_in_world
    return locate(np.asarray(points, np.float64), np.asarray(pose, np.float64))


def _speed(signals: Signals) -> float:
    return 0.0 if signals.lin_vel_base_in_base_m_s is None else float(signals.lin_vel_base_in_base_m_s[0, 0])


def _row(value: float) -> Tensor:
    return torch.tensor([float(value)], dtype=torch.float64)
