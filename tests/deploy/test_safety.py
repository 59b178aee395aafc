"""The state machine: the table, the guards and the judge's limits, each from both sides."""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace

import numpy as np
import pytest

from gantry_deploy.control.safety import TRANSITIONS, Event, Fault, FaultCode, Mode, SafetyConfig, SafetyMachine
from gantry_deploy.control.safety_config import RANGES, age_text
from gantry_deploy.errors import SafetyError
from gantry_deploy.testing.legs import tiny_robot
from gantry_hardware import JointCommand
from gantry_hardware.backends.mock import MockRobot

SPEC = tiny_robot()
EXACT = SafetyConfig(limit_ticks=1, joint_pos_margin_rad=0.1, joint_vel_factor=1.5, joint_effort_factor=2.0)


def state(**fields):
    robot = MockRobot(SPEC)
    robot.connect()
    robot.override(**fields)
    return robot.read()


def judge(config=EXACT, now_s=0.0, **fields):
    arguments = {name: fields.pop(name) for name in ("missed_deadlines", "heartbeat_s") if name in fields}
    arguments["requested_command"] = fields.pop("requested_command", None)
    machine = SafetyMachine(SPEC, config)
    machine.request("stand")
    return machine.judge(state(**fields), now_s, machine.mode, **arguments)


def in_mode(mode):
    machine = SafetyMachine(SPEC)
    for event in {Mode.PASSIVE: "", Mode.STAND: "stand", Mode.POLICY: "stand start", Mode.DAMP: "estop"}[mode].split():
        machine.request(event)
    assert machine.mode is mode
    return machine


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("event", [event for event in Event if event is not Event.FAULT])
def test_every_request_in_every_mode_follows_the_table_or_is_refused(mode, event):
    machine = in_mode(mode)
    if (mode, event) in TRANSITIONS:
        machine.request(event)
        assert machine.mode is TRANSITIONS[mode, event]
        return
    with pytest.raises(SafetyError, match=f"'{event}' is not possible in {mode}") as refusal:
        machine.request(event)
    assert machine.mode is mode
    for allowed in machine.allowed_events():
        assert allowed in str(refusal.value)


def test_damp_is_left_by_reset_alone():
    assert [event for (mode, event), to in TRANSITIONS.items() if mode is Mode.DAMP and to is not Mode.DAMP] == [
        Event.RESET
    ]
    assert {to for (mode, event), to in TRANSITIONS.items() if event in (Event.ESTOP, Event.FAULT)} == {Mode.DAMP}
    assert {mode for (mode, event) in TRANSITIONS if event is Event.ESTOP} == set(Mode)


def test_a_misspelt_event_is_answered_with_the_near_miss():
    with pytest.raises(SafetyError, match=r"Unknown safety event 'strat'\. Did you mean 'start'\?"):
        in_mode(Mode.STAND).request("strat")
    with pytest.raises(SafetyError, match="Unknown safety event 'fault'"):
        in_mode(Mode.STAND).request("fault")


@pytest.mark.parametrize("mode", [Mode.STAND, Mode.POLICY, Mode.DAMP])
def test_a_fault_damps_and_its_first_cause_is_kept(mode):
    machine = in_mode(mode)
    first, second = (Fault(code, code.value, 1.0) for code in (FaultCode.TILT, FaultCode.STALE_STATE))
    expected = machine.fault or first
    assert machine.report(first) is Mode.DAMP
    machine.report(second)
    assert machine.fault is expected
    with pytest.raises(SafetyError, match=expected.text):
        machine.request("stand")
    machine.request("reset")
    assert machine.mode is Mode.PASSIVE
    assert machine.fault is None


def test_a_fault_in_passive_changes_nothing():
    machine = in_mode(Mode.PASSIVE)
    assert machine.report(Fault(FaultCode.TILT, "", 0.0)) is Mode.PASSIVE
    assert machine.fault is None


def test_an_emergency_stop_says_so():
    machine = in_mode(Mode.POLICY)
    machine.request("estop", 3.5)
    assert machine.fault is not None
    assert (machine.fault.code, machine.fault.time_s) == (FaultCode.OPERATOR_STOP, 3.5)


def test_a_guard_refuses_with_its_reason():
    machine = in_mode(Mode.PASSIVE)
    reasons = ["the robot is upside down.", None]
    machine.add_guard(Event.STAND, lambda: reasons.pop(0))
    with pytest.raises(SafetyError, match="'stand' is refused in PASSIVE: the robot is upside down"):
        machine.request("stand")
    assert machine.mode is Mode.PASSIVE
    machine.request("stand")
    assert machine.mode is Mode.STAND


