"""A walk over terrain with a record of what the policy saw and where it looked, through the loop of a robot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.commands import goal_command
from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.contract.policy_contract import BODY_POSE, MapWindow, PolicyContract
from gantry_deploy.control.goals import Goal
from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import SafetyMachine
from gantry_deploy.control.supervised_run import WalkSession
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.metrics import goal_reached
from gantry_deploy.perception.maps import CHANNELS, TERM, MapLook, OwnMap, make_map_source
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording import explained
from gantry_deploy.report.attention import AttentionRollout, ReportFrame
from gantry_hardware.backends.state import RobotState
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_mapping.elevation.grid import GridSpec
from gantry_mapping.elevation.snapshot import MapSnapshot
from gantry_mapping.pipeline import MappingPipeline, window_channels
from gantry_mapping.sensing.frames import yaw_of
from gantry_policies.common.overview import overview_of
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.robots.terrain_names import terrain_name
from gantry_sim.terrains.rasters import rasterize
from gantry_sim.viewing.play import mujoco_robot

FloatArray = NDArray[np.floating]

MAP_CHOICES = ("camera", "truth")
"""Sources of a policy's map: the simulated depth camera, or the ground as it is."""
TRUE_VARIANCE_M2 = 0.0025
"""Of a map that is true (AME-2, App. B)."""
GROUND_RESOLUTION_M = 0.02
"""Cells of the ground as it is drawn, and looked up for a true map."""
AROUND_CELLS = 64
"""Along an edge of what is drawn around the robot, a square a little larger than the policy's window."""
AFTERWARDS_S = 1.5
"""Time for which a robot that has arrived is filmed standing there."""
_PRIOR_M2 = 10.0


@dataclass(frozen=True)
class AttentionRolloutCfg:
    """A walk to look at."""

    terrain: str = "t1"
    """A terrain by its name or the beginning of it; empty for a flat floor."""
    difficulty: float = 0.5
    """0 to 1; of a held-out test, which instance."""
    seconds: float = 16.0
    """Longest time under the policy."""
    fps: float = 10.0
    """Moments per second; a whole part of the policy's rate is taken."""
    goal: tuple[float, float, float] | None = None
    """x, y in m and yaw in rad, the start being the origin; None for the terrain's goal that is most ahead."""
    map_source: str | None = None
    """A name of :data:`MAP_CHOICES`; None for the camera if the policy is told how unsure a map is, else the truth."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further options of :class:`gantry_sim.backends.mujoco_robot.MujocoRobot`."""

    def __post_init__(self) -> None:
        if self.map_source not in (None, *MAP_CHOICES):
            raise UnknownNameError("source of a map", str(self.map_source), MAP_CHOICES)
        for name in ("seconds", "fps"):
            if not getattr(self, name) > 0.0:
                raise GantryError(f"'{name}' of the walk is {getattr(self, name)}, expected a number > 0.")


class _LooksAround(Protocol):
    def around(self, state: RobotState) -> tuple[FloatArray, FloatArray]:
        """Elevation in the world and variance around a robot, each (V, V)."""
        ...


class TrueMap:
    """A :class:`gantry_deploy.perception.maps.MapSource` that knows the ground, as teachers do in training.

    Args:
        contract: With a map window.
        ground: Cells, in the world.
        ground_in_world_m: Shape (rows, cols), their heights; not finite where there is nothing.
    """

    look: MapLook | None = None
    """None: the truth has no age."""

    def __init__(self, contract: PolicyContract, ground: GridSpec, ground_in_world_m: FloatArray) -> None:
        self._window = _window_of(contract)
        self._grid = grid_of(self._window)
        self._layers = [CHANNELS.index(channel) for channel in self._window.channels]
        self._ground, self._heights = ground, ground_in_world_m

    def update(self, now_s: float) -> None:
        """Nothing new can come."""

    def window(self, state: RobotState, now_s: float) -> FloatArray:
        """Map window for the policy from a state, shape (rows, cols, channels)."""
        pos, _ = _pose(state)
        elevation, variance = self._look(self._grid, state)
        channels = window_channels(elevation[None], variance[None], pos[None], self._window.nominal_base_height_m)
        return channels[0][..., self._layers]

    def lost(self, now_s: float) -> bool:
        """Never."""
        return False

    def newest(self) -> MapSnapshot | None:
        """None: it is a raster of the ground and never changes."""
        return None

    def statistics(self) -> dict[str, object]:
        """None."""
        return {}

    def around(self, state: RobotState) -> tuple[FloatArray, FloatArray]:
        """Elevation in the world and variance around the robot, each (V, V)."""
        return self._look(around_of(self._grid), state)

    def _look(self, grid: GridSpec, state: RobotState) -> tuple[FloatArray, FloatArray]:
        pos, quat = _pose(state)
        yaw = float(yaw_of(quat[None])[0])
        cos, sin = math.cos(yaw), math.sin(yaw)
        places = grid.cell_centers(np.zeros(1)) @ np.array([[cos, sin], [-sin, cos]]) + pos[:2]
        row, col, inside = self._ground.index_of(places)
        # Nothing below is as low as a map shows anything.
        height = np.where(inside, self._heights[row, col], -np.inf)
        return np.maximum(height, pos[2] - 10.0), np.where(np.isfinite(height), TRUE_VARIANCE_M2, _PRIOR_M2)


