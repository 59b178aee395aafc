"""Position of a car on a polyline, and the route ahead along it (Array API standard, batched, no loop over cars)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from array_api_compat import device

from gantry_mapping.elevation.ops import namespace

Array = Any

_SHORT_M = 1e-6
"""A segment that is shorter is a repeated point."""
_FAR_M2 = 1e12


@dataclass(frozen=True)
class RouteView:
    """A car's place on its route: the nearest point of the polyline, and arrays to look ahead from there.

    N cars, P points of the route.
    """

    from_car_m: Array
    """Shape (N, P, 2), from the car to each point, along the world's axes; so large coordinates lose nothing."""
    along_m: Array
    """Shape (N, P), length of the polyline up to each point, in double precision: rounding would add up along it, in
    another way on every device."""
    here_m: Array
    """Shape (N,), the same of the nearest point."""
    lateral_m: Array
    """Shape (N,), how far the car is to the left of the route, negative to the right."""
    heading_error_rad: Array
    """Shape (N,), the car's heading minus the route's, in (-pi, pi]."""
    turn: tuple[Array, Array]
    """Cosine and sine of the car's yaw, each (N,)."""
    found: list[tuple[Array, tuple[Array, Array]]] = field(default_factory=list)
    """Distances that were looked up before and where they lie; several terms look at the same ones."""

    def points_in_car(self, ahead_m: Array) -> Array:
        """Points of the route ahead of the nearest one, in the car's frame.

        Args:
            ahead_m: Shape (1, L) or (N, L); beyond the ends of the polyline its ends count.

        Returns:
            Shape (N, L, 2), x ahead and y to the left of ``base_link``, m.
        """
        index, share = self._find(ahead_m)
        return to_car(self._between(self.from_car_m, index, share), *self.turn)

    def values(self, values: Array, ahead_m: Array) -> Array:
        """Values of the points, (N, P), at the same distances: (N, L), linear in between."""
        index, share = self._find(ahead_m)
        return self._between(values[..., None], index, share)[..., 0]

    def curvature(self, ahead_m: Array, reach_m: float) -> Array:
        """Signed curvature (N, L) at these distances, 1/m, positive to the left.

        That of the circle through the points at the distance and ``reach_m`` before and after it (Menger's): twice
        the sine of the turn between the two chords, over the length of the chord of both. 0 past the ends.
        """
        xp = namespace(self.along_m)
        count = ahead_m.shape[-1]
        # Along the world's axes: a turn of the frame changes nothing but the rounding, which at far places is much.
        sides = self._between(self.from_car_m, *self._find(xp.concat((ahead_m - reach_m, ahead_m + reach_m), axis=-1)))
        here = self._between(self.from_car_m, *self._find(ahead_m))
        before, after = sides[:, :count, :], sides[:, count:, :]
        a, b, c = here - before, after - here, after - before
        cross = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
        size = _norm(xp, a) * _norm(xp, b) * _norm(xp, c)
        ends = size <= _SHORT_M**3
        return xp.where(ends, xp.zeros_like(size), 2.0 * cross / xp.where(ends, xp.ones_like(size), size))

    def _find(self, ahead_m: Array) -> tuple[Array, Array]:
        """Segment (N, L) and place within it in [0, 1] of distances (1 or N, L) from here."""
        for distances, places in self.found:
            if distances is ahead_m:
                return places
        places = self._search(ahead_m)
        self.found.append((ahead_m, places))
        return places

    def _search(self, ahead_m: Array) -> tuple[Array, Array]:
        xp = namespace(self.along_m)
        wanted = self.here_m[:, None] + ahead_m
        count = self.along_m.shape[-1]
        passed = xp.count_nonzero(self.along_m[:, None, :] <= wanted[:, :, None], axis=-1)
        index = xp.clip(passed - 1, 0, count - 2)
        start, end = _pick(xp, self.along_m, index), _pick(xp, self.along_m, index + 1)
        length = end - start
        share = (wanted - start) / xp.where(length > _SHORT_M, length, xp.ones_like(length))
        return index, xp.astype(xp.clip(share, 0.0, 1.0), self.lateral_m.dtype)

    @staticmethod
    def _between(values: Array, index: Array, share: Array) -> Array:
        """Values (N, P, k) at places of segments, (N, L, k)."""
        xp = namespace(values)
        first, second = _pick(xp, values, index), _pick(xp, values, index + 1)
        return first + share[..., None] * (second - first)


