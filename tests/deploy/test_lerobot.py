"""Arms and devices of LeRobot: units and names, a bundle and a session on a plugin's arm, and what can go wrong."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import lerobot_robot_tiny as tiny
from gantry_deploy.cli.main import main
from gantry_deploy.control.safety_config import SafetyConfig
from gantry_deploy.errors import TeleopError
from gantry_deploy.lerobot.arm import LerobotArm
from gantry_deploy.lerobot.joints import LerobotArmCfg, LerobotJoint, LerobotJoints, arm_cfg
from gantry_deploy.lerobot.plugins import ROBOT, make_device
from gantry_deploy.session.config import SessionCfg
from gantry_deploy.session.run import SessionRun
from gantry_deploy.session.states import SessionState
from gantry_deploy.session.steps import Actor
from gantry_deploy.teleop.operator import Axis, TeleopEvent
from gantry_deploy.teleop.registry import device_names
from gantry_deploy.teleop.registry import make_device as make_teleop
from gantry_fixtures.arm import arm_bundle, arm_contract_for
from gantry_fixtures.sessions import Kept
from gantry_hardware import JointCommand, RobotError, UnknownNameError
from gantry_hardware.backends.registry import make_backend, moves_metal
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.robots import robot_spec

YAM = robot_spec("yam")
CONTRACT = arm_contract_for(YAM)
HOME = YAM.array("default_rad")
FOLLOWER, LEADER, PAD = (f"lerobot_robot_tiny:{name}" for name in ("TinyFollower", "TinyLeader", "TinyPad"))


def wait_until(condition, what, timeout_s=20.0):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s} s for {what}"
        time.sleep(0.01)


def make(**options):
    # Longer than its default: on a busy machine a thread may wait that long.
    return make_backend("lerobot", YAM, type=FOLLOWER, **{"command_timeout_s": 0.5, **options})


def write(arm, goal):
    """Write a command; None while the arm's thread has no turn on a busy machine, for then it does not begin."""
    try:
        return arm.write(goal)
    except RobotError as error:
        if "begins only from one younger" not in str(error):
            raise
        return None


def begin(arm, goal):
    """The first command that is taken."""
    sent = []
    wait_until(lambda: (sent.append(write(arm, goal)), sent[-1] is not None)[1], "an arm that begins")
    return sent[-1]


@pytest.fixture
def arm():
    robot = make()
    robot.connect()
    yield robot
    robot.close()


def device():
    return tiny.MADE[-1]


def error_of(call):
    try:
        call()
    except RobotError as error:
        return str(error)
    return ""


# Names and units


def test_units_by_hand():
    joints = LerobotJoints(
        YAM,
        LerobotArmCfg(
            joints={
                "joint1": LerobotJoint("shoulder_pan", sign=-1.0, offset=0.5),
                "joint2": LerobotJoint("shoulder_lift.pos", "range_m100_100", ends=(0.0, 3.0)),
                "joint3": LerobotJoint(unit="rad"),
            }
        ),
    )
    assert joints.keys[:3] == ["shoulder_pan.pos", "shoulder_lift.pos", "joint3.pos"]
    values = dict.fromkeys(joints.keys, 0.0) | {"shoulder_pan.pos": 90.0, "shoulder_lift.pos": -50.0, "joint3.pos": 0.3}
    values["left_finger.pos"] = 100.0
    pos = joints.pos(values, "it")
    expected = [0.5 - math.pi / 2, 0.75, 0.3, 0.0, 0.0, 0.0, YAM.joints[-1].upper_rad]
    np.testing.assert_allclose(pos, expected, atol=1e-12)
    assert joints.action(pos) == pytest.approx(values)


@pytest.mark.parametrize("unit", ["deg", "rad", "range_m100_100", "range_0_100"])
def test_actions_and_observations_are_inverse(unit):
    joints = LerobotJoints(YAM, LerobotArmCfg(unit))
    np.testing.assert_allclose(joints.pos(joints.action(HOME), "it"), HOME, atol=1e-12)


def test_wrong_names_and_units_are_refused(tmp_path):
    with pytest.raises(UnknownNameError, match=r"'joint11'.*Did you mean 'joint1'"):
        LerobotJoints(YAM, LerobotArmCfg(joints={"joint11": LerobotJoint()}))
    with pytest.raises(UnknownNameError, match="unit of a LeRobot arm 'degree'"):
        make(unit="degree")
    with pytest.raises(RobotError, match="used twice"):
        LerobotJoints(YAM, LerobotArmCfg(joints={"joint1": LerobotJoint("joint2")}))
    path = tmp_path / "arm.yaml"
    path.write_text("joints:\n  joint1: {key: shoulder_pam}\n")
    with pytest.raises(UnknownNameError, match=r"'shoulder_pam\.pos'"):
        make(map=str(path))
    config = tmp_path / "tiny.yaml"
    config.write_text(f"names: '{','.join([*tiny.JOINTS, 'wheel'])}'\n")
    with pytest.raises(RobotError, match=r"commanded by wheel\.pos too"):
        make(config=str(config))


