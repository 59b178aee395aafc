"""The YAM's numbers against its MuJoCo model, and the simulated arm as a robot of the runtime."""

import mujoco
import numpy as np
import pytest

from gantry_deploy.actions.kinematics import ArmKinematics
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_hardware.robots.yam import GRIPPER_CLOSED_M, GRIPPER_JOINT
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.robots.actuated_scene import robot_with_motors
from gantry_sim.robots.models import EE_SITE, robot_model

YAM = robot_spec("yam")


@pytest.fixture(scope="module")
def model():
    return robot_model("yam", visuals=False).compile()


def test_kinematics_and_jacobian_are_those_of_mujoco(model):
    data, arm = mujoco.MjData(model), ArmKinematics(YAM.body, np.zeros((1, 1)))
    rng, site = np.random.default_rng(0), model.site(EE_SITE).id
    linear, angular = np.zeros((3, model.nv)), np.zeros((3, model.nv))
    for _ in range(20):
        joints = rng.uniform(YAM.array("lower_rad"), YAM.array("upper_rad"))
        data.qpos[:7] = joints
        mujoco.mj_forward(model, data)
        mujoco.mj_jacSite(model, data, linear, angular, site)
        position, rotation, jacobian = arm.jacobian(joints[None, :6])
        np.testing.assert_allclose(position[0], data.site_xpos[site], atol=1e-7)
        np.testing.assert_allclose(rotation[0].ravel(), data.site_xmat[site], atol=1e-7)
        np.testing.assert_allclose(jacobian[0], np.vstack((linear, angular))[:, :6], atol=1e-7)


def test_ranges_masses_and_rotors_are_those_of_the_spec(model):
    joints = [model.joint(name) for name in YAM.joint_names]
    assert [int(joint.id) for joint in joints] == list(range(7))
    np.testing.assert_allclose(
        [joint.range for joint in joints], np.stack([YAM.array("lower_rad"), YAM.array("upper_rad")], 1)
    )
    np.testing.assert_allclose([joint.armature[0] for joint in joints], YAM.array("armature_kg_m2"))
    assert model.body_mass.sum() == pytest.approx(YAM.mass_kg, abs=1e-5)


def test_numbers_agree_with_mjlab():
    from mjlab.asset_zoo.robots.i2rt_yam import yam_constants as theirs

    gripper = YAM.joints[YAM.joint_index(GRIPPER_JOINT)]
    assert gripper.armature_kg_m2 == pytest.approx(theirs.ARMATURE_DM_4310_LINEAR_CRANK)
    assert gripper.velocity_limit_rad_s == pytest.approx(theirs.VELOCITY_LIMIT_DM_4310_LINEAR_CRANK)
    assert gripper.effort_limit_nm == pytest.approx(theirs.EFFORT_LIMIT_DM_4310_LINEAR_CRANK_SAFE)
    for joint, motor in zip(YAM.joints, theirs._ARM_JOINTS.values(), strict=False):
        numbers = joint.armature_kg_m2, joint.effort_limit_nm, joint.velocity_limit_rad_s
        assert numbers == (motor.reflected_inertia, motor.effort_limit, motor.velocity_limit)


def test_the_arm_is_a_robot_like_any_other():
    check_backend(MujocoRobot(YAM, visuals=False))


def test_it_holds_its_weight_and_goes_where_it_is_told():
    arm = MujocoRobot(YAM, visuals=False)
    arm.connect()
    arm.sleep_until(1.0)
    home = YAM.array("default_rad")
    np.testing.assert_allclose(arm.read().joint_pos_rad, home, atol=1e-3)
    told = home + np.array([0.4, -0.2, 0.2, 0.3, -0.3, 0.5, 0.0])
    told[6] = GRIPPER_CLOSED_M
    arm.write(JointCommand.position(YAM, told))
    arm.sleep_until(2.5)
    np.testing.assert_allclose(arm.read().joint_pos_rad, told, atol=2e-3)
    assert arm.data.joint("right_finger").qpos[0] == pytest.approx(-arm.data.joint("left_finger").qpos[0], abs=5e-4)
    assert not arm.has_fallen


def test_nothing_hangs_on_a_base_that_is_screwed_down():
    with pytest.raises(GantryError, match="'yam' is fixed to the ground"):
        robot_with_motors(YAM, added_mass_kg=1.0, visuals=False)
    hung = robot_with_motors(YAM, fixed_base=True, visuals=False)
    np.testing.assert_array_equal(hung.body_pos[hung.body("arm").id], 0.0)
