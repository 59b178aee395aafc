"""Surroundings of a car at run time: their sources, their greatest age, and what is missing.

Routes, goals and places of objects are in the frame of the car's odometry (``RobotState.pose_in_world``).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gantry_deploy.contract.drive_spec import DriveSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.control.safety_config import age_text
from gantry_deploy.errors import ContractError, SurroundingsError
from gantry_deploy.observations.lidar_scan import GAP_RAD, ScanPooling, bridged
from gantry_deploy.observations.road import ROUTE_TERMS
from gantry_deploy.observations.route import locate
from gantry_deploy.observations.surroundings import OBJECT_FIELDS, STOP_GO, Surroundings
from gantry_hardware.backends.state import RobotState

FloatArray = NDArray[np.float64]

BEHIND_M = 6.0
"""Length of the route behind the car that is looked at, in training and here; before that it goes straight on."""
AHEAD_M = 63.0
"""Length of it ahead, likewise, at least where others are seen."""
MARGIN_M = 10.0
"""Length of it beyond the farthest lookahead distance."""
_HALF_STEP_M = 0.5
"""Of a route's points a metre apart."""
_AT_M = 1e-6
"""Distance along the route within which the car counts as at a point."""
SEARCH_M = 20.0
"""Distance along the route from its last place within which a car is looked for; a route that crosses itself does not
confuse it.
"""
INPUTS = ("route", "objects", "scan", "stop_line", "goal", "road")
"""Inputs of a car from other nodes."""
_BEV_NEEDS = {
    "road": ("road",),
    "markings": ("road",),
    "route": ("route",),
    "speed_limit": ("route",),
    "stop_line": ("route", "stop_line"),
    "vehicles": ("objects",),
    "pedestrians": ("objects",),
    "static": ("objects",),
}
REST_POINTS = 8
"""Points of the made-up route of :func:`rest_surroundings`."""


