"""The server on real sockets: access, errors as openpi's has them, several clients, and its end."""

import signal
import socket
import threading
import urllib.request
from dataclasses import replace

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from gantry_deploy.cli.main import main
from gantry_deploy.errors import PolicyServerError
from gantry_deploy.openpi.client import PolicyClient
from gantry_deploy.openpi.codec import MessageLimits, decode, encode
from gantry_deploy.openpi.description import description_of
from gantry_deploy.openpi.served import ServedPolicy
from gantry_deploy.openpi.server import MAX_CLIENTS, PolicyServer, ServeConfig
from gantry_fixtures.openpi import bundle_server, port_of, serve_process
from gantry_hardware.errors import GantryError

KEY = "a-key-of-enough-letters"
JOINTS = "observation/joint_position"
LONG_S = 60.0


@pytest.fixture(scope="module")
def address(step_bundle):
    with bundle_server(ServedPolicy(step_bundle)) as address:
        yield address


def client_of(address, **settings):
    host = "localhost" if address.startswith("wss") else "127.0.0.1"
    return PolicyClient(host, port_of(address), **{"deadline_s": LONG_S, "connect_s": LONG_S, **settings})


def test_a_client_learns_what_it_talks_to_and_gets_actions(address, step_bundle):
    state = np.zeros(step_bundle.contract.observation_size, np.float32)
    with client_of(address) as client:
        told = client.description
        assert (
            told.to_metadata()["gantry"].items() >= description_of(step_bundle.contract).to_metadata()["gantry"].items()
        )
        timings = [client.infer({"observation/state": state})["server_timing"].keys() for _ in range(2)]
        batch = {"observation/state": np.stack([state] * 3), "gantry/rows": 3}
        assert client.infer(batch, rows=3)["actions"].shape == (3, 1, 4)
    assert timings == [{"infer_ms"}, {"infer_ms", "prev_total_ms"}]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (encode({"observation/state": np.zeros(3)}), "'observation/state' has shape (3,), expected (18,)"),
        (encode({JOINTS: np.full(7, np.inf)}), "is not finite: inf at (0,)"),
        ("text", "expected a binary message in msgpack"),
        (b"\x80\x04\x95", "A message of the policy protocol is refused"),
    ],
)
def test_a_wrong_observation_is_answered_by_a_text_and_the_end(address, message, words):
    with connect(address, compression=None) as connection:
        decode(connection.recv())
        connection.send(message)
        text = connection.recv()
        assert isinstance(text, str)
        assert words in text
        with pytest.raises(ConnectionClosedError) as caught:
            connection.recv()
        assert caught.value.rcvd.code == 1011
    with client_of(address) as client:  # The server lives on.
        assert client.infer({JOINTS: np.zeros(7)})["actions"].shape == (1, 4)


def test_our_client_hands_the_reason_on(address):
    with (
        client_of(address) as client,
        pytest.raises(PolicyServerError, match=r"has shape \(3,\), expected \(18,\)") as caught,
    ):
        client.infer({"observation/state": np.zeros(3)})
    assert caught.value.reason == "error_frame"


def test_a_message_beyond_the_bound_ends_its_connection_alone(step_bundle):
    with bundle_server(ServedPolicy(step_bundle), limits=MessageLimits(message_bytes=10_000)) as address:
        with client_of(address, retries=0) as client, pytest.raises(PolicyServerError) as caught:
            client.infer({"observation/state": np.zeros(5000)})
        assert caught.value.reason == "dead"
        with client_of(address) as client:
            assert client.infer({JOINTS: np.zeros(7)})["actions"].shape == (1, 4)


