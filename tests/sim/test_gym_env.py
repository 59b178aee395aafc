"""Environments of gymnasium: what a step gives, in one process and in several; what is refused; training in them."""

import os
import random
import signal
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces  # noqa: E402

from gantry_hardware.errors import GantryError, UnknownNameError  # noqa: E402
from gantry_hardware.files.structured import from_plain, set_field  # noqa: E402
from gantry_policies.common.evaluation import evaluate  # noqa: E402
from gantry_policies.off_policy.config import CriticCfg  # noqa: E402
from gantry_policies.off_policy.presets import sac  # noqa: E402
from gantry_policies.off_policy.trainer import OffPolicyTrainer  # noqa: E402
from gantry_sim.gym.cfg import GymCfg  # noqa: E402
from gantry_sim.gym.env import GymStepEnv  # noqa: E402
from gantry_sim.gym.layout import GymEnvError, action_layout, observation_layout, resized  # noqa: E402
from gantry_sim.tasks.registry import find_task  # noqa: E402
from gantry_sim.training.policies import scripted_source  # noqa: E402

GOAL = "gym_goal_env:gantry_test/Goal-v0"
STAY = -1.0 / 3.0
"""In the middle between -2 and 4 lies 1, so this is 0."""


@pytest.fixture(autouse=True)
def goal_module(one_thread, monkeypatch):
    """The environments can be imported by name, here and in workers."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def goals():
    """``goals(num_envs, seed, **fields)`` gives environments in this process; all are closed in the end."""
    made = []

    def make(num_envs=2, seed=0, env_id=GOAL, processes=0, **fields):
        made.append(GymStepEnv(GymCfg(env_id, num_envs, processes, **fields), seed))
        return made[-1]

    yield make
    for env in made:
        env.close()


def numbers(obs):
    return obs["state"][:, -1].tolist()


def test_a_step_gives_what_it_led_to_and_what_is_seen_now(goals):
    env = goals(2)
    assert (env.num_envs, env.action_size, env.max_episode_steps, env.dt_s) == (2, 1, 5, 0.05)
    assert env.obs_shapes == {"state": (4,), "image/front": (3, 4, 6), "image/map": (1, 2, 2)}
    # Gymnasium orders keys by the alphabet: the mode, one of three, stands before the robot's position.
    assert env.reset()["state"].tolist() == [[0.0, 1.0, 0.0, 0.0]] * 2
    rows = []
    for _ in range(6):
        step = env.step(torch.tensor([[0.0], [-1.0]]))
        flags = [flag.tolist() for flag in (step.terminated, step.truncated, step.success)]
        rows.append((numbers(step.next_obs), numbers(step.obs), step.reward.tolist(), *flags))
        assert step.next_obs["image/map"][1].unique().tolist() == [len(rows) if len(rows) < 6 else 1]
    no = [False, False]
    assert rows == [
        ([1.0, -2.0], [1.0, -2.0], [-2.0, -5.0], no, no, no),
        ([2.0, -4.0], [2.0, -4.0], [-1.0, -7.0], no, no, no),
        # The first is there after three steps, and again after six; the second is out of time after five.
        ([3.0, -6.0], [0.0, -6.0], [0.0, -9.0], [True, False], no, [True, False]),
        ([1.0, -8.0], [1.0, -8.0], [-2.0, -11.0], no, no, no),
        ([2.0, -10.0], [2.0, 0.0], [-1.0, -13.0], no, [False, True], no),
        ([3.0, -2.0], [0.0, -2.0], [0.0, -5.0], [True, False], no, [True, False]),
    ]
    assert step.obs["image/map"][0].unique().tolist() == [0]
    assert {key: value.dtype for key, value in step.obs.items()} == {
        "state": torch.float32,
        "image/front": torch.uint8,
        "image/map": torch.uint8,
    }


def test_success_in_the_last_possible_step_is_no_truncation(goals):
    env = goals(1)
    env.reset()
    for action in (STAY, STAY, 0.0, 0.0, 0.0):
        step = env.step(torch.tensor([[action]]))
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True], [False])


def test_a_reset_begins_other_episodes_and_seeds_bring_the_same_ones(goals):
    here, again, other = (goals(2, seed, env_kwargs={"noise": 1.0}) for seed in (3, 3, 4))
    before = random.getstate(), np.random.get_state()[1].tolist()
    first = numbers(here.reset())
    assert first == numbers(again.reset())
    second = numbers(here.reset())
    assert len({*first, *second, *numbers(other.reset())}) == 6
    # The chance of others is left alone.
    assert before == (random.getstate(), np.random.get_state()[1].tolist())


def test_processes_change_nothing_and_say_what_became_of_them(goals):
    # Three environments in two processes, so that one has a place to spare.
    here = goals(3, env_kwargs={"noise": 0.3})
    there = goals(3, env_kwargs={"noise": 0.3}, processes=2)
    pairs = [(here.reset(), there.reset())]
    processes = there._vector.processes
    os.kill(processes[1].pid, signal.SIGINT)  # as Ctrl-C does, which is the business of who owns the workers
    ended = 0
    draw = torch.Generator().manual_seed(0)
    for _ in range(12):
        action = torch.rand(3, 1, generator=draw) - 0.7
        one, two = here.step(action), there.step(action)
        pairs += [(one.obs, two.obs), (one.next_obs, two.next_obs)]
        for name in ("reward", "terminated", "truncated", "success"):
            assert torch.equal(getattr(one, name), getattr(two, name))
        ended += int((one.terminated | one.truncated).sum())
    assert ended > 4
    for one, two in pairs:
        assert all(torch.equal(one[key], two[key]) for key in here.obs_shapes)
    os.kill(processes[1].pid, signal.SIGKILL)
    with pytest.raises(GymEnvError, match=r"worker process for '.*' ended during a step \(.*-1 exit code -9\)"):
        there.step(action)
    assert not any(process.is_alive() for process in processes)
    with pytest.raises(GantryError, match="never reset"):
        there.step(action)


def test_an_environment_that_raises_is_named_once(goals):
    env = goals(2, env_kwargs={"raise_at": 2})
    env.reset()
    env.step(torch.zeros(2, 1))
    with pytest.raises(
        GymEnvError, match="failed in step 2 of episode 1 of environment 0: ValueError: the arm fell off"
    ):
        env.step(torch.zeros(2, 1))


def test_numbers_that_are_not_finite_do_not_reach_the_learner(goals):
    env = goals(2, env_kwargs={"noise": float("nan")})
    with pytest.raises(
        GymEnvError, match=r"failed in the reset of environment 0: the observation.s .robot/pos.: number 0 is nan"
    ):
        env.reset()
    fresh = goals(1)
    fresh.reset()
    with pytest.raises(GantryError, match="An action is not finite"):
        fresh.step(torch.full((1, 1), torch.nan))


def test_success_comes_from_info_or_from_the_reward(goals):
    for key in ("success", "succeed"):
        env = goals(1, env_kwargs={"key": key})
        env.reset()
        assert [bool(env.step(torch.zeros(1, 1)).success) for _ in range(3)] == [False, False, True]
    # Two steps away is near enough, and the environment goes on after success unless told otherwise.
    for end, terminated in ((False, [False, False, False]), (True, [False, True, False])):
        env = goals(1, env_kwargs={"key": "", "ends": False}, success_reward=-1.0, end_on_success=end)
        env.reset()
        steps = [env.step(torch.zeros(1, 1)) for _ in range(3)]
        assert [bool(step.success) for step in steps] == [False, True, not end]
        assert [bool(step.terminated) for step in steps] == terminated


def test_who_says_nothing_of_success_is_reported_once(goals):
    env = goals(1, env_kwargs={"key": ""}, max_episode_steps=1)
    env.reset()
    with pytest.warns(UserWarning, match="without a word on success"):
        env.step(torch.zeros(1, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.step(torch.zeros(1, 1))


def test_wrappers_limits_and_parts_are_chosen_by_configuration(goals):
    env = goals(
        1,
        env_id="gym_goal_env:Timeless",
        wrappers=("gym_goal_env:Half",),
        max_episode_steps=2,
        dt_s=0.1,
        leave_out=("cameras/map", "mode"),
        image_px=2,
        action_low=(0.0,),
        action_high=(4.0,),
    )
    assert env.obs_shapes == {"state": (1,), "image/front": (3, 2, 2)}
    seen = env.reset()
    # 4 x 6 pixels become 2 x 2, each the mean of six: one of them had 6 in green.
    assert seen["image/front"][0].tolist() == [[[200, 0], [0, 0]], [[1, 0], [0, 0]], [[0, 0], [0, 100]]]
    steps = [env.step(torch.tensor([[a]])) for a in (-1.0, 0.0)]
    # -1 is 0 m, 0 is 2 m, of which the wrapper leaves half.
    assert [float(step.next_obs["state"]) for step in steps] == [0.0, 1.0]
    assert [bool(step.truncated) for step in steps] == [False, True]
    longer = goals(1, max_episode_steps=7)
    longer.reset()
    assert [bool(longer.step(torch.tensor([[-1.0]])).truncated) for _ in range(7)] == [False] * 6 + [True]


@pytest.mark.parametrize(
    ("fields", "error", "match"),
    [
        ({"env_id": "gym_goal_env:gantry_test/Gaol-v0"}, UnknownNameError, "Did you mean 'gantry_test/Goal-v0'"),
        ({"env_id": "no_such_module:X-v0"}, GymEnvError, "Cannot import 'no_such_module'"),
        ({"env_id": "gym_goal_env:gantry_test/Endless-v0"}, GymEnvError, "give max_episode_steps"),
        ({"env_id": "gym_goal_env:Timeless", "max_episode_steps": 3}, GymEnvError, "give dt_s"),
        ({"env_kwargs": {"colour": 1}}, GymEnvError, "Cannot make '.*' with {'colour': 1}: TypeError"),
        ({"env_kwargs": {"action": (-np.inf, 1.0)}}, GymEnvError, "no bounds; give action_low and action_high, 1 num"),
        ({"action_low": (-3.0,)}, GymEnvError, "reach beyond"),
        ({"action_low": (1.0, 2.0)}, GymEnvError, "has 2 numbers, expected 1"),
        ({"leave_out": ("camera",)}, UnknownNameError, "Did you mean 'cameras'"),
        ({"leave_out": ("cameras", "mode", "robot")}, GymEnvError, "leaves nothing to look at"),
        ({"wrappers": ("gym_goal_env:Hlaf",)}, UnknownNameError, "Did you mean 'Half'"),
        ({"wrappers": ("Half",)}, GantryError, "expected module:NAME"),
        ({"num_envs": 0}, GantryError, "num_envs is 0"),
        ({"image_px": 0}, GantryError, "image_px is 0"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(fields, error, match):
    with pytest.raises(error, match=match):
        GymStepEnv(GymCfg(**{"env_id": GOAL, **fields}))


def test_spaces_that_are_neither_numbers_nor_pictures_are_refused():
    for space, match in (
        (spaces.Text(3), "observation is Text"),
        (spaces.Box(0.0, 1.0, (4, 4, 3)), r"Box\(4, 4, 3\) of float32"),
        (spaces.Dict({"a": spaces.Box(0, 255, (5, 5, 9), np.uint8)}), r"'a' has shape \(5, 5, 9\)"),
    ):
        with pytest.raises(GymEnvError, match=match):
            observation_layout(space)
    with pytest.raises(GymEnvError, match=r"Discrete\(2\), expected a Box"):
        action_layout(spaces.Discrete(2))


def test_parts_of_observations_and_actions_of_every_kind():
    space = spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Box(0, 255, (2, 3), np.uint8), spaces.MultiBinary(2)))
    layout = observation_layout(space)
    assert layout.shapes == {"state": (7,), "image/1": (1, 2, 3)}
    arrays = layout.arrays((np.array([1, 2]), np.full((2, 3), 7, np.uint8), np.array([0, 1], np.int8)))
    assert arrays["state"].tolist() == [0, 1, 0, 0, 1, 0, 1]
    same = {"rgb": spaces.Box(0, 255, (2, 2, 3), np.uint8)}
    both = observation_layout(spaces.Dict({"a.b": spaces.Dict(same), "c": spaces.Dict(same)}))
    # Only pictures: learners still get a state.
    assert both.shapes == {"state": (1,), "image/a_b_rgb": (3, 2, 2), "image/c_rgb": (3, 2, 2)}
    whole = action_layout(spaces.Box(0, 10, (2, 1), np.int64))
    assert whole.scaled(np.array([0.52, 3.0], np.float32)).tolist() == [[8], [10]]
    # Three pixels become two: half of the middle one goes to each side.
    row = np.array([[[30, 60, 0]]], np.uint8)
    assert resized(row, 1, 2).tolist() == [[[40, 20]]]


def test_the_learner_trains_and_is_evaluated_in_them(goals, tmp_path):
    cfg = sac()
    learner = replace(cfg.agent, batch_size=16, actor=replace(cfg.agent.actor, hidden=(16,)))
    learner = replace(learner, critic=CriticCfg(heads=2, hidden=(16,)))
    cfg = replace(cfg, agent=learner, total_steps=60, warmup_steps=20, capacity=200, eval_every_steps=0)
    env = goals(2, leave_out=("cameras",))
    trainer = OffPolicyTrainer(env, cfg, tmp_path / "run", eval_env=goals(2, seed=1, leave_out=("cameras",)))
    assert trainer.train()
    assert trainer.learner.actor_updates > 0
    assert trainer.evaluate(4).episodes == 4

    class Forward:
        def reset(self, env_ids=None):
            pass

        def act(self, obs):
            return torch.zeros(2, 1)

    result = evaluate(env, Forward(), 4)
    assert (result.success_at_end.mean, result.steps_to_success, result.time_to_success_s) == (1.0, 3.0, 3 * 0.05)


def test_a_task_of_that_name_has_environments_and_says_what_it_lacks():
    task = find_task(f"gym:{GOAL}")
    cfg = set_field(set_field(task.usual_env(), "env_kwargs.noise", "0.5"), "num_envs", "1")
    plain = {**vars(cfg), "wrappers": []}
    assert from_plain(GymCfg, plain, "env") == cfg == GymCfg(GOAL, 1, env_kwargs={"noise": 0.5})
    env = task.make_env(cfg, "cpu", 0)
    assert env.reset()["state"].shape == (1, 4)
    env.close()
    with pytest.raises(GantryError, match="has no contract"):
        task.contract(cfg)
    with pytest.raises(GantryError, match="has no scripted policy"):
        scripted_source(f"gym:{GOAL}", 0.0, 0)
    with pytest.raises(UnknownNameError, match="Did you mean 'Pendulum-v1'"):
        find_task("gym:Pendulom-v1")
    with pytest.raises(GantryError, match="expected gym:ENV_ID"):
        find_task("gym:")
    with pytest.raises(UnknownNameError, match="Did you mean 'yam-lift'"):
        find_task("yam-lfit")


def test_panda_picks_a_cube():
    pytest.importorskip("gym_hil")
    task = find_task("gym:gym_hil/PandaPickCubeBase-v0")
    cfg = replace(task.usual_env(), num_envs=2, processes=2, action_low=(-0.05,), action_high=(0.05,))
    cfg = replace(cfg, env_kwargs={"random_block_position": True})
    env, again = task.make_env(cfg, "cpu", 0), task.make_env(replace(cfg, processes=0), "cpu", 0)
    assert (env.obs_shapes, env.action_size) == ({"state": (21,)}, 7)
    assert (env.max_episode_steps, env.dt_s) == (100, 0.1)
    # It draws the cube's place from numpy's global generator, and not from the seed that it is given.
    assert torch.equal(env.reset()["state"], again.reset()["state"])
    action = torch.zeros(2, 7)
    for _ in range(100):
        step = env.step(action)
    assert step.truncated.all()
    assert not step.terminated.any()
    assert not torch.equal(step.obs["state"][:, 18:], step.next_obs["state"][:, 18:])
    env.close()
    again.close()
    assert "gym_hil" in sys.modules
