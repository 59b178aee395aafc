"""Identification against laws, hand-made numbers, and simulated robots with known dynamics."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from gantry_deploy.cli.main import main
from gantry_deploy.errors import SafetyError
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.dynamics import Estimate, RobotDynamics, load_dynamics
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.identification import cars, legs
from gantry_sim.identification.actuators import fit_actuators
from gantry_sim.identification.excitation import Excitation, ExcitationCfg, excite
from gantry_sim.identification.findings import Findings
from gantry_sim.identification.imu import Feet, mounting_of, up_by_imu
from gantry_sim.identification.legs import IdentifyCfg, kind_of
from gantry_sim.identification.motion_log import MotionLog, checked
from gantry_sim.identification.parameters import JOINT_PARAMETERS
from gantry_sim.identification.reading import csv_columns, read_log
from gantry_sim.identification.saturation import saturation_of
from gantry_sim.identification.simulated import ReadingNoise, hanging_recording
from gantry_sim.identification.swing import Swing, branches, constant_stretches, hanging_model
from gantry_sim.identification.uncertainty import NormalEquations, block_mean, noise_level

GO2 = robot_spec("go2")
SHORT = ExcitationCfg(seconds=10.0)


def machine(seed=0, **whole):
    rng = np.random.default_rng(seed)
    ranges = {
        "armature_kg_m2": (0.005, 0.03),
        "viscous_friction_nm_s_rad": (0.05, 0.5),
        "coulomb_friction_nm": (0.1, 1.0),
        "stiffness_share": (0.85, 1.15),
        "damping_share": (0.85, 1.15),
        "encoder_offset_rad": (-0.03, 0.03),
    }
    joints = {
        name: {parameter: Estimate(float(rng.uniform(*ends))) for parameter, ends in ranges.items()}
        for name in GO2.joint_names
    }
    return RobotDynamics("go2", joints, {name: Estimate(value) for name, value in whole.items()})


def log_with(rows=3000, dt_s=0.002, **arrays):
    """A log of a Go2 at rest with its own gains, but for what is given."""
    n = GO2.num_joints
    still = np.zeros((rows, 5, n))
    still[:, 0], still[:, 3], still[:, 4] = GO2.array("default_rad"), 40.0, 1.0
    times = dt_s * np.arange(rows)
    usual = {
        "time_s": times,
        "joint_pos_rad": np.tile(GO2.array("default_rad"), (rows, 1)),
        "joint_vel_rad_s": np.zeros((rows, n)),
        "joint_effort_nm": np.full((rows, n), np.nan),
        "quat_base_to_world_wxyz": np.tile([1.0, 0.0, 0.0, 0.0], (rows, 1)),
        "ang_vel_base_in_base_rad_s": np.zeros((rows, 3)),
        "foot_contact": np.ones((rows, 4)),
        "command_time_s": times,
        "commands": still,
    }
    return MotionLog(spec=GO2, source="made", **{**usual, **arrays})


# -- statistics ----------------------------------------------------------------------------------------------------


def test_the_noise_level_is_that_of_what_is_white_in_a_smooth_course():
    rng = np.random.default_rng(0)
    course = np.sin(np.linspace(0.0, 20.0, 20000))[:, None] + 0.01 * rng.standard_normal((20000, 2))
    assert noise_level(course) == pytest.approx([0.01, 0.01], rel=0.05)


def test_deviations_are_those_of_the_mean_and_grow_with_residuals_that_hang_together():
    """The mean of m values of unit noise has a deviation of 1 / sqrt(m); of values in equal runs of k, sqrt(k / m)."""
    rng, m, k = np.random.default_rng(1), 20000, 25
    block = np.arange(m) // 200
    found = []
    for values in (rng.standard_normal(m), np.repeat(rng.standard_normal(m // k), k)):
        sums = NormalEquations(1, 100)
        sums.add(values, np.ones((m, 1)), np.array([0]), block)
        found.append(sums.deviations(np.array([1e3]))[0])
    assert found[0] == pytest.approx(m**-0.5, rel=0.3)
    assert found[1] == pytest.approx((k / m) ** 0.5, rel=0.3)


def test_block_mean_takes_values_of_a_block_for_one():
    mean, deviation = block_mean(np.repeat([1.0, 3.0], 50), np.repeat([0, 1], 50))
    assert mean == 2.0
    assert deviation == pytest.approx(1.0, rel=1e-6)


# -- hanging -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swung():
    truth = machine(3, command_delay_s=0.008)
    return truth, hanging_recording(GO2, truth, SHORT)


def test_a_simulation_with_the_true_dynamics_repeats_the_recording(swung):
    truth, log = swung
    (part,) = constant_stretches(log, 100.0)
    swing = Swing(hanging_model(GO2), part, GO2.array("effort_limit_nm"))
    joints = {name: truth.joint_values(name, GO2) for name in JOINT_PARAMETERS}
    motion = swing.run(joints, 0.008, 0.002)
    rows = part.time_s > part.time_s[0] + 2.0
    assert np.abs(motion.pos_rad - part.joint_pos_rad)[rows].max() < 1e-3
    assert np.abs(motion.effort_nm - part.joint_effort_nm)[rows].max() < 0.05
    late = swing.run(joints, 0.018, 0.002)
    assert np.abs(late.pos_rad - part.joint_pos_rad)[rows].max() > 0.02


def test_each_leg_is_a_branch():
    assert [joints.tolist() for joints in branches(hanging_model(GO2), GO2)] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
        [9, 10, 11],
    ]


def test_stretches_leave_out_where_gains_change(swung):
    _, log = swung
    (part,) = constant_stretches(log, 100.0)
    assert part.time_s[0] == pytest.approx(1.0, abs=0.01)  # Gains have grown for a second.
    with pytest.raises(GantryError, match="expected 4 s"):
        constant_stretches(log.between(0.0, 2.5), 100.0)


def test_the_motion_keeps_within_excursion_and_limits():
    cfg = ExcitationCfg(seconds=20.0, amplitude_rad=0.2)
    motion, start = Excitation(GO2, cfg), GO2.array("default_rad") + 0.1
    poses = np.array([motion(time_s, start) for time_s in np.arange(0.0, motion.duration_s, 0.004)])
    assert poses[0] == pytest.approx(start)
    assert np.abs(poses[1000:] - motion.middle_rad).max() <= 0.2 + 1e-9
    assert (poses > GO2.array("lower_rad")).all()
    assert (poses < GO2.array("upper_rad")).all()
    assert poses[-1] == pytest.approx(motion.middle_rad)


@pytest.mark.soak
def test_intervals_of_a_hanging_robot_hold_the_truth():
    truth = machine(4, command_delay_s=0.012, imu_roll_rad=0.02)
    log = hanging_recording(GO2, truth, ExcitationCfg(seconds=10.0), ReadingNoise(), seed=4)
    found = legs.identify(GO2, [log], IdentifyCfg(level_base=True))
    pairs = [(found.joints[j][p], truth.joints[j][p].value) for j in GO2.joint_names for p in truth.joints[j]]
    held = [estimate.low <= true <= estimate.high for estimate, true in pairs]
    assert np.mean(held) > 0.85
    assert found.whole["command_delay_s"].value == pytest.approx(0.012, abs=1e-3)
    assert found.whole["imu_roll_rad"].value == pytest.approx(0.02, abs=1e-3)
    assert "it is at least" in found.refused["FL_hip_joint"]["effort_limit_nm"]
    assert "heading" in found.refused[""]["imu_yaw_rad"]


# -- walking -------------------------------------------------------------------------------------------------------


def moving(rows=6000, delay=6, share=(0.9, 1.1)):
    """Readings at 500 Hz of motors that obey after some readings, with torques by hand."""
    rng, base = np.random.default_rng(5), log_with(rows)
    t = base.time_s[:, None]
    pos = base.joint_pos_rad + 0.1 * np.sin(7.0 * t + np.arange(12))
    vel = 0.7 * np.cos(7.0 * t + np.arange(12))
    sent = base.commands.copy()
    sent[:, 0] += np.repeat(rng.uniform(-0.2, 0.2, (rows // 10, 12)), 10, axis=0)
    obeyed = np.concatenate((sent[:1].repeat(delay, axis=0), sent[:-delay]))
    effort = share[0] * 40.0 * (obeyed[:, 0] - pos) - share[1] * vel
    effort += 0.1 * rng.standard_normal(effort.shape)
    return log_with(rows, joint_pos_rad=pos, joint_vel_rad_s=vel, joint_effort_nm=effort, commands=sent)


def test_gains_and_delay_of_a_walking_robot_follow_from_its_torques():
    fit = fit_actuators(moving())
    assert fit.stiffness_share == pytest.approx(np.full(12, 0.9), abs=0.005)
    assert fit.damping_share == pytest.approx(np.full(12, 1.1), abs=0.1)
    assert fit.delay_s == pytest.approx(0.012, abs=1.96 * fit.delay_deviation_s + 1e-9)
    assert fit.saturation == [None] * 12


def test_readings_that_come_too_seldom_tell_no_delay():
    log = moving()
    found = Findings(GO2)
    slow = log_with(300, dt_s=0.02, joint_effort_nm=log.joint_effort_nm[::20])
    legs.add_walking(found, slow, IdentifyCfg())
    assert "50 times per second" in found.refused[""]["command_delay_s"]


def test_the_limit_of_a_motor_falls_along_a_line():
    """20 N m up to 5 rad/s, and none at 25 rad/s."""
    rng = np.random.default_rng(6)
    speed = rng.uniform(-22.0, 22.0, 6000)
    asked = rng.normal(0.0, 10.0, 6000)
    most = 20.0 * np.clip((25.0 - np.sign(asked) * speed) / 20.0, 0.0, 1.0)
    given = np.clip(asked, -most, most) + 0.05 * rng.standard_normal(6000)
    limit = saturation_of(asked, given, speed)
    assert limit is not None
    assert limit.has_curve
    assert limit.limit_nm == pytest.approx(20.0, abs=0.2)
    assert limit.corner_rad_s == pytest.approx(5.0, abs=0.3)
    assert limit.no_load_rad_s == pytest.approx(25.0, abs=0.3)
    assert saturation_of(given, given + 0.05 * rng.standard_normal(6000), speed) is None


def test_the_mounting_of_the_imu_is_the_tilt_of_the_feet_against_its_gravity():
    """A base that stands level, with an IMU that is rolled by 0.02 rad."""
    quat = np.array([np.cos(0.01), np.sin(0.01), 0.0, 0.0])
    log = log_with(quat_base_to_world_wxyz=np.tile(quat, (3000, 1)))
    assert up_by_imu(log.quat_base_to_world_wxyz)[0] == pytest.approx([0.0, np.sin(0.02), np.cos(0.02)])
    found = mounting_of(log, Feet(log), np.zeros(12))
    assert found is not None
    assert (found.roll_rad, found.pitch_rad) == pytest.approx((0.02, 0.0), abs=1e-5)


def test_kinds_are_told_by_feet_and_turning():
    assert kind_of(log_with()) == "walking"
    assert kind_of(log_with(foot_contact=np.zeros((3000, 4)))) == "hanging"
    unknown = np.full((3000, 4), np.nan)
    assert kind_of(log_with(foot_contact=unknown)) == "hanging"
    assert kind_of(log_with(foot_contact=unknown, ang_vel_base_in_base_rad_s=np.ones((3000, 3)))) == "walking"


def test_a_walk_refuses_mechanics_in_words():
    found = legs.identify(GO2, [moving()], IdentifyCfg("walking"))
    assert "gantry excite" in found.refused["FL_hip_joint"]["armature_kg_m2"]
    assert "FL_hip_joint" in found.joints
    assert "armature_kg_m2" not in found.joints["FL_hip_joint"]
    assert not found.dynamics("made").has("armature_kg_m2")


# -- cars ----------------------------------------------------------------------------------------------------------


def driven(gain=0.9, offset=0.03, response_s=0.12, delay_s=0.04, noise=2e-3):
    """Twenty seconds of a car that follows random commands with the given law, stepped by hand."""
    spec, rng, dt_s = robot_spec("f1tenth"), np.random.default_rng(7), 0.005
    rows = 4000
    steering = np.repeat(rng.uniform(-0.15, 0.15, rows // 200), 200)
    speed = np.repeat(rng.uniform(1.0, 1.5, rows // 200), 200)
    late = round(delay_s / dt_s)
    course = np.zeros((rows, 2))
    course[0] = offset, 1.0
    for row in range(1, rows):
        for joint, (sent, own) in enumerate(((steering, (gain, offset)), (speed, (1.0, 0.0)))):
            target = own[0] * sent[max(0, row - 1 - late)] + own[1]
            course[row, joint] = target + (course[row - 1, joint] - target) * np.exp(-dt_s / response_s)
    course += noise * rng.standard_normal(course.shape)
    commands = np.zeros((rows, 5, 2))
    commands[:, 0, 0], commands[:, 1, 1], commands[:, 3, 0], commands[:, 4, 1] = steering, speed, 1.0, 1.0
    times = dt_s * np.arange(rows)
    known = {"joint_pos_rad": course.copy(), "joint_vel_rad_s": course.copy(), "joint_effort_nm": np.zeros((rows, 2))}
    empty = {"quat_base_to_world_wxyz": np.full((rows, 4), np.nan), "foot_contact": np.zeros((rows, 0))}
    gyro = np.full((rows, 3), np.nan)
    return MotionLog(
        spec=spec,
        time_s=times,
        ang_vel_base_in_base_rad_s=gyro,
        command_time_s=times,
        commands=commands,
        **known,
        **empty,
    )


def test_steering_and_drive_of_a_car_follow_with_gain_offset_lag_and_delay():
    log = driven()
    found = cars.identify(log.spec, [log], IdentifyCfg())
    steering = found.joints["steering"]
    assert steering["gain"].value == pytest.approx(0.9, abs=0.01)
    assert steering["offset"].value == pytest.approx(0.03, abs=2e-3)
    assert steering["response_s"].value == pytest.approx(0.12, abs=0.01)
    assert found.joints["drive"]["gain"].value == pytest.approx(1.0, abs=0.02)
    assert found.whole["command_delay_s"].value == pytest.approx(0.04, abs=5e-3)
    assert steering["gain"].low <= 0.9 <= steering["gain"].high
    with pytest.raises(GantryError, match="is a car"):
        cars.identify(log.spec, [log], IdentifyCfg("hanging"))


# -- files ---------------------------------------------------------------------------------------------------------


def table(path, log, leave=()):
    must, _may = csv_columns(GO2)
    names = [name for name in must if name not in leave]
    columns = {"time_s": log.time_s}
    for joint, name in enumerate(GO2.joint_names):
        columns[f"pos_rad.{name}"], columns[f"vel_rad_s.{name}"] = (
            log.joint_pos_rad[:, joint],
            log.joint_vel_rad_s[:, joint],
        )
        for place, kind in ((0, "pos_rad"), (3, "stiffness_nm_rad"), (4, "damping_nm_s_rad")):
            columns[f"sent_{kind}.{name}"] = log.commands[:, place, joint]
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        writer.writerows(zip(*(columns[name] for name in names), strict=True))
    return path


def test_a_table_is_read_by_the_names_of_its_columns(tmp_path):
    log = log_with(600, dt_s=0.01)
    read = read_log(table(tmp_path / "walk.csv", log), GO2)
    assert read.joint_pos_rad == pytest.approx(log.joint_pos_rad)
    assert read.commands == pytest.approx(log.commands)
    assert not read.has_effort
    assert not read.has_imu
    assert not read.has_contacts


def test_files_that_do_not_fit_are_refused_with_what_is_missing(tmp_path):
    log = log_with(600, dt_s=0.01)
    with pytest.raises(UnknownNameError, match=r"vel_rad_s\.RL_calf_joint"):
        read_log(table(tmp_path / "a.csv", log, leave=("vel_rad_s.RL_calf_joint",)), GO2)
    with pytest.raises(GantryError, match=r"1\.0 s of readings.*at least 5 s"):
        checked(log.between(0.0, 1.0))
    with pytest.raises(GantryError, match="There is no recording"):
        read_log(tmp_path / "none.mcap", GO2)
    (tmp_path / "bad.csv").write_text("time_s\n")
    with pytest.raises(GantryError, match="has 1 lines"):
        read_log(tmp_path / "bad.csv", GO2)


class Finger:
    """An operator at a terminal, pressing Enter after some ticks."""

    def __init__(self, ticks):
        self._left = ticks

    def tell(self, text):
        pass

    def ask(self, question, answers=("y", "n")):
        return answers[0]

    def pressed(self):
        self._left -= 1
        return self._left < 0


def test_enter_stops_the_motion_and_the_robot_is_damped(tmp_path):
    robot = MujocoRobot(GO2, fixed_base=True, visuals=False)
    robot.connect()
    cfg = ExcitationCfg(seconds=10.0, rate_hz=200.0)
    with pytest.raises(SafetyError, match="operator stopped"):
        excite(robot, Finger(1100), cfg, tmp_path / "hang.mcap", by_branch=True, patient=True)
    log = read_log(tmp_path / "hang.mcap", GO2)
    assert log.duration_s == pytest.approx(5.5, abs=0.1)
    assert (log.commands[-5:, 3] == 0.0).all()
    assert (log.commands[-6, 3] > 0.0).all()
    with pytest.raises(GantryError, match="'go2', expected 'go1'"):
        read_log(tmp_path / "hang.mcap", robot_spec("go1"))


@pytest.mark.slow
def test_the_commands_excite_identify_and_write_a_file_that_a_robot_takes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["excite", "--robot", "go2", "--seconds", "10", "--output", "hang.mcap"]) == 0
    arguments = ["--robot", "go2", "--level", "--report", "report", "--json", "found.json"]
    assert main(["identify", "hang.mcap", *arguments]) == 0
    dynamics = load_dynamics("go2-dynamics.yaml")
    assert dynamics.robot == "go2"
    assert "hanging" in dynamics.source
    estimate = dynamics.joints["FL_calf_joint"]["stiffness_share"]
    assert estimate.low <= 1.0 <= estimate.high
    result = json.loads((tmp_path / "found.json").read_text())
    assert "effort_limit_nm" in result["refused"]["FL_hip_joint"]
    assert "FL_calf_joint" in (tmp_path / "report" / "report.html").read_text()
    assert MujocoRobot(GO2, visuals=False, dynamics="go2-dynamics.yaml").spec is GO2
    assert "not excited" in capsys.readouterr().out
