"""Teachers that plan, beside PPO on a task told in words: shown the environments, compared, and learned from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.contract.policy_contract import ChunkSpec
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_fixtures.arm import arm_bundle
from gantry_hardware.errors import GantryError
from gantry_policies.on_policy.plan_teacher import PlanTeacher
from gantry_policies.on_policy.teacher_guided import TeacherGuidedPPO
from gantry_sim.envs.rsl_rl import BatchedVecEnv
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks.manipulation.contract import arm_contract
from gantry_sim.tasks.registry import find_task
from gantry_sim.training.algorithms.ppo import PPO, make_trainer
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_validation import RunError, is_planner, require_teacher


def run_with(planner, **env):
    task = find_task("yam-tell-push")
    preset = task.preset("rpd")
    learner = replace(preset.learner, steps_per_env=4, minibatch_samples=8, total_steps=64)
    return RunCfg(
        task, "rpd", replace(preset, env=replace(preset.env, num_envs=4, **env), learner=learner), planner=planner
    )


@pytest.fixture(scope="module")
def plan_bundle(tmp_path_factory):
    contract = replace(arm_contract(run_with("").preset.env), chunk=ChunkSpec(3, 2))
    return arm_bundle(tmp_path_factory.mktemp("teacher"), contract)


@pytest.mark.slow
def test_a_bundle_teaches_what_it_would_do_now(plan_bundle):
    trainer = make_trainer(run_with(f"bundle:{plan_bundle.path}"), None)
    teacher = trainer.alg.teacher
    assert isinstance(trainer.alg, TeacherGuidedPPO)
    assert isinstance(teacher, PlanTeacher)
    seen = trainer.env.get_observations()
    guidance = teacher(seen)
    network = OnnxPolicy(plan_bundle.model_bytes, plan_bundle.contract)
    expected = [network(row[None].numpy())[0, 0] for row in seen["actor"]]
    torch.testing.assert_close(guidance.actions, torch.as_tensor(np.stack(expected)).clamp(-1.0, 1.0))
    report = next(trainer.work())
    assert np.isfinite(report.metrics["loss_imitation"])
    assert teacher.timed.counts()["rows"] == 4 * 5
    trainer.env.close()


def test_a_teacher_of_other_steps_is_refused_with_both_sides(plan_bundle):
    with pytest.raises(RunError, match=r"units of its actions, the student .*action_scale"):
        PPO.check(run_with(f"bundle:{plan_bundle.path}", step_m=0.01))
    with pytest.raises(GantryError, match="There is no bundle at nowhere"):
        PPO.check(run_with("bundle:nowhere"))


def test_names_of_teachers_that_plan_are_told_from_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_planner("openpi:localhost:8000")
    assert is_planner("bundle:pretrained:yam-lift")
    assert not is_planner("runs/teacher")
    (tmp_path / "a:b").mkdir()
    assert not is_planner("a:b")
    require_teacher("lerobot:somewhere")
    with pytest.raises(Exception, match="bundle"):
        require_teacher("bundel:somewhere")


@pytest.mark.slow
def test_a_teacher_of_numbers_teaches_a_student_of_pictures_which_leaves_as_a_bundle(plan_bundle, tmp_path):
    task = find_task("yam-tell-push")
    preset = task.preset("rpd-images")
    remembering = replace(preset.learner.guide, imitation_iterations=1, aggregate_rollouts=2)
    learner = replace(
        preset.learner, steps_per_env=4, minibatch_samples=8, total_steps=64, guide=remembering
    )  # DAgger remembers pictures, too.
    env = replace(preset.env, num_envs=4, image_px=24)
    run = RunCfg(task, "rpd-images", replace(preset, env=env, learner=learner), planner=f"bundle:{plan_bundle.path}")
    PPO.check(run)
    trainer = make_trainer(run, None)
    seen = trainer.env.get_observations()
    assert seen["image/front"].dtype == torch.uint8
    assert seen["critic"].shape[1] == plan_bundle.contract.observation_size + 6
    assert np.isfinite(next(trainer.work()).metrics["loss_imitation"])
    trained = PPO.open(run, tmp_path, trainer)
    golden = task.record(task, env, trained.make_policy, seed=1)
    trainer.env.close()
    bundle = load_bundle(trained.write_bundle(run.contract(), golden, tmp_path / "bundle"))
    assert [camera.name for camera in bundle.contract.cameras] == ["front"]
    assert bundle.contract.instruction is not None


def test_the_critic_of_a_student_of_numbers_is_shown_the_ways_to_what_is_named_and_on_to_its_goal():
    preset = find_task("yam-tell-push").preset("ppo")
    env = ArmStepEnv(replace(preset.env, num_envs=3), seed=4)
    for seen in (env.reset, lambda: env.step(torch.full((3, 4), 0.3)).obs):
        seen, state = seen(), env.state
        rows = torch.arange(3)
        things = seen["state"][:, -31:-22].reshape(3, 3, 3)[rows, state.things.asked]
        torch.testing.assert_close(seen["critic"][:, :3] * 0.1, state.object_from_ee)
        torch.testing.assert_close(seen["critic"][:, 3:] * 0.1, state.goal - state.object_pos)
        assert seen["critic"].shape == (3, preset.learner.labels)
        # The policy sees the same with noise, among the other things and in its own units.
        assert torch.corrcoef(torch.stack((things.flatten(), seen["critic"][:, :3].flatten())))[0, 1] > 0.99
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ppo", "rpd", "dagger-ppo"])
def test_the_actor_learns_to_predict_what_is_named_while_it_learns_to_act(plan_bundle, way):
    task = find_task("yam-tell-push")
    preset = task.preset(way)
    learner = replace(preset.learner, steps_per_env=8, minibatch_samples=64, total_steps=64 * 200)
    planner = "" if way == "ppo" else f"bundle:{plan_bundle.path}"
    preset = replace(preset, env=replace(preset.env, num_envs=8), learner=learner)
    trainer = make_trainer(RunCfg(task, way, preset, seed=3, planner=planner), None)
    work = trainer.work()
    errors = [next(work).metrics["loss_labels"] for _ in range(12)]
    assert errors[-1] < 0.5 * errors[0], errors
    # The head is the learner's alone.
    assert not any("label" in name for name, _ in trainer.alg.actor.as_onnx().named_parameters())
    trainer.env.close()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"network": "mlp"}, "learner.labels is 6, and network 'mlp' predicts nothing"),
        ({"label_weight": 0.0}, "learner.labels is 6 and learner.label_weight 0, expected both above 0, or both 0"),
        ({"mirror": "critic"}, "learner.labels is 6, and learner.mirror 'critic' mirrors them without what the actor"),
        ({"labels": -1}, "learner.labels is -1, expected at least 0"),
    ],
)
def test_labels_that_nothing_predicts_are_refused(change, text):
    with pytest.raises(GantryError) as refused:
        replace(find_task("yam-tell-push").preset("ppo").learner, **change)
    assert text in str(refused.value)


def test_labels_that_the_critic_is_not_shown_are_refused():
    task = find_task("yam-tell-push")
    preset = task.preset("ppo")
    blind = replace(preset, env=replace(preset.env, num_envs=4, critic=False))
    with pytest.raises(
        RunError, match=r"learner\.labels is 6, and nothing but the policy's own observation .* env\.crit"
    ):
        PPO.check(RunCfg(task, "ppo", blind))
    learner = replace(preset.learner, labels=20, steps_per_env=4, minibatch_samples=8)
    many = replace(preset, env=replace(preset.env, num_envs=4), learner=learner)
    with pytest.raises(GantryError, match=r"learner\.labels is 20, and the critic is shown 6 numbers"):
        make_trainer(RunCfg(task, "ppo", many), None)


def test_a_training_that_goes_on_goes_on_in_the_midst_of_its_episodes():
    cfg = replace(find_task("yam-tell-push").preset("ppo").env, num_envs=2)
    first = BatchedVecEnv(ArmStepEnv(cfg, seed=4))
    for _ in range(5):
        first.step(torch.full((2, 4), 0.2))
    state, seen = first.training_state(), first.get_observations()
    second = BatchedVecEnv(ArmStepEnv(cfg, seed=4))
    second.restore_training_state(state)
    found = second.get_observations()
    for group in ("actor", "critic"):
        torch.testing.assert_close(found[group], seen[group])
    assert second.training_state()["ages"] == [5, 5]
    for env in (first, second):
        env.close()


def test_pictures_and_their_network_belong_together():
    run = run_with("")
    with pytest.raises(RunError, match=r"shows no pictures, configured like this, and learner.network is 'pictures'"):
        PPO.check(replace(run, preset=replace(run.preset, learner=replace(run.preset.learner, network="pictures"))))
    with pytest.raises(RunError, match=r"shows image/wrist, image/front.*learner.network is 'words'"):
        PPO.check(replace(run, preset=replace(run.preset, env=replace(run.preset.env, observer="camera"))))


def test_a_preset_that_learns_from_a_teacher_is_nothing_without_one():
    with pytest.raises(RunError, match="Preset 'rpd' learns from a teacher; name a run folder, or for example"):
        PPO.check(run_with(""))


@pytest.mark.slow
def test_a_server_teaches_and_is_killed_and_the_training_goes_on_without(plan_bundle, capsys):
    pytest.importorskip("websockets")
    from gantry_fixtures.openpi import serve_process

    with serve_process(plan_bundle.path) as (process, port):
        trainer = make_trainer(run_with(f"openpi:127.0.0.1:{port}?deadline_s=30"), None)
        work = trainer.work()
        assert next(work).metrics["loss_imitation"] > 0.0
        process.kill()
        process.wait()
        assert next(work).metrics["loss_imitation"] == 0.0
    assert "The teacher does not answer: " in capsys.readouterr().err
    trainer.alg.teacher.close()
    trainer.env.close()
