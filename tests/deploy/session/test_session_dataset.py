"""Steps of a session are stored as whole attempts and come back as they were."""

import dataclasses
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("av")

from gantry_deploy.dataset import LOSSLESS, Dataset, DatasetWriter, vector
from gantry_deploy.dataset.checks.check import check_dataset
from gantry_deploy.dataset.features import IS_INTERVENTION, POLICY_ACTION
from gantry_deploy.errors import DatasetError
from gantry_deploy.session.records.dataset import SessionDataset, SessionReader, SessionSizes
from gantry_deploy.session.records.dataset_sink import DatasetSink
from gantry_deploy.session.steps import Actor, SessionStep
from gantry_deploy.testing.sessions import SIZES, attempt
from gantry_hardware.errors import UnknownNameError


def assert_equal(got, wanted):
    for item in dataclasses.fields(SessionStep):
        one, other = getattr(got, item.name), getattr(wanted, item.name)
        if isinstance(other, dict):
            assert one.keys() == other.keys()
            for key in other:
                assert one[key].dtype == other[key].dtype
                np.testing.assert_array_equal(one[key], other[key], err_msg=f"{item.name} {key}")
        elif isinstance(other, np.ndarray):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other, err_msg=item.name)
        elif item.name == "penalty":
            assert one == np.float32(other)
        else:
            assert one == other, item.name


def test_steps_come_back_as_they_were(tmp_path):
    steps = [*attempt(0), *attempt(1, 3, success=False), *attempt(2, 1, person=())]
    with SessionDataset(tmp_path / "s", SIZES, 20, "yam", "lift", codec=LOSSLESS) as dataset:
        assert [dataset.add(step) for step in steps] == [None] * 4 + [0, None, None, 1, 2]
    got = list(SessionReader(tmp_path / "s"))
    assert len(got) == len(steps)
    for one, other in zip(got, steps, strict=True):
        assert_equal(one, other)
    assert check_dataset(tmp_path / "s", decode=True) == []
    opened = Dataset(tmp_path / "s")
    assert opened.features[IS_INTERVENTION].dtype == "bool"
    assert opened.tasks == ["lift"]
    np.testing.assert_array_equal(opened.successes(), [True, False, True])
    assert SessionSizes.of_step(steps[0]) == SIZES


def test_a_session_is_continued_and_discarded_attempts_are_left_out(tmp_path):
    folder = tmp_path / "s"
    with SessionDataset(folder, SIZES, 20, "yam", "lift") as dataset:
        for step in attempt(0):
            dataset.add(step)
        for step in attempt(1)[:3]:
            dataset.add(step)
        assert dataset.discard_episode() == 3
        assert dataset.add(attempt(1)[3]) is None  # Its rest is no attempt of its own.
        for step in [*attempt(2)[:2], *attempt(3)]:  # The robot was stopped in attempt 2.
            dataset.add(step)
        assert (dataset.num_episodes, dataset.left_out) == (2, 2)
        dataset.add(attempt(4)[0])
    with SessionDataset(folder, SIZES, 20, "yam", "lift", resume=True) as dataset:
        for step in attempt(0, seed=1):
            dataset.add(step)
    assert [len(SessionReader(folder).steps(i)) for i in range(3)] == [5, 5, 5]
    assert check_dataset(folder) == []
    last = SessionReader(folder).steps(1)[-1]
    np.testing.assert_array_equal(last.last_obs["state"], attempt(3)[-1].last_obs["state"])


def test_sizes_of_the_first_step(tmp_path):
    folder = tmp_path / "s"
    with SessionDataset(folder, None, 20, "yam", "lift") as dataset:
        assert not folder.exists()
        for step in attempt(0):
            dataset.add(step)
        assert (dataset.sizes, dataset.num_episodes) == (SIZES, 1)
    with pytest.raises(DatasetError, match="holds a dataset already"):
        SessionDataset(folder, None, 20, "yam", "lift")
    with SessionDataset(folder, None, 20, "yam", "lift", resume=True) as dataset:
        for step in attempt(1):
            dataset.add(step)
    assert SessionReader(folder).num_episodes == 2
    with pytest.raises(DatasetError, match="holds no dataset"):
        SessionDataset(tmp_path, None, 20, "yam", "lift")


