"""The elevation map of a policy that looks at one: from a robot's depth cameras, or from a map that another node sends.

Both ends share everything but where the map comes from: the contract's window is cut out by the code of
:mod:`gantry_mapping` at the pose of the tick, and one set of rules says what a policy sees of a map that got old.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import MapWindow, PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import ContractError
from gantry_deploy.repeated_log import Repeated
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import RobotState
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.capabilities import HasDepthCameras, HasElevationMap, capability
from gantry_mapping.config import MappingCfg
from gantry_mapping.elevation.grid import LOCAL_GRID_SMALL, GridSpec
from gantry_mapping.elevation.snapshot import MapSnapshot, cfg_of, load_snapshot
from gantry_mapping.live import LiveMapping, Outcome
from gantry_mapping.mapper import Mapper, OnnxMapper
from gantry_mapping.pipeline import VARIANCE_RANGE_M2, MappingPipeline

_LOG = logging.getLogger("gantry.perception")

FloatArray = NDArray[np.floating]

TERM = "elevation_map"
"""The observation that shows the map as it is."""
SCAN_TERM = "height_scan"
"""The one that shows how far below the base the map is."""
CHANNELS = ("elevation", "uncertainty")
"""Layers of a window that this runtime can make."""
NEWEST_EXTENT_M = 5.0
"""Edge length of the part of an own map that is handed out; a mapping node has it as a parameter."""
UNSEEN_UNCERTAINTY = 0.5 * math.log(VARIANCE_RANGE_M2[1]) + 0.5
"""The uncertainty channel of a cell of which nothing is known."""


@dataclass(frozen=True)
class DepthFrame:
    """An image of one depth camera, and where the robot took itself to be when it was taken."""

    stamp_s: float
    """Capture time, on the robot's clock."""
    depth_m: FloatArray
    """Shape (height, width), along the optical axis; zero, NaN and Inf mean no measurement."""
    pos_base_in_world_m: NDArray[np.float64]
    """Shape (3,)."""
    quat_base_to_world_wxyz: NDArray[np.float64]
    """Shape (4,)."""
    camera: int = 0
    """Index of the robot's camera that took it."""


@dataclass(frozen=True)
class MapLimits:
    """Limits of a map's age."""

    stale_s: float = 0.5
    """A map without a new frame for longer is shown to the policy as unseen ground."""
    lost_s: float = 2.0
    """After this long, the policy is asked to stay where it is."""


@dataclass(frozen=True)
class MapLook:
    """Map window that a policy was shown in one tick."""

    age_s: float
    """Time since the newest frame in the map became known; infinite before the first."""
    blind: str = ""
    """Reason for which it was shown unseen ground instead; empty if it saw the map."""


class MapSource(Protocol):
    """Gives a control loop the contract's window."""

    @property
    def look(self) -> MapLook | None:
        """The last window; None before the first, and of a source whose map has no age."""
        ...

    def update(self, now_s: float) -> None:
        """Take in what has come; called every tick, and never fails."""
        ...

    def window(self, state: RobotState, now_s: float) -> FloatArray:
        """Map window for the policy from a state, shape (rows, cols, channels)."""
        ...

    def lost(self, now_s: float) -> bool:
        """Whether the map is too old to walk by."""
        ...

    def newest(self) -> MapSnapshot | None:
        """The map around the robot for recordings; the same object until a number in it changes by a new message or
        frame. New ground has another stamp, too: a map that is sent again may merely have become less sure."""
        ...

    def statistics(self) -> dict[str, object]:
        """Plain values for diagnostics."""
        ...


def needs_map(contract: PolicyContract) -> bool:
    """Whether the policy looks at an elevation map, or its legs do."""
    kind = embodiment_of(contract).action_kind(contract.action.kind)
    return kind.needs_map(contract) or any(term.name in (TERM, SCAN_TERM) for term in contract.observations)


