"""Observation terms of a driving policy (Array API standard); N cars, all in the frame of ``base_link``.

The frame of a car lies in the middle of its rear axle, x ahead, y to the left.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_deploy.contract.drive_spec import STEERING, DriveSpec
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.bev import bev_raster
from gantry_deploy.observations.route import OnRoute, RouteView, along_route, locate, pick_rows, to_car
from gantry_deploy.observations.signals import Signals, TermConstants, TermInfo, given
from gantry_deploy.observations.surroundings import Surroundings
from gantry_mapping.elevation.ops import namespace

Array = Any

OBJECT_NUMBERS = 9
"""Numbers of one object in the observation, see :func:`objects`."""
ROUTE_OBJECT_NUMBERS = 4
"""Numbers of one object along the route, see :func:`route_objects`."""
_ASIDE_M, _SIDEWAYS_S, _HARDEST_M_S2 = 0.3, 1.5, 10.0


def speed(signals: Signals, constants: TermConstants) -> Array:
    """Speed along the car's axis, (N, 1), m/s, negative backwards."""
    return given(signals.lin_vel_base_in_base_m_s, "speed", "the car's velocity")[:, 0:1]


def steering_angle(signals: Signals, constants: TermConstants) -> Array:
    """Measured steering angle, (N, 1), rad, left positive."""
    return signals.joint_pos_rad[:, STEERING : STEERING + 1]


def yaw_rate(signals: Signals, constants: TermConstants) -> Array:
    """Turning rate, (N, 1), rad/s, left positive in the frame of ``base_link``."""
    return signals.ang_vel_base_in_base_rad_s[:, 2:3]


def route_points(signals: Signals, constants: TermConstants) -> Array:
    """The route at the L lookahead distances from the car's place on it, (N, 2 L): x, y of each in the car's frame."""
    places = _route(signals, "route_points").points_in_car(_lookahead(constants, "route_points"))
    return namespace(places).reshape(places, (places.shape[0], -1))


def route_error(signals: Signals, constants: TermConstants) -> Array:
    """Distance to the left of the route, m, and heading minus the route's, rad, in (-pi, pi], (N, 2)."""
    route = _route(signals, "route_error")
    return namespace(route.lateral_m).stack((route.lateral_m, route.heading_error_rad), axis=-1)


def route_curvature(signals: Signals, constants: TermConstants) -> Array:
    """The route's curvature at the lookahead distances, (N, L), 1/m, left positive."""
    ahead = _lookahead(constants, "route_curvature")
    return _route(signals, "route_curvature").curvature(ahead, _drive(constants).curvature_reach_m)


def route_speed_limits(signals: Signals, constants: TermConstants) -> Array:
    """Speed limits at the lookahead distances, (N, L), m/s."""
    limits = given(_around(signals).route_speed_limit_m_s, "route_speed_limits", "the route's speed limits")
    return _route(signals, "route_speed_limits").values(limits, _lookahead(constants, "route_speed_limits"))


def route_widths(signals: Signals, constants: TermConstants) -> Array:
    """From the route's line to the lane's left and right edges at the lookahead distances, (N, 2 L): all of the left
    ones, then the right ones, m."""
    route, ahead = _route(signals, "route_widths"), _lookahead(constants, "route_widths")
    sides = [route.values(values, ahead) for values in _edges(signals, "route_widths")]
    return namespace(sides[0]).concat(sides, axis=-1)


def lane_edges(signals: Signals, constants: TermConstants) -> Array:
    """From ``base_link`` to the lane's left and right edges, (N, 2), m, negative beyond them."""
    route = _route(signals, "lane_edges")
    xp = namespace(route.lateral_m)
    left, right = (route.values(v, xp.zeros_like(route.lateral_m[:, None])) for v in _edges(signals, "lane_edges"))
    return xp.concat((left - route.lateral_m[:, None], right + route.lateral_m[:, None]), axis=-1)


def stop_line(signals: Signals, constants: TermConstants) -> Array:
    """Distance along the route to the next stop line, m, no more than the contract's range, and its state: 0 for none
    or green, 0.5 yellow, 1 red, (N, 2)."""
    values = given(_around(signals).stop_line, "stop_line", "the next stop line")
    xp = namespace(values)
    farthest = _drive(constants).stop_line_range_m
    return xp.concat((xp.clip(values[:, 0:1], -farthest, farthest), values[:, 1:2]), axis=-1)


