"""The Unitree driver in the loop, on a fake robot in another process, over real DDS; faults on both sides.

All tests share one Go2 that hangs, so that no test depends on how well it stands on a busy machine.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("cyclonedds")

from gantry_deploy.control.safety import Mode
from gantry_deploy.errors import SafetyError
from gantry_deploy.process.domains import free_domain
from gantry_fixtures.unitree import controller, patient_fake, run_until, stand_again, unitree_robot, wait_for
from gantry_hardware import GantryError, JointCommand, RobotError
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.robots import robot_spec
from gantry_hardware.unitree.codec import CommandCodec
from gantry_hardware.unitree.idl import CLASSES
from gantry_hardware.unitree.link import Link, interface_names, send
from gantry_hardware.unitree.models import unitree_model
from gantry_hardware.unitree.robot import UnitreeRobot

GO2 = robot_spec("go2")


@pytest.fixture(scope="module")
def fake():
    process = patient_fake()
    yield process
    process.close()


@pytest.fixture(scope="module")
def shared(fake):
    """A loop on the robot, which was taken over."""
    robot = unitree_robot(fake, ramp_s=0.1)
    robot.connect()
    yield controller(robot)
    robot.close()


@pytest.fixture
def loop(shared, fake):
    """The loop in STAND, without faults on either side."""
    fake.say("clear")
    robot = shared.robot
    wait_for("a fresh state", lambda: robot.now_s() - robot.read().stamp_s < 0.5)
    stand_again(shared)
    yield shared
    fake.say("clear")


def test_the_driver_passes_the_conformance_kit_and_the_robot_has_nothing_to_complain_of(fake):
    if fake.report()["mode"]:  # Unless another test took it over before.
        robot = unitree_robot(fake)
        check_backend(robot, hold_s=0.5, tolerance_rad=1.5, max_age_s=5.0)
        report = fake.report()
        assert report["violations"] == {}
        assert report["commands"]["refused"] == {}
        assert report["commands"]["accepted"] > 100
        assert report["mode"] == "", "the robot's own controller was released"


FAULTS = {
    "hot joint=FL_calf_joint c=99": ("motor_hot", "The motor of 'FL_calf_joint' has 99 C"),
    "battery percent=4": ("battery_low", "The battery has 4 % left"),
    "lost joint=RR_hip_joint": ("motor_lost", "The motor of 'RR_hip_joint' missed"),
    "crc": ("state_crc", "states in a row have a wrong checksum"),
    "freeze": ("state_frozen", "not changed by a bit"),
    "replay ms=1500": ("clock_back", "The robot's clock went back"),
    "buttons names=L2+B": ("remote_stop", "The operator pressed L2+B"),
    "upside_down": ("tilt", "The base is tilted by 3.1"),
    "joint joint=FR_hip_joint rad=0.4": ("joint_position", "Joint 'FR_hip_joint' is at"),
    "silence": ("stale_state", "It is on interface 'lo', DDS domain"),
    "repeat": ("stale_state", "It is on interface 'lo', DDS domain"),
    "burst ms=2500": ("stale_state", "ms old"),
    "delay ms=1500": ("stale_state", "ms old"),
}


@pytest.mark.parametrize("line", FAULTS)
def test_a_fault_damps_the_robot(fake, loop, line):
    fake.say(f"fault {line}")
    run_until(loop, Mode.DAMP)
    kind, text = FAULTS[line]
    fault = loop.safety.fault
    assert (fault.kind or fault.code) == kind, fault
    assert text in fault.text
    damped = wait_for("damping", lambda: fake.report()["faults"][-1]["how"])
    assert damped == "command", "the driver did it, and not the robot because nobody spoke any more"
    if not line.startswith("replay"):  # Which a cache does, and is gone with it.
        with pytest.raises(SafetyError, match="not possible in DAMP"):
            loop.request("stand")


def test_some_lost_doubled_and_damaged_states_are_no_fault_and_are_counted(fake, loop):
    before = dict(loop.robot.health())
    for line in ("drop share=0.05", "duplicate share=0.2", "crc share=0.05"):
        fake.say(f"fault {line}")
    for _ in range(20):
        loop.run(0.1)
        after = loop.robot.health()
        if all(after[name] > before[name] + 3 for name in ("lost", "repeated", "crc_errors")):
            break
    assert loop.safety.mode is Mode.STAND, loop.safety.fault
    assert all(after[name] > before[name] + 3 for name in ("lost", "repeated", "crc_errors"))


def test_a_clock_that_went_back_is_followed_after_the_reset(fake, loop):
    fake.say("fault clock_back ms=3000")
    run_until(loop, Mode.DAMP)
    assert loop.safety.fault.kind == "clock_back"
    stand_again(loop)


def test_a_second_writer_damps_and_keeps_the_robot_from_standing(fake, loop):
    kind = CLASSES["unitree_go"][1]
    other = Link("lo", fake.domain)
    try:
        writer = other.writer("rt/lowcmd", kind)
        run_until(loop, Mode.DAMP)
        assert loop.safety.fault.kind == "second_writer"
        assert "announces commands on 'rt/lowcmd'" in loop.safety.fault.text
        send(writer, kind, CommandCodec(unitree_model("go2"), GO2).encode(JointCommand.damping(GO2)))
        wait_for("both to be heard", lambda: "two_writers" in fake.report()["violations"])
        loop.request("reset")
        for _ in range(50):  # Limp, the robot is left to the other; this fault is a second old by then.
            report = loop.tick()
            loop.robot.sleep_until(loop.robot.now_s() + 0.02)
        assert (report.mode, report.sent) == (Mode.PASSIVE, None)
        with pytest.raises(SafetyError, match="another program announces commands"):
            loop.request("stand")
    finally:
        other.close()


def test_a_service_that_comes_back_is_a_second_writer_and_is_released_again(fake, loop):
    fake.say("mode mcf")
    run_until(loop, Mode.DAMP)
    assert loop.safety.fault.kind == "second_writer"
    assert fake.report()["mode"] == "mcf"
    stand_again(loop)
    assert fake.report()["mode"] == ""


def test_stiffness_grows_and_what_was_sent_is_told(loop):
    loop.run(0.1)
    loop.robot.write(JointCommand.passive(GO2))
    first = loop.robot.write(JointCommand.position(GO2, loop.robot.read().joint_pos_rad))
    assert first.stiffness_nm_rad.max() < 5.0
    assert first.damping_nm_s_rad.min() > 4.0
    wait_for(
        "the whole stiffness",
        lambda: (
            loop.robot.write(JointCommand.position(GO2, loop.robot.read().joint_pos_rad)).stiffness_nm_rad[0] == 40.0
        ),
    )


def test_the_remote_asks_and_its_sticks_are_told(fake, loop):
    fake.say("fault sticks forward=0.5 turn=-1")
    wait_for("the sticks", lambda: loop.robot.stick_axes().any())
    np.testing.assert_allclose(loop.robot.stick_axes(), [0.5, 0.0, -1.0], atol=1e-6)
    fake.say("clear")
    loop.robot.take_requests()
    fake.say("fault buttons names=select for_ms=200")
    run_until(loop, Mode.PASSIVE)


def test_a_program_that_hangs_is_damped_by_the_driver(fake, loop):
    fake.say("mark hang")
    damped = wait_for("damping", lambda: fake.report()["faults"][-1]["how"])  # Nobody ticks the loop meanwhile.
    assert damped == "command"


def test_the_wrong_domain_is_told_with_interface_and_domain():
    robot = UnitreeRobot(GO2, interface="lo", domain=free_domain(), connect_timeout_s=0.5)
    with pytest.raises(
        RobotError, match=rf"No state on 'rt/lowstate' for 0.5 s on {robot.link_text}\. Is the robot on"
    ):
        robot.connect()


def test_the_wrong_interface_is_told_likewise(fake):
    """One that exists and does not lead to the robot: the other end of a cable that nobody is at."""
    others = [name for name in interface_names() if name != "lo"]
    if not others:
        pytest.skip("this machine has one interface")
    code = (
        "from gantry_hardware.robots import robot_spec\nfrom gantry_hardware.unitree.robot import UnitreeRobot\n"
        "from gantry_hardware import RobotError\n"
        f"place = dict(interface='{others[0]}', domain={fake.domain})\n"
        "robot = UnitreeRobot(robot_spec('go2'), connect_timeout_s=1.0, **place)\n"
        "try:\n    robot.connect()\nexcept RobotError as error:\n    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f"No state on 'rt/lowstate' for 1 s on interface '{others[0]}', DDS domain {fake.domain}" in said


def test_a_fake_refuses_lines_that_it_does_not_know(fake):
    for line, text in (
        ("fault upside_dwn", "Did you mean 'upside_down'"),
        ("fault buttons names=L2+Q", "Unknown button 'Q'"),
        ("fault delay ms=fast", "expected a number"),
        ("reprt", "Did you mean 'report'"),
    ):
        with pytest.raises(GantryError, match=text):
            fake.say(line)
