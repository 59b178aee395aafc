"""Legs that are told where to step: who carries, where feet go, what holds the base, refusals.

Everything runs on numpy, and the decoder on torch as well.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.actions.joints import JointDecoder
from gantry_deploy.bundle.bundle import load_bundle, write_bundle
from gantry_deploy.contract.arm_spec import JOINT_TARGET
from gantry_deploy.contract.footstep_spec import STEP_NAMES, STEP_TARGET
from gantry_deploy.contract.policy_contract import ActionSpec, PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.gate import check_static
from gantry_deploy.footsteps import support as hold
from gantry_deploy.footsteps.controller import FOLLOW_1_S, UPRIGHT_1_S, Stepper
from gantry_deploy.footsteps.legs import Legs
from gantry_deploy.footsteps.swing import ease
from gantry_deploy.perception.maps import needs_map
from gantry_deploy.testing.legs import golden_data, linear_model, map_contract_for, signals_for, with_actions
from gantry_fixtures.footsteps import (
    FAR,
    LEGS,
    MASS_KG,
    RADIUS_M,
    SEEN,
    STAND_M,
    STEPS,
    THERE,
    forces_of,
    joints_of,
    make_stepper,
    quaternion,
    raised_feet,
    random_joints,
    sensed,
    standing_feet,
    stepping_contract,
    stepping_inputs,
    steps_with,
)
from gantry_fixtures.training import torch
from gantry_hardware.backends.state import GRAVITY_M_S2
from gantry_hardware.robots import robot_spec
from gantry_mapping.sensing.frames import base_to_base_yaw


def targets_of(contract, action, inputs):
    """Joint targets (N, 12) of actions (N, 12), of the namespace of the inputs."""
    return JointDecoder(contract, action)(action, signals_for(contract, action, len(action), **inputs)).pos_rad


def decoded(command, action=None, time_s=0.05, **changes):
    """Joint targets (12,) by numpy, after torch has given the same."""
    own, inputs = stepping_contract(), stepping_inputs(command, time_s, **changes)
    action = np.zeros((1, 12)) if action is None else action
    found = targets_of(own, action, inputs)
    if torch:
        tensors = {name: torch.from_numpy(item) for name, item in inputs.items()}
        np.testing.assert_allclose(targets_of(own, torch.from_numpy(action), tensors).numpy(), found, atol=1e-10)
    return found[0]


@pytest.mark.parametrize("yaw", [0.0, 2.0])
def test_the_velocity_is_that_of_the_standing_feet_seen_from_the_base(yaw):
    """A base that moves and turns over feet that stand: joints by differences of the inverse kinematics."""
    legs, vel, turn, dt = Legs(LEGS, np.zeros(1)), np.array([0.4, -0.2, 0.1]), 0.7, 1e-5
    attitude = base_to_base_yaw(quaternion(0.1, -0.15, 0.0))[0]
    feet_w = np.array([(leg.stand_x_m, leg.stand_y_m, 0.0) for leg in LEGS])

    def joints_at(time_s):
        c, s = math.cos(turn * time_s), math.sin(turn * time_s)
        rotation = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]) @ attitude
        place = np.array([0.0, 0.0, STAND_M]) + time_s * vel
        return legs.joints(((feet_w - place) @ rotation)[None])

    body = sensed(
        quat_base_to_world_wxyz=quaternion(0.1, -0.15, yaw),
        ang_vel_base_in_base_rad_s=(attitude.T @ np.array([0.0, 0.0, turn]))[None],
        joint_pos_rad=joints_at(0.0),
        joint_vel_rad_s=(joints_at(dt) - joints_at(-dt)) / (2 * dt),
    )
    np.testing.assert_allclose(body.vel, vel[None], atol=1e-6)


def test_who_is_where_it_is_to_be_stands_on_four_feet_whatever_the_policy_says():
    """The weight, a quarter on each foot; neither clock nor places nor velocities count, but a lower base does."""
    inputs = stepping_inputs(THERE)
    height = STAND_M - STEPS.support.height_m  # of the base over what is asked for
    lift = MASS_KG * (GRAVITY_M_S2 - hold.HEIGHT_GAIN_1_S2 * height)
    for time_s in (0.05, 0.15, 0.25):
        for action in (np.zeros((1, 12)), np.array([[1.0] * 9 + [0.0] * 3])):
            pushed = forces_of(decoded(THERE, action, time_s), inputs)
            np.testing.assert_allclose(pushed[:, 2], -lift / 4, atol=0.3)
            np.testing.assert_allclose(pushed[:, :2], 0.0, atol=0.5)
    lower = np.zeros((1, 12))
    lower[0, STEP_NAMES.index("base_height_m")] = -0.2  # times 0.1
    expected = lift - MASS_KG * hold.HEIGHT_GAIN_1_S2 * 0.02
    np.testing.assert_allclose(forces_of(decoded(THERE, lower), inputs)[:, 2].sum(), -expected, rtol=0.01)


def test_velocity_is_held_by_a_force():
    """The goal's 0.5 m/s and the policy's -0.2 m/s, of a robot at rest, on the two feet that stand: they give what they
    can without pitching the base, in proportion to the error."""
    action = np.zeros((1, 12))
    pushed = []
    for added in (0.0, -2.0, -5.0, -8.0):
        action[0, STEP_NAMES.index("lin_vel_x_m_s")] = added
        forces = forces_of(decoded(FAR, action), stepping_inputs(FAR))[
            [1, 2]
        ]  # FL and RR stand in the clock's first half
        pushed.append(-forces[:, 0].sum())
    whole = MASS_KG * hold.VELOCITY_GAIN_1_S * 0.5
    assert 0.5 * whole < pushed[0] < whole
    np.testing.assert_allclose(np.array(pushed) / pushed[0], (1.0, 0.6, 0.5, 0.5), rtol=0.02)  # at most 2.5 units


def test_what_the_damping_of_standing_legs_takes_is_made_up_for():
    """In proportion to the velocity that is wanted, here as much as its error counts."""
    action, inputs = np.zeros((1, 12)), stepping_inputs(FAR)
    action[0, STEP_NAMES.index("lin_vel_x_m_s")] = -2.5  # 0.25 m/s are left
    pushed = []
    for drag in (0.0, hold.VELOCITY_GAIN_1_S):
        targets = targets_of(stepping_contract(**steps_with("support", drag_1_s=drag)), action, inputs)
        pushed.append(-forces_of(targets[0], inputs)[[1, 2], 0].sum())
    np.testing.assert_allclose(pushed[1], 2.0 * pushed[0], rtol=0.01)


# -- feet in the air -----------------------------------------------------------------------------------------------


def test_the_clock_lifts_diagonal_feet_in_turn():
    assert sensed(0.05).swings.tolist() == [[True, False, False, True]]
    assert sensed(0.25).swings.tolist() == [[False, True, True, False]]
    assert sensed(0.25, far=False).swings.tolist() == [[False] * 4]
    body = sensed(0.05)
    np.testing.assert_allclose(body.progress, [[0.25, 0.0, 0.0, 0.25]])
    np.testing.assert_allclose(body.left_s, [[0.15, 0.0, 0.0, 0.15]])


def test_feet_land_half_a_stance_ahead_and_where_the_body_will_be():
    contract = stepping_contract()
    steps = replace(STEPS, swing=replace(STEPS.swing, capture_aside_s=0.25))
    own = Stepper(replace(contract, gait=replace(contract.gait, steps=steps)), np.zeros((1, 1)))
    drive = np.array([[0.5, 0.0, 0.0]])
    body = replace(sensed(0.05), vel=np.array([[0.5, 0.0, 0.0]]))
    land = own.landing(body, drive[:, :2], drive[:, 2:])
    np.testing.assert_allclose(land[0, 0], (0.19 + 0.5 * 0.15 + 0.5 * 0.1, -0.126))
    late = own.landing(replace(body, vel=np.array([[0.7, 0.1, 0.0]])), drive[:, :2], drive[:, 2:])
    capture = STEPS.swing.capture_s
    np.testing.assert_allclose(late - land, [[(0.2 * capture, 0.1 * 0.25)] * 4], atol=1e-12)
    turned = own.landing(body, 0.0 * drive[:, :2], np.array([[0.4]]))[0, 0]  # 0.25 s on: 0.1 rad to the left
    capture_x = -capture * 0.5  # of a velocity of 0.5 m/s that is not wanted now
    expected = 0.19 * math.cos(0.1) + 0.126 * math.sin(0.1) - capture_x, -0.126 * math.cos(0.1) + 0.19 * math.sin(0.1)
    np.testing.assert_allclose(turned, expected, atol=1e-12)


def test_the_policy_moves_places_of_front_and_rear_feet():
    """At the beginning of a swing, when no foot is on its way to another place yet."""
    own, body = make_stepper(), sensed(0.05)
    body = replace(body, progress=np.zeros((1, 4)))
    steps = np.zeros((1, 12))
    still = own.plan(steps, body).places
    np.testing.assert_allclose(still[..., 2], RADIUS_M - STAND_M)
    steps[0, :6] = 0.1, 0.02, 0.05, -0.1, 0.03, -0.04
    front, rear = [0.1, 0.02, 0.05], [-0.1, 0.03, -0.04]
    moved = own.plan(steps, body).places - still
    np.testing.assert_allclose(moved[0], [front, front, rear, rear], atol=1e-12)


def test_feet_that_lack_ground_are_moved_and_the_body_goes_after_them():
    """From 0.2 m ahead there is a void: the front right foot comes down before it."""
    own, body = make_stepper(), sensed(0.05)
    ground = body.ground.copy()
    ground[:, 4:] -= 1.0  # cells from 0.2 m on
    flat, held = own.plan(np.zeros((1, 12)), body), own.plan(np.zeros((1, 12)), replace(body, ground=ground))
    moved = (held.places - flat.places)[0, :, :2]
    assert moved[0, 0] < -0.05
    after = FOLLOW_1_S * (moved[0] + moved[3]) / 4.0  # the two in the air, of four
    np.testing.assert_allclose(held.vel - flat.vel, [after], atol=1e-12)


def test_a_foot_follows_the_clock_up_and_to_its_place():
    """Where the targets of a foot in the air are, at once and at last, over flat ground and onto a block."""
    legs = Legs(LEGS, np.zeros(1))
    over = stepping_inputs(FAR)["elevation_map"]
    block = over.copy()
    block[:, 3:] += 0.1  # under the front feet
    heights = {}
    for name, elevation in (("flat", over), ("block", block)):
        place = [legs.feet(decoded(FAR, None, t, elevation_map=elevation)[None])[0][0, 0] for t in (0.01, 0.08, 0.18)]
        heights[name] = [float(point[2]) + STAND_M - RADIUS_M for point in place]
        # The base stands although 0.5 m/s are wanted, 0.02 s before the landing; targets run ahead of the joints.
        assert place[2][0] == pytest.approx(0.19 + 0.5 * 0.1 - 0.5 * STEPS.swing.capture_s + 0.5 * 0.02, abs=0.04)
    early, middle, late = heights["flat"]
    assert early < middle < STEPS.swing.clearance_m + 0.02
    assert late < 0.02 < middle
    assert heights["block"][1] > middle + 0.05


def test_joints_of_a_leg_in_the_air_are_not_asked_to_turn_too_fast():
    """Over a wall each is asked for what it may, and no more; those of legs on the ground push as they did."""
    body, steps, most = sensed(0.05), np.zeros((1, 12)), (0.05, 0.1, 0.15)
    body = replace(body, ground=body.ground + 0.4)
    swing = replace(STEPS.swing, most_lead_rad=most)
    contract = stepping_contract()
    slow = replace(contract, gait=replace(contract.gait, steps=replace(STEPS, swing=swing)))
    free, held = (Stepper(item, np.zeros((1, 1)))(steps, body) for item in (contract, slow))
    asked, given = ((targets - body.joint_pos).reshape(4, 3) for targets in (free, held))
    for leg in range(4):
        limits = np.array(most) if body.swings[0, leg] else np.inf
        np.testing.assert_allclose(given[leg], np.clip(asked[leg], -limits, limits), atol=1e-9)
    assert np.abs(asked[body.swings[0], 2]).min() > most[2]


def test_ground_beside_a_void_counts_little():
    own, body = make_stepper(), sensed(0.05)
    place = np.array([[[0.3, -0.126]] * 4])
    for depth, expected in ((-2.0, -0.15), (-0.1, -0.1), (1.0, 0.4)):
        ground = np.full((1, 14, 8), depth - STAND_M)
        found = own.stepped_on(replace(body, ground=ground), place)
        np.testing.assert_allclose(found + STAND_M, [[expected] * 4], atol=1e-9)


def test_the_edge_of_a_bar_is_stepped_on_as_the_bar_is():
    """Halfway between the bar's last cell and the void's first one, where the map's height is -0.5 m."""
    own, body, window = make_stepper(), sensed(0.05), stepping_contract().map_window
    ground = np.full((1, 14, 8), -STAND_M)
    ground[:, 9:] -= 1.0
    edge = window.center_x_m + (8.5 - 6.5) * window.resolution_m
    found = own.stepped_on(replace(body, ground=ground), np.array([[[edge, 0.0]] * 4]))
    np.testing.assert_allclose(found + STAND_M, 0.0, atol=1e-9)


