"""The ground under the feet: bilinear heights, lifts on steps and holes, levelling, refusals; numpy and torch alike."""

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.actions.joints import JointDecoder
from gantry_deploy.bundle.bundle import load_bundle, write_bundle
from gantry_deploy.contract.policy_contract import GroundSpec, MapWindow, PolicyContract
from gantry_deploy.errors import ContractError, PolicyError
from gantry_deploy.evaluation.gate import check_static
from gantry_deploy.footsteps.terrain_lookup import foot_lift, heights_at, solid_heights_at
from gantry_deploy.testing.legs import (
    contract_for,
    golden_data,
    linear_model,
    map_contract_for,
    signals_for,
    tiny_robot,
    with_actions,
)
from gantry_fixtures.training import torch
from gantry_hardware.robots import robot_spec

WINDOW = MapWindow(10, 6, 0.1, 0.25, 0.0, ("elevation",))
FEET_X, FEET_Y = np.array([0.2, -0.1]), np.array([0.1, -0.1])
STILL = np.zeros((1, 3))
UPRIGHT = np.zeros((1, 2))


def gait_over(ground: GroundSpec, robot=None):
    """A clock of one step a second, half of it stance, of a foot in front on the left and one behind on the right."""
    gait = contract_for(robot or tiny_robot()).gait
    feet, joints = len(gait.foot_offset), len(gait.joint_foot)
    return replace(
        gait,
        frequency_hz=1.0,
        duty=0.5,
        amplitude_rad=0.0,
        foot_x_m=tuple(np.linspace(FEET_X[0], FEET_X[1], feet)),
        foot_y_m=tuple(np.linspace(FEET_Y[0], FEET_Y[1], feet)),
        stride_x_rad_m=(0.0,) * joints,
        stride_y_rad_m=(0.0,) * joints,
        ground=ground,
    )


