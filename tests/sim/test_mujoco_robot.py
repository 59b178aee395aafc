import math
import os
import subprocess
import sys
import time
from dataclasses import fields, replace

import numpy as np
import pytest

from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.errors import GantryError, RobotError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.robots.actuated_scene import rotate_into_base

GO2 = robot_spec("go2")
DT_S = 0.002


def robot(name="go2", **options):
    made = MujocoRobot(robot_spec(name), visuals=False, **options)
    made.connect()
    return made


def constant(spec, pos, vel=0.0, effort=0.0, stiffness=0.0, damping=0.0):
    return JointCommand(
        np.asarray(pos, float), *(np.full(spec.num_joints, x) for x in (vel, effort, stiffness, damping))
    )


def states_equal(a, b, but=("stamp_s",)):
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(RobotState) if f.name not in but)


def wave(spec, i):
    """A command that keeps every joint moving."""
    pos = spec.array("default_rad") + 0.2 * np.sin(0.4 * i + np.arange(spec.num_joints))
    return JointCommand.position(spec, pos)


# -- standing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["go1", "go2", "g1"])
def test_default_pose_stands_for_five_seconds(name):
    standing = robot(name)
    spec = standing.spec
    assert standing.base_height_m == pytest.approx(spec.base_height_m, abs=1e-3)
    for i in range(250):
        standing.write(JointCommand.position(spec, spec.array("default_rad")))
        standing.sleep_until((i + 1) * 0.02)
        assert not standing.has_fallen
    state = standing.read()
    assert state.foot_contact.all()
    assert np.abs(state.joint_vel_rad_s).max() < 0.05
    assert np.linalg.norm(state.lin_acc_base_in_base_m_s2) == pytest.approx(9.81, abs=0.05)
    assert state.quat_base_to_world_wxyz[0] > 0.99


def test_g1_falls_with_the_gains_of_a_policy():
    """Its ankles are then softer than gravity, see gantry_hardware.robots.g1."""
    falling = robot("g1")
    spec = falling.spec
    soft = replace(
        JointCommand.position(spec, spec.array("default_rad")),
        stiffness_nm_rad=spec.array("stiffness_nm_rad"),
        damping_nm_s_rad=spec.array("damping_nm_s_rad"),
    )
    falling.write(soft)
    falling.sleep_until(5.0)
    assert falling.has_fallen


def test_without_torque_it_collapses_and_reset_puts_it_back():
    limp = robot()
    limp.write(JointCommand.passive(GO2))
    limp.sleep_until(1.0)
    assert limp.has_fallen
    assert limp.now_s() == pytest.approx(1.0)
    limp.reset()
    assert not limp.has_fallen
    assert limp.now_s() == pytest.approx(1.0), "the clock never goes back"
    limp.sleep_until(3.0)
    assert not limp.has_fallen, "until a command comes, it holds its pose"


def test_a_fixed_base_hangs_with_its_feet_off_the_floor():
    hanging = robot(fixed_base=True)
    hanging.sleep_until(1.0)
    state = hanging.read()
    assert not state.foot_contact.any()
    np.testing.assert_array_equal(state.pos_base_in_world_m, [0.0, 0.0, hanging.base_height_m])
    assert hanging.base_height_m > GO2.base_height_m + 0.1
    # Only the legs' own weight pulls: the pose is held far better than on the floor.
    assert np.abs(state.joint_pos_rad - GO2.array("default_rad")).max() < 0.1
    with pytest.raises(RobotError, match="fixed base"):
        hanging.set_velocity(np.zeros(3), np.zeros(3))


@pytest.mark.parametrize("options", [{}, {"fixed_base": True}], ids=["standing", "hanging"])
def test_the_accelerometer_feels_gravity_from_the_first_reading_on(options):
    still = robot(**options)
    first = still.read()
    still.sleep_until(3.0)
    np.testing.assert_allclose(first.lin_acc_base_in_base_m_s2, [0.0, 0.0, 9.81], atol=1e-9)
    later = still.read()
    up = rotate_into_base(later.quat_base_to_world_wxyz, np.array([0.0, 0.0, 9.81]))
    np.testing.assert_allclose(later.lin_acc_base_in_base_m_s2, up, atol=0.1)


