"""One publisher or two, told by the numbers of the messages."""

from __future__ import annotations

import random

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from gantry_ros.runtime.publishers import HOLD_S, QUIET_S, DuplicateMonitor  # noqa: E402


class Publisher:
    """Counts its messages; sends them at a rate from a time on."""

    def __init__(self, rate_hz, begin_s, end_s, first=1, loss=0.0):
        self.rate_hz, self.begin_s, self.end_s, self.first, self.loss = rate_hz, begin_s, end_s, first, loss

    def messages(self, rng):
        for index in range(int((self.end_s - self.begin_s) * self.rate_hz)):
            if rng.random() >= self.loss:
                jitter = rng.uniform(0.0, 0.8) / self.rate_hz
                yield self.begin_s + index / self.rate_hz + jitter, self.first + index, self


def listen(*publishers, seed=0, late=lambda time_s: time_s):
    """Everything that is heard: time, whose, whether it counted, and whether two were known of then."""
    rng, monitor, heard = random.Random(seed), DuplicateMonitor(), []
    for time_s, number, whose in sorted((m for p in publishers for m in p.messages(rng)), key=lambda m: m[0]):
        now_s = late(time_s)
        counted = monitor.hear(number, now_s)
        heard.append((now_s, whose, counted, monitor.has_two(now_s)))
    return heard


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("rate_hz", [5.0, 50.0, 200.0, 1000.0])
@pytest.mark.parametrize("loss", [0.0, 0.3, 0.95])
def test_one_publisher_counts_whatever_is_lost(seed, rate_hz, loss):
    heard = listen(Publisher(rate_hz, 0.0, 10.0, loss=loss), seed=seed)
    assert not any(two for *_, two in heard)
    assert sum(counted for _, _, counted, _ in heard) >= 0.9 * len(heard)


