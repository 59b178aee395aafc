"""Frames, training, resumption, export: small ones."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_hardware.training.trainer import DivergedError
from gantry_mapping.elevation.grid import LOCAL_GRID_SMALL, GridSpec
from gantry_mapping.elevation.rasterize import EMPTY_Z_M
from gantry_mapping.errors import MappingError
from gantry_mapping.learn import samples
from gantry_mapping.learn.export import export_mapper
from gantry_mapping.learn.noise import CLEAN
from gantry_mapping.learn.rays import RasterError
from gantry_mapping.learn.samples import FrameSource, SampleCfg, sample_ground, support_height
from gantry_mapping.learn.torch_mapper import TorchMapper
from gantry_mapping.learn.train import (
    MapTrainer,
    TrainCfg,
    learning_rate_share,
    load_net,
    read_config,
)
from gantry_mapping.learn.unet import NETWORKS, MapNet, make_net
from gantry_mapping.mapper import OnnxMapper
from gantry_mapping.sensing.camera import REALSENSE_LIKE
from gantry_mapping.sensing.frames import yaw_of

CAMERA = replace(REALSENSE_LIKE, width=24, height=14, fx=14.3, fy=14.3, cx=11.5, cy=6.5)
SMALL = SampleCfg(camera=CAMERA, resolution_m=0.08, patches=8, renewed=2)
FLAWLESS = replace(
    SMALL, noise=CLEAN, mounting_rad=0.0, crop_chance=0.0, cell_noise_m=0.0, lost_cells=0.0, outlier_cells=0.0
)
TINY = TrainCfg(samples=SMALL, steps=6, batch=8, judge_every=3, judge_batch=16, warm_up_steps=2)


def test_frames_depend_on_seed_and_step_alone():
    source = FrameSource(SMALL, seed=3)
    first = source.batch(5, 8)
    source.batch(6, 8)
    again = FrameSource(SMALL, seed=3).batch(5, 8)
    assert torch.equal(first.z_m, again.z_m)
    assert torch.equal(first.target_m, again.target_m)
    for other in (source.batch(6, 8), FrameSource(SMALL, seed=4).batch(5, 8)):
        assert not torch.equal(first.target_m, other.target_m)


def test_frames_hold_what_a_mapper_may_see():
    frames = FrameSource(SMALL, seed=0).batch(0, 32)
    assert frames.z_m.shape == frames.target_m.shape == (32, 1, *LOCAL_GRID_SMALL.shape)
    assert frames.z_m.min() >= EMPTY_Z_M
    assert frames.z_m.max() <= SMALL.highest_m
    assert frames.target_m.min() >= SMALL.lowest_m
    assert frames.target_m.max() <= SMALL.highest_m
    measured = (frames.z_m > EMPTY_Z_M).float().mean()
    assert 0.05 < measured < 0.7


def test_without_flaws_what_is_measured_on_gentle_ground_is_the_ground():
    cfg = replace(FLAWLESS, shares={"random_field": 1.0})
    frames = FrameSource(cfg, seed=0).batch(0, 32)
    error = (frames.z_m - frames.target_m).abs()[frames.z_m > EMPTY_Z_M]
    assert float(error.median()) < 0.02


def test_terrain_patches_are_cut_from_the_rasters_that_were_handed_in():
    raster = np.full((100, 120), 0.25, np.float32)
    cfg = replace(FLAWLESS, terrain_share=1.0, tilt_rad=0.0, height_m=0.0)
    frames = FrameSource(cfg, 0, {"level": raster}).batch(0, 8)
    assert torch.allclose(frames.target_m, torch.tensor(-cfg.nominal_base_height_m), atol=1e-6)
    with pytest.raises(RasterError, match="expected 75 or more"):
        FrameSource(cfg, 0, {"level": raster[:60]})


def test_ground_is_sampled_at_the_cells_of_a_turned_grid():
    """A raster whose height tells the place, x + 100 y, under a robot that looks along +y."""
    x, y = torch.meshgrid(torch.arange(50) + 0.5, torch.arange(40) + 0.5, indexing="ij")
    raster = 0.1 * (x + 100 * y)
    grid = GridSpec(2, 1, 0.4, 0.6, 0.0)
    pos, yaw = torch.tensor([[2.05, 1.05, 9.0]]), torch.tensor([torch.pi / 2])
    heights = sample_ground(raster, 0.1, grid, pos, yaw)
    assert heights.flatten().tolist() == pytest.approx([2.05 + 100 * 1.45, 2.05 + 100 * 1.85], rel=1e-5)


def test_a_body_rides_on_the_stones_around_it_rather_than_between_them():
    ground = torch.full((1, 60, 60), -1.0)
    assert torch.allclose(support_height(ground, 0.04), torch.tensor(-1.0))
    ground[0, 30, 30] = 0.0  # one cell within a quarter of a metre carries, sagging by 15 cm
    support = support_height(ground, 0.04)[0]
    assert support[30, 30] == support[24, 36] == pytest.approx(-0.15)
    assert support[23, 30] == pytest.approx(-1.0)
    assert support_height(torch.full((1, 20, 20), -torch.inf), 0.04).unique().tolist() == [-1.5]


def test_exact_frames_are_those_of_profiles_but_for_edges():
    cfg = replace(FLAWLESS, shares={"stacked_boxes": 1.0})
    one, other = (FrameSource(replace(cfg, exact=exact), seed=0).batch(0, 16) for exact in (False, True))
    assert torch.equal(one.target_m, other.target_m)
    difference = (one.z_m - other.z_m).abs()
    assert float((difference > 0.02).float().mean()) < 0.05
    assert float(difference.max()) > 0.0


def test_the_papers_network_and_loss_can_be_asked_for(tmp_path):
    training = MapTrainer(replace(TINY, network="paper", absolute=0.0, weight_floor=0.0, steps=1), tmp_path)
    assert training.train()
    assert isinstance(load_net(tmp_path), MapNet)


def test_a_turn_and_its_product_agree_with_the_frames_of_mapping():
    generator = torch.Generator().manual_seed(0)
    quat = samples._product(torch.tensor([[0.6, 0.0, 0.0, 0.8]]), samples._small_turns(1, 0.1, generator))
    assert torch.allclose(samples._yaw(quat), yaw_of(quat))
    assert torch.allclose(quat.norm(dim=1), torch.ones(1))


def test_patches_that_cannot_hold_the_grid_are_refused():
    with pytest.raises(MappingError, match="patch_m is 2"):
        replace(SMALL, patch_m=2.0)
    with pytest.raises(MappingError, match="shares name"):
        replace(SMALL, shares={"lakes": 1.0})


def test_the_rate_rises_then_falls():
    shares = [learning_rate_share(step, 100, 10) for step in range(100)]
    assert shares[0] == pytest.approx(0.1)
    assert max(shares) == shares[9] == shares[10] == pytest.approx(1.0)
    assert shares[55] == pytest.approx(0.51)
    assert 0.02 <= shares[-1] < 0.03


def test_a_resumed_training_ends_where_one_without_a_stop_does(tmp_path):
    whole = MapTrainer(TINY, tmp_path / "whole")
    assert whole.train()
    stopped = MapTrainer(TINY, tmp_path / "parts")
    while stopped.step < 4:
        stopped._update()
    stopped.save_checkpoint()
    resumed = MapTrainer(TINY, tmp_path / "parts", resume=True)
    assert resumed.step == 4
    assert resumed.train()
    for one, other in zip(whole.net.parameters(), resumed.net.parameters(), strict=True):
        assert torch.equal(one, other)
    assert whole.judge() == resumed.judge()
    assert all(
        torch.equal(one, other)
        for one, other in zip(load_net(tmp_path / "whole").parameters(), whole.net.parameters(), strict=True)
    )


def test_frames_come_again_mirrored_where_only_so_many_are_made(tmp_path):
    training = MapTrainer(replace(TINY, distinct_batches=2), tmp_path)
    first, second, third, fourth, fifth = (training._frames(step) for step in range(5))
    assert torch.equal(third.z_m, first.z_m.flip(-1))
    assert torch.equal(fourth.target_m, second.target_m.flip(-1))
    assert torch.equal(fifth.z_m, first.z_m)
    assert not torch.equal(first.z_m, second.z_m)


def test_a_training_stops_when_its_time_is_over_and_says_so(tmp_path):
    training = MapTrainer(TINY, tmp_path)
    steps = []
    assert training.train(lambda progress: steps.append(progress.done), minutes=1e-9)
    assert not training.is_complete
    assert "weighted_loss" in training.metrics
    assert MapTrainer(TINY, tmp_path, resume=True).step == 1


def test_a_loss_that_is_not_finite_is_named_and_the_checkpoint_stays_good(tmp_path):
    training = MapTrainer(TINY, tmp_path)
    training.save_checkpoint()

    def break_it(progress):
        with torch.no_grad():
            next(training.net.parameters()).fill_(torch.nan)

    with pytest.raises(DivergedError, match="loss stopped being finite in updates 4 to 6;"):
        training.train(break_it)
    assert MapTrainer(TINY, tmp_path, resume=True).step == 0
    with pytest.raises(DivergedError, match="loss stopped being finite in updates 4 to 6;"):
        training.save_checkpoint()


def test_another_configuration_or_a_missing_checkpoint_is_not_resumed(tmp_path):
    with pytest.raises(MappingError, match="no checkpoint"):
        MapTrainer(TINY, tmp_path / "nothing", resume=True)
    MapTrainer(TINY, tmp_path).save_checkpoint()
    assert read_config(tmp_path) == TINY
    with pytest.raises(MappingError, match="another configuration"):
        MapTrainer(replace(TINY, seed=9), tmp_path, resume=True)
    (tmp_path / "mapper.pt").write_bytes(b"no checkpoint")
    with pytest.raises(MappingError, match="Cannot read the checkpoint"):
        load_net(tmp_path)


@pytest.mark.slow
def test_the_loss_falls(tmp_path):
    cfg = replace(TINY, network="paper", absolute=0.0, steps=60, batch=32, judge_batch=128, judge_every=60)
    training = MapTrainer(cfg, tmp_path)
    before = training.judge()
    training.train()
    after = training.judge()
    assert after["weighted_loss"] < 0.5 * before["weighted_loss"]
    assert after["mae_empty_cm"] < 0.7 * before["mae_empty_cm"]


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_an_exported_mapper_says_what_it_was_made_for_and_computes_the_same(tmp_path, network):
    net = make_net(network)
    path = tmp_path / "mapper.onnx"
    difference = export_mapper(net, LOCAL_GRID_SMALL, path, provenance={"seed": 3})
    assert difference <= 1e-5
    mapper = OnnxMapper(path)
    assert mapper.info.local_grid == LOCAL_GRID_SMALL
    assert mapper.info.provenance == {"seed": 3}
    z = torch.randn(5, 1, *LOCAL_GRID_SMALL.shape)
    with torch.inference_mode():
        expected = net(z)
    for got, wanted in zip(mapper(z.numpy()), expected, strict=True):
        assert np.abs(got - wanted.numpy()).max() <= 1e-5
    inside = TorchMapper(path)
    assert inside.info == mapper.info
    for got, wanted in zip(inside(z), expected, strict=True):
        assert torch.equal(got, wanted)
    with pytest.raises(MappingError, match="The mapper got"):
        inside(z[:, :, :-1])
    assert list(tmp_path.iterdir()) == [path]


def test_an_export_that_computes_something_else_is_not_written(tmp_path):
    class Fickle(torch.nn.Module):
        def forward(self, z):
            return z + (0.0 if torch.compiler.is_exporting() else 0.5), z

    with pytest.raises(MappingError, match="onnxruntime and torch differ by 5"):
        export_mapper(Fickle(), LOCAL_GRID_SMALL, tmp_path / "mapper.onnx", provenance={})
    assert list(tmp_path.iterdir()) == []
