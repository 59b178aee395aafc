"""Who teaches a car: rules on the learner's own rollouts, and another run's policy that sees less."""

import json
from dataclasses import replace

import pytest
import torch
from tensordict import TensorDict

from gantry_deploy.cli.main import main
from gantry_hardware.errors import GantryError
from gantry_policies.on_policy.teacher_guided import TeacherGuidedPPO
from gantry_policies.on_policy.teachers import PolicyTeacher
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.evaluation import drive_episodes, held_out, scores_of
from gantry_sim.driving.traffic.traffic_cfg import TrafficCfg
from gantry_sim.tasks.registry import acting, find_task
from gantry_sim.training.algorithms.ppo import PPO
from gantry_sim.training.run_folder import RunCfg, RunError, check_run, create_run, read_run
from gantry_sim.training.teachers import copy_teacher, load_teacher
from gantry_sim.training.train import build_trainer, export_run, open_trained, train


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Environments are stepped with one."""


def small(name="drive-lane", iterations=1, cars=4, steps=16, **env):
    """A preset of few steps."""
    preset = find_task(name).preset("cpu")
    guide = replace(preset.learner.guide, imitation_iterations=iterations // 2, fade_iterations=iterations)
    learner = replace(
        preset.learner, total_steps=iterations * cars * steps, steps_per_env=steps, minibatch_samples=512, guide=guide
    )
    return replace(preset, env=replace(preset.env, num_envs=cars, map_count=2, **env), learner=learner)


def run_of(preset, name="drive-lane", seed=1, teacher=None, scripted_teacher=False):
    return RunCfg(find_task(name), "cpu", preset, "cpu", seed, 1, teacher, scripted_teacher)


def test_the_experts_actions_are_beside_what_the_policy_sees():
    preset = small("drive-traffic", cars=3)
    env, plain = DriveEnv(preset.env, seed=5), DriveEnv(preset.env, seed=5)
    for _ in range(5):
        seen, bare = env.observe(), plain.observe()
        action = env.expert_action()
        assert set(seen.keys()) == {"state", "critic"}
        assert torch.equal(seen["state"], bare["state"])
        assert torch.equal(seen["critic"], bare["critic"])
        assert torch.equal(action, plain.scene.scripted_actions())
        assert action.abs().max() <= 1.0
        env.step(action)
        plain.step(action)


@pytest.mark.soak
def test_a_guided_student_is_far_ahead_of_an_unguided_one(tmp_path):
    """33 thousand steps each: alone a car soon leaves the road, guided it drives about half of its route."""
    completion = {}
    for scripted in (True, False):
        cfg = run_of(small(iterations=8, cars=64, steps=64), scripted_teacher=scripted)
        runner = build_trainer(cfg, None)
        assert isinstance(runner.alg, TeacherGuidedPPO) == scripted
        assert runner.train()
        actor = acting(PPO.open(cfg, tmp_path, runner).make_policy, None)
        env = DriveEnv(held_out(cfg.preset.env, num_envs=16, episode_s=30.0), seed=9)
        scores = scores_of(drive_episodes(env, lambda _, obs, actor=actor: actor(obs)))
        completion[scripted] = scores["completion_percent"]["mean"]
    assert completion[True] > completion[False] + 25.0


@pytest.mark.slow
def test_a_run_guided_by_rules_goes_on_and_exports(tmp_path):
    folder = tmp_path / "run"
    create_run(run_of(small(iterations=2), scripted_teacher=True), folder)
    cfg = read_run(folder)
    assert cfg.scripted_teacher
    runner = build_trainer(cfg, folder)
    runner.train(lambda progress: runner.stop())
    again, complete = train(cfg, folder, resume=True)
    assert complete
    assert isinstance(again.alg, TeacherGuidedPPO)
    opened, trained = open_trained(folder)
    assert (export_run(opened, folder, trained) / "policy.onnx").is_file()


def test_who_learned_to_be_alone_teaches_who_is_not(tmp_path):
    """The teacher answers what it would, fed with the terms that it knows."""
    create_run(run_of(small(history=1)), tmp_path / "lane")
    teacher_runner, _ = train(read_run(tmp_path / "lane"), tmp_path / "lane")
    preset = small("drive-lane", traffic=TrafficCfg(slots=2), history=3)
    cfg = run_of(preset, teacher=tmp_path / "lane")
    check_run(cfg)
    teacher = load_teacher(cfg)
    assert isinstance(teacher, PolicyTeacher)
    env = DriveEnv(preset.env, seed=3)
    seen = env.observe()
    terms, start = {}, 0
    for term in env.contract.observations:
        stop = start + term.size * term.history
        terms[term.name] = seen["state"][:, stop - term.size : stop]  # The newest frame.
        start = stop
    own = torch.cat([terms[term.name] for term in teacher_runner.env.batched.contract.observations], dim=1)
    assert own.shape[1] < seen["state"].shape[1]
    actor = acting(PPO.open(cfg, tmp_path, teacher_runner).make_policy, None)
    told = teacher(TensorDict({"actor": seen["state"]}, batch_size=[env.num_envs]))
    torch.testing.assert_close(told.actions, actor({"state": own}), atol=1e-6, rtol=1e-5)
    create_run(cfg, tmp_path / "student")
    copy_teacher(tmp_path / "lane", tmp_path / "student")
    student, complete = train(read_run(tmp_path / "student"), tmp_path / "student")
    assert complete
    assert isinstance(student.alg, TeacherGuidedPPO)


def test_teachers_that_do_not_fit_are_refused(tmp_path):
    among = small("drive-lane", traffic=TrafficCfg(slots=2))
    create_run(run_of(among), tmp_path / "among")
    train(read_run(tmp_path / "among"), tmp_path / "among")
    with pytest.raises(RunError, match="sees 'stop_line', the student's task shows"):
        load_teacher(run_of(small(), teacher=tmp_path / "among"))
    for change, text in (
        ({"robot": "f1tenth"}, "another body"),
        ({"lookahead_m": (5.0, 10.0)}, "another 'route_points'"),
        ({"rate_hz": 20.0}, "another rate_hz"),
    ):
        other = replace(among, env=replace(among.env, **change))
        with pytest.raises(RunError, match=text):
            load_teacher(run_of(other, teacher=tmp_path / "among"))
    with pytest.raises(RunError, match="are named to teach, expected one"):
        check_run(run_of(small(), teacher=tmp_path, scripted_teacher=True))
    task = find_task("velocity-flat-go2")
    with pytest.raises(GantryError, match="Task 'velocity-flat-go2' has no scripted policy"):
        check_run(RunCfg(task, "cpu", task.preset("cpu"), "cpu", 1, scripted_teacher=True))


def test_rules_are_named_on_the_command_line_like_a_run(tmp_path, capsys):
    few = ["--steps", "64", "--episodes", "0", "--no-export", "--set", "env.num_envs=2", "--set", "env.map_count=1"]
    few += ["--set", "learner.steps_per_env=8", "--set", "learner.guide.imitation_iterations=1"]
    assert main(["train", "drive-lane", "--teacher", "scripted", "--run-dir", str(tmp_path / "run"), *few]) == 0
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert record["teacher"] == "scripted"
    assert "loss_imitation" in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0]
    assert main(["train", "drive-lane", "--teacher", "rulers", "--run-dir", str(tmp_path / "other"), *few]) != 0
    assert "rulers" in capsys.readouterr().err
