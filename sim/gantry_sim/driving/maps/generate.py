"""Random lane maps: blocks attached to open ends until the map is as large as asked for, the same for the same seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.driving.maps.builder import Discs, MapBuilder, Socket, discs_along, joined
from gantry_sim.driving.maps.curves import Curve, Piece, Pose, bend
from gantry_sim.driving.maps.graph import LaneMap
from gantry_sim.driving.maps.junctions import (
    Arm,
    add_crossing,
    add_roundabout,
    bend_limit_m_s,
    far_end,
    near_arm,
    open_arm,
    ring_entry,
)
from gantry_sim.driving.maps.routes import find_path

BLOCKS = ("straight", "arc", "s", "t", "x", "roundabout")
"""Kinds of block."""

SPLIT_SEEDS = {"train": (0, 1_000_000), "validation": (1_000_000, 2_000_000), "test": (2_000_000, 3_000_000)}
"""Seeds of each split: from the first up to, not including, the second."""

_TRIES = 12
_STUB_M = 25.0


@dataclass(frozen=True)
class MapConfig:
    """Settings of generated maps."""

    blocks: Mapping[str, float] = field(
        default_factory=lambda: {"straight": 1.0, "arc": 2.0, "s": 1.0, "t": 1.0, "x": 1.0, "roundabout": 1.0}
    )
    """Weights with which each kind of block is drawn."""

    count: tuple[int, int] = (4, 7)
    """Fewest and most blocks after the first road."""

    lanes: tuple[int, ...] = (1, 1, 2)
    """Lanes per direction, one of these for the whole map."""

    side_lanes: tuple[int, ...] = (1,)
    """Lanes per direction of roads that cross at T and X junctions, at most as many as the map's."""

    lane_width_m: tuple[float, float] = (3.2, 3.8)
    """Range of the lanes' width."""

    limits_m_s: tuple[float, ...] = (8.33, 11.11, 13.89, 16.67)
    """Speed limits of roads; 30, 40, 50 and 60 km/h. Bends lower them to 2.5 m/s^2 of lateral acceleration."""

    junction_limit_m_s: float = 8.33
    """Speed limit inside junctions; bends lower it to 2 m/s^2 of lateral acceleration."""

    bend_radius_m: tuple[float, float] = (18.0, 80.0)
    """Range of the tightest radius of bends."""

    straight_m: tuple[float, float] = (30.0, 100.0)
    """Range of the length of straight roads."""

    min_route_m: float = 0.0
    """Maps on which no route is this long are drawn again."""

    def __post_init__(self) -> None:
        for name in self.blocks:
            if name not in BLOCKS:
                raise UnknownNameError("block", name, BLOCKS)
        if sum(self.blocks.values()) <= 0.0 or min(self.blocks.values()) < 0.0:
            raise GantryError(f"Weights of blocks must be >= 0 and not all 0, not {dict(self.blocks)}.")


def split_seeds(split: str, count: int, first: int = 0) -> range:
    """Seeds ``first`` to ``first + count`` of a split; splits share none.

    Raises:
        UnknownNameError: No such split.
        GantryError: The split has fewer seeds.
    """
    if split not in SPLIT_SEEDS:
        raise UnknownNameError("split of the maps", split, SPLIT_SEEDS)
    begin, end = SPLIT_SEEDS[split]
    if first < 0 or count < 0 or begin + first + count > end:
        raise GantryError(f"Split '{split}' has {end - begin} seeds, not {first} to {first + count}.")
    return range(begin + first, begin + first + count)


def lane_map(seed: int, config: MapConfig | None = None) -> LaneMap:
    """A random map, always the same for the same seed and configuration.

    A block that would overlap what exists is drawn again, and a map with too few blocks or too short routes is started
    anew.

    Raises:
        GantryError: Forty maps were too small.
    """
    config = config or MapConfig()
    for attempt in range(40):
        rng = np.random.default_rng([seed, attempt])
        found = _attempt(rng, config, seed)
        if found is not None and find_path(found, rng, config.min_route_m)[2] >= config.min_route_m:
            return found
    raise GantryError(
        f"No map of {config.count[0]} blocks without overlap and with a route of {config.min_route_m} m for seed "
        f"{seed}; try other numbers or sizes of blocks, or shorter routes."
    )


def _attempt(rng: Generator, config: MapConfig, seed: int) -> LaneMap | None:
    builder = MapBuilder(float(rng.uniform(*config.lane_width_m)))
    lanes = int(rng.choice(config.lanes))
    start = Pose(0.0, 0.0, float(rng.uniform(-math.pi, math.pi)))
    curve = Curve(start, [Piece(float(rng.uniform(*config.straight_m)), 0.0, 0.0)])
    block = builder.claim(discs_along(curve, lanes * builder.lane_width_m))
    limit = float(rng.choice(config.limits_m_s))
    end = builder.add_road(curve, lanes, limit, None, block)
    back = Socket(start.reversed(), end.leaving, end.arriving, block)
    sockets, placed = [back, end], 0
    names = list(config.blocks)
    weights = np.array([config.blocks[name] for name in names])
    wanted = int(rng.integers(config.count[0], config.count[1] + 1))
    for _ in range(_TRIES * wanted):
        if placed == wanted or not sockets:
            break
        # The youngest ends are taken more often, so that maps grow long rather than bushy.
        choice = len(sockets) - 1 - int(len(sockets) * float(rng.uniform()) ** 2)
        name = str(rng.choice(names, p=weights / weights.sum()))
        grown = _grow(builder, rng, config, sockets[choice], name)
        if grown is not None:
            sockets[choice : choice + 1] = grown
            placed += 1
    return builder.finish(seed) if placed >= config.count[0] else None


