"""Tasks of mjlab: listed, trained, exported with a contract that the environment's own observation agrees with, or
refused with the part that is missing."""

import json
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from mjlab.tasks.cartpole import cartpole_env_cfg

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.builder import ObservationBuilder, Signals, make_term
from gantry_deploy.testing.legs import contract_for, tiny_robot
from gantry_fixtures.recorded import largest_difference, noisy_policy
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.managed_tasks import learner
from gantry_sim.managed_tasks.contract import NoContractError
from gantry_sim.mjlab_tasks import listing
from gantry_sim.mjlab_tasks.cfg import MjlabCfg, agent_cfg, mjlab_env_cfg, registered
from gantry_sim.robots.models import robot_model
from gantry_sim.tasks import catalogue, names
from gantry_sim.tasks.registry import find_task

pytestmark = pytest.mark.usefixtures("one_thread")

FLAT_GO1, LIFT = "mjlab:Mjlab-Velocity-Flat-Unitree-Go1", "mjlab:Mjlab-Lift-Cube-Yam"
TRAIN = ("--steps", "768", "--set", "env.num_envs=16", "--set", "learner.hidden=[8]", "--episodes", "0")
SHORT = ("--set", 'env.changes={"episode_length_s": 1.0}')


@pytest.fixture(scope="module")
def go1():
    return find_task(FLAT_GO1)


def test_all_tasks_of_mjlab_are_listed_without_importing_it():
    assert [info.name for info in listing.OWN] == [listing.PREFIX + name for name in registered()]
    assert {info.name for info in listing.OWN} <= {info.name for info in catalogue.task_infos()}


def test_a_name_without_its_prefix_is_told():
    with pytest.raises(GantryError, match="called mjlab:Mjlab-Cartpole-Balance here"):
        names.require_task("Mjlab-Cartpole-Balance")
    with pytest.raises(UnknownNameError, match="Mjlab-Cartpole-Balance"):
        find_task("mjlab:Mjlab-Cartpole-Balanc")


def test_the_agent_of_mjlab_gives_our_numbers():
    agent = agent_cfg("Mjlab-Velocity-Flat-Unitree-Go1")
    found = learner.learner_of(agent, 64)
    assert (found.hidden, found.critic_hidden, found.activation) == ((512, 256, 128), (512, 256, 128), "elu")
    assert (found.gamma, found.lam, found.entropy, found.desired_kl) == (0.99, 0.95, 0.01, 0.01)
    assert (found.steps_per_env, found.epochs, found.minibatches, found.init_std) == (24, 5, 4, 1.0)
    assert found.normalize
    assert found.clip_value_loss
    assert found.total_steps == 10_000 * 24 * 64
    assert learner.unmapped(agent) == []
    agent.actor.class_name = "RNNModel"
    assert learner.unmapped(agent) == ["actor.class_name = RNNModel"]


def test_changes_reach_mjlabs_configuration():
    changes = {"commands.twist.ranges.lin_vel_x": [-0.2, 0.3], "observations.actor.terms.joint_vel.scale": 0.05}
    found = mjlab_env_cfg(MjlabCfg("Mjlab-Velocity-Flat-Unitree-Go1", 3, changes), seed=7)
    assert found.commands["twist"].ranges.lin_vel_x == (-0.2, 0.3)
    assert found.observations["actor"].terms["joint_vel"].scale == 0.05
    assert (found.scene.num_envs, found.seed) == (3, 7)
    with pytest.raises(UnknownNameError, match="joint_vel"):
        mjlab_env_cfg(MjlabCfg("Mjlab-Velocity-Flat-Unitree-Go1", 3, {"observations.actor.terms.joint_ve": 1}), seed=7)


