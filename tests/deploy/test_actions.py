"""Actions, gait and command shaping against hand-made numbers, on numpy as on torch."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.actions.commands import shape_command
from gantry_deploy.actions.joints import JointDecoder
from gantry_deploy.contract.policy_contract import BalanceSpec, CommandSpec, PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.footsteps import gait as gait_clock
from gantry_deploy.testing.legs import contract_for, signals_for, tiny_robot
from gantry_fixtures.training import torch

CONTRACT = contract_for(tiny_robot())
GAIT = CONTRACT.gait
CONTRACT_NO_LEAD = replace(CONTRACT, gait=replace(GAIT, lead_s=0.0))
NAMESPACES = {
    "numpy": lambda values: np.asarray(values, dtype=np.float32),
    "torch": lambda values: torch.as_tensor(np.asarray(values), dtype=torch.float32),
}


@pytest.fixture(params=NAMESPACES)
def make(request):
    """Builds an array of the namespace under test."""
    return NAMESPACES[request.param]


def decode(make, contract, action, time_s=0.0, command=(0.0, 0.0, 0.0)):
    action = make([action])
    signals = signals_for(contract, action, time_s=make([time_s]), command=make([command]))
    return np.asarray(JointDecoder(contract, action)(action, signals).pos_rad)[0]


def test_offset_plus_scale_times_action(make):
    contract = replace(
        CONTRACT,
        gait=None,
        action=replace(CONTRACT.action, scale=(0.5, 0.25, 1.0, 0.1), offset_rad=(0.0, 0.5, 0.25, -0.5), clip=100.0),
    )
    np.testing.assert_allclose(decode(make, contract, [1, 2, -1, 5]), [0.5, 1.0, -0.75, 0.0], atol=1e-7)


def test_actions_are_clipped_and_targets_kept_within_the_limits(make):
    contract = replace(CONTRACT, gait=None, action=replace(CONTRACT.action, clip=2.0))
    # default (0.25, 0.5) + 0.25 * clip(action, 2)
    np.testing.assert_allclose(decode(make, contract, [9, -9, 1, -1]), [0.75, 0.0, 0.5, 0.25], atol=1e-7)
    wide = replace(contract, action=replace(contract.action, scale=(2.0,) * 4))
    np.testing.assert_allclose(decode(make, wide, [9, -9, 1, -1]), [2.0, -1.0, 2.0, -1.0], atol=1e-7)
    decoder = JointDecoder(contract, make([[0.0]]))
    np.testing.assert_array_equal(np.asarray(decoder.clip(make([[9, -9, 1, -1]]))), [[2, -2, 1, -1]])


def test_the_gait_lifts_the_feet_in_turn(make):
    # 2 Hz, half of a period on the ground; the left foot swings from 0.25 s to 0.5 s, the right one half a period
    # apart. Only the knees move, by 0.2 rad at the middle of the swing.
    rest, lifted = [0.25, 0.5, 0.25, 0.5], 0.7
    moving = (0.5, 0.0, 0.0)
    zero = [0.0] * 4
    np.testing.assert_allclose(decode(make, CONTRACT, zero, 0.375, moving), [0.25, lifted, 0.25, 0.5], atol=1e-6)
    np.testing.assert_allclose(decode(make, CONTRACT, zero, 0.125, moving), [0.25, 0.5, 0.25, lifted], atol=1e-6)
    np.testing.assert_allclose(decode(make, CONTRACT, zero, 0.0, moving), rest, atol=1e-6)
    np.testing.assert_allclose(decode(make, CONTRACT, zero, 0.375, (0.05, 0.0, 0.0)), rest, atol=1e-6)


def test_the_feed_forward_runs_ahead_of_the_clock(make):
    ahead = replace(CONTRACT, gait=replace(GAIT, lead_s=0.025))
    for time_s in (0.0, 0.1, 0.29, 0.4):
        early = decode(make, ahead, [0.0] * 4, time_s, (0.5, 0.0, 0.0))
        np.testing.assert_allclose(early, decode(make, CONTRACT, [0.0] * 4, time_s + 0.025, (0.5, 0.0, 0.0)), atol=1e-6)


def test_the_weight_sways_with_the_clock_and_rests_with_it(make):
    sways = replace(CONTRACT, gait=replace(GAIT, sway_rad=(0.1, 0.0, 0.0, -0.1), sway_offset=0.25, lead_s=0.0))
    for time_s, part in ((0.0, 1.0), (0.25 / GAIT.frequency_hz, 0.0), (0.5 / GAIT.frequency_hz, -1.0)):
        moved = decode(make, sways, [0.0] * 4, time_s, (0.5, 0.0, 0.0))
        still = decode(make, CONTRACT, [0.0] * 4, time_s, (0.5, 0.0, 0.0))
        np.testing.assert_allclose(moved - still, [0.1 * part, 0.0, 0.0, -0.1 * part], atol=1e-6)
    still = decode(make, CONTRACT, [0.0] * 4, 0.0, (0.0, 0.0, 0.0))
    np.testing.assert_allclose(decode(make, sways, [0.0] * 4, 0.0, (0.0, 0.0, 0.0)), still, atol=1e-6)


def test_lagging_strides_set_every_foot_back(make):
    # At 2 Hz and half of a period in stance, half a stance lasts 0.125 s. A foot at the start of its stance is ahead by
    # 0.125 s * 0.4 m/s = 0.05 m; a lag of 0.2 takes 0.01 m from it, and one of -1 doubles the 0.025 m to the side.
    phase, command = make([[0.0, 0.25]]), make([[0.4, 0.2, 0.0]])
    gait = replace(GAIT, stride_lag=(0.2, -1.0))
    ahead, aside = gait_clock.foot_displacement(gait, phase, command, make([0.0, 0.0]), make([0.1, -0.1]))
    np.testing.assert_allclose(np.asarray(ahead), [[0.04, -0.01]], atol=1e-7)
    np.testing.assert_allclose(np.asarray(aside), [[0.05, 0.025]], atol=1e-7)


def test_a_turning_robot_turns_its_stance_feet_the_other_way(make):
    # 2 Hz, half of a period in stance: over 0.25 s at 0.8 rad/s a foot turns from 0.1 rad to -0.1 rad.
    turns = replace(CONTRACT, gait=replace(GAIT, stride_yaw=(2.0, 0.0, 0.0, 0.0), lead_s=0.0))
    for time_s, angle in ((0.0, 0.1), (0.125, 0.0), (0.1875, -0.05)):
        moved = decode(make, turns, [0.0] * 4, time_s, (0.0, 0.0, 0.8))
        still = decode(make, CONTRACT_NO_LEAD, [0.0] * 4, time_s, (0.0, 0.0, 0.8))
        np.testing.assert_allclose(moved - still, [2.0 * angle, 0.0, 0.0, 0.0], atol=1e-6)


BALANCE = BalanceSpec(
    joint_axis=(0, 1, 0, 1),
    stance_tilt=(1.0, 0.5, 0.0, 0.5),
    stance_rate_s=(0.0, 0.1, 0.0, 0.1),
    swing_tilt=(-1.0, 0.0, -1.0, 0.0),
    swing_rate_s=(-0.2, 0.0, -0.2, 0.0),
)


def test_balance_answers_tilt_and_rate_as_the_foot_stands_or_swings(make):
    """Roll 0.1 rad and pitch -0.2 rad, by hand; at 0.125 s the left foot stands and the right one swings."""
    contract = replace(CONTRACT_NO_LEAD, gait=replace(CONTRACT_NO_LEAD.gait, balance=BALANCE))
    decoder = JointDecoder(contract, make([[0.0]]))
    roll, pitch = [math.cos(0.05), math.sin(0.05), 0.0, 0.0], [math.cos(0.1), 0.0, -math.sin(0.1), 0.0]
    ang_vel = make([[0.3, -0.4, 9.0]])

    def answer(quat, command):
        action, time_s, command = make([[0.0] * 4]), make([0.125]), make([command])
        signals = signals_for(contract, action, time_s=time_s, command=command)
        still = JointDecoder(CONTRACT_NO_LEAD, action)(action, signals).pos_rad
        signals.quat_base_to_world_wxyz, signals.ang_vel_base_in_base_rad_s = make([quat]), ang_vel
        return np.asarray(decoder(action, signals).pos_rad - still)[0]

    s1, s2, walk, rest = math.sin(0.1), math.sin(-0.2), (0.5, 0.0, 0.0), (0.0, 0.0, 0.0)
    np.testing.assert_allclose(answer(roll, walk), [s1, -0.04, -s1 - 0.06, 0.0], atol=1e-6)
    np.testing.assert_allclose(answer(pitch, walk), [0.0, 0.5 * s2 - 0.04, -0.06, 0.0], atol=1e-6)
    np.testing.assert_allclose(answer(pitch, rest), [0.0, 0.5 * s2 - 0.04, 0.0, 0.5 * s2 - 0.04], atol=1e-6)


def test_foot_phase_and_swing(make):
    phase = np.asarray(gait_clock.foot_phase(GAIT, make([0.0, 0.3, 10.3]), make([0.0, 0.5])))
    np.testing.assert_allclose(phase, [[0.0, 0.5], [0.6, 0.1], [0.6, 0.1]], atol=1e-5)
    gait = replace(GAIT, duty=0.6)
    arc = np.asarray(gait_clock.swing_arc(gait, make([[0.0, 0.3, 0.6, 0.7, 0.8, 0.9]])))
    np.testing.assert_allclose(arc, [[0, 0, 0, math.sin(math.pi / 4), 1, math.sin(3 * math.pi / 4)]], atol=1e-6)


def test_moving_counts_the_whole_command(make):
    command = make([[0.0, 0.0, 0.0], [0.06, 0.0, 0.0], [0.06, 0.08, 0.0], [0.06, 0.0, 0.09], [0.0, 0.0, -0.5]])
    np.testing.assert_array_equal(np.asarray(gait_clock.moving(GAIT, command)), [0, 0, 1, 1, 1])


SPEC = CommandSpec("command/body/velocity", ("x", "y", "yaw"), (-1.0, -0.5, -1.0), (1.0, 0.5, 2.0), (0.0, 0.0, 0.0))


def test_commands_are_limited_to_the_trained_range(make):
    shaped = shape_command(SPEC, make([[3, 3, 3], [-3, -3, -3], [0.5, 0.1, -0.2]]), make(np.zeros((3, 3))), 0.02)
    np.testing.assert_allclose(np.asarray(shaped), [[1, 0.5, 2], [-1, -0.5, -1], [0.5, 0.1, -0.2]], atol=1e-7)


def test_commands_change_no_faster_than_their_rate(make):
    spec = replace(SPEC, max_rate=(2.0, 0.0, 10.0))
    command = make([[0.0, 0.0, 0.0]])
    found = []
    for _ in range(3):
        command = shape_command(spec, make([[3.0, 0.4, -3.0]]), command, 0.1)
        found.append(np.asarray(command)[0])
    np.testing.assert_allclose(found, [[0.2, 0.4, -1.0], [0.4, 0.4, -1.0], [0.6, 0.4, -1.0]], atol=1e-6)
    command = shape_command(spec, make([[0.0, 0.0, 0.0]]), command, 0.1)
    np.testing.assert_allclose(np.asarray(command), [[0.4, 0.0, 0.0]], atol=1e-6)


def test_a_contract_with_a_balance_survives_its_file_and_has_as_many_gains_as_joints():
    contract = replace(CONTRACT, gait=replace(GAIT, balance=BALANCE))
    assert PolicyContract.from_json(contract.to_json()) == contract
    with pytest.raises(ContractError, match=r"gait.balance.swing_tilt has 3 entries, expected 4"):
        replace(CONTRACT, gait=replace(GAIT, balance=replace(BALANCE, swing_tilt=(1.0,) * 3)))
