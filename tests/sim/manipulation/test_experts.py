"""Scripted experts solve their tasks, worse ones less often."""

from dataclasses import replace

import pytest

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.common.evaluation import evaluate
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks.manipulation.presets import INSERT, LIFT, PICK_PLACE, PUSH
from gantry_sim.tasks.names import task_names
from gantry_sim.tasks.registry import find_task

pytestmark = pytest.mark.usefixtures("one_thread")

N = 8


def scores(task, suboptimality, **changes):
    env = task.make_env(replace(task.usual_env(), num_envs=N, **changes), "cpu", 11)
    return evaluate(env, task.require_scripted().make_policy(env, suboptimality, 0), N)


@pytest.mark.parametrize("task", [LIFT, PUSH, PICK_PLACE, INSERT], ids=lambda task: task.name)
def test_an_expert_solves_its_task(task):
    measured = scores(task, 0.0)
    assert measured.episodes == N
    assert measured.success_once.mean >= (N - 1) / N
    assert measured.mean_return == measured.success_at_end.mean  # one point for success, and nothing else
    assert measured.steps_to_success < 0.7 * task.usual_env().episode_s * 20


@pytest.mark.parametrize("action", ["ee-turn", "joint", "joint-absolute"])
def test_an_expert_moves_by_any_kind_of_action(action):
    assert scores(LIFT, 0.0, action=action).success_once.mean == 1.0


def test_the_worst_expert_hardly_ever_succeeds():
    assert scores(LIFT, 1.0).success_once.mean <= 0.5


def test_suboptimality_is_a_share():
    env = ArmStepEnv(replace(LIFT.usual_env(), num_envs=1))
    with pytest.raises(GantryError, match=r"suboptimality is 1\.5, expected 0 to 1"):
        LIFT.require_scripted().make_policy(env, 1.5, 0)


def test_success_at_the_end_is_another_than_success_once():
    """The expert lifts the cube and holds on; told to let go halfway, it has succeeded once, and not at the end."""
    env = ArmStepEnv(replace(LIFT.usual_env(), num_envs=2, end_on_success=False, episode_s=4.0), seed=11)
    expert = LIFT.require_scripted().make_policy(env, 0.0, 0)

    class LetsGo:
        reset = staticmethod(expert.reset)

        @staticmethod
        def act(obs):
            action = expert.act(obs)
            if env.env.episode_length_buf[0] > 60:
                action[0, 3] = 1.0
            return action

    measured = evaluate(env, LetsGo(), 2)
    assert (measured.success_once.mean, measured.success_at_end.mean) == (1.0, 0.5)


def test_tasks_are_found_by_name():
    assert {"yam-lift", "yam-pick-place", "yam-push", "yam-insert"} <= set(task_names())
    assert find_task("yam-push") is PUSH
    with pytest.raises(UnknownNameError, match="Did you mean 'yam-lift'"):
        find_task("yam-lft")
