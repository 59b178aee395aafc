import math
from dataclasses import fields, replace

import numpy as np
import pytest

from gantry_hardware.backends.limits import clamp_command
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import JointSpec
from gantry_hardware.robots import robot_names, robot_spec
from gantry_hardware.robots.g1 import FAST, SMALL, STRONG, TINY
from gantry_hardware.robots.go2 import SPEC as GO2

ROBOTS = ("go1", "go2", "g1")


def test_the_registry_offers_the_robots():
    assert set(ROBOTS) <= set(robot_names())


@pytest.mark.parametrize("name", ROBOTS)
def test_left_and_right_mirror_each_other(name):
    """Sagittal angles are equal on both sides, roll and yaw angles opposite, and so are the limits."""
    spec = robot_spec(name)
    quadruped = {"FR": "FL", "RR": "RL"}
    for joint in spec.joints:
        side, _, rest = joint.name.partition("_")
        twin_side = quadruped.get(side) or {"right": "left"}.get(side)
        if twin_side is None:
            continue
        twin = spec.joints[spec.joint_index(f"{twin_side}_{rest}")]
        sagittal = any(part in rest for part in ("thigh", "calf", "pitch", "knee", "elbow"))
        if sagittal:
            assert (joint.lower_rad, joint.upper_rad, joint.default_rad) == (
                twin.lower_rad,
                twin.upper_rad,
                twin.default_rad,
            )
        else:
            assert (joint.lower_rad, joint.upper_rad) == (-twin.upper_rad, -twin.lower_rad)
            assert joint.default_rad == -twin.default_rad
        assert joint.effort_limit_nm == twin.effort_limit_nm
        assert joint.stiffness_nm_rad == twin.stiffness_nm_rad


def test_go1_gains_follow_from_the_rotor():
    spec = robot_spec("go1")
    hip, _, calf = spec.joints[:3]
    assert hip.armature_kg_m2 == pytest.approx(0.000111842 * 36, rel=1e-12)
    assert calf.armature_kg_m2 == pytest.approx(0.000111842 * 81, rel=1e-12)
    # Natural frequency 10 Hz and damping ratio 2, put the other way round.
    assert math.sqrt(hip.stiffness_nm_rad / hip.armature_kg_m2) == pytest.approx(62.831853, rel=1e-6)
    assert hip.damping_nm_s_rad == pytest.approx(4.0 * math.sqrt(hip.stiffness_nm_rad * hip.armature_kg_m2))
    assert calf.stiffness_nm_rad == pytest.approx(2.25 * hip.stiffness_nm_rad)
    assert calf.effort_limit_nm == pytest.approx(35.55)


def test_g1_motors_reflect_their_gears():
    # By hand for the small motor: 0.139 (32/9 * 9/2)^2 + 0.017 (9/2)^2 + 0.169 = 35.584 + 0.34425 + 0.169, times 1e-4.
    assert SMALL.armature_kg_m2 == pytest.approx(36.09725e-4, rel=1e-9)
    # 0.489 (4.5 * 35/11)^2 + 0.098 (35/11)^2 + 0.533
    assert FAST.armature_kg_m2 == pytest.approx((0.489 * (157.5 / 11) ** 2 + 0.098 * (35 / 11) ** 2 + 0.533) * 1e-4)
    assert STRONG.armature_kg_m2 == pytest.approx((0.489 * 506.25 + 0.109 * 25 + 0.738) * 1e-4)
    assert TINY.armature_kg_m2 == pytest.approx(0.068e-4 * 625)


def test_g1_joints_have_their_motors():
    spec = robot_spec("g1")
    assert spec.num_joints == 29
    by_name = {joint.name: joint for joint in spec.joints}
    assert by_name["left_ankle_roll_joint"].armature_kg_m2 == pytest.approx(2 * SMALL.armature_kg_m2)
    assert by_name["waist_pitch_joint"].effort_limit_nm == 50.0
    assert by_name["waist_yaw_joint"].effort_limit_nm == 88.0
    assert by_name["right_knee_joint"].effort_limit_nm == 139.0
    assert by_name["right_wrist_yaw_joint"].effort_limit_nm == 5.0