def test_the_file_to_copy_names_the_motors_of_an_so101():
    path = Path(__file__).resolve().parents[2] / "configs" / "arms" / "lerobot.yaml"
    keys = LerobotJoints(YAM, arm_cfg(str(path))).keys
    assert keys[:5] == [
        f"{name}.pos" for name in ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll")
    ]


# The arm


def test_it_passes_the_conformance_kit(tmp_path):
    config = tmp_path / "tiny.yaml"
    config.write_text("camera: true\n")
    check_backend(make(config=str(config), start_speed_rad_s=20.0), hold_s=1.0, tolerance_rad=0.9, max_age_s=1.0)
    assert moves_metal("lerobot")


def test_the_first_command_is_the_measured_pose(arm):
    assert device().log == []
    np.testing.assert_allclose(arm.read().joint_pos_rad[:6], math.radians(10.0))
    start_s, goal = arm.now_s(), JointCommand.position(YAM, HOME)
    sent = begin(arm, goal)
    np.testing.assert_allclose(sent.pos_rad, arm.read().joint_pos_rad, atol=1e-9)
    wait_until(lambda: device().log, "an action")
    assert device().log[0]["joint2.pos"] == pytest.approx(10.0)
    arm.sleep_until(start_s + 0.1)
    sent = write(arm, goal)
    assert sent is None or sent.pos_rad[1] <= math.radians(10.0) + 0.5 * (arm.now_s() - start_s) + 1e-6
    wait_until(lambda: (write(arm, goal), abs(arm.read().joint_pos_rad[1] - HOME[1]) < 0.02)[1], "the default pose")


def test_limp_commands_are_withheld(arm):
    assert arm.write(JointCommand.passive(YAM)) is None
    assert arm.write(JointCommand.damping(YAM)) is None
    assert device().log == []


def test_it_is_held_when_commands_stop_and_where_it_is_closed(arm):
    goal = JointCommand.position(YAM, HOME)
    wait_until(lambda: (write(arm, goal), arm.read().joint_pos_rad[1] > 0.4)[1], "an arm on its way")
    wait_until(lambda: arm.holds >= 1, "a hold")
    held = device().log[-1]["joint2.pos"]
    wait_until(lambda: abs(math.degrees(arm.read().joint_pos_rad[1]) - held) < 2.0, "an arm that stays")
    arm.close()
    assert abs(device().log[-1]["joint2.pos"] - held) < 3.0
    assert not device().is_connected
    with pytest.raises(RobotError, match="not connected"):
        arm.read()


def test_pictures_are_turned_to_channels_first(tmp_path):
    config = tmp_path / "tiny.yaml"
    config.write_text("camera: true\n")
    robot = make(config=str(config))
    robot.connect()
    picture = robot.read_pictures()["wrist"]
    robot.close()
    assert picture.pixels.shape == (3, 4, 6)
    assert (picture.pixels == 7).all()


# Faults


def test_a_port_that_does_not_open_and_no_calibration(tmp_path):
    with pytest.raises(
        RobotError, match=r"'.*TinyFollower' \(port /dev/absent, id left\) does not connect: Connection"
    ):
        make(port="/dev/absent", id="left").connect()
    config = tmp_path / "tiny.yaml"
    config.write_text("calibrated: false\n")
    with pytest.raises(RobotError, match=r"is not calibrated.*lerobot-calibrate"):
        make(config=str(config)).connect()
    assert not device().is_connected
    config.write_text("prot: /dev/null\n")
    with pytest.raises(UnknownNameError, match="Did you mean 'port'"):
        make(config=str(config))


def test_a_bus_that_fails_is_lost_after_some_tries(arm):
    begin(arm, JointCommand.position(YAM, HOME))
    device().fault = "Incorrect status packet!"
    wait_until(lambda: "Incorrect status packet!" in error_of(arm.read), "an error with the plugin's words")
    assert "Incorrect status packet!" in error_of(lambda: arm.write(JointCommand.position(YAM, HOME)))


def test_a_bus_that_hangs_makes_the_state_old(arm):
    device().fault = "hang"
    wait_until(lambda: arm.now_s() - arm.read().stamp_s > 0.3, "an old state")
    device().fault = ""
    wait_until(lambda: arm.now_s() - arm.read().stamp_s < 0.3, "a fresh state")


