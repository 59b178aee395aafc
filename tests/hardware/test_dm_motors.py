"""Arms of DM motors: frames, transmissions, gravity, and the driver against fake motors that speak CAN frames."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gantry_hardware import JointCommand, RobotError, UnknownNameError
from gantry_hardware.backends.registry import check_options, moves_metal
from gantry_hardware.backends.start_ramp import StartRamp
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.dm_motors import frames
from gantry_hardware.dm_motors.can_bus import open_can
from gantry_hardware.dm_motors.dm_arm import DmArm
from gantry_hardware.dm_motors.fake import FakeMotors
from gantry_hardware.dm_motors.frames import MotorCommand, MotorFeedback
from gantry_hardware.dm_motors.links import MotorLink, motor_links
from gantry_hardware.model.gravity import GravityModel
from gantry_hardware.robots.go2 import SPEC as GO2
from gantry_hardware.robots.yam import CRANK_M_RAD, SPEC

LINKS = motor_links(SPEC)
REST = np.array([0.0, 0.3, 0.4, -0.2, 0.1, 0.0, 0.01])
"""A pose of the joints that is not the default one, rad and m."""


def wait_until(condition, what, timeout_s=20.0):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s} s for {what}"
        time.sleep(0.01)


def shafts(joints):
    return [(value - link.offset) / link.scale for value, link in zip(joints, LINKS, strict=True)]


def arm_on(motors, **options):
    # Longer than its default: on a busy machine a thread may wait that long.
    defaults = {"bus_hz": 100.0, "lower_s": 0.5, "gravity": False, "command_timeout_s": 0.5}
    return DmArm(SPEC, bus=motors.bus, **{**defaults, **options})


@pytest.fixture
def motors():
    with FakeMotors(LINKS, shafts(REST), timeout_s=5.0) as fake:
        yield fake


@pytest.fixture
def arm(motors):
    robot = arm_on(motors)
    robot.connect()
    yield robot
    robot.close()


# Frames


def test_commands_are_packed_as_the_manufacturer_says():
    """By hand: 0 is the middle of each signed range; kp 500 of 500 is all ones; bits 16, 12, 12, 12, 12."""
    limits = frames.motor_range("DM4310")
    data = frames.command_data(MotorCommand(12.5, 0.0, 500.0, 0.0, -10.0), limits)
    word = int.from_bytes(data, "big")
    assert word >> 48 == 0xFFFF
    assert word >> 36 & 0xFFF in (0x7FF, 0x800)
    assert word >> 24 & 0xFFF == 0xFFF
    assert word >> 12 & 0xFFF == 0
    assert word & 0xFFF == 0
    # Byte by byte, as in the manual: p[15:8] p[7:0] v[11:4] v[3:0]|kp[11:8] kp[7:0] kd[11:4] kd[3:0]|t[11:8] t[7:0].
    data = frames.command_data(MotorCommand(-12.5, 30.0, 0.0, 5.0, 10.0), limits)
    assert data == bytes([0x00, 0x00, 0xFF, 0xF0, 0x00, 0xFF, 0xFF, 0xFF])


def test_feedback_is_unpacked_as_the_manufacturer_says():
    limits = frames.motor_range("DM4340")
    reading = frames.read_feedback(bytes([0x13, 0xFF, 0xFF, 0x00, 0x0F, 0xFF, 41, 42]), limits)
    assert (reading.state, reading.motor_id) == (frames.ENABLED, 3)
    assert (reading.pos_rad, reading.vel_rad_s, reading.torque_nm) == pytest.approx((12.5, -10.0, 28.0))
    assert (reading.stage_temperature_c, reading.rotor_temperature_c) == (41, 42)


def test_numbers_survive_the_way_to_half_a_step():
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    for kind, limits in frames.RANGES.items():
        for _ in range(50):
            p, v, t = rng.uniform(-1, 1, 3) * (limits.pos_rad, limits.vel_rad_s, limits.torque_nm)
            command = MotorCommand(p, v, *(rng.uniform(0, 1, 2) * (500.0, 5.0)), t)
            back = frames.read_command(frames.command_data(command, limits), limits)
            steps = (25.0 / 65535, 2 * limits.vel_rad_s / 4095, 500 / 4095, 5 / 4095, 2 * limits.torque_nm / 4095)
            for name, step in zip(MotorCommand.__dataclass_fields__, steps, strict=True):
                assert abs(getattr(command, name) - getattr(back, name)) <= 0.5 * step + 1e-12, (kind, name)
            reading = MotorFeedback(1, 7, p, v, t, 20, 30)
            again = frames.read_feedback(frames.feedback_data(reading, limits), limits)
            assert again.pos_rad == pytest.approx(p, abs=25.0 / 65535)
            assert replace(again, pos_rad=p, vel_rad_s=v, torque_nm=t) == reading


def test_frames_of_another_size_and_unknown_types_are_refused():
    with pytest.raises(RobotError, match="5 bytes, expected 8"):
        frames.read_feedback(bytes(5), frames.motor_range("DM4310"))
    with pytest.raises(UnknownNameError, match="Did you mean 'DM4310'"):
        frames.motor_range("DM431")


# Transmissions


def test_a_transmission_keeps_power_and_stiffness():
    """The gripper's crank: force times speed is torque times angular speed, and a spring stores the same energy."""
    link = LINKS[6]
    told = link.command(0.02, 0.1, 30.0, 4000.0, 210.0)
    assert told.pos_rad == pytest.approx(0.02 / CRANK_M_RAD)
    assert told.torque_nm * told.vel_rad_s == pytest.approx(30.0 * 0.1)
    assert told.kp_nm_rad * told.pos_rad**2 == pytest.approx(4000.0 * 0.02**2)
    pos, vel, effort = link.joint(MotorFeedback(1, 7, told.pos_rad, told.vel_rad_s, told.torque_nm))
    assert (pos, vel, effort) == pytest.approx((0.02, 0.1, 30.0))


