"""Measurement of a ride in a foreign simulator, in the numbers that our own episodes are scored by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from gantry_deploy.evaluation.drive_metrics import DriveEpisodes
from gantry_deploy.observations.route import locate
from gantry_deploy.perception.road import SEARCH_M, Route
from gantry_hardware.backends.state import RobotState
from gantry_hardware.model.cars import CarSpec
from gantry_mapping.sensing.frames import yaw_of
from gantry_sim.driving.comfort import Comfort, ComfortLimits
from gantry_sim.driving.plane import placed
from gantry_sim.driving.scenes.scene import MOVING_M_S

INFRACTIONS = ("pedestrian", "vehicle", "static", "blocked")
"""Kinds that a ride counts, of ``COEFFICIENTS``; foreign maps have no lights here."""
ENDS = ("finished", "off_road", "crashed", "blocked", "late", "fault")
"""Ends of a ride: the whole route driven, the road left, a collision, not moved for long, out of time, or the
runtime's own brakes."""
ALMOST = 1.0 - 1e-6
"""Completion of a ride that drove the whole way, but was not told so by its simulator."""


@dataclass(frozen=True)
class Ride:
    """One episode."""

    end: str
    """One of :data:`ENDS`."""
    completion: float
    """Share of the route that was driven, 1 where it was finished."""
    driven_m: float
    """Along the route."""
    duration_s: float
    """From when the policy took over."""
    infractions: Mapping[str, int]
    """Kind -> how often, of :data:`INFRACTIONS`."""
    off_route_share: float
    """Share of the time with a corner of the car beyond its lane."""
    lateral_rmse_m: float
    """Of ``base_link`` from the route."""
    discomfort_share: float
    """Share of the time outside the limits of comfort."""
    steering_reversals_per_s: float
    """Rate of steering reversals by more than :data:`REVERSAL_RAD`."""
    strict_completion: float
    """The same as ``completion`` if the ride had ended where the simulator's own, stricter rule was broken first."""
    text: str = ""
    """Remark on the end, for example the runtime's fault."""


REVERSAL_RAD = 0.02
"""A turn of the wheels back by less is no reversal."""


@dataclass
class Reversals:
    """Counts how often a signal turns round by more than a threshold."""

    threshold: float
    """See :data:`REVERSAL_RAD`."""
    count: int = 0
    """So far."""
    _extreme: float | None = None
    _rising: int = 0

    def __call__(self, value: float) -> None:
        """The signal now."""
        if self._extreme is None:
            self._extreme = value
        elif self._rising == 0:
            if abs(value - self._extreme) > self.threshold:
                self._rising, self._extreme = (1 if value > self._extreme else -1), value
        elif (value - self._extreme) * self._rising >= 0.0:
            self._extreme = value
        elif abs(value - self._extreme) > self.threshold:
            self._rising, self._extreme, self.count = -self._rising, value, self.count + 1


@dataclass
class _Sums:
    steps: int = 0
    lateral_sq_m2: float = 0.0
    off_route: int = 0
    discomfort: int = 0
    still: int = 0
    driven_m: float = 0.0
    strict_m: float | None = None
    reversals: Reversals = field(default_factory=lambda: Reversals(REVERSAL_RAD))


