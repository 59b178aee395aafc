"""The client against servers that are slow, dead, wrong, or not the same any more."""

import socket
import threading

import numpy as np
import pytest

from gantry_deploy.errors import PolicyServerError
from gantry_deploy.openpi.client import PolicyClient
from gantry_deploy.openpi.codec import encode
from gantry_deploy.openpi.description import PolicyDescription
from gantry_fixtures.openpi import other_server, shape_of
from gantry_hardware.errors import GantryError

ASKED = {"observation/state": np.zeros(3, np.float32)}
LONG_S = 30.0
"""Deadline of calls that must not meet it."""
TRACEBACK = 'Traceback (most recent call last):\n  File "serve.py", line 3\nKeyError: "observation/wrist_image"\n'


def client_of(port, **settings):
    return PolicyClient("127.0.0.1", port, **{"deadline_s": LONG_S, "connect_s": LONG_S, "backoff_s": 0.01, **settings})


def sends(**answer):
    return lambda connection, observation: connection.send(encode(answer))


def trouble_of(port, **settings):
    """The error of a call of a client that could connect."""
    with client_of(port, **settings) as client, pytest.raises(PolicyServerError) as caught:
        client.infer(ASKED)
    return caught.value


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_actions_come_as_single_precision_with_what_else_was_sent():
    answer = {"actions": np.full((4, 2), 0.25), "server_timing": {"infer_ms": 2.5}}
    with other_server(sends(**answer), {"name": "pi0"}) as port, client_of(port) as client:
        assert client.metadata == {"name": "pi0"}
        assert client.description == PolicyDescription()
        found = client.infer(ASKED)
    assert found["actions"].dtype == np.float32
    np.testing.assert_array_equal(found["actions"], np.full((4, 2), 0.25))
    assert found["server_timing"] == {"infer_ms": 2.5}


@pytest.mark.parametrize(
    ("actions", "reason", "words"),
    [
        (np.array([[0.0, np.nan]], np.float32), "not_finite", "nan at (0, 1)"),
        (np.array([[np.inf, 0.0]]), "not_finite", "inf at (0, 0)"),
        (np.array([[1e300, 0.0]]), "not_finite", "inf at (0, 0)"),
        (np.zeros(2, np.float32), "wrong_shape", "has shape (2,), expected (any, any)"),
        (np.zeros((0, 2), np.float32), "wrong_shape", "has shape (0, 2)"),
        (np.zeros((1, 2), np.uint8), "wrong_shape", "'actions' is uint8, expected real numbers"),
        ([[0.0, 1.0]], "wrong_shape", "'actions' of type list"),
        (None, "wrong_shape", "no 'actions', expected an array; it holds: actions, state"),
    ],
)
def test_actions_that_cannot_be_acted_on_are_named(actions, reason, words):
    with other_server(sends(actions=actions, state=1)) as port:
        trouble = trouble_of(port)
    assert trouble.reason == reason
    assert words in str(trouble)
    assert f"127.0.0.1:{port}" in str(trouble)


def test_sizes_that_the_server_has_told_are_held_to():
    told = PolicyDescription(horizon=5, action_size=2).to_metadata()
    with other_server(shape_of(4, 2), told) as port:
        assert "has shape (4, 2), expected (5, 2)" in str(trouble_of(port))


def test_sizes_that_were_not_told_stay_as_they_were_first():
    shapes = iter([(4, 2), (4, 2), (4, 3)])
    with (
        other_server(lambda connection, _: shape_of(*next(shapes))(connection, _)) as port,
        client_of(port) as client,
    ):
        assert [client.infer(ASKED)["actions"].shape for _ in range(2)] == [(4, 2)] * 2
        with pytest.raises(PolicyServerError, match=r"has shape \(4, 3\), expected \(4, 2\)"):
            client.infer(ASKED)


def test_an_error_of_the_server_is_told_by_its_last_line_and_kept_whole():
    def fail(connection, observation):
        connection.send(TRACEBACK)
        connection.close(1011)

    with other_server(fail) as port:
        trouble = trouble_of(port)
    assert trouble.reason == "error_frame"
    assert str(trouble) == f'The policy server 127.0.0.1:{port} failed: KeyError: "observation/wrist_image"'
    assert trouble.details == TRACEBACK


def test_an_answer_that_comes_too_late_is_never_taken_for_the_next_one():
    late, asked = threading.Event(), []

    def slow_once(connection, observation):
        asked.append(float(observation["x"]))
        if len(asked) == 1:
            late.wait(LONG_S)
        connection.send(encode({"actions": np.full((1, 1), observation["x"])}))

    with other_server(slow_once) as port, client_of(port, deadline_s=0.3) as client:
        with pytest.raises(PolicyServerError, match=r"has not answered within 0.3 s") as caught:
            client.infer({"x": np.float32(1)})
        assert caught.value.reason == "slow"
        late.set()
        patient = client_of(port)
        assert patient.infer({"x": np.float32(3)})["actions"] == [[3.0]]
        patient.close()
        client._deadline_s = LONG_S
        assert client.infer({"x": np.float32(2)})["actions"] == [[2.0]]


