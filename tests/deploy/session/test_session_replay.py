"""Attempts of a session that is over, from its dataset and from its recording, on the command line and in a report."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("av")

from gantry_deploy.cli.command import UsageError, emit_result
from gantry_deploy.cli.parser import GantryParser
from gantry_deploy.cli.session.replay import add_arguments, run
from gantry_deploy.control.loop import TickReport
from gantry_deploy.control.safety import Mode
from gantry_deploy.errors import SessionError
from gantry_deploy.policy.runner import PolicyStep
from gantry_deploy.recording.recorder import Recorder
from gantry_deploy.session.records.dataset import SessionDataset
from gantry_deploy.session.records.traces import read_traces, session_summary
from gantry_deploy.testing.legs import contract_for, tiny_robot
from gantry_deploy.testing.sessions import SIZES, attempt
from gantry_hardware.backends.mock import MockRobot

SPEC = tiny_robot()


def replay(*words):
    """What ``gantry session replay`` does."""
    parser = GantryParser(prog="gantry session replay")
    add_arguments(parser)
    args = parser.parse_all([str(word) for word in words])
    emit_result(args, run(args))


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("session") / "first"
    with SessionDataset(folder, SIZES, 20, "yam", "lift") as dataset:
        for step in [*attempt(0), *attempt(1, 4, person=(0, 3), success=False), *attempt(2, 3, person=())]:
            dataset.add(step)
    return folder


def test_attempts_of_a_dataset(session):
    traces = read_traces(session)
    assert session_summary(traces) == {
        "attempts": 3,
        "successes": 2,
        "successes_alone": 1,
        "steps": 12,
        "steps_by_person": 4,
        "person_share": pytest.approx(4 / 12),
        "person_s": pytest.approx(0.2),
        "corrections": 3,
    }
    assert [trace.spans for trace in traces] == [[(1, 3)], [(0, 1), (3, 4)], []]
    steps = attempt(1, 4, person=(0, 3), success=False)
    gaps = [np.abs(step.action - step.policy_action).max() for step in steps]
    np.testing.assert_allclose(traces[1].difference, gaps, rtol=1e-6)
    assert traces[1].summary()["parameters"] == [8, 8]


def record(path, ticks):
    """A recording of ticks: (state of the session, attempt, successes, action, action of the policy or None)."""
    robot = MockRobot(SPEC)
    robot.connect()
    state = robot.read()
    contract = contract_for(SPEC)
    with Recorder(path, contract, SPEC, lossless=True) as recorder:
        for number, (name, episode, won, action, own) in enumerate(ticks):
            time_s = 5.0 + number * contract.dt_s
            notes = {"session_state": name, "attempt": str(episode), "successes": str(won)} if name else {}
            step = PolicyStep(
                np.zeros(contract.observation_size, np.float32),
                np.full(contract.action_size, action, np.float32),
                np.zeros(3, np.float32),
                None,
                0.0,
                0.0,
                policy_action=None if own is None else np.full(contract.action_size, own, np.float32),
                notes=notes,
            )
            source = "session" if name else "policy"
            recorder.record(
                TickReport(
                    time_s,
                    Mode.POLICY,
                    None,
                    replace(state, stamp_s=time_s),
                    np.zeros(3),
                    step,
                    None,
                    0,
                    0,
                    source=source,
                )
            )
    return path


def test_attempts_of_a_recording(tmp_path):
    path = record(
        tmp_path / "run.mcap",
        [
            ("RESETTING", -1, 0, 0.0, 0.9),
            ("AUTONOMOUS", 0, 0, 1.0, None),
            ("CORRECTING", 0, 0, 0.25, 1.0),
            ("PAUSED", 0, 0, 0.0, 1.0),
            ("CORRECTING", 0, 0, 0.5, 1.0),
            ("RESETTING", 0, 1, 0.0, 1.0),
            ("AUTONOMOUS", 1, 1, 0.75, None),
            ("RESETTING", 1, 1, 0.0, 1.0),
            ("AUTONOMOUS", 2, 1, 0.75, None),
        ],
    )
    traces = read_traces(path)
    assert [trace.length for trace in traces] == [3, 1, 1]
    assert [trace.success for trace in traces] == [True, False, None]
    assert traces[0].person.tolist() == [False, True, True]
    assert traces[0].spans == [(1, 3)]
    np.testing.assert_allclose(traces[0].difference, [0, 0.75, 0.5])


def test_a_recording_without_a_session_is_one_attempt_per_stretch(tmp_path):
    traces = read_traces(record(tmp_path / "run.mcap", [("", 0, 0, 1.0, None), ("", 0, 0, 0.5, 1.0)]))
    assert [(trace.length, trace.person.tolist(), trace.success) for trace in traces] == [(2, [False, True], None)]


def test_the_command_prints_a_table_and_writes_a_report(session, tmp_path, capsys):
    html = tmp_path / "report.html"
    pytest.importorskip("matplotlib")
    replay(session, "--episode", 0, "--html", html)
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0].split()[:3] == ["Attempt", "Steps", "Time"]
    assert lines[1].split() == ["0", "5", "0.25", "success", "1", "40", "0.10", "1", "7"]
    assert lines[2].split()[3] == "failure"
    assert "3 attempts, 2 succeeded, 1 of them without help" in printed
    assert "12 steps, 33% by the person in 3 corrections, 0.2 person-seconds" in printed
    rows = [line.split() for line in lines if line.split()[2:3] == ["person"]]
    assert [row[:3] for row in rows] == [["1", "0.05", "person"], ["2", "0.10", "person"]]
    text = html.read_text()
    assert "shaded while a person acts" in text
    assert "person acts" in text
    assert "http-equiv" in text


def test_the_result_as_json(session, tmp_path):
    replay(session, "--episode", 1, "--json", tmp_path / "r.json")
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["successes_alone"] == 1
    assert result["episode"]["actor"] == ["person", "policy", "policy", "person"]
    assert len(result["episodes"]) == 3


def test_what_is_not_there_is_named(session):
    with pytest.raises(UsageError, match="there is no attempt 7; there are 3"):
        replay(session, "--episode", 7)
    with pytest.raises(SessionError, match="first"):
        replay(session.with_name("frist"))
