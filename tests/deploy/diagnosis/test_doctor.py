"""The doctor on readings that are made by hand from laws: motions of joints, a motor's law, a turning base."""

from __future__ import annotations

import secrets
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gantry_deploy.diagnosis.doctor import examine
from gantry_deploy.diagnosis.findings import FindingKind
from gantry_deploy.diagnosis.state_log import StateLog, log_of_robot
from gantry_deploy.testing.legs import tiny_robot
from gantry_hardware.backends.mock import MockRobot

SPEC = tiny_robot()
DT_S, ROWS = 0.02, 400
N = SPEC.num_joints


def wxyz(rotation):
    return np.roll(rotation.as_quat(), 1, axis=1)


@pytest.fixture(scope="module")
def sound():
    """Eight seconds of joints on sines, each of its own, motors that obey a tick later, and a base that rolls about."""
    seed = secrets.randbits(32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    time_s = np.arange(ROWS) * DT_S
    rate = rng.uniform(4.0, 9.0, N) + np.arange(N)
    phase = rng.uniform(0.0, 6.0, N)
    wave = np.outer(time_s, rate) + phase
    pos, vel = 0.5 + 0.3 * np.sin(wave), 0.3 * rate * np.cos(wave)
    target = 0.5 + 0.4 * np.sin(np.outer(time_s, rate + 1.5) + rng.uniform(0.0, 6.0, N))
    zeros = np.zeros((ROWS, N))
    sent = np.stack((target, zeros, zeros, zeros + 30.0, zeros + 1.0), axis=1)
    effort = zeros.copy()
    effort[1:] = 30.0 * (target[:-1] - pos[1:]) - vel[1:]
    angles = np.stack([0.25 * np.sin(r * time_s + p) for r, p in ((3.1, 0.2), (2.3, 1.0), (1.7, 2.0))], axis=1)
    base = Rotation.from_euler("xyz", angles)
    rates = (base[:-1].inv() * base[1:]).as_rotvec() / DT_S
    gyro = np.concatenate((rates[:1], 0.5 * (rates[1:] + rates[:-1]), rates[-1:]))
    place = np.stack((0.5 * time_s, 0.1 * np.sin(time_s), 0.3 + 0.0 * time_s), axis=1)
    in_world = np.stack((0.5 + 0.0 * time_s, 0.1 * np.cos(time_s), 0.0 * time_s), axis=1)
    return StateLog(
        spec=SPEC,
        time_s=time_s,
        stamp_s=time_s - 0.001,
        joint_pos_rad=pos,
        joint_vel_rad_s=vel,
        joint_effort_nm=effort,
        quat_base_to_world_wxyz=wxyz(base),
        ang_vel_base_in_base_rad_s=gyro,
        lin_acc_base_in_base_m_s2=base.inv().apply([0.0, 0.0, 9.81]),
        pos_base_in_world_m=place,
        lin_vel_base_in_base_m_s=base.inv().apply(in_world),
        sent=sent,
        upright=np.ones(ROWS, dtype=np.bool_),
    )


def told(log, **options):
    return [(finding.kind, finding.subject, finding.names) for finding in examine(log, **options).findings]


def joints(log, order):
    names = ("joint_pos_rad", "joint_vel_rad_s", "joint_effort_nm")
    return replace(log, **{name: getattr(log, name)[:, order] for name in names})


def test_nothing_is_said_of_sound_readings(sound):
    found = examine(sound)
    assert found.findings == []
    assert all(item.judged for item in found.checked)


def test_exchanged_joints(sound):
    names = (SPEC.joint_names[0], SPEC.joint_names[3])
    assert told(joints(sound, [3, 1, 2, 0])) == [(FindingKind.PERMUTATION, "joint order and sign", names)]


def test_a_reversed_joint(sound):
    sign = np.array([1.0, 1.0, -1.0, 1.0])
    log = replace(
        sound,
        joint_pos_rad=sound.joint_pos_rad * sign,
        joint_vel_rad_s=sound.joint_vel_rad_s * sign,
        joint_effort_nm=sound.joint_effort_nm * sign,
    )
    # All are within the limits, so only the motors' law can tell.
    assert told(log) == [(FindingKind.SIGN, "joint order and sign", (SPEC.joint_names[2],))]


def test_velocities_of_the_wrong_sign_unit_and_none(sound):
    sign = np.array([1.0, -1.0, 1.0, 1.0])
    flipped = told(replace(sound, joint_vel_rad_s=sound.joint_vel_rad_s * sign))
    assert (FindingKind.SIGN, "joint velocities", (SPEC.joint_names[1],)) in flipped
    found = examine(replace(sound, joint_vel_rad_s=np.degrees(sound.joint_vel_rad_s)))
    assert any("degrees in place of radians" in finding.text for finding in found.findings)
    dead = sound.joint_vel_rad_s * np.array([1.0, 1.0, 0.0, 1.0])
    assert (FindingKind.CONSTANT, "joint velocities", (SPEC.joint_names[2],)) in told(
        replace(sound, joint_vel_rad_s=dead)
    )


def test_an_offset_of_a_joint(sound):
    offset = np.array([0.0, 0.0, 0.12, 0.0])
    found = examine(replace(sound, joint_pos_rad=sound.joint_pos_rad + offset)).findings
    assert [(f.kind, f.names) for f in found] == [(FindingKind.OFFSET, (SPEC.joint_names[2],))]
    assert "+0.12" in found[0].text


def test_commands_that_act_late(sound):
    late = replace(sound, sent=np.concatenate((sound.sent[2:], sound.sent[-2:])))
    found = examine(late).findings
    assert [(f.kind, f.subject) for f in found] == [(FindingKind.DELAY, "commands")]
    assert "2 ticks (40 ms)" in found[0].text


def test_joints_beyond_their_limits(sound):
    shifted = sound.joint_pos_rad + np.array([0.0, 3.0, 0.0, 0.0])
    kinds = {(kind, names) for kind, _, names in told(replace(sound, joint_pos_rad=shifted))}
    assert (FindingKind.LIMIT, (SPEC.joint_names[1],)) in kinds


@pytest.mark.parametrize("order", [(1, 2, 3, 0), (3, 0, 1, 2)])
def test_the_quaternion_in_another_order(sound, order):
    found = examine(replace(sound, quat_base_to_world_wxyz=sound.quat_base_to_world_wxyz[:, order])).findings
    assert [(f.kind, f.subject) for f in found] == [(FindingKind.FRAME, "orientation")]


def test_the_inverse_quaternion(sound):
    inverse = sound.quat_base_to_world_wxyz * np.array([1.0, -1.0, -1.0, -1.0])
    found = examine(replace(sound, quat_base_to_world_wxyz=inverse)).findings
    assert [(f.kind, f.subject) for f in found] == [(FindingKind.FRAME, "orientation")]
    assert "inverse" in found[0].text


def test_gyroscope_reversed_in_degrees_and_turned(sound):
    gyro = sound.ang_vel_base_in_base_rad_s
    for changed, kind, words in (
        (-gyro, FindingKind.SIGN, "wrong sign"),
        (np.degrees(gyro), FindingKind.SCALE, "degrees"),
        (gyro[:, [1, 0, 2]] * [1.0, -1.0, 1.0], FindingKind.FRAME, "x shows y, y shows -x"),
    ):
        found = examine(replace(sound, ang_vel_base_in_base_rad_s=changed)).findings
        assert [(f.kind, f.subject) for f in found] == [(kind, "gyroscope")]
        assert words in found[0].text


def test_accelerometer_in_g_reversed_and_without_gravity(sound):
    acc = sound.lin_acc_base_in_base_m_s2
    for changed, kind in (
        (acc / 9.81, FindingKind.SCALE),
        (-acc, FindingKind.SIGN),
        (0.001 * acc, FindingKind.OFFSET),
        (acc[:, [0, 2, 1]], FindingKind.FRAME),
    ):
        found = examine(replace(sound, lin_acc_base_in_base_m_s2=changed)).findings
        assert [(f.kind, f.subject) for f in found] == [(kind, "accelerometer")]


def test_an_imu_upside_down(sound):
    flip = Rotation.from_euler("x", np.pi)
    base = Rotation.from_quat(np.roll(sound.quat_base_to_world_wxyz, -1, axis=1)) * flip
    log = replace(
        sound,
        quat_base_to_world_wxyz=wxyz(base),
        ang_vel_base_in_base_rad_s=flip.apply(sound.ang_vel_base_in_base_rad_s),
        lin_acc_base_in_base_m_s2=flip.apply(sound.lin_acc_base_in_base_m_s2),
        upright=np.zeros(ROWS, dtype=np.bool_),
    )
    assert (FindingKind.FRAME, "IMU mounting", ()) not in told(log)
    assert (FindingKind.FRAME, "IMU mounting", ()) in told(log, upright=True)


def test_odometry_in_the_worlds_frame(sound):
    turned = Rotation.from_rotvec(np.outer(np.linspace(0.0, 2.0, ROWS), [0.0, 0.0, 1.0]))
    base = turned * Rotation.from_quat(np.roll(sound.quat_base_to_world_wxyz, -1, axis=1))
    in_world = np.gradient(sound.pos_base_in_world_m, DT_S, axis=0)
    rates = (base[:-1].inv() * base[1:]).as_rotvec() / DT_S
    gyro = np.concatenate((rates[:1], 0.5 * (rates[1:] + rates[:-1]), rates[-1:]))
    right = replace(
        sound,
        quat_base_to_world_wxyz=wxyz(base),
        ang_vel_base_in_base_rad_s=gyro,
        lin_vel_base_in_base_m_s=base.inv().apply(in_world),
    )
    assert told(right) == []
    assert told(replace(right, lin_vel_base_in_base_m_s=in_world)) == [(FindingKind.FRAME, "odometry", ())]
    world_gyro = base.apply(gyro)
    found = told(replace(right, ang_vel_base_in_base_rad_s=world_gyro))
    assert found == [(FindingKind.FRAME, "gyroscope", ())]


def test_times(sound):
    old = examine(replace(sound, stamp_s=sound.time_s - 0.08)).findings
    assert [(f.kind, "80 ms old" in f.text) for f in old] == [(FindingKind.TIMING, True)]
    ahead = examine(replace(sound, stamp_s=sound.time_s + 0.02)).findings
    assert [(f.kind, "in the future" in f.text) for f in ahead] == [(FindingKind.TIMING, True)]
    back = sound.stamp_s.copy()
    back[200:] -= 0.5
    assert any("go back 1 times" in f.text for f in examine(replace(sound, stamp_s=back)).findings)


def test_frozen_and_cached_readings(sound):
    held = np.arange(ROWS)
    held[100:120] = 100
    names = (
        "joint_pos_rad",
        "joint_vel_rad_s",
        "joint_effort_nm",
        "ang_vel_base_in_base_rad_s",
        "quat_base_to_world_wxyz",
    )
    same = {name: getattr(sound, name)[held] for name in names}
    cached = examine(replace(sound, **same)).findings
    assert any("under new stamps" in f.text and "380 ms" in f.text for f in cached)
    frozen = examine(replace(sound, stamp_s=sound.stamp_s[held], **same)).findings
    assert any("readings stopped for 380 ms" in f.text for f in frozen)


def test_a_robot_that_is_read_is_not_commanded():
    robot = MockRobot(SPEC)
    robot.connect()
    log = log_of_robot(robot, 1.0, 50.0)
    assert len(log.time_s) == 50
    assert robot.commands == []
    found = examine(log)
    assert found.findings == []
    unknown = {item.subject for item in found.checked if not item.judged}
    assert unknown >= {"joint order and sign", "joint velocities"}


def test_two_joints_whose_ranges_tell_that_they_are_exchanged(sound):
    low, high = np.array([0.0, 1.2, 0.0, 0.0]), np.array([1.0, 1.9, 1.0, 1.0])
    ranges = zip(SPEC.joints, low, high, strict=True)
    spec = replace(SPEC, joints=tuple(replace(j, lower_rad=a, upper_rad=b, default_rad=b) for j, a, b in ranges))
    pos = sound.joint_pos_rad + np.array([0.0, 1.05, 0.0, 0.0])
    resting = replace(sound, spec=spec, joint_pos_rad=pos, sent=np.full_like(sound.sent, np.nan))
    assert told(resting) == []
    exchanged = joints(resting, [0, 3, 2, 1])
    assert told(exchanged) == [
        (FindingKind.PERMUTATION, "joint order and sign", (SPEC.joint_names[1], SPEC.joint_names[3]))
    ]
