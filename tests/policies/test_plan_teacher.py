"""A teacher that plans from pictures and words, and is sometimes away: rows without an answer are not learned from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from gantry_deploy.errors import PolicyServerError
from gantry_deploy.openpi.description import PolicyDescription
from gantry_hardware.errors import GantryError
from gantry_policies.imitation.config import BcCfg, NetworkCfg
from gantry_policies.imitation.policy import BcPolicy
from gantry_policies.on_policy.guidance import ImitationCfg, action_loss
from gantry_policies.on_policy.plan_teacher import PlanTeacher, WholePlans
from gantry_policies.on_policy.teachers import ClonedTeacher
from gantry_policies.teachers.teacher import TeacherQuestion


class Planner:
    """Plans twice the state, unless it is told to fail."""

    def __init__(self, failures=(), size=2):
        self.description = PolicyDescription(action_size=size, horizon=3)
        self.failures, self.asked, self.closed = list(failures), 0, False

    def plan(self, question):
        self.asked += 1
        if self.failures and (reason := self.failures.pop(0)):
            raise PolicyServerError(reason, f"The server is {reason}.")
        return np.repeat(2.0 * question.state[:, None, :], 3, axis=1)

    def close(self):
        self.closed = True


def question():
    return TeacherQuestion({}, np.array([[0.1, 0.2], [0.3, 0.4]], np.float32), ["", ""])


SEEN = TensorDict({"actor": torch.zeros(2, 5)}, batch_size=[2])


def test_the_first_action_of_the_plan_guides():
    teacher = PlanTeacher(Planner(), question, 2)
    guidance = teacher(SEEN)
    assert guidance.actions.tolist() == pytest.approx([pytest.approx([0.2, 0.4]), pytest.approx([0.6, 0.8])])
    assert guidance.known.tolist() == [True, True]
    teacher.close()
    assert teacher.timed.teacher.closed


def test_what_passes_is_told_and_what_stays_ends_the_asking():
    told = []
    teacher = PlanTeacher(Planner(["slow", "dead", None, *["dead"] * 3]), question, 2, patience=3, told=told.append)
    known = [bool(teacher(SEEN).known.all()) for _ in range(7)]
    assert known == [False, False, True, False, False, False, False]
    assert teacher.is_away
    assert teacher.timed.teacher.asked == 6
    assert told[0].startswith("The teacher does not answer: The server is slow.")
    assert told[1] == "The teacher answers again, after 2 questions without an answer."
    assert told[3] == "The teacher has not answered 3 questions in a row; the training goes on without it."
    assert teacher.timed.counts()["failures"] == 5


@pytest.mark.parametrize("reason", ["other_model", "not_finite", "wrong_shape", "malformed", "refused"])
def test_an_answer_that_cannot_be_trusted_ends_the_training(reason):
    with pytest.raises(PolicyServerError, match=reason):
        PlanTeacher(Planner([reason]), question, 2)(SEEN)


def test_a_teacher_of_another_action_is_refused():
    with pytest.raises(GantryError, match="The teacher's actions have 7 numbers, the student's 2"):
        PlanTeacher(Planner(size=7), question, 2)


def test_rows_without_an_answer_cost_nothing_and_teach_nothing():
    mean = torch.zeros(2, 1, requires_grad=True)

    class Actor:
        output_mean = mean

    cfg = ImitationCfg(action_loss="mean")
    loss = action_loss(Actor, torch.tensor([[3.0], [5.0]]), cfg, torch.tensor([True, False]))
    assert loss.item() == pytest.approx(9.0)
    loss.backward()
    assert mean.grad.tolist() == [[-6.0], [0.0]]
    assert action_loss(Actor, torch.ones(2, 1), cfg, torch.tensor([False, False])).item() == 0.0


class Counting:
    """Plans 10, 11, 12 at its first question, 20, 21, 22 at its second, and so on; or does not answer."""

    def __init__(self, silent=()):
        self.silent, self.asked = set(silent), 0

    def plans(self, observations):
        self.asked += 1
        if self.asked in self.silent:
            return None
        return 10.0 * self.asked + torch.arange(3.0)[None, :, None].expand(observations.batch_size[0], 3, 2)


def guided(teacher, steps, ends=None):
    """First numbers of the actions that guide two students, step by step; None where nothing is known."""
    rows = []
    for step in range(steps):
        guidance = teacher(SEEN)
        rows.append(
            [a if k else None for a, k in zip(guidance.actions[:, 0].tolist(), guidance.known.tolist(), strict=True)]
        )
        teacher.forget(torch.tensor((ends or {}).get(step, [False, False])))
    return rows


def test_a_plan_guides_until_the_next_question():
    planner = Counting()
    assert guided(WholePlans(planner, 2, 2), 5) == [[10.0] * 2, [11.0] * 2, [20.0] * 2, [21.0] * 2, [30.0] * 2]
    assert planner.asked == 3
    assert guided(WholePlans(Counting(), 3, 2), 4) == [[10.0] * 2, [11.0] * 2, [12.0] * 2, [20.0] * 2]
    assert guided(WholePlans(Counting(), 1, 2), 3) == [[10.0] * 2, [20.0] * 2, [30.0] * 2]


def test_a_plan_ends_with_the_episode_that_it_was_made_in():
    rows = guided(WholePlans(Counting(), 3, 2), 5, {0: [False, True], 2: [True, False]})
    assert rows == [[10.0, 10.0], [11.0, None], [12.0, None], [20.0, 20.0], [21.0, 21.0]]


def test_a_question_without_an_answer_is_asked_again_in_the_next_step():
    teacher = WholePlans(Counting(silent=(1, 2, 4)), 2, 2)
    rows = guided(teacher, 7)
    assert rows == [[None] * 2, [None] * 2, [30.0] * 2, [31.0] * 2, [None] * 2, [50.0] * 2, [51.0] * 2]


def test_plans_that_are_too_short_are_refused():
    with pytest.raises(GantryError, match="plan_steps is 4, the teacher plans 3 actions; expected at most 3"):
        WholePlans(Counting(), 4, 2)(SEEN)
    with pytest.raises(GantryError, match=r"plan_steps is 0, expected at least 1"):
        ImitationCfg(plan_steps=0)


def test_pictures_and_clones_teach_by_whole_plans_too():
    planner = Planner()
    teacher = WholePlans(PlanTeacher(planner, question, 2), 3, 2)
    for _ in range(6):
        guidance = teacher(SEEN)
        assert guidance.actions[1].tolist() == pytest.approx([0.6, 0.8])
    assert planner.asked == 2
    torch.manual_seed(0)
    clone = BcPolicy(BcCfg(network=NetworkCfg(hidden=(8,)), chunk_steps=4, execute_steps=2), {"state": (5,)}, 2)
    teacher = WholePlans(ClonedTeacher(clone, group="actor"), 4, 2)
    with torch.no_grad():
        plan = clone({"state": SEEN["actor"]})
    for step in range(4):
        assert torch.equal(teacher(SEEN).actions, plan[:, step])