def test_an_observation_without_a_joint_is_an_error(arm):
    del device().values["joint4.pos"], device().goal["joint4.pos"]
    wait_until(lambda: "no number for 'joint4.pos'" in error_of(arm.read), "the joint's name")


# Finding them


def test_lerobot_is_not_loaded_and_missing_it_is_said():
    code = """
        import sys
        from gantry_hardware.backends.registry import backend_factory
        from gantry_deploy.lerobot import teleop
        backend_factory("lerobot")
        assert not {"lerobot", "torch", "draccus"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)
    if importlib.util.find_spec("lerobot") is None:
        with pytest.raises(
            RobotError, match=r"'so101_follower' needs the package lerobot .*pip install 'gantry-rl\[ler"
        ):
            make_backend("lerobot", YAM, type="so101_follower")
    with pytest.raises(RobotError, match="needs its type, for example type=so101_follower"):
        make_backend("lerobot", YAM)


@pytest.mark.skipif(importlib.util.find_spec("lerobot") is not None, reason="the real package is installed")
def test_types_are_looked_up_as_lerobot_does(tmp_path, monkeypatch):
    """In a package with the registry of LeRobot's: RobotConfig, get_choice_class, make_robot_from_config."""
    robots = tmp_path / "lerobot" / "robots"
    (robots / "tiny_follower").mkdir(parents=True)
    (tmp_path / "lerobot" / "__init__.py").write_text("")
    (robots / "__init__.py").write_text("from lerobot.robots.config import RobotConfig\n")
    (robots / "config.py").write_text(
        "class RobotConfig:\n    known = {}\n"
        "    get_known_choices = classmethod(lambda cls: cls.known)\n"
        "    get_choice_class = classmethod(lambda cls, name: cls.known[name])\n"
    )
    (robots / "utils.py").write_text(
        "from lerobot_robot_tiny import TinyFollower\n"
        "def make_robot_from_config(config):\n    return TinyFollower(config)\n"
    )
    (robots / "tiny_follower" / "__init__.py").write_text(
        "from lerobot_robot_tiny import TinyConfig\nfrom lerobot.robots import RobotConfig\n"
        "RobotConfig.known['tiny_follower'] = TinyConfig\n"
    )
    (robots / "broken").mkdir()
    (robots / "broken" / "__init__.py").write_text("import a_package_that_is_not_here\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert make_device(ROBOT, "tiny_follower", {"port": "/dev/x"}).config.port == "/dev/x"
        with pytest.raises(UnknownNameError, match="Did you mean 'tiny_follower'"):
            make_device(ROBOT, "tiny_folower", {})
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "lerobot"]:
            del sys.modules[name]


def test_the_real_package_has_what_is_used():
    pytest.importorskip("lerobot", reason="lerobot is not installed (pip install 'gantry-rl[lerobot]')")
    with pytest.raises(UnknownNameError, match="so101_follower"):
        make_device(ROBOT, "so101_folower", {})
    robot = make_device(ROBOT, "so101_follower", {"port": "/dev/absent", "id": "gantry_test"})
    assert robot.action_features["shoulder_pan.pos"] is float
    with pytest.raises(RobotError, match="does not connect"):
        LerobotArm(YAM, device=robot)


# Devices


def test_a_leader_moves_the_follower_while_the_switch_says_so():
    teleop = make_teleop("lerobot-teleop", CONTRACT, type=LEADER, clutch="none")
    assert "lerobot-teleop" in device_names()
    leader = device()
    leader.values["joint1.pos"] = 90.0
    teleop.connect()
    try:
        wait_until(lambda: teleop.read(5.0).stamp_s > 4.8, "a reading")
        given = teleop.read(5.0)
        assert not given.engaged
        assert given.joint_pos_rad is None  # Nobody holds a switch.
        np.testing.assert_allclose(teleop._newest[0][:2], [math.pi / 2, math.radians(10.0)])
        leader.fault = "unplugged"
        wait_until(lambda: teleop.read(5.0).stamp_s < 4.6, "a leader that is lost")
    finally:
        teleop.close()
    assert not leader.is_connected