@dataclass(frozen=True)
class Route:
    """The way to go, P points about a metre apart."""

    points_in_world_m: FloatArray
    """Shape (P, 2), x, y; P >= 2."""
    speed_limit_m_s: FloatArray
    """Shape (P,)."""
    left_m: FloatArray
    """Shape (P,), from the line to the left edge of the lane."""
    right_m: FloatArray
    """Shape (P,), likewise to the right."""

    def __post_init__(self) -> None:
        points = np.asarray(self.points_in_world_m)
        if points.ndim != 2 or points.shape[1] != 2 or len(points) < 2:
            raise SurroundingsError(f"A route's points have shape {points.shape}, expected (P, 2) with P >= 2.")
        for name in ("points_in_world_m", "speed_limit_m_s", "left_m", "right_m"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            if len(values.shape) < 1 or len(values) != len(points):
                raise SurroundingsError(f"The route's {name} has shape {values.shape}, expected {len(points)} rows.")
            if not np.isfinite(values).all():
                raise SurroundingsError(f"The route's {name} is not finite.")
            object.__setattr__(self, name, values)
        if not self.along_m[-1] > 0.0:
            raise SurroundingsError(f"The route's {len(points)} points are all the same place; expected a line.")

    @property
    def along_m(self) -> FloatArray:
        """Shape (P,), length up to each point [m]."""
        steps = np.hypot(*np.diff(self.points_in_world_m, axis=0).T)
        return np.concatenate(((0.0,), np.cumsum(steps)))


class SurroundingsSource(Protocol):
    """Gives a control loop what a car's policy sees beside its own state."""

    def newest(self, state: RobotState, now_s: float, max_age_s: float) -> Surroundings:
        """The newest surroundings, arrays of one row, everything that the contract's terms need.

        Args:
            state: The newest reading.
            now_s: On the robot's clock.
            max_age_s: What changes by itself may be no older.

        Raises:
            SurroundingsError: Naming the input that has not come, is too old (with its age) or is not finite.
        """
        ...

    def missing(self, now_s: float, max_age_s: float) -> str | None:
        """Reason for which the policy cannot start yet, or None."""
        ...


_TERM_NEEDS = {
    "objects": "objects",
    "route_objects": "objects",
    "lead_object": "objects",
    "lidar": "scan",
    "stop_line": "stop_line",
    "goal_pose": "goal",
    "pose_in_goal": "goal",
}
"""Observation term -> the input that it is made of, beside the route."""


def needs(contract: PolicyContract) -> tuple[str, ...]:
    """Names out of :data:`INPUTS` that a policy needs."""
    terms = {term.name for term in contract.observations}
    wanted = {needed for term, needed in _TERM_NEEDS.items() if term in terms}
    wanted |= {"route"} if terms & set(ROUTE_TERMS) else set()
    if "bev" in terms and (layout := contract.body_as(DriveSpec).bev) is not None:
        wanted |= {needed for channel in layout.channels for needed in _BEV_NEEDS[channel]}
    return tuple(name for name in INPUTS if name in wanted)


def require_surroundings(contract: PolicyContract, source: SurroundingsSource | None) -> None:
    """Refuse a loop that cannot tell a policy what it sees.

    Raises:
        ContractError: With what the policy needs.
    """
    if source is None and (wanted := needs(contract)):
        raise ContractError(
            f"The policy sees {', '.join(wanted)}, and this control loop has no source of them; "
            "gantry_deploy.perception.road.RoadView takes them from perception."
        )


class RoadView:
    """The newest of everything that others perceive for a car; may be told from any thread.

    A route, a goal and a road map stay until others come. Objects, scan and stop line carry the time at which they were
    measured, on the robot's clock, and grow old.

    Args:
        contract: Of a car.
        scan_gap_rad: A hole in the scan up to this wide takes the nearer of its edges.

    Raises:
        ContractError: If it has none.
    """

    def __init__(self, contract: PolicyContract, scan_gap_rad: float = GAP_RAD) -> None:
        self._drive = contract.body_as(DriveSpec)
        self._needs = needs(contract)
        self._lock = threading.Lock()
        self._dated: dict[str, tuple[FloatArray, float]] = {}
        self._goal: FloatArray | None = None
        self._road: tuple[NDArray[np.uint8], FloatArray] | None = None
        self._route: Route | None = None
        self._along: FloatArray = np.zeros(0)
        self._place_m: float | None = None
        self._pooling: tuple[tuple[int, float, float], ScanPooling] | None = None
        self._scan_gap_rad, self._scan_text = scan_gap_rad, ""

    def set_route(self, route: Route) -> None:
        """The way to go from now on; the car is looked for on the whole of it once."""
        along = route.along_m
        with self._lock:
            self._route, self._along, self._place_m = route, along, None

    @property
    def left_m(self) -> float | None:
        """Remaining length of the route from the car's last place that the policy has seen; None before there is
        one.
        """
        with self._lock:
            return None if self._place_m is None else float(self._along[-1]) - self._place_m

    def set_goal(self, pose: ArrayLike) -> None:
        """Set the goal pose, x, y, yaw (3,), m and rad.

        Raises:
            SurroundingsError: If the shape is another one.
        """
        self._goal = _shaped("goal", pose, (3,))

    def set_road(self, cells: ArrayLike, corner_m: ArrayLike, cell_m: float) -> None:
        """A map of the road, (R, C) as in :attr:`Surroundings.road_cells`.

        Args:
            cells: See :func:`gantry_deploy.observations.surroundings.road_from_occupancy`.
            corner_m: Shape (2,), x and y of the outer corner of the first cell in the world.
            cell_m: Edge of a cell.

        Raises:
            SurroundingsError: If the map has no cells, or another shape, or a cell no size.
        """
        values = np.array(cells, dtype=np.uint8)
        if values.ndim != 2 or not values.size:
            raise SurroundingsError(f"The road map has shape {values.shape}, expected (R, C).")
        if not 0.0 < cell_m < np.inf:
            raise SurroundingsError(f"The road map's cells are {cell_m} m wide, expected more than 0.")
        values.setflags(write=False)
        place = _shaped("road map's corner and cell", (*np.ravel(corner_m), cell_m), (3,))
        if not np.isfinite(place).all():
            raise SurroundingsError(f"The road map's corner {place[:2].tolist()} is not finite.")
        self._road = values, place

    def set_objects(self, objects: ArrayLike, stamp_s: float, kinds: ArrayLike | None = None) -> None:
        """All objects, (K, 7) as in :class:`Surroundings`, or (0, 7) for none.

        Args:
            objects: Shape (K, 7).
            stamp_s: When they were measured.
            kinds: Shape (K,), as in :attr:`Surroundings.object_kinds`; vehicles if not given.

        Raises:
            SurroundingsError: If a shape is another one.
        """
        width = len(OBJECT_FIELDS)
        values = np.asarray(objects, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != width:
            raise SurroundingsError(f"Objects have shape {values.shape}, expected (K, {width}).")
        kind = (
            np.zeros((len(values), 1)) if kinds is None else _shaped("objects' kinds", kinds, (len(values),))[:, None]
        )
        free = np.zeros((max(0, self._drive.max_objects - len(values)), width + 1))
        # Side by side, so that no reader sees the objects of one moment with the kinds of another.
        self._note("objects", np.concatenate((np.concatenate((values, kind), axis=1), free)), stamp_s)

    def set_stop_line(self, distance_m: float, state: float, stamp_s: float) -> None:
        """The next stop line along the route, and its state; infinitely far for none."""
        far = self._drive.stop_line_range_m
        values = (far, STOP_GO) if distance_m == np.inf else (distance_m, state)
        self._note("stop_line", np.array(values), stamp_s)

    def set_scan(
        self, ranges_m: ArrayLike, angle_min_rad: float, angle_step_rad: float, stamp_s: float, told: str = ""
    ) -> None:
        """A scan (beams,) of whatever scanner covers the contract's angles.

        Args:
            ranges_m: Shape (beams,).
            angle_min_rad: Angle of the first beam, modulo a turn.
            angle_step_rad: From one beam to the next, negative for clockwise.
            stamp_s: When it was measured.
            told: What it held that was no reading, for the text if that is too much.

        Raises:
            ContractError: If the scanner does not cover the angles, or the policy sees no scan.
        """
        if self._drive.lidar is None:
            raise ContractError("The contract's drive has no lidar; a scan cannot be taken in.")
        ranges = np.asarray(ranges_m, dtype=np.float64)[None]
        layout = (ranges.shape[1], angle_min_rad, angle_step_rad)
        if self._pooling is None or self._pooling[0] != layout:
            self._pooling = (layout, ScanPooling(self._drive.lidar, *layout, ranges))
        found, widest_rad = bridged(self._drive.lidar, self._pooling[1](ranges)[0], self._scan_gap_rad)
        self._scan_text = (
            f"is not finite: it has no reading over {widest_rad:.2f} rad, and up to {self._scan_gap_rad:g} rad are "
            f"bridged (scan_gap_rad){'; ' if told else ''}{told}"
        )
        self._note("scan", found, stamp_s)

    def missing(self, now_s: float, max_age_s: float) -> str | None:
        """See :class:`SurroundingsSource`."""
        with self._lock:
            have = {"route": self._route, "goal": self._goal, "road": self._road, **self._dated}
        for name in self._needs:
            what = name.replace("_", " ")
            if have.get(name) is None:
                return f"no {what} received yet."
            if name not in self._dated:
                continue
            age_s = now_s - self._dated[name][1]
            verb = "are" if name == "objects" else "is"
            # What comes from the future is as wrong as what is old; NaN must not pass either.
            if not abs(age_s) <= max_age_s:
                return f"the {what} {verb} {age_text(age_s, 'surroundings_timeout_s', max_age_s)}."
            values = self._dated[name][0]
            if not np.isfinite(values).all():
                if name == "scan":
                    return f"the scan {self._scan_text}."
                count = int((~np.isfinite(values)).sum())
                return f"the {what} {verb} not finite: {count} of {values.size} numbers."
        if "goal" in self._needs and self._goal is not None and not np.isfinite(self._goal).all():
            return f"the goal {self._goal.tolist()} is not finite."
        return None

    def newest(self, state: RobotState, now_s: float, max_age_s: float) -> Surroundings:
        """See :class:`SurroundingsSource`."""
        lacking = self.missing(now_s, max_age_s)
        if lacking is not None:
            raise SurroundingsError(f"Surroundings: {lacking}")
        with self._lock:
            values = {name: self._dated[name][0][None] for name in self._needs if name in self._dated}
            window = self._window(state) if "route" in self._needs else {}
            road = self._road if "road" in self._needs else None
        width, seen = len(OBJECT_FIELDS), values.get("objects")
        if road is not None:
            window |= {"road_cells": road[0][None], "road_place": road[1][None]}
        if seen is not None and self._drive.bev is not None:
            window["object_kinds"] = seen[..., width]
        return Surroundings(
            objects=None if seen is None else seen[..., :width],
            scan_ranges_m=values.get("scan"),
            stop_line=values.get("stop_line"),
            goal_pose=None if self._goal is None else self._goal[None],
            **window,
        )

    def _note(self, name: str, values: FloatArray, stamp_s: float) -> None:
        values.setflags(write=False)
        with self._lock:
            self._dated[name] = (values, stamp_s)

    def _window(self, state: RobotState) -> dict[str, NDArray[Any]]:
        """The part of the route around the car, from its last place on it."""
        assert self._route is not None
        pose = state.pose_in_world
        if pose is None:
            raise SurroundingsError("Surroundings: the car does not know where it is (no finite odometry).")
        index = self._locate(pose[0][:2])
        farthest = max(self._drive.lookahead_m, default=0.0) + self._drive.curvature_reach_m + MARGIN_M
        if self._drive.bev is not None:
            farthest = max(farthest, self._drive.bev.reach_m)
        if "objects" in self._needs:
            farthest = max(farthest, AHEAD_M)  # The route's heading counts at an object's place.
        from_here_m = self._along - self._along[index]
        first = int(np.argmax(from_here_m >= -BEHIND_M - _HALF_STEP_M))
        beyond = np.flatnonzero(from_here_m > farthest)
        # One more at the end, so that what lies before a far point is there.
        part = slice(first, int(beyond[0]) + 1 if len(beyond) else None)
        return {
            "route_points_in_world_m": self._route.points_in_world_m[None, part],
            "route_speed_limit_m_s": self._route.speed_limit_m_s[None, part],
            "route_left_m": self._route.left_m[None, part],
            "route_right_m": self._route.right_m[None, part],
        }

    def _locate(self, place_m: FloatArray) -> int:
        """The segment (its first point) that the car is on, near its last one; notes how far along that is."""
        assert self._route is not None
        along, near = self._along, slice(0, None)
        if self._place_m is not None:
            first, last = np.searchsorted(along, (self._place_m - SEARCH_M, self._place_m + SEARCH_M)).tolist()
            near = slice(max(0, first - 1), last + 1)
        found = locate(self._route.points_in_world_m[None, near], np.array([[*place_m, 0.0]]))
        self._place_m = float(along[near.start]) + float(found.here_m[0])
        # At a point between two segments it is still the first one, as in training.
        index = int(np.searchsorted(along, self._place_m - _AT_M, side="right")) - 1
        return min(max(index, 0), len(along) - 2)


def rest_surroundings(drive: DriveSpec) -> Surroundings:
    """An empty straight road along x from the origin, for a first step before anything moves."""
    points = np.stack((np.arange(float(REST_POINTS)), np.zeros(REST_POINTS)), axis=-1)
    ones = np.ones((1, REST_POINTS))
    lidar = drive.lidar
    slots = max(1, drive.max_objects)
    more = {} if drive.bev is None else {"object_kinds": np.zeros((1, slots)), **_no_road()}
    return Surroundings(
        route_points_in_world_m=points[None],
        route_speed_limit_m_s=ones,
        route_left_m=ones,
        route_right_m=ones,
        objects=np.zeros((1, slots, len(OBJECT_FIELDS))),
        scan_ranges_m=None if lidar is None else np.full((1, lidar.beams), lidar.range_max_m),
        stop_line=np.array([[drive.stop_line_range_m, STOP_GO]]),
        goal_pose=np.zeros((1, 3)),
        **more,
    )


def _no_road() -> dict[str, NDArray[Any]]:
    return {"road_cells": np.zeros((1, 1, 1), np.uint8), "road_place": np.array([[0.0, 0.0, 1.0]])}


def _shaped(what: str, values: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    array = np.array(values, dtype=np.float64)
    if array.shape != shape:
        raise SurroundingsError(f"The {what} has shape {array.shape}, expected {shape}.")
    array.setflags(write=False)
    return array
