"""Actor's side of the link: steps go out, facts and parameters come in, and the control loop never waits."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import grpc

from gantry_deploy.errors import LinkError
from gantry_deploy.link.codec import encode_step
from gantry_deploy.link.journals.spool import Spool
from gantry_deploy.link.limits import LINK_LIMITS, LinkLimits
from gantry_deploy.link.parameters import Parameters
from gantry_deploy.link.protocol import corrections_pb2 as pb
from gantry_deploy.link.sender import Sender, open_channel, reason_of
from gantry_deploy.link.service import IDENTITY, SHA256, Calls, matched
from gantry_deploy.link.tls import TlsFiles, certificate_name, check_tls
from gantry_deploy.repeated_log import Repeated
from gantry_deploy.session.snapshot import LearnerFacts
from gantry_deploy.session.steps import SessionStep

_LOG = logging.getLogger("gantry.link")


class LinkClient:
    """Connection of an actor to its learner; it connects, and connects again, by threads of its own.

    Args:
        address: ``host:port`` of the learner; off loopback only with ``tls``.
        identity: Name of the actor; with TLS the name in its certificate.
        spool_folder: Folder for steps that are not acknowledged, created if missing; one process at a time. What an
            earlier process has left in it is sent first.
        contract_sha256: SHA-256 of the contract of the policy; the learner's must be the same.
        tls: Certificate, key and authority.
        limits: Deadlines and bounds.
        clock: Monotonic time in seconds.

    Raises:
        LinkError: If address, identity, certificates or folder are refused; not for a learner that is not there.
    """

    def __init__(
        self,
        address: str,
        identity: str,
        spool_folder: str | Path,
        *,
        contract_sha256: str,
        tls: TlsFiles | None = None,
        limits: LinkLimits = LINK_LIMITS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_tls(tls, "actor", address)
        matched("The identity of an actor", identity, IDENTITY)
        matched("contract_sha256", contract_sha256, SHA256)
        if tls is not None and (name := certificate_name(tls)) != identity:
            raise LinkError(f"The certificate {tls.certificate} is that of '{name}', and the identity is '{identity}'.")
        self._limits, self._refused, self._refusals = limits, 0, Repeated(_LOG)
        self._wake = threading.Event()
        header = pb.SpoolHeader(identity=identity, contract_sha256=contract_sha256, address=address)
        self._spool = Spool(Path(spool_folder), header, limits, self._wake.set)
        self._sender = Sender(address, header, self._spool, tls, limits, clock, self._wake)

    def offer(self, step: SessionStep) -> bool:
        """Take a step to be sent, in well under a millisecond; its arrays may be changed afterwards.

        Returns:
            False if it was not taken: it makes no sense (the log says why), or there is no room in memory because the
            disk of the spool has been full for long. Both are counted.
        """
        try:
            data = encode_step(step, self._limits.step_bytes)
        except (LinkError, ValueError, TypeError, OverflowError) as error:
            self._refused += 1
            self._refusals.error(f"A step is not sent: {error}")
            self._spool.put(None)
            return False
        return self._spool.put(data)

    def newest_parameters(self) -> Parameters | None:
        """Newest parameters that have come whole and with the right SHA-256; None before the first."""
        return self._sender.downloads.parameters

    def report_applied(self, version: int, sha256: str) -> None:
        """Tell the learner which parameters the actor really acts with, at the next call."""
        self._sender.applied = (version, sha256)

    @property
    def bundle(self) -> Mapping[str, bytes] | None:
        """Files of the session's bundle by name; None until all have come and their SHA-256 are right."""
        return self._sender.downloads.bundle

    @property
    def dropped(self) -> int:
        """Steps that were not taken: without room, or refused."""
        return self._spool.dropped + self._refused + self._sender.refused_steps

    @property
    def waiting(self) -> int:
        """Steps of this process that the learner has not acknowledged."""
        return self._spool.waiting

    @property
    def acknowledged(self) -> int:
        """Highest number of a step of this process that is on the learner's disk; the first step has 1."""
        return self._spool.own.acknowledged

    @property
    def is_replaced(self) -> bool:
        """Whether a newer actor has the identity, so that this one sends nothing more."""
        return self._sender.is_replaced

    def facts(self) -> LearnerFacts:
        """Facts about the learner as of its last answer, and about the connection."""
        return self._sender.facts(self.waiting, self._spool.trouble, self.dropped)

    def close(self, timeout_s: float = 5.0) -> int:
        """Wait until everything is acknowledged, at most this time, and end.

        Returns:
            Steps that stay in the spool for the next process.
        """
        self._sender.finish(timeout_s)
        self._spool.close()
        return self._spool.waiting

    def __enter__(self) -> LinkClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(0.0 if kind else 5.0)


def learner_status(address: str, tls: TlsFiles | None = None, limits: LinkLimits = LINK_LIMITS) -> pb.StatusAnswer:
    """Status of a learner and its actors, for people and tools.

    Args:
        address: ``host:port`` of the learner; off loopback only with ``tls``.
        tls: Certificate, key and authority of any actor.
        limits: Deadlines and bounds.

    Raises:
        LinkError: If the learner does not answer, with the reason.
    """
    check_tls(tls, "actor", address)
    with open_channel(address, tls, limits) as channel:
        try:
            return Calls(channel, limits.call_deadline_s)(pb.StatusRequest(), pb.StatusAnswer)
        except grpc.RpcError as error:
            raise LinkError(
                f"The learner at {address} does not answer: {reason_of(error, address, tls, limits)}"
            ) from error
