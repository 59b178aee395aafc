"""Stamps: what is ahead is refused and changes nothing, what starts over is followed at once."""

import math

import pytest

from gantry_hardware.stamps import StampGate, StampVerdict


def test_newer_stamps_are_accepted_and_equal_or_slightly_older_ones_are_not():
    gate = StampGate()
    assert [gate.judge(stamp, 10.0) for stamp in (9.0, 9.1, 9.1, 8.2)] == [
        StampVerdict.ACCEPTED,
        StampVerdict.ACCEPTED,
        StampVerdict.NOT_NEWER,
        StampVerdict.NOT_NEWER,
    ]
    assert gate.newest_s == 9.1


@pytest.mark.parametrize("ahead_s", [0.51, 0.8, 1800.0, 2.0**31])
def test_a_stamp_from_ahead_changes_nothing_but_its_count(ahead_s):
    gate = StampGate()
    gate.judge(100.0, 100.0)
    assert gate.judge(100.0 + ahead_s, 100.0) is StampVerdict.AHEAD
    assert gate.newest_s == 100.0
    assert gate.counts[StampVerdict.AHEAD] == 1
    assert gate.judge(100.02, 100.02) is StampVerdict.ACCEPTED


def test_a_stamp_within_the_bound_is_accepted():
    assert StampGate().judge(100.5, 100.0) is StampVerdict.ACCEPTED
    assert StampGate(max_ahead_s=10.0).judge(109.0, 100.0) is StampVerdict.ACCEPTED


@pytest.mark.parametrize("back_s", [1.01, 3600.0, 100.0 + 2.0**31])
def test_a_source_that_jumps_back_by_more_than_a_second_is_followed_at_once_and_back_again(back_s):
    gate = StampGate()
    gate.judge(100.0, 100.0)
    assert gate.judge(100.0 - back_s, 100.0) is StampVerdict.RESTARTED
    assert gate.newest_s == 100.0 - back_s
    assert gate.judge(100.1, 100.1) is StampVerdict.ACCEPTED


@pytest.mark.parametrize("stamp_s", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_no_time(stamp_s):
    gate = StampGate()
    gate.judge(1.0, 1.0)
    verdict = gate.judge(stamp_s, 1.0)
    assert verdict is StampVerdict.NO_TIME
    assert not verdict.believed
    assert gate.newest_s == 1.0


def test_a_clock_that_is_behind_by_a_constant_is_believed():
    gate = StampGate()
    assert all(gate.judge(5.0 + 0.02 * k, 1.7e9 + 0.02 * k).believed for k in range(10))


def test_without_a_clock_nothing_is_ahead_and_starting_over_is_still_seen():
    gate = StampGate()
    assert gate.judge(1e9) is StampVerdict.ACCEPTED
    assert gate.judge(5.0) is StampVerdict.RESTARTED


def test_the_reason_tells_the_numbers():
    gate = StampGate()
    gate.judge(100.0, 100.0)
    assert "1.8e+03 s ahead" in gate.text(gate.judge(1900.0, 100.0), 1900.0, 100.0)
    assert "0.3 s before" in gate.text(gate.judge(99.7, 100.0), 99.7, 100.0)
    assert "nan s: not a time" in gate.text(gate.judge(math.nan, 100.0), math.nan, 100.0)
