"""Learner's side of the link: actors join, bring steps, and fetch the bundle and the newest parameters."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from numpy.typing import NDArray

from gantry_deploy.errors import LinkError
from gantry_deploy.link.codec import decode_step
from gantry_deploy.link.journals.journal import DiskFullError
from gantry_deploy.link.journals.learner_journal import LearnerJournal, StepSink
from gantry_deploy.link.limits import LINK_LIMITS, PROTOCOL, LinkLimits
from gantry_deploy.link.parameters import Parameters, ParametersStore
from gantry_deploy.link.protocol import corrections_pb2 as pb
from gantry_deploy.link.service import (
    IDENTITY,
    SHA256,
    SOURCE,
    Handler,
    host_and_port,
    matched,
    server_options,
)
from gantry_deploy.link.tls import TlsFiles, check_tls, peer_name, server_credentials
from gantry_deploy.session.snapshot import LearnerFacts
from gantry_hardware.files.text import plain_text, printable

_LOG = logging.getLogger("gantry.link")
HALF = 0.5
"""Share of the allowed backlog from which on actors are asked to send more slowly."""
TEXT = 500
"""Characters of a text to the other side."""


class LinkServer:
    """Server that a learner holds; it serves from its construction on, with threads of its own.

    Args:
        address: ``host:port``; port 0 takes a free one, see :attr:`address`. Off loopback only with ``tls``.
        journal_folder: Folder of the journal and of the parameters, created if missing; one process at a time. The
            steps in it are given to the sink first.
        sink: Receiver of the steps.
        parameters: First parameters, published unless the folder holds some.
        contract_sha256: SHA-256 of the contract of the policy that is learned; actors must have the same.
        bundle: Files of the session's bundle by name, which actors get when they join.
        tls: Certificate, key and authority.
        limits: Deadlines and bounds.
        clock: Monotonic time in seconds.

    Raises:
        LinkError: If address, certificates, folder, bundle or parameters are refused, or the port is taken.
    """

    def __init__(
        self,
        address: str,
        journal_folder: str | Path,
        sink: StepSink,
        parameters: Mapping[str, NDArray[Any]] | None = None,
        *,
        contract_sha256: str,
        bundle: Mapping[str, bytes] | None = None,
        tls: TlsFiles | None = None,
        limits: LinkLimits = LINK_LIMITS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_tls(tls, "learner", address)
        self._limits, self._clock = limits, clock
        self._contract = matched("contract_sha256", contract_sha256, SHA256)
        self._bundle = _contents(bundle or {}, limits)
        self._facts, self._full = LearnerFacts(), ""
        self._calls: dict[str, tuple[float, pb.SendStepsRequest]] = {}
        self._calls_lock = threading.Lock()
        folder = Path(journal_folder)
        self._journal = LearnerJournal(folder, sink, contract_sha256, limits)
        try:
            self._store = ParametersStore(folder / "parameters", contract_sha256, limits.parameters_bytes)
            if parameters is not None and self._store.newest is None:
                self._store.publish(parameters)
            self._server, self.address = self._serve(address, tls)
        except BaseException:
            self._journal.close()
            raise
        _LOG.info("The learner listens on %s, %s TLS.", self.address, "with" if tls else "without")

    def _serve(self, address: str, tls: TlsFiles | None) -> tuple[grpc.Server, str]:
        limits = self._limits
        answers = {"Join": self._join, "SendSteps": self._send_steps, "Fetch": self._fetch, "Status": self._status}
        server = grpc.server(
            ThreadPoolExecutor(limits.workers, "gantry-link"),
            handlers=[Handler(answers, limits, lambda text: _LOG.warning("%s", printable(text, TEXT)))],
            options=server_options(limits),
            maximum_concurrent_rpcs=limits.calls,
        )
        host, _ = host_and_port(address)
        try:
            if tls is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, server_credentials(tls))
        except RuntimeError as error:
            raise LinkError(
                f"The learner cannot listen on {address}: the port is in use, or the host is not this machine's."
            ) from error
        server.start()
        return server, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def publish(self, tensors: Mapping[str, NDArray[Any]]) -> Parameters:
        """Make arrays, by name, of any shape and unit, the newest parameters; actors notice at their next call.

        Raises:
            LinkError: If they hold no finite numbers, are too large, or the disk does not take them.
        """
        return self._store.publish(tensors)

    @property
    def newest_parameters(self) -> Parameters | None:
        """Newest parameters, also those of an earlier process in the same folder."""
        return self._store.newest

    def tell(self, facts: LearnerFacts) -> None:
        """Set what actors are told of the learner: updates, their rate, transitions, corrections, text."""
        self._facts = facts

    @property
    def delivered(self) -> int:
        """Steps that the sink has taken from this process."""
        return self._journal.delivered

    @property
    def trouble(self) -> str:
        """Reason for which steps are not taken, or not given to the sink; empty without one."""
        return self._journal.trouble or self._full

    def status(self) -> pb.StatusAnswer:
        """Learner and actors, as the call ``Status`` answers."""
        return pb.StatusAnswer(
            protocol=PROTOCOL,
            contract_sha256=self._contract,
            learner=self._journal.learner,
            facts=self._facts_message(),
            newest=self._newest(),
            actors=self._actors(),
            journal_bytes=self._journal.bytes,
            delivered=self._journal.delivered,
            trouble=self.trouble,
        )

    def close(self, grace_s: float = 1.0) -> None:
        """End the calls in progress within a time, and the threads; what is acknowledged is on the disk."""
        self._server.stop(grace_s).wait()
        self._journal.close()

    def __enter__(self) -> LinkServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _join(self, request: pb.JoinRequest, context: grpc.ServicerContext) -> pb.JoinAnswer:
        answer = pb.JoinAnswer(
            protocol=PROTOCOL, contract_sha256=self._contract, learner=self._journal.learner, verdict=pb.REFUSED
        )
        if request.protocol != PROTOCOL:
            answer.text = f"The actor speaks version {request.protocol} of the protocol, the learner {PROTOCOL}."
            return answer
        self._check_caller(request.identity, request.source, context)
        if request.contract_sha256 != self._contract:
            answer.text = (
                f"The actor's contract has the SHA-256 {plain_text(request.contract_sha256, 70)}, the learner's"
                f" '{self._contract}': both must run the same policy's bundle."
            )
            _LOG.warning("Actor '%s' is refused. %s", request.identity, answer.text)
            return answer
        try:
            is_owner = self._journal.join(request.identity, request.source)
        except DiskFullError as error:
            self._full = str(error)
            answer.verdict, answer.text = pb.WAIT, self._full[:TEXT]
            return answer
        if not is_owner:
            answer.verdict = pb.REPLACED
            answer.text = f"A newer actor has joined as '{request.identity}'."
            return answer
        _LOG.info("Actor '%s' has joined from %s.", request.identity, context.peer())
        answer.verdict = pb.ACCEPTED
        for source in [request.source, *request.left_sources[: self._limits.actors]]:
            answer.received.append(pb.Received(source=source, number=self._journal.highest(source)))
        answer.facts.CopyFrom(self._facts_message())
        answer.newest.CopyFrom(self._newest())
        answer.bundle.extend(pb.Content(name=n, sha256=h, size=len(d)) for n, (h, d) in self._bundle.items())
        return answer

    def _send_steps(self, request: pb.SendStepsRequest, context: grpc.ServicerContext) -> pb.SendStepsAnswer:
        self._check_caller(request.identity, request.source, context)
        answer = pb.SendStepsAnswer(verdict=self._journal.standing(request.identity, request.source))
        if answer.verdict != pb.ACCEPTED:
            return answer
        source = matched("steps_source", request.steps_source, SOURCE)
        good, bad = self._checked(request.steps)
        share = self._journal.backlog_share()
        if share >= 1.0 and request.steps:
            answer.verdict, answer.wait_s = pb.WAIT, self._limits.wait_s
            answer.text = "The learner is behind with what it has."
            answer.acknowledged = self._journal.highest(source)
        elif context.is_active():
            try:
                answer.verdict, answer.acknowledged = self._journal.take(request.identity, request.source, source, good)
                self._full = ""
            except DiskFullError as error:
                if not self._full:
                    _LOG.error("%s", error)
                self._full = str(error)
                answer.verdict, answer.wait_s, answer.text = pb.WAIT, self._limits.wait_s, self._full[:TEXT]
                answer.acknowledged = self._journal.highest(source)
            else:
                answer.wait_s = self._limits.wait_s * max(0.0, share - HALF) / HALF
                if bad and answer.verdict == pb.ACCEPTED:
                    answer.verdict, answer.bad_number = pb.BAD_STEP, request.steps[len(good)].number
                    answer.text = bad[:TEXT]
        self._note_call(request)
        answer.facts.CopyFrom(self._facts_message())
        answer.newest.CopyFrom(self._newest())
        return answer

    def _fetch(self, request: pb.FetchRequest, context: grpc.ServicerContext) -> pb.FetchAnswer:
        wanted = matched("sha256", request.sha256, SHA256)
        data = self._store.find(wanted)
        if data is None:
            data = next((data for found, data in self._bundle.values() if found == wanted), None)
        if data is None:
            return pb.FetchAnswer(found=False)
        if request.offset > len(data):
            raise LinkError(f"offset is {request.offset}, and the content has {len(data)} bytes.")
        piece = data[request.offset : request.offset + self._limits.piece_bytes]
        return pb.FetchAnswer(found=True, size=len(data), data=piece)

    def _status(self, request: pb.StatusRequest, context: grpc.ServicerContext) -> pb.StatusAnswer:
        return self.status()

    def _check_caller(self, identity: str, source: str, context: grpc.ServicerContext) -> None:
        matched("identity", identity, IDENTITY)
        matched("source", source, SOURCE)
        name = peer_name(context)
        if name is not None and name != identity:
            raise LinkError(f"The certificate is that of {plain_text(name)}, not of the actor '{identity}'.")

    def _checked(self, steps: Sequence[pb.NumberedStep]) -> tuple[Sequence[pb.NumberedStep], str]:
        """Steps before the first that could not be given to the sink later, and what is wrong with that one."""
        if len(steps) > self._limits.batch_steps:
            raise LinkError(f"A message has {len(steps)} steps, at most {self._limits.batch_steps} are taken.")
        before = 0
        for step in steps:
            if not before < step.number < 2**63:
                raise LinkError(f"The number {step.number} of a step follows {before}; numbers must rise.")
            before = step.number
        for index, step in enumerate(steps):
            try:
                decode_step(step.step, self._limits.message_bytes)
            except LinkError as error:
                return steps[:index], str(error)
        return steps, ""

    def _note_call(self, request: pb.SendStepsRequest) -> None:
        del request.steps[:]
        version, sha256 = request.applied_version, request.applied_sha256
        with self._calls_lock:
            before = self._calls.get(request.identity)
            self._calls[request.identity] = (self._clock(), request)
        newest = self._store.newest
        is_wrong = newest is not None and newest.version == version and newest.sha256 != sha256
        if is_wrong and (before is None or before[1].applied_sha256 != sha256):
            _LOG.error(
                "Actor '%s' acts with parameters %d of SHA-256 %s, which were not published.",
                request.identity,
                version,
                plain_text(sha256, 70),
            )

    def _actors(self) -> list[pb.ActorStatus]:
        with self._calls_lock:
            calls = dict(self._calls)
        found = []
        for identity, (owner, sources) in self._journal.by_identity().items():
            heard_s, call = calls.get(identity, (None, pb.SendStepsRequest()))
            found.append(
                pb.ActorStatus(
                    identity=identity,
                    source=owner,
                    age_s=-1.0 if heard_s is None else self._clock() - heard_s,
                    steps=sum(item.steps for item in sources),
                    missing=sum(item.missing for item in sources),
                    waiting=call.waiting,
                    applied_version=call.applied_version,
                    applied_sha256=call.applied_sha256[:64],
                )
            )
        return found

    def _facts_message(self) -> pb.Facts:
        facts = self._facts
        return pb.Facts(
            updates=facts.updates,
            updates_per_s=facts.updates_per_s,
            transitions=facts.transitions,
            corrections=facts.corrections,
            text=(self.trouble or facts.text)[:TEXT],
        )

    def _newest(self) -> pb.NewestParameters:
        newest = self._store.newest
        if newest is None:
            return pb.NewestParameters()
        content = pb.Content(name="parameters", sha256=newest.sha256, size=len(newest.data))
        return pb.NewestParameters(version=newest.version, content=content)


def _contents(bundle: Mapping[str, bytes], limits: LinkLimits) -> dict[str, tuple[str, bytes]]:
    size = sum(map(len, bundle.values()))
    if size > limits.bundle_bytes:
        raise LinkError(f"The bundle has {size} bytes, at most {limits.bundle_bytes} are sent.")
    for name in bundle:
        matched("The name of a file in the bundle", name, IDENTITY)
    return {name: (hashlib.sha256(data).hexdigest(), bytes(data)) for name, data in bundle.items()}