def test_a_foot_that_has_come_to_rest_late_in_its_swing_carries():
    """If it is near the ground as well: one that is held up in the air has not landed."""
    legs, inputs = Legs(LEGS, np.zeros(1)), stepping_inputs(FAR)
    jacobian = legs.feet(inputs["joint_pos_rad"])[1][0]
    falling = np.zeros((1, 12))
    falling[0, :3] = np.linalg.solve(jacobian[0], (0.0, 0.0, -0.5))
    raised = raised_feet([0])
    both, one, four = [[False, True, True, False]], [[False, True, True, True]], [[True] * 4]
    assert sensed(0.05).stands.tolist() == both
    assert sensed(0.15).stands.tolist() == four
    assert sensed(0.15, joint_vel_rad_s=falling).stands.tolist() == one
    assert sensed(0.15, joint_pos_rad=raised).stands.tolist() == one


def test_who_comes_to_rest_in_the_middle_of_a_step_puts_its_feet_down():
    """Those on the ground carry the weight meanwhile, all of it."""
    joints = raised_feet([0, 3])
    inputs = stepping_inputs(THERE, joint_pos_rad=joints)
    body = sensed(far=False, joint_pos_rad=joints)
    assert body.stands.tolist() == [[False, True, True, False]]
    target = decoded(THERE, joint_pos_rad=joints)
    place = Legs(LEGS, np.zeros(1)).feet(target[None])[0][0]
    assert (place[[0, 3], 2] < RADIUS_M - STAND_M + 0.02).all()
    carried = forces_of(target, inputs)[[1, 2], 2].sum()
    assert -1.3 * MASS_KG * GRAVITY_M_S2 < carried < -0.8 * MASS_KG * GRAVITY_M_S2


