"""Simulated robots under perturbations, and the gate that runs them: laws, and numbers worked out by hand."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.contract.policy_contract import Acceptance
from gantry_deploy.evaluation.perturbations.perturbation import Perturbation, Pushes
from gantry_deploy.evaluation.rollout import run_episodes
from gantry_deploy.evaluation.scenario import RolloutConfig
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, tiny_bundle
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.errors import GantryError, RobotError
from gantry_hardware.model.dynamics import Estimate, RobotDynamics, save_dynamics
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.car_dynamics import car_chances
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.backends.road_robot import RoadRobot
from gantry_sim.backends.workbench_robot import BenchRobot
from gantry_sim.demo.scenarios.legs import Legs
from gantry_sim.driving.vehicle.actuation import CarRandomization

GO2, BMW, YAM = robot_spec("go2"), robot_spec("bmw_320i"), robot_spec("yam")
STEERING, DRIVE = BMW.joint_names
CONTRACT = contract_for(GO2)
STILL = replace(CONTRACT, gait=replace(CONTRACT.gait, amplitude_rad=0.0))
ZEROS = np.zeros((STILL.observation_size, STILL.action_size))
SHORT = ("--episodes", "1", "--seconds", "0.5", "--noise", "0")


def test_a_push_changes_the_velocity_by_what_it_says():
    robot = MujocoRobot(GO2, visuals=False)
    robot.connect()
    robot.reset(yaw_rad=0.5 * np.pi)
    robot.set_velocity(np.array([0.1, 0.2, 0.0]), np.array([0.0, 0.0, 0.3]))
    robot.push(np.array([0.5, -0.2, 0.0]))
    # The base looks along the world's y: what is 0.6 along x there is 0.6 to its right.
    assert robot.true_lin_vel_base_in_base_m_s == pytest.approx([0.0, -0.6, 0.0], abs=1e-9)
    assert robot.true_ang_vel_base_in_base_rad_s == pytest.approx([0.0, 0.0, 0.3])
    with pytest.raises(RobotError, match="fixed base"):
        MujocoRobot(GO2, visuals=False, fixed_base=True).push(np.zeros(3))


def test_feet_sink_into_soft_ground_with_the_square_of_its_time_constant():
    """A contact's spring has a stiffness in proportion to 1 / T^2."""
    depths = {}
    for softness_s in (0.0, 0.05, 0.1):
        robot = MujocoRobot(GO2, visuals=False, ground_softness_s=softness_s)
        robot.connect()
        robot.sleep_until(2.0)
        depths[softness_s] = -min(robot.data.contact[i].dist for i in range(robot.data.ncon))
    print(depths)
    assert depths[0.0] < 2e-3
    assert 7e-3 < depths[0.05] < 14e-3
    assert depths[0.1] / depths[0.05] == pytest.approx(4.0, rel=0.3)


def test_an_object_weighs_and_slips_as_asked():
    usual, other = (
        BenchRobot(YAM, task="yam-lift", vary=False, **options)
        for options in ({}, {"object_mass_share": 2.0, "object_friction_share": 0.5})
    )
    body = usual.model.body("object").id
    assert other.model.body_mass[body] == pytest.approx(2.0 * usual.model.body_mass[body])
    assert other.model.body_inertia[body] == pytest.approx(2.0 * usual.model.body_inertia[body])
    assert other.model.geom_friction[:, 0] == pytest.approx(0.5 * usual.model.geom_friction[:, 0])
    with pytest.raises(GantryError, match="option 'object_mass_share' is 0"):
        BenchRobot(YAM, object_mass_share=0.0)


def of_a_car(joints, whole=None):
    each = {joint: {name: Estimate(value) for name, value in found.items()} for joint, found in joints.items()}
    return RobotDynamics("bmw_320i", each, {name: Estimate(value) for name, value in (whole or {}).items()})


