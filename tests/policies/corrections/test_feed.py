"""Steps of actors come out as the right transitions in the right buffers."""

import numpy as np
import torch

from gantry_deploy.session.steps import Actor, SessionStep
from gantry_policies.corrections.feed import BufferFeed, StepStream
from gantry_policies.off_policy.replay.batches import Lookahead
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.scalers import ActionScaler

ONE = Lookahead(1, 0.9, False)


def step(episode: int, index: int, *, by_person: bool = False, last: str = "", reward: float = 0.0) -> SessionStep:
    """A step whose state and action tell where it is: 100 * episode + index."""
    number = np.float32(100 * episode + index)
    return SessionStep(
        episode,
        index,
        0.1 * index,
        {"state": np.array([number, -number], np.float32)},
        np.array([0.01 * index], np.float32),
        np.zeros(1, np.float32),
        Actor.PERSON if by_person else Actor.POLICY,
        reward=reward,
        terminated=last == "done",
        truncated=last == "late",
        success=last == "done",
        last_obs={"state": np.array([number + 1, -number - 1], np.float32)} if last else None,
    )


def made(rings: int = 2) -> tuple[BufferFeed, ReplayBuffer, ReplayBuffer]:
    replay, taught = (ReplayBuffer(60 * rings, rings, {"state": (2,)}, 1) for _ in "12")
    return BufferFeed(replay, taught, ActionScaler(1)), replay, taught


def pairs(buffer: ReplayBuffer) -> list[tuple[float, float]]:
    """First numbers of the observations before and after each transition, sorted."""
    batch = buffer.gather(buffer.transitions(), ONE)
    return sorted(zip(batch.obs["state"][:, 0].tolist(), batch.next_obs["state"][:, 0].tolist(), strict=True))


def test_a_correction_of_two_steps_is_in_both_buffers_with_what_followed():
    feed, replay, taught = made()
    for index in range(6):
        feed.take("robot", step(0, index, by_person=index in (2, 3), last="late" if index == 5 else ""))
    assert pairs(replay) == [(float(i), float(i + 1)) for i in range(6)]
    assert pairs(taught) == [(2.0, 3.0), (3.0, 4.0)]
    assert (feed.steps, feed.corrections, feed.left_out) == (6, 2, 0)
    batch = replay.gather(replay.transitions(), ONE)
    assert batch.is_intervention.tolist() == [False, False, True, True, False, False]


def test_two_corrections_apart_do_not_run_into_each_other():
    feed, _, taught = made()
    for index in range(8):
        feed.take("robot", step(0, index, by_person=index in (1, 5), last="done" if index == 7 else ""))
    assert pairs(taught) == [(1.0, 2.0), (5.0, 6.0)]
    two_ahead = taught.gather(taught.transitions(), Lookahead(3, 0.9, False))
    assert two_ahead.next_obs["state"][:, 0].tolist() == [2.0, 6.0], "a window of several steps ends at the gap"


def test_success_ends_for_good_and_time_does_not():
    feed, replay, _ = made()
    feed.take("robot", step(0, 0, last="done", reward=1.0))
    feed.take("robot", step(1, 0, last="late"))
    batch = replay.gather(replay.transitions(), ONE)
    assert dict(zip(batch.returns.tolist(), batch.discount.tolist(), strict=True)) == {1.0: 0.0, 0.0: np.float32(0.9)}


def test_a_step_whose_outcome_never_came_is_left_out():
    feed, replay, _ = made()
    for index in (0, 1, 2):
        feed.take("robot", step(0, index))
    feed.take("robot", step(1, 0))  # The actor was killed in the first attempt.
    feed.take("robot", step(1, 1, last="late"))
    assert pairs(replay) == [(0.0, 1.0), (1.0, 2.0), (100.0, 101.0), (101.0, 102.0)]
    assert feed.left_out == 1


def test_two_actors_do_not_mix():
    feed, replay, _ = made()
    for index in range(4):
        feed.take("left", step(0, index))
        feed.take("right", step(7, index))
    assert pairs(replay) == [*((float(i), float(i + 1)) for i in range(3)), *((700.0 + i, 701.0 + i) for i in range(3))]


def test_a_stream_keeps_the_order_and_does_not_wait_longer_than_asked():
    stream = StepStream()
    assert stream.drain(0.0, 10) == []
    stream.take("a", [step(0, 0), step(0, 1)])
    stream.take("b", [step(0, 2)])
    assert [(actor, item.index) for actor, item in stream.drain(0.0, 2)] == [("a", 0), ("a", 1)]
    assert [(actor, item.index) for actor, item in stream.drain(0.0, 2)] == [("b", 2)]


def test_scaled_actions_are_stored():
    replay, taught = (ReplayBuffer(60, 1, {"state": (2,)}, 1) for _ in "12")
    scaler = ActionScaler(1)
    scaler.fit(torch.tensor([[-0.5], [0.5]]), 0.0)
    feed = BufferFeed(replay, taught, scaler)
    feed.take("robot", step(0, 25, last="late"))
    assert replay.gather(replay.transitions(), ONE).action.item() == np.float32(0.5)