def test_a_good_state_is_no_fault():
    assert judge() is None


@pytest.mark.parametrize(
    ("inside", "outside", "code", "text"),
    [
        ({"now_s": 0.05}, {"now_s": 0.051}, "stale_state", "51 ms old, allowed are 50 ms"),
        ({"stamp_s": 0.05}, {"stamp_s": 0.06}, "stale_state", "60 ms in the future"),
        ({}, {"stamp_s": math.nan}, "stale_state", "nan ms old"),
        (
            {"joint_pos_rad": np.array([-1.1, 2.1, 0, 0])},
            {"joint_pos_rad": np.array([0, 0, -1.11, 0])},
            "joint_position",
            r"'right_hip_joint' is at -1.110 rad, allowed are \[-1.100, 2.100\] rad",
        ),
        ({}, {"joint_pos_rad": np.array([0, 2.11, 0, 0])}, "joint_position", "'left_knee_joint' is at 2.110 rad"),
        (
            {"joint_vel_rad_s": np.array([15.0, -15.0, 0, 0])},
            {"joint_vel_rad_s": np.array([0, 0, 0, -15.1])},
            "joint_velocity",
            "'right_knee_joint' turns at -15.10 rad/s, allowed are 15.00 rad/s",
        ),
        (
            {"joint_effort_nm": np.array([40.0, -40.0, 0, 0])},
            {"joint_effort_nm": np.array([41.0, 0, 0, 0])},
            "joint_torque",
            "'left_hip_joint' carries 41.00 N m, allowed are 40.00 N m",
        ),
        ({}, {"joint_pos_rad": np.array([0, np.nan, 0, 0])}, "nan_state", "joint_pos_rad of left_knee_joint"),
        ({}, {"joint_vel_rad_s": np.array([0, 0, np.inf, 0])}, "nan_state", "joint_vel_rad_s of right_hip_joint"),
        ({}, {"joint_effort_nm": np.full(4, np.nan)}, "nan_state", "joint_effort_nm of left_hip_joint, left_knee"),
        ({}, {"quat_base_to_world_wxyz": np.array([np.nan, 0, 0, 0])}, "nan_state", "quat_base_to_world_wxyz"),
        ({}, {"ang_vel_base_in_base_rad_s": np.array([0, 0, np.nan])}, "nan_state", "ang_vel_base_in_base_rad_s"),
        ({"missed_deadlines": 5}, {"missed_deadlines": 6}, "missed_deadlines", "6 control periods .* allowed are 5"),
        (
            {"requested_command": np.zeros(3)},
            {"requested_command": np.array([0, np.nan, 0])},
            "nan_command",
            r"\[0.0, nan, 0.0\] is not finite",
        ),
    ],
)
def test_each_limit_from_both_sides(inside, outside, code, text):
    assert judge(**inside) is None
    fault = judge(**outside)
    assert fault is not None
    assert fault.code == code
    assert re.search(text, fault.text)


def quat(angle, axis):
    half = angle / 2
    return np.array([math.cos(half), *(math.sin(half) * np.asarray(axis))])


@pytest.mark.parametrize("axis", [(1, 0, 0), (0, 1, 0), (-1, 0, 0), (0.6, -0.8, 0)])
def test_tilt_in_any_direction(axis):
    assert judge(quat_base_to_world_wxyz=quat(0.99, axis)) is None
    # An IMU that gives no exact unit quaternion still tells the angle.
    assert judge(quat_base_to_world_wxyz=quat(0.99, axis) * 1.5) is None
    for angle in (1.01, 2.0, math.pi):
        fault = judge(quat_base_to_world_wxyz=quat(angle, axis))
        assert fault is not None
        assert fault.code is FaultCode.TILT
        assert f"tilted by {angle:.2f} rad, allowed are 1.00 rad" in fault.text


def test_yaw_is_no_tilt():
    assert judge(quat_base_to_world_wxyz=quat(3.0, (0, 0, 1))) is None


def test_an_imu_that_never_answered_is_a_tilt():
    fault = judge(quat_base_to_world_wxyz=np.zeros(4))
    assert fault is not None
    assert fault.code is FaultCode.TILT


