import subprocess
import sys

import mujoco
import numpy as np
import pytest

from gantry_hardware.errors import UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_sim.robots.actuated_scene import SceneIndex, robot_with_motors
from gantry_sim.robots.models import (
    actuated_joint_names,
    base_body,
    foot_geoms,
    model_file,
    model_names,
    robot_model,
    scene_model,
)

ROBOTS = ("go1", "go2", "g1")


@pytest.fixture(scope="module", params=ROBOTS)
def spec(request):
    return robot_spec(request.param)


@pytest.fixture(scope="module")
def compiled(spec):
    return robot_model(spec.name, visuals=False).compile()


def test_joints_come_in_the_order_of_the_spec(spec, compiled):
    assert actuated_joint_names(robot_model(spec.name, visuals=False)) == spec.joint_names
    assert tuple(compiled.joint(i).name for i in range(1, compiled.njnt)) == spec.joint_names
    assert compiled.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE


def test_go2_joints_come_in_the_order_of_the_low_level_interface():
    joints = actuated_joint_names(robot_model("go2"))
    assert joints == tuple(
        f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf")
    )


def test_ranges_are_those_of_the_spec(spec, compiled):
    np.testing.assert_allclose(compiled.jnt_range[1:, 0], spec.array("lower_rad"), atol=1e-9)
    np.testing.assert_allclose(compiled.jnt_range[1:, 1], spec.array("upper_rad"), atol=1e-9)
    assert compiled.jnt_limited[1:].all()


def test_armature_is_that_of_the_spec(spec, compiled):
    np.testing.assert_allclose(compiled.dof_armature[6:], spec.array("armature_kg_m2"), rtol=1e-12)
    np.testing.assert_array_equal(compiled.dof_armature[:6], 0.0)


def test_mass_is_that_of_the_spec(spec, compiled):
    assert compiled.body_mass.sum() == pytest.approx(spec.mass_kg, abs=1e-3)


def test_motors_have_the_torque_limits_of_the_spec(spec):
    model = robot_with_motors(spec, visuals=False)
    assert tuple(model.actuator(i).name for i in range(model.nu)) == spec.joint_names
    np.testing.assert_allclose(model.actuator_forcerange[:, 1], spec.array("effort_limit_nm"))
    np.testing.assert_allclose(model.actuator_forcerange[:, 0], -spec.array("effort_limit_nm"))
    assert model.actuator_forcelimited.all()


def test_base_height_is_where_the_feet_touch(spec):
    model = robot_with_motors(spec, visuals=False)
    data = mujoco.MjData(model)
    data.qpos[7:] = spec.array("default_rad")
    data.qpos[:3] = (0.0, 0.0, spec.base_height_m)
    mujoco.mj_forward(model, data)
    assert SceneIndex(model, spec).lowest_foot_point_m(model, data) == pytest.approx(0.0, abs=1e-3)


def test_default_pose_touches_nothing_but_the_floor(spec):
    model = robot_with_motors(spec, visuals=False)
    data = mujoco.MjData(model)
    data.qpos[7:] = spec.array("default_rad")
    data.qpos[2] = spec.base_height_m - 0.002
    mujoco.mj_forward(model, data)
    assert data.ncon > 0
    floor = model.geom("floor").id
    assert all(floor in pair for pair in data.contact.geom)
    assert SceneIndex(model, spec).feet_on_ground(data.contact.geom).all()


def test_feet_of_the_spec_are_sites_with_shapes(spec):
    model = robot_model(spec.name)
    for foot in spec.feet:
        shapes = foot_geoms(model, foot)
        assert shapes
        assert all(shape.contype for shape in shapes)


def test_foot_friction_counts_whatever_the_floor_has(spec):
    scene = scene_model(spec.name, foot_friction=0.3, visuals=False)
    scene.geom("floor").friction[0] = 0.9
    model = scene.compile()
    data = mujoco.MjData(model)
    data.qpos[7:] = spec.array("default_rad")
    data.qpos[2] = spec.base_height_m - 0.002
    mujoco.mj_forward(model, data)
    assert {contact.friction[0] for contact in data.contact} == {0.3}


def test_what_is_only_looked_at_changes_no_physics(spec):
    bare = robot_model(spec.name, visuals=False).compile()
    dressed = robot_model(spec.name).compile()
    assert dressed.ngeom > bare.ngeom
    np.testing.assert_allclose(dressed.body_mass, bare.body_mass)
    np.testing.assert_allclose(dressed.body_inertia, bare.body_inertia)
    assert (dressed.geom_contype != 0).sum() == (bare.geom_contype != 0).sum()


def test_every_model_has_the_imu_sensors(spec, compiled):
    for sensor in ("imu_ang_vel", "imu_lin_vel", "imu_lin_acc"):
        assert compiled.sensor(sensor).dim[0] == 3


def test_base_is_the_body_that_floats():
    assert [base_body(robot_model(name, visuals=False)).name for name in ROBOTS] == ["trunk", "base", "pelvis"]


def test_an_unknown_model_is_answered_with_the_near_miss():
    with pytest.raises(UnknownNameError, match="Did you mean 'go2'"):
        model_file("goo2")
    with pytest.raises(UnknownNameError, match="FR"):
        foot_geoms(robot_model("go2"), "F R")
    assert model_names() == ["cartpole", "cartpole_mjlab", "g1", "go1", "go2", "yam"]


def test_finding_a_model_imports_neither_mjlab_nor_torch():
    code = (
        "import sys, gantry_sim.backends.mujoco_robot, gantry_sim.robots.models as m\n"
        "m.robot_model('go1', visuals=False)\n"
        "print([k for k in ('mjlab', 'torch', 'warp') if k in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_numbers_agree_with_mjlab():
    """Gains, armature and torque limits that mjlab gives its Go1 and G1."""
    from mjlab.asset_zoo.robots.unitree_g1.g1_constants import get_g1_robot_cfg
    from mjlab.asset_zoo.robots.unitree_go1.go1_constants import get_go1_robot_cfg
    from mjlab.entity import Entity

    for name, cfg in (("go1", get_go1_robot_cfg()), ("g1", get_g1_robot_cfg())):
        spec = robot_spec(name)
        model = Entity(cfg).spec.compile()
        actuators = [model.actuator(joint) for joint in spec.joint_names]
        np.testing.assert_allclose([a.gainprm[0] for a in actuators], spec.array("stiffness_nm_rad"), rtol=1e-8)
        np.testing.assert_allclose([-a.biasprm[2] for a in actuators], spec.array("damping_nm_s_rad"), rtol=1e-8)
        np.testing.assert_allclose([a.forcerange[1] for a in actuators], spec.array("effort_limit_nm"), rtol=1e-8)
        np.testing.assert_allclose(model.dof_armature[6:], spec.array("armature_kg_m2"), rtol=1e-8)
        np.testing.assert_allclose(model.key_qpos[0][7:], spec.array("default_rad"), atol=1e-9)