def test_several_clients_at_once_do_not_disturb_one_another(address, step_bundle):
    """Each moves its own arm; what it gets is what it gets alone."""
    rng = np.random.default_rng(0)
    paths = rng.normal(0.0, 0.05, (4, 10, 7)) + np.array(step_bundle.contract.default_pos_rad)
    served, found = ServedPolicy(step_bundle), {}

    def drive(number):
        with client_of(address) as client:
            found[number] = [client.infer({JOINTS: joints})["joint_targets"] for joints in paths[number]]

    threads = [threading.Thread(target=drive, args=(i,)) for i in range(len(paths))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    for number, path in enumerate(paths):
        alone = served.client()
        np.testing.assert_array_equal(
            found[number], [alone.infer({JOINTS: joints})["joint_targets"] for joints in path]
        )


def test_health_is_plain_http(address):
    with urllib.request.urlopen(address.replace("ws://", "http://") + "/healthz", timeout=LONG_S) as answer:
        assert (answer.status, answer.read()) == (200, b"OK\n")


class WaitingPolicy(ServedPolicy):
    """A policy that computes until it is told to go on."""

    def __init__(self, bundle):
        super().__init__(bundle)
        self.asked, self.go_on = threading.Event(), threading.Event()

    def client(self):
        client = super().client()

        def infer(message, answer=client.infer):
            self.asked.set()
            assert self.go_on.wait(LONG_S)
            return answer(message)

        client.infer = infer
        return client


def test_the_server_lives_while_the_network_computes(step_bundle):
    """It answers plain HTTP and greets another client."""
    served, found = WaitingPolicy(step_bundle), []
    with bundle_server(served) as address, client_of(address) as client:
        thread = threading.Thread(target=lambda: found.append(client.infer({JOINTS: np.zeros(7)})))
        thread.start()
        assert served.asked.wait(LONG_S)
        with urllib.request.urlopen(address.replace("ws://", "http://") + "/healthz", timeout=LONG_S) as answer:
            assert answer.status == 200
        client_of(address).close()
        assert found == []
        served.go_on.set()
        thread.join(LONG_S)
    assert found[0]["actions"].shape == (1, 4)


def test_a_page_of_a_browser_is_refused(address):
    with pytest.raises(InvalidStatus, match="403"):
        connect(address, origin="http://example.org")


def test_a_key_is_asked_for(step_bundle):
    with bundle_server(ServedPolicy(step_bundle), ServeConfig(port=0, api_key=KEY)) as address:
        for key in (None, KEY[:-1], ""):
            with pytest.raises(PolicyServerError, match=r"HTTP 401, 'The API key is missing or wrong.'") as caught:
                client_of(address, api_key=key)
            assert caught.value.reason == "refused"
        with client_of(address, api_key=KEY) as client:
            assert client.infer({JOINTS: np.zeros(7)})["actions"].shape == (1, 4)


def test_one_client_too_many_is_told_so(address):
    clients = [client_of(address) for _ in range(MAX_CLIENTS)]
    with pytest.raises(PolicyServerError, match=f"{MAX_CLIENTS} clients are connected"):
        client_of(address, retries=0)
    for client in clients:
        client.close()


def test_tls_is_spoken_with_clients_that_trust_its_authority(step_bundle, tmp_path):
    pytest.importorskip("grpc", reason="certificates are made by the tools of the link")
    from gantry_deploy.link.certificates import make_certificates, tls_files

    for name in ("own", "other"):
        make_certificates(tmp_path / name, ["localhost", "127.0.0.1"], [])
    files = tls_files(tmp_path / "own", "learner")
    config = ServeConfig(host="localhost", port=0, tls_certificate=files.certificate, tls_key=files.key)
    with bundle_server(ServedPolicy(step_bundle), config) as address:
        assert address.startswith("wss://")
        with client_of(address, authority=files.authority) as client:
            assert client.infer({JOINTS: np.zeros(7)})["actions"].shape == (1, 4)
        with pytest.raises(PolicyServerError, match="is not trusted") as caught:
            client_of(address, authority=tls_files(tmp_path / "other", "learner").authority)
        assert caught.value.reason == "refused"
        with pytest.raises(PolicyServerError) as caught:
            client_of(address, retries=0)
        assert caught.value.reason == "dead"
    with pytest.raises(GantryError, match="cannot be used"):
        PolicyServer(ServedPolicy(step_bundle), replace(config, tls_key=files.certificate))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"host": "0.0.0.0"}, "can be reached from other machines"),
        ({"host": "0.0.0.0", "api_key": KEY}, "together with --insecure"),
        ({"host": "::", "insecure": True}, "Give --tls-cert"),
        ({"tls_certificate": "c.pem"}, "give --tls-cert and --tls-key"),
        ({"api_key": "short"}, "16 or more"),
        ({"api_key": KEY + "\n" + KEY}, "on one line"),
        ({"port": 70000}, "The port is 70000"),
    ],
)
def test_unsafe_places_are_refused(settings, words):
    with pytest.raises(GantryError, match=words):
        ServeConfig(**settings)


def test_a_trusted_network_is_served_with_a_key(step_bundle):
    config = ServeConfig(host="0.0.0.0", port=0, api_key=KEY, insecure=True)
    with bundle_server(ServedPolicy(step_bundle), config) as address, client_of(address, api_key=KEY) as client:
        assert client.infer({JOINTS: np.zeros(7)})["actions"].shape == (1, 4)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_command_cleanly_while_a_client_is_connected(plan_bundle, number):
    with serve_process(plan_bundle.path) as (process, port):
        client = PolicyClient("127.0.0.1", port, deadline_s=LONG_S, connect_s=LONG_S, retries=0)
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(LONG_S) == 0
    assert rest == "ended\n"
    with pytest.raises(PolicyServerError) as caught:
        client.infer({})
    assert caught.value.reason == "dead"


def test_the_command_refuses_what_it_cannot_serve(plan_bundle, tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", str(plan_bundle.path), "--port", port]) == 2
    assert f"Cannot listen on 127.0.0.1, port {port}: Address already in use" in " ".join(
        capsys.readouterr().err.split()
    )
    key = tmp_path / "key"
    assert main(["serve", str(plan_bundle.path), "--api-key-file", str(key)]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err
    assert main(["serve", str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err