def make_map_source(
    contract: PolicyContract,
    robot: Robot,
    mapper_model: bytes | None = None,
    cfg: MappingCfg | None = None,
    limits: MapLimits | None = None,
) -> MapSource | None:
    """Make the map source of the policy on this robot; None for a policy that looks at none. Call it before connecting.

    Args:
        contract: The policy's.
        robot: With depth cameras, or with a map.
        mapper_model: The bundle's mapping network, ONNX; None maps classically.
        cfg: Setup of the mapping; if not given, that of the training, or else :func:`default_cfg`. The robot's cameras
            take the place of its cameras.
        limits: How old a map may be.

    Raises:
        ContractError: If the robot has neither, or if the contract asks for what this runtime cannot make.
        MappingError: If the network does not load, or was made for another local grid than the setup's.
    """
    if not needs_map(contract):
        return None
    seeing, mapped = require_map(contract, robot)
    limits = limits or MapLimits()
    trained = contract.map_window.mapping if contract.map_window else None
    if seeing is not None:
        mapper = None if mapper_model is None else OnnxMapper(mapper_model)
        cfg = replace(cfg or trained or default_cfg(mapper), cameras=seeing.depth_cameras)
        return OwnMap(contract, seeing, cfg, mapper, limits)
    assert mapped is not None
    mapped.follow_map()
    return ReceivedMap(contract, mapped, cfg or trained or MappingCfg(), limits)


def eyes_and_map(robot: object) -> tuple[HasDepthCameras | None, HasElevationMap | None]:
    """The robot as one with depth cameras that are switched on, and as one with a map; None where it has none."""
    seeing, mapped = capability(robot, HasDepthCameras), capability(robot, HasElevationMap)
    return seeing if seeing is not None and seeing.depth_cameras else None, mapped


def require_map(contract: PolicyContract, robot: object) -> tuple[HasDepthCameras | None, HasElevationMap | None]:
    """The robot as one with depth cameras and as one with a map, at least one of them; refuse a robot with neither.

    Raises:
        ContractError: With what the policy needs and what would give it.
    """
    seeing, mapped = eyes_and_map(robot)
    if seeing is not None or mapped is not None:
        return seeing, mapped
    what = describe_window(contract)
    raise ContractError(
        f"The policy looks at {what}, and this robot ({type(robot).__name__}) has neither a depth camera nor a map. "
        "A simulated robot has one with the option camera=true, any robot with --depth; over ROS 2, mapping_node sends "
        "the map."
    )


def require_source(contract: PolicyContract, source: MapSource | None) -> None:
    """Refuse a loop without a map for a policy that looks at one.

    Raises:
        ContractError: With what the policy needs.
    """
    if source is None and needs_map(contract):
        raise ContractError(
            f"The policy looks at {describe_window(contract)}, and this control loop has no source of one; "
            "gantry_deploy.perception.maps.make_map_source makes it from a robot's cameras."
        )


def describe_window(contract: PolicyContract) -> str:
    """A contract's window, for people."""
    window = contract.map_window
    if window is None:
        raise ContractError(f"The observation '{TERM}' needs a map window in the contract; it has none.")
    size = f"{window.rows} x {window.cols} cells of {window.resolution_m:g} m"
    return f"an elevation map ({size}, {' and '.join(window.channels)})"


def default_cfg(mapper: OnnxMapper | None) -> MappingCfg:
    """Default mapping settings: as AME-2 does with a network, with a Kalman filter per cell without one."""
    if mapper is None:
        return MappingCfg(local_grid=LOCAL_GRID_SMALL, map_resolution_m=LOCAL_GRID_SMALL.resolution_m, fusion="kalman")
    grid = mapper.info.local_grid
    return MappingCfg(local_grid=grid, map_resolution_m=grid.resolution_m, fusion="wta")