def imu_fault(quat_wxyz, acceleration, *, mode=Mode.PASSIVE, gyro=(0.0, 0.0, 0.0), **config):
    machine = SafetyMachine(SPEC, replace(EXACT, max_tilt_rad=math.pi, **config))
    if mode is Mode.STAND:
        machine.request("stand")
    reading = state(
        quat_base_to_world_wxyz=np.array(quat_wxyz),
        lin_acc_base_in_base_m_s2=np.array(acceleration),
        ang_vel_base_in_base_rad_s=np.array(gyro),
    )
    fault = machine.judge(reading, 0.0, machine.mode)
    assert fault is None or fault.code is FaultCode.IMU
    return fault


def test_at_rest_orientation_and_accelerometer_must_agree():
    level = (1.0, 0.0, 0.0, 0.0)
    # Pitched nose down by 0.5 rad, the base sees up behind itself; rolled to the right, on its left.
    assert imu_fault(quat(0.5, (0, 1, 0)), (-9.81 * math.sin(0.5), 0.0, 9.81 * math.cos(0.5))) is None
    assert imu_fault(quat(0.5, (1, 0, 0)), (0.0, 9.81 * math.sin(0.5), 9.81 * math.cos(0.5))) is None
    assert imu_fault(quat(2.0, (0, 0, 1)), (0.0, 0.0, 9.0)) is None
    assert imu_fault(level, (9.81 * math.sin(0.29), 0.0, 9.81 * math.cos(0.29))) is None
    fault = imu_fault(level, (9.81 * math.sin(0.31), 0.0, 9.81 * math.cos(0.31)))
    assert "(0.00, 0.00, 1.00) in the base by the IMU's orientation and (0.31, 0.00, 0.95)" in fault.text
    assert "0.31 rad apart, allowed are 0.30 rad" in fault.text
    assert "3.14 rad apart" in imu_fault(level, (0.0, 0.0, -9.81)).text
    # The same orientation in another order of its numbers.
    assert imu_fault(np.roll(quat(0.5, (0, 1, 0)), -1), (-9.81 * math.sin(0.5), 0.0, 9.81 * math.cos(0.5))) is not None


def test_a_robot_that_moves_or_stands_is_not_judged_by_its_accelerometer():
    level, wrong = (1.0, 0.0, 0.0, 0.0), (9.81, 0.0, 0.0)
    assert imu_fault(level, wrong) is not None
    assert imu_fault(level, wrong, gyro=(0.0, 0.31, 0.0)) is None
    assert imu_fault(level, (9.81 * 1.16, 0.0, 0.0)) is None
    assert imu_fault(level, wrong, mode=Mode.STAND) is None


@pytest.mark.parametrize("nothing", [0.0, math.nan])
def test_an_accelerometer_that_reads_nothing_is_refused_unless_the_robot_has_none(nothing):
    fault = imu_fault((1.0, 0.0, 0.0, 0.0), (nothing,) * 3)
    assert "accelerometer reads" in fault.text
    assert "require_accelerometer" in fault.text
    assert imu_fault((1.0, 0.0, 0.0, 0.0), (nothing,) * 3, require_accelerometer=False) is None


def test_no_state():
    fault = SafetyMachine(SPEC).judge(None, 2.0, Mode.PASSIVE)
    assert fault is not None
    assert (fault.code, fault.time_s) == (FaultCode.NO_STATE, 2.0)


def test_the_heartbeat_counts_only_where_it_is_required():
    required = replace(EXACT, require_heartbeat=True, heartbeat_timeout_s=0.5)
    assert judge(EXACT, heartbeat_s=None) is None
    assert judge(required, heartbeat_s=-0.5) is None
    late, never = judge(required, heartbeat_s=-0.51), judge(required, heartbeat_s=None)
    assert late is not None
    assert never is not None
    assert late.code is never.code is FaultCode.HEARTBEAT
    assert late.text == "The operator's heartbeat is 510 ms old, allowed are 500 ms (safety.heartbeat_timeout_s)."
    assert never.text == "The operator's heartbeat never came (safety.require_heartbeat)."


@pytest.mark.parametrize(
    ("age_s", "allowed_s", "told"),
    [
        (0.152, 0.15, "152 ms old, allowed are 150 ms"),
        (0.1504, 0.15, "150.4 ms old, allowed are 150 ms"),
        (0.30000001, 0.3, "300.00001 ms old, allowed are 300 ms"),
        (0.0712, 0.0705, "71 ms old, allowed are 70.5 ms"),
        (-0.0502, 0.05, "50.2 ms in the future, allowed are 50 ms"),
        (math.nan, 0.05, "nan ms old, allowed are 50 ms"),
    ],
)
def test_an_age_never_looks_like_its_limit_and_names_what_allows_more(age_s, allowed_s, told):
    assert age_text(age_s, "state_timeout_s", allowed_s) == f"{told} (safety.state_timeout_s)"


