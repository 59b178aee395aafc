"""Environments that are told in words: what the policy sees, what counts as success, and the expert's success."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.language.instructions import tokens_of
from gantry_policies.common.batched_env import STATE
from gantry_policies.common.evaluation import evaluate
from gantry_sim.envs.step_env import WRONG_THING, ArmStepEnv
from gantry_sim.tasks.manipulation.language.instructions import (
    VERBS,
    Phrasing,
    instruction_spec,
    instructions_of,
)
from gantry_sim.tasks.manipulation.language.suite import CameraMoved, Shuffled
from gantry_sim.tasks.manipulation.layouts import LAYOUTS
from gantry_sim.tasks.manipulation.presets import TELL, TELL_PICK, TELL_PLACE, TELL_PUSH, ExpertPolicy
from gantry_sim.training.collect import CollectCfg, collect

pytestmark = pytest.mark.usefixtures("one_thread")

N = 8
TASKS = [TELL_PICK, TELL_PUSH, TELL_PLACE]


def env_of(task, seed=5, **changes):
    return ArmStepEnv(replace(LAYOUTS[task](), **({"num_envs": N} | changes)), seed)


def parts_of(env, obs):
    """Columns of the observation by term."""
    parts, start = {}, 0
    for term in env.state.contract.observations:
        parts[term.name] = obs[STATE][:, start : start + term.size]
        start += term.size
    return parts


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_expert_does_what_is_asked(task):
    env = task.make_env(replace(task.usual_env(), num_envs=10), "cpu", 11)
    found = evaluate(env, ExpertPolicy(env), 20)
    assert found.success_once.mean >= 0.95
    assert found.flagged[WRONG_THING].mean <= 0.05
    env.close()


def test_a_suite_tells_the_expert_every_verb_in_both_sets():
    """The scenes of both sets are the same, and the expert does not read."""
    cfg = replace(TELL.usual_env(), verbs=("pick", "place"))
    suite, shares = TELL.suites["words"], []
    scores = suite.run(
        TELL, cfg, ExpertPolicy, episodes=3, device="cpu", seed=4, on_progress=lambda share: shares.append(share)
    )
    parts = ["trained/pick", "trained/place", "held-out/pick", "held-out/place", "shuffled/words"]
    assert list(scores["parts"]) == parts
    assert [part["success_rate"]["mean"] for part in scores["parts"].values()] == [1.0] * 5
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    lines = suite.lines(scores)
    assert "held-out/place   success 1.000" in lines[3]
    assert lines[-1] == "  IGNORES, or its success cannot tell: its words"
    scores["parts"]["shuffled/words"]["success_rate"] = {"mean": 0.0, "low": 0.0, "high": 0.1}
    assert suite.lines(scores)[-1] == "  heeds its words"
    scores["parts"]["moved/front"] = scores["parts"]["shuffled/words"]
    assert suite.lines(scores)[-1] == "  needs the front camera where it was"
    scores["parts"]["moved/front"] = scores["parts"]["trained/pick"]
    assert suite.lines(scores)[-1] == "  NEEDS NOT, or its success cannot tell: the front camera where it was"


def test_a_shuffled_policy_is_told_or_shown_what_its_neighbour_is():
    class Kept:
        def reset(self, env_ids=None):
            pass

        def act(self, obs):
            self.obs = obs
            return obs["state"]

    kept, state = Kept(), torch.zeros(3, 2 + MAX_WORDS)
    state[:, 0], state[:, -MAX_WORDS] = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 20.0, 30.0])
    pictures = torch.arange(3, dtype=torch.uint8)[:, None, None, None].expand(3, 3, 2, 2)
    obs = {"state": state, "image/front": pictures}
    Shuffled(kept, words=True).act(obs)
    assert kept.obs["state"][:, 0].tolist() == [1.0, 2.0, 3.0]
    assert kept.obs["state"][:, -MAX_WORDS].tolist() == [30.0, 10.0, 20.0]
    assert torch.equal(kept.obs["image/front"], pictures)
    Shuffled(kept, words=False).act(obs)
    assert torch.equal(kept.obs["state"], state)
    assert kept.obs["image/front"][:, 0, 0, 0].tolist() == [2, 0, 1]
    CameraMoved(kept).act({"state": state, "image/side": pictures})
    assert torch.equal(kept.obs["image/front"], pictures)


def test_the_observation_holds_the_scene_and_last_the_tokens():
    env = env_of("yam-tell")
    parts = parts_of(env, env.reset())
    env.state.refresh()
    assert list(parts)[-3:] == ["things_from_ee", "zones_from_ee", "instruction"]
    spec = env.state.contract.instruction
    assert spec is not None
    assert not env.state.contract.command.kind
    for row, text in enumerate(env.texts()):
        assert parts["instruction"][row].tolist() == tokens_of(spec, text).tolist()
    things = parts["things_from_ee"].reshape(N, 3, 3) / 10.0 + env.state.ee_pos[:, None]
    torch.testing.assert_close(things, env.state.things.pose[:, :, :3], atol=1e-5, rtol=0.0)
    rows = torch.arange(N)
    torch.testing.assert_close(things[rows, env.state.things.asked], env.state.object_pos, atol=1e-5, rtol=0.0)
    zones = parts["zones_from_ee"].reshape(N, 2, 3) / 5.0 + env.state.ee_pos[:, None]
    away = (zones[:, :, :2] - env.state.goal[:, None, :2]).norm(dim=-1).amin(dim=-1)
    assert away.max() < 1e-5  # The goal is one of the zones.
    env.close()


def test_a_policy_with_cameras_sees_no_places():
    contract = TELL.contract(TELL.preset("bc-images").env)
    names = [term.name for term in contract.observations]
    assert "things_from_ee" not in names
    assert names[-1] == "instruction"
    assert [camera.name for camera in contract.cameras] == ["wrist", "front"]


def test_seed_and_phrasing_say_what_is_asked():
    first, same, other = (env_of("yam-tell", seed, num_envs=4) for seed in (5, 5, 6))
    paraphrased = env_of("yam-tell", num_envs=4, phrasing="held-out")
    for env in (first, same, other, paraphrased):
        env.reset()
    assert first.texts() == same.texts() != other.texts()
    assert torch.equal(first.state.things.pose, same.state.things.pose)
    held_out = {text for verb in VERBS for text in instructions_of(verb, Phrasing.HELD_OUT)}
    assert set(paraphrased.texts()) <= held_out
    assert paraphrased.state.contract.instruction == first.state.contract.instruction == instruction_spec()


def test_a_single_verb_and_all_are_asked_for():
    pick, every = env_of("yam-tell-pick", num_envs=16), env_of("yam-tell", num_envs=16)
    for env in (pick, every):
        env.reset()
    assert set(pick.texts()) <= set(instructions_of("pick"))
    assert set(every.state.verb.tolist()) == {0, 1, 2}


def lift(env, thing):
    """Put a thing of each environment into the hand, 11 cm above where things lie."""
    env.state.refresh()
    rows, data = torch.arange(env.num_envs), env.env.sim.data
    for row, one in zip(rows.tolist(), thing.tolist(), strict=True):
        data.qpos[row, env.state.things.qpos_ids[one, :3]] = env.state.ee_pos[row]
    env.env.state_version += 1
    env.state.refresh()


def test_the_wrong_thing_in_the_hand_is_no_success_and_ends_the_episode():
    env = env_of("yam-tell-pick")
    env.reset()
    assert float(env.state.ee_pos[:, 2].min()) > 0.12
    lift(env, env.state.things.asked)
    assert env.state.rule.success(env.state).all()
    assert not env.state.rule.wrong(env.state).any()
    env.reset()
    wrong = (env.state.things.asked + 1) % 3
    lift(env, wrong)
    assert not env.state.rule.success(env.state).any()
    assert env.state.rule.wrong(env.state).all()
    step = env.step(torch.zeros(N, env.action_size))
    assert step.terminated.all()
    assert not step.success.any()
    assert step.extras[WRONG_THING].all()
    env.close()


def test_a_thing_beside_may_be_touched_and_not_moved_away():
    env = env_of("yam-tell-pick")
    for shift, wanted in ((0.02, True), (0.04, False)):
        env.reset()
        lift(env, env.state.things.asked)
        other, data = (env.state.things.asked + 1) % 3, env.env.sim.data
        for row, one in enumerate(other.tolist()):
            data.qpos[row, env.state.things.qpos_ids[one, 1]] += shift
        env.env.state_version += 1
        env.state.refresh()
        assert env.state.rule.success(env.state).all() == wanted
    env.close()


def test_the_other_zone_is_no_success():
    env = env_of("yam-tell-push")
    env.reset()
    data = env.env.sim.data
    places = [int(env.env.sim.mj_model.body(f"zone_{place}").mocapid[0]) for place in range(2)]
    zones = torch.stack([data.mocap_pos[:, place, :2] for place in places], dim=1)
    rows = torch.arange(N)
    right = (zones - env.state.goal[:, None, :2]).norm(dim=-1).argmin(dim=-1)
    for zone, wanted in ((right, True), (1 - right, False)):
        ids = env.state.things.qpos_ids[env.state.things.asked]
        data.qpos[rows[:, None], ids[:, :2]] = zones[rows, zone]
        env.env.state_version += 1
        env.state.refresh()
        assert env.state.rule.success(env.state).tolist() == [wanted] * N
    env.close()


def test_an_episode_goes_on_where_it_was_saved():
    env, again = env_of("yam-tell", num_envs=2), env_of("yam-tell", num_envs=2)
    env.reset()
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        step = env.step(torch.rand(2, env.action_size, generator=generator) - 0.5)
    again.restore_training_state(env.training_state())
    assert again.texts() == env.texts()
    action = torch.zeros(2, env.action_size)
    assert torch.equal(again.step(action).obs[STATE], env.step(action).obs[STATE])
    assert not step.success.any()


def test_a_demonstration_is_called_by_its_instruction(tmp_path):
    env = replace(TELL.usual_env(), num_envs=2)
    collect(CollectCfg(TELL, env, episodes=4, seed=3), tmp_path / "demos")
    dataset, spec = Dataset(tmp_path / "demos"), instruction_spec()
    tokens = dataset.columns(["observation.instruction"])["observation.instruction"]
    assert len({episode.tasks for episode in dataset.episodes}) > 1
    for episode in dataset.episodes:
        (text,) = episode.tasks
        rows = np.asarray(tokens)[episode.start : episode.stop]
        assert (rows == tokens_of(spec, text)).all()
