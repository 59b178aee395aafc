"""The laser scanner: a corridor by hand, brute force, and the two ways to cast against each other."""

import math

import numpy as np
import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_sim.driving.lidar import (
    LidarConfig,
    cast_boxes,
    cast_field,
    cast_segments,
    distance_field,
    finish,
    lookup,
    rays,
)
from gantry_sim.driving.maps.bank import line_bank
from gantry_sim.driving.maps.lines import borders
from gantry_sim.driving.maps.projection import pose_at
from gantry_sim.driving.maps.tracks import race_track

FOUR = LidarConfig(beams=4, angle_min_rad=0.0, angle_max_rad=1.5 * math.pi, mount_m=(0.5, 0.1), range_max_m=20.0)


def corridor():
    """Two metres wide along x, closed at x = 10, open behind."""
    return torch.tensor([[[-50.0, 1.0, 10.0, 1.0], [-50.0, -1.0, 10.0, -1.0], [10.0, -1.0, 10.0, 1.0]]])


def test_in_a_corridor_each_beam_is_known():
    pose = torch.tensor([[2.0, 0.2, 0.0]])
    origin, direction = rays(FOUR, pose)
    torch.testing.assert_close(origin, torch.tensor([[2.5, 0.3]]))
    found = finish(FOUR, cast_segments(origin, direction, corridor()))
    torch.testing.assert_close(found, torch.tensor([[7.5, 0.7, 20.0, 1.3]]), atol=1e-5, rtol=0)
    # Turned to the left by a quarter, beams and mount turn with the car.
    origin, direction = rays(FOUR, torch.tensor([[2.0, 0.2, math.pi / 2]]))
    torch.testing.assert_close(origin, torch.tensor([[1.9, 0.7]]), atol=1e-6, rtol=0)
    found = finish(FOUR, cast_segments(origin, direction, corridor()))
    torch.testing.assert_close(found, torch.tensor([[0.3, 20.0, 1.7, 8.1]]), atol=1e-5, rtol=0)
    gone = torch.zeros(1, 3, dtype=torch.bool)
    assert cast_segments(origin, direction, corridor(), gone).isinf().all()


def test_boxes_are_seen_from_outside_and_touched_from_inside():
    origin, direction = torch.tensor([[0.0, 0.0]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]])
    boxes = torch.tensor([[[5.0, 0.0, 0.0, 4.0, 2.0], [0.0, 6.0, math.pi / 2, 4.0, 2.0], [9.0, 0.0, 0.0, 1.0, 1.0]]])
    found = cast_boxes(origin, direction, boxes)
    assert found[0].tolist() == pytest.approx([3.0, 4.0, math.inf], abs=1e-5)
    taken = torch.tensor([[False, True, True]])
    assert cast_boxes(origin, direction, boxes, taken)[0].tolist() == pytest.approx([8.5, 4.0, math.inf], abs=1e-5)
    assert cast_boxes(torch.tensor([[5.0, 0.5]]), direction, boxes)[0].tolist() == [0.0, 0.0, 0.0]


def test_boxes_cast_as_their_four_sides_do():
    rng = np.random.default_rng(0)
    boxes = torch.tensor(
        np.column_stack([rng.uniform(-8, 8, (6, 2)), rng.uniform(-3, 3, 6), rng.uniform(1, 4, (6, 2))])
    )
    x, y, yaw, length, width = boxes.T
    sides = []
    for sx, sy, ex, ey in ((1, 1, -1, 1), (-1, 1, -1, -1), (-1, -1, 1, -1), (1, -1, 1, 1)):
        ends = [
            (
                x + 0.5 * (px * length * yaw.cos() - py * width * yaw.sin()),
                y + 0.5 * (px * length * yaw.sin() + py * width * yaw.cos()),
            )
            for px, py in ((sx, sy), (ex, ey))
        ]
        sides.append(torch.stack([*ends[0], *ends[1]], dim=-1))
    angle = torch.linspace(0, 6.28, 181, dtype=torch.float64)
    direction = torch.stack([angle.cos(), angle.sin()], dim=-1)[None]
    origin = torch.tensor([[0.0, 20.0]], dtype=torch.float64)
    by_sides = cast_segments(origin, direction, torch.cat(sides)[None])
    found = cast_boxes(origin, direction, boxes[None])
    assert torch.isfinite(found).sum() > 10
    torch.testing.assert_close(found, by_sides, atol=1e-4, rtol=0)


