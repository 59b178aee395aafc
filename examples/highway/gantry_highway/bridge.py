"""highway-env's race track as a second simulator that no policy here was trained in; a smoke run, no benchmark.

Its bicycle model knows one length, of box and axles alike; a car that is commanded gets the wheelbase there, so that it
turns as it should and is shorter than it is. Wheels turn within highway-env's own step as told.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_hardware.model.cars import CarSpec
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec
from gantry_sim.driving.external_sims.car import HeldOutCar, Motion, motion_at_rear_axle
from gantry_sim.driving.external_sims.lanes import Lane, Stretch, lane_of, route_along, way_along
from gantry_sim.driving.external_sims.riding import Scene

VERSION = "1.12.1"
"""That this was written against."""
INSTALL = "pip install -e examples/highway"
"""Command that installs it."""
TRACK = "racetrack-v1"
"""Its environment."""
SUBSTEPS = 5
"""Steps of its model in a decision."""
LIMIT_M_S = 8.0
"""Speed limit, below the 10 m/s that its lanes say, since its bends are tight."""
END_M = 10.0
"""Left out before the lap is closed."""


def require_highway() -> None:
    """Refuse to go on without the package.

    Raises:
        GantryError: With the command that installs it.
    """
    if importlib.util.find_spec("highway_env") is None:
        raise GantryError(f"highway-env is not installed; it comes with {INSTALL}")


class HighwayCar(HeldOutCar):
    """The one car of a race track that is commanded.

    Args:
        spec: The car.
        dt_s: Length of a decision.
        env: After its reset.
    """

    def __init__(self, spec: RobotSpec, dt_s: float, env: Any) -> None:
        super().__init__(spec, dt_s)
        self._env, self._vehicle = env, env.unwrapped.vehicle
        self._vehicle.LENGTH, self._vehicle.WIDTH = self.car.wheelbase_m, self.car.width_m
        self._vehicle.speed = 0.0
        self.info: Mapping[str, Any] = {}
        """Whether the car has ``crashed``, whether it is ``on_road``; empty before the first step."""

    def motion(self) -> Motion:
        """Current motion. Its place is the middle between the axles, which drifts by half the steering there."""
        car = self._vehicle
        half, heading, drift = 0.5 * self.car.wheelbase_m, float(car.heading), self._drift
        speed, course = float(car.speed), heading + drift
        return motion_at_rear_axle(
            float(car.position[0]),
            float(car.position[1]),
            heading,
            (speed * math.cos(course), speed * math.sin(course)),
            speed * math.sin(drift) / half,
            half,
        )

    def advance(self, steering_rad: float, speed_m_s: float) -> None:
        """One decision of highway-env."""
        low, high = -self.car.brake_limit_m_s2, self.car.accel_limit_m_s2
        accel = (speed_m_s - self.motion().forward_m_s) / self.dt_s
        push = 2.0 * (min(high, max(low, accel)) - low) / (high - low) - 1.0
        self._env.step(np.array([push, steering_rad / self.car.steering_limit_rad]))
        self.info = {"crashed": bool(self._vehicle.crashed), "on_road": bool(self._vehicle.on_road)}

    @property
    def _drift(self) -> float:
        return math.atan(0.5 * math.tan(float(self._vehicle.action["steering"])))


def race_track(
    robot: str, dt_s: float, *, length_m: float = 200.0, others: int = 1, seed: int = 0, limit_m_s: float = LIMIT_M_S
) -> Scene:
    """An episode on the race track.

    Args:
        robot: A registered car.
        dt_s: Length of a decision.
        length_m: Of the route, along the lane on which the car stands; the track is closed, and what would be driven a
            second time is left out.
        others: Cars that drive there beside it.
        seed: Of where they stand.
        limit_m_s: Speed limit.

    Raises:
        GantryError: If highway-env is not installed, or the robot is no car.
    """
    require_highway()
    import gymnasium
    import highway_env  # noqa: F401  (registers its environments)

    spec = robot_spec(robot)
    car, rate_hz = spec.body_as(CarSpec), round(1.0 / dt_s)
    action = {"type": "ContinuousAction", "longitudinal": True, "lateral": True}
    action |= {"steering_range": [-car.steering_limit_rad, car.steering_limit_rad]}
    action |= {"acceleration_range": [-car.brake_limit_m_s2, car.accel_limit_m_s2]}
    setting = {"action": action, "policy_frequency": rate_hz, "simulation_frequency": SUBSTEPS * rate_hz}
    setting |= {"observation": {"type": "Kinematics"}, "other_vehicles": others, "duration": 10_000}
    env: Any = gymnasium.make(TRACK, config=setting, disable_env_checker=True)
    env.reset(seed=seed)
    base = env.unwrapped
    lanes = _one_lap(base.road.network.graph, base.vehicle.lane_index)
    points, width = way_along([[lane] for lane in lanes], [Stretch(0, 0)] * len(lanes))
    route = route_along(points, width, limit_m_s)
    mine = HighwayCar(spec, dt_s, env)

    def outcome() -> tuple[str | None, dict[str, int]]:
        if not mine.info:
            return None, {}
        if mine.info["crashed"]:
            return "crashed", {"vehicle": 1}
        return (None if mine.info["on_road"] else "off_road"), {}

    def around() -> NDArray[np.float64]:
        return np.array([_row(item) for item in base.road.vehicles if item is not base.vehicle]).reshape(-1, 7)

    now = mine.motion()
    start_m = float(route.along_m[np.hypot(*(points - (now.x_m, now.y_m)).T).argmin()])
    finish_m = min(start_m + length_m, float(route.along_m[-1]) - END_M)
    return Scene(mine, route, finish_m, around, outcome)


def _one_lap(graph: Mapping[str, Mapping[str, Any]], index: tuple[str, str, int]) -> list[Lane]:
    """The lane at an index and those that follow it round the track."""
    begin, end, number = index
    first = begin
    lanes: list[Lane] = []
    while not lanes or begin != first:
        lanes.append(lane_of(graph[begin][end][number]))
        begin, end = end, next(iter(graph[end]))
    return lanes


def _row(item: Any) -> tuple[float, ...]:
    x, y = item.position
    return float(x), float(y), float(item.heading), float(item.speed), float(item.LENGTH), float(item.WIDTH), 1.0