def test_a_server_that_reads_nothing_cannot_hold_a_sender():
    """Its buffers are full, so that the call waits in sending and not in receiving."""
    over = threading.Event()

    def read_nothing(connection):
        with connection.protocol_mutex:  # Without it the thread that reads the socket gets no further.
            over.wait(LONG_S)

    with other_server(shape_of(1, 2), begin=read_nothing) as port, client_of(port, deadline_s=0.3) as client:
        with pytest.raises(PolicyServerError) as caught:
            client.infer({"image": np.zeros(40 * 2**20, np.uint8)})
        over.set()
    assert caught.value.reason == "slow"


def test_a_cut_connection_is_made_again_and_the_question_asked_again():
    asked = []

    def cut_twice(connection, observation):
        asked.append(len(asked))
        if len(asked) < 3:
            connection.socket.shutdown(socket.SHUT_RDWR)
        else:
            connection.send(encode({"actions": np.ones((1, 2), np.float32)}))

    with other_server(cut_twice) as port, client_of(port, retries=2) as client:
        assert client.infer(ASKED)["actions"].shape == (1, 2)
    assert len(asked) == 3


def test_a_server_that_is_gone_is_dead_and_its_return_is_used():
    with other_server(shape_of(1, 2), {"name": "a"}) as port:
        client = client_of(port, retries=1)
        client.infer(ASKED)
    with pytest.raises(PolicyServerError, match=r"tried 2 times") as caught:
        client.infer(ASKED)
    assert caught.value.reason == "dead"
    with other_server(shape_of(1, 2), {"name": "a"}, port):
        assert client.infer(ASKED)["actions"].shape == (1, 2)
        client.close()


def test_a_server_that_comes_back_with_another_policy_is_never_asked():
    told = PolicyDescription(action_size=2, rate_hz=20.0, action_names=("x", "y")).to_metadata()
    other = PolicyDescription(action_size=2, rate_hz=10.0, action_names=("x", "z")).to_metadata()
    with other_server(shape_of(1, 2), told) as port:
        client = client_of(port)
        client.infer(ASKED)
    asked = []
    with other_server(lambda connection, observation: asked.append(1), other, port):
        for _ in range(2):
            with pytest.raises(PolicyServerError) as caught:
                client.infer(ASKED)
            assert caught.value.reason == "other_model"
            assert "gantry.action_names[1] was 'y', is 'z'; gantry.rate_hz was 20.0, is 10.0." in str(caught.value)
    assert asked == []
    assert client.metadata == told
    client.close()


def test_arrays_in_metadata_count_as_well():
    with other_server(shape_of(1, 2), {"mean": np.zeros(2)}) as port:
        client = client_of(port)
    with (
        other_server(shape_of(1, 2), {"mean": np.ones(2), "new": [1]}, port),
        pytest.raises(PolicyServerError, match=r"mean was float64 of shape \(2,\) .* new\[0\] was absent, is 1"),
    ):
        client.infer(ASKED)


def test_nothing_listens():
    with pytest.raises(PolicyServerError, match=r"No policy server answers .* tried 2 times") as caught:
        client_of(free_port(), retries=1)
    assert caught.value.reason == "dead"


def test_something_else_listens():
    """A program that takes connections and says nothing, as a robot's other port."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(PolicyServerError) as caught:
            client_of(silent.getsockname()[1], connect_s=0.3)
        assert caught.value.reason == "slow"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(b"\x93\x01\x02\x03", "malformed"), (b"\xc1", "malformed"), (encode({"actions": None})[:-1], "malformed")],
)
def test_an_answer_that_is_no_message(answer, reason):
    with other_server(lambda connection, _: connection.send(answer)) as port:
        assert trouble_of(port).reason == reason


def test_a_description_that_makes_no_sense_is_refused_at_once():
    with (
        other_server(shape_of(1, 2), {"gantry": {"horizon": 0}}) as port,
        pytest.raises(
            PolicyServerError, match=r"horizon of a policy's description is 0, expected a whole number from 1"
        ),
    ):
        client_of(port)


@pytest.mark.parametrize("setting", [{"deadline_s": 0.0}, {"connect_s": float("nan")}, {"retries": -1}])
def test_settings_out_of_range(setting):
    with pytest.raises(GantryError, match=next(iter(setting))):
        client_of(1, **setting)
