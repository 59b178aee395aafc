"""What a contract of stepping legs must hold before a robot is moved by it."""

from dataclasses import replace

import pytest

from gantry_deploy.contract.footstep_spec import STEP_TARGET, SteerSpec
from gantry_deploy.contract.policy_contract import ActionSpec
from gantry_deploy.errors import ContractError
from gantry_deploy.testing.footsteps import LEGS, STEPS, stepping_contract, steps_with
from gantry_hardware.robots import robot_spec


def steering_with(**changes):
    gait = stepping_contract().gait
    return {"gait": replace(gait, steps=replace(STEPS, steer=SteerSpec(**changes)))}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (steps_with("support", mass_kg=-15.0), r"support\.mass_kg is -15\.0, expected a number from 1e-06 to"),
        (steps_with("support", friction=0.0), r"support\.friction is 0\.0"),
        (steps_with("support", narrow_share=1.6), r"support\.narrow_share is 1\.6, expected a number from 0 to 1\."),
        (steps_with("support", drag_1_s=-6.0), r"support\.drag_1_s is -6\.0, expected a number from 0 to"),
        (steps_with("support", inertia_kg_m2=(0.1, 0.0, 0.1)), r"inertia_kg_m2\[1\] is 0\.0"),
        (steps_with("support", height_m=0.4), "expected rising numbers"),
        (steps_with("support", pitch_share=1.5), r"pitch_share is 1\.5, expected a number from 0 to 1\."),
        (steps_with("swing", lead_s=0.0), r"swing\.lead_s is 0\.0, expected a number from 1e-06 to"),
        (steps_with("swing", clearance_m=-0.1), r"clearance_m is -0\.1, expected a number from 0 to"),
        (steps_with("swing", most_lead_rad=(0.8, 0.8, 0.0)), r"most_lead_rad\[2\] is 0\.0, expected a number"),
        (steps_with("footholds", search_m=4.0), r"footholds\.search_m is 4\.0, expected a number from 0 to 0\.5"),
        (steps_with("footholds", edge_share=0.0), r"footholds\.edge_share is 0\.0, expected a number from 1e-06 to"),
        (steps_with("footholds", keep=-1.0), r"footholds\.keep is -1\.0, expected a number from 0 to"),
        (steering_with(fan_rad=1.5), r"steer\.fan_rad is 1\.5, expected a number from 1e-06 to 1\.2"),
        (steering_with(ways=2), r"steer\.ways is 2, expected a number from 3"),
        (steering_with(points=0), r"steer\.points is 0, expected a number from 1"),
        (steering_with(ways=500), r"ways times points is 3500, expected at most 1000"),
        (steering_with(go_m=0.05), r"steer\.go_m is 0\.05, expected at least the first point, 0\.1 m"),
        (steering_with(turn_rad=(1.0, 0.5)), r"steer\.turn_rad is \(1\.0, 0\.5\), expected rising angles"),
        (steering_with(turn_rad=(0.5, 0.5)), r"steer\.turn_rad is \(0\.5, 0\.5\), expected rising angles, 0\.01 apart"),
        (steering_with(turn_rad=(0.5, 4.0)), r"turn_rad\[1\] is 4\.0, expected a number from 0 to 3\.14"),
        (steering_with(reach_m=-0.7), r"steer\.reach_m is -0\.7, expected a number from 1e-06 to"),
        (steps_with("posture", nose_m=0.0), r"posture\.nose_m is 0\.0, expected a number from 1e-06 to"),
        (steps_with("posture", ahead_m=(0.7, 0.3)), r"posture\.ahead_m is \(0\.7, 0\.3\), expected rising numbers"),
        (steps_with("posture", ahead_m=(-3.0, -2.0)), r"posture\.ahead_m\[0\] is -3\.0, expected a number from 0"),
        (steps_with("posture", ahead_m=(0.3, 9.0)), r"posture\.ahead_m is .*expected no further than the map_window, "),
        (steps_with("posture", wall_m=0.1), r"free_m and wall_m is \(0\.1, 0\.1\), expected rising numbers"),
        (steps_with("posture", nose_up_rad=3.0), r"posture\.nose_up_rad is 3\.0, expected a number from 0 to 1"),
        (steps_with("posture", height_m_rad=99.0), r"posture\.height_m_rad is 99\.0, expected a number from 0 to 0\.5"),
        (steps_with("swing", capture_aside_s=-0.1), r"capture_aside_s is -0\.1, expected a number from 0 to"),
        (steps_with("swing", arrive=0.05), r"swing\.arrive is 0\.05"),
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
