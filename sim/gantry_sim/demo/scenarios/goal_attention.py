"""Map input and attention of a policy that walks to goals, from the recording of its walk."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.contract.policy_contract import MapWindow
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_deploy.recording.ros_messages import map_of_points
from gantry_deploy.report.attention import AttentionRollout, ReportFrame
from gantry_mapping.config import MappingCfg
from gantry_mapping.elevation.snapshot import cfg_of, load_snapshot
from gantry_mapping.pipeline import MappingPipeline
from gantry_mapping.sensing.frames import yaw_of
from gantry_policies.common.overview import overview_of
from gantry_sim.demo.measured import MeasuredGoalWalk
from gantry_sim.viewing.attention import around_of, grid_of, ground_of, map_columns

FloatArray = NDArray[np.float64]


def attention_of(
    found: MeasuredGoalWalk, bundle: Bundle, scene: mujoco.MjModel, title: str, fps: float, trouble: str = ""
) -> AttentionRollout:
    """Map input and attention of the policy, from its recording: nothing is simulated again.

    The map is the recorded one, what the policy was given is in its recorded observation, and attention is what the
    bundle's network answers to that observation.

    Args:
        found: The walk.
        bundle: Its policy, which looks at a map.
        scene: The robot where it walked.
        title: For people.
        fps: Moments per second; a whole part of the policy's rate is taken.
        trouble: Why the walk ended early; empty if it did not.
    """
    window = found.contract.map_window
    assert window is not None
    ground, heights = ground_of(scene, found.goal)
    frames = _Frames(found, bundle, window)
    every, last = max(1, round(found.contract.rate_hz / fps)), len(found.time_s) - 1
    return AttentionRollout(
        title=title,
        map_source="mapping node, " + ("learned" if bundle.mapper_bytes else "classical"),
        ground=ground,
        ground_in_world_m=heights,
        around=frames.around,
        window=grid_of(window),
        nominal_base_height_m=window.nominal_base_height_m,
        prior_variance_m2=frames.cfg.prior_variance_m2,
        goal_in_world=(found.goal.x_in_world_m, found.goal.y_in_world_m, found.goal.yaw_in_world_rad),
        moments=tuple(frames.at(row) for row in range(last % every, last + 1, every)),
        fps=found.contract.rate_hz / every,
        reached=found.crossed and not trouble,
        trouble=trouble,
    )


class _Frames:
    """Frames of a recorded walk, in order."""

    def __init__(self, found: MeasuredGoalWalk, bundle: Bundle, window: MapWindow) -> None:
        self.cfg, self.around = window.mapping or MappingCfg(), around_of(grid_of(window))
        self._found, self._window = found, window
        self._columns, self._scale = map_columns(found.contract)
        self._network = OnnxPolicy(bundle.model_bytes, found.contract)
        self._overview = overview_of(bundle.model_bytes, window)
        self._loaded = -1
        self._pipeline: MappingPipeline | None = None

    def at(self, row: int) -> ReportFrame:
        found, window = self._found, self._window
        pos, quat = found.pos_base_in_world_m[row], found.quat_base_to_world_wxyz[row]
        observation = found.observation[row][None]
        elevation, variance = self._map(float(found.time_s[row]), pos, quat)
        seen = observation[0, self._columns].reshape(window.rows, window.cols, len(window.channels)) / self._scale
        return ReportFrame(
            time_s=float(found.time_s[row]),
            pos_base_in_world_m=pos,
            yaw_rad=float(yaw_of(quat[None])[0]),
            elevation_in_world_m=elevation,
            variance_m2=variance,
            seen=seen,
            attention=self._network.with_attention(observation)[1][0] if self._network.has_attention else None,
            overview=None if self._overview is None else self._overview(observation),
            command=found.command[row],
        )

    def _map(self, time_s: float, pos: FloatArray, quat: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Elevation in the world and variance around the robot, each (V, V), of the newest map of that time."""
        newest = int(np.searchsorted(self._found.map_time_s, time_s + 1e-6)) - 1
        if newest < 0:
            return np.full(self.around.shape, np.nan), np.full(self.around.shape, self.cfg.prior_variance_m2)
        if newest != self._loaded or self._pipeline is None:
            snapshot = map_of_points(self._found.map_points[newest])
            self._pipeline = self._pipeline or MappingPipeline(cfg_of(self.cfg, snapshot), None, np.zeros((1, 1)))
            load_snapshot(self._pipeline.map, snapshot)
            self._loaded = newest
        elevation, variance = self._pipeline.map.query(self.around, pos[None], yaw_of(quat[None]))
        return np.asarray(elevation[0]), np.asarray(variance[0])