def objects(signals: Signals, constants: TermConstants) -> Array:
    """The nearest objects within the contract's range, nearest first, (N, 9 K); zeros where there are fewer.

    Each has x, y of its middle in the car's frame, m; sine and cosine of its yaw minus the car's; its velocity minus
    the car's along the car's axes, m/s; length and width, m; and 1.
    """
    seen, pose = _objects(signals, constants), _pose(signals, "objects")
    velocity = given(signals.lin_vel_base_in_base_m_s, "objects", "the car's velocity")
    xp = namespace(seen)
    place = to_car(seen[..., :2] - pose[:, None, :2], xp.cos(pose[:, 2]), xp.sin(pose[:, 2]))
    yaw = seen[..., 2] - pose[:, None, 2]
    sin, cos, along = xp.sin(yaw), xp.cos(yaw), seen[..., 3]
    numbers = (
        place[..., 0],
        place[..., 1],
        sin,
        cos,
        along * cos - velocity[:, None, 0],
        along * sin - velocity[:, None, 1],
        seen[..., 4],
        seen[..., 5],
        xp.ones_like(along),
    )
    return _table(seen, numbers)


def route_objects(signals: Signals, constants: TermConstants) -> Array:
    """Places of the same objects along the route, in the same order, (N, 4 K); zeros where there are fewer.

    Each has the way along the route from the car's place on it to the point nearest to the object's middle, m; how far
    to the left of the route that middle is, m; and its speed along the route and to the left of it, m/s. Beyond
    its ends the route that is told goes straight on.
    """
    seen, at = _on_route(signals, constants, "route_objects")
    return _table(seen, (at.ahead_m, at.lateral_m, *_along(seen, at)))


def lead_object(signals: Signals, constants: TermConstants) -> Array:
    """The first of the same objects that the car would meet on its route, (N, 4).

    From bumper to bumper along the route, m, the contract's range if there is none; 10 m over 1 m more than that, in
    which the last metre counts; the car's speed minus the object's along the route, m/s, 0 if there is none; and the
    braking that would just avoid it if it went on as it does, m/s^2, up to 10. An object is met if it is, or with its
    speed sideways will be within 1.5 s, in the strip that the car's width and 0.3 m on either side cover; a car leaves
    its route for no object, as in adaptive cruise control (ISO 15622).
    """
    seen, at = _on_route(signals, constants, "lead_object")
    drive = _drive(constants)
    velocity = given(signals.lin_vel_base_in_base_m_s, "lead_object", "the car's velocity")
    xp = namespace(seen)
    along, left = _along(seen, at)
    yaw, half = seen[..., 2], 0.5 * seen[..., 4:6]
    turn_cos = xp.abs(xp.cos(yaw) * at.tangent[..., 0] + xp.sin(yaw) * at.tangent[..., 1])
    turn_sin = xp.abs(xp.sin(yaw) * at.tangent[..., 0] - xp.cos(yaw) * at.tangent[..., 1])
    across = turn_sin * half[..., 0] + turn_cos * half[..., 1] + 0.5 * drive.width_m + _ASIDE_M
    soon = at.lateral_m + _SIDEWAYS_S * left
    low, high = xp.minimum(at.lateral_m, soon), xp.maximum(at.lateral_m, soon)
    beyond_nose = at.ahead_m - drive.center_x_in_base_m
    met = (seen[..., 6] > 0.5) & (beyond_nose > 0.0) & (low < across) & (high > -across)
    gap = beyond_nose - 0.5 * drive.length_m - turn_cos * half[..., 0] - turn_sin * half[..., 1]
    met = met & (gap < drive.object_range_m)
    gap = xp.where(met, xp.clip(gap, 0.0, None), xp.full_like(gap, drive.object_range_m))
    first = xp.argmin(gap, axis=-1)[:, None]
    gap_m, speed, there = (pick_rows(values, first)[:, 0] for values in (gap, along, xp.astype(met, gap.dtype)))
    # Not a product: what stands in a slot that is not taken may be no number.
    closing = xp.where(there > 0.5, velocity[:, 0] - speed, xp.zeros_like(speed))
    needed = xp.clip(closing, 0.0, 100.0) ** 2 / (2.0 * xp.clip(gap_m, 0.5, drive.object_range_m))
    return xp.stack((gap_m, 10.0 / (1.0 + gap_m), closing, xp.clip(needed, 0.0, _HARDEST_M_S2)), axis=-1)


def _on_route(signals: Signals, constants: TermConstants, term: str) -> tuple[Array, OnRoute]:
    """The nearest objects (N, K, 7) and where they are on the route."""
    if signals.objects_on_route is None:
        seen, pose = _objects(signals, constants), _pose(signals, term)
        signals.objects_on_route = seen, along_route(_route(signals, term), seen[..., :2] - pose[:, None, :2])
    return signals.objects_on_route


