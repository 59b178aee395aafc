"""Scripted experts solve their tasks, worse ones less often; scores count episodes, not steps."""

import math
from dataclasses import replace

import pytest
import torch

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.common.batched_env import EnvStep
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks.manipulation.presets import INSERT, LIFT, PICK_PLACE, PUSH
from gantry_sim.tasks.manipulation.registry import find_arm_task
from gantry_sim.tasks.names import arm_task_names
from gantry_sim.training.arm.success import EpisodeCounter, score

pytestmark = pytest.mark.usefixtures("one_thread")

N = 8


def scores(task, suboptimality, **changes):
    env = task.make_env(replace(task.make_cfg(), num_envs=N, **changes), 11)
    expert = task.expert(env, suboptimality, 0)
    return score(env, lambda obs: expert.act(), N, ended=expert.reset)


@pytest.mark.parametrize("task", [LIFT, PUSH, PICK_PLACE, INSERT], ids=lambda task: task.name)
def test_an_expert_solves_its_task(task):
    measured = scores(task, 0.0)
    assert measured.episodes == N
    assert measured.success_once >= (N - 1) / N
    assert measured.mean_reward == measured.success_at_end  # one point for success, and nothing else
    assert measured.mean_steps_to_success < 0.7 * task.make_cfg().episode_s * 20


@pytest.mark.parametrize("action", ["ee-turn", "joint", "joint-absolute"])
def test_an_expert_moves_by_any_kind_of_action(action):
    assert scores(LIFT, 0.0, action=action).success_once == 1.0


def test_the_worst_expert_hardly_ever_succeeds():
    assert scores(LIFT, 1.0).success_once <= 0.5


def test_suboptimality_is_a_share():
    env = ArmStepEnv(replace(LIFT.make_cfg(), num_envs=1))
    with pytest.raises(GantryError, match=r"suboptimality is 1\.5, expected 0 to 1"):
        LIFT.expert(env, 1.5, 0)


def test_success_at_the_end_is_another_than_success_once():
    """The expert lifts the cube and holds on; told to let go halfway, it has succeeded once, and not at the end."""
    env = ArmStepEnv(replace(LIFT.make_cfg(), num_envs=2, end_on_success=False, episode_s=4.0), seed=11)
    expert = LIFT.expert(env, 0.0, 0)

    def act(obs):
        action = expert.act()
        if env.env.episode_length_buf[0] > 60:
            action[0, 3] = 1.0
        return action

    measured = score(env, act, 2, ended=expert.reset)
    assert (measured.success_once, measured.success_at_end) == (1.0, 0.5)


def test_episodes_are_counted_by_hand():
    """Two environments: the first succeeds in its second step, over and over; the other fails once in six steps."""
    counter = EpisodeCounter(2, per_env=2)
    for count in range(12):
        first, second = count % 2 == 1, count % 6 == 5
        counter.add(
            EnvStep(
                {},
                {},
                torch.tensor([float(first), 0.0]),
                torch.tensor([first, False]),
                torch.tensor([False, second]),
                torch.tensor([first, False]),
            )
        )
        assert counter.is_complete == (count == 11)
    measured = counter.scores()
    assert (measured.episodes, measured.success_once, measured.mean_steps_to_success) == (4, 0.5, 2.0)
    assert [item.steps for item in counter.episodes] == [2, 2, 6, 6]
    assert math.isnan(EpisodeCounter(1, 1).scores().mean_steps_to_success)


def test_tasks_are_found_by_name():
    assert {"yam-lift", "yam-pick-place", "yam-push", "yam-insert"} <= set(arm_task_names())
    assert find_arm_task("yam-push") is PUSH
    with pytest.raises(UnknownNameError, match="Did you mean 'yam-lift'"):
        find_arm_task("yam-lft")