def test_each_setting_that_a_fault_names_exists():
    required = replace(EXACT, require_heartbeat=True)
    faults = [judge(required, heartbeat_s=at_s) for at_s in (None, -9.0)]
    faults += [judge(now_s=1.0), judge(missed_deadlines=6)]
    named = {name for fault in faults for name in re.findall(r"\(safety\.(\w+)\)", fault.text)}
    assert named == {"require_heartbeat", "heartbeat_timeout_s", "state_timeout_s", "max_missed_deadlines"}
    assert named <= vars(SafetyConfig()).keys()


@pytest.mark.parametrize("mode", [Mode.PASSIVE, Mode.DAMP])
def test_a_single_reading_beyond_a_limit_keeps_a_robot_from_standing_up(mode):
    fault = in_mode(mode).judge(state(joint_vel_rad_s=np.full(4, 99.0)), 0.0, mode)
    assert fault is not None
    assert fault.code is FaultCode.JOINT_VELOCITY


@pytest.mark.parametrize("mode", [Mode.STAND, Mode.POLICY])
def test_a_single_noisy_reading_beyond_a_limit_is_forgiven_while_the_robot_is_powered(mode):
    machine = in_mode(mode)
    good, bad = state(), state(joint_vel_rad_s=np.full(4, 99.0))
    found = [machine.judge(reading, 0.0, machine.mode) for reading in (bad, good, bad, bad, bad, good)]
    assert [fault is not None for fault in found] == [False, False, False, True, True, False]


def test_targets_that_are_not_finite_are_refused():
    machine = SafetyMachine(SPEC)
    good = JointCommand.damping(SPEC)
    assert machine.judge.targets(good, 0.0, "policy") is None
    for field in ("pos_rad", "vel_rad_s", "effort_nm", "stiffness_nm_rad", "damping_nm_s_rad"):
        fault = machine.judge.targets(replace(good, **{field: np.array([0, 0, np.nan, 0])}), 0.0, "policy")
        assert fault is not None
        assert fault.code is FaultCode.NAN_COMMAND


@pytest.mark.parametrize(
    "name", ["state_timeout_s", "command_timeout_s", "stand_duration_s", "limit_ticks", "max_tilt_rad"]
)
def test_settings_that_make_no_sense_are_refused(name):
    with pytest.raises(SafetyError, match=f"{name} is 0"):
        SafetyConfig(**{name: 0})


NUMBERS = [item for item in fields(SafetyConfig) if item.type in ("float", "int")]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e308, 10**400, True, "1", None])
@pytest.mark.parametrize("item", NUMBERS, ids=lambda item: item.name)
def test_no_limit_is_switched_off_by_nonsense(item, value):
    with pytest.raises(SafetyError, match=f"^Safety setting {item.name} is .*, expected a (whole )?number from "):
        SafetyConfig(**{item.name: value})


@pytest.mark.parametrize("item", NUMBERS, ids=lambda item: item.name)
def test_every_limit_has_an_end_and_the_default_is_well_within(item):
    low, high = RANGES[item.name]
    assert 0.0 <= low <= item.default <= high < 1e4
    for value in (low, high):
        kind = int if item.type == "int" else float
        assert getattr(SafetyConfig(**{item.name: kind(value)}), item.name) == value
    with pytest.raises(SafetyError, match=f"{item.name} is "):
        SafetyConfig(**{item.name: high + 1 if item.type == "int" else math.nextafter(high, math.inf)})


@pytest.mark.parametrize("name", ["require_heartbeat", "require_accelerometer"])
@pytest.mark.parametrize("value", [1, 0, "true", None, math.nan])
def test_switches_are_true_or_false(name, value):
    with pytest.raises(SafetyError, match=f"{name} is .*, expected true or false"):
        SafetyConfig(**{name: value})


def test_more_than_upside_down_is_no_limit():
    with pytest.raises(SafetyError, match=r"max_tilt_rad is 7, expected a number from 0\.05 to 3\.14"):
        SafetyConfig(max_tilt_rad=7)