def _along(seen: Array, at: OnRoute) -> tuple[Array, Array]:
    """Speeds of objects along the route and to the left of it, (N, K) each, m/s."""
    xp = namespace(seen)
    tangent, speed, yaw = at.tangent, seen[..., 3], seen[..., 2]
    ahead = speed * (xp.cos(yaw) * tangent[..., 0] + xp.sin(yaw) * tangent[..., 1])
    return ahead, speed * (xp.sin(yaw) * tangent[..., 0] - xp.cos(yaw) * tangent[..., 1])


def _objects(signals: Signals, constants: TermConstants) -> Array:
    """The nearest objects within the contract's range, nearest first, (N, K, 7); with 0 as last number where there are
    fewer."""
    drive = _drive(constants)
    seen, pose = given(_around(signals).objects, "objects", "objects"), _pose(signals, "objects")
    xp = namespace(seen)
    rows, slots, count = seen.shape[0], seen.shape[1], drive.max_objects
    if slots < count:
        free = xp.zeros((rows, count - slots, seen.shape[2]), dtype=seen.dtype, device=device(seen))
        seen = xp.concat((seen, free), axis=1)
    place = to_car(seen[..., :2] - pose[:, None, :2], xp.cos(pose[:, 2]), xp.sin(pose[:, 2]))
    distance2 = xp.sum(place * place, axis=-1)
    taken = (seen[..., 6] > 0.5) & (distance2 <= drive.object_range_m**2)
    order = xp.argsort(xp.where(taken, distance2, xp.full_like(distance2, float("inf"))), axis=-1)[:, :count]
    marked = xp.concat((seen[..., :6], xp.astype(taken, seen.dtype)[..., None]), axis=-1)
    return pick_rows(marked, order)


def _table(seen: Array, numbers: tuple[Array, ...]) -> Array:
    """Numbers of each object, (N, K) each, as (N, len(numbers) K)."""
    xp = namespace(seen)
    table = xp.stack(numbers, axis=-1)
    # What stands in a slot that is not taken does not count, whatever it is.
    table = xp.where(seen[..., 6:7] > 0.5, table, xp.zeros_like(table))
    return xp.reshape(table, (table.shape[0], table.shape[1] * table.shape[2]))


