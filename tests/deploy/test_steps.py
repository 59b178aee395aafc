"""Legs that are told where to step: kinematics and forces by their laws, who carries, where feet go, refusals.

Everything runs on numpy, and the decoder on torch as well.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.actions import ActionDecoder, decoder_inputs
from gantry_deploy.arm_spec import JOINT_TARGET
from gantry_deploy.bundle import load_bundle, write_bundle
from gantry_deploy.check import check_static
from gantry_deploy.contract import ActionSpec, CarrotSpec, GaitSpec, PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.forces import foot_forces, skew
from gantry_deploy.legs import Legs
from gantry_deploy.step_spec import STEP_NAMES, STEP_TARGET, LegSpec, StepsSpec, SupportSpec, SwingSpec
from gantry_deploy.steps import GRAVITY_M_S2, Stepper, level_rotation
from gantry_deploy.testing import golden_data, linear_model, map_contract_for, with_actions
from gantry_hardware.robots import robot_spec

SIGNS = ((1, -1), (1, 1), (-1, -1), (-1, 1))  # FR, FL, RR, RL
LEGS = tuple(LegSpec((x * 0.1934, y * 0.0465, 0.0), y * 0.0955, 0.213, 0.213, x * 0.19, y * 0.126) for x, y in SIGNS)
MASS_KG, RADIUS_M, STAND_M = 15.0, 0.022, 0.28
STEPS = StepsSpec(LEGS, SupportSpec(MASS_KG, (0.0, 0.0, 0.0), (0.12, 0.32, 0.36)), SwingSpec(RADIUS_M))
FAR, THERE = [[5.0, 0.0, 0.0, 1.0]], [[0.1, 0.0, 0.0, 1.0]]
UPRIGHT = [[1.0, 0.0, 0.0, 0.0]]


def contract(**changes) -> PolicyContract:
    base = map_contract_for(robot_spec("go2"))
    n = len(base.joint_names)
    gait = GaitSpec(
        frequency_hz=2.5,
        duty=0.5,
        foot_offset=(0.5, 0.0, 0.0, 0.5),
        amplitude_rad=0.0,
        lead_s=0.0,
        joint_foot=tuple(i // 3 for i in range(n)),
        joint_gain=(0.0,) * n,
        stand_below=0.1,
        steps=STEPS,
    )
    action = ActionSpec(STEP_TARGET, (0.1,) * len(STEP_NAMES), (0.0,) * len(STEP_NAMES), 2.5)
    command = replace(base.command, carrot=CarrotSpec(speed_m_s=0.5, stop_m=0.3, stop_rad=0.3))
    return replace(base, **{"gait": gait, "action": action, "command": command, **changes})


def arrays(command, time_s=0.05, **changes):
    """Inputs of the decoder: a robot that stands on flat ground, feet below where they stand."""
    own = contract()
    feet = np.array([[(leg.stand_x_m, leg.stand_y_m, RADIUS_M - STAND_M) for leg in LEGS]])
    flat = np.full((1, 14, 8, 2), own.map_window.nominal_base_height_m - STAND_M)
    values = {
        "time_s": np.array([time_s]),
        "command": np.array(command),
        "quat_base_to_world_wxyz": np.array(UPRIGHT),
        "ang_vel_base_in_base_rad_s": np.zeros((1, 3)),
        "elevation_map": flat,
        "joint_pos_rad": Legs(LEGS, np.zeros(1)).joints(feet),
        "joint_vel_rad_s": np.zeros((1, 12)),
    }
    return {**values, **changes}


def decoded(command, action=None, time_s=0.05, **changes):
    """Joint targets (12,) by numpy, after torch has given the same."""
    own, inputs = contract(), arrays(command, time_s, **changes)
    action = np.zeros((1, 12)) if action is None else action
    found = ActionDecoder(own, action)(action, **inputs)
    same = ActionDecoder(own, torch.from_numpy(action))(
        torch.from_numpy(action), **{name: torch.from_numpy(value) for name, value in inputs.items()}
    )
    np.testing.assert_allclose(same.numpy(), found, atol=1e-10)
    return found[0]


def stepper():
    return Stepper(contract(), np.zeros((1, 1)))


def sensed(command, time_s=0.05, drive=None, **changes):
    inputs = arrays(command, time_s, **changes)
    drive = np.array([[0.5, 0.0, 0.0]]) if drive is None else np.array(drive)
    names = ("quat_base_to_world_wxyz", "ang_vel_base_in_base_rad_s", "joint_pos_rad", "joint_vel_rad_s")
    return stepper().sense(inputs["time_s"], drive, *(inputs[name] for name in names))


# -- kinematics ----------------------------------------------------------------------------------------------------


def joints(count, seed=0):
    """Random joint positions of legs below the hips, knees bent neither fully nor not at all, (count, 12)."""
    low, high = np.array([-0.7, -0.2, -2.3]), np.array([0.7, 1.4, -0.9])
    return (low + (high - low) * np.random.default_rng(seed).random((count, 4, 3))).reshape(count, 12)


def test_joints_of_feet_are_those_that_put_them_there():
    legs, angles = Legs(LEGS, np.zeros(1)), joints(200)
    np.testing.assert_allclose(legs.joints(legs.feet(angles)[0]), angles, atol=1e-9)


def test_a_place_out_of_reach_is_reached_for():
    legs = Legs(LEGS, np.zeros(1))
    foot = legs.feet(joints(1))[0]
    wanted = foot - np.array([0.0, 0.0, 1.0])
    reached = legs.feet(legs.joints(wanted))[0]
    assert (reached[..., 2] < foot[..., 2]).all()
    length = np.sqrt(((reached - legs.hip_b) ** 2).sum(-1) - legs.side_m**2)
    np.testing.assert_allclose(length, 0.981 * 0.426, atol=1e-6)


def test_jacobian_is_the_change_of_the_feet():
    legs, angles, step = Legs(LEGS, np.zeros(1)), joints(5), 1e-5
    jacobian = legs.feet(angles)[1]
    for k in range(12):
        shift = np.zeros(12)
        shift[k] = step
        change = (legs.feet(angles + shift)[0] - legs.feet(angles - shift)[0]) / (2 * step)
        expected = np.zeros((5, 4, 3))
        expected[:, k // 3] = jacobian[:, k // 3, :, k % 3]
        np.testing.assert_allclose(change, expected, atol=1e-8)


def quaternion(roll, pitch, yaw):
    """Roll first, then pitch, then yaw, about the world's axes, (1, 4)."""
    (cr, sr), (cp, sp), (cy, sy) = ((math.cos(a / 2), math.sin(a / 2)) for a in (roll, pitch, yaw))
    return np.array(
        [
            [
                cr * cp * cy + sr * sp * sy,
                sr * cp * cy - cr * sp * sy,
                cr * sp * cy + sr * cp * sy,
                cr * cp * sy - sr * sp * cy,
            ]
        ]
    )


