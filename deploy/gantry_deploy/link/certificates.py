"""Certificates of one correction setup: a small authority, a learner, and an actor per robot."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gantry_deploy.errors import LinkError
from gantry_deploy.link.service import IDENTITY, matched
from gantry_deploy.link.tls import TlsFiles
from gantry_hardware.compat import UTC
from gantry_hardware.files.bounds import whole
from gantry_hardware.files.text import path_text
from gantry_hardware.files.whole_files import write_whole

AUTHORITY, LEARNER = "authority", "learner"
"""Names of files: ``authority.crt`` and ``.key``, ``learner.crt`` and ``.key``; an actor's bear its identity."""
AUTHORITY_DAYS, DAYS = 1825, 90
"""Days for which certificates are valid unless others are given."""
MOST_DAYS = 825
"""Most days of a learner's or an actor's certificate."""
SLACK = timedelta(minutes=5)
"""A certificate is valid so long before it is made, for clocks that are behind."""


@dataclass(frozen=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def tls_files(folder: str | Path, name: str) -> TlsFiles:
    """Files of a learner (``learner``) or an actor (its identity) in a folder of :func:`make_certificates`."""
    folder = Path(folder)
    return TlsFiles(folder / f"{name}.crt", folder / f"{name}.key", folder / f"{AUTHORITY}.crt")


def make_certificates(
    folder: str | Path,
    hosts: Sequence[str],
    actors: Sequence[str],
    *,
    days: int = DAYS,
    renew: bool = False,
    now: datetime | None = None,
) -> list[Path]:
    """Make an authority, unless the folder has one, and certificates that it signs.

    Each machine needs ``authority.crt`` and its own two files; ``authority.key`` should stay where it was made.

    Args:
        folder: Created if missing.
        hosts: Names and IP addresses by which actors reach the learner; none makes no learner's certificate.
        actors: Identities of actors.
        days: Days for which learner and actors may use theirs, at most :data:`MOST_DAYS`.
        renew: Replace certificates that exist; the authority stays.
        now: Present time; that of the machine if None.

    Returns:
        The files that were written, secret keys with permission for their owner alone.

    Raises:
        LinkError: If a name or number makes no sense, a file exists and is not to be renewed, or the disk refuses.
    """
    folder, now = Path(folder), now or datetime.now(UTC)
    whole("days", days, 1, MOST_DAYS, LinkError)
    for actor in actors:
        matched("The identity of an actor", actor, IDENTITY)
        if actor in (AUTHORITY, LEARNER):
            raise LinkError(f"An actor cannot be called '{actor}': that is the name of another file.")
    names = [*([LEARNER] if hosts else []), *actors]
    if not names:
        raise LinkError("Neither a host of the learner nor an actor is given; there is nothing to make.")
    existing = [name for name in names if (folder / f"{name}.crt").exists() or (folder / f"{name}.key").exists()]
    if existing and not renew:
        raise LinkError(
            f"{path_text(folder)} holds certificates of {', '.join(existing)} already; they are replaced on request."
        )
    alternatives = [_alternative(host) for host in hosts]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        authority, written = _authority(folder, now)
        for name in names:
            is_learner = name == LEARNER
            written += _write(folder, name, *_sign(authority, name, alternatives if is_learner else [], days, now))
    except OSError as error:
        raise LinkError(f"{path_text(folder)} cannot be written: {error.strerror}.") from error
    return written


def _authority(folder: Path, now: datetime) -> tuple[_Authority, list[Path]]:
    certificate_path, key_path = folder / f"{AUTHORITY}.crt", folder / f"{AUTHORITY}.key"
    if certificate_path.exists() or key_path.exists():
        try:
            certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
            key = load_pem_private_key(key_path.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise LinkError(
                f"{path_text(certificate_path)} and its .key cannot be read, and both are needed to sign; a new"
                " authority needs another folder, and new certificates for all machines."
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise LinkError(f"{path_text(key_path)} is no elliptic-curve key.")
        if now > certificate.not_valid_after_utc:
            raise LinkError(f"{path_text(certificate_path)} expired on {certificate.not_valid_after_utc:%Y-%m-%d}.")
        return _Authority(certificate, key), []
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Gantry corrections {now:%Y-%m-%d}")
    certificate = (
        _builder(name, name, key, AUTHORITY_DAYS, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _Authority(certificate, key), _write(folder, AUTHORITY, certificate, key)


def _sign(
    authority: _Authority, name: str, alternatives: list[x509.GeneralName], days: int, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    usage = ExtendedKeyUsageOID.SERVER_AUTH if alternatives else ExtendedKeyUsageOID.CLIENT_AUTH
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(_name(name), authority.certificate.subject, key, days, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(
            x509.SubjectAlternativeName(alternatives or [x509.DNSName(name)]),
            critical=False,
        )
    )
    return builder.sign(authority.key, hashes.SHA256()), key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        matched("A host of the learner", host, IDENTITY)
        return x509.DNSName(host)


def _write(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> list[Path]:
    key_path, certificate_path = folder / f"{name}.key", folder / f"{name}.crt"
    key_path.unlink(missing_ok=True)
    file = os.open(key_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write_whole(certificate_path, certificate.public_bytes(Encoding.PEM))
    return [certificate_path, key_path]
