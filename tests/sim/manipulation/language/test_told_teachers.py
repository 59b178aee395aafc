"""Teachers that plan, beside PPO on a task told in words: shown the environments, compared, and learned from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.contract.policy_contract import ChunkSpec
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_fixtures.arm import arm_bundle
from gantry_policies.on_policy.plan_teacher import PlanTeacher
from gantry_policies.on_policy.teacher_guided import TeacherGuidedPPO
from gantry_sim.tasks.manipulation.contract import arm_contract
from gantry_sim.tasks.registry import find_task
from gantry_sim.training.algorithms.ppo import make_trainer
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_validation import RunError, is_planner, require_teacher


def run_with(planner, **env):
    task = find_task("yam-tell-push")
    preset = task.preset("rpd")
    learner = replace(preset.learner, steps_per_env=4, minibatch_samples=8, total_steps=16)
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
        make_trainer(run_with(f"bundle:{plan_bundle.path}", step_m=0.01), None)


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
