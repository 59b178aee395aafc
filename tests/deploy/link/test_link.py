"""Client and server over loopback: what is taken, in which order, what is refused, and what each side is told."""

import ast
import logging
import pickle
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest

from gantry_deploy import link
from gantry_deploy.errors import LinkError
from gantry_deploy.link.client import LinkClient
from gantry_deploy.link.codec import encode_step
from gantry_deploy.link.limits import LINK_LIMITS, PROTOCOL, LinkLimits
from gantry_deploy.link.protocol import corrections_pb2 as pb
from gantry_deploy.link.server import LinkServer
from gantry_deploy.link.service import SERVICE, Calls
from gantry_deploy.session.snapshot import LearnerFacts
from gantry_deploy.testing.link import made_step

CONTRACT = "c0" * 32
FAST = replace(LINK_LIMITS, heartbeat_s=0.1, retry_first_s=0.05, refused_retry_s=0.2, wait_s=0.05)
BUNDLE = {"policy.onnx": bytes(range(256)) * 10_000, "contract.json": b"{}", "empty": b""}


class Sink:
    """Sink that keeps (actor, stamp) of each step."""

    def __init__(self):
        self.steps, self.gate = [], threading.Event()
        self.gate.set()

    def take(self, actor, steps):
        self.gate.wait(30.0)
        self.steps += [(actor, int(step.stamp_s)) for step in steps]

    def of(self, actor):
        return [number for found, number in self.steps if found == actor]


@pytest.fixture
def sink():
    return Sink()


@pytest.fixture
def serve(tmp_path, sink):
    opened = []

    def make(**options):
        options = {"contract_sha256": CONTRACT, "limits": FAST, **options}
        address = options.pop("address", "127.0.0.1:0")
        opened.append(LinkServer(address, tmp_path / "journal", options.pop("sink", sink), **options))
        return opened[-1]

    yield make
    sink.gate.set()
    for server in opened:
        server.close(0.0)


@pytest.fixture
def join(tmp_path):
    opened = []

    def make(server, identity="robot-1", spool=None, **options):
        options = {"contract_sha256": CONTRACT, "limits": FAST, **options}
        address = server if isinstance(server, str) else server.address
        opened.append(LinkClient(address, identity, tmp_path / (spool or f"spool-{identity}"), **options))
        return opened[-1]

    yield make
    for client in opened:
        client.close(0.0)


def offer(client, numbers, run=0):
    for number in numbers:
        assert client.offer(made_step(number, run, image_px=8))


def test_steps_arrive_in_order_and_once_within_the_attempt(serve, join, sink, until):
    server = serve()
    clients = [join(server, name) for name in ("robot-1", "robot-2")]
    for number in range(300):  # No attempt of these has ended.
        for client in clients:
            assert client.offer(
                replace(made_step(number, image_px=8), episode=0, index=number, truncated=False, last_obs=None)
            )
    until(lambda: len(sink.steps) == 600, "all steps")
    assert sink.of("robot-1") == sink.of("robot-2") == list(range(300))
    until(lambda: all(client.acknowledged == 300 for client in clients), "all acknowledged")
    assert [client.waiting for client in clients] == [0, 0]
    actors = {actor.identity: actor for actor in server.status().actors}
    assert {(actor.steps, actor.missing) for actor in actors.values()} == {(300, 0)}


def test_bundle_parameters_and_facts_reach_the_actor(serve, join, until):
    first = {"actor.weight": np.arange(700_000, dtype=np.float32)}
    server = serve(parameters=first, bundle=BUNDLE)
    client = join(server)
    until(lambda: client.newest_parameters(), "parameters")
    assert client.bundle == BUNDLE
    np.testing.assert_array_equal(client.newest_parameters().tensors()["actor.weight"], first["actor.weight"])
    second = server.publish({"actor.weight": np.ones(3, np.float32)})
    until(lambda: client.newest_parameters().version == 2, "the second version")
    assert client.newest_parameters() == second
    client.report_applied(second.version, second.sha256)
    server.tell(LearnerFacts(updates=12, updates_per_s=3.5, transitions=400, corrections=40, text="learning"))
    facts = until(lambda: (found := client.facts()).updates == 12 and found, "facts")
    assert facts == LearnerFacts(True, facts.age_s, 12, 3.5, 400, 40, 2, second.sha256, 0, "learning")
    actor = until(lambda: (found := server.status().actors[0]).applied_version and found, "what acts")
    assert (actor.applied_version, actor.applied_sha256) == (2, second.sha256)


