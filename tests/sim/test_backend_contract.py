"""MuJoCo C under mjlab's managers computes what MuJoCo Warp does. `pytest -s` prints the measured tables.

Bounds are the figures below, measured once on Go1 on a plane with 16 environments, times a factor: 10 on the same task,
30 on the others, where robots stand tens of metres from the origin (float32 is coarser there) or have more contacts.
"""

import pytest

from gantry_sim.physics.agreement import AGREEMENT_TASKS, format_agreement, measure_agreement

FORWARD = {
    "xpos": 2.4e-7,
    "xquat": 1.2e-7,
    "cvel": 5.4e-7,
    "subtree_com": 4.8e-7,
    "actuator_force": 6.7e-6,
    "qacc_relative": 1.2e-5,
    "sensordata_relative": 1.1e-4,
}
OPEN_LOOP = {
    "qpos_1": 2.5e-7,
    "qvel_1": 4.9e-5,
    "qpos_4": 1.4e-6,
    "qvel_4": 7.2e-5,
    # Later, a contact that one backend makes a substep earlier separates single environments.
    "qpos_20_median": 3.8e-6,
    "qvel_20_median": 1.1e-4,
    "qpos_100_median": 9.5e-6,
    "qvel_100_median": 9.8e-5,
}
STEP = {
    "actor_1": 1.1e-4,
    "reward_1": 7.6e-7,
    "actor_5_median": 5.8e-5,
    "reward_5_median": 3.0e-7,
    "actor_20_median": 2.1e-4,
    "reward_20_median": 6.3e-7,
}
DERIVED_CONSTANTS_RELATIVE = 1e-5
RAY_M = 1e-5
HEIGHT_FIELD_MEDIAN_M = 0.02

pytestmark = pytest.mark.slow


@pytest.fixture(
    scope="module", params=("go1-flat", pytest.param("g1-rough", marks=pytest.mark.soak))
)  # Both robots and both grounds; `gantry bench` has all.
def task_and_table(request):
    table = measure_agreement(AGREEMENT_TASKS[request.param])
    print("\n" + format_agreement(request.param, table))
    return request.param, table


def assert_within(task, measured, figures):
    factor = 10 if task == "go1-flat" else 30
    beyond = {
        name: (measured[name], factor * figure)
        for name, figure in figures.items()
        if not measured[name] <= factor * figure
    }
    assert not beyond, f"{task}: (measured, bound) {beyond}"


def test_randomised_models_are_the_same(task_and_table):
    _, table = task_and_table
    for name, difference in table["model"].items():
        assert difference <= (DERIVED_CONSTANTS_RELATIVE if name.endswith("_relative") else 0.0), name


def test_seeded_resets_are_the_same(task_and_table):
    _, table = task_and_table
    assert table["reset"]["qpos"] == 0.0
    assert table["reset"]["qvel"] == 0.0
    assert table["reset"]["actor"] < 1e-5


def test_forward_from_one_state_agrees(task_and_table):
    task, table = task_and_table
    assert_within(task, table["forward"], FORWARD)


def test_open_loop_physics_agrees(task_and_table):
    task, table = task_and_table
    assert_within(task, table["open_loop"], OPEN_LOOP)


def test_whole_control_steps_agree(task_and_table):
    task, table = task_and_table
    assert_within(task, table["step"], STEP)
    assert table["step"]["done_count"] >= 4  # or resets on the way were not compared
    assert table["step"]["done_mismatch_count"] == 0


def test_rays_agree(task_and_table):
    _, table = task_and_table
    for name, difference in table["rays"].items():
        assert difference <= (0 if name.endswith("_count") else RAY_M), name


def test_height_fields_carry_robots_alike(task_and_table):
    task, table = task_and_table
    assert ("height_fields" in table) == task.endswith("rough")
    if "height_fields" in table:
        assert table["height_fields"]["qpos_20_median"] < HEIGHT_FIELD_MEDIAN_M


def test_warp_dropped_no_contacts(task_and_table):
    _, table = task_and_table
    assert 0.0 < table["limits"]["contacts_used"] < 1.0
    assert 0.0 < table["limits"]["constraint_rows_used"] < 1.0