@pytest.mark.parametrize(("ends", "rests"), [(1.0, True), (0.7, True), (0.5, False), (-0.1, False)])
@pytest.mark.parametrize("which", [slice(0, 2), slice(2, 4)])
def test_feet_that_came_together_are_not_rested_on(ends, rests, which):
    (feet := standing_feet())[:, which, 1] *= ends
    inputs = stepping_inputs(THERE, joint_pos_rad=joints_of(feet))
    body = make_stepper().sense(inputs["time_s"], inputs["command"], *(inputs[name] for name in SEEN))
    assert (bool(body.rests[0, 0]), not body.swings.any()) == (rests, rests)


def test_what_was_never_seen_is_as_high_as_the_feet():
    """A base that is higher than usual over ground of which the map says nothing; half sure is half way."""
    own = stepping_contract()
    for uncertainty, expected in ((2.0, 0.0), (0.85, 0.0), (0.6, 0.05), (0.35, 0.1), (-1.8, 0.1)):
        window = np.full((1, 14, 8, 2), own.map_window.nominal_base_height_m - STAND_M + 0.1)
        window[..., 1] = uncertainty
        np.testing.assert_allclose(sensed(far=False, elevation_map=window).ground + STAND_M, expected, atol=1e-9)


@pytest.mark.parametrize(("drift_m", "left_m"), [(0.03, 0.0), (-0.03, 0.0), (0.08, 0.03), (-0.08, -0.03)])
def test_the_map_is_put_below_the_standing_feet(drift_m, left_m):
    """By up to 5 cm; a foot in the air says nothing of the ground, and who rests is let be."""
    own, joints = stepping_contract(), raised_feet([0, 3], 0.2)
    window = np.full((1, 14, 8, 2), own.map_window.nominal_base_height_m - STAND_M + drift_m)
    window[..., 1] = -1.8
    walking = sensed(0.05, elevation_map=window, joint_pos_rad=joints)
    np.testing.assert_allclose(walking.ground + STAND_M, left_m, atol=1e-9)
    np.testing.assert_allclose(sensed(far=False, elevation_map=window).ground + STAND_M, drift_m, atol=1e-9)