class _PipelineLook:
    def __init__(self, source: OwnMap, window: GridSpec) -> None:
        self._source, self._grid = source, around_of(window)

    def around(self, state: RobotState) -> tuple[FloatArray, FloatArray]:
        pos, quat = _pose(state)
        pipeline: MappingPipeline = self._source.live.pipeline
        elevation, variance = pipeline.map.query(self._grid, pos[None], yaw_of(quat[None]))
        return np.asarray(elevation[0]), np.asarray(variance[0])


@dataclass(frozen=True)
class _Row:
    time_s: float
    state: RobotState
    observation: NDArray[np.float32]
    elevation: FloatArray
    variance: FloatArray


class AttentionLog:
    """Notes every so many ticks under the policy what it saw, as a recorder of a :class:`Controller`.

    Args:
        look: Shows the map.
        every: Note the first tick under the policy, and every so manieth.
        goal: Where the robot is sent; the log tells when it has been there for a while.
    """

    def __init__(self, look: _LooksAround, every: int, goal: Goal) -> None:
        self.rows: list[_Row] = []
        """What was noted."""
        self.arrived_s: float | None = None
        """Since when the robot has been at its goal without a break, on the robot's clock."""
        self._look, self._every, self._goal, self._ticks = look, every, goal, 0

    def record(self, report: TickReport) -> None:
        """Take one report; one that the policy had no part in is left out."""
        if report.step is None or report.state is None:
            return
        command = self._goal.command(report.state)
        there = command is not None and bool(goal_reached(command[None])[0])
        self.arrived_s = (report.time_s if self.arrived_s is None else self.arrived_s) if there else None
        if self._ticks % self._every == 0:
            elevation, variance = (part.copy() for part in self._look.around(report.state))
            self.rows.append(_Row(report.time_s, report.state, report.step.observation.copy(), elevation, variance))
        self._ticks += 1

    def statistics(self) -> dict[str, int]:
        """Number of moments."""
        return {"written": len(self.rows), "dropped": 0}


def attention_rollout(bundle: Bundle, cfg: AttentionRolloutCfg) -> AttentionRollout:
    """Walk to a goal as fast as this machine can, and note what the policy saw and where it looked.

    Args:
        bundle: A policy that walks to goals and looks at a map, with attention.
        cfg: The walk.

    Raises:
        ContractError: If it is another kind of policy.
        PolicyError: If its network shows no attention.
        GantryError: If the walk cannot be made, or if the policy never ran.
    """
    contract = bundle.contract
    if contract.command.kind != BODY_POSE:
        raise ContractError(
            f"The policy follows '{contract.command.kind}'; attention can be shown of those that follow '{BODY_POSE}'."
        )
    window, spec = _window_of(contract), robot_spec(contract.robot)
    network = OnnxPolicy(bundle.model_bytes, contract)
    network.with_attention(np.zeros((1, contract.observation_size), np.float32))  # refuses a network that shows none
    chosen = cfg.map_source or ("camera" if "uncertainty" in window.channels else "truth")
    robot = _robot(spec, cfg, camera=chosen == "camera")
    goal = goal_ahead(robot.goals_in_world_m) if cfg.goal is None else Goal(*cfg.goal)
    ground, heights = ground_of(robot.model, goal)
    runner = PolicyRunner(bundle, spec)
    source: Any = (
        make_map_source(contract, robot, bundle.mapper_bytes)
        if chosen == "camera"
        else TrueMap(contract, ground, heights)
    )
    every = max(1, round(contract.rate_hz / cfg.fps))
    log = AttentionLog(_PipelineLook(source, grid_of(window)) if isinstance(source, OwnMap) else source, every, goal)
    controller = Controller(robot, runner, SafetyMachine(spec), log, map_source=source)
    walk = WalkSession(controller, None, cfg.seconds, lambda text: None)
    try:
        robot.connect()
        controller.set_goal(goal)
        walk.run()
    finally:
        robot.close()
    fault = controller.safety.fault
    trouble = "" if walk.completed else fault.text if fault is not None else "the policy stopped"
    names = {"camera": "depth camera", "truth": "the truth"}
    mapper = "" if chosen == "truth" else ", learned" if bundle.mapper_bytes else ", classical"
    return AttentionRollout(
        title=f"{spec.name.capitalize()} on {terrain_name(cfg.terrain) if cfg.terrain else 'a flat floor'}",
        map_source=names[chosen] + mapper,
        ground=ground,
        ground_in_world_m=heights,
        around=around_of(grid_of(window)),
        window=grid_of(window),
        nominal_base_height_m=window.nominal_base_height_m,
        prior_variance_m2=source.live.cfg.prior_variance_m2 if isinstance(source, OwnMap) else _PRIOR_M2,
        goal_in_world=(goal.x_in_world_m, goal.y_in_world_m, goal.yaw_in_world_rad),
        moments=_moments(log, bundle, network, goal),
        fps=contract.rate_hz / every,
        reached=not trouble and log.arrived_s is not None,
        trouble=trouble,
    )