def test_known_dynamics_of_a_car_do_not_vary_and_the_rest_does():
    known = of_a_car({STEERING: {"gain": 0.9, "offset": 0.02}, DRIVE: {"response_s": 0.25}}, {"command_delay_s": 0.06})
    usual = CarRandomization.usual()
    found = car_chances(BMW, usual, known, friction_share=0.6, mass_share=None)
    assert found == replace(
        usual,
        steering_gain=(0.9, 0.9),
        steering_offset_rad=(0.02, 0.02),
        acceleration_lag_s=(0.25, 0.25),
        delay_s=(0.06, 0.06),
        friction_scale=(0.6, 0.6),
    )
    assert car_chances(BMW, usual, "", friction_share=None, mass_share=None) == usual
    with pytest.raises(GantryError, match="offset"):
        car_chances(BMW, usual, of_a_car({DRIVE: {"offset": 0.1}}), friction_share=None, mass_share=None)
    with pytest.raises(GantryError, match="those of robot 'go2'"):
        car_chances(BMW, usual, RobotDynamics("go2"), friction_share=None, mass_share=None)


def test_wheels_settle_where_gain_and_offset_put_them(one_thread, tmp_path):
    """0.2 rad asked for, 0.9 of it and 0.02 rad more: 0.2 rad."""
    path = tmp_path / "car.yaml"
    save_dynamics(path, of_a_car({STEERING: {"gain": 0.9, "offset": 0.02, "response_s": 0.1}}))
    car = RoadRobot(BMW, dynamics=str(path), map_count=1, route_m=50.0)
    car.connect()
    car.obey(0.2, 0.0)
    car.sleep_until(0.1)
    begun = car.read().joint_pos_rad[0]  # No further than 0.4 rad/s take it.
    car.sleep_until(2.0)
    assert 0.0 < begun <= 0.04 + 1e-6
    assert car.read().joint_pos_rad[0] == pytest.approx(0.2, abs=1e-4)


def still_bundle(folder, **acceptance):
    loose = Acceptance(max_lin_vel_error_m_s=9.0, max_yaw_rate_error_rad_s=9.0, max_fall_rate=0.0)
    return tiny_bundle(folder, replace(STILL, acceptance=replace(loose, **acceptance)), weight=ZEROS)


def test_pushed_episodes_are_seeded_and_differ_from_nominal_ones(tmp_path):
    runner = PolicyRunner(still_bundle(tmp_path / "bundle"), GO2)
    pushed = Perturbation("pushed", "one push", pushes=Pushes((0.2, 0.3), (0.8, 0.8)))
    nominal = RolloutConfig(episodes=1, seconds=0.5, noise=0.0)
    config = replace(nominal, perturbation=pushed)
    found = run_episodes(runner, config)
    assert run_episodes(runner, config) == found
    errors = [item.scores.lin_vel_error_m_s.mean for item in (run_episodes(runner, nominal), found)]
    print(errors)
    assert abs(errors[1] - errors[0]) > 5e-3


def test_the_demo_walks_the_machine_in_both_ways(tmp_path):
    """Nodes get the file as an option; in one process a command is obeyed 10 ms later than by the model's robot."""
    path = tmp_path / "machine.yaml"
    save_dynamics(path, RobotDynamics("go2", {}, {"command_delay_s": Estimate(0.01)}))
    bundle = still_bundle(tmp_path / "bundle")
    plan = Legs(dynamics=str(path)).plan("walk", bundle, tmp_path, print)
    assert json.loads(plan.arguments["options"]) == {"dynamics": str(path)}
    efforts = []
    for robot in (plan.make_robot(GO2, False), Legs().plan("walk", bundle, tmp_path, print).make_robot(GO2, False)):
        robot.connect()
        robot.write(JointCommand.position(GO2, GO2.array("default_rad") + 0.1))
        robot.sleep_until(0.006)
        efforts.append(np.abs(robot.read().joint_effort_nm).max())
    print(efforts)
    assert efforts[1] > 2.0 > efforts[0]


