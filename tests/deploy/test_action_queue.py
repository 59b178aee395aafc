"""The queue of planned actions: which action comes when, and what an ensemble of chunks says."""

import numpy as np
import pytest

from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.action_queue import ActionQueue


def chunk(*values):
    """Actions of one number."""
    return np.array(values, dtype=np.float32)[:, None]


def test_first_actions_of_each_chunk_and_then_the_next_chunk():
    queue, taken = ActionQueue(execute=2), []
    for planned in (chunk(1, 2, 3), chunk(10, 20, 30)):
        assert queue.wants_chunk
        queue.push(planned)
        for _ in range(2):
            assert not queue.wants_chunk
            taken.append(float(queue.pop()[0]))
    assert taken == [1, 2, 10, 20]


def test_peek_takes_nothing_and_reset_forgets_the_rest():
    queue = ActionQueue(execute=3)
    queue.push(chunk(1, 2, 3))
    assert queue.peek() == queue.peek() == queue.pop() == 1
    assert queue.peek() == 2
    queue.reset()
    assert queue.wants_chunk
    with pytest.raises(PolicyError, match="push a chunk"):
        queue.pop()


def test_a_new_chunk_replaces_what_is_left_and_is_not_shared():
    queue, planned = ActionQueue(execute=2), chunk(5, 6)
    queue.push(chunk(1, 2))
    queue.pop()
    queue.push(planned)
    planned[:] = 99
    assert [float(queue.pop()[0]) for _ in range(2)] == [5, 6]


def test_an_ensemble_weighs_the_oldest_chunk_most():
    """Weights of arXiv 2304.13705: w_i = exp(-m i), i = 0 for the oldest; with m = ln 2 they are 1, 1/2, 1/4."""
    queue, taken = ActionQueue(execute=1, ensemble_decay=float(np.log(2))), []
    for planned in (chunk(0, 3, 7), chunk(6, 14, 0), chunk(28, 8, 0), chunk(9, 0, 0)):
        queue.push(planned)
        taken.append(float(queue.pop()[0]))
    # 0; (3 + 6/2) / 1.5; (7 + 14/2 + 28/4) / 1.75; the first chunk is over: (0 + 8/2 + 9/4) / 1.75
    np.testing.assert_allclose(taken, [0, 4, 12, 6.25 / 1.75], rtol=1e-6)


def test_an_ensemble_of_chunks_that_overlap_in_part():
    queue, taken = ActionQueue(execute=2, ensemble_decay=0.0), []
    for planned in (chunk(1, 2, 3), chunk(5, 6, 7), chunk(9, 9, 9)):
        queue.push(planned)
        taken += [float(queue.pop()[0]) for _ in range(2)]
        assert queue.wants_chunk
    assert taken == [1, 2, (3 + 5) / 2, 6, (7 + 9) / 2, 9]


def test_an_ensemble_of_chunks_that_do_not_overlap_follows_the_newest():
    queue, taken = ActionQueue(execute=2, ensemble_decay=0.0), []
    for planned in (chunk(1, 2), chunk(5, 6)):
        queue.push(planned)
        taken += [float(queue.pop()[0]) for _ in range(2)]
    assert taken == [1, 2, 5, 6]


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (np.zeros((1, 3), np.float32), r"\(1, 3\), expected \(2 or more, 3\)"),
        (np.zeros((2, 4), np.float32), r"\(2, 4\), expected \(2 or more, 3\)"),
        (np.zeros((1, 2, 3), np.float32), r"\(1, 2, 3\), expected"),
    ],
)
def test_chunks_that_do_not_fit_are_refused(wrong, expected):
    queue = ActionQueue(execute=2)
    queue.push(np.zeros((2, 3), np.float32))
    with pytest.raises(PolicyError, match=expected):
        queue.push(wrong)


def test_numbers_out_of_range_are_refused():
    with pytest.raises(PolicyError, match="executes 0"):
        ActionQueue(0)
    with pytest.raises(PolicyError, match=r"-0\.5"):
        ActionQueue(1, ensemble_decay=-0.5)
