"""Scripted commands of the operator node."""

from __future__ import annotations

import pytest

from gantry_hardware.errors import GantryError
from gantry_ros.nodes.profile import DEMO_PROFILE, Segment, parse_goal, parse_profile, segment_at


def test_segments_follow_each_other_and_end():
    segments = parse_profile("2:0.5,0,-1; 3:0,0.25,0;")
    assert segments == (Segment(2.0, 0.5, 0.0, -1.0), Segment(3.0, 0.0, 0.25, 0.0))
    assert [segment_at(segments, time_s) for time_s in (0.0, 1.999, 2.0, 4.999, 5.0)] == [
        segments[0],
        segments[0],
        segments[1],
        segments[1],
        None,
    ]


def test_the_demo_lasts_twenty_seconds_and_ends_at_rest():
    segments = parse_profile(DEMO_PROFILE)
    assert sum(segment.duration_s for segment in segments) == 20.0
    assert segments[-1] == Segment(2.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("text", ["", "2", "2:1,2", "0:1,0,0", "-1:1,0,0", "1:nan,0,0", "1:a,0,0", "x:0,0,0"])
def test_a_malformed_profile_is_refused(text):
    with pytest.raises(GantryError, match=r"seconds:vx,vy,yaw_rate|empty"):
        parse_profile(text)


def test_a_goal_is_three_numbers():
    goal = parse_goal("6, -1,0.5")
    assert (goal.x_in_world_m, goal.y_in_world_m, goal.yaw_in_world_rad) == (6.0, -1.0, 0.5)
    for text in ("6,0", "6,0,x", "6,0,nan", ""):
        with pytest.raises(GantryError, match="is not of the form x,y,yaw"):
            parse_goal(text)