def test_the_gate_tells_the_table_and_the_worst_and_writes_both_into_the_card(tmp_path, capsys):
    folder = still_bundle(tmp_path / "bundle").path
    target = tmp_path / "scores.json"
    names = "slippery,heavy"
    assert main(["check", str(folder), *SHORT, "--perturbations", names, "--json", str(target)]) == 0
    out = capsys.readouterr().out
    assert "2 perturbations, 1 episode of 0.5 s each:" in out
    assert "worst: " in out
    assert "  nominal " not in out  # The nominal episodes are as long.
    report, card = json.loads(target.read_text()), load_bundle(folder).card["check"]
    rows = report["perturbed"]
    assert rows == card["perturbed"]
    assert list(rows["results"]) == ["slippery", "heavy"]
    assert rows["worst"] in rows["results"]
    assert (rows["episodes"], rows["seconds"]) == (1, 0.5)
    scores = rows["results"]["heavy"]["scores"]
    assert scores["episodes"] == 1
    assert scores["fall_rate"]["mean"] == 0.0
    # It stands all the while, so that its error is the velocity asked for, as in the nominal episode.
    nominal = report["scores"]["lin_vel_error_m_s"]["mean"]
    assert scores["lin_vel_error_m_s"]["mean"] == pytest.approx(nominal, abs=0.02)
    assert main(["inspect", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "Perturbed" in shown
    assert "check.perturbed.worst" in shown
    assert "check.perturbed.results" not in shown


def test_perturbations_fail_a_bundle_only_where_its_contract_says_so(tmp_path, capsys):
    folder = str(still_bundle(tmp_path / "bundle", max_perturbed_lin_vel_error_m_s=0.0).path)
    assert main(["check", folder, *SHORT, "--perturbations", "heavy"]) == 1
    assert "FAIL  perturbed planar velocity error" in capsys.readouterr().out
    assert main(["check", folder, *SHORT, "--perturbations", "none"]) == 0
    out = capsys.readouterr().out
    assert "skip  perturbed" in out
    assert "perturbations," not in out
    assert main(["check", folder, *SHORT, "--perturbations", "heavvy"]) == 2
    assert "Did you mean 'heavy'?" in capsys.readouterr().err


def test_a_machine_is_simulated_and_warned_of(tmp_path, capsys, monkeypatch):
    folder, path = str(still_bundle(tmp_path / "bundle").path), tmp_path / "machine.yaml"
    joints = {"FL_calf_joint": {"coulomb_friction_nm": Estimate(1.4)}}
    save_dynamics(path, RobotDynamics("go2", joints, {"command_delay_s": Estimate(0.01)}))
    warning = "warning: FL_calf_joint: coulomb_friction_nm 1.4 was not varied in training, says the contract (0 there)"
    check = ["check", folder, *SHORT, "--perturbations", "late", "--dynamics", str(path)]
    assert main(check) == 0
    assert warning in capsys.readouterr().out
    assert load_bundle(folder).card["check"]["conditions"]["options"] == {"dynamics": str(path)}
    for backend in ("mujoco", "mock"):
        run = ["run", folder, "--backend", backend, "--duration", "0.2", "--dynamics", str(path)]
        assert main(run) == 0
        out = capsys.readouterr().out
        assert warning in out
        assert ("no option 'dynamics'" in out) == (backend == "mock")
    assert main([*check, "--option", f"dynamics={path}"]) == 2
    assert "give one of them" in capsys.readouterr().err
    assert main(["check", folder, "--dynamics", str(tmp_path / "nothing.yaml")]) == 2
    assert "nothing.yaml" in capsys.readouterr().err
    commission = ["commission", "go2", "--backend", "mujoco", "--dynamics", str(path), "--steps", "readings"]
    assert main(commission) == 2
    assert "--bundle" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main([*commission, "--bundle", folder, "--output", str(tmp_path / "report")]) == 0
    assert warning in capsys.readouterr().out
