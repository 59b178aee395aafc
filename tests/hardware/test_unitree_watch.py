"""What a Unitree robot's states give away, and the state in which it may be taken over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gantry_hardware import RobotError
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.robots import robot_spec

pytest.importorskip("cyclonedds")

from gantry_hardware.unitree import take_over
from gantry_hardware.unitree.codec import LowState
from gantry_hardware.unitree.link import Link
from gantry_hardware.unitree.robot import UnitreeRobot
from gantry_hardware.unitree.watch import StateWatch, WatchLimits

SPEC = robot_spec("go2")


def low_state(tick, **fields):
    values = {
        "tick": tick,
        "mode_machine": 0,
        "quat_wxyz": np.array([1.0, 0.0, 0.0, 0.0]),
        "gyro_rad_s": np.zeros(3),
        "acc_m_s2": np.array([0.0, 0.0, 9.81]),
        "pos_rad": SPEC.array("default_rad"),
        "vel_rad_s": np.zeros(12),
        "effort_nm": np.zeros(12),
        "temperature_c": np.full(12, 40.0),
        "lost": np.zeros(12, np.int64),
        "errors": np.zeros(12, np.int64),
        "battery_percent": 80.0,
        "battery_v": 28.0,
        "remote": bytes(40),
        "body": (tick,),
    }
    return LowState(**values | fields)


def one(index, value, like=None):
    values = np.zeros(12, np.int64) if like is None else like.copy()
    values[index] = value
    return values


@pytest.mark.parametrize(
    ("kind", "at_ms", "text", "change"),
    [
        (
            "motor_hot",
            50,
            "'FL_calf_joint' has 86 C, allowed are 85 C",
            lambda i: {"temperature_c": one(5, 86.0, np.full(12, 40.0))},
        ),
        ("battery_low", 50, "has 9 % left, needed are 10 %", lambda i: {"battery_percent": 9.0}),
        ("motor_lost", 70, "'RL_calf_joint' missed 11 messages within 100 ms", lambda i: {"lost": one(11, i - 24)}),
        ("motor_lost", 50, "'FR_hip_joint' does not answer", lambda i: {"errors": one(0, 0x40000000)}),
        ("state_frozen", 132, "not changed by a bit for 82 ms", lambda i: {"body": (24,)}),
        ("mode_machine", 50, "changed from 0 to 9", lambda i: {"mode_machine": 9}),
    ],
)
def test_a_fault_in_the_states_is_found_at_once_and_kept(kind, at_ms, text, change):
    watch, found_ms = StateWatch(SPEC.joint_names, WatchLimits()), None
    for i in range(200):
        watch.look(low_state(2 * i, **(change(i) if i >= 25 else {})), 0.002 * i)
        if watch.fault is not None and found_ms is None:
            found_ms = 2 * i
    assert (watch.fault.kind, found_ms) == (kind, at_ms)
    assert text in watch.fault.text
    watch.look(low_state(1000), 1.0)
    assert watch.fault.kind == kind, "a fault that has passed is kept until the reset"
    watch.reset()
    watch.look(low_state(1002), 1.002)
    assert watch.fault is None


def test_some_wrong_checksums_are_left_out_and_a_run_of_them_is_a_fault():
    watch = StateWatch(SPEC.joint_names, WatchLimits())
    for i in range(60):
        watch.look(low_state(2 * i), 0.002 * i) if i % 5 == 0 else watch.wrong_crc()
    assert watch.fault is None
    for _ in range(6):
        watch.wrong_crc()
    assert watch.fault.kind == "state_crc"


def test_a_state_that_was_overtaken_is_no_fault_and_a_clock_that_went_back_is():
    watch = StateWatch(SPEC.joint_names, WatchLimits())
    assert not watch.went_back(-100)
    assert watch.fault is None
    assert watch.went_back(-101)
    assert (watch.fault.kind, "by 101 ms, allowed are 100 ms" in watch.fault.text) == ("clock_back", True)


def state(**fields):
    robot = MockRobot(SPEC)
    robot.connect()
    return replace(robot.read(), **fields)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"stamp_s": -0.6}, "600 ms old, allowed are 500 ms"),
        ({"joint_vel_rad_s": np.full(12, np.nan)}, "not finite"),
        ({"quat_base_to_world_wxyz": np.zeros(4)}, "norm 0.000, expected 1"),
        ({"quat_base_to_world_wxyz": np.array([0.0, 1.0, 0.0, 0.0])}, "tilted by 3.14 rad"),
        ({"joint_pos_rad": SPEC.array("lower_rad") - 0.11}, r"at -1.157 rad, allowed are \[-1.147, 1.147\]"),
        ({"joint_vel_rad_s": np.full(12, -1.1)}, "turns at -1.10 rad/s"),
    ],
)
def test_a_robot_out_of_its_envelope_is_not_taken_over(fields, text):
    take_over.require_envelope(SPEC, state(), 0.0)
    with pytest.raises(RobotError, match=text):
        take_over.require_envelope(SPEC, state(**fields), 0.0)


class Switcher:
    """A motion switcher of which another controller takes over whenever one is released."""

    def __init__(self, *names):
        self.names = list(names)

    def active(self):
        return self.names[0] if self.names else ""

    def release(self):
        self.names.pop(0)


def test_controllers_are_released_one_after_the_other_but_not_for_ever():
    assert take_over.release(Switcher("normal", "ai"), 10.0) == ["normal", "ai"]
    with pytest.raises(RobotError, match="'f' is still active after 5 releases"):
        take_over.release(Switcher(*"abcdefg"), 10.0)


@pytest.mark.parametrize(
    ("interface", "domain", "text"),
    [
        ("", 0, "Name the network interface to the robot .* this machine has .*lo"),
        ("lp", 0, "Unknown network interface 'lp'"),
        ("lo", 300, "The DDS domain is 300, expected a whole number from 0 to 232"),
    ],
)
def test_a_place_that_does_not_exist_is_refused_with_those_that_do(interface, domain, text):
    with pytest.raises((RobotError, KeyError), match=text):
        UnitreeRobot(SPEC, interface=interface, domain=domain).connect()


def test_a_domain_is_on_one_interface_per_process(monkeypatch):
    from gantry_hardware.unitree import link

    monkeypatch.setitem(link._domains, 231, ("eth7", None))
    with pytest.raises(RobotError, match="has opened DDS domain 231 on interface 'eth7'"):
        Link("lo", 231)


@pytest.mark.parametrize("option", [{"ramp_s": -1.0}, {"max_motor_c": 500.0}, {"command_timeout_s": float("nan")}])
def test_options_out_of_range_are_refused(option):
    with pytest.raises(RobotError, match=f"Option '?{next(iter(option))}'? is"):
        UnitreeRobot(SPEC, interface="lo", **option)


def test_a_guard_that_would_damp_at_every_breath_is_refused():
    with pytest.raises(RobotError, match=r"'guard_timeout_s' \(0 for no guard\)'? is 0.001"):
        UnitreeRobot(SPEC, interface="lo", guard_timeout_s=0.001)


def test_before_it_is_connected_nothing_works():
    robot = UnitreeRobot(SPEC, interface="lo")
    with pytest.raises(RobotError, match="not connected"):
        robot.read()
    assert (robot.fault(), robot.health(), robot.take_requests(), robot.stick_axes().tolist()) == (
        None,
        {},
        [],
        [0.0] * 3,
    )
    robot.close()