def test_g1_ankles_can_balance_only_while_holding():
    spec = robot_spec("g1")
    ankle = spec.joint_index("left_ankle_pitch_joint")
    toppling_nm_rad = spec.mass_kg * 9.81 * 0.67
    assert 2 * spec.array("stiffness_nm_rad")[ankle] < toppling_nm_rad
    assert 2 * spec.hold_stiffness_nm_rad[ankle] > 2 * toppling_nm_rad
    held = JointCommand.position(spec, spec.array("default_rad"))
    np.testing.assert_array_equal(held.stiffness_nm_rad, spec.hold_stiffness_nm_rad)
    np.testing.assert_array_equal(held.damping_nm_s_rad, spec.hold_damping_nm_s_rad)


def test_a_robot_without_hold_gains_holds_with_its_own():
    spec = robot_spec("go2")
    np.testing.assert_array_equal(spec.hold_stiffness_nm_rad, spec.array("stiffness_nm_rad"))
    np.testing.assert_array_equal(spec.hold_damping_nm_s_rad, spec.array("damping_nm_s_rad"))


def test_hold_gains_of_another_number_of_joints_are_refused():
    with pytest.raises(GantryError, match="2 pairs of hold gains, expected 12"):
        replace(robot_spec("go2"), hold_gains=((1.0, 1.0), (1.0, 1.0)))


@pytest.mark.parametrize("name", ROBOTS)
def test_holding_the_weight_needs_less_than_the_motors_have(name):
    """A quarter of a quadruped on each calf, with the lever of its default pose; a humanoid's knees, both together."""
    spec = robot_spec(name)
    joint = spec.joints[spec.joint_index("FL_calf_joint" if len(spec.feet) == 4 else "left_knee_joint")]
    share = 4 if len(spec.feet) == 4 else 2
    lever_m = 0.213 * math.sin(0.9) if len(spec.feet) == 4 else 0.3 * math.sin(0.669)
    assert spec.mass_kg * 9.81 / share * lever_m < 0.5 * joint.effort_limit_nm


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308, -1e308])
def test_no_number_of_a_robot_is_absurd(value):
    for item in fields(JointSpec):
        if item.name != "name":
            with pytest.raises(GantryError, match=f"{item.name} is .*, expected"):
                replace(GO2.joints[0], **{item.name: value})
    for name in ("base_height_m", "fall_height_m", "mass_kg"):
        with pytest.raises(GantryError, match=f"'go2': {name} is .*, expected"):
            replace(GO2, **{name: value})
    with pytest.raises(GantryError, match=r"hold_gains\[0\]\[1\] is"):
        replace(GO2, hold_gains=((1.0, value),) * 12)
    with pytest.raises(GantryError, match=r"damp_gains_nm_s_rad\[0\] is"):
        replace(GO2, damp_gains_nm_s_rad=(value,) * 12)


@pytest.mark.parametrize("name", robot_names())
def test_damping_is_within_what_the_limits_let_through(name):
    spec = robot_spec(name)
    damping = JointCommand.damping(spec)
    assert (damping.stiffness_nm_rad == 0.0).all()
    assert (damping.damping_nm_s_rad >= spec.array("damping_nm_s_rad")).all()
    limited, changed = clamp_command(spec, damping)
    assert changed == []
    assert np.array_equal(limited.damping_nm_s_rad, damping.damping_nm_s_rad)


def test_damp_gains_are_one_for_each_joint():
    with pytest.raises(GantryError, match="3 damp gains, expected 12 or none"):
        replace(GO2, damp_gains_nm_s_rad=(1.0,) * 3)
