"""Tasks of Isaac Lab with Isaac Lab itself: trained, exported with a contract that the environment's own observation
agrees with, or refused with the part that is missing. `make test-isaaclab` runs them."""

import json
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.main import main
from gantry_fixtures.recorded import largest_difference, noisy_policy
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_sim.isaaclab_tasks import listing
from gantry_sim.isaaclab_tasks.names import PREFIX
from gantry_sim.managed_tasks import learner
from gantry_sim.managed_tasks.contract import NoContractError
from gantry_sim.tasks.registry import find_task

# Not by importing it: Isaac Lab asks for the place of its files when it is imported, and the first task sets it.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(find_spec("isaaclab_tasks") is None, reason="needs Isaac Lab 3: make test-isaaclab"),
]

FLAT_GO2, CARTPOLE = "isaaclab:Isaac-Velocity-Flat-UnitreeGo2", "isaaclab:Isaac-Cartpole"
TRAIN = ("--set", "env.num_envs=8", "--set", "learner.hidden=[8]", "--episodes", "0")
SHORT = ("--set", 'env.changes={"episode_length_s": 1.0}')


@pytest.fixture(scope="module")
def go2():
    return find_task(FLAT_GO2)


def test_names_are_those_of_the_registry():
    from gantry_sim.isaaclab_tasks.cfg import registered

    assert {info.name.removeprefix(PREFIX) for info in listing.MODELLED} <= set(registered())
    with pytest.raises(UnknownNameError, match="Isaac-Cartpole"):
        find_task("isaaclab:Isaac-Cartpol")


def test_the_agent_of_isaac_lab_gives_our_numbers():
    from gantry_sim.isaaclab_tasks.cfg import actor_groups, agent_cfg

    found = learner.learner_of(agent_cfg("Isaac-Velocity-Flat-UnitreeGo2"), 64)
    assert (found.hidden, found.critic_hidden, found.activation) == ((128,) * 3, (128,) * 3, "elu")
    assert (found.gamma, found.lam, found.entropy, found.desired_kl, found.init_std) == (0.99, 0.95, 0.01, 0.01, 1.0)
    assert found.total_steps == 300 * 24 * 64
    assert actor_groups("Isaac-Velocity-Flat-UnitreeGo2") == ("policy",)


def test_the_contract_holds_what_isaac_lab_built(go2):
    contract, spec = go2.contract(go2.usual_env()), robot_spec("go2")
    assert [term.name for term in contract.observations] == [
        *("base_lin_vel", "base_ang_vel", "projected_gravity", "velocity_command", "joint_pos", "joint_vel"),
        "last_action",
    ]
    # go2.xml: the trunk's centre of mass.
    assert contract.observations[0].point_in_base_m == pytest.approx((0.021112, 0.0, -0.005366))
    assert (contract.robot, contract.rate_hz, contract.joint_names) == ("go2", 50.0, spec.joint_names)
    # Newton runs these actuators and tells the robot's own gains as zero.
    assert contract.stiffness_nm_rad == pytest.approx((25.0,) * 12)
    assert contract.damping_nm_s_rad == pytest.approx((0.5,) * 12)
    assert contract.effort_limit_nm[:3] == pytest.approx((23.7, 23.7, 45.43))
    # Isaac Lab's pose by name: right hips inward, rear thighs further.
    assert contract.default_pos_rad == pytest.approx((-0.1, 0.8, -1.5, 0.1, 0.8, -1.5, -0.1, 1.0, -1.5, 0.1, 1.0, -1.5))
    assert contract.action.offset_rad == pytest.approx(contract.default_pos_rad)
    assert contract.action.scale == pytest.approx((0.25,) * 12)
    assert (contract.command.lower, contract.command.upper) == ((-1.0,) * 3, (1.0,) * 3)


def test_the_runtime_observes_what_the_environment_does(go2):
    changes = {
        "observations.policy.joint_vel.scale": 0.05,
        "observations.policy.base_ang_vel.clip": [-0.5, 0.5],
        "observations.policy.joint_pos.history_length": 3,
        "observations.policy.projected_gravity.delay_max_lag": 2,
        "episode_length_s": 0.6,
    }
    cfg = replace(go2.usual_env(), changes=changes)
    contract = go2.contract(cfg)
    terms = {term.name: term for term in contract.observations}
    assert terms["joint_vel"].scale == pytest.approx(0.05)
    assert (terms["base_ang_vel"].clip, terms["joint_pos"].history) == (0.5, 3)
    rows = go2.record(go2, cfg, noisy_policy, seed=3, envs=2, steps=45, before=5)
    assert rows["episode_start"].sum() > 2  # Episodes end within it.
    assert largest_difference(contract, rows) < 1e-5
    # A unit quaternion with its real part first: robots that stand have it near 1 or, turned round, near 0 with z.
    quat = rows["quat_base_to_world_wxyz"]
    assert np.allclose(np.linalg.norm(quat, axis=1), 1.0, atol=1e-5)
    assert (quat[:, 0] ** 2 + quat[:, 3] ** 2).mean() > 0.9
    # Without the lever to the centre of mass the velocity is another.
    first, *others = contract.observations
    origin = replace(contract, observations=(replace(first, point_in_base_m=()), *others))
    assert largest_difference(origin, rows) > 1e-3


