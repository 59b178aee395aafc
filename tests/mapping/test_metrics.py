"""Scores against hand-made numbers."""

import math

import numpy as np
import pytest

from gantry_mapping.elevation.metrics import ScoreCounter, coverage, gaussian_nll, mae_cm, within_sigma


def test_by_hand(array):
    mean, truth = array([0.0, 0.1, 0.5, 9.0]), array([0.02, 0.0, 0.5, 0.0])
    mask = array([1, 1, 1, 0]) > 0
    assert mae_cm(mean, truth, mask) == pytest.approx((2 + 10 + 0) / 3, rel=1e-5)
    assert coverage(array([1, 0, 0, 1]) > 0, mask) == pytest.approx(1 / 3)
    variance = array([0.01, 0.0025, 0.04, 1.0])
    assert within_sigma(mean, variance, truth, mask) == pytest.approx(2 / 3)
    assert within_sigma(mean, variance, truth, mask, sigmas=2.5) == pytest.approx(1.0)
    expected = np.mean(
        [0.5 * math.log(2 * math.pi * v) + e * e / 2 / v for v, e in ((0.01, 0.02), (0.0025, 0.1), (0.04, 0))]
    )
    assert gaussian_nll(mean, variance, truth, mask) == pytest.approx(expected, rel=1e-5)
    assert math.isnan(mae_cm(mean, truth, mask & ~mask))


def test_the_right_variance_is_calibrated_and_has_the_best_likelihood():
    rng = np.random.default_rng(0)
    truth, mask = rng.normal(0.0, 0.1, 40_000), np.ones(40_000, bool)
    assert within_sigma(0 * truth, 0.01 + 0 * truth, truth, mask) == pytest.approx(0.683, abs=0.01)
    likelihoods = [gaussian_nll(0 * truth, v + 0 * truth, truth, mask) for v in (0.005, 0.01, 0.02)]
    assert likelihoods[1] == min(likelihoods)


def test_counting_frame_by_frame_is_counting_all_at_once(array):
    rng = np.random.default_rng(1)
    mean, truth = rng.normal(size=(2, 5, 30))
    variance = rng.choice([0.5, 10.0], (5, 30))
    seen, mask = rng.random((2, 5, 30)) < 0.6
    truth[0, 0] = math.nan
    counter = ScoreCounter(prior_variance_m2=10.0)
    for k in range(5):
        counter.add(*(array(item[k]) for item in (mean, variance, truth)), array(seen[k]) > 0, array(mask[k]) > 0)
    scores = counter.scores()
    mask &= np.isfinite(truth)
    assert scores.cells == mask.sum()
    assert scores.mae_seen_cm == pytest.approx(mae_cm(mean, truth, mask & seen), rel=1e-5)
    assert scores.mae_occluded_cm == pytest.approx(mae_cm(mean, truth, mask & ~seen), rel=1e-5)
    known = variance < 10.0
    assert scores.mae_known_cm == pytest.approx(mae_cm(mean, truth, mask & known), rel=1e-5)
    assert scores.coverage == pytest.approx(coverage(known, mask))
    assert scores.nll == pytest.approx(gaussian_nll(mean, variance, truth, mask), rel=1e-5)
    assert scores.within_1_sigma == pytest.approx(within_sigma(mean, variance, truth, mask & known))


def test_a_counter_without_cells():
    scores = ScoreCounter(10.0).scores()
    assert scores.cells == 0
    assert math.isnan(scores.nll)
