"""What is said of a name that does not exist: the near miss where there is one, and none where there is not."""

from __future__ import annotations

import pytest

from gantry_hardware.errors import GantryError, RobotError, near_name, unknown_name_text

ARGUMENTS = ("bundle", "config", "fault", "fault_after_s", "record", "route_end", "seed", "statistics", "task")


@pytest.mark.parametrize(
    ("name", "names", "meant"),
    [
        ("cdua", ("cpu", "cuda"), "cuda"),
        ("go3", ("g1", "go2", "yam"), "go2"),
        ("lift", ("yam-lift", "yam-push"), "yam-lift"),
        ("rnus", ("runs", "sim"), "runs"),
        ("meen", ("mean", "sample"), "mean"),
        ("fault_after", ARGUMENTS, "fault_after_s"),
        ("bundel", ARGUMENTS, "bundle"),
        ("max_tilt", ("max_tilt_rad", "max_imu_error_rad"), "max_tilt_rad"),
        ("policy_nod", ("policy_node", "operator_node"), "policy_node"),
        ("drive-lan", ("drive-lane", "drive-park"), "drive-lane"),
        ("seconds", ARGUMENTS, ""),
        ("drive-lane", ("drive-traffic", "go2-walk", "yam-pick-place"), ""),
        ("x", (), ""),
    ],
)
def test_a_slip_is_told_from_another_word(name, names, meant):
    assert near_name(name, names) == meant


def test_the_text_lists_every_name_and_shows_an_empty_one():
    assert unknown_name_text("mode", "fats", ("slow", "fast")) == (
        "Unknown mode 'fats'. Did you mean 'fast'? Available: fast, slow."
    )
    assert unknown_name_text("fault", "x", ("", "nan")) == "Unknown fault 'x'. Available: '', nan."
    assert unknown_name_text("fault", "x", ()) == "Unknown fault 'x'. Available: (none)."


def test_a_message_holds_no_control_characters_whatever_it_quotes():
    assert str(GantryError("type: \x0f\nsecond line \x1b[2J")) == "type: \\x0f\nsecond line \\x1b[2J"
    assert str(RobotError("é \ud800")) == "é \\ud800"