def test_targets_are_finite_and_ask_for_no_more_than_the_motors_give():
    """Whatever is asked, on feet that stand; the decoder's last word are the joints' limits."""
    own, most = stepping_contract(), np.array(stepping_contract().effort_limit_nm)
    free = replace(own, joint_lower_rad=(-99.0,) * 12, joint_upper_rad=(99.0,) * 12)
    for seed in range(20):
        make = np.random.default_rng(seed)
        inputs = stepping_inputs(
            make.normal(0.0, 3.0, (1, 4)), float(make.uniform(0.0, 1.0)),
            joint_pos_rad=random_joints(1, seed), joint_vel_rad_s=make.normal(0.0, 5.0, (1, 12)),
            elevation_map=make.normal(0.0, 1.0, (1, 14, 8, 2)),
        )  # fmt: skip
        action = make.normal(0.0, 3.0, (1, 12))
        wide, target = (targets_of(each, action, inputs)[0] for each in (free, own))
        assert np.isfinite(wide).all()
        np.testing.assert_array_equal(target, np.clip(wide, own.joint_lower_rad, own.joint_upper_rad))
        names = ("quat_base_to_world_wxyz", "ang_vel_base_in_base_rad_s", "joint_pos_rad", "joint_vel_rad_s")
        seen = (*(inputs[name] for name in names), inputs["elevation_map"])
        stands = np.repeat(make_stepper().sense(inputs["time_s"], inputs["command"], *seen).stands[0], 3)
        asked = np.array(own.stiffness_nm_rad) * np.abs(wide - inputs["joint_pos_rad"][0])
        assert (asked[stands] <= most[stands] + 1e-9).all()