def test_a_learner_begun_again_has_all_steps_and_higher_versions(serve, join, sink, until):
    server = serve(parameters={"w": np.zeros(3)})
    client = join(server)
    offer(client, range(50))
    until(lambda: client.acknowledged == len(sink.steps) == 50, "acknowledgement")
    server.close(0.0)
    offer(client, range(50, 60))
    again = Sink()
    second = serve(sink=again, address=server.address, parameters={"w": np.ones(3)})
    assert second.newest_parameters.version == 1
    assert second.publish({"w": np.full(3, 2.0)}).version == 2
    until(lambda: again.of("robot-1") == list(range(60)), "all steps")
    until(lambda: (found := client.newest_parameters()) and found.version == 2 and client.waiting == 0, "parameters")
    assert sink.of("robot-1") == list(range(50))


def test_an_actor_with_another_contract_is_refused_with_both(serve, join, until, caplog):
    server = serve()
    client = join(server, contract_sha256="d1" * 32)
    facts = until(lambda: "contract" in (found := client.facts()).text and found, "a refusal")
    assert f"'{'d1' * 32}'" in facts.text
    assert f"'{CONTRACT}'" in facts.text
    assert not facts.connected
    offer(client, range(3))
    assert client.close(0.3) == 3  # They stay in the spool.
    assert server.status().actors == []
    assert "both must run the same policy's bundle" in caplog.text


def test_a_journal_of_another_contract_is_refused(serve, join, until):
    server = serve()
    client = join(server)
    offer(client, range(1))
    until(lambda: client.acknowledged, "acknowledgement")
    server.close(0.0)
    with pytest.raises(LinkError, match=f"holds steps of the contract {CONTRACT}, and this learner has d1d1"):
        serve(contract_sha256="d1" * 32)
    serve().close(0.0)


def test_the_newer_of_two_actors_with_one_identity_takes_over(serve, join, sink, until, caplog):
    server = serve()
    old = join(server, spool="old")
    offer(old, range(20))
    until(lambda: old.acknowledged == 20, "acknowledgement")
    new = join(server, spool="new")
    until(lambda: new.facts().connected, "connection")
    offer(old, range(20, 25))
    until(lambda: old.is_replaced, "the replacement")
    assert "replaced: a newer actor has joined as 'robot-1'" in old.facts().text
    offer(new, range(10), run=1)
    until(lambda: new.acknowledged == 10, "acknowledgement")
    assert old.close(0.1) == 5
    until(lambda: sink.of("robot-1") == [*range(20), *range(10)], "steps of both")
    server.close(0.0)  # Also a learner that was begun again knows which one is the newer.
    caplog.clear()
    second = serve(address=server.address)
    until(lambda: new.facts().connected, "connection")
    with grpc.insecure_channel(second.address) as channel:
        answer = Calls(channel, 5.0)(request(source=old_source(server)), pb.JoinAnswer)
    assert answer.verdict == pb.REPLACED
    third = join(second, spool="old")  # What the older one has left is not lost: a new process brings it.
    until(lambda: sink.of("robot-1")[-5:] == list(range(20, 25)), "what was left")
    assert until(lambda: third.facts().connected, "connection")


def old_source(server):
    sources = server._journal._table.sources
    return next(name for name, source in sources.items() if source.is_replaced)


def request(**changes):
    fields = {"protocol": PROTOCOL, "identity": "robot-1", "source": "0" * 16, "contract_sha256": CONTRACT}
    return pb.JoinRequest(**(fields | changes))


def test_two_processes_do_not_share_a_spool(serve, join):
    server = serve()
    join(server)
    with pytest.raises(LinkError, match="spool-robot-1 is in use by process"):
        join(server)


