"""Overlap and clearance of boxes, against clipping polygons."""

import math

import numpy as np
import torch

from gantry_sim.driving.sensors.boxes import clearance, corners, hits_segments, meets, overlap


def random_boxes(count, seed, spread=4.0):
    rng = np.random.default_rng(seed)
    return np.column_stack(
        [
            rng.uniform(-spread, spread, (count, 2)),
            rng.uniform(-7.0, 7.0, count),
            rng.uniform(0.5, 5.0, count),
            rng.uniform(0.3, 2.0, count),
        ]
    )


def polygon(box):
    x, y, yaw, length, width = box
    local = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * [0.5 * length, 0.5 * width]
    return local @ np.array([[math.cos(yaw), math.sin(yaw)], [-math.sin(yaw), math.cos(yaw)]]) + [x, y]


def clipped_area(one, two):
    """Area of what two convex polygons share: one is cut by each edge of the other (Sutherland and Hodgman)."""
    for a, b in zip(two, np.roll(two, -1, axis=0), strict=True):
        side = (b - a)[0] * (one - a)[:, 1] - (b - a)[1] * (one - a)[:, 0]
        kept = []
        for i in range(len(one)):
            j = (i + 1) % len(one)
            if side[i] >= 0:
                kept.append(one[i])
            if side[i] * side[j] < 0:
                kept.append(one[i] + side[i] / (side[i] - side[j]) * (one[j] - one[i]))
        if len(kept) < 3:
            return 0.0
        one = np.array(kept)
    x, y = one.T
    return 0.5 * abs(x @ np.roll(y, -1) - y @ np.roll(x, -1))


def outline(box, count=200):
    points, t = polygon(box), np.linspace(0.0, 1.0, count)[:, None]
    return np.concatenate([a + t * (b - a) for a, b in zip(points, np.roll(points, -1, axis=0), strict=True)])


def test_corners_go_round_from_the_front_left():
    found = corners(torch.tensor([1.0, 2.0, math.pi / 2, 4.0, 2.0]))
    torch.testing.assert_close(found, torch.tensor([[0.0, 4.0], [0.0, 0.0], [2.0, 0.0], [2.0, 4.0]]), atol=1e-6, rtol=0)


def test_overlap_agrees_with_clipped_polygons():
    one, many = random_boxes(60, 0), random_boxes(60 * 8, 1).reshape(60, 8, 5)
    hit = overlap(torch.tensor(one), torch.tensor(many))
    area = np.array([[clipped_area(polygon(a), polygon(b)) for b in row] for a, row in zip(one, many, strict=True)])
    clear = (area > 1e-6) | (area == 0.0)
    assert 0.1 < hit.float().mean() < 0.9
    np.testing.assert_array_equal(hit.numpy()[clear], (area > 0.0)[clear])


def test_clearance_is_the_distance_of_the_outlines_and_what_parts_boxes_that_overlap():
    one, many = random_boxes(12, 2), random_boxes(12 * 6, 3).reshape(12, 6, 5)
    found = clearance(torch.tensor(one), torch.tensor(many)).numpy()
    for i in range(12):
        for k in range(6):
            if found[i, k] > 0.0:
                gap = outline(one[i])[:, None] - outline(many[i, k])
                assert abs(np.hypot(gap[..., 0], gap[..., 1]).min() - found[i, k]) < 0.02
            else:
                # Some push by a little more than the depth frees the box, and none by less.
                angles = np.arange(0.0, 2 * math.pi, 0.005)
                pushes = np.stack([np.cos(angles), np.sin(angles)], axis=1)
                for share, free in ((1.002, True), (0.99, False)):
                    moved = np.repeat(many[i, k][None], len(angles), 0)
                    moved[:, :2] += share * -found[i, k] * pushes
                    hit = overlap(torch.tensor(one[i][None]), torch.tensor(moved[None])).numpy()
                    assert bool((~hit).any()) == free
    assert (found < 0.0).sum() > 5
    assert (found > 0.0).sum() > 5


def test_slots_that_are_not_taken_do_not_count():
    one, many = torch.zeros(1, 5), torch.zeros(1, 2, 5)
    one[..., 3:], many[..., 3:] = 1.0, 1.0
    taken = torch.tensor([[True, False]])
    assert overlap(one, many, taken).tolist() == [[True, False]]
    assert clearance(one, many, taken).tolist() == [[-1.0, math.inf]]


def test_walls_are_hit_by_their_inside_too():
    boxes = random_boxes(40, 4, 2.0)
    rng = np.random.default_rng(5)
    segments = rng.uniform(-4.0, 4.0, (40, 10, 4))
    segments[:, 0] = [-9.0, 0.0, 9.0, 0.0]  # Both ends far outside.
    hit = hits_segments(torch.tensor(boxes), torch.tensor(segments)).numpy()
    t = np.linspace(0.0, 1.0, 2001)[:, None]
    for i in range(40):
        x, y, yaw, length, width = boxes[i]
        for k in range(10):
            points = segments[i, k, :2] + t * (segments[i, k, 2:] - segments[i, k, :2]) - [x, y]
            along = np.abs(points @ [math.cos(yaw), math.sin(yaw)]) - 0.5 * length
            across = np.abs(points @ [-math.sin(yaw), math.cos(yaw)]) - 0.5 * width
            depth = np.maximum(along, across).min()
            if abs(depth) > 0.01:
                assert hit[i, k] == (depth < 0.0)
    assert 0.1 < hit.mean() < 0.9
    # A wall that runs exactly along an axis of the box.
    square = torch.tensor([[0.0, 0.0, 0.0, 2.0, 2.0]])
    walls = torch.tensor([[[-3.0, 0.5, 3.0, 0.5], [-3.0, 1.5, 3.0, 1.5], [-0.2, 0.1, 0.2, 0.1]]])
    assert hits_segments(square, walls).tolist() == [[True, False, True]]


def test_boxes_that_go_straight_on_meet_when_samples_of_their_ways_say_so():
    torch.manual_seed(4)
    count, others = 300, 4
    one = torch.cat((torch.zeros(count, 2), 6.0 * torch.rand(count, 1), 1.0 + 3.0 * torch.rand(count, 2)), dim=1)
    many = torch.cat((12.0 * torch.rand(count, others, 2) - 6.0, 6.0 * torch.rand(count, others, 1)), dim=2)
    many = torch.cat((many, 1.0 + 3.0 * torch.rand(count, others, 2)), dim=2)
    velocity = 16.0 * torch.rand(count, others, 2) - 8.0
    now, soon = meets(one, many, velocity, 0.9, torch.ones(count, others, dtype=torch.bool))
    assert torch.equal(now, overlap(one, many))
    sampled = torch.zeros_like(now)
    for at_s in torch.linspace(0.0, 0.9, 181):
        moved = many.clone()
        moved[..., :2] += at_s * velocity
        sampled |= overlap(one, moved)
    # Between two samples a corner may be touched for a moment, but not the other way round.
    assert (soon | ~sampled).all()
    assert (soon & ~sampled).float().mean() < 0.01
    assert 0.2 < soon.float().mean() < 0.8
    none = torch.zeros(count, others, dtype=torch.bool)
    assert not meets(one, many, velocity, 0.9, none)[1].any()
