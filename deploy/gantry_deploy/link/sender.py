"""Thread of an actor that talks to the learner: joins, sends steps, fetches, and tries again after every failure."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

import grpc

from gantry_deploy.errors import LinkError
from gantry_deploy.link.downloads import Downloads
from gantry_deploy.link.journals.spool import Spool, SpooledSource
from gantry_deploy.link.limits import PROTOCOL, LinkLimits
from gantry_deploy.link.protocol import corrections_pb2 as pb
from gantry_deploy.link.service import Calls, channel_options
from gantry_deploy.link.tls import TlsFiles, channel_credentials, explain_refusal
from gantry_deploy.repeated_log import Repeated
from gantry_deploy.session.snapshot import LearnerFacts
from gantry_hardware.files.text import printable

_LOG = logging.getLogger("gantry.link")
TEXT = 500
"""Characters of a text of the learner that are shown."""


class _RefusedError(LinkError):
    """The learner does not take this actor; asked again later."""


class _WaitError(LinkError):
    """The learner asks to join again a little later."""


class Sender:
    """Sender of an actor; the attributes may be read from any thread.

    Args:
        address: ``host:port`` of the learner.
        header: Identity, source and contract of this process.
        spool: Steps.
        tls: Certificate, key and authority.
        limits: Deadlines and bounds.
        clock: Monotonic time in seconds.
        wake: Set when the spool has a new step.
    """

    def __init__(
        self,
        address: str,
        header: pb.SpoolHeader,
        spool: Spool,
        tls: TlsFiles | None,
        limits: LinkLimits,
        clock: Callable[[], float],
        wake: threading.Event,
    ) -> None:
        self._address, self._header, self._spool, self._tls = address, header, spool, tls
        self._limits, self._clock, self._wake = limits, clock, wake
        self._sources: list[SpooledSource] = [*spool.left, spool.own]
        self.downloads = Downloads(header.contract_sha256, limits)
        self.applied: tuple[int, str] = (0, "")
        self.is_replaced = False
        self.refused_steps = 0
        self._facts, self._heard_s, self._is_joined = pb.Facts(), clock(), False
        self._reason, self._reasons = "not connected yet", Repeated(_LOG)
        self._channel: grpc.Channel | None = None
        self._end, self._finish_by_s = threading.Event(), float("inf")
        self._thread = threading.Thread(target=self._run, name="gantry-link", daemon=True)
        self._thread.start()

    def facts(self, waiting: int, trouble: str, dropped: int) -> LearnerFacts:
        """Facts as of the last answer; see :meth:`LinkClient.facts`."""
        age_s = self._clock() - self._heard_s
        connected = self._is_joined and age_s < self._limits.silent_s
        text = self._facts.text if connected else self._reason or f"no answer for {age_s:.1f} s"
        if dropped:
            text = f"{dropped} steps were dropped; {text}"
        parameters = self.downloads.parameters
        return LearnerFacts(
            connected=connected,
            age_s=age_s,
            updates=self._facts.updates,
            updates_per_s=self._facts.updates_per_s,
            transitions=self._facts.transitions,
            corrections=self._facts.corrections,
            parameters_version=parameters.version if parameters else 0,
            parameters_sha256=parameters.sha256 if parameters else "",
            waiting=waiting,
            text=printable(f"{trouble} {text}".strip(), TEXT),
        )

    def finish(self, timeout_s: float) -> None:
        """End as soon as everything is acknowledged, and after this time anyway."""
        self._finish_by_s = self._clock() + timeout_s
        self._wake.set()
        self._thread.join(timeout_s)
        self._end.set()
        self._wake.set()
        if (channel := self._channel) is not None and self._thread.is_alive():
            channel.close()
        self._thread.join()

    def _run(self) -> None:
        delay_s = self._limits.retry_first_s
        while not self._end.is_set() and not self.is_replaced and self._clock() < self._finish_by_s:
            pause_s = delay_s
            try:
                self._converse()
                return
            except _RefusedError as error:
                self._say(str(error))
                pause_s = self._limits.refused_retry_s
            except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed by finish().
                if self._is_joined:
                    pause_s = delay_s = self._limits.retry_first_s
                if not self._end.is_set():
                    self._say(reason_of(error, self._address, self._tls, self._limits))
            except LinkError as error:
                self._say(str(error))
            except Exception:
                _LOG.exception("The link has met an error of its own; it connects again.")
            self._is_joined = False
            self._end.wait(min(pause_s, max(0.0, self._finish_by_s - self._clock())))
            delay_s = min(2 * delay_s, self._limits.retry_most_s)

    def _say(self, reason: str) -> None:
        self._reason = reason
        self._reasons.error(f"Link to the learner at {self._address}: {printable(reason, 2 * TEXT)}")

    def _converse(self) -> None:
        """Talk over one connection, until all is done or it fails."""
        channel = open_channel(self._address, self._tls, self._limits)
        self._channel = channel
        try:
            call = Calls(channel, self._limits.call_deadline_s)
            while not self._end.is_set():
                self._join(call)
                if not self._pump(call):
                    return
        finally:
            channel.close()

    def _join(self, call: Calls) -> None:
        answer = call(
            pb.JoinRequest(
                protocol=PROTOCOL,
                identity=self._header.identity,
                source=self._header.source,
                contract_sha256=self._header.contract_sha256,
                left_sources=[item.name for item in self._sources if item is not self._spool.own],
            ),
            pb.JoinAnswer,
        )
        if answer.verdict == pb.WAIT:
            raise _WaitError(answer.text or "the learner asks to wait")
        if answer.verdict == pb.REPLACED:
            self._stop_replaced()
        if answer.verdict != pb.ACCEPTED:
            raise _RefusedError(answer.text or "the learner refuses this actor")
        numbers = {item.source: item.number for item in answer.received}
        for source in self._sources:
            source.acknowledge(numbers.get(source.name, 0))
        self._is_joined, self._reason = True, ""
        self._reasons.over()
        _LOG.info("Joined the learner at %s as '%s'.", self._address, self._header.identity)
        self.downloads.begin(answer.learner, answer.bundle)
        self._hear(answer.facts, answer.newest)

    def _stop_replaced(self) -> NoReturn:
        self.is_replaced = True
        raise _RefusedError(
            f"replaced: a newer actor has joined as '{self._header.identity}'. This one sends nothing more; its"
            f" {'steps that are not acknowledged stay in its spool' if not self._is_empty() else 'spool is empty'}."
        )

    def _is_empty(self) -> bool:
        return not self._spool.queued and all(source.is_empty() for source in self._sources)

    def _hear(self, facts: pb.Facts, newest: pb.NewestParameters) -> None:
        self._facts, self._heard_s = facts, self._clock()
        self.downloads.hear(newest)

    def _pump(self, call: Calls) -> bool:
        """Send and fetch; True if the learner wants a new introduction, False when all is done."""
        sent_s = float("-inf")
        while not self._end.is_set():
            self._wake.clear()
            source, steps = self._next_steps()
            now_s = self._clock()
            if now_s >= self._finish_by_s or (self._finish_by_s < float("inf") and not steps and self._is_empty()):
                return False
            is_fetching = self.downloads.advance(call)
            rest_s = sent_s + self._limits.heartbeat_s - now_s
            if not steps and rest_s > 0.0:
                if not is_fetching:
                    self._wake.wait(min(rest_s, self._limits.heartbeat_s))
                continue
            sent_s = now_s
            if not self._send(call, source, steps):
                return True
        return False

    def _next_steps(self) -> tuple[SpooledSource, Sequence[pb.NumberedStep]]:
        while len(self._sources) > 1:
            source = self._sources[0]
            if steps := source.batch():
                return source, steps
            _LOG.info("What an earlier process has left in the spool is acknowledged (%s).", source.name)
            source.remove()
            del self._sources[0]
        return self._sources[0], self._sources[0].batch()

    def _send(self, call: Calls, source: SpooledSource, steps: Sequence[pb.NumberedStep]) -> bool:
        """Send steps, or none to hear facts; False if the learner wants a new introduction."""
        version, sha256 = self.applied
        request = pb.SendStepsRequest(
            identity=self._header.identity,
            source=self._header.source,
            steps_source=source.name,
            steps=steps,
            applied_version=version,
            applied_sha256=sha256,
            waiting=self._spool.waiting,
        )
        answer = call(request, pb.SendStepsAnswer)
        if answer.verdict == pb.JOIN_FIRST:
            return False
        if answer.verdict == pb.REPLACED:
            self._stop_replaced()
        is_bad = answer.verdict == pb.BAD_STEP and answer.bad_number in (step.number for step in steps)
        if answer.verdict not in (pb.ACCEPTED, pb.WAIT) and not is_bad:
            raise _RefusedError(answer.text or "the learner refuses steps")
        source.acknowledge(answer.acknowledged)
        if is_bad:
            self.refused_steps += 1
            text = printable(answer.text, TEXT)
            _LOG.error("The learner refuses step %d, which is left out: %s", answer.bad_number, text)
            source.acknowledge(answer.bad_number)
        self._hear(answer.facts, answer.newest)
        if answer.verdict == pb.WAIT and answer.text:
            self._facts.text = answer.text
        if answer.wait_s > 0.0:  # False for NaN.
            self._end.wait(min(answer.wait_s, self._limits.retry_most_s))
        return True


def open_channel(address: str, tls: TlsFiles | None, limits: LinkLimits) -> grpc.Channel:
    """Channel to a learner; nothing is sent before the first call."""
    options = channel_options(limits)
    if tls is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, channel_credentials(tls), options)


NO_LEARNER = "not reachable: no learner listens there"
"""Reason for which a connection is refused."""


def reason_of(error: Exception, address: str, tls: TlsFiles | None, limits: LinkLimits) -> str:
    """Reason for which a call has failed, in words; with TLS found by a handshake of its own."""
    if not isinstance(error, grpc.Call):
        return str(error)
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {limits.call_deadline_s:g} s"
    if code is grpc.StatusCode.UNAVAILABLE:
        found = explain_refusal(address, tls, min(1.0, limits.call_deadline_s)) if tls is not None else ""
        return found or (NO_LEARNER if "Connection refused" in details else f"not reachable ({details})")
    return f"{code.name.lower()}: {details}"
