"""One simulated car on a task's roads, as a robot backend that tells of its surroundings and knows what happened.

The car is one of the batched core, moved in finer steps than in training, since a car's own controllers are faster than
its policy; what is around it moves on as in training.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from gantry_deploy.contract.bev_layout import BevLayout
from gantry_deploy.contract.drive_spec import DRIVE, STEERING, DriveSpec, LidarLayout
from gantry_deploy.observations.surroundings import OBJECT_FIELDS, Surroundings
from gantry_deploy.perception.road import Route
from gantry_hardware.backends.limits import CommandLimiter
from gantry_hardware.backends.state import GRAVITY_M_S2, JointCommand, RobotState
from gantry_hardware.errors import GantryError, RobotError
from gantry_hardware.model.capabilities import RoadListener
from gantry_hardware.model.cars import STANDSTILL_M_S, CarSpec
from gantry_hardware.model.dynamics import RobotDynamics
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.backends.car_dynamics import car_chances
from gantry_sim.backends.road_log import RoadLog
from gantry_sim.driving.cfg import CarTaskCfg, DriveCfg, DriveNoise
from gantry_sim.driving.maps.bank import NO_STOP_M
from gantry_sim.driving.maps.graph import LEFT, LIMIT, RIGHT
from gantry_sim.driving.park_cfg import ParkCfg
from gantry_sim.driving.scenes.registry import drive_contract, make_scene
from gantry_sim.driving.scenes.scene import MOVING_M_S
from gantry_sim.driving.sensors.lidar import LidarConfig, cast_boxes, finish, rays, scanner_of
from gantry_sim.driving.traffic.traffic_cfg import TrafficCfg
from gantry_sim.driving.vehicle.actuation import CarRandomization
from gantry_sim.driving.vehicle.cars import BatchedCars, CarsCfg
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.robots.option_checks import ROAD_CHECKS
from gantry_sim.robots.options import check_options

STEP_S = 0.02
"""About the physics step."""


class RoadRobot:
    """A car on roads, in lock-step. Every reset begins another episode of the task, at rest.

    Steering goes where it is told as fast as it can, speed to its set-point at a constant acceleration within
    ``response_s``, or within what the car can.

    Args:
        spec: The car.
        task: Name of a driving task, whose roads and others these are; empty for roads through a town.
        split: Which maps: ``train``, ``validation`` or ``test``.
        map_count: How many maps of it are drawn; the seed chooses among their routes.
        route_m: Length of a route; 0 for the task's.
        seed: Of route, traffic and noise.
        model: Dynamics, see :mod:`gantry_sim.driving.vehicle.models`; the task's if empty.
        traffic: Whether there are others; None as in the task.
        vary: The car differs from its numbers as in training.
        dynamics: Those of one machine, or the path of their file; what they name does not vary. Empty for none.
        friction_share: Factor of its tyres' friction, which then does not vary; None for none.
        mass_share: Factor of its mass, likewise. Models with tyres alone feel either: ``single-track-grip``, ``drift``.
        noise: Multiple of the usual noise of odometry and objects.
        response_s: Time in which a speed set-point is reached that comes without an acceleration; None for the time
            between two decisions of the task, which is when a policy wants to be there.
        scan_beams: Of a scanner that sees other road users, where the task has none; 0 for no scanner.
        scan_min_rad: Right end of its scan.
        scan_max_rad: Left end.
        scan_range_m: What it reports where nothing is.
        scan_x_m: How far ahead of ``base_link`` it sits.
        road_cell_m: Edge of a cell of the road map that is told, on roads alone; 0 for no map.
        realtime: Wait for the clock instead of running ahead of it.

    Raises:
        UnknownNameError: If there is no such task, split or model.
        GantryError: If the robot is no car, the task no driving task, or a number makes no sense.
    """

    simulated = True
    """Moves no robot of metal."""
    OPTION_CHECKS = ROAD_CHECKS

    def __init__(
        self,
        spec: RobotSpec,
        *,
        task: str = "",
        split: str = "test",
        map_count: int = 4,
        route_m: float = 0.0,
        seed: int = 0,
        model: str = "",
        traffic: bool | None = None,
        vary: bool = False,
        dynamics: RobotDynamics | str = "",
        friction_share: float | None = None,
        mass_share: float | None = None,
        noise: float = 0.0,
        response_s: float | None = None,
        scan_beams: int = 0,
        scan_min_rad: float = -0.5 * math.pi,
        scan_max_rad: float = 0.5 * math.pi,
        scan_range_m: float = 30.0,
        scan_x_m: float = 0.0,
        road_cell_m: float = 0.0,
        realtime: bool = False,
    ) -> None:
        car = spec.body_as(CarSpec)
        check_options(locals())
        self.spec, self._car, self._task, self._seed = spec, car, task, seed
        changes = {"map_split": split, "map_count": map_count, "robot": spec.name} | ({"model": model} if model else {})
        self.cfg = _one_car(task, changes, traffic, route_m, road_cell_m)
        self._noise, self._rng = (self.cfg.noise or DriveNoise(), noise), np.random.default_rng(seed)
        self._scan_noise = torch.Generator().manual_seed(seed + 3)
        self._response_s = self.cfg.dt_s if response_s is None else response_s
        self._looks_every = max(1, round(self.cfg.dt_s / STEP_S))
        self._dt_s = self.cfg.dt_s / self._looks_every
        ranges = self.cfg.randomization if vary else CarRandomization()
        chances = car_chances(spec, ranges, dynamics, friction_share=friction_share, mass_share=mass_share)
        cars = CarsCfg(self.cfg.model, dt_s=self._dt_s, substeps=2, reverse=self.cfg.reverse, randomization=chances)
        self.cars = BatchedCars(car, 1, cars, seed=seed)
        self.scene = make_scene(self.cfg, self.cars, "cpu", torch.Generator().manual_seed(seed + 1), seed + 2)
        self._scanner: LidarConfig | None = None
        if scan_beams:
            layout = LidarLayout(scan_beams, scan_min_rad, scan_max_rad, scan_range_m, scan_x_m)
            self._scanner = scanner_of(layout, 1)
        self._limiter = CommandLimiter(spec)
        self._listener: RoadListener | None = None
        self._time_s, self._connected = 0.0, False
        self.realtime, self._epoch_s = realtime, 0.0
        self.reset()

    def connect(self) -> None:
        """Nothing to open."""
        self._connected, self._epoch_s = True, time.monotonic() - self._time_s

    def close(self) -> None:
        """Release the robot."""
        self._connected = False

    def reset(self) -> None:
        """Begin another episode, at rest; no command is active."""
        only = torch.zeros(1, dtype=torch.int64)
        pose, _ = self.scene.begin(only)
        self.cars.reset(only, pose, torch.zeros(1))
        self.scene.started(only)
        self._steps, self._begin_s, self._travel_m = 0, self._time_s, 0.0
        self._told: tuple[float, float, float] | None = None
        self.log = RoadLog()
        self._tell(whole=True)

    def now_s(self) -> float:
        """Simulated time."""
        return self._time_s

    def sleep_until(self, time_s: float) -> None:
        """Let time pass; returns at the first physics step that is not before ``time_s``."""
        with torch.no_grad(), torch_threads(1):
            while self._time_s < time_s - 1e-6:
                self._step()
        if self.realtime:
            time.sleep(max(0.0, self._epoch_s + self._time_s - time.monotonic()))

    def read(self) -> RobotState:
        """The state now.

        Raises:
            RobotError: If not connected.
        """
        self._require_connection()
        cars, (kinds, scale) = self.cars, self._noise

        def off(std: float) -> float:
            return float(self._rng.normal(0.0, std * scale)) if scale > 0.0 else 0.0

        x, y, yaw = cars.pose[0].tolist()
        x, y, yaw = x + off(kinds.pos_m), y + off(kinds.pos_m), yaw + off(kinds.yaw_rad)
        ahead, left = cars.velocity_in_base_m_s[0].tolist()
        ahead += off(kinds.speed_m_s)
        pos, vel = np.zeros(2), np.zeros(2)
        pos[STEERING] = float(cars.steering_rad[0]) + off(kinds.steering_rad)
        pos[DRIVE], vel[DRIVE] = self._travel_m, ahead
        accel = cars.accel_in_base_m_s2[0].tolist()
        return RobotState(
            stamp_s=self._time_s,
            joint_pos_rad=pos,
            joint_vel_rad_s=vel,
            joint_effort_nm=np.zeros(2),
            quat_base_to_world_wxyz=np.array([math.cos(0.5 * yaw), 0.0, 0.0, math.sin(0.5 * yaw)]),
            ang_vel_base_in_base_rad_s=np.array([0.0, 0.0, float(cars.yaw_rate_rad_s[0]) + off(kinds.yaw_rate_rad_s)]),
            lin_acc_base_in_base_m_s2=np.array([*accel, GRAVITY_M_S2]),
            pos_base_in_world_m=np.array([x, y, 0.0]),
            lin_vel_base_in_base_m_s=np.array([ahead, left, 0.0]),
        )

    def write(self, command: JointCommand) -> JointCommand:
        """Take steering and speed of a command; returns it after the limits. One that does not hold the steering
        changes nothing.

        Raises:
            RobotError: If not connected, or if the command's shapes or numbers are wrong.
        """
        self._require_connection()
        limited, _ = self._limiter.clamp(command)
        if limited.stiffness_nm_rad[STEERING] > 0.0:
            self.obey(float(limited.pos_rad[STEERING]), float(limited.vel_rad_s[DRIVE]))
        return limited

    def obey(self, steering_rad: float, speed_m_s: float, accel_m_s2: float | None = None) -> None:
        """See :class:`gantry_hardware.model.capabilities.HasRoad`."""
        car = self._car
        steering = float(np.clip(steering_rad, -car.steering_limit_rad, car.steering_limit_rad))
        speed = float(np.clip(speed_m_s, -car.reverse_limit_m_s, car.speed_limit_m_s))
        size = abs(speed - float(self.cars.speed_m_s[0])) / self._response_s if accel_m_s2 is None else abs(accel_m_s2)
        self._told = (steering, speed, size)

    def tell_road(self, listener: RoadListener) -> None:
        """See :class:`gantry_hardware.model.capabilities.HasRoad`."""
        self._listener = listener
        self._tell(whole=True)

    @property
    def episode_s(self) -> float:
        """Length of an episode of its task in training."""
        return self.cfg.episode_s

    @property
    def outcome(self) -> dict[str, Any]:
        """Events since the last reset, the truth."""
        told = {name: float(value[0]) for name, value in self.scene.summary(torch.zeros(1, dtype=torch.int64)).items()}
        speed = float(self.cars.speed_m_s[0])
        return {
            **told,
            **self.log.values(),
            "speed_m_s": speed,
            "stands": abs(speed) <= STANDSTILL_M_S,
            "episode_s": self._time_s - self._begin_s,
            "task": self._task,
            "split": self.cfg.map_split,
            "seed": self._seed,
            "model": self.cfg.model,
        }

    def _step(self) -> None:
        cars, car = self.cars, self._car
        before = float(cars.speed_m_s[0])
        steering, push = float(cars.steering_rad[0]), 0.0
        if self._told is not None:
            steering, speed, size = self._told
            faster = abs(speed) > abs(before)
            size = min(size, car.accel_limit_m_s2 if faster else car.brake_limit_m_s2)
            push = float(np.clip((speed - before) / self._dt_s, -size, size))
        cars.step(torch.tensor([steering]), torch.tensor([push]))
        self._steps += 1
        self._time_s = self._begin_s + self._steps * self._dt_s
        after = float(cars.speed_m_s[0])
        self._travel_m += 0.5 * (before + after) * self._dt_s
        log = self.log
        log.top_m_s = max(log.top_m_s, abs(after))
        log.braking_m_s2 = max(log.braking_m_s2, (abs(before) - abs(after)) / self._dt_s)
        if self._steps % self._looks_every == 0:
            # A car without a command waits, which is no end.
            still = self._told is not None and abs(after) <= MOVING_M_S
            log.still_s = log.still_s + self.cfg.dt_s if still else 0.0
            outcome = self.scene.moved(torch.tensor([self._time_s - self._begin_s]))
            log.look(outcome, self._time_s, blocked=log.still_s >= self.cfg.blocked_s)
            self._tell(whole=False)

    def _tell(self, *, whole: bool) -> None:
        """Tell the listener what is around; ``whole`` says that an episode or the listening has just begun."""
        listener = self._listener
        if listener is None:
            return
        seen, now_s = self.scene.surroundings(), self._time_s
        if whole or self.scene.whole_route(0) is None:
            route = self._route(seen)
            if route is not None:
                listener.set_route(route)
            if (road := self.scene.road_cells(0)) is not None:
                listener.set_road(road[0].numpy(), road[1].numpy(), road[2])
            if seen.goal_pose is not None:
                listener.set_goal(_row(seen.goal_pose))
        objects = np.zeros((0, len(OBJECT_FIELDS))) if seen.objects is None else _row(seen.objects)
        taken = objects[:, -1] > 0.5
        told = self.scene.drawn(torch.tensor([now_s])).get("kinds", seen.object_kinds)
        kinds = None if told is None else _row(told)[taken]
        listener.set_objects(self._blurred(objects[taken]), now_s, kinds)
        far = seen.stop_line is None or float(seen.stop_line[0, 0]) >= 0.5 * NO_STOP_M
        line = (math.inf, 0.0) if far or seen.stop_line is None else _row(seen.stop_line).tolist()
        listener.set_stop_line(line[0], line[1], now_s)
        if (scan := self._scan(seen)) is not None:
            listener.set_scan(*scan, now_s)

    def _route(self, seen: Surroundings) -> Route | None:
        """The whole route of a scene that has one, otherwise what is shown of it; None where there is none."""
        whole = self.scene.whole_route(0)
        if whole is not None:
            table = whole.double().numpy()
            return Route(table[:, :2], table[:, LIMIT], table[:, LEFT], table[:, RIGHT])
        if seen.route_points_in_world_m is None:
            return None
        lanes = seen.route_speed_limit_m_s, seen.route_left_m, seen.route_right_m
        return Route(_row(seen.route_points_in_world_m), *map(_row, lanes))

    @cached_property
    def _lidar(self) -> LidarLayout | None:
        """Scan that the task's policies observe."""
        return drive_contract(self.cfg).body_as(DriveSpec).lidar

    @property
    def scanner_x_in_base_m(self) -> float | None:
        """Distance of the scanner ahead of ``base_link``; None without one."""
        if self._lidar is not None:
            return self._lidar.pos_x_in_base_m
        return None if self._scanner is None else self._scanner.mount_m[0]

    def _blurred(self, objects: NDArray[np.float64]) -> NDArray[np.float64]:
        kinds, scale = self._noise
        if scale == 0.0 or not len(objects):
            return objects
        std = (kinds.object_pos_m, kinds.object_pos_m, kinds.object_yaw_rad, kinds.object_speed_m_s)
        noisy = objects.copy()
        noisy[:, :4] += self._rng.normal(0.0, 1.0, (len(objects), 4)) * scale * np.array(std)
        return noisy

    def _scan(self, seen: Surroundings) -> tuple[ArrayLike, float, float] | None:
        """Ranges, the first beam's angle and the step between two."""
        if seen.scan_ranges_m is not None:
            lidar = self._lidar
            if lidar is None:
                return None
            width = (lidar.angle_max_rad - lidar.angle_min_rad) / lidar.beams
            kinds, scale = self._noise
            scanner = LidarConfig(
                range_max_m=lidar.range_max_m,
                noise_std_m=scale * kinds.scan_m,
                dropout=scale * kinds.scan_dropout,
            )
            ranges = finish(scanner, seen.scan_ranges_m, self._scan_noise)
            return _row(ranges), lidar.angle_min_rad + 0.5 * width, width
        if self._scanner is None:
            return None
        config = self._scanner
        origin, direction = rays(config, self.cars.pose)
        distance = torch.full((1, config.beams), math.inf)
        if seen.objects is not None:
            boxes, taken = seen.objects[..., [0, 1, 2, 4, 5]], seen.objects[..., 6] > 0.5
            distance = cast_boxes(origin, direction, boxes, taken)
        ranges = np.where(_row(distance) <= config.range_max_m, _row(distance), np.inf)
        step = (config.angle_max_rad - config.angle_min_rad) / max(1, config.beams - 1)
        return ranges, config.angle_min_rad, step

    def _require_connection(self) -> None:
        if not self._connected:
            raise RobotError(f"The simulated car '{self.spec.name}' is not connected; call connect() first.")