def test_a_motor_that_turns_the_other_way():
    link = MotorLink(3, "DM4310", scale=-1.0, offset=0.5)
    told = link.command(0.7, 1.0, 2.0, 10.0, 1.0)
    assert (told.pos_rad, told.vel_rad_s, told.torque_nm, told.kp_nm_rad) == pytest.approx((-0.2, -1.0, -2.0, 10.0))
    assert link.joint(MotorFeedback(1, 3, -0.2, -1.0, -2.0)) == pytest.approx((0.7, 1.0, 2.0))


def test_motors_are_a_file(tmp_path):
    path = tmp_path / "arm.yaml"
    lines = [f"  {name}: {{motor_id: {i + 1}, kind: DM4310}}" for i, name in enumerate(SPEC.joint_names)]
    path.write_text("motors:\n" + "\n".join(lines))
    assert motor_links(SPEC, str(path))[3] == MotorLink(4, "DM4310")
    path.write_text("motors:\n" + "\n".join(lines[:-1]))
    with pytest.raises(RobotError, match="no motor for left_finger"):
        motor_links(SPEC, str(path))
    path.write_text("motors:\n" + "\n".join([*lines, "  joint7: {motor_id: 9, kind: DM4310}"]))
    with pytest.raises(UnknownNameError, match="'joint7'"):
        motor_links(SPEC, str(path))
    path.write_text("motors:\n" + "\n".join(lines).replace("motor_id: 2", "motor_id: 1"))
    with pytest.raises(RobotError, match=r"ids \[1, 17\] are used twice"):
        motor_links(SPEC, str(path))
    with pytest.raises(RobotError, match="motors of 'go2' are not known"):
        motor_links(GO2)


# Gravity


def test_gravity_agrees_with_mujoco():
    mujoco = pytest.importorskip("mujoco")
    from gantry_hardware.model.description import robot_description

    description = robot_description(SPEC)
    assert description is not None
    model = mujoco.MjModel.from_xml_string(description.urdf)
    data, gravity = mujoco.MjData(model), GravityModel(SPEC)
    other = float(description.factor[list(description.drivers).index(6) + 1])
    rng = np.random.default_rng(3)
    for _ in range(5):
        pos = rng.uniform(SPEC.array("lower_rad"), SPEC.array("upper_rad"))
        data.qpos[:7], data.qpos[7] = pos, other * pos[6]
        mujoco.mj_forward(model, data)
        expected = data.qfrc_bias[:7].copy()
        expected[6] += other * data.qfrc_bias[7]
        np.testing.assert_allclose(gravity.effort(pos), expected, atol=1e-4)


# The way to the first target


def test_a_ramp_begins_where_the_arm_is_and_catches_up():
    ramp = StartRamp(speed_rad_s=1.0, pause_s=0.2)
    target, here = np.array([1.0, -0.05]), np.array([0.0, 0.0])
    np.testing.assert_array_equal(ramp.limit(target, here, 10.0), here)
    np.testing.assert_allclose(ramp.limit(target, here, 10.1), [0.1, -0.05])
    for i in range(2, 11):
        last = ramp.limit(target, here, 10.0 + 0.1 * i)
    np.testing.assert_allclose(last, target)
    np.testing.assert_allclose(ramp.limit(np.array([3.0, 0.0]), here, 11.1), [3.0, 0.0])  # It has caught up.
    np.testing.assert_array_equal(ramp.limit(target, here, 11.5), here)  # After a pause it begins again.