def lidar(signals: Signals, constants: TermConstants) -> Array:
    """The scan as shares of the largest range, (N, beams), the nearest return of each beam's share of the angles.

    A scan of the same angles with a whole multiple of the contract's beams is pooled here; one of another layout must
    have gone through :class:`gantry_deploy.observations.lidar_scan.ScanPooling`.
    """
    layout = _drive(constants).lidar
    if layout is None:
        raise ContractError("The observation 'lidar' needs a lidar in the contract's drive; it has none.")
    scan = given(_around(signals).scan_ranges_m, "lidar", "a scan")
    xp = namespace(scan)
    rows, beams = scan.shape
    if beams % layout.beams:
        raise ContractError(f"The scan has {beams} beams, expected {layout.beams} or a whole multiple of it.")
    if beams != layout.beams:
        scan = xp.min(xp.reshape(scan, (rows, layout.beams, beams // layout.beams)), axis=-1)
    return xp.clip(scan, 0.0, layout.range_max_m) / layout.range_max_m


def bev(signals: Signals, constants: TermConstants) -> Array:
    """The surroundings from above, (N, channels * pixels * pixels), 0 to 255, channel by channel, row by row."""
    layout = _drive(constants).bev
    if layout is None:
        raise ContractError("The observation 'bev' needs a raster in the contract's drive; it has none.")
    pose = _pose(signals, "bev")
    raster = bev_raster(_around(signals), pose, layout)
    xp = namespace(raster)
    return xp.astype(xp.reshape(raster, (pose.shape[0], -1)), pose.dtype)


def goal_pose(signals: Signals, constants: TermConstants) -> Array:
    """Goal pose: x, y in the car's frame, m, sine and cosine of the goal's yaw minus the car's, (N, 4)."""
    goal, pose = given(_around(signals).goal_pose, "goal_pose", "a goal"), _pose(signals, "goal_pose")
    xp = namespace(goal)
    place = to_car((goal[:, :2] - pose[:, :2])[:, None, :], xp.cos(pose[:, 2]), xp.sin(pose[:, 2]))[:, 0, :]
    yaw = goal[:, 2:3] - pose[:, 2:3]
    return xp.concat((place, xp.sin(yaw), xp.cos(yaw)), axis=-1)


def pose_in_goal(signals: Signals, constants: TermConstants) -> Array:
    """The same in the goal's frame: x ahead of it, y to its left, m, and the car's yaw minus the goal's, rad, in
    (-pi, pi], (N, 3); 0, 0, 0 is there."""
    goal, pose = given(_around(signals).goal_pose, "pose_in_goal", "a goal"), _pose(signals, "pose_in_goal")
    xp = namespace(goal)
    place = to_car((pose[:, :2] - goal[:, :2])[:, None, :], xp.cos(goal[:, 2]), xp.sin(goal[:, 2]))[:, 0, :]
    yaw = pose[:, 2:3] - goal[:, 2:3]
    return xp.concat((place, xp.atan2(xp.sin(yaw), xp.cos(yaw))), axis=-1)


def _drive(constants: TermConstants) -> DriveSpec:
    return constants.contract.body_as(DriveSpec)


def _lookahead(constants: TermConstants, term: str) -> Array:
    ahead = _drive(constants).lookahead_m
    if not ahead:
        raise ContractError(f"The observation '{term}' needs lookahead distances in the contract; there are none.")
    return constants.row(ahead)


def _around(signals: Signals) -> Surroundings:
    return signals.surroundings if signals.surroundings is not None else Surroundings()


def _pose(signals: Signals, term: str) -> Array:
    return given(signals.pose_in_world, term, "the car's pose in the world")


def _route(signals: Signals, term: str) -> RouteView:
    if signals.route is None:
        points = given(_around(signals).route_points_in_world_m, term, "a route")
        signals.route = locate(points, _pose(signals, term))
    return signals.route


def _edges(signals: Signals, term: str) -> tuple[Array, Array]:
    around = _around(signals)
    return given(around.route_left_m, term, "the lane's edges"), given(around.route_right_m, term, "the lane's edges")


DRIVING_TERMS: dict[str, TermInfo] = {
    "speed": TermInfo(speed, "state/body/linear_velocity", "base", "m/s"),
    "steering_angle": TermInfo(steering_angle, "state/joint/position", "", "rad"),
    "yaw_rate": TermInfo(yaw_rate, "state/body/angular_velocity", "base", "rad/s"),
    "route_points": TermInfo(route_points, "", "base", "m"),
    "route_error": TermInfo(route_error, "", "route", "m, rad"),
    "route_curvature": TermInfo(route_curvature, "", "", "1/m"),
    "route_speed_limits": TermInfo(route_speed_limits, "", "", "m/s"),
    "route_widths": TermInfo(route_widths, "", "route", "m"),
    "lane_edges": TermInfo(lane_edges, "", "base", "m"),
    "stop_line": TermInfo(stop_line, "", "route", "m, 1"),
    "objects": TermInfo(objects, "", "base", "m, m, 1, 1, m/s, m/s, m, m, 1"),
    "route_objects": TermInfo(route_objects, "", "route", "m, m, m/s, m/s"),
    "lead_object": TermInfo(lead_object, "", "route", "m, 1, m/s, m/s^2"),
    "lidar": TermInfo(lidar, "", "scanner", ""),
    "goal_pose": TermInfo(goal_pose, "command/body/pose", "base", "m, m, 1, 1"),
    "pose_in_goal": TermInfo(pose_in_goal, "command/body/pose", "goal", "m, m, rad"),
    "bev": TermInfo(bev, "", "base", ""),
}
"""Every term of a car; :data:`gantry_deploy.observations.builder.TERMS` holds them beside the others."""

ROUTE_TERMS = (
    "route_points",
    "route_error",
    "route_curvature",
    "route_speed_limits",
    "route_widths",
    "lane_edges",
    "route_objects",
    "lead_object",
)
"""Terms that need a route."""


def term_sizes(drive: DriveSpec) -> dict[str, int]:
    """Number of values of each term under a contract's drive, for ``make_term``."""
    ahead = len(drive.lookahead_m)
    sizes = {"speed": 1, "steering_angle": 1, "yaw_rate": 1, "route_points": 2 * ahead, "route_error": 2}
    sizes |= {"route_curvature": ahead, "route_speed_limits": ahead, "route_widths": 2 * ahead, "lane_edges": 2}
    sizes |= {"objects": OBJECT_NUMBERS * drive.max_objects, "route_objects": ROUTE_OBJECT_NUMBERS * drive.max_objects}
    sizes |= {"lead_object": 4, "stop_line": 2, "goal_pose": 4, "pose_in_goal": 3, "last_action": 2}
    sizes["bev"] = 0 if drive.bev is None else drive.bev.size
    return {**sizes, "lidar": 0 if drive.lidar is None else drive.lidar.beams}