def test_the_level_frame_leans_and_does_not_turn():
    for yaw in (0.0, 1.0, -3.0):
        level = level_rotation(quaternion(0.0, 0.2, yaw))[0]
        np.testing.assert_allclose(level[:, 0], (math.cos(0.2), 0.0, -math.sin(0.2)), atol=1e-9)  # nose down
        level = level_rotation(quaternion(0.3, 0.0, yaw))[0]
        np.testing.assert_allclose(level[:, 1], (0.0, math.cos(0.3), math.sin(0.3)), atol=1e-9)  # left side up


@pytest.mark.parametrize("yaw", [0.0, 2.0])
def test_the_velocity_is_that_of_the_standing_feet_seen_from_the_base(yaw):
    """A base that moves and turns over feet that stand: joints by differences of the inverse kinematics."""
    legs, vel, turn, dt = Legs(LEGS, np.zeros(1)), np.array([0.4, -0.2, 0.1]), 0.7, 1e-5
    attitude = level_rotation(quaternion(0.1, -0.15, 0.0))[0]
    feet_w = np.array([(leg.stand_x_m, leg.stand_y_m, 0.0) for leg in LEGS])

    def joints_at(time_s):
        c, s = math.cos(turn * time_s), math.sin(turn * time_s)
        rotation = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]) @ attitude
        place = np.array([0.0, 0.0, STAND_M]) + time_s * vel
        return legs.joints(((feet_w - place) @ rotation)[None])

    body = sensed(
        FAR,
        quat_base_to_world_wxyz=quaternion(0.1, -0.15, yaw),
        ang_vel_base_in_base_rad_s=(attitude.T @ np.array([0.0, 0.0, turn]))[None],
        joint_pos_rad=joints_at(0.0),
        joint_vel_rad_s=(joints_at(dt) - joints_at(-dt)) / (2 * dt),
    )
    np.testing.assert_allclose(body.vel, vel[None], atol=1e-6)