# -- what holds the base -------------------------------------------------------------------------------------------


def moment(action=None, **changes):
    """Torque (3,) about the base's centre, N m in the base frame, by which a robot at rest is turned."""
    inputs = stepping_inputs(THERE, **changes)
    pushed = forces_of(decoded(THERE, action, **changes), inputs)
    feet = Legs(LEGS, np.zeros(1)).feet(inputs["joint_pos_rad"])[0][0]
    return np.cross(feet, -pushed).sum(0)


@pytest.mark.parametrize("yaw", [0.0, 2.5])
def test_a_base_that_leans_is_turned_back_and_a_turning_one_is_braked(yaw):
    """The law: inertia times gain times the error, about the base's axes."""
    support = STEPS.support
    still = moment(quat_base_to_world_wxyz=quaternion(0.0, 0.0, yaw))
    np.testing.assert_allclose(still, 0.0, atol=0.5)
    feet = np.array([[(leg.stand_x_m, leg.stand_y_m, RADIUS_M - STAND_M) for leg in LEGS]])
    for axis in range(2):
        attitude = quaternion(*(0.05 if axis == i else 0.0 for i in range(2)), yaw)
        joints_leant = Legs(LEGS, np.zeros(1)).joints(feet @ base_to_base_yaw(attitude)[0])  # over level ground
        leant = moment(quat_base_to_world_wxyz=attitude, joint_pos_rad=joints_leant)
        expected = -support.inertia_kg_m2[axis] * hold.TILT_GAIN_1_S2 * 0.05
        assert leant[axis] == pytest.approx(expected, rel=0.4)
    for axis in range(3):
        rate = np.zeros((1, 3))
        rate[0, axis] = 0.5
        turned = moment(quat_base_to_world_wxyz=quaternion(0.0, 0.0, yaw), ang_vel_base_in_base_rad_s=rate)
        expected = -support.inertia_kg_m2[axis] * hold.TILT_DAMPING_1_S * 0.5
        assert turned[axis] == pytest.approx(expected, rel=0.4)


