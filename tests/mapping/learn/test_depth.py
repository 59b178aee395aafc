"""Depth of height rasters: against planes and boxes worked out by hand, and the fast renderer against the exact one."""

import math

import pytest
import torch

from gantry_mapping.learn.depth import render_depth
from gantry_mapping.learn.march import march_depth
from gantry_mapping.learn.rays import RasterError
from gantry_mapping.sensing.camera import REALSENSE_LIKE, DepthCamera, pitched_down_quat_wxyz

LEVEL = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
RENDERERS = (render_depth, march_depth)


def one_ray(pitch_rad, max_range_m=4.0):
    """A camera of a single pixel that looks forward and down."""
    return DepthCamera(
        *(1, 1, 1.0, 1.0, 0.0, 0.0), quat_camera_to_base_wxyz=pitched_down_quat_wxyz(pitch_rad), max_range_m=max_range_m
    )


def scene(cameras, seed=0):
    """Boxes on a floor, and poses of walking robots on top of them."""
    generator = torch.Generator().manual_seed(seed)
    raster = torch.zeros(300, 250)
    for _ in range(250):
        row, column, length, width = torch.randint(5, 25, (4,), generator=generator).tolist()
        row, column = row * 11, column * 9
        raster[row : row + length, column : column + width] = 0.5 * float(torch.rand(1, generator=generator)) - 0.1
    pos = torch.rand(cameras, 3, generator=generator) * torch.tensor([8.0, 6.0, 0.0]) + torch.tensor([2.0, 2.0, 0.0])
    cell = (pos[:, :2] / 0.04).long()
    pos[:, 2] = raster[cell[:, 0], cell[:, 1]] + 0.32
    yaw = torch.rand(cameras, generator=generator) * 2 * math.pi
    tilt = 0.1 * torch.randn(cameras, 2, generator=generator)
    quat = torch.stack((torch.cos(yaw / 2), tilt[:, 0] / 2, tilt[:, 1] / 2, torch.sin(yaw / 2)), dim=1)
    return raster, pos, quat / quat.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("render", RENDERERS)
@pytest.mark.parametrize("pitch_deg", [20, 45, 70, 89])
def test_flat_ground_is_as_far_as_the_angle_says(render, pitch_deg):
    pitch = math.radians(pitch_deg)
    depth = render(torch.zeros(200, 200), 0.04, (0.0, 0.0), one_ray(pitch), torch.tensor([[4.0, 4.0, 0.5]]), LEVEL)
    assert depth.shape == (1, 1, 1)
    assert float(depth) == pytest.approx(0.5 / math.sin(pitch), abs=2e-3)


def test_the_exact_renderer_finds_walls_tops_and_edges_of_a_box():
    """A box from x = 2.0 m to 2.4 m, 0.3 m high, seen from 0.5 m above the ground at x = 1."""
    raster = torch.zeros(100, 100)
    raster[50:60] = 0.3
    pose = torch.tensor([[1.0, 2.0, 0.5]])

    def depth_at(slope):
        return float(march_depth(raster, 0.04, (0.0, 0.0), one_ray(math.atan(slope)), pose, LEVEL))

    def along(x, slope):
        return x * math.hypot(1.0, slope)

    assert depth_at(0.4) == pytest.approx(along(1.0, 0.4), abs=1e-5)  # the wall, at height 0.1
    assert depth_at(0.16) == pytest.approx(along(1.25, 0.16), abs=1e-5)  # the top
    assert depth_at(0.1) == 0.0  # over the box: the ground behind is 5 m away
    assert depth_at(0.6) == pytest.approx(along(0.5 / 0.6, 0.6), abs=1e-5)  # the ground before the box


def test_the_fast_renderer_finds_a_wall_within_one_range_step():
    raster = torch.zeros(100, 100)
    raster[50:60] = 0.3
    camera = one_ray(math.atan(0.4))
    depth = render_depth(raster, 0.04, (0.0, 0.0), camera, torch.tensor([[1.01, 2.0, 0.5]]), LEVEL, ranges=80)
    assert float(depth) == pytest.approx(0.99 * math.hypot(1.0, 0.4), abs=0.05 * math.hypot(1.0, 0.4))


def test_the_fast_renderer_agrees_with_the_exact_one():
    raster, pos, quat = scene(24)
    fast, exact = (render(raster, 0.04, (0.0, 0.0), REALSENSE_LIKE, pos, quat) for render in RENDERERS)
    both = (fast > 0) & (exact > 0)
    assert float(both.float().mean()) > 0.6
    error = (fast - exact).abs()[both]
    assert float(error.median()) < 1e-4
    assert float(error.quantile(0.9)) < 0.03
    assert float((error > 0.05).float().mean()) < 0.04
    assert float(((fast > 0) != (exact > 0)).float().mean()) < 0.03