# -- forces --------------------------------------------------------------------------------------------------------

ARMS = np.array([[[0.19, -0.14, -0.28], [0.19, 0.14, -0.28], [-0.19, -0.14, -0.28], [-0.19, 0.14, -0.28]]])


def test_a_cross_product_is_a_matrix():
    a, b = np.array([1.0, 2.0, 3.0]), np.array([-1.0, 0.5, 2.0])
    np.testing.assert_allclose(skew(a) @ b, np.cross(a, b))


def test_four_feet_give_the_wrench():
    force, torque = np.array([[6.0, -5.0, 150.0]]), np.array([[2.0, -3.0, 1.0]])
    found = foot_forces(force, torque, ARMS, np.ones((1, 4), bool), 0.6)
    np.testing.assert_allclose(found.sum(1), force, atol=0.2)
    np.testing.assert_allclose(np.cross(ARMS, found).sum(1), torque, atol=0.05)


def test_feet_in_the_air_carry_nothing_and_the_others_all():
    on = np.array([[True, False, False, True], [False] * 4])
    force = np.array([[0.0, 0.0, 150.0]] * 2)
    found = foot_forces(force, np.zeros((2, 3)), np.repeat(ARMS, 2, 0), on, 0.6)
    assert np.abs(found[~on]).max() == 0.0
    np.testing.assert_allclose(found[0, [0, 3], 2], 75.0, atol=0.5)


def test_feet_push_and_slide_not():
    make = np.random.default_rng(1)
    force, torque = 200.0 * make.normal(size=(100, 3)), 60.0 * make.normal(size=(100, 3))
    found = foot_forces(force, torque, np.repeat(ARMS, 100, 0), np.ones((100, 4), bool), 0.4)
    assert found[..., 2].min() == 0.0
    assert found[..., 2].max() <= 220.0
    assert (np.linalg.norm(found[..., :2], axis=-1) <= 0.4 * found[..., 2] + 1e-4).all()


def forces_of(targets, inputs):
    """What the joints' stiffness makes the feet push the ground with, (4, 3), N."""
    own = contract()
    jacobian = Legs(LEGS, np.zeros(1)).feet(inputs["joint_pos_rad"])[1][0]
    torque = np.array(own.stiffness_nm_rad) * (targets - inputs["joint_pos_rad"][0])
    return np.array([np.linalg.solve(jacobian[i].T, torque[3 * i : 3 * i + 3]) for i in range(4)])


def test_who_is_where_it_is_to_be_stands_on_four_feet_whatever_the_policy_says():
    """The weight, a quarter on each foot; neither clock nor places nor velocities count, but a lower base does."""
    inputs = arrays(THERE)
    height = STAND_M - STEPS.support.height_m  # of the base over what is asked for
    lift = MASS_KG * (GRAVITY_M_S2 - STEPS.support.height_gain_1_s2 * height)
    for time_s in (0.05, 0.15, 0.25):
        for action in (np.zeros((1, 12)), np.array([[1.0] * 9 + [0.0] * 3])):
            pushed = forces_of(decoded(THERE, action, time_s), inputs)
            np.testing.assert_allclose(pushed[:, 2], -lift / 4, atol=0.3)
            np.testing.assert_allclose(pushed[:, :2], 0.0, atol=0.5)
    lower = np.zeros((1, 12))
    lower[0, STEP_NAMES.index("base_height_m")] = -0.2  # times 0.1
    expected = lift - MASS_KG * STEPS.support.height_gain_1_s2 * 0.02
    np.testing.assert_allclose(forces_of(decoded(THERE, lower), inputs)[:, 2].sum(), -expected, rtol=0.01)


