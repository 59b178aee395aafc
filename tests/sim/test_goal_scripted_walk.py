"""The scripted policy in the task's environment: its actions, how it walks, and what learns from it."""

import argparse
import json
from dataclasses import replace

import pytest
import torch

from gantry_deploy.cli.main import main
from gantry_deploy.footsteps.gait import foot_phase
from gantry_hardware.errors import GantryError
from gantry_hardware.files.structured import ConfigError
from gantry_policies.on_policy.teacher_guided import TeacherGuidedPPO
from gantry_sim.cli.train import COMMAND as TRAIN
from gantry_sim.cli.train import configure
from gantry_sim.process.suppress_output import quietly
from gantry_sim.tasks.goal.cfg import GroundCfg
from gantry_sim.tasks.goal.evaluation import walk_to_goals
from gantry_sim.tasks.goal.scripted.teacher import SCRIPT_GUIDE, scripted_env
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.tasks.registry import find_task
from gantry_sim.training.policies import scripted_source
from gantry_sim.training.run_folder import RunCfg, check_run, create_run, read_run
from gantry_sim.training.train import train

ROUGH = GroundCfg(kinds=("rough",), levels=1, columns=1, tile_m=(8.0, 8.0), start_levels=1)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def made():
    task = find_task("ame2-go2")
    cfg = task.evaluation(replace(task.preset("cpu").env, ground=ROUGH, noise=None), num_envs=6)
    with quietly():
        return task.require_scripted().make_env(cfg, "cpu", 10007).env


@pytest.fixture
def env(made):
    made.reset()
    return made


def test_it_walks_towards_its_goal(env):
    env.reset()
    fell = torch.zeros(env.num_envs, dtype=torch.bool)
    before = GoalState.of(env).distance.clone()
    assert before.min() > 2.0
    for _ in range(250):
        env.step(env.expert_action())
        fell |= env.reset_terminated
    nearer = before - GoalState.of(env).distance
    assert int((~fell & (nearer > 1.0)).sum()) >= 4


@pytest.mark.soak
def test_it_goes_on_standing_whatever_the_actions(env):
    """At the goal, for five seconds, with noise of 1 on places and velocities and 0.2 on the pose."""
    state, make = GoalState.of(env), torch.Generator().manual_seed(0)
    env.reset()
    w, x, y, z = state.quat.unbind(-1)
    yaw = torch.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
    state.set_goals(torch.arange(env.num_envs), state.pos_w.clone(), yaw)
    env.state_version += 1
    fell = torch.zeros(env.num_envs, dtype=torch.bool)
    noise = torch.tensor([1.0] * 9 + [0.2] * 3)  # the pose counts at rest as well
    for _ in range(250):
        env.step(env.expert_action() + noise * torch.randn(env.num_envs, 12, generator=make))
        fell |= env.reset_terminated
    assert int(fell.sum()) <= 1


def test_looking_again_does_not_walk_on(env):
    """The scripted policy is asked once per step, however often its actions are observed."""
    action = env.action_manager.get_term("joint_pos")
    env.reset()
    for _ in range(30):
        env.step(env.expert_action())
    seen, targets = [], []
    for _ in range(3):
        env.observation_manager.compute(update_history=True)
        action.process_actions(env.expert_action())
        seen.append(env.expert_action().clone())
        targets.append(action.targets.clone())
    assert torch.equal(seen[0], seen[1])
    for other in targets[1:]:
        torch.testing.assert_close(other, targets[0], atol=1e-5, rtol=0.0)


def test_an_episode_begins_as_the_first_did(env):
    """The same state gives the same targets, whatever was walked before."""
    action, state = env.action_manager.get_term("joint_pos"), GoalState.of(env)
    env.reset()
    targets, begun = [], None
    for _ in range(2):
        for _ in range(35):
            env.step(env.expert_action())
        env.reset()
        begun = env.sim.data.qpos.clone() if begun is None else begun
        env.sim.data.qpos[:], env.sim.data.qvel[:] = begun, 0.0
        state.set_goals(torch.arange(env.num_envs), state.sites.goals[0, 0, :6], torch.zeros(env.num_envs))
        env.sim.forward()
        env.state_version += 1
        action.process_actions(env.expert_action())
        targets.append(action.targets.clone())
    torch.testing.assert_close(targets[0], targets[1], atol=1e-5, rtol=0.0)