def test_the_action_pitches_rolls_and_turns_the_base():
    for name, axis in (("base_roll_rad", 0), ("base_pitch_rad", 1)):
        action = np.zeros((1, 12))
        action[0, STEP_NAMES.index(name)] = 0.5  # times 0.1
        expected = STEPS.support.inertia_kg_m2[axis] * hold.TILT_GAIN_1_S2 * 0.05
        assert moment(action)[axis] == pytest.approx(expected, rel=0.4)
    own, body = make_stepper(), sensed()
    steps = np.zeros((1, 12))
    steps[0, STEP_NAMES.index("ang_vel_z_rad_s")] = 0.3
    turning = replace(body, drive=np.array([[0.5, 0.0, 0.1]]))
    assert own.plan(steps, turning).turn.item() == pytest.approx(0.4)


@pytest.mark.parametrize(("which", "axis", "sign"), [([0, 1], 1, -1.0), ([1, 3], 0, 1.0)])
def test_the_base_leans_as_the_ground_does(which, axis, sign):
    """Front feet on a step: nose up, which is a negative pitch; left feet on it: a positive roll."""
    joints_up = raised_feet(which, 0.05)
    high = stepping_inputs(THERE)["elevation_map"]
    rows, cols = (slice(3, None), slice(None)) if axis == 1 else (slice(None), slice(4, None))
    high[:, rows, cols, 0] += 0.05
    assert sign * moment(joint_pos_rad=joints_up, elevation_map=high)[axis] > 0.5


def test_a_base_at_rest_comes_back_over_its_feet():
    feet = np.array([[(leg.stand_x_m - 0.03, leg.stand_y_m + 0.02, RADIUS_M - STAND_M) for leg in LEGS]])
    inputs = stepping_inputs(THERE, joint_pos_rad=Legs(LEGS, np.zeros(1)).joints(feet))
    pushed = -forces_of(decoded(THERE, joint_pos_rad=inputs["joint_pos_rad"]), inputs).sum(0)
    gain = MASS_KG * hold.VELOCITY_GAIN_1_S * UPRIGHT_1_S
    assert pushed[0] == pytest.approx(-0.03 * gain, rel=0.5)
    assert pushed[1] == pytest.approx(0.02 * gain, rel=0.5)


def test_mirrored_robots_do_mirrored_things():
    """Another side, half a period later: all inputs mirrored, so are the targets."""
    swap, flip = [3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8], np.array([-1.0, 1.0, 1.0] * 4)
    action_sign = np.array([1, -1, 1, 1, -1, 1, 1, -1, -1, 1, 1, -1], dtype=float)
    make, own = np.random.default_rng(3), stepping_contract()
    n = 50
    inputs = {
        "time_s": make.uniform(0.0, 0.4, n),
        "command": make.normal(0.0, 2.0, (n, 4)),
        "quat_base_to_world_wxyz": np.concatenate([quaternion(*make.normal(0.0, 0.1, 3)) for _ in range(n)]),
        "ang_vel_base_in_base_rad_s": make.normal(0.0, 0.5, (n, 3)),
        "elevation_map": make.normal(0.0, 0.1, (n, 14, 8, 2)),
        "joint_pos_rad": random_joints(n),
        "joint_vel_rad_s": make.normal(0.0, 1.0, (n, 12)),
    }
    mirrored = {
        "time_s": inputs["time_s"] + 0.2,
        "command": inputs["command"] * [1.0, -1.0, -1.0, 1.0],
        "quat_base_to_world_wxyz": inputs["quat_base_to_world_wxyz"] * [1.0, -1.0, 1.0, -1.0],
        "ang_vel_base_in_base_rad_s": inputs["ang_vel_base_in_base_rad_s"] * [-1.0, 1.0, -1.0],
        "elevation_map": inputs["elevation_map"][:, :, ::-1],
        "joint_pos_rad": inputs["joint_pos_rad"][:, swap] * flip,
        "joint_vel_rad_s": inputs["joint_vel_rad_s"][:, swap] * flip,
    }
    action = make.normal(0.0, 1.0, (n, 12))
    found, other = (targets_of(own, a, i) for a, i in ((action, inputs), (action * action_sign, mirrored)))
    np.testing.assert_allclose(other[:, swap] * flip, found, atol=1e-9)
    if torch:
        single = {name: torch.from_numpy(np.ascontiguousarray(value)).float() for name, value in inputs.items()}
        same = targets_of(own, torch.from_numpy(action).float(), single)
        np.testing.assert_allclose(same.numpy(), found, atol=1e-4)


