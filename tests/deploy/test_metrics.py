"""Tracking errors and falls: hand-made numbers, the same in numpy and torch."""

import math

import numpy as np
import pytest

from gantry_deploy.contract.policy_contract import Acceptance
from gantry_deploy.evaluation.metrics import (
    EpisodeScores,
    bootstrap_mean,
    has_fallen,
    planar_velocity_error_m_s,
    rate_interval,
    tracking_scores,
    yaw_rate_error_rad_s,
)

UPRIGHT = [1.0, 0.0, 0.0, 0.0]


def rolled(degrees):
    half = math.radians(degrees) / 2
    return [math.cos(half), math.sin(half), 0.0, 0.0]


def test_planar_error_is_the_norm_and_ignores_the_vertical():
    velocity = np.array([[0.8, 0.4, 5.0]])
    command = np.array([[0.5, 0.0, 9.0]])
    assert planar_velocity_error_m_s(velocity, command) == pytest.approx([0.5])


def test_yaw_error_is_absolute_and_about_the_base_z_axis():
    assert yaw_rate_error_rad_s(np.array([[7.0, 8.0, -0.2]]), np.array([[1.0, 1.0, 0.3]])) == pytest.approx([0.5])


def test_a_fall_is_low_tilted_or_not_a_number():
    quats = np.array([UPRIGHT, UPRIGHT, rolled(59.0), rolled(61.0), [math.nan] * 4, UPRIGHT])
    heights = np.array([0.3, 0.19, 0.3, 0.3, 0.3, math.nan])
    assert has_fallen(quats, heights, 0.2).tolist() == [False, True, False, True, True, True]


def test_yaw_alone_is_no_fall():
    assert not has_fallen(np.array([[0.0, 0.0, 0.0, 1.0]]), np.array([0.3]), 0.2)[0]


def feed(scores, array, steps):
    """Steps of two episodes: (forward velocity, height) of each; the command is 1 m/s ahead."""
    for (first, first_height), (second, second_height) in steps:
        scores.update(
            array([[first, 0.0, 0.0], [second, 0.0, 0.0]]),
            array([[0.0, 0.0, 0.1], [0.0, 0.0, 0.1]]),
            array([UPRIGHT, UPRIGHT]),
            array([first_height, second_height]),
            array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]),
        )


STEPS = [((1.0, 0.3), (0.5, 0.3)), ((0.8, 0.3), (0.0, 0.1)), ((0.9, 0.3), (-50.0, 0.3))]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_an_episode_counts_until_before_its_fall(library):
    module = pytest.importorskip(library)
    array = module.asarray
    scores = EpisodeScores(array([[0.0], [0.0]]), fall_height_m=0.2)
    feed(scores, array, STEPS)
    assert scores.fallen.tolist() == [False, True]
    assert scores.steps.tolist() == [3.0, 1.0]
    # The second fell in its second step; neither that one nor the -50 m/s after it count.
    assert scores.lin_vel_error_m_s.tolist() == pytest.approx([0.1, 0.5])
    assert scores.yaw_rate_error_rad_s.tolist() == pytest.approx([0.1, 0.1])


def test_no_step_yet_is_no_number():
    assert np.isnan(EpisodeScores(np.zeros((1, 1)), fall_height_m=0.2).lin_vel_error_m_s).all()


def test_numbers_that_are_none_make_a_fall_and_no_error():
    scores = EpisodeScores(np.zeros((2, 1)), fall_height_m=0.2)
    feed(scores, np.asarray, [((1.0, 0.3), (0.5, 0.3)), ((1.0, 0.3), (math.nan, math.nan))])
    assert scores.fallen.tolist() == [False, True]
    assert scores.lin_vel_error_m_s.tolist() == pytest.approx([0.0, 0.5])


def test_bootstrap_of_equal_values_has_no_width_and_skips_nan():
    score = bootstrap_mean([0.25, 0.25, math.nan, 0.25])
    assert (score.mean, score.low, score.high) == (0.25, 0.25, 0.25)
    assert math.isnan(bootstrap_mean([]).mean)


def test_bootstrap_interval_agrees_with_the_normal_one():
    values = np.random.default_rng(1).normal(2.0, 0.5, 400)
    score = bootstrap_mean(values)
    half = 1.96 * values.std(ddof=1) / math.sqrt(len(values))
    assert score.low == pytest.approx(values.mean() - half, abs=0.006)
    assert score.high == pytest.approx(values.mean() + half, abs=0.006)


def test_rate_interval_against_published_numbers():
    # Newcombe, Statistics in Medicine 17 (1998), table I, method 3: 81/263, 15/148, 0/20.
    for hits, trials, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        score = rate_interval(hits, trials)
        assert (score.low, score.high) == pytest.approx((low, high), abs=5e-5)
        assert score.mean == hits / trials


def test_verdicts_tell_value_interval_and_limit():
    scores = tracking_scores([0.1, 0.3], [0.1, 0.1], [False, True])
    acceptance = Acceptance(max_lin_vel_error_m_s=0.15, max_yaw_rate_error_rad_s=0.2, max_fall_rate=0.5)
    velocity, yaw, falls = scores.verdicts(acceptance)
    assert (velocity.passed, yaw.passed, falls.passed) == (False, True, True)
    assert velocity.text == "0.200 m/s, 95 % interval 0.100 to 0.300, allowed 0.15 m/s; more episodes would tell"


def test_nothing_measured_does_not_pass():
    scores = tracking_scores([math.nan], [math.nan], [False])
    assert [verdict.passed for verdict in scores.verdicts(Acceptance())] == [False, False, True]