def test_targets_keep_within_the_limits_of_the_robot(go2):
    cfg = replace(go2.usual_env(), num_envs=2)
    contract, env = go2.contract(cfg), go2.make_env(cfg, "cpu", 1)
    env.step(torch.full((2, 12), 1e6))
    targets = env.env.action_manager.get_term("joint_pos").processed_actions.clone()
    largest = float(env.env.action_manager.action.max())
    env.close()
    # 100 x scale is beyond every limit, and a million counts as 100.
    assert targets[0].tolist() == pytest.approx(contract.joint_upper_rad)
    assert largest == 100.0
    with pytest.raises(GantryError, match="are closed"):
        env.step(torch.zeros(2, 12))


def test_train_resume_export_and_check_a_velocity_task(tmp_path, capsys):
    run = str(tmp_path / "run")
    assert main(["train", FLAT_GO2, *TRAIN, *SHORT, "--steps", "384", "--no-export", "--run-dir", run]) == 0
    assert main(["train", "--resume", run, "--steps", "576", "--episodes", "2"]) == 0
    assert main(["export", run]) == 0
    bundle = load_bundle(tmp_path / "run" / "bundle")
    assert bundle.contract.robot == "go2"
    assert largest_difference(bundle.contract, bundle.golden) < 1e-5
    capsys.readouterr()
    code = main(["check", str(tmp_path / "run" / "bundle"), "--episodes", "1", "--seconds", "2", "--json", "-"])
    report = json.loads(capsys.readouterr().out)
    # Three updates teach nobody to walk, but nothing of the bundle is refused.
    assert (code, report["verdict"]) in ((0, "passed"), (1, "failed"))
    assert len(report["stages"]) > 3


def test_efforts_on_a_cart_pole_are_exported_and_checked(tmp_path, capsys):
    """Isaac Lab's cart pushes with 100 N per unit of action and starts within 1 m and 45 degrees."""
    contract = find_task(CARTPOLE).contract(find_task(CARTPOLE).usual_env())
    assert (contract.robot, contract.rate_hz, contract.joint_names) == (
        *("cartpole", 60.0),
        ("slider_to_cart", "cart_to_pole"),
    )
    assert (contract.action.kind, contract.action.scale) == ("target/joint/effort", (0.25,))
    assert contract.effort_limit_nm[0] == 400.0
    assert (contract.stiffness_nm_rad, contract.damping_nm_s_rad) == ((0.0, 0.0), (10.0, 0.0))
    assert contract.body.driven_joints == ("slider_to_cart",)
    np.testing.assert_allclose(contract.body.start_upper_rad, (1.0, np.pi / 4), rtol=1e-6)
    np.testing.assert_allclose(contract.body.start_lower_rad, (-1.0, -np.pi / 4), rtol=1e-6)
    run = tmp_path / "run"
    assert main(["train", CARTPOLE, *TRAIN, "--steps", "256", "--run-dir", str(run)]) == 0
    assert main(["export", str(run)]) == 0
    golden = load_bundle(run / "bundle").golden
    asked = np.clip(100.0 * golden["action"][:, 0], -400.0, 400.0)
    np.testing.assert_allclose(golden["joint_target_effort_nm"][:, 0], asked, rtol=1e-5)
    capsys.readouterr()
    main(["check", str(run / "bundle"), "--episodes", "1", "--seconds", "3", "--perturbations", "none"])
    told = capsys.readouterr().out
    assert told.count("pass  ") >= 6, told


def test_a_task_without_a_contract_trains_and_names_what_it_lacks_at_export(tmp_path, capsys):
    ant = "isaaclab:Isaac-Ant"
    assert main(["train", ant, *TRAIN, "--steps", "256", "--run-dir", str(tmp_path / "run")]) == 0
    assert not (tmp_path / "run" / "bundle").exists()
    capsys.readouterr()
    assert main(["export", str(tmp_path / "run")]) == 2
    assert "base_pos_z" in capsys.readouterr().err


def test_a_direct_environment_is_told_apart():
    task = find_task("isaaclab:Isaac-Cartpole-Direct")
    with pytest.raises(NoContractError, match="direct environment"):
        task.contract(task.usual_env())


def test_a_robot_without_a_model_is_named():
    with pytest.raises(GantryError, match="comes from NVIDIA's servers"):
        find_task("isaaclab:Isaac-Velocity-Flat-AnymalD")


def test_changes_that_lead_nowhere_are_told(go2):
    with pytest.raises(UnknownNameError, match="joint_vel"):
        go2.contract(replace(go2.usual_env(), changes={"observations.policy.joint_ve.scale": 1}))
