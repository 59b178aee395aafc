"""A robot of another package: one entry point makes it known to MuJoCo, the tasks, training and the gate."""

import os
import subprocess
import sys
import textwrap

import mujoco
import numpy as np
import pytest

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.spec import JointSpec, RobotSpec
from gantry_hardware.robots import go2
from gantry_sim.robots import model_conventions
from gantry_sim.tasks.locomotion import derived
from gantry_sim.tasks.locomotion.robots import legged_robot_cfg

LEGS = {"LF": (1, 1), "RF": (1, -1), "LH": (-1, 1), "RH": (-1, -1)}
LINK_M = 0.25


def leg(name, front, side):
    """A leg with joints called as ANYbotics does; its thigh turns the other way round than a Go2's."""
    return f"""
    <body name="{name}_HIP" pos="{0.3 * front} {0.1 * side} 0">
      <joint name="{name}_HAA" axis="1 0 0" range="-0.8 0.8"/>
      <inertial pos="0 0 0" mass="1" diaginertia="0.002 0.002 0.002"/>
      <body name="{name}_THIGH" pos="0 {0.1 * side} 0">
        <joint name="{name}_HFE" axis="0 -1 0" range="-2 2"/>
        <inertial pos="0 0 -0.1" mass="1.5" diaginertia="0.01 0.01 0.001"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.03" mass="0"/>
        <body name="{name}_SHANK" pos="0 0 {-LINK_M}">
          <joint name="{name}_KFE" axis="0 -1 0" range="-2.7 2.7"/>
          <inertial pos="0 0 -0.1" mass="0.3" diaginertia="0.002 0.002 0.0001"/>
          <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0"/>
          <geom type="sphere" pos="0 0 {-LINK_M}" size="0.03" mass="0"/>
          <geom name="{name}_picture" group="2" contype="0" conaffinity="0" type="sphere" size="0.01" mass="0"/>
          <site name="{name}_FOOT" pos="0 0 {-LINK_M}"/>
        </body>
      </body>
    </body>"""


