"""Observation terms against hand-made numbers, on numpy as on torch, with history and resets of single rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.contract.policy_contract import GaitSpec
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.builder import TERMS, ObservationBuilder, Signals, make_term
from gantry_deploy.observations.road import DRIVING_TERMS
from gantry_deploy.testing.legs import contract_for, tiny_robot
from gantry_fixtures.training import torch
from gantry_hardware import UnknownNameError

CONTRACT = contract_for(tiny_robot())
NAMESPACES = {
    "numpy": lambda values, dtype="float32": np.asarray(values, dtype=dtype),
    "torch": lambda values, dtype="float32": torch.as_tensor(np.asarray(values, dtype=dtype)),
}
HALF = math.sqrt(0.5)


@pytest.fixture(params=NAMESPACES)
def make(request):
    """Builds an array of the namespace under test."""
    return NAMESPACES[request.param]


def signals(make, rows=1, **fields):
    values = {
        "joint_pos_rad": np.tile([0.25, 0.5, 0.25, 0.5], (rows, 1)),
        "joint_vel_rad_s": np.zeros((rows, 4)),
        "quat_base_to_world_wxyz": np.tile([1.0, 0.0, 0.0, 0.0], (rows, 1)),
        "ang_vel_base_in_base_rad_s": np.zeros((rows, 3)),
        "command": np.zeros((rows, 3)),
        "last_action": np.zeros((rows, 4)),
        "time_s": np.zeros(rows),
    }
    return Signals(**{name: make(fields.get(name, value)) for name, value in values.items()})


def observe(make, terms, **fields):
    contract = replace(CONTRACT, observations=tuple(terms))
    builder = ObservationBuilder(contract, make([[0.0]]))
    return np.asarray(builder(signals(make, **fields)))


def test_joint_positions_are_relative_to_the_default_pose(make):
    found = observe(make, [make_term("joint_pos", 4)], joint_pos_rad=[[0.35, 0.5, -0.25, 1.0]])
    np.testing.assert_allclose(found, [[0.1, 0.0, -0.5, 0.5]], atol=1e-7)


@pytest.mark.parametrize(
    ("quat_wxyz", "gravity"),
    [
        ((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, -1.0)),
        ((HALF, HALF, 0.0, 0.0), (0.0, -1.0, 0.0)),  # rolled by +90 deg about x: left side up, gravity to the right
        ((HALF, 0.0, HALF, 0.0), (1.0, 0.0, 0.0)),  # pitched by +90 deg about y: nose down, gravity ahead
        ((HALF, 0.0, 0.0, HALF), (0.0, 0.0, -1.0)),  # yaw does not matter
        ((0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0)),  # on its back
        ((0.5, 0.5, 0.5, 0.5), (0.0, -1.0, 0.0)),  # turns x to y, y to z, z to x: the y axis points up
        ((0.5, 0.5, -0.5, 0.5), (-1.0, 0.0, 0.0)),  # the x axis points up
        ((math.cos(0.1), 0.0, math.sin(0.1), 0.0), (math.sin(0.2), 0.0, -math.cos(0.2))),
    ],
)
def test_projected_gravity(make, quat_wxyz, gravity):
    found = observe(make, [make_term("projected_gravity", 3)], quat_base_to_world_wxyz=[quat_wxyz])
    np.testing.assert_allclose(found, [gravity], atol=1e-6)


def test_terms_that_pass_signals_through(make):
    terms = [make_term(name, size) for name, size in (("joint_vel", 4), ("last_action", 4), ("velocity_command", 3))]
    found = observe(
        make,
        [make_term("base_ang_vel", 3), *terms],
        ang_vel_base_in_base_rad_s=[[1, 2, 3]],
        joint_vel_rad_s=[[4, 5, 6, 7]],
        last_action=[[8, 9, 10, 11]],
        command=[[12, 13, 14]],
    )
    np.testing.assert_array_equal(found, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]])


def test_the_gait_clock_runs_only_while_moving(make):
    # 2 Hz, so 0.125 s are a quarter of a period.
    found = observe(
        make,
        [make_term("gait_clock", 2)],
        rows=3,
        time_s=[0.0, 0.125, 0.125],
        command=[[0.5, 0, 0], [0.5, 0, 0], [0.05, 0, 0]],
    )
    np.testing.assert_allclose(found, [[0, 1], [1, 0], [0, 0]], atol=1e-6)


def test_a_term_shows_the_joints_that_it_names_in_its_order(make):
    first, second, third, fourth = CONTRACT.joint_names
    terms = [
        replace(make_term("joint_pos", 2), joints=(fourth, first)),
        replace(make_term("joint_cos_sin", 4), joints=(third, second)),
        replace(make_term("joint_vel", 1), joints=(second,)),
    ]
    pos = np.array([[0.35, 0.5, -0.25, 1.0]])
    found = observe(make, terms, joint_pos_rad=pos, joint_vel_rad_s=[[1, 2, 3, 4]])
    relative = pos - np.array(CONTRACT.default_pos_rad)
    expected = [relative[0, 3], relative[0, 0], np.cos(-0.25), np.cos(0.5), np.sin(-0.25), np.sin(0.5), 2.0]
    np.testing.assert_allclose(found, [expected], rtol=1e-6)


def test_joints_of_other_terms_and_unknown_joints_are_refused(make):
    with pytest.raises(ContractError, match=r"'base_ang_vel': .* expected none but for joint_pos, "):
        observe(make, [replace(make_term("base_ang_vel", 3), joints=CONTRACT.joint_names[:1])])
    with pytest.raises(UnknownNameError, match="joint of observation 'joint_vel'"):
        observe(make, [replace(make_term("joint_vel", 1), joints=("tail",))])


def test_values_are_clipped_before_they_are_scaled(make):
    terms = [make_term("joint_vel", 4, scale=0.5, clip=4.0), make_term("base_ang_vel", 3, scale=10.0)]
    found = observe(make, terms, joint_vel_rad_s=[[1, 9, -9, -2]], ang_vel_base_in_base_rad_s=[[9, -9, 0]])
    np.testing.assert_array_equal(found, [[0.5, 2, -2, -1, 90, -90, 0]])


def history_builder(make, rows):
    terms = (make_term("base_ang_vel", 3, history=1), make_term("velocity_command", 3, history=3))
    contract = replace(CONTRACT, observations=terms)
    return ObservationBuilder(contract, make(np.zeros((rows, 1))))


def frame(make, *values):
    """Signals whose numbers all say which frame they are from, one per row."""
    rows = np.repeat(np.asarray(values, dtype=float)[:, None], 3, axis=1)
    return signals(make, rows=len(values), command=rows, ang_vel_base_in_base_rad_s=-rows)


def test_history_is_oldest_first_and_filled_by_the_first_frame(make):
    builder = history_builder(make, 1)
    found = [np.asarray(builder(frame(make, value))) for value in (1, 2, 3, 4)]
    expected = [
        [-1, -1, -1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        [-2, -2, -2, 1, 1, 1, 1, 1, 1, 2, 2, 2],
        [-3, -3, -3, 1, 1, 1, 2, 2, 2, 3, 3, 3],
        [-4, -4, -4, 2, 2, 2, 3, 3, 3, 4, 4, 4],
    ]
    np.testing.assert_array_equal(np.concatenate(found), expected)


def test_a_reset_forgets_only_its_rows(make):
    builder = history_builder(make, 2)
    builder(frame(make, 1, 10))
    builder(frame(make, 2, 20))
    builder.reset(make([False, True], "bool"))
    found = np.asarray(builder(frame(make, 3, 30)))
    np.testing.assert_array_equal(found[:, 3:], [[1, 1, 1, 2, 2, 2, 3, 3, 3], [30] * 9])
    found = np.asarray(builder(frame(make, 4, 40)))
    np.testing.assert_array_equal(found[:, 3:], [[2, 2, 2, 3, 3, 3, 4, 4, 4], [30] * 6 + [40] * 3])
    builder.reset()
    found = np.asarray(builder(frame(make, 5, 50)))
    np.testing.assert_array_equal(found[:, 3:], [[5] * 9, [50] * 9])


def test_numpy_and_torch_agree_on_every_term_with_history_and_resets():
    some = replace(make_term("joint_cos_sin", 4), joints=CONTRACT.joint_names[1::2])
    raw = make_term("joint_pos_absolute", 4), make_term("base_rotation", 4), some
    terms = tuple(
        replace(term, history=1 + i % 3, clip=1.0 if i % 2 else None, scale=0.5 + i)
        for i, term in enumerate((*CONTRACT.observations, *raw))
    )
    # See test_goals.py and tests/sim/test_mjlab_tasks.py.
    goal_terms = {"base_lin_vel", "goal_command", "elevation_map", "height_scan"}
    arm_terms = {name for name in TERMS if name.startswith(("ee_", "object_"))} | {
        "joint_lead",
        "joint_from_start",
        "goal_from_object",
    }
    told_terms = {"instruction", "things_from_ee", "zones_from_ee"}  # see language/ and tests/sim/manipulation/language
    covered = set(TERMS) - goal_terms - arm_terms - told_terms - set(DRIVING_TERMS)  # test_arm.py, test_driving.py
    assert {term.name for term in terms} == covered, "a term is not covered here"
    contract = replace(CONTRACT, observations=terms)
    builders = {name: ObservationBuilder(contract, make(np.zeros((5, 1)))) for name, make in NAMESPACES.items()}
    rng = np.random.default_rng(0)
    for step in range(8):
        quat = rng.normal(size=(5, 4))
        fields = {
            "joint_pos_rad": rng.normal(size=(5, 4)),
            "joint_vel_rad_s": rng.normal(size=(5, 4)),
            "quat_base_to_world_wxyz": quat / np.linalg.norm(quat, axis=1, keepdims=True),
            "ang_vel_base_in_base_rad_s": rng.normal(size=(5, 3)),
            "command": rng.normal(size=(5, 3)) * 0.1,
            "last_action": rng.normal(size=(5, 4)),
            "time_s": rng.uniform(0, 20, 5),
        }
        if step in (3, 6):
            rows = rng.uniform(size=5) < 0.5
            for name, make in NAMESPACES.items():
                builders[name].reset(make(rows, "bool"))
        results = [np.asarray(builders[name](signals(make, rows=5, **fields))) for name, make in NAMESPACES.items()]
        assert results[0].shape == (5, contract.observation_size)
        np.testing.assert_allclose(results[0], results[1], atol=2e-5)


def test_a_row_of_a_batch_is_what_the_robot_sees_alone():
    rng = np.random.default_rng(1)
    make = NAMESPACES["numpy"]
    terms = tuple(replace(term, history=2) for term in CONTRACT.observations)
    contract = replace(CONTRACT, observations=terms)
    batch, single = (ObservationBuilder(contract, make(np.zeros((rows, 1)))) for rows in (4, 1))
    for _ in range(3):
        pos, command = rng.normal(size=(4, 4)), rng.normal(size=(4, 3))
        together = batch(signals(make, rows=4, joint_pos_rad=pos, command=command))
        alone = single(signals(make, joint_pos_rad=pos[2:3], command=command[2:3]))
        np.testing.assert_array_equal(together[2:3], alone)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_the_dtype_and_namespace_of_the_input_are_kept(name):
    dtype = getattr(torch, name)
    builder = ObservationBuilder(CONTRACT, torch.zeros(1, 1, dtype=dtype))
    assert builder(signals(lambda array: torch.as_tensor(np.asarray(array), dtype=dtype))).dtype == dtype


def test_a_term_of_another_size_is_refused(make):
    with pytest.raises(ContractError, match="'joint_pos' has 4 numbers, the contract says 5"):
        observe(make, [make_term("joint_pos", 5)])


@pytest.mark.parametrize(("item", "value"), [("kind", "state/body/velocity"), ("frame", "world"), ("unit", "deg/s")])
def test_a_term_that_means_something_else_is_refused_with_both_sides(make, item, value):
    term = make_term("base_ang_vel", 3)
    for same in (term, replace(term, **{item: ""})):
        ObservationBuilder(replace(CONTRACT, observations=(same,)), make(np.zeros((1, 1))))
    other = replace(CONTRACT, observations=(replace(term, **{item: value}),))
    text = f"'base_ang_vel': the contract's {item} is '{value}', this runtime's is '{getattr(term, item)}'"
    with pytest.raises(ContractError, match=text):
        ObservationBuilder(other, make(np.zeros((1, 1))))


def test_an_unknown_term_is_refused_with_the_near_miss(make):
    with pytest.raises(UnknownNameError, match="Did you mean 'joint_vel'"):
        observe(make, [replace(make_term("joint_vel", 4), name="joint_vels")])


def test_a_gait_clock_without_a_gait_is_refused(make):
    contract = replace(CONTRACT, gait=None)
    assert isinstance(CONTRACT.gait, GaitSpec)
    with pytest.raises(ContractError, match="needs a gait"):
        ObservationBuilder(contract, make([[0.0]]))(signals(make))
