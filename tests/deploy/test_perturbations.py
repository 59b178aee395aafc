"""Perturbations as data, and a machine's dynamics against a contract's ranges: numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.contract.parts import TrainedRange
from gantry_deploy.contract.policy_contract import Acceptance
from gantry_deploy.contract.trained_range import beyond_training
from gantry_deploy.evaluation.metrics import goal_scores, tracking_scores
from gantry_deploy.evaluation.perturbations.perturbation import Pushes, changed, draw_pushes
from gantry_deploy.evaluation.perturbations.suite import (
    PerturbedResult,
    chosen,
    judge_perturbed,
    perturbations_of,
    perturbed_config,
    table,
    worst,
)
from gantry_deploy.evaluation.scenario import RolloutConfig
from gantry_deploy.testing.legs import contract_for, tiny_robot
from gantry_fixtures.arm import arm_contract_for
from gantry_fixtures.drive import drive_contract_for
from gantry_fixtures.training import needs
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.dynamics import Estimate, RobotDynamics, save_dynamics
from gantry_hardware.robots import robot_spec

GO2 = robot_spec("go2")
CONTRACT = contract_for(GO2)
LEGS = {item.name: item for item in perturbations_of(CONTRACT, GO2)}


def machine(joints=None, whole=None, robot="go2"):
    each = {joint: {name: Estimate(value) for name, value in found.items()} for joint, found in (joints or {}).items()}
    return RobotDynamics(robot, each, {name: Estimate(value) for name, value in (whole or {}).items()})


def rng(seed=0):
    print("seed", seed)
    return np.random.default_rng(seed)


def test_changes_add_to_what_is_usually_zero_multiply_the_rest_and_stay_in_bounds():
    assert changed("coulomb_friction_nm", 0.2, 0.5) == pytest.approx(0.7)
    assert changed("command_delay_s", 0.01, 0.02) == pytest.approx(0.03)
    assert changed("stiffness_share", 0.9, 0.85) == pytest.approx(0.765)
    assert changed("effort_limit_nm", 20.0, 0.85) == pytest.approx(17.0)
    assert changed("corner_speed_rad_s", 12.0, 18.0) == 12.0
    assert changed("no_load_speed_rad_s", 1e4, 30.0) == 30.0
    assert changed("encoder_offset_rad", 0.49, 0.02) == 0.5


def test_numbers_of_a_go2():
    options = {"friction": 0.9, "added_mass_kg": 1.0, "noise": 1.0}
    assert GO2.mass_kg == pytest.approx(15.207, abs=1e-3)
    assert LEGS["heavy"].applied(options, GO2, rng())["added_mass_kg"] == pytest.approx(3.041, abs=1e-3)
    assert LEGS["light"].applied(options, GO2, rng())["added_mass_kg"] == pytest.approx(-1.014, abs=1e-3)
    assert LEGS["slippery"].applied(options, GO2, rng()) == {**options, "friction": 0.3}
    weak = LEGS["weak"].applied(options, GO2, rng())["dynamics"]
    hip, calf = GO2.joint_index("FL_hip_joint"), GO2.joint_index("FL_calf_joint")
    assert weak.joint_values("effort_limit_nm", GO2)[[hip, calf]] == pytest.approx([20.145, 38.6155])
    assert weak.joint_values("corner_speed_rad_s", GO2)[[hip, calf]] == pytest.approx([18.06, 9.42])
    assert weak.joint_values("no_load_speed_rad_s", GO2)[[hip, calf]] == pytest.approx([30.1, 15.7])
    assert weak.joint_values("stiffness_share", GO2) == pytest.approx(np.full(12, 0.85))
    damped = LEGS["damped"].applied(options, GO2, rng())["dynamics"]
    assert damped.joint_values("viscous_friction_nm_s_rad", GO2) == pytest.approx(np.full(12, 2.0))


def test_weaker_joints_get_their_share_of_the_friction():
    """A joint of 5 N m gets a quarter of what one of 20 N m or more gets."""
    joints = tuple(replace(joint, effort_limit_nm=5.0) for joint in GO2.joints[:1]) + GO2.joints[1:]
    spec = replace(GO2, joints=joints)
    damped = {item.name: item for item in perturbations_of(CONTRACT, spec)}["damped"]
    values = damped.dynamics(RobotDynamics("go2"), spec, rng()).joint_values("viscous_friction_nm_s_rad", spec)
    assert values == pytest.approx([0.5] + [2.0] * 11)


def test_draws_differ_between_joints_and_episodes_and_equal_seeds_are_equal():
    stiff = LEGS["stiff_joints"]
    drawn = [stiff.dynamics(RobotDynamics("go2"), GO2, rng(seed)) for seed in (1, 1, 2)]
    values = [item.joint_values("coulomb_friction_nm", GO2) for item in drawn]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(values[0])) == 12
    assert all((found >= 0.1).all() and (found <= 1.4).all() for found in values)
    assert drawn[0].joint_values("armature_kg_m2", GO2) == pytest.approx(GO2.array("armature_kg_m2"))


def test_an_identified_machine_is_perturbed_and_not_replaced(tmp_path):
    path = tmp_path / "machine.yaml"
    save_dynamics(path, machine({"FL_hip_joint": {"coulomb_friction_nm": 0.3}}, {"command_delay_s": 0.007}))
    late = LEGS["late"].applied({"dynamics": str(path)}, GO2, rng())["dynamics"]
    assert late.value("command_delay_s") == pytest.approx(0.027)
    assert late.joint_values("coulomb_friction_nm", GO2)[GO2.joint_index("FL_hip_joint")] == 0.3
    with pytest.raises(GantryError, match="nothing"):
        LEGS["late"].applied({"dynamics": str(tmp_path / "nothing.yaml")}, GO2, rng())


def test_pushes_come_every_three_to_five_seconds_in_the_plane():
    pushes = draw_pushes(Pushes(), 300.0, rng())
    times = np.array([push.time_s for push in pushes])
    sizes = np.linalg.norm([push.vel_change_in_world_m_s for push in pushes], axis=1)
    assert np.all((np.diff(times, prepend=0.0) >= 3.0) & (np.diff(times, prepend=0.0) <= 5.0))
    assert times[-1] < 300.0
    assert np.all((sizes >= 0.5) & (sizes <= 1.0))
    assert {push.vel_change_in_world_m_s[2] for push in pushes} == {0.0}
    assert draw_pushes(Pushes(), 2.0, rng()) == []


@needs("mujoco")
@pytest.mark.parametrize("robot", ["go2", "g1", "yam", "bmw_320i", "f1tenth"])
def test_simulated_robots_take_every_perturbation_of_their_kind(robot):
    spec = robot_spec(robot)
    contract = {"arm": arm_contract_for, "car": drive_contract_for}.get(spec.embodiment, contract_for)(spec)
    backend = {"legs": "mujoco", "arm": "workbench", "car": "road"}[spec.embodiment]
    found = perturbations_of(contract, spec)
    assert len({item.name for item in found}) == len(found) >= 6
    for item in found:
        assert item.lacking(backend) == [], item.name
        item.applied({"noise": 1.0}, spec, rng())
        assert not item.text[0].isupper()
        assert not item.text.endswith(".")


def test_a_backend_says_what_it_lacks():
    assert LEGS["pushed"].lacking("mock") == ["dynamics", "push"]
    assert LEGS["slippery"].lacking("mock") == ["friction"]


def test_names_are_chosen_in_the_order_asked_and_a_near_miss_is_named():
    found = tuple(LEGS.values())
    assert [item.name for item in chosen("weak, late,weak", found)] == ["weak", "late"]
    assert chosen("all", found) == found
    assert chosen("none", found) == ()
    with pytest.raises(UnknownNameError, match="Did you mean 'pushed'"):
        chosen("late,pushd", found)
    with pytest.raises(UnknownNameError, match="Unknown perturbation 'late'"):
        chosen("late", ())


def test_perturbed_episodes_are_few_and_short_unless_asked():
    config = perturbed_config(RolloutConfig(), CONTRACT, None)
    assert (config.episodes, config.seconds) == (5, 6.0)
    config = perturbed_config(RolloutConfig(episodes=2, seconds=1.0), CONTRACT, None)
    assert (config.episodes, config.seconds) == (2, 1.0)
    assert perturbed_config(RolloutConfig(episodes=2), CONTRACT, 30).episodes == 30
    car = perturbed_config(RolloutConfig(seconds=300.0), drive_contract_for(robot_spec("bmw_320i")), None)
    assert (car.episodes, car.seconds) == (3, 300.0)


def result(name, errors, fallen):
    return PerturbedResult(name, name, tracking_scores(errors, [0.1] * len(errors), fallen), {})


def test_the_worst_is_the_one_with_most_falls_then_the_largest_error():
    slow, falls, both = result("slow", [0.5] * 4, [0] * 4), result("falls", [0.1] * 4, [1, 0, 0, 0]), None
    both = result("both", [0.4] * 4, [1, 0, 0, 0])
    assert worst([slow, falls]) is falls
    assert worst([slow, both, falls]) is both
    assert worst([]) is None
    silent = result("silent", [math.nan] * 4, [1, 0, 0, 0])
    assert worst([both, silent]) is silent
    rows = table([slow, both], RolloutConfig(episodes=4, seconds=6.0))
    assert (rows["worst"], rows["episodes"], list(rows["results"])) == ("both", 4, ["slow", "both"])


def test_thresholds_are_held_against_the_perturbation_that_misses_them_by_most():
    results = [result("slow", [0.5] * 4, [0] * 4), result("falls", [0.1] * 4, [1, 0, 0, 0])]
    assert judge_perturbed(Acceptance(), results) == []
    asked = Acceptance(max_perturbed_fall_rate=0.3, max_perturbed_lin_vel_error_m_s=0.4)
    falls, error = judge_perturbed(asked, results)
    assert (falls.name, falls.passed, falls.value, falls.limit) == ("perturbed fall rate", True, 0.25, 0.3)
    assert falls.text.startswith("falls: 0.250")
    assert (error.passed, error.value) == (False, 0.5)
    assert error.text.startswith("slow: ")


def test_success_under_perturbations_is_held_against_its_threshold():
    results = [
        PerturbedResult(name, name, goal_scores(done, [False] * 4), {})
        for name, done in {"late": [1, 1, 0, 0], "weak": [1, 1, 1, 1]}.items()
    ]
    assert worst(results).name == "late"
    (stage,) = judge_perturbed(Acceptance(min_perturbed_success_rate=0.6), results)
    assert (stage.passed, stage.value) == (False, 0.5)
    assert judge_perturbed(Acceptance(max_perturbed_fall_rate=0.0), results) == []


def trained(*ranges):
    return replace(CONTRACT, trained_for=ranges)


def test_a_parameter_outside_of_the_trained_range_is_named():
    found = machine({"FL_calf_joint": {"coulomb_friction_nm": 1.4}, "FR_calf_joint": {"coulomb_friction_nm": 0.8}})
    contract = trained(TrainedRange("coulomb_friction_nm", 0.0, 0.8))
    assert beyond_training(found, contract, GO2) == [
        "FL_calf_joint: coulomb_friction_nm 1.4 lies outside 0 to 0.8, the range of the training"
    ]
    of_one = trained(
        TrainedRange("coulomb_friction_nm", 0.0, 0.8), TrainedRange("coulomb_friction_nm", 0.0, 2.0, "FL_calf_joint")
    )
    assert beyond_training(found, of_one, GO2) == []


def test_a_parameter_that_never_varied_is_named_where_a_policy_may_notice():
    """Of a go2's hip: 23.7 N m of torque, a damping gain of 1 N m s/rad, 30.1 rad/s."""
    hip = {
        "coulomb_friction_nm": 0.23,  # 1 % of the torque are 0.237.
        "viscous_friction_nm_s_rad": 0.09,
        "stiffness_share": 0.95,
        "corner_speed_rad_s": 20.0,
        "no_load_speed_rad_s": 31.0,
        "encoder_offset_rad": -0.009,
    }
    assert beyond_training(machine({"FL_hip_joint": hip}, {"command_delay_s": 0.004}), CONTRACT, GO2) == []
    more = {
        "coulomb_friction_nm": 0.24,
        "viscous_friction_nm_s_rad": 0.11,
        "stiffness_share": 0.85,
        "corner_speed_rad_s": 15.0,
        "no_load_speed_rad_s": 31.0,
        "encoder_offset_rad": -0.02,
        "effort_limit_nm": 20.0,
    }
    lines = beyond_training(machine({"FL_hip_joint": more}, {"command_delay_s": 0.02}), CONTRACT, GO2)
    assert lines == [
        "FL_hip_joint: coulomb_friction_nm 0.24 was not varied in training, says the contract (0 there)",
        "FL_hip_joint: viscous_friction_nm_s_rad 0.11 was not varied in training, says the contract (0 there)",
        "FL_hip_joint: stiffness_share 0.85 was not varied in training, says the contract (1 there)",
        "FL_hip_joint: corner_speed_rad_s 15 was not varied in training, says the contract (no such limit there)",
        "FL_hip_joint: encoder_offset_rad -0.02 was not varied in training, says the contract (0 there)",
        "FL_hip_joint: effort_limit_nm 20 was not varied in training, says the contract (23.7 there)",
        "command_delay_s 0.02 was not varied in training, says the contract (0 there)",
    ]


def test_dynamics_of_another_robot_are_refused():
    with pytest.raises(GantryError, match="those of robot 'g1'"):
        beyond_training(machine(robot="g1"), CONTRACT, GO2)
    assert beyond_training(RobotDynamics("tiny"), contract_for(tiny_robot()), tiny_robot()) == []
