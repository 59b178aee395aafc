"""Several teachers of one student: whose rows are whose, and teachers that do not belong together."""

from __future__ import annotations

import numpy as np
import pytest

from gantry_deploy.openpi.description import CameraNeed, PolicyDescription
from gantry_policies.teachers.registry import make_teacher
from gantry_policies.teachers.several import SeveralTeachers
from gantry_policies.teachers.teacher import TeacherError, TeacherQuestion


class Constant:
    """Plans one number, for as many steps as it is told."""

    def __init__(self, value, steps=2, **told):
        self.value, self.steps, self.asked, self.closed = value, steps, [], False
        self.description = PolicyDescription(action_size=1, horizon=steps, cameras=(), **told)

    def plan(self, question):
        self.asked.append((question.state[:, 0].tolist(), list(question.instructions)))
        return np.full((question.rows, self.steps, 1), self.value, np.float32)

    def close(self):
        self.closed = True


def question(rows):
    return TeacherQuestion({}, np.arange(rows, dtype=np.float32)[:, None], [f"task {row}" for row in range(rows)])


def test_rows_are_shared_out_in_turn():
    one, two = Constant(1.0, steps=3), Constant(2.0, steps=2)
    both = SeveralTeachers([one, two])
    plan = both.plan(question(5))
    assert plan.shape == (5, 2, 1)
    assert plan[:, 0, 0].tolist() == [1.0, 2.0, 1.0, 2.0, 1.0]
    assert one.asked == [([0.0, 2.0, 4.0], ["task 0", "task 2", "task 4"])]
    assert two.asked == [([1.0, 3.0], ["task 1", "task 3"])]
    assert both.plan(question(1))[0, 0, 0] == 1.0
    both.close()
    assert one.closed
    assert two.closed


def test_what_is_told_is_what_all_need():
    front, wrist = CameraNeed("front", 84, 84), CameraNeed("wrist", 84, 84)
    one, two = Constant(0.0, steps=8, instruction=True), Constant(0.0, steps=4)
    one.description = PolicyDescription(action_size=1, horizon=8, cameras=(front,), instruction=True)
    two.description = PolicyDescription(action_size=1, horizon=4, cameras=(front, wrist))
    told = SeveralTeachers([one, two]).description
    assert told.cameras == (front, wrist)
    assert told.instruction
    assert told.horizon == 4


@pytest.mark.parametrize(
    ("description", "text"),
    [
        (
            PolicyDescription(action_size=2, cameras=()),
            "Teacher 2 does not fit the first.*has 2 numbers",
        ),
        (PolicyDescription(action_size=1, cameras=(), rate_hz=5.0), "Teacher 2 does not fit the first one.*Hz"),
        (
            PolicyDescription(action_size=1, cameras=(CameraNeed("front", 8, 8),)),
            "sees camera 'front' with 8 x 8 pixels, another one with 84 x 84",
        ),
    ],
)
def test_teachers_that_do_not_belong_together(description, text):
    one, two = Constant(0.0), Constant(0.0)
    one.description = PolicyDescription(action_size=1, cameras=(CameraNeed("front", 84, 84),), rate_hz=20.0)
    two.description = description
    with pytest.raises(TeacherError, match=text):
        SeveralTeachers([one, two])


def test_one_is_not_several():
    with pytest.raises(TeacherError, match="There is 1 teacher"):
        SeveralTeachers([Constant(0.0)])


def test_a_list_names_the_one_that_cannot_be_made():
    with pytest.raises(Exception, match="nowhere"):
        make_teacher("bundle:pretrained:yam-pick-place,bundle:nowhere")