def test_a_pad_gives_steps_while_it_intervenes_and_events_once():
    teleop = make_teleop("lerobot-teleop", CONTRACT, type=PAD)
    pad = device()
    teleop.connect()
    try:
        pad.step = {"delta_x": 0.5, "delta_y": -2.0, "delta_z": 0.0, "gripper": 2}
        wait_until(lambda: teleop.read(5.0).stamp_s > 4.8, "a reading")
        assert not teleop.read(5.0).engaged
        pad.events[tiny.TeleopEvents.IS_INTERVENTION] = True
        wait_until(lambda: teleop.read(5.0).engaged, "an intervention")
        wait_until(lambda: teleop.read(5.0).axes.get(Axis.GRIPPER) == 1.0, "the step")
        assert teleop.read(5.0).axes == {Axis.X: 0.5, Axis.Y: -1.0, Axis.Z: 0.0, Axis.GRIPPER: 1.0}
        # LeRobot's pad tells a failed attempt by the end alone, and a repeated one by both.
        pad.events |= {tiny.TeleopEvents.RERECORD_EPISODE: True, tiny.TeleopEvents.TERMINATE_EPISODE: True}
        seen = []
        wait_until(lambda: (seen.extend(teleop.read(5.0).events), seen)[1], "an event")
        pad.fault = "unplugged"
        wait_until(lambda: not teleop.read(5.0).engaged, "a pad that is lost")
        assert seen == [TeleopEvent.RERECORD]
    finally:
        teleop.close()


def test_devices_that_give_neither_are_refused():
    with pytest.raises(TeleopError, match=r"needs its type, for example type=so101_leader"):
        make_teleop("lerobot-teleop", CONTRACT)
    with pytest.raises(UnknownNameError, match=r"key of LeRobot teleoperator"):
        make_teleop("lerobot-teleop", CONTRACT, type="lerobot_robot_tiny:TinyOther", clutch="none")


# Whole


def test_a_bundle_runs_on_a_plugin_arm(tmp_path, capsys):
    weight, bias = np.zeros((CONTRACT.observation_size, 4)), np.array([0.0, 0.5, 0.0, -1.0])
    arm_bundle(tmp_path / "bundle", CONTRACT, steps=2, weight=weight, bias=bias)
    safety = [f"--safety={text}" for text in ("state_timeout_s=1", "max_missed_deadlines=1000", "arm_speed_rad_s=2")]
    options = [f"--option={text}" for text in (f"type={FOLLOWER}", "start_speed_rad_s=3", "command_timeout_s=5")]
    run = ["run", str(tmp_path / "bundle"), "--backend", "lerobot", "--duration", "1", *options, *safety]
    assert main(run) == 2
    assert "may move a real robot" in capsys.readouterr().err
    assert main([*run, "--yes"]) == 0, capsys.readouterr()
    assert "completed" in capsys.readouterr().out
    follower = device()
    joint1 = [math.radians(action["joint1.pos"]) for action in follower.log]
    assert max(joint1) > 0.05, "the policy went to the left"
    assert not follower.is_connected


def test_a_person_corrects_a_policy_on_a_plugin_arm(tmp_path):
    """Policy, then the pad of LeRobot's, then the pad's verdict: one attempt, recorded with who acted in each step."""
    weight, bias = np.zeros((CONTRACT.observation_size, 4)), np.array([0.0, 0.2, 0.0, -1.0])
    bundle = arm_bundle(tmp_path / "bundle", CONTRACT, steps=2, weight=weight, bias=bias)
    pad_device = make_teleop("lerobot-teleop", CONTRACT, type=PAD, timeout_s=5.0)
    pad = device()
    pad_device.connect()
    kept = Kept()
    safety = SafetyConfig(stand_duration_s=0.5, arm_speed_rad_s=3.0, state_timeout_s=1.0, max_missed_deadlines=1000)
    robot = make(start_speed_rad_s=5.0, command_timeout_s=5.0)
    session = SessionRun(bundle, robot, pad_device, SessionCfg(max_attempts=1), sinks=[kept], safety=safety)
    running = threading.Thread(target=session.run, args=(120.0,), daemon=True)
    running.start()
    try:
        # LeRobot has no event that starts an attempt: a page or another device asks for it.
        wait_until(lambda: session.session.state == SessionState.READY, "an arm at its start", 60.0)
        assert session.session.request(TeleopEvent.START) is None
        wait_until(lambda: len(kept.steps) > 3, "steps of the policy", 60.0)
        pad.step = {"delta_x": 0.0, "delta_y": -1.0, "delta_z": 0.0, "gripper": 1}
        pad.events[tiny.TeleopEvents.IS_INTERVENTION] = True
        wait_until(lambda: sum(step.actor is Actor.PERSON for step in kept.steps) > 5, "steps of the person", 60.0)
        pad.events[tiny.TeleopEvents.SUCCESS] = True
        running.join(60.0)
        assert not running.is_alive()
    finally:
        session.close()
        running.join(60.0)
        robot.close()
        pad_device.close()
    assert kept.steps[0].actor is Actor.POLICY
    person = [step for step in kept.steps if step.actor is Actor.PERSON]
    assert all(step.action[1] < step.policy_action[1] for step in person), "to the right, where the policy goes left"
    assert kept.steps[-1].success
    assert pad.name == "tiny_pad"
    assert not pad.is_connected