def test_velocity_is_held_by_a_force():
    """The goal's 0.5 m/s and the policy's -0.2 m/s, of a robot at rest, on the two feet that stand: they give what they
    can without pitching the base, in proportion to the error."""
    action = np.zeros((1, 12))
    pushed = []
    for added in (0.0, -2.0, -5.0, -8.0):
        action[0, STEP_NAMES.index("lin_vel_x_m_s")] = added
        forces = forces_of(decoded(FAR, action), arrays(FAR))[[1, 2]]  # FL and RR stand in the clock's first half
        pushed.append(-forces[:, 0].sum())
    whole = MASS_KG * STEPS.support.velocity_gain_1_s * 0.5
    assert 0.5 * whole < pushed[0] < whole
    np.testing.assert_allclose(np.array(pushed) / pushed[0], (1.0, 0.6, 0.5, 0.5), rtol=0.02)  # at most 2.5 units


# -- feet in the air -----------------------------------------------------------------------------------------------


def test_the_clock_lifts_diagonal_feet_in_turn():
    assert sensed(FAR, 0.05).swings.tolist() == [[True, False, False, True]]
    assert sensed(FAR, 0.25).swings.tolist() == [[False, True, True, False]]
    assert sensed(THERE, 0.25, drive=[[0.0, 0.0, 0.0]]).swings.tolist() == [[False] * 4]
    body = sensed(FAR, 0.05)
    np.testing.assert_allclose(body.progress, [[0.25, 0.0, 0.0, 0.25]])
    np.testing.assert_allclose(body.left_s, [[0.15, 0.0, 0.0, 0.15]])


def test_feet_land_half_a_stance_ahead_and_where_the_body_will_be():
    own, drive = stepper(), np.array([[0.5, 0.0, 0.0]])
    body = replace(sensed(FAR, 0.05), vel=np.array([[0.5, 0.0, 0.0]]))
    land = own.landing(body, drive[:, :2], drive[:, 2:])
    np.testing.assert_allclose(land[0, 0], (0.19 + 0.5 * 0.15 + 0.5 * 0.1, -0.126))
    late = own.landing(replace(body, vel=np.array([[0.7, 0.1, 0.0]])), drive[:, :2], drive[:, 2:])
    capture = STEPS.swing.capture_s
    np.testing.assert_allclose(late - land, [[(0.2 * capture, 0.1 * capture)] * 4], atol=1e-12)
    turned = own.landing(body, 0.0 * drive[:, :2], np.array([[0.4]]))[0, 0]  # 0.25 s on: 0.1 rad to the left
    capture_x = -capture * 0.5  # of a velocity of 0.5 m/s that is not wanted now
    expected = 0.19 * math.cos(0.1) + 0.126 * math.sin(0.1) - capture_x, -0.126 * math.cos(0.1) + 0.19 * math.sin(0.1)
    np.testing.assert_allclose(turned, expected, atol=1e-12)


def test_the_policy_moves_places_of_front_and_rear_feet():
    own, body, drive = stepper(), sensed(FAR, 0.05), np.array([[0.5, 0.0, 0.0]])
    ground = own.ground(arrays(FAR)["elevation_map"])
    steps = np.zeros((1, 12))
    still = own.plan(steps, body, drive, ground).places
    np.testing.assert_allclose(still[..., 2], RADIUS_M - STAND_M)
    steps[0, :6] = 0.1, 0.02, 0.05, -0.1, 0.03, -0.04
    front, rear = [0.1, 0.02, 0.05], [-0.1, 0.03, -0.04]
    moved = own.plan(steps, body, drive, ground).places - still
    np.testing.assert_allclose(moved[0], [front, front, rear, rear], atol=1e-12)