# -- the impedance law ------------------------------------------------------------------------------------------------


def test_torque_follows_the_impedance_law():
    """At rest in the default pose: 1 + 10 * 0.1 + 2 * (0.5 - 0) = 3 N m."""
    hanging = robot(fixed_base=True)
    hanging.write(constant(GO2, GO2.array("default_rad") + 0.1, vel=0.5, effort=1.0, stiffness=10.0, damping=2.0))
    hanging.sleep_until(DT_S)
    np.testing.assert_allclose(hanging.read().joint_effort_nm, 3.0, rtol=1e-12)
    # One step later the law sees where that torque has brought the joints.
    before = hanging.read()
    hanging.sleep_until(2 * DT_S)
    expected = (
        1.0 + 10.0 * (GO2.array("default_rad") + 0.1 - before.joint_pos_rad) + 2.0 * (0.5 - before.joint_vel_rad_s)
    )
    np.testing.assert_allclose(hanging.read().joint_effort_nm, expected, rtol=1e-9)


def test_torque_is_clipped_to_the_effort_limit():
    hanging = robot(fixed_base=True)
    hanging.write(constant(GO2, GO2.array("default_rad") - 0.3, stiffness=200.0))
    hanging.sleep_until(DT_S)
    np.testing.assert_allclose(hanging.read().joint_effort_nm, -GO2.array("effort_limit_nm"))


def test_joints_settle_where_gravity_and_stiffness_balance():
    hanging = robot(fixed_base=True)
    target = GO2.array("default_rad")
    hanging.write(JointCommand.position(GO2, target))
    hanging.sleep_until(4.0)
    state = hanging.read()
    np.testing.assert_allclose(state.joint_effort_nm, 40.0 * (target - state.joint_pos_rad), atol=0.02)


def test_write_returns_what_is_really_sent():
    limited = robot()
    beyond = JointCommand.position(GO2, np.full(12, 5.0))
    sent = limited.write(beyond)
    np.testing.assert_array_equal(sent.pos_rad, GO2.array("upper_rad"))
    assert len(limited.clamped) == 12


def test_a_bad_command_changes_nothing():
    one, other = robot(), robot()
    for r in (one, other):
        r.write(wave(GO2, 1))
    with pytest.raises(RobotError, match="FR_hip_joint = nan"):
        one.write(JointCommand.position(GO2, np.array([math.nan] + [0.0] * 11)))
    with pytest.raises(RobotError, match=r"\(29,\)"):
        one.write(JointCommand.position(GO2, np.zeros(29)))
    for r in (one, other):
        r.sleep_until(0.2)
    assert states_equal(one.read(), other.read())


def test_an_unconnected_robot_neither_reads_nor_writes():
    idle = MujocoRobot(GO2, visuals=False)
    with pytest.raises(RobotError, match="connect"):
        idle.read()
    with pytest.raises(RobotError, match="connect"):
        idle.write(JointCommand.passive(GO2))


# -- frames -----------------------------------------------------------------------------------------------------------


def test_rotate_into_base_is_the_inverse_rotation():
    quarter_left = np.array([math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)])
    np.testing.assert_allclose(rotate_into_base(quarter_left, np.array([1.0, 0.0, 0.5])), [0.0, -1.0, 0.5], atol=1e-12)