# The driver


def test_it_passes_the_conformance_kit():
    # From a pose that the ramp leads to the default one within the kit's time.
    with FakeMotors(LINKS, shafts(SPEC.array("default_rad") - 0.005), timeout_s=5.0) as motors:
        check_backend(arm_on(motors), hold_s=0.5, max_age_s=1.0)
        assert motors.violations == []
    assert moves_metal("dm-motors")
    check_options("dm-motors", {"channel": "can1", "gravity": False})


def test_connecting_moves_and_switches_nothing(motors, arm):
    stamp = arm.read().stamp_s
    wait_until(lambda: arm.read().stamp_s > stamp + 0.2, "some exchanges")
    assert arm.write(JointCommand.passive(SPEC)) is None
    assert motors.states == [frames.DISABLED] * 7
    assert motors.commands == 0
    np.testing.assert_allclose(arm.read().joint_pos_rad, REST, atol=1e-3)


def test_the_first_command_is_the_measured_pose_and_the_way_is_slow(motors, arm):
    goal = REST + np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    command = JointCommand.position(SPEC, goal)
    start_s = arm.now_s()
    first = arm.write(command)
    np.testing.assert_allclose(first.pos_rad, REST, atol=1e-3)
    for i in range(1, 40):
        arm.sleep_until(start_s + 0.02 * i)
        sent = arm.write(command)
        assert sent.pos_rad[0] <= REST[0] + 0.5 * (arm.now_s() - start_s) + 1e-3
    wait_until(lambda: (arm.write(command), arm.read().joint_pos_rad[0] > 0.9)[1], "the goal")
    assert motors.states == [frames.ENABLED] * 7
    assert motors.violations == []


def test_gains_arrive_at_the_motors(motors, arm):
    command = JointCommand.position(SPEC, REST)
    wait_until(lambda: (arm.write(command), all(told.kp_nm_rad > 0.0 for told in motors.told))[1], "commands")
    for link, told, kp, kd in zip(LINKS, motors.told, command.stiffness_nm_rad, command.damping_nm_s_rad, strict=True):
        assert told.kp_nm_rad == pytest.approx(kp * link.scale**2, abs=0.07)
        assert told.kd_nm_s_rad == pytest.approx(kd * link.scale**2, abs=0.001)


def test_gravity_is_added_where_a_joint_is_held(motors):
    arm = arm_on(motors, gravity=True)
    arm.connect()
    sent = arm.write(JointCommand.position(SPEC, REST))
    np.testing.assert_allclose(sent.effort_nm, GravityModel(SPEC).effort(arm.read().joint_pos_rad), atol=0.05)
    assert abs(sent.effort_nm[1]) > 1.0
    assert not arm.write(JointCommand.damping(SPEC)).effort_nm.any()
    arm.close()


def test_it_is_held_when_commands_stop(motors, arm):
    goal = JointCommand.position(SPEC, REST + np.array([2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.01]))
    wait_until(lambda: (arm.write(goal), arm.read().joint_pos_rad[0] > 0.3)[1], "an arm on its way")
    wait_until(lambda: arm.holds >= 1, "a hold")
    wait_until(lambda: abs(arm.read().joint_vel_rad_s[0]) < 0.02, "an arm at rest")
    stopped = arm.read().joint_pos_rad[0]
    assert stopped < 1.5
    assert motors.told[0].pos_rad == pytest.approx(stopped, abs=0.1)
    assert motors.told[6].pos_rad * CRANK_M_RAD == pytest.approx(0.02, abs=1e-3), "the gripper keeps its target"
    again = arm.write(goal)
    assert again.pos_rad[0] == pytest.approx(stopped, abs=0.05), "commands begin again where the arm is"


def test_closing_lets_the_arm_down_and_switches_it_off(motors, arm):
    wait_until(lambda: (arm.write(JointCommand.position(SPEC, REST)), motors.states[0] == frames.ENABLED)[1], "motors")
    motors.load_nm[1] = -2.0
    arm.close()
    assert motors.states == [frames.DISABLED] * 7
    assert motors.told[1].kp_nm_rad == 0.0
    with pytest.raises(RobotError, match="not connected"):
        arm.write(JointCommand.position(SPEC, REST))


