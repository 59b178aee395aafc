"""What a contract of stepping legs must hold before a robot is moved by it."""

from dataclasses import replace

import pytest

from gantry_deploy.contract.footstep_spec import STEP_TARGET, PathSelectorSpec
from gantry_deploy.contract.policy_contract import ActionSpec
from gantry_deploy.errors import ContractError
from gantry_fixtures.footsteps import LEGS, STEPS, stepping_contract, steps_with
from gantry_hardware.robots import robot_spec


def path_with(**changes):
    gait = stepping_contract().gait
    return {"gait": replace(gait, steps=replace(STEPS, path=PathSelectorSpec(**changes)))}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (steps_with("support", mass_kg=-15.0), r"support\.mass_kg is -15\.0, expected a number from 1e-06 to"),
        (steps_with("support", drag_1_s=-6.0), r"support\.drag_1_s is -6\.0, expected a number from 0 to"),
        (steps_with("support", inertia_kg_m2=(0.1, 0.0, 0.1)), r"inertia_kg_m2\[1\] is 0\.0"),
        (steps_with("support", height_m=0.4), "expected rising numbers"),
        (steps_with("swing", clearance_m=-0.1), r"clearance_m is -0\.1, expected a number from 0 to"),
        (steps_with("swing", most_lead_rad=(0.8, 0.8, 0.0)), r"most_lead_rad\[2\] is 0\.0, expected a number"),
        (steps_with("swing", search_m=4.0), r"swing\.search_m is 4\.0, expected a number from 0 to 0\.5"),
        (path_with(reach_m=3.0), r"path\.reach_m is 3\.0, expected a number from 1e-06 to 2\.8"),
        (path_with(reach_m=-0.7), r"path\.reach_m is -0\.7, expected a number from 1e-06 to"),
        (steps_with("body_pose", nose_m=0.0), r"body_pose\.nose_m is 0\.0, expected a number from 1e-06 to"),
        (steps_with("body_pose", ahead_m=(0.7, 0.3)), r"body_pose\.ahead_m is \(0\.7, 0\.3\), expected rising numbers"),
        (steps_with("body_pose", ahead_m=(-3.0, -2.0)), r"body_pose\.ahead_m\[0\] is -3\.0, expected a number from 0"),
        (
            steps_with("body_pose", ahead_m=(0.3, 9.0)),
            r"body_pose\.ahead_m is .*expected no further than the map",
        ),
        (steps_with("swing", capture_aside_s=-0.1), r"capture_aside_s is -0\.1, expected a number from 0 to"),
        ({"gait": replace(stepping_contract().gait, duty=0.4)}, r"gait\.duty is 0\.4, expected 0\.5"),
        ({"gait": replace(stepping_contract().gait, foot_offset=(0.0, 0.0, 0.5, 0.5))}, "between the front feet"),
        (
            {"gait": replace(stepping_contract().gait, steps=replace(STEPS, legs=(LEGS[0], LEGS[0], *LEGS[2:])))},
            "4 at 3 corners, expected four at four",
        ),
        ({"action": ActionSpec(STEP_TARGET, (-0.1,) * 12, (0.0,) * 12, 1.0)}, r"action\.scale is"),
        ({"map_window": replace(stepping_contract().map_window, resolution_m=0.0)}, "resolution_m is 0"),
        (
            {"map_window": replace(stepping_contract().map_window, channels=("uncertainty", "elevation"))},
            "elevation first",
        ),
    ],
)
def test_no_robot_is_moved_by_numbers_that_make_no_sense(change, words):
    with pytest.raises(ContractError, match=words):
        stepping_contract(**change).check_robot(robot_spec("go2"))
    stepping_contract().check_robot(robot_spec("go2"))
