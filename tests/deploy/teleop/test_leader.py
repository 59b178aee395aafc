"""Leader arm: joints by name, taking over without a jump, and a leader that falls silent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gantry_deploy.contract.arm_spec import JOINT_TARGET
from gantry_deploy.contract.policy_contract import ActionSpec
from gantry_deploy.embodiments.operator_maps import make_operator_map
from gantry_deploy.errors import TeleopError
from gantry_deploy.observations.builder import make_term
from gantry_deploy.policy.runner import PolicyOutput
from gantry_deploy.teleop.keyboard import Keyboard
from gantry_deploy.teleop.leader import JointLink, JointMap, LeaderCfg, LeaderDevice, make_leader
from gantry_deploy.teleop.operator import OperatorInput
from gantry_deploy.testing.legs import signals_for
from gantry_fixtures.arm import arm_contract_for
from gantry_fixtures.drive import drive_contract_for
from gantry_fixtures.teleop import wait_for
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.robots import robot_spec

ROOT = Path(__file__).resolve().parents[3]
YAM = robot_spec("yam")
CONTRACT = arm_contract_for(YAM)
START = np.array([0.1, 0.9, 0.9, -0.1, 0.0, 0.1, 0.01])


class Clutch:
    """A keyboard without a terminal."""

    name = "clutch"

    def __init__(self):
        self.keys = Keyboard(())

    def connect(self): ...

    def read(self, now_s):
        return OperatorInput(now_s, self.keys.engaged, events=self.keys.take_events())

    def release(self):
        self.keys.release()

    def describe(self):
        return ["a switch"]

    def close(self): ...


@pytest.fixture
def held():
    leader, clutch = MockRobot(YAM, realtime=True), Clutch()
    device = LeaderDevice(CONTRACT, leader, LeaderCfg("yam", "mock"), clutch, timeout_s=0.5)
    device.connect()
    yield device, leader, clutch
    device.close()


def engaged(device):
    return wait_for(lambda: (given := device.read(9.0)).engaged and given)


def test_joints_are_given_while_the_switch_is_held(held):
    device, leader, clutch = held
    leader.override(joint_pos_rad=START)
    wait_for(lambda: device.read(9.0).stamp_s > 8.9)
    assert device.read(9.0).joint_pos_rad is None
    clutch.keys.press("space", 0.0)
    wait_for(lambda: np.allclose(engaged(device).joint_pos_rad, START))
    clutch.keys.press("s", 1.0)
    given = device.read(9.0)
    assert given.events == ("success",)
    assert not given.engaged
    assert device.read(9.0).events == ()


@pytest.mark.parametrize("fault", ["disconnect", "freeze", "set_nan"])
def test_a_leader_that_falls_silent_lets_go_and_comes_back(held, fault):
    device, leader, clutch = held
    clutch.keys.press("space", 0.0)
    engaged(device)
    getattr(leader, fault)()
    wait_for(lambda: not device.read(9.0).engaged)
    leader.reset()
    engaged(device)


def half(joint):
    return 0.5 * (joint.upper_rad - joint.lower_rad)


def joint_contract():
    """The same arm with absolute joint targets as its action."""
    scale = tuple(half(joint) for joint in YAM.joints)
    middle = tuple(0.5 * (joint.upper_rad + joint.lower_rad) for joint in YAM.joints)
    action = ActionSpec(JOINT_TARGET, scale, middle, clip=1.0)
    terms = tuple(make_term(name, YAM.num_joints) for name in ("joint_pos", "joint_lead", "last_action"))
    return replace(CONTRACT, action=action, observations=terms, body=replace(CONTRACT.body, relative=False))


def asked(contract, operator, leader, targets):
    """Action of the follower's map, with the leader's and the follower's joints."""
    row = targets.astype(np.float32)[None]
    signals = signals_for(contract, row, joint_pos_rad=row, joint_target_rad=row)
    seen = PolicyOutput(np.zeros(1, np.float32), None, np.zeros(contract.action_size, np.float32), None, signals)
    return operator.action(OperatorInput(0.0, True, joint_pos_rad=leader), seen)


def anywhere(rng):
    return rng.uniform(YAM.array("lower_rad"), YAM.array("upper_rad"))


