"""A simulated robot with the dynamics of one machine, against torques and angles worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gantry_hardware.backends.state import JointCommand
from gantry_hardware.errors import GantryError
from gantry_hardware.model.dynamics import Estimate, RobotDynamics
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.mujoco_robot import MujocoRobot

GO2 = robot_spec("go2")
DT_S = 0.002


def hanging(joint=None, whole=None):
    """A hanging robot of which every joint has the same parameters."""
    each = {name: Estimate(value) for name, value in (joint or {}).items()}
    joints = dict.fromkeys(GO2.joint_names, each)
    dynamics = RobotDynamics("go2", joints, {name: Estimate(value) for name, value in (whole or {}).items()})
    robot = MujocoRobot(GO2, fixed_base=True, visuals=False, dynamics=dynamics)
    robot.connect()
    return robot


def push(robot, pos_rad, steps, stiffness=40.0, damping=1.0):
    n = GO2.num_joints
    robot.write(JointCommand(pos_rad, np.zeros(n), np.zeros(n), np.full(n, stiffness), np.full(n, damping)))
    robot.sleep_until(robot.now_s() + steps * DT_S)
    return robot.read()


def test_gains_in_effect_scale_the_torque():
    """The first torque after a step of 0.1 rad from rest is stiffness times the distance."""
    pose = GO2.array("default_rad")
    for share in (0.8, 1.2):
        robot = hanging({"stiffness_share": share, "damping_share": share})
        effort = push(robot, pose + 0.1, 1).joint_effort_nm
        assert effort == pytest.approx(np.full(12, share * 4.0), rel=1e-3)


def test_the_encoders_offset_shows_in_the_reading_and_moves_the_pose():
    pose = GO2.array("default_rad")
    exact, off = hanging(), hanging({"encoder_offset_rad": 0.05})
    readings = [push(robot, pose, 1500, stiffness=200.0, damping=5.0) for robot in (exact, off)]
    truth = [robot.data.qpos[:12].copy() for robot in (exact, off)]
    # Both motors see nearly the same angle; the leg with the offset hangs 0.05 rad before it.
    assert readings[1].joint_pos_rad == pytest.approx(readings[0].joint_pos_rad, abs=5e-3)
    assert truth[1] == pytest.approx(truth[0] - 0.05, abs=5e-3)


def test_a_command_is_obeyed_after_the_delay():
    robot = hanging(whole={"command_delay_s": 0.02})
    pose = GO2.array("default_rad")
    before = push(robot, pose + 0.2, 10).joint_pos_rad
    after = push(robot, pose + 0.2, 10).joint_pos_rad
    undisturbed = push(hanging(), pose, 10).joint_pos_rad
    assert before == pytest.approx(undisturbed, abs=1e-9)
    assert (after - before > 0.01).all()


def test_dry_friction_holds_a_joint_that_less_torque_pulls_at():
    """0.05 rad at 20 N m/rad pull with 1 N m."""
    pose = GO2.array("default_rad")
    moved = []
    for friction in (0.01, 4.0):
        robot = hanging({"coulomb_friction_nm": friction})
        begin = robot.read().joint_pos_rad
        moved.append(np.abs(push(robot, pose + 0.05, 300, stiffness=20.0).joint_pos_rad - begin))
    assert (moved[0] > 0.02).any()
    assert (moved[1] < 6e-3).all()


def test_torque_falls_with_speed_and_is_limited():
    limits = {"effort_limit_nm": 10.0, "corner_speed_rad_s": 2.0, "no_load_speed_rad_s": 6.0}
    robot = hanging(limits)
    n = GO2.num_joints
    robot.write(JointCommand(np.zeros(n), np.zeros(n), np.full(n, 9.9), np.zeros(n), np.zeros(n)))
    efforts = []
    for _ in range(60):
        speed = robot.data.qvel.copy()
        robot.sleep_until(robot.now_s() + DT_S)
        efforts.append((speed, robot.data.actuator_force.copy()))
    for speed, effort in efforts[1:]:
        allowed = 10.0 * np.clip((6.0 - speed) / 4.0, 0.0, 1.0)
        assert (effort <= np.minimum(allowed, 9.9) + 1e-6).all()
    assert max(speed.max() for speed, _ in efforts) > 2.5


def test_the_imu_reports_from_its_mounting_and_late():
    tilted = MujocoRobot(GO2, visuals=False, dynamics=RobotDynamics("go2", {}, {"imu_pitch_rad": Estimate(0.1)}))
    tilted.connect()
    state = tilted.read()
    assert state.quat_base_to_world_wxyz == pytest.approx([np.cos(0.05), 0.0, np.sin(0.05), 0.0])
    # A nose that the IMU believes to be down by 0.1 rad feels gravity backwards... along its own -x.
    assert state.lin_acc_base_in_base_m_s2 == pytest.approx([-9.81 * np.sin(0.1), 0.0, 9.81 * np.cos(0.1)], rel=1e-6)
    late = MujocoRobot(GO2, visuals=False, dynamics=RobotDynamics("go2", {}, {"imu_delay_s": Estimate(0.02)}))
    late.connect()
    late.set_velocity(np.zeros(3), np.array([0.0, 0.0, 1.0]))
    late.sleep_until(0.01)
    assert late.read().ang_vel_base_in_base_rad_s[2] == 0.0
    late.sleep_until(0.03)
    assert late.read().ang_vel_base_in_base_rad_s[2] > 0.1


def test_another_robots_dynamics_are_refused():
    with pytest.raises(GantryError, match="those of robot 'g1'"):
        MujocoRobot(GO2, visuals=False, dynamics=RobotDynamics("g1"))