# Faults


def test_a_motor_that_does_not_answer_is_named(motors):
    motors.silent = {3}
    with pytest.raises(
        RobotError, match=r"Motor of joint4 \(DM4310, command id 0x04, feedback id 0x14\) did not answer"
    ):
        arm_on(motors, connect_timeout_s=0.3).connect()


def test_a_motor_that_falls_silent_makes_the_state_old(motors, arm):
    motors.silent = {5}
    wait_until(lambda: arm.now_s() - arm.read().stamp_s > 0.7, "an old state")
    with pytest.raises(RobotError, match=r"begins only from one younger than 0\.5 s"):
        arm.write(JointCommand.position(SPEC, REST))
    motors.silent = set()
    wait_until(lambda: arm.now_s() - arm.read().stamp_s < 0.2, "a fresh state")


def test_damaged_answers_do_not_count(motors, arm):
    motors.garbage = True
    wait_until(lambda: arm.now_s() - arm.read().stamp_s > 0.3, "an old state")
    assert arm.statistics()["refused frames"] > 0


def test_a_fault_is_named_cleared_at_the_start_and_ends_a_run(motors):
    motors.states[2] = 0xB
    arm = arm_on(motors)
    arm.connect()  # It is cleared.
    motors.states[1], motors.stuck = 0xC, {1}
    wait_until(lambda: _error(arm.read) != "", "the fault")
    assert "Motor of joint2" in _error(arm.read)
    assert "over temperature of the motor" in _error(arm.read)
    arm.close()
    with pytest.raises(RobotError, match=r"joint2.*over temperature of the motor\. It could not be cleared"):
        arm_on(motors).connect()


def test_a_motor_that_loses_its_power_is_not_switched_on_again(motors, arm):
    hold = JointCommand.position(SPEC, REST)
    start_s = arm.now_s()
    wait_until(lambda: (arm.write(hold), arm.now_s() > start_s + 0.8)[1], "a running arm")
    motors.states[4] = frames.DISABLED
    wait_until(lambda: "joint5" in _error(lambda: arm.write(hold)), "the motor's name")
    assert "is off although it was switched on" in _error(arm.read)
    assert motors.states[4] == frames.DISABLED


def test_an_unplugged_bus_is_named(motors, arm):
    arm.write(JointCommand.position(SPEC, REST))
    motors.unplug()
    wait_until(lambda: "CAN interface can0" in _error(arm.read), "an error that names the bus")
    assert "unplugged" in _error(lambda: arm.write(JointCommand.position(SPEC, REST)))


def test_a_second_commander_is_refused_at_the_start_and_while_running(motors):
    foreign = frames.command_data(MotorCommand(0.0, 0.0, 10.0, 1.0, 0.0), LINKS[1].limits)
    motors.send(2, foreign)
    with pytest.raises(RobotError, match=r"Another program or device commands the motors on can0 too .*id 0x02"):
        arm_on(motors).connect()
    arm = arm_on(motors)
    arm.connect()
    arm.write(JointCommand.position(SPEC, REST))
    motors.send(2, foreign)
    wait_until(lambda: "Another program" in _error(lambda: arm.write(JointCommand.position(SPEC, REST))), "a refusal")
    arm.close()


def test_motors_whose_driver_died_damp_by_themselves():
    """What is promised of the real ones: their own timeout ends a motion whose driver was killed."""
    with FakeMotors(LINKS, shafts(REST), timeout_s=0.2) as motors:
        motors.bus.send(1, frames.ENABLE)
        motors.bus.send(1, frames.command_data(MotorCommand(3.0, 0.0, 80.0, 2.0, 0.0), LINKS[0].limits))
        wait_until(lambda: motors.states[0] == 0xD and abs(motors.vel_rad_s[0]) < 0.01, "a damped motor")


def test_an_interface_that_is_none_is_named():
    if os.path.isdir("/sys/class/net/can77"):
        pytest.skip("this machine has an interface can77")
    with pytest.raises(RobotError, match=r"CAN interface can77"):
        open_can("can77")


def _error(call):
    try:
        call()
    except RobotError as error:
        return str(error)
    return ""


def test_the_file_to_copy_holds_the_known_motors():
    links = motor_links(SPEC, str(Path(__file__).resolve().parents[2] / "configs" / "arms" / "yam.yaml"))
    assert links[:6] == LINKS[:6]
    assert links[6].scale == pytest.approx(LINKS[6].scale, rel=1e-5)