def ground_contract(robot=None, **ground) -> PolicyContract:
    contract = map_contract_for(robot or tiny_robot())
    lifts = (0.0, 1.0) * (contract.action_size // 2)
    return replace(contract, gait=gait_over(GroundSpec(lifts, **ground), robot))


def lift(ground, elevation, phase, drive=STILL, tilt=UPRIGHT, turning=STILL):
    grid = np.asarray(elevation, dtype=float)[None, :, :, None]
    arrays = (np.array([phase]), drive, FEET_X, FEET_Y, grid, tilt, turning)
    gait = gait_over(replace(GroundSpec((0.0,) * 4), **ground))
    found = foot_lift(gait, WINDOW, *arrays)
    if torch:
        same = foot_lift(gait, WINDOW, *(torch.from_numpy(values) for values in arrays))
        np.testing.assert_allclose(same.numpy(), found, atol=1e-12)
    return found[0]


def step_at(x_m, height_m):
    """Ground that rises by a step across the way."""
    x = WINDOW.center_x_m + (np.arange(WINDOW.rows) - 0.5 * (WINDOW.rows - 1)) * WINDOW.resolution_m
    return np.repeat(np.where(x > x_m, height_m, 0.0)[:, None], WINDOW.cols, axis=1)


def test_heights_between_cells_are_exact_on_a_plane_and_go_on_beyond_the_window():
    i, j = np.meshgrid(np.arange(10), np.arange(6), indexing="ij")
    x, y = 0.25 + (i - 4.5) * 0.1, (j - 2.5) * 0.1
    plane = (2.0 * x - 3.0 * y)[None]
    asked_x, asked_y = np.array([[0.0, 0.123, 0.69, 9.0]]), np.array([[0.0, -0.21, 0.25, -9.0]])
    expected = 2.0 * np.clip(asked_x, -0.2, 0.7) - 3.0 * np.clip(asked_y, -0.25, 0.25)
    np.testing.assert_allclose(heights_at(WINDOW, plane, asked_x, asked_y), expected, atol=1e-12)


def test_the_edge_of_solid_ground_is_as_high_as_the_ground_beside_it():
    """A bar 0.2 m up in cells of 0.1 m: between its last cell (x = 0.2) and the void's first one (0.3)."""
    cells = 0.25 + (np.arange(10) - 4.5) * 0.1
    bar = np.repeat(np.where(cells < 0.25, 0.2, -1.0)[:, None], 6, axis=1)[None]
    x, y = np.array([[0.1, 0.25, 0.27, 0.29, 0.4]]), np.zeros((1, 5))
    expected = [0.2, 0.2, 0.2, 0.1 * 0.2 - 0.9, -1.0]  # a place nine tenths in the void is no bar's
    for like in (np.asarray, torch.from_numpy) if torch else (np.asarray,):
        found = solid_heights_at(WINDOW, like(bar), like(x), like(y), like(np.array([[0.0]])))
        np.testing.assert_allclose(np.asarray(found)[0], expected, atol=1e-9)
    all_solid = solid_heights_at(WINDOW, bar, x, y, np.array([[-2.0]]))
    np.testing.assert_allclose(all_solid, heights_at(WINDOW, bar, x, y), atol=1e-12)
    nothing = solid_heights_at(WINDOW, bar, x, y, np.array([[1.0]]))
    np.testing.assert_allclose(nothing, heights_at(WINDOW, bar, x, y), atol=1e-12)


def test_only_differences_between_the_feet_count():
    assert lift({}, np.full((10, 6), 7.0), [0.25, 0.25]) == pytest.approx([0.0, 0.0])
    # The front foot stands on the step: 10 cm, of which the mean takes half.
    assert lift({}, step_at(0.1, 0.1), [0.25, 0.25]) == pytest.approx([0.05, -0.05])


def test_a_swinging_foot_is_raised_for_where_it_will_land():
    drive = np.array([[0.8, 0.0, 0.0]])
    # Both feet are on the low ground. At phase 0.75 the front one is in mid-swing, 0.5 of 0.5 s to go at 0.8 m/s:
    # it lands 0.8 * 0.25 (half a stance) + 0.8 * 0.25 ahead of 0.2 m, beyond the edge.
    assert lift({}, step_at(0.45, 0.1), [0.75, 0.25], drive) == pytest.approx([0.1, 0.0])
    assert lift({}, step_at(0.65, 0.1), [0.75, 0.25], drive) == pytest.approx([0.0, 0.0])
    # Whoever stands does not step: the same phase at rest.
    assert lift({}, step_at(0.45, 0.1), [0.75, 0.25]) == pytest.approx([0.0, 0.0])


def test_a_foot_over_a_hole_draws_the_others_down_by_no_more_than_deep():
    deep = step_at(0.05, 3.0) - 3.0  # the rear foot is three metres lower
    assert lift({"deep_m": 0.3}, deep, [0.25, 0.25]) == pytest.approx([0.15, -0.15])
    assert lift({"deep_m": 2.0}, deep, [0.25, 0.25]) == pytest.approx([0.25, -0.25])


def test_levelling_pushes_down_where_the_base_leans_to():
    flat, share = np.zeros((10, 6)), {"level_tilt": 0.5, "level_rate_s": 0.1}
    nose_down, to_the_right = np.array([[0.0, 0.2]]), np.array([[0.2, 0.0]])
    assert lift(share, flat, [0.25, 0.25], tilt=nose_down) == pytest.approx([-0.02, -0.01 * -1.0])
    assert lift(share, flat, [0.25, 0.25], tilt=to_the_right) == pytest.approx([0.01, -0.01])
    turning = np.array([[0.0, 1.0, 5.0]])
    assert lift(share, flat, [0.25, 0.25], turning=turning) == pytest.approx([-0.02, 0.01])
    assert lift({**share, "level_m": 0.005}, flat, [0.25, 0.25], tilt=nose_down) == pytest.approx([-0.005, 0.005])


def test_the_decoder_raises_the_joints_of_a_foot_by_its_gain():
    contract = ground_contract()
    window = contract.map_window
    assert window is not None
    elevation = np.zeros((1, window.rows, window.cols, 2))
    elevation[:, 3:, :, 0] = 0.1  # beyond 0.04 m ahead, under the front foot alone
    action = np.zeros((1, 4))
    signals = signals_for(contract, action, elevation_map=elevation)
    decoder = JointDecoder(contract, action)
    moved = decoder(action, signals).pos_rad[0] - contract.action.offset_rad
    assert moved == pytest.approx([0.0, 0.05, 0.0, -0.05])
    with pytest.raises(ContractError, match="needs the elevation map"):
        decoder(action, replace(signals, elevation_map=None))


def test_a_ground_that_no_window_shows_is_refused():
    with pytest.raises(ContractError, match="needs 'map_window'"):
        replace(ground_contract(), map_window=None)
    with pytest.raises(ContractError, match="lift_rad_m has 3 entries, expected 4"):
        replace(ground_contract(), gait=gait_over(GroundSpec((0.0,) * 3)))


def test_a_gait_bundle_that_was_recorded_on_another_map_is_found_out(tmp_path):
    contract = ground_contract(robot_spec("go2"), level_tilt=0.4)
    assert PolicyContract.from_json(contract.to_json()) == contract
    # A network that does not look: only the gait tells one map from another.
    weight = np.zeros((contract.observation_size, contract.action_size))
    model = linear_model(contract, weight=weight)
    golden = with_actions(contract, model, golden_data(contract))
    write_bundle(tmp_path / "sound", contract=contract, model_bytes=model, golden=golden)
    check_static(lambda: load_bundle(tmp_path / "sound"), lambda stage: None)
    other = with_actions(contract, model, golden | {"elevation_map": golden["elevation_map"] * 0.9})
    wrong = golden | {"joint_target_rad": other["joint_target_rad"]}
    write_bundle(tmp_path / "wrong", contract=contract, model_bytes=model, golden=wrong)
    with pytest.raises(PolicyError, match="joint target"):
        check_static(lambda: load_bundle(tmp_path / "wrong"), lambda stage: None)