def test_the_contract_holds_what_mjlab_built(go1):
    contract = go1.contract(go1.usual_env())
    assert [term.name for term in contract.observations] == [
        *("base_lin_vel", "base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "last_action"),
        "velocity_command",
    ]
    # go1.xml: the site of the IMU in the trunk.
    assert contract.observations[0].point_in_base_m == pytest.approx((-0.01592, -0.06659, -0.00617))
    assert (contract.robot, contract.rate_hz, contract.joint_names[2]) == ("go1", 50.0, "FR_calf_joint")
    # Rotor inertia x gear^2 x (2 pi 10 Hz)^2, and a quarter of the torque that this stiffness gives.
    hip = 0.000111842 * 6**2 * (2 * np.pi * 10) ** 2
    assert contract.stiffness_nm_rad[0] == pytest.approx(hip, rel=1e-5)
    assert contract.stiffness_nm_rad[2] == pytest.approx(hip * 1.5**2, rel=1e-5)
    assert contract.damping_nm_s_rad[0] == pytest.approx(2 * 2.0 * hip / (2 * np.pi * 10), rel=1e-5)
    assert contract.action.scale[0] == pytest.approx(0.25 * 23.7 / hip, rel=1e-5)
    assert contract.effort_limit_nm[:3] == pytest.approx((23.7, 23.7, 35.55))
    assert contract.default_pos_rad[:3] == pytest.approx((0.1, 0.9, -1.8))
    assert contract.action.offset_rad == pytest.approx(contract.default_pos_rad)
    assert (contract.command.lower, contract.command.upper) == ((-1.0, -1.0, -0.5), (1.0, 1.0, 0.5))


def test_the_runtime_observes_what_the_environment_does(go1):
    changes = {
        "observations.actor.terms.joint_vel.scale": 0.05,
        "observations.actor.terms.base_ang_vel.clip": [-0.5, 0.5],
        "observations.actor.terms.joint_pos.history_length": 3,
        "observations.actor.terms.projected_gravity.delay_max_lag": 2,
        "events.encoder_bias.params.bias_range": [-0.1, 0.1],
        "episode_length_s": 0.6,
    }
    cfg = replace(go1.usual_env(), changes=changes)
    contract = go1.contract(cfg)
    terms = {term.name: term for term in contract.observations}
    assert (terms["joint_vel"].scale, terms["base_ang_vel"].clip, terms["joint_pos"].history) == (
        pytest.approx(0.05),
        0.5,
        3,
    )
    rows = go1.record(go1, cfg, noisy_policy, seed=3, envs=2, steps=45, before=5)
    assert rows["episode_start"].sum() > 2  # Episodes end within it.
    assert largest_difference(contract, rows) < 1e-5
    # The law of a rigid body, by other numbers than the runtime's: without the lever the velocity is another.
    first, *others = contract.observations
    origin = replace(contract, observations=(replace(first, point_in_base_m=()), *others))
    assert largest_difference(origin, rows) > 1e-3


def test_targets_keep_within_the_limits_of_the_robot(go1):
    cfg = replace(go1.usual_env(), num_envs=2)
    contract, env = go1.contract(cfg), go1.make_env(cfg, "cpu", 1)
    env.step(torch.full((2, 12), 1e6))
    targets = env.env.action_manager.get_term("joint_pos")._processed_actions
    env.close()
    # 100 x scale is beyond every limit, and a million counts as 100.
    assert targets[0].tolist() == pytest.approx(contract.joint_upper_rad)
    assert float(env.env.action_manager.action.max()) == 100.0


def test_the_contract_of_a_cartpole_is_that_of_its_model():
    """Numbers of mjlab's cartpole.xml and cartpole_env_cfg.py."""
    for name, hinge in (("Balance", 0.0), ("Swingup", np.pi)):
        task = find_task(f"mjlab:Mjlab-Cartpole-{name}")
        contract = task.contract(task.usual_env())
        assert (contract.robot, contract.embodiment, contract.rate_hz) == ("cartpole_mjlab", "mechanism", 20.0)
        assert [(term.name, term.size, term.joints) for term in contract.observations] == [
            ("joint_pos", 1, ("slider",)),
            ("joint_cos_sin", 2, ("hinge_1",)),
            ("joint_vel", 1, ("slider",)),
            ("joint_vel", 1, ("hinge_1",)),
        ]
        assert contract.joint_limits["slider"] == pytest.approx((-1.8, 1.8))
        # A gear of 10 and controls within 1: one unit of action is all of 10 N.
        assert (contract.effort_limit_nm[0], contract.action.scale, contract.command.names) == (10.0, (1.0,), ())
        assert contract.default_pos_rad == pytest.approx((0.0, hinge))
        assert contract.body.driven_joints == ("slider",)
        cart_m = 0.1 if name == "Balance" else 0.0
        assert contract.body.start_lower_rad == pytest.approx((-cart_m, hinge - 0.034))
        assert contract.body.start_upper_rad == pytest.approx((cart_m, hinge + 0.034))


def test_efforts_of_a_cartpole_are_those_that_a_robot_gives():
    task = find_task("mjlab:Mjlab-Cartpole-Swingup")
    cfg = replace(task.usual_env(), changes={"episode_length_s": 1.5})
    contract = task.contract(cfg)
    rows = task.record(task, cfg, noisy_policy, seed=3, envs=2, steps=45, before=5)
    assert largest_difference(contract, rows) < 1e-6
    # Each row's last_action is the action of the step before it.
    goes_on = ~rows["episode_start"][1:]
    pushed = np.clip(10.0 * rows["last_action"][1:, 0], -10.0, 10.0)[goes_on]
    assert np.abs(pushed).max() == 10.0
    np.testing.assert_allclose(rows["joint_target_effort_nm"][:-1, 0][goes_on], pushed, rtol=1e-6)
    assert not rows["joint_target_effort_nm"][:, 1].any()


def test_a_cart_at_the_end_of_its_rail_is_pushed_back_only():
    task = find_task("mjlab:Mjlab-Cartpole-Balance")
    env = task.make_env(replace(task.usual_env(), num_envs=2), "cpu", 1)
    env.env.sim.data.qpos[:, 0] = torch.tensor([1.7, -1.7])
    env.step(torch.ones(2, 1))
    efforts = env.env.action_manager.get_term("effort").efforts[:, 0].tolist()
    env.close()
    assert efforts == [0.0, 10.0]


def test_the_robot_of_the_cartpole_tasks_is_mjlabs_model():
    """Both swing freely from the same state, one in its own scene with the floor of mjlab, the other alone."""
    theirs = mujoco.MjModel.from_xml_path(str(Path(cartpole_env_cfg.__file__).parent / "cartpole.xml"))
    ours = robot_model("cartpole_mjlab").compile()
    ends = []
    for model in (theirs, ours):
        model.opt.timestep = 0.002
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = (0.3, 2.0), (-0.4, 1.0)
        mujoco.mj_step(model, data, 1000)
        ends.append((*data.qpos, *data.qvel))
    np.testing.assert_allclose(ends[1], ends[0], atol=1e-9)


def test_train_export_and_check_a_velocity_task(tmp_path, capsys):
    assert main(["train", FLAT_GO1, *TRAIN, *SHORT, "--run-dir", str(tmp_path / "run")]) == 0
    bundle = load_bundle(tmp_path / "run" / "bundle")
    assert bundle.contract.robot == "go1"
    assert largest_difference(bundle.contract, bundle.golden) < 1e-5
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert "lin vel error" in capsys.readouterr().out
    code = main(["check", str(tmp_path / "run" / "bundle"), "--episodes", "1", "--seconds", "2", "--json", "-"])
    report = json.loads(capsys.readouterr().out)
    # Two updates teach nobody to walk, but nothing of the bundle is refused.
    assert (code, report["verdict"]) in ((0, "passed"), (1, "failed")), report
    assert len(report["stages"]) > 3


def test_a_task_with_an_unknown_term_trains_and_names_it_at_export(tmp_path, capsys):
    assert main(["train", LIFT, *TRAIN, *SHORT, "--run-dir", str(tmp_path / "run")]) == 0
    assert not (tmp_path / "run" / "bundle").exists()
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert "length" in capsys.readouterr().out
    assert main(["export", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert "'ee_to_cube' of group 'actor'" in told
    assert "ee_to_object_distance" in told


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("mjlab:Mjlab-Tracking-Flat-Unitree-G1", "motion_anchor_ori_b"),
        ("mjlab:Mjlab-Lift-Cube-Yam", "ee_to_object_distance"),
    ],
)
def test_what_is_missing_is_named(name, part):
    task = find_task(name)
    assert not task.has_contract
    with pytest.raises(NoContractError, match=part):
        task.contract(task.usual_env())


def test_terms_that_a_contract_cannot_say_are_refused_by_name(go1):
    for changes, part in (
        ({"observations.actor.terms.joint_pos.clip": [-1.0, 2.0]}, r"'joint_pos' .* clipped to \[-1, 2\]"),
        ({"observations.actor.terms.base_ang_vel.scale": [1.0, 1.0, 2.0]}, "'base_ang_vel' .* scale for each number"),
    ):
        with pytest.raises(NoContractError, match=part):
            go1.contract(replace(go1.usual_env(), changes=changes))


def test_velocity_of_a_point_of_the_base():
    ahead = replace(make_term("base_lin_vel", 3), point_in_base_m=(1.0, 0.0, 0.0))
    contract = contract_for(tiny_robot(), observations=(ahead,))
    n = len(contract.joint_names)
    signals = Signals(
        joint_pos_rad=np.zeros((1, n)),
        joint_vel_rad_s=np.zeros((1, n)),
        quat_base_to_world_wxyz=np.array([[1.0, 0.0, 0.0, 0.0]]),
        ang_vel_base_in_base_rad_s=np.array([[0.0, 3.0, 2.0]]),
        command=np.zeros((1, 3)),
        last_action=np.zeros((1, n)),
        time_s=np.zeros(1),
        lin_vel_base_in_base_m_s=np.array([[0.5, 0.0, 0.0]]),
    )
    # A metre ahead, turning left moves the point left, pitching down moves it down.
    assert ObservationBuilder(contract, np.zeros((1, 1)))(signals)[0].tolist() == [0.5, 2.0, -3.0]
    wrong = replace(contract, observations=(replace(make_term("base_ang_vel", 3), point_in_base_m=(1.0, 0.0, 0.0)),))
    with pytest.raises(ContractError, match="expected three numbers for 'base_lin_vel'"):
        ObservationBuilder(wrong, np.zeros((1, 1)))
