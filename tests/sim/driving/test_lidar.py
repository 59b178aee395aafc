"""The laser scanner: a corridor by hand, and boxes against their sides."""

import math

import numpy as np
import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_sim.driving.sensors.lidar import (
    LidarConfig,
    cast_boxes,
    cast_segments,
    finish,
    rays,
)

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
