"""A drill against a ride made by hand: when its fault begins, and what it says of the braking."""

from __future__ import annotations

import numpy as np
import pytest

from gantry_bringup.description import LAUNCHES
from gantry_hardware.errors import GantryError
from gantry_ros.simulated.car_faults import WATCHED_S, Drill, drill_text

STEP_S = 0.01


def ride(drill, phases):
    """Drive phases of (seconds, acceleration) from rest; returns when its fault began."""
    time_s, speed, begun = 0.0, 0.0, []
    for seconds, accel in phases:
        for _ in range(round(seconds / STEP_S)):
            time_s, speed = time_s + STEP_S, max(0.0, speed + accel * STEP_S)
            if drill.note(time_s, speed):
                begun.append(time_s)
    return begun


def test_a_fault_begins_after_so_long_on_the_way_and_braking_is_measured():
    """8 m/s, half a second without brakes, then 4 m/s^2: 2 s and 8 m, after 4 m."""
    drill = Drill("no_scan", 3.0, 8.0)
    begun = ride(drill, [(1.0, 0.0), (2.0, 4.0), (1.57, 0.0), (2.0, -4.0), (WATCHED_S, 0.0)])
    # On its way since it was faster than 0.3 m/s, 1.08 s after the beginning.
    assert begun == [pytest.approx(4.08, abs=1.5 * STEP_S)]
    assert drill.over
    report = drill.report(last_told_s=4.0)
    coasting = 1.0 + 2.0 + 1.57 - begun[0]
    assert report["last_told_before_s"] == pytest.approx(begun[0] - 4.0)
    assert report["speed_m_s"] == report["top_speed_after_m_s"] == pytest.approx(8.0)
    assert report["rest_after_s"] == pytest.approx(coasting + 2.0, abs=2 * STEP_S)
    assert report["way_m"] == pytest.approx(8.0 * coasting + 8.0, abs=0.02)
    assert report["least_way_m"] == pytest.approx(4.0)
    assert report["hardest_braking_m_s2"] == pytest.approx(4.0)
    assert report["within_limit"]
    assert not report["moved_again"]
    assert "'no_scan' at 8.00 m/s, told last 0.09 s before: at rest after 2.4" in drill_text(report)
    assert drill_text(report).endswith("allowed are 8.00; it has stayed there.")


def test_too_hard_braking_and_moving_again_are_told():
    drill = Drill("no_objects", 1.0, 8.0)
    ride(drill, [(2.0, 4.0), (0.8, -10.0), (0.5, 0.0), (0.1, 4.0), (WATCHED_S, 0.0)])
    report = drill.report()
    assert report["hardest_braking_m_s2"] == pytest.approx(10.0)
    assert not report["within_limit"]
    assert report["moved_again"]
    assert report["top_speed_after_m_s"] == pytest.approx(8.0)
    assert report["last_told_before_s"] is None
    assert drill_text(report).endswith("it moved again.")


def test_a_car_that_does_not_stop_is_never_over():
    drill = Drill("no_scan", 1.0, 8.0)
    ride(drill, [(2.0, 4.0), (9.0, 0.0)])
    assert not drill.over
    assert drill_text(drill.report()).endswith("the car has not come to rest.")


def test_a_car_that_stands_loses_nothing():
    drill = Drill("no_scan", 1.0, 8.0)
    assert ride(drill, [(1.0, 1.0), (0.5, -4.0), (5.0, 0.0)]) == []
    assert drill_text(drill.report()) == "The fault 'no_scan' did not begin."
    assert np.isfinite(drill.report()["way_m"])


def test_faults_have_names_and_the_launch_lists_them():
    with pytest.raises(GantryError) as caught:
        Drill("blind", 1.0, 8.0)
    told = "frozen, late_objects, nan, no_joints, no_objects, no_scan, no_stop_line, silent"
    assert str(caught.value) == f"Unknown fault 'blind'. Available: {told}."
    (argument,) = (argument for argument in LAUNCHES["sim_drive"].arguments if argument.name == "fault")
    assert all(name in argument.text for name in told.split(", "))
    with pytest.raises(GantryError, match="Did you mean 'no_scan'"):
        Drill("no_scam", 1.0, 8.0)
    with pytest.raises(GantryError, match="no fault is named"):
        Drill("", 1.0, 8.0)
