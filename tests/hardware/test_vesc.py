"""Cars on a VESC: frames, calibration, and the driver against a fake one over a real pseudo-terminal."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest

from gantry_hardware import JointCommand, RobotError
from gantry_hardware.backends.registry import moves_metal
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.model.cars import car_spec
from gantry_hardware.robots.cars import F1TENTH, F1TENTH_VESC
from gantry_hardware.vesc import messages
from gantry_hardware.vesc.calibration import VescCalibration, load_calibration
from gantry_hardware.vesc.dead_reckoning import DeadReckoning
from gantry_hardware.vesc.fake import FakeVesc
from gantry_hardware.vesc.frames import FrameReader, crc16, frame
from gantry_hardware.vesc.messages import Comm, VescValues
from gantry_hardware.vesc.serial_port import SerialPort
from gantry_hardware.vesc.vesc_car import VescCar

ROOT = Path(__file__).resolve().parents[2]
SPEC = F1TENTH_VESC


def wait_until(condition, what, timeout_s=20.0):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s} s for {what}"
        time.sleep(0.01)


def drive(steering_rad, speed_m_s):
    command = JointCommand.position(SPEC, np.array([steering_rad, 0.0]))
    return JointCommand(
        command.pos_rad,
        np.array([0.0, speed_m_s]),
        command.effort_nm,
        command.stiffness_nm_rad,
        command.damping_nm_s_rad,
    )


@pytest.fixture
def vesc():
    with FakeVesc() as fake:
        yield fake


@pytest.fixture
def car(vesc):
    robot = VescCar(SPEC, port=vesc.path)
    robot.connect()
    yield robot
    robot.close()


def keep(robot, command, condition, what):
    """Send a command at 50 Hz until something has come true."""

    def tick():
        robot.write(command)
        return condition()

    wait_until(tick, what)


# Frames


def test_the_crc_is_xmodem():
    assert crc16(b"123456789") == 0x31C3


def test_frames_are_those_of_the_protocol():
    # COMM_ALIVE (30): 02 01 1E, CRC-16/XMODEM of 1E, 03; worked out bit by bit.
    crc = 0x1E << 8
    for _ in range(8):
        crc = ((crc << 1) ^ 0x1021) & 0xFFFF if crc & 0x8000 else crc << 1
    assert frame(messages.alive()) == bytes([2, 1, 30, crc >> 8, crc & 0xFF, 3])
    assert messages.set_rpm(-1000) == bytes([8, 0xFF, 0xFF, 0xFC, 0x18])
    assert messages.set_current_brake(20.0) == bytes([7, 0, 0, 0x4E, 0x20])
    assert messages.set_servo_pos(0.53) == bytes([12, 0x02, 0x12])


def test_long_frames_begin_with_3():
    payload = bytes(300)
    data = frame(payload)
    assert data[:3] == bytes([3, 1, 44])
    assert FrameReader().feed(data) == [payload]


@pytest.mark.parametrize("size", [0, 513])
def test_frames_have_a_size(size):
    with pytest.raises(RobotError, match=f"{size} bytes, expected 1 to 512"):
        frame(bytes(size))


def test_frames_are_found_between_noise_in_any_pieces():
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    reader, found, sent, stream = FrameReader(64), [], [], b""
    for _ in range(50):
        payload = rng.bytes(int(rng.integers(5, 60)))
        # No start byte in the noise: one followed by a plausible length may swallow what comes after it.
        noise = bytes(rng.integers(4, 256, int(rng.integers(0, 20)), dtype=np.uint8))
        sent.append(payload)
        stream += noise + frame(payload)
    while stream:
        cut = int(rng.integers(1, 40))
        found += reader.feed(stream[:cut])
        stream = stream[cut:]
    assert found == sent
    assert reader.refused == 0


def test_a_wrong_crc_costs_one_frame_and_not_the_next():
    bad, good = bytearray(frame(b"\x08abcd")), frame(b"\x04ok")
    bad[-2] ^= 1
    reader = FrameReader()
    assert reader.feed(bytes(bad) + good) == [b"\x04ok"]
    assert reader.refused >= 1


def test_a_cut_frame_does_not_swallow_what_follows():
    reader = FrameReader(64)
    cut = frame(bytes(range(10, 60)))[:20]
    whole = frame(b"\x04ok")
    assert reader.feed(cut + whole * 10)[-1] == b"\x04ok"


def test_values_survive_the_way():
    values = VescValues(31.5, -2.25, -12345, 11.8, -(2**31), 4)
    assert messages.read_values(messages.values_payload(values) + bytes(20)) == values
    assert values.fault_text == "4 (absolute over current)"
    with pytest.raises(RobotError, match=r"5 bytes of kind 4, expected at least \d+"):
        messages.read_values(bytes([4, 1, 2, 3, 4]))


# Calibration


@pytest.mark.parametrize("gain", [-1.2135, 1.2135])
@pytest.mark.parametrize("erpm_per_m_s", [4614.0, -4614.0])
def test_calibrations_are_their_own_inverse(gain, erpm_per_m_s):
    calibration = VescCalibration(servo_gain=gain, erpm_per_m_s=erpm_per_m_s)
    for angle in np.linspace(*calibration.steering_range_rad, 7):
        assert calibration.steering_rad(calibration.servo(angle)) == pytest.approx(angle, abs=1e-12)
    for speed in (-3.0, -0.1, 0.0, 0.1, 3.0):
        assert calibration.speed_m_s(calibration.erpm(speed)) == pytest.approx(speed, abs=0.5 / 4614.0)
    # One electrical turn is 6 counts, and a minute of 4614 turns a minute is 60 m.
    assert calibration.travel_m(4614 * 6) == pytest.approx(math.copysign(60.0, erpm_per_m_s))


def test_the_stock_calibration_gives_the_published_angles():
    low, high = VescCalibration().steering_range_rad
    assert (low, high) == pytest.approx((-0.2634, 0.3135), abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"servo_gain": 0.0}, "servo_gain is 0.0, expected a size of 0.001"),
        ({"erpm_per_m_s": 0.5}, "erpm_per_m_s is 0.5"),
        ({"servo_offset": 0.9}, "servo_offset is 0.9, expected between servo_min 0.15 and servo_max 0.85"),
        ({"servo_max": 1.5}, "servo_max is 1.5, expected a number from 0 to 1"),
    ],
)
def test_impossible_calibrations_are_refused(changes, text):
    with pytest.raises(Exception, match=text):
        VescCalibration(**changes)


def test_a_calibration_is_a_file(tmp_path):
    path = tmp_path / "car.yaml"
    path.write_text("servo_offset: 0.48\nerpm_per_m_s: -3000\n")
    assert load_calibration(str(path)) == VescCalibration(servo_offset=0.48, erpm_per_m_s=-3000.0)
    path.write_text("servo_ofset: 0.48\n")
    with pytest.raises(RobotError, match="Did you mean 'servo_offset'"):
        load_calibration(str(path))


def test_a_car_beyond_the_calibration_is_refused():
    with pytest.raises(RobotError, match=r"'f1tenth' steers 0.4189 rad.*-0.2634 to 0.3135.*'f1tenth_vesc'"):
        VescCar(F1TENTH)
    with pytest.raises(RobotError, match=r"drives up to 5.04 m/s, but the VESC calibration allows 2.17"):
        VescCalibration(erpm_limit=10000.0).require_car(car_spec("f1tenth_vesc"))


# Odometry


def test_a_circle_closes_and_the_tachometer_may_wrap():
    reckoning, calibration = DeadReckoning(VescCalibration(), 0.33), VescCalibration()
    angle = 0.25
    circumference_m = 2.0 * math.pi * 0.33 / math.tan(angle)
    total = circumference_m / calibration.travel_m(1)
    start = 2**31 - 1000
    for i in range(2001):
        reckoning.take((round(start + i * total / 2000) + 2**31) % 2**32 - 2**31, angle)
    state = reckoning.state(0.0, angle, 1.0)
    assert np.abs(state.pos_base_in_world_m).max() < 0.01
    assert state.joint_pos_rad[1] == pytest.approx(circumference_m, abs=0.01)
    assert abs(state.quat_base_to_world_wxyz[3]) < 0.02
    assert state.ang_vel_base_in_base_rad_s[2] == pytest.approx(math.tan(angle) / 0.33)


# The driver


def test_it_passes_the_conformance_kit(vesc):
    check_backend(VescCar(SPEC, port=vesc.path), hold_s=0.3, max_age_s=1.0)
    assert vesc.violations == []
    assert moves_metal("vesc")


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_command_comes_back_as_the_same_speed_and_angle(sign, tmp_path):
    """Command, bytes, motor, bytes, state: sign and scale survive, whichever way motor and servo are mounted."""
    path = tmp_path / "car.yaml"
    path.write_text(f"erpm_per_m_s: {sign * 4614}\nservo_gain: {sign * -1.2135}\nservo_offset: 0.5\n")
    with FakeVesc() as fake:
        robot = VescCar(SPEC, port=fake.path, calibration=str(path))
        robot.connect()
        try:
            sent = robot.write(drive(0.2, 1.5))
            assert sent is not None
            assert sent.pos_rad[0] == pytest.approx(0.2, abs=1e-3)
            assert sent.vel_rad_s[1] == pytest.approx(1.5, abs=1e-3)
            keep(robot, drive(0.2, 1.5), lambda: abs(robot.read().joint_vel_rad_s[1] - 1.5) < 0.05, "1.5 m/s")
            assert fake.erpm == pytest.approx(sign * 1.5 * 4614, rel=0.05)
            assert fake.servo == pytest.approx(0.5 - sign * 1.2135 * 0.2, abs=1e-3)
            state = robot.read()
            assert state.joint_pos_rad[0] == pytest.approx(0.2, abs=1e-3)
            assert state.lin_vel_base_in_base_m_s[0] > 0.0
            assert state.ang_vel_base_in_base_rad_s[2] > 0.0, "to the left"
            before = state.joint_pos_rad[1]
            keep(robot, drive(0.2, 1.5), lambda: robot.read().joint_pos_rad[1] > before + 0.2, "20 cm ahead")
            keep(robot, drive(0.0, -1.0), lambda: robot.read().joint_vel_rad_s[1] < -0.9, "backwards")
        finally:
            robot.close()
        assert fake.violations == []


def test_it_is_braked_when_commands_stop(vesc, car):
    keep(car, drive(0.0, 2.0), lambda: car.read().joint_vel_rad_s[1] > 1.5, "2 m/s")
    wait_until(lambda: abs(car.read().joint_vel_rad_s[1]) < 0.05, "a standstill without commands")
    kinds = [kind for kind, _ in vesc.commands]
    assert (Comm.SET_CURRENT_BRAKE, 20.0) in vesc.commands
    wait_until(lambda: vesc.commands[-1] == (Comm.SET_CURRENT, 0.0), "a motor that is let go")
    assert kinds.index(Comm.SET_CURRENT_BRAKE) > kinds.index(Comm.SET_RPM)
    assert car.brakings == 1
    keep(car, drive(0.0, 1.0), lambda: car.read().joint_vel_rad_s[1] > 0.8, "another start")


def test_nothing_is_commanded_before_the_first_command(vesc, car):
    before = car.read().stamp_s
    wait_until(lambda: car.read().stamp_s > before + 0.5, "half a second")
    assert vesc.commands == []


def test_closing_brakes_first(vesc, car):
    keep(car, drive(0.1, 2.0), lambda: car.read().joint_vel_rad_s[1] > 1.5, "2 m/s")
    car.close()
    assert vesc.commands[-1] == (Comm.SET_CURRENT, 0.0)
    assert abs(vesc.erpm) < 0.1 * 4614
    with pytest.raises(RobotError, match="not connected"):
        car.write(drive(0.0, 1.0))


def test_the_vesc_stops_by_itself_if_the_driver_dies():
    """What is promised of the real one: its own timeout ends a motion whose driver was killed."""
    with FakeVesc(timeout_s=0.2, timeout_brake_a=20.0) as fake:
        port = SerialPort(fake.path)
        port.write(frame(messages.set_rpm(9000)))
        wait_until(lambda: fake.commands != [], "the command")
        wait_until(lambda: fake.timed_out and abs(fake.erpm) < 1.0, "a motor that stands")
        port.close()


def test_other_gains_let_roll_and_leave_the_servo(vesc, car):
    car.write(JointCommand.passive(SPEC))
    car.write(JointCommand.damping(SPEC))
    wait_until(lambda: len(vesc.commands) >= 2, "two commands")
    assert vesc.commands[:2] == [(Comm.SET_CURRENT, 0.0), (Comm.SET_RPM, 0.0)]


# Faults


def test_an_unplugged_port_is_named(vesc, car):
    car.write(drive(0.0, 1.0))
    vesc.unplug()

    def fails():
        try:
            car.read()
        except RobotError as error:
            return f"Port {vesc.path} is gone" in str(error)
        return False

    wait_until(fails, "an error that names the port")
    with pytest.raises(RobotError, match="unplugged"):
        car.write(drive(0.0, 1.0))


def test_silence_makes_the_state_old_and_a_new_answer_heals_it(vesc, car):
    vesc.faults.silent = True
    wait_until(lambda: car.now_s() - car.read().stamp_s > 0.3, "an old state")
    vesc.faults.silent = False
    wait_until(lambda: car.now_s() - car.read().stamp_s < 0.1, "a fresh state")


@pytest.mark.parametrize("fault", ["wrong_crc", "cut"])
def test_damaged_answers_do_not_count(vesc, car, fault):
    setattr(vesc.faults, fault, True)
    wait_until(lambda: car.now_s() - car.read().stamp_s > 0.3, "an old state")
    assert car.statistics()["refused frames"] > 0
    setattr(vesc.faults, fault, False)
    wait_until(lambda: car.now_s() - car.read().stamp_s < 0.1, "a fresh state")


def test_noise_between_answers_is_skipped(vesc, car):
    vesc.faults.noise = bytes([2, 60, 0xAA, 3, 3, 0, 0])
    before = car.read().stamp_s
    wait_until(lambda: car.read().stamp_s > before + 0.3, "states in spite of noise")
    assert car.statistics()["skipped bytes"] > 0


def test_a_fault_of_the_vesc_is_told(vesc, car):
    vesc.faults.code = 5

    def told():
        try:
            car.read()
        except RobotError as error:
            return "reports fault 5 (over temperature of the power stage)" in str(error)
        return False

    wait_until(told, "the fault's name")


def test_a_silent_port_is_refused_with_what_was_expected():
    with FakeVesc() as fake:
        fake.faults.silent = True
        with pytest.raises(RobotError, match=rf"No VESC answers on {fake.path} within 0.3 s.*GET_VALUES, nothing came"):
            VescCar(SPEC, port=fake.path, connect_timeout_s=0.3).connect()
        fake.faults.silent, fake.faults.wrong_crc = False, True
        with pytest.raises(RobotError, match=r"bytes came, \d+ frames with a wrong length or CRC"):
            VescCar(SPEC, port=fake.path, connect_timeout_s=0.3).connect()


def test_a_port_that_is_none_is_named(tmp_path):
    with pytest.raises(RobotError, match=r"There is no port /dev/ttyACM99\. Expected one of"):
        VescCar(SPEC, port="/dev/ttyACM99").connect()
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(RobotError, match="is no serial port"):
        VescCar(SPEC, port=str(path)).connect()


def test_two_programs_cannot_have_a_port(vesc, car):
    with pytest.raises(RobotError, match=f"Another program has port {vesc.path} open"):
        VescCar(SPEC, port=vesc.path).connect()


def test_the_file_to_copy_is_the_stock_calibration():
    assert load_calibration(str(ROOT / "configs" / "cars" / "vesc.yaml")) == VescCalibration()
