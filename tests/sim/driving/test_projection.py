"""Where cars are on their lines, against brute force over whole polylines."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_sim.driving.maps.bank import line_bank, lot_bank
from gantry_sim.driving.maps.curves import Curve, Piece, Pose
from gantry_sim.driving.maps.generate import MapConfig, lane_map
from gantry_sim.driving.maps.graph import YAW
from gantry_sim.driving.maps.lines import Line
from gantry_sim.driving.maps.lots import parking_lot
from gantry_sim.driving.maps.projection import (
    corner_offsets,
    pose_at,
    progress,
    project,
    window,
)
from gantry_sim.driving.maps.routes import random_route
from gantry_sim.driving.maps.tracks import race_track
from gantry_sim.driving.sensors.boxes import corners


@functools.cache
def routes():
    maps = [lane_map(seed, MapConfig(min_route_m=200.0)) for seed in range(4)]
    return [random_route(found, np.random.default_rng(found.seed), 200.0) for found in maps]


def straight(length=20.0, left=1.5, right=1.5, limit=10.0):
    points = Curve(Pose(0.0, 0.0, 0.0), [Piece(length, 0.0, 0.0)]).parallel(0.0)
    rest = np.tile([left, right, limit, 0.0, left + 3.0, right], (len(points), 1))
    return Line(np.column_stack([points, rest]))


def nearest(polyline, point):
    """Arc length and signed offset of the nearest point of a polyline, one segment after the other."""
    best, s0 = (math.inf, 0.0, 0.0), 0.0
    for a, b in itertools.pairwise(polyline):
        length = math.dist(a, b)
        t = min(max(((point - a) @ (b - a)) / length**2, 0.0), 1.0)
        distance = math.dist(point, a + t * (b - a))
        side = (b - a)[0] * (point - a)[1] - (b - a)[1] * (point - a)[0]
        if distance < best[0]:
            best = distance, s0 + t * length, math.copysign(distance, side)
        s0 += length
    return best[1:]


def test_on_a_straight_line_everything_is_read_off_by_hand():
    bank = line_bank([straight()])
    line = torch.zeros(3, dtype=torch.long)
    position = torch.tensor([[3.3, 0.7], [-2.0, -1.0], [24.0, 2.0]])
    found = project(bank, line, torch.tensor([2, 0, 18]), position)
    # Both ends go on straight, so that a car may stand before the first point or roll past the last.
    torch.testing.assert_close(found.s_m, torch.tensor([3.3, -2.0, 24.0]), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.lateral_m, torch.tensor([0.7, -1.0, 2.0]), atol=1e-6, rtol=0)
    assert found.index.tolist() == [3, 0, 19]
    error = found.heading_error(torch.tensor([0.2, 2 * math.pi - 0.1, math.pi]))
    torch.testing.assert_close(error, torch.tensor([0.2, -0.1, -math.pi]), atol=1e-5, rtol=0)
    assert found.road_left_m[0] == 4.5
    assert found.speed_limit_m_s[0] == 10.0
    ends = window(bank, line, found.index, behind=2, count=6)
    assert ends.points[1, :, 0].tolist() == [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]
    assert ends.points[2, :, 0].tolist() == [17.0, 18.0, 19.0, 20.0, 20.0, 20.0]


def test_cars_that_follow_their_routes_are_projected_as_by_brute_force():
    bank, generator = line_bank(routes()), torch.Generator().manual_seed(0)
    line = torch.arange(16) % len(bank)
    s = torch.rand(16, generator=generator) * 20.0
    _, last = pose_at(bank, line, s)
    for _ in range(20):
        s = s + 3.0 * torch.rand(16, generator=generator)
        lateral = 4.0 * torch.rand(16, generator=generator) - 2.0
        pose, _ = pose_at(bank, line, s, lateral)
        found = project(bank, line, last, pose[:, :2])
        last = found.index
        for car in range(16):
            row = int(line[car])
            polyline = bank.table[row, : int(bank.count[row]), :2].double().numpy()
            by_hand = nearest(polyline, pose[car, :2].double().numpy())
            assert float(found.s_m[car]) == pytest.approx(by_hand[0], abs=0.05)
            assert float(found.lateral_m[car]) == pytest.approx(by_hand[1], abs=1e-3)
        # The way there and back: what was laid beside the line is found there again.
        torch.testing.assert_close(found.lateral_m, lateral, atol=0.03, rtol=0)
        torch.testing.assert_close(found.s_m, s, atol=0.25, rtol=0)
        assert found.heading_error(pose[:, 2]).abs().max() < 0.05


def test_on_a_closed_track_one_drives_over_the_start():
    track = race_track(0)
    bank = line_bank([track], spacing_m=0.5)
    length = float(bank.length_m[0])
    line = torch.zeros(1, dtype=torch.long)
    s = torch.tensor([length - 3.0])
    _, last = pose_at(bank, line, s)
    gained = 0.0
    before = s
    for step in range(1, 11):
        pose, _ = pose_at(bank, line, s + 0.6 * step, 0.2)
        found = project(bank, line, last, pose[:, :2])
        gained += float(progress(bank, line, before, found.s_m)[0])
        before, last = found.s_m, found.index
        assert float(found.lateral_m) == pytest.approx(0.2, abs=0.03)
    assert gained == pytest.approx(6.0, abs=0.1)
    assert float(before) == pytest.approx(3.0, abs=0.1)
    across = window(bank, line, torch.zeros(1, dtype=torch.long), behind=3, count=7).points[0]
    gaps = torch.linalg.vector_norm(across[1:] - across[:-1], dim=-1)
    torch.testing.assert_close(gaps, torch.full_like(gaps, float(bank.step_m[0])), atol=0.02, rtol=0)


def test_corners_tell_lane_from_pavement():
    bank = line_bank([straight()])
    box = torch.tensor([[10.0, 1.0, 0.0, 4.0, 2.0], [10.0, -1.0, 0.0, 4.0, 2.0]])
    lane, road = corner_offsets(bank, torch.zeros(2, dtype=torch.long), torch.tensor([10, 10]), corners(box))
    torch.testing.assert_close(lane[0], torch.tensor([0.5, 0.5, -1.5, -1.5]), atol=1e-5, rtol=0)
    torch.testing.assert_close(road.amax(1), torch.tensor([-1.5, 0.5]), atol=1e-5, rtol=0)


def test_banks_of_nothing_are_refused_and_lots_are_padded():
    with pytest.raises(GantryError, match="at least one line"):
        line_bank([])
    lots = [parking_lot(seed) for seed in range(5)]
    bank = lot_bank(lots)
    assert bank.taken.sum(1).tolist() == [len(lot.boxes) for lot in lots]
    np.testing.assert_allclose(bank.boxes[2, : len(lots[2].boxes)].numpy(), lots[2].boxes, atol=1e-5)


def test_heading_of_a_route_is_continuous_through_junctions():
    for route in routes():
        assert np.abs(np.diff(route.points[:, YAW])).max() < 0.5