def test_a_policy_learns_from_the_rules(tmp_path):
    task = find_task("ame2-go2")
    preset = task.preset("cpu")
    learner = replace(preset.learner, total_steps=96, epochs=1)
    small = replace(preset, env=replace(preset.env, num_envs=4, ground=ROUGH), learner=learner)
    cfg = RunCfg(task, "cpu", small, "cpu", 1, 1, scripted_teacher=True)
    check_run(cfg)
    create_run(cfg, tmp_path / "run")
    runner, complete = train(read_run(tmp_path / "run"), tmp_path / "run")
    assert complete
    assert isinstance(runner.alg, TeacherGuidedPPO)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["teacher"] == "scripted"
    assert "loss_imitation" in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0]


@pytest.mark.soak
def test_evaluations_are_walked_by_rules():
    """The evaluation does what the scripted policy does, and reaches goals that zero actions do not."""
    source = scripted_source("ame2-go2", 0.0, 1)
    cfg = source.task.evaluation(replace(source.env_cfg, ground=ROUGH), num_envs=6)
    assert walk_to_goals(source.task, cfg, source.make_policy, "cpu", 10007)["success_rate"]["mean"] >= 0.5


def test_the_rules_bring_their_preset_with_them(tmp_path):
    """Whoever names them needs no further switches; what is set wins."""
    words = ["train", "ame2-go2", "--teacher", "scripted", "--set", "learner.init_std=0.3"]
    parser = argparse.ArgumentParser()
    TRAIN.add_arguments(parser)
    cfg, _, _ = configure(parser.parse_args([*words[1:], "--run-dir", str(tmp_path / "run")]))
    assert (cfg.scripted_teacher, cfg.preset.env.gait, cfg.preset.env.ground.school) == (True, "steps", ())
    assert (cfg.preset.learner.init_std, cfg.preset.learner.guide) == (0.3, SCRIPT_GUIDE)


def test_rules_teach_nobody_else():
    for name in ("ame2-g1", "ame2-go2-student"):
        task = find_task(name)
        with pytest.raises(GantryError, match="has no scripted policy"):
            task.require_scripted()
    with pytest.raises(GantryError, match=r"the action of this policy is 'target/joint/position'"):
        scripted_env(find_task("ame2-g1").preset("cpu").env, "cpu", 1)
    with pytest.raises(GantryError, match=r"env\.observer is 'student'"):
        scripted_env(find_task("ame2-go2-student").preset("cpu").env, "cpu", 1)


def test_a_policy_must_say_where_to_step():
    env = replace(find_task("ame2-go2").preset("cpu").env, gait="strides")
    with pytest.raises(GantryError, match=r"'target/joint/position'.*env\.gait=steps"):
        scripted_env(env, "cpu", 1)


@pytest.mark.parametrize("words", [["--preset", "gpu"], ["--set", "env.goal_velocity=null"]])
def test_without_steps_there_is_a_reason_and_no_run(tmp_path, capsys, words):
    folder = tmp_path / "run"
    assert main(["train", "ame2-go2", "--teacher", "scripted", "--run-dir", str(folder), *words]) == 2
    assert "says where to step" in capsys.readouterr().err
    assert not folder.exists()


def test_steps_are_for_legs_that_can_take_them():
    g1 = find_task("ame2-g1").preset("cpu").env
    with pytest.raises(ConfigError, match=r"env\.robot is 'g1'"):
        replace(g1, gait="steps")
    with pytest.raises(GantryError, match=r"'strids'.*strides"):
        replace(g1, gait="strids")


@pytest.mark.soak
def test_feet_keep_the_policys_time_in_an_episode_that_begins_late(env):
    """Training spreads its first episodes; a student must see the scripted policy's step in its own clock."""
    env.reset()
    env.episode_length_buf[:] = torch.arange(env.num_envs) * 3
    env.state_version += 1
    state, clock = GoalState.of(env), env.action_manager.get_term("joint_pos").cfg.contract.gait
    lifted = torch.zeros(env.num_envs, 4)
    for _ in range(60):
        env.step(env.expert_action())
        state = GoalState.of(env)
        phase = foot_phase(clock, state.time_s, torch.tensor(clock.foot_offset))
        mid_swing = (phase > 0.7) & (phase < 0.8)
        lifted += mid_swing * (2.0 * (state.foot_contact == 0) - 1.0)
    assert (lifted.sum(1) > 0).all()