def test_velocities_are_those_of_the_base_in_its_own_frame():
    pushed = robot()
    pushed.reset(pos_xy_m=(1.0, -2.0), yaw_rad=math.pi / 2)
    np.testing.assert_allclose(pushed.pos_base_in_world_m[:2], [1.0, -2.0])
    pushed.set_velocity(np.array([1.0, 0.0, 0.0]), np.array([0.1, 0.2, 0.3]))
    np.testing.assert_allclose(pushed.true_lin_vel_base_in_base_m_s, [0.0, -1.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(pushed.true_ang_vel_base_in_base_rad_s, [0.1, 0.2, 0.3])
    before = pushed.pos_base_in_world_m
    pushed.sleep_until(0.01)
    moved = pushed.pos_base_in_world_m - before
    assert moved[0] > 0.005
    assert abs(moved[1]) < 0.002


def test_gyro_and_imu_sensor_agree():
    tumbling = robot()
    tumbling.set_velocity(np.zeros(3), np.array([0.5, -0.4, 0.3]))
    tumbling.sleep_until(0.1)
    sensed = tumbling.data.sensor("imu_ang_vel").data  # At the start of the last step, one step older.
    np.testing.assert_allclose(tumbling.read().ang_vel_base_in_base_rad_s, sensed, atol=0.15)
    assert np.abs(sensed).max() > 0.01


# -- clock ------------------------------------------------------------------------------------------------------------


def test_lock_step_time_is_what_was_asked_for():
    stepping = robot()
    for i in range(1, 101):
        stepping.sleep_until(i * 0.02)
        assert stepping.now_s() == pytest.approx(i * 0.02, abs=1e-9)
        assert stepping.read().stamp_s == stepping.now_s()
    stepping.sleep_until(1.0)
    assert stepping.now_s() == pytest.approx(2.0), "the past is not visited again"


def test_times_between_steps_round_up():
    stepping = robot()
    stepping.sleep_until(0.005)
    assert stepping.now_s() == pytest.approx(0.006)


def test_real_time_follows_the_monotonic_clock():
    live = robot(realtime=True)
    start = live.now_s()
    live.sleep_until(start + 0.05)
    assert live.now_s() >= start + 0.05
    first = live.read()
    assert first.stamp_s >= start + 0.05 - 2 * DT_S
    live.write(JointCommand.position(GO2, GO2.array("default_rad")))
    time.sleep(0.4)  # Longer than the physics is willing to catch up.
    late = live.read()
    assert first.stamp_s < late.stamp_s <= live.now_s()
    assert late.stamp_s - first.stamp_s >= 0.4 - 2 * DT_S


# -- delays -----------------------------------------------------------------------------------------------------------


def test_a_delayed_reading_is_the_one_of_then():
    fresh, delayed = robot(), robot(delay_s=0.016)
    history = {}
    for i in range(60):
        for r in (fresh, delayed):
            r.write(wave(GO2, i))
            r.sleep_until((i + 1) * 0.004)
        history[i + 1] = fresh.read()
        reading = delayed.read()
        if i >= 4:
            then = history[i + 1 - 4]
            assert reading.stamp_s == pytest.approx(then.stamp_s)
            assert states_equal(reading, then)
    assert delayed.now_s() - delayed.read().stamp_s == pytest.approx(0.016)


def test_a_delayed_command_is_one_written_later():
    delayed, later = robot(command_delay_s=0.006), robot()
    for i in range(30):
        delayed.write(wave(GO2, i))
        later.sleep_until(i * 0.02 + 0.006)
        later.write(wave(GO2, i))
        for r in (delayed, later):
            r.sleep_until((i + 1) * 0.02)
        assert states_equal(delayed.read(), later.read())


def test_commands_overlap_when_the_delay_is_longer_than_the_period():
    hanging = robot(fixed_base=True, command_delay_s=0.03)
    for i in range(3):
        hanging.write(constant(GO2, GO2.array("default_rad"), effort=float(i + 1)))
        hanging.sleep_until((i + 1) * 0.01)
    seen = []
    for i in range(3):
        hanging.sleep_until(0.03 + i * 0.01 + DT_S)
        seen.append(hanging.read().joint_effort_nm[0])
    assert seen == [1.0, 2.0, 3.0]


# -- the world --------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_trajectory():
    runs = []
    for seed in (3, 3, 4):
        noisy = robot(noise=1.0, seed=seed)
        states = []
        for i in range(50):
            # The command depends on the reading, so that the noise reaches the physics.
            noisy.write(JointCommand.position(GO2, noisy.read().joint_pos_rad))
            noisy.sleep_until((i + 1) * 0.02)
            states.append(noisy.read())
        runs.append(states)
    assert all(states_equal(a, b, but=()) for a, b in zip(runs[0], runs[1], strict=True))
    assert not states_equal(runs[0][-1], runs[2][-1])


def test_reset_with_a_seed_starts_over():
    noisy = robot(noise=1.0, seed=1)
    first = [noisy.read()]
    noisy.sleep_until(0.1)
    first.append(noisy.read())
    noisy.reset(seed=1)
    second = [noisy.read()]
    noisy.sleep_until(noisy.now_s() + 0.1)
    second.append(noisy.read())
    assert all(states_equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_slippery_floor_lets_it_slide_further():
    slid = []
    for friction in (0.1, 1.0):
        sliding = robot(friction=friction)
        sliding.sleep_until(1.0)
        start = sliding.pos_base_in_world_m[1]
        sliding.set_velocity(np.array([0.0, 0.5, 0.0]), np.zeros(3))
        sliding.sleep_until(2.0)
        slid.append(sliding.pos_base_in_world_m[1] - start)
    assert slid[0] > slid[1] + 0.05


def test_payload_is_carried_by_the_base():
    plain, loaded = robot(), robot(added_mass_kg=3.0)
    assert loaded.model.body_mass.sum() == pytest.approx(GO2.mass_kg + 3.0)
    for r in (plain, loaded):
        r.sleep_until(2.0)
    assert loaded.base_height_m < plain.base_height_m
    with pytest.raises(GantryError, match=r"base weighs 6\.921 kg"):
        robot(added_mass_kg=-7.0)


@pytest.mark.parametrize("option", ["delay_s", "command_delay_s", "friction", "timestep_s", "noise"])
def test_numbers_that_make_no_sense_are_refused(option):
    with pytest.raises(GantryError, match="expected a number"):
        robot(**{option: -1.0})


def test_a_state_that_blew_up_is_not_hidden(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo logs its warning into the working directory.
    broken = robot()
    broken.data.qvel[6] = math.nan
    broken.sleep_until(0.02)
    assert not broken.read().is_finite()
    assert broken.has_fallen


def test_the_registry_makes_it():
    made = make_backend("mujoco", GO2, delay_s=0.004, visuals=False)
    assert isinstance(made, MujocoRobot)
    assert isinstance(made, Robot)
    with pytest.raises(UnknownNameError, match="Did you mean 'delay_s'"):
        make_backend("mujoco", GO2, delays=0.004)


@pytest.mark.parametrize("name", ["go1", "go2", "g1"])
@pytest.mark.parametrize(
    "options", [{}, {"realtime": True}, {"fixed_base": True, "noise": 1.0, "delay_s": 0.01, "command_delay_s": 0.01}]
)
def test_it_keeps_every_promise_of_a_robot(name, options):
    check_backend(MujocoRobot(robot_spec(name), visuals=False, **options))


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_pictures_follow_the_robot_over_the_floor():
    seen = MujocoRobot(GO2)
    first = seen.render(160, 90)
    assert first.shape == (90, 160, 3)
    assert first.dtype == np.uint8
    assert first.std() > 10.0
    seen.reset(pos_xy_m=(0.25, 0.0))
    moved = seen.render(160, 90)
    # The robot stays in the middle, the floor's squares go by.
    assert np.abs(moved.astype(int) - first).max() > 5
    assert seen.render(200, 100).shape == (100, 200, 3)
    seen.close()
    seen.close()


def test_pictures_can_be_had_whoever_imported_mujoco_first():
    code = (
        "import mujoco, gantry_sim.backends.mujoco_robot as m; from gantry_hardware.robots import robot_spec;"
        "r = m.MujocoRobot(robot_spec('go2')); print(r.render(64, 36).std() > 10.0); r.close()"
    )
    surroundings = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=surroundings)
    assert done.stdout.strip() == "True"
    assert done.stderr == ""


def test_without_a_way_to_draw_only_pictures_are_refused():
    code = (
        "import gantry_sim.backends.mujoco_robot as m; from gantry_hardware.robots import robot_spec;"
        "from gantry_hardware.errors import GantryError\n"
        "r = m.MujocoRobot(robot_spec('go2')); r.sleep_until(0.1)\n"
        "try: r.render(64, 36)\n"
        "except GantryError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | {"MUJOCO_GL": "off"}
    )
    assert "Cannot draw off screen here" in done.stdout
    assert "libegl1" in done.stdout


def test_a_picture_beyond_the_largest_is_refused():
    with pytest.raises(GantryError, match="1920 x 1080"):
        robot().render(4000, 100)
