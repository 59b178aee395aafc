"""Episodes, recordings and teachers on a scene made by hand: a hand, a thing and a place, without LIBERO."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import torch

import gantry_libero.env
import gantry_libero.judge
from gantry_deploy.dataset.features import ACTION, IMAGES, STATE
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.openpi.description import PolicyDescription
from gantry_fixtures.openpi import other_server
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_libero.env import LiberoEnv
from gantry_libero.judge import RandomActions, asked, judge_task, summary
from gantry_libero.scripted import ScriptedHand
from gantry_libero.suites import LiberoTask
from gantry_libero.task import env_cfg
from gantry_libero.words import libero_tokens
from gantry_policies.imitation.data import load_chunks
from gantry_policies.teachers.registry import make_teacher
from gantry_sim.gym.env import GymStepEnv

TEXTS = ("pick up the milk and place it in the basket", "put the bowl on the stove")
REACH_M = 0.04


class HandMadeScene:
    """A hand that goes where it is told, takes a thing that it closes around, and lets it fall."""

    def __init__(self, task, cameras, image_px, plain_light=False):
        del plain_light
        self.task, self.cameras, self.image_px = task, cameras, image_px

    def begin(self, state, seed, settle_steps):
        del seed, settle_steps
        self.thing, self.place = np.array([*state, 0.03]), np.array([0.3, 0.3, 0.05])
        self.hand, self.held, self.closed = np.array([0.0, 0.0, 0.25]), False, False
        return self._found()

    def step(self, action):
        closes = action[6] > 0.0
        self.held = closes and (self.held or bool(np.linalg.norm(self.thing - self.hand) < REACH_M))
        moved = 0.05 * np.asarray(action[:3])
        self.hand = self.hand + moved
        self.thing = self.thing + moved if self.held else np.array([*self.thing[:2], 0.03])
        return self._found(), not self.held and bool(np.linalg.norm((self.thing - self.place)[:2]) < REACH_M)

    def pictures(self):
        ramp = np.arange(self.image_px, dtype=np.uint8)
        picture = np.broadcast_to(ramp[None, :, None], (self.image_px, self.image_px, 3)).copy()
        picture[..., 1] = ramp[:, None]
        return dict.fromkeys(self.cameras, picture)

    def aim(self):
        return np.concatenate([self.thing, self.place])

    def close(self):
        pass

    def _found(self):
        return {
            "robot0_eef_pos": self.hand,
            "robot0_eef_quat": np.array([0.0, 0.0, 0.0, 1.0]),
            "robot0_gripper_qpos": np.array([0.04, -0.04]),
        }


@functools.cache
def task_by_hand(suite, index):
    states = np.array([[0.1 * index, -0.1 * number] for number in range(1, 4)])
    return LiberoTask(suite, index, TEXTS[index], Path("none.bddl"), states)


@pytest.fixture(autouse=True)
def _scene(monkeypatch, one_thread):
    for module in (gantry_libero.env, gantry_libero.judge):
        monkeypatch.setattr(module, "libero_task", task_by_hand)
    monkeypatch.setattr(gantry_libero.env, "num_tasks", lambda suite: len(TEXTS))
    monkeypatch.setattr(gantry_libero.env, "Simulation", HandMadeScene)


def begun(env, count, seed=0):
    return [(found["task"], found["state"]) for found in (env.reset(seed=seed + i)[1] for i in range(count))]


def test_states_come_in_turn_task_by_task_and_over_again():
    env = LiberoEnv("goal", states=(0, 2), cameras=(), in_turn=True)
    assert begun(env, 5) == [(0, 0), (0, 2), (1, 0), (1, 2), (0, 0)]


def test_drawn_states_depend_on_the_seed_alone_and_reach_all():
    one, other = (LiberoEnv("goal", cameras=()) for _ in range(2))
    assert begun(one, 60) == begun(other, 60)
    assert len(set(begun(one, 60))) == 6


def test_what_does_not_exist_is_named():
    with pytest.raises(UnknownNameError, match="wrist"):
        LiberoEnv("goal", cameras=("wirst",))
    with pytest.raises(GantryError, match=r"Initial state 3 .* 0 to 2"):
        LiberoEnv("goal", states=(3,))
    with pytest.raises(GantryError, match="never reset"):
        LiberoEnv("goal").step(np.zeros(7, np.float32))


@pytest.mark.parametrize("turned", [False, True])
def test_an_observation_is_in_its_space_and_turned_pictures_are_mirrored(turned):
    env = LiberoEnv("goal", tasks=(1,), image_px=8, turned=turned, aim=True)
    seen, told = env.reset(seed=1)
    assert env.observation_space.contains(seen)
    assert told["instruction"] == TEXTS[1]
    np.testing.assert_array_equal(seen["words"], libero_tokens(TEXTS[1]))
    picture = seen["images"]["front"]
    assert picture[0, :, 0].tolist() == (list(range(8))[::-1] if turned else list(range(8)))
    assert picture[:, 0, 1].tolist() == list(range(8))


def test_the_scripted_hand_succeeds_from_every_state_and_random_actions_do_not(tmp_path):
    cfg = env_cfg("goal", cameras=(), aim=True)
    scores = [judge_task(cfg, task, range(3), lambda env, text: ScriptedHand(env.num_envs), 1) for task in (0, 1)]
    assert [(score.successes, score.episodes) for score in scores] == [(3, 3), (3, 3)]
    assert all(10 < score.steps_to_success < 250 for score in scores)
    assert summary(scores)["success_rate"]["mean"] == 1.0
    lost = judge_task(cfg, 0, (0,), lambda env, text: RandomActions(1, env.action_size, 5), 1)
    assert (lost.successes, lost.steps) == (0, 300)


def test_successes_are_recorded_with_their_instruction_and_read_back(tmp_path):
    cfg = env_cfg("goal", image_px=16, aim=True)
    folder = tmp_path / "demos"
    for task in (0, 1):
        judge_task(cfg, task, (0, 1), lambda env, text: ScriptedHand(env.num_envs), 1, folder)
    data = Dataset(folder)
    assert data.num_episodes == 4
    assert [data.episodes[i].tasks for i in range(4)] == [(TEXTS[0],)] * 2 + [(TEXTS[1],)] * 2
    frames = data.frames(2, [STATE, ACTION])
    np.testing.assert_array_equal(frames[STATE][0, 8:], libero_tokens(TEXTS[1]))
    np.testing.assert_allclose(frames[STATE][0, :3], [0.0, 0.0, 0.25])
    assert (frames[ACTION][:, 6] > 0).any()
    chunks = load_chunks(folder)
    assert chunks.obs_shapes == {"state": (24,), "image/front": (3, 16, 16), "image/wrist": (3, 16, 16)}
    assert data.images(0, f"{IMAGES}front").shape[1:] == (16, 16, 3)


def test_failures_are_not_recorded(tmp_path):
    cfg = env_cfg("goal", cameras=())
    judge_task(cfg, 0, (0,), lambda env, text: RandomActions(1, env.action_size, 5), 1, tmp_path / "demos")
    assert Dataset(tmp_path / "demos").num_episodes == 0


class HandMadeTeacher:
    """Plans three steps and remembers what it was asked."""

    description = PolicyDescription(horizon=3, action_size=7)

    def __init__(self):
        self.questions = []

    def plan(self, question):
        self.questions.append(question)
        return np.broadcast_to(np.array([[0.5], [-3.0], [1.0]], np.float32), (question.rows, 3, 7))

    def close(self):
        pass


def test_a_teacher_is_asked_with_upright_rows_eight_numbers_and_the_sentence():
    teacher = HandMadeTeacher()
    env = GymStepEnv(env_cfg("goal", image_px=8, tasks=(1,), aim=True))
    policy = asked(teacher, TEXTS[1], 1, 2)
    obs = env.reset()
    actions = [policy.act(obs)[0, 0].item() for _ in range(4)]
    assert actions == [0.5, -1.0, 0.5, -1.0]  # Two of three are made, within the range.
    assert len(teacher.questions) == 2
    question = teacher.questions[0]
    assert question.instructions == [TEXTS[1]]
    np.testing.assert_allclose(question.state, [[0, 0, 0.25, 0, 0, 0, 0.04, -0.04]])
    assert {name: picture.shape for name, picture in question.images.items()} == {
        "front": (1, 8, 8, 3),
        "wrist": (1, 8, 8, 3),
    }
    assert question.images["front"][0, 0, :, 0].tolist() == list(range(8))
    env.close()


def test_a_server_of_openpi_gets_its_own_keys():
    seen = []

    def answer(connection, observation):
        from gantry_deploy.openpi.codec import encode

        seen.append(observation)
        connection.send(encode({"actions": np.zeros((10, 7), np.float32)}))

    cfg = env_cfg("goal", image_px=8, turned=True, tasks=(0,))
    with other_server(answer) as port:
        keys = "camera.front=observation/image&camera.wrist=observation/wrist_image"
        teacher = make_teacher(f"openpi:127.0.0.1:{port}?{keys}")
        score = judge_task(cfg, 0, (0,), lambda env, text: asked(teacher, text, 1, 5), 1)
        teacher.close()
    assert score.steps == 300
    assert len(seen) == 60
    assert set(seen[0]) == {"observation/image", "observation/wrist_image", "observation/state", "prompt"}
    assert seen[0]["prompt"] == TEXTS[0]
    assert seen[0]["observation/state"].shape == (8,)
    assert seen[0]["observation/image"][0, 0, 0] == 7  # mirrored


def test_random_actions_are_those_of_their_seed_and_fill_the_range():
    one, other = RandomActions(4, 7, 2), RandomActions(4, 7, 2)
    drawn = torch.stack([one.act({}) for _ in range(50)])
    torch.testing.assert_close(drawn, torch.stack([other.act({}) for _ in range(50)]))
    assert drawn.min() < -0.9
    assert drawn.max() > 0.9
