"""Parts of the arms' commands: demonstrations in memory, environments that continue, the meter, comparisons."""

import json
from dataclasses import replace

import pytest
import torch

from gantry_deploy.dataset.checks.agreement import Expected
from gantry_deploy.dataset.physical import Numbers
from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import STATE
from gantry_policies.imitation.config import BcCfg
from gantry_sim.benchmarks.arms import BenchCfg, bench_lines, bench_page, collect_results, planned
from gantry_sim.benchmarks.comparison import SCORED, TRAINED
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks.manipulation.cfg import ArmCfg
from gantry_sim.tasks.manipulation.contract import arm_contract
from gantry_sim.tasks.manipulation.evaluation import Meter
from gantry_sim.tasks.manipulation.presets import ExpertPolicy
from gantry_sim.training.algorithms.cloning import with_labels
from gantry_sim.training.demos import DemoSet, load_demos


def three_episodes():
    """Lengths 2, 1 and 3; the first ends for good, the others run out of time."""
    return DemoSet(
        obs={STATE: torch.arange(6.0)[:, None]},
        action=torch.arange(6.0)[:, None] / 10,
        reward=torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 0.0]),
        lengths=(2, 1, 3),
        terminated=(True, False, False),
        succeeded=(True, False, False),
        labels=torch.arange(12.0).view(6, 2),
    )


def test_of_an_episode_that_ran_out_of_time_the_last_step_shows_only_what_it_led_to():
    first, last = three_episodes().demos()  # An episode of one step that ran out of time says nothing.
    assert first.terminated
    assert first.action.flatten().tolist() == pytest.approx([0.0, 0.1])
    assert first.reward.tolist() == [0.0, 1.0]
    assert not last.terminated
    assert last.obs[STATE].flatten().tolist() == [3.0, 4.0, 5.0]
    assert last.action.flatten().tolist() == pytest.approx([0.3, 0.4])


def test_the_copy_of_a_run_holds_the_same_and_chunks_take_whole_episodes(tmp_path):
    assert load_demos(tmp_path) is None
    three_episodes().save(tmp_path)
    found = load_demos(tmp_path)
    assert found is not None
    assert (found.lengths, found.terminated) == ((2, 1, 3), (True, False, False))
    chunks = found.chunks([0, 2])
    assert chunks.lengths == [2, 3]
    assert chunks.obs[STATE].flatten().tolist() == [0.0, 1.0, 3.0, 4.0, 5.0]
    assert chunks.labels is not None
    assert chunks.labels[:, 0].tolist() == [0.0, 2.0, 6.0, 8.0, 10.0]
    replace(three_episodes(), labels=None).save(tmp_path)
    found = load_demos(tmp_path)
    assert found is not None
    assert (found.labels, found.chunks().labels) == (None, None)
    with pytest.raises(GantryError, match="acts with 2"):
        found.require(expected_of("task", 2), "demos")


def expected_of(task, action_size):
    numbers = [Numbers(name, (), (), (1.0,) * size, (0.0,) * size) for name, size in (("s", 1), ("a", action_size))]
    return Expected(task, "yam", 20.0, (numbers[0],), numbers[1])


def test_the_copy_of_a_run_says_of_what_its_demonstrations_are(tmp_path, caplog):
    replace(three_episodes(), described=expected_of("push", 1).described()).save(tmp_path)
    found = load_demos(tmp_path)
    assert found is not None
    found.require(expected_of("push", 1), "demos")
    assert caplog.text == ""
    with pytest.raises(GantryError, match="do not fit the task 'lift': task is 'push' there, 'lift' here"):
        found.require(expected_of("lift", 1), "demos")
    three_episodes().require(expected_of("lift", 1), "demos")
    assert "'demos' does not say of which task its demonstrations are" in caplog.text