def test_a_killed_process_loses_the_open_attempt_alone(tmp_path):
    program = textwrap.dedent("""
        import os, signal, sys
        from gantry_deploy.testing.sessions import SIZES, attempt
        from gantry_deploy.session.records.dataset import SessionDataset
        dataset = SessionDataset(sys.argv[1], SIZES, 20, "yam", "lift")
        for step in [*attempt(0), *attempt(1), *attempt(2)[:4]]:
            dataset.add(step)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "s")], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert SessionReader(tmp_path / "s").num_episodes == 2
    assert check_dataset(tmp_path / "s") == []


def test_wrong_steps_are_refused(tmp_path):
    step = attempt(0)[0]
    with SessionDataset(tmp_path / "s", SIZES, 20, "yam", "lift") as dataset:
        wrong = {**step.obs, "image/wirst": step.obs["image/wrist"]}
        with pytest.raises(UnknownNameError, match="Did you mean 'image/wrist'"):
            dataset.add(dataclasses.replace(step, obs=wrong))
        with pytest.raises(DatasetError, match="lacks image/odd"):
            dataset.add(dataclasses.replace(step, obs={k: v for k, v in step.obs.items() if k != "image/odd"}))
        with pytest.raises(DatasetError, match="no base action"):
            dataset.add(dataclasses.replace(step, base_action=None))
        with pytest.raises(DatasetError, match="'action' is not finite"):
            dataset.add(dataclasses.replace(step, action=np.array([np.nan, 0], np.float32)))
        with pytest.raises(DatasetError, match="No attempt is complete"):
            dataset.store()


def test_other_datasets_are_read_as_steps(tmp_path):
    features = {"observation.state": vector(2), "action": vector(1), "intervention": vector(1)}
    with DatasetWriter(tmp_path / "d", 10, features, "arm") as writer:
        for index in range(3):
            writer.add_frame(
                {
                    "observation.state": np.full(2, index, np.float32),
                    "action": np.float32([index]),
                    "intervention": np.float32([index == 1]),
                }
            )
        writer.end_episode("push")
    steps = SessionReader(tmp_path / "d").steps(0)
    assert [step.actor for step in steps] == [Actor.POLICY, Actor.PERSON, Actor.POLICY]
    assert [step.truncated for step in steps] == [False, False, True]
    np.testing.assert_array_equal(steps[2].policy_action, [2.0])
    assert (steps[2].stamp_s, steps[2].last_obs) == (pytest.approx(0.2), None)
    with DatasetWriter(tmp_path / "e", 10, {POLICY_ACTION: vector(1)}, "arm"):
        pass
    with pytest.raises(UnknownNameError, match=r"observation\.state"):
        SessionReader(tmp_path / "e")


def test_a_sink_writes_in_the_background(tmp_path):
    sink = DatasetSink(SessionDataset(tmp_path / "s", SIZES, 20, "yam", "lift"))
    for step in [*attempt(0), *attempt(1)[:3]]:
        sink.take(step)
    sink.discard(1)
    for step in [attempt(1)[3], *attempt(2)]:
        sink.take(step)
    sink.close()
    sink.close()
    assert (sink.failure, sink.dropped) == (None, 1)
    assert SessionReader(tmp_path / "s").num_episodes == 2


def test_a_sink_reports_a_failure_and_goes_on(tmp_path):
    sink = DatasetSink(SessionDataset(tmp_path / "s", SIZES, 20, "yam", "lift"))
    for step in [*attempt(0), dataclasses.replace(attempt(1)[0], action=np.zeros(3, np.float32))]:
        sink.take(step)
    sink.close()
    assert "'action' is float32 of shape (3,)" in sink.failure
    sink.take(attempt(2)[0])
    assert sink.dropped == 1
    assert SessionReader(tmp_path / "s").num_episodes == 1