def ground_of(model: mujoco.MjModel, goal: Goal) -> tuple[GridSpec, FloatArray]:
    """The ground between the start and a goal with room around it: cells in the world and their heights (rows, cols).

    Args:
        model: The scene, the start at its origin.
        goal: Where the robot goes.
    """
    places = np.array([[0.0, 0.0], [goal.x_in_world_m, goal.y_in_world_m]])
    room = np.array([1.5, 2.0])
    low, high = places.min(axis=0) - room, places.max(axis=0) + room
    raster = rasterize(model, (low[0], low[1]), (high[0], high[1]), GROUND_RESOLUTION_M)
    rows, cols = raster.mapped_m.shape
    middle = np.array(raster.corner_m) + 0.5 * GROUND_RESOLUTION_M * np.array([rows, cols])
    return GridSpec(rows, cols, GROUND_RESOLUTION_M, float(middle[0]), float(middle[1])), raster.mapped_m


def grid_of(window: MapWindow) -> GridSpec:
    """Cells of a contract's map window."""
    return GridSpec(window.rows, window.cols, window.resolution_m, window.center_x_m, window.center_y_m)


def around_of(window: GridSpec) -> GridSpec:
    """The square around a window that is drawn."""
    edge = 1.3 * max(window.rows, window.cols) * window.resolution_m
    return GridSpec(AROUND_CELLS, AROUND_CELLS, edge / AROUND_CELLS, window.center_x_m, window.center_y_m)


def _window_of(contract: PolicyContract) -> MapWindow:
    if contract.map_window is None:
        raise ContractError("The policy looks at no map, so there is no attention to show.")
    return contract.map_window


def _robot(spec: Any, cfg: AttentionRolloutCfg, *, camera: bool) -> MujocoRobot:
    given = {"visuals": False, "terrain": cfg.terrain, "terrain_difficulty": cfg.difficulty, "camera": camera}
    return mujoco_robot(spec, given | cfg.options)


def goal_ahead(places_in_world_m: FloatArray) -> Goal:
    """The goal that is most ahead of the start, of those of a terrain (goals, 3), m; three metres ahead for none."""
    if not len(places_in_world_m):
        return Goal(3.0, 0.0, 0.0)
    bearing = np.abs(np.arctan2(places_in_world_m[:, 1], places_in_world_m[:, 0]))
    x, y, _ = places_in_world_m[bearing.argmin()].tolist()
    return Goal(x, y, 0.0)


def _moments(log: AttentionLog, bundle: Bundle, network: OnnxPolicy, goal: Goal) -> tuple[ReportFrame, ...]:
    window = _window_of(bundle.contract)
    columns, scale = map_columns(bundle.contract)
    overview = overview_of(bundle.model_bytes, window)
    rows: Sequence[_Row] = log.rows
    if log.arrived_s is not None:
        rows = [row for row in rows if row.time_s <= log.arrived_s + AFTERWARDS_S]
    moments = []
    for row in rows:
        pos, quat = _pose(row.state)
        place = np.array([[goal.x_in_world_m, goal.y_in_world_m, 0.0]])
        moments.append(
            ReportFrame(
                time_s=row.time_s - rows[0].time_s,
                pos_base_in_world_m=pos,
                yaw_rad=float(yaw_of(quat[None])[0]),
                elevation_in_world_m=row.elevation,
                variance_m2=row.variance,
                seen=row.observation[columns].reshape(window.rows, window.cols, len(window.channels)) / scale,
                attention=network.with_attention(row.observation[None])[1][0],
                overview=None if overview is None else overview(row.observation[None]),
                command=goal_command(place, np.array([goal.yaw_in_world_rad]), pos[None], quat[None])[0],
            )
        )
    return tuple(moments)


def map_columns(contract: PolicyContract) -> tuple[slice, float]:
    """Columns of the newest map window in an observation, and the scale of its numbers.

    Raises:
        ContractError: If there is none.
    """
    found = explained.map_columns(contract)
    if found is None:
        raise ContractError(f"The policy has no observation '{TERM}', so there is no attention to show.")
    return found


def _pose(state: RobotState) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    pose = state.pose_in_world
    if pose is None:
        raise GantryError("The robot does not tell where it is.")
    return pose
