"""The arm's action decoder: steps, bounds, leads and gripper, the same in numpy and torch."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.actions.arm import BOUND_TOLERANCE_M, ArmDecoder
from gantry_deploy.contract.arm_spec import BODY_TARGET, JOINT_TARGET, ArmSpec
from gantry_deploy.contract.parts import OBJECT_GOAL, OBJECT_GOAL_NAMES
from gantry_deploy.contract.policy_contract import ActionSpec, CommandSpec, PolicyContract, check_numbers
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.builder import ObservationBuilder, Signals, make_term
from gantry_deploy.testing.legs import contract_for
from gantry_fixtures.training import torch
from gantry_hardware.robots import robot_spec
from gantry_hardware.robots.yam import GRIPPER_CLOSED_M, GRIPPER_JOINT, GRIPPER_OPEN_M
from gantry_mapping.sensing.frames import rotation_matrix

YAM = robot_spec("yam")
HOME = YAM.array("default_rad")
TILTED = (0.3420201, 0.0, 0.9396926, 0.0)
"""Fingers 40 degrees from straight down."""
assert YAM.body is not None
ARM = ArmSpec(
    chain=YAM.body,
    lower_ee_in_base_m=(0.2, -0.2, 0.015),
    upper_ee_in_base_m=(0.45, 0.2, 0.25),
    quat_ee_to_base_wxyz=TILTED,
    gripper_joint=GRIPPER_JOINT,
    gripper_closed_m=GRIPPER_CLOSED_M,
    gripper_open_m=GRIPPER_OPEN_M,
)
MIDDLE, HALF = (GRIPPER_OPEN_M + GRIPPER_CLOSED_M) / 2, (GRIPPER_OPEN_M - GRIPPER_CLOSED_M) / 2
STEP_M = 0.02


def arm_contract(arm=ARM, turn_rad=0.0, **changes) -> PolicyContract:
    turns = (0.1,) * 3 if turn_rad else ()
    return contract_for(
        YAM,
        **{
            "rate_hz": 20.0,
            "gait": None,
            "body": replace(arm, max_turn_rad=turn_rad),
            "action": ActionSpec(
                BODY_TARGET, (STEP_M,) * 3 + turns + (HALF,), (0.0,) * (3 + len(turns)) + (MIDDLE,), clip=1.0
            ),
            **changes,
        },
    )


def joint_contract(relative=True) -> PolicyContract:
    scale, offset = ((0.1,) * 6, (0.0,) * 6) if relative else ((0.5,) * 6, tuple(HOME[:6]))
    action = ActionSpec(JOINT_TARGET, (*scale, HALF), (*offset, MIDDLE), clip=1.0)
    return arm_contract(replace(ARM, relative=relative), action=action)


def decoder_at_home(contract, like=None):
    decoder = ArmDecoder(contract, np.zeros((1, 1)) if like is None else like)
    home = HOME[None] if like is None else torch.as_tensor(HOME[None].copy(), dtype=like.dtype)
    decoder.reset(home)
    return decoder, home


def place(decoder, joints):
    return decoder.ee_pose(joints)[0][0]


def test_a_step_moves_the_target_that_far_and_turns_nothing():
    decoder, home = decoder_at_home(arm_contract())
    before, orientation = decoder.ee_pose(home)
    targets = decoder.follow(np.array([[1.0, -0.5, 0.25, 1.0]]), home)
    after, turned = decoder.ee_pose(targets)
    np.testing.assert_allclose(after - before, [[STEP_M, -STEP_M / 2, STEP_M / 4]], atol=2e-4)
    np.testing.assert_allclose(turned, orientation, atol=5e-3)
    np.testing.assert_allclose(rotation_matrix(np.array([TILTED]))[0], orientation[0], atol=1e-3)


def test_larger_actions_are_clipped():
    decoder, home = decoder_at_home(arm_contract())
    one = decoder.follow(np.array([[1.0, 0.0, 0.0, 1.0]]), home)
    decoder.reset(home)
    np.testing.assert_allclose(decoder.follow(np.array([[9.0, 0.0, 0.0, 9.0]]), home), one)
    np.testing.assert_array_equal(decoder.clip(np.array([[9.0, -9.0, 0.5, 0.0]])), [[1.0, -1.0, 0.5, 0.0]])


def test_the_gripper_goes_where_it_is_told_and_no_faster_than_it_may():
    decoder, home = decoder_at_home(arm_contract())
    travel = [float(decoder.follow(np.array([[0.0, 0.0, 0.0, -1.0]]), home)[0, 6]) for _ in range(3)]
    np.testing.assert_allclose(travel, [GRIPPER_OPEN_M - 0.02, GRIPPER_CLOSED_M, GRIPPER_CLOSED_M], atol=1e-9)
    decoder.reset(home)
    assert decoder.follow(np.array([[0.0, 0.0, 0.0, 0.2]]), home)[0, 6] == pytest.approx(MIDDLE + 0.2 * HALF)


def test_the_target_runs_no_farther_ahead_than_it_may():
    """An arm that does not move: the target stops at the lead and comes back from there at once."""
    decoder, home = decoder_at_home(arm_contract())
    start = place(decoder, home)
    for _ in range(10):
        targets = decoder.follow(np.array([[0.0, 1.0, 0.0, 1.0]]), home)
    np.testing.assert_allclose(place(decoder, targets) - start, [0.0, ARM.max_lead_m, 0.0], atol=2e-3)
    back = decoder.follow(np.array([[0.0, -1.0, 0.0, 1.0]]), home)
    assert place(decoder, back)[1] - start[1] == pytest.approx(ARM.max_lead_m - STEP_M, abs=2e-3)


@pytest.mark.parametrize("contract", [arm_contract(), arm_contract(turn_rad=0.6), joint_contract()])
def test_no_action_leaves_the_workspace_or_the_joints_limits(contract):
    rng = np.random.default_rng(0)
    decoder = ArmDecoder(contract, np.zeros((1, 1)))
    joints = np.repeat(HOME[None], 16, axis=0)
    decoder.reset(joints)
    held = rng.uniform(-1.5, 1.5, (16, contract.action_size))
    lower, upper = np.array(ARM.lower_ee_in_base_m), np.array(ARM.upper_ee_in_base_m)
    reached = []
    for step in range(120):
        if step % 6 == 0:  # long enough in one direction to get to the walls
            held = rng.uniform(-1.5, 1.5, held.shape)
        joints = decoder.follow(held, joints)
        position = decoder.ee_pose(joints)[0]
        assert (position >= lower - BOUND_TOLERANCE_M).all()
        assert (position <= upper + BOUND_TOLERANCE_M).all()
        assert (joints >= YAM.array("lower_rad")).all()
        assert (joints <= YAM.array("upper_rad")).all()
        reached.append(position)
    reached = np.concatenate(reached)
    assert (reached.max(0) - reached.min(0) > 0.6 * (upper - lower)).all()  # there was something to bound


def test_an_arm_outside_its_workspace_may_only_come_back():
    outside = HOME.copy()
    outside[0] = 1.2  # turned away to the left
    decoder = ArmDecoder(arm_contract(), np.zeros((1, 1)))
    decoder.reset(outside[None])
    joints, far = outside[None], []
    for _ in range(30):
        joints = decoder.follow(np.zeros((1, 4)), joints)
        far.append(place(decoder, joints)[1])
    assert all(later <= earlier + 1e-6 for earlier, later in itertools.pairwise(far))
    assert far[-1] <= 0.2 + BOUND_TOLERANCE_M


def test_an_end_effector_that_turns_stops_at_its_largest_turn():
    decoder, joints = decoder_at_home(arm_contract(turn_rad=0.3))
    middle, rest = place(decoder, joints), decoder.ee_pose(joints)[1][0]
    for _ in range(10):
        joints = decoder.follow(np.array([[0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]]), joints)
    position, rotation = decoder.ee_pose(joints)
    between = rotation[0] @ rest.T
    assert np.arctan2(between[1, 0], between[0, 0]) == pytest.approx(0.3, abs=5e-3)
    np.testing.assert_allclose(position[0], middle, atol=1e-3)


def test_actions_of_the_joints():
    decoder, home = decoder_at_home(joint_contract())
    action = np.array([[0.5, -1.0, 0.0, 0.0, 0.0, 0.0, 1.0]])
    np.testing.assert_allclose(decoder.follow(action, home)[0, :2], [HOME[0] + 0.05, HOME[1] - 0.1])
    for _ in range(9):
        targets = decoder.follow(action, home)  # the arm does not move
    assert targets[0, 0] == pytest.approx(HOME[0] + ARM.max_lead_rad)
    absolute, home = decoder_at_home(joint_contract(relative=False))
    once = absolute.follow(action, home)[0, :2]
    np.testing.assert_allclose(once, [HOME[0] + 0.2, HOME[1] - 0.2])  # no faster than a step
    assert absolute.follow(action, home)[0, 0] == pytest.approx(HOME[0] + 0.25)


def test_numpy_and_torch_agree_and_rows_are_reset_apart():
    contract = arm_contract(turn_rad=0.6)
    ours, joints = decoder_at_home(contract)
    theirs, _ = decoder_at_home(contract, torch.zeros(1, 1, dtype=torch.float64))
    theirs.reset(torch.as_tensor(np.repeat(HOME[None], 2, axis=0)))
    for action in np.random.default_rng(1).uniform(-1, 1, (20, 1, 7)):
        joints = ours.follow(action, joints)
        twice = (torch.as_tensor(np.repeat(values, 2, axis=0)) for values in (action, joints))
        both = theirs.follow(*twice)
        np.testing.assert_allclose(both.numpy(), np.repeat(joints, 2, axis=0), atol=1e-9)
    theirs.reset(torch.as_tensor(np.repeat(HOME[None], 2, axis=0)), torch.tensor([True, False]))
    np.testing.assert_allclose(theirs.targets.numpy(), np.stack([HOME, joints[0]]), atol=1e-9)


def test_a_contract_with_an_arm_comes_back_from_json_and_knows_its_robot():
    contract = arm_contract()
    again = PolicyContract.from_json(contract.to_json())
    assert again == contract
    assert again.action_size == 4
    again.check_robot(YAM)
    longer = replace(ARM, chain=replace(ARM.chain, pos_ee_m=(0.0, 0.0, 0.3)))
    with pytest.raises(ContractError, match="another geometry"):
        arm_contract(longer).check_robot(YAM)
    with pytest.raises(ContractError, match=r"action\.scale has 4 entries, expected 7"):
        replace(contract, action=replace(contract.action, kind=JOINT_TARGET))
    with pytest.raises(ContractError, match=r"action\.kind of an arm 'target/body/velocity'"):
        replace(contract, action=replace(contract.action, kind="target/body/velocity"))
    with pytest.raises(ContractError, match="'thumb' is none of the contract's: joint1"):
        arm_contract(replace(ARM, gripper_joint="thumb"))
    with pytest.raises(ContractError, match="workspace is"):
        replace(ARM, lower_ee_in_base_m=(0.5, -0.2, 0.0))
    with pytest.raises(ContractError, match="of embodiment 'legs', and its body is no ArmSpec"):
        ArmDecoder(contract_for(robot_spec("go2")), np.zeros((1, 1)))


def test_the_place_of_an_object_may_be_away_from_the_base():
    goal = CommandSpec(OBJECT_GOAL, OBJECT_GOAL_NAMES, (0.2, -0.2, 0.0), (0.4, 0.2, 0.2), (0.0,) * 3)
    check_numbers(arm_contract(command=goal))
    with pytest.raises(ContractError, match=r"command 'goal_x_base_m' is 0.5 to 0\.4"):
        check_numbers(arm_contract(command=replace(goal, lower=(0.5, -0.2, 0.0))))
    with pytest.raises(ContractError, match=r"command\.names"):
        check_numbers(arm_contract(command=replace(goal, names=("x", "y", "z"))))


def test_what_an_arm_observes_by_hand():
    n = YAM.num_joints
    terms = [("joint_pos", n), ("joint_lead", n), ("ee_pos", 3), ("ee_rotation", 6), ("object_pos", 3)]
    terms += [("object_rotation", 6), ("object_from_ee", 3), ("object_goal", 3), ("goal_from_object", 3)]
    goal = CommandSpec(OBJECT_GOAL, OBJECT_GOAL_NAMES, (0.2, -0.2, 0.0), (0.4, 0.2, 0.2), (0.0,) * 3)
    contract = arm_contract(command=goal, observations=tuple(make_term(name, size) for name, size in terms))
    quarter = np.sqrt(0.5)
    signals = Signals(
        joint_pos_rad=HOME[None],
        joint_vel_rad_s=np.zeros((1, n)),
        quat_base_to_world_wxyz=np.array([[1.0, 0.0, 0.0, 0.0]]),
        ang_vel_base_in_base_rad_s=np.zeros((1, 3)),
        command=np.array([[0.3, 0.1, 0.05]]),
        last_action=np.zeros((1, 4)),
        time_s=np.zeros(1),
        joint_target_rad=HOME[None] + 0.01,
        object_pose_in_base=np.array([[0.35, 0.0, 0.02, quarter, 0.0, 0.0, quarter]]),  # a quarter of a turn about z
    )
    both = ObservationBuilder(contract, np.zeros((1, 1)))(signals)[0]
    if torch:
        arrays = {name: value for name, value in vars(signals).items() if isinstance(value, np.ndarray)}
        as_torch = {name: torch.as_tensor(value) for name, value in arrays.items()}
        theirs = ObservationBuilder(contract, torch.zeros(1, 1, dtype=torch.float64))(Signals(**as_torch))
        np.testing.assert_allclose(theirs.numpy()[0], both, atol=1e-12)
    built = np.split(both, np.cumsum([size for _, size in terms]))
    tilt = np.radians(40.0)
    wanted = [
        np.zeros(n),
        np.full(n, 0.01),
        [0.30, 0.0, 0.17],
        [-np.cos(tilt), 0.0, -np.sin(tilt), 0.0, 1.0, 0.0],
        [0.35, 0.0, 0.02],
        [0.0, 1.0, 0.0, -1.0, 0.0, 0.0],
        [0.05, 0.0, -0.15],
        [0.3, 0.1, 0.05],
        [-0.05, 0.1, 0.03],
    ]
    for (name, _), ours, theirs in zip(terms, built[:-1], wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-3, err_msg=name)
    with pytest.raises(ContractError, match="'object_pos' needs an object's pose"):
        ObservationBuilder(contract, np.zeros((1, 1)))(replace(signals, object_pose_in_base=None))
    legs = contract_for(robot_spec("go2"), observations=(make_term("ee_pos", 3),))
    with pytest.raises(ContractError, match="its body is no ArmSpec"):
        ObservationBuilder(legs, np.zeros((1, 1)))(replace(signals, ee_pose_in_base=None))