def test_marching_through_the_raster_agrees_with_exact_rays():
    tracks = [race_track(seed) for seed in (0, 3)]
    walls = [borders(track) for track in tracks]
    field = distance_field(walls, 0.1)
    bank = line_bank(tracks, spacing_m=None)
    line = torch.arange(24) % 2
    generator = torch.Generator().manual_seed(0)
    s = 40.0 * torch.rand(24, generator=generator)
    lateral = 1.2 * torch.rand(24, generator=generator) - 0.6
    pose, _ = pose_at(bank, line, s, lateral)
    config = LidarConfig(beams=54, mount_m=(0.1, 0.0))
    origin, direction = rays(config, pose)
    marched = cast_field(origin, direction, field, line, config.range_max_m)
    exact = torch.empty_like(marched)
    for track in range(2):
        mine = line == track
        segments = torch.tensor(walls[track], dtype=torch.float32).expand(int(mine.sum()), -1, -1)
        exact[mine] = cast_segments(origin[mine], direction[mine], segments)
    off = (marched - exact).abs()
    # A ray that all but touches a border may be held by it or pass, which no raster decides as a line does.
    assert off.median() < 0.004
    assert off.quantile(0.95) < 0.03
    assert (off > 0.15).float().mean() < 0.02
    assert exact.max() < config.range_max_m
    assert exact.min() > 0.0


def test_the_raster_holds_the_signed_distance():
    track = race_track(5)
    walls = borders(track)
    field = distance_field([walls], 0.1)
    rng = np.random.default_rng(1)
    low, high = track.points[:, :2].min(0), track.points[:, :2].max(0)
    points = rng.uniform(low, high, (400, 2))
    ends, way = walls[:, :2], walls[:, 2:] - walls[:, :2]
    gap = points[:, None] - ends
    t = np.clip((gap * way).sum(-1) / (way**2).sum(-1), 0, 1)
    distance = np.hypot(*np.moveaxis(gap - t[..., None] * way, -1, 0)).min(1)
    middle = np.hypot(*np.moveaxis(points[:, None] - track.points[:, :2], -1, 0)).min(1)
    expected = np.where(middle < track.points[0, 4], distance, -distance)
    found = lookup(field, torch.zeros(1, dtype=torch.long), torch.tensor(points[None], dtype=torch.float32))[0].numpy()
    # Far outside only the sign is kept.
    found, expected = np.maximum(found, -0.2), np.maximum(expected, -0.2)
    assert np.abs(found - expected).max() < 0.08
    assert np.abs(found - expected).mean() < 0.005
    assert (expected > 0).sum() > 30
    assert (expected < 0).sum() > 30


def test_noise_and_dropout_are_as_strong_as_asked_for():
    config = LidarConfig(noise_std_m=0.05, dropout=0.1)
    distance = torch.full((200, 108), 5.0)
    distance[:, :8] = torch.inf
    found = finish(config, distance, torch.Generator().manual_seed(0))
    lost = found[:, 8:] == config.range_max_m
    assert float(lost.float().mean()) == pytest.approx(0.1, abs=0.01)
    kept = found[:, 8:][~lost]
    assert float(kept.mean()) == pytest.approx(5.0, abs=0.002)
    assert float(kept.std()) == pytest.approx(0.05, abs=0.002)
    assert bool((found[:, :8] == config.range_max_m).all())
    with pytest.raises(GantryError, match="beams=0"):
        LidarConfig(beams=0)
    with pytest.raises(GantryError, match="dropout"):
        LidarConfig(dropout=1.5)