def test_a_foot_follows_the_clock_up_and_to_its_place():
    """Where the targets of a foot in the air are, at once and at last, over flat ground and onto a block."""
    legs = Legs(LEGS, np.zeros(1))
    over = arrays(FAR)["elevation_map"]
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


def test_ground_beside_a_void_counts_little():
    own, body = stepper(), sensed(FAR, 0.05)
    place = np.array([[[0.3, -0.126]] * 4])
    for depth, expected in ((-2.0, -0.15), (-0.1, -0.1), (1.0, 0.25)):
        ground = np.full((1, 14, 8), depth - STAND_M)
        np.testing.assert_allclose(own.stepped_on(body, ground, place) + STAND_M, [[expected] * 4], atol=1e-9)


def test_a_foot_that_has_come_to_rest_late_in_its_swing_carries():
    legs = Legs(LEGS, np.zeros(1))
    inputs = arrays(FAR)
    jacobian = legs.feet(inputs["joint_pos_rad"])[1][0]
    falling = np.zeros((1, 12))
    falling[0, :3] = np.linalg.solve(jacobian[0], (0.0, 0.0, -0.5))
    assert sensed(FAR, 0.05).landed.tolist() == [[False] * 4]
    assert sensed(FAR, 0.15).landed.tolist() == [[True, False, False, True]]
    assert sensed(FAR, 0.15, joint_vel_rad_s=falling).landed.tolist() == [[False, False, False, True]]


def test_limits_hold_whatever_is_asked():
    own = contract()
    for seed in range(20):
        make = np.random.default_rng(seed)
        target = decoded(
            make.normal(0.0, 3.0, (1, 4)), make.normal(0.0, 3.0, (1, 12)), float(make.uniform(0.0, 1.0)),
            joint_vel_rad_s=make.normal(0.0, 5.0, (1, 12)),
            elevation_map=make.normal(0.0, 1.0, (1, 14, 8, 2)),
        )  # fmt: skip
        assert np.isfinite(target).all()
        assert (target >= np.array(own.joint_lower_rad) - 1e-12).all()
        assert (target <= np.array(own.joint_upper_rad) + 1e-12).all()


# -- contract ------------------------------------------------------------------------------------------------------


def test_a_contract_survives_its_file_and_names_what_it_needs():
    own = contract()
    assert PolicyContract.from_json(own.to_json()) == own
    assert decoder_inputs(own)[-3:] == ("elevation_map", "joint_pos_rad", "joint_vel_rad_s")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"map_window": None}, "need 'map_window'"),
        ({"action": ActionSpec(JOINT_TARGET, (0.1,) * 12, (0.0,) * 12, 1.0)}, "come together"),
        ({"action": ActionSpec(STEP_TARGET, (0.1,) * 11, (0.0,) * 11, 1.0)}, "has 11 entries, expected 12"),
        ({"action": ActionSpec(STEP_TARGET, (0.1,) * 12, (0.1,) * 12, 1.0)}, "expected zeros for steps"),
        ({"gait": None}, "come together"),
        ({"gait": replace(contract().gait, steps=replace(STEPS, legs=LEGS[:3]))}, "has 3 entries, expected 4"),
    ],
)
def test_contracts_that_contradict_themselves_are_refused(change, words):
    with pytest.raises(ContractError, match=words):
        contract(**change)


def test_a_decoder_that_is_told_nothing_says_so():
    with pytest.raises(ContractError, match=r"needs attitude, turning rate, joints and the map"):
        ActionDecoder(contract(), np.zeros((1, 1)))(np.zeros((1, 12)), np.zeros(1), np.array(FAR))


def test_the_runtime_repeats_a_bundle_of_steps(tmp_path):
    own = contract()
    model = linear_model(own)
    golden = with_actions(own, model, golden_data(own))
    write_bundle(tmp_path / "bundle", contract=own, model_bytes=model, golden=golden)
    stages = []
    check_static(lambda: load_bundle(tmp_path / "bundle"), stages.append)
    assert "joint targets" in [stage.name for stage in stages]
    assert all(stage.passed for stage in stages)