class WindowCutter:
    """Cuts the contract's window out of a map, and applies the rules for old ones.

    Args:
        contract: With a map window.
        limits: How old a map may be.

    Raises:
        ContractError: If there is no window.
        UnknownNameError: If it has a layer that this runtime cannot make.
    """

    def __init__(self, contract: PolicyContract, limits: MapLimits) -> None:
        if contract.map_window is None:
            raise ContractError(f"The observation '{TERM}' needs a map window in the contract; it has none.")
        window: MapWindow = contract.map_window
        for channel in window.channels:
            if channel not in CHANNELS:
                raise UnknownNameError("layer of an elevation map", channel, CHANNELS)
        self.limits = limits
        self.nominal_base_height_m = window.nominal_base_height_m
        """What flat ground is seen from."""
        self._grid = GridSpec(window.rows, window.cols, window.resolution_m, window.center_x_m, window.center_y_m)
        self._layers = [CHANNELS.index(channel) for channel in window.channels]
        self.unseen = np.zeros((*self._grid.shape, len(CHANNELS)))[..., self._layers]
        """Shape (rows, cols, channels): flat ground of which nothing is known."""
        for i, channel in enumerate(window.channels):
            self.unseen[..., i] = UNSEEN_UNCERTAINTY if channel == "uncertainty" else 0.0
        self.unseen.setflags(write=False)
        self.blind = 0
        """Windows that were unseen because the map was stale or the pose unknown."""
        self.look: MapLook | None = None
        """What the last window was."""

    def cut(self, pipeline: MappingPipeline | None, state: RobotState, age_s: float, why: str = "") -> FloatArray:
        """The window (rows, cols, channels) in the ``base_yaw`` frame of a map whose newest frame is ``age_s`` old.

        ``why`` says what keeps new frames away, where it is known.
        """
        pose = state.pose_in_world
        reason = "no map" if pipeline is None else "" if age_s <= self.limits.stale_s else "the map is too old"
        reason = f"{reason}: {why}" if reason and why else reason
        self.look = MapLook(age_s, reason or ("no pose" if pose is None else ""))
        if pipeline is None or pose is None or self.look.blind:
            self.blind += 1
            return self.unseen
        pos, quat = pose
        window = pipeline.window(self._grid, pos[None], quat[None])[0]
        return np.asarray(window)[..., self._layers]


class OwnMap:
    """A map made in this process from the robot's own depth cameras."""

    def __init__(
        self,
        contract: PolicyContract,
        robot: HasDepthCameras,
        cfg: MappingCfg,
        mapper: Mapper | None,
        limits: MapLimits,
    ) -> None:
        self._cutter = WindowCutter(contract, limits)
        self._robot = robot
        self._depth_trouble = getattr(robot, "depth_trouble", str)
        self._depth_statistics = getattr(robot, "depth_statistics", dict)
        cfg = replace(cfg, nominal_base_height_m=self._cutter.nominal_base_height_m)
        self.live = LiveMapping(cfg, mapper)
        """The pipeline and its counts."""
        self.cfg = cfg
        """How the map is made and looked at."""
        self._failures = 0
        self._trouble = Repeated(_LOG)
        self._newest: tuple[tuple[float, int], MapSnapshot | None] = ((-math.inf, 0), None)

    def update(self, now_s: float) -> None:
        """See :class:`MapSource`."""
        try:
            for frame in self._robot.read_depth():
                self.live.add_pose(frame.stamp_s, frame.pos_base_in_world_m, frame.quat_base_to_world_wxyz, now_s)
                self.live.add_depth(frame.stamp_s, frame.depth_m, frame.camera, now_s)
            self.live.pass_time(now_s)
        except GantryError as error:
            self._failures += 1
            self._trouble.error(f"The map took no frame: {error}")
        except Exception as error:  # A blind robot stops by its rules; one whose loop has died does not.
            self._failures += 1
            self._trouble.error(f"The map broke: {type(error).__name__}: {error}", trace=True)
        else:
            self._trouble.over()

    def window(self, state: RobotState, now_s: float) -> FloatArray:
        """See :class:`MapSource`."""
        return self._cutter.cut(self.live.pipeline, state, now_s - self.live.newest_frame_s, self._depth_trouble())

    @property
    def look(self) -> MapLook | None:
        """See :class:`MapSource`."""
        return self._cutter.look

    def lost(self, now_s: float) -> bool:
        """See :class:`MapSource`."""
        return not now_s - self.live.newest_frame_s <= self._cutter.limits.lost_s

    def newest(self) -> MapSnapshot | None:
        """See :class:`MapSource`."""
        # A frame of another camera may be older than the newest one.
        state = self.live.newest_frame_s, self.live.counts[Outcome.FUSED]
        if self._newest[0] != state:
            self._newest = (state, self.live.snapshot(NEWEST_EXTENT_M))
        return self._newest[1]

    def statistics(self) -> dict[str, object]:
        """See :class:`MapSource`."""
        counts = {f"depth frames: {outcome}": count for outcome, count in self.live.counts.items() if count}
        return {**counts, **self._depth_statistics(), "map failures": self._failures, "blind steps": self._cutter.blind}