def _one_car(
    task: str, changes: dict[str, Any], traffic: bool | None, route_m: float, road_cell_m: float
) -> CarTaskCfg:
    """A task's configuration for a single car."""
    cfg: Any = DriveCfg()
    if task:
        from gantry_sim.tasks.registry import find_task  # It loads everything that trains, which takes seconds.

        cfg = find_task(task).preset("cpu").env
    if not isinstance(cfg, CarTaskCfg):
        raise GantryError(f"Task '{task}' drives no car; a road needs one that does, for example drive-lane.")
    if not isinstance(cfg, DriveCfg):
        if traffic is not None or route_m or road_cell_m:
            raise GantryError(
                f"Task '{task}' has no routes through a town: 'traffic', 'route_m' and 'road_cell_m' are not for it."
            )
        if isinstance(cfg, ParkCfg):
            changes["near_share"] = 0.0  # As where scores are counted, every episode begins in the aisle.
        return replace(cfg, num_envs=1, **changes)
    if traffic is not None:
        changes["traffic"] = (cfg.traffic or TrafficCfg()) if traffic else None
    if road_cell_m:
        changes["bev"] = BevLayout(metres_per_pixel=road_cell_m)
    return replace(cfg, num_envs=1, **changes, **({"route_m": route_m} if route_m else {}))


def _row(values: Any) -> NDArray[np.float64]:
    """The only row of a tensor."""
    return values[0].double().numpy()
