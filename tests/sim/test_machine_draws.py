"""Machines that differ in training: drawn within their ranges, late and offset as worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.observations.builder import Signals
from gantry_hardware.errors import GantryError
from gantry_hardware.model.dynamics import Estimate, RobotDynamics
from gantry_hardware.robots.go2 import SPEC as GO2
from gantry_hardware.robots.yam import SPEC as YAM
from gantry_sim.driving.vehicle.actuation import CarRandomization
from gantry_sim.tasks.locomotion.machine.motors import joint_names as motor_joints
from gantry_sim.tasks.locomotion.machine.ranges import MachineCfg
from gantry_sim.tasks.locomotion.machine.state import MachineState
from gantry_sim.tasks.locomotion.presets import FLAT_GO2, cpu_flat, evaluation_cfg, make_env
from gantry_sim.tasks.locomotion.terms import BodySensors
from gantry_sim.tasks.locomotion.velocity import velocity_contract
from gantry_sim.tasks.manipulation.cfg import RandomizeCfg
from gantry_sim.tasks.manipulation.env import make_arm_env
from gantry_sim.tasks.registry import find_task

WIDE = MachineCfg.wide()


def small(machine, envs=16):
    return replace(cpu_flat("go2").env, num_envs=envs, machine=machine, push_m_s=0.0)


@pytest.fixture(scope="module")
def wide_env():
    return make_env(small(WIDE), "cpu", 3).env


def test_physics_is_drawn_within_the_ranges_and_differs_between_robots(wide_env):
    model, joints = wide_env.sim.model, wide_env.robot.indexing.joint_v_adr
    damping, friction = model.dof_damping[:, joints], model.dof_frictionloss[:, joints]
    assert float(damping.min()) >= 0.0
    assert 1.0 < float(damping.max()) <= 2.0
    assert 0.7 < float(friction.max()) <= 1.4
    assert float(damping.mean(dim=1).std()) > 0.2, "robots differ more than the joints of one"
    assert (model.dof_damping[:, :6] == 0.0).all(), "the base has no friction"
    gain, bias, limit = model.actuator_gainprm[:, :, 0], model.actuator_biasprm, model.actuator_forcerange
    assert torch.equal(gain, -bias[:, :, 1])
    assert 0.85 * 0.85 * 40.0 <= float(gain.min()) < float(gain.max()) <= 1.15 * 1.15 * 40.0
    strength = limit[:, :, 1] / wide_env.sim.get_default_field("actuator_forcerange")[:, 1]
    assert torch.allclose(strength, strength[:, :1].expand_as(strength)), "all motors of a robot share a battery"
    assert 0.85 <= float(strength.min()) < 0.95 < 1.05 < float(strength.max()) <= 1.15


def test_without_differences_the_physics_is_that_of_the_model():
    env = make_env(small(MachineCfg()), "cpu", 3).env
    joints = env.robot.indexing.joint_v_adr
    assert (env.sim.model.dof_frictionloss[:, joints] == 0.2).all()
    assert env.task_state.machine is None


def state(envs=2, **ranges):
    return MachineState(MachineCfg(**ranges), envs, 1, 0.02, "cpu")


def test_late_commands_change_within_the_control_step():
    """15 ms late in steps of 20 ms: the first 10 ms follow the old target, of the next 10 ms the first half does."""
    machine = state(command_delay_s=(0.015, 0.015))
    old, new = torch.zeros(2, 1), torch.ones(2, 1)
    assert machine.late_targets(old, new, 0.0, 0.01).tolist() == [[0.0], [0.0]]
    assert machine.late_targets(old, new, 0.01, 0.01).numpy() == pytest.approx(0.5, abs=1e-6)
    assert state().late_targets(old, new, 0.0, 0.02).tolist() == [[1.0], [1.0]]


def signals(angle, envs=2):
    one = torch.full((envs, 1), float(angle))
    quat = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).expand(envs, 4)
    return Signals(
        joint_pos_rad=one,
        joint_vel_rad_s=one,
        quat_base_to_world_wxyz=quat,
        ang_vel_base_in_base_rad_s=one.expand(envs, 3),
        command=torch.zeros(envs, 3),
        last_action=torch.zeros(envs, 1),
        time_s=torch.zeros(envs),
    )


def test_late_readings_lie_between_two_steps_and_never_before_the_episode():
    machine = state(sensor_delay_s=(0.005, 0.005))
    assert machine.reading(signals(0.0), 0).joint_pos_rad.tolist() == [[0.0], [0.0]]
    assert machine.reading(signals(1.0), 1).joint_pos_rad.numpy() == pytest.approx(0.75, abs=1e-6)
    assert machine.reading(signals(1.0), 1).joint_pos_rad.numpy() == pytest.approx(0.75, abs=1e-6), "a second look"
    machine.begin(torch.tensor([1]))
    assert machine.reading(signals(2.0), 2).joint_pos_rad.flatten().tolist() == pytest.approx([1.75, 2.0])


def test_lost_readings_are_those_of_the_step_before():
    machine = state(envs=4000, dropout_share=0.25)
    machine.reading(signals(0.0, 4000), 0)
    found = machine.reading(signals(1.0, 4000), 1).joint_pos_rad
    assert set(found.flatten().tolist()) == {0.0, 1.0}
    assert float(1.0 - found.mean()) == pytest.approx(0.25, abs=0.04)


def test_encoders_and_motors_share_an_offset():
    """An offset is added to what the encoder reads and taken from the target that its motor is given."""
    env = make_env(small(MachineCfg(encoder_offset_rad=(-0.02, 0.02)), 4), "cpu", 3).env
    state = env.task_state
    state.refresh()
    offset = state.machine.encoder_offset_rad
    assert 0.01 < float(offset.abs().max()) <= 0.02
    quiet = BodySensors(None, state.machine).measure(state)
    torch.testing.assert_close(quiet.joint_pos_rad, state.joint_pos + offset)
    term = env.action_manager.get_term("joint_pos")
    term.process_actions(torch.zeros(4, 12))
    term.apply_actions()
    sent = env.robot.data.joint_pos_target[:, term._joint_ids]
    torch.testing.assert_close(sent, term.targets - offset)


def test_torque_falls_with_speed_as_worked_out_by_hand():
    """Full torque to 0.6 of the speed limit, none from the limit on, all of it against the motion: the hip at 0.8 of
    its limit has half, the calf at its limit none."""
    cfg = MachineCfg(no_load_speed_share=(1.0, 1.0), corner_speed_share=(0.6, 0.6))
    env = make_env(small(cfg, 4), "cpu", 3).env
    names = [name.split("/")[-1] for name in env.robot.joint_names]
    hip, calf = names.index("FR_hip_joint"), names.index("RL_calf_joint")
    speed = torch.zeros(4, 12)
    speed[:, hip], speed[:, calf] = 0.8 * 30.1, -15.7
    env.robot.write_joint_velocity_to_sim(speed)
    term = env.action_manager.get_term("joint_pos")
    term.process_actions(torch.zeros(4, 12))
    term.apply_actions()
    limit = dict(zip(motor_joints(env), env.sim.model.actuator_forcerange[0].tolist(), strict=True))
    assert limit["FR_hip_joint"] == pytest.approx([-23.7, 0.5 * 23.7], rel=1e-4)
    assert limit["RL_calf_joint"] == pytest.approx([0.0, 45.43], abs=1e-3)
    assert limit["FL_hip_joint"] == pytest.approx([-23.7, 23.7], rel=1e-4)


def test_differences_grow_by_stages():
    cfg = replace(small(WIDE, 8), push_m_s=1.0, machine_stages=((0, 0.0), (10, 0.5), (20, 1.0)))
    env = make_env(cfg, "cpu", 3).env
    model, joints = env.sim.model, env.robot.indexing.joint_v_adr
    env.reset()
    assert (model.dof_frictionloss[:, joints] == 0.0).all()
    assert (model.dof_damping[:, joints] == env.sim.get_default_field("dof_damping")[joints]).all()
    assert (model.dof_armature[:, joints] == env.sim.get_default_field("dof_armature")[joints]).all()
    assert float(env.task_state.machine.command_delay_s.max()) == 0.0
    found = []
    for step, half in ((15, 0.5), (25, 1.0)):
        env.common_step_counter = step
        env.reset()
        found.append(float(model.dof_frictionloss[:, joints].max()))
        assert env.event_manager.get_term_cfg("push").params["velocity_range"]["x"] == (-half, half)
    assert 0.35 < found[0] <= 0.7 < found[1] <= 1.4
    assert 0.0 < float(env.task_state.machine.command_delay_s.max()) <= 0.02
    assert evaluation_cfg(cfg, num_envs=4).curriculum is False, "held-out episodes take all of it"


def test_delays_beyond_a_control_step_are_refused():
    with pytest.raises(GantryError, match=r"command_delay_s is \[0.0, 0.03\], expected 0 to 0.02 s"):
        state(command_delay_s=(0.0, 0.03))
    for stages, said in ((((10, 0.5), (5, 1.0)), r"control steps \[10, 5\]"), (((0, 1.5),), "share 1.5 at step 0")):
        with pytest.raises(GantryError, match=said):
            replace(small(WIDE), machine_stages=stages)
    with pytest.raises(GantryError, match=r"no_load_speed_share is .*expected more than 0"):
        MachineCfg(no_load_speed_share=(0.0, 1.0))
    with pytest.raises(GantryError, match=r"corner_speed_share is .*expected 0 to less than 1"):
        MachineCfg(corner_speed_share=(0.5, 1.0))
    for name in ("strength_share", "armature_share", "damping_share"):
        with pytest.raises(GantryError, match=rf"env.machine.{name} is \[-0.5, 1.0\], expected 0 or more"):
            MachineCfg(**{name: (-0.5, 1.0)})
    with pytest.raises(GantryError, match=r"strength_share is \[0.0, 1.0\], expected more than 0"):
        MachineCfg(strength_share=(0.0, 1.0))
    with pytest.raises(GantryError, match=r"env.randomize.armature_share is \[-1.0, 1.0\], expected more than 0"):
        RandomizeCfg(armature_share=(-1.0, 1.0))
    with pytest.raises(GantryError, match=r"env.machine.sensor_delay_s is \[0.0, 0.03\], expected 0 to 0.02 s"):
        replace(small(WIDE), machine=MachineCfg(sensor_delay_s=(0.0, 0.03)))
    with pytest.raises(GantryError, match="smaller number first"):
        MachineCfg(stiffness_share=(1.1, 0.9))


def identified(low, high):
    friction = {"coulomb_friction_nm": Estimate(0.5 * (low + high), low, high)}
    return RobotDynamics("go2", {"FL_calf_joint": friction}, {"command_delay_s": Estimate(0.01, 0.008, 0.012)})


def everywhere(spec, **found):
    return RobotDynamics(spec.name, {joint: found for joint in spec.joint_names})


def test_training_draws_around_an_identified_machine():
    cfg = WIDE.around(everywhere(GO2, coulomb_friction_nm=Estimate(0.6, 0.4, 0.8)), GO2)
    assert cfg.coulomb_friction_nm == pytest.approx((0.3, 0.9))
    cfg = replace(WIDE, coulomb_friction_nm=(0.5, 1.0)).around(identified(0.4, 0.8), GO2)
    assert cfg.coulomb_friction_nm == pytest.approx((0.3, 1.0)), "of one joint: the others are drawn as before"
    assert cfg.command_delay_s == pytest.approx((0.007, 0.013))
    assert cfg.viscous_friction_nm_s_rad == WIDE.viscous_friction_nm_s_rad
    motor = {
        "no_load_speed_rad_s": Estimate(15.7, 14.13, 17.27),
        "corner_speed_rad_s": Estimate(7.85),
        "effort_limit_nm": Estimate(45.43),
    }
    cfg = replace(WIDE, no_load_speed_share=None).around(RobotDynamics("go2", {"FL_calf_joint": motor}), GO2)
    assert cfg.no_load_speed_share == pytest.approx((0.85, 1.15))
    assert cfg.corner_speed_share == pytest.approx((0.5, 0.5))
    assert cfg.strength_share == (0.85, 1.15), "within the range of before"
    speeds = {"imu_roll_rad": Estimate(0.08), "imu_pitch_rad": Estimate(0.01), "imu_delay_s": Estimate(0.015)}
    cfg = WIDE.around(RobotDynamics("go2", whole=speeds), GO2)
    assert cfg.imu_tilt_rad == pytest.approx((-0.03, 0.08)), "one range for all axes, and nothing is said of yaw"
    assert cfg.sensor_delay_s == pytest.approx((0.015, 0.015))
    env = FLAT_GO2.around_machine(cpu_flat("go2").env, identified(0.0, 0.8))
    assert env.machine.coulomb_friction_nm == pytest.approx((0.0, 1.0))
    joint = {"damping_share": Estimate(1.0, 0.8, 1.2), "encoder_offset_rad": Estimate(0.01, 0.0, 0.02)}
    limit = {"effort_limit_nm": Estimate(0.9 * YAM.joints[0].effort_limit_nm)}
    arm = RandomizeCfg().around(RobotDynamics("yam", {"joint1": joint | limit}), YAM)
    assert arm.damping == pytest.approx((0.7, 1.3))
    assert arm.encoder_offset_rad == pytest.approx((-0.005, 0.025))
    assert arm.strength_share == pytest.approx((0.9, 1.0)), "of one joint alone"
    arm = RandomizeCfg().around(everywhere(YAM, damping_share=Estimate(1.0, 0.95, 1.05)), YAM)
    assert arm.damping == pytest.approx((0.925, 1.075))
    car = RobotDynamics("f1tenth_vesc", {"steering": {"gain": Estimate(0.9, 0.88, 0.92)}})
    assert CarRandomization.usual().around(car, "steering", "drive").steering_gain == pytest.approx((0.87, 0.93))
    with pytest.raises(GantryError, match="those of robot 'go2', this robot is 'yam'"):
        find_task("yam-lift").around_machine(find_task("yam-lift").usual_env(), identified(0.0, 0.1))
    goal = find_task("ame2-go2")
    with pytest.raises(GantryError, match="trains on one model alone"):
        goal.around_machine(goal.usual_env(), identified(0.0, 0.1))


def arm_env(**ranges):
    task = find_task("yam-lift")
    cfg = replace(task.usual_env(), num_envs=8)
    cfg = replace(cfg, randomize=replace(cfg.randomize, **ranges))
    return make_arm_env(cfg, "cpu", 3)


def test_an_arm_reads_and_obeys_through_its_encoders():
    env = arm_env(encoder_offset_rad=(0.01, 0.03))
    env.reset()
    state = env.task_state
    state.refresh()
    term = env.action_manager.get_term("arm")
    term.process_actions(torch.zeros(8, env.action_manager.total_action_dim))
    term.apply_actions()
    seen = state.own_signals(term.raw_action)
    offset = seen.joint_pos_rad - state.joint_pos
    assert (offset[:, :-1] >= 0.0099).all()
    assert (offset[:, :-1] <= 0.0301).all()
    assert (offset[:, -1] == 0.0).all(), "the gripper has none"
    assert float(offset[:, :-1].std()) > 0.003
    pos, _ = state.decoder.ee_pose(seen.joint_pos_rad)
    torch.testing.assert_close(seen.ee_pose_in_base[0], pos)
    assert float((pos - state.ee_pos).norm(dim=-1).min()) > 1e-3, "the hand is not where the encoders say"
    sent = env.robot.data.joint_pos_target[:, term._joint_ids]
    torch.testing.assert_close(sent, term.targets - offset)


def test_an_arms_motors_differ():
    env = arm_env(strength_share=(0.8, 1.0), armature_share=(1.0, 2.0))
    env.reset()
    limit = env.sim.model.actuator_forcerange[:, :, 1] / env.sim.get_default_field("actuator_forcerange")[:, 1]
    assert torch.allclose(limit, limit[:, :1].expand_as(limit))
    assert 0.8 <= float(limit.min()) < 0.9 < float(limit.max()) <= 1.0
    joints = env.robot.indexing.joint_v_adr
    armature = env.sim.model.dof_armature[:, joints] / env.sim.get_default_field("dof_armature")[joints]
    armature = armature[:, torch.isfinite(armature[0])]
    assert 1.0 <= float(armature.min()) < 1.4 < 1.6 < float(armature.max()) <= 2.0


def test_the_contract_tells_the_ranges():
    contract = velocity_contract(small(WIDE))
    found = {item.name: (item.lower, item.upper) for item in contract.trained_for}
    assert found["coulomb_friction_nm"] == (0.0, 1.4)
    assert found["imu_pitch_rad"] == (-0.03, 0.03)
    assert found["friction"] == (0.4, 1.25)
    assert "strength_share" not in found
    assert found["armature_kg_m2"] == pytest.approx((0.008, 0.015)), "alike in all joints: one range"
    limits = {item.joint: (item.lower, item.upper) for item in contract.trained_for if item.name == "effort_limit_nm"}
    assert limits["FR_hip_joint"] == pytest.approx((0.85 * 23.7, 1.15 * 23.7))
    assert len(limits) == 12
    falling = velocity_contract(small(replace(WIDE, no_load_speed_share=(0.8, 1.2))))
    speeds = {(item.name, item.joint): (item.lower, item.upper) for item in falling.trained_for}
    assert speeds["no_load_speed_rad_s", "FR_calf_joint"] == pytest.approx((0.8 * 15.7, 1.2 * 15.7))
    assert speeds["corner_speed_rad_s", "FR_calf_joint"] == pytest.approx((0.6 * 0.8 * 15.7, 0.8 * 1.2 * 15.7))
    for name in ("yam-lift", "drive-race"):
        task = find_task(name)
        assert np.isfinite([item.upper for item in task.contract(task.usual_env()).trained_for]).all()
        assert task.contract(task.usual_env()).trained_for
