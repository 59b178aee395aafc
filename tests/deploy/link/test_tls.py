"""Handshakes: both sides must have certificates of one authority, and a refusal has its reason."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

import grpc
import pytest

from gantry_deploy.errors import LinkError
from gantry_deploy.link.certificates import make_certificates, tls_files
from gantry_deploy.link.client import LinkClient, learner_status
from gantry_deploy.link.limits import LINK_LIMITS, PROTOCOL
from gantry_deploy.link.protocol import corrections_pb2 as pb
from gantry_deploy.link.server import LinkServer
from gantry_deploy.link.service import Calls
from gantry_deploy.link.tls import channel_credentials, explain_refusal, server_credentials
from gantry_deploy.testing.link import CONTRACT, made_step
from gantry_fixtures.proxy import Proxy
from gantry_hardware.compat import UTC

FAST = replace(LINK_LIMITS, heartbeat_s=0.1, retry_first_s=0.05, retry_most_s=0.2, call_deadline_s=2.0)
HOSTS = ["127.0.0.1"]


class Sink:
    def __init__(self):
        self.steps = []

    def take(self, actor, steps):
        self.steps += [(actor, int(step.stamp_s)) for step in steps]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Certificates that are good, of another authority, and old."""
    found = {name: tmp_path_factory.mktemp(name) for name in ("good", "foreign", "old", "early", "elsewhere")}
    for name in ("good", "foreign"):
        make_certificates(found[name], HOSTS, ["robot-1", "robot-2"])
    for name, arguments in (
        ("old", {"days": 1, "now": datetime.now(UTC) - timedelta(days=5)}),
        ("early", {"now": datetime.now(UTC) + timedelta(days=5)}),
        ("elsewhere", {}),
    ):
        for part in ("crt", "key"):
            (found[name] / f"authority.{part}").write_bytes((found["good"] / f"authority.{part}").read_bytes())
        make_certificates(found[name], ["10.9.8.7"] if name == "elsewhere" else HOSTS, ["robot-1"], **arguments)
    return found


@pytest.fixture
def sink():
    return Sink()


@pytest.fixture
def server(folders, tmp_path, sink):
    tls = tls_files(folders["good"], "learner")
    # A port of every address of this machine, which is allowed with certificates alone.
    with LinkServer("0.0.0.0:0", tmp_path / "j", sink, contract_sha256=CONTRACT, tls=tls, limits=FAST) as found:
        found.address = found.address.replace("0.0.0.0", "127.0.0.1")
        yield found


def connect(address, folder, spool, tls=True):
    files = tls_files(folder, "robot-1") if tls else None
    return LinkClient(address, "robot-1", spool, contract_sha256=CONTRACT, tls=files, limits=FAST)


def test_steps_travel_over_mutual_tls(server, folders, sink, tmp_path, until):
    with connect(server.address, folders["good"], tmp_path / "s") as client:
        for number in range(20):
            client.offer(made_step(number))
        until(lambda: client.acknowledged == 20, "acknowledgement")
    until(lambda: sink.steps == [("robot-1", number) for number in range(20)], "all steps")


def test_the_certificate_is_the_identity(server, folders):
    files = tls_files(folders["good"], "robot-2")
    request = pb.JoinRequest(protocol=PROTOCOL, identity="robot-1", source="0" * 16, contract_sha256=CONTRACT)
    with grpc.secure_channel(server.address, channel_credentials(files)) as channel:
        with pytest.raises(grpc.RpcError, match="The certificate is that of 'robot-2', not of the actor 'robot-1'"):
            Calls(channel, 3.0)(request, pb.JoinAnswer)
        assert Calls(channel, 3.0)(pb.StatusRequest(), pb.StatusAnswer).protocol == PROTOCOL


@pytest.mark.parametrize("kind", ["foreign", "old", "early", "none"])
def test_wrong_certificates_of_an_actor_are_refused_by_the_learner(server, folders, kind):
    """Sent by a caller that does not look at its own, as :class:`LinkClient` would."""
    authority = (folders["good"] / "authority.crt").read_bytes()
    pair = [(folders[kind] / f"robot-1.{part}").read_bytes() for part in ("key", "crt")] if kind != "none" else []
    credentials = grpc.ssl_channel_credentials(authority, *pair)
    with grpc.secure_channel(server.address, credentials) as channel, pytest.raises(grpc.RpcError) as caught:
        Calls(channel, 3.0)(pb.StatusRequest(), pb.StatusAnswer)
    assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    with grpc.secure_channel(server.address, channel_credentials(tls_files(folders["good"], "robot-1"))) as channel:
        assert Calls(channel, 3.0)(pb.StatusRequest(), pb.StatusAnswer).protocol == PROTOCOL


def test_an_actor_without_tls_is_not_served(server, folders, tmp_path, until):
    with Proxy(server.address) as proxy:  # As if through a tunnel that ends on this machine.
        client = connect(proxy.address, folders["good"], tmp_path / "s", tls=False)
        client.offer(made_step(0))
        until(lambda: "not reachable" in client.facts().text, "a reason")
        assert client.close(0.1) == 1


def test_an_actor_of_another_authority_says_so(server, folders, tmp_path, until, caplog):
    client = connect(server.address, folders["foreign"], tmp_path / "s")
    until(lambda: "the learner's certificate is of another authority" in client.facts().text, "the reason")
    client.close(0.0)
    assert "of another authority" in caplog.text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("old", r"the learner's certificate has expired; this machine's clock says"),
        ("early", r"the learner's certificate is not yet valid; this machine's clock says"),
        ("foreign", r"the learner's certificate is of another authority"),
        ("elsewhere", r"the learner's certificate is not for this address"),
    ],
)
def test_each_refusal_of_a_learner_has_its_reason(folders, tmp_path, until, kind, text):
    """A learner that did not look at its own certificate, as :class:`LinkServer` does."""
    raw = grpc.server(ThreadPoolExecutor(1))
    port = raw.add_secure_port("127.0.0.1:0", server_credentials(tls_files(folders[kind], "learner")))
    raw.start()
    client = connect(f"127.0.0.1:{port}", folders["good"], tmp_path / "s")
    until(lambda: text in client.facts().text, text)
    client.close(0.0)
    raw.stop(0).wait()


def test_a_certificate_that_the_learner_refuses_is_explained(server, folders, tmp_path):
    """Another authority of the learner than the actor's, seen from the actor."""
    good, foreign = tls_files(folders["good"], "robot-1"), tls_files(folders["foreign"], "robot-1")
    assert explain_refusal(server.address, good, 2.0) == ""
    # The actor trusts both authorities, the learner one.
    both = tmp_path / "both.crt"
    both.write_bytes(foreign.authority.read_bytes() + good.authority.read_bytes())
    found = explain_refusal(server.address, replace(foreign, authority=both), 2.0)
    assert "the learner refuses" in found
    assert "of another authority than" in found


def test_status_is_for_holders_of_a_certificate(server, folders):
    found = learner_status(server.address, tls_files(folders["good"], "robot-2"))
    assert (found.contract_sha256, list(found.actors)) == (CONTRACT, [])
    with pytest.raises(LinkError, match=r"does not answer: the learner's certificate is of another authority"):
        learner_status(server.address, tls_files(folders["foreign"], "robot-1"), FAST)


def test_a_learner_without_tls_is_recognised(folders, tmp_path):
    with LinkServer("127.0.0.1:0", tmp_path / "j", Sink(), contract_sha256=CONTRACT, limits=FAST) as plain:
        found = explain_refusal(plain.address, tls_files(folders["good"], "robot-1"), 2.0)
    assert "speaks no TLS" in found
