"""A walk to a goal read back from its recording, judged as an evaluation judges it; what the policy saw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.commands import goal_command
from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.contract.policy_contract import MapWindow, PolicyContract
from gantry_deploy.control.goals import Goal
from gantry_deploy.control.safety import Mode
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.metrics import goal_errors, goal_reached, has_fallen
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_deploy.recording.explained import MAPPING, ExplainedWindows, explained_windows
from gantry_deploy.recording.reader import Recording, read_recording
from gantry_deploy.recording.ros_messages import map_of_points
from gantry_deploy.report.attention import AttentionRollout, ReportFrame
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_hardware.spec import RobotSpec
from gantry_mapping.config import MappingCfg
from gantry_mapping.frames import yaw_of
from gantry_mapping.grid import GridSpec
from gantry_mapping.pipeline import MappingPipeline
from gantry_mapping.snapshot import cfg_of, load_snapshot
from gantry_policies.common.overview import overview_of
from gantry_sim.demo.measured import fault_that_ended
from gantry_sim.robots.actuated_scene import height_over_ground_m
from gantry_sim.viewing.attention import around_of, grid_of, ground_of, map_columns

FloatArray = NDArray[np.float64]

_NEEDED = ("/gantry/status", "/odom", "/joint_states", "/policy/observation", "/policy/action")


@dataclass(frozen=True)
class MeasuredGoalWalk:
    """The ticks under the policy; T of them, n joints, M maps."""

    spec: RobotSpec
    """The robot."""
    contract: PolicyContract
    """Of the policy, as recorded."""
    goal: Goal
    """Commanded goal."""
    time_s: FloatArray
    """Shape (T,), since the policy's first tick."""
    command: FloatArray
    """Shape (T, 4), the goal from where the robot was, :func:`gantry_deploy.actions.commands.goal_command`."""
    pos_base_in_world_m: FloatArray
    """Shape (T, 3)."""
    quat_base_to_world_wxyz: FloatArray
    """Shape (T, 4)."""
    joint_pos_rad: FloatArray
    """Shape (T, n)."""
    observation: NDArray[np.float32]
    """Shape (T, size), what the network was given."""
    action: NDArray[np.float32]
    """Shape (T, n), what it answered."""
    period_s: FloatArray
    """Shape (T - 1,), time between ticks."""
    busy_s: FloatArray
    """Shape (T,), time that a tick took: reading, the map, observing, inferring, judging, writing."""
    infer_s: FloatArray
    """Shape (T,), time inside the network."""
    map_time_s: FloatArray
    """Shape (M,), when a new map was first looked at, on the clock of ``time_s``."""
    map_points: FloatArray
    """Shape (M, S, S, 4), :data:`gantry_deploy.recording.ros_messages.MAP_FIELDS`."""
    fell: bool
    """Whether it fell."""
    fault: str
    """Fault that damped the robot out of the policy; empty if none did."""
    explained: ExplainedWindows | None = None
    """Map windows that the policy was shown, cut again out of the recording; None where that is not recorded."""

    @property
    def distance_m(self) -> float:
        """From the goal at the last tick."""
        return float(goal_errors(self.command[-1:])[0][0])

    @property
    def heading_error_rad(self) -> float:
        """At the last tick."""
        return float(goal_errors(self.command[-1:])[1][0])

    @property
    def crossed(self) -> bool:
        """Whether it stood at the goal, in its heading, at the last tick, without a fall or a fault before."""
        return bool(goal_reached(self.command[-1:])[0]) and not self.fell and not self.fault

    @property
    def arrived_s(self) -> float | None:
        """Since when it has been at the goal without a break, until the last tick; None if it is not there."""
        away = np.flatnonzero(~goal_reached(self.command))
        first = int(away[-1]) + 1 if len(away) else 0
        return None if first == len(self.time_s) else float(self.time_s[first])

    @property
    def map_rate_hz(self) -> float:
        """New maps per second under the policy, as it received them."""
        inside = self.map_time_s[(self.map_time_s >= 0.0) & (self.map_time_s <= self.time_s[-1])]
        return max(0, len(inside) - 1) / float(inside[-1] - inside[0]) if len(inside) > 1 else 0.0