def _grow(builder: MapBuilder, rng: Generator, config: MapConfig, socket: Socket, name: str) -> list[Socket] | None:
    """Attach a block; returns its open ends, or None if there is no room."""
    if name in ("t", "x"):
        return _crossing(builder, rng, config, socket, name)
    if name == "roundabout":
        return _roundabout(builder, rng, config, socket)
    lanes = len(socket.arriving)
    curve = Curve(socket.pose, _road_pieces(rng, config, name))
    ground = discs_along(curve, lanes * builder.lane_width_m)
    if not builder.is_free(ground, socket.block):
        return None
    peak = max(abs(piece.end_curvature) for piece in curve.pieces)
    limit = min(float(rng.choice(config.limits_m_s)), bend_limit_m_s(peak, 2.5))
    return [builder.add_road(curve, lanes, limit, socket, builder.claim(ground))]


def _road_pieces(rng: Generator, config: MapConfig, name: str) -> list[Piece]:
    if name == "straight":
        return [Piece(float(rng.uniform(*config.straight_m)), 0.0, 0.0)]

    def one(degrees: tuple[float, float], side: float) -> tuple[Piece, ...]:
        radius, transition = float(rng.uniform(*config.bend_radius_m)), float(rng.uniform(0.25, 0.45))
        turn = math.radians(float(rng.uniform(*degrees)))
        return bend(side * turn, turn * radius / (1.0 - transition), transition)

    side = float(rng.choice([-1.0, 1.0]))
    if name == "arc":
        return [*one((30.0, 110.0), side)]
    return [*one((25.0, 70.0), side), Piece(float(rng.uniform(0.0, 20.0)), 0.0, 0.0), *one((25.0, 70.0), -side)]


def _junction_ground(builder: MapBuilder, centre: Pose, radius_m: float, poses: list[Pose], lanes: list[int]) -> Discs:
    # The middle touches the road it is attached to, and lies ahead of it; the other roads must keep clear of that one.
    disc = Discs(np.array([[centre.x, centre.y]]), np.array([radius_m]), np.array([0.0]))
    stubs = [
        discs_along(Curve(pose, [Piece(_STUB_M, 0.0, 0.0)]), count * builder.lane_width_m)
        for pose, count in zip(poses, lanes, strict=True)
    ]
    return joined([disc, *(Discs(stub.centres_m, stub.radii_m, stub.from_socket_m + math.inf) for stub in stubs)])


def _crossing(builder: MapBuilder, rng: Generator, config: MapConfig, socket: Socket, name: str) -> list[Socket] | None:
    main = len(socket.arriving)
    side = min(main, int(rng.choice(config.side_lanes)))
    skew = math.radians(float(rng.uniform(-12.0, 12.0)))
    right, ahead, left = (-0.5 * math.pi + skew, side), (0.0, main), (0.5 * math.pi + skew, side)
    plan = [right, ahead, left]
    if name == "t":
        missing = int(rng.integers(3))
        plan = [arm for place, arm in enumerate(plan) if place != missing]
        if missing == 1:  # From the stem of the T both others are one road.
            plan = [(angle, main) for angle, _ in plan]
    widest = max(main, *(count for _, count in plan))
    radius = widest * builder.lane_width_m * 1.35 + float(rng.uniform(6.0, 10.0))
    centre = socket.pose.ahead(radius)
    poses = [centre.ahead(0.0, 0.0, angle).ahead(radius) for angle, _ in plan]
    counts = [count for _, count in plan]
    ground = _junction_ground(builder, centre, radius, poses, counts)
    if not builder.is_free(ground, socket.block):
        return None
    block, limit = builder.claim(ground), float(rng.choice(config.limits_m_s))
    arms = [open_arm(builder, pose, count, _STUB_M, limit, block) for pose, count in zip(poses, counts, strict=True)]
    add_crossing(builder, [near_arm(socket), *arms], centre, radius, config.junction_limit_m_s)
    return [far_end(arm, _STUB_M, block) for arm in arms]


def _roundabout(builder: MapBuilder, rng: Generator, config: MapConfig, socket: Socket) -> list[Socket] | None:
    lanes, width = len(socket.arriving), builder.lane_width_m
    ring, tightest = float(rng.uniform(14.0, 20.0)), float(rng.uniform(11.0, 14.0))
    entries = [ring_entry(ring + i * width, (i + 0.5) * width, tightest) for i in range(lanes)]
    radius = max(entry.begin_m for entry in entries) + 1.0
    # Neighbouring arms must leave some ring between one's way in and the next one's way out.
    apart = 2.0 * max(entry.angle_rad for entry in entries) + 3.0 / ring
    others = int(rng.integers(2, 4))
    spare = 2.0 * math.pi - (others + 1) * apart
    if spare < 0.0:
        return None
    shares = rng.dirichlet(np.full(others + 1, 3.0))
    angles = np.cumsum(apart + spare * shares)[:-1] + math.pi  # Counter-clockwise from the arm it is attached to.
    centre = socket.pose.ahead(radius)
    poses = [centre.ahead(0.0, 0.0, float(angle)).ahead(radius) for angle in angles]
    ground = _junction_ground(builder, centre, radius, poses, [lanes] * others)
    if not builder.is_free(ground, socket.block):
        return None
    block, limit = builder.claim(ground), float(rng.choice(config.limits_m_s))
    arms: list[Arm] = [near_arm(socket)]
    arms += [open_arm(builder, pose, lanes, _STUB_M, limit, block) for pose in poses]
    add_roundabout(builder, arms, centre, radius, entries, config.junction_limit_m_s)
    return [far_end(arm, _STUB_M, block) for arm in arms[1:]]