class ReceivedMap:
    """A map made by another node, of which the newest cut-out is at hand.

    What comes is a part of the world-aligned map, not the finished window: that would be as old as the map, while the
    window has to be of the tick's own pose. So the policy's rate does not depend on the map's.
    """

    def __init__(self, contract: PolicyContract, robot: HasElevationMap, cfg: MappingCfg, limits: MapLimits) -> None:
        self._cutter = WindowCutter(contract, limits)
        self._robot = robot
        self.cfg = replace(cfg, cameras=(), nominal_base_height_m=self._cutter.nominal_base_height_m)
        """How the map is looked at."""
        self._trouble = Repeated(_LOG)
        self._read: MapSnapshot | None = None
        self._pipeline: MappingPipeline | None = None
        self._snapshot: MapSnapshot | None = None
        self._received_s = -math.inf
        self._maps = self._failures = 0

    def update(self, now_s: float) -> None:
        """See :class:`MapSource`."""
        newest = self._robot.read_map()
        if newest is None:
            return
        snapshot, self._received_s = newest
        if snapshot is self._read:
            return
        self._read = snapshot
        self._maps += 1
        if self._snapshot is not None and snapshot.is_same(self._snapshot):
            return  # Sent again: nothing in it is new.
        self._snapshot = snapshot
        try:
            if self._pipeline is None or self._pipeline.map.cells != snapshot.cells or self._resolution_changed():
                self._pipeline = MappingPipeline(cfg_of(self.cfg, snapshot), None, np.zeros((1, 1)))
            load_snapshot(self._pipeline.map, snapshot)
            self._trouble.over()
        except GantryError as error:
            self._pipeline = None
            self._failures += 1
            self._trouble.error(f"A map was not taken: {error}")

    def window(self, state: RobotState, now_s: float) -> FloatArray:
        """See :class:`MapSource`."""
        return self._cutter.cut(self._pipeline, state, now_s - self._received_s)

    @property
    def look(self) -> MapLook | None:
        """See :class:`MapSource`."""
        return self._cutter.look

    def lost(self, now_s: float) -> bool:
        """See :class:`MapSource`."""
        return not now_s - self._received_s <= self._cutter.limits.lost_s

    def newest(self) -> MapSnapshot | None:
        """See :class:`MapSource`."""
        return self._snapshot

    def statistics(self) -> dict[str, object]:
        """See :class:`MapSource`."""
        return {"maps received": self._maps, "map failures": self._failures, "blind steps": self._cutter.blind}

    def _resolution_changed(self) -> bool:
        assert self._pipeline is not None
        assert self._snapshot is not None
        return self._pipeline.cfg.map_resolution_m != self._snapshot.resolution_m


def map_values(source: MapSource | None) -> dict[str, Any]:
    """The statistics of a source, none without one."""
    return {} if source is None else dict(source.statistics())