def test_taking_over_moves_nothing_wherever_the_leader_is():
    operator, rng = make_operator_map(CONTRACT), np.random.default_rng(0)
    for _ in range(20):
        leader, targets = anywhere(rng), anywhere(rng)
        operator.begin()
        for _ in range(2):  # The leader stands still: so does the hand, and the gripper stays in its place.
            action = asked(CONTRACT, operator, leader, targets)
            assert action[:3] == pytest.approx(np.zeros(3), abs=1e-4)
            assert action[3] == pytest.approx(
                (targets[-1] - CONTRACT.action.offset_rad[3]) / half(YAM.joints[-1]), abs=1e-4
            )
        leader[0] += 0.01
        assert 0.0 < np.abs(asked(CONTRACT, operator, leader, targets)[:3]).max() <= 1.0
        leader[0] += 3.0  # However far it goes, the hand goes no faster than it may.
        assert np.abs(asked(CONTRACT, operator, leader, targets)).max() <= 1.0 + 1e-6


def test_joints_follow_joints_by_the_same_amounts():
    contract = joint_contract()
    operator, rng = make_operator_map(contract), np.random.default_rng(1)
    middle, scale = np.array(contract.action.offset_rad), np.array(contract.action.scale)
    for _ in range(20):
        leader, targets = anywhere(rng), 0.5 * (anywhere(rng) + middle)
        operator.begin()
        assert middle + scale * asked(contract, operator, leader, targets) == pytest.approx(targets, abs=1e-5)
        step = rng.uniform(-0.1, 0.1, len(leader)) * scale
        moved = middle + scale * asked(contract, operator, leader + step, targets)
        assert moved == pytest.approx(targets + step, abs=1e-5)


def test_a_gripper_at_its_stop_follows_as_soon_as_the_leader_comes_back():
    operator, closed = make_operator_map(CONTRACT), YAM.joints[-1].lower_rad
    targets = START.copy()
    targets[-1] = closed
    leader = targets.copy()
    leader[-1] = 0.03
    operator.begin()

    def gripper():
        return asked(CONTRACT, operator, leader, targets)[3] * half(YAM.joints[-1]) + CONTRACT.action.offset_rad[3]

    assert gripper() == pytest.approx(closed, abs=1e-6)
    leader[-1] = 0.01  # Further than closed.
    assert gripper() == pytest.approx(closed, abs=1e-6)
    leader[-1] = 0.015
    assert gripper() == pytest.approx(closed + 0.005, abs=1e-6)


def test_joints_are_mapped_by_name_sign_offset_and_range():
    names = CONTRACT.joint_names
    links = {
        names[0]: JointLink("b", -1.0, 0.5),
        names[-1]: JointLink("grip", leader_range=(1.0, 0.0), follower_range=(0.0, 0.04)),
    }
    links |= {name: JointLink(name) for name in names[1:-1]}
    joints = JointMap(CONTRACT, ("grip", *names[1:-1], "b"), LeaderCfg("x", "mock", joints=links))
    leader = np.array([0.25, *range(1, len(names) - 1), 0.2])
    assert joints(leader) == pytest.approx([0.3, *range(1, len(names) - 1), 0.03])


def test_mistakes_in_the_map_of_a_leader():
    names = CONTRACT.joint_names
    with pytest.raises(TeleopError, match="The leader has no joints named"):
        JointMap(CONTRACT, names[:-1], LeaderCfg("x", "mock"))
    with pytest.raises(UnknownNameError, match="joint of the follower 'nose'"):
        JointMap(CONTRACT, names, LeaderCfg("x", "mock", joints={"nose": JointLink("a")}))
    with pytest.raises(UnknownNameError, match="joint of the leader 'nose'"):
        JointMap(CONTRACT, names, LeaderCfg("x", "mock", joints={names[0]: JointLink("nose")}))
    with pytest.raises(TeleopError, match="expected 1 or -1"):
        JointLink("a", sign=0.0)
    with pytest.raises(TeleopError, match="expected two different positions"):
        JointLink("a", leader_range=(1.0, 1.0), follower_range=(0.0, 1.0))
    with pytest.raises(TeleopError, match="needs its driver"):
        make_leader(CONTRACT)
    with pytest.raises(TeleopError, match="moves arms alone"):
        make_leader(drive_contract_for(robot_spec("f1tenth")), robot="yam", backend="mock", clutch="none")


def test_the_file_to_copy():
    device = make_leader(CONTRACT, map=str(ROOT / "configs" / "teleop" / "leader.yaml"), clutch="none")
    assert "leader arm 'yam' on backend 'mock'" in device.describe()[0]