def locate(points_in_world_m: Array, pose_in_world: Array) -> RouteView:
    """Project cars onto their routes, both in the world frame.

    Args:
        points_in_world_m: Shape (N, P, 2) with P >= 2; repeated points are passed over.
        pose_in_world: Shape (N, 3), x, y in m and yaw in rad.
    """
    xp = namespace(points_in_world_m)
    from_car = points_in_world_m - pose_in_world[:, None, :2]
    start, step = from_car[:, :-1, :], from_car[:, 1:, :] - from_car[:, :-1, :]
    length2 = xp.sum(step * step, axis=-1)
    real = length2 > _SHORT_M**2
    length = xp.sqrt(length2)
    share = -xp.sum(start * step, axis=-1) / xp.where(real, length2, xp.ones_like(length2))
    share = xp.clip(share, 0.0, 1.0)
    nearest = start + share[..., None] * step
    distance2 = xp.sum(nearest * nearest, axis=-1)
    # A repeated point has no direction; where the whole route is one point, any of them will do.
    index = xp.argmin(xp.where(real, distance2, xp.full_like(distance2, _FAR_M2)), axis=-1)[:, None]
    at, along = _pick(xp, start, index)[:, 0, :], _pick(xp, step, index)[:, 0, :]
    size = _pick(xp, length, index)
    tangent = along / xp.where(size > _SHORT_M, size, xp.ones_like(size))
    zeros = xp.zeros((length.shape[0], 1), dtype=xp.float64, device=device(length))
    travelled = xp.concat((zeros, xp.cumulative_sum(xp.astype(length, xp.float64), axis=-1)), axis=-1)
    here = _pick(xp, travelled, index) + _pick(xp, share, index) * size
    turn = xp.cos(pose_in_world[:, 2]), xp.sin(pose_in_world[:, 2])
    in_car = to_car(tangent[:, None, :], *turn)[:, 0, :]
    return RouteView(
        from_car_m=from_car,
        along_m=travelled,
        here_m=here[:, 0],
        # The car lies at the origin: minus ``at`` is from the segment's start to the car.
        lateral_m=at[:, 0] * tangent[:, 1] - at[:, 1] * tangent[:, 0],
        heading_error_rad=-xp.atan2(in_car[:, 1], in_car[:, 0]),
        turn=turn,
    )


@dataclass(frozen=True)
class OnRoute:
    """Places of points along routes, (N, K)."""

    ahead_m: Array
    """From the car's place on the route to the nearest point of the polyline."""
    lateral_m: Array
    """Distance from the polyline, positive to the left of it."""
    tangent: Array
    """Shape (N, K, 2), unit direction of the route there, along the world's axes."""


def along_route(route: RouteView, from_car_m: Array) -> OnRoute:
    """Project points (N, K, 2), told from the car along the world's axes, onto the cars' routes.

    Before its first point and behind its last one a route goes straight on: an object there is still in the way.
    """
    xp = namespace(from_car_m)
    start, step = route.from_car_m[:, :-1, :], route.from_car_m[:, 1:, :] - route.from_car_m[:, :-1, :]
    length2 = xp.sum(step * step, axis=-1)
    real = length2 > _SHORT_M**2
    safe = xp.where(real, length2, xp.ones_like(length2))
    gap = from_car_m[:, :, None, :] - start[:, None, :, :]
    beyond = xp.sum(gap * step[:, None, :, :], axis=-1) / safe[:, None, :]
    share = xp.clip(beyond, 0.0, 1.0)
    off = gap - share[..., None] * step[:, None, :, :]
    distance2 = xp.sum(off * off, axis=-1)
    index = xp.argmin(xp.where(real[:, None, :], distance2, xp.full_like(distance2, _FAR_M2)), axis=-1)
    rows, count, segments = distance2.shape
    one = xp.reshape(index, (rows * count, 1))
    raw = xp.reshape(_pick(xp, xp.reshape(beyond, (rows * count, segments)), one), (rows, count))
    number = xp.where(real, xp.arange(segments, dtype=index.dtype, device=device(index))[None, :], -1)
    last = xp.max(number, axis=-1)[:, None]
    first = xp.min(xp.where(real, number, segments), axis=-1)[:, None]
    taken = xp.where(index == last, raw, xp.clip(raw, None, 1.0))
    taken = xp.where(index == first, taken, xp.clip(taken, 0.0, None))
    tangent = _pick(xp, step / xp.sqrt(safe)[..., None], index)
    at = from_car_m - _pick(xp, start, index)
    side = tangent[..., 0] * at[..., 1] - tangent[..., 1] * at[..., 0]
    along = xp.sqrt(_pick(xp, safe, index)) * taken
    ahead = _pick(xp, route.along_m[:, :-1], index) + xp.astype(along, xp.float64) - route.here_m[:, None]
    rest = at - along[..., None] * tangent
    distance = xp.sqrt(xp.sum(rest * rest, axis=-1))
    return OnRoute(
        ahead_m=xp.astype(ahead, from_car_m.dtype),
        lateral_m=xp.where(side >= 0.0, distance, -distance),
        tangent=tangent,
    )


def to_car(vectors: Array, cos_yaw: Array, sin_yaw: Array) -> Array:
    """Vectors (N, L, 2) along the world's axes, in the frame of a car with that yaw (N,)."""
    xp = namespace(vectors)
    cos, sin = cos_yaw[:, None], sin_yaw[:, None]
    x, y = vectors[..., 0], vectors[..., 1]
    return xp.stack((cos * x + sin * y, cos * y - sin * x), axis=-1)


def pick_rows(values: Array, index: Array) -> Array:
    """``values[n, index[n, l]]`` of values (N, P) or (N, P, k) and indices (N, L): (N, L) or (N, L, k)."""
    return _pick(namespace(values), values, index)


def _pick(xp: Any, values: Array, index: Array) -> Array:
    rows, count = values.shape[0], values.shape[1]
    first = xp.arange(rows, dtype=index.dtype, device=device(index))[:, None] * count
    flat = xp.reshape(values, (rows * count, *values.shape[2:]))
    taken = xp.take(flat, xp.reshape(index + first, (-1,)), axis=0)
    return xp.reshape(taken, (*index.shape, *values.shape[2:]))


def _norm(xp: Any, vectors: Array) -> Array:
    return xp.sqrt(xp.sum(vectors * vectors, axis=-1))
