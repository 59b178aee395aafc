"""Mutual TLS of the link: files that are checked before they are used, and reasons of refusals in words."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gantry_deploy.errors import LinkError
from gantry_deploy.link.service import host_and_port
from gantry_deploy.process.hosts import is_loopback
from gantry_hardware.compat import UTC
from gantry_hardware.files.text import path_text, printable

Role = Literal["learner", "actor"]
MAKE = "gantry session certificates"
"""Command that makes certificates."""
MAX_PEM_BYTES = 2**18
"""Largest file of a certificate or key."""
JUMP_S = 60.0
"""Difference between wall clock and monotonic clock that counts as a jump."""


@dataclass(frozen=True)
class TlsFiles:
    """Certificate, private key, and the certificate of the authority that has signed both sides' certificates."""

    certificate: Path
    """Own certificate, PEM."""
    key: Path
    """Private key of it, PEM without a password."""
    authority: Path
    """Certificate of the authority, PEM."""


class WallClock:
    """Time of day that notices when it was set anew.

    Args:
        wall_s: Seconds since 1970.
        monotonic_s: Seconds that nothing sets.
    """

    def __init__(
        self, wall_s: Callable[[], float] = time.time, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall_s, self._monotonic_s = wall_s, monotonic_s
        self._offset_s = wall_s() - monotonic_s()

    def now(self) -> datetime:
        """Time of day, UTC."""
        return datetime.fromtimestamp(self._wall_s(), UTC)

    def jump_s(self) -> float:
        """Seconds by which the time of day was set forward since this object was made; 0 for less than a minute."""
        jump_s = self._wall_s() - self._monotonic_s() - self._offset_s
        return jump_s if abs(jump_s) >= JUMP_S else 0.0


WALL_CLOCK = WallClock()
"""This process's clock, from its start on."""


def check_tls(tls: TlsFiles | None, role: Role, address: str, clock: WallClock = WALL_CLOCK) -> None:
    """Refuse an address off this machine without TLS, and certificates that the other side would refuse.

    Raises:
        LinkError: With the file, what is wrong with it, and the command that makes certificates.
    """
    host, _ = host_and_port(address)
    if tls is None:
        if not is_loopback(host):
            raise LinkError(
                f"{address} is not this machine, and there only mutual TLS is accepted. Give a certificate, its key,"
                f" and the authority's certificate; '{MAKE}' makes them."
            )
        return
    authority, own = _certificate(tls.authority), _certificate(tls.certificate)
    for path, certificate in ((tls.authority, authority), (tls.certificate, own)):
        _check_time(path, certificate, clock)
    try:
        own.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise LinkError(
            f"{path_text(tls.certificate)} is not signed by {path_text(tls.authority)}: it is of another authority"
            f" ({_name(own.issuer)}). Take both from one run of '{MAKE}'."
        ) from error
    _check_role(tls.certificate, own, role)
    _check_key(tls, own)


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise LinkError(f"{path_text(path)} is no certificate in PEM.") from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PEM_BYTES + 1)
    except OSError as error:
        raise LinkError(f"{path_text(path)} cannot be read: {error.strerror}. '{MAKE}' makes certificates.") from error
    if len(data) > MAX_PEM_BYTES:
        raise LinkError(f"{path_text(path)} has more than {MAX_PEM_BYTES} bytes, and is no certificate or key.")
    return data


def _check_time(path: Path, certificate: x509.Certificate, clock: WallClock) -> None:
    now, begin, end = clock.now(), certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if begin <= now <= end:
        return
    jump_s = clock.jump_s()
    said = f"This machine's clock says {now:%Y-%m-%d %H:%M:%S} UTC"
    if jump_s:
        said += f"; it was set {'forward' if jump_s > 0 else 'back'} by {abs(jump_s):.0f} s since this process began"
        before = now.timestamp() - jump_s
        if begin.timestamp() <= before <= end.timestamp():
            said += ", and before that the certificate was valid: set the clock right, the certificate is good"
    elif now < begin or now.timestamp() < _written_s(path) - JUMP_S:
        said += ", which is before the file was made: the clock is probably wrong"
    if now < begin:
        raise LinkError(f"{path_text(path)} is not yet valid, before {begin:%Y-%m-%d %H:%M:%S} UTC. {said}.")
    raise LinkError(
        f"{path_text(path)} expired on {end:%Y-%m-%d %H:%M:%S} UTC. {said}. '{MAKE}' makes new certificates."
    )