def measure_goal_walk(path: Path, goal: Goal, scene: mujoco.MjModel) -> MeasuredGoalWalk:
    """Read and judge a recording of a walk to a goal.

    Args:
        path: The MCAP file.
        goal: Where the robot was sent.
        scene: The robot where it walked, with the ground that a fall is judged by.

    Raises:
        GantryError: If there is none, or the policy never ran in it, or its robot told no odometry.
    """
    recording = read_recording(path)
    contract, ticks = recording.contract, _ticks(recording)
    if contract is None or ticks.size < 2:
        raise GantryError(f"{path}: the policy never ran in this recording.")
    rows = {topic: np.searchsorted(recording[topic]["time_s"], ticks) for topic in _NEEDED}
    status, odom = recording["/gantry/status"], recording["/odom"]
    pos, quat = (odom[name][rows["/odom"]] for name in ("pos_base_in_world_m", "quat_base_to_world_wxyz"))
    maps = recording.topics.get("/elevation_map", {"time_s": np.zeros(0), "points": np.zeros((0, 1, 1, 4))})
    spec, in_status = robot_spec(recording.robot), rows["/gantry/status"]
    return MeasuredGoalWalk(
        spec=spec,
        contract=contract,
        goal=goal,
        time_s=ticks - ticks[0],
        command=_command(goal, pos, quat),
        pos_base_in_world_m=pos,
        quat_base_to_world_wxyz=quat,
        joint_pos_rad=recording["/joint_states"]["joint_pos_rad"][rows["/joint_states"]],
        observation=recording["/policy/observation"]["data"][rows["/policy/observation"]].astype(np.float32),
        action=recording["/policy/action"]["data"][rows["/policy/action"]].astype(np.float32),
        period_s=status["period_s"][in_status][1:],
        busy_s=status["busy_s"][in_status],
        infer_s=status["infer_s"][in_status],
        map_time_s=maps["time_s"] - ticks[0],
        map_points=maps["points"],
        fell=bool(has_fallen(quat, _heights(scene, pos, quat), spec.fall_height_m).any()),
        fault=fault_that_ended(status),
        explained=explained_windows(recording) if MAPPING in recording.info else None,
    )


def attention_of(
    found: MeasuredGoalWalk, bundle: Bundle, scene: mujoco.MjModel, title: str, fps: float, trouble: str = ""
) -> AttentionRollout:
    """Map input and attention of the policy, from its recording: nothing is simulated again.

    The map is the recorded one, what the policy was given is in its recorded observation, and attention is what the
    bundle's network answers to that observation.

    Args:
        found: The walk.
        bundle: Its policy.
        scene: The robot where it walked.
        title: For people.
        fps: Moments per second; a whole part of the policy's rate is taken.
        trouble: Why the walk ended early; empty if it did not.
    """
    window = found.contract.map_window
    if window is None:
        raise ContractError("The policy looks at no map.")
    ground, heights = ground_of(scene, found.goal)
    look = _Look(found, bundle, window, window.mapping or MappingCfg())
    every, last = max(1, round(found.contract.rate_hz / fps)), len(found.time_s) - 1
    return AttentionRollout(
        title=title,
        map_source="mapping node, " + ("learned" if bundle.mapper_bytes else "classical"),
        ground=ground,
        ground_in_world_m=heights,
        around=look.around,
        window=grid_of(window),
        nominal_base_height_m=window.nominal_base_height_m,
        prior_variance_m2=look.cfg.prior_variance_m2,
        goal_in_world=(found.goal.x_in_world_m, found.goal.y_in_world_m, found.goal.yaw_in_world_rad),
        moments=tuple(look.moment(row) for row in range(last % every, last + 1, every)),
        fps=found.contract.rate_hz / every,
        reached=found.crossed and not trouble,
        trouble=trouble,
    )