def test_a_second_learner_does_not_share_journal_or_port(serve, tmp_path):
    server = serve()
    with pytest.raises(LinkError, match="journal is in use by process"):
        serve()
    with pytest.raises(LinkError, match="cannot listen on"):
        LinkServer(server.address, tmp_path / "other", Sink(), contract_sha256=CONTRACT)


def test_steps_that_make_no_sense_are_counted_and_others_go_on(serve, join, sink, until, caplog):
    server = serve()
    client = join(server)
    offer(client, [0])
    assert not client.offer(replace(made_step(1), reward=float("nan")))
    assert not client.offer(replace(made_step(1), action=None))
    offer(client, [2])
    until(lambda: sink.of("robot-1") == [0, 2], "the good steps")
    assert client.dropped == 2
    until(lambda: client.waiting == 0, "acknowledgement")
    assert "2 steps were dropped" in client.facts().text
    assert "reward of a step is nan" in caplog.text
    assert [(actor.steps, actor.missing) for actor in server.status().actors] == [(2, 2)]


def test_a_step_that_the_learner_refuses_does_not_hold_up_the_others(serve, join, sink, until, caplog):
    server = serve()
    client = join(server)
    client._spool.put(b"no step")
    offer(client, range(40))
    client._spool.put(encode_step(made_step(0, image_px=4), 2**20)[:-3])
    offer(client, range(40, 50))
    until(lambda: sink.of("robot-1") == list(range(50)), "the good steps")
    until(lambda: client.waiting == 0, "acknowledgement")
    assert client.dropped == 2
    assert "The learner refuses step 1, which is left out: 7 bytes are not a step" in caplog.text


def test_an_actor_is_asked_to_wait_while_the_sink_is_behind(serve, join, sink, until):
    limits = replace(FAST, backlog_bytes=20_000)
    server = serve(limits=limits)
    sink.gate.clear()
    client = join(server)
    for number in range(200):
        offer(client, [number])
        time.sleep(0.001)
    until(lambda: "behind" in client.facts().text, "a hint")
    assert client.waiting > 0
    assert server.status().journal_bytes < 200_000
    sink.gate.set()
    until(lambda: sink.of("robot-1") == list(range(200)), "all steps")
    until(lambda: client.waiting == 0, "acknowledgement")


def test_a_sink_that_fails_loses_nothing(serve, join, until):
    class Broken:
        def take(self, actor, steps):
            raise ValueError("no memory")

    server = serve(sink=Broken())
    client = join(server)
    offer(client, range(5))
    until(lambda: client.acknowledged == 5, "acknowledgement")
    until(lambda: "sink has failed and takes no more steps: no memory" in client.facts().text, "the trouble")
    assert "no memory" in server.trouble
    server.close(0.0)
    good = Sink()
    serve(sink=good)
    until(lambda: good.of("robot-1") == list(range(5)), "all steps")


def test_offering_neither_waits_nor_fails_without_a_learner(join, until):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = join(f"127.0.0.1:{taken.getsockname()[1]}", limits=replace(FAST, queue_steps=100_000))
        offer(client, range(200))
        facts = until(lambda: "not reachable" in (found := client.facts()).text and found, "a reason")
    assert not facts.connected
    assert facts.waiting == 200
    assert client.newest_parameters() is None
    assert client.close(0.1) == 200


def test_a_full_spool_drops_and_counts_what_comes_and_makes_room_again(serve, join, sink, until, tmp_path):
    """One bound for all processes that have used the spool, also while what an earlier one has left fills it."""
    limits = replace(FAST, segment_bytes=2**13, spool_bytes=2**15, queue_steps=10)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        first = join(address, limits=limits)
        until(lambda: not first.offer(made_step(0, 1, image_px=8)), "the bound")
        kept = first.close(0.0)
        client = join(address, limits=limits)
        numbers = [number for number in range(30) if client.offer(made_step(number, 2, image_px=8))]
    assert 10 <= len(numbers) < 30
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.journal"))
    assert 2**14 < size <= 2**15
    assert client.dropped == 30 - len(numbers)
    assert f"{client.dropped} steps were dropped" in client.facts().text
    serve(address=address)
    until(lambda: client.waiting == 0, "acknowledgement")
    offer(client, [30])
    until(lambda: client.waiting == 0, "acknowledgement")
    until(lambda: sink.of("robot-1")[-len(numbers) - 1 :] == [*numbers, 30], "all steps")
    assert len(sink.steps) >= kept - 10 + len(numbers)


