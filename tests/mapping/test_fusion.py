"""Fusion against hand-made numbers and against the laws of AME-2, eq. 6-8."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_hardware.errors import UnknownNameError
from gantry_mapping.config import PAPER_WTA, KalmanCfg, MappingCfg, WinnerTakeAllCfg
from gantry_mapping.elevation.fusion import Kalman, WinnerTakeAll, make_fusion
from gantry_mapping.errors import MappingError

INF = math.inf


def wta(array, prior, measurement, draw, cfg=None, slope=None):
    """Fuse one cell; prior and measurement are (mean, variance)."""
    arrays = [array([value]) for value in (*prior, *measurement, draw)]
    mean, variance = WinnerTakeAll(cfg or PAPER_WTA)(*arrays, None if slope is None else array([slope]))
    return float(mean[0]), float(variance[0])


def kalman(array, prior, measurement, **cfg):
    mean, variance = Kalman(KalmanCfg(**cfg))(*(array([value]) for value in (*prior, *measurement)))
    return float(mean[0]), float(variance[0])


@pytest.mark.parametrize(
    ("prior_variance", "variance", "chance", "written"),
    [
        (10.0, 0.01, 2 / 3, 5.0),  # much better: at most halves the variance
        (1.0, 0.5, 2 / 3, 0.5),
        (1.0, 1.0, 0.5, 1.0),  # equal
        (1.0, 1.25, 1 / 2.25, 1.25),
        (1.0, 1.499, 1 / 2.499, 1.499),  # just inside the gate
        (0.01, 0.039, 0.01 / 0.049, 0.039),  # beyond the gate, but below 0.2 m of deviation
    ],
)
def test_the_chance_to_win(array, prior_variance, variance, chance, written):
    prior, measurement = (0.1, prior_variance), (0.7, variance)
    assert wta(array, prior, measurement, chance - 1e-4) == pytest.approx((0.7, written), rel=1e-6)
    assert wta(array, prior, measurement, chance + 1e-4) == pytest.approx(prior, rel=1e-6)


@pytest.mark.parametrize(("prior_variance", "variance"), [(1.0, 1.5), (1.0, 9.0), (0.02, 0.041), (10.0, INF)])
def test_what_is_beyond_the_gate_never_wins(array, prior_variance, variance):
    assert wta(array, (0.1, prior_variance), (0.7, variance), 0.0) == pytest.approx((0.1, prior_variance))


def test_the_go2s_gate_keeps_the_surer_look(array):
    """Without a better deviation only what is below 3 cm may replace a cell; and it becomes sure in fewer wins."""
    cfg = WinnerTakeAllCfg()
    assert wta(array, (0.0, 0.01), (0.7, 0.01), 0.0, cfg)[0] == 0.0
    assert wta(array, (0.0, 0.01), (0.7, 0.0099), 0.0, cfg)[0] == pytest.approx(0.7)
    assert wta(array, (0.0, 0.0001), (0.7, 0.00099), 0.0, cfg)[0] == pytest.approx(0.7)
    assert wta(array, (0.0, 0.0001), (0.7, 0.0011), 0.0, cfg)[0] == 0.0
    assert wta(array, (0.0, 10.0), (0.7, 0.01), 0.79, cfg) == pytest.approx((0.7, 2.5))  # p = 1 / (1 + 1/4) = 0.8
    assert wta(array, (0.0, 10.0), (0.7, 0.01), 0.81, cfg) == pytest.approx((0.0, 10.0))


def test_the_lidars_gate(array):
    cfg = WinnerTakeAllCfg(gate_ratio=1.25)
    assert wta(array, (0.0, 1.0), (0.7, 1.3), 0.0, cfg)[0] == 0.0
    assert wta(array, (0.0, 1.0), (0.7, 1.2), 0.0, cfg)[0] == pytest.approx(0.7)


def test_ten_wins_from_unknown_to_sure(array):
    mean, variance = 0.0, 10.0
    for _ in range(10):
        assert variance > 0.01
        mean, variance = wta(array, (mean, variance), (0.3, 0.01), 0.0)
        assert mean == pytest.approx(0.3)  # right after the first
    assert variance == pytest.approx(0.01)


def test_no_cell_becomes_surer_than_the_network_ever_was(array):
    """A guess that is repeated for ever stays a guess: the design goal."""
    rng = np.random.default_rng(0)
    mean, variance = array(np.zeros(500)), array(np.full(500, 10.0))
    for _ in range(100):
        mean, variance = WinnerTakeAll()(
            mean, variance, array(rng.normal(size=500)), array(np.full(500, 0.5)), array(rng.random(500))
        )
    np.testing.assert_allclose(np.asarray(variance), 0.5)


def test_what_wins_is_what_was_measured(array):
    """Nothing is averaged: after any frames each cell holds one of the heights that it was given."""
    rng = np.random.default_rng(1)
    given = rng.normal(size=(20, 300)).astype(np.float32)
    mean, variance = array(np.zeros(300)), array(np.full(300, 10.0))
    for row in given:
        mean, variance = WinnerTakeAll()(mean, variance, array(row), array(np.full(300, 0.02)), array(rng.random(300)))
    assert ((np.asarray(mean)[None] == given) | (np.asarray(mean) == 0.0)[None]).any(axis=0).all()
    assert len(np.unique(np.argmax(np.asarray(mean)[None] == given, axis=0))) > 3  # of several frames


def test_the_guard_against_erasing(array):
    cfg = replace(PAPER_WTA, anti_erase=True)
    edge, ground = (0.5, 0.01), (0.0, 0.005)
    assert wta(array, edge, ground, 0.0, cfg, slope=2.0) == pytest.approx(edge)  # steep, lower, edge well known
    assert wta(array, edge, ground, 0.0, cfg, slope=0.5)[0] == 0.0  # not steep
    assert wta(array, (0.1, 0.01), ground, 0.0, cfg, slope=2.0)[0] == 0.0  # not much lower
    assert wta(array, (0.5, 0.05), ground, 0.0, cfg, slope=2.0)[0] == 0.0  # edge not well known
    assert wta(array, ground, edge, 0.0, cfg, slope=2.0)[0] == pytest.approx(0.5)  # higher may always come
    with pytest.raises(MappingError, match="slope"):
        wta(array, edge, ground, 0.0, cfg)


def test_kalman_by_hand(array):
    assert kalman(array, (0.0, 1.0), (1.0, 1.0)) == pytest.approx((0.5, 0.5))
    assert kalman(array, (0.0, 3.0), (1.0, 1.0)) == pytest.approx((0.75, 0.75))
    mean, variance = kalman(array, (0.2, 10.0), (0.5, 0.0004))
    assert (mean, variance) == pytest.approx((0.5, 0.0004), abs=2e-5)


def test_kalman_of_many_equal_measurements_is_their_mean(array):
    rng = np.random.default_rng(2)
    given = rng.normal(0.3, 0.05, 50)
    mean, variance = array([0.0]), array([1e6])
    for value in given:
        mean, variance = Kalman(KalmanCfg(variance_floor_m2=0.0, gate_sigma=100.0))(
            mean, variance, array([value]), array([0.0025])
        )
    assert float(mean[0]) == pytest.approx(given.mean(), abs=1e-4)
    assert float(variance[0]) == pytest.approx(0.0025 / 50, rel=1e-3)


def test_kalman_keeps_outliers_out_until_they_insist(array):
    mean, variance = kalman(array, (0.0, 0.01), (1.0, 0.01), gate_sigma=3.0, outlier_variance_m2=0.05)
    assert (mean, variance) == pytest.approx((0.0, 0.06))
    frames = 0
    while mean < 0.5 and frames < 20:
        mean, variance = kalman(array, (mean, variance), (1.0, 0.01), gate_sigma=3.0, outlier_variance_m2=0.05)
        frames += 1
    assert frames == 2  # variance 0.11 after the next; then 1 m is within 3 sqrt(0.12) = 1.04 m


def test_kalman_has_a_floor_and_ignores_nothing(array):
    assert kalman(array, (0.0, 1e-4), (0.001, 1e-4), variance_floor_m2=1e-4)[1] == pytest.approx(1e-4)
    assert kalman(array, (0.3, 0.7), (0.0, INF)) == pytest.approx((0.3, 0.7))


def test_the_configuration_chooses():
    assert isinstance(make_fusion(MappingCfg(fusion="kalman")), Kalman)
    assert isinstance(make_fusion(MappingCfg()), WinnerTakeAll)
    with pytest.raises(UnknownNameError, match="Did you mean 'kalman'"):
        MappingCfg(fusion="kalmann")
