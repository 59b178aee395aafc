"""Calibration in the map: the right shift of the log variance is found and becomes part of the network."""

import math

import numpy as np
import pytest
import torch

from gantry_mapping.config import GO2_SMALL
from gantry_mapping.elevation.grid import WINDOW_SMALL
from gantry_mapping.errors import MappingError
from gantry_mapping.learn.calibrate import ONE_SIGMA, SHIFTS, calibrate, shares_within
from gantry_mapping.learn.evaluate import EvalCfg
from gantry_mapping.learn.unet import MapNet

WALK = EvalCfg(window=WINDOW_SMALL, robots_per_raster=1, seconds=3.0)


def level_net(std_m: float) -> MapNet:
    """Says that all is level with a standing robot's feet, give or take so much."""
    net = MapNet()
    with torch.no_grad():
        for layer in (net.gate, net.raw, net.log_variance):
            layer.weight.zero_()
        net.gate.bias.fill_(100.0)
        net.raw.bias.fill_(-GO2_SMALL.nominal_base_height_m)
        net.log_variance.bias.fill_(2 * math.log(std_m))
    return net


def rough(seed: int) -> np.ndarray:
    """Heights that differ from cell to cell by 5 cm, normally distributed."""
    return (0.05 * np.random.default_rng(seed).standard_normal((100, 100))).astype(np.float32)


@pytest.mark.soak
def test_a_deviation_that_is_too_large_is_narrowed_until_two_cells_in_three_are_within():
    ground = {"a/0": rough(0), "a/1": rough(1)}
    net = level_net(0.065)
    told = calibrate(net, GO2_SMALL, ground, 0.04, WALK)
    assert told["share_before"] > 0.75
    assert SHIFTS[0] <= told["log_variance_shift"] < -0.1
    assert net.log_variance.bias.item() == pytest.approx(2 * math.log(0.065) + told["log_variance_shift"])
    assert shares_within(net, GO2_SMALL, ground, 0.04, WALK)[0.0] == pytest.approx(ONE_SIGMA, abs=0.06)


def test_there_must_be_ground_to_calibrate_on():
    with pytest.raises(MappingError, match="No ground"):
        calibrate(level_net(0.1), GO2_SMALL, {}, 0.04)
