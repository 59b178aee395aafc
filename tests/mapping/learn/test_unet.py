"""The mapping network: its size, its gate, its bounds."""

import torch

from gantry_mapping.learn.unet import MAX_LOG_VARIANCE, MIN_LOG_VARIANCE, MapNet


def test_it_has_as_many_parameters_as_the_paper_says():
    assert sum(parameter.numel() for parameter in MapNet().parameters()) == 9475


def test_every_grid_size_comes_out_as_it_went_in():
    net = MapNet()
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


def test_log_variances_stay_within_bounds():
    _, log_variance = MapNet()(100.0 * torch.randn(4, 1, 26, 16))
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