# -- contract ------------------------------------------------------------------------------------------------------


def test_a_contract_survives_its_file():
    own = stepping_contract()
    assert PolicyContract.from_json(own.to_json()) == own


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"map_window": None}, "need 'map_window'"),
        ({"action": ActionSpec(JOINT_TARGET, (0.1,) * 12, (0.0,) * 12, 1.0)}, "'target/joint/position' with 'gait"),
        ({"action": ActionSpec(STEP_TARGET, (0.1,) * 11, (0.0,) * 11, 1.0)}, "has 11 entries, expected 12"),
        ({"action": ActionSpec(STEP_TARGET, (0.1,) * 12, (0.1,) * 12, 1.0)}, "expected zeros for steps"),
        ({"gait": None}, "'target/body/steps' without 'gait.steps'"),
        ({"gait": replace(stepping_contract().gait, amplitude_rad=0.3)}, "amplitude_rad is 0.3, expected none beside"),
        ({"gait": replace(stepping_contract().gait, joint_foot=(3, 2, 1, 0) * 3)}, "joint_foot is"),
        ({"gait": replace(stepping_contract().gait, steps=replace(STEPS, legs=LEGS[:3]))}, "has 3 entries, expected 4"),
    ],
)
def test_contracts_that_contradict_themselves_are_refused(change, words):
    with pytest.raises(ContractError, match=words):
        stepping_contract(**change)


def test_a_foot_that_moves_as_it_is_due_is_bound_for_its_place():
    """Half way in time: a foot 10 cm before its place, at the speed of the ease there, with the base 0.3 m/s slower."""
    stepper, progress = make_stepper(), np.full((1, 4), 0.55)
    early, late = (ease(progress + step) for step in (-1e-4, 1e-4))
    swing_s = (1.0 - stepping_contract().gait.duty) / stepping_contract().gait.frequency_hz
    share, rate_1_s = ease(progress), (late - early) / (2e-4 * swing_s)
    feet = np.zeros((1, 4, 2))
    moves = np.zeros((1, 4, 2))
    moves[..., 0] = 0.1 / (1.0 - share) * rate_1_s
    np.testing.assert_allclose(stepper.sense.predicted_touchdown(feet, moves, progress)[..., 0], 0.1, rtol=1e-4)
    body = sensed()
    np.testing.assert_allclose(body.predicted_touchdown, body.feet[..., :2], atol=1e-9)  # nobody moves


def test_legs_need_a_map_even_if_the_network_looks_at_none():
    blind = tuple(term for term in stepping_contract().observations if term.name != "elevation_map")
    assert needs_map(stepping_contract(observations=blind))
    assert not needs_map(map_contract_for(robot_spec("go2"), observations=blind))


def test_a_decoder_that_is_told_nothing_says_so():
    inputs = stepping_inputs(FAR)
    with pytest.raises(ContractError, match="no map"):
        targets_of(stepping_contract(), np.zeros((1, 12)), {**inputs, "elevation_map": None})


def test_the_runtime_repeats_a_bundle_of_steps(tmp_path):
    own = stepping_contract()
    model = linear_model(own)
    golden = with_actions(own, model, golden_data(own))
    write_bundle(tmp_path / "bundle", contract=own, model_bytes=model, golden=golden)
    stages = []
    check_static(lambda: load_bundle(tmp_path / "bundle"), stages.append)
    assert "joint targets" in [stage.name for stage in stages]
    assert all(stage.passed for stage in stages)
