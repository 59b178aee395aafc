"""A small driving policy and a car without tyres, for tests of whatever runs them.

Building a network needs the ``onnx`` package, which the runtime itself does not.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.actions.drive import DriveDecoder
from gantry_deploy.bundle.bundle import Bundle, load_bundle, write_bundle
from gantry_deploy.contract.drive_spec import DRIVE, DRIVE_TARGET, STEERING, DriveSpec, LidarLayout, drive_spec_of
from gantry_deploy.contract.policy_contract import ActionSpec, CommandSpec, PolicyContract
from gantry_deploy.observations.builder import ObservationBuilder, Signals, make_term
from gantry_deploy.observations.road import term_sizes
from gantry_deploy.observations.surroundings import Surroundings
from gantry_deploy.perception.road import RoadView, Route, rest_surroundings
from gantry_deploy.policy.golden import TARGET_ARRAY, TARGET_VELOCITY_ARRAY
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_deploy.testing.legs import contract_for, linear_model
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.backends.state import GRAVITY_M_S2, JointCommand, RobotState
from gantry_hardware.model.cars import CarSpec
from gantry_hardware.model.spec import RobotSpec

PURSUIT_TERMS = (
    "speed",
    "steering_angle",
    "yaw_rate",
    "route_points",
    "route_error",
    "route_speed_limits",
    "last_action",
    "objects",
    "lidar",
)
"""Observation terms of the policy of :func:`drive_contract_for`, in order."""
PURSUIT_WHEELBASES = 3.0
"""The route is followed at the first lookahead distance, so many wheelbases ahead."""
SPEED_GAIN_S_M = 0.3
"""Action per m/s below the speed limit."""
PHYSICS_DT_S = 0.01
"""Step of :class:`MockCar`."""


def drive_contract_for(spec: RobotSpec, **changes: Any) -> PolicyContract:
    """A contract that drives a car at 10 Hz and sees its route, three objects and 18 beams ahead.

    Args:
        spec: The car.
        changes: Fields of the contract to replace.

    Raises:
        RobotError: If the robot is no car.
    """
    car = spec.body_as(CarSpec)
    near = PURSUIT_WHEELBASES * car.wheelbase_m
    drive = drive_spec_of(
        car,
        lookahead_m=(near, 2.0 * near),
        curvature_reach_m=0.5 * near,
        max_objects=3,
        lidar=LidarLayout(18, -0.5 * math.pi, 0.5 * math.pi, 10.0),
    )
    sizes = term_sizes(drive)
    return contract_for(
        spec,
        **{
            "rate_hz": 10.0,
            "observations": tuple(
                make_term(name, sizes[name], history=2 if name == "last_action" else 1) for name in PURSUIT_TERMS
            ),
            "action": ActionSpec(DRIVE_TARGET, (1.0, 1.0), (0.0, 0.0), clip=1.0),
            "command": CommandSpec("", (), (), (), ()),
            "gait": None,
            "body": drive,
            **changes,
        },
    )


def pursuit_weight(contract: PolicyContract) -> np.ndarray:
    """Weight (obs, 2) of a network that drives, linear in what it sees.

    Steering is pure pursuit of the first route point (Coulter, CMU-RI-TR-92-01) for small angles: the circle through
    the rear axle and a point at distance d, y to the left, has curvature 2 y / d^2, which takes the steering angle
    wheelbase times that. Acceleration is in proportion to the speed limit there minus the speed.
    """
    drive = contract.body_as(DriveSpec)
    starts, start = {}, 0
    for term in contract.observations:
        starts[term.name] = start
        start += term.size * term.history
    weight = np.zeros((start, 2))
    curvature = 2.0 / drive.lookahead_m[0] ** 2
    weight[starts["route_points"] + 1, 0] = drive.wheelbase_m * curvature / drive.steering_limit_rad
    weight[starts["route_speed_limits"], 1] = SPEED_GAIN_S_M
    weight[starts["speed"], 1] = -SPEED_GAIN_S_M
    return weight


def drive_bundle(
    folder: str | Path, contract: PolicyContract, weight: np.ndarray | None = None, bias: np.ndarray | None = None
) -> Bundle:
    """Write, seal and load a bundle around a linear network, that of :func:`pursuit_weight` if nothing is said.

    Args:
        folder: Where to write it.
        contract: Of the policy.
        weight: Shape (obs, 2); the pursuit's if not given.
        bias: Shape (2,); zeros if not given.
    """
    weight = pursuit_weight(contract) if weight is None else weight
    model_bytes = linear_model(contract, weight=weight, bias=bias)
    write_bundle(folder, contract=contract, model_bytes=model_bytes, golden=drive_golden(contract, model_bytes))
    return load_bundle(folder)


def drive_golden(contract: PolicyContract, model_bytes: bytes, steps: int = 12, seed: int = 0) -> dict[str, np.ndarray]:
    """Two recorded episodes of cars on roads drawn at random, as an export records them.

    The cars do not move as they are told; what follows from one step is only the last action.
    """
    rng, like = np.random.default_rng(seed), np.zeros((1, 1), np.float32)
    policy, builder = OnnxPolicy(model_bytes, contract), ObservationBuilder(contract, like)
    decoder = DriveDecoder(contract, like)
    rows: dict[str, list[np.ndarray]] = {}
    action = np.zeros((1, 2), np.float32)
    for i in range(2 * steps):
        if i % steps == 0:
            action = np.zeros((1, 2), np.float32)
            builder.reset()
        signals = _drawn_signals(contract, action, i % steps * contract.dt_s, rng)
        assert signals.pose_in_world is not None
        assert signals.surroundings is not None
        observation = builder(signals)
        row = {"observation": observation, "action": policy(observation)}
        targets = decoder(row["action"], signals)
        row |= {TARGET_ARRAY: targets.pos_rad, TARGET_VELOCITY_ARRAY: targets.vel_rad_s}
        row["episode_start"] = np.array([i % steps == 0])
        row["pos_base_in_world_m"] = np.pad(signals.pose_in_world[:, :2], ((0, 0), (0, 1)))
        names = ("joint_pos_rad", "joint_vel_rad_s", "quat_base_to_world_wxyz", "ang_vel_base_in_base_rad_s")
        names = (*names, "lin_vel_base_in_base_m_s", "command", "last_action", "time_s")
        row |= {name: getattr(signals, name) for name in names}
        row |= {f"around/{name}": values for name, values in signals.surroundings.given().items()}
        for name, values in row.items():
            rows.setdefault(name, []).append(values)
        action = decoder.clip(row["action"])
    return {name: np.concatenate(values) for name, values in rows.items()}


def _drawn_signals(
    contract: PolicyContract, last_action: np.ndarray, time_s: float, rng: np.random.Generator
) -> Signals:
    """A car beside a straight road with some objects around it, everything drawn at random."""
    drive = contract.body_as(DriveSpec)
    rest = rest_surroundings(drive)
    # In single precision from the beginning, so that a replay finds the same heading.
    x, y, yaw = (rng.uniform(-50.0, 50.0, 3) * (1.0, 1.0, 0.02)).astype(np.float32).tolist()
    points = (x, y - 0.5) + (np.arange(60.0)[:, None] - 10.0) * (math.cos(yaw), math.sin(yaw))
    ones = np.ones((1, 60))
    objects = rng.uniform(-1.0, 1.0, (1, drive.max_objects + 1, 7)) * (20.0, 20.0, math.pi, 8.0, 1.0, 1.0, 1.0)
    objects += (x, y, 0.0, 0.0, 4.0, 2.0, 0.5)
    scan = None if drive.lidar is None else rng.uniform(0.0, drive.lidar.range_max_m, (1, drive.lidar.beams))
    around = replace(
        rest,
        route_points_in_world_m=points[None],
        route_speed_limit_m_s=8.0 * ones,
        route_left_m=1.75 * ones,
        route_right_m=1.5 * ones,
        objects=objects,
        scan_ranges_m=scan,
        goal_pose=np.array([[x + 3.0, y - 2.0, yaw + 1.0]]),
        **({} if drive.bev is None else _drawn_map(x, y, objects.shape[1], rng)),
    )
    numbers = {
        "joint_pos_rad": rng.uniform(-0.3, 0.3, (1, 2)),
        "joint_vel_rad_s": rng.uniform(-0.3, 0.3, (1, 2)),
        "ang_vel_base_in_base_rad_s": rng.normal(0.0, 0.1, (1, 3)),
        "lin_vel_base_in_base_m_s": rng.uniform(0.0, 8.0, (1, 3)) * (1.0, 0.0, 0.0),
        "command": np.zeros((1, 0)),
        "last_action": last_action,
        "time_s": [time_s],
        "pose_in_world": [[x, y, yaw]],
    }
    rows: dict[str, Any] = {name: np.asarray(values, np.float32) for name, values in numbers.items()}
    seen: dict[str, Any] = {name: np.asarray(values, np.float32) for name, values in around.given().items()}
    if "road_cells" in seen:
        seen["road_cells"] = seen["road_cells"].astype(np.uint8)
    signals = Signals(quat_base_to_world_wxyz=np.array([[math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]]), **rows)
    signals.surroundings = Surroundings(**seen)
    return signals


def _drawn_map(x: float, y: float, objects: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Kinds of objects, and cells of a metre around the car that hold anything."""
    return {
        "object_kinds": rng.integers(0, 3, (1, objects)),
        "road_cells": rng.integers(0, 4, (1, 80, 80)),
        "road_place": np.array([[math.floor(x) - 40.0, math.floor(y) - 40.0, 1.0]]),
    }