class RideMeter:
    """Follows one car along its route.

    Args:
        route: That it is to drive.
        car: Its box.
        state: At the start.
        finish_m: Place on the route, in m from its beginning, that ``base_link`` is to reach.
        dt_s: Time between two states.
    """

    def __init__(self, route: Route, car: CarSpec, state: RobotState, finish_m: float, dt_s: float) -> None:
        self._route, self._along, self._dt_s = route, route.along_m, dt_s
        front, back = car.center_x_in_base_m + 0.5 * car.length_m, car.center_x_in_base_m - 0.5 * car.length_m
        side = 0.5 * car.width_m
        self._corners = np.array([(0.0, 0.0), (front, side), (front, -side), (back, side), (back, -side)])
        self._comfort = Comfort(ComfortLimits(), 1, dt_s)
        self._sums = _Sums()
        self._place_m: float | None = None
        self._start_m = self._locate(state)[0]
        self._whole_m = max(1.0, finish_m - self._start_m)

    @property
    def arrived(self) -> bool:
        """Whether the car has been at the finish."""
        return self._sums.driven_m >= self._whole_m

    @property
    def still_s(self) -> float:
        """Time for which the car has not moved."""
        return self._sums.still * self._dt_s

    @property
    def duration_s(self) -> float:
        """Since the start."""
        return self._sums.steps * self._dt_s

    def __call__(self, state: RobotState, strict: bool = False) -> None:
        """A decision later.

        Args:
            state: Now.
            strict: Whether the simulator's own, stricter rule is broken.
        """
        sums = self._sums
        place_m, lateral_m, beyond_m = self._locate(state)
        assert state.lin_vel_base_in_base_m_s is not None
        accel = torch.tensor(state.lin_acc_base_in_base_m_s2[None, :2], dtype=torch.float32)
        yaw_rate = torch.tensor(state.ang_vel_base_in_base_rad_s[2:3], dtype=torch.float32)
        sums.steps += 1
        sums.driven_m = min(self._whole_m, max(sums.driven_m, place_m - self._start_m))
        sums.lateral_sq_m2 += lateral_m**2
        sums.off_route += beyond_m > 0.0
        sums.discomfort += bool(self._comfort(accel, yaw_rate).any())
        moves = abs(state.lin_vel_base_in_base_m_s[0]) > MOVING_M_S
        sums.still = 0 if moves else sums.still + 1
        sums.reversals(float(state.joint_pos_rad[0]))
        if strict and sums.strict_m is None:
            sums.strict_m = sums.driven_m

    def ride(self, end: str, infractions: Mapping[str, int], text: str = "") -> Ride:
        """Result of the ride.

        Args:
            end: One of :data:`ENDS`.
            infractions: Kind -> how often.
            text: What there is to say of the end.
        """
        sums = self._sums
        steps = max(1, sums.steps)
        share = 1.0 if end == "finished" else min(ALMOST, sums.driven_m / self._whole_m)
        return Ride(
            end=end,
            completion=share,
            driven_m=share * self._whole_m,
            duration_s=steps * self._dt_s,
            infractions={kind: int(infractions.get(kind, 0)) for kind in INFRACTIONS},
            off_route_share=sums.off_route / steps,
            lateral_rmse_m=math.sqrt(sums.lateral_sq_m2 / steps),
            discomfort_share=sums.discomfort / steps,
            steering_reversals_per_s=sums.reversals.count / (steps * self._dt_s),
            strict_completion=share if sums.strict_m is None else min(share, sums.strict_m / self._whole_m),
            text=text,
        )

    def _locate(self, state: RobotState) -> tuple[float, float, float]:
        """Place along the route and distance to its left of ``base_link``, and how far a corner is beyond the lane."""
        found = state.pose_in_world
        assert found is not None
        pos_m, yaw = found[0][:2], float(yaw_of(found[1][None])[0])
        corners = placed((*pos_m, yaw), self._corners)
        poses = np.concatenate((corners, np.full((len(corners), 1), yaw)), axis=1)
        part = self._window(pos_m)
        points = self._route.points_in_world_m[part]
        view = locate(np.broadcast_to(points, (len(poses), *points.shape)), poses)
        sides = self._route.left_m, self._route.right_m
        edges = [np.broadcast_to(side[part], (len(poses), len(points))) for side in sides]
        left, right = (view.values(side, np.zeros((len(poses), 1)))[:, 0] for side in edges)
        beyond = np.maximum(view.lateral_m - left, -view.lateral_m - right)[1:]
        self._place_m = float(self._along[part][0] + view.here_m[0])
        return self._place_m, float(view.lateral_m[0]), float(beyond.max())

    def _window(self, pos_m: NDArray[np.float64]) -> slice:
        """The part of the route around the last place, so that a route may cross itself."""
        if self._place_m is None:
            nearest = int(np.argmin(((self._route.points_in_world_m - pos_m) ** 2).sum(axis=1)))
            self._place_m = float(self._along[nearest])
        inside = np.flatnonzero(np.abs(self._along - self._place_m) <= SEARCH_M)
        return slice(max(0, inside[0] - 1), inside[-1] + 2)


def episodes_of(rides: Sequence[Ride]) -> DriveEpisodes:
    """Rides as what :func:`gantry_deploy.evaluation.drive_metrics.drive_scores` scores."""
    return DriveEpisodes(
        completion=np.array([ride.completion for ride in rides]),
        driven_m=np.array([ride.driven_m for ride in rides]),
        duration_s=np.array([ride.duration_s for ride in rides]),
        infractions={kind: np.array([ride.infractions[kind] for ride in rides], dtype=int) for kind in INFRACTIONS},
        off_route_share=np.array([ride.off_route_share for ride in rides]),
        lateral_rmse_m=np.array([ride.lateral_rmse_m for ride in rides]),
        discomfort_share=np.array([ride.discomfort_share for ride in rides]),
    )
