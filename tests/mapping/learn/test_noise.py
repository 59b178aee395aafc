"""Flaws of sensors: as many as asked for, repeatable, and without an effect where they are zero."""

import math

import pytest
import torch

from gantry_mapping.errors import MappingError
from gantry_mapping.learn.noise import (
    CLEAN,
    DelayLine,
    DepthNoiseCfg,
    DriftCfg,
    OdometryDrift,
    add_depth_noise,
    crop_borders,
)
from gantry_mapping.sensing.camera import REALSENSE_LIKE as CAMERA
from gantry_mapping.sensing.frames import yaw_of


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def flat(count=40, depth_m=2.0):
    return torch.full((count, CAMERA.height, CAMERA.width), depth_m)


def test_a_clean_sensor_changes_nothing():
    depth = flat()
    depth[:, 3] = 0.0
    assert torch.equal(add_depth_noise(depth, CAMERA, CLEAN, generator()), depth)


def test_points_go_missing_as_often_as_asked_for():
    cfg = DepthNoiseCfg(missing_share=0.15, std_m=0.0, std_per_m=0.0)
    depth = add_depth_noise(flat(), CAMERA, cfg, generator())
    assert float((depth == 0).float().mean()) == pytest.approx(0.15, abs=0.01)
    assert set(depth.unique().tolist()) == {0.0, 2.0}


def test_points_go_missing_in_squares():
    depth = add_depth_noise(flat(), CAMERA, DepthNoiseCfg(0.3, 0.0, 0.0, 0.0, missing_block_px=3), generator())
    blocks = depth.view(40, 9, 3, 16, 3).transpose(2, 3).flatten(3)
    assert torch.equal(blocks.amin(-1), blocks.amax(-1))
    assert float((depth == 0).float().mean()) == pytest.approx(0.3, abs=0.03)


def test_artefacts_lie_anywhere_within_range_and_nowhere_else():
    cfg = DepthNoiseCfg(artefact_share=0.1, std_m=0.0, std_per_m=0.0)
    depth = add_depth_noise(flat(), CAMERA, cfg, generator())
    moved = depth[depth != 2.0]
    assert len(moved) / depth.numel() == pytest.approx(0.1, abs=0.01)
    assert float(moved.mean()) == pytest.approx(0.5 * (CAMERA.min_range_m + CAMERA.max_range_m), abs=0.05)


def test_range_noise_grows_with_the_square_and_scales_per_image():
    cfg = DepthNoiseCfg(std_m=0.01, std_per_m=0.02)
    scale = torch.tensor([0.0, 1.0, 2.0])
    depth = add_depth_noise(flat(3), CAMERA, cfg, generator(), scale=scale)
    spread = (depth - 2.0).flatten(1).std(dim=1)
    assert spread.tolist() == pytest.approx([0.0, 0.09, 0.18], abs=0.01)


def test_missing_measurements_stay_missing():
    depth = torch.zeros(2, CAMERA.height, CAMERA.width)
    assert torch.equal(add_depth_noise(depth, CAMERA, DepthNoiseCfg(), generator()), depth)


def test_equal_seeds_give_equal_flaws():
    cfg = DepthNoiseCfg(missing_share=0.1, artefact_share=0.1)
    first, again, other = (add_depth_noise(flat(2), CAMERA, cfg, generator(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_share_above_one_is_refused():
    with pytest.raises(MappingError, match=r"missing_share is 1\.5"):
        DepthNoiseCfg(missing_share=1.5)


def test_crops_leave_a_rectangle():
    cropped = crop_borders(torch.ones(50, 20, 30), -1.0, 0.4, 1.0, generator())
    for image in cropped:
        kept = image == 1.0
        rows, columns = kept.any(1).nonzero(), kept.any(0).nonzero()
        assert kept[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].all()
        assert kept.float().mean() >= 0.2 * 0.2 - 0.05
    assert torch.equal(crop_borders(torch.ones(5, 20, 30), -1.0, 0.4, 0.0, generator()), torch.ones(5, 20, 30))


def test_drift_begins_at_nothing_and_spreads_as_a_random_walk():
    cfg = DriftCfg(xy_m=0.02, z_m=0.01, yaw_rad=0.03)
    drift = OdometryDrift(cfg, 4000, generator())
    pos, quat = torch.zeros(4000, 3), torch.tensor([[1.0, 0.0, 0.0, 0.0]]).expand(4000, 4)
    told, turned = drift.step(pos, quat, 0.1)
    assert torch.equal(told, pos)
    assert torch.equal(turned, quat)
    for _ in range(40):
        told, turned = drift.step(pos, quat, 0.1)
    assert told.std(dim=0).tolist() == pytest.approx([0.04, 0.04, 0.02], rel=0.1)  # sqrt(4 s) times the rate
    assert float(yaw_of(turned).std()) == pytest.approx(0.06, rel=0.1)


def test_yaw_drift_turns_about_the_worlds_z():
    drift = OdometryDrift(DriftCfg(0.0, 0.0, 0.0), 1, generator())
    drift.yaw_rad = torch.tensor([math.pi / 2])
    pitch = torch.tensor([[math.cos(0.1), 0.0, math.sin(0.1), 0.0]])
    _, turned = drift.step(torch.zeros(1, 3), pitch, 0.1)
    half = math.sqrt(0.5)
    expected = [half * math.cos(0.1), -half * math.sin(0.1), half * math.sin(0.1), half * math.cos(0.1)]
    assert turned[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_a_delay_line_gives_back_what_was_put_in_before():
    line = DelayLine(2)
    assert [line.push(item) for item in "abcde"] == ["a", "a", "a", "b", "c"]
    assert [DelayLine(0).push(item) for item in "ab"] == ["a", "b"]
    with pytest.raises(MappingError, match="-1 steps"):
        DelayLine(-1)