def curved_route(radius_m: float, speed_m_s: float, straight_m: float = 20.0, turn_rad: float = math.pi) -> Route:
    """From the origin along x, then to the left on a circle; points half a metre apart, lanes 1.75 m to both sides."""
    before = np.arange(-20, 2 * straight_m) * 0.5
    angle = np.arange(0.0, turn_rad, 0.5 / radius_m)
    curve = np.stack((straight_m + radius_m * np.sin(angle), radius_m * (1.0 - np.cos(angle))), axis=-1)
    points = np.concatenate((np.stack((before, np.zeros_like(before)), axis=-1), curve))
    ones = np.ones(len(points))
    return Route(points, speed_m_s * ones, 1.75 * ones, 1.75 * ones)


class MockCar(MockRobot):
    """A kinematic bicycle on flat ground, in lock-step: steering and speed follow their set-points at the car's limits.

    Args:
        spec: The car.
        pose: x, y in m and yaw in rad of the rear axle's middle.
        speed_m_s: At the start.
    """

    def __init__(
        self, spec: RobotSpec, pose: tuple[float, float, float] = (0.0, 0.0, 0.0), speed_m_s: float = 0.0
    ) -> None:
        self.car = spec.body_as(CarSpec)
        self._begin = (*pose, speed_m_s)
        super().__init__(spec)

    def reset(self) -> None:
        """Back to the pose and speed of the start; no command is active."""
        super().reset()
        *pose, self.speed_m_s = self._begin
        self.pose = np.array(pose)
        self.steering_rad, self._travel_m = 0.0, 0.0
        self._told: JointCommand | None = None

    def write(self, command: JointCommand) -> JointCommand:
        """Take a command; the car follows it while time passes."""
        self._told = super().write(command)
        return self._told

    def sleep_until(self, time_s: float) -> None:
        """Let time pass."""
        steps = max(0, math.ceil((time_s - self._time_s) / PHYSICS_DT_S - 1e-6))
        for _ in range(steps):
            self._step((time_s - self._time_s) / steps)
        super().sleep_until(time_s)

    def _step(self, dt_s: float) -> None:
        if self._told is not None:
            car, told = self.car, self._told
            turn = car.steering_rate_limit_rad_s * dt_s
            self.steering_rad += float(np.clip(told.pos_rad[STEERING] - self.steering_rad, -turn, turn))
            faster = abs(told.vel_rad_s[DRIVE]) > abs(self.speed_m_s)
            push = (car.accel_limit_m_s2 if faster else car.brake_limit_m_s2) * dt_s
            self.speed_m_s += float(np.clip(told.vel_rad_s[DRIVE] - self.speed_m_s, -push, push))
        x, y, yaw = self.pose
        yaw += 0.5 * dt_s * self._yaw_rate()
        ahead = self.speed_m_s * dt_s
        self.pose = np.array(
            (x + ahead * math.cos(yaw), y + ahead * math.sin(yaw), yaw + 0.5 * dt_s * self._yaw_rate())
        )
        self._travel_m += ahead

    def _yaw_rate(self) -> float:
        return self.speed_m_s * math.tan(self.steering_rad) / self.car.wheelbase_m

    def _state(self) -> RobotState:
        x, y, yaw = self.pose
        state = RobotState(
            stamp_s=self.now_s(),
            joint_pos_rad=np.array([self.steering_rad, self._travel_m]),
            joint_vel_rad_s=np.array([0.0, self.speed_m_s]),
            joint_effort_nm=np.zeros(2),
            quat_base_to_world_wxyz=np.array([math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]),
            ang_vel_base_in_base_rad_s=np.array([0.0, 0.0, self._yaw_rate()]),
            lin_acc_base_in_base_m_s2=np.array([0.0, 0.0, GRAVITY_M_S2]),
            pos_base_in_world_m=np.array([x, y, 0.0]),
            lin_vel_base_in_base_m_s=np.array([self.speed_m_s, 0.0, 0.0]),
        )
        return replace(state, **self._overrides) if self._overrides else state


class MockEyes:
    """Tells a :class:`RoadView` of an empty road in every tick, until an input is lost.

    Args:
        view: What is told.
        robot: Whose clock counts.
    """

    def __init__(self, view: RoadView, robot: MockRobot) -> None:
        self._view, self._robot = view, robot
        self.lost: set[str] = set()
        """Inputs that have gone silent: ``objects``, ``scan``."""
        self.objects = np.zeros((0, 7))
        """Shape (K, 7), what there is."""
        self.scan = np.full(181, np.inf)
        """Shape (181,), a scan of half a turn ahead, degree by degree."""

    def __call__(self, time_s: float) -> None:
        """Look; a command source for ``run``, which asks before every tick."""
        now_s = self._robot.now_s()
        if "objects" not in self.lost:
            self._view.set_objects(self.objects, now_s)
        if "scan" not in self.lost:
            self._view.set_scan(self.scan, -0.5 * math.pi, math.radians(1.0), now_s)
