"""Files of one machine's dynamics, read and written, and what is refused in them."""

from __future__ import annotations

import numpy as np
import pytest

from gantry_hardware.errors import GantryError
from gantry_hardware.model.dynamics import (
    PARAMETERS,
    Estimate,
    RobotDynamics,
    load_dynamics,
    save_dynamics,
    usual_value,
)
from gantry_hardware.robots import robot_spec

GO2 = robot_spec("go2")


def some():
    joints = {
        "FL_calf_joint": {"coulomb_friction_nm": Estimate(0.8, 0.7, 0.9), "armature_kg_m2": Estimate(0.02)},
        "FR_hip_joint": {"encoder_offset_rad": Estimate(-0.03)},
    }
    return RobotDynamics("go2", joints, {"command_delay_s": Estimate(0.012, 0.01, 0.014)}, "by hand")


def test_a_file_holds_what_was_written(tmp_path):
    save_dynamics(tmp_path / "go2.yaml", some())
    assert load_dynamics(tmp_path / "go2.yaml") == some()


def test_what_is_not_said_is_as_usual():
    found = some()
    armature = found.joint_values("armature_kg_m2", GO2)
    assert armature[GO2.joint_index("FL_calf_joint")] == 0.02
    assert np.count_nonzero(armature == 0.01) == 11
    model = np.full(12, 0.2)
    friction = found.joint_values("coulomb_friction_nm", GO2, model)
    assert sorted(friction.tolist()) == [0.2] * 11 + [0.8]
    assert found.value("command_delay_s") == 0.012
    assert found.value("imu_delay_s") == 0.0
    assert (found.has("coulomb_friction_nm"), found.has("gain")) == (True, False)
    assert usual_value("effort_limit_nm", GO2, "FR_calf_joint") == 45.43


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("robot: go2\njoints: {FL_calf_joint: {armature: 1}}", "armature_kg_m2"),
        ("robot: go2\ncommand_delay: 0.1", "Did you mean 'command_delay_s'"),
        (
            "robot: go2\ncommand_delay_s: -0.1",
            "'command_delay_s' of robot 'go2' is -0.1, expected a number from 0 to 1",
        ),
        ("robot: go2\ncommand_delay_s: {value: 0.1, low: 0.2, high: 0.3}", "interval 0.2 to 0.3 does not hold"),
        ("robot: go2\ncommand_delay_s: {value: 0.1, low: 0.2}", "interval 0.2 to 1 does not hold"),
        ("", "the file is empty"),
        ("robot: go2\njoints: {FL_calf_joint: {corner_speed_rad_s: 5}}", "means nothing without 'no_load_speed_rad_s'"),
        (
            "robot: go2\njoints: {FL_calf_joint: {corner_speed_rad_s: 20, no_load_speed_rad_s: 10}}",
            "'corner_speed_rad_s' of joint 'FL_calf_joint' of 'go2' is 20, expected less than",
        ),
        ("robot: go2\ncommand_delay_s: {low: 0.2}", "lacks its value"),
        ("robot: go2\ncommand_delay_s: quick", "expected a number"),
        ("joints: {}", "expected the name of a robot"),
        ("- 1", "expected 'robot'"),
    ],
)
def test_mistakes_are_refused_with_the_file(tmp_path, text, message):
    path = tmp_path / "go2.yaml"
    path.write_text(text)
    with pytest.raises(GantryError) as refused:
        load_dynamics(path)
    assert message in str(refused.value)
    assert str(path) in str(refused.value)


def test_another_robot_and_other_joints_are_refused():
    with pytest.raises(GantryError, match="those of robot 'go2', this robot is 'g1'"):
        some().check_robot(robot_spec("g1"))
    with pytest.raises(GantryError, match="FL_knee"):
        RobotDynamics("go2", {"FL_knee": {}}).check_robot(GO2)


def test_every_parameter_of_a_joint_that_a_spec_gives_is_one_of_its_fields():
    for name, parameter in PARAMETERS.items():
        if isinstance(parameter.usual, str):
            assert GO2.array(parameter.usual).shape == (12,), name