def test_many_segments_of_left_processes_come_in_their_order(serve, join, sink, until):
    limits = replace(FAST, segment_bytes=2**12, batch_steps=7)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for run in range(3):
            client = join(address, limits=limits)
            offer(client, range(100 * run, 100 * run + 40), run)
            assert client.close(0.0) == 40
    client = join(serve(address=address), limits=limits)
    offer(client, [999])
    until(lambda: client.acknowledged == 1, "acknowledgement")
    until(lambda: len(sink.steps) == 121, "all steps")
    assert sink.of("robot-1") == [*range(40), *range(100, 140), *range(200, 240), 999]


def test_a_jump_of_the_time_of_day_loses_nothing(serve, join, sink, until):
    """Worse than a real jump, which gRPC's Python and its core see at once: only Python sees this one."""
    server = serve()
    client = join(server)
    offer(client, range(10))
    until(lambda: client.acknowledged == 10, "acknowledgement")
    real = time.time
    for jump_s in (3.2e7, -3.2e7):
        before = client.acknowledged
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", lambda jump_s=jump_s: real() + jump_s)
            offer(client, range(before, before + 10))
            time.sleep(0.3)
        until(lambda before=before: client.acknowledged == before + 10, "acknowledgement")
        until(lambda: client.facts().connected, "connection")
    until(lambda: sink.of("robot-1") == list(range(30)), "all steps")
    assert client.dropped == 0


def test_nothing_but_certificates_looks_at_the_time_of_day():
    folder = Path(link.__file__).parent
    found = {
        path.name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("time", "now", "utcnow", "today")
        if isinstance(node.value, ast.Name) and node.value.id in ("time", "datetime", "date")
    }
    assert found == {"tls.py", "certificates.py"}


def test_a_clock_can_be_given(serve, join, until):
    now = [100.0]
    client = join(serve(clock=lambda: now[0]), clock=lambda: now[0])
    until(lambda: client.facts().connected, "connection")
    now[0] += 50.0  # No answer is younger than that, until the next.
    until(lambda: client.facts().age_s < 1.0, "the next answer")


@pytest.fixture
def call(serve, sink):
    server = serve()
    with grpc.insecure_channel(server.address, [("grpc.max_send_message_length", -1)]) as channel:

        def send(name, data, timeout=5.0):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(name if "/" in name else SERVICE + name)(data, timeout=timeout)
            return caught.value.code().name, caught.value.details()

        send.address = server.address
        send.answer = lambda message, kind: Calls(channel, 5.0)(message, kind)
        yield send
    assert sink.steps == []
    with grpc.insecure_channel(server.address) as channel:  # It serves on.
        assert Calls(channel, 5.0)(pb.StatusRequest(), pb.StatusAnswer).protocol == PROTOCOL


STEPS = {"identity": "robot-1", "source": "0" * 16, "steps_source": "0" * 16}