def test_more_profiles_come_closer():
    raster, pos, quat = scene(8, seed=3)
    exact = march_depth(raster, 0.04, (0.0, 0.0), REALSENSE_LIKE, pos, quat)

    def mean_error(azimuths, ranges):
        fast = render_depth(
            raster, 0.04, (0.0, 0.0), REALSENSE_LIKE, pos, quat, azimuths=azimuths, ranges=ranges, max_range_m=5.0
        )
        both = (fast > 0) & (exact > 0)
        return float((fast - exact).abs()[both].mean())

    assert mean_error(512, 512) < 0.5 * mean_error(32, 48)


@pytest.mark.parametrize("render", RENDERERS)
def test_images_are_the_same_wherever_the_world_has_its_origin(render):
    raster, pos, quat = scene(4)
    shift = torch.tensor([12.0, -8.0, 1.5])
    here = render(raster, 0.04, (0.0, 0.0), REALSENSE_LIKE, pos, quat)
    there = render(raster + 1.5, 0.04, (12.0, -8.0), REALSENSE_LIKE, pos + shift, quat)
    assert float(((here - there).abs() > 1e-3).float().mean()) < 0.01  # rounding may choose another cell


@pytest.mark.parametrize("render", RENDERERS)
def test_a_stack_gives_each_camera_its_own_ground(render):
    stack = torch.stack((torch.zeros(100, 100), torch.full((100, 100), 0.2)))
    pose = torch.tensor([[2.0, 2.0, 0.5], [2.0, 2.0, 0.5]])
    camera = one_ray(math.radians(45))
    index = torch.tensor([1, 0])
    depth = render(stack, 0.04, (0.0, 0.0), camera, pose, LEVEL.repeat(2, 1), raster_index=index).flatten()
    assert depth.tolist() == pytest.approx([0.3 * math.sqrt(2), 0.5 * math.sqrt(2)], abs=1e-3)
    alone = render(stack[1], 0.04, (0.0, 0.0), camera, pose[:1], LEVEL).flatten()
    assert float(alone) == float(depth[0])


@pytest.mark.parametrize("render", RENDERERS)
def test_no_ground_gives_no_depth(render):
    pose = torch.tensor([[2.0, 2.0, 0.5]])
    for nothing in (-math.inf, math.nan):
        raster = torch.full((100, 100), nothing)
        assert float(render(raster, 0.04, (0.0, 0.0), one_ray(0.5), pose, LEVEL)) == 0.0


def test_things_that_float_are_seen_from_above_from_the_side_and_from_below():
    """A plate between heights 0.4 and 0.5 over x = 2.0 to 2.8 m."""
    ground, underside, roof = torch.zeros(100, 100), torch.full((100, 100), math.nan), torch.full((100, 100), math.nan)
    underside[50:70], roof[50:70] = 0.4, 0.5

    def depth_at(height, pitch):
        pose = torch.tensor([[1.0, 2.0, height]])
        camera = one_ray(pitch, max_range_m=10.0)
        return float(march_depth(ground, 0.04, (0.0, 0.0), camera, pose, LEVEL, floating_m=(underside, roof)))

    assert depth_at(0.45, 0.0) == pytest.approx(1.0, abs=1e-5)
    assert depth_at(1.0, math.atan(0.4)) == pytest.approx(1.25 * math.hypot(1, 0.4), abs=1e-5)
    assert depth_at(0.1, -math.atan(0.2)) == pytest.approx(1.5 * math.hypot(1, 0.2), abs=1e-5)
    assert depth_at(0.3, math.atan(0.2)) == pytest.approx(1.5 * math.hypot(1, 0.2), abs=1e-5)  # the ground below it


def test_shapes_that_do_not_fit_are_refused():
    pose = torch.tensor([[2.0, 2.0, 0.5]])
    with pytest.raises(RasterError, match=r"expected \(H, W\)"):
        render_depth(torch.zeros(100), 0.04, (0.0, 0.0), REALSENSE_LIKE, pose, LEVEL)
    with pytest.raises(RasterError, match="no raster_index"):
        render_depth(torch.zeros(2, 50, 50), 0.04, (0.0, 0.0), REALSENSE_LIKE, pose, LEVEL)
    with pytest.raises(RasterError, match="corner_m"):
        render_depth(torch.zeros(50, 50), 0.04, torch.zeros(3), REALSENSE_LIKE, pose, LEVEL)
