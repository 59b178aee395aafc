"""Parking lots: rows of slots beside an aisle, most of them taken, walls around, one free slot to reach."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gantry_hardware.errors import GantryError
from gantry_sim.driving.maps.curves import Pose
from gantry_sim.driving.maps.graph import FloatArray, table_digest


@dataclass(frozen=True)
class LotConfig:
    """Settings of parking lots; defaults are for cars of about 4.5 x 1.8 m."""

    slots: tuple[int, int] = (4, 8)
    """Fewest and most slots in a row; there is a row on each side of the aisle."""

    slot_length_m: float = 5.2
    """Depth of a slot where cars stand across the aisle, its length where they stand along it."""

    slot_width_m: tuple[float, float] = (2.5, 2.9)
    """Range of the other side of a slot."""

    aisle_m: tuple[float, float] = (6.5, 9.0)
    """Range of the aisle's width."""

    parallel_share: float = 0.3
    """Share of lots whose cars stand along the aisle."""

    taken_share: float = 0.75
    """Chance that a slot other than the goal is taken."""

    parallel_gap_m: float = 1.4
    """Added to the length of slots along the aisle, so that a car can get in."""

    car_m: tuple[float, float] = (4.5, 1.8)
    """Length and width of the cars that stand there."""


@dataclass(frozen=True)
class ParkingLot:
    """A lot, in the world frame."""

    seed: int
    """Seed of its generator."""

    goal: FloatArray
    """Shape (5,): centre x, y, yaw of the free slot (a car in it looks along yaw), its length and width, m and rad."""

    boxes: FloatArray
    """Shape (k, 5): centre x, y, yaw, length, width of the cars that stand there."""

    walls: FloatArray
    """Shape (4, 4): segments around, x, y of both ends."""

    start: FloatArray
    """Shape (5,): centre x, y, yaw, length and width of the aisle, in which a car may start."""

    @property
    def digest(self) -> str:
        """SHA-256 of everything, for reports."""
        return table_digest([self.goal, self.boxes, self.walls, self.start])


def parking_lot(seed: int, config: LotConfig | None = None) -> ParkingLot:
    """A random lot; the same seed and configuration give the same one. Splits as for maps.

    Raises:
        GantryError: The cars do not fit into the slots.
    """
    config = config or LotConfig()
    if config.car_m[0] > config.slot_length_m or config.car_m[1] > config.slot_width_m[0]:
        raise GantryError(
            f"Cars of {config.car_m} m do not fit slots of {config.slot_length_m} x {config.slot_width_m} m."
        )
    rng = np.random.default_rng([seed, 11])
    count = int(rng.integers(config.slots[0], config.slots[1] + 1))
    width, aisle = float(rng.uniform(*config.slot_width_m)), float(rng.uniform(*config.aisle_m))
    along = bool(rng.uniform() < config.parallel_share)
    pitch, depth = (config.slot_length_m + config.parallel_gap_m, width) if along else (width, config.slot_length_m)
    frame = Pose(0.0, 0.0, float(rng.uniform(-math.pi, math.pi)))
    places: list[tuple[float, float, float]] = []
    for side in (-1.0, 1.0):
        for index in range(count):
            yaw = (0.0 if side < 0 else math.pi) if along else side * 0.5 * math.pi
            places.append(((index + 0.5 - 0.5 * count) * pitch, side * 0.5 * (aisle + depth), yaw))
    goal = int(rng.integers(len(places)))
    boxes = [
        _box(frame, x + rng.uniform(-0.15, 0.15), y + rng.uniform(-0.15, 0.15), yaw + _nose(rng), *config.car_m)
        for index, (x, y, yaw) in enumerate(places)
        if index != goal and rng.uniform() < config.taken_share
    ]
    x, y, yaw = places[goal]
    end, top = 0.5 * count * pitch + 3.0, 0.5 * aisle + depth + 0.3
    corners = [frame.ahead(sx * end, sy * top) for sx, sy in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    walls = [(a.x, a.y, b.x, b.y) for a, b in zip(corners, corners[1:] + corners[:1], strict=True)]
    return ParkingLot(
        seed=seed,
        goal=_box(frame, x, y, yaw + _nose(rng) * (not along), pitch if along else depth, width),
        boxes=np.array(boxes).reshape(-1, 5),
        walls=np.array(walls),
        start=_box(frame, 0.0, 0.0, 0.0, 2 * (end - 3.0), aisle),
    )


def _nose(rng: np.random.Generator) -> float:
    """Nose in or tail in."""
    return math.pi * float(rng.integers(2))


def _box(frame: Pose, x: float, y: float, yaw: float, length: float, width: float) -> FloatArray:
    pose = frame.ahead(x, y, yaw)
    return np.array([pose.x, pose.y, math.remainder(pose.yaw, 2 * math.pi), length, width])