def test_messages_that_are_none_are_refused_in_words(call):
    for name, data, text in (
        ("Join", b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00cposix\nsystem\n", "are not a Join of Gantry's"),
        ("SendSteps", b"\xff" * 100, "are not a SendSteps of Gantry's"),
        ("Fetch", pb.FetchRequest(sha256="../x").SerializeToString(), "sha256 is '../x'"),
        ("Join", request(identity="../robot").SerializeToString(), "identity is '../robot'"),
        ("Join", request(source="1").SerializeToString(), "source is '1'"),
    ):
        assert call(name, data)[0] == "INVALID_ARGUMENT"
        assert text in call(name, data)[1]


def test_numbers_that_do_not_rise_are_refused_before_a_step_is_taken(call):
    assert call.answer(request(), pb.JoinAnswer).verdict == pb.ACCEPTED
    good = encode_step(made_step(0, image_px=4), 2**20)
    for numbers, text in (
        ((1, 1), "number 1 of a step follows 1"),
        ((5, 4), "number 4 of a step follows 5"),
        ((0,), "number 0 of a step follows 0"),
        ((2**63,), "numbers must rise"),
        (range(1, 258), "has 257 steps, at most 256"),
    ):
        steps = [pb.NumberedStep(number=number, step=good) for number in numbers]
        code, said = call("SendSteps", pb.SendStepsRequest(**STEPS, steps=steps).SerializeToString())
        assert code == "INVALID_ARGUMENT"
        assert text in said


def test_an_object_array_is_named_and_not_taken(call):
    assert call.answer(request(), pb.JoinAnswer).verdict == pb.ACCEPTED
    odd = pb.Step.FromString(encode_step(made_step(0, image_px=4), 2**20))
    odd.action.dtype = "object"
    odd.action.data = pickle.dumps([0.0])
    steps = [pb.NumberedStep(number=7, step=odd.SerializeToString())]
    answer = call.answer(pb.SendStepsRequest(**STEPS, steps=steps), pb.SendStepsAnswer)
    assert (answer.verdict, answer.acknowledged, answer.bad_number) == (pb.BAD_STEP, 0, 7)
    assert "action has the dtype 'object', expected one of bool, uint8" in answer.text


def test_a_message_beyond_the_limit_is_refused_by_its_length(call):
    code, said = call("SendSteps", bytes(32 * 2**20), timeout=10.0)
    assert code == "RESOURCE_EXHAUSTED"
    assert "larger than max" in said


def test_a_compressed_message_is_refused(call):
    """A small message must not unfold into a large one."""
    data = pb.StatusRequest().SerializeToString() + bytes(2**20)
    channel = grpc.insecure_channel(call.address, compression=grpc.Compression.Gzip)
    with channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(SERVICE + "Status")(data, timeout=5.0)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_calls_without_or_with_long_deadlines_are_refused(call):
    for timeout in (None, 3600.0):
        assert "Status has no deadline of at most 60 s" in call("Status", b"", timeout=timeout)[1]


def test_other_services_and_versions_are_refused(call, caplog):
    code, said = call("/transport.LearnerService/Ready", b"")
    assert (code, "learner of Gantry's correction sessions" in said) == ("UNIMPLEMENTED", True)
    answer = call.answer(request(protocol=9), pb.JoinAnswer)
    assert (answer.verdict, answer.text) == (pb.REFUSED, "The actor speaks version 9 of the protocol, the learner 1.")


def test_an_actor_that_has_not_joined_is_asked_to(call):
    answer = call.answer(pb.SendStepsRequest(**STEPS), pb.SendStepsAnswer)
    assert answer.verdict == pb.JOIN_FIRST


def test_more_actors_than_allowed_are_refused(serve, sink):
    server = serve(limits=replace(FAST, actors=2))
    with grpc.insecure_channel(server.address) as channel:
        calls = Calls(channel, 5.0)
        for index in range(2):
            assert calls(request(identity=f"r{index}", source=f"{index:016x}"), pb.JoinAnswer).verdict == pb.ACCEPTED
        with pytest.raises(grpc.RpcError, match="knows 2 actors, at most 2"):
            calls(request(identity="r2", source=f"{2:016x}"), pb.JoinAnswer)
        with pytest.raises(grpc.RpcError, match="belongs to actor 'r0', not to 'r1'"):
            calls(request(identity="r1", source=f"{0:016x}"), pb.JoinAnswer)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"call_deadline_s": 0.0}, "limits.call_deadline_s is 0.0, expected a number from 0.1"),
        ({"retry_first_s": float("nan")}, "limits.retry_first_s is nan"),
        ({"spool_bytes": 2**20}, "limits.spool_bytes is 1048576, at least two segments"),
        ({"step_bytes": 4 * 2**20}, "limits.step_bytes is 4194304, at most 4177920 fit into limits.message_bytes"),
    ],
)
def test_limits_that_make_no_sense_are_refused(changes, text):
    with pytest.raises(LinkError, match=text):
        LinkLimits(**changes)


@pytest.fixture(autouse=True)
def _logged(caplog):
    caplog.set_level(logging.INFO, "gantry.link")
