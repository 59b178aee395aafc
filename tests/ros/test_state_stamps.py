"""Stamps of a robot's readings: their progress tells how old they are, and none is believed without bound."""

from __future__ import annotations

import math

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from gantry_ros.robots.state_stamps import LATE_S, StateStamps  # noqa: E402

PERIOD_S = 0.005


def hear(stamps, begin_s, seconds, clock=lambda now_s: now_s, delay=lambda now_s: 0.002):
    """Readings at 200 Hz; returns which counted, and how late each was said to be."""
    heard = []
    for index in range(round(seconds / PERIOD_S)):
        sent_s = begin_s + index * PERIOD_S
        heard.append((stamps.judge(clock(sent_s), sent_s + delay(sent_s)), stamps.late_s))
    return heard


@pytest.mark.parametrize("ahead_s", [0.0, 3600.0, -3600.0, 1.7e9, -(2.0**31)])
def test_a_clock_that_differs_by_any_constant_time_is_believed(ahead_s):
    heard = hear(StateStamps(), 100.0, 20.0, clock=lambda now_s: now_s + ahead_s)
    assert all(item == (True, 0.0) for item in heard)


@pytest.mark.parametrize("drift", [1e-3, -1e-3])
def test_clocks_that_drift_apart_slowly_make_no_reading_old(drift):
    heard = hear(StateStamps(), 0.0, 600.0, clock=lambda now_s: (1.0 + drift) * now_s)
    assert all(item == (True, 0.0) for item in heard)


@pytest.mark.parametrize("stamp_s", [2.0**31 - 1, 1800.0, -(2.0**31), math.nan, math.inf, -math.inf])
def test_one_wrong_stamp_among_good_ones_costs_that_reading_at_most(stamp_s):
    stamps = StateStamps()
    assert all(counted for counted, _ in hear(stamps, 100.0, 2.0))
    stamps.judge(stamp_s, 102.0)
    after = hear(stamps, 102.0 + PERIOD_S, 5.0)
    # After one from long ago the next is taken for a leap forward, for a second.
    allowed_s = 1.1 if stamp_s < -(2.0**30) and math.isfinite(stamp_s) else 0.0
    assert all(item == (True, 0.0) for item in after[round(allowed_s / PERIOD_S) :])
    assert stamps.refused >= 1


def test_a_clock_that_is_set_forward_is_followed_after_a_second():
    stamps = StateStamps()
    hear(stamps, 100.0, 2.0)
    heard = hear(stamps, 102.0, 4.0, clock=lambda now_s: now_s + 3600.0)
    assert not any(counted for counted, _ in heard[: round(0.9 / PERIOD_S)])
    assert all(item == (True, 0.0) for item in heard[round(1.1 / PERIOD_S) :])


def test_a_source_that_starts_over_is_followed_at_once():
    stamps = StateStamps()
    hear(stamps, 100.0, 2.0)
    heard = hear(stamps, 102.0, 2.0, clock=lambda now_s: now_s - 90.0)
    assert all(item == (True, 0.0) for item in heard)


@pytest.mark.parametrize("growth", [0.02, 0.1, 0.5])
def test_a_link_that_clogs_makes_readings_as_old_as_they_are(growth):
    stamps = StateStamps()
    hear(stamps, 0.0, 10.0)
    heard = hear(stamps, 10.0, 60.0, delay=lambda now_s: 0.002 + growth * (now_s - 10.0))
    for index, (counted, late_s) in enumerate(heard):
        truth_s = growth * index * PERIOD_S
        assert counted
        assert (
            late_s == pytest.approx(truth_s, abs=0.005 * (1.0 + growth) * index * PERIOD_S + 1e-6)
            or truth_s < LATE_S + 0.35
        )
    assert heard[-1][1] > 0.7 * growth * 60.0


def test_a_burst_after_a_pause_is_as_old_as_it_is_and_then_new_again():
    stamps = StateStamps()
    hear(stamps, 0.0, 5.0)
    burst = [(stamps.judge(5.0 + 0.01 * index, 7.0), stamps.late_s) for index in range(200)]
    assert burst[0][1] > 1.5
    assert burst[-1] == (True, 0.0)


def test_a_stamp_that_stands_still_is_no_news():
    stamps = StateStamps()
    assert stamps.judge(100.0, 5.0)
    assert not any(stamps.judge(100.0, 5.0 + 0.1 * index) for index in range(1, 100))