def test_environments_come_back_to_the_middle_of_their_episodes_bit_by_bit():
    cfg = ArmCfg("lift", num_envs=3, episode_s=2.0, object_noise_m=0.002)
    env, again = ArmStepEnv(cfg, seed=5), ArmStepEnv(cfg, seed=5)
    expert = ExpertPolicy(env, 0.5, 1)
    env.reset()
    expert.reset()
    for _ in range(70):
        step = env.step(expert.act({}))
        expert.reset((step.terminated | step.truncated).nonzero().squeeze(1))
    state = env.training_state()
    assert len(set(state["ages"])) > 1  # successes ended some episodes early
    again.restore_training_state(state)
    draw = torch.Generator().manual_seed(0)
    for _ in range(30):
        action = 2.0 * torch.rand(3, env.action_size, generator=draw) - 1.0
        one, other = env.step(action), again.step(action)
        assert torch.equal(one.obs[STATE], other.obs[STATE])
        assert torch.equal(one.truncated, other.truncated)
    assert env.state.episodes == again.state.episodes
    with pytest.raises(GantryError, match=r"expected \(steps, 2, 4\)"):
        ArmStepEnv(ArmCfg("lift", num_envs=2), seed=5).restore_training_state(state)


class TwoThirds:
    """Acts with 0.5 and -0.1 on a base that wants 0.2 and 0.2."""

    last_base_action = torch.tensor([[0.2, 0.2]])

    def reset(self, env_ids=None):
        pass

    def act(self, obs):
        return torch.tensor([[0.5, -0.1]])


def test_the_meter_gives_mean_sizes_of_actions_and_corrections():
    told = []
    meter = Meter(TwoThirds(), told.append)
    meter.reset()
    meter.act({})
    meter.reset(torch.tensor([0]))
    found = meter.magnitudes()
    assert found == pytest.approx({"mean_action": 0.3, "mean_base_action": 0.2, "mean_residual": 0.3})
    assert told == [1]


def test_a_comparison_pools_seeds_and_notes_when_success_was_first_seen(tmp_path):
    cfg = BenchCfg("yam-lift", (1, 2), ("bc", "resfit"), minutes=1.0)
    for run, share in zip(planned(cfg, tmp_path), (0.5, 0.9, 0.7, 1.0), strict=True):
        run.folder.mkdir()
        scores = {"success_once": {"mean": share}, "episodes": 10, "steps_to_success": 30.0, "mean_residual": 0.1}
        (run.folder / SCORED).write_text(json.dumps({"training_model": scores}))
        (run.folder / TRAINED).write_text(json.dumps({"env_steps": 3000, "train_wall_s": 60.0}))
        looks = [
            {"kind": "eval", "env_steps": s, "wall_s": s / 10, "success_once": {"mean": s / 1e4}} for s in (0, 9200)
        ]
        (run.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in looks))
    found = collect_results(cfg, tmp_path)
    assert found["methods"]["bc"]["success"]["mean"] == pytest.approx(0.6)
    assert found["methods"]["resfit"]["by_seed"] == [0.9, 1.0]
    assert found["methods"]["resfit"]["reached_90_steps"] == [9200, 9200]
    assert found["methods"]["resfit"]["reached_95_s"] == [None, None]
    lines = bench_lines(found)
    assert any("95.0 % [" in line and "90.0/100.0" in line and "9k 15min/9k 15min" in line for line in lines)
    assert "Success over time" in bench_page(cfg, tmp_path, found).html()
    with pytest.raises(GantryError, match="Did you mean 'resfit'"):
        BenchCfg("yam-lift", (1,), ("refit",))


def test_without_motion_the_policy_sees_places_alone():
    """Speeds and leads of the joints are left out, in the environment and in the contract alike."""
    cfg = replace(ArmCfg("lift", num_envs=2, episode_s=2.0), motion=False)
    names = [term.name for term in arm_contract(cfg).observations]
    with_motion = [term.name for term in arm_contract(replace(cfg, motion=True)).observations]
    assert set(with_motion) - set(names) == {"joint_vel", "joint_lead"}
    env = ArmStepEnv(cfg, seed=3)
    try:
        first = env.reset()["state"]
        assert first.shape == (2, arm_contract(cfg).observation_size)
    finally:
        env.close()


def test_labels_that_are_not_there_are_said_to_be_missing(caplog):
    cfg = BcCfg(label_weight=0.5)
    assert with_labels(cfg, three_episodes()).network.labels == 2
    assert with_labels(replace(cfg, label_weight=0.0), three_episodes()).network.labels == 0
    assert caplog.text == ""
    assert with_labels(cfg, replace(three_episodes(), labels=None)).network.labels == 0
    assert "label_weight is 0.5, and the demonstrations have no observation.environment_state" in caplog.text