@pytest.mark.parametrize("seed", range(5))
def test_one_publisher_counts_on_a_machine_that_hears_it_in_bursts(seed):
    heard = listen(Publisher(200.0, 0.0, 10.0), seed=seed, late=lambda time_s: 0.4 * (time_s // 0.4 + 1))
    assert all(counted and not two for _, _, counted, two in heard)


def queued(rng, publishers, depth=4, seconds=30.0):
    """What a busy process hears of publishers on a busy machine: they pause and then catch up in bursts, and so does
    it, from a queue that keeps the last few. Yields time, number and publisher."""
    arrivals = []
    for publisher in publishers:
        time_s, late_s = publisher.begin_s, 0.0
        for index in range(int((publisher.end_s - publisher.begin_s) * publisher.rate_hz)):
            time_s = publisher.begin_s + index / publisher.rate_hz
            if rng.random() < 0.01:
                late_s = max(late_s, time_s + rng.uniform(0.0, 0.4))
            late_s = max(time_s, late_s) + 1e-5 * rng.random()
            arrivals.append((late_s, publisher.first + index, publisher))
    arrivals.sort(key=lambda item: item[0])
    now_s, taken = 0.0, 0
    queue = []
    while now_s < seconds and (taken < len(arrivals) or queue):
        while taken < len(arrivals) and arrivals[taken][0] <= now_s:
            queue = [*queue, arrivals[taken]][-depth:]
            taken += 1
        if queue:
            _, number, publisher = queue.pop(0)
            yield now_s, number, publisher
            now_s += 1e-4
        else:
            now_s = max(now_s, arrivals[taken][0]) if taken < len(arrivals) else seconds
        if rng.random() < 0.01:
            now_s += rng.uniform(0.0, 0.4)


@pytest.mark.parametrize("rate_hz", [10.0, 50.0, 200.0, 1000.0])
def test_one_publisher_is_never_taken_for_two_on_a_busy_machine(rate_hz):
    for seed in range(30):
        rng, monitor, held = random.Random(seed), DuplicateMonitor(), 0
        for now_s, number, _ in queued(rng, [Publisher(rate_hz, 0.0, 30.0)]):
            held += not monitor.hear(number, now_s)
            assert not monitor.has_two(now_s), f"seed {seed}"
        assert held == 0, f"seed {seed}"


@pytest.mark.parametrize("rate_hz", [50.0, 200.0, 500.0])
def test_a_second_publisher_is_known_on_a_busy_machine_too(rate_hz):
    for seed in range(30):
        rng, monitor = random.Random(seed), DuplicateMonitor()
        own, second = Publisher(200.0, 0.0, 10.0, first=5000), Publisher(rate_hz, 3.0, 10.0)
        begin_s, known_s = None, None
        for now_s, number, whose in queued(rng, [own, second], seconds=10.0):
            monitor.hear(number, now_s)
            begin_s = now_s if begin_s is None and whose is second else begin_s
            known_s = now_s if known_s is None and monitor.has_two(now_s) else known_s
        assert begin_s is not None, f"seed {seed}"
        assert known_s is not None, f"seed {seed}"
        assert 0.0 <= known_s - begin_s < 1.5, f"seed {seed}"


@pytest.mark.parametrize("first", [1, 150, 50_000, 2**40])
@pytest.mark.parametrize("rate_hz", [1.0, 20.0, 50.0, 200.0, 500.0, 5000.0])
@pytest.mark.parametrize("own_hz", [20.0, 200.0])
def test_a_second_publisher_is_known_within_two_periods_and_never_counts(own_hz, rate_hz, first):
    own, second = Publisher(own_hz, 0.0, 6.0, first=5000), Publisher(rate_hz, 1.0, 6.0, first=first)
    heard = listen(own, second)
    begin_s = min(time_s for time_s, whose, *_ in heard if whose is second)
    known_s = next((time_s for time_s, *_, two in heard if two), None)
    assert known_s is not None
    # Its first message, and the first one's next.
    assert known_s - begin_s <= 1.8 / own_hz + 1e-9
    assert not any(counted and whose is second for _, whose, counted, _ in heard)


@pytest.mark.parametrize("first", [198, 199, 200, 201, 202, 210, 260])
@pytest.mark.parametrize("rate_hz", [1.0, 20.0, 50.0, 200.0, 500.0, 5000.0])
def test_a_second_publisher_whose_count_happens_to_go_on_from_the_first_ones_is_known_soon(rate_hz, first):
    own, second = Publisher(200.0, 0.0, 6.0), Publisher(rate_hz, 1.0, 6.0, first=first)
    heard = listen(own, second)
    begin_s = min(time_s for time_s, whose, *_ in heard if whose is second)
    known_s = next((time_s for time_s, *_, two in heard if two), None)
    assert known_s is not None
    assert known_s - begin_s <= max(0.05, 3.0 / rate_hz)


@pytest.mark.parametrize("pause_s", [0.15, 0.5, 3.0, 30.0])
@pytest.mark.parametrize("first", [1, 300])
def test_a_publisher_that_is_started_again_is_heard_and_is_no_second_one(pause_s, first):
    before, after = Publisher(200.0, 0.0, 1.0), Publisher(200.0, 1.0 + pause_s, 3.0 + pause_s, first=first)
    heard = listen(before, after)
    assert not any(two for *_, two in heard)
    silent = [time_s for time_s, whose, counted, _ in heard if whose is after and not counted]
    assert all(time_s < 1.0 + QUIET_S + 0.01 for time_s in silent)


def test_one_that_is_replaced_at_once_costs_a_moment_and_no_alarm():
    before, after = Publisher(200.0, 0.0, 1.0), Publisher(200.0, 1.005, 3.0)
    heard = listen(before, after)
    assert not any(two for *_, two in heard)
    held = [time_s for time_s, whose, counted, _ in heard if not counted]
    assert 0.05 < max(held) - min(held) < QUIET_S + 0.02
    assert all(counted for time_s, _, counted, _ in heard if time_s > 1.0 + 2 * QUIET_S)


@pytest.mark.parametrize("who_leaves", ["first", "second"])
def test_whoever_is_left_is_heard_again(who_leaves):
    own = Publisher(200.0, 0.0, 2.0 if who_leaves == "first" else 6.0)
    second = Publisher(200.0, 1.0, 6.0 if who_leaves == "first" else 2.0)
    heard = listen(own, second)
    assert all(two for time_s, *_, two in heard if 1.1 < time_s < 2.0)
    left = [counted and not two for time_s, _, counted, two in heard if time_s > 2.0 + HOLD_S + 2 * QUIET_S]
    assert left
    assert all(left)


def test_three_publishers_are_more_than_one():
    heard = listen(Publisher(200.0, 0.0, 3.0), Publisher(150.0, 1.0, 3.0), Publisher(70.0, 1.0, 3.0, first=9000))
    assert all(two for time_s, *_, two in heard if time_s > 1.1)


def test_what_a_middleware_does_not_count_is_taken_as_it_comes():
    monitor = DuplicateMonitor()
    assert all(monitor.hear(2**64 - 1, 0.01 * i) for i in range(100))
    assert not monitor.has_two(1.0)
