"""A session's MCAP recording as a dataset: one episode for each attempt, with its outcome."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gantry_deploy.dataset import Dataset
from gantry_deploy.dataset.bags.convert import convert_bags
from gantry_deploy.recording.recorder import read_recording
from gantry_deploy.session.records.traces import read_traces
from gantry_deploy.session.states import SessionState
from gantry_deploy.teleop.operator import TeleopEvent
from gantry_fixtures.sessions import Bench, hand

ENDS = (TeleopEvent.SUCCESS, TeleopEvent.RERECORD, TeleopEvent.FAILURE, TeleopEvent.TERMINATE)


def until(bench: Bench, met: Callable[[], bool]) -> None:
    for _ in range(2000):
        if met():
            return
        bench.step()
    raise AssertionError(bench.session.snapshot())


def attempt(bench: Bench, number: int, ends: TeleopEvent) -> None:
    """Let the policy act for a while and the person for three steps; then end the attempt."""
    session = bench.session
    until(bench, lambda: session.snapshot().episode == number and session.snapshot().step >= 12)
    at = bench.device.ticks
    bench.device.script = {at + tick: hand(z=1.0) for tick in (1, 2, 3)}
    bench.run_ticks(6)
    bench.device.script = {bench.device.ticks + 1: hand(ends, engaged=False)}
    until(bench, lambda: session.state is not SessionState.AUTONOMOUS)


def test_each_attempt_is_an_episode_with_its_outcome(tmp_path: Path):
    bench = Bench("yam-pick-place", record=tmp_path / "session.mcap", episode_s=60.0)
    bench.start()
    for number, ends in enumerate(ENDS):
        attempt(bench, number, ends)
    bench.run_ticks(2)
    bench.session.close()
    assert bench.recorder is not None
    bench.recorder.close()
    bench.robot.close()
    events = read_recording(tmp_path / "session.mcap")["/gantry/event"]["data"].tolist()
    expected = [name for ends in ENDS for name in ("start_episode", ends.value)]
    assert events[: len(expected)] == expected

    done = convert_bags([tmp_path / "session.mcap"], tmp_path / "dataset")
    dataset = Dataset(tmp_path / "dataset")
    counts = [len(bench.kept.attempt(number)) for number in (0, 2, 3)]  # That of number 1 was to be recorded again.
    assert [row.length for row in dataset.episodes][:3] == [count + 1 for count in counts]  # And where it ended.
    assert done.episodes in (3, 4)  # The next attempt may have begun.
    won = [bool(dataset.frames(episode, ["next.success"])["next.success"].any()) for episode in range(3)]
    assert won == [True, False, False]
    actions = np.stack([step.action for step in bench.kept.attempt(2)])
    own = dataset.frames(1, ["complementary_info.policy_output"])["complementary_info.policy_output"]
    np.testing.assert_allclose(own[: len(actions)], actions, atol=1e-4)
    assert [trace.length for trace in read_traces(tmp_path / "session.mcap")][:4] == [
        len(bench.kept.attempt(number)) for number in range(4)
    ]