MJCF = f"""
<mujoco model="mydog">
  <compiler angle="radian"/>
  <default><geom group="3"/></default>
  <worldbody>
    <body name="trunk" pos="0 0 0.5">
      <inertial pos="0 0 0" mass="12" diaginertia="0.15 0.4 0.5"/>
      <geom type="box" size="0.25 0.12 0.06" mass="0"/>
      {"".join(leg(name, *place) for name, place in LEGS.items())}
    </body>
  </worldbody>
  <actuator><motor joint="LF_HAA"/></actuator>
</mujoco>
"""
SPEC = f"""
import math
from pathlib import Path
from gantry_hardware.model.spec import JointSpec, RobotSpec

def joint(leg, part, lower, upper, default, torque):
    return JointSpec(f"{{leg}}_{{part}}", lower, upper, 20.0, torque, default, 60.0, 2.0, 0.02)

JOINTS = tuple(
    item
    for leg in ("LF", "RF", "LH", "RH")
    for item in (
        joint(leg, "HAA", -0.8, 0.8, 0.0, 60.0),
        joint(leg, "HFE", -2.0, 2.0, -0.7, 60.0),
        joint(leg, "KFE", -2.7, 2.7, 1.4, 60.0),
    )
)
MYDOG = RobotSpec(
    name="mydog", embodiment="legs", joints=JOINTS, feet=("LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT"),
    base_height_m=2 * {LINK_M} * math.cos(0.7) + 0.03, fall_height_m=0.2, mass_kg=23.2, source="made up",
    mjcf=str(Path(__file__).with_name("mydog.xml")),
)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """An installed package with a robot: a module, an MJCF, and the metadata that pip would write."""
    place = tmp_path_factory.mktemp("site")
    (place / "my_robots").mkdir()
    (place / "my_robots" / "__init__.py").write_text(SPEC)
    (place / "my_robots" / "mydog.xml").write_text(MJCF)
    info = place / "my_robots-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-robots\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[gantry.robots]\nmydog = my_robots:MYDOG\nother = my_robots:MYDOG\n")
    return place


@pytest.fixture
def installed(package, monkeypatch):
    monkeypatch.syspath_prepend(str(package))


def test_the_model_meets_the_conventions(installed):
    from gantry_sim.robots.models import model_names, robot_model

    assert "mydog" in model_names()
    model = robot_model("mydog", visuals=False)
    compiled = model.compile()
    assert compiled.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
    assert compiled.nu == 0
    assert compiled.sensor("imu_ang_vel").dim[0] == 3
    names = [geom.name for geom in model.geoms]
    assert all(model_conventions.COLLISION_NAME.fullmatch(name) for name in names)
    assert [name for name in names if "foot" in name] == [f"{leg}_FOOT_foot_collision" for leg in LEGS]
    assert "LF_SHANK_collision1" in names


def test_the_derived_gait_lifts_and_strides_along_the_axes(installed):
    """Moving the joints by what the gait says moves the foot straight up, forward and to the left."""
    from gantry_sim.robots.models import robot_model

    body = legged_robot_cfg("mydog")
    gait, spec = body.gait, body.spec
    model = robot_model("mydog", visuals=False).compile()

    def feet(offset):
        data = mujoco.MjData(model)
        data.qpos[3:7] = (1, 0, 0, 0)
        for joint, more in zip(spec.joints, offset, strict=True):
            data.qpos[model.joint(joint.name).qposadr[0]] = joint.default_rad + more
        mujoco.mj_kinematics(model, data)
        return np.array([data.site_xpos[model.site(foot).id] - data.qpos[:3] for foot in spec.feet])

    small = 1e-4
    rest = feet(np.zeros(12))
    np.testing.assert_allclose(rest[:, :2], [[0.3 * f, 0.2 * s] for f, s in LEGS.values()], atol=1e-9)
    for gains, direction in ((gait.stride_x_rad_m, [1, 0, 0]), (gait.stride_y_rad_m, [0, 1, 0])):
        moved = (feet(small * np.array(gains)) - rest) / small
        np.testing.assert_allclose(moved, np.tile(direction, (4, 1)), atol=2e-3)
    up = (feet(small * np.array(gait.joint_gain)) - rest) / small
    np.testing.assert_allclose(up[:, :2], 0.0, atol=2e-3)
    assert (up[:, 2] > 0.1).all()
    assert gait.foot_offset == (0.5, 0.0, 0.0, 0.5)
    assert gait.joint_foot == tuple(index // 3 for index in range(12))
    assert body.foot_radius_m == pytest.approx(0.03)


def test_what_is_derived_for_go2_is_what_was_found_by_hand():
    hand, found = legged_robot_cfg("go2"), derived.derived_quadruped(go2.SPEC)
    assert found.gait.foot_offset == hand.gait.foot_offset
    assert found.gait.joint_foot == hand.gait.joint_foot
    np.testing.assert_allclose(found.gait.joint_gain, hand.gait.joint_gain, atol=0.02)
    np.testing.assert_allclose(found.gait.stride_x_rad_m, hand.gait.stride_x_rad_m, atol=0.05)
    np.testing.assert_allclose(found.gait.foot_x_m, hand.gait.foot_x_m, atol=0.01)
    np.testing.assert_allclose(found.gait.foot_y_m, hand.gait.foot_y_m, atol=0.001)
    assert found.foot_radius_m == pytest.approx(hand.foot_radius_m)


def test_it_stands_in_mujoco(installed):
    from gantry_hardware.backends.registry import make_backend
    from gantry_hardware.backends.state import JointCommand
    from gantry_hardware.robots import robot_spec

    spec = robot_spec("mydog")
    robot = make_backend("mujoco", spec, visuals=False)
    robot.connect()
    try:
        for step in range(1, 101):
            robot.write(JointCommand.position(spec, spec.array("default_rad")))
            robot.sleep_until(0.02 * step)
        state = robot.read()
    finally:
        robot.close()
    assert state.pos_base_in_world_m[2] > 0.8 * spec.base_height_m
    assert state.foot_contact.all()


def test_what_does_not_fit_is_refused(installed, tmp_path):
    from gantry_hardware.robots import robot_spec
    from gantry_sim.robots.models import model_file

    with pytest.raises(GantryError, match="registers 'other', and its RobotSpec is 'mydog'"):
        robot_spec("other")
    with pytest.raises(UnknownNameError, match="robot model"):
        model_file("f1tenth")
    joints = tuple(JointSpec(f"j{i}", -1, 1, 1, 1, 0, 1, 1, 0) for i in range(4))
    with pytest.raises(GantryError, match="has 0 feet; a gait is derived for quadrupeds"):
        derived.derived_quadruped(RobotSpec("x", "legs", joints, (), 0.3, 0.1, 1.0, "made up"))
    model = mujoco.MjSpec.from_string(MJCF)
    with pytest.raises(UnknownNameError, match="Did you mean 'LF_FOOT'"):
        model_conventions.meet_conventions(model, RobotSpec("x", "legs", joints, ("LF_FOT",), 0.3, 0.1, 1.0, "made up"))


@pytest.mark.slow
def test_it_is_trained_exported_and_run(package, tmp_path):
    words = ["train", "velocity-flat-go2", "--set", "env.robot=mydog", "--set", "env.num_envs=64"]
    words += ["--steps", "6000", "--episodes", "4", "--run-dir", str(tmp_path / "run")]
    path = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    for command in (words, ["run", str(tmp_path / "run" / "bundle"), "--duration", "0.5"]):
        code = f"import sys; from gantry_deploy.cli.main import main; sys.exit(main({command!r}))"
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        output = done.stdout + done.stderr
        assert done.returncode in (0, 1), output  # 1: it has learned next to nothing
        assert "Traceback" not in output
    assert "mydog on 'mujoco'" in output
