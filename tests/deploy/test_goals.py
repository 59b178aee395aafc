"""Goals: the command's geometry, what an actor sees of it and of the map, what drives the gait, what is a success."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.actions.commands import GOAL_REACH_M, goal_command, heading, shorten_goal
from gantry_deploy.actions.joints import JointDecoder
from gantry_deploy.contract.policy_contract import (
    BODY_POSE,
    BODY_POSE_NAMES,
    Acceptance,
    CommandSpec,
    GoalVelocitySpec,
    MapWindow,
    PolicyContract,
    check_numbers,
)
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.metrics import goal_errors, goal_reached, goal_scores
from gantry_deploy.footsteps.gait import drive_command
from gantry_deploy.observations.builder import ObservationBuilder, Signals, make_term
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, signals_for, tiny_bundle, tiny_robot
from gantry_fixtures.training import torch
from gantry_hardware.backends.mock import MockRobot

NAMESPACES = {
    "numpy": lambda values, dtype="float32": np.asarray(values, dtype=dtype),
    "torch": lambda values, dtype="float32": torch.as_tensor(np.asarray(values, dtype=dtype)),
}
POSE = CommandSpec(
    BODY_POSE, BODY_POSE_NAMES, (-99.0, -99.0, -1.0, -1.0), (99.0, 99.0, 1.0, 1.0), (0.0,) * 4, GoalVelocitySpec()
)
WINDOW = MapWindow(3, 2, 0.1, 0.4, 0.0, ("elevation", "uncertainty"), 0.3)
TERMS = (
    make_term("base_lin_vel", 3),
    make_term("joint_pos", 4, history=3),
    make_term("goal_command", 4),
    make_term("elevation_map", 12),
)
CONTRACT = contract_for(tiny_robot(), command=POSE, map_window=WINDOW, observations=TERMS)


@pytest.fixture(params=NAMESPACES)
def make(request):
    """Builds an array of the namespace under test."""
    return NAMESPACES[request.param]


def yawed(yaw_rad, roll_rad=0.0):
    """Roll first, then yaw, wxyz."""
    a, b = yaw_rad / 2, roll_rad / 2
    return [math.cos(a) * math.cos(b), math.cos(a) * math.sin(b), math.sin(a) * math.sin(b), math.sin(a) * math.cos(b)]


def signals(make, rows=1, **fields):
    values = {
        "joint_pos_rad": np.tile([0.25, 0.5, 0.25, 0.5], (rows, 1)),
        "joint_vel_rad_s": np.zeros((rows, 4)),
        "quat_base_to_world_wxyz": np.tile([1.0, 0.0, 0.0, 0.0], (rows, 1)),
        "ang_vel_base_in_base_rad_s": np.zeros((rows, 3)),
        "command": np.zeros((rows, 4)),
        "last_action": np.zeros((rows, 4)),
        "time_s": np.zeros(rows),
        "lin_vel_base_in_base_m_s": np.zeros((rows, 3)),
        "elevation_map": np.zeros((rows, 3, 2, 2)),
    }
    return Signals(**{name: make(fields.get(name, value)) for name, value in values.items()})


# -- the command ---------------------------------------------------------------------------------------------------


def test_a_goal_in_the_frame_of_a_turned_base(make):
    # The base at (1, 2) looks along +y; the goal is 3 m ahead of it and 1 m to its right, and asks to look along -x.
    found = goal_command(make([[2.0, 5.0, 9.0]]), make([math.pi]), make([[1.0, 2.0, 0.3]]), make([yawed(math.pi / 2)]))
    np.testing.assert_allclose(np.asarray(found), [[3.0, -1.0, 1.0, 0.0]], atol=1e-6)


def test_roll_does_not_turn_the_frame(make):
    tilted = goal_command(make([[2.0, 5.0, 0.0]]), make([0.3]), make([[1.0, 2.0, 0.0]]), make([yawed(0.7, 0.4)]))
    level = goal_command(make([[2.0, 5.0, 0.0]]), make([0.3]), make([[1.0, 2.0, 0.0]]), make([yawed(0.7)]))
    np.testing.assert_allclose(np.asarray(tilted), np.asarray(level), atol=1e-6)


def test_turning_world_base_and_goal_together_changes_nothing(make):
    rng = np.random.default_rng(0)
    goal, base, yaw_goal, yaw = rng.normal(size=(9, 3)), rng.normal(size=(9, 3)), rng.normal(size=9), rng.normal(size=9)
    turn = 1.234
    rotation = np.array([[math.cos(turn), -math.sin(turn), 0], [math.sin(turn), math.cos(turn), 0], [0, 0, 1]])
    before = goal_command(make(goal), make(yaw_goal), make(base), make([yawed(value) for value in yaw]))
    after = goal_command(
        make(goal @ rotation.T),
        make(yaw_goal + turn),
        make(base @ rotation.T),
        make([yawed(value + turn) for value in yaw]),
    )
    np.testing.assert_allclose(np.asarray(before), np.asarray(after), atol=2e-6)


def test_the_heading_of_a_base_that_points_up_is_still_a_direction(make):
    sin_yaw, cos_yaw = heading(make([[math.sqrt(0.5), 0.0, -math.sqrt(0.5), 0.0]]))
    assert float(sin_yaw[0]) == pytest.approx(0.0, abs=1e-3)
    assert float(cos_yaw[0]) ** 2 + float(sin_yaw[0]) ** 2 == pytest.approx(1.0)


def test_a_goal_is_shortened_along_its_direction(make):
    far, near = [3.0, -4.0, 0.6, 0.8], [0.3, -0.4, 0.6, 0.8]
    found = np.asarray(shorten_goal(make([far, near, [0.0, 0.0, 0.0, 1.0]])))
    np.testing.assert_allclose(found, [[1.2, -1.6, 0.6, 0.8], near, [0, 0, 0, 1]], atol=1e-6)
    assert GOAL_REACH_M == 2.0


# -- the observation -----------------------------------------------------------------------------------------------


def test_the_map_is_flattened_row_by_row_with_channels_last(make):
    grid = np.arange(12).reshape(1, 3, 2, 2)
    contract = replace(CONTRACT, observations=(make_term("elevation_map", 12),))
    found = ObservationBuilder(contract, make([[0.0]]))(signals(make, elevation_map=grid))
    np.testing.assert_array_equal(np.asarray(found), [np.arange(12)])


def test_a_lost_command_asks_to_stay_with_the_heading_that_is(make):
    contract = replace(CONTRACT, observations=(make_term("goal_command", 4),))
    found = ObservationBuilder(contract, make([[0.0]]))(signals(make, 2, command=[[0, 0, 0, 0], [5, 0, 0, -1]]))
    np.testing.assert_allclose(np.asarray(found), [[0, 0, 0, 1], [2, 0, 0, -1]])


def test_terms_without_a_past_lie_where_they_did_beside_a_history(make):
    builder = ObservationBuilder(CONTRACT, make(np.zeros((2, 1))))
    for step in (1.0, 2.0, 3.0, 4.0):
        found = builder(
            signals(
                make,
                2,
                joint_pos_rad=[[0.25 + step, 0.5, 0.25, 0.5]] * 2,
                lin_vel_base_in_base_m_s=np.full((2, 3), step),
                elevation_map=np.full((2, 3, 2, 2), -step),
            )
        )
    past = [2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]
    np.testing.assert_allclose(np.asarray(found), [[4] * 3 + past + [0, 0, 0, 1] + [-4] * 12] * 2, atol=1e-6)


def test_numpy_and_torch_agree_on_the_goal_terms():
    rng = np.random.default_rng(0)
    builders = {name: ObservationBuilder(CONTRACT, make(np.zeros((4, 1)))) for name, make in NAMESPACES.items()}
    for _ in range(5):
        fields = {
            "command": rng.normal(size=(4, 4)) * 3,
            "lin_vel_base_in_base_m_s": rng.normal(size=(4, 3)),
            "elevation_map": rng.normal(size=(4, 3, 2, 2)),
            "joint_pos_rad": rng.normal(size=(4, 4)),
        }
        found = [np.asarray(builders[name](signals(make, 4, **fields))) for name, make in NAMESPACES.items()]
        np.testing.assert_allclose(found[0], found[1], atol=1e-6)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("elevation_map", None, "needs a map"),
        ("elevation_map", np.zeros((1, 2, 3, 2), np.float32), r"shape \(2, 3, 2\), the contract says \(3, 2, 2\)"),
        ("lin_vel_base_in_base_m_s", None, "linear velocity"),
    ],
)
def test_what_is_missing_is_named(field, value, text):
    builder = ObservationBuilder(CONTRACT, np.zeros((1, 1), np.float32))
    with pytest.raises(ContractError, match=text):
        builder(replace(signals(NAMESPACES["numpy"]), **{field: value}))


# -- what drives the gait ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        ((5.0, 0.0, 1.0, 0.0), (0.8, 0.0, 0.0)),  # far ahead: full speed, the goal's heading does not matter
        ((0.0, 5.0, 0.0, 1.0), (0.0, 0.3, 1.0)),  # far to the left: turns left, sidesteps slowly
        ((-5.0, -1e-6, 0.0, 1.0), (-0.3, -1.6e-7, -1.0)),  # behind: turns round
        ((0.4, 0.0, math.sin(0.5), math.cos(0.5)), (0.4, 0.0, 0.75)),  # near: slower, turns into the heading
        ((0.2, 0.0, math.sin(0.5), math.cos(0.5)), (0.0, 0.0, 0.75)),  # there: turns on the spot
        ((0.2, 0.1, math.sin(0.1), math.cos(0.1)), (0.0, 0.0, 0.0)),  # there and aligned: stands
        ((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),  # no command: stands
    ],
)
def test_a_goal_as_a_velocity(make, goal, expected):
    found = np.asarray(drive_command(POSE, make([goal])))
    np.testing.assert_allclose(found, [expected], atol=1e-6)


def test_a_velocity_command_drives_the_gait_as_it_is(make):
    command = make([[0.1, 0.2, 0.3]])
    assert drive_command(contract_for(tiny_robot()).command, command) is command


def test_the_gait_of_a_goal_is_the_gait_of_its_velocity(make):
    gait = replace(
        CONTRACT.gait,
        foot_x_m=(0.2, -0.2),
        foot_y_m=(0.1, -0.1),
        stride_x_rad_m=(-3.0, 0.0, -3.0, 0.0),
        stride_y_rad_m=(3.0, 0.0, 3.0, 0.0),
    )
    walks = replace(CONTRACT, gait=gait)
    velocity = replace(walks, command=contract_for(tiny_robot()).command)
    command, time_s, action = (
        make([[1.5, 0.5, 0.0, 1.0], [0.1, 0.0, 0.0, 1.0]]),
        make([0.33, 0.33]),
        make(np.zeros((2, 4))),
    )
    signals = signals_for(walks, action, 2, time_s=time_s, command=command)
    found = JointDecoder(walks, action)(action, signals).pos_rad
    asked = replace(signals, command=drive_command(POSE, command))
    expected = JointDecoder(velocity, action)(action, asked).pos_rad
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    np.testing.assert_allclose(np.asarray(found)[1], CONTRACT.action.offset_rad)  # there: feet down


def test_a_gait_without_a_goal_velocity_is_refused():
    contract = replace(CONTRACT, command=replace(POSE, goal_velocity=None))
    with pytest.raises(ContractError, match=r"command\.goal_velocity is None"):
        check_numbers(contract)
    check_numbers(replace(contract, gait=None))
    with pytest.raises(ContractError, match=r"needs 'command\.goal_velocity'"):
        drive_command(contract.command, np.zeros((1, 4), np.float32))


def test_a_goal_contract_survives_the_journey_and_its_names_are_checked():
    assert PolicyContract.from_json(CONTRACT.to_json()) == CONTRACT
    check_numbers(CONTRACT)
    with pytest.raises(ContractError, match=r"command\.names"):
        check_numbers(replace(CONTRACT, command=replace(POSE, names=("x", "y", "s", "c"))))
    with pytest.raises(ContractError, match=r"goal_velocity\.near_m"):
        check_numbers(replace(CONTRACT, command=replace(POSE, goal_velocity=GoalVelocitySpec(near_m=0.0))))


# -- the robot -----------------------------------------------------------------------------------------------------


def test_the_runner_feeds_goal_velocity_and_map_to_the_network(tmp_path):
    no_bundle = tmp_path / "bundle"
    weight = np.zeros((CONTRACT.observation_size, 4))
    weight[0, 0] = 1.0  # forward velocity
    weight[15, 1] = 1.0  # goal ahead
    weight[19 + 11, 2] = 1.0  # the last cell's uncertainty
    contract = replace(CONTRACT, gait=None, observations=TERMS)
    spec = tiny_robot()
    bundle = tiny_bundle(no_bundle, contract, weight=weight)
    runner = PolicyRunner(bundle, spec)
    robot = MockRobot(spec)
    robot.connect()
    state = replace(robot.read(), lin_vel_base_in_base_m_s=np.array([0.3, 0.0, 0.0]))
    grid = np.zeros((3, 2, 2))
    grid[2, 1, 1] = 0.7
    step = runner.step(state, np.array([9.0, 0.0, 0.0, 1.0]), grid)
    np.testing.assert_allclose(step.action, [0.3, 2.0, 0.7, 0.0], atol=1e-6)
    with pytest.raises(ContractError, match="needs a map"):
        runner.step(state, np.array([9.0, 0.0, 0.0, 1.0]))


# -- success -------------------------------------------------------------------------------------------------------


def test_reached_means_near_and_aligned(make):
    command = make([[0.3, 0.39, 0, 1], [0.3, 0.41, 0, 1], [0, 0, math.sin(0.49), math.cos(0.49)], [0, 0, -1, 0]])
    assert np.asarray(goal_reached(command)).tolist() == [True, False, True, False]
    distance, error = goal_errors(command)
    np.testing.assert_allclose(np.asarray(distance), [math.hypot(0.3, 0.39), math.hypot(0.3, 0.41), 0, 0], atol=1e-6)
    np.testing.assert_allclose(np.asarray(error), [0, 0, 0.49, math.pi / 2], atol=1e-6)


def test_an_episode_that_ended_early_is_no_success():
    scores = goal_scores([True, True, False, True], [False, True, True, False])
    assert scores.success_rate.mean == 0.5
    assert scores.early_end_rate.mean == 0.5
    assert scores.success_rate.low == pytest.approx(0.150, abs=1e-3)  # Wilson, 2 of 4


def test_a_success_rate_is_asked_for_from_below():
    scores = goal_scores([True] * 9 + [False], [False] * 10)
    assert scores.verdicts(Acceptance()) == []
    (good,), (bad,) = (scores.verdicts(Acceptance(min_success_rate=limit)) for limit in (0.9, 0.91))
    assert (good.passed, bad.passed) == (True, False)
    assert good.text == "0.900, 95 % interval 0.596 to 0.982, asked for 0.9; more episodes would tell"