def _written_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _check_role(path: Path, certificate: x509.Certificate, role: Role) -> None:
    wanted = ExtendedKeyUsageOID.SERVER_AUTH if role == "learner" else ExtendedKeyUsageOID.CLIENT_AUTH
    try:
        usages = list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        usages = [wanted]
    if wanted not in usages:
        other = "an actor" if role == "learner" else "a learner"
        raise LinkError(f"{path_text(path)} is the certificate of {other}, expected that of the {role}.")


def _check_key(tls: TlsFiles, certificate: x509.Certificate) -> None:
    try:
        key = load_pem_private_key(_read(tls.key), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise LinkError(f"{path_text(tls.key)} is no private key in PEM without a password.") from error
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
        raise LinkError(f"{path_text(tls.key)} is not the key of {path_text(tls.certificate)}.")


def certificate_name(tls: TlsFiles) -> str:
    """Common name in the own certificate; that of an actor is its identity.

    Raises:
        LinkError: If the certificate cannot be read.
    """
    return _name(_certificate(tls.certificate).subject)


def _name(name: x509.Name) -> str:
    values = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return printable(str(values[0].value)) if values else "without a name"


def server_credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    """Credentials of a learner that takes actors with a certificate of the authority, and no others."""
    pair = (_read(tls.key), _read(tls.certificate))
    return grpc.ssl_server_credentials([pair], _read(tls.authority), require_client_auth=True)


def channel_credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    """Credentials of an actor that takes a learner with a certificate of the authority for its address."""
    return grpc.ssl_channel_credentials(_read(tls.authority), _read(tls.key), _read(tls.certificate))


def peer_name(context: grpc.ServicerContext) -> str | None:
    """Common name in the certificate of a caller; None without TLS."""
    found = context.auth_context()
    if found.get("transport_security_type", [b""])[0] != b"ssl":
        return None
    names = found.get("x509_common_name", [])
    return bytes(names[0]).decode("utf-8", "replace") if names else ""


def explain_refusal(address: str, tls: TlsFiles, deadline_s: float, clock: WallClock = WALL_CLOCK) -> str:
    """Reason for which no connection comes about, found by a TLS handshake of its own; empty if it succeeds.

    Args:
        address: Address of the learner.
        tls: Files of the actor.
        deadline_s: Longest time.
        clock: Time of day.
    """
    try:
        check_tls(tls, "actor", address, clock)
    except LinkError as error:
        return str(error)
    host, port = host_and_port(address)
    context = ssl.create_default_context(cafile=str(tls.authority))
    context.load_cert_chain(str(tls.certificate), str(tls.key))
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host, port), deadline_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            # With TLS 1.3 the learner judges the actor's certificate after this side is done; then it speaks first.
            if secure.recv(1):
                return ""
            return (
                f"the learner refuses {path_text(tls.certificate)} without a reason: it is of another authority than"
                " the learner's, or one of the two clocks is wrong"
            )
    except ssl.SSLCertVerificationError as error:
        return _own_reason(error, clock)
    except ssl.SSLError as error:
        return _alert_reason(error, tls)
    except OSError as error:
        return f"no connection: {error.strerror or error}"


def _own_reason(error: ssl.SSLCertVerificationError, clock: WallClock) -> str:
    now = f"this machine's clock says {clock.now():%Y-%m-%d %H:%M} UTC"
    reasons = {
        9: f"the learner's certificate is not yet valid; {now}",
        10: f"the learner's certificate has expired; {now}",
        18: "the learner's certificate is signed by itself, not by the authority",
        19: "the learner's certificate is of another authority",
        20: "the learner's certificate is of another authority",
        62: "the learner's certificate is not for this address",
        64: "the learner's certificate is not for this address",
    }
    jump_s = clock.jump_s()
    jumped = f" (the clock was set by {jump_s:+.0f} s since this process began)" if jump_s else ""
    return reasons.get(error.verify_code, f"the learner's certificate is refused: {error.verify_message}") + jumped


def _alert_reason(error: ssl.SSLError, tls: TlsFiles) -> str:
    text = str(error).lower()
    name = path_text(tls.certificate)
    if "unknown ca" in text or "unknown_ca" in text or "bad certificate" in text or "decrypt error" in text:
        return f"the learner refuses {name}: it is of another authority than the learner's"
    if "expired" in text:
        return f"the learner refuses {name} as expired, and here it is not: one of the two clocks is wrong"
    if "certificate required" in text or "handshake failure" in text:
        return "the learner asks for a certificate, and none was sent"
    if "wrong version" in text or "record layer" in text:
        return "the other side speaks no TLS: a learner without certificates, or another program"
    return f"the handshake fails: {error.reason or error}"
