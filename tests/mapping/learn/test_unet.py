"""The mapping networks: their size, their gates, their bounds, and what the guided one is told."""

import pytest
import torch

from gantry_hardware.errors import UnknownNameError
from gantry_mapping.elevation.rasterize import EMPTY_Z_M
from gantry_mapping.learn.unet import (
    INPUT_SCALE,
    INPUT_SHIFT_M,
    MAX_LOG_VARIANCE,
    MIN_LOG_VARIANCE,
    NETWORKS,
    GuidedMapNet,
    MapNet,
    guide,
    make_net,
)

both = pytest.mark.parametrize("network", NETWORKS)


def test_it_has_as_many_parameters_as_the_paper_says():
    assert sum(parameter.numel() for parameter in MapNet().parameters()) == 9475


@both
def test_every_grid_size_comes_out_as_it_went_in(network):
    net = make_net(network)
    for shape in ((51, 31), (26, 16), (3, 3), (31, 32)):
        mean, log_variance = net(torch.randn(2, 1, *shape))
        assert mean.shape == log_variance.shape == (2, 1, *shape)


def test_a_closed_gate_passes_the_input_through_and_an_open_one_the_estimate():
    net = MapNet()
    z = torch.randn(2, 1, 26, 16)
    with torch.no_grad():
        net.gate.weight.zero_()
        net.raw.weight.zero_()
        net.raw.bias.fill_(0.7)
        net.gate.bias.fill_(-100.0)
        assert torch.allclose(net(z)[0], z, atol=1e-6)
        net.gate.bias.fill_(100.0)
        assert torch.allclose(net(z)[0], torch.full_like(z, 0.7), atol=1e-6)


@both
def test_log_variances_stay_within_bounds(network):
    _, log_variance = make_net(network)(100.0 * torch.randn(4, 1, 26, 16))
    assert log_variance.min() >= MIN_LOG_VARIANCE
    assert log_variance.max() <= MAX_LOG_VARIANCE


def test_the_coarse_scale_lies_where_the_fine_one_does():
    """A spike changes the coarse features of its own 3 x 3 window only."""
    net = MapNet()
    with torch.no_grad():
        features = torch.zeros(1, 16, 26, 16)
        features[0, 0, 7, 10] = 1.0
        coarse = net.coarse(features)[0, 0, :26, :16]
    where = coarse.nonzero()
    assert where.min(dim=0).values.tolist() == [6, 9]
    assert where.max(dim=0).values.tolist() == [8, 11]


def test_networks_go_by_name():
    assert isinstance(make_net("paper"), MapNet)
    assert isinstance(make_net("guided"), GuidedMapNet)
    with pytest.raises(UnknownNameError, match="guided"):
        make_net("guide")


def test_a_guided_network_with_a_closed_gate_keeps_what_was_measured_and_fills_the_rest():
    net = GuidedMapNet()
    z = torch.full((1, 1, 26, 16), EMPTY_Z_M)
    z[0, 0, 5, 5], z[0, 0, 5, 7] = 0.2, 0.4
    with torch.no_grad():
        net.gate.weight.zero_()
        net.gate.bias.fill_(-100.0)
        mean = net(z)[0][0, 0]
    assert mean[5, 5] == pytest.approx(0.2)
    assert mean[5, 7] == pytest.approx(0.4)
    assert mean[5, 6] == pytest.approx(0.3)  # both lie in its window of 3
    assert mean[4, 4] == pytest.approx(0.2)  # only the first does
    assert mean[5, 12] == pytest.approx(0.35, abs=0.06)  # a wider window
    assert float(mean[:21].min()) >= 0.2 - 1e-5
    assert float(mean.max()) <= 0.4 + 1e-5
    assert torch.allclose(mean[21:], torch.tensor(-INPUT_SHIFT_M))  # more than 15 cells from both


def test_a_frame_without_a_point_is_taken_for_flat_ground():
    base, channels = guide(torch.full((1, 1, 26, 16), EMPTY_Z_M))
    assert torch.allclose(base, torch.tensor(-INPUT_SHIFT_M))
    assert torch.allclose(channels[:, :3], torch.zeros(1))
    assert torch.equal(channels[:, 3], torch.ones(1, 26, 16))


def test_a_guided_network_is_told_the_lowest_height_nearby_and_where_cells_are():
    z = torch.full((1, 1, 26, 16), 0.1)
    z[0, 0, 10, 8] = -0.7
    _, channels = guide(z)
    low = channels[0, 1] / INPUT_SCALE - INPUT_SHIFT_M
    assert low[13, 11] == pytest.approx(-0.7)
    assert low[14, 8] == pytest.approx(0.1)
    assert channels[0, 4, :, 0].tolist() == pytest.approx([i / 25 for i in range(26)])
    assert torch.equal(channels[0, 5], channels[0, 5].flip(-1))


def test_a_guided_network_sees_left_and_right_alike_once_its_kernels_do():
    net = GuidedMapNet()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim == 4:
                parameter.copy_(0.5 * (parameter + parameter.flip(-1)))
    z = torch.where(torch.rand(2, 1, 27, 15) < 0.5, EMPTY_Z_M, torch.randn(2, 1, 27, 15))
    for one, other in zip(net(z), net(z.flip(-1)), strict=True):
        assert torch.allclose(one.flip(-1), other, atol=1e-5)
