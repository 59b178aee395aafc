"""Walls sorted into beams: a corridor by hand, exact rays, and the joints between segments."""

import math

import pytest
import torch

from gantry_sim.driving.maps.bank import line_bank
from gantry_sim.driving.maps.projection import pose_at
from gantry_sim.driving.maps.tracks import race_track
from gantry_sim.driving.scenes.track_scene import wall_points
from gantry_sim.driving.sensors.lidar import LidarConfig, cast_segments, rays
from gantry_sim.driving.sensors.wall_scan import cast_chains

FOUR = LidarConfig(beams=4, angle_min_rad=0.0, angle_max_rad=1.5 * math.pi, mount_m=(0.5, 0.1), range_max_m=20.0)


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Rays are cast with one."""


def test_in_a_corridor_each_beam_is_known():
    # Two metres wide along x, closed at x = 10, open behind; its corner is a joint of one of the chains.
    walls = torch.tensor([[[[-50.0, 1.0], [10.0, 1.0], [10.0, -1.0]], [[-50.0, -1.0], [0.0, -1.0], [10.0, -1.0]]]])
    found = cast_chains(FOUR, torch.tensor([[2.0, 0.2, 0.0]]), walls)
    torch.testing.assert_close(found, torch.tensor([[7.5, 0.7, 20.0, 1.3]]), atol=1e-5, rtol=0)
    # Turned to the left by a quarter, beams and mount turn with the car.
    found = cast_chains(FOUR, torch.tensor([[2.0, 0.2, math.pi / 2]]), walls)
    torch.testing.assert_close(found, torch.tensor([[0.3, 20.0, 1.7, 8.1]]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("reach_rad", [2.35, math.pi, 0.6])
def test_it_finds_what_rays_against_all_segments_find(reach_rad):
    bank = line_bank([race_track(seed) for seed in (0, 3)], spacing_m=None)
    line = torch.arange(24) % 2
    generator = torch.Generator().manual_seed(0)
    lateral = 1.6 * torch.rand(24, generator=generator) - 0.8
    pose, _ = pose_at(bank, line, 60.0 * torch.rand(24, generator=generator), lateral)
    pose[:, 2] += 6.0 * torch.rand(24, generator=generator)
    config = LidarConfig(beams=61, angle_min_rad=-reach_rad, angle_max_rad=reach_rad, mount_m=(0.1, 0.02))
    # A line's end is padded with its last point, so that there are segments of no length as well.
    chains = wall_points(bank)[line].transpose(1, 2)
    segments = torch.cat((chains[:, :, :-1], chains[:, :, 1:]), dim=-1).flatten(1, 2)
    exact = torch.cat([cast_segments(*rays(config, pose[i : i + 1]), segments[i : i + 1]) for i in range(24)])
    found = cast_chains(config, pose, chains)
    assert (exact < config.range_max_m).all()
    torch.testing.assert_close(found, exact, atol=2e-4, rtol=0)


def test_no_beam_slips_through_where_two_segments_meet():
    # Every beam goes to a corner of a polygon around the scanner.
    angle = torch.linspace(0.0, 2.0 * math.pi, 73)
    ring = 3.0 * torch.stack((torch.cos(angle), torch.sin(angle)), dim=-1)
    config = LidarConfig(beams=72, angle_min_rad=-math.pi, angle_max_rad=math.pi * 70 / 72, mount_m=(0.0, 0.0))
    for yaw in (0.0, 2.0 * math.pi / 72):
        found = cast_chains(config, torch.tensor([[0.0, 0.0, yaw]]), ring[None, None])
        torch.testing.assert_close(found, torch.full((1, 72), 3.0), atol=1e-4, rtol=0)


def test_a_wall_seen_end_on_is_as_far_as_its_nearer_end():
    config = LidarConfig(beams=3, angle_min_rad=-0.5, angle_max_rad=0.5, mount_m=(0.0, 0.0))
    along, across = [[4.0, 0.0], [2.0, 0.0]], [[9.0, 1.0], [9.0, -1.0]]
    found = cast_chains(config, torch.zeros(1, 3), torch.tensor([[along, across]]))
    assert found[0].tolist() == pytest.approx([30.0, 2.0, 30.0])