def rerun_difference(found: MeasuredGoalWalk, bundle: Bundle, every: int = 5) -> float:
    """Largest difference between the recorded actions and what the bundle's network answers to the recorded
    observations, at every so manieth tick."""
    network = OnnxPolicy(bundle.model_bytes, found.contract)
    rows = range(0, len(found.time_s), every)
    return max(float(np.abs(network(found.observation[row][None])[0] - found.action[row]).max()) for row in rows)


class _Look:
    """Moments of a recorded walk, in order."""

    def __init__(self, found: MeasuredGoalWalk, bundle: Bundle, window: MapWindow, cfg: MappingCfg) -> None:
        self.cfg = cfg
        self.around: GridSpec = around_of(grid_of(window))
        self._found, self._window = found, window
        self._columns, self._scale = map_columns(found.contract)
        self._network = OnnxPolicy(bundle.model_bytes, found.contract)
        self._overview = overview_of(bundle.model_bytes, window)
        self._loaded = -1
        self._pipeline: MappingPipeline | None = None

    def moment(self, row: int) -> ReportFrame:
        found, window = self._found, self._window
        pos, quat = found.pos_base_in_world_m[row], found.quat_base_to_world_wxyz[row]
        observation = found.observation[row][None]
        elevation, variance = self._map(float(found.time_s[row]), pos, quat)
        seen = observation[0, self._columns].reshape(window.rows, window.cols, len(window.channels)) / self._scale
        shown = self._network.with_attention(observation)[1][0] if self._network.has_attention else None
        return ReportFrame(
            time_s=float(found.time_s[row]),
            pos_base_in_world_m=pos,
            yaw_rad=float(yaw_of(quat[None])[0]),
            elevation_in_world_m=elevation,
            variance_m2=variance,
            seen=seen,
            attention=shown,
            overview=None if self._overview is None else self._overview(observation),
            command=found.command[row],
        )

    def _map(self, time_s: float, pos: FloatArray, quat: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Elevation in the world and variance around the robot, each (V, V), of the newest map of that time."""
        newest = int(np.searchsorted(self._found.map_time_s, time_s + 1e-6)) - 1
        if newest < 0:
            return np.full(self.around.shape, np.nan), np.full(self.around.shape, self.cfg.prior_variance_m2)
        if newest != self._loaded:
            snapshot = map_of_points(self._found.map_points[newest])
            if self._pipeline is None:
                cfg = cfg_of(self.cfg, snapshot)
                self._pipeline = MappingPipeline(cfg, None, np.zeros((1, 1)))
            load_snapshot(self._pipeline.map, snapshot)
            self._loaded = newest
        assert self._pipeline is not None
        elevation, variance = self._pipeline.map.query(self.around, pos[None], yaw_of(quat[None]))
        return np.asarray(elevation[0]), np.asarray(variance[0])


def _ticks(recording: Recording) -> FloatArray:
    """Times of the ticks under the policy that hold all that is needed."""
    status = recording.topics.get("/gantry/status")
    if status is None or any(topic not in recording.topics for topic in _NEEDED):
        return np.zeros(0)
    ticks = status["time_s"][status["mode"] == Mode.POLICY.value]
    for topic in _NEEDED:
        ticks = np.intersect1d(ticks, recording[topic]["time_s"])
    return ticks


def _command(goal: Goal, pos: FloatArray, quat: FloatArray) -> FloatArray:
    place = np.tile([goal.x_in_world_m, goal.y_in_world_m, 0.0], (len(pos), 1))
    return goal_command(place, np.full(len(pos), goal.yaw_in_world_rad), pos, quat)


def _heights(scene: mujoco.MjModel, pos: FloatArray, quat: FloatArray) -> FloatArray:
    """Height of each base (T, 3) over the ground that it walks on, (T,); -inf over nothing."""
    data = mujoco.MjData(scene)
    mujoco.mj_kinematics(scene, data)
    return np.array([height_over_ground_m(scene, data, *at) for at in zip(pos, quat, strict=True)])
